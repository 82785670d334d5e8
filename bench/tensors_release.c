/* SPDX-License-Identifier: MIT */
/*
 * What giving back costs: two idle streams shrink from 2048 cells to 256, in a hundred ranges and more, next to one
 * madvise over as many bytes in a single range that were written just before, in turn. Then the lines of
 * /proc/self/maps over ten thousand rounds of growing and giving back, which must not split a mapping.
 */
#include "micro.h"
#include "tensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

enum { FULL_CELLS = 2048, ROUNDS = 31 };
enum { POLL, TRIM, ONE, WAYS };

struct release {
    struct rig rig;
    char *map; /* the single range */
    size_t n_byte;
    struct bench_series ns[WAYS];
    struct bench_series poll_ratio;
};

static int trim_out(struct rig *rig)
{
    int status = kvlazy_trim(rig->cache, rig->geometry.kv_initial);
    return status == KVLAZY_OK ? 0 : rig_error("kvlazy_trim", status);
}

static int shrink_once(struct release *release, int way, double *ns)
{
    uint64_t released_bytes;
    kvlazy_stats_info before = {.struct_size = sizeof(before)}, after = {.struct_size = sizeof(after)};
    if (rig_idle_at(&release->rig, FULL_CELLS) != 0) {
        return -1;
    }
    kvlazy_stats(release->rig.cache, &before);
    uint64_t start_ns = bench_now_ns();
    int status = way == POLL ? rig_poll_out(&release->rig) : trim_out(&release->rig);
    *ns = (double)(bench_now_ns() - start_ns);
    kvlazy_stats(release->rig.cache, &after);
    released_bytes = after.released_bytes - before.released_bytes;
    if (status == 0 && released_bytes != release->n_byte) {
        return bench_error("a shrink gave back %zu bytes, not %zu", (size_t)released_bytes, release->n_byte);
    }
    return status;
}

/* Makes pages present and then writes them, as the cache does with its own. On kernels without populate the write does
 * both. */
