/* SPDX-License-Identifier: MIT */
/*
 * hooks: the life of a batch. init_batch opens it, apply follows the plan that prepare made, undo takes one
 * ubatch back, end_batch stamps and lets memory go. On touched pages none of them asks the host for anything
 * but the time.
 */
#include "cache.h"

enum { AHEAD_CELLS = 32 };

/* ------------------------------------------------------------------------------------------- open and close */

void kvl_open_batch(kvlazy_cache *c)
{
    if (c->group->open)
        return;
    c->group->open = true;
    c->group->n_opened++;
}

void kvl_close_batch(kvlazy_cache *c)
{
    c->group->open = false;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        if (KVL_UNLIKELY(m->share.pool))
            kvl_settle_share(m); /* plans come to nothing now */
}

/* A batch brought some tokens to a stream, one or more: whether it decodes steadily. */
static void count_batch(kvl_stream *stream)
{
    if (stream->n_applied)
        stream->n_single = stream->n_applied == 1 ? stream->n_single + 1 : 0;
    stream->n_applied = 0;
}

/* A sequence that went on where it ended has seen what eviction left of it. */
static void stamp_active(kvlazy_cache *c, uint64_t now_ms)
{
    for (uint32_t i = 0; i < c->n_active; i++) {
        kvl_seq *s = &c->seq[c->active[i]];

        s->pending = false;
        if (kvl_index_of(c, c->active[i])->n)
            s->evicted = false;
        kvl_note_activity(c, c->active[i], now_ms);
        count_batch(kvl_stream_of(c, c->active[i]));
    }
    c->n_active = 0;
    for (uint32_t i = 0; kvl_is_outside(c) && i < c->params.n_stream; i++) {
        kvl_stream *stream = &c->stream[i];

        if (!stream->pending)
            continue;
        stream->pending = false;
        kvl_note_use(c, stream, now_ms);
        count_batch(stream);
    }
}

void kvl_settle_activity(kvlazy_cache *c, uint64_t now_ms)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        stamp_active(m, now_ms);
}

int kvlazy_init_batch(kvlazy_cache *c)
{
    if (kvl_enter_group(c))
        return KVLAZY_EINVAL;
    bool shrinks = (c->params.flags & KVLAZY_SHRINK_AT_INIT) && !c->group->asking;

    if (c->group->open || shrinks) {
        uint64_t now_ms = kvl_now(c);

        kvl_close_batch(c);
        kvl_settle_activity(c, now_ms);
        if (shrinks && c->params.slot_shrink_idle_ms)
            kvl_shrink_idle(c, now_ms, &(bool){false}); /* what is left for later, later finds */
    }
    kvl_open_batch(c);
    return kvl_leave(c, KVLAZY_OK);
}

static bool has_batch(const kvlazy_cache *c)
{
    if (c->group->open)
        return true;
    for (const kvlazy_cache *m = c->group->first; m; m = m->next)
        if (m->n_active) /* of a batch that a failed prepare closed */
            return true;
    return false;
}

int kvlazy_end_batch(kvlazy_cache *c)
{
    if (kvl_enter_group(c))
        return KVLAZY_EINVAL;
    if (has_batch(c)) {
        uint64_t now_ms = kvl_now(c);

        kvl_close_batch(c);
        kvl_settle_activity(c, now_ms);
        for (kvlazy_cache *m = c->group->first; m; m = m->next) {
            if (KVL_UNLIKELY(now_ms >= m->sync_due_ms))
                kvl_outside_sync(m, now_ms);
            kvl_decay(m, now_ms);
        }
    }
    return kvl_leave(c, KVLAZY_OK);
}

void kvl_count_refusal(kvlazy_cache *c, int status)
{
    c->n_refused_pos += status == KVLAZY_EPOS;
    c->n_refused_slot += status == KVLAZY_ENOSLOT;
    c->n_refused_budget += status == KVLAZY_EBUDGET;
    c->n_refused_memory += status == KVLAZY_ENOMEM;
}

/* ------------------------------------------------------------------------------------------- slots */

