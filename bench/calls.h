/* SPDX-License-Identifier: MIT */
/*
 * Counts the system calls of a piece of code: a child runs it while its parent stops it at every system call it enters
 * (ptrace). Marks in the child, calls of getpgid with an argument nobody else uses, say where a section begins.
 * Called by the figures that promise none; it knows nothing of what runs between the marks.
 */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <stdint.h>

/** In the child: from here on calls count for section 0 ≤ section < n_section of calls_count. */
void calls_mark(uint32_t section);
/**
 * Forks a child that calls prepare(ctx), untraced, and then run(ctx), which marks its sections; both answer 0, or -1.
 * n_call[n_section] receives the calls of each. Behind the last section the child makes a known number of calls; unless
 * these are counted right nothing is answered. 0; -1; 1 when ptrace is not allowed here, with bench_why() of `what`.
 */
int calls_count(const char *what, int (*prepare)(void *ctx), int (*run)(void *ctx), void *ctx, uint64_t *n_call,
                uint32_t n_section);

#endif
