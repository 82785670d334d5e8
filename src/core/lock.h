/* SPDX-License-Identifier: MIT */
/*
 * lock: the lock of a group of caches. Taking it counts the hooks that wait; releasing it settles pool shares, wakes
 * the watcher and hands the noted log lines to the sink. The calls of src/api take and release it; core does so only
 * around a question to the embedder and where a long piece of work gives way to a hook.
 */
#ifndef KVL_LOCK_H
#define KVL_LOCK_H

#include "core/cache.h"

void kvl_lock(kvlazy_cache *cache);
bool kvl_try_lock(kvlazy_cache *cache); /* false: another thread is inside */
void kvl_unlock(kvlazy_cache *cache);

/* Hooks wait for the lock: a long piece of work stops for them. */
static inline bool kvl_hook_waits(const kvlazy_cache *cache)
{
    return atomic_load(&cache->group->n_waiting) > 0;
}

/* Releases the lock around a question that is asked in the middle of a call; the idle side stays away meanwhile. */
void kvl_begin_asking(kvlazy_cache *cache);
void kvl_end_asking(kvlazy_cache *cache);

/* The same around callbacks that must not call the cache: what they call returns KVLAZY_EBUSY. `caller` is theirs
 * between the two. */
void kvl_begin_callback(kvlazy_cache *cache, kvl_caller *caller);
void kvl_end_callback(kvlazy_cache *cache, kvl_caller *caller);

/* With the lock held: this thread is inside such a callback. */
bool kvl_is_in_callback(const kvlazy_cache *cache);

/* Waits, with the lock held, until no call of the group is in the embedder's code but for this thread's own. */
void kvl_wait_for_calls(kvl_group *group);

#endif
