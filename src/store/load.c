/* SPDX-License-Identifier: MIT */
/*
 * load: blocks come from the place into a sequence. A blob is read whole, with no lock held, and verified before a cell
 * is taken for it; then its rows are written into cells that hold nothing, and its tokens become live together. The
 * next blob is open meanwhile.
 */
#include "core/batch.h"
#include "core/cap.h"
#include "core/clock.h"
#include "core/hold.h"
#include "state/format.h"
#include "store/shelf.h"

#include <bsd/stdlib.h>
#include <errno.h>
#include <inttypes.h>

enum { READ_BYTES = 1 << 20 };

/* ------------------------------------------------------------------------------------------- from the place */

/* The blob that comes next, open. A place may read ahead from then on, while the block before goes into its cells. */
typedef struct opened {
    void *blob;
    int error; /* 0: it is open; else why not */
} opened;

/* False: it is damaged, which is told before the place makes room for a copy of it. */
static bool has_its_size(const kvl_visit *v, void *blob)
{
    const kvlazy_store_ops *ops = &v->store->ops;
    uint64_t bytes;

    return !ops->size || ops->size(blob, &bytes) != 0 || bytes == v->shape.bytes;
}

static opened open_blob(kvl_visit *v, uint32_t block)
{
    const kvlazy_store_ops *ops = &v->store->ops;
    opened o = {NULL, ETIMEDOUT};

    if (kvl_visit_left_ms(v))
        o.error = ops->open(ops->ctx, v->chain.name[block + 1], 0, &o.blob);
    if (!o.error && !has_its_size(v, o.blob)) {
        ops->close(o.blob, false);
        o.error = ENODATA;
    }
    return o;
}

static void close_blob(const kvl_visit *v, opened *o)
{
    if (!o->error)
        v->store->ops.close(o->blob, false);
    *o = (opened){NULL, ENOENT};
}

/* All of it, and closes it. */
static int read_blob(kvl_visit *v, opened *o)
{
    int error = o->error;

    for (uint64_t at = 0, n; !error && at < v->shape.bytes; at += n) {
        uint32_t left_ms = kvl_visit_left_ms(v);

        n = kvl_min(v->shape.bytes - at, READ_BYTES);
        error = left_ms ? v->store->ops.read(o->blob, at, v->blob + at, (size_t)n, left_ms) : ETIMEDOUT;
        kvl_store_add(v->store, KVL_READ_BYTES, error ? 0 : n);
    }
    close_blob(v, o);
    return error;
}

/* With no lock held. Returns whether the blob of a block, which is opened, is there, whole and right. A damaged one is
 * dropped. The one behind it is open afterwards, if it is wanted and this one came whole. */
static bool fetch(kvl_visit *v, uint32_t block, bool wants_next, opened *o)
{
    const kvlazy_store_ops *ops = &v->store->ops;
    const uint8_t *name = v->chain.name[block + 1];
    int error = read_blob(v, o);

    if (!error && wants_next)
        *o = open_blob(v, block + 1);
    if (!error && !kvl_blob_is_right(&v->shape, &v->chain, &v->prompt, block, v->blob, v->scratch))
        error = ENODATA;
    kvl_visit_count(v, error);
    if (error == ENODATA)
        kvl_visit_count(v, ops->drop(ops->ctx, name));
    return !error;
}

/* ------------------------------------------------------------------------------------------- into cells */

/* Tokens [begin, end) of the prompt, of one block, and the cells that they go to in each cache. */
typedef struct goal {
    uint32_t begin, end, skip; /* skip: tokens of the block before */
    kvl_hold *hold;            /* [shape.n_cache] */
} goal;

static int hold_in(kvl_visit *v, kvlazy_cache *c, kvl_hold *hold, const goal *g)
{
    int status = kvl_hold_init(hold, g->end - g->begin);

    c->plan.n_ubatch = 0; /* its slots are stale: they may have these cells */
    kvl_limits_settle(c);
    for (uint32_t i = 0; !status && i < hold->n; i++)
        hold->place[i].stream = kvl_stream_number(c, kvl_stream_of(c, v->seq));
    if (!status)
        status = kvl_cells_reserve_seq(&kvl_stream_of(c, v->seq)->cells, v->seq, hold->n);
    if (!status)
        status = kvl_hold_take(c, hold);
    if (status == KVLAZY_EBUDGET && v->reclaim(c))
        status = kvl_hold_take(c, hold);
    return status;
}