/* Only the pointers are compared, since a stale slot's arrays may be gone. */
kvl_plan_ubatch *kvl_find_slot(kvlazy_cache *c, const kvlazy_slot *slot)
{
    kvl_plan *p = &c->plan;
    uint32_t low = 0, high = p->n_ubatch;

    if (!slot || !high)
        return NULL;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if ((uintptr_t)(p->cell + p->ubatch[middle].token_begin) <= (uintptr_t)slot->cell)
            low = middle;
        else
            high = middle;
    }
    kvl_plan_ubatch *u = &p->ubatch[low];
    bool same = slot->cell == p->cell + u->token_begin && slot->stream == p->stream + u->token_begin &&
                slot->n_token == u->token_end - u->token_begin;
    return same ? u : NULL;
}

/* ------------------------------------------------------------------------------------------- apply */

/* The owners of a planned token, each once, are those of the ubatch, in its order. */
static bool same_owners(const kvl_plan *p, uint32_t token, const kvlazy_ubatch *u, uint32_t i)
{
    uint32_t at = kvl_plan_owner_begin(p, token), end = p->owner_end[token];

    if (KVL_UNLIKELY(!u->seq && !u->seq_id[i]))
        return false;
    if (KVL_LIKELY(u->seq || !u->n_seq_id))
        return at + 1 == end && p->owner[at].seq == (u->seq ? u->seq[i] : u->seq_id[i][0]);
    for (int32_t k = 0; k < u->n_seq_id[i]; k++) {
        if (at < end && p->owner[at].seq == u->seq_id[i][k]) {
            at++;
            continue;
        }
        bool again = false; /* named twice */
        for (uint32_t j = kvl_plan_owner_begin(p, token); j < at; j++)
            again |= p->owner[j].seq == u->seq_id[i][k];
        if (!again)
            return false;
    }
    return at == end;
}

bool kvl_is_planned(const kvl_plan *p, const kvl_plan_ubatch *b, const kvlazy_ubatch *u)
{
    if (u->n_token != b->token_end - b->token_begin || !u->pos || (!u->seq && !u->seq_id))
        return false;
    for (uint32_t i = 0; i < u->n_token; i++)
        if (u->pos[i] != p->pos[b->token_begin + i] || !same_owners(p, b->token_begin + i, u, i))
            return false;
    return true;
}

static bool may_fill(kvlazy_cache *c, uint32_t token)
{
    const kvl_plan *p = &c->plan;
    const kvl_cells *cells = &c->stream[p->stream[token]].cells;

    if (p->victim && p->victim[token].seq >= 0)
        return kvl_window_may_take(c, cells, p->cell[token], &p->victim[token]);
    return !kvl_cells_is_used(cells, p->cell[token]);
}

/* The ubatch is the planned one, its cells are free still, and its sequences end where the plan found them. */
static int check_apply(kvlazy_cache *c, const kvl_plan_ubatch *b, const kvlazy_ubatch *u)
{
    const kvl_plan *p = &c->plan;

    if (b->applied || !kvl_is_planned(p, b, u))
        return KVLAZY_EINVAL;
    for (uint32_t i = b->token_begin; i < b->token_end; i++)
        if (!may_fill(c, i))
            return KVLAZY_EINVAL;
    for (uint32_t k = kvl_plan_owner_begin(p, b->token_begin); k < p->owner_end[b->token_end - 1]; k++)
        if (p->owner[k].expect != KVL_EXPECT_ANY &&
            p->owner[k].expect != kvl_index_max(kvl_index_of(c, p->owner[k].seq)))
            return KVLAZY_EPOS;
    return KVLAZY_OK;
}

/* The only token of its stream in this ubatch. */
static bool is_alone(const kvl_run *run, uint32_t i, uint32_t n_run)
{
    return run[i].end - run[i].begin == 1 && (!i || run[i - 1].stream != run[i].stream) &&
           (i + 1 == n_run || run[i + 1].stream != run[i].stream);
}

/* Steady decode, one token a batch: some cells more are made ready, so that most tokens find their pages there. They
 * count like cells that just emptied. Only cells right behind, which hold nothing, in arrays that are there; and only
 * for a batch of one ubatch, so that no page is taken that was planned for another. */
static uint32_t cells_ahead(kvlazy_cache *c, const kvl_run *run)
{
    kvl_stream *stream = &c->stream[run->stream];
    uint32_t end = (uint32_t)kvl_min((uint64_t)run->end + AHEAD_CELLS, c->params.kv_size);

    if (!c->commits_ahead || c->plan.n_ubatch > 1 || stream->n_single < 2 || stream->n_applied ||
        kvl_cells_reserve(&stream->cells, end))
        return 0;
    return (uint32_t)kvl_bits_next(stream->cells.used, run->end, end, true) - run->end;
}

