/* SPDX-License-Identifier: MIT */
/*
 * The figures of `bench/run cells`: what an operation on cells costs in kvlazy and in the baseline of
 * cells_trees.h, in turn. cells_sides.c makes one interface of the two, cells.c and cells_mask.c measure.
 */
#ifndef BENCH_CELLS_H
#define BENCH_CELLS_H

#include "report.h"

#include <kvlazy/kvlazy.h>

enum { CELLS_BATCH = 512, CELLS_SEQ = 64 };

/** kvlazy with one small layer, pages touched, and the baseline: both unified, for CELLS_SEQ sequences. */
enum cells_kind { CELLS_LAZY, CELLS_TREES, CELLS_KINDS };

struct cells_side;

/** NULL with bench_why(). */
struct cells_side *cells_side_open(enum cells_kind kind, uint32_t kv_size);
void cells_side_close(struct cells_side *side);
/** What kvlazy itself is asked; NULL for the baseline. */
kvlazy_cache *cells_side_cache(struct cells_side *side);
/** The baseline's prepare tries its slots out, as llama.cpp does (the default), or only finds them. */
void cells_side_dry_run(struct cells_side *side, bool dry_run);

/** A batch of one ubatch of n ≤ CELLS_BATCH tokens, prepared and applied: token i at pos + i / n_seq of sequence
 * seq + i % n_seq. 0 or -1, as all of these. */
int cells_put(struct cells_side *side, kvlazy_seq_id seq, uint32_t n_seq, kvlazy_pos pos, uint32_t n);
int cells_rm(struct cells_side *side, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);
int cells_add(struct cells_side *side, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvlazy_pos delta);
int cells_shift_done(struct cells_side *side);
int cells_clear(struct cells_side *side);
/** Puts n tokens a batch after the other. */
int cells_fill(struct cells_side *side, kvlazy_seq_id seq, uint32_t n_seq, kvlazy_pos pos, uint32_t n);
/** What holds tokens, and where a sequence ends: both sides must agree. */
uint64_t cells_live(struct cells_side *side);
uint64_t cells_touched_bytes(struct cells_side *side); /* rows, which are no metadata; kvlazy only */
kvlazy_pos cells_pos_max(struct cells_side *side, kvlazy_seq_id seq);

int cells_operations(const struct bench_config *config);
int cells_mask(const struct bench_config *config);
int cells_bytes(const struct bench_config *config);

#endif
