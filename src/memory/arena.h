/* SPDX-License-Identifier: MIT */
/*
 * arena: one reservation and what is touched in it. The only caller of the memory table. Knows bytes and pages, not
 * cells. It is told which bytes will be written and which are not needed, and asks the host only for pages that are not
 * in that state already. One bit a page is the only record of that; every figure follows from it.
 *
 * Both directions go in two steps, so that a batch of ranges is one call to the host:
 *
 *     want, want, …   then commit    outward: every page a byte lies on; all of it or nothing
 *     offer, offer, … then give      inward: whole pages only; whatever the host takes
 *
 * Offering rounds inwards because madvise rounds lengths up: one byte too many would zero the live page
 * behind. The bytes left at the edges, and whatever the host refused, are zeroed by hand (kvl_arena_zero).
 */
#ifndef KVL_ARENA_H
#define KVL_ARENA_H

#include "base/base.h"
#include "base/bits.h"
#include "memory/geometry.h"
#include "memory/page.h"
#include "memory/table.h"

/* Part of an arena that is written from its beginning on. Where a host refuses a writable reservation, it is writable
 * from `first` up to a frontier that moves with what is touched:
 *
 *     block     |0                                              |1
 *     pages     | touched | free | touched |         read-only  | touched |    read-only
 *     writable  |**************************|                    |*********|
 *                                          ^ frontier
 */
typedef struct kvl_block {
    uint64_t first, frontier; /* pages; the block ends where the next one begins */
} kvl_block;

struct kvlazy_arena {
    uint64_t magic;          /* of one that an engine holds, so that a foreign handle is told by a look */
    struct kvl_group *group; /* whose lock it is used under; NULL: no cache uses it */
    uint32_t n_cache;        /* that use it */

    kvlazy_mem mem;
    uint64_t bytes; /* as asked for */
    char *base;
    void *map; /* what the host gave: more than the arena where that has to be aligned */
    size_t map_bytes;
    uint32_t reserve_flags;
    uint32_t page_shift; /* of the page in use, which comes and goes as a whole: one of the host's or larger */
    uint64_t n_page;
    uint64_t *touched;   /* bits, one a page */
    uint64_t n_touched;  /* pages */
    uint64_t n_released; /* pages, running total */
    uint64_t n_refused;  /* ranges the host would not take back, running total */
    bool gives_zeros;    /* a page given back reads zero: probed, some hosts' does not (qemu-user) */
    kvl_block *block;    /* [n_block]; NULL: all of it is writable */
    uint32_t n_block;
    bool frontier_stuck; /* the host would not take back what lies above one of them: all are to be looked at again */

    kvlazy_range *range; /* gathered, ascending */
    uint32_t n_range, cap_range;
    uint64_t n_gathered; /* pages in them */
    uint64_t gather_end; /* pages below were looked at: two rows of one page want it once */
};

/* An arena that an engine holds: a foreign handle is told by a look at its first bytes. */
#define KVL_ARENA_MAGIC UINT64_C(0x6b766c6172650001)

static inline bool kvl_is_arena(const kvlazy_arena *arena)
{
    return arena && arena->magic == KVL_ARENA_MAGIC;
}

/* Where such an arena begins and how many bytes it has; NULL and 0 for a foreign handle. */
static inline void kvl_arena_bounds(const kvlazy_arena *arena, const char **base, uint64_t *bytes)
{
    *base = kvl_is_arena(arena) ? arena->base : NULL;
    *bytes = kvl_is_arena(arena) ? arena->bytes : 0;
}

/* Reserves; 0 bytes are legal and reserve nothing. page: one that the host grants. flags: KVLAZY_RESERVE_* beside
 * those of the page. block: ascending parts for a host that refuses a writable reservation; n_block 0: it is refused
 * then. KVLAZY_ENOMEM: nothing is held. */
int kvl_arena_init(kvlazy_arena *arena, const kvlazy_mem *mem, uint64_t bytes, kvl_page page, uint32_t flags,
                   const kvl_span *block, uint32_t n_block);