bool kvl_reach_ahead(kvlazy_cache *c, kvl_run *run, uint32_t n_run)
{
    uint32_t n_ahead = 0;

    for (uint32_t i = 0; i < n_run; i++) {
        uint32_t n = is_alone(run, i, n_run) ? cells_ahead(c, &run[i]) : 0;

        n_ahead += n;
        run[i].end += n;
    }
    return n_ahead > 0;
}

bool kvl_touch_ahead(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    if (kvl_want_runs(c, run, n_run) || !kvl_may_touch(c, kvl_touched_pages(c) + kvl_gathered_pages(c)) ||
        kvl_touch_gathered(c, run, n_run))
        return false;
    uint64_t now_ms = kvl_now(c);
    for (uint32_t i = 0; i < n_run; i++)
        kvl_cells_ahead(&c->stream[run[i].stream].cells, run[i].begin, run[i].end, kvl_stamp(c, now_ms));
    kvl_note_fallow(c, now_ms);
    return true;
}

/* The pages of a ubatch's rows are touched. KVLAZY_ENOMEM: as they were. */
static int touch_rows(kvlazy_cache *c, const kvl_plan_ubatch *b)
{
    uint32_t n_run = kvl_plan_runs(c, b->token_begin, b->token_end);

    if (KVL_LIKELY(kvl_is_ready(c, c->plan.run, n_run)))
        return KVLAZY_OK;
    int status = kvl_want_runs(c, c->plan.run, n_run);
    if (!status && !kvl_gathered_pages(c)) /* touched all the same: cells ahead are not worth a call to the host */
        return kvl_touch_gathered(c, c->plan.run, n_run);
    if (!status && kvl_reach_ahead(c, c->plan.run, n_run)) {
        if (kvl_touch_ahead(c, c->plan.run, n_run))
            return KVLAZY_OK;
        n_run = kvl_plan_runs(c, b->token_begin, b->token_end);
        status = kvl_want_runs(c, c->plan.run, n_run);
    }
    if (!status)
        status = kvl_fit_runs(c, c->plan.run, n_run); /* prepare saw to it, but for a copy since */
    return status ? status : kvl_touch_gathered(c, c->plan.run, n_run);
}

/* Planes y and x of a token; what a fourth plane says, nobody asks. */
static void record_planes(const kvlazy_cache *c, kvl_cells *cells, uint32_t cell, const kvlazy_ubatch *u, uint32_t i)
{
    size_t stride = u->pos_stride ? u->pos_stride : u->n_token;

    if (c->params.n_pos_per_token == 1)
        return;
    cells->ext_y[cell] = u->pos[stride + i];
    cells->ext_x[cell] = u->pos[2 * stride + i];
}

/* Nothing here can fail: prepare made the room. */
static void record(kvlazy_cache *c, kvl_plan_ubatch *b, const kvlazy_ubatch *u)
{
    const kvl_plan *p = &c->plan;

    kvl_window_take(c, b);
    for (uint32_t i = b->token_begin; i < b->token_end; i++) {
        kvl_cells *cells = &c->stream[p->stream[i]].cells;

        kvl_cells_put(cells, p->cell[i], p->pos[i]);
        c->stream[p->stream[i]].n_applied++;
        record_planes(c, cells, p->cell[i], u, i - b->token_begin);
        for (uint32_t k = kvl_plan_owner_begin(p, i); k < p->owner_end[i]; k++) {
            kvlazy_seq_id seq = p->owner[k].seq;

            if (p->pos[i] == 0)
                c->seq[seq].lost_end = 0; /* it begins anew */
            kvl_cells_own(cells, p->cell[i], seq);
            if (!c->seq[seq].pending) {
                c->seq[seq].pending = true;
                c->active[c->n_active++] = seq;
            }
        }
    }
    for (uint32_t i = b->token_begin; i < b->token_end; i++)
        kvl_follow_cap(c, &c->stream[p->stream[i]]);
    b->applied = true;
}

