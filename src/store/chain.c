/* SPDX-License-Identifier: MIT */
/* chain: see chain.h. Every field of a digest has a tag and a length, so that no two lists of fields read the same. */
#include "store/chain.h"
#include "state/format.h"

#include <bsd/stdlib.h>
#include <sha2.h>

/* ------------------------------------------------------------------------------------------- prompts */

static const uint16_t prompt_end[] = {
    KVL_END(kvlazy_prompt, token), KVL_END(kvlazy_prompt, n_token), KVL_END(kvlazy_prompt, n_span),
    KVL_END(kvlazy_prompt, span),  KVL_END(kvlazy_prompt, scope),   KVL_END(kvlazy_prompt, scope_bytes),
    KVL_END(kvlazy_prompt, cell),  KVL_END(kvlazy_prompt, stream),  0,
};

_Static_assert(KVL_IS_LAST(kvlazy_prompt, stream), "a member is not among the ends");

static bool spans_fit(const kvlazy_prompt *p)
{
    uint32_t end = 0;

    if (p->n_span && !p->span)
        return false;
    for (uint32_t i = 0; i < p->n_span; i++) {
        const kvlazy_span *s = &p->span[i];

        if (s->begin < end || s->begin > p->n_token || !s->n || s->n > p->n_token - s->begin || !s->id || !s->id_bytes)
            return false;
        end = s->begin + s->n;
    }
    return true;
}

static bool cells_fit(const kvlazy_cache *c, const kvlazy_prompt *p)
{
    if (!kvl_has_engine_cells(c))
        return !p->cell;
    if (p->stream >= c->params.n_stream || (p->n_token && !p->cell))
        return false;
    for (uint32_t i = 0; i < p->n_token; i++)
        if (p->cell[i] >= c->params.kv_size)
            return false;
    return true;
}

bool kvl_prompt_read(const kvlazy_cache *c, const kvlazy_prompt *theirs, kvlazy_prompt *p)
{
    *p = (kvlazy_prompt){.struct_size = sizeof *p};
    if (!theirs || !kvl_input_fits(theirs, sizeof *theirs, prompt_end))
        return false;
    kvl_struct_copy(p, sizeof *p, theirs, kvl_struct_size(theirs));
    if (p->n_token > INT32_MAX || (p->n_token && !p->token) || (p->scope_bytes && !p->scope))
        return false;
    return spans_fit(p) && cells_fit(c, p);
}

/* ------------------------------------------------------------------------------------------- digests */

static void put_number(SHA2_CTX *sum, uint64_t value)
{
    uint8_t byte[8];

    for (int i = 0; i < 8; i++)
        byte[i] = (uint8_t)(value >> 8 * i);
    SHA256Update(sum, byte, sizeof byte);
}

enum tag { MODEL = 1, ORDER, CACHE, TENSOR, BLOCK_TOKENS, SCOPE, PARENT, TOKENS, SPANS, SPAN };

static void put_bytes(SHA2_CTX *sum, enum tag tag, const void *data, size_t bytes)
{
    put_number(sum, tag);
    put_number(sum, bytes);
    if (bytes)
        SHA256Update(sum, data, bytes);
}

/* What the rows of one cache look like. */
static void put_cache(SHA2_CTX *sum, const kvlazy_cache *c)
{
    const kvl_tensor *t = NULL;

    put_number(sum, CACHE);
    put_number(sum, c->params.n_pos_per_token > 1 ? 3 : 1);
    put_bytes(sum, MODEL, c->tag, c->params.model_tag_bytes);
    while ((t = kvl_state_next_tensor(&c->rows.geometry, t))) {
        kvl_state_tensor is = kvl_state_tensor_of(t);

        put_number(sum, TENSOR);
        put_number(sum, is.layer_id);
        put_number(sum, is.is_v);
        put_number(sum, is.row_bytes);
    }
}

/* Rows are bytes of this machine's order. */
static void name_root(const kvlazy_cache *c, const kvlazy_prompt *p, uint32_t block_tokens, uint8_t *name)
{
    static const char domain[] = "kvlazy prefix store";
    const uint32_t order = 0x01020304;
    SHA2_CTX sum;

    SHA256Init(&sum);
    SHA256Update(&sum, (const uint8_t *)domain, sizeof domain);
    put_number(&sum, KVL_STORE_VERSION);
    put_bytes(&sum, ORDER, &order, sizeof order);
    for (const kvlazy_cache *m = c->group->first; m; m = m->next)
        put_cache(&sum, m);
    put_number(&sum, BLOCK_TOKENS);
    put_number(&sum, block_tokens);
    put_bytes(&sum, SCOPE, p->scope, p->scope_bytes);
    SHA256Final(name, &sum);
}

void kvl_chain_spans(const kvlazy_prompt *p, uint32_t begin, uint32_t n, uint8_t digest[KVL_NAME_BYTES])
{
    SHA2_CTX sum;

    SHA256Init(&sum);
    for (uint32_t i = 0; i < p->n_span; i++) {
        const kvlazy_span *s = &p->span[i];

        if (s->begin >= begin + n || s->begin + s->n <= begin)
            continue;
        put_number(&sum, SPAN);
        put_number(&sum, s->begin);
        put_number(&sum, s->n);
        put_bytes(&sum, SPAN, s->id, s->id_bytes);
    }
    SHA256Final(digest, &sum);
}

static void name_block(const kvl_chain *chain, const kvlazy_prompt *p, uint32_t block)
{
    uint32_t n = chain->block_tokens, begin = block * n;
    uint8_t spans[KVL_NAME_BYTES];
    SHA2_CTX sum;

    SHA256Init(&sum);
    put_bytes(&sum, PARENT, chain->name[block], KVL_NAME_BYTES);
    put_number(&sum, TOKENS);
    put_number(&sum, n);
    for (uint32_t i = begin; i < begin + n; i++)
        put_number(&sum, (uint32_t)p->token[i]);
    kvl_chain_spans(p, begin, n, spans);
    put_bytes(&sum, SPANS, spans, sizeof spans);
    SHA256Final(chain->name[block + 1], &sum);
}

int kvl_chain_init(kvl_chain *chain, const kvlazy_cache *c, const kvlazy_prompt *p, uint32_t n_token,
                   uint32_t block_tokens)
{
    *chain = (kvl_chain){.block_tokens = block_tokens, .n_block = n_token / block_tokens};
    chain->name = reallocarray(NULL, chain->n_block + (size_t)1, sizeof *chain->name);
    if (!chain->name)
        return KVLAZY_ENOMEM;
    name_root(c, p, block_tokens, chain->name[0]);
    return KVLAZY_OK;
}

void kvl_chain_name_blocks(kvl_chain *chain, const kvlazy_prompt *p)
{
    for (uint32_t i = 0; i < chain->n_block; i++)
        name_block(chain, p, i);
}

void kvl_chain_fini(kvl_chain *chain)
{
    free(chain->name);
    *chain = (kvl_chain){0};
}
