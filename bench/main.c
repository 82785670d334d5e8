/* SPDX-License-Identifier: MIT */
/*
 * The bench: reads the options and the trace, measures the micro figures, runs the comparison of the policies and
 * reports. bench/run builds it, calls it and draws what it left for the plot; nothing else calls it.
 */
#include "cells.h"
#include "fleet.h"
#include "idle.h"
#include "micro.h"
#include "pages.h"
#include "scale.h"
#include "state.h"
#include "store.h"
#include "tensors.h"

#include <stdio.h>
#include <string.h>
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
    {"layouts", tensors_table},     {"prefill", tensors_prefill}, {"commit ahead", tensors_commit_ahead},
    {"decode", tensors_decode},     {"release", tensors_release}, {"mappings", tensors_maps},
    {"own cells", tensors_outside}, {"engine", tensors_engine},
};

static const struct measure idle[] = {
    {"floor", idle_floor}, {"return", idle_return}, {"hooks", idle_hook},    {"swing", idle_swing},
    {"pool", idle_pool},   {"costs", idle_cost},    {"engine", idle_engine},
};

/* bytes first: on a heap that nothing else has used */
static const struct measure cells[] = {
    {"bytes", cells_bytes},
    {"operations", cells_operations},
    {"masks", cells_mask},
};

static const struct measure scale[] = {
    {"bookkeeping", scale_bookkeeping}, {"plans", scale_plans},         {"hooks", scale_hook},
    {"windows", scale_window},          {"sequences", scale_sequences}, {"hosts", scale_host},
};

static const struct measure state[] = {
    {"copies", state_copy},   {"files", state_file},    {"hooks", state_hook},
    {"others", state_others}, {"engine", state_engine},
};

static const struct measure store[] = {
    {"files", store_file},
    {"hooks", store_hook},
    {"opening", store_opening},
    {"engine", store_engine},
};

static const struct measure fleet[] = {
    {"traces", fleet_serve},
    {"speed", fleet_speed},
    {"a server that hangs", fleet_hung},
    {"rows", fleet_rows},
};

static const struct measure pages[] = {
    {"fresh and given back", pages_cost}, {"read before", pages_read}, {"returned", pages_returned},
    {"ahead or by faults", pages_choice}, {"trace", pages_trace},      {"fragmented", pages_fragmented},
};

#define PART(name)                                    \
    {                                                 \
#name, name, sizeof(name) / sizeof((name)[0]) \
    }

static const struct part {
    const char *name;
    const struct measure *measure;
    size_t n;
} parts[] = {PART(cells), PART(tensors), PART(idle), PART(scale), PART(state), PART(store), PART(fleet), PART(pages)};

static const struct part *find_part(const char *name)
{
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (strcmp(parts[i].name, name) == 0) {
            return &parts[i];
        }
    }
    return NULL;
}

bool bench_is_part(const char *name)
{
    return find_part(name) != NULL;
}

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

static int serve(const struct bench_config *config, const struct trace *trace)
{
    struct comparison comparison;
    int status = comparison_run(&comparison, config, trace);
    if (status == 0) {
        report_comparison(config, trace, &comparison);
        if (config->plot_path != NULL) {
            status = report_plot(config, trace, &comparison);
        }
    }
    if (status != 0) {
        fprintf(stderr, "bench: %s\n", bench_why());
    }
    comparison_free(&comparison);
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
    if (config.set_folios && pages_set_folios() != 0) { /* before any cache asks the host */
        fprintf(stderr, "bench: %s\n", bench_why());
        return 1;
    }
    report_begin(&config);
    if (config.part != NULL) {
        const struct part *part = find_part(config.part);
        status = measure_all(&config, part->measure, part->n);
    }
    if (config.micro) {
        status = measure_all(&config, micro, sizeof(micro) / sizeof(micro[0]));
    }
    if (config.replay && serve(&config, &trace) != 0) {
        status = -1;
    }
    trace_free(&trace);
    return status == 0 ? 0 : 1;
}
