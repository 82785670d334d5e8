/* SPDX-License-Identifier: MIT */
/*
 * base: what every other file may assume: assert tiers, rounding, sizes that may overflow, and structs that cross the
 * ABI. Every file includes it. It includes nothing of the library but the public header.
 */
#ifndef KVL_BASE_H
#define KVL_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <kvlazy/kvlazy.h>

/* Assert tiers by cost. 1: checks in O(1). 2: whole-object checks after every call that changes something. Asserts are
 * for bugs of the library, never for what a caller, a file or the OS may do. */
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

/* Consecutive cells of one stream, [begin, end). */
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

/* Structs that cross the ABI begin with their size. Ours may be newer or older than the caller's. A smaller one ends
 * where a member of ours ends: half a pointer is none. A larger input says nothing in what is not known, and of a
 * larger output that part is zeroed. The bound refuses the size of a struct that nothing initialised.
 *
 * The ends of a struct's members, in order and with a 0 behind, are in the file that reads or fills it. */
#define KVL_END(type, member) ((uint16_t)(offsetof(type, member) + sizeof(((type *)0)->member)))
#define KVL_IS_LAST(type, member) \
    ((KVL_END(type, member) + _Alignof(type) - 1) / _Alignof(type) * _Alignof(type) == sizeof(type))
#define KVL_STRUCT_MAX_BYTES 4096

static inline size_t kvl_struct_size(const void *theirs)
{
    size_t bytes;

    memcpy(&bytes, theirs, sizeof bytes);
    return bytes;
}

/* So many bytes end with a member, or with the padding behind one. */
static inline bool kvl_ends_with_member(size_t bytes, const uint16_t *end)
{
    for (; *end; end++)
        if (bytes == *end || bytes == kvl_round_up(*end, sizeof(size_t)))
            return true;
    return false;
}

/* A caller's struct that can be filled: all of it or its first members. */
static inline bool kvl_output_fits(const void *theirs, size_t our_bytes, const uint16_t *end)
{
    size_t bytes = kvl_struct_size(theirs);

    return bytes > sizeof bytes && bytes <= KVL_STRUCT_MAX_BYTES &&
           (bytes >= our_bytes || kvl_ends_with_member(bytes, end));
}

/* A caller's struct that can be read: the same, and what is not known of it is zero. */
static inline bool kvl_input_fits(const void *theirs, size_t our_bytes, const uint16_t *end)
{
    if (!kvl_output_fits(theirs, our_bytes, end))
        return false;
    for (size_t i = our_bytes; i < kvl_struct_size(theirs); i++)
        if (((const unsigned char *)theirs)[i])
            return false;
    return true;
}

/* Copies between two structs of one type and two versions: as many bytes as both have, without the size itself. */
static inline void kvl_struct_copy(void *to, size_t to_bytes, const void *from, size_t from_bytes)
{
    size_t bytes = to_bytes < from_bytes ? to_bytes : from_bytes;

    memcpy((char *)to + sizeof(size_t), (const char *)from + sizeof(size_t), bytes - sizeof(size_t));
}

/* Fills a caller's struct that fits. */
static inline void kvl_struct_fill(void *theirs, const void *ours, size_t our_bytes)
{
    size_t bytes = kvl_struct_size(theirs);

    kvl_struct_copy(theirs, bytes, ours, our_bytes);
    if (bytes > our_bytes)
        memset((char *)theirs + our_bytes, 0, bytes - our_bytes);
}

#endif
