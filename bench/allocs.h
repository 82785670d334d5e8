/* SPDX-License-Identifier: MIT */
/*
 * Counts allocations made by the bench and the library linked into it. The linker sends every malloc, calloc,
 * realloc, … of both here (--wrap, see CMakeLists.txt). Called by the hook figures.
 */
#ifndef BENCH_ALLOCS_H
#define BENCH_ALLOCS_H

#include <stdint.h>

/** Allocations since the process began. */
uint64_t allocs_count(void);

#endif
