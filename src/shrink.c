/* SPDX-License-Identifier: MIT */
/*
 * shrink: the idle side. Decides when: asks evict which tokens go, then release for the pages, and says when to
 * come again. May run on any thread; while a batch is open it does nothing.
 */
#include "cache.h"

enum { GIVE_WAY_TRIES = 1000 };

/* A batch is open, or another thread's shrink waits for an answer of on_evict. */
static bool is_busy(const kvlazy_cache *c)
{
    return c->group->open || c->group->asking;
}

/* Every sequence of the stream has been idle, for the first time since it was active. */
static bool came_to_rest(const kvlazy_cache *c, const kvl_stream *stream, uint64_t now_ms)
{
    return stream->awake && kvl_policy_until_idle(now_ms, stream->active_ms, c->params.slot_shrink_idle_ms) == 0;
}

/* Streams that came to rest give back what was only read too, those that lost cells all that is free. Answers whether
 * there is any. */
static bool look_at_rest(kvlazy_cache *c, uint64_t now_ms)
{
    uint32_t idle_ms = kvl_page_idle_ms(c);
    bool any = false;

    if (!idle_ms && c->fallow_due_ms > now_ms)
        idle_ms = UINT32_MAX; /* a linked cache idles, this one never does; but a trim may have left something */

    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_stream *stream = &c->stream[s];

        stream->min_age = idle_ms;
        stream->give_read = came_to_rest(c, stream, now_ms);
        stream->awake &= !stream->give_read;
        stream->ensured = stream->give_read ? 0 : stream->ensured;
        stream->min_age = stream->vacated ? 0 : stream->min_age;
        stream->give_read |= stream->vacated;
        stream->vacated = false;
        any |= stream->give_read;
    }
    return any;
}

/* Streams that came to rest or lost tokens are packed; give_read says which. */
static void pack_later(kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        if (c->stream[s].give_read)
            kvl_pack_later(c, s);
}

/* Pages of one cache go, those that are due by idling or all free ones, unless a hook waits. Answers whether there is
 * more. */
static bool release_until_hook(kvlazy_cache *c, uint64_t now_ms, bool idle)
{
    bool more = true;

    while (more && atomic_load(&c->group->n_waiting) == 0)
        more = (idle ? kvl_release_piece : kvl_release_free_piece)(c, now_ms);
    kvl_say_shrink(c, now_ms, idle);
    return more;
}

/* Tokens go from every cache of the group before pages go from any: a release may stop for a hook. */
int kvl_shrink_idle(kvlazy_cache *c, uint64_t now_ms, bool *more)
{
    kvl_goal goal = {.kind = KVL_GOAL_IDLE, .now_ms = now_ms};

    *more = false;
    if (kvl_evict_agree(c, &goal))
        return KVLAZY_EBUSY;
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        kvl_look_before(m);
        m->due = look_at_rest(m, now_ms);
        /* Evicted cells count as emptied long ago, so that a release that stopped goes on with them. */
        m->due |= kvl_evict_apply(m, kvl_stamp(m, now_ms) - kvl_page_idle_ms(m));
        pack_later(m);
    }
    *more = !kvl_pack(c, now_ms, true);
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        bool left = !kvl_page_idle_ms(m) && m->fallow_due_ms <= now_ms; /* by a trim, all of it */
        m->fallow_due_ms = left ? now_ms : kvl_next_due_ms(m, now_ms);
        m->due |= kvl_min(m->fallow_due_ms, m->retry_ms) <= now_ms;
    }
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        if (!m->due)
            continue;
        bool left = release_until_hook(m, now_ms, true);
        m->fallow_due_ms = left ? now_ms : kvl_next_due_ms(m, now_ms);
        kvl_note_due(m, m->fallow_due_ms);
        *more |= left;
    }
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- poll */

