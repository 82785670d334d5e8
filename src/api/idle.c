/* SPDX-License-Identifier: MIT */
/* idle: the public calls of the idle side: poll, trim, clear, and the limits. They may come from any thread. */
#include "api/door.h"
#include "api/watch.h"
#include "api/work.h"
#include "core/ahead.h"
#include "core/batch.h"
#include "core/clock.h"
#include "core/due.h"
#include "core/lock.h"
#include "core/seq.h"
#include "core/shrink.h"

/* ------------------------------------------------------------------------------------------- poll */

/* The lock is held, and no batch is open. */
static int poll_locked(kvlazy_cache *c, uint64_t *next_ms)
{
    uint32_t idle_ms = kvl_group_idle_ms(c->group);
    uint64_t now_ms = kvl_now(c);
    bool more;

    kvl_batch_stamp(c->group, now_ms); /* of a batch that a failed prepare closed, and no end_batch followed */
    int status = kvl_work(c, KVL_SHRINK_IDLE, 0, now_ms, &more);
    *next_ms = more ? 0 : kvl_due_in(c->group, now_ms);
    if (status) /* a batch came between */
        *next_ms = idle_ms ? idle_ms : KVL_NEVER;
    return status;
}

/* The watcher sleeps until then, and is woken when something comes due before; a poll of another thread tells it too.
 */
static void note_told(kvlazy_cache *c, bool watches, int status, uint64_t next_ms)
{
    kvl_group *group = c->group;

    if (watches && status)
        kvl_now(c); /* else that was the first thing */
    uint64_t at_ms = next_ms == KVL_NEVER ? KVL_NEVER : group->now_ms + next_ms;
    if (!watches) {
        if (!status && kvl_is_bound_to_thread(c)) /* what came due before, this poll saw to: the watcher never polls */
            group->stale_ms = at_ms;
        kvl_note_due(c, status ? KVL_NEVER : at_ms);
        return;
    }
    group->told_ms = at_ms;
    group->stale_ms = KVL_NEVER;
    group->turned_away = status != KVLAZY_OK;
}

/* The other thread may be one that a fork left behind: then there is nothing to come again for. */
static int poll_in_child(kvlazy_cache *c, uint64_t *next_ms)
{
    int status = kvl_enter(c, KVL_DOOR_GROUP);

    if (status) {
        *next_ms = KVL_NEVER;
        return status;
    }
    kvl_adopt(c);
    return kvl_leave(c, KVLAZY_EBUSY);
}

/* Of linked caches, the first that has one. */
static kvl_engine engine_to_remind(const kvl_group *group)
{
    const kvlazy_cache *m = group->first;

    while (m && !m->engine.ops.due)
        m = m->next;
    return m ? m->engine : (kvl_engine){0};
}

/* Tells the engine, outside of a batch, that a poll is due. */
static int remind(kvlazy_cache *c, uint64_t *next_ms)
{
    *next_ms = 1;
    if (kvl_hook_waits(c) || kvl_try_enter(c))
        return KVLAZY_EBUSY; /* another thread has the lock for a moment */
    bool barred = kvl_shrink_is_barred(c->group);
    uint32_t idle_ms = kvl_group_idle_ms(c->group);
    kvl_engine engine = engine_to_remind(c->group);

    *next_ms = barred && idle_ms ? idle_ms : KVL_NEVER;
    note_told(c, true, barred ? KVLAZY_EBUSY : KVLAZY_OK, *next_ms);
    kvl_leave(c, KVLAZY_OK);
    if (!barred && engine.ops.due)
        engine.ops.due(engine.ops.ctx); /* c is not looked at any more */
    return KVLAZY_OK;
}

int kvl_poll(kvlazy_cache *c, bool watches, uint64_t *next_ms)
{
    int status = KVLAZY_EBUSY;

    if (watches && kvl_is_bound_to_thread(c))
        return remind(c, next_ms);
    /* A mutex is not fair: a thread that polls again and again must not take it from under a hook that waits. */
    if (kvl_hook_waits(c) || kvl_try_enter(c)) {
        *next_ms = 1; /* another thread has the lock for a moment */
        return kvl_is_forked(c) ? poll_in_child(c, next_ms) : status;
    }
    uint32_t idle_ms = kvl_group_idle_ms(c->group);
    if (c->group->open && watches && kvl_ahead_piece(c->group))
        *next_ms = 0;
    else if (c->group->open || (c->group->asking && watches))
        *next_ms = idle_ms ? idle_ms : KVL_NEVER;
    else if (c->group->asking)
        *next_ms = 1;
    else
        status = poll_locked(c, next_ms);
    note_told(c, watches, status, *next_ms);
    return kvl_leave(c, status);
}

