/* SPDX-License-Identifier: MIT */
/*
 * budget: whether a batch, a copy or a move fits under the limits. Free pages go back before one is refused, but only
 * when all of it then fits: what counts is the page cover of what stays.
 */
#ifndef KVL_BUDGET_H
#define KVL_BUDGET_H

#include "core/cache.h"

/* n_more pages are too many on top of the touched ones: free pages outside the kept cells go back, if what is kept then
 * fits. KVLAZY_EBUDGET: it does not, or the host would not take them. */
int kvl_make_room(kvlazy_cache *cache, uint64_t n_more);

/* Runs that were gathered fit on top of live cells as they are; or after room was made, and then they are gathered
 * anew: KVLAZY_EBUDGET, KVLAZY_ENOMEM. */
bool kvl_runs_fit(kvlazy_cache *cache);
int kvl_fit_runs(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);

/* The pages of the whole plan fit, once free ones were given back where they must. KVLAZY_EBUDGET: plan.refused_seq
 * says whose token does not. KVLAZY_ENOMEM. */
int kvl_fit_plan(kvlazy_cache *cache);

/* Tokens that a sequence can still take. */
uint32_t kvl_room(kvlazy_cache *cache, kvlazy_seq_id seq);

#endif
