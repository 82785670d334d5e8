/* SPDX-License-Identifier: MIT */
/* shrink: see shrink.h. */
#include "core/shrink.h"
#include "core/batch.h"
#include "core/bookkeeping.h"
#include "core/clock.h"
#include "core/compact.h"
#include "core/decay.h"
#include "core/engine_cells.h"
#include "core/evict.h"
#include "core/lock.h"
#include "core/release.h"
#include "core/report.h"
#include "core/window.h"

#include <sched.h>

enum { GIVE_WAY_TRIES = 1000 };

/* A batch is open, or another thread's shrink waits for an answer of on_evict. */
bool kvl_shrink_is_barred(const kvlazy_cache *c)
{
    return c->group->open || c->group->asking;
}

/* Asks what may go, in all the group. */
static int agree(kvlazy_cache *c, const kvl_goal *goal)
{
    return (kvl_has_engine_cells(c) ? kvl_engine_cells_vacate : kvl_evict_agree)(c, goal);
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
    uint64_t idle_ms = c->params.slot_shrink_idle_ms;
    bool any = false;

    if (!idle_ms && c->decay.fallow_due_ms > now_ms)
        idle_ms = KVL_NEVER; /* a linked cache idles, this one never does; but a trim may have left something */

    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_stream *stream = &c->stream[s];

        stream->min_age = idle_ms;
        stream->give_read = came_to_rest(c, stream, now_ms);
        stream->rests |= stream->give_read;
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
            kvl_compact_later(c, s);
}

/* Pages of one cache go, those that are due by idling or all free ones, unless a hook waits. Answers whether there is
 * more. */
static bool release_until_hook(kvlazy_cache *c, uint64_t now_ms, bool idle)
{
    bool more = true;

    while (more && !kvl_hook_waits(c))
        more = (idle ? kvl_release_piece : kvl_release_free_piece)(c, now_ms);
    kvl_report_end(c, now_ms, idle);
    return more;
}

/* Tokens go from every cache of the group before pages go from any: a release may stop for a hook. */
int kvl_shrink_idle(kvlazy_cache *c, uint64_t now_ms, bool *more)
{
    kvl_goal goal = {.kind = KVL_GOAL_IDLE, .now_ms = now_ms};

    *more = false;
    if (agree(c, &goal))
        return KVLAZY_EBUSY;
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        kvl_report_begin(m);
        m->shrink.due = look_at_rest(m, now_ms);
        /* Evicted cells count as emptied long ago, so that a release that stopped goes on with them. */
        m->shrink.due |= kvl_evict_apply(m, now_ms - m->params.slot_shrink_idle_ms);
        pack_later(m);
    }
    *more = !kvl_compact(c, now_ms, true);
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        bool left = !m->params.slot_shrink_idle_ms && m->decay.fallow_due_ms <= now_ms; /* by a trim, all of it */
        m->decay.fallow_due_ms = left ? now_ms : kvl_decay_next_ms(m, now_ms);
        m->shrink.due |= kvl_min(m->decay.fallow_due_ms, m->decay.retry_ms) <= now_ms;
    }
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        if (!m->shrink.due)
            continue;
        bool left = release_until_hook(m, now_ms, true);
        if (!left)
            kvl_bookkeeping_rest(m);
        m->decay.fallow_due_ms = left ? now_ms : kvl_decay_next_ms(m, now_ms);
        kvl_note_due(m, m->decay.fallow_due_ms);
        *more |= left;
    }
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- when to look again */

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
    return kvl_min(next, kvl_engine_cells_vacatable_in(c, now_ms));
}

/* How long until a look at this cache can matter, right after one. */
static uint64_t next_look_in(kvlazy_cache *c, uint64_t now_ms)
{
    uint64_t at_ms = kvl_min(c->decay.fallow_due_ms, c->decay.retry_ms);
    uint64_t next = at_ms == KVL_NEVER ? KVL_NEVER : at_ms - kvl_min(at_ms, now_ms);

    for (uint32_t s = 0; s < c->params.n_stream; s++)
        if (c->stream[s].pack) /* it stopped for a hook */
            next = 0;
        else if (c->stream[s].awake)
            next = kvl_min(next, kvl_policy_until_idle(now_ms, c->stream[s].active_ms, c->params.slot_shrink_idle_ms));
    return kvl_min(next, next_eviction_in(c, now_ms));
}

uint64_t kvl_shrink_next_in(kvlazy_cache *c, uint64_t now_ms)
{
    uint64_t next = KVL_NEVER;

    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        next = kvl_min(next, next_look_in(m, now_ms));
    return next;
}

/* ------------------------------------------------------------------------------------------- trim */

/* What was agreed to goes, in all the group. */
static void evict_group(kvlazy_cache *c, uint64_t now_ms)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        kvl_evict_apply(m, now_ms);
}

/* What is left is for the next poll, or end of a batch. */
static void make_due_group(kvlazy_cache *c, uint64_t now_ms)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        kvl_decay_make_due(m, now_ms);
}

