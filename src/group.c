/* SPDX-License-Identifier: MIT */
/*
 * group: caches that see the same batches, and what every public call does first and last: the lock, the clock, who is
 * told that something came due, the log lines. A cache alone is a group of one.
 */
#include "cache.h"

/* Stamps of cells are 32 bits of milliseconds, 49.7 days. Every 70 minutes, or when the clock leaps, what is older than
 * all but the last 70 minutes of that is made so old, so that no age ever wraps. */
#define AGING_MS (UINT32_MAX - KVL_AGE_MAX_MS)

/* ------------------------------------------------------------------------------------------- entry and exit */

/* The lock and the scratch are the library's own, and a cache is never an object declared const. */
static kvlazy_cache *mutable(const kvlazy_cache *c)
{
    return (kvlazy_cache *)(uintptr_t)c;
}

int kvl_lock(kvlazy_cache *c)
{
    if (!kvl_is_cache(c))
        return KVLAZY_EINVAL;
    if (KVL_UNLIKELY(pthread_mutex_trylock(&c->group->lock) != 0)) {
        atomic_fetch_add(&c->group->n_waiting, 1);
        pthread_mutex_lock(&c->group->lock);
        atomic_fetch_sub(&c->group->n_waiting, 1);
    }
    c->group->n_entered++;
    return KVLAZY_OK;
}

int kvl_enter_seq(kvlazy_cache *c)
{
    int status = kvl_lock(c);

    return !status && kvl_is_outside(c) ? kvl_leave(c, KVLAZY_ENOTSUP) : status;
}

int kvl_leave_seq(kvlazy_cache *c, int status)
{
    kvl_window_follow(c);
    return kvl_leave(c, status);
}

int kvl_enter(const kvlazy_cache *cache)
{
    int status = kvl_lock(mutable(cache));

    if (!status)
        kvl_window_follow(mutable(cache));
    return status;
}

void kvl_follow_group(kvlazy_cache *c)
{
    for (kvlazy_cache *m = c->group->n_torn ? c->group->first : NULL; m; m = m->next)
        kvl_window_follow(m);
}

int kvl_enter_group(kvlazy_cache *c)
{
    int status = kvl_lock(c);

    if (!status)
        kvl_follow_group(c);
    return status;
}

int kvl_try_enter(kvlazy_cache *c)
{
    if (pthread_mutex_trylock(&c->group->lock) != 0)
        return KVLAZY_EBUSY;
    c->group->n_entered++;
    kvl_follow_group(c);
    return KVLAZY_OK;
}

/* The embedder's code runs with the lock released; who destroys a member waits for it, but for that code itself. */
static void go_outside(kvl_group *group)
{
    group->n_outside++;
    group->outside = pthread_self();
}

static void come_back(kvl_group *group)
{
    if (--group->n_outside == 0)
        pthread_cond_broadcast(&group->came_back);
}

static void wait_for_all(kvl_group *group)
{
    while (group->n_outside && !pthread_equal(group->outside, pthread_self()))
        pthread_cond_wait(&group->came_back, &group->lock);
}

/* Where a batch was open is a look worth it as soon as it is not; but batches may follow one another closely, and then
 * one look in a while is enough. */
static void call_back(kvlazy_cache *c)
{
    enum { PACE_MAX_MS = 100 };
    kvl_group *group = c->group;
    uint64_t pace_ms = kvl_min(c->params.slot_shrink_idle_ms / 8, PACE_MAX_MS);

    group->turned_away = false;
    kvl_note_due(c, kvl_max(group->now_ms, group->pace_ms));
    group->pace_ms = kvl_max(group->now_ms, group->pace_ms) + kvl_max(pace_ms, 1);
}

/* Who watches is told when to come, if that is earlier than it knows. */
static void tell_watcher(kvlazy_cache *c)
{
    kvl_group *group = c->group;

    if (KVL_UNLIKELY(group->turned_away && !group->open && !group->asking))
        call_back(c);
    if (KVL_LIKELY(group->stale_ms >= group->told_ms))
        return;
    group->told_ms = group->stale_ms;
    group->watcher->wake(group->watcher->ctx, group->stale_ms - kvl_min(group->stale_ms, group->now_ms));
}

int kvl_leave(const kvlazy_cache *cache, int status)
{
    enum { TOLD = 3 }; /* caches of a group that a call may have notes of; more are told later */
    kvlazy_cache *c = mutable(cache);
    kvl_log lines[TOLD];
    uint32_t n = 0;

    kvl_group *group = c->group;

    kvl_check_or_die(c);
    for (kvlazy_cache *m = group->first; m; m = m->next) {
        if (KVL_UNLIKELY(m->share.pool && !group->open))
            kvl_settle_share(m);
        if (KVL_UNLIKELY(m->log.n_line && n < TOLD))
            kvl_log_take(&m->log, &lines[n++]);
    }
    if (KVL_UNLIKELY(group->watcher))
        tell_watcher(c);
    if (KVL_UNLIKELY(n))
        go_outside(group);
    pthread_mutex_unlock(&group->lock);
    if (KVL_LIKELY(!n))
        return status;
    for (uint32_t i = 0; i < n; i++)
        kvl_log_tell(&lines[i]);
    pthread_mutex_lock(&group->lock);
    come_back(group);
    pthread_mutex_unlock(&group->lock);
    return status;
}

