/* SPDX-License-Identifier: MIT */
/*
 * The two steps with which every part of the bench sets up a kvlazy cache: create it with the geometry of a
 * run, and ask where its rows lie. Private to the bench.
 */
#ifndef BENCH_POLICY_KVLAZY_H
#define BENCH_POLICY_KVLAZY_H

#include "policy.h"

#include <kvlazy/kvlazy.h>

/** A cache of the options' geometry, one sequence a stream. mem NULL: this host with its own clock. 0 or -1. */
int bench_kvlazy_create(kvlazy_cache **cache, const struct bench_config *config, const kvlazy_mem *mem);
/** Fills rows[n_tensor]: K of layer 0, V of layer 0, K of layer 1, … 0 or -1. */
int bench_kvlazy_rows(const kvlazy_cache *cache, const struct bench_config *config, struct bench_rows *rows);

/** Compares every byte of the rows of positions 0 … n-1 with what its token's must be; counts rows, and wrong ones. 0
 * or -1. */
int bench_kvlazy_count(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n, uint64_t *n_row,
                       uint64_t *n_wrong);
/** The cache behind a state of policy_kvlazy. */
kvlazy_cache *bench_kvlazy_cache(struct policy_state *state);

#endif
