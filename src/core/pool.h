/* SPDX-License-Identifier: MIT */
/*
 * pool: a ceiling in bytes that several caches share, as numbers. Knows shares, minima and weights, and which share is
 * larger than is fair. Knows no cache, takes no memory and calls no other noun. Its lock is held for arithmetic only.
 * What has to be done so that a share becomes smaller is done by api/reclaim.
 */
#ifndef KVL_POOL_H
#define KVL_POOL_H

#include <pthread.h>

#include "base/base.h"

/* What one cache has of a pool. */
typedef struct kvl_share {
    struct kvlazy_pool *pool; /* NULL: no pool; everything is allowed */
    struct kvl_share *next;
    uint64_t taken_bytes; /* ≥ what the cache touched */
    uint64_t min_bytes;
    uint32_t weight;
    uint32_t n_pin;  /* calls of other caches that ask this one to shrink: until they end it cannot leave */
    uint64_t number; /* in the order of joining, from 1 */
} kvl_share;

struct kvlazy_pool {
    uint64_t magic;
    pthread_mutex_t lock;
    pthread_cond_t unpinned;
    uint64_t budget_bytes, taken_bytes, min_bytes, weight;
    uint32_t n_share;
    uint32_t n_call;   /* calls that ask caches, and will come back */
    uint64_t n_joined; /* so far */
    uint64_t n_reclaim, reclaimed_bytes;
    kvl_share *first;
};

#define KVL_POOL_MAGIC UINT64_C(0x6b766c706f6f0001)

static inline bool kvl_is_pool(const kvlazy_pool *pool)
{
    return pool && pool->magic == KVL_POOL_MAGIC;
}

/* Joins with nothing taken. KVLAZY_EBUDGET: the minimum is more than is free, or all minima more than the pool. */
int kvl_share_join(kvl_share *share, kvlazy_pool *pool, uint64_t min_bytes, uint32_t weight);

/* The share leaves the pool, once no other thread asks its cache to shrink. n_own: pins that this thread itself holds,
 * and will not take back. The share keeps what it took, and may be resized, until the cache's pages are gone and
 * kvl_share_give_back ends it. */
void kvl_share_leave(kvl_share *share, uint32_t n_own);
void kvl_share_give_back(const kvl_share *share);

/* The share becomes so large. Returns false, with the share unchanged, when it cannot grow so far. */
bool kvl_share_resize(kvl_share *share, uint64_t bytes);

/* Bytes that the share may grow by now, while all others keep theirs. */
uint64_t kvl_share_room(const kvl_share *share);

/* What a call wants of a pool: one share is to grow to so many bytes, or (asks NULL) all together are to have no more.
 */
typedef struct kvl_want {
    kvl_share *asks;
    uint64_t bytes;
    bool free_only; /* free pages alone, which each cache gives down to its minimum */

    /* The share that was asked last. Those that are as far over their fair share, or further, had their turn. So asking
     * ends, whatever the other caches do meanwhile. */
    double last_over;
    uint64_t last_number; /* 0: none was asked yet */
} kvl_want;

/* Counts one more time that other caches are asked. */
void kvl_pool_count_reclaim(kvlazy_pool *pool);

/* Pins and returns the share furthest over its fair share that is still to be asked, and tells how many bytes it may
 * keep. NULL: there is none, or enough is free, or all of them together have not enough. */
kvl_share *kvl_share_next_victim(kvlazy_pool *pool, kvl_want *want, uint64_t *floor_bytes);
void kvl_share_unpin(kvlazy_pool *pool, kvl_share *share, uint64_t reclaimed_bytes);

/* Returns false when more is taken, or kept by minima. */
bool kvl_pool_set_budget(kvlazy_pool *pool, uint64_t budget_bytes);

#endif
