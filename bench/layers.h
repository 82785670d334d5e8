/* SPDX-License-Identifier: MIT */
/*
 * layers: what an engine does with a ubatch of a prompt, for policies that have `compute`. It keeps a core busy as long
 * as the tokens take at the replay's own speed, layer by layer, and writes the rows of a layer once its projections are
 * computed. These are an eighth of a layer's work: weights of 1.5 d² of 12 d² in a layer of width d, with a quarter of
 * the heads for K and V.
 */
#ifndef BENCH_LAYERS_H
#define BENCH_LAYERS_H

#include "bench.h"

struct layers_ubatch {
    uint32_t slot, n_token;
    const uint32_t *cell; /* [n_token] */
    const int32_t *token; /* [n_token] */
};

/** Computes a ubatch. `rows` are those of all tensors, K and V of a layer side by side. Returns how many nanoseconds of
 * it the rows took. */
uint64_t layers_compute(const struct bench_config *config, const struct bench_rows *rows,
                        const struct layers_ubatch *ubatch);

/** A second thread, which engines have too: it sleeps, and wakes for a moment with each ubatch. On some hosts a process
 * of two threads pays for its pages in another way than one of a single thread (docs/host.md). */
struct layers_thread;
int layers_thread_start(struct layers_thread **thread);
void layers_thread_wake(struct layers_thread *thread);
void layers_thread_stop(struct layers_thread *thread); /**< NULL: nothing */

#endif
