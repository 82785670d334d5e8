/* SPDX-License-Identifier: MIT */
/*
 * limits: what Linux says about the memory that is left: to the machine, and to this process by the limits of its
 * control groups, version 1, version 2 or both. Reads files below a root; allocates nothing. What cannot be read or
 * understood is no limit. Remembers nothing but two sums: what all caches of this process took and were promised.
 */
#ifndef KVL_LIMITS_LINUX_H
#define KVL_LIMITS_LINUX_H

#include "base/base.h"

enum { KVL_PATH_BYTES = 4096 };

/* Bytes that could be touched now; UINT64_MAX: no limit is known. */
uint64_t kvl_headroom_bytes(const char *root);

/* The directory of this process's control group in the version 2 hierarchy. Returns false when there is none. */
bool kvl_cgroup_dir(const char *root, char dir[KVL_PATH_BYTES]);

/* The same as members of the table of kvlazy/mem.h, and the clock there. */
uint64_t kvl_linux_headroom(void *ctx, const char *root);
uint64_t kvl_linux_now_ns(void *ctx);
uint64_t kvl_linux_count(void *ctx, int what, uint64_t change);

#endif
