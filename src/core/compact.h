/* SPDX-License-Identifier: MIT */
/*
 * compact: moves live cells down into holes, so that what stays lies dense and the pages behind go back. Loses nothing:
 * bytes, positions, owners, shifts and planes go along, and all the group moves the same. Called by the idle side
 * between eviction and release; while a batch is open nothing moves.
 */
#ifndef KVL_COMPACT_H
#define KVL_COMPACT_H

#include "base/base.h"

/* Whether cells can be moved at all, in all the group. */
bool kvl_can_compact(const kvlazy_cache *cache);

/* A stream is to be compacted by the next kvl_compact, if it is not dense. */
void kvl_compact_later(kvlazy_cache *cache, uint32_t stream);

/* Moves live cells down into holes in all the group: of the streams that are to be compacted, or of one. polite: stops
 * between pieces when a hook waits, and returns false. What has no room to move stays where it is. */
bool kvl_compact(kvlazy_cache *cache, uint64_t now_ms, bool polite);
bool kvl_compact_stream(kvlazy_cache *cache, uint32_t stream, uint64_t now_ms, bool polite);

#endif
