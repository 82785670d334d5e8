/* SPDX-License-Identifier: MIT */
/*
 * budget: whether a batch, a copy or a move fits under the limits. Free pages go back before one is refused, but only
 * when all of it then fits: what counts is the page cover of what stays.
 */
#ifndef KVL_BUDGET_H
#define KVL_BUDGET_H

#include "core/cache.h"

/* Runs that were gathered fit on top of live cells and of what an open plan was promised, as they are; or after room
 * was made, and then they are gathered anew: KVLAZY_EBUDGET, KVLAZY_ENOMEM. Runs in plan.run are those of the plan. */
bool kvl_runs_fit(kvlazy_cache *cache);
int kvl_fit_runs(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);

/* Some linked cache has limits, and tensors in the same arenas, so that a page may count for it as well. */
bool kvl_has_limited_twin(kvlazy_cache *cache);

/* The pages of the whole plan fit, once free ones were given back where they must. KVLAZY_EBUDGET: plan.refused_seq
 * says whose token does not. KVLAZY_ENOMEM. */
int kvl_fit_plan(kvlazy_cache *cache);

/* Bytes of pages that neither a live cell nor the open plan needs; and they go back. */
uint64_t kvl_spare_bytes(kvlazy_cache *cache);
void kvl_give_spare(kvlazy_cache *cache);

/* Tokens that a sequence can still take. */
uint32_t kvl_room(kvlazy_cache *cache, kvlazy_seq_id seq);

#endif
