/* SPDX-License-Identifier: MIT */
/*
 * reclaim: what a cache lacks of its pool is taken from the other caches in it, as their own poll would do it: free
 * pages of all first, then idle tokens. No lock is held but that of the cache that shrinks, and that is only tried; a
 * cache that another thread is inside is passed over. Linked caches give their free pages under the lock that is held,
 * and no token: the batch is theirs too.
 */
#ifndef KVL_RECLAIM_H
#define KVL_RECLAIM_H

#include "core/cache.h"

/* After a refusal by the pool or the machine: linked caches give free pages, if that is enough; else the other caches
 * of the pool are asked, with the lock released. Returns whether another try is worth it. */
bool kvl_reclaim(kvlazy_cache *cache);

/* The same for a call that holds cells of linked caches meanwhile: what others' on_evict does to these caches is refused
 * (KVLAZY_EBUSY; kvlazy_destroy does nothing), as inside any callback of a state or a store. */
bool kvl_reclaim_for_held(kvlazy_cache *cache);

/* All caches of a pool are asked, until together they have no more than so much. */
void kvl_reclaim_pool(kvlazy_pool *pool, uint64_t budget_bytes);

#endif
