/* SPDX-License-Identifier: MIT */
/* cells: see cells.h. Tokens, their owners, and what becomes of empty cells; moving is in cells_move.c. */
#include "tokens/owners.h"

uint32_t kvl_cells_next_free(kvl_cells *c, uint32_t from)
{
    bool lowest = from <= c->free_min;
    uint32_t cell = lowest ? c->free_min : from;

    if (cell < c->n_cell)
        cell = (uint32_t)kvl_bits_next(c->used, cell, c->n_cell, false);
    if (lowest)
        c->free_min = cell; /* found once, not searched for again */
    return cell;
}

/* ------------------------------------------------------------------------------------------- tokens */

void kvl_cells_put(kvl_cells *c, uint32_t cell, kvlazy_pos pos)
{
    KVL_ASSERT(cell < c->n_cell && !kvl_bit_get(c->used, cell) && pos >= 0);
    if (kvl_bit_get(c->fallow, cell)) /* its pages are touched: the row is simply written again */
        kvl_cells_settle(c, cell);
    kvl_bit_set(c->used, cell);
    c->pos[cell] = pos;
    c->n_used++;
    if (cell >= c->used_end)
        c->used_end = cell + 1;
}

/* The token is in the index of the sequence already. */
static void own_too(kvl_cells *c, uint32_t cell, kvlazy_seq_id seq)
{
    c->sets.mark++; /* nothing was counted */
    uint32_t to = kvl_owners_tighten(c, cell) ? 0 : kvl_owners_more(c, cell, seq);

    KVL_ASSERT(to);
    if (to)
        kvl_owners_rename(c, cell, 1, to);
    else
        kvl_index_remove_run(kvl_cells_index(c, seq), (kvl_stretch){c->pos[cell], cell, 1});
}

void kvl_cells_own(kvl_cells *c, uint32_t cell, kvlazy_seq_id seq)
{
    kvl_index *x = kvl_cells_index(c, seq);

    KVL_ASSERT(kvl_bit_get(c->used, cell) && !kvl_cells_owns(c, cell, seq));
    if (KVL_UNLIKELY(!kvl_index_insert(x, c->pos[cell], cell)) &&
        (kvl_index_reserve(x, 2) || !kvl_index_insert(x, c->pos[cell], cell))) {
        KVL_ASSERT(!"room for one more owner was made");
        return;
    }
    if (KVL_LIKELY(!c->owner[cell]))
        c->owner[cell] = kvl_owner_word(seq);
    else
        own_too(c, cell, seq);
}

/* ------------------------------------------------------------------------------------------- removing */

static void vacate_one(kvl_cells *c, uint32_t cell, uint64_t stamp)
{
    kvl_bit_clear(c->used, cell);
    kvl_bit_set(c->fallow, cell);
    c->owner[cell] = 0;
    c->pos[cell] = -1;
    c->emptied[cell] = stamp;
}

static void vacate_many(kvl_cells *c, uint32_t cell, uint32_t n, uint64_t stamp)
{
    kvl_bits_fill(c->used, cell, cell + n, false);
    kvl_bits_fill(c->fallow, cell, cell + n, true);
    memset(c->owner + cell, 0, n * sizeof *c->owner);
    memset(c->pos + cell, 0xff, n * sizeof *c->pos);
    for (uint32_t i = 0; i < n; i++)
        c->emptied[cell + i] = stamp;
}

void kvl_cells_vacate(kvl_cells *c, uint32_t cell, uint32_t n, uint64_t stamp)
{
    if (n == 1) /* of sequences that took turns every token is one */
        vacate_one(c, cell, stamp);
    else
        vacate_many(c, cell, n, stamp);
    for (uint32_t i = 0; c->n_shifted && i < n; i++)
        kvl_cells_set_shift(c, cell + i, 0);
    if (c->planes) {
        memset(c->ext_y + cell, 0, n * sizeof *c->ext_y);
        memset(c->ext_x + cell, 0, n * sizeof *c->ext_x);
    }
    c->n_fallow += n;
    c->n_used -= n;
    if (cell < c->free_min)
        c->free_min = cell;
    if (cell + n == c->used_end)
        c->used_end = (uint32_t)kvl_bits_top(c->used, cell);
}

/* The tokens [begin, end) of an index can be cut out of it. */
static bool can_cut(kvl_index *x, uint32_t begin, uint32_t end)
{
    bool splits = begin && end < x->n && kvl_index_run(x, begin - 1, x->n).n > end - begin + 1;

    return !splits || !kvl_index_reserve(x, 1);
}

