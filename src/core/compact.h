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

/* A stream is to be compacted, if it is not dense. */
void kvl_compact_later(kvlazy_cache *cache, uint32_t stream);

/* Moves one piece of live cells down into holes, in all the group: of the streams that are to be compacted, from
 * *stream on, which the caller sets to 0 at first. Returns false when nothing is left to move; what has no room to move
 * stays where it is. */
bool kvl_compact_piece(kvlazy_cache *cache, uint32_t *stream, uint64_t now_ms);

/* The same of one stream, whether it is to be compacted or not. */
bool kvl_compact_stream_piece(kvlazy_cache *cache, uint32_t stream, uint64_t now_ms);

#endif
