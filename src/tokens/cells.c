/* SPDX-License-Identifier: MIT */
/* cells: see cells.h. */
#include "tokens/cells.h"

enum {
    FIRST_CELLS = 256,
    STEP_CELLS = 1024, /* cells that begin to exist at once, in room that is there */
};

int kvl_cells_init(kvl_cells *c, uint32_t kv_size, uint32_t n_seq_max, uint32_t seq_first, uint32_t n_seq, bool planes)
{
    *c = (kvl_cells){
        .kv_size = kv_size,
        .planes = planes,
        .owner_words = (uint32_t)kvl_bits_words(n_seq_max),
        .seq_first = seq_first,
        .n_seq = n_seq,
        .index = calloc(n_seq, sizeof *c->index),
    };
    return c->index ? KVLAZY_OK : KVLAZY_ENOMEM;
}

void kvl_cells_fini(kvl_cells *c)
{
    for (uint32_t i = 0; c->index && i < c->n_seq; i++)
        free(c->index[i].entry);
    free(c->index);
    free(c->owner);
    *c = (kvl_cells){0};
}

/* ------------------------------------------------------------------------------------------- room */

/* The arrays as parts of one block, widest first, so that growing is one allocation: all or nothing.
 *
 *     | owner: n · owner_words · 8 | used | fallow | ahead | keep: n / 8 each | pos | shift | emptied | ext_y | ext_x:
 * n · 4 |
 */
static bool carve(kvl_cells *c, uint32_t cap_cell)
{
    size_t words = kvl_bits_words(cap_cell), n_column = c->planes ? 5 : 3;
    uint64_t owner_bytes, bytes;

    if (kvl_mul_overflows((uint64_t)cap_cell * sizeof(uint64_t), c->owner_words, &owner_bytes) ||
        kvl_add_overflows(owner_bytes, 4 * words * sizeof(uint64_t) + n_column * (uint64_t)cap_cell * sizeof(uint32_t),
                          &bytes) ||
        bytes > PTRDIFF_MAX)
        return false;
    c->owner = malloc((size_t)bytes);
    if (!c->owner)
        return false;
    c->used = c->owner + (size_t)cap_cell * c->owner_words;
    c->fallow = c->used + words;
    c->ahead = c->fallow + words;
    c->keep = c->ahead + words;
    c->pos = (kvlazy_pos *)(c->keep + words);
    c->shift = c->pos + cap_cell;
    c->emptied = (uint32_t *)(c->shift + cap_cell);
    c->ext_y = c->planes ? (kvlazy_pos *)(c->emptied + cap_cell) : NULL;
    c->ext_x = c->planes ? c->ext_y + cap_cell : NULL;
    c->cap_cell = cap_cell;
    return true;
}

/* The cells that `from` has; `to` has room for them. */
static void copy_arrays(kvl_cells *to, const kvl_cells *from)
{
    size_t n = from->n_cell, words = kvl_bits_words(n);

    if (!n)
        return;
    memcpy(to->owner, from->owner, n * from->owner_words * sizeof *to->owner);
    memcpy(to->used, from->used, words * sizeof *to->used);
    memcpy(to->fallow, from->fallow, words * sizeof *to->fallow);
    memcpy(to->ahead, from->ahead, words * sizeof *to->ahead);
    memcpy(to->keep, from->keep, words * sizeof *to->keep);
    memcpy(to->pos, from->pos, n * sizeof *to->pos);
    memcpy(to->shift, from->shift, n * sizeof *to->shift);
    memcpy(to->emptied, from->emptied, n * sizeof *to->emptied);
    if (from->planes) {
        memcpy(to->ext_y, from->ext_y, n * sizeof *to->ext_y);
        memcpy(to->ext_x, from->ext_x, n * sizeof *to->ext_x);
    }
}

