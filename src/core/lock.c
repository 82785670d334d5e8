/* SPDX-License-Identifier: MIT */
/* lock: see lock.h. */
#include "core/lock.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/loss.h"

#include <sched.h>

bool kvl_is_forked(const kvlazy_cache *c)
{
    return c->mem.process_id && kvl_host_process(&c->mem) != c->group->process;
}

void kvl_adopt(kvlazy_cache *c)
{
    kvl_group *group = c->group;

    if (KVL_LIKELY(!kvl_is_forked(c)))
        return;
    group->process = kvl_host_process(&c->mem);
    group->watcher = NULL;
    atomic_store(&group->n_waiting, 0);
}

/* The entry of this thread; NULL: it has none. */
static kvl_caller *find_caller(kvl_group *group)
{
    for (kvl_caller *w = group->caller; w < group->caller + KVL_CALLERS; w++)
        if (w->n_call && pthread_equal(w->thread, pthread_self()))
            return w;
    return NULL;
}

/* Calls that are out, but for those of this thread and of threads that wait for them in turn. More threads than have
 * entries are counted without a name. */
static uint32_t n_others_out(kvl_group *group)
{
    uint32_t n = group->n_out;

    for (const kvl_caller *w = group->caller; w < group->caller + KVL_CALLERS; w++)
        if (w->n_call && (w->waits || pthread_equal(w->thread, pthread_self())))
            n -= w->n_call;
    return n;
}

static void wait_for_lock(kvl_group *group)
{
    atomic_fetch_add(&group->n_waiting, 1);
    pthread_mutex_lock(&group->lock);
    atomic_fetch_sub(&group->n_waiting, 1);
}

/* The lock is held by another thread, of this process or of the parent it was forked from: that one never comes out. */
static int lock_in_child(kvlazy_cache *c)
{
    enum { WAIT_MS = 50, TRIES = 50000 }; /* what is done in one piece takes a few ms. A clock may stand still */
    uint64_t begin_ms = kvl_clock_ms(c);

    if (atomic_load(&c->group->locked_by_parent))
        return KVLAZY_ENOTSUP;
    for (int i = 0; i < TRIES && kvl_clock_ms(c) - begin_ms < WAIT_MS; i++) {
        if (pthread_mutex_trylock(&c->group->lock) == 0)
            return KVLAZY_OK;
        sched_yield();
    }
    atomic_store(&c->group->locked_by_parent, true);
    return KVLAZY_ENOTSUP;
}

/* A thread of the parent was in a callback, and never comes back. Those of this process adopted the group first. */
static bool is_left_behind(kvlazy_cache *c)
{
    return KVL_UNLIKELY(c->group->n_out) && n_others_out(c->group) && kvl_is_forked(c);
}

int kvl_lock(kvlazy_cache *c)
{
    kvl_group *group = c->group;

    if (KVL_UNLIKELY(pthread_mutex_trylock(&group->lock) != 0)) {
        if (!kvl_is_forked(c))
            wait_for_lock(group);
        else if (lock_in_child(c))
            return KVLAZY_ENOTSUP;
    }
    if (is_left_behind(c)) {
        pthread_mutex_unlock(&group->lock);
        return KVLAZY_ENOTSUP;
    }
    group->n_entered++;
    return KVLAZY_OK;
}

bool kvl_try_lock(kvlazy_cache *c)
{
    if (pthread_mutex_trylock(&c->group->lock) != 0)
        return false;
    if (is_left_behind(c)) {
        pthread_mutex_unlock(&c->group->lock);
        return false;
    }
    c->group->n_entered++;
    return true;
}

/* A call leaves for the embedder's code, with the lock released. Another call that destroys a member waits until this
 * code has returned, unless it comes from that very code. */
static void step_out(kvlazy_cache *c)
{
    kvl_group *group = c->group;
    kvl_caller *w = find_caller(group);

    kvl_adopt(c);

    for (kvl_caller *e = group->caller; !w && e < group->caller + KVL_CALLERS; e++)
        if (!e->n_call)
            w = e;
    group->n_out++;
    if (!w)
        return;
    w->thread = pthread_self();
    w->n_call++;
}

static void step_in(kvl_group *group)
{
    kvl_caller *w = find_caller(group);

    group->n_out--;
    if (w)
        w->n_call--;
    pthread_cond_broadcast(&group->came_back);
}

void kvl_wait_for_calls(kvlazy_cache *c)
{
    kvl_group *group = c->group;
    kvl_caller *own = find_caller(group);

    if (!n_others_out(group) || kvl_is_forked(c))
        return;
    if (own) {
        own->waits = true;
        pthread_cond_broadcast(&group->came_back);
    }
    while (n_others_out(group))
        pthread_cond_wait(&group->came_back, &group->lock);
    if (own)
        own->waits = false;
}

