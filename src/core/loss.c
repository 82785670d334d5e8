/* SPDX-License-Identifier: MIT */
/* loss: see loss.h. The plan itself and what it says of each sequence; what it takes is in loss_cut.c. */
#include "core/loss.h"
#include "core/cache.h"

/* ------------------------------------------------------------------------------------------- an agreement that holds
 */

/* Tokens come and go, and each way something of this changes. */
static uint64_t generation_of(const kvl_group *group, kvlazy_seq_id id, uint64_t *n_token)
{
    uint64_t generation = 0;

    *n_token = 0;
    for (kvlazy_cache *m = group->first; m; m = m->next) {
        generation += m->seq[id].generation;
        *n_token += kvl_index_of(m, id)->n;
    }
    return generation;
}

bool kvl_loss_yes_holds(const kvl_group *group, kvlazy_seq_id id)
{
    const kvl_loss *loss = kvl_loss_of(group, id);
    uint64_t n_token;

    return loss->yes && !loss->loose && loss->yes_generation == generation_of(group, id, &n_token) &&
           loss->yes_tokens == n_token;
}

bool kvl_loss_is_agreed(const kvl_group *group, kvlazy_seq_id id)
{
    const kvl_loss *loss = kvl_loss_of(group, id);

    for (const kvlazy_cache *m = group->first; m; m = m->next)
        if (m->evict.part[id].low_cut != m->evict.part[id].yes_low)
            return false;
    return loss->yes && loss->loose && loss->cut == loss->yes_cut;
}

void kvl_loss_note_yes(kvl_group *group, kvlazy_seq_id id)
{
    kvl_loss *loss = kvl_loss_of(group, id);

    loss->yes = true;
    loss->loose = false;
    loss->yes_cut = loss->cut;
    loss->yes_generation = generation_of(group, id, &loss->yes_tokens);
    for (kvlazy_cache *m = group->first; m; m = m->next)
        m->evict.part[id].yes_low = m->evict.part[id].low_cut;
}

void kvl_loss_forget_yes(kvl_group *group, kvlazy_seq_id id)
{
    kvl_loss_of(group, id)->yes = false;
}

/* ------------------------------------------------------------------------------------------- what a sequence loses */

bool kvl_loss_stands(kvlazy_cache *c, kvlazy_seq_id id)
{
    return !kvl_loss_of(c->group, id)->fixed && c->evict.part[id].may_lose && !kvl_loss_yes_holds(c->group, id);
}

uint32_t kvl_loss_n_below(kvlazy_cache *c, kvlazy_seq_id id)
{
    return (uint32_t)kvl_min(c->evict.part[id].n_end, kvl_index_of(c, id)->n);
}

kvlazy_pos kvl_loss_end_in(kvlazy_cache *c, kvlazy_seq_id id)
{
    uint32_t n = kvl_loss_n_below(c, id);

    return n ? kvl_index_at(kvl_index_of(c, id), n - 1).pos : -1;
}

kvlazy_pos kvl_loss_end_of(kvl_group *group, kvlazy_seq_id id)
{
    kvlazy_pos end = -1;

    for (kvlazy_cache *m = group->first; m; m = m->next) {
        kvlazy_pos left = kvl_loss_end_in(m, id);
        end = left > end ? left : end;
    }
    return end;
}

bool kvl_loss_any(kvl_group *group, kvlazy_seq_id id)
{
    if (kvl_loss_of(group, id)->cut != INT32_MAX)
        return true;
    for (const kvlazy_cache *m = group->first; m; m = m->next)
        if (m->evict.part[id].low_cut)
            return true;
    return false;
}

void kvl_loss_offer_turn(kvlazy_cache *c, kvlazy_seq_id id)
{
    if (c->evict.part[id].waits || kvl_loss_of(c->group, id)->fixed || !c->evict.part[id].may_lose)
        return;
    c->evict.part[id].waits = true;
    kvl_turns_add(&c->evict.turns, kvl_turn_of(c->group, id));
}

/* ------------------------------------------------------------------------------------------- begin and end */

int kvl_losses_init(kvl_losses *p, uint32_t n_seq)
{
    p->loss = calloc(n_seq, sizeof *p->loss);
    p->question.turn = calloc(n_seq, sizeof *p->question.turn);
    if (p->loss && p->question.turn)
        return KVLAZY_OK;
    kvl_losses_fini(p);
    return KVLAZY_ENOMEM;
}

void kvl_losses_fini(kvl_losses *p)
{
    free(p->loss);
    free(p->question.turn);
    *p = (kvl_losses){0};
}

int kvl_eviction_init(kvl_eviction *e, uint32_t n_seq)
{
    e->part = calloc(n_seq, sizeof *e->part);
    e->turns.turn = calloc(n_seq, sizeof *e->turns.turn);
    e->turn = -1;
    if (e->part && e->turns.turn)
        return KVLAZY_OK;
    kvl_eviction_fini(e);
    return KVLAZY_ENOMEM;
}

static void free_scratch(kvl_eviction *e)
{
    free(e->tally);
    free(e->order);
    e->tally = NULL;
    e->order = NULL;
    e->n_tally = 0;
}

void kvl_loss_forget_order(kvl_eviction *eviction)
{
    free(eviction->order);
    eviction->order = NULL;
}

void kvl_eviction_fini(kvl_eviction *e)
{
    free_scratch(e);
    free(e->part);
    free(e->turns.turn);
    *e = (kvl_eviction){0};
}

static void begin_in(kvlazy_cache *c, const kvl_goal *goal)
{
    kvl_eviction *e = &c->evict;

    free_scratch(e);
    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++)
        e->part[id] = (kvl_part){
            .yes_low = e->part[id].yes_low, .n_end = kvl_index_of(c, id)->n, .may_lose = kvl_may_lose(c, goal, id)};
    e->turns.n = e->n_offered = 0;
    e->turn = -1;
    e->n_lost = 0;
}

/* What comes again by itself keeps to a yes of before, or a sequence that is decoded meanwhile, and makes each question
 * a new one, would put the eviction off for ever. A call that was made for a result asks for what that takes. */
static bool keeps_to_yes(const kvl_goal *goal)
{
    return goal->kind == KVL_GOAL_IDLE || goal->kind == KVL_GOAL_INITIAL || goal->best_effort;
}

/* One that was asked about and has changed since is not asked again: it stays as it is in this call. */
void kvl_loss_begin(kvl_group *group)
{
    kvl_losses *plan = &group->losses;
    bool keeps = keeps_to_yes(&plan->goal);

    for (uint32_t i = 0; i < group->first->params.n_seq_max; i++) {
        kvl_loss *loss = &plan->loss[i];

        loss->cut = INT32_MAX;
        loss->listed = false;
        loss->trimmed_at = 0;
        loss->loose = false;
        loss->yes = kvl_loss_yes_holds(group, (kvlazy_seq_id)i);
        loss->loose = loss->yes && !loss->asked && !keeps;
        loss->fixed = loss->asked && !loss->yes;
    }
    plan->question.n = plan->n_held = 0;
    plan->n_changed = group->n_changed;
    for (kvlazy_cache *m = group->first; m; m = m->next)
        begin_in(m, &plan->goal);
}

void kvl_loss_end(kvl_group *group)
{
    for (kvlazy_cache *m = group->first; m; m = m->next)
        free_scratch(&m->evict);
}
