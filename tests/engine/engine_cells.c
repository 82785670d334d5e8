/* SPDX-License-Identifier: MIT */
/*
 * engine_cells: the arrays and what is done to them; engine_cells.h says for whom. Everything is a walk over the cells
 * in use of one stream, as in engines; only the counts are kept.
 */
#include "engine_cells.h"

#include <stdlib.h>
#include <string.h>

int engine_cells_init(engine_cells *cells, uint32_t n_stream, uint32_t kv_size, uint32_t n_seq)
{
    const size_t n = (size_t)n_stream * kv_size;

    if (n_seq > 64) {
        return KVLAZY_EINVAL;
    }
    cells->n_stream = n_stream;
    cells->kv_size = kv_size;
    cells->n_seq = n_seq;
    cells->pos = calloc(n, sizeof *cells->pos);
    cells->shift = calloc(n, sizeof *cells->shift);
    cells->owner = calloc(n, sizeof *cells->owner);
    cells->n_used = calloc(n_stream, sizeof *cells->n_used);
    cells->used_end = calloc(n_stream, sizeof *cells->used_end);
    cells->n_pos = calloc(n_seq, sizeof *cells->n_pos);
    if (!cells->pos || !cells->shift || !cells->owner || !cells->n_used || !cells->used_end || !cells->n_pos) {
        return KVLAZY_ENOMEM;
    }
    memset(cells->pos, 0xff, n * sizeof *cells->pos); /* -1 */
    return KVLAZY_OK;
}

void engine_cells_free(engine_cells *cells)
{
    free(cells->pos);
    free(cells->shift);
    free(cells->owner);
    free(cells->n_used);
    free(cells->used_end);
    free(cells->n_pos);
}

static size_t index_of(const engine_cells *cells, uint32_t stream, uint32_t cell)
{
    return (size_t)stream * cells->kv_size + cell;
}

bool engine_cells_is_used(const engine_cells *cells, uint32_t stream, uint32_t cell)
{
    return cells->pos[index_of(cells, stream, cell)] >= 0;
}

uint32_t engine_cells_next_free(const engine_cells *cells, uint32_t stream, uint32_t from, uint32_t end)
{
    while (from < end && engine_cells_is_used(cells, stream, from)) {
        from++;
    }
    return from < end ? from : end;
}

void engine_cells_put(engine_cells *cells, uint32_t stream, uint32_t cell, kvlazy_seq_id seq)
{
    const size_t at = index_of(cells, stream, cell);

    cells->n_used[stream] += cells->pos[at] < 0;
    cells->pos[at] = (kvlazy_pos)cells->n_pos[seq]++;
    cells->owner[at] |= UINT64_C(1) << seq;
    if (cell >= cells->used_end[stream]) {
        cells->used_end[stream] = cell + 1;
    }
}

static void lower_end(engine_cells *cells, uint32_t stream)
{
    uint32_t *end = &cells->used_end[stream];

    while (*end > 0 && !engine_cells_is_used(cells, stream, *end - 1)) {
        --*end;
    }
}

/* A cell goes with its last owner. */
static void disown(engine_cells *cells, uint32_t stream, uint32_t cell, kvlazy_seq_id seq)
{
    const size_t at = index_of(cells, stream, cell);

    cells->owner[at] &= ~(UINT64_C(1) << seq);
    if (cells->owner[at] == 0) {
        cells->pos[at] = -1;
        cells->shift[at] = 0;
        cells->n_used[stream]--;
    }
}

static bool owns(const engine_cells *cells, uint32_t stream, uint32_t cell, kvlazy_seq_id seq)
{
    return cells->owner[index_of(cells, stream, cell)] >> seq & 1;
}

void engine_cells_cut(engine_cells *cells, kvlazy_seq_id seq, uint32_t n)
{
    const uint32_t stream = engine_cells_stream(cells, seq);

    if (n >= cells->n_pos[seq]) {
        return;
    }
    for (uint32_t cell = 0; cell < cells->used_end[stream]; cell++) {
        if (owns(cells, stream, cell, seq) && cells->pos[index_of(cells, stream, cell)] >= (kvlazy_pos)n) {
            disown(cells, stream, cell, seq);
        }
    }
    cells->n_pos[seq] = n;
    lower_end(cells, stream);
}

void engine_cells_discard(engine_cells *cells, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    const uint32_t stream = engine_cells_stream(cells, seq);

    for (uint32_t cell = 0; cell < cells->used_end[stream]; cell++) {
        const size_t at = index_of(cells, stream, cell);

        if (!owns(cells, stream, cell, seq) || cells->pos[at] < p0) {
            continue;
        }
        if (cells->pos[at] < p1) {
            disown(cells, stream, cell, seq);
        } else {
            cells->pos[at] -= p1 - p0;
            cells->shift[at] -= p1 - p0;
            cells->is_shifted = true;
        }
    }
    cells->n_pos[seq] -= (uint32_t)(p1 - p0);
    lower_end(cells, stream);
}

void engine_cells_move(engine_cells *cells, uint32_t stream, uint32_t from, uint32_t to, uint32_t n)
{
    const size_t src = index_of(cells, stream, from), dst = index_of(cells, stream, to);

    memcpy(cells->pos + dst, cells->pos + src, n * sizeof *cells->pos);
    memcpy(cells->shift + dst, cells->shift + src, n * sizeof *cells->shift);
    memcpy(cells->owner + dst, cells->owner + src, n * sizeof *cells->owner);
    memset(cells->pos + src, 0xff, n * sizeof *cells->pos);
    memset(cells->shift + src, 0, n * sizeof *cells->shift);
    memset(cells->owner + src, 0, n * sizeof *cells->owner);
    lower_end(cells, stream);
}

bool engine_cells_place(const engine_cells *cells, kvlazy_seq_id seq, uint32_t *cell, uint32_t n_pos)
{
    const uint32_t stream = engine_cells_stream(cells, seq);
    uint32_t n_found = 0;

    for (uint32_t i = 0; i < cells->used_end[stream]; i++) {
        const kvlazy_pos pos = cells->pos[index_of(cells, stream, i)];

        if (owns(cells, stream, i, seq) && (uint32_t)pos < n_pos) {
            cell[pos] = i;
            n_found++;
        }
    }
    return n_found == n_pos && cells->n_pos[seq] == n_pos;
}

void engine_cells_shift_done(engine_cells *cells)
{
    memset(cells->shift, 0, (size_t)cells->n_stream * cells->kv_size * sizeof *cells->shift);
    cells->is_shifted = false;
}
