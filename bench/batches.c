/* SPDX-License-Identifier: MIT */
/* See batches.h. */
#include "batches.h"

#include "bench.h"

int bench_fill(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos next, uint32_t n,
               void (*write)(void *ctx, const kvlazy_slot *slot), void *ctx)
{
    kvlazy_pos pos[BENCH_BATCH];
    kvlazy_seq_id owner[BENCH_BATCH];
    int status = KVLAZY_OK;
    while (status == KVLAZY_OK && n > 0) {
        uint32_t n_here = n < BENCH_BATCH ? n : BENCH_BATCH;
        kvlazy_ubatch ubatch = {.n_token = n_here, .pos = pos, .seq = owner};
        kvlazy_slot slot;
        for (uint32_t i = 0; i < n_here; i++) {
            pos[i] = next + (kvlazy_pos)i;
            owner[i] = seq;
        }
        kvlazy_init_batch(cache);
        status = kvlazy_prepare(cache, &ubatch, 1, &slot);
        status = status == KVLAZY_OK ? kvlazy_apply_ubatch(cache, &slot, &ubatch) : status;
        if (status == KVLAZY_OK) {
            write(ctx, &slot);
        }
        kvlazy_end_batch(cache);
        next += (kvlazy_pos)n_here;
        n -= n_here;
    }
    return status;
}

int bench_hook(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos pos, double *waited_ns)
{
    kvlazy_ubatch ubatch = {.n_token = 1, .pos = &pos, .seq = &seq};
    kvlazy_slot slot;
    uint64_t from_ns = bench_now_ns();
    int status = kvlazy_init_batch(cache);
    status = status == KVLAZY_OK ? kvlazy_prepare(cache, &ubatch, 1, &slot) : status;
    *waited_ns = (double)(bench_now_ns() - from_ns);
    kvlazy_end_batch(cache);
    return status;
}
