/* SPDX-License-Identifier: MIT */
/*
 * policy: how much and when, as arithmetic. Numbers and a time go in, a target comes out. Reads no clock, touches no
 * memory, knows no cache.
 */
#ifndef KVL_POLICY_H
#define KVL_POLICY_H

#include "base/base.h"

#define KVL_NEVER UINT64_MAX

/* Returns the soft cap: the power of two that holds the highest cell in use, at least kv_size_initial. `end` is one
 * past the highest cell that is live or was live within the idle time. */
uint32_t kvl_policy_cap(uint32_t kv_size, uint32_t kv_size_initial, uint32_t n_pad, uint32_t end);

/* Returns how many cells attention reads when the highest live cell of a stream is `used_end` - 1. */
uint32_t kvl_policy_n_kv(uint32_t kv_size, uint32_t n_pad, uint32_t used_end);

/* Returns the first position that a query sees through a sliding window; positions below are masked. A SYMMETRIC window
 * also has an end ahead of the query, which this does not tell. */
int64_t kvl_policy_window_begin(int swa_type, uint32_t n_swa, int64_t query);

/* Returns how large a page may be. Where the operator named a size it is that. Else it is at most 64 KiB, and no more
 * than kv_size_initial cells of the smallest row take: a page that holds more would keep memory for cells that an idle
 * stream does not have. row_bytes 0: there is no row. */
uint64_t kvl_policy_page_most(uint64_t asked_bytes, uint64_t row_bytes, uint32_t kv_size_initial);

/* Returns what making some pages present before they are written may cost at most: the faults of the threads that write
 * them, less the writing itself, from times of one thread. The call is made by one thread, and faults are shared. */
uint64_t kvl_policy_fault_ns(uint64_t write_ns, uint64_t fault_ns, uint32_t n_writer);

/* Returns by how many cells a stream is over its target. */
uint32_t kvl_policy_excess(uint32_t n_live, uint32_t target);

/* Returns how many milliseconds after `now` a thing last used at `since` has been idle for `idle_ms`. 0: it has been.
 * KVL_NEVER: idle_ms is 0, so that nothing ever idles. */
uint64_t kvl_policy_until_idle(uint64_t now_ms, uint64_t since_ms, uint32_t idle_ms);

#endif
