/* SPDX-License-Identifier: MIT */
/*
 * reaper: a thread that polls groups of caches, each at the time that its last poll named, and squeezes them when
 * memory is short; where a poll belongs to a thread of the engine, it tells that one. It sleeps until the earliest of
 * these times. A call that makes such a time stale wakes it (kvl_watcher). The reaper decides nothing about a cache; it
 * only compares times, and on its own clock, since every group has another.
 *
 * Locks: the lock of a group is taken before the lock of the reaper, never the other way round. So the thread releases
 * the reaper's lock before it enters a cache. A call that takes a cache away waits until the thread is out of that
 * cache. An entry is freed when nothing holds it any more: the list, the thread, and calls that take a cache away do.
 */
#include "api/watch.h"
#include "host/wait.h"

#include <bsd/sys/queue.h>
#include <kvlazy/reaper.h>

#define MAGIC UINT64_C(0x6b766c7265610001)

enum { CALM_MS = 1000 }; /* between two squeezes */

/* A group of caches. */
typedef struct entry {
    kvl_watcher watcher; /* its ctx is this */
    kvlazy_reaper *reaper;
    LIST_ENTRY(entry) link; /* le_prev NULL: it is in no list */
    kvl_group *group;
    kvlazy_cache *cache; /* the member by which the group is polled; NULL: the group is polled no longer */
    uint64_t due_ms;     /* when to poll it */
    bool squeeze;        /* memory is short, and the group was not squeezed for it yet */
    uint32_t n_hold;     /* holders: the list, the thread, and calls that take a cache away */
    uint32_t n_losing;   /* members that are being taken away; the thread enters no member meanwhile */
    uint32_t n_passing;  /* calls of the reaper that use a member; no member is taken away meanwhile */
    uint32_t n_stopping; /* of the hooks that the group counts as waiting: threads that stop the reaper */
} entry;

struct kvlazy_reaper {
    uint64_t magic;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* the thread left a group, or an entry lost a holder */
    pthread_t thread;
    kvl_wait wait;
    LIST_HEAD(, entry) list;
    entry *visited;     /* the thread is inside this group */
    uint32_t n_entry;   /* entries in the list, and others that are still held */
    uint64_t sleeps_ms; /* the thread sleeps until then; 0: it is awake */
    uint64_t calm_ms;   /* no squeeze begins before this time */
    bool pressed, stops, frees_itself;
};

static bool is_reaper(const kvlazy_reaper *r)
{
    return r && r->magic == MAGIC;
}

/* Callbacks of caches run on the reaper's thread, and may call every function of the reaper. */
static bool is_own_thread(const kvlazy_reaper *r)
{
    return pthread_equal(pthread_self(), r->thread);
}

/* ------------------------------------------------------------------------------------------- entries */

/* The lock is held when these are called. */

static void drop(entry *e)
{
    kvlazy_reaper *r = e->reaper;

    if (--e->n_hold == 0) {
        r->n_entry--;
        free(e);
    }
    pthread_cond_broadcast(&r->changed);
}

static void detach(entry *e)
{
    e->cache = NULL;
    if (!e->link.le_prev)
        return; /* kvlazy_reaper_add has not put it into the list yet */
    LIST_REMOVE(e, link);
    e->link.le_prev = NULL;
    drop(e);
}

static void come_at(entry *e, uint64_t due_ms)
{
    e->due_ms = kvl_min(e->due_ms, due_ms);
    if (due_ms < e->reaper->sleeps_ms)
        kvl_wait_wake(&e->reaper->wait);
}

static entry *find(const kvlazy_reaper *r, const kvl_group *group)
{
    entry *e;

    LIST_FOREACH (e, &r->list, link)
        if (e->group == group)
            break;
    return e;
}

/* ------------------------------------------------------------------------------------------- what a group tells */

static void on_wake(void *ctx, uint64_t in_ms)
{
    entry *e = ctx;

    pthread_mutex_lock(&e->reaper->lock);
    come_at(e, kvl_wait_now_ms() + in_ms);
    pthread_mutex_unlock(&e->reaper->lock);
}

static void on_lose(void *ctx, const kvlazy_cache *member, kvlazy_cache *heir)
{
    entry *e = ctx;

    pthread_mutex_lock(&e->reaper->lock);
    e->n_hold++;
    e->n_losing++;
    if (!heir) { /* the group may go */
        atomic_fetch_sub(&e->group->n_waiting, e->n_stopping);
        e->n_stopping = 0;
        detach(e);
    } else if (e->cache == member)
        e->cache = heir;
    pthread_mutex_unlock(&e->reaper->lock);
}

/* Waits until the thread is out of the group. The waiting call counts as a hook that waits, so that a long release
 * stops for it. The member that is taken away keeps the group alive until then. */
