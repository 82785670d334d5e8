/* SPDX-License-Identifier: MIT */
/*
 * The figures of `bench/run cells`: what an operation on cells costs in kvlazy and in the baseline of
 * cells_trees.h, in turn. cells_table.c makes one interface of the two, cells.c and cells_mask.c measure.
 */
#ifndef BENCH_CELLS_H
#define BENCH_CELLS_H

#include "report.h"

#include <kvlazy/kvlazy.h>

enum { CELLS_BATCH = 512, CELLS_SEQ = 64 };

/** kvlazy with one small layer, pages touched, and the baseline: both unified, for CELLS_SEQ sequences. */
enum cells_kind { CELLS_LAZY, CELLS_TREES, CELLS_KINDS };

/** A table of cells: which token each cell holds, kept by one of these. */
struct cells_table;

/** NULL with bench_why(). */
struct cells_table *cells_table_open(enum cells_kind kind, uint32_t kv_size);
void cells_table_close(struct cells_table *table);
/** What kvlazy itself is asked; NULL for the baseline. */
kvlazy_cache *cells_table_cache(struct cells_table *table);
/** The baseline's prepare tries its slots out, as llama.cpp does (the default), or only finds them. */
void cells_table_dry_run(struct cells_table *table, bool dry_run);

/** A batch of one ubatch of n ≤ CELLS_BATCH tokens, prepared and applied: token i at pos + i / n_seq of sequence
 * seq + i % n_seq. 0 or -1, as all of these. */
int cells_put(struct cells_table *table, kvlazy_seq_id seq, uint32_t n_seq, kvlazy_pos pos, uint32_t n);
int cells_rm(struct cells_table *table, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);
int cells_add(struct cells_table *table, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvlazy_pos delta);
int cells_shift_done(struct cells_table *table);
int cells_clear(struct cells_table *table);
/** Puts n tokens a batch after the other. */
int cells_fill(struct cells_table *table, kvlazy_seq_id seq, uint32_t n_seq, kvlazy_pos pos, uint32_t n);
/** What holds tokens, and where a sequence ends: both tables must agree. */
uint64_t cells_live(struct cells_table *table);
uint64_t cells_touched_bytes(struct cells_table *table); /* rows, which are no metadata; kvlazy only */
kvlazy_pos cells_pos_max(struct cells_table *table, kvlazy_seq_id seq);

int cells_operations(const struct bench_config *config);
int cells_mask(const struct bench_config *config);
int cells_bytes(const struct bench_config *config);

#endif
