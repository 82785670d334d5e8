/* SPDX-License-Identifier: MIT */
/*
 * shrink: see shrink.h.
 *
 *     plans ─► drops ─► compacts ─► looks (a poll: which pages are due) ─► releases ─► ends
 *       ▲                                                                               │
 *       └── a ceiling in bytes, and there was no room to move all: then more has to go ─┘
 *
 * Tokens go from every cache of the group before pages go from any: a release may stop for a hook.
 */
#include "core/shrink.h"
#include "core/batch.h"
#include "core/bookkeeping.h"
#include "core/clock.h"
#include "core/compact.h"
#include "core/decay.h"
#include "core/lock.h"
#include "core/release.h"
#include "core/report.h"
#include "core/window.h"

enum { MOST_RESTARTS = 8 }; /* so often other calls may make a plan stale; then it is finished without giving way */

bool kvl_shrink_is_barred(const kvl_group *group)
{
    return group->open || group->asking;
}

static bool has_ceiling(const kvl_shrink *s)
{
    return s->why == KVL_SHRINK_BUDGET || s->why == KVL_SHRINK_POOL;
}

/* What a shrink does when a hook waits, once its plan is made. A poll stops, since another poll comes. A trim lets the
 * hook go first. A lowered budget goes on, since a batch that came between would still be placed by the old limit. */
static bool stops_for_hooks(const kvl_shrink *s)
{
    return s->why == KVL_SHRINK_IDLE || s->why == KVL_SHRINK_EARLY;
}

static bool gives_way(const kvl_shrink *s)
{
    return s->why == KVL_SHRINK_CELLS || s->why == KVL_SHRINK_POOL;
}

static kvl_shrink_next end(kvlazy_cache *c, kvl_shrink *s, int status)
{
    if (!kvl_has_engine_cells(c))
        kvl_evict_end(c->group);
    s->status = status;
    s->phase = KVL_SHRINK_ENDED;
    return KVL_SHRINK_DONE;
}

void kvl_shrink_stop(kvlazy_cache *c, kvl_shrink *s, int status)
{
    end(c, s, status);
}

/* ------------------------------------------------------------------------------------------- beginning */

/* No stream of the group was active for an eighth of the idle time. */
static bool rests(const kvl_group *group, uint64_t now_ms)
{
    for (const kvlazy_cache *m = group->first; m; m = m->next) {
        uint32_t idle_ms = m->params.slot_shrink_idle_ms;
        uint32_t while_ms = idle_ms ? (uint32_t)kvl_max(idle_ms / 8, 1) : 0; /* 0: it never rests */

        for (uint32_t s = 0; s < m->params.n_stream; s++)
            if (kvl_policy_until_idle(now_ms, m->stream[s].active_ms, while_ms))
                return false;
    }
    return true;
}

static void begin_reports(kvl_group *group)
{
    for (kvlazy_cache *m = group->first; m; m = m->next)
        kvl_report_begin(m);
}

static void begin_plan(kvlazy_cache *c, kvl_shrink *s)
{
    s->phase = KVL_SHRINK_PLANS;
    if (kvl_has_engine_cells(c))
        kvl_vacate_begin(c, &s->vacating, &s->goal);
    else
        kvl_evict_begin(c, &s->evict, &s->goal);
}

static kvl_goal goal_of(kvlazy_cache *c, kvl_shrink_why why, uint64_t limit, uint64_t now_ms)
{
    kvl_goal goal = {.kind = KVL_GOAL_IDLE, .now_ms = now_ms};

    if (why == KVL_SHRINK_EARLY)
        goal.kind = KVL_GOAL_INITIAL;
    if (why == KVL_SHRINK_CELLS) {
        goal.kind = KVL_GOAL_CELLS;
        goal.max_cells = (uint32_t)limit;
    }
    if (why == KVL_SHRINK_BUDGET || why == KVL_SHRINK_POOL) {
        goal.kind = KVL_GOAL_BYTES;
        goal.max_bytes = limit;
        goal.compacts = kvl_can_compact(c);
        goal.idle_only = goal.best_effort = why == KVL_SHRINK_POOL;
    }
    return goal;
}

void kvl_shrink_begin(kvlazy_cache *c, kvl_shrink *s, kvl_shrink_why why, uint64_t limit, uint64_t now_ms)
{
    *s = (kvl_shrink){.why = why, .goal = goal_of(c, why, limit, now_ms), .n_opened = c->group->n_opened};
    if (why == KVL_SHRINK_EARLY && !rests(c->group, now_ms)) {
        end(c, s, KVLAZY_EBUSY);
        return;
    }
    if (has_ceiling(s) && kvl_rows_touched_bytes(&c->rows) <= limit) {
        end(c, s, KVLAZY_OK);
        return;
    }
    if (why == KVL_SHRINK_CELLS || kvl_has_engine_cells(c))
        begin_reports(c->group); /* an engine moves and vacates while the plan is made */
    if (why == KVL_SHRINK_CELLS && !limit)
        s->phase = KVL_SHRINK_DROPS; /* no token goes */
    else
        begin_plan(c, s);
}