void kvl_follow_cap(kvlazy_cache *c, kvl_stream *stream)
{
    const kvlazy_params *p = &c->params;

    if (KVL_UNLIKELY(stream->cells.used_end > stream->cap_said))
        kvl_say_cap(c, stream, kvl_policy_cap(p->kv_size, p->kv_size_initial, p->n_pad, stream->cells.used_end));
}

int kvlazy_apply_ubatch(kvlazy_cache *c, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch)
{
    if (kvl_enter(c))
        return KVLAZY_EINVAL;
    if (kvl_is_outside(c))
        return kvl_leave(c, KVLAZY_ENOTSUP);
    kvl_plan_ubatch *b = c->group->open && ubatch ? kvl_find_slot(c, slot) : NULL;
    if (!b)
        return kvl_leave(c, KVLAZY_EINVAL);

    int status = check_apply(c, b, ubatch);
    if (!status)
        status = touch_rows(c, b);
    if (status) {
        kvl_count_refusal(c, status);
        return kvl_leave(c, status);
    }
    record(c, b, ubatch);
    return kvl_leave(c, KVLAZY_OK);
}

bool kvl_still_holds(const kvl_cells *cells, const kvl_plan *p, uint32_t token)
{
    uint32_t cell = p->cell[token];

    if (!kvl_cells_is_used(cells, cell) || cells->pos[cell] != p->pos[token])
        return false;
    for (uint32_t k = kvl_plan_owner_begin(p, token); k < p->owner_end[token]; k++)
        if (kvl_cells_owns(cells, cell, p->owner[k].seq))
            return true;
    return false;
}

int kvlazy_undo_ubatch(kvlazy_cache *c, const kvlazy_slot *slot)
{
    if (kvl_enter(c))
        return KVLAZY_EINVAL;
    if (kvl_is_outside(c))
        return kvl_leave(c, KVLAZY_ENOTSUP);
    kvl_plan_ubatch *b = kvl_find_slot(c, slot);
    if (!b)
        return kvl_leave(c, KVLAZY_EINVAL);
    if (!b->applied)
        return kvl_leave(c, KVLAZY_OK);

    uint64_t now_ms = kvl_now(c);
    for (uint32_t i = b->token_begin; i < b->token_end; i++) {
        kvl_cells *cells = &c->stream[c->plan.stream[i]].cells;

        if (kvl_still_holds(cells, &c->plan, i)) /* else the engine removed it since */
            kvl_cells_empty(cells, c->plan.cell[i], kvl_stamp(c, now_ms));
    }
    b->applied = false;
    kvl_window_give_up(c, b, now_ms);
    kvl_note_fallow(c, now_ms);
    return kvl_leave(c, KVLAZY_OK);
}

/* ------------------------------------------------------------------------------------------- n_kv */

uint32_t kvl_slot_n_kv(const kvlazy_cache *c, const kvl_plan_ubatch *b)
{
    uint32_t end = 0;

    for (uint32_t i = b->token_begin; i < b->token_end; i++) {
        uint32_t live_end = c->stream[c->plan.stream[i]].cells.used_end;

        end = live_end > end ? live_end : end;
        end = c->plan.cell[i] >= end ? c->plan.cell[i] + 1 : end;
    }
    return kvl_policy_n_kv(c->params.kv_size, c->params.n_pad, end);
}

void kvl_note_read(kvlazy_cache *c, const kvl_plan_ubatch *b, uint32_t n_kv)
{
    uint32_t end = (uint32_t)kvl_min(n_kv, c->params.kv_size);

    for (uint32_t i = b->token_begin; i < b->token_end; i++) {
        kvl_stream *stream = &c->stream[c->plan.stream[i]];

        stream->read_end = end > stream->read_end ? end : stream->read_end;
    }
}

uint32_t kvlazy_n_kv(const kvlazy_cache *cache, const kvlazy_slot *slot)
{
    kvlazy_cache *c = (kvlazy_cache *)(uintptr_t)cache; /* it notes what will be read */

    if (kvl_enter(c))
        return 0;
    const kvl_plan_ubatch *b = kvl_find_slot(c, slot);
    uint32_t n_kv = b ? kvl_slot_n_kv(c, b) : 0;

    if (b)
        kvl_note_read(c, b, n_kv);
    kvl_leave(c, KVLAZY_OK);
    return n_kv;
}
