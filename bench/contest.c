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

void contest_free(struct contest *contest)
{
    for (int i = 0; i < CONTEST_POLICIES; i++) {
        if (contest->result[i] != NULL) {
            munmap(contest->result[i], result_bytes(&contest->grid));
        }
    }
    if (contest->model != NULL) {
        munmap(contest->model, result_bytes(&contest->grid));
    }
    if (contest->tight_model != NULL) {
        munmap(contest->tight_model, result_bytes(&contest->grid));
    }
}

static pid_t contest_start(struct contest *contest, int i, const struct bench_config *config, const struct trace *trace)
{
    struct replay_result *result = contest->result[i];
    pid_t parent = getpid(), child = fork();
    if (child != 0) {
        return child;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* gigabytes must not outlive an interrupted parent */
    if (getppid() != parent) {
        _exit(1);
    }
    uint64_t start_ns = bench_now_ns();
    int status = replay_run(config, trace, contest->policy[i], &contest->grid, result);
    result->wall_ns = bench_now_ns() - start_ns;
    if (status != 0) {
        snprintf(result->error, sizeof(result->error), "%s", bench_why());
    }
    result->done = 1;
    _exit(status == 0 ? 0 : 1);
}

static void draw_progress(const struct contest *contest, bool last)
{
    enum { WIDTH = 24 };
    double end_us = (double)contest->grid.n_sample * (double)contest->grid.step_us;
    double part = 0;
    char text[160] = "";
    for (int i = 0; i < CONTEST_POLICIES; i++) {
        const struct replay_result *result = contest->result[i];
        double here = result->done ? 1 : (double)result->clock_us / end_us;
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "  %s %3.0f%%", contest->policy[i]->name, 100 * here);
        part += here / CONTEST_POLICIES;
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
static int child_status(const struct contest *contest, int i, int wait_status)
{
    const char *name = contest->policy[i]->name;
    if (WIFSIGNALED(wait_status)) {
        return bench_error("policy %s died of signal %d (%s)", name, WTERMSIG(wait_status),
                           WTERMSIG(wait_status) == SIGKILL ? "out of memory?" : strsignal(WTERMSIG(wait_status)));
    }
    if (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0) {
        return bench_error("policy %s: %s", name, contest->result[i]->error);
    }
    return 0;
}

static int contest_children(struct contest *contest, const struct bench_config *config, const struct trace *trace)
{
    pid_t child[CONTEST_POLICIES] = {0};
    int n_started = 0, n_running = 0, status = 0;
    bool terminal = isatty(STDERR_FILENO);
    fflush(NULL); /* children must not print what waits in a buffer */
    while (n_running > 0 || (status == 0 && n_started < CONTEST_POLICIES)) {
        while (status == 0 && n_started < CONTEST_POLICIES && n_running < AT_ONCE) {
            child[n_started] = contest_start(contest, n_started, config, trace);
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
                status = child_status(contest, i, wait_status);
            }
        }
        for (int i = 0; status != 0 && i < n_started; i++) { /* one failed: the others need not go on */
            if (child[i] != 0) {
                kill(child[i], SIGKILL);
            }
        }
        if (terminal) {
            draw_progress(contest, n_running == 0);
        }
    }
    return status;
}

int contest_run(struct contest *contest, const struct bench_config *config, const struct trace *trace)
{
    *contest = (struct contest){
        .policy = {[CONTEST_EAGER] = &policy_eager,
                   [CONTEST_DEMAND] = &policy_demand,
                   [CONTEST_SEED] = &policy_seed,
                   [CONTEST_KVLAZY] = &policy_kvlazy},
    };
    uint64_t reserved_bytes = bench_tensor_bytes(config) * bench_tensors(config);
    uint64_t available_bytes = bench_available_bytes();
    if (reserved_bytes > available_bytes / AT_ONCE) {
        return bench_error("two policies at a time may need 2 x %llu MiB, %llu MiB are available: fewer --slots, "
                           "--layers or cells (--kv-size), please",
                           (unsigned long long)(reserved_bytes >> 20), (unsigned long long)(available_bytes >> 20));
    }
    if (replay_grid_make(config, trace, &contest->grid) != 0) {
        return -1;
    }
    contest->model = result_new(&contest->grid);
    contest->tight_model = result_new(&contest->grid);
    for (int i = 0; i < CONTEST_POLICIES; i++) {
        contest->result[i] = result_new(&contest->grid);
        if (contest->result[i] == NULL || contest->model == NULL || contest->tight_model == NULL) {
            return bench_error("out of memory for the results");
        }
    }
    if (replay_run(config, trace, &policy_model, &contest->grid, contest->model) != 0 ||
        replay_run(config, trace, &policy_model_tight, &contest->grid, contest->tight_model) != 0) {
        return -1;
    }
    return contest_children(contest, config, trace);
}
