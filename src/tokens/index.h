/* SPDX-License-Identifier: MIT */
/*
 * index: the tokens of one sequence in order of position, as runs: tokens whose positions and cells rise together by 1
 * are one entry, however many they are. Positions may repeat; equal ones stand in order of arrival. A token has a
 * number, how many tokens stand before it. The index does not know which other sequences own its cells.
 *
 * The runs lie in one array with a gap where work happened last, so that work which goes on there, at the end, in front
 * or in the middle, costs no more than it changes; a window that slides leaves room in front too.
 *
 *     | room | left runs ................. | gap | right runs ...... |
 *            head                                  cap - n_right     cap
 *
 * A run does not say how long it is: that is where the next one begins. `rank` counts the tokens before a left run,
 * from `base` on, and those from a right run on to the end: so a change at the gap changes no other run.
 *
 * Room is counted in runs. It is asked for right before it is used, in the same call: what one call reserved another
 * may have taken since. Where the room is there that costs a comparison. What finds no room says so and changes
 * nothing.
 */
#ifndef KVL_INDEX_H
#define KVL_INDEX_H

#include "base/base.h"

/* One token. */
typedef struct kvl_entry {
    kvlazy_pos pos;
    uint32_t cell;
} kvl_entry;

/* n tokens at pos, pos + 1 … in cell, cell + 1 … */
typedef struct kvl_stretch {
    kvlazy_pos pos;
    uint32_t cell, n;
} kvl_stretch;

typedef struct kvl_piece {
    kvlazy_pos pos;
    uint32_t cell, rank;
} kvl_piece;

typedef struct kvl_index {
    kvl_piece *piece; /* [cap] */
    uint32_t head, n_left, n_right, cap;
    uint32_t n;              /* tokens */
    uint32_t base;           /* rank of the first left run */
    uint32_t moved, n_moved; /* scratch of kvl_cells_reserve_reposition */
} kvl_index;

/* Room for n_more runs. KVLAZY_ENOMEM: unchanged. */
int kvl_index_reserve_slow(kvl_index *index, uint32_t n_more);

/* Gives back the room that is not used, as far as the allocator lets it. */
void kvl_index_shrink(kvl_index *index);

/* The same tokens in another index, which has room for none yet. KVLAZY_ENOMEM: nothing is held. */
int kvl_index_copy(kvl_index *to, const kvl_index *from);

/* How many tokens have a position below p. */
uint32_t kvl_index_below(const kvl_index *index, kvlazy_pos p);

/* Token i. To go through many, take runs: O(log runs) each. */
kvl_entry kvl_index_at(const kvl_index *index, uint32_t i);

/* The run from token i on, and the one that ends before token i, inside [begin, end) with begin < end. */
kvl_stretch kvl_index_run(const kvl_index *index, uint32_t begin, uint32_t end);
kvl_stretch kvl_index_run_back(const kvl_index *index, uint32_t begin, uint32_t end);

/* The runs of the tokens [begin, end) one after the other, O(1) each, by kvl_index_next. */
typedef struct kvl_index_walk {
    uint32_t run, offset; /* the next run, and how many of its tokens are not among them */
    uint32_t at, end;
} kvl_index_walk;
kvl_index_walk kvl_index_walk_from(const kvl_index *index, uint32_t begin, uint32_t end);

/* Tokens come in, behind those of their position; none of the index lies between them. Takes room for two runs at most,
 * and for one where nothing is split. Returns false where there is none: unchanged. */
bool kvl_index_insert_run(kvl_index *index, kvl_stretch run);

/* Removes the tokens [begin, end). Takes room for one run where that leaves both ends of one. Returns false where there
 * is none: unchanged. */
bool kvl_index_cut(kvl_index *index, uint32_t begin, uint32_t end);

/* The number of the token at `pos` in `cell`; n: there is none. */
uint32_t kvl_index_find(const kvl_index *index, kvlazy_pos pos, uint32_t cell);

/* Removes tokens that are there, and puts n that are there into cells from `to` on. Room: a run, and two. */
bool kvl_index_remove_run(kvl_index *index, kvl_stretch run);
bool kvl_index_rename_run(kvl_index *index, kvl_stretch run, uint32_t to);

/* What is wrong with it, apart from which cells it names; NULL: nothing. */
const char *kvl_index_check(const kvl_index *index);

enum { KVL_SPARE_PIECES = 2 }; /* room that is wanted beside what is asked for */

static inline void kvl_index_clear(kvl_index *index)
{
    index->head = index->n_left = index->n_right = index->n = index->base = 0;
}

static inline uint32_t kvl_index_n_run(const kvl_index *index)
{
    return index->n_left + index->n_right;
}

static inline uint32_t kvl_index_room(const kvl_index *index)
{
    return index->cap - index->head - index->n_left - index->n_right;
}

static inline int kvl_index_reserve(kvl_index *index, uint32_t n_more)
{
    return KVL_LIKELY(n_more + (uint64_t)KVL_SPARE_PIECES <= kvl_index_room(index))
               ? KVLAZY_OK
               : kvl_index_reserve_slow(index, n_more);
}

static inline uint64_t kvl_index_bytes(const kvl_index *index)
{
    return (uint64_t)index->cap * sizeof *index->piece;
}

static inline kvl_piece *kvl_index_piece(const kvl_index *index, uint32_t run)
{
    return &index->piece[run < index->n_left ? index->head + run : index->cap - kvl_index_n_run(index) + run];
}

/* Tokens before a run; of one past the last run, all. */
static inline uint32_t kvl_index_before(const kvl_index *index, uint32_t run)
{
    if (run < index->n_left)
        return index->piece[index->head + run].rank - index->base;
    return run < kvl_index_n_run(index) ? index->n - kvl_index_piece(index, run)->rank : index->n;
}

/* Returns false behind the last run. */
static inline bool kvl_index_next(const kvl_index *index, kvl_index_walk *walk, kvl_stretch *run)
{
    if (walk->at >= walk->end)
        return false;
    const kvl_piece *piece = kvl_index_piece(index, walk->run++);
    uint32_t stop = (uint32_t)kvl_min(kvl_index_before(index, walk->run), walk->end);

    *run = (kvl_stretch){piece->pos + (kvlazy_pos)walk->offset, piece->cell + walk->offset, stop - walk->at};
    walk->offset = 0;
    walk->at = stop;
    return true;
}

static inline kvlazy_pos kvl_index_min(const kvl_index *index)
{
    return index->n ? kvl_index_piece(index, 0)->pos : -1;
}

static inline kvlazy_pos kvl_index_max(const kvl_index *index)
{
    if (!index->n)
        return -1;
    uint32_t last = kvl_index_n_run(index) - 1;

    return kvl_index_piece(index, last)->pos + (kvlazy_pos)(index->n - kvl_index_before(index, last)) - 1;
}

/* The last run goes on with these, and no run behind the gap counts from its end. */
static inline bool kvl_index_goes_on(const kvl_index *index, kvl_stretch run)
{
    if (!index->n || index->n_right)
        return false;
    const kvl_piece *last = &index->piece[index->head + index->n_left - 1];
    uint32_t n = index->n - (last->rank - index->base);

    return last->pos + (int64_t)n == run.pos && last->cell + (uint64_t)n == run.cell;
}

static inline bool kvl_index_insert(kvl_index *index, kvlazy_pos pos, uint32_t cell)
{
    kvl_stretch run = {pos, cell, 1};

    if (KVL_UNLIKELY(!kvl_index_goes_on(index, run)))
        return kvl_index_insert_run(index, run);
    index->n++;
    return true;
}

#endif