/* ------------------------------------------------------------------------------------------- planning */

static bool was_batch_opened(const kvl_group *group, const kvl_shrink *s)
{
    return group->open || group->n_opened != s->n_opened;
}

static kvl_shrink_next plan(kvlazy_cache *c, kvl_shrink *s)
{
    bool engine = kvl_has_engine_cells(c);
    kvl_evict_state state = engine ? kvl_vacate_step(&s->vacating) : kvl_evict_step(c, &s->evict);

    if (state == KVL_EVICT_OUT_OF_REACH)
        return end(c, s, KVLAZY_EBUDGET);
    if (state == KVL_EVICT_READY)
        s->phase = KVL_SHRINK_DROPS;
    if (state != KVL_EVICT_ASK) {
        bool waits = !engine && kvl_hook_waits(c) && s->evict.n_restart < MOST_RESTARTS &&
                     kvl_evict_gives_way(c->group, &s->evict);
        return s->phase == KVL_SHRINK_PLANS && waits ? KVL_SHRINK_GIVE_WAY : KVL_SHRINK_MORE;
    }
    if (engine)
        s->n_vacated = s->vacating.cache->stream[s->vacating.stream].cells.n_used;
    return engine ? KVL_SHRINK_VACATE : KVL_SHRINK_ASK;
}

void kvl_shrink_answer(kvlazy_cache *c, kvl_shrink *s, bool kept)
{
    kvl_window_follow_group(c->group);
    if (kvl_has_engine_cells(c))
        kvl_vacate_answer(&s->vacating, s->n_vacated, kept);
    else
        kvl_evict_answer(c->group, &s->evict, kept);
    if (was_batch_opened(c->group, s))
        end(c, s, KVLAZY_EBUSY);
}

/* ------------------------------------------------------------------------------------------- dropping tokens */

/* Every sequence of the stream has been idle, for the first time since it was active. */
static bool came_to_rest(const kvlazy_params *params, const kvl_stream *stream, uint64_t now_ms)
{
    return stream->awake && kvl_policy_until_idle(now_ms, stream->active_ms, params->slot_shrink_idle_ms) == 0;
}

/* A stream that came to rest is searched for what was written without being touched; when the last one did, all are,
 * those too that held no token. */
static void search_at_rest(kvlazy_cache *c)
{
    bool any = false, awake = false;

    for (uint32_t i = 0; i < c->params.n_stream; i++) {
        if (c->stream[i].rested)
            kvl_untouched_begin(c, i);
        any |= c->stream[i].rested;
        awake |= c->stream[i].awake;
    }
    if (any && !awake)
        kvl_untouched_begin_all(c);
}

/* Streams that came to rest or lost tokens are to be compacted. Their pages that were only read go too. */
static void look_at_rest(kvlazy_cache *c, uint64_t now_ms)
{
    for (uint32_t i = 0; i < c->params.n_stream; i++) {
        kvl_stream *stream = &c->stream[i];

        stream->rested = came_to_rest(&c->params, stream, now_ms);
        stream->rests |= stream->rested;
        stream->awake &= !stream->rested;
        stream->ensured = stream->rested ? 0 : stream->ensured;
        if (stream->rested || stream->drains)
            kvl_compact_later(c, i);
    }
    search_at_rest(c);
}

/* Returns whether any sequence lost tokens. */
static bool drop_planned(kvlazy_cache *c, const kvl_shrink *s, uint64_t stamp)
{
    bool planned = s->why != KVL_SHRINK_CELLS || s->goal.max_cells;

    return planned && !kvl_has_engine_cells(c) && kvl_evict_apply(c, &s->evict, stamp);
}

/* A sequence that lost what on_evict agreed to, and was to lose no more, may lose the rest of the excess in a next
 * poll.
 */
static bool has_more_to_lose(kvlazy_cache *c, const kvl_goal *goal)
{
    const kvl_losses *plan = &c->group->losses;

    for (kvlazy_seq_id id = 0; plan->curbed && id < (kvlazy_seq_id)c->params.n_seq_max; id++)
        if (plan->loss[id].fixed && kvl_may_lose(c, goal, id) &&
            kvl_policy_excess(kvl_stream_of(c, id)->cells.n_used, c->params.kv_size_initial))
            return true;
    return false;
}

