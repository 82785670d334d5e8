/* SPDX-License-Identifier: MIT */
/*
 * release: gives pages back, by complement. What is kept is a set of cells; every touched page outside its
 * outward cover goes, whatever order cells were emptied in. Never evicts, never moves, never fails: what the
 * host refuses stays touched, is counted, and is offered again.
 *
 *     cells    | live | fallow ........................ | live |
 *     pages    |     a     |     b     |     c     |     d     |
 *     released             |***********|***********|
 *     zeroed by hand |*****|                       |***|
 *
 * Zeroing happens once: a cell whose bytes were given back or zeroed is settled and not looked at again.
 */
#include "cache.h"

#include <inttypes.h>
#include <stdio.h>

/* ------------------------------------------------------------------------------------------- what is kept */

void kvl_keep_live(kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_cells *cells = &c->stream[s].cells;

        if (cells->n_cell)
            memcpy(cells->keep, cells->used, kvl_bits_words(cells->n_cell) * sizeof(uint64_t));
        c->stream[s].keep_end = cells->n_cell;
    }
}

/* keep := live cells, fallow ones that are younger than min_age, and older ones beyond n_most. Answers how
 * many those last are. */
static uint64_t keep_young(kvlazy_cache *c, uint32_t stamp, uint64_t n_most)
{
    uint64_t n_due = 0;

    kvl_keep_live(c);
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_cells *cells = &c->stream[s].cells;

        for (uint32_t i = 0; (i = kvl_cells_next_fallow(cells, i)) < cells->n_cell; i++)
            if (kvl_cells_age(cells, i, stamp) < c->stream[s].min_age || n_due++ >= n_most)
                kvl_bit_set(cells->keep, i);
    }
    return n_due > n_most ? n_due - n_most : 0;
}

/* The first cell ≥ from that is kept, or is not; kv_size: none. */
static uint32_t next_cell(const kvl_stream *stream, uint32_t from, bool kept)
{
    const kvl_cells *cells = &stream->cells;

    if (from < cells->n_cell) {
        from = (uint32_t)kvl_bits_next(cells->keep, from, cells->n_cell, kept);
        if (from < cells->n_cell)
            return from;
    }
    if (kept)
        return from < stream->keep_end ? from : cells->kv_size;
    return from < stream->keep_end ? stream->keep_end : from;
}

/* Pages under what is kept in one lane. `done`: pages below are counted, since rows, lanes and tensors may share one.
 */
static uint64_t kept_in_lane(kvlazy_cache *c, const kvl_tensor *t, kvl_lane lane, bool touched_only, uint64_t *done)
{
    const kvlazy_arena *a = c->geometry.arena[t->arena];
    const kvl_stream *stream = &c->stream[lane.stream];
    uint32_t kv_size = c->params.kv_size, most = kvl_tensor_span_cells(t), end;
    uint64_t n = 0;

    for (uint32_t begin = 0; (begin = next_cell(stream, begin, true)) < kv_size; begin = end) {
        end = next_cell(stream, begin, false);
        end = end - begin > most ? begin + most : end;
        kvl_span bytes = kvl_lane_span(t, lane.base, begin, end);
        uint64_t first = kvl_max(*done, kvl_page_floor(a, bytes.begin));

        *done = kvl_max(*done, kvl_page_ceil(a, bytes.end));
        if (first < *done)
            n += touched_only ? kvl_bits_count(a->touched, first, *done) : *done - first;
    }
    return n;
}

uint64_t kvl_kept_pages(kvlazy_cache *c, bool touched_only)
{
    const kvl_geometry *g = &c->geometry;
    uint64_t n = 0, done = 0;

    for (uint32_t i = 0; i < g->n_host; i++) {
        const kvl_tensor *t = &g->tensor[i];

        done = i && g->tensor[i - 1].arena == t->arena ? done : 0;
        for (uint64_t l = 0; l < (uint64_t)t->n_lane * g->n_stream; l++)
            n += kept_in_lane(c, t, kvl_tensor_lane(t, g->n_stream, l), touched_only, &done);
    }
    return n;
}

/* ------------------------------------------------------------------------------------------- offering */

/* A walk over the bytes that nothing keeps, upwards. */
typedef struct walk {
    kvl_span dead;    /* the unbroken run of dead bytes up to here, across lanes and tensors */
    bool counts_only; /* offers nothing */
    uint64_t n_page;  /* touched ones that would go */
} walk;

/* Bytes of one arena are offered to it, or only looked at. */
static void offer(kvlazy_cache *c, walk *w, uint32_t arena, kvl_span bytes, uint64_t read_end)
{
    kvlazy_arena *a = c->geometry.arena[arena];

    if (w->counts_only)
        w->n_page += kvl_bits_count(a->touched, kvl_page_ceil(a, bytes.begin), kvl_page_floor(a, bytes.end));
    else
        kvl_arena_offer(a, bytes, read_end);
}

