/* SPDX-License-Identifier: MIT */
/*
 * cells: the cells of one stream, which token each holds and which sequences own it. Pure bookkeeping in flat arrays;
 * knows nothing of bytes, clocks or batches. Time comes in as a stamp, in ms, and is only kept.
 *
 * A cell is in one of three states:
 *
 *     live      a token: used bit, pos ≥ 0, one owner or more, an index entry for each owner
 *     fallow    emptied, and its row's bytes not settled yet: fallow bit, and `emptied` says when;
 *               or its pages were committed ahead of a token that did not come yet: ahead bit too
 *     settled   never used, or its bytes were given back or zeroed since
 *
 * A cell names its owner, or where several sequences share it a set of them (tokens/sets.h). Each sequence has an index
 * of its tokens (tokens/index.h). So a private token costs some twenty bytes and its part of a run, however many
 * sequences there may be, and one more owner of a prompt a bit and a run.
 *
 * The room of the arrays doubles with the highest cell in use, and cells begin to exist in it step by step, so that
 * metadata costs memory only for cells that were used; cells past n_cell are settled. Only what is called reserve
 * can fail. It is asked again right before what it is for, in the same public call: what an earlier call reserved, one
 * in between may have taken. Where the room is there that is a few comparisons. What finds no room all the same changes
 * nothing: a put or a copy without room is a token less, never a write past an array. Removing needs room only to cut
 * out of the middle of a run (kvl_cells_reserve_seq for one more).
 */
#ifndef KVL_CELLS_H
#define KVL_CELLS_H

#include "base/base.h"
#include "base/bits.h"
#include "tokens/index.h"
#include "tokens/sets.h"

typedef struct kvl_cells {
    uint32_t kv_size;          /* cells there may be */
    uint32_t n_cell;           /* cells there are in the arrays below */
    uint32_t cap_cell;         /* and there is room for; what lies behind n_cell was never touched */
    uint32_t seq_first, n_seq; /* the sequences that live in this stream */
    bool planes;               /* positions have planes y and x too (M-RoPE) */
    bool mirror;               /* of an engine's own cells: used ones have no owner */
    uint32_t reach;            /* the largest n_cell ever: pages past all of these were never touched */
    uint32_t n_used, n_fallow;
    uint32_t n_shifted;        /* cells whose K waits to be rotated */
    uint32_t used_end;         /* one past the highest live cell */
    uint32_t free_min;         /* every cell below is live */
    uint32_t recent;           /* what the last cell that came to be shared names */
    uint64_t *emptied;         /* [n_cell]: stamp, meaningful where fallow; all the arrays are parts of one block */
    uint64_t *used, *fallow;   /* bits */
    uint64_t *ahead;           /* bits: fallow for pages that were committed ahead, and has held no token since */
    uint64_t *keep;            /* bits, scratch of what plans a release: cells whose pages stay */
    uint32_t *owner;           /* 0: none; its only owner + 1; KVL_SHARED and the number of a set */
    kvlazy_pos *pos;           /* -1: empty */
    kvlazy_pos *shift;         /* new - old position since K was last rotated; 0: empty */
    kvlazy_pos *ext_y, *ext_x; /* the other position planes; NULL with one */
    kvl_index *index;          /* [n_seq] */
    kvl_sets sets;
    kvl_stretch *part; /* [n_part]: what kvl_cells_reserve_reposition found */
    uint32_t n_part;
} kvl_cells;

#define KVL_SHARED (UINT32_C(1) << 31)

/* What a check found: "what", what was kept and what it should be. */
typedef struct kvl_fault {
    const char *what;
    uint64_t kept, counted;
} kvl_fault;

/* The sequences [seq_first, seq_first + n_seq) live here. planes: cells have ext_y and ext_x. */
int kvl_cells_init(kvl_cells *cells, uint32_t kv_size, uint32_t seq_first, uint32_t n_seq, bool planes);
void kvl_cells_fini(kvl_cells *cells);

/* An independent copy, to try things on. KVLAZY_ENOMEM: nothing is held. */
int kvl_cells_copy(kvl_cells *to, const kvl_cells *from);

/* Room in the arrays for cells [0, n_cell), for n_more runs of tokens of a sequence (n tokens are n at most, twice as
 * many where they come between tokens that are there), and for n sets of owners. KVLAZY_ENOMEM: unchanged. */
int kvl_cells_reserve_slow(kvl_cells *cells, uint32_t n_cell);
int kvl_cells_reserve_seq(kvl_cells *cells, kvlazy_seq_id seq, uint32_t n_more);
int kvl_cells_reserve_sets(kvl_cells *cells, uint32_t n);

/* Gives back what the arrays do not use: behind the last cell that is live or fallow, in every index, and spare sets.
 * And the bytes that all of it takes. Cost: O(n_seq), and what is copied. */
void kvl_cells_shrink_room(kvl_cells *cells);
uint64_t kvl_cells_bytes(const kvl_cells *cells);

/* The lowest cell ≥ from that holds no token; kv_size: none. */
uint32_t kvl_cells_next_free(kvl_cells *cells, uint32_t from);

/* An empty cell takes a token, then each of its owners. Room was made before: a run each, and for owners behind the
 * first a set, but for one that the cell before has, or the last cell that came to be shared. */
void kvl_cells_put(kvl_cells *cells, uint32_t cell, kvlazy_pos pos);
void kvl_cells_own(kvl_cells *cells, uint32_t cell, kvlazy_seq_id seq);

