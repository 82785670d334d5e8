/* SPDX-License-Identifier: MIT */
/* arena: see arena.h. */
#include "arena.h"

#include <bsd/stdlib.h>

enum { FIRST_RANGES = 256 };

/* ------------------------------------------------------------------------------------------- reserve */

static bool is_zero(const unsigned char *byte, size_t n)
{
    return byte[0] == 0 && memcmp(byte, byte + 1, n - 1) == 0;
}

/* What this host does is looked at once, on a page of its own that goes back at once. */
static int probe(kvlazy_arena *a, bool *reserve_zeros)
{
    size_t bytes = (size_t)kvl_pages_bytes(a, 1);
    unsigned char *page = a->mem.reserve(a->mem.ctx, bytes, 0);

    if (!page)
        return KVLAZY_ENOMEM;
    *reserve_zeros = is_zero(page, bytes);
    memset(page, 0xa5, bytes);
    bool gave = a->mem.decommit(a->mem.ctx, &(kvlazy_range){page, bytes}, 1) == 1;
    a->gives_zeros = !gave || is_zero(page, bytes); /* a refusal is told call by call */
    return a->mem.unreserve(a->mem.ctx, page, bytes) == 0 ? KVLAZY_OK : KVLAZY_ENOMEM;
}

/* Attention reads padding that was never written, so a reservation has to read zero from the start. */
static void make_zero(kvlazy_arena *a)
{
    size_t bytes = (size_t)kvl_pages_bytes(a, a->n_page);

    if (a->gives_zeros && a->mem.decommit(a->mem.ctx, &(kvlazy_range){a->base, bytes}, 1) == 1)
        return;
    memset(a->base, 0, bytes);
}

static int reserve(kvlazy_arena *a, uint64_t bytes, uint32_t flags)
{
    bool reserve_zeros;

    a->n_page = kvl_page_ceil(a, bytes);
    a->cap_range = FIRST_RANGES;
    a->range = calloc(a->cap_range, sizeof *a->range);
    a->touched = calloc(kvl_bits_words(a->n_page), sizeof *a->touched); /* lazy itself: not written here */
    if (!a->range || !a->touched || probe(a, &reserve_zeros))
        return KVLAZY_ENOMEM;
    a->base = a->mem.reserve(a->mem.ctx, (size_t)kvl_pages_bytes(a, a->n_page), flags);
    if (!a->base)
        return KVLAZY_ENOMEM;
    if (!reserve_zeros)
        make_zero(a);
    return KVLAZY_OK;
}

uint64_t kvl_page_bytes(const kvlazy_mem *mem)
{
    size_t page_bytes = mem->page_bytes(mem->ctx);

    return kvl_is_pow2(page_bytes) ? page_bytes : 0;
}

int kvl_arena_init(kvlazy_arena *a, const kvlazy_mem *mem, uint64_t bytes, uint32_t flags)
{
    *a = (kvlazy_arena){.mem = *mem, .gives_zeros = true};
    uint64_t page_bytes = kvl_page_bytes(mem);

    if (!page_bytes)
        return KVLAZY_EINVAL;
    a->page_shift = (uint32_t)__builtin_ctzll(page_bytes);
    if (!bytes)
        return KVLAZY_OK;
    int status = reserve(a, bytes, flags);
    if (status)
        kvl_arena_fini(a);
    return status;
}

void kvl_arena_fini(kvlazy_arena *a)
{
    if (a->base)
        a->mem.unreserve(a->mem.ctx, a->base, (size_t)kvl_pages_bytes(a, a->n_page)); /* nobody left to tell */
    free(a->touched);
    free(a->range);
    *a = (kvlazy_arena){0};
}

/* ------------------------------------------------------------------------------------------- gather */

void kvl_arena_gather(kvlazy_arena *a)
{
    a->n_range = 0;
    a->n_gathered = 0;
    a->gather_end = 0;
}

/* Room for one more range, unless the host of our own memory refuses. */
static bool has_room(kvlazy_arena *a)
{
    if (KVL_LIKELY(a->n_range < a->cap_range))
        return true;
    if (a->cap_range > UINT32_MAX / 2)
        return false;
    kvlazy_range *range = reallocarray(a->range, 2 * (size_t)a->cap_range, sizeof *range);
    if (!range)
        return false;
    a->range = range;
    a->cap_range *= 2;
    return true;
}

static uint64_t range_page(const kvlazy_arena *a, const kvlazy_range *range)
{
    return (uint64_t)((char *)range->addr - a->base) >> a->page_shift;
}

