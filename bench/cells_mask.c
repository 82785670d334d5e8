/* SPDX-License-Identifier: MIT */
/*
 * The mask of `bench/run cells`: 512 tokens over 8192 cells, causal, no window, next to memset of the same
 * bytes in the same place, in turn. The bytes are written once before, so that no page fault is timed.
 */
#include "cells.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvlazy/mask.h>

enum { COLUMNS = 8192, ROUNDS = 101 };

/* Not to be seen through: nobody reads what it writes. */
static void *(*volatile fill_bytes)(void *, int, size_t) = memset;

static int time_mask(kvlazy_cache *cache, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch, kvlazy_mask_info *mask,
                     struct bench_series *mask_ns, struct bench_series *memset_ns)
{
    for (int round = 0; round <= ROUNDS; round++) {
        for (int k = 0; k < 2; k++) {
            bool plain = (round + k) % 2 != 0;
            int status = KVLAZY_OK;
            uint64_t start_ns = bench_now_ns();
            if (plain) {
                fill_bytes(mask->data, 0, mask->data_bytes);
            } else {
                status = kvlazy_mask(cache, slot, ubatch, mask);
            }
            uint64_t spent_ns = bench_now_ns() - start_ns;
            if (status != KVLAZY_OK) {
                return bench_error("kvlazy_mask: %s", kvlazy_status_name(status));
            }
            if (round > 0) {
                bench_series_add(plain ? memset_ns : mask_ns, (double)spent_ns);
            }
        }
    }
    return 0;
}

static int report_mask(const struct bench_config *config, const char *key, const char *what, const char *wanted,
                       size_t bytes, struct bench_series *mask_ns, struct bench_series *memset_ns)
{
    double ours_ns = bench_series_at(mask_ns, 0.5), other_ns = bench_series_at(memset_ns, 0.5);
    struct figure figure = {.key = key, .value = other_ns / ours_ns, .digits = 3, .what = what, .wanted = wanted};
    snprintf(figure.ours, sizeof(figure.ours), "%.1f GB/s (%.1f .. %.1f)", (double)bytes / ours_ns,
             (double)bytes / bench_series_at(mask_ns, 0.75), (double)bytes / bench_series_at(mask_ns, 0.25));
    snprintf(figure.other, sizeof(figure.other), "memset %.1f GB/s (%.1f .. %.1f)", (double)bytes / other_ns,
             (double)bytes / bench_series_at(memset_ns, 0.75), (double)bytes / bench_series_at(memset_ns, 0.25));
    report_figure(config, &figure);
    return 0;
}

static int measure(const struct bench_config *config, kvlazy_cache *cache, void *data)
{
    static const struct {
        int type;
        bool alibi;
        size_t element_bytes;
        const char *key, *what, *wanted;
    } kind[] = {
        {KVLAZY_MASK_F32, false, 4, "mask_f32_vs_memset", "mask f32, 512 x 8192, GB/s / memset's", ">= 0.5"},
        {KVLAZY_MASK_F16, false, 2, "mask_f16_vs_memset", "mask f16, 512 x 8192, GB/s / memset's", ">= 0.35"},
        {KVLAZY_MASK_F32, true, 4, NULL, "  f32 with the ALiBi distance", NULL},
        {KVLAZY_MASK_F16, true, 2, NULL, "  f16 with the ALiBi distance", NULL},
    };
    static kvlazy_pos pos[CELLS_BATCH];
    static kvlazy_seq_id seq[CELLS_BATCH];
    kvlazy_ubatch ubatch = {.n_token = CELLS_BATCH, .pos = pos, .seq = seq};
    kvlazy_slot slot;
    for (uint32_t i = 0; i < CELLS_BATCH; i++) {
        pos[i] = (kvlazy_pos)(COLUMNS - CELLS_BATCH + i);
    }
    int status = kvlazy_prepare(cache, &ubatch, 1, &slot);
    status = status == KVLAZY_OK ? kvlazy_apply_ubatch(cache, &slot, &ubatch) : status;
    if (status != KVLAZY_OK) {
        return bench_error("placing 512 tokens: %s", kvlazy_status_name(status));
    }
    for (size_t i = 0; i < sizeof(kind) / sizeof(kind[0]); i++) {
        struct bench_series mask_ns = {.n = 0}, memset_ns = {.n = 0};
        size_t bytes = (size_t)CELLS_BATCH * COLUMNS * kind[i].element_bytes;
        kvlazy_mask_info mask = {.struct_size = sizeof(mask),
                                 .data = data,
                                 .data_bytes = bytes,
                                 .type = kind[i].type,
                                 .causal = true,
                                 .alibi = kind[i].alibi};
        if (time_mask(cache, &slot, &ubatch, &mask, &mask_ns, &memset_ns) != 0) {
            return -1;
        }
        report_mask(config, kind[i].key, kind[i].what, kind[i].wanted, bytes, &mask_ns, &memset_ns);
    }
    return 0;
}

int cells_mask(const struct bench_config *config)
{
    void *data = malloc((size_t)CELLS_BATCH * COLUMNS * 4);
    struct cells_side *side = cells_side_open(CELLS_LAZY, COLUMNS);
    int status = data == NULL || side == NULL ? -1 : cells_fill(side, 0, 1, 0, COLUMNS - CELLS_BATCH);
    if (data == NULL) {
        bench_error("out of memory");
    }
    status = status == 0 ? measure(config, cells_side_cache(side), data) : status;
    cells_side_close(side);
    free(data);
    return status;
}