/* The cells [begin, end) of a lane hold nothing that stays. Where the run of dead bytes ends inside a page that the
 * next shares, the page goes with the next. Pages past the arrays were never touched, so a long dead end is looked at
 * no further than the page where the arrays or the reading ended. */
static void offer_dead(kvlazy_cache *c, walk *w, const kvl_tensor *t, kvl_lane lane, uint32_t begin, uint32_t end)
{
    const kvl_stream *stream = &c->stream[lane.stream];
    uint64_t page_bytes = kvl_page_size(c);
    uint32_t read_end = stream->give_read ? stream->read_end : 0;
    uint32_t look_end = (uint32_t)kvl_min(end, kvl_max(begin + 1, kvl_max(stream->cells.n_cell, read_end)));
    kvl_span bytes = kvl_lane_span(t, lane.base, begin, end);
    uint64_t looked = kvl_round_up(kvl_lane_span(t, lane.base, begin, look_end).end, page_bytes);

    if (bytes.end == t->data_end)
        bytes.end = t->end; /* padding behind the library's last row is nobody's */
    if (w->dead.end != bytes.begin)
        w->dead.begin = bytes.begin;
    w->dead.end = bytes.end;
    offer(c, w, t->arena,
          (kvl_span){kvl_max(w->dead.begin, kvl_round_down(bytes.begin, page_bytes)), kvl_min(bytes.end, looked)},
          read_end > begin ? kvl_lane_span(t, lane.base, begin, read_end).end : 0);
}

static void offer_lane(kvlazy_cache *c, walk *w, const kvl_tensor *t, kvl_lane lane)
{
    const kvl_stream *stream = &c->stream[lane.stream];
    uint32_t kv_size = c->params.kv_size, limit = kv_size, most = kvl_tensor_span_cells(t), end;

    /* A span a cell: those past all that was touched or read need no look, but for the last, whose page may be that of
     * the next lane. */
    if (most < limit)
        limit = (uint32_t)kvl_min(limit, kvl_max(kvl_max(stream->cells.n_cell, stream->read_end), 1));
    for (uint32_t begin = 0; (begin = next_cell(stream, begin, false)) < limit; begin = end) {
        end = next_cell(stream, begin, true);
        end = end - begin > most ? begin + most : end;
        offer_dead(c, w, t, lane, begin, end);
    }
    if (limit < kv_size && next_cell(stream, kv_size - 1, false) < kv_size)
        offer_dead(c, w, t, lane, kv_size - 1, kv_size);
}

static void walk_dead(kvlazy_cache *c, walk *w)
{
    const kvl_geometry *g = &c->geometry;

    for (uint32_t i = 0; i < g->n_host; i++) {
        const kvl_tensor *t = &g->tensor[i];

        if (!i || g->tensor[i - 1].arena != t->arena)
            w->dead = (kvl_span){t->offset, t->offset};
        for (uint64_t l = 0; l < (uint64_t)t->n_lane * g->n_stream; l++)
            offer_lane(c, w, t, kvl_tensor_lane(t, g->n_stream, l));
    }
}

void kvl_release_outside_keep(kvlazy_cache *c)
{
    uint32_t idle_ms = c->params.slot_shrink_idle_ms;
    uint64_t n_refused = c->n_refused;

    kvl_gather(c);
    walk_dead(c, &(walk){.counts_only = false});
    kvl_give(c);
    /* Everything free was offered: what is left to ask again for is what was refused now. */
    c->retry_ms = c->n_refused > n_refused && idle_ms ? c->group->now_ms + idle_ms : KVL_NEVER;
    kvl_note_due(c, c->retry_ms);
}

uint64_t kvl_needed_pages(kvlazy_cache *c)
{
    walk w = {.counts_only = true};
    uint64_t n = kvl_kept_pages(c, false);

    if (KVL_LIKELY(!kvl_in_arena(c)))
        return n;
    walk_dead(c, &w);
    return n + kvl_touched_pages(c) - kvl_kept_pages(c, true) - w.n_page;
}

/* ------------------------------------------------------------------------------------------- settling */

/* What lies on pages that stayed, at the edges or because the host refused, is zeroed by hand. */
static void settle_stream(kvlazy_cache *c, uint32_t s)
{
    kvl_cells *cells = &c->stream[s].cells;
    uint32_t stop;

    for (uint32_t i = 0; (i = kvl_cells_next_fallow(cells, i)) < cells->n_cell; i = stop) {
        stop = (uint32_t)kvl_bits_next(cells->fallow, i, cells->n_cell, false);
        i = (uint32_t)kvl_bits_next(cells->keep, i, stop, false);
        if (i == stop)
            continue;
        stop = (uint32_t)kvl_bits_next(cells->keep, i, stop, true);
        kvl_zero_rows(c, s, i, stop);
        for (uint32_t cell = i; cell < stop; cell++)
            kvl_cells_settle(cells, cell);
    }
}

