/* SPDX-License-Identifier: MIT */
/*
 * reclaim: what a cache lacks of its pool is taken from others, as their own poll would do it: free pages of all first,
 * then idle tokens. No lock is held but that of the one that shrinks, and that is only tried; who is busy is passed
 * over.
 */
#include "cache.h"

#include <kvlazy/pool.h>

static kvlazy_cache *cache_of(kvl_share *share)
{
    return (kvlazy_cache *)(void *)((char *)share - offsetof(kvlazy_cache, share));
}

/* The lock of the victim is ours, and no batch is open. */
static void shrink_victim(kvlazy_cache *v, bool free_only, uint64_t max_bytes)
{
    uint64_t now_ms = kvl_now(v);

    kvl_settle_activity(v, now_ms);
    if (free_only)
        kvl_release_until(v, max_bytes, now_ms);
    else
        kvl_shrink_bytes(v, max_bytes, now_ms);
}

/* Answers the bytes that went. */
static uint64_t ask_victim(kvlazy_cache *v, bool free_only, uint64_t max_bytes)
{
    uint64_t n_released = 0;

    if (kvl_is_outside(v) || kvl_try_enter(v))
        return 0;
    if (!v->group->open && !v->group->asking) {
        n_released = v->n_released;
        shrink_victim(v, free_only, max_bytes);
        n_released = v->n_released - n_released;
    }
    kvl_leave(v, KVLAZY_OK);
    return n_released * kvl_page_size(v);
}

static void ask_others(kvlazy_pool *pool, kvl_share *asks, uint64_t bytes)
{
    kvl_pool_count_reclaim(pool);
    for (int pass = 0; pass < 2; pass++) {
        kvl_want want = {.asks = asks, .bytes = bytes, .free_only = pass == 0};
        uint64_t floor_bytes;
        kvl_share *victim;

        while ((victim = kvl_share_next_victim(pool, &want, &floor_bytes)))
            kvl_share_unpin(pool, victim, ask_victim(cache_of(victim), want.free_only, floor_bytes));
    }
}

bool kvl_reclaim(kvlazy_cache *c)
{
    uint64_t bytes = c->pool_wants;

    c->pool_wants = 0;
    if (!bytes || !c->share.pool)
        return false;
    kvl_begin_asking(c);
    ask_others(c->share.pool, &c->share, bytes);
    kvl_end_asking(c);
    return true;
}

int kvlazy_pool_set_budget(kvlazy_pool *pool, uint64_t budget_bytes)
{
    if (!kvl_is_pool(pool) || !budget_bytes)
        return KVLAZY_EINVAL;
    if (kvl_pool_set_budget(pool, budget_bytes))
        return KVLAZY_OK;
    ask_others(pool, NULL, budget_bytes);
    return kvl_pool_set_budget(pool, budget_bytes) ? KVLAZY_OK : KVLAZY_EBUDGET;
}