/* Rows of a piece, with the lock held. */
static int put_piece(kvl_visit *v, const kvl_blob_part *p, const goal *g, const kvl_state_piece *piece)
{
    kvl_hold *hold = &g->hold[p->number];
    const unsigned char *row = v->blob + p->offset + (g->skip + piece->begin) * p->row_bytes + piece->part.begin;
    int status = kvl_hold_touch(p->cache, hold, p->tensor, piece->begin, piece->n);

    if (!status && piece->part.end - piece->part.begin < p->row_bytes)
        kvl_rows_put_part(&p->cache->rows, p->tensor, hold->place[piece->begin], piece->part, row);
    else if (!status)
        kvl_rows_put(&p->cache->rows, p->tensor, hold->place + piece->begin, piece->n, row);
    return status;
}

/* Calls of other threads that wait go between two pieces. */
static int put_rows(kvl_visit *v, const goal *g)
{
    int status = KVLAZY_OK;

    for (uint32_t i = 0; !status && i < v->shape.n_part; i++) {
        kvl_state_piece piece = {0};

        while (!status && kvl_state_next_piece(&piece, g->end - g->begin, v->shape.part[i].row_bytes)) {
            status = put_piece(v, &v->shape.part[i], g, &piece);
            kvl_visit_out(v);
            kvl_visit_in(v);
        }
    }
    return status;
}

/* The tokens are live, behind those that the sequence has. Nothing here can fail. */
static void fill(kvl_visit *v, kvlazy_cache *c, kvl_hold *hold, uint32_t begin, uint64_t now_ms)
{
    kvl_seq *s = &c->seq[v->seq];
    kvl_stream *stream = kvl_stream_of(c, v->seq);

    for (uint32_t i = 0; i < hold->n; i++) {
        uint32_t cell = hold->place[i].cell;

        kvl_cells_put(&stream->cells, cell, (kvlazy_pos)(begin + i));
        if (stream->cells.planes)
            stream->cells.ext_y[cell] = stream->cells.ext_x[cell] = (kvlazy_pos)(begin + i);
        kvl_cells_own(&stream->cells, cell, v->seq);
    }
    if (!begin) { /* it begins anew */
        s->lost_end = 0;
        s->moved = false;
        s->fresh = INT32_MAX;
    }
    s->evicted = false;
    hold->taken = false;
    kvl_note_activity(c, v->seq, now_ms);
    kvl_follow_cap(c, stream);
}

/* Out as for a callback, so that no linked cache is destroyed meanwhile. */
static void give_up(kvl_visit *v, kvlazy_cache *c, kvl_hold *hold)
{
    for (uint32_t next = 0; kvl_hold_give_up(c, hold, &next);) {
        kvl_visit_out(v);
        kvl_visit_in(v);
    }
}

/* The caches are those that the shape was made for, and the sequence is what it was. */
static bool is_as_it_was(const kvl_visit *v, uint32_t n_have)
{
    uint32_t n = 0;
    bool all;

    for (const kvlazy_cache *m = v->cache->group->first; m; m = m->next)
        n++;
    return n == v->shape.n_cache && v->cache->group->open && kvl_visit_generation(v) == v->generation &&
           kvl_visit_plain(v, false, &all) == n_have && all;
}

static int put_block(kvl_visit *v, goal *g)
{
    int status = is_as_it_was(v, g->begin) ? KVLAZY_OK : KVLAZY_EPOS;
    uint32_t i = 0;

    g->hold = calloc(v->shape.n_cache, sizeof *g->hold);
    if (!g->hold)
        return KVLAZY_ENOMEM;
    for (kvlazy_cache *m = v->cache->group->first; !status && m && i < v->shape.n_cache; m = m->next)
        status = hold_in(v, m, &g->hold[i++], g); /* one that joins meanwhile is last, and ends the load below */
    if (!status)
        status = put_rows(v, g);
    if (!status && !is_as_it_was(v, g->begin))
        status = KVLAZY_EPOS;
    for (kvlazy_cache *m = v->cache->group->first; !status && m; m = m->next) /* a call in between may have taken it */
        status = kvl_cells_reserve_seq(&kvl_stream_of(m, v->seq)->cells, v->seq, g->end - g->begin);
    uint64_t now_ms = kvl_now(v->cache);
    i = 0;
    for (kvlazy_cache *m = v->cache->group->first; m && i < v->shape.n_cache; m = m->next, i++) {
        if (status)
            give_up(v, m, &g->hold[i]);
        else
            fill(v, m, &g->hold[i], g->begin, now_ms);
        kvl_hold_fini(&g->hold[i]);
    }
    free(g->hold);
    return status;
}

