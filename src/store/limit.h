/* SPDX-License-Identifier: MIT */
/*
 * limit: how long a call about blobs may take, by a clock of the store's own that goes on while a test moves the clock
 * of a cache by hand. Waits for nothing itself.
 */
#ifndef KVL_STORE_LIMIT_H
#define KVL_STORE_LIMIT_H

#include "base/base.h"

enum { KVL_STALL_MS = 200 }; /* nothing moved for so long: the call is over */

/* How long a call may take: since its beginning, and since something moved. */
typedef struct kvl_limit {
    uint64_t begin_ms, moved_ms, max_ms;
} kvl_limit;

uint64_t kvl_store_now_ms(void); /* does not step back */
kvl_limit kvl_limit_of(uint64_t max_ms);
void kvl_limit_moved(kvl_limit *limit);
uint64_t kvl_limit_left_ms(const kvl_limit *limit); /* 0: the time is over */
bool kvl_limit_is_stalled(const kvl_limit *limit);  /* … since nothing moves */

#endif