static uint64_t next_eviction_in(kvlazy_cache *c, uint64_t now_ms)
{
    uint64_t next = KVL_NEVER;

    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++) {
        if (!kvl_policy_excess(kvl_stream_of(c, id)->cells.n_used, c->params.kv_size_initial))
            continue;
        uint64_t in_ms = kvl_evictable_in(c, id, now_ms);
        if (in_ms) /* 0: it may go already, and did not: what it shares is held by others */
            next = kvl_min(next, in_ms);
    }
    return kvl_min(next, kvl_vacatable_in(c, now_ms));
}

/* How long until a look at this cache can matter, right after one. */
static uint64_t next_look_in(kvlazy_cache *c, uint64_t now_ms)
{
    uint64_t at_ms = kvl_min(c->fallow_due_ms, c->retry_ms);
    uint64_t next = at_ms == KVL_NEVER ? KVL_NEVER : at_ms - kvl_min(at_ms, now_ms);

    for (uint32_t s = 0; s < c->params.n_stream; s++)
        if (c->stream[s].pack) /* it stopped for a hook */
            next = 0;
        else if (c->stream[s].awake)
            next = kvl_min(next, kvl_policy_until_idle(now_ms, c->stream[s].active_ms, c->params.slot_shrink_idle_ms));
    return kvl_min(next, next_eviction_in(c, now_ms));
}

static uint64_t next_poll_in(kvlazy_cache *c, uint64_t now_ms)
{
    uint64_t next = KVL_NEVER;

    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        next = kvl_min(next, next_look_in(m, now_ms));
    return next;
}

/* The lock is ours, no batch is open. */
static int poll_locked(kvlazy_cache *c, uint64_t *next_ms)
{
    uint32_t idle_ms = kvl_group_idle_ms(c);
    uint64_t now_ms = kvl_now(c);
    bool more;

    kvl_settle_activity(c, now_ms); /* of a batch that a failed prepare closed, and no end_batch followed */
    int status = kvl_shrink_idle(c, now_ms, &more);
    *next_ms = more ? 0 : next_poll_in(c, now_ms);
    if (status) /* a batch came between */
        *next_ms = idle_ms ? idle_ms : KVL_NEVER;
    return status;
}

/* Who watches sleeps until then, and is woken when something comes due before; from anybody else's poll it hears. */
static void note_told(kvlazy_cache *c, bool watches, int status, uint64_t next_ms)
{
    kvl_group *group = c->group;

    if (watches && status)
        kvl_now(c); /* else that was the first thing */
    uint64_t at_ms = next_ms == KVL_NEVER ? KVL_NEVER : group->now_ms + next_ms;
    if (!watches) {
        kvl_note_due(c, status ? KVL_NEVER : at_ms);
        return;
    }
    group->told_ms = at_ms;
    group->stale_ms = KVL_NEVER;
    group->turned_away = status != KVLAZY_OK;
}

int kvl_poll(kvlazy_cache *c, bool watches, uint64_t *next_ms)
{
    int status = KVLAZY_EBUSY;

    /* A mutex is not fair: who polls again and again must not take it from under a hook that waits. */
    if (atomic_load(&c->group->n_waiting) > 0 || pthread_mutex_trylock(&c->group->lock) != 0) {
        *next_ms = 1; /* another thread is inside, for a moment */
        return status;
    }
    uint32_t idle_ms = kvl_group_idle_ms(c);

    c->group->n_entered++;
    kvl_follow_group(c);
    if (c->group->open || (c->group->asking && watches))
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

/* ------------------------------------------------------------------------------------------- trim */

/* What was agreed to goes, in all the group. */
static void evict_group(kvlazy_cache *c, uint64_t now_ms)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        kvl_evict_apply(m, kvl_stamp(m, now_ms));
}

/* What is left is for the next poll, or end of a batch. */
static void make_due_group(kvlazy_cache *c, uint64_t now_ms)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        kvl_make_due(m, now_ms);
}

