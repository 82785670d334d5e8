/* SPDX-License-Identifier: MIT */
/*
 * index: the tokens of one sequence as (position, cell), sorted by position in one array. Its end is where most
 * work happens, so appending and removing a tail cost what they add and remove; a range is two searches; a window
 * that slides leaves room in front. Positions may repeat. Who owns a cell is not its business.
 */
#ifndef KVL_INDEX_H
#define KVL_INDEX_H

#include "base/base.h"

typedef struct kvl_entry {
    kvlazy_pos pos;
    uint32_t cell;
} kvl_entry;

typedef struct kvl_index {
    kvl_entry *entry; /* [head, head + n) in use, sorted by pos; equal positions in order of arrival */
    uint32_t head, n, cap;
} kvl_index;

/* Room for n_more entries. KVLAZY_ENOMEM: unchanged. */
int kvl_index_reserve(kvl_index *index, uint32_t n_more);

/* How many entries have a position below p. */
uint32_t kvl_index_below(const kvl_index *index, kvlazy_pos p);

/* One more entry; room was made, or one was removed since. */
void kvl_index_insert(kvl_index *index, kvlazy_pos pos, uint32_t cell);
void kvl_index_remove(kvl_index *index, kvlazy_pos pos, uint32_t cell);

/* The token at `pos` in a cell is in another one now. */
void kvl_index_rename(kvl_index *index, kvlazy_pos pos, uint32_t from, uint32_t to);

/* Removes the entries [begin, end). */
void kvl_index_cut(kvl_index *index, uint32_t begin, uint32_t end);

/* Copies n entries, in order, to where none of their positions is yet; room was made. Answers where they are. */
kvl_entry *kvl_index_add(kvl_index *index, const kvl_entry *entry, uint32_t n);

/* The positions of [begin, end) were changed, in order among themselves: brings them in order with the others. There is
 * room for as many again. */
void kvl_index_merge(kvl_index *index, uint32_t begin, uint32_t end);

static inline void kvl_index_clear(kvl_index *index)
{
    index->head = index->n = 0;
}

static inline const kvl_entry *kvl_index_at(const kvl_index *index, uint32_t i)
{
    return &index->entry[index->head + i];
}

static inline kvlazy_pos kvl_index_min(const kvl_index *index)
{
    return index->n ? kvl_index_at(index, 0)->pos : -1;
}

static inline kvlazy_pos kvl_index_max(const kvl_index *index)
{
    return index->n ? kvl_index_at(index, index->n - 1)->pos : -1;
}

#endif
