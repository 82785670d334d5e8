/* SPDX-License-Identifier: MIT */
/*
 * evict: see evict.h.
 *
 * A plan by count takes from one cache of the group after the other until each fits. A plan by bytes first finds how
 * many cells have to go: with one stream whose cells will be moved together that is arithmetic; else all that may go is
 * planned once, in order, and the shortest beginning of that order that suffices is searched.
 *
 * A veto takes one sequence out of the plan, and the plan goes on from there. A sequence that agreed keeps to what it
 * was asked about, whatever is planned later.
 */
#include "core/evict.h"
#include "core/clock.h"
#include "core/cover.h"
#include "core/loss.h"
#include "core/release.h"
#include "core/take.h"

#include <bsd/stdlib.h>

enum { PIECE_STEPS = 1 << 15 }; /* looks at an entry or an owner, a few tens of nanoseconds each */

/* ------------------------------------------------------------------------------------------- planning by bytes */

/* keep := as many cells as stay, at the beginning of the stream, where they will be once they are compacted. */
static void keep_compacted(kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_cells *cells = &c->stream[s].cells;
        uint64_t n = kvl_bits_count(cells->keep, 0, cells->n_cell);

        kvl_bits_fill(cells->keep, 0, n, true);
        kvl_bits_fill(cells->keep, n, cells->n_cell, false);
    }
}

static bool is_by_count(const kvlazy_params *params, const kvl_goal *goal)
{
    return goal->compacts && params->n_stream == 1;
}

/* Whether the pages of what stays fit when the first n_lose cells of the order are gone. */
static bool fits_without(kvlazy_cache *c, const kvl_goal *goal, uint64_t n_lose)
{
    kvl_keep_live(c->stream, c->params.n_stream);
    if (is_by_count(&c->params, goal)) {
        kvl_cells *cells = &c->stream[0].cells;

        kvl_bits_fill(cells->keep, 0, cells->n_used - n_lose, true);
        kvl_bits_fill(cells->keep, cells->n_used - n_lose, cells->n_cell, false);
    } else {
        if (n_lose && !c->evict.order) { /* for want of memory the plan is made for each look */
            kvl_loss_begin(c->group);
            c->group->losses.n_lose = n_lose;
            kvl_take(c, UINT64_MAX);
            kvl_loss_keep_rest(c);
        }
        for (uint64_t i = 0; c->evict.order && i < n_lose; i++)
            kvl_bit_clear(c->stream[c->evict.order[i].stream].cells.keep, c->evict.order[i].cell);
        if (goal->compacts)
            keep_compacted(c);
    }
    return kvl_needed_bytes(c) <= goal->max_bytes;
}

static kvl_evict_state start_search(kvlazy_cache *c, kvl_evict *e, uint64_t n_lose)
{
    kvl_losses *plan = &c->group->losses;
    bool fits = fits_without(c, &plan->goal, n_lose);

    if (!fits && !plan->goal.best_effort)
        return KVL_EVICT_OUT_OF_REACH;
    plan->n_lose = n_lose;
    e->few = 0;
    e->enough = n_lose;
    e->phase = fits ? KVL_EVICT_SEARCH : KVL_EVICT_TAKE; /* what does not suffice is planned already, or will be */
    if (!fits)
        kvl_loss_forget_order(&c->evict);
    return KVL_EVICT_MORE;
}

static kvl_evict_state start_bytes(kvlazy_cache *c, kvl_evict *e)
{
    kvl_losses *plan = &c->group->losses;
    uint64_t n_live = 0;

    plan->n_lose = 0;
    e->phase = KVL_EVICT_TAKE;
    if (fits_without(c, &(kvl_goal){.max_bytes = plan->goal.max_bytes, .compacts = plan->goal.compacts}, 0))
        return KVL_EVICT_MORE;
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        n_live += c->stream[s].cells.n_used;
    if (is_by_count(&c->params, &plan->goal))
        return start_search(c, e, n_live);
    c->evict.n_order = 0;
    c->evict.order = reallocarray(NULL, n_live + 1, sizeof *c->evict.order);
    if (!c->evict.order)
        return start_search(c, e, n_live);
    plan->n_lose = n_live;
    e->phase = KVL_EVICT_ALL;
    return KVL_EVICT_MORE;
}

