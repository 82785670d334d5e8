/* SPDX-License-Identifier: MIT */
/*
 * ahead: pages that are made ready before they are written, in two cases. In steady decode, one token a batch, some
 * cells more than the batch needs, so that most tokens find their pages there. And while an engine computes a ubatch,
 * the pages of its later layers and those of the ubatch after it. Cells without a token count like cells that just
 * emptied.
 */
#ifndef KVL_AHEAD_H
#define KVL_AHEAD_H

#include "core/cache.h"

/* Lengthens, in place, those runs of one token that belong to a stream which decodes steadily. Returns whether any was.
 */
bool kvl_ahead_reach(kvlazy_cache *cache, kvl_run *run, uint32_t n_run);

/* Makes the pages of such runs touched. Returns false, with nothing changed, where there is no room for so many. */
bool kvl_ahead_touch(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);

/* Whether the gathered pages, which a ubatch needs now, are left to the watcher of the group: where the engine asked
 * for that (KVLAZY_UBATCH_AHEAD), and they are many. */
bool kvl_ahead_leaves(kvlazy_cache *cache);

/* A ubatch of the plan was applied: while it is computed, the watcher is to make those of its pages present that were
 * left to it, and then those of the ubatch after it. */
void kvl_ahead_expect(kvlazy_cache *cache, const kvl_plan_ubatch *applied);

/* One piece of that, for the caches of a group whose batch is open. Returns whether more is left. */
bool kvl_ahead_piece(kvl_group *group);

#endif
