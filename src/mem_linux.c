/* SPDX-License-Identifier: MIT */
/*
 * mem_linux: the memory table of Linux. mmap reserves, madvise commits and gives back, mincore tells what is
 * resident. Keeps no state, so every function ignores its context.
 *
 * Flags are set once on the whole reservation: a flag on part of a mapping splits it, and there are only
 * vm.max_map_count mappings (jemalloc#1328). MADV_DONTNEED and MADV_POPULATE_WRITE split nothing.
 */
#include "base.h"

#include <errno.h>
#include <limits.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define PIDFD_OF_SELF (-10000) /* PIDFD_SELF, Linux 6.13 */

enum {
    IOV_BATCH = 1024,      /* UIO_MAXIOV: ranges one process_madvise takes */
    INTERRUPTED_TRIES = 8, /* EAGAIN and EINTR are tried again, but not for ever */
};

static size_t host_page_bytes(void *ctx)
{
    (void)ctx;
    return (size_t)sysconf(_SC_PAGESIZE);
}

static void *host_reserve(void *ctx, size_t bytes, uint32_t flags)
{
    (void)ctx;
    void *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (addr == MAP_FAILED)
        return NULL;
    /* Part of a huge page that was given back is not free until the kernel splits it (gperftools#1073). A
     * kernel without huge pages answers EINVAL, which is as good; so is a dump that takes longer. */
    (void)madvise(addr, bytes, MADV_NOHUGEPAGE);
    (void)madvise(addr, bytes, MADV_DONTDUMP);
    if ((flags & KVLAZY_RESERVE_DONTFORK) && madvise(addr, bytes, MADV_DONTFORK) != 0) {
        munmap(addr, bytes);
        return NULL;
    }
    return addr;
}

static int host_unreserve(void *ctx, void *addr, size_t bytes)
{
    (void)ctx;
    return munmap(addr, bytes) == 0 ? 0 : errno;
}

/* One range, or what is left of it. 0 or errno. */
static int advise_one(char *addr, size_t bytes, int advice)
{
    for (int i = 0; i < INTERRUPTED_TRIES; i++) {
        if (madvise(addr, bytes, advice) == 0)
            return 0;
        if (errno != EAGAIN && errno != EINTR)
            return errno;
    }
    return errno;
}

/* Leading ranges done whole by one call for many; 0 where the kernel has no such call. */
static size_t advise_batch(const kvlazy_range *range, size_t n, int advice)
{
    struct iovec iov[IOV_BATCH];
    size_t done = 0;

    if (n < 2)
        return 0;
    n = n < IOV_BATCH ? n : IOV_BATCH;
    for (size_t i = 0; i < n; i++)
        iov[i] = (struct iovec){range[i].addr, range[i].bytes};
    long advised = syscall(SYS_process_madvise, PIDFD_OF_SELF, iov, n, advice, 0);
    while (advised > 0 && done < n && (size_t)advised >= range[done].bytes)
        advised -= (long)range[done++].bytes;
    return done;
}

/* Leading ranges done; *error says why the next was not. */
static size_t advise(const kvlazy_range *range, size_t n, int advice, int *error)
{
    bool batches = true;
    size_t i = 0;

    *error = 0;
    while (i < n) {
        size_t done = batches ? advise_batch(range + i, n - i, advice) : 0;

        i += done;
        if (done)
            continue;
        /* No such call, or it stopped at this range: alone, it tells which. */
        *error = advise_one(range[i].addr, range[i].bytes, advice);
        if (*error)
            break;
        batches = false;
        i++;
    }
    return i;
}

static int host_commit(void *ctx, const kvlazy_range *range, size_t n)
{
    int error;

    (void)ctx;
    advise(range, n, MADV_POPULATE_WRITE, &error);
    return error == EINVAL ? 0 : error; /* before Linux 5.14: the first write faults instead */
}

static size_t host_decommit(void *ctx, const kvlazy_range *range, size_t n)
{
    int error;

    (void)ctx;
    return advise(range, n, MADV_DONTNEED, &error);
}

static size_t host_resident(void *ctx, const void *addr, size_t bytes)
{
    enum { CHUNK_PAGES = 16384 };
    unsigned char in_core[CHUNK_PAGES];
    size_t page_bytes = host_page_bytes(ctx), resident = 0;

    for (size_t at = 0; at < bytes; at += CHUNK_PAGES * page_bytes) {
        size_t part = bytes - at < CHUNK_PAGES * page_bytes ? bytes - at : CHUNK_PAGES * page_bytes;

        if (mincore((char *)(uintptr_t)addr + at, part, in_core) != 0)
            continue;
        for (size_t i = 0; i < part / page_bytes; i++)
            resident += in_core[i] & 1;
    }
    return resident * page_bytes;
}

static uint64_t host_now_ms(void *ctx)
{
    struct timespec t = {0};

    (void)ctx;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t); /* cannot fail: the clock exists since 2.6.32 */
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

const kvlazy_mem *kvlazy_mem_host(void)
{
    static const kvlazy_mem host = {
        .struct_size = sizeof(kvlazy_mem),
        .page_bytes = host_page_bytes,
        .reserve = host_reserve,
        .unreserve = host_unreserve,
        .commit = host_commit,
        .decommit = host_decommit,
        .resident = host_resident,
        .now_ms = host_now_ms,
    };
    return &host;
}
