/* SPDX-License-Identifier: MIT */
/* engine_cells: see engine_cells.h. */
#include "core/engine_cells.h"
#include "core/ahead.h"
#include "core/budget.h"
#include "core/cap.h"
#include "core/clock.h"
#include "core/compact.h"
#include "core/cover.h"
#include "core/release.h"

/* ------------------------------------------------------------------------------------------- the mirror */

static bool engine_uses(const kvl_engine *engine, uint32_t s, uint32_t cell)
{
    return !engine->ops.is_used || engine->ops.is_used(engine->ops.ctx, s, cell);
}

/* Cells that the open batch touched are in no table yet. */
static void sync_stream(kvlazy_cache *c, uint32_t s, uint64_t stamp)
{
    bool may_empty = !c->group->open || !c->stream[s].pending;
    kvl_cells *cells = &c->stream[s].cells;
    bool filled = false, emptied = false;

    if (!c->engine.ops.used_end)
        return;
    uint32_t used_end = (uint32_t)kvl_min(c->engine.ops.used_end(c->engine.ops.ctx, s), c->params.kv_size);

    if (kvl_cells_reserve(cells, used_end)) {
        c->stream[s].searched = c->stream[s].searched_next = false;
        return; /* what cannot be noted was never touched: nothing of it can be given back */
    }
    for (uint32_t cell = 0; cell < cells->n_cell; cell++) {
        bool is = cell < used_end && engine_uses(&c->engine, s, cell), was = kvl_bit_get(cells->used, cell);

        if (was && !is && may_empty)
            kvl_cells_empty(cells, cell, stamp);
        else if (is && !was)
            kvl_cells_put(cells, cell, 0);
        filled |= is && !was;
        emptied |= was && !is && may_empty;
    }
    if (emptied)
        kvl_note_fallow(c, c->group->now_ms);
    if (filled) /* without a touch, which would have told */
        kvl_note_use(c, &c->stream[s], c->group->now_ms);
}

void kvl_engine_cells_sync(kvlazy_cache *c, uint64_t now_ms)
{
    if (!kvl_has_engine_cells(c) || !c->engine.ops.used_end) {
        c->engine.sync_due_ms = KVL_NEVER;
        return;
    }
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        sync_stream(c, s, now_ms);
    uint32_t idle_ms = c->params.slot_shrink_idle_ms;
    c->engine.sync_due_ms = idle_ms ? now_ms + idle_ms / 8 : KVL_NEVER; /* 0: nothing decays */
}

void kvl_engine_cells_free(kvlazy_cache *c, const kvl_run *run, uint32_t n_run, uint64_t now_ms)
{
    kvl_cells *cells = &c->stream[run->stream].cells;
    uint32_t n_used = cells->n_used;

    for (const kvl_run *r = run; r < run + n_run; r++) {
        uint32_t end = (uint32_t)kvl_min(r->end, cells->n_cell);

        for (uint32_t cell = r->begin; (cell = (uint32_t)kvl_bits_next(cells->used, cell, end, true)) < end; cell++)
            kvl_cells_empty(cells, cell, now_ms);
    }
    if (cells->n_used < n_used)
        kvl_note_fallow(c, now_ms);
}

/* ------------------------------------------------------------------------------------------- touching */

/* The mirror has the cells of some runs of one stream in use. */
static void use_cells(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    kvl_stream *stream = &c->stream[run->stream];
    uint32_t n_used = stream->cells.n_used;

    for (const kvl_run *r = run; r < run + n_run; r++)
        for (uint32_t cell = r->begin;
             (cell = (uint32_t)kvl_bits_next(stream->cells.used, cell, r->end, false)) < r->end; cell++)
            kvl_cells_put(&stream->cells, cell, 0);
    stream->n_applied += stream->cells.n_used - n_used;
    kvl_follow_cap(c, stream);
}

/* Pages first, and then the mirror has the cells in use. */
int kvl_engine_cells_take(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    int status = kvl_cells_reserve(&c->stream[run->stream].cells, run[n_run - 1].end);

    if (!status)
        status = kvl_rows_want(&c->rows, run, n_run);
    if (!status && !kvl_runs_fit(c)) {
        kvl_engine_cells_sync(c, c->group->now_ms); /* what the engine emptied makes room */
        status = kvl_fit_runs(c, run, n_run);
    }
    if (!status)
        status = kvl_rows_touch(&c->rows, run, n_run);
    if (!status)
        use_cells(c, run, n_run);
    return status;
}

static bool are_used(const kvl_cells *cells, const kvl_run *run)
{
    return run->end <= cells->n_cell && kvl_bits_next(cells->used, run->begin, run->end, false) == run->end;
}

