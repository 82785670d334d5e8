/* SPDX-License-Identifier: MIT */
/*
 * What a hook waits that comes while memory goes back: one thread polls until nothing is due, another opens a batch,
 * prepares a token and ends it, at random moments. Twice: a release, 2 GiB of touched pages that an idle conversation
 * loses, and a compaction, where every other run of 32 cells stays and moves down. A hook waits for the piece at work;
 * how long pieces take is measured in the same polls.
 */
#include "idle.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum {
    RELEASE_ROUNDS = 8,
    COMPACT_ROUNDS = 6,
    RUN_CELLS = 32, /* of two conversations in turn */
    PIECES = 4,     /* a release of fewer shows nothing */
};
#define WANTED_BYTES (UINT64_C(2) << 30)

struct hooks {
    struct idle_rig rig;
    uint32_t n_cell;
    kvlazy_pos pos; /* where sequence 1 goes on */
    uint64_t seed;
    atomic_bool polling, done, failed;
    struct bench_series wait_ns;
};

/* ------------------------------------------------------------------------------------------------------
 * Two threads
 */
static void *poll_all(void *ctx)
{
    struct hooks *hooks = ctx;
    uint64_t next_ms = 0;
    int status;
    do {
        idle_time_pieces(true);
        atomic_store(&hooks->polling, true);
        status = kvlazy_poll(hooks->rig.cache, &next_ms);
        atomic_store(&hooks->polling, false);
        if (status == KVLAZY_EBUSY) {
            idle_nap_us(20);
        }
    } while (status == KVLAZY_EBUSY || (status == KVLAZY_OK && next_ms == 0));
    idle_time_pieces(false);
    atomic_store(&hooks->failed, status != KVLAZY_OK);
    atomic_store(&hooks->done, true);
    return NULL;
}

/* One hook, and whether it came into a poll. */
static int call_hook(struct hooks *hooks)
{
    kvlazy_seq_id seq = 1;
    kvlazy_ubatch ubatch = {.n_token = 1, .pos = &hooks->pos, .seq = &seq};
    kvlazy_slot slot;
    bool counts = atomic_load(&hooks->polling);
    uint64_t from_ns = bench_now_ns();
    int status = kvlazy_init_batch(hooks->rig.cache);
    status = status == KVLAZY_OK ? kvlazy_prepare(hooks->rig.cache, &ubatch, 1, &slot) : status;
    uint64_t waited_ns = bench_now_ns() - from_ns;
    kvlazy_end_batch(hooks->rig.cache);
    if (status == KVLAZY_OK && counts) {
        bench_series_add(&hooks->wait_ns, (double)waited_ns);
    }
    return status == KVLAZY_OK ? 0 : idle_error("a hook", status);
}

static int poll_and_call(struct hooks *hooks, uint32_t apart_us)
{
    pthread_t thread;
    atomic_store(&hooks->done, false);
    int error = pthread_create(&thread, NULL, poll_all, hooks), status = 0;
    if (error != 0) {
        return bench_error("pthread_create: %s", strerror(error));
    }
    while (status == 0 && !atomic_load(&hooks->done)) {
        idle_nap_us(idle_random(&hooks->seed, apart_us));
        status = call_hook(hooks);
    }
    pthread_join(thread, NULL);
    return status == 0 && atomic_load(&hooks->failed) ? bench_error("a poll failed") : status;
}

/* ------------------------------------------------------------------------------------------------------
 * A release, a compaction
 */

/* Sequence 0 fills all of it, and idles. */
static int fill_one(struct hooks *hooks)
{
    kvlazy_pos held = kvlazy_seq_pos_max(hooks->rig.cache, 0) + 1;
    int status = idle_put(&hooks->rig, 0, hooks->n_cell - (uint32_t)held, IDLE_UBATCH, true);
    return status == KVLAZY_OK ? 0 : idle_error("a batch", status);
}

/* Sequences 0 and 1 take turns; then 0 goes. */
static int fill_holes(struct hooks *hooks)
{
    int status = kvlazy_clear(hooks->rig.cache, true);
    for (uint32_t n = 0; status == KVLAZY_OK && n + RUN_CELLS <= hooks->n_cell; n += RUN_CELLS) {
        status = idle_put(&hooks->rig, n / RUN_CELLS % 2 != 0, RUN_CELLS, RUN_CELLS, true);
    }
    status = status == KVLAZY_OK ? kvlazy_seq_rm(hooks->rig.cache, 0, -1, -1) : status;
    return status == KVLAZY_OK ? 0 : idle_error("a batch", status);
}

