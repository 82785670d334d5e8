/* SPDX-License-Identifier: MIT */
/*
 * The bench: reads the options and the trace, measures the micro figures, runs the contest of the policies and
 * reports. bench/run builds it, calls it and draws what it left for the plot; nothing else calls it.
 */
#include "cells.h"
#include "idle.h"
#include "micro.h"
#include "state.h"
#include "tensors.h"

#include <stdio.h>
#include <unistd.h>

struct measure {
    const char *name;
    int (*measure)(const struct bench_config *config);
};

static const struct measure micro[] = {
    {"create", micro_create}, {"prefill", micro_cover},        {"idle shrink", micro_shrink},
    {"hooks", micro_hook},    {"system calls", micro_syscall}, {"long tail", micro_longtail},
    {"engine", micro_engine},
};

static const struct measure tensors[] = {
    {"layouts", tensors_table}, {"prefill", tensors_prefill}, {"commit ahead", tensors_commit_ahead},
    {"decode", tensors_decode}, {"release", tensors_release}, {"mappings", tensors_maps},
    {"engine", tensors_engine},
};

static const struct measure idle[] = {
    {"floor", idle_floor}, {"return", idle_return}, {"hooks", idle_hook},    {"swing", idle_swing},
    {"pool", idle_pool},   {"costs", idle_cost},    {"engine", idle_engine},
};

static const struct measure states[] = {
    {"copies", state_copy},   {"files", state_file},    {"hooks", state_hook},
    {"others", state_others}, {"engine", state_engine},
};

/* Every figure gets its chance; one that fails does not hide the others. */
static int measure_all(const struct bench_config *config, const struct measure *measure, size_t n)
{
    int status = 0;
    bool quiet = !isatty(STDERR_FILENO) || !config->keys; /* the table shows how far it is */
    for (size_t i = 0; i < n; i++) {
        if (!quiet) {
            fprintf(stderr, "\r\033[K%zu/%zu %s", i + 1, n, measure[i].name);
        }
        int here = measure[i].measure(config);
        if (!quiet) {
            fprintf(stderr, "\r\033[K");
        }
        if (here != 0) {
            fprintf(stderr, "bench: %s: %s%s\n", here > 0 ? "note" : measure[i].name, bench_why(),
                    here > 0 ? "; left out" : "");
        }
        status = here < 0 ? -1 : status;
    }
    return status;
}

static int measure_cells(const struct bench_config *config)
{
    /* bytes first: on a heap that nothing else has used */
    if (cells_bytes(config) == 0 && cells_operations(config) == 0 && cells_mask(config) == 0) {
        return 0;
    }
    fprintf(stderr, "bench: cells: %s\n", bench_why());
    return -1;
}

static int serve(const struct bench_config *config, const struct trace *trace)
{
    struct contest contest;
    int status = contest_run(&contest, config, trace);
    if (status == 0) {
        report_contest(config, trace, &contest);
        if (config->plot_path != NULL) {
            status = report_plot(config, trace, &contest);
        }
    }
    if (status != 0) {
        fprintf(stderr, "bench: %s\n", bench_why());
    }
    contest_free(&contest);
    return status;
}

int main(int argc, char **argv)
{
    struct bench_config config;
    struct trace trace = {0};
    bench_config_parse(&config, argc, argv);
    if (config.trace_path != NULL || config.replay) { /* a bad trace is told before minutes of figures */
        int status = config.trace_path == NULL ? trace_builtin(&trace, config.take)
                                               : trace_read(&trace, config.trace_path, config.take);
        if (status != 0) {
            fprintf(stderr, "bench: %s\n", bench_why());
            return 2;
        }
    }
    int status = 0;
    report_begin(&config);
    if (config.cells) {
        status = measure_cells(&config);
    }
    if (config.micro) {
        status = measure_all(&config, micro, sizeof(micro) / sizeof(micro[0]));
    }
    if (config.tensors) {
        status = measure_all(&config, tensors, sizeof(tensors) / sizeof(tensors[0]));
    }
    if (config.idle) {
        status = measure_all(&config, idle, sizeof(idle) / sizeof(idle[0]));
    }
    if (config.state) {
        status = measure_all(&config, states, sizeof(states) / sizeof(states[0]));
    }
    if (config.replay && serve(&config, &trace) != 0) {
        status = -1;
    }
    trace_free(&trace);
    return status == 0 ? 0 : 1;
}
