/* SPDX-License-Identifier: MIT */
/*
 * bits: sets of small integers as arrays of 64-bit words. Bit i lives in word i / 64. Used for live cells and for
 * touched pages. Never allocates.
 */
#ifndef KVL_BITS_H
#define KVL_BITS_H

#include "base/base.h"

#define KVL_WORD_BITS 64

static inline size_t kvl_bits_words(uint64_t n_bit)
{
    return (size_t)((n_bit + KVL_WORD_BITS - 1) / KVL_WORD_BITS);
}

static inline bool kvl_bit_get(const uint64_t *word, uint64_t i)
{
    return word[i / KVL_WORD_BITS] >> (i % KVL_WORD_BITS) & 1;
}

static inline void kvl_bit_set(uint64_t *word, uint64_t i)
{
    word[i / KVL_WORD_BITS] |= UINT64_C(1) << (i % KVL_WORD_BITS);
}

static inline void kvl_bit_clear(uint64_t *word, uint64_t i)
{
    word[i / KVL_WORD_BITS] &= ~(UINT64_C(1) << (i % KVL_WORD_BITS));
}

/* The bits of [begin, end) that fall into word w, as a mask. */
static inline uint64_t kvl_bits_mask(uint64_t w, uint64_t begin, uint64_t end)
{
    uint64_t mask = ~UINT64_C(0), first = w * KVL_WORD_BITS;

    if (begin > first)
        mask &= ~UINT64_C(0) << (begin - first);
    if (end < first + KVL_WORD_BITS)
        mask &= ~(~UINT64_C(0) << (end - first));
    return mask;
}

/* Sets or clears [begin, end). Returns how many bits changed. */
static inline uint64_t kvl_bits_fill(uint64_t *word, uint64_t begin, uint64_t end, bool value)
{
    uint64_t changed = 0;

    if (begin >= end)
        return 0;
    for (uint64_t w = begin / KVL_WORD_BITS; w <= (end - 1) / KVL_WORD_BITS; w++) {
        uint64_t mask = kvl_bits_mask(w, begin, end);

        changed += (uint64_t)__builtin_popcountll((value ? ~word[w] : word[w]) & mask);
        word[w] = value ? word[w] | mask : word[w] & ~mask;
    }
    return changed;
}

static inline uint64_t kvl_bits_count(const uint64_t *word, uint64_t begin, uint64_t end)
{
    uint64_t n = 0;

    if (begin >= end)
        return 0;
    for (uint64_t w = begin / KVL_WORD_BITS; w <= (end - 1) / KVL_WORD_BITS; w++)
        n += (uint64_t)__builtin_popcountll(word[w] & kvl_bits_mask(w, begin, end));
    return n;
}

/* Returns the first i in [from, end) whose bit is `value`, or end if there is none. */
static inline uint64_t kvl_bits_next(const uint64_t *word, uint64_t from, uint64_t end, bool value)
{
    uint64_t flip = value ? 0 : ~UINT64_C(0), w = from / KVL_WORD_BITS;

    if (from >= end)
        return end;
    uint64_t hit = (word[w] ^ flip) & (~UINT64_C(0) << (from % KVL_WORD_BITS));
    while (!hit) {
        if (++w > (end - 1) / KVL_WORD_BITS)
            return end;
        hit = word[w] ^ flip;
    }
    uint64_t i = w * KVL_WORD_BITS + (uint64_t)__builtin_ctzll(hit);
    return i < end ? i : end;
}

/* One past the highest set bit of [begin, end); begin if there is none. Looks at no bit below the one that it finds. */
static inline uint64_t kvl_bits_top_above(const uint64_t *word, uint64_t begin, uint64_t end)
{
    for (uint64_t w = kvl_bits_words(end); begin < end && w-- > begin / KVL_WORD_BITS;) {
        uint64_t hit = word[w] & kvl_bits_mask(w, begin, end);

        if (hit)
            return w * KVL_WORD_BITS + KVL_WORD_BITS - (uint64_t)__builtin_clzll(hit);
    }
    return begin;
}

/* One past the highest set bit below `end`; 0 if there is none. */
static inline uint64_t kvl_bits_top(const uint64_t *word, uint64_t end)
{
    return kvl_bits_top_above(word, 0, end);
}

#endif
