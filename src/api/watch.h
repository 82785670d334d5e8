/* SPDX-License-Identifier: MIT */
/*
 * watch: the one hook, beside the public headers, that src/extra may use. A watcher is told when a poll of a group can
 * matter, polls it, and squeezes it when memory is short.
 */
#ifndef KVL_WATCH_H
#define KVL_WATCH_H

#include "core/cache.h"

/* A watcher sleeps until the group is due, and polls at once first. KVLAZY_EINVAL: no cache, or it has a watcher. */
int kvl_watch(kvlazy_cache *cache, const kvl_watcher *watcher);

/* The watcher no longer watches: calls its `lose`; settle and lost are the caller's. Returns false when another one, or
 * none, watches. */
bool kvl_unwatch(kvlazy_cache *cache, const kvl_watcher *watcher);

/* kvlazy_poll; `watches`: the caller is the group's watcher, and *next_ms is when it comes again. Where a poll belongs to
 * the thread of the hooks, a watcher polls and squeezes nothing: the engine is told that a poll is due. */
int kvl_poll(kvlazy_cache *cache, bool watches, uint64_t *next_ms);

/* Memory is short: a group that rests gives back what it can without losing more than an idle time would take. */
int kvl_squeeze(kvlazy_cache *cache);

#endif
