/* SPDX-License-Identifier: MIT */
/*
 * Counts the system calls of the hooks: a child decodes tokens into touched pages while its parent stops it at
 * every system call it enters (ptrace). Marks in the child, calls of getpgid with an argument nobody else
 * uses, say where counting begins and ends; behind the end the child makes a known number of calls, and
 * unless those are counted right the figure is not given.
 */
#include "micro.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TOKENS = 500,
    DEPTH_CELLS = 512,
    KNOWN_CALLS = 3,
    MARK = 0x6b760000, /* + the number of the mark */
};

static void mark(long number)
{
    syscall(SYS_getpgid, MARK + number);
}

/* Exit code: 0 all done, 1 the library failed, 2 ptrace is not allowed. */
static int traced_child(void)
{
    static struct rig rig;
    struct bench_config geometry;
    int status = KVLAZY_OK;
    bench_config_default(&geometry);
    if (rig_open(&rig, &geometry, false) != 0 || rig_put(&rig, 0, 0, DEPTH_CELLS + TOKENS) != 0) {
        return 1;
    }
    status = kvlazy_seq_rm(rig.cache, 0, DEPTH_CELLS, -1);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
        return 2;
    }
    raise(SIGSTOP);
    mark(0);
    for (uint32_t i = 0; status == KVLAZY_OK && i < TOKENS; i++) {
        status = rig_decode(&rig, 0, DEPTH_CELLS + i);
    }
    mark(1);
    for (int i = 0; i < KNOWN_CALLS; i++) {
        syscall(SYS_getppid);
    }
    mark(2);
    return status == KVLAZY_OK ? 0 : 1;
}

/* Follows the child to its end; n_call[k] counts the calls between mark k and mark k + 1. */
static int follow(pid_t child, uint64_t n_call[3], int *wait_status)
{
    int section = -1;
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
        if (info.entry.nr == SYS_getpgid && info.entry.args[0] >= MARK && info.entry.args[0] <= MARK + 2) {
            section = (int)(info.entry.args[0] - MARK);
        } else if (section >= 0) {
            n_call[section]++;
        }
    }
}

static int trace_child(pid_t child, uint64_t n_call[3])
{
    int wait_status;
    if (waitpid(child, &wait_status, 0) != child) {
        return bench_error("waiting for the traced child: %s", strerror(errno));
    }
    if (WIFEXITED(wait_status)) {
        bench_error("hook_syscalls: %s", WEXITSTATUS(wait_status) == 2 ? "ptrace is not allowed" : "the child failed");
        return WEXITSTATUS(wait_status) == 2 ? 1 : -1;
    }
    if (!WIFSTOPPED(wait_status) ||
        ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0) {
        bench_error("hook_syscalls: the child could not be traced");
        return 1;
    }
    int status = follow(child, n_call, &wait_status);
    if (status == 0 && (!WIFEXITED(wait_status) || WEXITSTATUS(wait_status) != 0)) {
        status = bench_error("hook_syscalls: the traced child failed");
    }
    return status;
}

int micro_syscall(const struct bench_config *config)
{
    uint64_t n_call[3] = {0};
    fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        return bench_error("fork: %s", strerror(errno));
    }
    if (child == 0) {
        _exit(traced_child());
    }
    int status = trace_child(child, n_call);
    if (status != 0) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        return status;
    }
    if (n_call[1] != KNOWN_CALLS) {
        bench_error("hook_syscalls: %d calls were made to try the counter, it saw %llu", KNOWN_CALLS,
                    (unsigned long long)n_call[1]);
        return 1;
    }
    struct figure figure = {"hook_syscalls", (double)n_call[0], 0, "the same: system calls", "", "", "0"};
    snprintf(figure.ours, sizeof(figure.ours), "in %d tokens, by ptrace", TOKENS);
    report_figure(config, &figure);
    return 0;
}
