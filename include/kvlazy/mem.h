/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/mem.h: the operating-system seam.
 *
 * Everything kvlazy asks of a host goes through one table of seven functions. The table of this host is
 * kvlazy_mem_host(); an embedder may copy it and override members (a clock of its own, a device
 * allocator), and tests put a scripted fake behind it.
 *
 * The contract, for all seven:
 *  - They return numbers. They never print, never round, never decide; rounding and policy are the library's.
 *  - Addresses and sizes the library passes are whole pages of the reservation, except in `resident`,
 *    which gets whole pages too but asks only.
 *  - `ctx` is handed to every call unchanged. The functions of the host table do not look at it, so a copy
 *    may carry any context for the members it overrides.
 *  - They are called with the cache's lock held, so they must not call back into the same cache, and must
 *    return in bounded time.
 *  - Two caches may call the same table from two threads at once.
 */
#ifndef KVLAZY_MEM_H
#define KVLAZY_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Whole pages inside one reservation. */
typedef struct kvlazy_range {
    void *addr;
    size_t bytes;
} kvlazy_range;

/** Wishes about a reservation; a host that cannot grant one ignores it. */
enum {
    KVLAZY_RESERVE_DONTFORK = 1u << 0, /* a forked child does not get the mapping */
};

typedef struct kvlazy_mem {
    size_t struct_size; /* sizeof(kvlazy_mem) */
    void *ctx;

    /* Size of a page in bytes, a power of two. Constant for the life of a process. */
    size_t (*page_bytes)(void *ctx);

    /* `bytes` of address space, page-aligned, readable and writable, reading zero, costing no physical
     * memory until written. NULL: refused. `flags`: KVLAZY_RESERVE_*. */
    void *(*reserve)(void *ctx, size_t bytes, uint32_t flags);

    /* Ends a reservation: exactly what one `reserve` returned. 0, or an errno value. */
    int (*unreserve)(void *ctx, void *addr, size_t bytes);

    /* Makes the pages physically present, contents unchanged, so that the first write does not fault.
     * 0, or an errno value, and then any part may have been done. A host that cannot ahead of time
     * answers 0 and lets the writes fault. */
    int (*commit)(void *ctx, const kvlazy_range *range, size_t n_range);

    /* Gives the pages back: afterwards they cost nothing and read zero. Ranges are done in order; the
     * answer is how many leading ones were given back whole. Less than n_range: the next one was refused
     * (part of it may be gone all the same), those after it were not tried. */
    size_t (*decommit)(void *ctx, const kvlazy_range *range, size_t n_range);

    /* Bytes of these pages in physical memory now, whole pages. Slow; never called by a hook. */
    size_t (*resident)(void *ctx, const void *addr, size_t bytes);

    /* A clock in milliseconds from any origin that does not step back; a few milliseconds coarse is fine. */
    uint64_t (*now_ms)(void *ctx);
} kvlazy_mem;

/** The table of this host (Linux: mmap, madvise, CLOCK_MONOTONIC_COARSE). Never NULL, static. */
KVLAZY_API const kvlazy_mem *kvlazy_mem_host(void);

#ifdef __cplusplus
}
#endif

#endif
