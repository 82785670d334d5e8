/* SPDX-License-Identifier: MIT */
/* cells_move: what of cells.h changes positions, and which cells tokens are in. Both go part by part: tokens that stand
 * behind one another and have the same owners, in all their indexes. */
#include "tokens/owners.h"

#include <bsd/stdlib.h>

/* ------------------------------------------------------------------------------------------- room for positions */

/* What kvl_cells_reserve_reposition looks at. */
typedef struct range {
    kvlazy_pos p0, p1;
    kvl_motion motion;
} range;

static int find_parts(kvl_cells *c, const kvl_index *x, uint32_t begin, uint32_t end)
{
    uint32_t n = 0, k = 0;

    for (uint32_t i = begin; i < end; n++)
        i += kvl_owners_part(c, x, i, end).n;
    kvl_stretch *part = reallocarray(c->part, n, sizeof *part);
    if (!part)
        return KVLAZY_ENOMEM;
    c->part = part;
    c->n_part = n;
    for (uint32_t i = begin; i < end; i += part[k++].n)
        part[k] = kvl_owners_part(c, x, i, end);
    return KVLAZY_OK;
}

static uint64_t count_between(const kvl_index *x, int64_t p0, int64_t p1)
{
    kvlazy_pos from = (kvlazy_pos)kvl_min((uint64_t)(p0 < 0 ? 0 : p0), INT32_MAX);
    kvlazy_pos to = (kvlazy_pos)kvl_min((uint64_t)(p1 < 0 ? 0 : p1), INT32_MAX);

    return from < to ? kvl_index_below(x, to) - kvl_index_below(x, from) : 0;
}

/* A sequence keeps tokens where its others leave or arrive: then each may be a run of its own. */
static bool meets_others(const kvl_index *x, const range *r)
{
    int64_t to0 = ((int64_t)r->p0 + r->motion.delta) / r->motion.divisor;
    int64_t to1 = ((int64_t)r->p1 + r->motion.delta) / r->motion.divisor + (r->motion.divisor > 1);
    uint64_t both = count_between(x, to0 > r->p0 ? to0 : r->p0, to1 < r->p1 ? to1 : r->p1);

    return count_between(x, r->p0, r->p1) > x->moved || count_between(x, to0, to1) > both;
}

static int reserve_index(kvl_index *x, const range *r)
{
    bool apart = r->motion.divisor > 1 || meets_others(x, r);
    uint64_t n_more = apart ? 3 * (uint64_t)x->moved + x->n_moved : 3 * (uint64_t)x->n_moved;

    x->moved = x->n_moved = 0;
    return kvl_index_reserve(x, (uint32_t)kvl_min(n_more + 1, UINT32_MAX));
}

/* Each index has room to lose its parts and to take them in again. */
static int reserve_indexes(kvl_cells *c, const range *r)
{
    int status = KVLAZY_OK;

    for (const kvl_stretch *p = c->part; p < c->part + c->n_part; p++)
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(c, p->cell, o + 1)) >= 0;) {
            kvl_cells_index(c, o)->moved += p->n;
            kvl_cells_index(c, o)->n_moved++;
        }
    for (const kvl_stretch *p = c->part; p < c->part + c->n_part; p++)
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(c, p->cell, o + 1)) >= 0;)
            if (kvl_cells_index(c, o)->n_moved && reserve_index(kvl_cells_index(c, o), r))
                status = KVLAZY_ENOMEM;
    return status;
}

static void forget_parts(kvl_cells *c)
{
    free(c->part);
    c->part = NULL;
    c->n_part = 0;
}

int kvl_cells_reserve_reposition(kvl_cells *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion)
{
    const kvl_index *x = kvl_cells_index(c, seq);
    uint32_t begin = kvl_index_below(x, p0), end = kvl_index_below(x, p1);

    forget_parts(c);
    if (begin == end)
        return KVLAZY_OK;
    int status = kvl_owners_tighten_all(c, x, begin, end);
    if (!status)
        status = find_parts(c, x, begin, end);
    if (!status)
        status = reserve_indexes(c, &(range){p0, p1, motion});
    if (status)
        forget_parts(c);
    return status;
}

/* ------------------------------------------------------------------------------------------- positions */

static void take_out(kvl_cells *c, kvl_stretch part)
{
    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(c, part.cell, o + 1)) >= 0;)
        kvl_index_remove_run(kvl_cells_index(c, o), part);
}

/* Tokens between which others stand go in one by one. */
static void bring_in(kvl_cells *c, kvl_stretch part)
{
    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(c, part.cell, o + 1)) >= 0;) {
        kvl_index *x = kvl_cells_index(c, o);
        kvlazy_pos last = part.pos + (kvlazy_pos)part.n - 1;
        bool alone = kvl_index_below(x, last + 1) == kvl_index_below(x, part.pos + 1);

        for (uint32_t i = 0; alone ? !i : i < part.n; i++)
            kvl_index_insert_run(x, (kvl_stretch){part.pos + (kvlazy_pos)i, part.cell + i, alone ? part.n : 1});
    }
}

