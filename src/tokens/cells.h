/* SPDX-License-Identifier: MIT */
/*
 * cells: who. The cells of one stream, which token each holds and which sequences own it. Pure bookkeeping in
 * flat arrays; knows nothing of bytes, clocks or batches. Time comes in as a stamp and is only kept.
 *
 * A cell is in one of three states:
 *
 *     live      a token: used bit, pos ≥ 0, one owner or more, an index entry for each owner
 *     fallow    emptied, and its row's bytes not settled yet: fallow bit, and `emptied` says when;
 *               or its pages were committed ahead of a token that did not come yet: ahead bit too
 *     settled   never used, or its bytes were given back or zeroed since
 *
 * Each sequence has an index: (position, cell) sorted by position, so that its end is where most work
 * happens, a range is two searches, and removing a tail costs what it removes.
 *
 * The room of the arrays doubles with the highest cell in use, and cells begin to exist in it step by step, so that
 * metadata costs memory only for cells that were used; cells past n_cell are settled. Growth is the only thing here
 * that can fail, and it is a call of its own: the rest is done after everything that can fail.
 */
#ifndef KVL_CELLS_H
#define KVL_CELLS_H

#include "base/base.h"
#include "base/bits.h"
#include "tokens/index.h"

typedef struct kvl_cells {
    uint32_t kv_size;          /* cells there may be */
    uint32_t n_cell;           /* cells there are in the arrays below */
    uint32_t cap_cell;         /* and there is room for; what lies behind n_cell was never touched */
    uint32_t owner_words;      /* words of owner a cell */
    uint32_t seq_first, n_seq; /* the sequences that live in this stream */
    bool planes;               /* positions have planes y and x too (M-RoPE) */
    uint32_t n_used, n_fallow;
    uint32_t n_shifted;        /* cells whose K waits to be rotated */
    uint32_t used_end;         /* one past the highest live cell */
    uint32_t free_min;         /* every cell below is live */
    uint64_t *owner;           /* [n_cell][owner_words]; all the arrays are parts of one block */
    uint64_t *used, *fallow;   /* bits */
    uint64_t *ahead;           /* bits: fallow for pages that were committed ahead, and has held no token since */
    uint64_t *keep;            /* bits, scratch for whoever plans a release: cells whose pages stay */
    kvlazy_pos *pos;           /* -1: empty */
    kvlazy_pos *shift;         /* new - old position since K was last rotated; 0: empty */
    kvlazy_pos *ext_y, *ext_x; /* the other position planes; NULL with one */
    uint32_t *emptied;         /* stamp; meaningful where fallow */
    kvl_index *index;          /* [n_seq] */
} kvl_cells;

/* What a check found: "what", what was kept and what it should be. */
typedef struct kvl_fault {
    const char *what;
    uint64_t kept, counted;
} kvl_fault;

/* The sequences [seq_first, seq_first + n_seq) of n_seq_max live here. planes: cells have ext_y and ext_x. */
int kvl_cells_init(kvl_cells *cells, uint32_t kv_size, uint32_t n_seq_max, uint32_t seq_first, uint32_t n_seq,
                   bool planes);
void kvl_cells_fini(kvl_cells *cells);

/* An independent copy, to try things on. KVLAZY_ENOMEM: nothing is held. */
int kvl_cells_copy(kvl_cells *to, const kvl_cells *from);

/* Room in the arrays for cells [0, n_cell), and for n_more tokens of a sequence. KVLAZY_ENOMEM: unchanged. */
int kvl_cells_reserve(kvl_cells *cells, uint32_t n_cell);
int kvl_cells_reserve_seq(kvl_cells *cells, kvlazy_seq_id seq, uint32_t n_more);

/* The lowest cell ≥ from that holds no token; kv_size: none. */
uint32_t kvl_cells_next_free(kvl_cells *cells, uint32_t from);

/* An empty cell takes a token, then each of its owners. Room was made before. */
void kvl_cells_put(kvl_cells *cells, uint32_t cell, kvlazy_pos pos);
void kvl_cells_own(kvl_cells *cells, uint32_t cell, kvlazy_seq_id seq);

/* Empties a cell, for every owner. */
void kvl_cells_empty(kvl_cells *cells, uint32_t cell, uint32_t stamp);

/* Takes a sequence's tokens with positions in [p0, p1) from it; cells empty with their last owner. Answers
 * how many tokens the sequence lost. */
