/* SPDX-License-Identifier: MIT */
/*
 * The scripted operating system of fake_mem.h. Memory is real (one mmap a reservation), so that tests may
 * write all of it; what is committed and writable is a model beside it, a byte a page. The functions that the library
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

/* The page of the host itself. */
static size_t own_page(const struct fake_mem *fake)
{
    return fake->host_page ? fake->host_page : fake->page;
}

/* The unit in which a reservation comes and goes. */
static size_t unit(const struct fake_mem *fake, const struct fake_map *map)
{
    if (map && map->flags & KVLAZY_RESERVE_ANY_PAGES && fake->any_page)
        return fake->any_page;
    if (map && map->flags & KVLAZY_RESERVE_HUGE_PAGES)
        return fake->advised_page ? fake->advised_page : fake->huge_page;
    return own_page(fake);
}

static struct fake_map *checked(struct fake_mem *fake, const char *what, const void *addr, size_t bytes)
{
    struct fake_map *map = find(fake, addr, bytes);
    size_t page = unit(fake, map);

    if (!bytes)
        breach(fake, "%s of an empty range at %p", what, addr);
    else if ((uintptr_t)addr % page || bytes % page)
        breach(fake, "%s of %zu bytes at %p: not whole pages of %zu", what, bytes, addr, page);
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
    bool refusable = kind == FAKE_RESERVE || kind == FAKE_COMMIT || kind == FAKE_DECOMMIT || kind == FAKE_SET_WRITABLE;
    bool mine = kind == fake->fail_kind || (fake->fail_kind == FAKE_ANY && refusable);

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
    size_t page = own_page(fake);

    enter(fake, FAKE_PAGE_BYTES);
    end(fake);
    return page;
}

static struct fake_map *free_map(struct fake_mem *fake)
{
    for (int i = 0; i < FAKE_MAPS; i++)
        if (!fake->map[i].addr)
            return &fake->map[i];
    return NULL;
}

static unsigned char *map_pages(size_t bytes, int prot)
{
    void *at = mmap(NULL, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at != MAP_FAILED)
        (void)madvise(at, bytes, MADV_NOHUGEPAGE); /* the kernel is asked what is resident, whatever this host grants */
    return at == MAP_FAILED ? NULL : at;
}

static bool over_charge(const struct fake_mem *fake, size_t more_bytes)
{
    return fake->charge_limit_bytes && fake->charged_bytes + more_bytes > fake->charge_limit_bytes;
}

static void *reserve_locked(struct fake_mem *fake, size_t bytes, uint32_t flags)
{
    bool writable = !(flags & KVLAZY_RESERVE_READ_ONLY);
    struct fake_map *map = free_map(fake);
    size_t total = bytes + own_page(fake), n_page = bytes / own_page(fake);

    if (!bytes || bytes % own_page(fake))
        breach(fake, "reserve of %zu bytes: not whole pages", bytes);
    if (!map || total < bytes || (writable && over_charge(fake, bytes)))
        return NULL;
    unsigned char *base = map_pages(total, writable ? PROT_READ | PROT_WRITE : PROT_READ);
    unsigned char *state = base ? map_pages(n_page + 1, PROT_READ | PROT_WRITE) : NULL;
    if (!state) {
        if (base)
            munmap(base, total);
        return NULL;
    }
    *map = (struct fake_map){
        .addr = base + (own_page(fake) - (uintptr_t)base % own_page(fake)) % own_page(fake),
        .state = state,
        .bytes = bytes,
        .flags = flags,
        .base = base,
        .base_bytes = total,
    };
    if (writable)
        memset(state, FAKE_WRITABLE, n_page);
    fake->charged_bytes += writable ? bytes : 0;
    if (writable && fake->dirty_reserve)
        memset(map->addr, 0xAA, bytes);
    return map->addr;
}

