/* SPDX-License-Identifier: MIT */
/* pool: the public calls about a byte budget that caches share. */
#include "core/pool.h"
#include "api/reclaim.h"

#include <kvlazy/pool.h>

static const uint16_t info_end[] = {
    KVL_END(kvlazy_pool_info, budget_bytes),
    KVL_END(kvlazy_pool_info, taken_bytes),
    KVL_END(kvlazy_pool_info, min_bytes),
    KVL_END(kvlazy_pool_info, n_reclaim),
    KVL_END(kvlazy_pool_info, reclaimed_bytes),
    KVL_END(kvlazy_pool_info, n_cache),
    0,
};

_Static_assert(KVL_IS_LAST(kvlazy_pool_info, n_cache), "a member is not among the ends");

int kvlazy_pool_create(uint64_t budget_bytes, kvlazy_pool **pool)
{
    if (!pool || !budget_bytes)
        return KVLAZY_EINVAL;
    kvlazy_pool *p = calloc(1, sizeof *p);
    if (!p)
        return KVLAZY_ENOMEM;
    p->budget_bytes = budget_bytes;
    if (pthread_mutex_init(&p->lock, NULL) != 0) {
        free(p);
        return KVLAZY_ENOMEM;
    }
    if (pthread_cond_init(&p->unpinned, NULL) != 0) {
        pthread_mutex_destroy(&p->lock);
        free(p);
        return KVLAZY_ENOMEM;
    }
    p->magic = KVL_POOL_MAGIC;
    *pool = p;
    return KVLAZY_OK;
}

int kvlazy_pool_destroy(kvlazy_pool *p)
{
    if (!p)
        return KVLAZY_OK;
    if (!kvl_is_pool(p))
        return KVLAZY_EINVAL;
    pthread_mutex_lock(&p->lock);
    bool used = p->n_share > 0 || p->n_call > 0;
    pthread_mutex_unlock(&p->lock);
    if (used)
        return KVLAZY_EBUSY;
    pthread_cond_destroy(&p->unpinned);
    pthread_mutex_destroy(&p->lock);
    p->magic = 0;
    free(p);
    return KVLAZY_OK;
}

int kvlazy_pool_stats(kvlazy_pool *p, kvlazy_pool_info *info)
{
    if (!kvl_is_pool(p) || !info || !kvl_output_fits(info, sizeof *info, info_end))
        return KVLAZY_EINVAL;
    pthread_mutex_lock(&p->lock);
    kvlazy_pool_info stats = {
        .budget_bytes = p->budget_bytes,
        .taken_bytes = p->taken_bytes,
        .min_bytes = p->min_bytes,
        .n_reclaim = p->n_reclaim,
        .reclaimed_bytes = p->reclaimed_bytes,
        .n_cache = p->n_share,
    };
    pthread_mutex_unlock(&p->lock);
    kvl_struct_fill(info, &stats, sizeof stats);
    return KVLAZY_OK;
}

/* on_evict of a cache may destroy the cache, and try so with the pool. */
static void hold(kvlazy_pool *p, bool begins)
{
    pthread_mutex_lock(&p->lock);
    p->n_call = begins ? p->n_call + 1 : p->n_call - 1;
    pthread_mutex_unlock(&p->lock);
}

int kvlazy_pool_set_budget(kvlazy_pool *pool, uint64_t budget_bytes)
{
    if (!kvl_is_pool(pool) || !budget_bytes)
        return KVLAZY_EINVAL;
    if (kvl_pool_set_budget(pool, budget_bytes))
        return KVLAZY_OK;
    hold(pool, true);
    kvl_reclaim_pool(pool, budget_bytes);
    bool fits = kvl_pool_set_budget(pool, budget_bytes);
    hold(pool, false);
    return fits ? KVLAZY_OK : KVLAZY_EBUDGET;
}
