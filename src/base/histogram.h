/* SPDX-License-Identifier: MIT */
/* histogram: how long a piece of work took, in buckets each four times as wide as the one before. Reads no clock. */
#ifndef KVL_HISTOGRAM_H
#define KVL_HISTOGRAM_H

#include "base/base.h"

/* The longest time that bucket i counts. The last bucket counts all longer times too. */
static inline uint64_t kvl_bucket_ns(uint32_t i)
{
    return UINT64_C(1000) << 2 * i;
}

static inline void kvl_histogram_add(kvlazy_histogram *h, uint64_t ns)
{
    uint32_t i = 0;

    while (i + 1 < KVLAZY_BUCKETS && ns > kvl_bucket_ns(i))
        i++;
    h->bucket[i]++;
    h->n++;
    h->total_ns += ns;
}

#endif