/* A hook that waits goes first. Answers whether it opened a batch: then the rest is due when that ends. */
static bool give_way(kvlazy_cache *c, uint64_t now_ms)
{
    kvl_group *group = c->group;

    make_due_group(c, now_ms);
    kvl_leave(c, KVLAZY_OK);
    for (int i = 0; i < GIVE_WAY_TRIES && atomic_load(&group->n_waiting) > 0; i++)
        sched_yield(); /* a mutex is not fair: whoever let go would have it again before the other woke */
    kvl_enter(c);
    return is_busy(c);
}

/* Every free page goes, in all the group, piece by piece. */
static void release_group(kvlazy_cache *c, uint64_t now_ms, bool polite)
{
    kvlazy_cache *m = c->group->first;

    while (m) {
        if (kvl_release_free_piece(m, now_ms)) {
            if (!polite || atomic_load(&c->group->n_waiting) == 0)
                continue;
            if (give_way(c, now_ms))
                return;
            m = c->group->first; /* the group may be another one now */
            continue;
        }
        kvl_say_shrink(m, now_ms, false);
        kvl_look_before(m);
        m = m->next;
    }
}

static void pack_later_group(kvlazy_cache *c)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        kvl_outside_sync(m, c->group->now_ms);
        for (uint32_t s = 0; s < m->params.n_stream; s++)
            kvl_pack_later(m, s);
    }
}

/* Every stream is packed, in all the group. Answers false when a hook came between and opened a batch. */
static bool pack_group(kvlazy_cache *c, uint64_t now_ms)
{
    pack_later_group(c);
    while (!kvl_pack(c, now_ms, true))
        if (give_way(c, now_ms))
            return false;
    return true;
}

static void look_before_group(kvlazy_cache *c)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        kvl_look_before(m);
}

int kvlazy_trim(kvlazy_cache *c, uint32_t max_cells)
{
    if (kvl_enter_group(c))
        return KVLAZY_EINVAL;
    if (is_busy(c))
        return kvl_leave(c, KVLAZY_EBUSY);
    kvl_goal goal = {.kind = KVL_GOAL_CELLS, .now_ms = kvl_now(c), .max_cells = max_cells};

    kvl_settle_activity(c, goal.now_ms);
    look_before_group(c);
    if (max_cells) {
        int status = kvl_evict_agree(c, &goal);

        if (status)
            return kvl_leave(c, status);
        evict_group(c, goal.now_ms);
    }
    if (pack_group(c, goal.now_ms))
        release_group(c, goal.now_ms, true);
    return kvl_leave(c, KVLAZY_OK);
}

/* ------------------------------------------------------------------------------------------- for others */

void kvl_release_until(kvlazy_cache *c, uint64_t max_bytes, uint64_t now_ms)
{
    kvl_look_before(c);
    while (kvl_touched_pages(c) * kvl_page_size(c) > max_bytes && kvl_release_free_piece(c, now_ms))
        ;
    kvl_say_shrink(c, now_ms, false);
}

void kvl_shrink_bytes(kvlazy_cache *c, uint64_t max_bytes, uint64_t now_ms)
{
    kvl_goal goal = {.kind = KVL_GOAL_BYTES,
                     .now_ms = now_ms,
                     .max_bytes = max_bytes,
                     .packs = kvl_can_pack(c),
                     .idle_only = true,
                     .best_effort = true};

    while (kvl_touched_pages(c) * kvl_page_size(c) > max_bytes) {
        if (kvl_evict_agree(c, &goal))
            return;
        look_before_group(c);
        evict_group(c, now_ms);
        if (pack_group(c, now_ms))
            release_group(c, now_ms, true);
        if (!goal.packs || is_busy(c))
            return;
        goal.packs = false; /* there was no room to move all: then more has to go */
    }
}

