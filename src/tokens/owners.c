/* SPDX-License-Identifier: MIT */
/* owners: see owners.h. */
#include "tokens/owners.h"

enum { SAME_CELLS = 64 };

/* ------------------------------------------------------------------------------------------- owners of a cell */

/* Whether the sequence owns the cell, which a loose set alone does not tell: its index has the cell then. */
static bool index_has(const kvl_cells *c, kvlazy_seq_id seq, uint32_t cell)
{
    const kvl_index *x = kvl_cells_index(c, seq);

    return kvl_index_find(x, c->pos[cell], cell) < x->n;
}

bool kvl_cells_owns(const kvl_cells *c, uint32_t cell, kvlazy_seq_id seq)
{
    uint32_t owner = c->owner[cell];

    if (KVL_LIKELY(!kvl_is_shared(owner)))
        return owner == kvl_owner_word(seq);
    return kvl_bit_get(kvl_set_of(c, owner)->bit, kvl_owner_bit(c, seq)) &&
           (!kvl_set_of(c, owner)->loose || index_has(c, seq, cell));
}

kvlazy_seq_id kvl_cells_next_owner(const kvl_cells *c, uint32_t cell, kvlazy_seq_id from)
{
    uint32_t owner = c->owner[cell];

    if (KVL_LIKELY(!kvl_is_shared(owner)))
        return (kvlazy_seq_id)owner - 1 >= from ? (kvlazy_seq_id)owner - 1 : -1;
    const kvl_set *set = kvl_set_of(c, owner);
    uint64_t bit = from <= (kvlazy_seq_id)c->seq_first ? 0 : kvl_owner_bit(c, from);
    for (; (bit = kvl_bits_next(set->bit, bit, c->n_seq, true)) < c->n_seq; bit++)
        if (!set->loose || index_has(c, (kvlazy_seq_id)(c->seq_first + bit), cell))
            return (kvlazy_seq_id)(c->seq_first + bit);
    return -1;
}

/* ------------------------------------------------------------------------------------------- parts */

uint32_t kvl_cells_same_owners(const kvl_cells *c, uint32_t cell, uint32_t n)
{
    const uint32_t *owner = c->owner + cell;
    uint32_t same = 1;

    if (kvl_is_loose(c, *owner))
        return 1;
    while (same + SAME_CELLS <= n && !memcmp(owner + same, owner + same - 1, SAME_CELLS * sizeof *owner))
        same += SAME_CELLS; /* a shared prompt is thousands of them */
    while (same < n && owner[same] == *owner)
        same++;
    return same;
}

kvl_stretch kvl_owners_part(const kvl_cells *c, const kvl_index *x, uint32_t i, uint32_t end)
{
    kvl_stretch part = kvl_index_run(x, i, end);

    part.n = kvl_owners_same_in(c, part);
    return part;
}

uint32_t kvl_owners_count(kvl_cells *c, const kvl_index *x, uint32_t begin, uint32_t end)
{
    kvl_stretch part;
    uint32_t n = 0;

    c->sets.mark++;
    for (uint32_t i = begin; c->sets.n_used && i < end; i += part.n) {
        part = kvl_owners_part(c, x, i, end);
        if (!kvl_is_shared(c->owner[part.cell]))
            continue;
        kvl_set *set = kvl_set_of(c, c->owner[part.cell]);
        if (set->mark != c->sets.mark) {
            set->mark = c->sets.mark;
            set->count = 0;
            set->decided = false;
            n++;
        }
        set->count += part.n;
    }
    return n;
}

/* ------------------------------------------------------------------------------------------- changes */

void kvl_owners_rename(kvl_cells *c, uint32_t cell, uint32_t n, uint32_t to)
{
    uint32_t from = c->owner[cell];

    if (from == to)
        return;
    if (kvl_is_shared(to))
        kvl_set_of(c, to)->n_cell += n;
    if (kvl_is_shared(from))
        kvl_sets_leave(&c->sets, from & ~KVL_SHARED, n);
    for (uint32_t i = 0; i < n; i++)
        c->owner[cell + i] = to;
}

static uint32_t other_owner(const kvl_cells *c, const kvl_set *set, kvlazy_seq_id seq)
{
    uint64_t bit = kvl_bits_next(set->bit, 0, c->n_seq, true);

    if (bit == kvl_owner_bit(c, seq))
        bit = kvl_bits_next(set->bit, bit + 1, c->n_seq, true);
    return kvl_owner_word((kvlazy_seq_id)(c->seq_first + bit));
}

