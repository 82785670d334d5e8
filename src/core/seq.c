/* SPDX-License-Identifier: MIT */
/* seq: see seq.h. */
#include "core/seq.h"
#include "core/bookkeeping.h"
#include "core/clock.h"
#include "core/release.h"
#include "core/report.h"
#include "core/window.h"

#include <inttypes.h>

bool kvl_normalise_range(kvlazy_pos *p0, kvlazy_pos *p1)
{
    *p0 = *p0 < 0 ? 0 : *p0;
    *p1 = *p1 < 0 ? INT32_MAX : *p1; /* open: no position is that large */
    return *p0 < *p1;
}

/* ------------------------------------------------------------------------------------------- whole sequences */

bool kvl_seq_is_torn_by(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_index *index = kvl_index_of(c, seq);
    uint32_t taken = kvl_index_below(index, p1) - kvl_index_below(index, p0);

    return c->params.shrink == KVLAZY_SHRINK_WHOLE && taken && taken < index->n;
}

/* Cells of `seq` in [p0, p1) that fall below 0 are taken from every owner, and some owner would keep others. */
static bool is_torn_by_motion(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion)
{
    const kvl_cells *cells = &kvl_stream_of(c, seq)->cells;
    kvlazy_pos end = motion.delta < 0 ? (kvlazy_pos)kvl_min((uint64_t)-motion.delta, (uint64_t)p1) : 0;

    if (KVL_LIKELY(c->params.shrink != KVLAZY_SHRINK_WHOLE || end <= p0))
        return false;
    for (uint32_t i = 0; i < cells->n_seq; i++) {
        const kvl_index *index = &cells->index[i];
        uint32_t n = 0;

        for (uint32_t k = kvl_index_below(index, p0); k < index->n && kvl_index_at(index, k).pos < end; k++)
            n += kvl_cells_owns(cells, kvl_index_at(index, k).cell, seq);
        if (n && n < index->n)
            return true;
    }
    return false;
}

bool kvl_seq_must_start_anew(kvlazy_cache *c, kvlazy_seq_id seq)
{
    return !kvl_index_of(c, seq)->n && c->seq[seq].evicted && c->seq[seq].planned_low != 0;
}

/* ------------------------------------------------------------------------------------------- removing */

/* Tokens stay on both sides of the range. */
static bool splits(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_index *index = kvl_index_of(c, seq);
    uint32_t begin = kvl_index_below(index, p0), end = kvl_index_below(index, p1);

    return begin && begin < end && end < index->n;
}

/* Only a removal of the whole says that the engine starts anew: after a bounded one it may still believe in
 * tokens that eviction took. */
static bool remove_range(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, uint64_t now_ms)
{
    uint32_t n = kvl_cells_rm(&kvl_stream_of(c, seq)->cells, seq, p0, p1, now_ms);

    if (n)
        kvl_seq_changed(c, seq);
    if (p0 == 0 && p1 == INT32_MAX) {
        c->seq[seq].evicted = false;
        kvl_window_forget(c, seq);
    }
    if (n ||
        kvl_window_any_holds(c->group, seq, 0, INT32_MAX)) /* else nothing was removed, here or in a linked cache */
        kvl_window_refill(c, seq, p0, p1, now_ms);
    return n > 0;
}

int kvl_seq_rm(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    kvlazy_seq_id first = seq < 0 ? 0 : seq, end = seq < 0 ? (kvlazy_seq_id)c->params.n_seq_max : seq + 1;
    bool removed = false;

    if (!kvl_normalise_range(&p0, &p1))
        return KVLAZY_OK;
    for (kvlazy_seq_id i = first; i < end; i++)
        if (kvl_seq_is_torn_by(c, i, p0, p1))
            return KVLAZY_ENOTSUP;
    for (kvlazy_seq_id i = first; i < end; i++) /* what stays on both sides of a range takes one run more */
        if (splits(c, i, p0, p1) && !kvl_index_room(kvl_index_of(c, i)) &&
            kvl_cells_reserve_seq(&kvl_stream_of(c, i)->cells, i, 1))
            return KVLAZY_ENOMEM;
    uint64_t now_ms = kvl_now(c);
    for (kvlazy_seq_id i = first; i < end; i++)
        removed |= remove_range(c, i, p0, p1, now_ms);
    if (removed)
        kvl_note_fallow(c, now_ms);
    return KVLAZY_OK;
}

