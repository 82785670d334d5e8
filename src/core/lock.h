/* SPDX-License-Identifier: MIT */
/*
 * lock: the lock of a group of caches. Taking it counts the hooks that wait; releasing it settles pool shares, wakes
 * the watcher and hands the noted log lines to the sink. The calls of src/api take and release it; core does so only
 * around a question to the embedder and where a long piece of work gives way to a hook.
 */
#ifndef KVL_LOCK_H
#define KVL_LOCK_H

#include "core/cache.h"

/* KVLAZY_ENOTSUP: in a child of fork, and a thread that was inside is not there to come out. */
int kvl_lock(kvlazy_cache *cache);
bool kvl_try_lock(kvlazy_cache *cache); /* false: another thread is inside */
void kvl_unlock(kvlazy_cache *cache);

/* Frees a group that has no member. */
void kvl_free_group(kvl_group *group);

/* Releases the lock of a group. Frees ghosts that no call knows any more, and the group after its last member. */
void kvl_let_go(kvl_group *group);

/* The process is a child of the one that the group belongs to. */
bool kvl_is_forked(const kvlazy_cache *cache);

/* With the lock held, so no thread of the parent was inside: the group belongs to this process from here on, and the
 * parent's watcher has no thread in it. Waiting for other threads is right only then. */
void kvl_adopt(kvlazy_cache *cache);

/* Hooks wait for the lock: a long piece of work stops for them. */
static inline bool kvl_hook_waits(const kvlazy_cache *cache)
{
    return atomic_load(&cache->group->n_waiting) > 0;
}

/* Releases the lock around a question that is asked in the middle of a call; the idle side stays away meanwhile. Hooks
 * that wait go before the call takes the lock again, so a long piece of work gives way to them by the same two calls. */
void kvl_begin_asking(kvlazy_cache *cache);
void kvl_end_asking(kvl_group *group);

/* The same without keeping the idle side away, for text that a call hands to the sink itself. */
void kvl_begin_telling(kvlazy_cache *cache);
void kvl_end_telling(kvl_group *group);

/* The same around callbacks that must not call the cache: what they call returns KVLAZY_EBUSY. `callback` is theirs
 * between the two. */
void kvl_begin_callback(kvlazy_cache *cache, kvl_callback *callback);
void kvl_end_callback(kvlazy_cache *cache, kvl_callback *callback);

/* With the lock held: this thread is inside such a callback. */
bool kvl_is_in_callback(const kvlazy_cache *cache);

/* Waits, with the lock held, until no call of the group is in the embedder's code but for this thread's own, and for
 * those whose callbacks wait the same way. */
void kvl_wait_for_calls(kvlazy_cache *cache);

#endif
