/* SPDX-License-Identifier: MIT */
/*
 * The worlds of differential.h as a libFuzzer target: the first byte chooses a shape, the rest what each step
 * does. A difference ends the process, and libFuzzer keeps the bytes that led there.
 */
#include "differential.h"

enum { MOST_STEPS = 400 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_byte);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_byte)
{
    static struct world w;

    if (n_byte < 2)
        return 0;
    world_open(&w, &shapes[bytes[0] % n_shape], 0, bytes + 1, n_byte - 1);
    for (int i = 0; i < MOST_STEPS && w.n_byte; i++)
        world_step(&w);
    world_close(&w);
    return 0;
}
