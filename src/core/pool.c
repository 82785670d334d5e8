/* SPDX-License-Identifier: MIT */
/* pool: see pool.h. */
#include "core/pool.h"

/* ------------------------------------------------------------------------------------------- shares */

/* The lock is held for all of these. */

static uint64_t unmet(const kvl_share *share)
{
    return share->min_bytes > share->taken_bytes ? share->min_bytes - share->taken_bytes : 0;
}

/* Bytes that are taken, or kept for minima, of all shares but one. */
static uint64_t promised(const kvlazy_pool *p, const kvl_share *but)
{
    uint64_t bytes = p->taken_bytes;

    for (const kvl_share *s = p->first; s; s = s->next)
        bytes += s == but ? 0 : unmet(s);
    return bytes;
}

static uint64_t free_for(const kvlazy_pool *p, const kvl_share *asks)
{
    uint64_t used = promised(p, asks);

    return p->budget_bytes > used ? p->budget_bytes - used : 0;
}

static uint64_t fair_bytes(const kvlazy_pool *p, const kvl_share *share)
{
    uint64_t above = p->budget_bytes > p->min_bytes ? p->budget_bytes - p->min_bytes : 0;

    return share->min_bytes + (uint64_t)((double)above / (double)p->weight * share->weight);
}

static bool resize(kvl_share *share, uint64_t bytes)
{
    kvlazy_pool *p = share->pool;

    if (bytes > share->taken_bytes && bytes - share->taken_bytes > free_for(p, share))
        return false;
    p->taken_bytes += bytes - share->taken_bytes; /* both ways, modulo 2^64 */
    share->taken_bytes = bytes;
    return true;
}

bool kvl_share_resize(kvl_share *share, uint64_t bytes)
{
    if (KVL_LIKELY(!share->pool || bytes == share->taken_bytes))
        return true;
    pthread_mutex_lock(&share->pool->lock);
    bool done = resize(share, bytes);
    pthread_mutex_unlock(&share->pool->lock);
    return done;
}

uint64_t kvl_share_room(const kvl_share *share)
{
    if (!share->pool)
        return UINT64_MAX;
    pthread_mutex_lock(&share->pool->lock);
    uint64_t bytes = free_for(share->pool, share);
    pthread_mutex_unlock(&share->pool->lock);
    return bytes;
}

/* ------------------------------------------------------------------------------------------- joining */

int kvl_share_join(kvl_share *share, kvlazy_pool *p, uint64_t min_bytes, uint32_t weight)
{
    pthread_mutex_lock(&p->lock);
    bool fits = min_bytes <= free_for(p, NULL); /* what others have above theirs stays theirs */
    if (fits) {
        *share =
            (kvl_share){.pool = p, .next = p->first, .min_bytes = min_bytes, .weight = weight, .number = ++p->n_joined};
        p->first = share;
        p->min_bytes += min_bytes;
        p->weight += weight;
        p->n_share++;
    }
    pthread_mutex_unlock(&p->lock);
    return fits ? KVLAZY_OK : KVLAZY_EBUDGET;
}

void kvl_share_leave(kvl_share *share, uint32_t n_own)
{
    kvlazy_pool *p = share->pool;
    kvl_share **at;

    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    while (share->n_pin > n_own)
        pthread_cond_wait(&p->unpinned, &p->lock);
    for (at = &p->first; *at != share;)
        at = &(*at)->next;
    *at = share->next;
    p->min_bytes -= share->min_bytes;
    p->weight -= share->weight;
    pthread_mutex_unlock(&p->lock);
}

void kvl_share_give_back(const kvl_share *share)
{
    kvlazy_pool *p = share->pool;

    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->taken_bytes -= share->taken_bytes;
    p->n_share--;
    pthread_mutex_unlock(&p->lock);
}

/* ------------------------------------------------------------------------------------------- victims */

static double over_fair(const kvlazy_pool *p, const kvl_share *share)
{
    return (double)share->taken_bytes - (double)fair_bytes(p, share);
}

/* Whether a share is asked before another: the one furthest over its fair share first, then the oldest. */
static bool asked_before(double over_a, uint64_t number_a, double over_b, uint64_t number_b)
{
    return over_a != over_b ? over_a > over_b : number_a < number_b;
}

/* What is missing. */
static uint64_t need_of(const kvlazy_pool *p, const kvl_want *want)
{
    uint64_t has = want->asks ? want->asks->taken_bytes + free_for(p, want->asks) : want->bytes;
    uint64_t wants = want->asks ? want->bytes : promised(p, NULL);

    return wants > has ? wants - has : 0;
}

static kvl_share *find_victim(kvlazy_pool *p, const kvl_want *want, uint64_t need, uint64_t *floor_bytes)
{
    bool to_min = want->free_only || !want->asks || want->bytes <= fair_bytes(p, want->asks);
    kvl_share *victim = NULL;
    uint64_t all = 0;

    for (kvl_share *s = p->first; s; s = s->next) {
        uint64_t keeps = to_min ? s->min_bytes : fair_bytes(p, s);

        if (s == want->asks || s->taken_bytes <= keeps)
            continue;
        all += s->taken_bytes - keeps;
        if (want->last_number && !asked_before(want->last_over, want->last_number, over_fair(p, s), s->number))
            continue;
        if (victim && !asked_before(over_fair(p, s), s->number, over_fair(p, victim), victim->number))
            continue;
        victim = s;
        *floor_bytes = keeps;
    }
    return all >= need ? victim : NULL; /* where all together have too little, no cache is asked in vain */
}

kvl_share *kvl_share_next_victim(kvlazy_pool *p, kvl_want *want, uint64_t *floor_bytes)
{
    pthread_mutex_lock(&p->lock);
    uint64_t need = need_of(p, want);
    kvl_share *victim = need ? find_victim(p, want, need, floor_bytes) : NULL;
    if (victim) {
        *floor_bytes = kvl_max(*floor_bytes, victim->taken_bytes - kvl_min(victim->taken_bytes, need));
        want->last_over = over_fair(p, victim);
        want->last_number = victim->number;
        victim->n_pin++;
    }
    pthread_mutex_unlock(&p->lock);
    return victim;
}

void kvl_share_unpin(kvlazy_pool *p, kvl_share *share, uint64_t reclaimed_bytes)
{
    pthread_mutex_lock(&p->lock);
    p->reclaimed_bytes += reclaimed_bytes;
    if (--share->n_pin == 0)
        pthread_cond_broadcast(&p->unpinned);
    pthread_mutex_unlock(&p->lock);
}

void kvl_pool_count_reclaim(kvlazy_pool *p)
{
    pthread_mutex_lock(&p->lock);
    p->n_reclaim++;
    pthread_mutex_unlock(&p->lock);
}

bool kvl_pool_set_budget(kvlazy_pool *p, uint64_t budget_bytes)
{
    pthread_mutex_lock(&p->lock);
    bool fits = promised(p, NULL) <= budget_bytes;
    if (fits)
        p->budget_bytes = budget_bytes;
    pthread_mutex_unlock(&p->lock);
    return fits;
}
