/* SPDX-License-Identifier: MIT */
/*
 * release: gives pages back, by complement. What is kept is a set of cells; every touched page outside its outward
 * cover goes, whatever order cells were emptied in. Never evicts, never moves, never fails: what the host refuses stays
 * touched, is counted, and is offered again.
 */
#ifndef KVL_RELEASE_H
#define KVL_RELEASE_H

#include "core/cache.h"

/* A release runs in pieces of this many bytes of cells, so that a hook never waits longer than for one. */
#define KVL_PIECE_BYTES (UINT64_C(64) << 20)

/* What would be touched with the kept pages, once every other one that can go is gone. */
uint64_t kvl_needed_pages(kvlazy_cache *cache);
uint64_t kvl_needed_bytes(kvlazy_cache *cache);

/* Gives back every touched page outside the cover of what is kept, and of streams that drain or came to rest those that
 * were only read. Settles no cell: a page that is kept for a plan alone must come due when the plan comes to nothing.
 */
void kvl_release_outside_keep(kvlazy_cache *cache);

/* Gives back what fallow cells of min_age leave free, and in streams that drain those of any age, at most one piece.
 * Returns whether more is due. */
bool kvl_release_piece(kvlazy_cache *cache, uint32_t min_age, uint64_t now_ms);

/* The same, of every page without a live cell, whatever its age, and those that were only read. */
bool kvl_release_free_piece(kvlazy_cache *cache, uint64_t now_ms);

#endif
