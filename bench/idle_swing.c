/* SPDX-License-Identifier: MIT */
/*
 * System calls of a load that swings by one n_pad around a power of two: the soft cap goes up and down with it, memory
 * must not. Half of the steps put one n_pad of tokens over the power of two in a batch and take them away again, half
 * go there token by token. Ten milliseconds a step on a clock moved by hand, so that the idle time passes many times.
 */
#include "calls.h"
#include "idle.h"

#include <stdio.h>

enum {
    POWER = 2048,
    PAD = 256,
    LOW = POWER - PAD / 2,
    STEPS = 10000,
    STEP_MS = 10,
};
enum { BY_BATCH, BY_TOKEN, WAYS };

/* One step; returns a status of the library. */
static int swing_step(struct idle_rig *rig, int way)
{
    rig->now_ms += STEP_MS;
    if (kvlazy_seq_pos_max(rig->cache, 0) + 1 >= LOW + PAD) {
        return kvlazy_seq_rm(rig->cache, 0, LOW, -1);
    }
    return idle_put(rig, 0, way == BY_BATCH ? PAD : 1, PAD, false);
}

static int swing_steps(struct idle_rig *rig, int way, uint32_t n)
{
    int status = KVLAZY_OK;
    for (uint32_t i = 0; status == KVLAZY_OK && i < n; i++) {
        status = swing_step(rig, way);
    }
    return status == KVLAZY_OK ? 0 : idle_error("a step of the swing", status);
}

/* Two idle times of both ways. */
static int swing_warm_up(void *ctx)
{
    struct idle_rig *rig = ctx;
    struct bench_config geometry;
    bench_config_default(&geometry);
    geometry.n_slot = 1;
    idle_init(rig, &geometry, 1, true);
    if (idle_create(rig) != 0 || idle_put(rig, 0, LOW, IDLE_UBATCH, false) != KVLAZY_OK) {
        return -1;
    }
    uint32_t n = 2 * geometry.idle_ms / STEP_MS;
    return swing_steps(rig, BY_TOKEN, n) == 0 && swing_steps(rig, BY_BATCH, n) == 0 ? 0 : -1;
}

static int swing_run(void *ctx)
{
    for (int way = 0; way < WAYS; way++) {
        calls_mark((uint32_t)way);
        if (swing_steps(ctx, way, STEPS / WAYS) != 0) {
            return -1;
        }
    }
    return 0;
}

int idle_swing(const struct bench_config *config)
{
    static struct idle_rig rig;
    uint64_t n_call[WAYS];
    int status = calls_count("swing_syscalls", swing_warm_up, swing_run, &rig, n_call, WAYS);
    if (status != 0) {
        return status;
    }
    struct figure figure = {.key = "swing_syscalls",
                            .value = (double)(n_call[BY_BATCH] + n_call[BY_TOKEN]),
                            .what = "swing by one n_pad around 2048: system calls",
                            .wanted = "0"};
    snprintf(figure.ours, sizeof(figure.ours), "in %d steps, by ptrace", STEPS);
    snprintf(figure.other, sizeof(figure.other), "by batches %zu, by tokens %zu", (size_t)n_call[BY_BATCH],
             (size_t)n_call[BY_TOKEN]);
    report_figure(config, &figure);
    return 0;
}