/* The ghosts that no call knows, out of the list. */
static kvlazy_cache *take_ghosts(kvl_group *group)
{
    kvlazy_cache *taken = NULL, **at = &group->ghosts;

    while (!group->n_out && *at) {
        kvlazy_cache *ghost = *at;

        if (ghost->n_call) {
            at = &ghost->next;
            continue;
        }
        *at = ghost->next;
        ghost->next = taken;
        taken = ghost;
    }
    return taken;
}

void kvl_free_group(kvl_group *group)
{
    kvl_losses_fini(&group->losses);
    pthread_cond_destroy(&group->came_back);
    pthread_mutex_destroy(&group->lock);
    free(group);
}

void kvl_let_go(kvl_group *group)
{
    kvlazy_cache *ghost = KVL_UNLIKELY(group->ghosts) ? take_ghosts(group) : NULL;
    bool last = !group->first && !group->ghosts;

    pthread_mutex_unlock(&group->lock);
    while (KVL_UNLIKELY(ghost)) {
        kvlazy_cache *next = ghost->next;

        free(ghost);
        ghost = next;
    }
    if (KVL_UNLIKELY(last))
        kvl_free_group(group);
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
    kvl_adopt(c);
    if (!group->watcher) /* its thread is not in this process */
        return;
    group->watcher->wake(group->watcher->ctx, group->stale_ms - kvl_min(group->stale_ms, group->now_ms));
}

/* Hands the lines that a cache noted to its log sink. */
typedef struct notes {
    const kvlazy_cache *cache;
    kvl_log log;
} notes;

/* A sink may destroy the cache, and is told nothing more then. */
static void tell(notes *note)
{
    for (uint32_t i = 0; kvl_is_cache(note->cache) && kvl_log_tell_next(&note->log, i); i++)
        ;
}

void kvl_unlock(kvlazy_cache *c)
{
    enum { TOLD = 3 }; /* caches of a group that a call may have notes of; more are told later */
    kvl_group *group = c->group;
    notes note[TOLD];
    uint32_t n = 0;

    for (kvlazy_cache *m = group->first; m; m = m->next) {
        if (KVL_UNLIKELY((m->limits.share.pool || m->rows.n_promised) && !group->open))
            kvl_limits_settle(m);
        if (KVL_UNLIKELY(m->log.n_line && n < TOLD)) {
            kvl_log_take(&m->log, &note[n].log);
            note[n++].cache = m;
        }
    }
    if (KVL_UNLIKELY(group->watcher))
        tell_watcher(c);
    if (KVL_LIKELY(!n)) {
        kvl_let_go(group);
        return;
    }
    step_out(c);
    pthread_mutex_unlock(&group->lock);
    for (uint32_t i = 0; i < n; i++)
        tell(&note[i]);
    pthread_mutex_lock(&group->lock);
    step_in(group);
    kvl_let_go(group);
}

void kvl_begin_telling(kvlazy_cache *c)
{
    step_out(c);
    kvl_unlock(c);
}

/* A mutex is not fair: a thread that comes back at once would have it again before another one woke. */
static void let_hooks_run(kvl_group *group)
{
    enum { TRIES = 1000 };

    for (int i = 0; i < TRIES && atomic_load(&group->n_waiting); i++)
        sched_yield();
}

/* Counts as a hook where it waits: long work of another thread stops for it. */
void kvl_end_telling(kvl_group *group)
{
    let_hooks_run(group);
    if (KVL_UNLIKELY(pthread_mutex_trylock(&group->lock) != 0))
        wait_for_lock(group);
    group->n_entered++;
    step_in(group);
}

void kvl_begin_asking(kvlazy_cache *c)
{
    c->group->asking++;
    kvl_begin_telling(c);
}

void kvl_end_asking(kvl_group *group)
{
    kvl_end_telling(group);
    group->asking--;
}

void kvl_begin_callback(kvlazy_cache *c, kvl_callback *callback)
{
    callback->thread = pthread_self();
    callback->next = c->group->callback;
    c->group->callback = callback;
    kvl_begin_asking(c);
}

void kvl_end_callback(kvlazy_cache *c, kvl_callback *callback)
{
    kvl_end_asking(c->group);
    kvl_callback **at = &c->group->callback;

    while (*at != callback)
        at = &(*at)->next;
    *at = callback->next;
}

bool kvl_is_in_callback(const kvlazy_cache *c)
{
    const kvl_callback *callback = c->group->callback;

    while (callback && !pthread_equal(callback->thread, pthread_self()))
        callback = callback->next;
    return callback != NULL;
}
