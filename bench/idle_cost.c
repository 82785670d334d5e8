/* SPDX-License-Identifier: MIT */
/*
 * What the idle side costs by itself, without a bound: moving cells down, by GiB moved, beside memcpy of as many bytes;
 * a poll with nothing due; a look at the limits of the machine; and a fork while pages are touched, with and without
 * KVLAZY_DONTFORK, in turn.
 */
#include "idle.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 7, CELLS = 4096, POLLS = 10000, FORK_CELLS = 3584 };

/* ------------------------------------------------------------------------------------------------------
 * Compaction
 */

/* Two conversations in turns of `run` cells; then the first goes and the other rests. */
static int make_holes(struct idle_rig *rig, uint32_t run)
{
    int status = kvlazy_clear(rig->cache, true);
    for (uint32_t n = 0; status == KVLAZY_OK && n < CELLS; n += run) {
        status = idle_put(rig, n / run % 2 != 0, run, run, true);
    }
    status = status == KVLAZY_OK ? kvlazy_seq_rm(rig->cache, 0, -1, -1) : status;
    rig->now_ms += rig->geometry.idle_ms;
    return status == KVLAZY_OK ? 0 : idle_error("a batch", status);
}

static int copy_as_much(uint64_t n_byte, struct bench_series *ns)
{
    unsigned char *from = malloc(n_byte), *to = malloc(n_byte);
    int status = from != NULL && to != NULL ? 0 : bench_error("out of memory");
    if (status == 0) {
        memset(from, 1, n_byte);
        memset(to, 2, n_byte);
        uint64_t start_ns = bench_now_ns();
        memcpy(to, from, n_byte);
        bench_series_add(ns, (double)(bench_now_ns() - start_ns));
        status = to[n_byte / 2] == 1 ? 0 : bench_error("memcpy copied nothing");
    }
    free(from);
    free(to);
    return status;
}

