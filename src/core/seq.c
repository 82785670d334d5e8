/* SPDX-License-Identifier: MIT */
/* seq: see seq.h. */
#include "core/seq.h"
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

/* ------------------------------------------------------------------------------------------- removing */

/* The range takes some of a sequence and leaves some. */
static bool is_partial(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_index *index = kvl_index_of(c, seq);
    uint32_t taken = kvl_index_below(index, p1) - kvl_index_below(index, p0);

    return taken && taken < index->n;
}

/* Only a removal of the whole says that the engine starts anew: after a bounded one it may still believe in
 * tokens that eviction took. */
static bool remove_range(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, uint64_t now_ms)
{
    uint32_t n = kvl_cells_rm(&kvl_stream_of(c, seq)->cells, seq, p0, p1, kvl_stamp(c, now_ms));

    c->seq[seq].generation += n > 0;
    if (p0 == 0 && p1 == INT32_MAX) {
        c->seq[seq].evicted = false;
        c->seq[seq].lost_end = 0;
    }
    kvl_window_refill(c, seq, p0, p1, now_ms);
    return n > 0;
}

int kvl_seq_rm(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    kvlazy_seq_id first = seq < 0 ? 0 : seq, end = seq < 0 ? (kvlazy_seq_id)c->params.n_seq_max : seq + 1;
    bool removed = false;

    if (!kvl_normalise_range(&p0, &p1))
        return KVLAZY_OK;
    for (kvlazy_seq_id i = first; c->params.shrink == KVLAZY_SHRINK_WHOLE && i < end; i++)
        if (is_partial(c, i, p0, p1))
            return KVLAZY_ENOTSUP;
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

    kvl_cells_keep_only(cells, seq, kvl_stamp(c, now_ms));
    for (uint32_t i = 0; i < cells->n_seq; i++)
        if (cells->seq_first + i != (uint32_t)seq) {
            c->seq[cells->seq_first + i].evicted = false;
            kvl_seq_changed(&c->seq[cells->seq_first + i]);
            c->seq[cells->seq_first + i].lost_end = 0;
        }
    kvl_note_fallow(c, now_ms);
}

void kvl_clear(kvlazy_cache *c, bool data, uint64_t now_ms)
{
    kvl_report_begin(c);
    kvl_engine_cells_sync(c, now_ms); /* an engine clears its own cells first */
    for (uint32_t s = 0; !kvl_has_engine_cells(c) && s < c->params.n_stream; s++)
        kvl_cells_clear(&c->stream[s].cells, kvl_stamp(c, now_ms));
    for (uint32_t i = 0; i < c->params.n_seq_max; i++) {
        c->seq[i].evicted = false;
        kvl_seq_changed(&c->seq[i]);
        c->seq[i].veto_ms = 0;
        c->seq[i].lost_end = 0;
    }
    kvl_note_fallow(c, now_ms);
    while (data && kvl_release_free_piece(c, now_ms))
        ;
    if (data)
        kvl_report_end(c, now_ms, false);
}

/* ------------------------------------------------------------------------------------------- moving positions */

/* Tokens [begin, end) of a sequence are about to move, in every sequence that owns them. What of a sequence is still
 * to be settled cannot be told by position then. */
static void mark_moved(kvlazy_cache *c, kvlazy_seq_id seq, uint32_t begin, uint32_t end)
{
    const kvl_cells *cells = &kvl_stream_of(c, seq)->cells;

    kvl_seq_mark_moved(&c->seq[seq]);
    for (uint32_t i = begin; i < end; i++) {
        uint32_t cell = kvl_index_at(kvl_index_of(c, seq), i)->cell;

        if (kvl_cells_only_owner(cells, cell) == seq)
            continue;
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, cell, o + 1)) >= 0;)
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
    if (begin == end)
        return KVLAZY_OK;
    if (kvl_index_at(index, end - 1)->pos + motion.delta >= INT32_MAX) {
        kvl_log_note(&c->log, KVLAZY_LOG_ERROR,
                     "seq_add: sequence %" PRId32 " position %" PRId32 " + %" PRId64 " is out of range", seq,
                     kvl_index_at(index, end - 1)->pos, motion.delta);
        return KVLAZY_EINVAL;
    }
    if (kvl_cells_reserve_seq(cells, seq, end - begin))
        return KVLAZY_ENOMEM;
    uint64_t now_ms = kvl_now(c);
    kvl_window_moved(c, seq, p0, p1, motion);
    mark_moved(c, seq, begin, end);
    kvl_cells_reposition(cells, seq, p0, p1, motion, kvl_stamp(c, now_ms));
    kvl_note_activity(c, seq, now_ms);
    kvl_note_fallow(c, now_ms);
    kvl_window_refill(c, seq, 0, 0, now_ms); /* a shift can bring what was lost into the window */
    return KVLAZY_OK;
}

bool kvl_waits_for_rotation(const kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        if (c->stream[s].cells.n_shifted)
            return true;
    return false;
}
