/* SPDX-License-Identifier: MIT */
/* limits: see limits.h. */
#include "core/limits.h"
#include "core/clock.h"

enum {
    HEADROOM_MS = 100, /* between two looks at the limits of the machine */
    LOOK_PART = 16,    /* of what was free then, after which another look is worth it */
};

static bool within_budget(const kvlazy_cache *c, uint64_t n_page)
{
    return !c->params.budget_bytes || n_page * kvl_rows_page_bytes(&c->rows) <= c->params.budget_bytes;
}

/* What the machine allows is read again when a part of what it had is used, since others live on it too. What was seen
 * last counts while it is too early for another look. */
static bool machine_allows(kvlazy_cache *c, uint64_t n_page)
{
    if (KVL_LIKELY(!c->mem.headroom || !c->limits.host_root || n_page <= c->limits.look_pages))
        return true;
    uint64_t now_ms = kvl_now(c), n_touched = kvl_rows_touched(&c->rows);
    if (c->limits.look_ms && now_ms < c->limits.look_ms + HEADROOM_MS)
        return n_page <= c->limits.headroom_pages;
    uint64_t n_free = kvl_host_headroom(&c->mem, c->limits.host_root) / kvl_rows_page_bytes(&c->rows);
    c->limits.look_ms = kvl_max(now_ms, 1);
    c->limits.look_pages = n_touched + n_free / LOOK_PART;
    c->limits.headroom_pages = n_touched + n_free;
    return n_page <= c->limits.headroom_pages;
}

static bool pool_allows(const kvlazy_cache *c, uint64_t n_page)
{
    uint64_t bytes = n_page * kvl_rows_page_bytes(&c->rows);

    return !c->limits.share.pool || bytes <= c->limits.share.taken_bytes ||
           bytes - c->limits.share.taken_bytes <= kvl_share_room(&c->limits.share);
}

bool kvl_limits_take(kvlazy_cache *c, uint64_t n_page)
{
    return within_budget(c, n_page) && machine_allows(c, n_page) &&
           kvl_share_resize(&c->limits.share,
                            kvl_max(c->limits.share.taken_bytes, n_page * kvl_rows_page_bytes(&c->rows)));
}

bool kvl_limits_any(const kvlazy_cache *c)
{
    return c->params.budget_bytes || c->limits.share.pool || (c->mem.headroom && c->limits.host_root);
}

/* Would this many pages be allowed? Takes nothing. */
bool kvl_limits_allow(kvlazy_cache *c, uint64_t n_page)
{
    return within_budget(c, n_page) && machine_allows(c, n_page) && pool_allows(c, n_page);
}

void kvl_limits_settle(kvlazy_cache *c)
{
    kvl_share_resize(&c->limits.share, kvl_rows_touched(&c->rows) * kvl_rows_page_bytes(&c->rows));
}

int kvl_limits_check(kvlazy_cache *c, uint64_t n_page)
{
    c->limits.pool_wants = 0;
    if (!within_budget(c, n_page) || !machine_allows(c, n_page))
        return KVLAZY_EBUDGET;
    if (pool_allows(c, n_page))
        return KVLAZY_OK;
    c->limits.pool_wants = n_page * kvl_rows_page_bytes(&c->rows); /* others may have some to give */
    return KVLAZY_EBUDGET;
}
