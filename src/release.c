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

uint64_t kvl_kept_pages(kvlazy_cache *c, bool touched_only)
{
    uint64_t n = 0;

    for (uint32_t t = 0; t < c->geometry.n_tensor; t++) {
        uint64_t done = 0; /* pages below are counted: rows and streams may share one */

        for (uint32_t s = 0; s < c->params.n_stream; s++) {
            const kvl_stream *stream = &c->stream[s];
            uint32_t kv_size = c->params.kv_size, end;

            for (uint32_t begin = 0; (begin = next_cell(stream, begin, true)) < kv_size; begin = end) {
                end = next_cell(stream, begin, false);
                kvl_span rows = kvl_tensor_span(&c->geometry.tensor[t], s, begin, end);
                uint64_t first = kvl_max(done, kvl_page_floor(&c->arena, rows.begin));

                done = kvl_max(done, kvl_page_ceil(&c->arena, rows.end));
                if (first < done)
                    n += touched_only ? kvl_bits_count(c->arena.touched, first, done) : done - first;
            }
        }
    }
    return n;
}

/* ------------------------------------------------------------------------------------------- offering */

/* The cells [begin, end) of a stream hold nothing that stays. `dead` is the unbroken run of dead bytes up to
 * here, across streams: where one ends inside a page that the next shares, the page goes with the next. Pages
 * past the arrays were never touched, so a long dead end is looked at no further than the page where the
 * arrays or the reading ended. */
static void offer_dead(kvlazy_cache *c, const kvl_tensor *t, uint32_t s, uint32_t begin, uint32_t end, kvl_span *dead)
{
    const kvl_stream *stream = &c->stream[s];
    uint64_t page_bytes = kvl_pages_bytes(&c->arena, 1);
    uint32_t read_end = stream->give_read ? stream->read_end : 0;
    uint32_t look_end = (uint32_t)kvl_min(end, kvl_max(begin, kvl_max(stream->cells.n_cell, read_end)));
    kvl_span rows = kvl_tensor_span(t, s, begin, end);
    uint64_t looked = kvl_round_up(kvl_tensor_span(t, s, begin, look_end).end, page_bytes);

    if (end == c->params.kv_size && s + 1 == c->params.n_stream)
        rows.end = t->end; /* padding behind the last row is nobody's */
    if (dead->end != rows.begin)
        dead->begin = rows.begin;
    dead->end = rows.end;
    kvl_arena_offer(&c->arena,
                    (kvl_span){kvl_max(dead->begin, kvl_round_down(rows.begin, page_bytes)), kvl_min(rows.end, looked)},
                    read_end > begin ? kvl_tensor_span(t, s, begin, read_end).end : 0);
}

static void offer_tensor(kvlazy_cache *c, const kvl_tensor *t)
{
    kvl_span dead = {t->offset, t->offset};

    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        const kvl_stream *stream = &c->stream[s];
        uint32_t kv_size = c->params.kv_size, end;

        for (uint32_t begin = 0; (begin = next_cell(stream, begin, false)) < kv_size; begin = end) {
            end = next_cell(stream, begin, true);
            offer_dead(c, t, s, begin, end, &dead);
        }
    }
}

void kvl_release_outside_keep(kvlazy_cache *c)
{
    uint32_t idle_ms = c->params.slot_shrink_idle_ms;
    uint64_t n_refused = c->arena.n_refused;

    kvl_arena_gather(&c->arena);
    for (uint32_t t = 0; t < c->geometry.n_tensor; t++)
        offer_tensor(c, &c->geometry.tensor[t]);
    kvl_arena_give(&c->arena);
    /* Everything free was offered: what is left to ask again for is what was refused now. */
    c->retry_ms = c->arena.n_refused > n_refused && idle_ms ? c->group->now_ms + idle_ms : KVL_NEVER;
}

/* ------------------------------------------------------------------------------------------- settling */

static void zero_rows(kvlazy_cache *c, uint32_t stream, uint32_t begin, uint32_t end)
{
    for (uint32_t t = 0; t < c->geometry.n_tensor; t++)
        kvl_arena_zero(&c->arena, kvl_tensor_span(&c->geometry.tensor[t], stream, begin, end));
}

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
        zero_rows(c, s, i, stop);
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
    }
    return kvl_release_piece(c, now_ms);
}

void kvl_make_due(kvlazy_cache *c, uint64_t now_ms)
{
    uint32_t long_ago = kvl_stamp(c, now_ms) - c->params.slot_shrink_idle_ms;

    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_cells *cells = &c->stream[s].cells;

        for (uint32_t i = 0; (i = kvl_cells_next_fallow(cells, i)) < cells->n_cell; i++)
            cells->emptied[i] = long_ago;
    }
    if (c->params.slot_shrink_idle_ms)
        c->fallow_due_ms = now_ms;
}

uint64_t kvl_next_due_ms(kvlazy_cache *c, uint64_t now_ms)
{
    uint32_t stamp = kvl_stamp(c, now_ms), idle_ms = c->params.slot_shrink_idle_ms;
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
    uint32_t idle_ms = c->params.slot_shrink_idle_ms;

    if (KVL_LIKELY(now_ms < c->fallow_due_ms && now_ms < c->retry_ms) || !idle_ms)
        return;
    kvl_look_before(c);
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        c->stream[s].min_age = idle_ms;
    bool more = kvl_release_piece(c, now_ms);
    c->fallow_due_ms = more ? now_ms : kvl_max(kvl_next_due_ms(c, now_ms), now_ms + idle_ms / 8);
    kvl_say_shrink(c, now_ms, true);
}

/* ------------------------------------------------------------------------------------------- telling */

void kvl_look_before(kvlazy_cache *c)
{
    c->before = (kvl_before){c->arena.n_released, c->evicted_cells};
}

void kvl_say_shrink(kvlazy_cache *c, uint64_t now_ms, bool idle)
{
    uint64_t n_page = c->arena.n_released - c->before.n_released, n_cell = c->evicted_cells - c->before.evicted_cells;
    uint64_t from = 0, to = 0;
    char given[KVL_HUMAN_BYTES], left[KVL_HUMAN_BYTES];

    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        uint32_t cap = kvl_soft_cap(c, &c->stream[s], now_ms);

        from += c->stream[s].cap_said;
        to += cap;
        kvl_say_cap(c, &c->stream[s], cap);
    }
    if (!n_page && !n_cell)
        return;
    c->n_shrink++;
    char why[40] = "on request";
    if (idle)
        snprintf(why, sizeof why, "after %" PRIu32 " ms idle", c->params.slot_shrink_idle_ms);
    kvl_log_note(&c->log, KVLAZY_LOG_INFO,
                 "shrink: cap %" PRIu64 " -> %" PRIu64 " cells %s, %" PRIu64 " evicted, %s returned, %s touched", from,
                 to, why, n_cell, kvl_human(given, kvl_pages_bytes(&c->arena, n_page)),
                 kvl_human(left, kvl_pages_bytes(&c->arena, c->arena.n_touched)));
}
