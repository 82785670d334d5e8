/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/mem.h: the operating-system seam.
 *
 * Everything kvlazy asks of a host goes through one table: seven functions that every host has, and behind them some
 * that a host may lack (NULL, or a table that ends before them). The table of this host is kvlazy_mem_host(); an
 * embedder may copy it and override members (a clock of its own, a device allocator), and tests put a scripted fake
 * behind it.
 *
 * The contract, for all of them:
 *  - They return numbers (why_refused and why_not_granted alone have words). They never print, never round, never
 *    decide; rounding and policy are the library's.
 *  - Addresses and sizes the library passes are whole pages of one reservation.
 *  - `ctx` is handed to every call unchanged. The functions of the host table do not look at it, so a copy
 *    may carry any context for the members it overrides. They keep no state but the two sums of `count` and what
 *    `granted` found out, which all users of the host table in a process share, its copies too.
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
    KVLAZY_RESERVE_DONTFORK = 1u << 0,   /* a forked child does not get the mapping */
    KVLAZY_RESERVE_HUGE_PAGES = 1u << 1, /* huge pages are welcome; without it they are to be kept away */
    KVLAZY_RESERVE_READ_ONLY = 1u << 2,  /* readable, zero, and charged to no limit until set_writable. Passed only to
                                            a table that has set_writable */
    KVLAZY_RESERVE_ANY_PAGES = 1u << 3,  /* pages of any size, as the host is used to: neither welcome nor kept away.
                                            Passed only to a table that has granted, never with HUGE_PAGES */
};

/** What is special about a host. */
enum {
    KVLAZY_HOST_NUMA = 1u << 0,   /* several memory nodes: a page belongs to the thread that touches it first */
    KVLAZY_HOST_LOCKED = 1u << 1, /* new mappings are locked into memory, as after mlockall(MCL_FUTURE) */
    KVLAZY_HOST_FAULTS = 1u << 2, /* commit makes nothing present: a page comes when it is first written */
};

/** Sums that all caches of one host share, in bytes: what they may not take from one another between two looks at the
 *  host's headroom. */
enum {
    KVLAZY_COUNT_TAKEN,    /* made present, less what was given back, since the process began */
    KVLAZY_COUNT_PROMISED, /* promised by a prepare and not present yet */
    KVLAZY_COUNTS
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
     * returns 0 and lets the writes fault. */
    int (*commit)(void *ctx, const kvlazy_range *range, size_t n_range);

    /* Gives the pages back: afterwards they cost nothing and read zero. Ranges are done in order. Returns how many
     * leading ones were given back whole. Less than n_range: the next one was refused (part of it may be gone all the
     * same), and those after it were not tried. */
    size_t (*decommit)(void *ctx, const kvlazy_range *range, size_t n_range);

    /* Bytes of these pages in physical memory now, whole pages. Slow; never called by a hook. */
    size_t (*resident)(void *ctx, const void *addr, size_t bytes);

    /* A clock in milliseconds from any origin that does not step back; a few milliseconds coarse is fine. */
    uint64_t (*now_ms)(void *ctx);

    /* ---- What a host may lack: NULL. ---- */

    /* Of a reservation made with KVLAZY_RESERVE_READ_ONLY, and with the same other flags: makes pages writable, or
     * read-only and zero again, with what the host charged for them given back. 0, or an errno value, and then
     * nothing changed. NULL: such a reservation cannot be had; one that is refused is refused. */
    int (*set_writable)(void *ctx, void *addr, size_t bytes, int writable, uint32_t flags);

    /* Size of a huge page in bytes, a power of two. NULL: 2 MiB. */
    size_t (*huge_page_bytes)(void *ctx);

    /* KVLAZY_HOST_*, asked once when a cache is created. NULL: none of them. */
    uint32_t (*traits)(void *ctx);

    /* Which limit leaves less than so much address space, in words for the log: "RLIMIT_AS is 1.0G". 1: text was
     * written, at most text_bytes of it; 0: none that is known. Called after a refused reserve. NULL: cannot tell. */
    int (*why_refused)(void *ctx, size_t bytes, char *text, size_t text_bytes);

    /* Bytes that could be touched now before the machine or a limit on this process runs out of memory; UINT64_MAX:
     * no limit is known. `root` is where the files that say so begin (kvlazy_params.host_root). Asked before growth,
     * when the last answer is 100 ms old or some MiB were taken since. NULL: memory has no end. */
    uint64_t (*headroom)(void *ctx, const char *root);

    /* A clock in nanoseconds, for histograms; asked around calls to the host only. NULL: nothing is timed. */
    uint64_t (*now_ns)(void *ctx);

    /* A number of the calling process, another one in a child of fork. Asked when a cache is created, and where a call
     * would wait for a thread that may have stayed behind in the parent. NULL: the process never forks. */
    uint64_t (*process_id)(void *ctx);

    /* Adds to a sum, `what` of KVLAZY_COUNT_*, and returns the sum afterwards. All of it is modulo 2^64, so that
     * a change may be negative; a change of 0 asks. Called from several threads at once. NULL: caches that are linked
     * count together, any others do not know of one another. */
    uint64_t (*count)(void *ctx, int what, uint64_t change);

    /* Mappings that a process may have (Linux: vm.max_map_count); 0: no limit is known. Asked when a cache is created:
     * where the host refuses a writable reservation, each part that becomes writable by itself is a mapping. NULL: no
     * limit. */
    uint64_t (*max_mappings)(void *ctx);

    /* Which pages a host hands out: the bytes that a first write makes present in a reservation that was made with
     * these flags (KVLAZY_RESERVE_HUGE_PAGES, KVLAZY_RESERVE_ANY_PAGES), where nothing is present yet. A power of two;
     * page_bytes: no more than a page. Asked when a cache or an arena is created. Whatever it says, a write may bring
     * less, where memory is scarce. NULL: page_bytes for each. */
    size_t (*granted)(void *ctx, uint32_t flags);

    /* Which setting would grant pages of that size, in words for the log. 1: text was written, at most text_bytes of
     * it; 0: none that is known. NULL: cannot tell. */
    int (*why_not_granted)(void *ctx, size_t page_bytes, char *text, size_t text_bytes);

    /* Of a whole reservation: from here on its pages are of page_bytes, as if it were made without
     * KVLAZY_RESERVE_HUGE_PAGES and KVLAZY_RESERVE_ANY_PAGES. 0, or an errno value, and nothing changed. NULL: it
     * cannot be changed. */
    int (*keep_small)(void *ctx, void *addr, size_t bytes);
} kvlazy_mem;

/** The table of this host (Linux: mmap, madvise, CLOCK_MONOTONIC_COARSE). Never NULL, static. */
KVLAZY_API const kvlazy_mem *kvlazy_mem_host(void);

#ifdef __cplusplus
}
#endif

#endif