/* ------------------------------------------------------------------------------------------- cells of the engine */

/* Out as for a callback, as above. */
static void give_up_engine_cells(kvl_visit *v, const kvl_hold *hold)
{
    uint64_t now_ms = kvl_now(v->cache);

    for (uint32_t next = 0; kvl_hold_give_up_engine_cells(v->cache, hold, now_ms, &next);) {
        kvl_visit_out(v);
        kvl_visit_in(v);
    }
}

static int put_engine_block(kvl_visit *v, const goal *g)
{
    kvl_hold hold;
    int status = kvl_hold_init(&hold, g->end - g->begin);

    if (status)
        return status;
    status = KVLAZY_EPOS;
    if (v->cache->group->open)
        status = kvl_hold_engine_cells(v->cache, &hold, v->prompt.stream, v->prompt.cell + g->begin, v->reclaim);
    if (!status) {
        goal to = {g->begin, g->end, g->skip, &hold};

        status = put_rows(v, &to);
        if (!status && !v->cache->group->open) /* the cells may have been given back while rows came */
            status = KVLAZY_EPOS;
        if (status)
            give_up_engine_cells(v, &hold);
    }
    kvl_hold_fini(&hold);
    return status;
}

/* ------------------------------------------------------------------------------------------- the call */

/* Block after block, in and out of the cache. What ends it is counted. Returns how many tokens are live. */
static uint32_t load_blocks(kvl_visit *v, uint32_t n_have)
{
    uint32_t n = v->store->block_tokens, n_live = n_have, n_end = v->prompt.n_token - 1, first = n_have / n;
    opened next = {NULL, ENOENT};

    for (uint32_t block = first; block < v->chain.n_block && n_live < n_end; block++) {
        goal g = {
            .begin = n_live, .end = (uint32_t)kvl_min((block + UINT64_C(1)) * n, n_end), .skip = n_live - block * n};

        kvl_visit_out(v);
        if (block == first)
            next = open_blob(v, block);
        bool is_there = fetch(v, block, block + 1 < v->chain.n_block && g.end < n_end, &next);
        kvl_visit_in(v);
        if (!is_there)
            break;
        int status = kvl_has_engine_cells(v->cache) ? put_engine_block(v, &g) : put_block(v, &g);
        if (status) {
            kvl_store_add(v->store, KVL_N_NO_ROOM, status != KVLAZY_EPOS);
            break;
        }
        kvl_store_add(v->store, KVL_N_HIT, 1);
        n_live = g.end;
    }
    if (!next.error) { /* one that is not wanted after all */
        kvl_visit_out(v);
        close_blob(v, &next);
        kvl_visit_in(v);
    }
    return n_live;
}

int kvl_store_load(kvl_visit *v, uint32_t n_have, uint32_t *n_live)
{
    uint32_t n = v->prompt.n_token;
    bool all, engine = kvl_has_engine_cells(v->cache);

    *n_live = n_have;
    if (n_have > n || !v->cache->group->open)
        return KVLAZY_EINVAL;
    if (!engine && (kvl_visit_plain(v, false, &all) != n_have || !all))
        return KVLAZY_EPOS;
    if (v->cache->params.n_pos_per_token > 1 && v->prompt.n_span)
        n = v->prompt.span[0].begin;
    if (n < v->store->block_tokens || n_have + UINT64_C(1) >= v->prompt.n_token || n_have >= n)
        return KVLAZY_OK;
    v->generation = kvl_visit_generation(v);
    int status = kvl_visit_begin(v, n);
    if (status)
        return status;
    *n_live = load_blocks(v, n_have);
    if (!engine) /* another thread may have taken some */
        *n_live = (uint32_t)kvl_min(*n_live, kvl_visit_plain(v, false, &all));
    if (*n_live > n_have) {
        kvl_log_note(&v->log, KVLAZY_LOG_INFO, "loaded %" PRIu32 " tokens behind %" PRIu32 " of %" PRIu32,
                     *n_live - n_have, n_have, v->prompt.n_token);
        uint32_t n_block = (uint32_t)kvl_div_up(*n_live, v->store->block_tokens);
        kvl_visit_out(v);
        kvl_visit_touch(v, n_block);
        kvl_visit_in(v);
    }
    return KVLAZY_OK;
}
