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
int kvl_index_reserve(kvl_index *index, uint32_t n_more);

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

/* The runs of the tokens [begin, end) one after the other, O(1) each. kvl_index_next returns false behind the last. */
typedef struct kvl_index_walk {
    uint32_t run, at, end;
} kvl_index_walk;
kvl_index_walk kvl_index_walk_from(const kvl_index *index, uint32_t begin, uint32_t end);
bool kvl_index_next(const kvl_index *index, kvl_index_walk *walk, kvl_stretch *run);

/* Tokens come in, behind those of their position; none of the index lies between them. Takes room for two runs at most,
 * and for one where nothing is split. Returns false where there is none: unchanged. */
bool kvl_index_insert_run(kvl_index *index, kvl_stretch run);

static inline bool kvl_index_insert(kvl_index *index, kvlazy_pos pos, uint32_t cell)
{
    return kvl_index_insert_run(index, (kvl_stretch){pos, cell, 1});
}

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

static inline uint64_t kvl_index_bytes(const kvl_index *index)
{
    return (uint64_t)index->cap * sizeof *index->piece;
}

static inline kvlazy_pos kvl_index_min(const kvl_index *index)
{
    return index->n ? index->piece[index->n_left ? index->head : index->cap - index->n_right].pos : -1;
}

static inline kvlazy_pos kvl_index_max(const kvl_index *index)
{
    if (!index->n)
        return -1;
    const kvl_piece *last = &index->piece[index->n_right ? index->cap - 1 : index->head + index->n_left - 1];
    uint32_t n = index->n_right ? last->rank : index->n - (last->rank - index->base);

    return last->pos + (kvlazy_pos)n - 1;
}

#endif