static kvl_evict_state search(kvlazy_cache *c, kvl_evict *e)
{
    kvl_losses *plan = &c->group->losses;

    if (e->few + 1 < e->enough) {
        uint64_t middle = e->few + (e->enough - e->few) / 2;

        if (fits_without(c, &plan->goal, middle))
            e->enough = middle;
        else
            e->few = middle;
        return KVL_EVICT_MORE;
    }
    kvl_loss_begin(c->group);
    plan->n_lose = e->enough;
    e->phase = KVL_EVICT_TAKE;
    return KVL_EVICT_MORE;
}

/* ------------------------------------------------------------------------------------------- planning */

static kvl_evict_state start(kvlazy_cache *c, kvl_evict *e)
{
    kvl_loss_begin(c->group);
    if (c->group->losses.goal.kind == KVL_GOAL_BYTES)
        return start_bytes(c, e);
    e->phase = KVL_EVICT_TAKE;
    return KVL_EVICT_MORE;
}

static kvl_evict_state take_all(kvlazy_cache *c, kvl_evict *e, uint64_t until)
{
    return kvl_take(c, until) ? start_search(c, e, c->evict.n_order) : KVL_EVICT_MORE;
}

/* What one member of the group loses counts for the next one, since that loses the same tokens. */
static kvl_evict_state take(kvlazy_cache *c, kvl_evict *e, uint64_t until)
{
    const kvl_losses *plan = &c->group->losses;
    bool by_bytes = plan->goal.kind == KVL_GOAL_BYTES;

    for (kvlazy_cache *m = by_bytes ? c : c->group->first; m; m = by_bytes ? NULL : m->next)
        if (!kvl_take(m, until))
            return KVL_EVICT_MORE;
    e->phase = KVL_EVICT_QUESTIONS;
    if (!by_bytes || plan->goal.best_effort || !kvl_take_missing(c, 0))
        return KVL_EVICT_MORE;
    if (!plan->n_held || is_by_count(&c->params, &plan->goal))
        return KVL_EVICT_OUT_OF_REACH;
    e->phase = KVL_EVICT_START; /* others than the held ones may suffice, though they are not as many */
    return KVL_EVICT_MORE;
}

/* ------------------------------------------------------------------------------------------- asking */

/* Linked caches belong to one engine, so one of them asks. */
kvlazy_cache *kvl_evict_asker(kvlazy_cache *c)
{
    kvlazy_cache *asker = c->params.on_evict && !c->leaves ? c : c->group->first;

    while (asker && (!asker->params.on_evict || asker->leaves))
        asker = asker->next;
    return asker;
}

/* The sequence that is asked about loses that and no more. Its yes is noted before, for the answer may come when the
 * plan is stale. */
static kvl_evict_state ask(kvlazy_cache *c, kvl_evict *e, kvlazy_seq_id id)
{
    e->seq = id;
    e->new_pos_max = kvl_loss_end_of(c->group, id);
    kvl_loss_fix(c->group, id);
    kvl_loss_note_yes(c->group, id);
    c->group->losses.loss[id].asked = true;
    e->phase = KVL_EVICT_TAKE;
    return KVL_EVICT_ASK;
}

static kvl_evict_state next_question(kvlazy_cache *c, kvl_evict *e)
{
    kvl_losses *plan = &c->group->losses;

    while (kvl_evict_asker(c) && plan->question.n) {
        kvlazy_seq_id id = kvl_turns_take(&plan->question).seq;

        plan->loss[id].listed = false;
        if (plan->loss[id].fixed || !kvl_loss_any(c->group, id))
            continue;
        if (plan->n_held)
            kvl_loss_trim(c->group, id);
        if (kvl_loss_is_agreed(c->group, id)) {
            kvl_loss_fix(c->group, id);
            kvl_loss_note_yes(c->group, id);
            continue;
        }
        if (kvl_loss_any(c->group, id))
            return ask(c, e, id);
        e->phase = KVL_EVICT_TAKE; /* others may have to give what this one does not */
        return KVL_EVICT_MORE;
    }
    if (!plan->n_held || plan->goal.kind != KVL_GOAL_BYTES || is_by_count(&c->params, &plan->goal))
        return KVL_EVICT_READY;
    e->phase = KVL_EVICT_START; /* other cells go than were counted on */
    return KVL_EVICT_MORE;
}

