/* SPDX-License-Identifier: MIT */
/* cells: see cells.h. */
#include "cells.h"

#include <bsd/stdlib.h>

enum { FIRST_CELLS = 256, FIRST_ENTRIES = 64 };

int kvl_cells_init(kvl_cells *c, uint32_t kv_size, uint32_t n_seq_max, uint32_t seq_first, uint32_t n_seq)
{
    *c = (kvl_cells){
        .kv_size = kv_size,
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
 *     | owner: n · owner_words · 8 | used | fallow | keep: n / 8 each | pos: n · 4 | emptied: n · 4 |
 */
static bool carve(kvl_cells *c, uint32_t n_cell)
{
    size_t words = kvl_bits_words(n_cell);
    uint64_t owner_bytes, bytes;

    if (kvl_mul_overflows((uint64_t)n_cell * sizeof(uint64_t), c->owner_words, &owner_bytes) ||
        kvl_add_overflows(owner_bytes, 3 * words * sizeof(uint64_t) + 2 * (uint64_t)n_cell * sizeof(uint32_t), &bytes) ||
        bytes > PTRDIFF_MAX)
        return false;
    c->owner = malloc((size_t)bytes);
    if (!c->owner)
        return false;
    c->used = c->owner + (size_t)n_cell * c->owner_words;
    c->fallow = c->used + words;
    c->keep = c->fallow + words;
    c->pos = (kvlazy_pos *)(c->keep + words);
    c->emptied = (uint32_t *)(c->pos + n_cell);
    c->n_cell = n_cell;
    return true;
}

int kvl_cells_reserve(kvl_cells *c, uint32_t n_cell)
{
    kvl_cells grown = *c;

    if (KVL_LIKELY(n_cell <= c->n_cell))
        return KVLAZY_OK;
    uint64_t wanted = kvl_round_up(kvl_max(kvl_max(n_cell, 2 * (uint64_t)c->n_cell), FIRST_CELLS), KVL_WORD_BITS);
    if (!carve(&grown, (uint32_t)kvl_min(wanted, c->kv_size)))
        return KVLAZY_ENOMEM;

    size_t old_words = kvl_bits_words(c->n_cell), words = kvl_bits_words(grown.n_cell);
    size_t old_owners = (size_t)c->n_cell * c->owner_words, owners = (size_t)grown.n_cell * c->owner_words;
    if (c->n_cell) {
        memcpy(grown.owner, c->owner, old_owners * sizeof(uint64_t));
        memcpy(grown.used, c->used, old_words * sizeof(uint64_t));
        memcpy(grown.fallow, c->fallow, old_words * sizeof(uint64_t));
        memcpy(grown.pos, c->pos, c->n_cell * sizeof(kvlazy_pos));
        memcpy(grown.emptied, c->emptied, c->n_cell * sizeof(uint32_t));
    }
    memset(grown.owner + old_owners, 0, (owners - old_owners) * sizeof(uint64_t));
    memset(grown.used + old_words, 0, (words - old_words) * sizeof(uint64_t));
    memset(grown.fallow + old_words, 0, (words - old_words) * sizeof(uint64_t));
    memset(grown.keep, 0, words * sizeof(uint64_t));
    memset(grown.pos + c->n_cell, 0xff, (grown.n_cell - c->n_cell) * sizeof(kvlazy_pos));
    memset(grown.emptied + c->n_cell, 0, (grown.n_cell - c->n_cell) * sizeof(uint32_t));
    free(c->owner);
    *c = grown;
    return KVLAZY_OK;
}

int kvl_cells_reserve_seq(kvl_cells *c, kvlazy_seq_id seq, uint32_t n_more)
{
    kvl_index *x = kvl_cells_index(c, seq);
    uint64_t wanted = (uint64_t)x->n + n_more;

    if (KVL_LIKELY(x->head + wanted <= x->cap))
        return KVLAZY_OK;
    /* A window that slid leaves room in front; taking it back when it is half of all costs O(1) a token. */
    if (wanted <= x->cap / 2) {
        memmove(x->entry, x->entry + x->head, x->n * sizeof *x->entry);
        x->head = 0;
        return KVLAZY_OK;
    }
    uint64_t cap = kvl_max(kvl_max(x->head + wanted, 2 * (uint64_t)x->cap), FIRST_ENTRIES);
    if (cap > UINT32_MAX)
        return KVLAZY_ENOMEM;
    kvl_entry *entry = reallocarray(x->entry, (size_t)cap, sizeof *entry);
    if (!entry)
        return KVLAZY_ENOMEM;
    x->entry = entry;
    x->cap = (uint32_t)cap;
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

/* ------------------------------------------------------------------------------------------- index */

uint32_t kvl_index_below(const kvl_index *x, kvlazy_pos p)
{
    uint32_t low = 0, high = x->n;

    if (!x->n || p > kvl_index_max(x))
        return x->n; /* where most tokens go */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (kvl_index_at(x, middle)->pos < p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void index_insert(kvl_index *x, kvlazy_pos pos, uint32_t cell)
{
    uint32_t i = kvl_index_below(x, pos + 1);
    kvl_entry *at = x->entry + x->head + i;

    KVL_ASSERT(x->head + x->n < x->cap);
    memmove(at + 1, at, (x->n - i) * sizeof *at);
    *at = (kvl_entry){pos, cell};
    x->n++;
}

static void index_cut(kvl_index *x, uint32_t begin, uint32_t end)
{
    kvl_entry *first = x->entry + x->head;

    if (begin == 0)
        x->head += end;
    else
        memmove(first + begin, first + end, (x->n - end) * sizeof *first);
    x->n -= end - begin;
    if (!x->n)
        x->head = 0;
}

static void index_remove(kvl_index *x, kvlazy_pos pos, uint32_t cell)
{
    uint32_t i = kvl_index_below(x, pos);

    while (kvl_index_at(x, i)->cell != cell) {
        i++;
        KVL_ASSERT(i < x->n);
    }
    index_cut(x, i, i + 1);
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
    uint64_t *owner = c->owner + (size_t)cell * c->owner_words;

    KVL_ASSERT(kvl_bit_get(c->used, cell) && !kvl_bit_get(owner, (uint64_t)seq));
    kvl_bit_set(owner, (uint64_t)seq);
    index_insert(kvl_cells_index(c, seq), c->pos[cell], cell);
}

/* The cell has no owner any more. */
static void vacate(kvl_cells *c, uint32_t cell, uint32_t stamp)
{
    kvl_bit_clear(c->used, cell);
    kvl_bit_set(c->fallow, cell);
    c->pos[cell] = -1;
    c->emptied[cell] = stamp;
    c->n_fallow++;
    c->n_used--;
    if (cell < c->free_min)
        c->free_min = cell;
    if (cell + 1 == c->used_end)
        c->used_end = (uint32_t)kvl_bits_top(c->used, cell);
}

void kvl_cells_empty(kvl_cells *c, uint32_t cell, uint32_t stamp)
{
    uint64_t *owner = c->owner + (size_t)cell * c->owner_words;
    kvlazy_seq_id seq = -1;

    while ((seq = kvl_cells_next_owner(c, cell, seq + 1)) >= 0) {
        index_remove(kvl_cells_index(c, seq), c->pos[cell], cell);
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

        kvl_bit_clear(c->owner + (size_t)cell * c->owner_words, (uint64_t)seq);
        if (kvl_cells_next_owner(c, cell, 0) < 0)
            vacate(c, cell, stamp);
    }
    index_cut(x, begin, end);
    return end - begin;
}

void kvl_cells_clear(kvl_cells *c, uint32_t stamp)
{
    for (uint64_t cell = 0; (cell = kvl_bits_next(c->used, cell, c->used_end, true)) < c->used_end; cell++) {
        memset(c->owner + cell * c->owner_words, 0, c->owner_words * sizeof(uint64_t));
        kvl_bit_set(c->fallow, cell);
        c->pos[cell] = -1;
        c->emptied[cell] = stamp;
    }
    if (c->n_cell)
        kvl_bits_fill(c->used, 0, c->used_end, false);
    for (uint32_t i = 0; i < c->n_seq; i++)
        c->index[i].head = c->index[i].n = 0;
    c->n_fallow += c->n_used;
    c->n_used = c->used_end = c->free_min = 0;
}

void kvl_cells_settle(kvl_cells *c, uint32_t cell)
{
    KVL_ASSERT(kvl_bit_get(c->fallow, cell));
    kvl_bit_clear(c->fallow, cell);
    c->n_fallow--;
}

void kvl_cells_age_all(kvl_cells *c, uint32_t stamp, uint64_t passed, uint32_t max)
{
    uint32_t end = c->n_fallow ? c->n_cell : 0;

    for (uint32_t i = 0; (i = (uint32_t)kvl_bits_next(c->fallow, i, end, true)) < end; i++)
        if (kvl_cells_age(c, i, stamp) + passed > max)
            c->emptied[i] = stamp + (uint32_t)passed - max;
}

uint32_t kvl_cells_recent_end(const kvl_cells *c, uint32_t stamp, uint32_t age)
{
    uint32_t top = c->n_fallow ? c->n_cell : 0;

    while ((top = (uint32_t)kvl_bits_top(c->fallow, top)) > c->used_end)
        if (kvl_cells_age(c, top - 1, stamp) < age)
            return top;
        else
            top--;
    return c->used_end;
}

/* ------------------------------------------------------------------------------------------- check */

#define MUST_BE(what, kept, counted)                                                \
    do {                                                                            \
        uint64_t kept_ = (uint64_t)(kept), counted_ = (uint64_t)(counted);          \
        if (kept_ != counted_)                                                      \
            return (kvl_fault){what, kept_, counted_};                              \
    } while (0)

static kvl_fault check_cell(const kvl_cells *c, uint32_t cell, uint64_t *n_owner)
{
    const uint64_t *owner = c->owner + (size_t)cell * c->owner_words;
    uint64_t n = kvl_bits_count(owner, 0, (uint64_t)c->owner_words * KVL_WORD_BITS);
    bool used = kvl_bit_get(c->used, cell);

    MUST_BE("a cell is used exactly if it has a position, cell", c->pos[cell] >= 0, used);
    MUST_BE("a cell is used exactly if it has an owner, cell", n > 0, used);
    MUST_BE("a live cell is not fallow, cell", used && kvl_bit_get(c->fallow, cell), 0);
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
        MUST_BE("index owner bit", kvl_bit_get(c->owner + (size_t)e->cell * c->owner_words, (uint64_t)seq), 1);
        MUST_BE("index order", i && e->pos < kvl_index_at(x, i - 1)->pos, 0);
    }
    *n_entry += x->n;
    return (kvl_fault){0};
}

kvl_fault kvl_cells_check(const kvl_cells *c)
{
    kvl_fault fault = {0};
    uint64_t n_owner = 0, n_entry = 0;

    MUST_BE("array room past kv_size", c->n_cell > c->kv_size, 0);
    for (uint32_t cell = 0; !fault.what && cell < c->n_cell; cell++)
        fault = check_cell(c, cell, &n_owner);
    for (uint32_t i = 0; !fault.what && i < c->n_seq; i++)
        fault = check_index(c, (kvlazy_seq_id)(c->seq_first + i), &n_entry);
    if (fault.what)
        return fault;
    MUST_BE("index entries", n_entry, n_owner);
    MUST_BE("n_used", c->n_used, c->n_cell ? kvl_bits_count(c->used, 0, c->n_cell) : 0);
    MUST_BE("n_fallow", c->n_fallow, c->n_cell ? kvl_bits_count(c->fallow, 0, c->n_cell) : 0);
    MUST_BE("used_end", c->used_end, c->n_cell ? kvl_bits_top(c->used, c->n_cell) : 0);
    MUST_BE("free_min past the arrays", c->free_min > c->n_cell, 0);
    MUST_BE("live cells below free_min", kvl_bits_count(c->used, 0, c->free_min), c->free_min);
    return fault;
}
