/* SPDX-License-Identifier: MIT */
/* arena: see arena.h. */
#include "memory/arena.h"

#include <bsd/stdlib.h>

enum {
    FIRST_RANGES = 256,
    PART_TRIES = 64, /* calls that one release spends on what the host refused */
};

/* ------------------------------------------------------------------------------------------- reserve */

static bool is_zero(const unsigned char *byte, size_t n)
{
    return byte[0] == 0 && memcmp(byte, byte + 1, n - 1) == 0;
}

/* What this host does is looked at once, on a page of its own that goes back at once. */
static int probe(kvlazy_arena *a, bool *reserve_zeros)
{
    size_t bytes = (size_t)kvl_page_bytes(&a->mem, false);
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

/* What has to be asked for, so that some of it is aligned to a unit larger than the host's page. */
static size_t bytes_to_map(const kvlazy_mem *mem, uint64_t bytes, uint64_t unit)
{
    return (size_t)(kvl_round_up(bytes, unit) + unit - kvl_page_bytes(mem, false));
}

static void set_blocks(kvlazy_arena *a, const kvl_span *block, uint32_t n_block)
{
    for (uint32_t i = 0; i < n_block; i++)
        a->block[i].first = a->block[i].frontier = kvl_page_floor(a, block[i].begin);
    a->n_block = n_block;
}

/* A host that counts what is writable against a limit (overcommit 2, RLIMIT_DATA) may grant what is only readable. */
static int map_read_only(kvlazy_arena *a, const kvl_span *block, uint32_t n_block)
{
    if (!a->mem.set_writable || !n_block)
        return KVLAZY_ENOMEM;
    a->block = calloc(n_block, sizeof *a->block);
    if (!a->block)
        return KVLAZY_ENOMEM;
    a->map = a->mem.reserve(a->mem.ctx, a->map_bytes, a->reserve_flags | KVLAZY_RESERVE_READ_ONLY);
    set_blocks(a, block, n_block);
    return a->map ? KVLAZY_OK : KVLAZY_ENOMEM;
}

static int reserve(kvlazy_arena *a, uint64_t bytes, const kvl_span *block, uint32_t n_block)
{
    bool reserve_zeros;

    a->n_page = kvl_page_ceil(a, bytes);
    a->cap_range = FIRST_RANGES;
    a->range = calloc(a->cap_range, sizeof *a->range);
    a->touched = calloc(kvl_bits_words(a->n_page), sizeof *a->touched); /* lazy itself: not written here */
    if (!a->range || !a->touched || probe(a, &reserve_zeros))
        return KVLAZY_ENOMEM;
    a->map_bytes = bytes_to_map(&a->mem, bytes, kvl_pages_bytes(a, 1));
    a->map = a->mem.reserve(a->mem.ctx, a->map_bytes, a->reserve_flags);
    if (!a->map && map_read_only(a, block, n_block))
        return KVLAZY_ENOMEM;
    a->base = (char *)a->map + (kvl_round_up((uintptr_t)a->map, kvl_pages_bytes(a, 1)) - (uintptr_t)a->map);
    if (!reserve_zeros && !a->block)
        make_zero(a);
    return KVLAZY_OK;
}

bool kvl_host_grants(const kvlazy_mem *mem, uint64_t bytes, kvl_page page, uint32_t flags)
{
    if (!bytes || !mem->set_writable)
        return true;
    size_t map_bytes = bytes_to_map(mem, bytes, page.bytes);
    void *map = mem->reserve(mem->ctx, map_bytes, flags | page.flags);
    return map && mem->unreserve(mem->ctx, map, map_bytes) == 0;
}

int kvl_arena_init(kvlazy_arena *a, const kvlazy_mem *mem, uint64_t bytes, kvl_page page, uint32_t flags,
                   const kvl_span *block, uint32_t n_block)
{
    *a = (kvlazy_arena){.mem = *mem, .bytes = bytes, .reserve_flags = flags | page.flags, .gives_zeros = true};
    if (!page.bytes)
        return KVLAZY_EINVAL;
    a->page_shift = (uint32_t)__builtin_ctzll(page.bytes);
    if (!bytes)
        return KVLAZY_OK;
    int status = reserve(a, bytes, block, n_block);
    if (status)
        kvl_arena_fini(a);
    return status;
}

void kvl_arena_fini(kvlazy_arena *a)
{
    if (a->map)
        a->mem.unreserve(a->mem.ctx, a->map, a->map_bytes); /* a failure could be told to no caller */
    free(a->touched);
    free(a->range);
    free(a->block);
    *a = (kvlazy_arena){0};
}

/* ------------------------------------------------------------------------------------------- the frontier */

static uint64_t block_end(const kvlazy_arena *a, uint32_t i)
{
    return i + 1 < a->n_block ? a->block[i + 1].first : a->n_page;
}

static int set_writable(kvlazy_arena *a, uint64_t first, uint64_t end, bool writable)
{
    size_t bytes = (size_t)kvl_pages_bytes(a, end - first);

    return a->mem.set_writable(a->mem.ctx, a->base + kvl_pages_bytes(a, first), bytes, writable, a->reserve_flags);
}

/* The block of a page: the last one that does not begin above it. */
static uint32_t find_block(const kvlazy_arena *a, uint64_t page)
{
    uint32_t low = 0, high = a->n_block;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (a->block[middle].first <= page)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Pages [first, end) are about to be written. 0, or what the host says. */
static int raise_frontiers(kvlazy_arena *a, uint64_t first, uint64_t end)
{
    int error = 0;

    for (uint32_t i = find_block(a, first); !error && i < a->n_block && a->block[i].first < end; i++) {
        kvl_block *b = &a->block[i];
        uint64_t stop = kvl_min(end, block_end(a, i));

        if (stop <= b->frontier || stop <= first)
            continue;
        error = set_writable(a, b->frontier, stop, true);
        if (!error)
            b->frontier = stop;
    }
    return error;
}

/* Where the read-only pages begin that lie below page `top` of a block, and where those end that lie above its
 * frontier: at the next writable page. */
static uint64_t read_only_begin(const kvlazy_arena *a, uint32_t i, uint64_t top)
{
    for (; i && top == a->block[i].first; i--)
        top = a->block[i - 1].frontier;
    return top;
}

static uint64_t read_only_end(const kvlazy_arena *a, uint32_t i)
{
    while (i + 1 < a->n_block && a->block[i + 1].frontier == a->block[i + 1].first)
        i++;
    return block_end(a, i);
}

/* A frontier comes down to what is touched. Where the host will not, it stays where it is until the next release. The
 * read-only pages on both sides are asked for once more with those that become so: not every kernel joins a fresh
 * mapping to one that was read (Linux 6.18 does not), and the run would stay in pieces. */
static void lower_frontier(kvlazy_arena *a, uint32_t i)
{
    kvl_block *b = &a->block[i];
    uint64_t top = b->frontier;

    if (top == b->first || kvl_bit_get(a->touched, top - 1))
        return;
    top = kvl_bits_top_above(a->touched, b->first, top);
    if (set_writable(a, read_only_begin(a, i, top), read_only_end(a, i), false) == 0)
        b->frontier = top;
    else
        a->frontier_stuck = true;
}

static uint64_t range_page(const kvlazy_arena *a, const kvlazy_range *range)
{
    return (uint64_t)((char *)range->addr - a->base) >> a->page_shift;
}

static uint64_t end_page(const kvlazy_arena *a, const kvlazy_range *range)
{
    return range_page(a, range) + (range->bytes >> a->page_shift);
}

/* What was gathered may be untouched now: no block but those of its pages is looked at. Ranges ascend, and many may lie
 * in one block. */
static void lower_frontiers(kvlazy_arena *a)
{
    bool all = a->frontier_stuck;
    uint32_t done = 0;

    a->frontier_stuck = false;
    for (uint32_t i = 0; all && i < a->n_block; i++)
        lower_frontier(a, i);
    for (uint32_t r = 0; !all && a->n_block && r < a->n_range; r++) {
        uint64_t end = end_page(a, &a->range[r]);

        done = (uint32_t)kvl_max(done, find_block(a, range_page(a, &a->range[r])));
        for (; done < a->n_block && a->block[done].first < end; done++)
            lower_frontier(a, done);
    }
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

int kvl_arena_find(kvlazy_arena *a, kvl_span bytes, bool touched)
{
    uint64_t page = kvl_max(kvl_page_floor(a, bytes.begin), a->gather_end), end = kvl_page_ceil(a, bytes.end);

    while ((page = kvl_bits_next(a->touched, page, end, touched)) < end) {
        uint64_t stop = kvl_bits_next(a->touched, page, end, !touched);

        if (!has_room(a))
            return KVLAZY_ENOMEM;
        note(a, page, stop);
        page = stop;
    }
    return KVLAZY_OK;
}

uint64_t kvl_arena_gathered_in(const kvlazy_arena *a, uint64_t first, uint64_t end)
{
    uint32_t low = 0, high = a->n_range;
    uint64_t n = 0;

    while (low < high) { /* the first range that does not end before */
        uint32_t middle = low + (high - low) / 2;

        if (end_page(a, &a->range[middle]) <= first)
            low = middle + 1;
        else
            high = middle;
    }
    for (const kvlazy_range *r = a->range + low; r < a->range + a->n_range && range_page(a, r) < end; r++)
        n += kvl_min(end, end_page(a, r)) - kvl_max(first, range_page(a, r));
    return n;
}

/* After a failed commit any part of the gathered pages may be present. They are not touched, so no later release would
 * give them back. In an engine's own arena they may hold bytes of the engine, and there they only count as read. */
static void give_untouched(kvlazy_arena *a)
{
    for (uint32_t i = 0; !a->magic && i < a->n_range; i++)
        a->mem.decommit(a->mem.ctx, &a->range[i], 1);
    lower_frontiers(a);
}

int kvl_arena_commit(kvlazy_arena *a, bool ahead)
{
    int error = 0;

    if (!a->n_range)
        return KVLAZY_OK;
    for (uint32_t i = 0; a->block && !error && i < a->n_range; i++)
        error = raise_frontiers(a, range_page(a, &a->range[i]), end_page(a, &a->range[i]));
    if (!error && ahead)
        error = a->mem.commit(a->mem.ctx, a->range, a->n_range);
    if (error) {
        give_untouched(a);
        return KVLAZY_ENOMEM;
    }
    for (uint32_t i = 0; i < a->n_range; i++)
        a->n_touched += kvl_bits_fill(a->touched, range_page(a, &a->range[i]), end_page(a, &a->range[i]), true);
    return KVLAZY_OK;
}

int kvl_arena_bring(kvlazy_arena *a)
{
    return a->n_range && a->mem.commit(a->mem.ctx, a->range, a->n_range) ? KVLAZY_ENOMEM : KVLAZY_OK;
}

/* An engine may be writing to a page meanwhile. No byte that is read is used, so that is no race to report. */
__attribute__((no_sanitize("thread"))) void kvl_arena_access(const kvlazy_arena *a)
{
    size_t step = (size_t)kvl_page_bytes(&a->mem, false);

    for (const kvlazy_range *r = a->range; r < a->range + a->n_range; r++)
        for (size_t at = 0; at < r->bytes; at += step)
            (void)((const volatile char *)r->addr)[at];
}

void kvl_arena_uncommit(kvlazy_arena *a)
{
    for (uint32_t i = 0; i < a->n_range; i++)
        a->n_touched -= kvl_bits_fill(a->touched, range_page(a, &a->range[i]), end_page(a, &a->range[i]), false);
    give_untouched(a);
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
    uint64_t n = kvl_bits_fill(a->touched, range_page(a, range), end_page(a, range), false);

    a->n_touched -= n;
    a->n_released += n;
}

/* The host refused a range, perhaps for one page of it: locked pages do that, after the pages before them went
 * (llvm-project#167788). Halves of the range are offered, as long as there are tries left. */
static void give_in_parts(kvlazy_arena *a, const kvlazy_range *range, uint32_t *tries)
{
    size_t half = (size_t)kvl_round_down(range->bytes / 2, kvl_pages_bytes(a, 1));
    kvlazy_range part[2] = {{range->addr, half}, {(char *)range->addr + half, range->bytes - half}};

    for (int i = 0; half && i < 2 && *tries; i++) {
        --*tries;
        if (a->mem.decommit(a->mem.ctx, &part[i], 1) == 1)
            record_given(a, &part[i]);
        else
            give_in_parts(a, &part[i], tries);
    }
}

void kvl_arena_give(kvlazy_arena *a)
{
    uint32_t i = 0, tries = PART_TRIES;

    while (i < a->n_range) {
        size_t left = a->n_range - i;
        size_t given = a->gives_zeros ? a->mem.decommit(a->mem.ctx, &a->range[i], left) : 0;

        given = given < left ? given : left;
        for (size_t k = 0; k < given; k++)
            record_given(a, &a->range[i++]);
        if (given < left) { /* what stays touched is asked for again later */
            a->n_refused++;
            if (a->gives_zeros)
                give_in_parts(a, &a->range[i], &tries);
            i++;
        }
    }
    lower_frontiers(a);
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

/* An engine writes to its own arena without telling the library, so a page that is not touched may hold bytes too. */
static void discard_pages(kvlazy_arena *a, uint64_t first, uint64_t end)
{
    kvlazy_range range = {a->base + kvl_pages_bytes(a, first), (size_t)kvl_pages_bytes(a, end - first)};

    if (first == end)
        return;
    if (a->gives_zeros && a->mem.decommit(a->mem.ctx, &range, 1) == 1) {
        record_given(a, &range);
    } else if (a->gives_zeros && end - first > 1) {
        discard_pages(a, first, first + (end - first) / 2);
        discard_pages(a, first + (end - first) / 2, end);
    } else {
        memset(range.addr, 0, range.bytes);
        a->n_refused++;
    }
}

void kvl_arena_discard(kvlazy_arena *a, kvl_span bytes)
{
    uint64_t first = kvl_page_ceil(a, bytes.begin), end = kvl_page_floor(a, bytes.end);

    if (bytes.end == a->bytes) /* the rest of the last page belongs to no tensor */
        bytes.end = kvl_pages_bytes(a, end = a->n_page);
    if (first >= end) { /* no page is whole */
        memset(a->base + bytes.begin, 0, (size_t)(bytes.end - bytes.begin));
        return;
    }
    discard_pages(a, first, end);
    memset(a->base + bytes.begin, 0, (size_t)(kvl_pages_bytes(a, first) - bytes.begin));
    memset(a->base + kvl_pages_bytes(a, end), 0, (size_t)(bytes.end - kvl_pages_bytes(a, end)));
}

uint64_t kvl_arena_resident(const kvlazy_arena *a, uint64_t first, uint64_t end)
{
    const char *addr = a->base + kvl_pages_bytes(a, first);

    return first < end ? a->mem.resident(a->mem.ctx, addr, (size_t)kvl_pages_bytes(a, end - first)) : 0;
}
