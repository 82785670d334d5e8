/* SPDX-License-Identifier: MIT */
/*
 * What a token costs in the hooks when its pages are touched already: init_batch, prepare, apply_ubatch and
 * end_batch of one token, with the host's real clock. Time at the default geometry, allocations of the same
 * loop, and how the time changes from a thousand cells to 128 thousand. The tokens are removed again outside
 * the timed part, so every round decodes into the same cells.
 */
#include "allocs.h"
#include "micro.h"

#include <stdio.h>
#include <time.h>

enum {
    DEPTH_CELLS = 2048,
    TOKENS_A_ROUND = 512,
    ROUNDS = 200,
};

/* Decodes a round at `depth`; returns nanoseconds a token. */
static int decode_round(struct rig *rig, uint32_t depth, struct bench_series *ns, uint64_t *n_alloc)
{
    uint64_t allocs = allocs_count(), start_ns = bench_now_ns();
    for (uint32_t i = 0; i < TOKENS_A_ROUND; i++) {
        int status = rig_decode(rig, 0, depth + i);
        if (status != KVLAZY_OK) {
            return rig_error("decoding a token", status);
        }
    }
    uint64_t spent_ns = bench_now_ns() - start_ns;
    *n_alloc += allocs_count() - allocs;
    if (ns != NULL) {
        bench_series_add(ns, (double)spent_ns / TOKENS_A_ROUND);
    }
    int status = kvlazy_seq_rm(rig->cache, 0, (kvlazy_pos)depth, -1);
    return status == KVLAZY_OK ? 0 : rig_error("kvlazy_seq_rm", status);
}

/* A cache that holds `depth` tokens, with the pages behind them touched. */
static int hook_open(struct rig *rig, const struct bench_config *geometry, uint32_t depth)
{
    uint64_t n_alloc = 0;
    if (rig_open(rig, geometry, false) != 0) {
        return -1;
    }
    if (rig_put(rig, 0, 0, depth) != 0 || decode_round(rig, depth, NULL, &n_alloc) != 0) {
        rig_close(rig);
        return -1;
    }
    return 0;
}

static void report_clock_floor(const struct bench_config *config)
{
    static const struct {
        clockid_t id;
        const char *what;
    } clocks[] = {{CLOCK_MONOTONIC_COARSE, "floor: one coarse clock read, ns"},
                  {CLOCK_MONOTONIC, "floor: one clock read, ns"}};
    enum { READS = 10000 };
    for (int k = 0; k < 2; k++) {
        struct bench_series ns = {.n = 0};
        for (int round = 0; round < 21; round++) {
            struct timespec now;
            uint64_t start_ns = bench_now_ns();
            for (int i = 0; i < READS; i++) {
                clock_gettime(clocks[k].id, &now);
            }
            bench_series_add(&ns, (double)(bench_now_ns() - start_ns) / READS);
        }
        struct figure figure = {NULL, bench_series_at(&ns, 0.5), 1, clocks[k].what, "", "", NULL};
        report_figure(config, &figure);
    }
}

static int hook_time(const struct bench_config *config)
{
    static struct rig rig;
    struct bench_series ns = {.n = 0};
    struct bench_config geometry;
    uint64_t n_alloc = 0, before = allocs_count();
    bench_config_default(&geometry);
    if (hook_open(&rig, &geometry, DEPTH_CELLS) != 0) {
        return -1;
    }
    bool counting = allocs_count() > before; /* create must have allocated something */
    int status = 0;
    for (int round = 0; status == 0 && round < ROUNDS; round++) {
        status = decode_round(&rig, DEPTH_CELLS, &ns, &n_alloc);
    }
    rig_close(&rig);
    if (status != 0) {
        return status;
    }
    struct figure time = {"hook_ns", bench_series_at(&ns, 0.5), 1, "four hooks, one token, touched pages: ns", "", "",
                          "<= 400"};
    report_time(time.ours, sizeof(time.ours), &ns);
    report_figure(config, &time);
    if (!counting) {
        bench_error("hook_allocs: the allocation counter does not see the library");
        return 1;
    }
    struct figure allocs = {"hook_allocs", (double)n_alloc, 0, "the same: allocations", "", "", "0"};
    snprintf(allocs.ours, sizeof(allocs.ours), "in %d tokens", ROUNDS * TOKENS_A_ROUND);
    report_figure(config, &allocs);
    return 0;
}

static int hook_flatness(const struct bench_config *config)
{
    static struct rig shallow, deep;
    static const uint32_t shallow_cells = 1024, deep_cells = 131072;
    struct bench_series shallow_ns = {.n = 0}, deep_ns = {.n = 0};
    struct bench_config geometry;
    uint64_t n_alloc = 0;
    bench_config_default(&geometry);
    geometry.n_layer = 1;
    geometry.row_bytes = 64;
    geometry.n_slot = 1;
    geometry.kv_initial = 0;
    geometry.kv_size = deep_cells + 4096;
    if (hook_open(&shallow, &geometry, shallow_cells) != 0) {
        return -1;
    }
    if (hook_open(&deep, &geometry, deep_cells) != 0) {
        rig_close(&shallow);
        return -1;
    }
    int status = 0;
    for (int round = 0; status == 0 && round < ROUNDS; round++) {
        status = decode_round(&shallow, shallow_cells, &shallow_ns, &n_alloc);
        if (status == 0) {
            status = decode_round(&deep, deep_cells, &deep_ns, &n_alloc);
        }
    }
    rig_close(&shallow);
    rig_close(&deep);
    if (status != 0) {
        return status;
    }
    struct figure figure = {.key = "hook_flatness",
                            .value = bench_series_at(&deep_ns, 0.5) / bench_series_at(&shallow_ns, 0.5),
                            .digits = 3,
                            .what = "four hooks at 128k cells / at 1k, one layer",
                            .wanted = "<= 1.5"};
    char text[48];
    report_time(figure.ours, sizeof(figure.ours), &deep_ns);
    report_time(text, sizeof(text), &shallow_ns);
    snprintf(figure.other, sizeof(figure.other), "at 1k %s", text);
    report_figure(config, &figure);
    return 0;
}

int micro_hook(const struct bench_config *config)
{
    report_clock_floor(config);
    int time = hook_time(config);
    if (time < 0) {
        return time;
    }
    int flatness = hook_flatness(config);
    return flatness != 0 ? flatness : time;
}
