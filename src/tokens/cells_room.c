/* SPDX-License-Identifier: MIT */
/* cells_room: the room of cells.h: what it takes, how it grows and goes. */
#include "tokens/owners.h"

enum {
    FIRST_CELLS = KVL_WORD_BITS,
    STEP_CELLS = 1024, /* cells that begin to exist at once, in room that is there */
};

int kvl_cells_init(kvl_cells *c, uint32_t kv_size, uint32_t seq_first, uint32_t n_seq, bool planes)
{
    *c = (kvl_cells){
        .kv_size = kv_size,
        .planes = planes,
        .seq_first = seq_first,
        .n_seq = n_seq,
        .index = calloc(n_seq, sizeof *c->index),
    };
    kvl_sets_init(&c->sets, n_seq);
    return c->index ? KVLAZY_OK : KVLAZY_ENOMEM;
}

void kvl_cells_fini(kvl_cells *c)
{
    for (uint32_t i = 0; c->index && i < c->n_seq; i++)
        free(c->index[i].piece);
    free(c->index);
    free(c->emptied);
    free(c->part);
    kvl_sets_fini(&c->sets);
    *c = (kvl_cells){0};
}

/* ------------------------------------------------------------------------------------------- the arrays */

/* Bytes of the arrays with room for so many cells, a multiple of 64 or all. */
static uint64_t block_bytes(const kvl_cells *c, uint32_t cap_cell)
{
    uint64_t n_column = (c->planes ? 5 : 3);

    return cap_cell * (sizeof(uint64_t) + n_column * sizeof(uint32_t)) +
           4 * kvl_bits_words(cap_cell) * sizeof(uint64_t);
}

/* The arrays as parts of one block, widest first, so that growing is one allocation: all or nothing.
 *
 *     | emptied: n · 8 | used | fallow | ahead | keep: n / 8 each | owner | pos | shift | ext_y | ext_x: n · 4 each |
 */
static bool carve(kvl_cells *c, uint32_t cap_cell)
{
    size_t words = kvl_bits_words(cap_cell);
    uint64_t bytes = block_bytes(c, cap_cell);

    if (bytes > PTRDIFF_MAX)
        return false;
    c->emptied = malloc((size_t)bytes);
    if (!c->emptied)
        return false;
    c->used = c->emptied + cap_cell;
    c->fallow = c->used + words;
    c->ahead = c->fallow + words;
    c->keep = c->ahead + words;
    c->owner = (uint32_t *)(c->keep + words);
    c->pos = (kvlazy_pos *)(c->owner + cap_cell);
    c->shift = c->pos + cap_cell;
    c->ext_y = c->planes ? c->shift + cap_cell : NULL;
    c->ext_x = c->planes ? c->ext_y + cap_cell : NULL;
    c->cap_cell = cap_cell;
    return true;
}

/* The first n cells that `from` has; `to` has room for them. */
static void copy_arrays(kvl_cells *to, const kvl_cells *from, size_t n)
{
    size_t words = kvl_bits_words(n);

    if (!n)
        return;
    memcpy(to->emptied, from->emptied, n * sizeof *to->emptied);
    memcpy(to->used, from->used, words * sizeof *to->used);
    memcpy(to->fallow, from->fallow, words * sizeof *to->fallow);
    memcpy(to->ahead, from->ahead, words * sizeof *to->ahead);
    memcpy(to->keep, from->keep, words * sizeof *to->keep);
    memcpy(to->owner, from->owner, n * sizeof *to->owner);
    memcpy(to->pos, from->pos, n * sizeof *to->pos);
    memcpy(to->shift, from->shift, n * sizeof *to->shift);
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

    memset(c->emptied + old, 0, n * sizeof *c->emptied);
    memset(c->used + old_words, 0, words * sizeof *c->used);
    memset(c->fallow + old_words, 0, words * sizeof *c->fallow);
    memset(c->ahead + old_words, 0, words * sizeof *c->ahead);
    memset(c->keep + old_words, 0, words * sizeof *c->keep);
    memset(c->owner + old, 0, n * sizeof *c->owner);
    memset(c->pos + old, 0xff, n * sizeof *c->pos);
    memset(c->shift + old, 0, n * sizeof *c->shift);
    if (c->planes) {
        memset(c->ext_y + old, 0, n * sizeof *c->ext_y);
        memset(c->ext_x + old, 0, n * sizeof *c->ext_x);
    }
    c->n_cell = n_cell;
    c->reach = (uint32_t)kvl_max(c->reach, n_cell);
}

