/* SPDX-License-Identifier: MIT */
/*
 * sets: the owners of cells that several sequences share. Neighbours nearly always have the same owners, so a set
 * stands for all cells that have them, by number. A set is a bit a sequence of the stream; kvl_cells says which cells
 * name it.
 *
 * Sets that were let go are kept to be taken again, so that what was reserved cannot fail. A set is loose when it may
 * name more sequences than own a cell of it: when memory failed as one cell left it, and a removal does not fail. Whose
 * index has the cell, owns it then.
 */
#ifndef KVL_SETS_H
#define KVL_SETS_H

#include "base/bits.h"

#define KVL_NO_SET UINT32_MAX

typedef struct kvl_set {
    uint32_t n_cell;  /* that name it; 0: it is spare */
    uint32_t n_owner; /* bits that are set */
    bool loose;
    uint32_t next; /* among the spare */

    /* scratch of one call, while mark is the table's */
    uint64_t mark;
    uint32_t count;
    uint32_t to; /* what its cells name afterwards */
    bool decided;
    uint64_t bit[];
} kvl_set;

typedef struct kvl_sets {
    kvl_set **set; /* [n], cap of them; NULL: the number is free */
    uint32_t n, cap;
    uint32_t n_word; /* words of bits a set */
    uint32_t spare;  /* first spare set; KVL_NO_SET: none */
    uint32_t n_spare, n_used;
    uint64_t mark;
} kvl_sets;

void kvl_sets_init(kvl_sets *sets, uint32_t n_seq);
void kvl_sets_fini(kvl_sets *sets);

/* The same sets under the same numbers, without the spare. KVLAZY_ENOMEM: fini frees what there is. */
int kvl_sets_copy(kvl_sets *to, const kvl_sets *from);

/* n sets can be taken without fail. KVLAZY_ENOMEM. */
int kvl_sets_reserve(kvl_sets *sets, uint32_t n);

/* A set with the bits of `like` (KVL_NO_SET: none), for no cell yet; KVL_NO_SET: no memory. */
uint32_t kvl_sets_take(kvl_sets *sets, uint32_t like);

/* n cells less name it; the last lets it go. */
void kvl_sets_leave(kvl_sets *sets, uint32_t number, uint32_t n);

/* Gives back the spare ones. */
void kvl_sets_shrink(kvl_sets *sets);

uint64_t kvl_sets_bytes(const kvl_sets *sets);

static inline void kvl_set_add(kvl_set *set, uint32_t i)
{
    set->n_owner += !kvl_bit_get(set->bit, i);
    kvl_bit_set(set->bit, i);
}

static inline void kvl_set_remove(kvl_set *set, uint32_t i)
{
    set->n_owner -= kvl_bit_get(set->bit, i);
    kvl_bit_clear(set->bit, i);
}

#endif
