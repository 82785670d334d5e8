/* SPDX-License-Identifier: MIT */
/*
 * turn: which sequences of a group may lose tokens, when each may, and in which order: the longest idle first. Plans
 * and timers of eviction ask it. Takes no token.
 */
#ifndef KVL_TURN_H
#define KVL_TURN_H

#include "base/base.h"

typedef struct kvl_group kvl_group; /* core/group.h */

/* How far to go: idle sequences of streams over kv_size_initial; the same, whatever the clock says; any sequence, down
 * to max_cells a stream; any sequence, until the pages of live cells fit max_bytes. */
typedef struct kvl_goal {
    enum { KVL_GOAL_IDLE, KVL_GOAL_INITIAL, KVL_GOAL_CELLS, KVL_GOAL_BYTES } kind;
    uint64_t now_ms;
    uint32_t max_cells;
    uint64_t max_bytes;
    bool compacts;    /* KVL_GOAL_BYTES: what stays will be moved together */
    bool idle_only;   /* … and only idle sequences may lose anything, */
    bool best_effort; /* … as much as that takes, or all they may */
} kvl_goal;

/* A sequence and when it was used last, by the newest use in the group. */
typedef struct kvl_turn {
    uint64_t stamp_ms;
    kvlazy_seq_id seq;
} kvl_turn;

/* Sequences that wait for their turn, as a heap. */
typedef struct kvl_turns {
    kvl_turn *turn; /* [n_seq_max], n in use */
    uint32_t n;
} kvl_turns;

kvl_turn kvl_turn_of(const kvl_group *group, kvlazy_seq_id seq);
bool kvl_turn_is_before(kvl_turn a, kvl_turn b);
void kvl_turns_add(kvl_turns *turns, kvl_turn turn);

/* Removes the longest idle one, of one at least. */
kvl_turn kvl_turns_take(kvl_turns *turns);

/* Whether only whole sequences of the group go. With position planes a gap cannot be told from a loss, and with a
 * window the rest is of no use without its tail. */
bool kvl_goes_whole(const kvl_group *group);

/* No cache of the group is set to keep tokens at `pos` and above (keep_tokens, KVLAZY_SHRINK_KEEP). */
bool kvl_may_go_from(const kvl_group *group, kvlazy_pos pos);

/* Whether tokens of a sequence may go now; and until they may by idling, in ms, KVL_NEVER: they may not. */
bool kvl_may_lose(kvlazy_cache *cache, const kvl_goal *goal, kvlazy_seq_id seq);
uint64_t kvl_evictable_in(kvlazy_cache *cache, kvlazy_seq_id seq, uint64_t now_ms);

#endif
