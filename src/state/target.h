/* SPDX-License-Identifier: MIT */
/*
 * target: what arrived of a state for one cache, and the cells that it goes to. Finds room, takes rows, and makes it
 * all live at once. The reader fills it with what format has checked; a target believes it.
 */
#ifndef KVL_STATE_TARGET_H
#define KVL_STATE_TARGET_H

#include "core/hold.h"
#include "state/format.h"

typedef struct kvl_state_target {
    kvlazy_cache *cache;
    kvlazy_seq_id id; /* of the sequence it becomes; -1: a whole cache */
    kvl_state_shape shape;
    kvl_state_seq *seq; /* [shape.n_seq] */
    kvlazy_pos *pos;    /* [shape.n_token] */
    kvlazy_pos *plane;  /* [2 * shape.n_token] y, then x; none with one plane */
    uint32_t *owner;    /* as in the format; NULL: one sequence */
    uint32_t n_skip;    /* the first so many tokens are not taken: their sequence does not see them any more */
    kvl_hold hold;      /* of the others */
} kvl_state_target;

void kvl_state_target_fini(kvl_state_target *target);

/* All with the lock held. Finds cells, and makes room in the library's own lists, so that the last step cannot fail.
 * `reclaim` asks others of a pool. KVLAZY_ENOSLOT, KVLAZY_EBUDGET, KVLAZY_ENOMEM. */
int kvl_state_target_place(kvl_state_target *target, bool (*reclaim)(kvlazy_cache *cache));

/* That room alone, once more: another thread may have used it since. KVLAZY_ENOMEM. */
int kvl_state_target_reserve(kvl_state_target *target);

/* Rows of a piece of the tokens, as they were read. KVLAZY_ENOMEM. */
int kvl_state_target_put(kvl_state_target *target, const kvl_tensor *tensor, const kvl_state_piece *piece,
                         const void *rows);

/* All of it is live. */
void kvl_state_target_commit(kvl_state_target *target, uint64_t now_ms);

#endif