/* Cells up to n_cell begin to exist, empty. What lies behind in the block is not touched, so it costs no memory. */
static void begin_cells(kvl_cells *c, uint32_t n_cell)
{
    size_t old = c->n_cell, n = n_cell - old, old_words = kvl_bits_words(old),
           words = kvl_bits_words(n_cell) - old_words;

    memset(c->owner + old * c->owner_words, 0, n * c->owner_words * sizeof *c->owner);
    memset(c->used + old_words, 0, words * sizeof *c->used);
    memset(c->fallow + old_words, 0, words * sizeof *c->fallow);
    memset(c->ahead + old_words, 0, words * sizeof *c->ahead);
    memset(c->keep + old_words, 0, words * sizeof *c->keep);
    memset(c->pos + old, 0xff, n * sizeof *c->pos);
    memset(c->shift + old, 0, n * sizeof *c->shift);
    memset(c->emptied + old, 0, n * sizeof *c->emptied);
    if (c->planes) {
        memset(c->ext_y + old, 0, n * sizeof *c->ext_y);
        memset(c->ext_x + old, 0, n * sizeof *c->ext_x);
    }
    c->n_cell = n_cell;
}

int kvl_cells_reserve(kvl_cells *c, uint32_t n_cell)
{
    if (KVL_LIKELY(n_cell <= c->n_cell))
        return KVLAZY_OK;
    if (n_cell > c->cap_cell) {
        uint64_t cap = kvl_round_up(kvl_max(kvl_max(n_cell, 2 * (uint64_t)c->cap_cell), FIRST_CELLS), KVL_WORD_BITS);
        kvl_cells grown = *c;

        if (!carve(&grown, (uint32_t)kvl_min(cap, c->kv_size)))
            return KVLAZY_ENOMEM;
        copy_arrays(&grown, c);
        free(c->owner);
        *c = grown;
    }
    begin_cells(c, (uint32_t)kvl_min(kvl_round_up(n_cell, STEP_CELLS), c->cap_cell));
    return KVLAZY_OK;
}

int kvl_cells_reserve_seq(kvl_cells *c, kvlazy_seq_id seq, uint32_t n_more)
{
    return kvl_index_reserve(kvl_cells_index(c, seq), n_more);
}

int kvl_cells_copy(kvl_cells *to, const kvl_cells *from)
{
    int status = kvl_cells_init(to, from->kv_size, 1, from->seq_first, from->n_seq, from->planes);

    to->owner_words = from->owner_words;
    if (!status && from->n_cell && !carve(to, from->n_cell))
        status = KVLAZY_ENOMEM;
    for (uint32_t i = 0; !status && i < from->n_seq; i++)
        status = kvl_cells_reserve_seq(to, (kvlazy_seq_id)(from->seq_first + i), from->index[i].n);
    if (status) {
        kvl_cells_fini(to);
        return status;
    }
    copy_arrays(to, from);
    to->n_cell = from->n_cell;
    for (uint32_t i = 0; i < from->n_seq; i++) {
        if (from->index[i].n)
            memcpy(to->index[i].entry, kvl_index_at(&from->index[i], 0), from->index[i].n * sizeof(kvl_entry));
        to->index[i].n = from->index[i].n;
    }
    to->n_used = from->n_used;
    to->n_fallow = from->n_fallow;
    to->n_shifted = from->n_shifted;
    to->used_end = from->used_end;
    to->free_min = from->free_min;
    return KVLAZY_OK;
}

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

void kvl_cells_own(kvl_cells *c, uint32_t cell, kvlazy_seq_id seq)
{
    uint64_t *owner = kvl_cells_owners(c, cell);

    KVL_ASSERT(kvl_bit_get(c->used, cell) && !kvl_bit_get(owner, (uint64_t)seq));
    kvl_bit_set(owner, (uint64_t)seq);
    kvl_index_insert(kvl_cells_index(c, seq), c->pos[cell], cell);
}

/* The cell has no owner any more. */
static void vacate(kvl_cells *c, uint32_t cell, uint32_t stamp)
{
    kvl_bit_clear(c->used, cell);
    kvl_bit_set(c->fallow, cell);
    c->pos[cell] = -1;
    c->emptied[cell] = stamp;
    kvl_cells_set_shift(c, cell, 0);
    if (c->planes)
        c->ext_y[cell] = c->ext_x[cell] = 0;
    c->n_fallow++;
    c->n_used--;
    if (cell < c->free_min)
        c->free_min = cell;
    if (cell + 1 == c->used_end)
        c->used_end = (uint32_t)kvl_bits_top(c->used, cell);
}

