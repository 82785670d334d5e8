/* SPDX-License-Identifier: MIT */
/*
 * The counter of calls.h. A child that fails or is killed ends the counting; the parent waits for it on every way out.
 */
#include "calls.h"

#include "bench.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    KNOWN_CALLS = 3,
    SECTIONS_MAX = 0xffff,
    MARK = 0x6b760000, /* + the section; one past the last: the known calls; two past it: the end */
};

struct counter {
    uint64_t *n_call;
    uint32_t n_section;
    uint64_t n_known;
};

void calls_mark(uint32_t section)
{
    syscall(SYS_getpgid, (long)MARK + (long)section);
}

/* Exit code: 0 all done, 1 the code that is looked at failed, 2 ptrace is not allowed. */
static int traced_child(int (*prepare)(void *ctx), int (*run)(void *ctx), void *ctx, uint32_t n_section)
{
    if (prepare(ctx) != 0) {
        return 1;
    }
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        return 2;
    }
    raise(SIGSTOP);
    int status = run(ctx);
    calls_mark(n_section);
    for (int i = 0; i < KNOWN_CALLS; i++) {
        syscall(SYS_getppid);
    }
    calls_mark(n_section + 1);
    return status == 0 ? 0 : 1;
}

static void count_call(struct counter *counter, int64_t section)
{
    if (section >= 0 && section < counter->n_section) {
        counter->n_call[section]++;
    } else if (section == counter->n_section) {
        counter->n_known++;
    }
}

/* Follows the child to its end. */
static int follow(pid_t child, struct counter *counter, int *wait_status)
{
    int64_t section = -1;
    long signal_number = 0;
    for (;;) {
        if (ptrace(PTRACE_SYSCALL, child, NULL, signal_number) != 0 || waitpid(child, wait_status, 0) != child) {
            return bench_error("following the traced child: %s", strerror(errno));
        }
        if (!WIFSTOPPED(*wait_status)) {
            return 0;
        }
        signal_number = 0;
        if (WSTOPSIG(*wait_status) != (SIGTRAP | 0x80)) {
            signal_number = WSTOPSIG(*wait_status);
            continue;
        }
        struct __ptrace_syscall_info info; /* glibc's name for the kernel's ptrace_syscall_info */
        if (ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) <= 0) {
            return bench_error("PTRACE_GET_SYSCALL_INFO: %s", strerror(errno));
        }
        if (info.op != PTRACE_SYSCALL_INFO_ENTRY) {
            continue;
        }
        if (info.entry.nr == SYS_getpgid && info.entry.args[0] >= MARK &&
            info.entry.args[0] <= MARK + counter->n_section + UINT64_C(1)) {
            section = (int64_t)(info.entry.args[0] - MARK);
        } else {
            count_call(counter, section);
        }
    }
}

static int trace_child(const char *what, pid_t child, struct counter *counter)
{
    int wait_status;
    if (waitpid(child, &wait_status, 0) != child) {
        return bench_error("waiting for the traced child: %s", strerror(errno));
    }
    if (WIFEXITED(wait_status)) {
        bench_error("%s: %s", what, WEXITSTATUS(wait_status) == 2 ? "ptrace is not allowed" : "the child failed");
        return WEXITSTATUS(wait_status) == 2 ? 1 : -1;
    }
    if (!WIFSTOPPED(wait_status) ||
        ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0) {
        bench_error("%s: the child could not be traced", what);
        return 1;
    }
    int status = follow(child, counter, &wait_status);
    if (status == 0 && (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0)) {
        status = bench_error("%s: the traced child failed", what);
    }
    return status;
}

int calls_count(const char *what, int (*prepare)(void *ctx), int (*run)(void *ctx), void *ctx, uint64_t *n_call,
                uint32_t n_section)
{
    struct counter counter = {n_call, n_section, 0};
    if (n_section + 1 > SECTIONS_MAX) {
        return bench_error("%s: %u sections are too many", what, n_section);
    }
    memset(n_call, 0, n_section * sizeof(*n_call));
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        return bench_error("fork: %s", strerror(errno));
    }
    if (child == 0) {
        _exit(traced_child(prepare, run, ctx, n_section));
    }
    int status = trace_child(what, child, &counter);
    if (status != 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        return status;
    }
    if (counter.n_known != KNOWN_CALLS) {
        bench_error("%s: %d calls were made to try the counter, it saw %llu", what, KNOWN_CALLS,
                    (unsigned long long)counter.n_known);
        return 1;
    }
    return 0;
}
