/* SPDX-License-Identifier: MIT */
/*
 * half: IEEE binary16 in portable bit arithmetic. The model calls it where it stores and loads K/V rows in
 * half precision; the test walks all 65536 values. It rounds to nearest even, keeps subnormals, infinities and
 * NaN, and never asks the compiler or the processor for a half type, so that every build gets the same bits.
 */
#ifndef KVLAZY_TESTS_ENGINE_HALF_H
#define KVLAZY_TESTS_ENGINE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t half_bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float half_float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint16_t half_from_float(float value)
{
    uint32_t bits = half_bits_of(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;

    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (bits >= 0x477ff000u) { /* 65520 and up round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (bits < 0x38800000u) {
        /* A subnormal half counts in steps of 2^-24, and so do the floats just above 0.5: adding 0.5 rounds. */
        return (uint16_t)(sign | (half_bits_of(half_float_of(bits) + 0.5f) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((bits - 0x38000000u + 0xfffu + ((bits >> 13) & 1u)) >> 13));
}

static inline float half_to_float(uint16_t half)
{
    /* The exponent field lands 112 too low; the multiplication lifts it and makes subnormals normal. */
    const float lifted = half_float_of((uint32_t)(half & 0x7fffu) << 13) * 0x1p112f;
    const uint32_t special = lifted >= 65536.0f ? 0x7f800000u : 0u;

    return half_float_of(half_bits_of(lifted) | special | (uint32_t)(half & 0x8000u) << 16);
}

#endif
