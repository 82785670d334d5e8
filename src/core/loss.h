/* SPDX-License-Identifier: MIT */
/*
 * loss: what a plan of eviction takes from each sequence, in all of a group: a `cut`, positions from there on go, and
 * in each cache a `low_cut`, positions below go. Makes the plan piece by piece and takes parts of it back; evict shows
 * it to on_evict and carries it out. Drops no token itself.
 */
#ifndef KVL_LOSS_H
#define KVL_LOSS_H

#include "core/turn.h"

/* What a sequence loses in all the group. */
typedef struct kvl_loss {
    kvlazy_pos cut; /* INT32_MAX: none */
    bool fixed;     /* nothing more is taken from it, and nothing back */
    bool asked;     /* on_evict was asked about it in this call */
    bool listed;    /* it stands in kvl_losses.question */

    /* A yes of on_evict holds for this cut until the sequence changes; loose: the plan may take more, and then on_evict
     * is asked again. */
    bool yes, loose;
    kvlazy_pos yes_cut;
    uint64_t yes_generation, yes_tokens; /* how the sequence was then */
} kvl_loss;

/* The plan of a group. */
typedef struct kvl_losses {
    kvl_goal goal;
    uint64_t n_lose;    /* KVL_GOAL_BYTES: so many cells of the cache that is to fit */
    kvl_loss *loss;     /* [n_seq_max] */
    kvl_turns question; /* sequences that lose something and were not asked about */
    uint64_t n_step;    /* entries and owners looked at so far: the work that planning was */
    uint32_t n_held;    /* vetoes since the plan was begun */
    bool curbed;        /* vetoes in this call, or an earlier yes: sequences that were asked may have more to give */
    uint64_t n_changed; /* kvl_group.n_changed when it was begun: it is stale when that moved on */
} kvl_losses;

/* Of a cell with several owners: how many the plan leaves, and how many of those have nothing above it and may lose it.
 * When all have come so far, the cell goes in the turn of the most recently used one. */
typedef struct kvl_tally {
    uint32_t n_left;
    uint32_t n_here : 30;
    uint32_t known : 1;
    uint32_t told : 1; /* the sequence whose turn it is was told, and nothing changed since */
} kvl_tally;

/* What a sequence loses in one cache, and (at the number of a stream) what that stream loses. */
typedef struct kvl_part {
    kvlazy_pos low_cut; /* 0: none */
    kvlazy_pos yes_low; /* the low_cut that a yes holds for */
    bool waits;         /* for its turn, or has it */
    bool may_lose;      /* tokens of it may go, when the plan is begun */
    uint32_t n_end;     /* entries of its index below the cut */
    uint32_t n_lost;    /* cells of the stream */
} kvl_part;

typedef struct kvl_lost_cell {
    uint32_t stream, cell;
} kvl_lost_cell;

/* One cache's part of a plan. */
typedef struct kvl_eviction {
    kvl_turns turns;
    kvl_part *part;     /* [n_seq_max] */
    kvlazy_seq_id turn; /* whose turn it is; -1: the next one's */
    uint32_t n_offered; /* sequences that were given a turn so far */
    uint64_t n_lost;    /* cells that go, of all streams */
    kvl_tally *tally;   /* [n_tally], by cell; NULL until a shared cell is met. Only a unified cache shares */
    uint32_t n_tally;
    kvl_lost_cell *order; /* [n_order]: the cells that go, first ones first; NULL: not noted */
    uint64_t n_order;
} kvl_eviction;

/* Room for plans. KVLAZY_ENOMEM: nothing is held. */
int kvl_losses_init(kvl_losses *losses, uint32_t n_seq_max);
void kvl_losses_fini(kvl_losses *losses);
int kvl_eviction_init(kvl_eviction *eviction, uint32_t n_seq_max);
void kvl_eviction_fini(kvl_eviction *eviction);

/* An empty plan for group.losses.goal: what was asked in this call stays asked. */
void kvl_loss_begin(kvlazy_cache *cache);

/* Frees what only a plan in the making needs, in all the group. */
void kvl_loss_end(kvlazy_cache *cache);

/* keep := the live cells that the plan leaves. */
void kvl_loss_keep_rest(kvlazy_cache *cache);

/* The order in which cells go is noted no more. */
void kvl_loss_forget_order(kvlazy_cache *cache);

/* Some of the sequence goes. */
bool kvl_loss_any(kvlazy_cache *cache, kvlazy_seq_id seq);

/* The position that a sequence will end at, in all the group or in one cache; -1: nothing is left. */
kvlazy_pos kvl_loss_end_of(kvlazy_cache *cache, kvlazy_seq_id seq);
kvlazy_pos kvl_loss_end_in(kvlazy_cache *cache, kvlazy_seq_id seq);

/* Entries of its index in one cache that lie below the cut. */
uint32_t kvl_loss_n_below(kvlazy_cache *cache, kvlazy_seq_id seq);

/* The sequence waits for its turn, if it may lose anything. */
void kvl_loss_offer_turn(kvlazy_cache *cache, kvlazy_seq_id seq);

/* The plan leaves a shared cell to owners alone that have come so far. */
bool kvl_loss_all_here(kvlazy_cache *cache, uint32_t cell, kvlazy_pos pos);

/* Every cell of the sequence's last position, `pos`, goes in its turn. */
bool kvl_loss_is_turn_of(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos pos);

/* A sequence ends before `pos` from now on, in all the group. joint: others are cut with it, and its sharers are told
 * when all of them are; then cells that it shared, from its last position up to `end`, may be another one's turn. */
void kvl_loss_cut(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos pos, bool joint);
void kvl_loss_tell_sharers(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos end);

/* In one cache a sequence loses what it holds below `end`, and shares with none. */
void kvl_loss_cut_low(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos end);

/* The sequence loses what it loses now, and no more; nothing; or, where vetoes of others made some of it useless, what
 * still frees a cell. */
void kvl_loss_fix(kvlazy_cache *cache, kvlazy_seq_id seq);
void kvl_loss_take_back(kvlazy_cache *cache, kvlazy_seq_id seq);
void kvl_loss_trim(kvlazy_cache *cache, kvlazy_seq_id seq);

/* A yes of on_evict: notes one for what the sequence loses now, or forgets it; says whether an earlier one holds, which
 * limits the plan, and takes exactly what that agreed to; says whether a loose one is for what the sequence loses now.
 */
void kvl_loss_note_yes(kvlazy_cache *cache, kvlazy_seq_id seq);
void kvl_loss_forget_yes(kvlazy_cache *cache, kvlazy_seq_id seq);
bool kvl_loss_yes_holds(const kvlazy_cache *cache, kvlazy_seq_id seq);
bool kvl_loss_is_agreed(const kvlazy_cache *cache, kvlazy_seq_id seq);
void kvl_loss_take_agreed(kvlazy_cache *cache, kvlazy_seq_id seq);

#endif
