/* SPDX-License-Identifier: MIT */
/* Batches that several benches have in common: a conversation that grows, and one hook whose wait is taken. */
#ifndef BENCH_BATCHES_H
#define BENCH_BATCHES_H

#include <kvlazy/kvlazy.h>

enum { BENCH_BATCH = 512 };

/** n tokens of a sequence from position `next` on, in batches of BENCH_BATCH; `write` writes the rows of each. A
 * status.
 */
int bench_fill(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos next, uint32_t n,
               void (*write)(void *ctx, const kvlazy_slot *slot), void *ctx);

/** init_batch and prepare of one token, which is not applied; how long both took. A status. */
int bench_hook(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos pos, double *waited_ns);

#endif
