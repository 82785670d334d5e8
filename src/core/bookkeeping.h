/* SPDX-License-Identifier: MIT */
/*
 * bookkeeping: the library's own memory of one cache: how much it is, and giving back what its streams do not use.
 * Called where streams come to rest, by trim and by clear. Touches no page of a tensor.
 */
#ifndef KVL_BOOKKEEPING_H
#define KVL_BOOKKEEPING_H

#include "core/cache.h"

/* Cells, indexes, plan, page bitmaps and what there is for each sequence, stream and layer. Arenas of an engine count
 * with each cache that uses them. Cost: O(sequences + streams + arenas). */
uint64_t kvl_bookkeeping_bytes(const kvlazy_cache *cache);

/* The arrays of streams that came to rest, or of all, go as far as nothing uses them. */
void kvl_bookkeeping_rest(kvlazy_cache *cache);
void kvl_bookkeeping_shrink(kvlazy_cache *cache);

#endif
