/* SPDX-License-Identifier: MIT */
/* counts: what a cache did so far, for stats and log lines. Numbers that only grow; nothing decides by them. */
#ifndef KVL_COUNTS_H
#define KVL_COUNTS_H

#include "base/histogram.h"

typedef struct kvl_counts {
    uint64_t n_grow, n_shrink, n_evict, evicted_cells, moved_cells;
    uint64_t n_refused_pos, n_refused_slot, n_refused_budget, n_refused_memory; /* batches */
    kvlazy_histogram evict_time, compact_time;
} kvl_counts;

/* A batch, or what stands for one, was refused. */
static inline void kvl_count_refusal(kvl_counts *counts, int status)
{
    counts->n_refused_pos += status == KVLAZY_EPOS;
    counts->n_refused_slot += status == KVLAZY_ENOSLOT;
    counts->n_refused_budget += status == KVLAZY_EBUDGET;
    counts->n_refused_memory += status == KVLAZY_ENOMEM;
}

/* What kvlazy_mask keeps between two calls. */
typedef struct kvl_mask_scratch {
    kvlazy_pos *key; /* [n_key] scratch of one call: a row, or a position a cell */
    uint32_t n_key;
} kvl_mask_scratch;

#endif
