/* SPDX-License-Identifier: MIT */
/*
 * limits: how many pages a cache may touch: by its own budget_bytes, by its pool, and by what the machine has left.
 * Takes from the pool what it allows; gives no page back.
 */
#ifndef KVL_LIMITS_H
#define KVL_LIMITS_H

#include "core/pool.h"

typedef struct kvl_limits {
    char *host_root;         /* where the machine's limits are read; NULL: they are not */
    uint64_t headroom_pages; /* touched pages that they allowed when they were last read */
    uint64_t look_pages;     /* with more than these it is time to read them again */
    uint64_t look_ms;        /* when that was; 0: never */
    kvl_share share;         /* of a pool */
    uint64_t pool_wants;     /* the bytes of a refusal that other caches may help with; 0: none */
} kvl_limits;

/* Some limit is set at all. */
bool kvl_limits_any(const kvlazy_cache *cache);

/* So many touched pages are allowed; of a pool they are then taken. */
bool kvl_limits_take(kvlazy_cache *cache, uint64_t n_page);

/* Whether so many would be allowed, for pages that are kept and others that were given back. Takes nothing. */
bool kvl_limits_allow(kvlazy_cache *cache, uint64_t n_page);

/* The same; a refusal by the pool alone is noted in pool_wants. */
int kvl_limits_check(kvlazy_cache *cache, uint64_t n_page);

/* A pool has back what was taken of it and not touched. */
void kvl_limits_settle(kvlazy_cache *cache);

#endif