void kvl_begin_asking(kvlazy_cache *c)
{
    c->group->asking++;
    go_outside(c->group);
    kvl_leave(c, KVLAZY_OK);
}

void kvl_end_asking(kvlazy_cache *c)
{
    kvl_lock(c);
    c->group->asking--;
    come_back(c->group);
}

static void age_cells(kvlazy_cache *c, uint64_t from_ms, uint64_t to_ms)
{
    if (KVL_LIKELY(to_ms - c->aged_ms < AGING_MS))
        return;
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        kvl_cells_age_all(&c->stream[s].cells, kvl_stamp(c, from_ms), to_ms - from_ms, KVL_AGE_MAX_MS);
    c->aged_ms = to_ms;
}

uint64_t kvl_now(kvlazy_cache *c)
{
    uint64_t now_ms = kvl_max(c->group->now_ms, c->mem.now_ms(c->mem.ctx));

    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        age_cells(m, c->group->now_ms, now_ms);
    return c->group->now_ms = now_ms;
}

uint32_t kvl_stamp(const kvlazy_cache *c, uint64_t now_ms)
{
    return (uint32_t)(now_ms - c->epoch_ms);
}

uint32_t kvl_group_idle_ms(const kvlazy_cache *c)
{
    uint32_t least = 0;

    for (const kvlazy_cache *m = c->group->first; m; m = m->next)
        if (m->params.slot_shrink_idle_ms && (!least || m->params.slot_shrink_idle_ms < least))
            least = m->params.slot_shrink_idle_ms;
    return least;
}

void kvl_note_fallow(kvlazy_cache *c, uint64_t now_ms)
{
    if (!c->params.slot_shrink_idle_ms)
        return;
    c->fallow_due_ms = kvl_min(c->fallow_due_ms, now_ms + kvl_page_idle_ms(c));
    kvl_note_due(c, c->fallow_due_ms);
}

int kvl_watch(kvlazy_cache *c, const kvl_watcher *watcher)
{
    if (kvl_lock(c))
        return KVLAZY_EINVAL;
    kvl_group *group = c->group;
    if (group->watcher)
        return kvl_leave(c, KVLAZY_EINVAL);
    group->watcher = watcher;
    group->told_ms = 0; /* it comes at once, and is told then */
    group->turned_away = false;
    return kvl_leave(c, KVLAZY_OK);
}

bool kvl_unwatch(kvlazy_cache *c, const kvl_watcher *watcher)
{
    kvl_lock(c);
    bool watches = c->group->watcher == watcher;

    if (watches) {
        c->group->watcher = NULL;
        watcher->lose(watcher->ctx, c, NULL);
    }
    kvl_leave(c, KVLAZY_OK);
    return watches;
}

/* ------------------------------------------------------------------------------------------- members */

static kvl_group *new_group(void)
{
    kvl_group *group = calloc(1, sizeof *group);

    if (group)
        group->told_ms = group->stale_ms = KVL_NEVER;
    if (group && pthread_mutex_init(&group->lock, NULL) != 0) {
        free(group);
        return NULL;
    }
    if (group && pthread_cond_init(&group->came_back, NULL) != 0) {
        pthread_mutex_destroy(&group->lock);
        free(group);
        return NULL;
    }
    return group;
}

/* The newest member is the last. The lock is held, or nobody else knows the group yet. */
static void join(kvl_group *group, kvlazy_cache *c)
{
    kvlazy_cache **end = &group->first;

    while (*end)
        end = &(*end)->next;
    *end = c;
    c->group = group;
    c->epoch_ms = c->aged_ms = group->now_ms;
    kvl_use_arenas(c); /* from here on others may look at it */
}

int kvl_join_group(kvlazy_cache *with, kvlazy_cache *c)
{
    if (with) {
        if (kvl_enter(with))
            return KVLAZY_EINVAL;
        kvl_now(with);
        join(with->group, c);
        return kvl_leave(with, KVLAZY_OK);
    }
    kvl_group *group = new_group();
    if (!group)
        return KVLAZY_ENOMEM;
    group->now_ms = c->mem.now_ms(c->mem.ctx);
    join(group, c);
    return KVLAZY_OK;
}

const kvl_watcher *kvl_begin_leaving(kvlazy_cache *c)
{
    kvl_group *group = c->group;
    const kvl_watcher *watcher = group->watcher;
    kvlazy_cache *heir = group->first;

    c->leaves = true; /* it is not asked any more */
    wait_for_all(group);
    while (heir && heir->leaves)
        heir = heir->next;
    if (watcher)
        watcher->lose(watcher->ctx, c, heir);
    if (!heir)
        group->watcher = NULL;
    return watcher;
}

void kvl_leave_group(kvlazy_cache *c)
{
    kvl_group *group = c->group;
    kvlazy_cache **at = &group->first;

    kvl_enter(c);
    wait_for_all(group); /* a line of its log may be on the way */
    kvl_leave_arenas(c);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    bool last = !group->first;
    pthread_mutex_unlock(&group->lock);
    if (!last)
        return;
    pthread_cond_destroy(&group->came_back);
    pthread_mutex_destroy(&group->lock);
    free(group);
}