/* The first n cells in a block with room for `cap`. Returns false without memory: unchanged. */
static bool move_block(kvl_cells *c, uint32_t n, uint32_t cap)
{
    kvl_cells moved = *c;

    if (!carve(&moved, cap))
        return false;
    copy_arrays(&moved, c, n);
    free(c->emptied);
    *c = moved;
    c->n_cell = n;
    return true;
}

/* ------------------------------------------------------------------------------------------- growing */

int kvl_cells_reserve_slow(kvl_cells *c, uint32_t n_cell)
{
    if (n_cell > c->cap_cell) {
        uint64_t cap = kvl_round_up(kvl_max(kvl_max(n_cell, 2 * (uint64_t)c->cap_cell), FIRST_CELLS), KVL_WORD_BITS);

        if (!move_block(c, c->n_cell, (uint32_t)kvl_min(cap, c->kv_size)))
            return KVLAZY_ENOMEM;
    }
    begin_cells(c, (uint32_t)kvl_min(kvl_round_up(n_cell, STEP_CELLS), c->cap_cell));
    return KVLAZY_OK;
}

int kvl_cells_reserve_seq(kvl_cells *c, kvlazy_seq_id seq, uint32_t n_more)
{
    return kvl_index_reserve(kvl_cells_index(c, seq), n_more);
}

int kvl_cells_reserve_sets(kvl_cells *c, uint32_t n)
{
    return kvl_sets_reserve(&c->sets, n);
}

int kvl_cells_copy(kvl_cells *to, const kvl_cells *from)
{
    int status = kvl_cells_init(to, from->kv_size, from->seq_first, from->n_seq, from->planes);

    to->mirror = from->mirror;
    if (!status)
        status = kvl_sets_copy(&to->sets, &from->sets);
    if (!status && from->n_cell && !carve(to, from->n_cell))
        status = KVLAZY_ENOMEM;
    for (uint32_t i = 0; !status && i < from->n_seq; i++)
        status = kvl_index_copy(&to->index[i], &from->index[i]);
    if (status) {
        kvl_cells_fini(to);
        return status;
    }
    copy_arrays(to, from, from->n_cell);
    to->n_cell = to->reach = from->n_cell;
    to->n_used = from->n_used;
    to->n_fallow = from->n_fallow;
    to->n_shifted = from->n_shifted;
    to->used_end = from->used_end;
    to->free_min = from->free_min;
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- giving back */

/* Blocks of half the size or less are worth a copy. */
static void shrink_block(kvl_cells *c)
{
    uint32_t end = (uint32_t)kvl_max(c->used_end, c->n_fallow ? kvl_bits_top(c->fallow, c->n_cell) : 0);
    uint32_t n = (uint32_t)kvl_min(kvl_round_up(end, KVL_WORD_BITS), c->n_cell);

    if (!n) {
        free(c->emptied);
        c->emptied = c->used = c->fallow = c->ahead = c->keep = NULL;
        c->owner = NULL;
        c->pos = c->shift = c->ext_y = c->ext_x = NULL;
        c->n_cell = c->cap_cell = c->free_min = 0;
    } else if (n <= c->cap_cell / 2) {
        move_block(c, n, n);
    }
}

void kvl_cells_shrink_room(kvl_cells *c)
{
    shrink_block(c);
    for (uint32_t i = 0; i < c->n_seq; i++)
        kvl_index_shrink(&c->index[i]);
    kvl_sets_shrink(&c->sets);
}

uint64_t kvl_cells_bytes(const kvl_cells *c)
{
    uint64_t bytes = block_bytes(c, c->cap_cell) + c->n_seq * (uint64_t)sizeof *c->index + kvl_sets_bytes(&c->sets) +
                     c->n_part * (uint64_t)sizeof *c->part;

    for (uint32_t i = 0; i < c->n_seq; i++)
        bytes += kvl_index_bytes(&c->index[i]);
    return bytes;
}
