/* SPDX-License-Identifier: MIT */
/*
 * base: what every other file may assume: assert tiers, rounding, sizes that may overflow, and structs that
 * cross the ABI. Included by all, includes nothing of ours but the public header.
 */
#ifndef KVL_BASE_H
#define KVL_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <kvlazy/kvlazy.h>

/* Assert tiers by cost. 1: O(1) checks. 2: whole-object checks after every call that changes something. They
 * are for our own bugs, never for what a caller, a file or the OS may do. */
#ifndef KVLAZY_CHECKS
#define KVLAZY_CHECKS 0
#endif
#if KVLAZY_CHECKS >= 1
#include <assert.h>
#define KVL_ASSERT(cond) assert(cond)
#else
#define KVL_ASSERT(cond) ((void)0)
#endif

#define KVL_LIKELY(x) __builtin_expect(!!(x), 1)
#define KVL_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Some cells of one stream, [begin, end). */
typedef struct kvl_run {
    uint32_t stream, begin, end;
} kvl_run;

static inline uint64_t kvl_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t kvl_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* `unit` is a power of two. */
static inline uint64_t kvl_round_up(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) & ~(unit - 1);
}

static inline uint64_t kvl_round_down(uint64_t value, uint64_t unit)
{
    return value & ~(unit - 1);
}

static inline uint64_t kvl_div_up(uint64_t value, uint64_t by)
{
    return value / by + (value % by > 0);
}

static inline bool kvl_is_pow2(uint64_t value)
{
    return value && !(value & (value - 1));
}

static inline bool kvl_mul_overflows(uint64_t a, uint64_t b, uint64_t *product)
{
    return __builtin_mul_overflow(a, b, product);
}

static inline bool kvl_add_overflows(uint64_t a, uint64_t b, uint64_t *sum)
{
    return __builtin_add_overflow(a, b, sum);
}

/* Structs that cross the ABI begin with their size. Ours may be newer or older than the caller's: a smaller
 * one is taken as far as it goes, a larger one only if what we do not know of is zero. The bound refuses the
 * size of a struct that nobody initialised. */
static inline bool kvl_struct_fits(const void *theirs, size_t our_bytes)
{
    size_t bytes;

    memcpy(&bytes, theirs, sizeof bytes);
    if (bytes <= sizeof bytes || bytes > 4096)
        return false;
    for (size_t i = our_bytes; i < bytes; i++)
        if (((const unsigned char *)theirs)[i])
            return false;
    return true;
}

/* Copies all but the size itself, as much as both have, between two structs of one type and two versions. */
static inline void kvl_struct_copy(void *to, size_t to_bytes, const void *from, size_t from_bytes)
{
    size_t bytes = to_bytes < from_bytes ? to_bytes : from_bytes;

    memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t), bytes - sizeof(size_t));
}

#endif