void kvl_cells_empty(kvl_cells *c, uint32_t cell, uint32_t stamp)
{
    uint64_t *owner = kvl_cells_owners(c, cell);
    kvlazy_seq_id seq = -1;

    while ((seq = kvl_cells_next_owner(c, cell, seq + 1)) >= 0) {
        kvl_index_remove(kvl_cells_index(c, seq), c->pos[cell], cell);
        kvl_bit_clear(owner, (uint64_t)seq);
    }
    vacate(c, cell, stamp);
}

uint32_t kvl_cells_rm(kvl_cells *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, uint32_t stamp)
{
    kvl_index *x = kvl_cells_index(c, seq);
    uint32_t begin = kvl_index_below(x, p0), end = kvl_index_below(x, p1);

    if (begin >= end)
        return 0;
    for (uint32_t i = begin; i < end; i++) {
        uint32_t cell = kvl_index_at(x, i)->cell;

        kvl_bit_clear(kvl_cells_owners(c, cell), (uint64_t)seq);
        if (kvl_cells_next_owner(c, cell, 0) < 0)
            vacate(c, cell, stamp);
    }
    kvl_index_cut(x, begin, end);
    return end - begin;
}

void kvl_cells_clear(kvl_cells *c, uint32_t stamp)
{
    size_t n = c->used_end;

    for (size_t w = 0; w < kvl_bits_words(n); w++) {
        uint64_t used = c->used[w];
        uint32_t *emptied = c->emptied + w * KVL_WORD_BITS;

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
        memset(c->owner, 0, n * c->owner_words * sizeof *c->owner);
        memset(c->pos, 0xff, n * sizeof *c->pos);
    }
    if (n && c->planes) {
        memset(c->ext_y, 0, n * sizeof *c->ext_y);
        memset(c->ext_x, 0, n * sizeof *c->ext_x);
    }
    kvl_cells_rotated(c); /* nothing is left that waits */
    for (uint32_t i = 0; i < c->n_seq; i++)
        kvl_index_clear(&c->index[i]);
    c->n_fallow += c->n_used;
    c->n_used = c->used_end = c->free_min = 0;
}

void kvl_cells_keep_only(kvl_cells *c, kvlazy_seq_id seq, uint32_t stamp)
{
    for (uint64_t cell = 0; (cell = kvl_bits_next(c->used, cell, c->used_end, true)) < c->used_end; cell++) {
        uint64_t *owner = c->owner + cell * c->owner_words;
        bool stays = kvl_bit_get(owner, (uint64_t)seq);

        memset(owner, 0, c->owner_words * sizeof(uint64_t));
        if (stays)
            kvl_bit_set(owner, (uint64_t)seq);
        else
            vacate(c, (uint32_t)cell, stamp);
    }
    for (uint32_t i = 0; i < c->n_seq; i++)
        if (i != (uint32_t)seq - c->seq_first)
            kvl_index_clear(&c->index[i]);
}

void kvl_cells_share(kvl_cells *c, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_index *from = kvl_cells_index(c, src);
    uint32_t begin = kvl_index_below(from, p0), n = kvl_index_below(from, p1) - begin;
    const kvl_entry *copied = n ? kvl_index_add(kvl_cells_index(c, dst), kvl_index_at(from, begin), n) : NULL;

    for (uint32_t i = 0; i < n; i++)
        kvl_bit_set(kvl_cells_owners(c, copied[i].cell), (uint64_t)dst);
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

static kvlazy_pos moved(kvlazy_pos pos, kvl_motion motion)
{
    int64_t to = pos + motion.delta;

    if (motion.divisor != 1)
        to /= motion.divisor;

    return to < 0 ? -1 : (kvlazy_pos)to;
}

/* The other owners of a cell see it move. */
static void move_for_others(kvl_cells *c, kvlazy_seq_id seq, uint32_t cell, kvlazy_pos from, kvlazy_pos to)
{
    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(c, cell, o + 1)) >= 0;) {
        if (o == seq)
            continue;
        kvl_index_remove(kvl_cells_index(c, o), from, cell);
        if (to >= 0)
            kvl_index_insert(kvl_cells_index(c, o), to, cell);
    }
}

