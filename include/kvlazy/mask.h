/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/mask.h: fills the attention mask of a ubatch from the cells of a cache.
 *
 * THE IDEA. The library knows which sequence owns a cell, at which position, and the window; so it can say which cells
 * a token sees. An engine that builds its masks itself, from kvlazy_cells(), does without this header.
 *
 * LIFE CYCLE. Inside a batch, after apply and before attention is computed:
 *
 *     kvlazy_mask_info mask;
 *     memset(&mask, 0, sizeof mask);
 *     mask.struct_size = sizeof mask;
 *     mask.data = rows;                                   // n_token rows of n_kv elements
 *     mask.data_bytes = rows_bytes;
 *     mask.type = KVLAZY_MASK_F16;
 *     mask.causal = true;
 *     kvlazy_apply_ubatch(cache, &slot[i], &ubatch[i]);
 *     kvlazy_mask(cache, &slot[i], &ubatch[i], &mask);
 *
 * With linked caches each has cells of its own, and so a mask of its own.
 */
#ifndef KVLAZY_MASK_H
#define KVLAZY_MASK_H

#include "kvlazy.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Element types. */
enum { KVLAZY_MASK_F32, KVLAZY_MASK_F16 };

/**
 * An attention mask to fill: one row a token of a ubatch, one column a cell. An element is 0 where the token sees the
 * cell, and -infinity where it does not.
 */
typedef struct kvlazy_mask_info {
    size_t struct_size;
    void *data;        /* [n_token][row_stride] */
    size_t data_bytes; /* that may be written there */
    size_t row_stride; /* elements from one row to the next; 0: n_kv */
    uint32_t n_kv;     /* columns filled; 0: kvlazy_n_kv of the slot. At least that many */
    int type;          /* KVLAZY_MASK_F32 | _F16 */
    bool causal;       /* a token sees its sequence up to its own position; else all of it */
    bool alibi;        /* a cell that is seen gets minus the distance in positions, instead of 0 */
} kvlazy_mask_info;

/**
 * Fills the mask of an applied slot. A token sees the cells of its stream
 *  - that its first sequence owns;
 *  - with `causal`, up to its own position; with position planes, of equal positions those before it in reading order,
 *    y then x;
 *  - inside the sliding window of the cache.
 * Columns from n_kv to row_stride are left alone. A slot can be asked for until the next prepare.
 * Fails: nothing is written.
 *  - EINVAL: the slot is stale, foreign or not applied; the ubatch is not the one it was applied for; an array is NULL;
 *    the type is none; there are fewer columns than kvlazy_n_kv, or rows shorter than n_kv; data_bytes is too small.
 *  - ENOMEM: memory for the library's own lists was refused. (They are kept for the next call.)
 *  - ENOTSUP: the engine keeps the cells (engine_cells.h).
 * Cost: O(n_token · n_kv); without `alibi` near the speed of memset.
 */
KVLAZY_API int kvlazy_mask(const kvlazy_cache *cache, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch,
                           const kvlazy_mask_info *mask);

#ifdef __cplusplus
}
#endif

#endif
