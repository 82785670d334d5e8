/* SPDX-License-Identifier: MIT */
/*
 * evict: which tokens go, decided by sequence and position, never by cell: the longest-idle sequence first, its tail
 * first, so that what remains is a usable prefix. Plans, asks on_evict, carries out. Gives no page back.
 */
#ifndef KVL_EVICT_H
#define KVL_EVICT_H

#include "base/base.h"

/* A sequence that may lose tokens. */
typedef struct kvl_rank {
    uint64_t stamp_ms;
    kvlazy_seq_id seq;
} kvl_rank;

/* Scratch of one eviction. */
typedef struct kvl_eviction {
    kvl_rank *rank;   /* [n_seq_max] longest idle first */
    uint64_t plan_ns; /* deciding what goes took so long */
} kvl_eviction;

/* How far to go: idle sequences of streams over kv_size_initial; the same, whatever the clock says; any sequence, down
 * to max_cells a stream; any sequence, until the pages of live cells fit max_bytes. */
typedef struct kvl_goal {
    enum { KVL_GOAL_IDLE, KVL_GOAL_INITIAL, KVL_GOAL_CELLS, KVL_GOAL_BYTES } kind;
    uint64_t now_ms;
    uint32_t max_cells;
    uint64_t max_bytes;
    bool packs;       /* KVL_GOAL_BYTES: what stays will be moved together */
    bool idle_only;   /* … and only idle sequences may lose anything, */
    bool best_effort; /* … as much as that takes, or all they may */
} kvl_goal;

/* Plans what goes in all the group, seq.cut and seq.low_cut, and asks on_evict, with the lock released meanwhile.
 * KVLAZY_OK: all agreed. KVLAZY_EBUSY: a batch was opened. KVLAZY_EBUDGET: max_bytes is out of reach. */
int kvl_evict_agree(kvlazy_cache *cache, const kvl_goal *goal);

/* Carries the plan out; the cells are stamped as emptied at `stamp`. A stream that lost some will release all its free
 * pages: its give_read is set, its min_age is 0. Returns whether any did. */
bool kvl_evict_apply(kvlazy_cache *cache, uint64_t stamp);

/* Until this sequence may lose tokens by idling, in ms; KVL_NEVER: it may not. */
uint64_t kvl_evictable_in(kvlazy_cache *cache, kvlazy_seq_id seq, uint64_t now_ms);

#endif