/* One more cell behind what is ready: the rest of its run needs nothing. */
static bool is_one_more(const kvlazy_cache *c, const kvl_run *run, kvl_run *last)
{
    const kvl_cells *cells = &c->stream[run->stream].cells;
    kvl_run before = {run->stream, run->begin, run->end - 1};

    *last = (kvl_run){run->stream, run->end - 1, run->end};
    return !kvl_cells_is_used(cells, last->begin) &&
           (before.begin == before.end || (kvl_rows_ready(&c->rows, &before, 1) && are_used(cells, &before)));
}

int kvl_engine_cells_touch(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    const kvl_cells *cells = &c->stream[run->stream].cells;
    bool ready = kvl_rows_ready(&c->rows, run, n_run);
    kvl_run last;

    kvl_rows_note_read(&c->rows, run->stream, kvl_policy_n_kv(c->params.kv_size, c->params.n_pad, run[n_run - 1].end));
    for (uint32_t i = 0; ready && i < n_run; i++)
        ready = are_used(cells, &run[i]);
    if (KVL_LIKELY(ready))
        return KVLAZY_OK;
    if (n_run == 1 && is_one_more(c, run, &last) && !kvl_rows_ready(&c->rows, &last, 1) &&
        kvl_ahead_reach(c, &last, 1) && kvl_ahead_touch(c, &last, 1)) {
        last.end = last.begin + 1;
        use_cells(c, &last, 1);
        return KVLAZY_OK;
    }
    return kvl_engine_cells_take(c, run, n_run);
}

int kvl_engine_cells_runs(kvlazy_cache *c, uint32_t s, const uint32_t *cell, uint32_t n, uint32_t *n_run)
{
    kvl_plan *p = &c->plan;

    if (kvl_plan_reserve(p, 1, n, n, false))
        return KVLAZY_ENOMEM;
    for (uint32_t i = 0; i < n; i++) {
        p->stream[i] = s;
        p->cell[i] = cell[i];
    }
    *n_run = kvl_plan_runs(p, 0, n);
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- vacating */

static bool may_vacate(const kvlazy_cache *c)
{
    return kvl_has_engine_cells(c) && c->engine.ops.vacate && c->params.shrink != KVLAZY_SHRINK_KEEP;
}

static void sync_group(kvl_group *group, uint64_t now_ms)
{
    for (kvlazy_cache *m = group->first; m; m = m->next)
        kvl_engine_cells_sync(m, now_ms);
}

void kvl_vacate_begin(kvlazy_cache *c, kvl_vacating *v, const kvl_goal *goal)
{
    bool by_bytes = goal->kind == KVL_GOAL_BYTES;

    sync_group(c->group, goal->now_ms);
    *v = (kvl_vacating){.goal = *goal, .cache = by_bytes ? c : c->group->first, .picked = c->params.n_stream};
    v->next = by_bytes ? c->params.n_stream : 0;
}

/* The table is read again. */
void kvl_vacate_answer(kvl_vacating *v, uint32_t n_used, bool kept)
{
    kvlazy_cache *c = v->cache;
    kvl_stream *stream = &c->stream[v->stream];
    uint64_t now_ms = v->goal.now_ms;

    if (kept)
        stream->veto_ms = now_ms + kvl_max(c->params.slot_shrink_idle_ms, 1);
    /* What went here counts as emptied long ago, so that it is due at once; an engine may have emptied others too. */
    sync_stream(c, v->stream, now_ms - c->params.slot_shrink_idle_ms);
    sync_group(c->group, now_ms);
    uint32_t n_lost = n_used - (uint32_t)kvl_min(n_used, stream->cells.n_used);
    c->counts.evicted_cells += n_lost;
    c->counts.n_evict += n_lost > 0;
    stream->drains |= n_lost > 0;
}

/* Asks for the cells of the stream that is looked at from `from` on, unless there are none or it is too early. */
static kvl_evict_state ask_from(kvl_vacating *v, uint32_t s, uint32_t from)
{
    const kvl_stream *stream = &v->cache->stream[s];

    v->stream = s;
    v->from = from;
    if (stream->cells.used_end <= from || !may_vacate(v->cache) || stream->veto_ms > v->goal.now_ms)
        return KVL_EVICT_MORE;
    return KVL_EVICT_ASK;
}

/* ------------------------------------------------------------------------------------------- vacating by count */

static bool is_idle(const kvlazy_params *params, const kvl_stream *stream, uint64_t now_ms)
{
    return kvl_policy_until_idle(now_ms, stream->active_ms, params->slot_shrink_idle_ms) == 0;
}

/* Cells that a stream may hold. */
static uint32_t target_of(const kvl_vacating *v, uint32_t s)
{
    if (v->goal.kind == KVL_GOAL_CELLS)
        return v->goal.max_cells;
    if (v->goal.kind == KVL_GOAL_INITIAL || is_idle(&v->cache->params, &v->cache->stream[s], v->goal.now_ms))
        return v->cache->params.kv_size_initial;
    return UINT32_MAX;
}

/* A stream that is over its target is moved together first, where it can be. */
static kvl_evict_state vacate_stream(kvl_vacating *v)
{
    const kvl_cells *cells = &v->cache->stream[v->next].cells;
    uint32_t target = target_of(v, v->next), from = 0;

    if (kvl_policy_excess(cells->n_used, target) == 0) {
        v->next++;
        return KVL_EVICT_MORE;
    }
    if (kvl_compact_stream_piece(v->cache, v->next, v->goal.now_ms))
        return KVL_EVICT_MORE;
    for (uint32_t i = 0; i < target; i++)
        from = (uint32_t)kvl_bits_next(cells->used, from, cells->used_end, true) + 1;
    return ask_from(v, v->next++, from);
}

/* ------------------------------------------------------------------------------------------- vacating by bytes */

/* With every free page gone and one stream cut at `end`, would it fit? */
static bool fits_cut(kvlazy_cache *c, uint32_t s, uint32_t end, uint64_t max_bytes)
{
    kvl_cells *cells = &c->stream[s].cells;

    kvl_keep_live(c->stream, c->params.n_stream);
    kvl_bits_fill(cells->keep, end, cells->n_cell, false);
    return kvl_needed_bytes(c) <= max_bytes;
}

/* The largest part of a stream, from its first cell on, that may stay. */
static uint32_t largest_fit(kvlazy_cache *c, uint32_t s, uint64_t max_bytes)
{
    uint32_t fits = 0, too_many = c->stream[s].cells.used_end + 1;

    while (fits + 1 < too_many) {
        uint32_t middle = fits + (too_many - fits) / 2;

        if (fits_cut(c, s, middle, max_bytes))
            fits = middle;
        else
            too_many = middle;
    }
    return fits;
}

/* The stream idle for longest that was not picked yet; n_stream: none. */
static uint32_t longest_idle(const kvl_vacating *v)
{
    const kvlazy_cache *c = v->cache;
    uint32_t next = c->params.n_stream;

    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        uint64_t at = c->stream[s].active_ms;
        bool is_left = v->picked == c->params.n_stream || at > v->asked_ms || (at == v->asked_ms && s > v->picked);

        if (is_left && (next == c->params.n_stream || at < c->stream[next].active_ms))
            next = s;
    }
    return next;
}

