/* SPDX-License-Identifier: MIT */
/*
 * window: sliding windows. When no cell is empty, a cell whose token its sequence cannot see any more is taken for a
 * new one, oldest position first. Finds such cells for prepare, takes them for apply, and empties a sequence whose
 * window cannot be filled any more.
 */
#ifndef KVL_WINDOW_H
#define KVL_WINDOW_H

#include "core/cache.h"

/* Places a batch that does not fit the empty cells: masked ones are taken. KVLAZY_ENOSLOT, KVLAZY_ENOMEM. */
int kvl_window_place(kvlazy_cache *cache, uint32_t n_ubatch);

/* The planned victim is still there, and masked. */
bool kvl_window_may_take(kvlazy_params *params, const kvl_cells *cells, uint32_t cell, const kvl_victim *victim);

/* Before a ubatch is recorded: its victims are taken, and with them what their sequences hold at or below. */
void kvl_window_take(kvlazy_cache *cache, const kvl_plan_ubatch *ubatch);

/* Before undo empties a cell: its owners, of the plan or not, lose a token. */
void kvl_window_note_undone(kvlazy_cache *cache, const kvl_cells *cells, uint32_t cell);

/* After a ubatch was undone: victims stay gone, and a sequence whose next token would miss some is emptied. */
void kvl_window_give_up(kvlazy_cache *cache, const kvl_plan_ubatch *ubatch, uint64_t now_ms);

/* Positions of a sequence below this are masked for its next token; 0 without a window. */
kvlazy_pos kvl_window_begin_of(kvlazy_cache *cache, kvlazy_seq_id seq);

/* Cells of a stream that could be taken now. */
uint32_t kvl_window_recyclable(kvlazy_cache *cache, const kvl_stream *stream);

/* A sequence without tokens may go on at `pos`: nothing that recycling took from it would be missed. */
bool kvl_window_may_start(const kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos pos);

/* After a removal of [p0, p1): empties a sequence whose next token would miss what recycling took; linked caches follow
 * when they were told of the removal, or at the next call that is not about one sequence. */
void kvl_window_refill(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, uint64_t now_ms);

/* The same for each sequence of a stream that owns tokens which moved. */
void kvl_window_refill_shifted(kvlazy_cache *cache, const kvl_cells *cells, uint64_t now_ms);

/* The engine removed a sequence whole: nothing of it is lost, and nothing that a linked window did is to be followed.
 */
void kvl_window_forget(kvlazy_cache *cache, kvlazy_seq_id seq);

/* Some cache of the group holds tokens of the sequence in the range. */
bool kvl_window_any_holds(kvl_group *group, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);

/* Empties, in this cache or in all the group, what linked windows emptied. */
void kvl_window_follow_torn(kvlazy_cache *cache);
void kvl_window_follow_group(kvl_group *group);

static inline void kvl_window_follow(kvlazy_cache *cache)
{
    if (KVL_UNLIKELY(cache->group->n_torn))
        kvl_window_follow_torn(cache);
}

/* What recycling took follows a copy, and a motion of positions. */
void kvl_window_copied(kvlazy_cache *cache, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1);
void kvl_window_moved(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion);

#endif
