/* SPDX-License-Identifier: MIT */
/*
 * Lets the n-th allocation of a call fail. For executables linked with --wrap for malloc, calloc, realloc,
 * reallocarray, recallocarray and strdup.
 */
#ifndef FAIL_ALLOC_H
#define FAIL_ALLOC_H

#include <stdbool.h>

extern int alloc_fail_in; /* n > 0: the n-th allocation while armed fails, once */
extern bool alloc_armed, alloc_failed;
extern bool alloc_stays_failed; /* and all that follow it do too */

/* A call into the library, with allocations under fire. */
#define UNDER_FIRE(status, call) \
    do {                         \
        alloc_armed = true;      \
        (status) = (call);       \
        alloc_armed = false;     \
    } while (0)

#endif
