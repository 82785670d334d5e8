/* SPDX-License-Identifier: MIT */
/* The host of slow_host.h. */
#include "slow_host.h"

#include <string.h>

struct slow_host slow;

static int slow_commit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    slow.now_ns += slow.commit_ns;
    return slow.fake.commit(ctx, range, n_range);
}

static size_t slow_decommit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    slow.now_ns += slow.decommit_ns;
    return slow.fake.decommit(ctx, range, n_range);
}

static uint64_t slow_now_ns(void *ctx)
{
    (void)ctx;
    return slow.now_ns += slow.look_ns; /* what happens between two looks took so long */
}

void open_slow(struct rig *r)
{
    static const size_t rows[1][2] = {{PAGE, 0}};

    rig_rows(r, 1, rows);
    memset(&slow, 0, sizeof slow);
    slow.fake = r->fake.table;
    r->fake.table.commit = slow_commit;
    r->fake.table.decommit = slow_decommit;
    r->fake.table.now_ns = slow_now_ns;
    rig_open(r);
}
