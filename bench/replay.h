/* SPDX-License-Identifier: MIT */
/*
 * The replay: one trace served by the slots of one policy, on a virtual clock. replay.c runs one policy in
 * this process, comparison.c runs several of them side by side, each in a process of its own.
 */
#ifndef BENCH_REPLAY_H
#define BENCH_REPLAY_H

#include "policy.h"
#include "trace.h"

/** The instants at which every policy is sampled: 0, step, 2 · step, … to the end of the silence. */
struct replay_grid {
    uint64_t step_us;
    uint32_t n_sample;
};

struct replay_result {
    /* what the policy cost */
    uint64_t create_ns;
    uint64_t first_token_ns;    /* sum over requests of the memory work before their first token */
    uint64_t recomputed_tokens; /* of prompts: some slot computed them before */
    uint64_t prompt_tokens, prefilled_tokens;
    struct policy_stored stored;
    uint64_t written_tokens;
    uint64_t peak_bytes, last_token_us, wall_ns;
    uint32_t n_request;
    /* how it went, for the process that waits */
    volatile uint64_t clock_us;
    volatile int done;
    char error[512];
    /* resident bytes on the grid */
    uint32_t n_sample;
    uint64_t sample[]; /* [grid.n_sample] */
};

/**
 * Serves the trace. Fills *result except done, wall_ns and error. Returns 0, or -1 with bench_why().
 * With a grid without samples it only finds out when the last token comes.
 */
int replay_run(const struct bench_config *config, const struct trace *trace, const struct policy *policy,
               const struct replay_grid *grid, struct replay_result *result);

/** A grid for this trace: until the last token under the model's schedule, then two idle times of silence. */
int replay_grid_make(const struct bench_config *config, const struct trace *trace, struct replay_grid *grid);

double replay_average_mib(const struct replay_result *result);

/* ------------------------------------------------------------------------------------------------------
 * comparison.c
 */
enum {
    COMPARISON_EAGER,
    COMPARISON_DEMAND,
    COMPARISON_SEED,
    COMPARISON_KVLAZY,
    COMPARISON_STORE,
    COMPARISON_POLICIES,
};

struct comparison {
    struct replay_grid grid;
    const struct policy *policy[COMPARISON_POLICIES];
    struct replay_result *result[COMPARISON_POLICIES]; /* shared with the children */
    struct replay_result *model, *tight_model;
};

/** Runs all policies, two at a time, and the model. 0, or -1 with bench_why(). */
int comparison_run(struct comparison *comparison, const struct bench_config *config, const struct trace *trace);
void comparison_free(struct comparison *comparison);

#endif
