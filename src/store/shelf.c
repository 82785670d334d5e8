/* SPDX-License-Identifier: MIT */
/* shelf: see shelf.h. */
#include "store/shelf.h"
#include "store/limit.h"

#include <bsd/stdlib.h>
#include <errno.h>
#include <unistd.h>

enum { HOUR_MS = 3600000, MINUTE_MS = 60000, FORGET_MS = 1000 };

bool kvl_store_is_forked(const kvlazy_store *store)
{
    return store->process != (long)getpid();
}

void kvl_store_own(kvlazy_store *store)
{
    store->process = (long)getpid();
}

/* ------------------------------------------------------------------------------------------- visits */

static uint64_t held_bytes(const kvl_visit *v)
{
    return v->shape.bytes + v->shape.header_bytes + (v->chain.n_block + UINT64_C(1)) * KVL_NAME_BYTES;
}

int kvl_visit_begin(kvl_visit *v, uint32_t n_token)
{
    v->log = (kvl_log){.sink = v->store->sink, .ctx = v->store->sink_ctx, .name = "store"};
    int status = kvl_chain_init(&v->chain, v->cache, &v->prompt, n_token, v->store->block_tokens);
    if (!status)
        status = kvl_blob_shape_init(&v->shape, v->cache, v->store->block_tokens);
    if (status)
        return status;
    v->blob = aligned_alloc(KVL_BLOB_PAGE_BYTES, (size_t)v->shape.bytes);
    v->scratch = malloc((size_t)v->shape.header_bytes);
    if (!v->blob || !v->scratch)
        return KVLAZY_ENOMEM;
    kvl_store_add(v->store, KVL_HELD_BYTES, held_bytes(v));
    kvl_visit_out(v);
    kvl_chain_name_blocks(&v->chain, &v->prompt);
    kvl_visit_in(v);
    return KVLAZY_OK;
}

void kvl_visit_end(kvl_visit *v)
{
    if (v->blob && v->scratch)
        kvl_store_add(v->store, KVL_HELD_BYTES, -held_bytes(v));
    free(v->blob);
    free(v->scratch);
    kvl_blob_shape_fini(&v->shape);
    kvl_chain_fini(&v->chain);
}

uint32_t kvl_visit_left_ms(const kvl_visit *v)
{
    return (uint32_t)(v->max_ms - kvl_min(kvl_store_now_ms() - v->begin_ms, v->max_ms));
}

/* ------------------------------------------------------------------------------------------- the place */

static bool may_warn(kvlazy_store *s)
{
    uint64_t now_ms = kvl_store_now_ms();

    pthread_mutex_lock(&s->lock);
    bool may = !s->warned_ms || now_ms - s->warned_ms >= MINUTE_MS;
    if (may)
        s->warned_ms = now_ms;
    pthread_mutex_unlock(&s->lock);
    return may;
}

int kvl_visit_count(kvl_visit *v, int error)
{
    kvl_store_count what = error == ENOENT      ? KVL_N_MISS
                           : error == ETIMEDOUT ? KVL_N_TIMEOUT
                           : error == ENOSPC    ? KVL_N_NO_ROOM
                           : error == ENODATA   ? KVL_N_CORRUPT
                                                : KVL_N_FAILED;

    if (!error)
        return 0;
    kvl_store_add(v->store, what, 1);
    if (what == KVL_N_FAILED && may_warn(v->store))
        kvl_log_note(&v->log, KVLAZY_LOG_WARN, "the place for blobs fails with error %d; its blocks are computed again",
                     error);
    return error;
}

bool kvl_store_allows(kvlazy_store *s, uint64_t bytes)
{
    if (!s->allowance_bytes)
        return true;
    uint64_t now_ms = kvl_store_now_ms();

    pthread_mutex_lock(&s->lock);
    double back = (double)(now_ms - s->spent_ms) * (double)s->allowance_bytes / HOUR_MS;
    if (s->spent_ms)
        s->spent_bytes = back >= s->spent_bytes ? 0 : s->spent_bytes - back;
    s->spent_ms = now_ms;
    bool allows = bytes <= s->allowance_bytes && s->spent_bytes <= (double)(s->allowance_bytes - bytes);
    s->spent_bytes += allows ? (double)bytes : 0;
    pthread_mutex_unlock(&s->lock);
    return allows;
}

