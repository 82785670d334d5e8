/* SPDX-License-Identifier: MIT */
/*
 * evict: which tokens go, decided by sequence and position, never by cell: the longest-idle sequence first, its tail
 * first, so that what remains is a usable prefix. Plans in pieces, says what on_evict is to be asked, carries out.
 * Asks no question itself, and gives no page back.
 */
#ifndef KVL_EVICT_H
#define KVL_EVICT_H

#include "core/turn.h"

/* An eviction in the making. The plan is in group.losses. */
typedef struct kvl_evict {
    enum { KVL_EVICT_START, KVL_EVICT_ALL, KVL_EVICT_SEARCH, KVL_EVICT_TAKE, KVL_EVICT_QUESTIONS } phase;
    uint64_t few, enough; /* KVL_EVICT_SEARCH: losing so many cells does not suffice, and does */
    uint64_t plan_ns;     /* deciding what goes took so long */
    uint32_t n_restart;   /* times the plan was made anew, since cells changed meanwhile */
    uint32_t n_piece;     /* pieces since the lock was last free, */
    uint64_t n_looked;    /* and losses.n_step then */
    kvlazy_seq_id seq;    /* the question: may it end at new_pos_max? */
    kvlazy_pos new_pos_max;
} kvl_evict;

/* KVLAZY_EBUDGET: max_bytes is out of reach. */
typedef enum kvl_evict_state {
    KVL_EVICT_MORE,  /* there is more to plan */
    KVL_EVICT_ASK,   /* the caller asks on_evict, and hands the answer to kvl_evict_answer */
    KVL_EVICT_READY, /* the plan is whole, and on_evict agreed to all of it */
    KVL_EVICT_OUT_OF_REACH,
} kvl_evict_state;

void kvl_evict_begin(kvlazy_cache *cache, kvl_evict *evict, const kvl_goal *goal);

/* One piece of planning: a few milliseconds at most. A sequence is asked about once between kvl_evict_begin and
 * kvl_evict_end, and not at all while an earlier yes holds. */
kvl_evict_state kvl_evict_step(kvlazy_cache *cache, kvl_evict *evict);

/* A hook that waits is to go before the next piece. Not while little was planned: beside batches that follow one
 * another without a pause even the smallest plan would never be done. */
bool kvl_evict_gives_way(const kvl_group *group, const kvl_evict *evict);

/* The answer to the question of KVL_EVICT_ASK. */
void kvl_evict_answer(kvl_group *group, kvl_evict *evict, bool kept);

/* The lock was released between two steps: the plan is made anew if any sequence changed. */
void kvl_evict_resume(kvl_group *group, kvl_evict *evict);

/* Carries the plan out in one cache; the cells are stamped as emptied at `stamp`. A stream that lost some will release
 * all its free pages. Returns whether any did. */
bool kvl_evict_apply(kvlazy_cache *cache, const kvl_evict *evict, uint64_t stamp);

/* Frees what planning needed. */
void kvl_evict_end(kvl_group *group);

/* The cache whose on_evict is asked; NULL: none of the group has one. */
kvlazy_cache *kvl_evict_asker(kvlazy_cache *cache);

#endif