static int compaction(const struct bench_config *config, uint32_t run)
{
    static struct idle_rig rig;
    struct bench_series ns = {.n = 0}, copy_ns = {.n = 0};
    struct bench_config geometry;
    uint64_t n_byte = 0;
    bench_config_default(&geometry);
    geometry.n_slot = 1;
    geometry.kv_initial = 0;
    idle_init(&rig, &geometry, 2, true);
    if (idle_create(&rig) != 0) {
        return -1;
    }
    int status = 0;
    for (int round = 0; status == 0 && round < ROUNDS; round++) {
        kvlazy_stats_info before = {.struct_size = sizeof(before)}, after = {.struct_size = sizeof(after)};
        status = make_holes(&rig, run);
        kvlazy_stats(rig.cache, &before);
        status = status == 0 ? idle_poll_out(&rig) : status;
        kvlazy_stats(rig.cache, &after);
        n_byte = (after.moved_cells - before.moved_cells) * bench_tensors(&geometry) * geometry.row_bytes;
        bench_series_add(&ns, (double)(after.compact.total_ns - before.compact.total_ns));
        status = status == 0 ? copy_as_much(n_byte, &copy_ns) : status;
    }
    idle_close(&rig);
    if (status != 0) {
        return status;
    }
    char what[80], text[48];
    double gib = (double)n_byte / (1 << 30);
    snprintf(what, sizeof(what), "compaction, runs of %u cell%s: ms a GiB moved", run, run == 1 ? "" : "s");
    struct figure figure = {NULL, bench_series_at(&ns, 0.5) / 1e6 / gib, 0, what, "", "", NULL};
    report_time(figure.ours, sizeof(figure.ours), &ns);
    report_time(text, sizeof(text), &copy_ns);
    snprintf(figure.other, sizeof(figure.other), "memcpy %s", text);
    report_figure(config, &figure);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * Nothing due
 */
static int empty_poll(const struct bench_config *config)
{
    static struct idle_rig rig;
    struct bench_series ns = {.n = 0};
    struct bench_config geometry;
    bench_config_default(&geometry);
    geometry.n_slot = 96;
    geometry.n_layer = 1;
    idle_init(&rig, &geometry, 96, false);
    if (idle_create(&rig) != 0) {
        return -1;
    }
    int status = KVLAZY_OK;
    for (kvlazy_seq_id s = 0; status == KVLAZY_OK && s < 96; s++) {
        status = idle_put(&rig, s, 200, 200, false);
    }
    for (int round = 0; status == KVLAZY_OK && round < 21; round++) {
        uint64_t start_ns = bench_now_ns(), next_ms;
        for (int i = 0; status == KVLAZY_OK && i < POLLS; i++) {
            status = kvlazy_poll(rig.cache, &next_ms);
        }
        bench_series_add(&ns, (double)(bench_now_ns() - start_ns) / POLLS);
    }
    idle_close(&rig);
    if (status != KVLAZY_OK) {
        return idle_error("a poll", status);
    }
    struct figure figure = {NULL, bench_series_at(&ns, 0.5), 0, "a poll with nothing due, 96 streams: ns", "", "",
                            NULL};
    report_time(figure.ours, sizeof(figure.ours), &ns);
    report_figure(config, &figure);
    return 0;
}

static void look_at_limits(const struct bench_config *config)
{
    const kvlazy_mem *mem = kvlazy_mem_host();
    struct bench_series ns = {.n = 0};
    if (mem->headroom == NULL) {
        return;
    }
    for (int i = 0; i < 101; i++) {
        uint64_t start_ns = bench_now_ns();
        mem->headroom(mem->ctx, "/");
        bench_series_add(&ns, (double)(bench_now_ns() - start_ns));
    }
    struct figure figure = {NULL, bench_series_at(&ns, 0.5) / 1e3,        1,   "a look at the machine's limits: us",
                            "",   "at most one in 100 ms, before growth", NULL};
    report_time(figure.ours, sizeof(figure.ours), &ns);
    report_figure(config, &figure);
}

/* ------------------------------------------------------------------------------------------------------
 * Fork
 */
static int fork_once(struct bench_series *ns)
{
    uint64_t start_ns = bench_now_ns();
    pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    return child > 0 && waitpid(child, NULL, 0) == child ? 0 : bench_error("fork: %s", strerror(errno));
}

static int fork_with(uint32_t flags, struct bench_series *ns)
{
    static struct idle_rig rig;
    struct bench_config geometry;
    bench_config_default(&geometry);
    geometry.n_slot = 1;
    idle_init(&rig, &geometry, 1, false);
    rig.params.flags = flags;
    if (idle_create(&rig) != 0) {
        return -1;
    }
    int status = idle_put(&rig, 0, FORK_CELLS, IDLE_UBATCH, true);
    status = status == KVLAZY_OK ? fork_once(ns) : idle_error("a batch", status);
    idle_close(&rig);
    return status;
}

static int forks(const struct bench_config *config)
{
    struct bench_series plain_ns = {.n = 0}, dontfork_ns = {.n = 0};
    for (int round = 0; round < ROUNDS; round++) {
        if (fork_with(0, &plain_ns) != 0 || fork_with(KVLAZY_DONTFORK, &dontfork_ns) != 0) {
            return -1;
        }
    }
    struct figure figure = {
        .value = bench_series_at(&dontfork_ns, 0.5) / bench_series_at(&plain_ns, 0.5),
        .digits = 3,
        .what = "fork, 392 MiB touched: DONTFORK / without",
    };
    char text[48];
    report_time(figure.ours, sizeof(figure.ours), &dontfork_ns);
    report_time(text, sizeof(text), &plain_ns);
    snprintf(figure.other, sizeof(figure.other), "without %s", text);
    report_figure(config, &figure);
    return 0;
}

int idle_cost(const struct bench_config *config)
{
    int status = compaction(config, 1);
    status = status == 0 ? compaction(config, 32) : status;
    status = status == 0 ? empty_poll(config) : status;
    if (status == 0) {
        look_at_limits(config);
        status = forks(config);
    }
    return status;
}