/* Fallow cells that are not kept are dealt with: nothing will look at them again. */
static void settle(kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        settle_stream(c, s);
        if (c->stream[s].give_read)
            c->stream[s].read_end = 0;
        c->stream[s].give_read = false;
    }
}

/* ------------------------------------------------------------------------------------------- in pieces */

bool kvl_release_piece(kvlazy_cache *c, uint64_t now_ms)
{
    uint64_t cell_bytes = kvl_max(c->geometry.cell_bytes, 1);
    uint64_t n_left = keep_young(c, kvl_stamp(c, now_ms), kvl_max(KVL_PIECE_BYTES / cell_bytes, 1));

    kvl_release_outside_keep(c);
    settle(c);
    return n_left > 0;
}

bool kvl_release_free_piece(kvlazy_cache *c, uint64_t now_ms)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        c->stream[s].min_age = 0;
        c->stream[s].give_read = true;
        c->stream[s].vacated = false;
    }
    return kvl_release_piece(c, now_ms);
}

void kvl_make_due(kvlazy_cache *c, uint64_t now_ms)
{
    uint32_t long_ago = kvl_stamp(c, now_ms) - kvl_page_idle_ms(c);

    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_cells *cells = &c->stream[s].cells;

        for (uint32_t i = 0; (i = kvl_cells_next_fallow(cells, i)) < cells->n_cell; i++)
            cells->emptied[i] = long_ago;
    }
    c->fallow_due_ms = now_ms;
    kvl_note_due(c, now_ms);
}

uint64_t kvl_next_due_ms(kvlazy_cache *c, uint64_t now_ms)
{
    uint32_t stamp = kvl_stamp(c, now_ms), idle_ms = kvl_page_idle_ms(c);
    uint64_t due_ms = KVL_NEVER;

    for (uint32_t s = 0; idle_ms && s < c->params.n_stream; s++) {
        const kvl_cells *cells = &c->stream[s].cells;

        for (uint32_t i = 0; (i = kvl_cells_next_fallow(cells, i)) < cells->n_cell; i++)
            due_ms = kvl_min(due_ms, now_ms + kvl_policy_until_idle(kvl_cells_age(cells, i, stamp), 0, idle_ms));
    }
    return due_ms;
}

/* A batch may end thousands of times a second. Between two looks lies an eighth of the idle time, unless the
 * first left something due: pages go at the latest at 1 1/8 of it. */
void kvl_decay(kvlazy_cache *c, uint64_t now_ms)
{
    uint32_t idle_ms = kvl_page_idle_ms(c); /* 0: nothing comes due, but for what a trim left */

    if (KVL_LIKELY(now_ms < c->fallow_due_ms && now_ms < c->retry_ms))
        return;
    kvl_look_before(c);
    for (uint32_t s = 0; s < c->params.n_stream; s++) /* what moves soon goes into the holes */
        c->stream[s].min_age = now_ms < c->stream[s].pack_until_ms ? UINT32_MAX : idle_ms;
    bool more = kvl_release_piece(c, now_ms);
    c->fallow_due_ms = more ? now_ms : kvl_max(kvl_next_due_ms(c, now_ms), now_ms + idle_ms / 8);
    kvl_note_due(c, c->fallow_due_ms);
    kvl_say_shrink(c, now_ms, true);
}

/* ------------------------------------------------------------------------------------------- telling */

void kvl_look_before(kvlazy_cache *c)
{
    c->before = (kvl_before){c->n_released, c->evicted_cells, c->moved_cells};
}

void kvl_say_shrink(kvlazy_cache *c, uint64_t now_ms, bool idle)
{
    uint64_t n_page = c->n_released - c->before.n_released, n_cell = c->evicted_cells - c->before.evicted_cells;
    uint64_t n_moved = c->moved_cells - c->before.moved_cells, from = 0, to = 0;
    char given[KVL_HUMAN_BYTES], left[KVL_HUMAN_BYTES];

    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        uint32_t cap = kvl_soft_cap(c, &c->stream[s], now_ms);

        from += c->stream[s].cap_said;
        to += cap;
        kvl_say_cap(c, &c->stream[s], cap);
    }
    if (!n_page && !n_cell && !n_moved)
        return;
    c->n_shrink++;
    char why[40] = "on request";
    if (idle)
        snprintf(why, sizeof why, "after %" PRIu32 " ms idle", c->params.slot_shrink_idle_ms);
    kvl_log_note(&c->log, KVLAZY_LOG_INFO,
                 "shrink: cap %" PRIu64 " -> %" PRIu64 " cells %s, %" PRIu64 " evicted, %" PRIu64
                 " moved, %s returned, %s touched",
                 from, to, why, n_cell, n_moved, kvl_human(given, n_page * kvl_page_size(c)),
                 kvl_human(left, kvl_touched_pages(c) * kvl_page_size(c)));
}
