/* SPDX-License-Identifier: MIT */
/*
 * ahead: steady decode, one token a batch. Some cells more than the batch needs are made ready, so that most tokens
 * find their pages there. Such cells count like cells that just emptied.
 */
#ifndef KVL_AHEAD_H
#define KVL_AHEAD_H

#include "core/cache.h"

/* Lengthens, in place, those runs of one token that belong to a stream which decodes steadily. Returns whether any was.
 */
bool kvl_ahead_reach(kvlazy_cache *cache, kvl_run *run, uint32_t n_run);

/* Makes the pages of such runs touched. Returns false, with nothing changed, where there is no room for so many. */
bool kvl_ahead_touch(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);

#endif