static int hook_rounds(struct hooks *hooks, int n, int (*fill)(struct hooks *))
{
    uint32_t apart_us = 20000; /* then what a piece takes */
    for (int round = 0; round < n; round++) {
        if (fill(hooks) != 0) {
            return -1;
        }
        hooks->rig.now_ms += hooks->rig.geometry.idle_ms;
        hooks->pos = kvlazy_seq_pos_max(hooks->rig.cache, 1) + 1; /* asking waits as a hook does */
        if (poll_and_call(hooks, apart_us) != 0) {
            return -1;
        }
        double piece_ns = bench_series_at(&hooks->rig.watch.piece_ns, 0.5);
        apart_us = piece_ns > 1e6 ? (uint32_t)(piece_ns / 1000) : apart_us;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * Reports
 */
static void report_waits(const struct bench_config *config, const char *key, const char *what, struct bench_series *ns)
{
    struct figure figure = {.key = key, .value = bench_series_at(ns, 0.99) / 1e6, .digits = 2, .what = what};
    snprintf(figure.ours, sizeof(figure.ours), "p50 %.2f, max %.2f ms", bench_series_at(ns, 0.5) / 1e6,
             bench_series_at(ns, 1) / 1e6);
    snprintf(figure.other, sizeof(figure.other), "%u hooks", ns->n);
    report_figure(config, &figure);
}

static void report_pieces(const struct bench_config *config, struct bench_series *ns)
{
    struct figure figure = {.key = "hook_piece_ms",
                            .value = bench_series_at(ns, 0.5) / 1e6,
                            .digits = 2,
                            .what = "  a piece of 64 MiB in the same polls: median ms"};
    snprintf(figure.ours, sizeof(figure.ours), "p99 %.2f, max %.2f ms", bench_series_at(ns, 0.99) / 1e6,
             bench_series_at(ns, 1) / 1e6);
    snprintf(figure.other, sizeof(figure.other), "%u pieces", ns->n);
    report_figure(config, &figure);
}

static void report_ratio(const struct bench_config *config, const char *key, const char *what, double ns, double of_ns)
{
    struct figure figure = {
        .key = key, .value = of_ns > 0 ? ns / of_ns : 0, .digits = 3, .what = what, .wanted = "<= 1"};
    snprintf(figure.other, sizeof(figure.other), "%.2f / %.2f ms", ns / 1e6, of_ns / 1e6);
    report_figure(config, &figure);
}

static void report_release(const struct bench_config *config, struct hooks *hooks, uint64_t n_byte)
{
    struct bench_series *wait_ns = &hooks->wait_ns, *piece_ns = &hooks->rig.watch.piece_ns;
    char what[80];
    snprintf(what, sizeof(what), "hook in a release of %.1f GiB: wait, p99 ms", (double)n_byte / (1 << 30));
    report_waits(config, "hook_wait_p99_ms", what, wait_ns);
    report_pieces(config, piece_ns);
    report_ratio(config, "hook_wait_over_piece", "  p99 of waits / p99 of pieces", bench_series_at(wait_ns, 0.99),
                 bench_series_at(piece_ns, 0.99));
}

/* A piece of a compaction is what the library says: no call to the host marks its end. */
static void report_compaction(const struct bench_config *config, struct hooks *hooks, uint64_t n_byte)
{
    kvlazy_stats_info info = {.struct_size = sizeof(info)};
    char what[80];
    kvlazy_stats(hooks->rig.cache, &info);
    snprintf(what, sizeof(what), "hook in a compaction in %.1f GiB: wait, p99 ms", (double)n_byte / (1 << 30));
    report_waits(config, "hook_wait_compact_p99_ms", what, &hooks->wait_ns);
    report_ratio(config, "hook_wait_compact_over_piece", "  median of waits / mean of pieces moved",
                 bench_series_at(&hooks->wait_ns, 0.5),
                 info.compact.n == 0 ? 0 : (double)info.compact.total_ns / (double)info.compact.n);
}

/* ------------------------------------------------------------------------------------------------------
 * Measuring
 */

/* Half of what the machine has left at most: others live on it too. */
static uint64_t size_here(void)
{
    uint64_t available_bytes = bench_available_bytes();
    return available_bytes / 2 < WANTED_BYTES ? available_bytes / 2 : WANTED_BYTES;
}

static int hooks_open(struct hooks *hooks, uint64_t n_byte, bool compacts)
{
    struct bench_config geometry;
    bench_config_default(&geometry);
    uint64_t cell_bytes = (uint64_t)bench_tensors(&geometry) * geometry.row_bytes;
    geometry.n_slot = 1;
    *hooks = (struct hooks){.n_cell = (uint32_t)(n_byte / cell_bytes), .seed = 1};
    geometry.kv_size = hooks->n_cell + IDLE_UBATCH;
    geometry.kv_initial = compacts ? 0 : geometry.kv_initial;
    idle_init(&hooks->rig, &geometry, 2, true);
    return idle_create(&hooks->rig);
}

static int hook_into(const struct bench_config *config, uint64_t n_byte, bool compacts)
{
    static struct hooks hooks;
    if (hooks_open(&hooks, n_byte, compacts) != 0) {
        return -1;
    }
    int status =
        compacts ? hook_rounds(&hooks, COMPACT_ROUNDS, fill_holes) : hook_rounds(&hooks, RELEASE_ROUNDS, fill_one);
    if (status == 0) {
        (compacts ? report_compaction : report_release)(config, &hooks, n_byte);
    }
    idle_close(&hooks.rig);
    return status;
}

int idle_hook(const struct bench_config *config)
{
    uint64_t n_byte = size_here();
    if (n_byte < PIECES * (UINT64_C(64) << 20)) {
        bench_error("hook_wait_p99_ms: only %zu MiB of memory are left here", (size_t)(n_byte >> 19));
        return 1;
    }
    int status = hook_into(config, n_byte, false);
    return status != 0 ? status : hook_into(config, n_byte, true);
}