uint32_t kvl_owners_less(kvl_cells *c, uint32_t owner, kvlazy_seq_id seq)
{
    kvl_set *set = kvl_set_of(c, owner);

    if (set->decided)
        return set->to;
    set->decided = true;
    set->to = owner;
    if (set->n_owner == 2)
        return set->to = other_owner(c, set, seq);
    if (set->count == set->n_cell) {
        kvl_set_remove(set, kvl_owner_bit(c, seq));
        return owner;
    }
    uint32_t number = kvl_sets_take(&c->sets, owner & ~KVL_SHARED);
    if (number == KVL_NO_SET) {
        set->loose = true;
        return owner;
    }
    kvl_set_remove(c->sets.set[number], kvl_owner_bit(c, seq));
    return set->to = number | KVL_SHARED;
}

/* A set that a neighbour names has the owners of `set` (NULL: `owner` alone) and one more. */
static bool is_one_more(const kvl_cells *c, uint32_t near, uint32_t owner, kvlazy_seq_id seq)
{
    const kvl_set *more = kvl_is_shared(near) ? kvl_set_of(c, near) : NULL;
    const kvl_set *set = kvl_is_shared(owner) ? kvl_set_of(c, owner) : NULL;
    uint32_t bit = kvl_owner_bit(c, seq);

    if (!more || !more->n_cell || more->loose || more->n_owner != (set ? set->n_owner : 1) + 1 ||
        !kvl_bit_get(more->bit, bit))
        return false;
    if (!set)
        return kvl_bit_get(more->bit, kvl_owner_bit(c, (kvlazy_seq_id)owner - 1));
    for (uint32_t w = 0; w < c->sets.n_word; w++)
        if (set->bit[w] & ~more->bit[w])
            return false;
    return true;
}

/* One of a set that exists is not made again. */
static uint32_t known_more(const kvl_cells *c, uint32_t cell, uint32_t owner, kvlazy_seq_id seq)
{
    if (cell && is_one_more(c, c->owner[cell - 1], owner, seq))
        return c->owner[cell - 1];
    bool known = kvl_is_shared(c->recent) && (c->recent & ~KVL_SHARED) < c->sets.n && kvl_set_of(c, c->recent);
    return known && is_one_more(c, c->recent, owner, seq) ? c->recent : 0;
}

static uint32_t new_more(kvl_cells *c, uint32_t owner, kvlazy_seq_id seq)
{
    uint32_t number = kvl_sets_take(&c->sets, kvl_is_shared(owner) ? owner & ~KVL_SHARED : KVL_NO_SET);

    if (number == KVL_NO_SET)
        return 0;
    if (!kvl_is_shared(owner))
        kvl_set_add(c->sets.set[number], kvl_owner_bit(c, (kvlazy_seq_id)owner - 1));
    kvl_set_add(c->sets.set[number], kvl_owner_bit(c, seq));
    return number | KVL_SHARED;
}

uint32_t kvl_owners_more(kvl_cells *c, uint32_t cell, kvlazy_seq_id seq)
{
    uint32_t owner = c->owner[cell];
    kvl_set *set = kvl_is_shared(owner) ? kvl_set_of(c, owner) : NULL;
    bool counted = set && set->mark == c->sets.mark;

    if (counted && set->decided)
        return set->to;
    uint32_t to = known_more(c, cell, owner, seq);
    if (!to && set && (counted ? set->count : 1) == set->n_cell) {
        kvl_set_add(set, kvl_owner_bit(c, seq));
        to = owner;
    }
    if (!to)
        to = new_more(c, owner, seq);
    if (set) {
        set->to = to;
        set->decided = true;
    }
    c->recent = to;
    return to;
}

/* ------------------------------------------------------------------------------------------- loose sets */

static uint32_t count_owners(const kvl_cells *c, uint32_t cell)
{
    uint32_t n = 0;

    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(c, cell, o + 1)) >= 0;)
        n++;
    return n;
}

int kvl_owners_tighten(kvl_cells *c, uint32_t cell)
{
    uint32_t owner = c->owner[cell];

    if (KVL_LIKELY(!kvl_is_loose(c, owner)))
        return KVLAZY_OK;
    if (count_owners(c, cell) == 1) {
        kvl_owners_rename(c, cell, 1, kvl_owner_word(kvl_cells_next_owner(c, cell, 0)));
        return KVLAZY_OK;
    }
    uint32_t number = kvl_sets_take(&c->sets, KVL_NO_SET);
    if (number == KVL_NO_SET)
        return KVLAZY_ENOMEM;
    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(c, cell, o + 1)) >= 0;)
        kvl_set_add(c->sets.set[number], kvl_owner_bit(c, o));
    kvl_owners_rename(c, cell, 1, number | KVL_SHARED);
    return KVLAZY_OK;
}

int kvl_owners_tighten_all(kvl_cells *c, const kvl_index *x, uint32_t begin, uint32_t end)
{
    kvl_stretch part;

    for (uint32_t i = begin; c->sets.n_used && i < end; i += part.n) {
        part = kvl_owners_part(c, x, i, end);
        if (kvl_owners_tighten(c, part.cell))
            return KVLAZY_ENOMEM;
    }
    return KVLAZY_OK;
}
