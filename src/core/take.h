/* SPDX-License-Identifier: MIT */
/*
 * take: what goes in a sequence's turn: its tail, what its window hides, or all of it. Gives every sequence of a cache
 * its turn, longest idle first, until enough is planned. The plan itself is loss's.
 */
#ifndef KVL_TAKE_H
#define KVL_TAKE_H

#include "base/base.h"

/* Takes until one cache fits the goal of its group's plan, no sequence may lose more, or losses.n_step reached `until`.
 * Returns false in the last case: call it again. */
bool kvl_take(kvlazy_cache *cache, uint64_t until);

/* Cells that still have to go: from a stream, or of a cache for KVL_GOAL_BYTES. */
uint64_t kvl_take_missing(const kvlazy_cache *cache, uint32_t stream);

#endif
