/* SPDX-License-Identifier: MIT */
/*
 * tally: the cells that several sequences share, in a plan of eviction. Such a cell goes when all of its owners have
 * come so far that it is their last one; the tally counts how many have. Loss counts in it what a plan takes; take asks
 * it whose turn a cell is. Changes no plan, but that it offers turns.
 */
#ifndef KVL_TALLY_H
#define KVL_TALLY_H

#include "core/loss.h"

/* Of a cell with several owners: how many the plan leaves, and how many of those are here, which means that they have
 * nothing above it and may lose it. When all are here, the cell goes in the turn of the most recently used one. */
typedef struct kvl_tally {
    uint32_t n_left;
    uint32_t n_here : 30;
    uint32_t known : 1;
    uint32_t told : 1; /* that sequence was offered its turn, and nothing changed since */
} kvl_tally;

/* The tally of a cell at `pos`, counted when it is first looked at. NULL: there is no memory for it, and the cell
 * stays.
 */
kvl_tally *kvl_tally_of(kvlazy_cache *cache, uint32_t cell, kvlazy_pos pos);

/* The same, if it was counted; else NULL. */
kvl_tally *kvl_tally_known(const kvl_eviction *eviction, uint32_t cell);

/* A sequence begins (n 1) or ceases (n -1) to be here, at its last position, or in all its cells where whole ones go.
 */
void kvl_tally_count_here(kvlazy_cache *cache, kvlazy_seq_id seq, int n);

/* A sequence was cut: its cells from its last position up to `end` may be another owner's turn now. */
void kvl_tally_tell_sharers(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos end);

/* All owners that the plan leaves the shared cell are here. */
bool kvl_tally_all_here(kvlazy_cache *cache, uint32_t cell, kvlazy_pos pos);

/* Every cell of the sequence's last position, `pos`, goes in its turn. */
bool kvl_tally_is_turn_of(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos pos);

#endif
