/* SPDX-License-Identifier: MIT */
/* blob: see blob.h. */
#include "store/blob.h"
#include "state/checksum.h"
#include "state/format.h"

#include <bsd/stdlib.h>

enum { FIXED_BYTES = 104, PART_BYTES = 32, SUM_BYTES = 8 };

/* ------------------------------------------------------------------------------------------- sizes */

static uint32_t count_parts(kvl_blob_shape *s, kvlazy_cache *c)
{
    uint32_t n = 0;

    s->n_cache = 0;
    for (kvlazy_cache *m = c->group->first; m; m = m->next, s->n_cache++)
        for (const kvl_tensor *t = NULL; (t = kvl_state_next_tensor(&m->rows.geometry, t));) {
            if (s->part)
                s->part[n] = (kvl_blob_part){m, t, s->n_cache, kvl_state_row_bytes(t), 0};
            n++;
        }
    return n;
}

/* Row sizes and counts are bounded by a geometry that fits in the address space, so nothing here is too large. */
int kvl_blob_shape_init(kvl_blob_shape *s, kvlazy_cache *c, uint32_t n_token)
{
    *s = (kvl_blob_shape){.n_token = n_token};
    s->n_part = count_parts(s, c);
    s->part = reallocarray(NULL, s->n_part + (size_t)1, sizeof *s->part);
    if (!s->part)
        return KVLAZY_ENOMEM;
    count_parts(s, c);
    s->header_bytes =
        FIXED_BYTES + n_token * UINT64_C(4) + KVL_NAME_BYTES + s->n_part * (uint64_t)PART_BYTES + SUM_BYTES;
    s->header_bytes = kvl_round_up(s->header_bytes, KVL_BLOB_PAGE_BYTES);
    uint64_t at = s->header_bytes;
    for (uint32_t i = 0; i < s->n_part; i++) {
        s->part[i].offset = at;
        at += n_token * s->part[i].row_bytes;
    }
    s->bytes = kvl_round_up(at, KVL_BLOB_PAGE_BYTES);
    s->payload_bytes = s->bytes - s->header_bytes;
    return KVLAZY_OK;
}

void kvl_blob_shape_fini(kvl_blob_shape *s)
{
    free(s->part);
    *s = (kvl_blob_shape){0};
}

/* ------------------------------------------------------------------------------------------- headers */

static unsigned char *put_u32(unsigned char *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        *at++ = (unsigned char)(value >> 8 * i);
    return at;
}

static unsigned char *put_u64(unsigned char *at, uint64_t value)
{
    return put_u32(put_u32(at, (uint32_t)value), (uint32_t)(value >> 32));
}

static unsigned char *put_name(unsigned char *at, const uint8_t *name)
{
    memcpy(at, name, KVL_NAME_BYTES);
    return at + KVL_NAME_BYTES;
}

static unsigned char *put_fixed(const kvl_blob_shape *s, const kvl_chain *chain, uint32_t block, unsigned char *at)
{
    at = put_u64(at, KVL_BLOB_MAGIC);
    at = put_u32(at, KVL_STORE_VERSION);
    at = put_u32(at, (uint32_t)s->header_bytes);
    at = put_u32(at, KVL_BLOB_TOKENS);
    at = put_u32(at, s->n_part);
    at = put_name(at, chain->name[block + 1]);
    at = put_name(at, chain->name[block]);
    at = put_u32(at, block * s->n_token);
    at = put_u32(at, s->n_token);
    return put_u64(at, s->payload_bytes);
}

static unsigned char *put_parts(const kvl_blob_shape *s, const unsigned char *blob, unsigned char *at)
{
    for (uint32_t i = 0; i < s->n_part; i++) {
        const kvl_blob_part *p = &s->part[i];
        kvl_state_tensor is = kvl_state_tensor_of(p->tensor);

        at = put_u32(at, is.layer_id);
        at = put_u32(at, 2 * p->number + is.is_v);
        at = put_u64(at, p->row_bytes);
        at = put_u64(at, p->offset);
        at = put_u64(at, kvl_checksum_of(blob + p->offset, (size_t)(s->n_token * p->row_bytes)));
    }
    return at;
}

void kvl_blob_put_header(const kvl_blob_shape *s, const kvl_chain *chain, const kvlazy_prompt *p, uint32_t block,
                         const unsigned char *blob, unsigned char *header)
{
    uint32_t begin = block * s->n_token;
    unsigned char *at = put_fixed(s, chain, block, header);

    for (uint32_t i = 0; i < s->n_token; i++)
        at = put_u32(at, (uint32_t)p->token[begin + i]);
    kvl_chain_spans(p, begin, s->n_token, at);
    at = put_parts(s, blob, at + KVL_NAME_BYTES);
    at = put_u64(at, kvl_checksum_of(header, (size_t)(at - header)));
    memset(at, 0, (size_t)(header + s->header_bytes - at));
}

static uint64_t rows_end(const kvl_blob_shape *s)
{
    const kvl_blob_part *end = s->part + s->n_part;

    return s->n_part ? end[-1].offset + s->n_token * end[-1].row_bytes : s->header_bytes;
}

bool kvl_blob_is_right(const kvl_blob_shape *s, const kvl_chain *chain, const kvlazy_prompt *p, uint32_t block,
                       const unsigned char *blob, unsigned char *scratch)
{
    for (uint64_t i = rows_end(s); i < s->bytes; i++)
        if (blob[i])
            return false;
    kvl_blob_put_header(s, chain, p, block, blob, scratch);
    return !memcmp(blob, scratch, (size_t)s->header_bytes);
}