static void drop(kvl_cells *c, uint32_t cell, uint32_t n, uint64_t stamp)
{
    if (kvl_is_shared(c->owner[cell]))
        kvl_sets_leave(&c->sets, c->owner[cell] & ~KVL_SHARED, n);
    kvl_cells_vacate(c, cell, n, stamp);
}

/* A context shift moves tens of thousands of these, so they go in loops that the compiler can vectorise. */
static void shift_cells(kvl_cells *c, uint32_t cell, uint32_t n, kvlazy_pos delta)
{
    kvlazy_pos *pos = c->pos + cell, *shift = c->shift + cell;
    uint32_t n_shifted = 0;

    for (uint32_t k = 0; k < n; k++)
        pos[k] += delta;
    for (uint32_t k = 0; k < n; k++) {
        n_shifted -= shift[k] != 0;
        shift[k] += delta;
        n_shifted += shift[k] != 0;
    }
    c->n_shifted += n_shifted;
}

/* Tokens that are in no index move, and come into each again. */
static void move_part(kvl_cells *c, kvl_stretch part, int64_t delta, uint64_t stamp)
{
    uint32_t n_gone = part.pos + delta < 0 ? (uint32_t)kvl_min((uint64_t) - (part.pos + delta), part.n) : 0;

    if (n_gone)
        drop(c, part.cell, n_gone, stamp);
    part = (kvl_stretch){part.pos + (kvlazy_pos)n_gone, part.cell + n_gone, part.n - n_gone};
    if (!part.n)
        return;
    shift_cells(c, part.cell, part.n, (kvlazy_pos)delta);
    part.pos += (kvlazy_pos)delta;
    bring_in(c, part);
}

static int64_t moved(int64_t pos, kvl_motion motion)
{
    int64_t to = pos + motion.delta;

    return motion.divisor == 1 || to < 0 ? to : to / motion.divisor;
}

void kvl_cells_reposition(kvl_cells *c, kvl_motion motion, uint64_t stamp)
{
    for (const kvl_stretch *p = c->part; p < c->part + c->n_part; p++)
        take_out(c, *p);
    for (const kvl_stretch *p = c->part; p < c->part + c->n_part; p++) {
        if (motion.divisor == 1)
            move_part(c, *p, motion.delta, stamp);
        for (uint32_t i = 0; motion.divisor != 1 && i < p->n; i++) {
            kvlazy_pos pos = p->pos + (kvlazy_pos)i;

            move_part(c, (kvl_stretch){pos, p->cell + i, 1}, moved(pos, motion) - pos, stamp);
        }
    }
    forget_parts(c);
}

/* ------------------------------------------------------------------------------------------- moving cells */

/* How many cells from `from` on, n at most, go in one: their tokens follow one another and have the same owners. */
static uint32_t part_length(const kvl_cells *c, uint32_t from, uint32_t n)
{
    uint32_t same = kvl_cells_same_owners(c, from, n), k = 1;

    while (k < same && c->pos[from + k] == c->pos[from] + (kvlazy_pos)k)
        k++;
    return k;
}

uint32_t kvl_cells_parts(const kvl_cells *c, uint32_t from, uint32_t n)
{
    uint32_t n_part = 0;

    for (uint32_t i = 0; i < n; i += part_length(c, from + i, n - i))
        n_part++;
    return n_part;
}

int kvl_cells_reserve_move(kvl_cells *c, uint32_t from, uint32_t n, uint32_t n_part)
{
    for (uint32_t i = 0; !c->mirror && i < n; i += part_length(c, from + i, n - i))
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(c, from + i, o + 1)) >= 0;)
            if (kvl_cells_reserve_seq(c, o, (uint32_t)kvl_min(2 * (uint64_t)n_part, UINT32_MAX)))
                return KVLAZY_ENOMEM;
    return KVLAZY_OK;
}

static void move_columns(kvl_cells *c, uint32_t from, uint32_t to, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        kvl_cells_put(c, to + i, c->pos[from + i]);
        kvl_cells_set_shift(c, to + i, c->shift[from + i]);
    }
    memcpy(c->owner + to, c->owner + from, n * sizeof *c->owner);
    if (c->planes) {
        memcpy(c->ext_y + to, c->ext_y + from, n * sizeof *c->ext_y);
        memcpy(c->ext_x + to, c->ext_x + from, n * sizeof *c->ext_x);
    }
}

void kvl_cells_move(kvl_cells *c, uint32_t from, uint32_t to, uint32_t n, uint64_t stamp)
{
    KVL_ASSERT(to + n <= from);
    for (uint32_t i = 0, k; i < n; i += k) {
        k = part_length(c, from + i, n - i);
        if (kvl_cells_reserve_move(c, from + i, k, 1)) {
            KVL_ASSERT(!"room to move tokens was made");
            return;
        }
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(c, from + i, o + 1)) >= 0;)
            kvl_index_rename_run(kvl_cells_index(c, o), (kvl_stretch){c->pos[from + i], from + i, k}, to + i);
        move_columns(c, from + i, to + i, k);
        kvl_cells_vacate(c, from + i, k, stamp);
    }
}