void kvl_seq_keep(kvlazy_cache *c, kvlazy_seq_id seq)
{
    kvl_cells *cells = &kvl_stream_of(c, seq)->cells;
    uint64_t now_ms = kvl_now(c);
    uint32_t n_used = cells->n_used;

    kvl_cells_keep_only(cells, seq, now_ms);
    for (uint32_t i = 0; i < cells->n_seq; i++)
        if (cells->seq_first + i != (uint32_t)seq) {
            kvlazy_seq_id gone = (kvlazy_seq_id)(cells->seq_first + i);

            kvl_seq_changed(c, gone);
            c->seq[gone].evicted = false;
            kvl_window_forget(c, gone);
        }
    if (cells->n_used < n_used)
        kvl_note_fallow(c, now_ms);
}

void kvl_clear(kvlazy_cache *c, bool data, uint64_t now_ms)
{
    kvl_report_begin(c);
    kvl_engine_cells_sync(c, now_ms); /* an engine clears its own cells first */
    for (uint32_t s = 0; kvl_has_engine_cells(c) && !c->engine.ops.used_end && s < c->params.n_stream; s++)
        kvl_engine_cells_free(c, &(kvl_run){s, 0, c->params.kv_size}, 1, now_ms);
    for (uint32_t s = 0; !kvl_has_engine_cells(c) && s < c->params.n_stream; s++)
        kvl_cells_clear(&c->stream[s].cells, now_ms);
    for (uint32_t i = 0; i < c->params.n_seq_max; i++) {
        kvl_seq_changed(c, (kvlazy_seq_id)i);
        c->seq[i].evicted = false;
        c->seq[i].veto_ms = 0;
        kvl_window_forget(c, (kvlazy_seq_id)i);
    }
    kvl_note_fallow(c, now_ms);
    if (!data)
        return;
    while (kvl_release_free_piece(c, now_ms))
        ;
    kvl_untouched_begin_all(c);
    while (kvl_untouched_piece(c))
        ;
    kvl_bookkeeping_shrink(c);
    kvl_report_end(c, now_ms, false);
}

/* ------------------------------------------------------------------------------------------- moving positions */

/* Tokens [begin, end) of a sequence are about to move, in every sequence that owns them: each of these changes, and
 * what of it is still to be settled cannot be told by position any more. */
static void note_motion(kvlazy_cache *c, kvlazy_seq_id seq, uint32_t begin, uint32_t end)
{
    const kvl_cells *cells = &kvl_stream_of(c, seq)->cells;
    const kvl_index *index = kvl_index_of(c, seq);
    kvl_index_walk walk = kvl_index_walk_from(index, begin, end);
    kvl_stretch run;

    kvl_seq_mark_moved(&c->seq[seq]);
    while (kvl_index_next(index, &walk, &run))
        for (uint32_t i = 0; i < run.n; i += kvl_cells_same_owners(cells, run.cell + i, run.n - i)) {
            kvl_owners_changed(c, cells, run.cell + i);
            for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, run.cell + i, o + 1)) >= 0;)
                kvl_seq_mark_moved(&c->seq[o]);
        }
}

/* Positions are moved at once; K is rotated by the engine, which finds the shifts in the cells view. */
int kvl_seq_move(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion)
{
    kvl_cells *cells = &kvl_stream_of(c, seq)->cells;
    const kvl_index *index = kvl_index_of(c, seq);

    if (c->params.n_pos_per_token > 1)
        return KVLAZY_ENOTSUP;
    if (!kvl_normalise_range(&p0, &p1) || (motion.delta == 0 && motion.divisor == 1))
        return KVLAZY_OK;
    uint32_t begin = kvl_index_below(index, p0), end = kvl_index_below(index, p1);
    bool moves = begin < end && (motion.delta != 0 || kvl_index_at(index, end - 1).pos > 0); /* 0 / d is 0 */
    if (!moves)
        return KVLAZY_OK;
    if (is_torn_by_motion(c, seq, p0, p1, motion))
        return KVLAZY_ENOTSUP;
    if (kvl_index_at(index, end - 1).pos + motion.delta >= INT32_MAX) {
        kvl_log_note(&c->log, KVLAZY_LOG_ERROR,
                     "seq_add: sequence %" PRId32 " position %" PRId32 " + %" PRId64 " is out of range", seq,
                     kvl_index_at(index, end - 1).pos, motion.delta);
        return KVLAZY_EINVAL;
    }
    if (kvl_cells_reserve_reposition(cells, seq, p0, p1, motion))
        return KVLAZY_ENOMEM;
    uint64_t now_ms = kvl_now(c);
    note_motion(c, seq, begin, end);
    kvl_window_moved(c, seq, p0, p1, motion);
    kvl_cells_reposition(cells, motion, now_ms);
    kvl_note_activity(c, seq, now_ms);
    kvl_note_fallow(c, now_ms);
    kvl_window_refill_shifted(c, cells, now_ms); /* a shift can bring what was lost into the window, of each owner */
    return KVLAZY_OK;
}

bool kvl_waits_for_rotation(const kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        if (c->stream[s].cells.n_shifted)
            return true;
    return false;
}