/* How many entries from i on have consecutive cells that nobody shares, and stay; 0: the first does not. A context
 * shift moves tens of thousands of these, so they go in loops that the compiler can vectorise. */
static uint32_t run_of_one(const kvl_cells *c, const kvl_index *x, uint32_t i, uint32_t end, kvl_motion motion)
{
    const kvl_entry *e = kvl_index_at(x, i);
    uint32_t n = 0;

    if (motion.divisor != 1 || c->owner_words != 1 || e->pos + motion.delta < 0)
        return 0;
    const uint64_t *owner = c->owner + e->cell;
    while (i + n < end && e[n].cell == e->cell + n && !(owner[n] & (owner[n] - 1)))
        n++;
    return n;
}

static void shift_run(kvl_cells *c, kvl_index *x, uint32_t i, uint32_t n, kvlazy_pos delta)
{
    kvl_entry *e = &x->entry[x->head + i];
    kvlazy_pos *pos = c->pos + e->cell, *shift = c->shift + e->cell;
    uint32_t n_shifted = 0;

    for (uint32_t k = 0; k < n; k++)
        e[k].pos += delta;
    for (uint32_t k = 0; k < n; k++)
        pos[k] += delta;
    for (uint32_t k = 0; k < n; k++) {
        n_shifted -= shift[k] != 0;
        shift[k] += delta;
        n_shifted += shift[k] != 0;
    }
    c->n_shifted += n_shifted;
}

void kvl_cells_reposition(kvl_cells *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion,
                          uint32_t stamp)
{
    kvl_index *x = kvl_cells_index(c, seq);
    uint32_t begin = kvl_index_below(x, p0), end = kvl_index_below(x, p1), n_gone = 0;

    for (uint32_t i = begin; i < end; i++) {
        uint32_t n_run = run_of_one(c, x, i, end, motion);

        if (n_run) {
            shift_run(c, x, i, n_run, (kvlazy_pos)motion.delta);
            i += n_run - 1;
            continue;
        }
        kvl_entry *e = &x->entry[x->head + i];
        uint64_t *owner = kvl_cells_owners(c, e->cell);
        kvlazy_pos from = e->pos, to = moved(from, motion);

        if (kvl_cells_only_owner(c, e->cell) < 0)
            move_for_others(c, seq, e->cell, from, to);
        if (to < 0) {
            memset(owner, 0, c->owner_words * sizeof(uint64_t));
            vacate(c, e->cell, stamp);
            n_gone++; /* the lowest positions, so the first of the block */
            continue;
        }
        e->pos = c->pos[e->cell] = to;
        kvl_cells_set_shift(c, e->cell, c->shift[e->cell] + (to - from));
    }
    kvl_index_cut(x, begin, begin + n_gone);
    kvl_index_merge(x, begin, end - n_gone);
}

/* ------------------------------------------------------------------------------------------- moving */

static void move_cell(kvl_cells *c, uint32_t from, uint32_t to, uint32_t stamp)
{
    uint64_t *owner = kvl_cells_owners(c, from);

    kvl_cells_put(c, to, c->pos[from]);
    memcpy(kvl_cells_owners(c, to), owner, c->owner_words * sizeof *owner);
    for (kvlazy_seq_id seq = -1; (seq = kvl_cells_next_owner(c, from, seq + 1)) >= 0;)
        kvl_index_rename(kvl_cells_index(c, seq), c->pos[from], from, to);
    memset(owner, 0, c->owner_words * sizeof *owner);
    kvl_cells_set_shift(c, to, c->shift[from]);
    if (c->planes) {
        c->ext_y[to] = c->ext_y[from];
        c->ext_x[to] = c->ext_x[from];
    }
    vacate(c, from, stamp);
}

