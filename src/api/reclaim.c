/* SPDX-License-Identifier: MIT */
/* reclaim: see reclaim.h. */
#include "api/reclaim.h"
#include "api/door.h"
#include "api/work.h"
#include "core/batch.h"
#include "core/budget.h"
#include "core/clock.h"
#include "core/lock.h"
#include "core/shrink.h"

#include <kvlazy/pool.h>

static kvlazy_cache *cache_of(kvl_share *share)
{
    return (kvlazy_cache *)(void *)((char *)share - offsetof(kvlazy_cache, limits.share));
}

/* The lock of the victim is held, and no batch is open. */
static void shrink_victim(kvlazy_cache *v, bool free_only, uint64_t max_bytes)
{
    uint64_t now_ms = kvl_now(v);

    kvl_batch_stamp(v->group, now_ms);
    if (free_only)
        kvl_shrink_free(v, max_bytes, now_ms);
    else
        kvl_work(v, KVL_SHRINK_POOL, max_bytes, now_ms, NULL);
}

/* The bytes that went are in *bytes. Returns false when a callback destroyed the victim: it left its pool then. */
static bool ask_victim(kvlazy_cache *v, bool free_only, uint64_t max_bytes, uint64_t *bytes)
{
    *bytes = 0;
    if (kvl_has_engine_cells(v) || kvl_try_enter(v))
        return true;
    if (!kvl_shrink_is_barred(v->group)) {
        uint64_t n_released = v->rows.n_released;

        v->is_asked = true;
        v->asker = pthread_self();
        shrink_victim(v, free_only, max_bytes);
        v->is_asked = false;
        if (kvl_is_cache(v))
            *bytes = (v->rows.n_released - n_released) * kvl_rows_page_bytes(&v->rows);
    }
    bool stays = kvl_is_cache(v);
    kvl_leave(v, KVLAZY_OK);
    return stays;
}

/* A callback may destroy the cache that asks, and then the pool: in that case asking ends. */
static void ask_others(kvlazy_pool *pool, kvl_share *asks, uint64_t bytes)
{
    kvl_pool_count_reclaim(pool);
    for (int pass = 0; pass < 2; pass++) {
        kvl_want want = {.asks = asks, .bytes = bytes, .free_only = pass == 0};
        uint64_t floor_bytes;
        kvl_share *victim;

        while ((!asks || asks->pool) && (victim = kvl_share_next_victim(pool, &want, &floor_bytes))) {
            uint64_t released_bytes;

            if (ask_victim(cache_of(victim), want.free_only, floor_bytes, &released_bytes))
                kvl_share_unpin(pool, victim, released_bytes);
        }
    }
}

/* ------------------------------------------------------------------------------------------- linked caches */

/* Two linked caches share a limit: they have the same pool, or the same host. */
static bool shares(const kvlazy_cache *c, const kvlazy_cache *m, bool for_pool)
{
    return for_pool ? m->limits.share.pool == c->limits.share.pool
                    : m->mem.headroom == c->mem.headroom && m->mem.ctx == c->mem.ctx;
}

/* What a linked cache can give of its free pages: a pool has no use of what it keeps for a minimum. */
static uint64_t spare_of(const kvlazy_cache *c, kvlazy_cache *m, bool for_pool)
{
    const kvl_share *share = &m->limits.share;

    if (m == c || !shares(c, m, for_pool))
        return 0;
    uint64_t above_min = for_pool ? share->taken_bytes - kvl_min(share->taken_bytes, share->min_bytes) : UINT64_MAX;
    return above_min ? kvl_min(kvl_spare_bytes(m), above_min) : 0;
}

static uint64_t spare_of_linked(kvlazy_cache *c, bool for_pool)
{
    uint64_t bytes = 0;

    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        bytes += spare_of(c, m, for_pool);
    return bytes;
}

/* Linked caches cannot be asked like others: the lock is theirs too, and a batch is open. But their free pages may go,
 * if that is enough. Returns whether they went. */
static bool linked_give(kvlazy_cache *c, uint64_t pool_wants, uint64_t machine_wants)
{
    uint64_t missing = kvl_limits_missing(c, pool_wants, machine_wants);
    bool for_pool = pool_wants > 0;

    if (!missing || spare_of_linked(c, for_pool) < missing)
        return false;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        if (spare_of(c, m, for_pool))
            kvl_give_spare(m);
    return true;
}

static void out(kvlazy_cache *c, kvl_callback *callback)
{
    if (callback)
        kvl_begin_callback(c, callback);
    else
        kvl_begin_asking(c);
}

static void in(kvlazy_cache *c, kvl_callback *callback)
{
    if (callback)
        kvl_end_callback(c, callback);
    else
        kvl_end_asking(c->group);
}

/* callback NULL: what is asked may destroy the cache that asks. */
static bool reclaim(kvlazy_cache *c, kvl_callback *callback)
{
    uint64_t pool_wants = c->limits.pool_wants, machine_wants = c->limits.machine_wants;

    c->limits.pool_wants = c->limits.machine_wants = 0;
    if ((pool_wants || machine_wants) && linked_give(c, pool_wants, machine_wants))
        return true;
    if (!pool_wants || !c->limits.share.pool)
        return false;
    uint64_t spare = spare_of_linked(c, true);
    out(c, callback);
    ask_others(c->limits.share.pool, &c->limits.share, pool_wants - kvl_min(pool_wants, spare));
    in(c, callback);
    if (!kvl_is_cache(c))
        return false;
    linked_give(c, pool_wants, 0); /* what the others gave, and that, may be enough */
    return true;
}

bool kvl_reclaim(kvlazy_cache *c)
{
    return reclaim(c, NULL);
}

bool kvl_reclaim_for_held(kvlazy_cache *c)
{
    kvl_callback callback;

    return reclaim(c, &callback);
}

void kvl_reclaim_pool(kvlazy_pool *pool, uint64_t budget_bytes)
{
    ask_others(pool, NULL, budget_bytes);
}