uint32_t kvl_cells_rm(kvl_cells *cells, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, uint32_t stamp);

/* Empties every cell. Cost: O(n_cell). */
void kvl_cells_clear(kvl_cells *cells, uint32_t stamp);

/* Takes every other sequence's tokens; a cell shared with `seq` stays with it alone. */
void kvl_cells_keep_only(kvl_cells *cells, kvlazy_seq_id seq, uint32_t stamp);

/* src's tokens in [p0, p1) belong to dst too, which holds none in that range; room was made. */
void kvl_cells_share(kvl_cells *cells, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1);

/* A token's position becomes (pos + delta) / divisor, in every sequence that owns it, and its shift grows by
 * new - old. One that falls below 0 is emptied. For a sequence's tokens in [p0, p1), for which there is as
 * much room again as they are. */
typedef struct kvl_motion {
    int64_t delta;
    int divisor; /* ≥ 1 */
} kvl_motion;
void kvl_cells_reposition(kvl_cells *cells, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion,
                          uint32_t stamp);

/* K was rotated: every shift is 0. */
void kvl_cells_rotated(kvl_cells *cells);

/* A copied token brings a pending shift with it. */
void kvl_cells_set_shift(kvl_cells *cells, uint32_t cell, kvlazy_pos shift);

/* n tokens go down to cells from `to` on, with all that is known of them; to + n ≤ from, and those are free. */
void kvl_cells_move(kvl_cells *cells, uint32_t from, uint32_t to, uint32_t n, uint32_t stamp);

/* The pages of [begin, end) were committed ahead: those that are settled are fallow now. */
void kvl_cells_ahead(kvl_cells *cells, uint32_t begin, uint32_t end, uint32_t stamp);

/* A fallow cell's bytes were given back or zeroed. */
void kvl_cells_settle(kvl_cells *cells, uint32_t cell);

/* Recomputes everything kept; `what` is NULL when all is well. Cost: O(n_cell + tokens). */
kvl_fault kvl_cells_check(const kvl_cells *cells);

/* One past the highest cell that is live, or was less than `age` before `stamp`. */
uint32_t kvl_cells_recent_end(const kvl_cells *cells, uint32_t stamp, uint32_t age);

static inline kvl_index *kvl_cells_index(const kvl_cells *cells, kvlazy_seq_id seq)
{
    return &cells->index[(uint32_t)seq - cells->seq_first];
}

static inline uint64_t *kvl_cells_owners(const kvl_cells *cells, uint32_t cell)
{
    return cells->owner + (size_t)cell * cells->owner_words;
}

static inline bool kvl_cells_owns(const kvl_cells *cells, uint32_t cell, kvlazy_seq_id seq)
{
    return kvl_bit_get(kvl_cells_owners(cells, cell), (uint64_t)seq);
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

/* The owner of a cell with the lowest id ≥ from; -1: none. */
static inline kvlazy_seq_id kvl_cells_next_owner(const kvl_cells *cells, uint32_t cell, kvlazy_seq_id from)
{
    uint64_t end = (uint64_t)cells->owner_words * KVL_WORD_BITS;
    uint64_t seq = kvl_bits_next(kvl_cells_owners(cells, cell), (uint64_t)from, end, true);

    return seq == end ? -1 : (kvlazy_seq_id)seq;
}

/* The owner of a cell that has just one; -1: it has more, or none. */
static inline kvlazy_seq_id kvl_cells_only_owner(const kvl_cells *cells, uint32_t cell)
{
    if (KVL_LIKELY(cells->owner_words == 1)) {
        uint64_t owner = cells->owner[cell];

        return owner && !(owner & (owner - 1)) ? __builtin_ctzll(owner) : -1;
    }
    kvlazy_seq_id seq = kvl_cells_next_owner(cells, cell, 0);

    return seq >= 0 && kvl_cells_next_owner(cells, cell, seq + 1) < 0 ? seq : -1;
}

/* The time went on by `passed` from `stamp`: a fallow cell that would be older than `max` becomes max old, as
 * seen from then on. */
void kvl_cells_age_all(kvl_cells *cells, uint32_t stamp, uint64_t passed, uint32_t max);

/* Time since a cell emptied. */
static inline uint32_t kvl_cells_age(const kvl_cells *cells, uint32_t cell, uint32_t stamp)
{
    return stamp - cells->emptied[cell];
}

#endif
