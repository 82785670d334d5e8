/* SPDX-License-Identifier: MIT */
/*
 * The counter of allocs.h: each wrapper counts and passes the call on. It never allocates for itself.
 */
#include "allocs.h"

#include <stdatomic.h>
#include <stddef.h>

static atomic_uint_least64_t n_alloc;

uint64_t allocs_count(void)
{
    return atomic_load_explicit(&n_alloc, memory_order_relaxed);
}

#define WRAP(result, name, parameters, arguments)                        \
    result __real_##name parameters;                                     \
    result __wrap_##name parameters;                                     \
    result __wrap_##name parameters                                      \
    {                                                                    \
        atomic_fetch_add_explicit(&n_alloc, 1, memory_order_relaxed);    \
        return __real_##name arguments;                                  \
    }

WRAP(void *, malloc, (size_t bytes), (bytes))
WRAP(void *, calloc, (size_t n, size_t bytes), (n, bytes))
WRAP(void *, realloc, (void *old, size_t bytes), (old, bytes))
WRAP(void *, reallocarray, (void *old, size_t n, size_t bytes), (old, n, bytes))
WRAP(void *, recallocarray, (void *old, size_t old_n, size_t n, size_t bytes), (old, old_n, n, bytes))
WRAP(void *, aligned_alloc, (size_t align, size_t bytes), (align, bytes))
WRAP(int, posix_memalign, (void **out, size_t align, size_t bytes), (out, align, bytes))
WRAP(char *, strdup, (const char *text), (text))
