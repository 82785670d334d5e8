/* SPDX-License-Identifier: MIT */
/*
 * arenas: which caches use an arena that an engine carves up itself. Linked caches may share one, since they share a
 * lock; a cache that leaves gives back what no other needs.
 */
#ifndef KVL_ARENAS_H
#define KVL_ARENAS_H

#include "core/cache.h"

/* Whether a cache linked to `with` may use the arenas of its layers, KVLAZY_EINVAL; it begins to; and it is gone. */
int kvl_arenas_check(const kvl_geometry *geometry, const kvlazy_cache *with, kvl_log *log);
void kvl_arenas_use(kvlazy_cache *cache);
void kvl_arenas_leave(kvlazy_cache *cache);

#endif
