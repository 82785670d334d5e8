/* SPDX-License-Identifier: MIT */
/*
 * hold: cells that are held for tokens which are still to arrive, while a state is read or blocks are loaded. They hold
 * nothing, so that everything else about the cache is as it was until they are filled; their pages become touched as
 * rows arrive. A batch is open all the while, and the idle side stays away. In the end they are filled, or given up.
 */
#ifndef KVL_HOLD_H
#define KVL_HOLD_H

#include "core/cache.h"

typedef struct kvl_hold {
    uint32_t n;
    kvl_place *place; /* [n] where the tokens go, in their order */
    kvl_run *run;     /* [n_run] the same cells, by stream and cell */
    uint32_t n_run;
    uint64_t *fallow; /* [n] bits: the cell was fallow before; else it was settled */
    kvl_run *piece;   /* [n_piece] scratch: the cells of a few tokens */
    bool taken;
} kvl_hold;

enum { KVL_HOLD_PIECE = 4096 }; /* most tokens whose rows are written in one piece */

/* Room to note n tokens; the caller then sets the stream of each place. KVLAZY_ENOMEM: nothing is held. */
int kvl_hold_init(kvl_hold *hold, uint32_t n);
void kvl_hold_fini(kvl_hold *hold);

/* Finds the lowest free cell of its stream for each token, as prepare does, under every limit. KVLAZY_ENOSLOT,
 * KVLAZY_EBUDGET, KVLAZY_ENOMEM: nothing changed. */
int kvl_hold_take(kvlazy_cache *cache, kvl_hold *hold);

/* The pages of a tensor's rows become touched, for the tokens [begin, begin + n), n ≤ KVL_HOLD_PIECE. KVLAZY_ENOMEM. */
int kvl_hold_touch(kvlazy_cache *cache, kvl_hold *hold, const kvl_tensor *tensor, uint32_t begin, uint32_t n);

/* Gives up the cells of the tokens from *next on: their rows read zero, and the pages that only they touched go back.
 * One piece of bounded work; *next moves on. Returns whether there is more. */
bool kvl_hold_give_up(kvlazy_cache *cache, kvl_hold *hold, uint32_t *next);

/* The same where the engine keeps the cells, which are in use at once. Cells of a stream for the hold->n tokens that
 * are to arrive, all of them or none; those in use before are noted in hold->fallow. `reclaim`: others are asked for
 * room, once. */
int kvl_hold_engine_cells(kvlazy_cache *cache, kvl_hold *hold, uint32_t stream, const uint32_t *cell,
                          bool (*reclaim)(kvlazy_cache *cache));

/* Gives up the cells of the tokens from *next on: their rows read zero, and those not in use before are free again. One
 * piece of bounded work; *next moves on. Returns whether there is more. */
bool kvl_hold_give_up_engine_cells(kvlazy_cache *cache, const kvl_hold *hold, uint64_t now_ms, uint32_t *next);

#endif
