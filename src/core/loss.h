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
    kvlazy_pos cut;      /* INT32_MAX: none */
    bool fixed;          /* nothing more is taken from it, and nothing back */
    bool asked;          /* on_evict was asked about it in this call */
    bool listed;         /* it stands in kvl_losses.question */
    uint32_t trimmed_at; /* kvl_losses.n_held when kvl_loss_trim took all of it back last, + 1; 0: it never did */

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
    kvl_part *part;          /* [n_seq_max] */
    kvlazy_seq_id turn;      /* whose turn it is; -1: the next one's */
    uint32_t n_offered;      /* sequences that were given a turn so far */
    uint64_t n_lost;         /* cells that go, of all streams */
    struct kvl_tally *tally; /* [n_tally], by cell; NULL until a shared cell is met. Only a unified cache shares */
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
void kvl_loss_begin(kvl_group *group);

/* Frees what only a plan in the making needs, in all the group. */
void kvl_loss_end(kvl_group *group);

/* keep := the live cells that the plan leaves. */
void kvl_loss_keep_rest(kvlazy_cache *cache);

/* The order in which cells go is noted no more. */
void kvl_loss_forget_order(kvl_eviction *eviction);

/* Some of the sequence goes. */
bool kvl_loss_any(kvl_group *group, kvlazy_seq_id seq);

/* The position that a sequence will end at, in all the group or in one cache; -1: nothing is left. */
kvlazy_pos kvl_loss_end_of(kvl_group *group, kvlazy_seq_id seq);
kvlazy_pos kvl_loss_end_in(kvlazy_cache *cache, kvlazy_seq_id seq);

/* Entries of its index in one cache that lie below the cut. */
uint32_t kvl_loss_n_below(kvlazy_cache *cache, kvlazy_seq_id seq);

/* The plan may still take tokens from the sequence, position by position. One that on_evict agreed about is not meant:
 * it loses all that was agreed at once. */
bool kvl_loss_stands(kvlazy_cache *cache, kvlazy_seq_id seq);

/* The sequence waits for its turn, if it may lose anything. */
void kvl_loss_offer_turn(kvlazy_cache *cache, kvlazy_seq_id seq);

/* A sequence ends before `pos` from now on, in all the group. joint: others are cut with it, and the caller tells its
 * sharers (kvl_tally_tell_sharers) when all of them are. */
void kvl_loss_cut(kvl_group *group, kvlazy_seq_id seq, kvlazy_pos pos, bool joint);

/* In one cache a sequence loses what it holds below `end`, and shares with none. */
void kvl_loss_cut_low(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos end);

/* The sequence loses what it loses now, and no more; nothing; or, where vetoes of others made some of it useless, what
 * still frees a cell. */
void kvl_loss_fix(kvl_group *group, kvlazy_seq_id seq);
void kvl_loss_take_back(kvl_group *group, kvlazy_seq_id seq);
void kvl_loss_trim(kvl_group *group, kvlazy_seq_id seq);

/* A yes of on_evict: notes one for what the sequence loses now, or forgets it. It holds until the sequence changes,
 * also for later plans. Says whether an earlier one holds, which limits the plan, and takes exactly what that agreed
 * to; says whether a loose one is for what the sequence loses now. */
void kvl_loss_note_yes(kvl_group *group, kvlazy_seq_id seq);
void kvl_loss_forget_yes(kvl_group *group, kvlazy_seq_id seq);
bool kvl_loss_yes_holds(const kvl_group *group, kvlazy_seq_id seq);
bool kvl_loss_is_agreed(const kvl_group *group, kvlazy_seq_id seq);
void kvl_loss_take_agreed(kvl_group *group, kvlazy_seq_id seq);

#endif
