/* SPDX-License-Identifier: MIT */
/*
 * prepare: finds a cell for every token of a batch as if each ubatch were applied before the next, and writes it down
 * as a plan that apply follows. Changes no cell, no stamp and no touched page; all it may do to make room under a byte
 * limit is give back pages that no cell needs.
 */
#ifndef KVL_PREPARE_H
#define KVL_PREPARE_H

#include "core/cache.h"

/* Makes the plan, fills the slots and opens a batch. A refusal leaves no plan. restores: the batch goes on with
 * nothing, its sequences have no tokens and get any. */
int kvl_prepare(kvlazy_cache *cache, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots, bool restores);

/* A batch is refused for good: counts and logs that, and closes the batch. */
void kvl_prepare_refused(kvlazy_cache *cache, int status, uint32_t n_ubatch);

#endif