static kvl_evict_state vacate_bytes(kvl_vacating *v)
{
    kvlazy_cache *c = v->cache;
    uint32_t n_stream = c->params.n_stream, s = v->next;

    if (s < n_stream) {
        if (kvl_compact_stream_piece(c, s, v->goal.now_ms))
            return KVL_EVICT_MORE;
        v->next = n_stream;
        return ask_from(v, s, largest_fit(c, s, v->goal.max_bytes));
    }
    kvl_keep_live(c->stream, c->params.n_stream);
    if (kvl_needed_bytes(c) <= v->goal.max_bytes)
        return KVL_EVICT_READY;
    v->next = longest_idle(v);
    if (v->next == n_stream)
        return KVL_EVICT_OUT_OF_REACH;
    v->picked = v->next;
    v->asked_ms = c->stream[v->next].active_ms;
    return KVL_EVICT_MORE;
}

kvl_evict_state kvl_vacate_step(kvl_vacating *v)
{
    if (v->goal.kind == KVL_GOAL_BYTES)
        return vacate_bytes(v);
    if (v->next < v->cache->params.n_stream)
        return vacate_stream(v);
    if (!v->cache->next)
        return KVL_EVICT_READY;
    v->cache = v->cache->next;
    v->next = 0;
    return KVL_EVICT_MORE;
}

/* ------------------------------------------------------------------------------------------- when */

uint64_t kvl_engine_cells_vacatable_in(const kvlazy_cache *c, uint64_t now_ms)
{
    uint64_t next = KVL_NEVER;

    for (uint32_t s = 0; may_vacate(c) && s < c->params.n_stream; s++) {
        const kvl_stream *stream = &c->stream[s];

        if (!kvl_policy_excess(stream->cells.n_used, c->params.kv_size_initial))
            continue;
        uint64_t in_ms = kvl_policy_until_idle(now_ms, stream->active_ms, c->params.slot_shrink_idle_ms);
        if (in_ms == KVL_NEVER)
            continue;
        in_ms = kvl_max(in_ms, stream->veto_ms > now_ms ? stream->veto_ms - now_ms : 0);
        if (in_ms) /* 0: it was asked just now, and the engine kept some all the same */
            next = kvl_min(next, in_ms);
    }
    return next;
}