/* A poll: evicted cells count as emptied long ago, so that a release that stopped goes on with them. */
static void drop_idle(kvl_group *group, kvl_shrink *s)
{
    uint64_t now_ms = s->goal.now_ms;
    bool dropped = false;

    for (kvlazy_cache *m = group->first; m; m = m->next) {
        if (!kvl_has_engine_cells(m))
            kvl_report_begin(m);
        dropped |= drop_planned(m, s, now_ms - m->params.slot_shrink_idle_ms);
        look_at_rest(m, now_ms);
    }
    for (kvlazy_cache *m = dropped ? group->first : NULL; m; m = m->next)
        s->more |= has_more_to_lose(m, &s->goal);
}

static void drop_on_request(kvl_group *group, const kvl_shrink *s)
{
    if (s->why != KVL_SHRINK_CELLS && !kvl_has_engine_cells(group->first))
        begin_reports(group);
    for (kvlazy_cache *m = group->first; m; m = m->next)
        drop_planned(m, s, s->goal.now_ms);
    for (kvlazy_cache *m = group->first; m; m = m->next) {
        kvl_engine_cells_sync(m, group->now_ms);
        if (s->why == KVL_SHRINK_CELLS || s->why == KVL_SHRINK_EARLY)
            kvl_untouched_begin_all(m);
        for (uint32_t i = 0; i < m->params.n_stream; i++)
            kvl_compact_later(m, i);
    }
}

static kvl_shrink_next drop(kvlazy_cache *c, kvl_shrink *s)
{
    if (s->why == KVL_SHRINK_IDLE)
        drop_idle(c->group, s);
    else
        drop_on_request(c->group, s);
    kvl_evict_end(c->group);
    s->stream = 0;
    s->phase = KVL_SHRINK_COMPACTS;
    return KVL_SHRINK_MORE;
}

/* ------------------------------------------------------------------------------------------- giving way */

/* What is left is for the next poll, or end of a batch. */
static void make_due(kvl_group *group, const kvl_shrink *s)
{
    for (kvlazy_cache *m = group->first; m; m = m->next)
        kvl_decay_make_due(m, s->goal.now_ms);
}

static kvl_shrink_next give_way(kvlazy_cache *c, const kvl_shrink *s)
{
    make_due(c->group, s);
    return KVL_SHRINK_GIVE_WAY;
}

/* If the hook opened a batch, the rest is due when that ends. */
void kvl_shrink_resume(kvlazy_cache *c, kvl_shrink *s)
{
    kvl_window_follow_group(c->group);
    if (s->phase == KVL_SHRINK_PLANS) {
        if (was_batch_opened(c->group, s))
            end(c, s, KVLAZY_EBUSY);
        else
            kvl_evict_resume(c->group, &s->evict);
        return;
    }
    s->stream = 0;
    s->at = c->group->first; /* the group may be another one now */
    if (kvl_shrink_is_barred(c->group))
        end(c, s, KVLAZY_OK);
}

/* ------------------------------------------------------------------------------------------- moving cells */

static void begin_release(kvl_group *group, kvl_shrink *s)
{
    s->at = group->first;
    s->phase = s->why == KVL_SHRINK_IDLE ? KVL_SHRINK_LOOKS : KVL_SHRINK_RELEASES;
}

static kvl_shrink_next compact(kvlazy_cache *c, kvl_shrink *s)
{
    bool waits = kvl_hook_waits(c);

    if (waits && stops_for_hooks(s)) {
        s->more = true;
        begin_release(c->group, s);
    } else if (!kvl_compact_piece(c, &s->stream, s->goal.now_ms)) {
        begin_release(c->group, s);
    } else if (waits && gives_way(s)) {
        return give_way(c, s);
    }
    return KVL_SHRINK_MORE;
}

/* ------------------------------------------------------------------------------------------- a poll's pages */

/* A poll: when the free pages of each cache are due, now that tokens went and cells moved. */
static kvl_shrink_next look(kvlazy_cache *c, kvl_shrink *s)
{
    uint64_t now_ms = s->goal.now_ms;

    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        bool left = !m->params.slot_shrink_idle_ms && m->decay.fallow_due_ms <= now_ms; /* by a trim, all of it */
        m->decay.fallow_due_ms = left ? now_ms : kvl_decay_next_ms(m, now_ms);
    }
    s->phase = KVL_SHRINK_RELEASES;
    return KVL_SHRINK_MORE;
}

static bool is_due(const kvlazy_cache *c, uint64_t now_ms)
{
    bool due = kvl_min(c->decay.fallow_due_ms, c->decay.retry_ms) <= now_ms;

    for (uint32_t i = 0; !due && i < c->params.n_stream; i++)
        due = c->stream[i].rested || c->stream[i].drains;
    return due;
}

