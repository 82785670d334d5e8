/* SPDX-License-Identifier: MIT */
/*
 * A host whose calls take a scripted time: the fake's, and a clock that moves while it commits, gives back and is
 * looked at. Called by test_stats.c and test_prometheus.c.
 */
#ifndef SLOW_HOST_H
#define SLOW_HOST_H

#include "support.h"

enum { PAGE = 4096 };

extern struct slow_host {
    kvlazy_mem fake;
    uint64_t now_ns, commit_ns, decommit_ns, look_ns; /* now; what a commit, a decommit and a look at the clock take */
} slow;

/* Opens a cache over it with rows of one page, so that bytes are cells. */
void open_slow(struct rig *r);

#endif
