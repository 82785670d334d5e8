/* SPDX-License-Identifier: MIT */
/*
 * pool: a ceiling in bytes that several caches share, as numbers. Knows shares, minima and weights, and who is over
 * what is fair; knows no cache, takes no memory and calls nobody. Its lock is held for arithmetic only. What has to be
 * done so that a share becomes smaller is reclaim's.
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
    uint32_t n_pin;  /* others are asking it to shrink: it may not go away */
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

/* Leaves, once no other thread asks it to shrink any more (n_own: pins that this thread itself holds, and will not take
 * back). What it took it has, and may resize, until the pages are gone and it is given back. */
void kvl_share_leave(kvl_share *share, uint32_t n_own);
void kvl_share_give_back(const kvl_share *share);

/* The share becomes so large. Answers false when it cannot grow so far; it is as it was then. */
bool kvl_share_resize(kvl_share *share, uint64_t bytes);

/* Bytes the share may grow by now, without others giving anything. */
uint64_t kvl_share_room(const kvl_share *share);

/* What somebody wants of a pool: one share to grow to so many bytes, or (asks NULL) all together to have no more. */
typedef struct kvl_want {
    kvl_share *asks;
    uint64_t bytes;
    bool free_only; /* free pages, which everybody gives down to his minimum */

    /* Who was asked last: whoever is as much over or more had his turn, so that asking ends whatever others do. */
    double last_over;
    uint64_t last_number; /* 0: nobody yet */
} kvl_want;

/* Others are asked. */
void kvl_pool_count_reclaim(kvlazy_pool *pool);

/* The share furthest over its fair share that is still to be asked, pinned, and how many bytes it may keep. NULL: there
 * is none, or enough is free, or all of them together have not enough. */
kvl_share *kvl_share_next_victim(kvlazy_pool *pool, kvl_want *want, uint64_t *floor_bytes);
void kvl_share_unpin(kvlazy_pool *pool, kvl_share *share, uint64_t reclaimed_bytes);

/* Answers false when more is taken, or kept by minima. */
bool kvl_pool_set_budget(kvlazy_pool *pool, uint64_t budget_bytes);

#endif