/* Pages that are due go, unless a hook waits. A linked cache may idle where this one never does; but a trim may have
 * left something. */
static bool release_due(kvlazy_cache *c, const kvl_shrink *s)
{
    uint64_t idle_ms = c->params.slot_shrink_idle_ms;
    bool never = !idle_ms && c->decay.fallow_due_ms > s->goal.now_ms;

    return kvl_hook_waits(c) || kvl_release_piece(c, never ? KVL_NEVER : idle_ms, s->goal.now_ms);
}

static void forget_drains(kvlazy_cache *c)
{
    for (uint32_t i = 0; i < c->params.n_stream; i++)
        c->stream[i].drains = false;
}

static kvl_shrink_next release_idle(kvlazy_cache *c, kvl_shrink *s)
{
    uint64_t now_ms = s->goal.now_ms;
    kvlazy_cache *m = s->at;

    if (is_due(m, now_ms)) {
        bool left = release_due(m, s);

        m->decay.fallow_due_ms = left ? now_ms : kvl_decay_next_ms(m, now_ms);
        if (left && !kvl_hook_waits(c))
            return KVL_SHRINK_MORE;
        if (!left)
            kvl_bookkeeping_rest(m);
        kvl_report_end(m, now_ms, true);
        kvl_note_due(m, m->decay.fallow_due_ms);
        s->more |= left;
    }
    forget_drains(m); /* the cells that were dropped are due by their age */
    s->more |= kvl_hook_waits(c) ? m->untouched.searches : kvl_untouched_piece(m);
    s->at = m->next;
    return KVL_SHRINK_MORE;
}

/* ------------------------------------------------------------------------------------------- all free pages */

static kvl_shrink_next stop_early(kvl_group *group, kvl_shrink *s)
{
    kvl_report_end(s->at, s->goal.now_ms, false);
    make_due(group, s);
    s->at = NULL;
    return KVL_SHRINK_MORE;
}

static kvl_shrink_next release_free(kvlazy_cache *c, kvl_shrink *s)
{
    if (kvl_hook_waits(c) && s->why == KVL_SHRINK_EARLY)
        return stop_early(c->group, s);
    if (kvl_release_free_piece(s->at, s->goal.now_ms) || kvl_untouched_piece(s->at))
        return kvl_hook_waits(c) && gives_way(s) ? give_way(c, s) : KVL_SHRINK_MORE;
    kvl_report_end(s->at, s->goal.now_ms, false);
    kvl_report_begin(s->at);
    s->at = s->at->next;
    return KVL_SHRINK_MORE;
}

static kvl_shrink_next release(kvlazy_cache *c, kvl_shrink *s)
{
    if (s->at)
        return (s->why == KVL_SHRINK_IDLE ? release_idle : release_free)(c, s);
    s->phase = KVL_SHRINK_ENDS;
    return KVL_SHRINK_MORE;
}

static void shrink_bookkeeping(kvl_group *group)
{
    for (kvlazy_cache *m = kvl_shrink_is_barred(group) ? NULL : group->first; m; m = m->next)
        kvl_bookkeeping_shrink(m);
}

/* Where there was no room to move all, more has to go. */
static kvl_shrink_next finish(kvlazy_cache *c, kvl_shrink *s)
{
    if (s->why == KVL_SHRINK_CELLS)
        shrink_bookkeeping(c->group);
    if (!has_ceiling(s) || !s->goal.compacts || kvl_rows_touched_bytes(&c->rows) <= s->goal.max_bytes)
        return end(c, s, KVLAZY_OK);
    s->goal.compacts = false;
    s->n_opened = c->group->n_opened;
    begin_plan(c, s);
    return KVL_SHRINK_MORE;
}

kvl_shrink_next kvl_shrink_step(kvlazy_cache *c, kvl_shrink *s)
{
    switch (s->phase) {
    case KVL_SHRINK_PLANS:
        return plan(c, s);
    case KVL_SHRINK_DROPS:
        return drop(c, s);
    case KVL_SHRINK_COMPACTS:
        return compact(c, s);
    case KVL_SHRINK_LOOKS:
        return look(c, s);
    case KVL_SHRINK_RELEASES:
        return release(c, s);
    case KVL_SHRINK_ENDS:
        return finish(c, s);
    case KVL_SHRINK_ENDED:
        break;
    }
    return KVL_SHRINK_DONE;
}

/* ------------------------------------------------------------------------------------------- for others */

void kvl_shrink_free(kvlazy_cache *c, uint64_t max_bytes, uint64_t now_ms)
{
    kvl_report_begin(c);
    while (kvl_rows_touched_bytes(&c->rows) > max_bytes && kvl_release_free_piece(c, now_ms))
        ;
    kvl_report_end(c, now_ms, false);
}
