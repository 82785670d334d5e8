/* SPDX-License-Identifier: MIT */
/*
 * plan: what prepare found. For every token of the batch a cell, and what apply must find unchanged. The slots that an
 * engine holds point into it.
 */
#ifndef KVL_PLAN_H
#define KVL_PLAN_H

#include "tokens/cells.h"

typedef struct kvl_plan_ubatch {
    uint32_t token_begin, token_end;
    bool applied;
    bool left; /* its pages are touched, and the watcher of the group makes them present while it is computed */
} kvl_plan_ubatch;

typedef struct kvl_plan_owner {
    kvlazy_seq_id seq;
    kvlazy_pos expect; /* pos_max before this ubatch; ANY: not the sequence's first token of the ubatch */
    uint32_t n_token;  /* of the sequence in this ubatch, noted with the first one; else 0 */
} kvl_plan_owner;

#define KVL_EXPECT_ANY INT32_MIN

/* Whose masked token a planned cell still holds; seq -1: none, the cell is empty. */
typedef struct kvl_victim {
    kvlazy_seq_id seq;
    kvlazy_pos pos;
} kvl_victim;

/* The oldest masked token of a sequence, and its number in the index. */
typedef struct kvl_oldest {
    kvl_entry token;
    kvlazy_seq_id seq;
    uint32_t at;
} kvl_oldest;

/* How far the watcher has come that makes pages present: a ubatch, a tensor, and a token of the ubatch. Its work ends
 * before ubatch_end. */
typedef struct kvl_plan_ahead {
    uint32_t ubatch, ubatch_end, tensor, token;
} kvl_plan_ahead;

typedef struct kvl_plan {
    uint64_t batch;   /* group.n_opened of the batch that it is for */
    uint64_t entered; /* group.n_entered of the call that made it, and room for it */
    uint32_t n_ubatch, n_token, n_owner;
    uint32_t cap_ubatch, cap_token, cap_owner;
    kvl_plan_ubatch *ubatch;
    uint32_t *stream, *cell, *owner_end; /* [n_token] */
    kvlazy_pos *pos;                     /* [n_token] */
    bool *filled;                        /* [n_token]: it went into its cell, and nothing else did since */
    kvl_plan_owner *owner;               /* [n_owner]: those of token i end at owner_end[i] */
    kvl_victim *victim;                  /* [n_token]; NULL without a window */
    kvl_run *run;                        /* [cap_token], scratch */
    kvlazy_seq_id *order;                /* [n_seq_max] scratch of prepare: the sequences of the batch */
    kvl_oldest *oldest;                  /* [n_seq_max] scratch of window, each stream's sequences together */
    uint32_t *last_run; /* [n_stream], 0: while runs are gathered, 1 + the number of the newest of each stream */
    kvl_plan_ahead ahead;
    kvlazy_seq_id refused_seq; /* whose token the last prepare refused; -1: none */
    bool restores;             /* sequences without tokens get theirs back: any positions, in any order */
} kvl_plan;

/* What does not grow with the batch. KVLAZY_ENOMEM: kvl_plan_fini frees what there is. */
int kvl_plan_init(kvl_plan *plan, uint32_t n_seq_max, uint32_t n_stream);

/* Room for so many. KVLAZY_ENOMEM: unchanged. window: victims are noted too. */
int kvl_plan_reserve(kvl_plan *plan, uint32_t n_ubatch, uint32_t n_token, uint32_t n_owner, bool window);
void kvl_plan_fini(kvl_plan *plan);

/* What the planned tokens [begin, end) need of our own memory: cells, runs in the indexes of their sequences and sets
 * of owners. Asked for when they are planned and again right before they are recorded, for calls in between may have
 * taken it. Returns KVLAZY_ENOMEM; where all is there it costs some comparisons a token. */
int kvl_plan_reserve_cells(kvlazy_cache *cache, uint32_t token_begin, uint32_t token_end);

/* The owners of a planned token are plan.owner[owner_begin … owner_end[token]). */
static inline uint32_t kvl_plan_owner_begin(const kvl_plan *plan, uint32_t token)
{
    return token ? plan->owner_end[token - 1] : 0;
}

static inline kvlazy_seq_id kvl_plan_first_owner(const kvl_plan *plan, uint32_t token)
{
    return plan->owner[kvl_plan_owner_begin(plan, token)].seq;
}

/* The cells of some planned tokens as runs in plan.run, ascending by stream and cell. Returns how many runs. */
uint32_t kvl_plan_runs(kvl_plan *plan, uint32_t token_begin, uint32_t token_end);

/* The ubatch of the plan that a slot stands for; NULL: the slot is stale or foreign. */
kvl_plan_ubatch *kvl_plan_find(kvl_plan *plan, const kvlazy_slot *slot);

/* A ubatch has the tokens that were planned: so many, at these positions, with these owners. */
bool kvl_plan_matches(const kvl_plan *plan, const kvl_plan_ubatch *planned, const kvlazy_ubatch *ubatch);

/* The planned cell holds what apply put there, whatever its position and owners are by now. */
bool kvl_plan_still_holds(const kvl_cells *cells, const kvl_plan *plan, uint32_t token);

/* Other tokens come into these cells, runs that ascend by stream and cell: what was planned for them is gone. */
void kvl_plan_forget(kvl_plan *plan, const kvl_run *run, uint32_t n_run);

#endif
