/* SPDX-License-Identifier: MIT */
/*
 * ahead: pages that are made ready before their tokens come, in two cases. In steady decode, one token a batch, some
 * cells more than the batch needs, so that most tokens find their pages there. And while an engine computes a ubatch,
 * the pages of the one after it. Such cells count like cells that just emptied.
 */
#ifndef KVL_AHEAD_H
#define KVL_AHEAD_H

#include "core/cache.h"

/* Lengthens, in place, those runs of one token that belong to a stream which decodes steadily. Returns whether any was.
 */
bool kvl_ahead_reach(kvlazy_cache *cache, kvl_run *run, uint32_t n_run);

/* Makes the pages of such runs touched. Returns false, with nothing changed, where there is no room for so many. */
bool kvl_ahead_touch(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);

/* A ubatch of the plan was applied: the watcher of the group, if any, is to make the pages of the one after it present,
 * where the engine asked for that (KVLAZY_UBATCH_AHEAD). */
void kvl_ahead_expect(kvlazy_cache *cache, const kvl_plan_ubatch *applied);

/* One piece of that, for the caches of a group whose batch is open. Returns whether more is left. */
bool kvl_ahead_piece(kvl_group *group);

#endif
