/* SPDX-License-Identifier: MIT */
/*
 * What the tests of masks hold a mask against: the rule that it is made from, element by element, and an array with
 * guards around it, in which columns past n_kv and bytes outside the data must stay as they were. Called by
 * test_mask*.c; it uses the public headers alone.
 */
#ifndef MASK_ORACLE_H
#define MASK_ORACLE_H

#include "support.h"

#include <kvlazy/mask.h>

enum { GUARD_BYTES = 64 };

struct sheet {
    unsigned char *bytes; /* guard, data, guard; to free */
    size_t n_data;
    kvlazy_mask_info info;
};

/* columns and extra: n_kv and how much longer a row is; 0 both: as the library resolves it. misfit: bytes by which the
 * data are not aligned. */
struct sheet sheet(int type, bool causal, bool alibi, uint32_t n_row, uint32_t n_kv, uint32_t columns, uint32_t extra,
                   size_t misfit);

/* Fails the test unless these bytes are as sheet() left them. */
void untouched(const unsigned char *from, size_t bytes);

/* Fails the test unless every element is what the rule says, and everything around them untouched. */
void sheet_is_right(struct rig *r, const struct sheet *s, const kvlazy_slot *slot, const kvlazy_ubatch *u);

/* Asks for one mask of an applied slot and looks at it; or for every kind of mask. */
void one_mask(struct rig *r, const kvlazy_slot *slot, const kvlazy_ubatch *u, int type, bool causal, bool alibi,
              uint32_t columns, uint32_t extra, size_t misfit);
void all_masks(struct rig *r, const kvlazy_slot *slot, const kvlazy_ubatch *u);

/* The half nearest to -distance, by whole numbers: a multiple of 2^k with 11 bits, ties to even. */
double nearest_half(int64_t distance);

#endif