/* Empties a cell, for every owner. */
void kvl_cells_empty(kvl_cells *cells, uint32_t cell, uint64_t stamp);

/* Takes a sequence's tokens with positions in [p0, p1) from it; cells empty with their last owner. Returns
 * how many tokens the sequence lost. */
uint32_t kvl_cells_rm(kvl_cells *cells, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, uint64_t stamp);

/* Empties every cell. Cost: O(n_cell). */
void kvl_cells_clear(kvl_cells *cells, uint64_t stamp);

/* Takes every other sequence's tokens; a cell shared with `seq` stays with it alone. */
void kvl_cells_keep_only(kvl_cells *cells, kvlazy_seq_id seq, uint64_t stamp);

/* src's tokens in [p0, p1) belong to dst too, which holds none in that range; room was made, for that and for taking
 * what dst held. */
int kvl_cells_reserve_share(kvl_cells *cells, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1);
void kvl_cells_share(kvl_cells *cells, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1);

/* A token's position becomes (pos + delta) / divisor, in every sequence that owns it, and its shift grows by
 * new - old. One that falls below 0 is emptied. For a sequence's tokens in [p0, p1). */
typedef struct kvl_motion {
    int64_t delta;
    int divisor; /* ≥ 1 */
} kvl_motion;
int kvl_cells_reserve_reposition(kvl_cells *cells, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion);

/* Moves what was reserved for, and nothing changed since. */
void kvl_cells_reposition(kvl_cells *cells, kvl_motion motion, uint64_t stamp);

/* K was rotated: every shift is 0. */
void kvl_cells_rotated(kvl_cells *cells);

/* A copied token brings a pending shift with it. */
void kvl_cells_set_shift(kvl_cells *cells, uint32_t cell, kvlazy_pos shift);

/* n tokens go down to cells from `to` on, with all that is known of them; to + n ≤ from, and those are free. They move
 * in so many parts, and every owner needs room for each part of all the moves that follow a reserve. */
uint32_t kvl_cells_parts(const kvl_cells *cells, uint32_t from, uint32_t n);
int kvl_cells_reserve_move(kvl_cells *cells, uint32_t from, uint32_t n, uint32_t n_part);
void kvl_cells_move(kvl_cells *cells, uint32_t from, uint32_t to, uint32_t n, uint64_t stamp);

/* The pages of [begin, end) were committed ahead: those that are settled are fallow now. */
void kvl_cells_ahead(kvl_cells *cells, uint32_t begin, uint32_t end, uint64_t stamp);

/* A fallow cell's bytes were given back or zeroed. */
void kvl_cells_settle(kvl_cells *cells, uint32_t cell);

/* Recomputes everything kept; `what` is NULL when all is well. Cost: O(n_cell + tokens). */
kvl_fault kvl_cells_check(const kvl_cells *cells);

/* One past the highest cell that is live, or was less than `age` before `stamp`. */
uint32_t kvl_cells_recent_end(const kvl_cells *cells, uint64_t stamp, uint64_t age);

/* The owner of a cell with the lowest id ≥ from; -1: none. */
kvlazy_seq_id kvl_cells_next_owner(const kvl_cells *cells, uint32_t cell, kvlazy_seq_id from);
bool kvl_cells_owns(const kvl_cells *cells, uint32_t cell, kvlazy_seq_id seq);

/* How many cells from `cell` on, n at most, name the same owners for sure: one, if they are a loose set. */
uint32_t kvl_cells_same_owners(const kvl_cells *cells, uint32_t cell, uint32_t n);

static inline kvl_index *kvl_cells_index(const kvl_cells *cells, kvlazy_seq_id seq)
{
    return &cells->index[(uint32_t)seq - cells->seq_first];
}

static inline int kvl_cells_reserve(kvl_cells *cells, uint32_t n_cell)
{
    return KVL_LIKELY(n_cell <= cells->n_cell) ? KVLAZY_OK : kvl_cells_reserve_slow(cells, n_cell);
}

/* The lowest fallow cell ≥ from; n_cell: none. */
static inline uint32_t kvl_cells_next_fallow(const kvl_cells *cells, uint32_t from)
{
    return cells->n_fallow ? (uint32_t)kvl_bits_next(cells->fallow, from, cells->n_cell, true) : cells->n_cell;
}

static inline bool kvl_cells_is_used(const kvl_cells *cells, uint32_t cell)
{
    return cell < cells->n_cell && kvl_bit_get(cells->used, cell);
}

/* The owner of a cell that has just one; -1: it has more, or none. */
static inline kvlazy_seq_id kvl_cells_only_owner(const kvl_cells *cells, uint32_t cell)
{
    uint32_t owner = cells->owner[cell];

    if (KVL_LIKELY(!(owner & KVL_SHARED)))
        return (kvlazy_seq_id)owner - 1;
    if (KVL_LIKELY(!cells->sets.set[owner & ~KVL_SHARED]->loose))
        return -1;
    kvlazy_seq_id seq = kvl_cells_next_owner(cells, cell, 0);
    return kvl_cells_next_owner(cells, cell, seq + 1) < 0 ? seq : -1;
}

/* Time since a cell emptied. It may count as emptied before the clock was 0: all of this is modulo 2^64. */
static inline uint64_t kvl_cells_age(const kvl_cells *cells, uint32_t cell, uint64_t stamp)
{
    return stamp - cells->emptied[cell];
}

#endif