static int one_range_once(struct release *release, double *ns)
{
    if (madvise(release->map, release->n_byte, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
        return bench_error("madvise: %s", strerror(errno));
    }
    memset(release->map, 1, release->n_byte);
    uint64_t start_ns = bench_now_ns();
    if (madvise(release->map, release->n_byte, MADV_DONTNEED) != 0) {
        return bench_error("madvise: %s", strerror(errno));
    }
    *ns = (double)(bench_now_ns() - start_ns);
    return 0;
}

static int release_rounds(struct release *release)
{
    for (int round = 0; round <= ROUNDS; round++) { /* the first is not counted */
        double ns[WAYS];
        for (int k = 0; k < WAYS; k++) {
            int way = (round + k) % WAYS;
            int status = way == ONE ? one_range_once(release, &ns[way]) : shrink_once(release, way, &ns[way]);
            if (status != 0) {
                return -1;
            }
        }
        for (int way = 0; round > 0 && way < WAYS; way++) {
            bench_series_add(&release->ns[way], ns[way]);
        }
        if (round > 0) {
            bench_series_add(&release->poll_ratio, ns[POLL] / ns[ONE]);
        }
    }
    return 0;
}

static int release_open(struct release *release)
{
    struct bench_config geometry;
    bench_config_default(&geometry);
    *release = (struct release){.n_byte = (size_t)geometry.n_slot * bench_tensors(&geometry) *
                                          (FULL_CELLS - geometry.kv_initial) * geometry.row_bytes};
    if (rig_open(&release->rig, &geometry, true) != 0) {
        return -1;
    }
    void *map = mmap(NULL, release->n_byte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        rig_close(&release->rig);
        return bench_error("mmap: %s", strerror(errno));
    }
    release->map = map;
    madvise(map, release->n_byte,
            MADV_NOHUGEPAGE); /* the same pages as the cache's; refused where there are no other */
    return 0;
}

int tensors_release(const struct bench_config *config)
{
    static struct release release;
    if (release_open(&release) != 0) {
        return -1;
    }
    int status = release_rounds(&release);
    munmap(release.map, release.n_byte);
    rig_close(&release.rig);
    if (status != 0) {
        return status;
    }
    double one_ns = bench_series_at(&release.ns[ONE], 0.5);
    char text[40];
    report_time(text, sizeof(text), &release.ns[ONE]);
    struct figure poll = {"release_vs_one_madvise",
                          bench_series_at(&release.ns[POLL], 0.5) / one_ns,
                          3,
                          "shrink 392 MiB by poll / one madvise",
                          "",
                          "",
                          "<= 1.1"};
    report_time(poll.ours, sizeof(poll.ours), &release.ns[POLL]);
    snprintf(poll.other, sizeof(poll.other), "one range %s", text);
    report_figure(config, &poll);
    struct figure trim = {NULL, bench_series_at(&release.ns[TRIM], 0.5) / one_ns, 3, "  by trim, the same", "", "",
                          NULL};
    report_time(trim.ours, sizeof(trim.ours), &release.ns[TRIM]);
    snprintf(trim.other, sizeof(trim.other), "poll, a round: %.2f .. %.2f", bench_series_at(&release.poll_ratio, 0),
             bench_series_at(&release.poll_ratio, 1));
    report_figure(config, &trim);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * Mappings
 */
enum { MAPS_ROUNDS = 10000, MAPS_LAYERS = 4, MAPS_CELLS = 4096, MAPS_MOST = 24 };

static int count_maps(uint64_t *n)
{
    FILE *file = fopen("/proc/self/maps", "r");
    int c;
    if (file == NULL) {
        return bench_error("/proc/self/maps: %s", strerror(errno));
    }
    *n = 0;
    while ((c = getc(file)) != EOF) {
        *n += c == '\n';
    }
    fclose(file);
    return 0;
}

/* Half of the layers with a transposed V, in one reservation. */
static int maps_open(kvlazy_cache **cache)
{
    kvlazy_layer layers[MAPS_LAYERS];
    kvlazy_params params;
    for (uint32_t i = 0; i < MAPS_LAYERS; i++) {
        layers[i] = (kvlazy_layer){.id = i, .k_row_bytes = 544, .v_row_bytes = 512, .v_channels = i % 2 == 0 ? 0 : 16};
    }
    kvlazy_params_init(&params);
    params.page_bytes = bench_page_bytes();
    params.kv_size = MAPS_CELLS;
    params.layers = layers;
    params.n_layer = MAPS_LAYERS;
    int status = kvlazy_create(&params, cache);
    return status == KVLAZY_OK ? 0 : rig_error("kvlazy_create", status);
}

static int maps_grow(kvlazy_cache *cache, kvlazy_pos pos, uint32_t n)
{
    kvlazy_pos token_pos[MAPS_MOST];
    kvlazy_seq_id seq[MAPS_MOST] = {0};
    kvlazy_ubatch ubatch = {.n_token = n, .pos = token_pos, .seq = seq};
    kvlazy_slot slot;
    for (uint32_t i = 0; i < n; i++) {
        token_pos[i] = pos + (kvlazy_pos)i;
    }
    int status = kvlazy_init_batch(cache);
    status = status == KVLAZY_OK ? kvlazy_prepare(cache, &ubatch, 1, &slot) : status;
    status = status == KVLAZY_OK ? kvlazy_apply_ubatch(cache, &slot, &ubatch) : status;
    kvlazy_end_batch(cache);
    return status == KVLAZY_OK ? 0 : rig_error("growing", status);
}

/* Grows or cuts by a random number of tokens, and gives back. */
static int maps_round(kvlazy_cache *cache, uint32_t random)
{
    kvlazy_pos end = kvlazy_seq_pos_max(cache, 0) + 1;
    uint32_t n = 1 + random / 2 % MAPS_MOST;
    if (end + (kvlazy_pos)n > MAPS_CELLS || random % 2 == 0) {
        kvlazy_pos from = end - (kvlazy_pos)(random % 3 == 0 ? 20 * n : n);
        int status = kvlazy_seq_rm(cache, 0, from < 0 ? 0 : from, -1);
        status = status == KVLAZY_OK ? kvlazy_trim(cache, 0) : status;
        return status == KVLAZY_OK ? 0 : rig_error("kvlazy_trim", status);
    }
    return maps_grow(cache, end, n);
}

int tensors_maps(const struct bench_config *config)
{
    kvlazy_cache *cache;
    uint64_t before = 0, after = 0;
    uint32_t random = 1;
    if (maps_open(&cache) != 0) {
        return -1;
    }
    int status = maps_grow(cache, 0, MAPS_MOST);
    status = status == 0 ? count_maps(&before) : status;
    for (int round = 0; status == 0 && round < MAPS_ROUNDS; round++) {
        random = random * 1664525u + 1013904223u; /* Numerical Recipes; its high bits are the random ones */
        status = maps_round(cache, random >> 8);
    }
    status = status == 0 ? count_maps(&after) : status;
    kvlazy_destroy(cache);
    if (status != 0) {
        return status;
    }
    struct figure figure = {"maps_growth_per_tensor",
                            ((double)after - (double)before) / (2 * MAPS_LAYERS),
                            2,
                            "mappings more, a tensor",
                            "",
                            "",
                            "<= 1"};
    snprintf(figure.ours, sizeof(figure.ours), "after %d rounds", MAPS_ROUNDS);
    snprintf(figure.other, sizeof(figure.other), "%llu lines of /proc/self/maps before", (unsigned long long)before);
    report_figure(config, &figure);
    return 0;
}