void kvl_arena_fini(kvlazy_arena *arena);

/* Whether a host would grant so much, writable. Reserves nothing; a table without read-only reservations is believed
 * to. */
bool kvl_host_grants(const kvlazy_mem *mem, uint64_t bytes, kvl_page page, uint32_t flags);

/* Begins a new batch of ranges, in ascending order of bytes. */
void kvl_arena_gather(kvlazy_arena *arena);

/* Gathers the pages under these bytes that are touched, or those that are not. KVLAZY_ENOMEM: no room to note them. */
int kvl_arena_find(kvlazy_arena *arena, kvl_span bytes, bool touched);

/* How many of the gathered pages lie in [first, end). */
uint64_t kvl_arena_gathered_in(const kvlazy_arena *arena, uint64_t first, uint64_t end);

/* Makes the gathered pages touched and writable; `ahead`: physically present too. KVLAZY_ENOMEM: none of them is. */
int kvl_arena_commit(kvlazy_arena *arena, bool ahead);

/* Makes the gathered pages, which are touched, present; what they hold stays. KVLAZY_ENOMEM: some may not be. */
int kvl_arena_bring(kvlazy_arena *arena);

/* Reads a byte of each gathered page, which is present. Where a hypervisor keeps tables of its own beside the guest's,
 * the first access to a page takes longer than making it present, and any thread may be the one that waits. */
void kvl_arena_access(const kvlazy_arena *arena);

/* Takes back a commit of what is still gathered. */
void kvl_arena_uncommit(kvlazy_arena *arena);

/* Bytes that are not needed: gathers their whole pages that are touched, and those below `read_end` (a byte) that
 * reading may have made resident. When there is no room to note more, what was gathered goes back first. */
void kvl_arena_offer(kvlazy_arena *arena, kvl_span bytes, uint64_t read_end);

/* Gives the gathered pages back. What the host refuses stays touched and is counted. */
void kvl_arena_give(kvlazy_arena *arena);

/* Zeroes those of the bytes that lie on touched pages. */
void kvl_arena_zero(kvlazy_arena *arena, kvl_span bytes);

/* The bytes read zero afterwards, and their whole pages were offered to the host. */
void kvl_arena_discard(kvlazy_arena *arena, kvl_span bytes);

/* Bytes of pages [first, end) in RAM, as the host says. */
uint64_t kvl_arena_resident(const kvlazy_arena *arena, uint64_t first, uint64_t end);

/* Gives back the gathered pages, of which none is touched, before they are committed. They stay gathered. What the host
 * refuses is as it was. */
static inline void kvl_arena_give_gathered(kvlazy_arena *arena)
{
    for (size_t i = 0; i < arena->n_range; i++)
        i += arena->mem.decommit(arena->mem.ctx, arena->range + i, arena->n_range - i);
}

static inline uint64_t kvl_page_floor(const kvlazy_arena *arena, uint64_t byte)
{
    return byte >> arena->page_shift;
}

static inline uint64_t kvl_page_ceil(const kvlazy_arena *arena, uint64_t byte)
{
    return (byte + (UINT64_C(1) << arena->page_shift) - 1) >> arena->page_shift;
}

static inline uint64_t kvl_pages_bytes(const kvlazy_arena *arena, uint64_t n_page)
{
    return n_page << arena->page_shift;
}

/* Every page these bytes lie on is touched. */
static inline bool kvl_arena_has(const kvlazy_arena *arena, kvl_span bytes)
{
    uint64_t first = kvl_page_floor(arena, bytes.begin), end = kvl_page_ceil(arena, bytes.end);

    return kvl_bits_next(arena->touched, first, end, false) >= end;
}

/* Bytes that will be written: gathers their pages that are not touched. */
static inline int kvl_arena_want(kvlazy_arena *arena, kvl_span bytes)
{
    return KVL_LIKELY(kvl_arena_has(arena, bytes)) ? KVLAZY_OK : kvl_arena_find(arena, bytes, false);
}

#endif
