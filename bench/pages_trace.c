/* SPDX-License-Identifier: MIT */
/*
 * The built-in trace with pages of 4 KiB and of 64 KiB, and the eager cache beside them: what stays resident and what
 * the memory work before a first token takes. 4 KiB both ahead and by faults, of which the better counts; 64 KiB in the
 * way that the library picks. In turn, in this process. And with one ubatch ahead, beside an eager cache in the same
 * engine: one that computes layer by layer, and has two threads.
 */
#include "pages.h"

#include "replay.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 3, EAGER = 0, AHEAD, FAULT, LARGE, NEXT, EAGER_LAYERS, RUNS };

struct trial {
    struct bench_config config;
    const struct policy *policy;
    struct bench_series first_token_ms, average_mib;
};

static int run(struct trial *trial, const struct trace *trace, const struct replay_grid *grid)
{
    struct replay_result *result = calloc(1, sizeof(*result) + grid->n_sample * sizeof(result->sample[0]));
    if (result == NULL) {
        return bench_error("out of memory");
    }
    int status = replay_run(&trial->config, trace, trial->policy, grid, result);
    if (status == 0 && result->n_request != 0) {
        bench_series_add(&trial->first_token_ms, (double)result->first_token_ns / 1e6 / result->n_request);
        bench_series_add(&trial->average_mib, replay_average_mib(result));
    }
    free(result);
    return status;
}

static double median(struct bench_series *series)
{
    return bench_series_at(series, 0.5);
}

static void report(const struct bench_config *config, struct trial trial[RUNS])
{
    struct trial *large = &trial[LARGE], *next = &trial[NEXT];
    struct trial *eager = &trial[EAGER], *eager_layers = &trial[EAGER_LAYERS];
    bool ahead = median(&trial[AHEAD].first_token_ms) <= median(&trial[FAULT].first_token_ms);
    struct trial *small = ahead ? &trial[AHEAD] : &trial[FAULT];
    struct figure figures[] = {
        {.key = "pages_trace_resident",
         .value = median(&large->average_mib) / median(&small->average_mib),
         .digits = 4,
         .what = "built-in trace: resident on average",
         .wanted = "<= 1.03"},
        {.key = "pages_trace_first_token",
         .value = median(&large->first_token_ms) / median(&small->first_token_ms),
         .digits = 3,
         .what = "built-in trace: memory work before a first token",
         .wanted = "<= 0.6"},
        {.key = "pages_first_token_vs_eager",
         .value = median(&large->first_token_ms) / median(&eager->first_token_ms),
         .digits = 2,
         .what = "the same, over a cache that is all there",
         .wanted = "<= 3.5"},
        {.key = "pages_first_token_ahead_vs_eager",
         .value = median(&next->first_token_ms) / median(&eager_layers->first_token_ms),
         .digits = 2,
         .what = "one ubatch ahead, in the same engine",
         .wanted = "<= 1.7"},
        {.key = "pages_first_token_ahead_vs_eager_alone",
         .value = median(&next->first_token_ms) / median(&eager->first_token_ms),
         .digits = 2,
         .what = "… over an engine of one thread"},
    };
    snprintf(figures[0].ours, sizeof(figures[0].ours), "%.1f MiB", median(&large->average_mib));
    snprintf(figures[0].other, sizeof(figures[0].other), "4 KiB: %.1f MiB", median(&small->average_mib));
    snprintf(figures[1].ours, sizeof(figures[1].ours), "%.2f ms", median(&large->first_token_ms));
    snprintf(figures[1].other, sizeof(figures[1].other), "4 KiB: %.2f ms %s", median(&small->first_token_ms),
             ahead ? "ahead" : "by faults");
    snprintf(figures[2].ours, sizeof(figures[2].ours), "%.2f ms", median(&large->first_token_ms));
    snprintf(figures[2].other, sizeof(figures[2].other), "eager: %.2f ms", median(&eager->first_token_ms));
    snprintf(figures[3].ours, sizeof(figures[3].ours), "%.2f ms", median(&next->first_token_ms));
    snprintf(figures[3].other, sizeof(figures[3].other), "eager, 2 threads: %.2f ms",
             median(&eager_layers->first_token_ms));
    snprintf(figures[4].ours, sizeof(figures[4].ours), "%.2f ms", median(&next->first_token_ms));
    snprintf(figures[4].other, sizeof(figures[4].other), "eager: %.2f ms", median(&eager->first_token_ms));
    for (size_t i = 0; i < sizeof(figures) / sizeof(figures[0]); i++) {
        report_figure(config, &figures[i]);
    }
}

int pages_trace(const struct bench_config *config)
{
    static struct trial trial[RUNS];
    static const struct {
        const struct policy *policy;
        uint32_t flags;
        bool is_large;
    } way[RUNS] = {
        [EAGER] = {.policy = &policy_eager},
        [AHEAD] = {.policy = &policy_kvlazy, .flags = KVLAZY_COMMIT_AHEAD},
        [FAULT] = {.policy = &policy_kvlazy, .flags = KVLAZY_NO_COMMIT_AHEAD},
        [LARGE] = {.policy = &policy_kvlazy, .is_large = true},
        [NEXT] = {.policy = &policy_ahead, .flags = KVLAZY_UBATCH_AHEAD, .is_large = true},
        [EAGER_LAYERS] = {.policy = &policy_eager_layers},
    };
    struct trace trace = {0};
    struct replay_grid grid;
    int status = pages_granted(PAGES_BYTES);
    if (status != 0) {
        return status;
    }
    for (int i = 0; i < RUNS; i++) {
        bench_config_default(&trial[i].config);
        trial[i].config.page_bytes = way[i].is_large ? PAGES_BYTES : bench_page_bytes();
        trial[i].config.flags = way[i].flags;
        trial[i].policy = way[i].policy;
    }
    status = trace_builtin(&trace, 1);
    status = status == 0 ? replay_grid_make(&trial[LARGE].config, &trace, &grid) : status;
    for (int k = 0; status == 0 && k < ROUNDS * RUNS; k++) {
        status = run(&trial[k % RUNS], &trace, &grid);
    }
    if (status == 0) {
        report(config, trial);
    }
    trace_free(&trace);
    return status;
}
