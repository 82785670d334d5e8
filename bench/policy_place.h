/* SPDX-License-Identifier: MIT */
/*
 * A place for blobs in memory, for replays: their rows are runs of one byte each, and it keeps the runs, so that tens
 * of GiB of blobs take little. It forgets nothing and refuses nothing, and is for one thread. policy_store.c calls it.
 */
#ifndef BENCH_POLICY_PLACE_H
#define BENCH_POLICY_PLACE_H

#include <kvlazy/store_ops.h>

/** 0 or -1 with bench_why(). */
int place_create(kvlazy_store_ops *ops);
/** Bytes of all blobs, as they were written. */
uint64_t place_held_bytes(const void *ctx);

#endif
