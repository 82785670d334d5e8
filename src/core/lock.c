/* SPDX-License-Identifier: MIT */
/* lock: see lock.h. */
#include "core/lock.h"
#include "core/clock.h"
#include "core/limits.h"

void kvl_lock(kvlazy_cache *c)
{
    if (KVL_UNLIKELY(pthread_mutex_trylock(&c->group->lock) != 0)) {
        atomic_fetch_add(&c->group->n_waiting, 1);
        pthread_mutex_lock(&c->group->lock);
        atomic_fetch_sub(&c->group->n_waiting, 1);
    }
    c->group->n_entered++;
}

bool kvl_try_lock(kvlazy_cache *c)
{
    if (pthread_mutex_trylock(&c->group->lock) != 0)
        return false;
    c->group->n_entered++;
    return true;
}

/* The embedder's code runs with the lock released. A call that destroys a member waits until it has returned, unless
 * the call comes from that very code. */
static void step_out(kvl_group *group)
{
    group->n_out++;
    group->out = pthread_self();
}

static void step_in(kvl_group *group)
{
    if (--group->n_out == 0)
        pthread_cond_broadcast(&group->came_back);
}

void kvl_wait_for_calls(kvl_group *group)
{
    while (group->n_out && !pthread_equal(group->out, pthread_self()))
        pthread_cond_wait(&group->came_back, &group->lock);
}

/* A watcher that found a batch open comes again when it has ended. Batches may follow one another closely, and then one
 * look in a while is enough. */
static void invite_watcher(kvlazy_cache *c)
{
    enum { PACE_MAX_MS = 100 };
    kvl_group *group = c->group;
    uint64_t pace_ms = kvl_min(c->params.slot_shrink_idle_ms / 8, PACE_MAX_MS);

    group->turned_away = false;
    kvl_note_due(c, kvl_max(group->now_ms, group->pace_ms));
    group->pace_ms = kvl_max(group->now_ms, group->pace_ms) + kvl_max(pace_ms, 1);
}

/* The watcher is told when to come, if that is earlier than it knows. */
static void tell_watcher(kvlazy_cache *c)
{
    kvl_group *group = c->group;

    if (KVL_UNLIKELY(group->turned_away && !group->open && !group->asking))
        invite_watcher(c);
    if (KVL_LIKELY(group->stale_ms >= group->told_ms))
        return;
    group->told_ms = group->stale_ms;
    group->watcher->wake(group->watcher->ctx, group->stale_ms - kvl_min(group->stale_ms, group->now_ms));
}

void kvl_unlock(kvlazy_cache *c)
{
    enum { TOLD = 3 }; /* caches of a group that a call may have notes of; more are told later */
    kvl_group *group = c->group;
    kvl_log lines[TOLD];
    uint32_t n = 0;

    for (kvlazy_cache *m = group->first; m; m = m->next) {
        if (KVL_UNLIKELY(m->limits.share.pool && !group->open))
            kvl_limits_settle(m);
        if (KVL_UNLIKELY(m->log.n_line && n < TOLD))
            kvl_log_take(&m->log, &lines[n++]);
    }
    if (KVL_UNLIKELY(group->watcher))
        tell_watcher(c);
    if (KVL_UNLIKELY(n))
        step_out(group);
    pthread_mutex_unlock(&group->lock);
    if (KVL_LIKELY(!n))
        return;
    for (uint32_t i = 0; i < n; i++)
        kvl_log_tell(&lines[i]);
    pthread_mutex_lock(&group->lock);
    step_in(group);
    pthread_mutex_unlock(&group->lock);
}

void kvl_begin_asking(kvlazy_cache *c)
{
    c->group->asking++;
    step_out(c->group);
    kvl_unlock(c);
}

void kvl_end_asking(kvlazy_cache *c)
{
    kvl_lock(c);
    c->group->asking--;
    step_in(c->group);
}

void kvl_begin_callback(kvlazy_cache *c, kvl_caller *caller)
{
    caller->thread = pthread_self();
    caller->next = c->group->caller;
    c->group->caller = caller;
    kvl_begin_asking(c);
}

void kvl_end_callback(kvlazy_cache *c, kvl_caller *caller)
{
    kvl_end_asking(c);
    kvl_caller **at = &c->group->caller;

    while (*at != caller)
        at = &(*at)->next;
    *at = caller->next;
}

bool kvl_is_in_callback(const kvlazy_cache *c)
{
    const kvl_caller *caller = c->group->caller;

    while (caller && !pthread_equal(caller->thread, pthread_self()))
        caller = caller->next;
    return caller != NULL;
}
