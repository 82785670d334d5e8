/* SPDX-License-Identifier: MIT */
/*
 * What deciding which tokens go costs with many sequences that share their beginning: by idling, by a lowered budget,
 * and where every answer of on_evict is no; and how long a hook waits meanwhile.
 */
#include "scale.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

enum { TAIL = 50, INITIAL = 64, HOOK_SEQUENCES = 1024 };

static int keep(void *ctx, kvlazy_seq_id seq, kvlazy_pos new_pos_max)
{
    (void)ctx;
    (void)seq;
    (void)new_pos_max;
    return 1;
}

static int open_shared(struct scale_rig *rig, uint32_t n_seq, uint32_t initial)
{
    scale_init(rig, n_seq * (TAIL + 1), 1, n_seq);
    rig->params.kv_size_initial = initial;
    if (scale_create(rig) != 0) {
        return -1;
    }
    if (scale_fork(rig, n_seq, 1, TAIL) != 0) {
        scale_close(rig);
        return -1;
    }
    return 0;
}

static int poll_shared(uint32_t n_seq, uint64_t *ns)
{
    static struct scale_rig rig;
    if (open_shared(&rig, n_seq, INITIAL) != 0) {
        return -1;
    }
    scale_rest(&rig);
    uint64_t start_ns = scale_spent_ns();
    int status = scale_poll(&rig);
    *ns = scale_spent_ns() - start_ns;
    scale_close(&rig);
    return status;
}

static int budget_shared(uint32_t n_seq, uint64_t *ns)
{
    static struct scale_rig rig;
    if (open_shared(&rig, n_seq, 0) != 0) {
        return -1;
    }
    kvlazy_stats_info stats = {.struct_size = sizeof(stats)};
    kvlazy_stats(rig.cache, &stats);
    uint64_t start_ns = scale_spent_ns();
    int status = kvlazy_set_limits(rig.cache, UINT32_MAX, UINT32_MAX, stats.touched_bytes / 8);
    *ns = scale_spent_ns() - start_ns;
    scale_close(&rig);
    return status == KVLAZY_OK ? 0 : scale_error("kvlazy_set_limits", status);
}

static int veto(uint32_t n_seq, uint64_t *ns)
{
    static struct scale_rig rig;
    scale_init(&rig, n_seq * (TAIL + 1), 1, n_seq);
    rig.params.kv_size_initial = INITIAL;
    rig.params.on_evict = keep;
    if (scale_create(&rig) != 0) {
        return -1;
    }
    int status = scale_fork(&rig, n_seq, 1, TAIL);
    scale_rest(&rig);
    uint64_t start_ns = scale_spent_ns();
    status = status == 0 ? scale_poll(&rig) : status;
    *ns = scale_spent_ns() - start_ns;
    scale_close(&rig);
    return status;
}

int scale_plans(const struct bench_config *config)
{
    static const struct scale_growth growth[] = {
        {"scale_poll_shared", "sequences that share a token, all idle: one poll", "<= 6", 512, 2048, poll_shared},
        {"scale_budget_shared", "the same, by a lowered budget", "<= 6", 256, 1024, budget_shared},
        {"scale_veto", "the same, every answer of on_evict no", "<= 6", 1024, 4096, veto},
    };
    for (size_t i = 0; i < sizeof(growth) / sizeof(growth[0]); i++) {
        if (scale_growth(config, &growth[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * A hook meanwhile
 */
struct poller {
    struct scale_rig *rig;
    atomic_bool begins, ends;
};

static void *poll_once(void *arg)
{
    struct poller *poller = arg;
    uint64_t next_ms;
    atomic_store(&poller->begins, true);
    for (int i = 0; i < 10000 && !atomic_load(&poller->ends); i++) {
        if (kvlazy_poll(poller->rig->cache, &next_ms) == KVLAZY_OK && next_ms != 0) {
            break;
        }
    }
    return NULL;
}

/* The longest call of a thread that looks at the cache again and again while another one polls it. */
static int longest_wait(struct scale_rig *rig, uint64_t *longest_ns)
{
    struct poller poller = {.rig = rig};
    pthread_t thread;
    scale_rest(rig);
    if (pthread_create(&thread, NULL, poll_once, &poller) != 0) {
        return bench_error("no thread");
    }
    while (!atomic_load(&poller.begins)) {
    }
    *longest_ns = 0;
    for (int i = 0; i < 2000; i++) {
        uint64_t start_ns = bench_now_ns();
        kvlazy_seq_pos_max(rig->cache, 0);
        uint64_t spent_ns = bench_now_ns() - start_ns;
        *longest_ns = spent_ns > *longest_ns ? spent_ns : *longest_ns;
        nanosleep(&(struct timespec){0, 20000}, NULL);
    }
    atomic_store(&poller.ends, true);
    pthread_join(thread, NULL);
    return 0;
}

int scale_hook(const struct bench_config *config)
{
    struct bench_series ms = {.n = 0};
    for (int round = 0; round < SCALE_ROUNDS; round++) {
        static struct scale_rig rig;
        uint64_t longest_ns = 0;
        if (open_shared(&rig, HOOK_SEQUENCES, INITIAL) != 0) {
            return -1;
        }
        int status = longest_wait(&rig, &longest_ns);
        scale_close(&rig);
        if (status != 0) {
            return status;
        }
        bench_series_add(&ms, (double)longest_ns / 1e6);
    }
    struct figure figure = {"scale_hook_wait_ms",
                            bench_series_at(&ms, 0.5),
                            2,
                            "1024 sequences are planned: longest call of a hook meanwhile",
                            "",
                            "",
                            "<= 10"};
    snprintf(figure.ours, sizeof(figure.ours), "%.2f ms (%.2f .. %.2f)", figure.value, bench_series_at(&ms, 0),
             bench_series_at(&ms, 1));
    report_figure(config, &figure);
    return 0;
}
