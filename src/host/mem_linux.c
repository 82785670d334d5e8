/* SPDX-License-Identifier: MIT */
/*
 * mem_linux: the memory table of Linux. mmap reserves, madvise commits and gives back, mincore tells what is
 * resident. Keeps no state but the sums of limits_linux, so every function ignores its context: what may change while a
 * process lives, like a policy that locks all new memory, is asked of the kernel where it matters.
 *
 * A sandbox or an old kernel refuses calls with whatever error it likes: EPERM, EACCES, ENOSYS, EOPNOTSUPP, EINVAL. A
 * call that only makes things faster is done without then; what is never taken for such a refusal is a lack of memory.
 *
 * Flags are set once on the whole reservation: a flag on part of a mapping splits it, and there are only
 * vm.max_map_count mappings (jemalloc#1328). MADV_DONTNEED and MADV_POPULATE_WRITE split nothing.
 */
#include "base/base.h"
#include "host/limits_linux.h"
#include "host/pages_linux.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24 /* Linux 5.18 */
#endif
#ifndef PR_SET_VMA
#define PR_SET_VMA 0x53564d41 /* Linux 5.17 */
#define PR_SET_VMA_ANON_NAME 0
#endif
#define PIDFD_OF_SELF (-10000) /* PIDFD_SELF, Linux 6.13 */

enum {
    IOV_BATCH = 1024,      /* UIO_MAXIOV: ranges one process_madvise takes */
    INTERRUPTED_TRIES = 8, /* EAGAIN and EINTR are tried again, but not for ever */
};

/* ------------------------------------------------------------------------------------------- facts */

