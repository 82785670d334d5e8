/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/pool.h: one byte budget over several caches.
 *
 * THE IDEA. The caches of a process can share one ceiling for touched bytes, so that a busy one takes what idle ones do
 * not need. Each cache has
 *  - a minimum (kvlazy_params.pool_min_bytes), which is never lent to others;
 *  - a weight (kvlazy_params.pool_weight). Its fair share is its minimum and, by weight, its part of what is above all
 *    minima.
 *
 * LIFE CYCLE.
 *
 *     kvlazy_pool_create(8ull << 30, &pool);
 *     params.pool = pool; params.pool_min_bytes = 256 << 20;
 *     kvlazy_create(&params, &cache);                     // EBUDGET: the minima are more than the pool has
 *     ...
 *     kvlazy_destroy(cache);
 *     kvlazy_pool_destroy(pool);                          // after every cache in it
 *
 * WHEN ROOM IS SHORT. A cache takes what is free in the pool. When that is not enough for a batch or a copy, others are
 * asked:
 *  - first their free pages go;
 *  - then tokens of their sequences that idle, as kvlazy_set_limits with a lower budget would take them. on_evict is
 *    asked, on the thread of the cache that lacks room.
 *  - The cache furthest over its fair share is asked first. It goes down to its fair share; down to its minimum where
 *    the cache that lacks room is within its own fair share.
 *  - Passed over are a cache whose batch is open, one that another thread is inside, and one whose cells the engine
 *    keeps.
 *  - What is missing then is EBUDGET.
 */
#ifndef KVLAZY_POOL_H
#define KVLAZY_POOL_H

#include "kvlazy.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Creates a pool of that many bytes. Fails: EINVAL for NULL or 0 bytes; ENOMEM. *pool is untouched. */
KVLAZY_API int kvlazy_pool_create(uint64_t budget_bytes, kvlazy_pool **pool);

/**
 * Destroys a pool. NULL is allowed.
 * Fails: EBUSY while a cache is in it; EINVAL for what is no pool. The pool stays as it is.
 */
KVLAZY_API int kvlazy_pool_destroy(kvlazy_pool *pool);

/**
 * Changes the ceiling at run time. Lowering it shrinks the caches as above.
 * Fails: the old ceiling stays.
 *  - EINVAL: 0 bytes, or no pool.
 *  - EBUDGET: what the caches hold, and what is kept for their minima, is still above it. What they gave back until
 *    then is gone.
 */
KVLAZY_API int kvlazy_pool_set_budget(kvlazy_pool *pool, uint64_t budget_bytes);

/** Figures of a pool. */
typedef struct kvlazy_pool_info {
    size_t struct_size;
    uint64_t budget_bytes;
    uint64_t taken_bytes;     /* by all caches: what they touched, and what open batches are about to; never above
                                 budget_bytes */
    uint64_t min_bytes;       /* sum of the minima */
    uint64_t n_reclaim;       /* times others were asked */
    uint64_t reclaimed_bytes; /* running total of what they gave */
    uint32_t n_cache;
} kvlazy_pool_info;

/** Tells the figures of a pool, from any thread. Set info->struct_size first. Fails: EINVAL; *info is untouched. */
KVLAZY_API int kvlazy_pool_stats(kvlazy_pool *pool, kvlazy_pool_info *info);

#ifdef __cplusplus
}
#endif

#endif
