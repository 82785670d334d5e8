/* SPDX-License-Identifier: MIT */
/*
 * ops: the table of functions of a place for blobs, as an embedder filled it or wants it filled.
 */
#ifndef KVL_STORE_OPS_H
#define KVL_STORE_OPS_H

#include "base/base.h"

#include <kvlazy/store_ops.h>

enum { KVL_NAME_BYTES = 32 }; /* of a blob: a digest */

/* A table ends with a function, and no place lacks those before `size`. */
static inline bool kvl_ops_can_be_read(const kvlazy_store_ops *theirs)
{
    static const uint16_t end[] = {KVL_END(kvlazy_store_ops, destroy), KVL_END(kvlazy_store_ops, size), 0};

    return theirs && kvl_input_fits(theirs, sizeof *theirs, end);
}

static inline bool kvl_ops_can_be_filled(const kvlazy_store_ops *theirs)
{
    static const uint16_t end[] = {KVL_END(kvlazy_store_ops, size), 0};

    return theirs && kvl_output_fits(theirs, sizeof *theirs, end);
}

_Static_assert(KVL_IS_LAST(kvlazy_store_ops, size), "a member is not among the ends");

#endif
