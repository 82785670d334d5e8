/* SPDX-License-Identifier: MIT */
/*
 * The scripted operating system of fake_mem.h. Memory is real (one mmap a reservation), so that tests may
 * write all of it; what is committed is a model beside it, a byte a page. The functions that the library
 * calls allocate nothing from the heap, so that a test may let allocations fail under them, and never jump
 * out: a breach of the contract is written down and fails the test later.
 */
#define _DEFAULT_SOURCE
#include "fake_mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

static void breach(struct fake_mem *fake, const char *format, ...)
{
    va_list args;

    if (fake->broken[0])
        return;
    va_start(args, format);
    vsnprintf(fake->broken, sizeof fake->broken, format, args);
    va_end(args);
}

static struct fake_map *find(struct fake_mem *fake, const void *addr, size_t bytes)
{
    for (int i = 0; i < FAKE_MAPS; i++) {
        struct fake_map *map = &fake->map[i];
        const unsigned char *at = addr;

        if (map->addr && at >= map->addr && at < map->addr + map->bytes &&
            bytes <= (size_t)(map->addr + map->bytes - at))
            return map;
    }
    return NULL;
}

static struct fake_map *checked(struct fake_mem *fake, const char *what, const void *addr, size_t bytes)
{
    struct fake_map *map = find(fake, addr, bytes);

    if (!bytes)
        breach(fake, "%s of an empty range at %p", what, addr);
    else if ((uintptr_t)addr % fake->page || bytes % fake->page)
        breach(fake, "%s of %zu bytes at %p: not whole pages of %zu", what, bytes, addr, fake->page);
    else if (!map)
        breach(fake, "%s of %zu bytes at %p: in no reservation", what, bytes, addr);
    else
        return map;
    return NULL;
}

static void note(struct fake_mem *fake, enum fake_kind kind, const kvlazy_range *range, size_t n_range)
{
    struct fake_call call = {.kind = kind, .n_range = n_range, .addr = n_range ? range[0].addr : NULL};

    for (size_t i = 0; i < n_range; i++)
        call.bytes += range[i].bytes;
    if (fake->n_log < FAKE_LOG)
        fake->log[fake->n_log++] = call;
}

/* Counts a call; true when the script lets it fail. */
static bool enter(struct fake_mem *fake, enum fake_kind kind)
{
    bool mine = kind == fake->fail_kind ||
                (fake->fail_kind == FAKE_ANY && (kind == FAKE_RESERVE || kind == FAKE_COMMIT || kind == FAKE_DECOMMIT));

    fake->n_call[kind]++;
    if (!mine || fake->fail_in <= 0 || --fake->fail_in > 0)
        return false;
    fake->failed = true;
    return true;
}

static struct fake_mem *begin(void *ctx)
{
    struct fake_mem *fake = ctx;

    pthread_mutex_lock(&fake->lock);
    return fake;
}

static void end(struct fake_mem *fake)
{
    pthread_mutex_unlock(&fake->lock);
}

static size_t fake_page_bytes(void *ctx)
{
    struct fake_mem *fake = begin(ctx);
    size_t page = fake->page;

    enter(fake, FAKE_PAGE_BYTES);
    end(fake);
    return page;
}

