/* SPDX-License-Identifier: MIT */
/*
 * The system calls of the hooks when the pages of the rows are touched already, counted by calls.h in a child that
 * decodes tokens.
 */
#include "calls.h"
#include "micro.h"

#include <stdio.h>

enum {
    TOKENS = 500,
    DEPTH_CELLS = 512,
};

static int touch_all(void *ctx)
{
    struct rig *rig = ctx;
    struct bench_config geometry;
    bench_config_default(&geometry);
    if (rig_open(rig, &geometry, false) != 0 || rig_put(rig, 0, 0, DEPTH_CELLS + TOKENS) != 0) {
        return -1;
    }
    return kvlazy_seq_rm(rig->cache, 0, DEPTH_CELLS, -1);
}

static int decode(void *ctx)
{
    int status = KVLAZY_OK;
    calls_mark(0);
    for (uint32_t i = 0; status == KVLAZY_OK && i < TOKENS; i++) {
        status = rig_decode(ctx, 0, DEPTH_CELLS + i);
    }
    return status;
}

int micro_syscall(const struct bench_config *config)
{
    static struct rig rig;
    uint64_t n_call;
    int status = calls_count("hook_syscalls", touch_all, decode, &rig, &n_call, 1);
    if (status != 0) {
        return status;
    }
    struct figure figure = {"hook_syscalls", (double)n_call, 0, "the same: system calls", "", "", "0"};
    snprintf(figure.ours, sizeof(figure.ours), "in %d tokens, by ptrace", TOKENS);
    report_figure(config, &figure);
    return 0;
}
