/* SPDX-License-Identifier: MIT */
/*
 * row: how many bytes a row of floats takes in a cache, and how it is packed there and unpacked: f32, f16, or q8_0 in
 * blocks of 32 values. The model calls it for every row it writes or reads; a test asks whether what is stored is a
 * number. Packing what was unpacked need not give the same bits in q8_0, so whoever compares two caches packs as often
 * on both.
 */
#ifndef KVLAZY_TESTS_ENGINE_ROW_H
#define KVLAZY_TESTS_ENGINE_ROW_H

#include <math.h>
#include <stddef.h>

#include "half.h"
#include "model.h"

/*
 *     bytes     | 0 1 | 2 3 4 ................... 33 |
 *               | half|  32 integers of 8 bits       |      value i = scale · integer i
 */
enum { ROW_BLOCK_VALUES = 32, ROW_BLOCK_BYTES = 2 + ROW_BLOCK_VALUES };

/* 0: no such row. */
static inline size_t row_bytes(int type, uint32_t n)
{
    switch (type) {
    case MODEL_F32:
        return n * sizeof(float);
    case MODEL_F16:
        return n * sizeof(uint16_t);
    case MODEL_Q8_0:
        return n % ROW_BLOCK_VALUES == 0 ? (size_t)n / ROW_BLOCK_VALUES * ROW_BLOCK_BYTES : 0;
    default:
        return 0;
    }
}

static inline void row_pack_block(uint8_t *block, const float *from)
{
    float most = 0.0f, inverse;
    uint16_t scale;

    for (uint32_t i = 0; i < ROW_BLOCK_VALUES; i++) {
        most = fabsf(from[i]) > most ? fabsf(from[i]) : most;
    }
    scale = half_from_float(most / 127.0f);
    inverse = scale != 0 ? 127.0f / most : 0.0f; /* too small for a half: zeros */
    memcpy(block, &scale, sizeof scale);
    for (uint32_t i = 0; i < ROW_BLOCK_VALUES; i++) {
        block[2 + i] = (uint8_t)(int8_t)roundf(from[i] * inverse);
    }
}

static inline void row_unpack_block(float *to, const uint8_t *block)
{
    uint16_t half;
    float scale;

    memcpy(&half, block, sizeof half);
    scale = half_to_float(half);
    for (uint32_t i = 0; i < ROW_BLOCK_VALUES; i++) {
        to[i] = scale * (float)(int8_t)block[2 + i];
    }
}

/* n values; f32 and f16 of any number, aligned as such. */
static inline void row_pack(void *row, const float *from, int type, uint32_t n)
{
    if (type == MODEL_F32) {
        memcpy(row, from, n * sizeof *from);
    }
    for (uint32_t i = 0; type == MODEL_F16 && i < n; i++) {
        ((uint16_t *)row)[i] = half_from_float(from[i]);
    }
    for (uint32_t i = 0; type == MODEL_Q8_0 && i < n; i += ROW_BLOCK_VALUES) {
        row_pack_block((uint8_t *)row + (size_t)i / ROW_BLOCK_VALUES * ROW_BLOCK_BYTES, from + i);
    }
}

static inline void row_unpack(float *to, const void *row, int type, uint32_t n)
{
    if (type == MODEL_F32) {
        memcpy(to, row, n * sizeof *to);
    }
    for (uint32_t i = 0; type == MODEL_F16 && i < n; i++) {
        to[i] = half_to_float(((const uint16_t *)row)[i]);
    }
    for (uint32_t i = 0; type == MODEL_Q8_0 && i < n; i += ROW_BLOCK_VALUES) {
        row_unpack_block(to + i, (const uint8_t *)row + (size_t)i / ROW_BLOCK_VALUES * ROW_BLOCK_BYTES);
    }
}

#endif
