/* SPDX-License-Identifier: MIT */
/*
 * Steady decode, a token a batch, in every layout: page faults of the thread around its row writes, and, in a second
 * pass, system calls of whole tokens. One call commits at most 1024 ranges, and a transposed V has a range a channel:
 * once in 2048 cells its next pages take a call for every 1024 channels. So the figure is of the row-major layouts.
 */
#include "calls.h"
#include "tensors.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { WARM_UP = 64, TOKENS = 512, EVERY = 32 };

static int decode_one(struct tensors_rig *rig)
{
    if (tensors_begin_one(rig) != 0) {
        return -1;
    }
    tensors_write(rig, rig->n_held - 1, 1);
    return tensors_end(rig);
}

static int warm_up(struct tensors_rig *rig, const struct tensors_layout *layout)
{
    if (tensors_open(rig, layout, 0) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < WARM_UP; i++) {
        if (decode_one(rig) != 0) {
            tensors_close(rig);
            return -1;
        }
    }
    return 0;
}

static int thread_faults(uint64_t *n)
{
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) != 0) {
        return bench_error("getrusage: %s", strerror(errno));
    }
    *n = (uint64_t)usage.ru_minflt + (uint64_t)usage.ru_majflt;
    return 0;
}

/* Faults around the writes only: the kernel counts the pages of a commit as faults too. */
static int count_faults(struct tensors_rig *rig, uint64_t *n_fault)
{
    *n_fault = 0;
    for (uint32_t i = 0; i < TOKENS; i++) {
        uint64_t before = 0, after = 0;
        if (tensors_begin_one(rig) != 0 || thread_faults(&before) != 0) {
            return -1;
        }
        tensors_write(rig, rig->n_held - 1, 1);
        if (thread_faults(&after) != 0 || tensors_end(rig) != 0) {
            return -1;
        }
        *n_fault += after - before;
    }
    return 0;
}

static int decode_faults(const struct tensors_layout *layout, uint64_t *n_fault)
{
    static struct tensors_rig rig;
    if (warm_up(&rig, layout) != 0) {
        return -1;
    }
    int status = count_faults(&rig, n_fault);
    tensors_close(&rig);
    return status;
}

struct decoding {
    const struct tensors_layout *layout;
    struct tensors_rig *rig;
};

static int decoding_prepare(void *ctx)
{
    struct decoding *decoding = ctx;
    return warm_up(decoding->rig, decoding->layout);
}

/* A section a token. */
static int decoding_run(void *ctx)
{
    struct decoding *decoding = ctx;
    for (uint32_t i = 0; i < TOKENS; i++) {
        calls_mark(i);
        if (decode_one(decoding->rig) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Calls a 32 tokens, and the fewest tokens without any of every 32. */
static int decode_calls(const struct tensors_layout *layout, double *calls_per_32, uint32_t *silent_of_32)
{
    static struct tensors_rig rig;
    static uint64_t n_call[TOKENS];
    struct decoding decoding = {layout, &rig};
    int status = calls_count("decode_syscalls_per_32", decoding_prepare, decoding_run, &decoding, n_call, TOKENS);
    uint64_t n = 0;
    *silent_of_32 = EVERY;
    for (uint32_t i = 0; status == 0 && i < TOKENS; i += EVERY) {
        uint32_t n_silent = 0;
        for (uint32_t k = i; k < i + EVERY; k++) {
            n += n_call[k];
            n_silent += n_call[k] == 0;
        }
        *silent_of_32 = n_silent < *silent_of_32 ? n_silent : *silent_of_32;
    }
    *calls_per_32 = (double)n * EVERY / TOKENS;
    return status;
}

static int report_faults(const struct bench_config *config)
{
    struct figure figure = {"decode_faults", 0, 0, "decode: page faults around row writes", "", "", "0"};
    for (size_t k = 0; k < TENSORS_LAYOUTS; k++) {
        uint64_t n_fault;
        if (decode_faults(&tensors_layouts[k], &n_fault) != 0) {
            return -1;
        }
        figure.value += (double)n_fault;
    }
    snprintf(figure.ours, sizeof(figure.ours), "in %d tokens of each of %d layouts", TOKENS, TENSORS_LAYOUTS);
    report_figure(config, &figure);
    return 0;
}

int tensors_decode(const struct bench_config *config)
{
    double worst = 0;
    if (report_faults(config) != 0) {
        return -1;
    }
    for (size_t k = 0; k < TENSORS_LAYOUTS; k++) {
        const struct tensors_layout *layout = &tensors_layouts[k];
        double calls_per_32;
        uint32_t silent_of_32;
        int status = decode_calls(layout, &calls_per_32, &silent_of_32);
        if (status != 0) {
            return status;
        }
        if (layout->v_channels == 0 && calls_per_32 > worst) {
            worst = calls_per_32;
        }
        char what[64];
        snprintf(what, sizeof(what), "decode, %s: calls a 32 tokens", layout->what);
        struct figure figure = {NULL, calls_per_32, 2, what, "", "", NULL};
        snprintf(figure.ours, sizeof(figure.ours), "none on %u of 32, or more", silent_of_32);
        report_figure(config, &figure);
    }
    struct figure figure = {
        "decode_syscalls_per_32", worst, 2, "decode: system calls a 32 tokens, row-major", "", "", "<= 1"};
    snprintf(figure.ours, sizeof(figure.ours), "in %d tokens, by ptrace", TOKENS);
    report_figure(config, &figure);
    return 0;
}