/* Pages [first, end), joined to the range before where they touch. There is room. */
static void note(kvlazy_arena *a, uint64_t first, uint64_t end)
{
    char *addr = a->base + kvl_pages_bytes(a, first);
    size_t bytes = (size_t)kvl_pages_bytes(a, end - first);
    kvlazy_range *last = a->n_range ? &a->range[a->n_range - 1] : NULL;

    if (last && (char *)last->addr + last->bytes == addr)
        last->bytes += bytes;
    else
        a->range[a->n_range++] = (kvlazy_range){addr, bytes};
    a->n_gathered += end - first;
    a->gather_end = end;
}

int kvl_arena_want_slow(kvlazy_arena *a, kvl_span bytes)
{
    uint64_t page = kvl_max(kvl_page_floor(a, bytes.begin), a->gather_end), end = kvl_page_ceil(a, bytes.end);

    while ((page = kvl_bits_next(a->touched, page, end, false)) < end) {
        uint64_t stop = kvl_bits_next(a->touched, page, end, true);

        if (!has_room(a))
            return KVLAZY_ENOMEM;
        note(a, page, stop);
        page = stop;
    }
    return KVLAZY_OK;
}

int kvl_arena_commit(kvlazy_arena *a, bool ahead)
{
    if (!a->n_range)
        return KVLAZY_OK;
    if (ahead && a->mem.commit(a->mem.ctx, a->range, a->n_range) != 0) {
        /* Any part may have been done, and nobody would give it back: none of these pages is touched. */
        for (uint32_t i = 0; i < a->n_range; i++)
            a->mem.decommit(a->mem.ctx, &a->range[i], 1);
        return KVLAZY_ENOMEM;
    }
    for (uint32_t i = 0; i < a->n_range; i++) {
        uint64_t first = range_page(a, &a->range[i]);

        a->n_touched += kvl_bits_fill(a->touched, first, first + (a->range[i].bytes >> a->page_shift), true);
    }
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- give back */

void kvl_arena_offer(kvlazy_arena *a, kvl_span bytes, uint64_t read_end)
{
    uint64_t page = kvl_page_ceil(a, bytes.begin), end = kvl_page_floor(a, bytes.end);
    uint64_t read_stop = kvl_min(kvl_page_ceil(a, read_end), end);

    while (page < end) {
        uint64_t stop = read_stop;

        if (page >= read_stop) {
            page = kvl_bits_next(a->touched, page, end, true);
            stop = kvl_bits_next(a->touched, page, end, false);
            if (page == end)
                break;
        }
        if (!has_room(a)) {
            kvl_arena_give(a);
            kvl_arena_gather(a);
        }
        note(a, page, stop);
        page = stop;
    }
}

static void record_given(kvlazy_arena *a, const kvlazy_range *range)
{
    uint64_t first = range_page(a, range);
    uint64_t n = kvl_bits_fill(a->touched, first, first + (range->bytes >> a->page_shift), false);

    a->n_touched -= n;
    a->n_released += n;
}

void kvl_arena_give(kvlazy_arena *a)
{
    uint32_t i = 0;

    while (i < a->n_range) {
        size_t left = a->n_range - i;
        size_t given = a->gives_zeros ? a->mem.decommit(a->mem.ctx, &a->range[i], left) : 0;

        given = given < left ? given : left;
        for (size_t k = 0; k < given; k++)
            record_given(a, &a->range[i++]);
        if (given < left) { /* part of it may be gone (llvm-project#167788): still touched, asked again later */
            a->n_refused++;
            i++;
        }
    }
    a->n_range = 0;
}

void kvl_arena_zero(kvlazy_arena *a, kvl_span bytes)
{
    uint64_t page = kvl_page_floor(a, bytes.begin), end = kvl_page_ceil(a, bytes.end);

    while ((page = kvl_bits_next(a->touched, page, end, true)) < end) {
        uint64_t stop = kvl_bits_next(a->touched, page, end, false);
        uint64_t from = kvl_max(bytes.begin, kvl_pages_bytes(a, page));
        uint64_t to = kvl_min(bytes.end, kvl_pages_bytes(a, stop));

        memset(a->base + from, 0, (size_t)(to - from));
        page = stop;
    }
}

uint64_t kvl_arena_resident(const kvlazy_arena *a)
{
    return a->base ? a->mem.resident(a->mem.ctx, a->base, (size_t)kvl_pages_bytes(a, a->n_page)) : 0;
}
