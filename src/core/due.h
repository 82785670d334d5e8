/* SPDX-License-Identifier: MIT */
/*
 * due: when a look at a group can matter again: tokens that may go by idling, streams that come to rest, pages that
 * decay or are offered again. A poll tells its caller this time. Changes nothing.
 */
#ifndef KVL_DUE_H
#define KVL_DUE_H

#include "core/cache.h"

/* How long until a look at the group can matter, in ms, right after one; KVL_NEVER: not before another call. */
uint64_t kvl_due_in(kvl_group *group, uint64_t now_ms);

#endif
