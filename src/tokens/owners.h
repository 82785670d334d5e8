/* SPDX-License-Identifier: MIT */
/*
 * owners: what the parts of cells have in common: parts of cells that name the same owners, taken together, and how
 * a cell comes to name others. For the sources of cells alone.
 */
#ifndef KVL_OWNERS_H
#define KVL_OWNERS_H

#include "tokens/cells.h"

static inline bool kvl_is_shared(uint32_t owner)
{
    return owner & KVL_SHARED;
}

static inline kvl_set *kvl_set_of(const kvl_cells *c, uint32_t owner)
{
    return c->sets.set[owner & ~KVL_SHARED];
}

static inline bool kvl_is_loose(const kvl_cells *c, uint32_t owner)
{
    return kvl_is_shared(owner) && kvl_set_of(c, owner)->loose;
}

static inline uint32_t kvl_owner_word(kvlazy_seq_id seq)
{
    return (uint32_t)seq + 1;
}

/* The bit of a sequence in sets. */
static inline uint32_t kvl_owner_bit(const kvl_cells *c, kvlazy_seq_id seq)
{
    return (uint32_t)seq - c->seq_first;
}

/* The same of a run of one sequence: where no cell is shared, it owns them all alone. */
static inline uint32_t kvl_owners_same_in(const kvl_cells *c, kvl_stretch run)
{
    return c->sets.n_used ? kvl_cells_same_owners(c, run.cell, run.n) : run.n;
}

/* The tokens from number i of an index on, below `end`, whose cells name the same. */
kvl_stretch kvl_owners_part(const kvl_cells *cells, const kvl_index *index, uint32_t i, uint32_t end);

/* Counts for each set how many cells of these tokens name it, and forgets what was decided for the set in the last such
 * call. Returns how many sets there are. */
uint32_t kvl_owners_count(kvl_cells *cells, const kvl_index *index, uint32_t begin, uint32_t end);

/* n cells that all name the same name `to` from now on. */
void kvl_owners_rename(kvl_cells *cells, uint32_t cell, uint32_t n, uint32_t to);

/* What cells that name `owner`, or what `cell` names, have to name without a sequence, or with one more. A set of which
 * all cells change, as counted, changes itself. Less: a set that cannot be split is loose from then on. More: returns 0
 * where there is no memory. */
uint32_t kvl_owners_less(kvl_cells *cells, uint32_t owner, kvlazy_seq_id seq);
uint32_t kvl_owners_more(kvl_cells *cells, uint32_t cell, kvlazy_seq_id seq);

/* A cell of a loose set names exactly its owners. KVLAZY_ENOMEM: as it was. */
int kvl_owners_tighten(kvl_cells *cells, uint32_t cell);
int kvl_owners_tighten_all(kvl_cells *cells, const kvl_index *index, uint32_t begin, uint32_t end);

/* n cells hold no token any more; what they named was let go. */
void kvl_cells_vacate(kvl_cells *cells, uint32_t cell, uint32_t n, uint64_t stamp);

#endif