void kvl_cells_move(kvl_cells *c, uint32_t from, uint32_t to, uint32_t n, uint32_t stamp)
{
    KVL_ASSERT(to + n <= from);
    for (uint32_t i = 0; i < n; i++)
        move_cell(c, from + i, to + i, stamp);
}

/* ------------------------------------------------------------------------------------------- decay */

void kvl_cells_settle(kvl_cells *c, uint32_t cell)
{
    KVL_ASSERT(kvl_bit_get(c->fallow, cell));
    kvl_bit_clear(c->fallow, cell);
    kvl_bit_clear(c->ahead, cell);
    c->n_fallow--;
}

void kvl_cells_ahead(kvl_cells *c, uint32_t begin, uint32_t end, uint32_t stamp)
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

void kvl_cells_age_all(kvl_cells *c, uint32_t stamp, uint64_t passed, uint32_t max)
{
    for (uint32_t i = 0; (i = kvl_cells_next_fallow(c, i)) < c->n_cell; i++)
        if (kvl_cells_age(c, i, stamp) + passed > max)
            c->emptied[i] = stamp + (uint32_t)passed - max;
}

uint32_t kvl_cells_recent_end(const kvl_cells *c, uint32_t stamp, uint32_t age)
{
    uint32_t top = c->n_fallow ? c->n_cell : 0;

    while ((top = (uint32_t)kvl_bits_top(c->fallow, top)) > c->used_end)
        if (!kvl_bit_get(c->ahead, top - 1) && kvl_cells_age(c, top - 1, stamp) < age)
            return top;
        else
            top--;
    return c->used_end;
}

/* ------------------------------------------------------------------------------------------- check */

#define MUST_BE(what, kept, counted)                                       \
    do {                                                                   \
        uint64_t kept_ = (uint64_t)(kept), counted_ = (uint64_t)(counted); \
        if (kept_ != counted_)                                             \
            return (kvl_fault){what, kept_, counted_};                     \
    } while (0)

static kvl_fault check_cell(const kvl_cells *c, uint32_t cell, uint64_t *n_owner, uint64_t *n_shifted)
{
    const uint64_t *owner = kvl_cells_owners(c, cell);
    uint64_t n = kvl_bits_count(owner, 0, (uint64_t)c->owner_words * KVL_WORD_BITS);
    bool used = kvl_bit_get(c->used, cell);

    MUST_BE("a cell is used exactly if it has a position, cell", c->pos[cell] >= 0, used);
    MUST_BE("a cell is used exactly if it has an owner, cell", n > 0, used && c->owner_words);
    MUST_BE("a live cell is not fallow, cell", used && kvl_bit_get(c->fallow, cell), 0);
    MUST_BE("a cell ahead is fallow, cell", kvl_bit_get(c->ahead, cell) && !kvl_bit_get(c->fallow, cell), 0);
    MUST_BE("an empty cell has no shift, cell", !used && c->shift[cell], 0);
    MUST_BE("an empty cell has no second plane, cell", !used && c->planes && (c->ext_y[cell] || c->ext_x[cell]), 0);
    *n_shifted += c->shift[cell] != 0;
    if (c->owner_words) /* else nobody is known to own any */
        MUST_BE("owners of this stream", kvl_bits_count(owner, c->seq_first, c->seq_first + c->n_seq), n);
    *n_owner += n;
    return (kvl_fault){0};
}

static kvl_fault check_index(const kvl_cells *c, kvlazy_seq_id seq, uint64_t *n_entry)
{
    const kvl_index *x = kvl_cells_index(c, seq);

    for (uint32_t i = 0; i < x->n; i++) {
        const kvl_entry *e = kvl_index_at(x, i);

        MUST_BE("index entry of a cell in use", kvl_cells_is_used(c, e->cell), 1);
        MUST_BE("index position", e->pos, c->pos[e->cell]);
        MUST_BE("index owner bit", kvl_cells_owns(c, e->cell, seq), 1);
        MUST_BE("index order", i && e->pos < kvl_index_at(x, i - 1)->pos, 0);
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
    for (uint32_t cell = 0; !fault.what && cell < c->n_cell; cell++)
        fault = check_cell(c, cell, &n_owner, &n_shifted);
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