/* No stream of the group was active for a while, if not for all of the idle time. */
static bool rests(const kvlazy_cache *c, uint64_t now_ms)
{
    for (const kvlazy_cache *m = c->group->first; m; m = m->next) {
        uint32_t idle_ms = m->params.slot_shrink_idle_ms;
        uint32_t while_ms = idle_ms ? (uint32_t)kvl_max(idle_ms / 8, 1) : 0; /* 0: it never rests */

        for (uint32_t s = 0; s < m->params.n_stream; s++)
            if (kvl_policy_until_idle(now_ms, m->stream[s].active_ms, while_ms))
                return false;
    }
    return true;
}

/* Every free page goes, in all the group. Answers false when a hook waits: it goes first. */
static bool release_free(kvlazy_cache *c, uint64_t now_ms)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        if (release_until_hook(m, now_ms, false))
            return false;
    return true;
}

int kvl_shrink_early(kvlazy_cache *c)
{
    kvl_enter_group(c); /* rarely, and worth a moment: who only looks at the cache must not spoil it */
    if (is_busy(c))
        return kvl_leave(c, KVLAZY_EBUSY);
    kvl_goal goal = {.kind = KVL_GOAL_INITIAL, .now_ms = kvl_now(c)};
    kvl_settle_activity(c, goal.now_ms);
    if (!rests(c, goal.now_ms) || kvl_evict_agree(c, &goal))
        return kvl_leave(c, KVLAZY_EBUSY);
    look_before_group(c);
    evict_group(c, goal.now_ms);
    pack_later_group(c);
    if (!kvl_pack(c, goal.now_ms, true) || !release_free(c, goal.now_ms))
        make_due_group(c, goal.now_ms);
    return kvl_leave(c, KVLAZY_OK);
}

/* ------------------------------------------------------------------------------------------- limits */

/* Makes what is touched fit a budget: free pages first, then the longest-idle sequences. */
static int fit_bytes(kvlazy_cache *c, uint64_t budget_bytes, uint64_t now_ms)
{
    kvl_goal goal = {.kind = KVL_GOAL_BYTES, .now_ms = now_ms, .max_bytes = budget_bytes, .packs = kvl_can_pack(c)};

    while (budget_bytes && kvl_touched_pages(c) * kvl_page_size(c) > budget_bytes) {
        int status = kvl_evict_agree(c, &goal);

        if (status)
            return status;
        look_before_group(c);
        evict_group(c, now_ms);
        pack_later_group(c);
        kvl_pack(c, now_ms, false);
        release_group(c, now_ms, false); /* a batch before the new limit holds would know the old one */
        if (!goal.packs)
            break;
        goal.packs = false; /* there was no room to move all: then more has to go */
    }
    return KVLAZY_OK;
}

int kvlazy_set_limits(kvlazy_cache *c, uint32_t kv_size_initial, uint32_t slot_shrink_idle_ms, uint64_t budget_bytes)
{
    if (kvl_enter_group(c))
        return KVLAZY_EINVAL;
    if (is_busy(c))
        return kvl_leave(c, KVLAZY_EBUSY);
    kvlazy_params *p = &c->params;
    uint64_t now_ms = kvl_now(c);

    kvl_settle_activity(c, now_ms);
    if (budget_bytes != UINT64_MAX) {
        int status = fit_bytes(c, budget_bytes, now_ms);

        if (status)
            return kvl_leave(c, status);
        p->budget_bytes = budget_bytes;
    }
    if (kv_size_initial != UINT32_MAX || slot_shrink_idle_ms != UINT32_MAX)
        kvl_note_due(c, now_ms); /* what idles may have more to give */
    if (kv_size_initial != UINT32_MAX)
        p->kv_size_initial = kvl_initial_cells(kv_size_initial, p->kv_size);
    if (slot_shrink_idle_ms != UINT32_MAX) {
        p->slot_shrink_idle_ms = slot_shrink_idle_ms;
        c->fallow_due_ms = slot_shrink_idle_ms
                               ? 0
                               : KVL_NEVER; /* what is fallow comes due at another time now: the next look finds when */
    }
    return kvl_leave(c, KVLAZY_OK);
}
