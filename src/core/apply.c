/* SPDX-License-Identifier: MIT */
/* apply: see apply.h. */
#include "core/apply.h"
#include "core/ahead.h"
#include "core/batch.h"
#include "core/budget.h"
#include "core/cap.h"
#include "core/clock.h"
#include "core/seq.h"
#include "core/window.h"

/* ------------------------------------------------------------------------------------------- apply */

static bool may_fill(kvlazy_cache *c, uint32_t token)
{
    const kvl_plan *p = &c->plan;
    const kvl_cells *cells = &c->stream[p->stream[token]].cells;

    if (p->victim && p->victim[token].seq >= 0)
        return kvl_window_may_take(&c->params, cells, p->cell[token], &p->victim[token]);
    return !kvl_cells_is_used(cells, p->cell[token]);
}

/* Calls may have come between prepare and apply. The ubatch is the planned one, its cells are free still, and its
 * sequences end where the plan found them. */
static int check_apply(kvlazy_cache *c, const kvl_plan_ubatch *b, const kvlazy_ubatch *u)
{
    const kvl_plan *p = &c->plan;

    if (b->applied || !kvl_plan_matches(p, b, u))
        return KVLAZY_EINVAL;
    for (uint32_t i = b->token_begin; i < b->token_end; i++)
        if (!may_fill(c, i))
            return KVLAZY_EINVAL;
    for (uint32_t k = kvl_plan_owner_begin(p, b->token_begin); k < p->owner_end[b->token_end - 1]; k++)
        if (p->owner[k].expect != KVL_EXPECT_ANY &&
            (p->owner[k].expect != kvl_index_max(kvl_index_of(c, p->owner[k].seq)) ||
             (!p->restores && kvl_seq_must_start_anew(c, p->owner[k].seq))))
            return KVLAZY_EPOS;
    return KVLAZY_OK;
}

/* The pages of a ubatch's rows are touched. KVLAZY_ENOMEM: as they were. */
static int touch_rows(kvlazy_cache *c, kvl_plan_ubatch *b)
{
    uint32_t n_run = kvl_plan_runs(&c->plan, b->token_begin, b->token_end);

    b->left = false;
    if (KVL_LIKELY(kvl_rows_ready(&c->rows, c->plan.run, n_run)))
        return KVLAZY_OK;
    int status = kvl_rows_want(&c->rows, c->plan.run, n_run);
    if (!status &&
        !kvl_rows_gathered(&c->rows)) /* touched all the same: cells ahead are not worth a call to the host */
        return kvl_rows_touch(&c->rows, c->plan.run, n_run);
    if (!status && kvl_ahead_reach(c, c->plan.run, n_run)) {
        if (kvl_ahead_touch(c, c->plan.run, n_run))
            return KVLAZY_OK;
        n_run = kvl_plan_runs(&c->plan, b->token_begin, b->token_end);
        status = kvl_rows_want(&c->rows, c->plan.run, n_run);
    }
    if (!status)
        status = kvl_fit_runs(c, c->plan.run, n_run); /* prepare saw to it, but for a copy since */
    if (status)
        return status;
    b->left = kvl_ahead_leaves(c);
    return (b->left ? kvl_rows_touch_absent : kvl_rows_touch)(&c->rows, c->plan.run, n_run);
}

/* Planes y and x of a token; a fourth plane is not read. */
static void record_planes(const kvlazy_params *params, kvl_cells *cells, uint32_t cell, const kvlazy_ubatch *u,
                          uint32_t i)
{
    size_t stride = u->pos_stride ? u->pos_stride : u->n_token;

    if (params->n_pos_per_token == 1)
        return;
    cells->ext_y[cell] = u->pos[stride + i];
    cells->ext_x[cell] = u->pos[2 * stride + i];
}

/* A later ubatch may take the cells of an earlier one, where a window recycles them. */
static void forget_taken(kvl_plan *plan, const kvl_plan_ubatch *b)
{
    if (plan->victim && plan->n_ubatch > 1)
        kvl_plan_forget(plan, plan->run, kvl_plan_runs(plan, b->token_begin, b->token_end));
}

/* Nothing here can fail: the room was made. */
static void record(kvlazy_cache *c, kvl_plan_ubatch *b, const kvlazy_ubatch *u)
{
    const kvl_plan *p = &c->plan;

    forget_taken(&c->plan, b);
    kvl_window_take(c, b);
    for (uint32_t i = b->token_begin; i < b->token_end; i++) {
        kvl_cells *cells = &c->stream[p->stream[i]].cells;

        kvl_cells_put(cells, p->cell[i], p->pos[i]);
        p->filled[i] = true;
        c->stream[p->stream[i]].n_applied++;
        record_planes(&c->params, cells, p->cell[i], u, i - b->token_begin);
        for (uint32_t k = kvl_plan_owner_begin(p, i); k < p->owner_end[i]; k++) {
            kvlazy_seq_id seq = p->owner[k].seq;

            if (p->pos[i] == 0)
                c->seq[seq].lost_end = 0; /* it begins anew */
            kvl_cells_own(cells, p->cell[i], seq);
            kvl_batch_note(c, seq, p->pos[i]);
        }
    }
    for (uint32_t i = b->token_begin; i < b->token_end; i++)
        kvl_follow_cap(c, &c->stream[p->stream[i]]);
    b->applied = true;
}

/* What prepare made room for has it still, if no other call came in since. Where a window takes tokens first, these may
 * need some of it. */
static bool has_room(const kvlazy_cache *c)
{
    return c->group->n_entered == c->plan.entered + 1 && !c->plan.victim;
}

int kvl_apply(kvlazy_cache *c, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch)
{
    bool open = c->group->open && c->plan.batch == c->group->n_opened;
    kvl_plan_ubatch *b = open && ubatch ? kvl_plan_find(&c->plan, slot) : NULL;

    if (!b)
        return KVLAZY_EINVAL;
    int status = check_apply(c, b, ubatch);
    if (!status && !has_room(c))
        status = kvl_plan_reserve_cells(c, b->token_begin, b->token_end);
    if (!status)
        status = touch_rows(c, b);
    if (status) {
        kvl_count_refusal(&c->counts, status);
        return status;
    }
    record(c, b, ubatch);
    kvl_ahead_expect(c, b);
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- undo */

static void take_back(kvlazy_cache *c, kvl_plan_ubatch *b, uint64_t now_ms)
{
    for (uint32_t i = b->token_begin; i < b->token_end; i++) {
        kvl_cells *cells = &c->stream[c->plan.stream[i]].cells;

        if (kvl_plan_still_holds(cells, &c->plan, i)) { /* else the engine removed it since */
            kvl_window_note_undone(c, cells, c->plan.cell[i]);
            kvl_owners_changed(c, cells, c->plan.cell[i]); /* a copy made since has an owner more */
            kvl_cells_empty(cells, c->plan.cell[i], now_ms);
        }
        c->plan.filled[i] = false;
    }
    b->applied = false;
    kvl_window_give_up(c, b, now_ms);
    kvl_note_fallow(c, now_ms);
}

int kvl_undo(kvlazy_cache *c, const kvlazy_slot *slot)
{
    kvl_plan_ubatch *b = kvl_plan_find(&c->plan, slot);

    if (!b)
        return KVLAZY_EINVAL;
    if (b->applied)
        take_back(c, b, kvl_now(c));
    return KVLAZY_OK;
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
    for (uint32_t i = b->token_begin; i < b->token_end; i++)
        kvl_rows_note_read(&c->rows, c->plan.stream[i], (uint32_t)kvl_min(n_kv, c->params.kv_size));
}
