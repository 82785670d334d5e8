/* SPDX-License-Identifier: MIT */
/*
 * door: how every public call about a cache begins and ends. Takes the lock, lets the cache follow what a linked window
 * emptied, and refuses handles and kinds of cache that a call is not for. Nothing below this floor takes the lock of a
 * call.
 */
#ifndef KVL_DOOR_H
#define KVL_DOOR_H

#include "core/cache.h"

/* What a call is about. */
typedef enum kvl_door {
    KVL_DOOR_LOOK,   /* one cache: what a linked window emptied is emptied here first */
    KVL_DOOR_CELLS,  /* the same; KVLAZY_ENOTSUP where the engine keeps the cells */
    KVL_DOOR_ENGINE, /* the same; KVLAZY_ENOTSUP where the library keeps the cells */
    KVL_DOOR_SEQ,    /* one sequence: it is emptied after the call, so that the same call on every linked cache does the
                        same; KVLAZY_ENOTSUP where the engine keeps the cells */
    KVL_DOOR_GROUP,  /* all linked caches */
} kvl_door;

/* KVLAZY_EINVAL for what is no cache, KVLAZY_ENOTSUP in a child of fork that cannot have the lock, KVLAZY_EBUSY inside
 * a callback that must not call the cache; the lock is held only after KVLAZY_OK. Handles are const where the call
 * changes nothing that a caller sees; the lock, the clock and scratch are the library's own. */
int kvl_enter(const kvlazy_cache *cache, kvl_door door);

/* All linked caches. KVLAZY_EBUSY: another thread is inside, or as above. */
int kvl_try_enter(kvlazy_cache *cache);

/* Hands `status` through; KVLAZY_EINVAL when a callback destroyed the cache meanwhile. A call that only looked leaves
 * nothing for a build with KVLAZY_CHECKS=2 to check. */
int kvl_leave(kvlazy_cache *cache, int status);
int kvl_leave_look(const kvlazy_cache *cache, int status);

/* A cache is never an object declared const, so a call that only looks may use its scratch. */
static inline kvlazy_cache *kvl_mutable(const kvlazy_cache *cache)
{
    return (kvlazy_cache *)(uintptr_t)cache;
}

#endif