void kvl_store_take_back(kvlazy_store *s, uint64_t bytes)
{
    if (!s->allowance_bytes)
        return;
    pthread_mutex_lock(&s->lock);
    s->spent_bytes = s->spent_bytes <= (double)bytes ? 0 : s->spent_bytes - (double)bytes;
    pthread_mutex_unlock(&s->lock);
}

/* The leaf first, so that it is the first to go. Needs no memory that could be refused. */
void kvl_visit_touch(kvl_visit *v, uint32_t n)
{
    enum { AT_ONCE = 64 };
    uint8_t name[AT_ONCE][KVL_NAME_BYTES];
    const kvlazy_store_ops *ops = &v->store->ops;

    v->touched_ms = kvl_store_now_ms();
    while (n) {
        uint32_t n_name = 0;

        for (; n && n_name < AT_ONCE; n--)
            memcpy(name[n_name++], v->chain.name[n], sizeof *name);
        if (kvl_visit_count(v, ops->touch(ops->ctx, (const uint8_t(*)[KVL_NAME_BYTES])name, n_name)))
            return;
    }
}

/* ------------------------------------------------------------------------------------------- the sequence */

int kvl_visit_check(const kvlazy_cache *c)
{
    for (const kvlazy_cache *m = c->group->first; m; m = m->next) {
        if (kvl_rows_on_device(&m->rows) || kvl_has_window(m) || m->params.shrink == KVLAZY_SHRINK_WHOLE)
            return KVLAZY_ENOTSUP;
        if (!m->params.model_tag_bytes)
            return KVLAZY_EINVAL;
        if (kvl_waits_for_rotation(m))
            return KVLAZY_ESHIFT;
    }
    return kvl_has_engine_cells(c) && c->group->first->next ? KVLAZY_ENOTSUP : KVLAZY_OK;
}

/* How many tokens of a run are text, which has its position in every plane. */
static uint32_t n_text(const kvl_cells *cells, kvl_stretch run)
{
    uint32_t i = cells->planes ? 0 : run.n;

    while (i < run.n && cells->ext_y[run.cell + i] == run.pos + (kvlazy_pos)i &&
           cells->ext_x[run.cell + i] == run.pos + (kvlazy_pos)i)
        i++;
    return i;
}

static uint32_t plain_of(kvlazy_cache *c, kvlazy_seq_id seq, uint32_t n_most)
{
    const kvl_index *index = kvl_index_of(c, seq);
    const kvl_cells *cells = &kvl_stream_of(c, seq)->cells;
    kvl_index_walk walk = kvl_index_walk_from(index, 0, n_most);
    kvl_stretch run;
    uint32_t n = 0;

    while (n_most && kvl_index_next(index, &walk, &run)) {
        uint32_t i = run.pos == (kvlazy_pos)n ? n_text(cells, run) : 0;

        n += i;
        if (i < run.n)
            return n;
    }
    return n;
}

uint32_t kvl_visit_plain(const kvl_visit *v, bool settled, bool *all)
{
    uint32_t n = UINT32_MAX;

    *all = true;
    for (kvlazy_cache *m = v->cache->group->first; m; m = m->next) {
        const kvl_index *index = kvl_index_of(m, v->seq);
        const kvl_seq *s = &m->seq[v->seq];
        uint32_t n_most = settled && s->pending ? kvl_index_below(index, s->fresh) : index->n;
        uint32_t plain = index->n && s->moved ? 0 : plain_of(m, v->seq, n_most);

        *all &= plain == index->n && (n == UINT32_MAX || n == plain);
        n = (uint32_t)kvl_min(n, plain);
    }
    return n;
}

uint64_t kvl_visit_generation(const kvl_visit *v)
{
    uint64_t sum = 0;

    for (const kvlazy_cache *m = v->cache->group->first; m && !kvl_has_engine_cells(m); m = m->next)
        sum += m->seq[v->seq].generation;
    return sum;
}

/* The caller has no say in how long it may take: so a place that fails once is asked no more. */
int kvl_store_forget(kvl_visit *v)
{
    int status = kvl_visit_begin(v, v->prompt.n_token), error = 0;

    if (status)
        return status;
    kvl_visit_out(v);
    v->begin_ms = kvl_store_now_ms();
    v->max_ms = FORGET_MS;
    for (uint32_t i = v->chain.n_block; i > 0 && !error; i--)
        error = kvl_visit_count(v, kvl_visit_left_ms(v) ? v->store->ops.drop(v->store->ops.ctx, v->chain.name[i])
                                                        : ETIMEDOUT);
    kvl_visit_in(v);
    return KVLAZY_OK;
}
