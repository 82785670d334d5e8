/* SPDX-License-Identifier: MIT */
/*
 * What comes back from idle conversations: two streams of 2048 tokens, the idle time of silence, then poll and
 * nothing else. Bytes first, then the time of it next to plain madvise over the same ranges of the same
 * tensors, written by the same batches just before, in turn.
 */
#include "micro.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum {
    FULL_CELLS = 2048,
    ROUNDS = 5,
};

static int shrink_bytes(const struct bench_config *config, struct rig *rig)
{
    kvlazy_stats_info before = {.struct_size = sizeof(before)}, after = {.struct_size = sizeof(after)};
    uint64_t bytes_full, bytes_idle;
    if (rig_idle_at(rig, FULL_CELLS) != 0 || rig_resident(rig, &bytes_full) != 0) {
        return -1;
    }
    int status = kvlazy_stats(rig->cache, &before);
    if (status == KVLAZY_OK && rig_poll_out(rig) != 0) {
        return -1;
    }
    status = status == KVLAZY_OK ? kvlazy_stats(rig->cache, &after) : status;
    if (status != KVLAZY_OK) {
        return rig_error("kvlazy_stats", status);
    }
    if (rig_resident(rig, &bytes_idle) != 0) {
        return -1;
    }
    struct figure resident = {
        "shrink_resident_bytes",      (double)bytes_idle, 0, "idle shrink 2048 -> 256: resident bytes", "", "",
        "<= 56 MiB + 1 page a tensor"};
    report_bytes(resident.ours, sizeof(resident.ours), bytes_idle);
    report_bytes(resident.other, sizeof(resident.other), bytes_full);
    strcat(resident.other, " before; the seed keeps them");
    report_figure(config, &resident);
    uint64_t released_bytes = after.released_bytes - before.released_bytes;
    struct figure released = {"shrink_released_bytes",
                              (double)released_bytes,
                              0,
                              "idle shrink 2048 -> 256: returned by poll",
                              "",
                              "",
                              ">= 391 MiB"};
    report_bytes(released.ours, sizeof(released.ours), released_bytes);
    report_bytes(released.other, sizeof(released.other), bytes_full - bytes_idle);
    strcat(released.other, " gone, says mincore");
    report_figure(config, &released);
    return 0;
}

/* Plain madvise of cells [initial, 2048) in every tensor and stream; then the cache is told, untimed. */
static int madvise_all(struct rig *rig)
{
    size_t page_bytes = bench_page_bytes();
    for (uint32_t s = 0; s < rig->geometry.n_slot; s++) {
        for (uint32_t t = 0; t < bench_tensors(&rig->geometry); t++) {
            const struct bench_rows *rows = &rig->rows[t];
            uintptr_t base = (uintptr_t)rows->data + s * rows->stream_stride;
            uintptr_t from = (base + rig->geometry.kv_initial * rows->row_bytes + page_bytes - 1) / page_bytes;
            uintptr_t to = (base + FULL_CELLS * rows->row_bytes) / page_bytes;
            if (madvise((void *)(from * page_bytes), (to - from) * page_bytes, MADV_DONTNEED) != 0) {
                return bench_error("madvise: %s", strerror(errno));
            }
        }
    }
    return 0;
}

static int shrink_round(struct rig *rig, bool plain, struct bench_series *ns)
{
    if (rig_idle_at(rig, FULL_CELLS) != 0) {
        return -1;
    }
    uint64_t start_ns = bench_now_ns();
    int status = plain ? madvise_all(rig) : rig_poll_out(rig);
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    return status != 0 ? status : rig_poll_out(rig);
}

static int shrink_time(const struct bench_config *config, struct rig *rig)
{
    struct bench_series poll = {.n = 0}, plain = {.n = 0}, ratio = {.n = 0};
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < 2; k++) {
            bool plain_now = (round + k) % 2 != 0; /* neither is always the first */
            if (shrink_round(rig, plain_now, plain_now ? &plain : &poll) != 0) {
                return -1;
            }
        }
        bench_series_add(&ratio, poll.value[poll.n - 1] / plain.value[plain.n - 1]);
    }
    struct figure figure = {.key = "shrink_vs_madvise",
                            .value = bench_series_at(&poll, 0.5) / bench_series_at(&plain, 0.5),
                            .digits = 3,
                            .what = "idle shrink: time of poll / madvise",
                            .wanted = "<= 1.2"};
    char text[48];
    report_time(figure.ours, sizeof(figure.ours), &poll);
    report_time(text, sizeof(text), &plain);
    snprintf(figure.other, sizeof(figure.other), "112 madvise %s", text);
    report_figure(config, &figure);
    return 0;
}

int micro_shrink(const struct bench_config *config)
{
    static struct rig rig;
    struct bench_config geometry;
    bench_config_default(&geometry);
    if (rig_open(&rig, &geometry, true) != 0) {
        return -1;
    }
    int status = shrink_bytes(config, &rig);
    if (status == 0) {
        status = shrink_time(config, &rig);
    }
    rig_close(&rig);
    return status;
}