static size_t host_page_bytes(void *ctx)
{
    (void)ctx;
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The beginning of a small file of the kernel's; false and "" when there is none. */
static bool read_text(const char *path, char *text, size_t text_bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, text_bytes - 1);

    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* "0", or "0-1", or "0,8": more than one node has memory. Without such a file there is one. */
static bool has_several_nodes(void)
{
    char text[64];

    return read_text("/sys/devices/system/node/has_memory", text, sizeof text) && strpbrk(text, ",-");
}

/* Errors of populating that mean a lack of memory (madvise(2)): none is left in the control group or the machine, or a
 * huge page cannot be had whole. A write there would end the process, so the caller is told. */
static bool is_lack_of_memory(int error)
{
    return error == ENOMEM || error == EFAULT || error == EHWPOISON;
}

static void *map_pages(size_t bytes, int prot)
{
    void *addr = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return addr == MAP_FAILED ? NULL : addr;
}

/* After mlockall(MCL_FUTURE) a new mapping is locked from birth, and a locked one refuses MADV_DONTNEED. There is no
 * other way to ask, and it may be different the next time. */
static bool maps_are_locked(void)
{
    size_t bytes = host_page_bytes(NULL);
    void *addr = map_pages(bytes, PROT_NONE);
    bool locked = addr && madvise(addr, bytes, MADV_DONTNEED) != 0 && errno == EINVAL;

    if (addr)
        munmap(addr, bytes);
    return locked;
}

/* Before Linux 5.14, or where a sandbox refuses it, nothing can be made present ahead of time. */
static bool commits_fault(void)
{
    size_t bytes = host_page_bytes(NULL);
    void *addr = map_pages(bytes, PROT_READ | PROT_WRITE);
    bool fault = addr && madvise(addr, bytes, MADV_POPULATE_WRITE) != 0 && !is_lack_of_memory(errno);

    if (addr)
        munmap(addr, bytes);
    return fault;
}

static uint32_t host_traits(void *ctx)
{
    (void)ctx;
    return (has_several_nodes() ? KVLAZY_HOST_NUMA : 0) | (maps_are_locked() ? KVLAZY_HOST_LOCKED : 0) |
           (commits_fault() ? KVLAZY_HOST_FAULTS : 0);
}

/* 0: there is no such file, and no limit is known. */
static uint64_t host_max_mappings(void *ctx)
{
    char text[32];

    (void)ctx;
    return read_text("/proc/sys/vm/max_map_count", text, sizeof text) ? strtoull(text, NULL, 10) : 0;
}

/* ------------------------------------------------------------------------------------------- reserve */

/* The kernel fills a locked mapping at once when it is, or becomes, accessible. Made inaccessible and unlocked in time
 * it fills nothing. */
static void *map_lazily(size_t bytes, int prot, bool locked)
{
    void *addr = map_pages(bytes, locked ? PROT_NONE : prot);

    if (addr && locked && (munlock(addr, bytes) != 0 || mprotect(addr, bytes, prot) != 0)) {
        munmap(addr, bytes);
        addr = NULL;
    }
    return addr;
}

/* A process that locked all its memory wants none of it swapped. So each page is locked when it comes, as long as the
 * kernel knows how to give back what is locked. Where a limit on locked memory forbids it, the pages are not locked. */
static void lock_on_fault(void *addr, size_t bytes)
{
    if (madvise(addr, host_page_bytes(NULL), MADV_DONTNEED_LOCKED) == 0)
        (void)mlock2(addr, bytes, MLOCK_ONFAULT);
}

/* Makes a mapping and gives all advice about it. An old kernel that does not know some advice does without: it has no
 * huge pages, a core dump takes longer, the mapping has no name. */
static void *map_whole(size_t bytes, int prot, uint32_t flags)
{
    bool locked = maps_are_locked();
    void *addr = map_lazily(bytes, prot, locked);

    if (!addr)
        return NULL;
    /* Part of a huge page that was given back is not free until the kernel splits it (gperftools#1073). */
    if (!(flags & KVLAZY_RESERVE_ANY_PAGES))
        (void)madvise(addr, bytes, flags & KVLAZY_RESERVE_HUGE_PAGES ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    (void)madvise(addr, bytes, MADV_DONTDUMP);
    (void)prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, addr, bytes, "kvlazy");
    if ((flags & KVLAZY_RESERVE_DONTFORK) && madvise(addr, bytes, MADV_DONTFORK) != 0) {
        munmap(addr, bytes); /* the embedder asked for it, and nothing else keeps a child of fork away */
        return NULL;
    }
    if (locked)
        lock_on_fault(addr, bytes);
    return addr;
}

static void *host_reserve(void *ctx, size_t bytes, uint32_t flags)
{
    (void)ctx;
    return map_whole(bytes, flags & KVLAZY_RESERVE_READ_ONLY ? PROT_READ : PROT_READ | PROT_WRITE, flags);
}

static int host_unreserve(void *ctx, void *addr, size_t bytes)
{
    (void)ctx;
    return munmap(addr, bytes) == 0 ? 0 : errno;
}

/* mprotect to read-only would keep the pages and the charge. A fresh mapping has neither, and is moved over the old one
 * with its flags on, in one step: a reader sees old bytes or zeros. */
static int make_read_only(void *addr, size_t bytes, uint32_t flags)
{
    void *fresh = map_whole(bytes, PROT_READ, flags);

    if (!fresh)
        return ENOMEM;
    if (mremap(fresh, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, addr) != MAP_FAILED)
        return 0;
    int error = errno;
    munmap(fresh, bytes);
    return error;
}

static int host_set_writable(void *ctx, void *addr, size_t bytes, int writable, uint32_t flags)
{
    (void)ctx;
    if (!writable)
        return make_read_only(addr, bytes, flags);
    return mprotect(addr, bytes, PROT_READ | PROT_WRITE) == 0 ? 0 : errno;
}

/* ------------------------------------------------------------------------------------------- advise */

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
    return is_lack_of_memory(error) ? error : 0; /* else the first write faults, and is as good */
}

/* The kernel refuses to give back locked pages. Where the process locks all new memory, the lock came with the mapping
 * and the pages go with it. A lock that the embedder put on a range stays, and so does the refusal. */
static size_t host_decommit(void *ctx, const kvlazy_range *range, size_t n)
{
    int error;

    (void)ctx;
    size_t done = advise(range, n, MADV_DONTNEED, &error);
    if (error == EINVAL && maps_are_locked())
        done += advise(range + done, n - done, MADV_DONTNEED_LOCKED, &error);
    return done;
}

/* ------------------------------------------------------------------------------------------- look */

/* What mincore would say, of a kernel that refuses it: bit 63 of a page's entry is "present" (pagemap.rst). */
static size_t resident_by_pagemap(const void *addr, size_t bytes)
{
    enum { CHUNK_PAGES = 512 };
    uint64_t entry[CHUNK_PAGES];
    size_t page_bytes = host_page_bytes(NULL), first = (uintptr_t)addr / page_bytes, resident = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);

    for (size_t i = 0, n = 0; fd >= 0 && i < bytes / page_bytes; i += n) {
        n = bytes / page_bytes - i < CHUNK_PAGES ? bytes / page_bytes - i : CHUNK_PAGES;
        if (pread(fd, entry, n * sizeof *entry, (off_t)((first + i) * sizeof *entry)) != (ssize_t)(n * sizeof *entry))
            break;
        for (size_t k = 0; k < n; k++)
            resident += entry[k] >> 63;
    }
    if (fd >= 0)
        close(fd);
    return resident * page_bytes;
}