void kvl_evict_begin(kvlazy_cache *c, kvl_evict *e, const kvl_goal *goal)
{
    kvl_losses *plan = &c->group->losses;

    plan->goal = *goal;
    for (uint32_t i = 0; i < c->params.n_seq_max; i++)
        plan->loss[i].asked = false;
    plan->curbed = false;
    *e = (kvl_evict){.phase = KVL_EVICT_START, .n_looked = plan->n_step};
}

kvl_evict_state kvl_evict_step(kvlazy_cache *c, kvl_evict *e)
{
    uint64_t from_ns = kvl_host_now_ns(&c->mem), until = c->group->losses.n_step + PIECE_STEPS;
    kvl_evict_state state = e->phase == KVL_EVICT_START    ? start(c, e)
                            : e->phase == KVL_EVICT_ALL    ? take_all(c, e, until)
                            : e->phase == KVL_EVICT_SEARCH ? search(c, e)
                            : e->phase == KVL_EVICT_TAKE   ? take(c, e, until)
                                                           : next_question(c, e);

    e->plan_ns += kvl_host_now_ns(&c->mem) - from_ns;
    e->n_piece++;
    return state;
}

bool kvl_evict_gives_way(const kvl_group *group, const kvl_evict *e)
{
    enum { FEW_PIECES = 8, FEW_STEPS = PIECE_STEPS / 16 }; /* tens of microseconds */

    return e->n_piece >= FEW_PIECES || group->losses.n_step - e->n_looked >= FEW_STEPS;
}

void kvl_evict_resume(kvl_group *group, kvl_evict *e)
{
    e->n_piece = 0;
    e->n_looked = group->losses.n_step;
    if (group->losses.n_changed == group->n_changed)
        return;
    e->phase = KVL_EVICT_START;
    e->n_restart++;
}

/* The answer of on_evict is for all the group. */
void kvl_evict_answer(kvl_group *group, kvl_evict *e, bool kept)
{
    bool stale = group->losses.n_changed != group->n_changed;

    if (kept) {
        group->losses.curbed = true;
        kvl_loss_forget_yes(group, e->seq);
        for (kvlazy_cache *m = group->first; m; m = m->next)
            m->seq[e->seq].veto_ms = group->losses.goal.now_ms + kvl_max(kvl_group_idle_ms(group), 1);
    }
    if (kept && !stale) {
        kvl_loss_take_back(group, e->seq);
        group->losses.n_held++;
    }
    kvl_evict_resume(group, e);
}

/* ------------------------------------------------------------------------------------------- doing */

/* Returns whether the sequence lost any. */
static bool drop(kvlazy_cache *c, kvlazy_seq_id id, uint64_t stamp)
{
    kvlazy_pos cut = c->group->losses.loss[id].cut, low_cut = c->evict.part[id].low_cut;
    kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    uint32_t n_used = cells->n_used;
    bool masked = low_cut && kvl_cells_rm(cells, id, 0, low_cut, stamp);
    bool tail = cut != INT32_MAX && kvl_cells_rm(cells, id, cut, INT32_MAX, stamp);
    kvl_seq *s = &c->seq[id];

    if (masked)
        s->lost_end = low_cut > s->lost_end ? low_cut : s->lost_end;
    if (tail && cut == 0)
        s->lost_end = 0; /* nothing is left that could miss it */
    s->evicted |= tail;
    c->counts.evicted_cells += n_used - cells->n_used;
    c->counts.n_evict += masked || tail;
    return masked || tail;
}

bool kvl_evict_apply(kvlazy_cache *c, const kvl_evict *e, uint64_t stamp)
{
    bool any = false;

    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++) {
        if (!drop(c, id, stamp))
            continue;
        kvl_seq_changed(c, id);
        kvl_stream_of(c, id)->drains = any = true;
    }
    if (any)
        kvl_histogram_add(&c->counts.evict_time, e->plan_ns);
    return any;
}

void kvl_evict_end(kvl_group *group)
{
    kvl_loss_end(group);
}