void kvl_cells_empty(kvl_cells *c, uint32_t cell, uint64_t stamp)
{
    kvlazy_pos pos = c->pos[cell];

    for (kvlazy_seq_id seq = -1; (seq = kvl_cells_next_owner(c, cell, seq + 1)) >= 0;)
        if (kvl_cells_reserve_seq(c, seq, 1)) {
            KVL_ASSERT(!"room to empty a cell was made");
            return;
        }
    for (kvlazy_seq_id seq = -1; (seq = kvl_cells_next_owner(c, cell, seq + 1)) >= 0;)
        kvl_index_remove_run(kvl_cells_index(c, seq), (kvl_stretch){pos, cell, 1});
    if (kvl_is_shared(c->owner[cell]))
        kvl_sets_leave(&c->sets, c->owner[cell] & ~KVL_SHARED, 1);
    kvl_cells_vacate(c, cell, 1, stamp);
}

/* Cells that name the same lose one owner. */
static void take_owner(kvl_cells *c, uint32_t cell, uint32_t n, kvlazy_seq_id seq, uint64_t stamp)
{
    uint32_t owner = c->owner[cell];

    if (!kvl_is_shared(owner)) {
        kvl_cells_vacate(c, cell, n, stamp);
    } else if (!kvl_is_loose(c, owner)) {
        kvl_owners_rename(c, cell, n, kvl_owners_less(c, owner, seq));
    } else {
        kvlazy_seq_id other = kvl_cells_next_owner(c, cell, 0);

        if (other == seq)
            other = kvl_cells_next_owner(c, cell, seq + 1);
        if (other >= 0)
            return; /* its index says that it does not own it */
        kvl_sets_leave(&c->sets, owner & ~KVL_SHARED, 1);
        kvl_cells_vacate(c, cell, 1, stamp);
    }
}

uint32_t kvl_cells_rm(kvl_cells *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, uint64_t stamp)
{
    kvl_index *x = kvl_cells_index(c, seq);
    uint32_t begin = kvl_index_below(x, p0), end = kvl_index_below(x, p1);
    kvl_stretch run;

    if (begin >= end)
        return 0;
    if (!can_cut(x, begin, end)) {
        KVL_ASSERT(!"room to cut a sequence was made");
        return 0;
    }
    kvl_owners_count(c, x, begin, end);
    kvl_index_walk walk = kvl_index_walk_from(x, begin, end);
    while (kvl_index_next(x, &walk, &run))
        for (uint32_t i = 0, n; i < run.n; i += n) {
            n = kvl_owners_same_in(c, (kvl_stretch){run.pos, run.cell + i, run.n - i});
            take_owner(c, run.cell + i, n, seq, stamp);
        }
    kvl_index_cut(x, begin, end);
    return end - begin;
}

void kvl_cells_clear(kvl_cells *c, uint64_t stamp)
{
    size_t n = c->used_end;

    for (size_t w = 0; w < kvl_bits_words(n); w++) {
        uint64_t used = c->used[w];
        uint64_t *emptied = c->emptied + w * KVL_WORD_BITS;

        c->fallow[w] |= used;
        c->used[w] = 0;
        if (used == ~UINT64_C(0))
            for (uint32_t i = 0; i < KVL_WORD_BITS; i++)
                emptied[i] = stamp;
        else
            for (; used; used &= used - 1)
                emptied[__builtin_ctzll(used)] = stamp;
    }
    if (n) { /* the arrays of an empty cell hold these already */
        memset(c->owner, 0, n * sizeof *c->owner);
        memset(c->pos, 0xff, n * sizeof *c->pos);
    }
    if (n && c->planes) {
        memset(c->ext_y, 0, n * sizeof *c->ext_y);
        memset(c->ext_x, 0, n * sizeof *c->ext_x);
    }
    kvl_cells_rotated(c); /* nothing is left that waits */
    for (uint32_t i = 0; i < c->sets.n && c->sets.n_used; i++)
        if (c->sets.set[i] && c->sets.set[i]->n_cell)
            kvl_sets_leave(&c->sets, i, c->sets.set[i]->n_cell);
    for (uint32_t i = 0; i < c->n_seq; i++)
        kvl_index_clear(&c->index[i]);
    c->n_fallow += c->n_used;
    c->n_used = c->used_end = c->free_min = 0;
}

