/* SPDX-License-Identifier: MIT */
/*
 * work: a shrink from its beginning to its end. Core advances it step by step under the lock; what is done with the
 * lock released is done here: on_evict and `vacate` are called, and a hook that waits goes first.
 */
#ifndef KVL_WORK_H
#define KVL_WORK_H

#include "core/shrink.h"

/* The lock is held, and no batch is open. `limit`: cells or bytes, by `why`. Returns its status; *more, which may be
 * NULL: it stopped for a hook and is not done. */
int kvl_work(kvlazy_cache *cache, kvl_shrink_why why, uint64_t limit, uint64_t now_ms, bool *more);

#endif