static void *fake_reserve(void *ctx, size_t bytes, uint32_t flags)
{
    const uint32_t sizes = KVLAZY_RESERVE_HUGE_PAGES | KVLAZY_RESERVE_ANY_PAGES;
    const uint32_t known = KVLAZY_RESERVE_DONTFORK | KVLAZY_RESERVE_READ_ONLY | sizes;
    struct fake_mem *fake = begin(ctx);
    void *addr = NULL;
    kvlazy_range range = {.bytes = bytes};

    if (flags & ~known)
        breach(fake, "reserve with unknown flags %x", (unsigned)flags);
    if ((flags & sizes) == sizes || ((flags & KVLAZY_RESERVE_ANY_PAGES) && !fake->table.granted))
        breach(fake, "reserve with flags %x, which do not go together", (unsigned)flags);
    if ((flags & KVLAZY_RESERVE_READ_ONLY) && !fake->table.set_writable)
        breach(fake, "a read-only reservation of a table without set_writable");
    if (!enter(fake, FAKE_RESERVE))
        addr = reserve_locked(fake, bytes, flags);
    range.addr = addr;
    note(fake, FAKE_RESERVE, &range, 1);
    end(fake);
    return addr;
}

static void drop_map(struct fake_mem *fake, struct fake_map *map)
{
    for (size_t i = 0; i < map->bytes / own_page(fake); i++) {
        fake->committed_bytes -= map->state[i] & FAKE_COMMITTED ? own_page(fake) : 0;
        fake->charged_bytes -= map->state[i] & FAKE_WRITABLE ? own_page(fake) : 0;
    }
    munmap(map->state, map->bytes / own_page(fake) + 1);
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

static size_t page_at(const struct fake_mem *fake, const struct fake_map *map, const void *addr)
{
    return (size_t)((const unsigned char *)addr - map->addr) / own_page(fake);
}

static void mark(struct fake_mem *fake, struct fake_map *map, const kvlazy_range *range, size_t bytes, bool in)
{
    size_t first = page_at(fake, map, range->addr);

    for (size_t i = first; i < first + bytes / own_page(fake); i++) {
        bool was = map->state[i] & FAKE_COMMITTED;

        if (in && !(map->state[i] & FAKE_WRITABLE))
            breach(fake, "commit of page %zu, which is read-only", i);
        if (in && !was)
            fake->committed_bytes += own_page(fake);
        if (!in && was) {
            fake->committed_bytes -= own_page(fake);
            fake->decommitted_bytes += own_page(fake);
        }
        map->state[i] = (unsigned char)((map->state[i] & ~FAKE_COMMITTED) | (in ? FAKE_COMMITTED : 0));
    }
}

static bool over_budget(struct fake_mem *fake, const kvlazy_range *range, size_t n_range)
{
    uint64_t more = 0;

    for (size_t i = 0; i < n_range; i++) {
        struct fake_map *map = find(fake, range[i].addr, range[i].bytes);
        size_t first = map ? page_at(fake, map, range[i].addr) : 0;

        for (size_t p = 0; map && p < range[i].bytes / own_page(fake); p++)
            more += map->state[first + p] & FAKE_COMMITTED ? 0 : own_page(fake);
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
            mark(fake, map, &range[i], fails ? unit(fake, map) : range[i].bytes, true);
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

/* ---- what a host may lack ---- */

static size_t writable_among(const struct fake_mem *fake, const struct fake_map *map, const kvlazy_range *range)
{
    size_t first = page_at(fake, map, range->addr), n = 0;

    for (size_t i = first; i < first + range->bytes / own_page(fake); i++)
        n += map->state[i] & FAKE_WRITABLE ? own_page(fake) : 0;
    return n;
}

static void raise_pages(struct fake_mem *fake, struct fake_map *map, const kvlazy_range *range)
{
    size_t first = page_at(fake, map, range->addr);

    fake->charged_bytes += range->bytes - writable_among(fake, map, range);
    for (size_t i = first; i < first + range->bytes / own_page(fake); i++)
        map->state[i] |= FAKE_WRITABLE;
    if (mprotect(range->addr, range->bytes, PROT_READ | PROT_WRITE))
        breach(fake, "mprotect answers %d", errno);
}

static void lower_pages(struct fake_mem *fake, struct fake_map *map, const kvlazy_range *range)
{
    fake->charged_bytes -= writable_among(fake, map, range);
    mark(fake, map, range, range->bytes, false);
    memset(map->state + page_at(fake, map, range->addr), 0, range->bytes / own_page(fake));
    if (madvise(range->addr, range->bytes, MADV_DONTNEED) || mprotect(range->addr, range->bytes, PROT_READ))
        breach(fake, "madvise or mprotect answers %d", errno);
}

static int set_writable_locked(struct fake_mem *fake, const kvlazy_range *range, bool writable, uint32_t flags)
{
    struct fake_map *map = checked(fake, "set_writable", range->addr, range->bytes);

    if (!map)
        return EINVAL;
    if (map->flags != (flags | KVLAZY_RESERVE_READ_ONLY))
        breach(fake, "set_writable with flags %x, reserved with %x", (unsigned)flags, (unsigned)map->flags);
    if (writable && over_charge(fake, range->bytes - writable_among(fake, map, range)))
        return ENOMEM;
    if (writable)
        raise_pages(fake, map, range);
    else
        lower_pages(fake, map, range);
    return 0;
}

static int fake_set_writable(void *ctx, void *addr, size_t bytes, int writable, uint32_t flags)
{
    struct fake_mem *fake = begin(ctx);
    kvlazy_range range = {addr, bytes};
    int error = ENOMEM;

    note(fake, FAKE_SET_WRITABLE, &range, 1);
    if (!enter(fake, FAKE_SET_WRITABLE))
        error = set_writable_locked(fake, &range, writable, flags);
    end(fake);
    return error;
}

static size_t fake_huge_page_bytes(void *ctx)
{
    return ((struct fake_mem *)ctx)->huge_page;
}

static uint32_t fake_traits(void *ctx)
{
    return ((struct fake_mem *)ctx)->host_traits;
}

static uint64_t fake_max_mappings(void *ctx)
{
    return ((struct fake_mem *)ctx)->max_mappings;
}

/* ---- looking ---- */

static size_t from_kernel(struct fake_mem *fake, const void *addr, size_t bytes)
{
    unsigned char vec[256];
    size_t n = 0;

    if (own_page(fake) != 4096)
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
        for (size_t i = 0; i < bytes / own_page(fake); i++)
            n += map->state[page_at(fake, map, addr) + i] & FAKE_COMMITTED ? own_page(fake) : 0;
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

static uint64_t fake_count(void *ctx, int what, uint64_t change)
{
    struct fake_mem *fake = begin(ctx);
    uint64_t sum = fake->sum[what] += change;

    end(fake);
    return sum;
}

void fake_init(struct fake_mem *fake)
{
    memset(fake, 0, sizeof *fake);
    pthread_mutex_init(&fake->lock, NULL);
    fake->page = 4096;
    fake->huge_page = 2 << 20;
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
        .count = fake_count,
    };
}

void fake_complete(struct fake_mem *fake)
{
    fake->table.set_writable = fake_set_writable;
    fake->table.huge_page_bytes = fake_huge_page_bytes;
    fake->table.traits = fake_traits;
    fake->table.max_mappings = fake_max_mappings;
}

static size_t fake_granted(void *ctx, uint32_t flags)
{
    struct fake_mem *fake = begin(ctx);
    size_t page = flags & KVLAZY_RESERVE_HUGE_PAGES ? fake->advised_page : fake->any_page;

    end(fake);
    return page ? page : own_page(fake);
}

static int fake_keep_small(void *ctx, void *addr, size_t bytes)
{
    struct fake_mem *fake = begin(ctx);
    struct fake_map *map = find(fake, addr, bytes);

    if (!map || map->addr != addr || map->bytes != bytes)
        breach(fake, "keep_small of %zu bytes at %p: not what a reserve returned", bytes, addr);
    else if (!fake->refuse_small)
        map->flags &= ~(uint32_t)(KVLAZY_RESERVE_HUGE_PAGES | KVLAZY_RESERVE_ANY_PAGES);
    end(fake);
    return fake->refuse_small ? ENOMEM : 0;
}

void fake_grant(struct fake_mem *fake, size_t page, bool advised)
{
    fake->page = page;
    fake->host_page = 4096;
    fake->any_page = advised ? 0 : page;
    fake->advised_page = advised ? page : 0;
    fake->table.granted = fake_granted;
    fake->table.keep_small = fake_keep_small;
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

        for (size_t p = 0; map->addr && p < map->bytes / own_page(fake); p++) {
            const unsigned char *at = map->addr + p * own_page(fake);

            if (at + own_page(fake) > (const unsigned char *)addr && at < (const unsigned char *)addr + bytes)
                n += map->state[p] & FAKE_COMMITTED ? own_page(fake) : 0;
        }
    }
    return n;
}

void fake_assert_kept(const struct fake_mem *fake)
{
    if (fake->broken[0])
        fail_msg("the contract of mem.h was broken: %s", fake->broken);
}
