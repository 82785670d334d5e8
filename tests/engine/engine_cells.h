/* SPDX-License-Identifier: MIT */
/*
 * engine_cells: an engine's own table of cells, as engines had it before: positions, owners and shifts, in arrays. The
 * memory-only back end keeps its tokens here and lets kvlazy ask about them. Every sequence holds the positions 0 to
 * n_pos - 1, each once. It knows neither rows nor memory, and never chooses which tokens go.
 */
#ifndef KVLAZY_TESTS_ENGINE_CELLS_H
#define KVLAZY_TESTS_ENGINE_CELLS_H

#include <kvlazy/kvlazy.h>

typedef struct engine_cells {
    uint32_t n_stream, kv_size, n_seq;
    kvlazy_pos *pos, *shift;     /* [n_stream][kv_size]; pos -1: empty */
    uint64_t *owner;             /* [n_stream][kv_size]: bit i is sequence i */
    uint32_t *n_used, *used_end; /* [n_stream] */
    uint32_t *n_pos;             /* [n_seq] */
    bool is_shifted;
} engine_cells;

/** `cells` is all zero. Fails: EINVAL for more than 64 sequences; ENOMEM, and engine_cells_free is due all the same. */
int engine_cells_init(engine_cells *cells, uint32_t n_stream, uint32_t kv_size, uint32_t n_seq);
void engine_cells_free(engine_cells *cells);

bool engine_cells_is_used(const engine_cells *cells, uint32_t stream, uint32_t cell);

/** The first empty cell from `from` on, below `end`; else `end`. */
uint32_t engine_cells_next_free(const engine_cells *cells, uint32_t stream, uint32_t from, uint32_t end);

/** The sequence's next position goes into an empty cell, or into one that others have at this position already. */
void engine_cells_put(engine_cells *cells, uint32_t stream, uint32_t cell, kvlazy_seq_id seq);

/** The sequence keeps its first n positions. */
void engine_cells_cut(engine_cells *cells, kvlazy_seq_id seq, uint32_t n);

/** The positions [p0, p1) go, and those behind move down to p0 for every owner, to be turned. */
void engine_cells_discard(engine_cells *cells, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);

/** n used cells go down to empty ones. */
void engine_cells_move(engine_cells *cells, uint32_t stream, uint32_t from, uint32_t to, uint32_t n);

/** cell[p] holds position p of the sequence, p < n_pos. False: it does not hold exactly these. */
bool engine_cells_place(const engine_cells *cells, kvlazy_seq_id seq, uint32_t *cell, uint32_t n_pos);

/** No K is to be turned any more. */
void engine_cells_shift_done(engine_cells *cells);

static inline uint32_t engine_cells_stream(const engine_cells *cells, kvlazy_seq_id seq)
{
    return cells->n_stream == 1 ? 0 : (uint32_t)seq;
}

#endif
