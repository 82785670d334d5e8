/* SPDX-License-Identifier: MIT */
/*
 * shrink: the idle side of a group. Asks evict which tokens go, compact to move the rest down, release for the pages,
 * and says when a look can matter again. While a batch is open it does nothing.
 */
#ifndef KVL_SHRINK_H
#define KVL_SHRINK_H

#include "base/base.h"

/* Figures before a shrink, for the line that tells what it did. */
typedef struct kvl_before {
    uint64_t n_released, evicted_cells, moved_cells;
} kvl_before;

/* Scratch of one shrink. */
typedef struct kvl_shrinking {
    kvl_before before;
    bool due; /* it has pages to give back */
} kvl_shrinking;

/* A batch is open, or a call waits for an answer of on_evict or of a pool. */
bool kvl_shrink_is_barred(const kvlazy_cache *cache);

/* What a poll does; no batch is open. KVLAZY_EBUSY: a batch was opened while on_evict was asked. *more: it stopped for
 * a hook and is not done. */
int kvl_shrink_idle(kvlazy_cache *cache, uint64_t now_ms, bool *more);

/* How long until a look at the group can matter, right after one. */
uint64_t kvl_shrink_next_in(kvlazy_cache *cache, uint64_t now_ms);

/* What a trim does. */
int kvl_shrink_cells(kvlazy_cache *cache, uint32_t max_cells, uint64_t now_ms);

/* Makes what is touched fit a budget: free pages first, then the longest-idle sequences. KVLAZY_EBUDGET, KVLAZY_EBUSY.
 */
int kvl_shrink_to_budget(kvlazy_cache *cache, uint64_t budget_bytes, uint64_t now_ms);

/* For another cache of the pool: free pages go until no more than max_bytes are touched; and then idle tokens. */
void kvl_shrink_free(kvlazy_cache *cache, uint64_t max_bytes, uint64_t now_ms);
void kvl_shrink_bytes(kvlazy_cache *cache, uint64_t max_bytes, uint64_t now_ms);

/* Memory is short: a group that rests gives back what it can without losing more than an idle time would take. What is
 * left when a hook comes is due at once. KVLAZY_EBUSY: it does not rest. */
int kvl_shrink_early(kvlazy_cache *cache);

#endif
