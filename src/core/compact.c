/* SPDX-License-Identifier: MIT */
/*
 * compact: see compact.h.
 *
 * With n live cells, those at n and above go into the holes below, in order: the fewest moves there are, runs stay
 * runs, and since no source lies below n and no hole above, moves do not depend on one another and may stop anywhere.
 *
 *     before    | a b c . . d . . . . | . e f g . . h . |        n = 8
 *                        |<--- holes    |<--- live
 *     after     | a b c e f d g h     |                  |
 */
#include "core/compact.h"
#include "core/budget.h"
#include "core/clock.h"
#include "core/release.h"

enum { PIECE_MOVES = 64 };

typedef struct move {
    uint32_t from, to, n;
} move;

/* Some moves of one cache; those of linked caches are made together. */
typedef struct piece {
    uint32_t n_move;
    move move[PIECE_MOVES];
    kvl_run to[PIECE_MOVES];
} piece;

/* ------------------------------------------------------------------------------------------- whether */

static bool is_dense(const kvl_cells *cells)
{
    return cells->used_end == cells->n_used;
}

static bool can_move(const kvlazy_cache *c)
{
    return !kvl_rows_on_device(&c->rows) &&
           (!kvl_has_engine_cells(c) || (c->engine.ops.move && (c->engine.ops.is_used || !c->engine.ops.used_end)));
}

/* All caches of a group are moved together. Only a cache whose engine keeps the cells is moved alone, since those are
 * in a table of its own. */
static kvlazy_cache *first_mover(const kvlazy_cache *c)
{
    kvlazy_cache *m = c->group->first;

    while (kvl_has_engine_cells(c) && m != c)
        m = m->next;
    return m;
}

static kvlazy_cache *next_mover(const kvlazy_cache *m)
{
    return kvl_has_engine_cells(m) ? NULL : m->next;
}

/* If one of the caches that move together cannot be moved, none is. */
bool kvl_can_compact(const kvlazy_cache *c)
{
    for (const kvlazy_cache *m = first_mover(c); m; m = next_mover(m))
        if (!can_move(m))
            return false;
    return true;
}

void kvl_compact_later(kvlazy_cache *c, uint32_t s)
{
    kvl_stream *stream = &c->stream[s];

    stream->compacts = !is_dense(&stream->cells);
    stream->compact_until_ms = stream->compacts ? c->group->now_ms + c->params.slot_shrink_idle_ms : 0;
}

/* ------------------------------------------------------------------------------------------- one piece */

/* The next moves of a stream, n_most cells of them at most. */
static void plan_piece(const kvl_cells *cells, uint32_t s, uint32_t n_most, piece *p)
{
    uint32_t n_used = cells->n_used, to = 0, from = n_used;

    p->n_move = 0;
    while (p->n_move < PIECE_MOVES && n_most) {
        from = (uint32_t)kvl_bits_next(cells->used, from, cells->used_end, true);
        if (from >= cells->used_end)
            return;
        to = (uint32_t)kvl_bits_next(cells->used, to, n_used, false);
        uint64_t n = kvl_bits_next(cells->used, from, cells->used_end, false) - from;
        n = kvl_min(kvl_min(n, kvl_bits_next(cells->used, to, n_used, true) - to), n_most);
        p->move[p->n_move] = (move){from, to, (uint32_t)n};
        p->to[p->n_move++] = (kvl_run){s, to, to + (uint32_t)n};
        from += (uint32_t)n;
        to += (uint32_t)n;
        n_most -= (uint32_t)n;
    }
}

static void free_holes(kvl_cells *cells, const piece *p, uint64_t stamp)
{
    for (uint32_t i = 0; i < p->n_move; i++)
        kvl_cells_ahead(cells, p->to[i].begin, p->to[i].end, stamp);
}

/* What the moves need of our own memory. */
static int reserve_moves(kvl_cells *cells, const piece *p)
{
    uint32_t n_part = 0;
    int status = KVLAZY_OK;

    for (uint32_t i = 0; i < p->n_move && !cells->mirror; i++)
        n_part += kvl_cells_parts(cells, p->move[i].from, p->move[i].n);
    for (uint32_t i = 0; i < p->n_move && !status; i++)
        status = kvl_cells_reserve_move(cells, p->move[i].from, p->move[i].n, n_part);
    return status;
}

/* The holes can be written. Pages that earlier moves left free make room, under a budget. */
static int touch_holes(kvlazy_cache *c, const piece *p)
{
    int status = kvl_rows_want(&c->rows, p->to, p->n_move);

    if (!status)
        status = kvl_fit_runs(c, p->to, p->n_move);
    c->limits.pool_wants = 0; /* not worth asking others */
    return status ? status : kvl_rows_touch(&c->rows, p->to, p->n_move);
}