static size_t host_resident(void *ctx, const void *addr, size_t bytes)
{
    enum { CHUNK_PAGES = 16384 };
    unsigned char in_core[CHUNK_PAGES];
    size_t page_bytes = host_page_bytes(ctx), resident = 0;

    for (size_t at = 0; at < bytes; at += CHUNK_PAGES * page_bytes) {
        size_t part = bytes - at < CHUNK_PAGES * page_bytes ? bytes - at : CHUNK_PAGES * page_bytes;

        if (mincore((char *)(uintptr_t)addr + at, part, in_core) != 0)
            return resident_by_pagemap(addr, bytes);
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

/* ------------------------------------------------------------------------------------------- why not */

/* The number behind a word in a file of the kernel's. */
static uint64_t number_after(const char *text, const char *word)
{
    const char *at = strstr(text, word);

    return at ? strtoull(at + strlen(word), NULL, 10) : 0;
}

static bool leaves_less(uint64_t limit, uint64_t used, uint64_t bytes)
{
    return used > limit || limit - used < bytes;
}

/* "RLIMIT_AS is 1.0G", if that is not enough for so many bytes more. */
static bool say_rlimit(const char *name, int resource, uint64_t used, uint64_t bytes, char *text, size_t text_bytes)
{
    struct rlimit limit;
    char human[KVL_HUMAN_BYTES];

    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        !leaves_less(limit.rlim_cur, used, bytes))
        return false;
    snprintf(text, text_bytes, "%s is %s", name, kvl_human(human, limit.rlim_cur));
    return true;
}

/* A process that locks all its memory may map no more than it may lock, and the kernel has an answer of its own for
 * that. */
static bool is_lock_limit(size_t bytes)
{
    void *addr = map_pages(bytes, PROT_NONE);

    if (!addr)
        return errno == EAGAIN;
    munmap(addr, bytes);
    return false;
}

static bool say_commit_limit(uint64_t bytes, char *text, size_t text_bytes)
{
    char info[4096], human[KVL_HUMAN_BYTES];

    if (!read_text("/proc/sys/vm/overcommit_memory", info, sizeof info) || info[0] != '2' ||
        !read_text("/proc/meminfo", info, sizeof info))
        return false;
    uint64_t limit = number_after(info, "CommitLimit:") * 1024, used = number_after(info, "Committed_AS:") * 1024;
    if (!leaves_less(limit, used, bytes))
        return false;
    snprintf(text, text_bytes, "vm.overcommit_memory is 2 and %s are left",
             kvl_human(human, limit > used ? limit - used : 0));
    return true;
}

static int host_why_refused(void *ctx, size_t bytes, char *text, size_t text_bytes)
{
    char status[4096];

    (void)ctx;
    read_text("/proc/self/status", status, sizeof status);
    if (say_rlimit("RLIMIT_AS", RLIMIT_AS, number_after(status, "VmSize:") * 1024, bytes, text, text_bytes))
        return 1;
    if (is_lock_limit(bytes) && say_rlimit("RLIMIT_MEMLOCK", RLIMIT_MEMLOCK, 0, bytes, text, text_bytes))
        return 1;
    return say_rlimit("RLIMIT_DATA", RLIMIT_DATA, number_after(status, "VmData:") * 1024, bytes, text, text_bytes) ||
           say_commit_limit(bytes, text, text_bytes);
}

static uint64_t host_process_id(void *ctx)
{
    (void)ctx;
    return (uint64_t)getpid();
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
        .set_writable = host_set_writable,
        .huge_page_bytes = kvl_linux_huge_page_bytes,
        .traits = host_traits,
        .why_refused = host_why_refused,
        .headroom = kvl_linux_headroom,
        .now_ns = kvl_linux_now_ns,
        .process_id = host_process_id,
        .count = kvl_linux_count,
        .max_mappings = host_max_mappings,
        .granted = kvl_linux_granted,
        .why_not_granted = kvl_linux_why_not_granted,
        .keep_small = kvl_linux_keep_small,
    };
    return &host;
}
