/* SPDX-License-Identifier: MIT */
/*
 * What fresh pages of a size cost a prefill, and what it costs to give them back, beside 4 KiB: each size both ahead
 * and by faults, of which the better counts. Every size that the host grants is shown, that of 64 KiB has the keys.
 */
#include "pages.h"

#include <stdio.h>

enum { N_TOKEN = 2000, ROUNDS = 9, AHEAD = 0, FAULT, WAYS };
static const uint32_t way_flags[WAYS] = {KVLAZY_COMMIT_AHEAD, KVLAZY_NO_COMMIT_AHEAD};

/* One size in one way. */
struct lane {
    struct tensors_rig rig;
    struct bench_series fresh, again, release;
};

static int lane_round(struct lane *lane, bool counts)
{
    struct tensors_time fresh, again;
    if (tensors_put(&lane->rig, N_TOKEN, &fresh) != 0 || tensors_drop(&lane->rig, false) != 0 ||
        tensors_put(&lane->rig, N_TOKEN, &again) != 0) {
        return -1;
    }
    uint64_t from_ns = bench_now_ns();
    if (tensors_drop(&lane->rig, true) != 0) {
        return -1;
    }
    if (counts) {
        bench_series_add(&lane->release, (double)(bench_now_ns() - from_ns));
        bench_series_add(&lane->fresh, (double)fresh.whole_ns);
        bench_series_add(&lane->again, (double)again.whole_ns);
    }
    return 0;
}

static double fresh_cost(struct lane *lane)
{
    return bench_series_at(&lane->fresh, 0.5) - bench_series_at(&lane->again, 0.5);
}

static struct lane *better(struct lane lane[WAYS])
{
    return fresh_cost(&lane[AHEAD]) <= fresh_cost(&lane[FAULT]) ? &lane[AHEAD] : &lane[FAULT];
}

static void report_pair(const struct bench_config *config, struct lane lane[2][WAYS], uint64_t page_bytes)
{
    bool keyed = page_bytes == PAGES_BYTES;
    struct lane *small = better(lane[0]), *large = better(lane[1]);
    char what[2][64];
    snprintf(what[0], sizeof(what[0]), "pages of %u KiB, fresh: cost over 4 KiB", (unsigned)(page_bytes >> 10));
    snprintf(what[1], sizeof(what[1]), "pages of %u KiB, given back: time over 4 KiB", (unsigned)(page_bytes >> 10));
    struct figure fresh = {.key = keyed ? "pages_fresh_cost" : NULL,
                           .value = fresh_cost(large) / fresh_cost(small),
                           .digits = 3,
                           .what = what[0],
                           .wanted = keyed ? "<= 0.4" : NULL};
    snprintf(fresh.ours, sizeof(fresh.ours), "%.1f ms %s", fresh_cost(large) / 1e6,
             large == &lane[1][AHEAD] ? "ahead" : "by faults");
    snprintf(fresh.other, sizeof(fresh.other), "%.1f ms %s, %d tokens", fresh_cost(small) / 1e6,
             small == &lane[0][AHEAD] ? "ahead" : "by faults", N_TOKEN);
    report_figure(config, &fresh);
    struct figure release = {.key = keyed ? "pages_release_cost" : NULL,
                             .value = bench_series_at(&large->release, 0.5) / bench_series_at(&small->release, 0.5),
                             .digits = 3,
                             .what = what[1],
                             .wanted = keyed ? "<= 0.4" : NULL};
    report_time(release.ours, sizeof(release.ours), &large->release);
    report_time(release.other, sizeof(release.other), &small->release);
    report_figure(config, &release);
}

static int measure_size(const struct bench_config *config, uint64_t page_bytes)
{
    static struct lane lane[2][WAYS]; /* small pages, and those of the size */
    int status = 0;
    for (int i = 0; status == 0 && i < 2 * WAYS; i++) {
        lane[i / WAYS][i % WAYS] = (struct lane){0};
        status = tensors_open_pages(&lane[i / WAYS][i % WAYS].rig, &tensors_layouts[TENSORS_F16], way_flags[i % WAYS],
                                    i / WAYS == 0 ? bench_page_bytes() : page_bytes, 0);
    }
    for (int k = 0; status == 0 && k < 2 * WAYS * (ROUNDS + 1); k++) {
        int i = k % (2 * WAYS);
        status = lane_round(&lane[i / WAYS][i % WAYS], k >= 2 * WAYS); /* the first round meets memory never used */
    }
    if (status == 0) {
        report_pair(config, lane, page_bytes);
    }
    for (int i = 0; i < 2 * WAYS; i++) {
        tensors_close(&lane[i / WAYS][i % WAYS].rig);
    }
    return status;
}

int pages_cost(const struct bench_config *config)
{
    int status = 0;
    for (uint64_t bytes = 2 * bench_page_bytes(); status == 0 && bytes <= 2 << 20; bytes *= 2) {
        int granted = pages_granted(bytes);
        status = granted < 0 ? -1 : granted == 0 ? measure_size(config, bytes) : 0;
    }
    return status == 0 ? pages_granted(PAGES_BYTES) : status; /* says why there are no keys */
}
