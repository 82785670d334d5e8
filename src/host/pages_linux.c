/* SPDX-License-Identifier: MIT */
/* pages_linux: see pages_linux.h. */
#include "host/pages_linux.h"

#include "base/base.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    PROBE_BYTES = 4 << 20, /* more than any page that is worth having */
    LEAST_PAGE_BYTES = 4096,
    HUGE_PAGE_BYTES = 2 << 20,
};

size_t kvl_linux_huge_page_bytes(void *ctx)
{
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "re");
    size_t bytes = 0;

    (void)ctx;
    if (file && fscanf(file, "%zu", &bytes) != 1)
        bytes = 0;
    if (file)
        fclose(file);
    return bytes ? bytes : HUGE_PAGE_BYTES;
}

/* A mapping without a lock: the kernel fills one that a process of locked memory makes accessible. The advice is that
 * of a reservation with these flags, and a kernel that does not know it grants nothing but its own pages. */
static char *map_advised(size_t bytes, uint32_t flags)
{
    char *map = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (map == MAP_FAILED)
        return NULL;
    if (munlock(map, bytes) == 0 && mprotect(map, bytes, PROT_READ | PROT_WRITE) == 0 &&
        (!(flags & KVLAZY_RESERVE_HUGE_PAGES) || madvise(map, bytes, MADV_HUGEPAGE) == 0))
        return map;
    munmap(map, bytes);
    return NULL;
}

/* Writes the first byte of a block that is aligned to more than a page can have, so that a page of any size fits there.
 * Returns how many bytes came with it; 0: none can be told. */
static size_t ask(uint32_t flags)
{
    size_t map_bytes = 2 * (size_t)PROBE_BYTES, page_bytes = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    unsigned char in_core[PROBE_BYTES / LEAST_PAGE_BYTES];
    char *map = map_advised(map_bytes, flags);

    if (!map)
        return 0;
    char *at = map + (PROBE_BYTES - (uintptr_t)map % PROBE_BYTES) % PROBE_BYTES;
    *(volatile char *)at = 1;
    if (mincore(at, PROBE_BYTES, in_core) == 0)
        for (size_t i = 0; i < PROBE_BYTES / page_bytes; i++)
            n += in_core[i] & 1;
    munmap(map, map_bytes);
    return n * page_bytes;
}

size_t kvl_linux_granted(void *ctx, uint32_t flags)
{
    static _Atomic size_t found[2]; /* 0: not asked yet */
    _Atomic size_t *of_advice = &found[(flags & KVLAZY_RESERVE_HUGE_PAGES) != 0];
    size_t known = atomic_load(of_advice);

    (void)ctx;
    if (known)
        return known;
    size_t bytes = ask(flags);
    bytes = bytes ? bytes : (size_t)sysconf(_SC_PAGESIZE);
    return atomic_compare_exchange_strong(of_advice, &known, bytes) ? bytes : known; /* all threads see the same */
}

int kvl_linux_keep_small(void *ctx, void *addr, size_t bytes)
{
    (void)ctx;
    return madvise(addr, bytes, MADV_NOHUGEPAGE) == 0 ? 0 : errno;
}

int kvl_linux_why_not_granted(void *ctx, size_t page_bytes, char *text, size_t text_bytes)
{
    char path[96];

    (void)ctx;
    snprintf(path, sizeof path, "/sys/kernel/mm/transparent_hugepage/hugepages-%zukB/enabled", page_bytes >> 10);
    if (access(path, F_OK) == 0)
        snprintf(text, text_bytes, "%s decides, with \"madvise\" and \"never\" for larger sizes, or \"always\"", path);
    else
        snprintf(text, text_bytes, "this kernel has no %s", path);
    return 1;
}
