/* SPDX-License-Identifier: MIT */
/*
 * limits: how many pages a cache may touch: by its own budget_bytes, by its pool, and by what the machine has left.
 * Takes from the pool what it allows, and promises it beside all that the other caches of the host were promised;
 * gives no page back.
 *
 * What the machine had free at the last look is no promise: others live on it too, and the caches of a process take
 * from one another. So a look has an age, and from what it saw is deducted what all caches took since and what they
 * are promised still:
 *
 *     seen free at the look  | taken since | promised, not present yet |      left      |
 *                                                                      | asked for |
 */
#ifndef KVL_LIMITS_H
#define KVL_LIMITS_H

#include "core/pool.h"

typedef struct kvl_limits {
    char *host_root;     /* where the machine's limits are read; NULL: they are not */
    uint64_t look_bytes; /* that were free when they were last read */
    uint64_t look_taken; /* the sums of all caches then, in bytes */
    uint64_t look_promised;
    uint64_t look_ms;       /* when that was; 0: never */
    kvl_share share;        /* of a pool */
    uint64_t pool_wants;    /* the bytes of a refusal that other caches may help with; 0: none */
    uint64_t machine_wants; /* the bytes that the machine lacked, which linked caches may help with; 0: none */
} kvl_limits;

/* Some limit is set at all. */
bool kvl_limits_any(const kvlazy_cache *cache);

/* So many touched pages are allowed; of a pool they are then taken, and of the machine promised until the batch ends.
 * What was promised before is not asked for again, of the machine. */
bool kvl_limits_take(kvlazy_cache *cache, uint64_t n_page);

/* Whether so many would be allowed, for pages that are kept and others that were given back. Takes nothing. */
bool kvl_limits_allow(kvlazy_cache *cache, uint64_t n_page);

/* The same; a refusal by the pool alone is noted in pool_wants, one by the machine in machine_wants. */
int kvl_limits_check(kvlazy_cache *cache, uint64_t n_page);

/* What was taken or promised and not touched is free again: the plan it was for came to nothing, or was followed. */
void kvl_limits_settle(kvlazy_cache *cache);

/* Pages went back: the pool has all that is neither touched nor promised. */
void kvl_limits_give(kvlazy_cache *cache);

/* Bytes that the pool, or the machine, lacks still of what was noted in pool_wants or machine_wants. */
uint64_t kvl_limits_missing(kvlazy_cache *cache, uint64_t pool_wants, uint64_t machine_wants);

#endif
