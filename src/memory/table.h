/* SPDX-License-Identifier: MIT */
/*
 * table: the memory table of kvlazy/mem.h, read and asked. A caller's table may be of another version and may lack what
 * a host can lack; here it becomes a whole one, and every question has an answer.
 */
#ifndef KVL_TABLE_H
#define KVL_TABLE_H

#include "base/base.h"

/* A table of this version or an earlier one, with every function that a host must have, becomes one of this version.
 * NULL is this host's. Returns false for what is no such table. */
bool kvl_table_read(const kvlazy_mem *theirs, kvlazy_mem *mem);

/* The page size of a host, or of its huge pages; 0 if it is none. */
uint64_t kvl_page_bytes(const kvlazy_mem *mem, bool huge);

/* The bytes that a first write brings under KVLAZY_RESERVE_HUGE_PAGES or KVLAZY_RESERVE_ANY_PAGES: a page of the host
 * or more. */
uint64_t kvl_host_granted(const kvlazy_mem *mem, uint32_t flags);

/* Returns whether a whole reservation has the host's own pages from here on. */
bool kvl_host_keeps_small(const kvlazy_mem *mem, void *addr, uint64_t bytes);

/* Which setting would grant pages of that size, ": /sys/... is never" to go on with in a line; "" where none is known.
 */
enum { KVL_GRANT_BYTES = 160 };
const char *kvl_host_why_not_granted(const kvlazy_mem *mem, uint64_t page_bytes, char text[KVL_GRANT_BYTES]);

/* KVLAZY_HOST_*. */
uint32_t kvl_host_traits(const kvlazy_mem *mem);

/* Making pages present before they are written is of use: they come by a call, are not there anyway, and need not come
 * from the thread that writes. */
bool kvl_host_commits(const kvlazy_mem *mem);

/* Bytes that the machine has left; UINT64_MAX: no end is known. */
uint64_t kvl_host_headroom(const kvlazy_mem *mem, const char *root);

/* Sums for a host that keeps none: those of linked caches, whose lock is held. */
typedef struct kvl_account {
    uint64_t sum[KVLAZY_COUNTS];
} kvl_account;

/* Adds to one of the sums KVLAZY_COUNT_* of all caches of the host, or to that of the account where the host keeps
 * none. Returns the sum. */
uint64_t kvl_host_count(const kvlazy_mem *mem, kvl_account *account, int what, uint64_t change);

/* Mappings that a process may have; UINT64_MAX: no limit is known. */
uint64_t kvl_host_max_mappings(const kvlazy_mem *mem);

/* A clock for histograms; 0: there is none. */
uint64_t kvl_host_now_ns(const kvlazy_mem *mem);

/* A number of this process; 0: it never forks. */
uint64_t kvl_host_process(const kvlazy_mem *mem);

/* Why a host refused so much, ": RLIMIT_AS is 1.0G" to go on with in a line; "" where no reason is known. */
enum { KVL_WHY_BYTES = 80 };
const char *kvl_host_why(const kvlazy_mem *mem, uint64_t bytes, char text[KVL_WHY_BYTES]);

#endif
