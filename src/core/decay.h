/* SPDX-License-Identifier: MIT */
/*
 * decay: when pages without tokens come due. A page that has held no live cell for the idle time goes back at the end
 * of a batch or with the next poll, wherever it lies.
 */
#ifndef KVL_DECAY_H
#define KVL_DECAY_H

#include "base/base.h"

typedef struct kvl_decay {
    uint64_t fallow_due_ms; /* no fallow cell comes due before */
    uint64_t retry_ms;      /* when to ask the host again for what it refused; KVL_NEVER: nothing */
} kvl_decay;

/* Every fallow cell counts as emptied long ago: the next end_batch or poll deals with it. */
void kvl_decay_make_due(kvlazy_cache *cache, uint64_t now_ms);

/* At the end of a batch: what decayed goes back, at most one piece. */
void kvl_decay_piece(kvlazy_cache *cache, uint64_t now_ms);

/* When the first fallow cell comes due; KVL_NEVER: there is none, or nothing decays. Cost: O(fallow). */
uint64_t kvl_decay_next_ms(kvlazy_cache *cache, uint64_t now_ms);

#endif
