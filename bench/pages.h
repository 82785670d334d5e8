/* SPDX-License-Identifier: MIT */
/*
 * The figures of `bench/run pages`: what pages of 64 KiB cost and keep beside those of 4 KiB, where the host grants
 * them. Every function returns 1 with bench_why() where it does not, and then its figures are absent. The ways of a
 * figure are taken in turn, in one process.
 */
#ifndef BENCH_PAGES_H
#define BENCH_PAGES_H

#include "tensors.h"

enum { PAGES_BYTES = 64 << 10 };

/** Switches pages of 64 KiB on for the life of this process, and back when it ends or is interrupted. Call it before
 * the first cache. 0 or -1. */
int pages_set_folios(void);

/** 0: the host grants pages of exactly so many bytes. 1 with bench_why(). */
int pages_granted(uint64_t page_bytes);

int pages_cost(const struct bench_config *config);
int pages_read(const struct bench_config *config);
int pages_returned(const struct bench_config *config);
int pages_choice(const struct bench_config *config);
int pages_trace(const struct bench_config *config);
int pages_fragmented(const struct bench_config *config);

#endif
