/* SPDX-License-Identifier: MIT */
/*
 * seq: sequences. What a cache knows of each beside its tokens, and what an engine does to them between and inside
 * batches: remove, keep one, move positions. Copying is copy's.
 */
#ifndef KVL_SEQ_H
#define KVL_SEQ_H

#include "tokens/cells.h"

typedef struct kvl_seq {
    uint64_t stamp_ms;   /* last activity; 0 where it never had a token */
    uint64_t veto_ms;    /* on_evict said keep: until then */
    uint64_t generation; /* times it lost tokens, or got some otherwise than behind its end: bumped by rm, add, div, a
                            copy onto it, undo, recycling, clear and eviction; not by apply, not by moves of cells */
    bool moved;          /* positions moved: by add, div, or a copy from p0 > 0 on; meaningful where it has tokens */
    bool pending;        /* tokens applied that no end_batch has stamped yet, */
    kvlazy_pos fresh;    /* … at this position and above; -1: positions moved since, and they cannot be told apart */
    kvlazy_pos lost_end; /* recycling took positions below this; 0: none */
    bool torn;           /* a linked window emptied it, and this cache is still to follow */
    bool evicted; /* eviction took tokens, or a copy onto it while it was empty was refused; and the engine has not
                     gone on or let go of the rest since */
    kvlazy_pos planned_low; /* smallest position that the last plan has for it */

    /* scratch of prepare */
    uint64_t mark;            /* token last seen in, so that an owner named twice counts once */
    uint32_t mark_ubatch;     /* ubatch last seen in, + 1 */
    uint32_t first_owner;     /* entry of plan.owner for its first token there */
    uint32_t n_new;           /* tokens so far */
    kvlazy_pos last, high;    /* newest and largest position so far */
    bool unordered;           /* positions so far did not rise by 0 or 1 */
    uint32_t n_run, run_cell; /* of the planned tokens: room their runs need, and what goes on with the last */
    kvlazy_pos run_pos, run_top;

    /* scratch of window */
    uint32_t n_undone;      /* tokens that undo takes */
    kvlazy_pos undone_from; /* the lowest of their positions */
    bool shifted;           /* a motion moved tokens that it owns, and its window is still to be looked at */
} kvl_seq;

/* The sequences with tokens that no end_batch has stamped yet. */
typedef struct kvl_active {
    kvlazy_seq_id *seq; /* [n_seq_max], n in use */
    uint32_t n;
} kvl_active;

/* Positions of a sequence moved. */
static inline void kvl_seq_mark_moved(kvl_seq *seq)
{
    seq->moved = seq->shifted = true;
    seq->fresh = -1;
}

/* A range as the caller says it becomes positions [*p0, *p1). Returns false when it is empty. */
bool kvl_normalise_range(kvlazy_pos *p0, kvlazy_pos *p1);

/* K of some cell waits to be rotated, since its position was shifted. */
bool kvl_waits_for_rotation(const kvlazy_cache *cache);

/* The sequence has no tokens, the engine may believe that it has, and the plan does not start it at 0. */
bool kvl_seq_must_start_anew(kvlazy_cache *cache, kvlazy_seq_id seq);

/* KVLAZY_SHRINK_WHOLE is kept: a call that takes or copies [p0, p1) of the sequence would leave part of it. */
bool kvl_seq_is_torn_by(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);

/* What kvlazy_seq_rm, _keep, _add and _div do, with valid ids (seq -1 for all in kvl_seq_rm). */
int kvl_seq_rm(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);
void kvl_seq_keep(kvlazy_cache *cache, kvlazy_seq_id seq);
int kvl_seq_move(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion);

/* Drops every token of a cache; `data`: every page goes back now, else they decay. */
void kvl_clear(kvlazy_cache *cache, bool data, uint64_t now_ms);

#endif