static void on_settle(void *ctx)
{
    entry *e = ctx;
    kvlazy_reaper *r = e->reaper;

    pthread_mutex_lock(&r->lock);
    if (!is_own_thread(r)) {
        atomic_fetch_add(&e->group->n_waiting, 1);
        while (r->visited == e || e->n_passing)
            pthread_cond_wait(&r->changed, &r->lock);
        atomic_fetch_sub(&e->group->n_waiting, 1);
    }
    pthread_mutex_unlock(&r->lock);
}

static void on_lost(void *ctx)
{
    entry *e = ctx;
    kvlazy_reaper *r = e->reaper;

    pthread_mutex_lock(&r->lock);
    e->n_losing--;
    if (e->cache)
        come_at(e, kvl_wait_now_ms());
    drop(e);
    pthread_mutex_unlock(&r->lock);
}

/* ------------------------------------------------------------------------------------------- the thread */

/* Returns the entry to visit next: one to be squeezed, else the one that has been due for longest. NULL: none. */
static entry *next_entry(const kvlazy_reaper *r, uint64_t now_ms)
{
    entry *next = NULL, *e;

    LIST_FOREACH (e, &r->list, link) {
        if (e->n_losing)
            continue;
        if (e->squeeze)
            return e;
        if (e->due_ms <= now_ms && (!next || e->due_ms < next->due_ms))
            next = e;
    }
    return next;
}

/* Returns when to visit again, after a poll that began at `start_ms` and said `next_ms`. A poll that stopped for a
 * waiting hook leaves that hook a millisecond to take the lock. */
static uint64_t next_visit(const entry *e, const kvlazy_cache *c, uint64_t start_ms, uint64_t next_ms)
{
    if (next_ms == 0 && e->cache == c && atomic_load(&e->group->n_waiting) > 0)
        return kvl_wait_now_ms() + 1;
    return next_ms == KVL_NEVER ? KVL_NEVER : start_ms + next_ms;
}

static void visit(kvlazy_reaper *r, entry *e)
{
    kvlazy_cache *c = e->cache;
    bool squeeze = e->squeeze;
    uint64_t start_ms = kvl_wait_now_ms(), next_ms = KVL_NEVER;

    e->squeeze = false;
    if (!squeeze)
        e->due_ms = KVL_NEVER; /* what is told during the poll counts; the poll's own time is added below */
    e->n_hold++;
    r->visited = e;
    pthread_mutex_unlock(&r->lock);

    if (squeeze)
        kvl_squeeze(c);
    else
        kvl_poll(c, true, &next_ms);

    pthread_mutex_lock(&r->lock);
    r->visited = NULL;
    come_at(e, next_visit(e, c, start_ms, next_ms));
    drop(e);
}

static void begin_squeeze(kvlazy_reaper *r, uint64_t now_ms)
{
    entry *e;

    r->pressed = false;
    r->calm_ms = now_ms + CALM_MS;
    LIST_FOREACH (e, &r->list, link)
        e->squeeze = true;
}

static void sleep_until_due(kvlazy_reaper *r)
{
    uint64_t until_ms = r->pressed ? r->calm_ms : KVL_NEVER;
    const entry *e;

    LIST_FOREACH (e, &r->list, link)
        if (!e->n_losing)
            until_ms = kvl_min(until_ms, e->due_ms);
    r->sleeps_ms = until_ms;
    pthread_mutex_unlock(&r->lock);
    unsigned happened = kvl_wait_sleep(&r->wait, until_ms);
    pthread_mutex_lock(&r->lock);
    r->sleeps_ms = 0;
    r->pressed |= (happened & KVL_PRESSURE) != 0;
}

static void free_reaper(kvlazy_reaper *r)
{
    kvl_wait_close(&r->wait);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    r->magic = 0;
    free(r);
}

static void *run(void *arg)
{
    kvlazy_reaper *r = arg;

    pthread_mutex_lock(&r->lock);
    while (!r->stops) {
        uint64_t now_ms = kvl_wait_now_ms();

        if (r->pressed && now_ms >= r->calm_ms)
            begin_squeeze(r, now_ms);
        entry *e = next_entry(r, now_ms);
        if (e)
            visit(r, e);
        else
            sleep_until_due(r);
    }
    bool frees = r->frees_itself;
    while (frees && r->n_entry)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    if (frees)
        free_reaper(r);
    return NULL;
}

/* ------------------------------------------------------------------------------------------- create */

static int init_locks(kvlazy_reaper *r)
{
    if (pthread_mutex_init(&r->lock, NULL) != 0)
        return KVLAZY_ENOMEM;
    if (pthread_cond_init(&r->changed, NULL) != 0) {
        pthread_mutex_destroy(&r->lock);
        return KVLAZY_ENOMEM;
    }
    return KVLAZY_OK;
}

/* The lock is held until r->thread is set, since the thread looks at it. */
static int start(kvlazy_reaper *r)
{
    pthread_mutex_lock(&r->lock);
    int status = kvl_wait_start(&r->thread, run, r);
    pthread_mutex_unlock(&r->lock);
    return status;
}