static void *reserve_locked(struct fake_mem *fake, size_t bytes)
{
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    struct fake_map *map = NULL;
    size_t total = bytes + fake->page;
    unsigned char *base, *state;

    if (!bytes || bytes % fake->page)
        breach(fake, "reserve of %zu bytes: not whole pages", bytes);
    for (int i = 0; i < FAKE_MAPS && !map; i++)
        if (!fake->map[i].addr)
            map = &fake->map[i];
    if (!map || total < bytes)
        return NULL;
    base = mmap(NULL, total, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (base == MAP_FAILED)
        return NULL;
    state = mmap(NULL, bytes / fake->page + 1, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (state == MAP_FAILED) {
        munmap(base, total);
        return NULL;
    }
    map->base = base;
    map->base_bytes = total;
    map->addr = base + (fake->page - (uintptr_t)base % fake->page) % fake->page;
    map->bytes = bytes;
    map->state = state;
    if (fake->dirty_reserve)
        memset(map->addr, 0xAA, bytes);
    return map->addr;
}

static void *fake_reserve(void *ctx, size_t bytes, uint32_t flags)
{
    struct fake_mem *fake = begin(ctx);
    void *addr = NULL;
    kvlazy_range range = {.bytes = bytes};

    if (flags & ~(uint32_t)KVLAZY_RESERVE_DONTFORK)
        breach(fake, "reserve with unknown flags %x", (unsigned)flags);
    if (!enter(fake, FAKE_RESERVE))
        addr = reserve_locked(fake, bytes);
    range.addr = addr;
    note(fake, FAKE_RESERVE, &range, 1);
    end(fake);
    return addr;
}

static void drop_map(struct fake_mem *fake, struct fake_map *map)
{
    for (size_t i = 0; i < map->bytes / fake->page; i++)
        fake->committed_bytes -= map->state[i] ? fake->page : 0;
    munmap(map->state, map->bytes / fake->page + 1);
    munmap(map->base, map->base_bytes);
    memset(map, 0, sizeof *map);
}

static int fake_unreserve(void *ctx, void *addr, size_t bytes)
{
    struct fake_mem *fake = begin(ctx);
    struct fake_map *map = find(fake, addr, bytes);
    kvlazy_range range = {.addr = addr, .bytes = bytes};

    enter(fake, FAKE_UNRESERVE);
    note(fake, FAKE_UNRESERVE, &range, 1);
    if (!map || map->addr != addr || map->bytes != bytes)
        breach(fake, "unreserve of %zu bytes at %p: not what a reserve returned", bytes, addr);
    else
        drop_map(fake, map);
    end(fake);
    return map ? 0 : EINVAL;
}

static void mark(struct fake_mem *fake, struct fake_map *map, const kvlazy_range *range, size_t bytes, bool in)
{
    size_t first = (size_t)((unsigned char *)range->addr - map->addr) / fake->page;

    for (size_t i = first; i < first + bytes / fake->page; i++) {
        if (in && !map->state[i])
            fake->committed_bytes += fake->page;
        if (!in && map->state[i]) {
            fake->committed_bytes -= fake->page;
            fake->decommitted_bytes += fake->page;
        }
        map->state[i] = in;
    }
}

static bool over_budget(struct fake_mem *fake, const kvlazy_range *range, size_t n_range)
{
    uint64_t more = 0;

    for (size_t i = 0; i < n_range; i++) {
        struct fake_map *map = find(fake, range[i].addr, range[i].bytes);
        size_t first = map ? (size_t)((unsigned char *)range[i].addr - map->addr) / fake->page : 0;

        for (size_t p = 0; map && p < range[i].bytes / fake->page; p++)
            more += map->state[first + p] ? 0 : fake->page;
    }
    return fake->budget_bytes && fake->committed_bytes + more > fake->budget_bytes;
}

static int fake_commit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    struct fake_mem *fake = begin(ctx);
    bool fails = enter(fake, FAKE_COMMIT);

    note(fake, FAKE_COMMIT, range, n_range);
    fails = fails || over_budget(fake, range, n_range);
    for (size_t i = 0; i < n_range; i++) {
        struct fake_map *map = checked(fake, "commit", range[i].addr, range[i].bytes);

        if (map && (!fails || (fake->half_commit && i <= n_range / 2)))
            mark(fake, map, &range[i], fails ? fake->page : range[i].bytes, true);
    }
    end(fake);
    return fails ? ENOMEM : 0;
}

static bool refused(const struct fake_mem *fake, const kvlazy_range *range)
{
    const unsigned char *at = range->addr;

    return fake->refuse_decommit || (at < fake->refuse_hi && at + range->bytes > fake->refuse_lo);
}

static size_t fake_decommit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    struct fake_mem *fake = begin(ctx);
    size_t done = 0;
    bool fails = enter(fake, FAKE_DECOMMIT);

    note(fake, FAKE_DECOMMIT, range, n_range);
    for (size_t i = 0; i < n_range; i++) {
        struct fake_map *map = checked(fake, "decommit", range[i].addr, range[i].bytes);

        if (!map || fails || refused(fake, &range[i]))
            break;
        mark(fake, map, &range[i], range[i].bytes, false);
        if (!fake->lazy_decommit && madvise(range[i].addr, range[i].bytes, MADV_DONTNEED))
            breach(fake, "madvise answers %d", errno);
        done++;
    }
    end(fake);
    return done;
}

