/* SPDX-License-Identifier: MIT */
/*
 * release: see release.h.
 *
 *     cells    | live | fallow ........................ | live |
 *     pages    |     a     |     b     |     c     |     d     |
 *     released             |***********|***********|
 *     zeroed by hand |*****|                       |***|
 *
 * Zeroing happens once: a cell whose bytes were given back or zeroed is settled and not looked at again.
 */
#include "core/release.h"
#include "core/clock.h"
#include "core/cover.h"

/* ------------------------------------------------------------------------------------------- what is kept */

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
    kvlazy_arena *a = c->rows.geometry.arena[arena];

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
    uint64_t page_bytes = kvl_rows_page_bytes(&c->rows);
    uint32_t read_end = stream->give_read ? c->rows.stream[lane.stream].read_end : 0;
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
        limit =
            (uint32_t)kvl_min(limit, kvl_max(kvl_max(stream->cells.n_cell, c->rows.stream[lane.stream].read_end), 1));
    for (uint32_t begin = 0; (begin = kvl_next_kept(stream, begin, false)) < limit; begin = end) {
        end = kvl_next_kept(stream, begin, true);
        end = end - begin > most ? begin + most : end;
        offer_dead(c, w, t, lane, begin, end);
    }
    if (limit < kv_size && kvl_next_kept(stream, kv_size - 1, false) < kv_size)
        offer_dead(c, w, t, lane, kv_size - 1, kv_size);
}

static void walk_dead(kvlazy_cache *c, walk *w)
{
    const kvl_geometry *g = &c->rows.geometry;

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
    uint64_t n_refused = c->rows.n_refused;

    kvl_rows_gather(&c->rows);
    walk_dead(c, &(walk){.counts_only = false});
    kvl_rows_give(&c->rows);
    /* Everything free was offered: what is left to ask again for is what was refused now. */
    c->decay.retry_ms = c->rows.n_refused > n_refused && idle_ms ? c->group->now_ms + idle_ms : KVL_NEVER;
    kvl_note_due(c, c->decay.retry_ms);
}

uint64_t kvl_spare_pages(kvlazy_cache *c)
{
    walk w = {.counts_only = true};

    walk_dead(c, &w);
    return w.n_page;
}

uint64_t kvl_needed_pages(kvlazy_cache *c)
{
    uint64_t n = kvl_kept_pages(c, false);

    if (KVL_LIKELY(!kvl_rows_in_arena(&c->rows)))
        return n;
    return n + kvl_rows_touched(&c->rows) - kvl_kept_pages(c, true) - kvl_spare_pages(c);
}

uint64_t kvl_needed_bytes(kvlazy_cache *c)
{
    return kvl_needed_pages(c) * kvl_rows_page_bytes(&c->rows);
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
        kvl_rows_zero(&c->rows, s, i, stop);
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
            c->rows.stream[s].read_end = 0;
        c->stream[s].give_read = false;
    }
}

/* ------------------------------------------------------------------------------------------- in pieces */

bool kvl_release_piece(kvlazy_cache *c, uint64_t now_ms)
{
    uint64_t cell_bytes = kvl_max(c->rows.geometry.cell_bytes, 1);
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
