/* SPDX-License-Identifier: MIT */
/*
 * Counts the system calls of a piece of code: a child process runs the code, and its parent stops it at every system
 * call (ptrace). Marks say where a section begins: they are calls of getpgid with an argument that no other code uses.
 * Called by the figures that promise no system call; it knows nothing of what runs between the marks.
 */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <stdint.h>

/** In the child: from here on calls count for section 0 ≤ section < n_section of calls_count. */
void calls_mark(uint32_t section);
/**
 * Forks a child that calls prepare(ctx), untraced, and then run(ctx), which marks its sections; both return 0, or -1.
 * n_call[n_section] receives the calls of each section. Behind the last one the child makes a known number of calls; a
 * wrong count of these is an error. Returns 0; -1; 1 with bench_why() of `what` when ptrace is not allowed here.
 */
int calls_count(const char *what, int (*prepare)(void *ctx), int (*run)(void *ctx), void *ctx, uint64_t *n_call,
                uint32_t n_section);

#endif
