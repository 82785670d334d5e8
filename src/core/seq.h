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
    bool evicted;        /* eviction took tokens, and the engine has not gone on or let go of the rest since */

    /* scratch of prepare */
    uint64_t mark;              /* token last seen in, so that an owner named twice counts once */
    uint32_t mark_ubatch;       /* ubatch last seen in, + 1 */
    uint32_t n_new;             /* tokens so far */
    kvlazy_pos last, low, high; /* newest, smallest and largest position so far */
    bool unordered;             /* positions so far did not rise by 0 or 1 */
    uint32_t recycle_at;        /* with a window: index entries before this were looked at */

    /* scratch of eviction */
    kvlazy_pos cut;                /* positions from here on go; INT32_MAX: none */
    kvlazy_pos low_cut;            /* positions below go, which no next token sees; 0: none */
    kvlazy_pos agreed, agreed_low; /* what of both on_evict agreed to */
} kvl_seq;

/* The sequences with tokens that no end_batch has stamped yet. */
typedef struct kvl_active {
    kvlazy_seq_id *seq; /* [n_seq_max], n in use */
    uint32_t n;
} kvl_active;

/* Tokens of a sequence went, or came otherwise than behind its end. */
static inline void kvl_seq_changed(kvl_seq *seq)
{
    seq->generation++;
}

/* Positions of a sequence moved. */
static inline void kvl_seq_mark_moved(kvl_seq *seq)
{
    seq->moved = true;
    seq->fresh = -1;
    kvl_seq_changed(seq);
}

/* A range as the caller says it becomes positions [*p0, *p1). Returns false when it is empty. */
bool kvl_normalise_range(kvlazy_pos *p0, kvlazy_pos *p1);

/* Some K of some stream waits to be rotated. */
bool kvl_waits_for_rotation(const kvlazy_cache *cache);

/* What kvlazy_seq_rm, _keep, _add and _div do, with valid ids (seq -1 for all in kvl_seq_rm). */
int kvl_seq_rm(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);
void kvl_seq_keep(kvlazy_cache *cache, kvlazy_seq_id seq);
int kvl_seq_move(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion);

/* Drops every token of a cache; `data`: every page goes back now, else they decay. */
void kvl_clear(kvlazy_cache *cache, bool data, uint64_t now_ms);

#endif