static void make_moves(kvlazy_cache *c, uint32_t s, const piece *p, uint64_t stamp)
{
    uint64_t from_ns = kvl_host_now_ns(&c->mem);

    for (uint32_t i = 0; i < p->n_move; i++) {
        const move *m = &p->move[i];

        kvl_rows_copy(&c->rows, (kvl_run){s, m->from, m->from + m->n}, s, m->to);
        if (kvl_has_engine_cells(c))
            c->engine.ops.move(c->engine.ops.ctx, s, m->from, m->to, m->n);
        kvl_cells_move(&c->stream[s].cells, m->from, m->to, m->n, stamp);
        c->counts.moved_cells += m->n;
    }
    if (!p->n_move)
        return;
    kvl_histogram_add(&c->counts.compact_time, kvl_host_now_ns(&c->mem) - from_ns);
    c->plan.n_ubatch = 0; /* its slots name cells that hold other tokens now */
}

/* How many cells every cache of the group has the memory to move: n_most, else one at a time, else none. */
static uint32_t affordable(kvlazy_cache *c, uint32_t s, uint32_t n_most)
{
    bool fits = true;
    piece p;

    for (kvlazy_cache *m = first_mover(c); m; m = next_mover(m)) {
        plan_piece(&m->stream[s].cells, s, n_most, &p);
        fits = fits && !reserve_moves(&m->stream[s].cells, &p);
    }
    if (fits || !n_most)
        return n_most;
    return affordable(c, s, n_most > 1);
}

/* One piece of a stream in all the group: first every page, then every move. Returns false when there was nothing to
 * move or no room to move it. */
static bool move_piece(kvlazy_cache *c, uint32_t s, uint32_t n_most, uint64_t now_ms)
{
    piece p;
    bool any = false;
    kvlazy_cache *m = first_mover(c);

    n_most = affordable(c, s, n_most);
    for (; m; m = next_mover(m)) {
        plan_piece(&m->stream[s].cells, s, n_most, &p);
        any |= p.n_move > 0;
        if (p.n_move && touch_holes(m, &p))
            break;
    }
    for (kvlazy_cache *k = first_mover(c); k != m; k = next_mover(k)) {
        uint64_t stamp = now_ms - k->params.slot_shrink_idle_ms; /* due at once */

        plan_piece(&k->stream[s].cells, s, n_most, &p); /* the same: nothing moved yet in this one */
        if (m)
            free_holes(&k->stream[s].cells, &p, stamp);
        else
            make_moves(k, s, &p, stamp);
        k->decay.fallow_due_ms = p.n_move && k->params.slot_shrink_idle_ms ? now_ms : k->decay.fallow_due_ms;
    }
    return any && !m;
}

/* ------------------------------------------------------------------------------------------- all of it */

/* As many cells as the largest rows of the group allow, so that all make the same moves. */
static uint32_t piece_cells(const kvl_group *group)
{
    uint64_t cell_bytes = 1;

    for (const kvlazy_cache *m = group->first; m; m = m->next)
        cell_bytes = kvl_max(cell_bytes, m->rows.geometry.cell_bytes);
    return (uint32_t)kvl_max(kvl_min(KVL_PIECE_BYTES / cell_bytes, UINT32_MAX), 1);
}

bool kvl_compact_stream_piece(kvlazy_cache *c, uint32_t s, uint64_t now_ms)
{
    return kvl_can_compact(c) && move_piece(c, s, piece_cells(c->group), now_ms);
}

/* Moves one piece in all caches that move together, if one of them has to be compacted. */
static bool compact_together(kvlazy_cache *c, uint32_t s, uint64_t now_ms)
{
    bool compacts = false;

    for (kvlazy_cache *m = first_mover(c); m; m = next_mover(m))
        compacts |= m->stream[s].compacts;
    if (compacts && kvl_compact_stream_piece(c, s, now_ms))
        return true;
    for (kvlazy_cache *m = first_mover(c); m; m = next_mover(m)) {
        m->stream[s].compacts = false;
        m->stream[s].compact_until_ms = 0;
    }
    return false;
}

bool kvl_compact_piece(kvlazy_cache *c, uint32_t *s, uint64_t now_ms)
{
    for (; *s < c->params.n_stream; ++*s)
        for (kvlazy_cache *m = c->group->first; m; m = kvl_has_engine_cells(m) ? m->next : NULL)
            if (compact_together(m, *s, now_ms))
                return true;
    return false;
}
