/* SPDX-License-Identifier: MIT */
/*
 * What the cells of kvlazy are measured against: the same operations kept in sets and maps, the shape that
 * llama.cpp has. Per cell a position, a shift and a set of owners; an ordered set of the cells in use; per
 * sequence an ordered map from position to how many cells have it, with a node of its own on the heap for each
 * entry. Cells are searched from a head, ranges by a scan of the whole cache, and prepare tries its slots out
 * on the cells and takes them back. Called by cells_table.c only; one stream, up to 64 sequences.
 */
#ifndef BENCH_CELLS_TREES_H
#define BENCH_CELLS_TREES_H

#include <stdbool.h>
#include <stdint.h>

struct trees;

/** NULL: out of memory. */
struct trees *trees_open(uint32_t n_cell);
void trees_close(struct trees *trees);

/** Finds cells for n tokens, one sequence each. dry_run: as llama.cpp, applied, then undone. 0 or -1. */
int trees_prepare(struct trees *trees, uint32_t n, const int32_t *pos, const int32_t *seq, uint32_t *cell,
                  bool dry_run);
void trees_apply(struct trees *trees, uint32_t n, const int32_t *pos, const int32_t *seq, const uint32_t *cell);

void trees_seq_rm(struct trees *trees, int32_t seq, int32_t p0, int32_t p1);
void trees_seq_add(struct trees *trees, int32_t seq, int32_t p0, int32_t p1, int32_t delta);
void trees_shift_done(struct trees *trees);
void trees_clear(struct trees *trees);
int32_t trees_pos_max(struct trees *trees, int32_t seq);
uint32_t trees_used(const struct trees *trees);

#endif