int kvlazy_poll(kvlazy_cache *c, uint64_t *next_ms)
{
    uint64_t next = KVL_NEVER;
    int status = kvl_is_cache(c) ? kvl_poll(c, false, &next) : KVLAZY_EINVAL;

    if (next_ms)
        *next_ms = next;
    return status;
}

int kvl_squeeze(kvlazy_cache *c)
{
    uint64_t next_ms;

    if (kvl_is_bound_to_thread(c))
        return remind(c, &next_ms);
    int status =
        kvl_enter(c, KVL_DOOR_GROUP); /* rarely, and worth a wait: a thread that only looks must not spoil it */

    if (status)
        return status;
    if (kvl_shrink_is_barred(c->group))
        return kvl_leave(c, KVLAZY_EBUSY);
    uint64_t now_ms = kvl_now(c);

    kvl_batch_stamp(c->group, now_ms);
    return kvl_leave(c, kvl_work(c, KVL_SHRINK_EARLY, 0, now_ms, NULL));
}

/* ------------------------------------------------------------------------------------------- on request */

int kvlazy_trim(kvlazy_cache *c, uint32_t max_cells)
{
    int entered = kvl_enter(c, KVL_DOOR_GROUP);
    if (entered)
        return entered;
    if (kvl_shrink_is_barred(c->group))
        return kvl_leave(c, KVLAZY_EBUSY);
    uint64_t now_ms = kvl_now(c);

    kvl_batch_stamp(c->group, now_ms);
    return kvl_leave(c, kvl_work(c, KVL_SHRINK_CELLS, max_cells, now_ms, NULL));
}

int kvlazy_clear(kvlazy_cache *c, bool data)
{
    int entered = kvl_enter(c, KVL_DOOR_GROUP);
    if (entered)
        return entered;
    uint64_t now_ms = kvl_now(c);

    kvl_batch_close(c->group);
    kvl_batch_stamp(c->group, now_ms);
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        kvl_clear(m, data, now_ms);
    return kvl_leave(c, KVLAZY_OK);
}

/* ------------------------------------------------------------------------------------------- limits */

static void set_idle(kvlazy_cache *c, uint32_t kv_size_initial, uint32_t slot_shrink_idle_ms)
{
    kvlazy_params *p = &c->params;

    if (kv_size_initial != UINT32_MAX || slot_shrink_idle_ms != UINT32_MAX)
        kvl_note_due(c, c->group->now_ms); /* what idles may have more to give */
    if (kv_size_initial != UINT32_MAX)
        p->kv_size_initial = kvl_initial_cells(kv_size_initial, p->kv_size);
    if (slot_shrink_idle_ms == UINT32_MAX)
        return;
    p->slot_shrink_idle_ms = slot_shrink_idle_ms;
    /* What is fallow comes due at another time now, and the next look finds when. */
    c->decay.fallow_due_ms = slot_shrink_idle_ms ? 0 : KVL_NEVER;
}

int kvlazy_set_limits(kvlazy_cache *c, uint32_t kv_size_initial, uint32_t slot_shrink_idle_ms, uint64_t budget_bytes)
{
    int entered = kvl_enter(c, KVL_DOOR_GROUP);
    if (entered)
        return entered;
    if (kvl_shrink_is_barred(c->group))
        return kvl_leave(c, KVLAZY_EBUSY);
    uint64_t now_ms = kvl_now(c);

    kvl_batch_stamp(c->group, now_ms);
    if (budget_bytes != UINT64_MAX) {
        int status = budget_bytes ? kvl_work(c, KVL_SHRINK_BUDGET, budget_bytes, now_ms, NULL) : KVLAZY_OK;

        if (status)
            return kvl_leave(c, status);
        c->params.budget_bytes = budget_bytes;
    }
    set_idle(c, kv_size_initial, slot_shrink_idle_ms);
    return kvl_leave(c, KVLAZY_OK);
}