void kvl_cells_keep_only(kvl_cells *c, kvlazy_seq_id seq, uint64_t stamp)
{
    uint32_t n;

    for (uint32_t cell = 0; (cell = (uint32_t)kvl_bits_next(c->used, cell, c->used_end, true)) < c->used_end;
         cell += n) {
        bool stays = kvl_cells_owns(c, cell, seq);

        n = (uint32_t)kvl_bits_next(c->used, cell, c->used_end, false) - cell;
        n = kvl_cells_same_owners(c, cell, n);
        if (stays)
            kvl_owners_rename(c, cell, n, kvl_owner_word(seq));
        else if (kvl_is_shared(c->owner[cell]))
            kvl_sets_leave(&c->sets, c->owner[cell] & ~KVL_SHARED, n);
        if (!stays)
            kvl_cells_vacate(c, cell, n, stamp);
    }
    for (uint32_t i = 0; i < c->n_seq; i++)
        if (i != (uint32_t)seq - c->seq_first)
            kvl_index_clear(&c->index[i]);
}

/* ------------------------------------------------------------------------------------------- sharing */

int kvl_cells_reserve_share(kvl_cells *c, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_index *from = kvl_cells_index(c, src), *held = kvl_cells_index(c, dst);
    uint32_t begin = kvl_index_below(from, p0), end = kvl_index_below(from, p1), n_run = 1;
    uint32_t held_begin = kvl_index_below(held, p0), held_end = kvl_index_below(held, p1);

    if (begin == end && held_begin == held_end)
        return KVLAZY_OK;
    for (uint32_t i = begin; i < end; n_run++)
        i += kvl_index_run(from, i, end).n;
    if (kvl_owners_tighten_all(c, from, begin, end) || kvl_owners_tighten_all(c, held, held_begin, held_end))
        return KVLAZY_ENOMEM;
    uint32_t n_set = kvl_owners_count(c, from, begin, end) + kvl_owners_count(c, held, held_begin, held_end) + 1;
    return kvl_cells_reserve_sets(c, n_set) ? KVLAZY_ENOMEM : kvl_cells_reserve_seq(c, dst, n_run + 1);
}

void kvl_cells_share(kvl_cells *c, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_index *from = kvl_cells_index(c, src);
    uint32_t begin = kvl_index_below(from, p0), end = kvl_index_below(from, p1), both = 0;
    kvl_stretch part;

    if (begin == end)
        return;
    kvl_owners_count(c, from, begin, end);
    for (uint32_t i = begin; i < end; i += part.n) {
        part = kvl_owners_part(c, from, i, end);
        uint32_t owner = c->owner[part.cell], to = kvl_is_shared(owner) ? 0 : both;
        bool room = kvl_index_room(kvl_cells_index(c, dst)) || !kvl_cells_reserve_seq(c, dst, 1);

        if (!to && room && !kvl_is_loose(c, owner))
            to = kvl_owners_more(c, part.cell, dst);
        KVL_ASSERT(to && room);
        if (!to || !room || !kvl_index_insert_run(kvl_cells_index(c, dst), part))
            return;
        kvl_owners_rename(c, part.cell, part.n, to);
        both = kvl_is_shared(owner) ? both : to;
    }
}

/* ------------------------------------------------------------------------------------------- shifts */

void kvl_cells_set_shift(kvl_cells *c, uint32_t cell, kvlazy_pos shift)
{
    c->n_shifted += (shift != 0) - (c->shift[cell] != 0);
    c->shift[cell] = shift;
}

void kvl_cells_rotated(kvl_cells *c)
{
    if (c->n_shifted)
        memset(c->shift, 0, c->n_cell * sizeof *c->shift);
    c->n_shifted = 0;
}

/* ------------------------------------------------------------------------------------------- decay */

void kvl_cells_settle(kvl_cells *c, uint32_t cell)
{
    KVL_ASSERT(kvl_bit_get(c->fallow, cell));
    kvl_bit_clear(c->fallow, cell);
    kvl_bit_clear(c->ahead, cell);
    c->n_fallow--;
}

void kvl_cells_ahead(kvl_cells *c, uint32_t begin, uint32_t end, uint64_t stamp)
{
    for (uint32_t cell = begin; cell < end; cell++) {
        if (kvl_bit_get(c->used, cell) || (kvl_bit_get(c->fallow, cell) && !kvl_bit_get(c->ahead, cell)))
            continue;
        c->n_fallow += !kvl_bit_get(c->fallow, cell);
        kvl_bit_set(c->fallow, cell);
        kvl_bit_set(c->ahead, cell);
        c->emptied[cell] = stamp;
    }
}

uint32_t kvl_cells_recent_end(const kvl_cells *c, uint64_t stamp, uint64_t age)
{
    uint32_t top = c->n_fallow ? c->n_cell : 0;

    while ((top = (uint32_t)kvl_bits_top(c->fallow, top)) > c->used_end)
        if (!kvl_bit_get(c->ahead, top - 1) && kvl_cells_age(c, top - 1, stamp) < age)
            return top;
        else
            top--;
    return c->used_end;
}