/* A hook that waits goes first. Answers whether it opened a batch: then the rest is due when that ends. */
static bool give_way(kvlazy_cache *c, uint64_t now_ms)
{
    make_due_group(c, now_ms);
    kvl_unlock(c);
    for (int i = 0; i < GIVE_WAY_TRIES && kvl_hook_waits(c); i++)
        sched_yield(); /* a mutex is not fair: this thread would have it again before the other one woke */
    kvl_lock(c);
    kvl_window_follow_group(c);
    return kvl_shrink_is_barred(c);
}

/* Every free page goes, in all the group, piece by piece. */
static void release_group(kvlazy_cache *c, uint64_t now_ms, bool polite)
{
    kvlazy_cache *m = c->group->first;

    while (m) {
        if (kvl_release_free_piece(m, now_ms)) {
            if (!polite || !kvl_hook_waits(c))
                continue;
            if (give_way(c, now_ms))
                return;
            m = c->group->first; /* the group may be another one now */
            continue;
        }
        kvl_report_end(m, now_ms, false);
        kvl_report_begin(m);
        m = m->next;
    }
}

static void pack_later_group(kvlazy_cache *c)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        kvl_engine_cells_sync(m, c->group->now_ms);
        for (uint32_t s = 0; s < m->params.n_stream; s++)
            kvl_compact_later(m, s);
    }
}

/* Every stream is packed, in all the group. Answers false when a hook came between and opened a batch. */
static bool pack_group(kvlazy_cache *c, uint64_t now_ms)
{
    pack_later_group(c);
    while (!kvl_compact(c, now_ms, true))
        if (give_way(c, now_ms))
            return false;
    return true;
}

static void look_before_group(kvlazy_cache *c)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        kvl_report_begin(m);
}

int kvl_shrink_cells(kvlazy_cache *c, uint32_t max_cells, uint64_t now_ms)
{
    kvl_goal goal = {.kind = KVL_GOAL_CELLS, .now_ms = now_ms, .max_cells = max_cells};

    look_before_group(c);
    if (max_cells) {
        int status = agree(c, &goal);

        if (status)
            return status;
        evict_group(c, now_ms);
    }
    if (pack_group(c, now_ms))
        release_group(c, now_ms, true);
    for (kvlazy_cache *m = kvl_shrink_is_barred(c) ? NULL : c->group->first; m; m = m->next)
        kvl_bookkeeping_shrink(m);
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- for others */

void kvl_shrink_free(kvlazy_cache *c, uint64_t max_bytes, uint64_t now_ms)
{
    kvl_report_begin(c);
    while (kvl_rows_touched_bytes(&c->rows) > max_bytes && kvl_release_free_piece(c, now_ms))
        ;
    kvl_report_end(c, now_ms, false);
}

void kvl_shrink_bytes(kvlazy_cache *c, uint64_t max_bytes, uint64_t now_ms)
{
    kvl_goal goal = {.kind = KVL_GOAL_BYTES,
                     .now_ms = now_ms,
                     .max_bytes = max_bytes,
                     .packs = kvl_can_compact(c),
                     .idle_only = true,
                     .best_effort = true};

    while (kvl_rows_touched_bytes(&c->rows) > max_bytes) {
        if (agree(c, &goal))
            return;
        look_before_group(c);
        evict_group(c, now_ms);
        if (pack_group(c, now_ms))
            release_group(c, now_ms, true);
        if (!goal.packs || kvl_shrink_is_barred(c))
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
    kvl_goal goal = {.kind = KVL_GOAL_INITIAL, .now_ms = kvl_now(c)};

    kvl_batch_stamp(c, goal.now_ms);
    if (!rests(c, goal.now_ms) || agree(c, &goal))
        return KVLAZY_EBUSY;
    look_before_group(c);
    evict_group(c, goal.now_ms);
    pack_later_group(c);
    if (!kvl_compact(c, goal.now_ms, true) || !release_free(c, goal.now_ms))
        make_due_group(c, goal.now_ms);
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- limits */

int kvl_shrink_to_budget(kvlazy_cache *c, uint64_t budget_bytes, uint64_t now_ms)
{
    kvl_goal goal = {.kind = KVL_GOAL_BYTES, .now_ms = now_ms, .max_bytes = budget_bytes, .packs = kvl_can_compact(c)};

    while (budget_bytes && kvl_rows_touched_bytes(&c->rows) > budget_bytes) {
        int status = agree(c, &goal);

        if (status)
            return status;
        look_before_group(c);
        evict_group(c, now_ms);
        pack_later_group(c);
        kvl_compact(c, now_ms, false);
        release_group(c, now_ms, false); /* a batch before the new limit holds would know the old one */
        if (!goal.packs)
            break;
        goal.packs = false; /* there was no room to move all: then more has to go */
    }
    return KVLAZY_OK;
}
