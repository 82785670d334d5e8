/* SPDX-License-Identifier: MIT */
/*
 * check: recomputes every number that a cache keeps and names the first that is wrong. Tests call it through
 * kvlazy_check; builds with KVLAZY_CHECKS=2 after every call that changed something.
 */
#ifndef KVL_CHECK_H
#define KVL_CHECK_H

#include "core/cache.h"

/* A text that is valid until the next check; NULL: all is well. ours_only: what an engine could have got wrong itself,
 * in its own cells and arenas, is not looked at. */
const char *kvl_check(kvlazy_cache *cache, bool ours_only);

#endif