static size_t from_kernel(struct fake_mem *fake, const void *addr, size_t bytes)
{
    unsigned char vec[256];
    size_t n = 0;

    if (fake->page != 4096)
        breach(fake, "mincore wants pages of 4096");
    for (size_t at = 0; at < bytes; at += sizeof vec * 4096) {
        size_t part = bytes - at < sizeof vec * 4096 ? bytes - at : sizeof vec * 4096;

        if (mincore((char *)(uintptr_t)addr + at, part, vec))
            breach(fake, "mincore answers %d", errno);
        for (size_t i = 0; i < part / 4096; i++)
            n += vec[i] & 1;
    }
    return n * 4096;
}

static size_t fake_resident(void *ctx, const void *addr, size_t bytes)
{
    struct fake_mem *fake = begin(ctx);
    struct fake_map *map = checked(fake, "resident", addr, bytes);
    size_t n = 0;

    enter(fake, FAKE_RESIDENT);
    if (map && fake->ask_kernel)
        n = from_kernel(fake, addr, bytes);
    else if (map)
        for (size_t i = 0; i < bytes / fake->page; i++)
            n += map->state[(size_t)((const unsigned char *)addr - map->addr) / fake->page + i] ? fake->page : 0;
    end(fake);
    return n;
}

static uint64_t fake_now(void *ctx)
{
    struct fake_mem *fake = begin(ctx);
    uint64_t now = fake->now;

    enter(fake, FAKE_NOW);
    end(fake);
    return now;
}

void fake_init(struct fake_mem *fake)
{
    memset(fake, 0, sizeof *fake);
    pthread_mutex_init(&fake->lock, NULL);
    fake->page = 4096;
    fake->fail_kind = FAKE_ANY;
    fake->table = (kvlazy_mem){
        .struct_size = sizeof(kvlazy_mem),
        .ctx = fake,
        .page_bytes = fake_page_bytes,
        .reserve = fake_reserve,
        .unreserve = fake_unreserve,
        .commit = fake_commit,
        .decommit = fake_decommit,
        .resident = fake_resident,
        .now_ms = fake_now,
    };
}

void fake_done(struct fake_mem *fake)
{
    for (int i = 0; i < FAKE_MAPS; i++)
        if (fake->map[i].addr)
            drop_map(fake, &fake->map[i]);
    pthread_mutex_destroy(&fake->lock);
}

void fake_fail(struct fake_mem *fake, enum fake_kind kind, int n)
{
    fake->fail_kind = kind;
    fake->fail_in = n;
    fake->failed = false;
}

void fake_forget(struct fake_mem *fake)
{
    memset(fake->n_call, 0, sizeof fake->n_call);
    fake->n_log = 0;
}

int fake_mappings(const struct fake_mem *fake)
{
    int n = 0;

    for (int i = 0; i < FAKE_MAPS; i++)
        n += fake->map[i].addr != NULL;
    return n;
}

uint64_t fake_committed(struct fake_mem *fake, const void *addr, size_t bytes)
{
    uint64_t n = 0;

    for (int i = 0; i < FAKE_MAPS; i++) {
        struct fake_map *map = &fake->map[i];

        for (size_t p = 0; map->addr && p < map->bytes / fake->page; p++) {
            const unsigned char *at = map->addr + p * fake->page;

            if (at + fake->page > (const unsigned char *)addr && at < (const unsigned char *)addr + bytes)
                n += map->state[p] ? fake->page : 0;
        }
    }
    return n;
}

void fake_assert_kept(const struct fake_mem *fake)
{
    if (fake->broken[0])
        fail_msg("the contract of mem.h was broken: %s", fake->broken);
}