int kvlazy_reaper_create(const char *host_root, kvlazy_reaper **reaper)
{
    if (!reaper)
        return KVLAZY_EINVAL;
    kvlazy_reaper *r = calloc(1, sizeof *r);
    if (!r || init_locks(r)) {
        free(r);
        return KVLAZY_ENOMEM;
    }
    int status = kvl_wait_open(&r->wait, host_root ? host_root : "/");
    status = status ? status : start(r);
    if (status) {
        free_reaper(r);
        return status;
    }
    r->magic = MAGIC;
    *reaper = r;
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- destroy */

/* The lock is held. The thread begins no new visit, and a release that it is in stops after its piece. */
static void ask_to_stop(kvlazy_reaper *r)
{
    entry *e = r->visited;

    r->stops = true;
    kvl_wait_wake(&r->wait);
    if (!e || !e->cache || is_own_thread(r))
        return;
    e->n_hold++;
    e->n_passing++; /* no member is taken away meanwhile, but by a callback of the thread itself */
    e->n_stopping++;
    atomic_fetch_add(&e->group->n_waiting, 1);
    while (r->visited == e)
        pthread_cond_wait(&r->changed, &r->lock);
    if (e->n_stopping) { /* else the thread's callback took the group away */
        e->n_stopping--;
        atomic_fetch_sub(&e->group->n_waiting, 1);
    }
    e->n_passing--;
    drop(e);
}

/* Takes the first group out. The lock is held, and released in between. */
static void forget_first(kvlazy_reaper *r)
{
    entry *e = LIST_FIRST(&r->list);
    kvlazy_cache *c = e->cache;

    e->n_hold++;
    e->n_passing++; /* c must not be destroyed meanwhile */
    pthread_mutex_unlock(&r->lock);
    bool lost = kvl_unwatch(c, &e->watcher);
    pthread_mutex_lock(&r->lock);
    e->n_passing--;
    if (lost) {
        e->n_losing--;
        drop(e);
    }
    drop(e);
}

void kvlazy_reaper_destroy(kvlazy_reaper *r)
{
    if (!is_reaper(r))
        return;
    pthread_mutex_lock(&r->lock);
    bool own = is_own_thread(r);
    ask_to_stop(r);
    pthread_mutex_unlock(&r->lock);
    if (own)
        pthread_detach(r->thread);
    else
        pthread_join(r->thread, NULL);
    pthread_mutex_lock(&r->lock);
    while (!LIST_EMPTY(&r->list))
        forget_first(r);
    r->frees_itself = own; /* in a callback: the thread frees the reaper after the callback returned */
    while (!own && r->n_entry)
        pthread_cond_wait(&r->changed, &r->lock);
    pthread_mutex_unlock(&r->lock);
    if (!own)
        free_reaper(r);
}

/* ------------------------------------------------------------------------------------------- add, remove */

static entry *new_entry(kvlazy_reaper *r, kvlazy_cache *c)
{
    entry *e = calloc(1, sizeof *e);

    if (e)
        *e = (entry){
            .watcher = {.ctx = e, .wake = on_wake, .lose = on_lose, .settle = on_settle, .lost = on_lost},
            .reaper = r,
            .group = c->group,
            .cache = c,
            .n_hold = 1,
        };
    return e;
}

int kvlazy_reaper_add(kvlazy_reaper *r, kvlazy_cache *c)
{
    if (!is_reaper(r) || !kvl_is_cache(c))
        return KVLAZY_EINVAL;
    if (kvl_is_bound_to_thread(c) && !c->engine.ops.due)
        return KVLAZY_ENOTSUP;
    entry *e = new_entry(r, c);
    if (!e)
        return KVLAZY_ENOMEM;
    int status = kvl_watch(c, &e->watcher);
    if (status) {
        free(e);
        return status;
    }
    pthread_mutex_lock(&r->lock);
    LIST_INSERT_HEAD(&r->list, e, link);
    r->n_entry++;
    come_at(e, 0);
    pthread_mutex_unlock(&r->lock);
    return KVLAZY_OK;
}

int kvlazy_reaper_remove(kvlazy_reaper *r, kvlazy_cache *c)
{
    if (!is_reaper(r) || !kvl_is_cache(c))
        return KVLAZY_EINVAL;
    pthread_mutex_lock(&r->lock);
    entry *e = find(r, c->group);
    if (e)
        e->n_hold++;
    pthread_mutex_unlock(&r->lock);
    if (!e)
        return KVLAZY_EINVAL;
    bool lost = kvl_unwatch(c, &e->watcher);
    on_settle(e);
    if (lost)
        on_lost(e);
    pthread_mutex_lock(&r->lock);
    drop(e);
    pthread_mutex_unlock(&r->lock);
    return KVLAZY_OK;
}

int kvlazy_reaper_pressure(kvlazy_reaper *r)
{
    if (!is_reaper(r))
        return KVLAZY_EINVAL;
    pthread_mutex_lock(&r->lock);
    r->pressed = true;
    kvl_wait_wake(&r->wait);
    pthread_mutex_unlock(&r->lock);
    return KVLAZY_OK;
}
