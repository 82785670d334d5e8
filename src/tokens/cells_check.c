/* SPDX-License-Identifier: MIT */
/* cells_check: kvl_cells_check of cells.h, which counts everything anew. */
#include "tokens/owners.h"

#define MUST_BE(what, kept, counted)                                       \
    do {                                                                   \
        uint64_t kept_ = (uint64_t)(kept), counted_ = (uint64_t)(counted); \
        if (kept_ != counted_)                                             \
            return (kvl_fault){what, kept_, counted_};                     \
    } while (0)

static kvl_fault check_owner(const kvl_cells *c, uint32_t cell, uint64_t *n_owner)
{
    uint32_t owner = c->owner[cell], number = owner & ~KVL_SHARED;
    uint64_t n = 0;

    MUST_BE("a cell is used exactly if it has an owner, cell", owner != 0, kvl_bit_get(c->used, cell) && !c->mirror);
    if (kvl_is_shared(owner)) {
        MUST_BE("number of a set past the table", number >= c->sets.n, 0);
        MUST_BE("a cell's set has cells", c->sets.set[number] && c->sets.set[number]->n_cell, 1);
        c->sets.set[number]->count++;
    }
    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(c, cell, o + 1)) >= 0; n++)
        MUST_BE("owners of this stream", (uint32_t)o - c->seq_first >= c->n_seq, 0);
    MUST_BE("a used cell has owners, cell", owner && !n, 0);
    *n_owner += n;
    return (kvl_fault){0};
}

static kvl_fault check_cell(const kvl_cells *c, uint32_t cell, uint64_t *n_owner, uint64_t *n_shifted)
{
    bool used = kvl_bit_get(c->used, cell);

    MUST_BE("a cell is used exactly if it has a position, cell", c->pos[cell] >= 0, used);
    MUST_BE("a live cell is not fallow, cell", used && kvl_bit_get(c->fallow, cell), 0);
    MUST_BE("a cell ahead is fallow, cell", kvl_bit_get(c->ahead, cell) && !kvl_bit_get(c->fallow, cell), 0);
    MUST_BE("an empty cell has no shift, cell", !used && c->shift[cell], 0);
    MUST_BE("an empty cell has no second plane, cell", !used && c->planes && (c->ext_y[cell] || c->ext_x[cell]), 0);
    *n_shifted += c->shift[cell] != 0;
    return check_owner(c, cell, n_owner);
}

static void forget_counts(const kvl_cells *c)
{
    for (uint32_t i = 0; i < c->sets.n; i++)
        if (c->sets.set[i])
            c->sets.set[i]->count = 0;
}

/* Cells were counted into `count`. */
static kvl_fault check_sets(const kvl_cells *c)
{
    uint32_t n_used = 0, n_spare = 0;

    for (uint32_t i = 0; i < c->sets.n; i++) {
        const kvl_set *set = c->sets.set[i];

        if (!set)
            continue;
        n_used += set->n_cell > 0;
        n_spare += set->n_cell == 0;
        MUST_BE("cells of a set of owners", set->n_cell, set->count);
        if (set->n_cell)
            MUST_BE("owners in a set", set->n_owner, kvl_bits_count(set->bit, 0, c->n_seq));
        MUST_BE("a set of one owner", set->n_cell && set->n_owner < 2, 0);
    }
    MUST_BE("sets in use", c->sets.n_used, n_used);
    MUST_BE("spare sets", c->sets.n_spare, n_spare);
    return (kvl_fault){0};
}

static kvl_fault check_index(const kvl_cells *c, kvlazy_seq_id seq, uint64_t *n_entry)
{
    const kvl_index *x = kvl_cells_index(c, seq);
    const char *what = kvl_index_check(x);
    kvl_stretch run;

    if (what)
        return (kvl_fault){what, x->n, kvl_index_n_run(x)};
    for (uint32_t i = 0; i < x->n; i += run.n) {
        run = kvl_index_run(x, i, x->n);
        for (uint32_t k = 0; k < run.n; k++) {
            MUST_BE("index entry of a cell in use", kvl_cells_is_used(c, run.cell + k), 1);
            MUST_BE("index position", run.pos + (kvlazy_pos)k, c->pos[run.cell + k]);
            MUST_BE("index owner", kvl_cells_owns(c, run.cell + k, seq), 1);
        }
    }
    *n_entry += x->n;
    return (kvl_fault){0};
}

kvl_fault kvl_cells_check(const kvl_cells *c)
{
    kvl_fault fault = {0};
    uint64_t n_owner = 0, n_entry = 0, n_shifted = 0;

    MUST_BE("array room past kv_size", c->cap_cell > c->kv_size, 0);
    MUST_BE("cells past the array room", c->n_cell > c->cap_cell, 0);
    forget_counts(c);
    for (uint32_t cell = 0; !fault.what && cell < c->n_cell; cell++)
        fault = check_cell(c, cell, &n_owner, &n_shifted);
    if (!fault.what)
        fault = check_sets(c);
    for (uint32_t i = 0; !fault.what && i < c->n_seq; i++)
        fault = check_index(c, (kvlazy_seq_id)(c->seq_first + i), &n_entry);
    if (fault.what)
        return fault;
    MUST_BE("index entries", n_entry, n_owner);
    MUST_BE("n_shifted", c->n_shifted, n_shifted);
    MUST_BE("n_used", c->n_used, c->n_cell ? kvl_bits_count(c->used, 0, c->n_cell) : 0);
    MUST_BE("n_fallow", c->n_fallow, c->n_cell ? kvl_bits_count(c->fallow, 0, c->n_cell) : 0);
    MUST_BE("used_end", c->used_end, c->n_cell ? kvl_bits_top(c->used, c->n_cell) : 0);
    MUST_BE("free_min past the arrays", c->free_min > c->n_cell, 0);
    MUST_BE("live cells below free_min", kvl_bits_count(c->used, 0, c->free_min), c->free_min);
    return fault;
}
