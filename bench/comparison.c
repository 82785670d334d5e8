/* SPDX-License-Identifier: MIT */
/*
 * All policies on one trace: each in a child process, so that what one does to memory cannot help or hurt
 * another, two at a time, and the model before them. Results come back through shared memory; while children
 * work, the parent draws a progress bar if its stderr is a terminal. Called once a run by main.c.
 */
#include "replay.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AT_ONCE = 2 };

static size_t result_bytes(const struct replay_grid *grid)
{
    return sizeof(struct replay_result) + grid->n_sample * sizeof(uint64_t);
}

static struct replay_result *result_new(const struct replay_grid *grid)
{
    void *map = mmap(NULL, result_bytes(grid), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return map == MAP_FAILED ? NULL : map;
}

void comparison_free(struct comparison *comparison)
{
    for (int i = 0; i < COMPARISON_POLICIES; i++) {
        if (comparison->result[i] != NULL) {
            munmap(comparison->result[i], result_bytes(&comparison->grid));
        }
    }
    if (comparison->model != NULL) {
        munmap(comparison->model, result_bytes(&comparison->grid));
    }
    if (comparison->tight_model != NULL) {
        munmap(comparison->tight_model, result_bytes(&comparison->grid));
    }
}

static pid_t comparison_start(struct comparison *comparison, int i, const struct bench_config *config,
                              const struct trace *trace)
{
    struct replay_result *result = comparison->result[i];
    pid_t parent = getpid(), child = fork();
    if (child != 0) {
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* gigabytes must not outlive an interrupted parent */
    if (getppid() != parent) {
        _exit(1);
    }
    uint64_t start_ns = bench_now_ns();
    int status = replay_run(config, trace, comparison->policy[i], &comparison->grid, result);
    result->wall_ns = bench_now_ns() - start_ns;
    if (status != 0) {
        snprintf(result->error, sizeof(result->error), "%s", bench_why());
    }
    result->done = 1;
    _exit(status == 0 ? 0 : 1);
}

static void draw_progress(const struct comparison *comparison, bool last)
{
    enum { WIDTH = 24 };
    double end_us = (double)comparison->grid.n_sample * (double)comparison->grid.step_us;
    double part = 0;
    char text[200] = "";
    for (int i = 0; i < COMPARISON_POLICIES; i++) {
        const struct replay_result *result = comparison->result[i];
        double here = result->done ? 1 : (double)result->clock_us / end_us;
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "  %s %3.0f%%", comparison->policy[i]->name, 100 * here);
        part += here / COMPARISON_POLICIES;
    }
    int n = (int)(part * WIDTH + 0.5);
    n = n < WIDTH ? n : WIDTH;
    fprintf(stderr, "\r[%.*s%*s]%s", n, "########################", WIDTH - n, "", text);
    if (last) {
        fprintf(stderr, "\r\033[K");
    }
    fflush(stderr);
}

/* Says how a child ended, if it failed. */
static int child_status(const struct comparison *comparison, int i, int wait_status)
{
    const char *name = comparison->policy[i]->name;
    if (WIFSIGNALED(wait_status)) {
        return bench_error("policy %s died of signal %d (%s)", name, WTERMSIG(wait_status),
                           WTERMSIG(wait_status) == SIGKILL ? "out of memory?" : strsignal(WTERMSIG(wait_status)));
    }
    if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0) {
        return bench_error("policy %s: %s", name, comparison->result[i]->error);
    }
    return 0;
}

static int comparison_children(struct comparison *comparison, const struct bench_config *config,
                               const struct trace *trace)
{
    pid_t child[COMPARISON_POLICIES] = {0};
    int n_started = 0, n_running = 0, status = 0;
    bool terminal = isatty(STDERR_FILENO);
    fflush(NULL); /* children must not print what waits in a buffer */
    while (n_running > 0 || (status == 0 && n_started < COMPARISON_POLICIES)) {
        while (status == 0 && n_started < COMPARISON_POLICIES && n_running < AT_ONCE) {
            child[n_started] = comparison_start(comparison, n_started, config, trace);
            if (child[n_started] < 0) {
                child[n_started] = 0;
                status = bench_error("fork: %s", strerror(errno));
                break;
            }
            n_started++;
            n_running++;
        }
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
        for (int i = 0; i < n_started; i++) {
            int wait_status;
            if (child[i] == 0 || waitpid(child[i], &wait_status, WNOHANG) != child[i]) {
                continue;
            }
            child[i] = 0;
            n_running--;
            if (status == 0) {
                status = child_status(comparison, i, wait_status);
            }
        }
        for (int i = 0; status != 0 && i < n_started; i++) { /* one failed: the others need not go on */
            if (child[i] != 0) {
                kill(child[i], SIGKILL);
            }
        }
        if (terminal) {
            draw_progress(comparison, n_running == 0);
        }
    }
    return status;
}

int comparison_run(struct comparison *comparison, const struct bench_config *config, const struct trace *trace)
{
    *comparison = (struct comparison){
        .policy = {[COMPARISON_EAGER] = &policy_eager,
                   [COMPARISON_DEMAND] = &policy_demand,
                   [COMPARISON_SEED] = &policy_seed,
                   [COMPARISON_KVLAZY] = &policy_kvlazy,
                   [COMPARISON_STORE] = &policy_store},
    };
    uint64_t reserved_bytes = bench_tensor_bytes(config) * bench_tensors(config);
    uint64_t available_bytes = bench_available_bytes();
    if (reserved_bytes > available_bytes / AT_ONCE) {
        return bench_error("two policies at a time may need 2 x %llu MiB, %llu MiB are available: fewer --slots, "
                           "--layers or cells (--kv-size), please",
                           (unsigned long long)(reserved_bytes >> 20), (unsigned long long)(available_bytes >> 20));
    }
    if (replay_grid_make(config, trace, &comparison->grid) != 0) {
        return -1;
    }
    comparison->model = result_new(&comparison->grid);
    comparison->tight_model = result_new(&comparison->grid);
    for (int i = 0; i < COMPARISON_POLICIES; i++) {
        comparison->result[i] = result_new(&comparison->grid);
        if (comparison->result[i] == NULL || comparison->model == NULL || comparison->tight_model == NULL) {
            return bench_error("out of memory for the results");
        }
    }
    if (replay_run(config, trace, &policy_model, &comparison->grid, comparison->model) != 0 ||
        replay_run(config, trace, &policy_model_tight, &comparison->grid, comparison->tight_model) != 0) {
        return -1;
    }
    return comparison_children(comparison, config, trace);
}
