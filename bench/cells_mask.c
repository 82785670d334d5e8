/* SPDX-License-Identifier: MIT */
/*
 * The mask of `bench/run cells`: over 8192 cells, causal, no window, next to memset of the same bytes in the same
 * place, in turn. The cells of a sequence lie in one piece, or scattered: every other one is another sequence's. The
 * bytes are written once before, so that no page fault is timed.
 */
#include "cells.h"

#include <kvlazy/mask.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 8192, ROUNDS = 101, KINDS = 4 };

struct kind {
    int type;
    bool alibi;
    const char *key, *what, *wanted; /* what: NULL after the last */
};

/** Cells as they lie before, and the tokens whose mask is timed: of sequence 0, or one of each of the first. */
struct scene {
    int (*fill)(struct cells_table *table);
    uint32_t n_token;
    bool one_each;
    struct kind kind[KINDS];
};

static size_t element_bytes(int type)
{
    return type == KVLAZY_MASK_F32 ? 4 : 2;
}

/* The compiler must not see that the written bytes are never read, or it would leave the writes out. */
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

static int measure(const struct bench_config *config, kvlazy_cache *cache, const struct scene *scene, void *data)
{
    static kvlazy_pos pos[CELLS_BATCH];
    static kvlazy_seq_id seq[CELLS_BATCH];
    kvlazy_ubatch ubatch = {.n_token = scene->n_token, .pos = pos, .seq = seq};
    kvlazy_slot slot;
    for (uint32_t i = 0; i < scene->n_token; i++) {
        seq[i] = scene->one_each ? (kvlazy_seq_id)i : 0;
        pos[i] = kvlazy_seq_pos_max(cache, seq[i]) + 1 + (scene->one_each ? 0 : (kvlazy_pos)i);
    }
    int status = kvlazy_prepare(cache, &ubatch, 1, &slot);
    status = status == KVLAZY_OK ? kvlazy_apply_ubatch(cache, &slot, &ubatch) : status;
    if (status != KVLAZY_OK) {
        return bench_error("placing %u tokens: %s", scene->n_token, kvlazy_status_name(status));
    }
    for (size_t i = 0; i < KINDS; i++) {
        struct bench_series mask_ns = {.n = 0}, memset_ns = {.n = 0};
        const struct kind *kind = &scene->kind[i];
        size_t bytes = (size_t)scene->n_token * COLUMNS * element_bytes(kind->type);
        kvlazy_mask_info mask = {.struct_size = sizeof(mask),
                                 .data = data,
                                 .data_bytes = bytes,
                                 .type = kind->type,
                                 .causal = true,
                                 .alibi = kind->alibi};
        if (kind->what == NULL) {
            break;
        }
        if (time_mask(cache, &slot, &ubatch, &mask, &mask_ns, &memset_ns) != 0) {
            return -1;
        }
        report_mask(config, kind->key, kind->what, kind->wanted, bytes, &mask_ns, &memset_ns);
    }
    return 0;
}

static int in_one_piece(struct cells_table *table)
{
    return cells_fill(table, 0, 1, 0, COLUMNS - CELLS_BATCH);
}

/* Two sequences get a token each in turn. The end of the first is removed, so that its cells are taken again. */
static int scattered(struct cells_table *table)
{
    return cells_fill(table, 0, 2, 0, COLUMNS) != 0 ? -1 : cells_rm(table, 0, COLUMNS / 2 - CELLS_BATCH, -1);
}

/* Every sequence gets a token in turn. */
static int in_turn(struct cells_table *table)
{
    return cells_fill(table, 0, CELLS_SEQ, 0, COLUMNS - CELLS_SEQ);
}

int cells_mask(const struct bench_config *config)
{
    static const struct scene scenes[] = {
        {in_one_piece,
         CELLS_BATCH,
         false,
         {{KVLAZY_MASK_F32, false, "mask_f32_vs_memset", "mask f32, 512 x 8192, GB/s / memset's", ">= 0.7"},
          {KVLAZY_MASK_F16, false, "mask_f16_vs_memset", "mask f16, 512 x 8192, GB/s / memset's", ">= 0.6"},
          {KVLAZY_MASK_F32, true, NULL, "  f32 with the ALiBi distance", NULL},
          {KVLAZY_MASK_F16, true, NULL, "  f16 with the ALiBi distance", NULL}}},
        {scattered,
         CELLS_BATCH,
         false,
         {{KVLAZY_MASK_F32, false, "mask_scattered_f32_vs_memset", "mask f32, every other cell", ">= 0.4"},
          {KVLAZY_MASK_F16, false, "mask_scattered_f16_vs_memset", "mask f16, every other cell", ">= 0.2"}}},
        {in_turn,
         CELLS_SEQ,
         true,
         {{KVLAZY_MASK_F32, false, NULL, "  f32, a token of each of 64 sequences", NULL},
          {KVLAZY_MASK_F16, false, NULL, "  f16, a token of each of 64 sequences", NULL}}},
        {in_one_piece,
         1,
         false,
         {{KVLAZY_MASK_F32, false, NULL, "  f32, one token", NULL},
          {KVLAZY_MASK_F16, false, NULL, "  f16, one token", NULL}}},
    };
    void *data = malloc((size_t)CELLS_BATCH * COLUMNS * 4);
    int status = data == NULL ? bench_error("out of memory") : 0;
    for (size_t i = 0; status == 0 && i < sizeof(scenes) / sizeof(scenes[0]); i++) {
        struct cells_table *table = cells_table_open(CELLS_LAZY, COLUMNS);
        status = table == NULL ? -1 : scenes[i].fill(table);
        status = status == 0 ? measure(config, cells_table_cache(table), &scenes[i], data) : status;
        cells_table_close(table);
    }
    free(data);
    return status;
}
