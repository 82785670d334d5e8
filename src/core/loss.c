/* SPDX-License-Identifier: MIT */
/*
 * loss: see loss.h.
 *
 * A cell goes with its last owner, and counts as used by its most recent one: it is lost in that owner's turn, and then
 * for all, each of which it must be the last position left. So no sequence gets a gap. A sequence whose last position
 * is shared waits; the cell's tally says when all owners have come so far, and then tells the one whose turn it is. So
 * every entry of an index, and every owner of a cell, is looked at once for each time that it is lost or taken back.
 */
#include "core/loss.h"
#include "core/cache.h"
#include "core/cover.h"
#include "core/window.h"

static kvl_loss *loss_of(const kvlazy_cache *c, kvlazy_seq_id id)
{
    return &c->group->losses.loss[id];
}

static uint32_t *n_lost_of(kvlazy_cache *c, kvlazy_seq_id id)
{
    return &c->evict.part[kvl_stream_number(c, kvl_stream_of(c, id))].n_lost;
}

/* ------------------------------------------------------------------------------------------- which sequence stands
 * where */

/* Its plan is open, and it may lose one position after the other: one that on_evict agreed about goes at once. */
static bool stands(kvlazy_cache *c, kvlazy_seq_id id)
{
    return !loss_of(c, id)->fixed && c->evict.part[id].may_lose && !kvl_loss_yes_holds(c, id);
}

uint32_t kvl_loss_n_below(kvlazy_cache *c, kvlazy_seq_id id)
{
    return (uint32_t)kvl_min(c->evict.part[id].n_end, kvl_index_of(c, id)->n);
}

static void set_cut(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos cut)
{
    loss_of(c, id)->cut = cut;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        m->evict.part[id].n_end = kvl_index_below(kvl_index_of(m, id), cut);
}

kvlazy_pos kvl_loss_end_in(kvlazy_cache *c, kvlazy_seq_id id)
{
    uint32_t n = kvl_loss_n_below(c, id);

    return n ? kvl_index_at(kvl_index_of(c, id), n - 1).pos : -1;
}

kvlazy_pos kvl_loss_end_of(kvlazy_cache *c, kvlazy_seq_id id)
{
    kvlazy_pos end = -1;

    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        kvlazy_pos left = kvl_loss_end_in(m, id);
        end = left > end ? left : end;
    }
    return end;
}

bool kvl_loss_any(kvlazy_cache *c, kvlazy_seq_id id)
{
    if (loss_of(c, id)->cut != INT32_MAX)
        return true;
    for (const kvlazy_cache *m = c->group->first; m; m = m->next)
        if (m->evict.part[id].low_cut)
            return true;
    return false;
}

void kvl_loss_offer_turn(kvlazy_cache *c, kvlazy_seq_id id)
{
    if (c->evict.part[id].waits || loss_of(c, id)->fixed || !c->evict.part[id].may_lose)
        return;
    c->evict.part[id].waits = true;
    kvl_turns_add(&c->evict.turns, kvl_turn_of(c, id));
}

/* It loses something: on_evict is to be asked. */
static void list_question(kvlazy_cache *c, kvlazy_seq_id id)
{
    kvl_losses *plan = &c->group->losses;

    if (plan->loss[id].listed)
        return;
    plan->loss[id].listed = true;
    kvl_turns_add(&plan->question, kvl_turn_of(c, id));
}

/* ------------------------------------------------------------------------------------------- shared cells */

/* With tails a sequence is here when nothing lies above; where whole ones go each that may go is. */
static bool is_here(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos pos)
{
    return stands(c, id) && (kvl_goes_whole(c) || kvl_loss_end_in(c, id) == pos);
}

/* The tally of a cell at `pos`, counted when it is first looked at; NULL: for want of memory it stays. */
static kvl_tally *tally_of(kvlazy_cache *c, uint32_t cell, kvlazy_pos pos)
{
    kvl_eviction *e = &c->evict;
    const kvl_cells *cells = &c->stream[0].cells;

    if (!e->tally) {
        e->tally = calloc(cells->n_cell, sizeof *e->tally);
        e->n_tally = e->tally ? cells->n_cell : 0;
    }
    if (cell >= e->n_tally)
        return NULL;
    kvl_tally *t = &e->tally[cell];
    for (kvlazy_seq_id o = -1; !t->known && (o = kvl_cells_next_owner(cells, cell, o + 1)) >= 0;) {
        c->group->losses.n_step++;
        if (loss_of(c, o)->cut <= pos)
            continue;
        t->n_left++;
        t->n_here += is_here(c, o, pos);
    }
    t->known = true;
    return t;
}

static kvl_tally *known_tally(const kvlazy_cache *c, uint32_t cell)
{
    return cell < c->evict.n_tally && c->evict.tally[cell].known ? &c->evict.tally[cell] : NULL;
}

/* A sequence begins, or ceases, to be counted as here: at its last position, or in all of its cells. */
static void count_here(kvlazy_cache *c, kvlazy_seq_id id, int n)
{
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t end = kvl_loss_n_below(c, id);
    bool whole = kvl_goes_whole(c);

    if (!c->evict.tally || !stands(c, id))
        return;
    for (uint32_t i = end; i > 0 && (whole || kvl_index_at(index, i - 1).pos == kvl_index_at(index, end - 1).pos);
         i--) {
        kvl_tally *t = known_tally(c, kvl_index_at(index, i - 1).cell);

        c->group->losses.n_step++;
        if (!t)
            continue;
        t->n_here = (t->n_here + (uint32_t)n) & 0x3fffffff;
        t->told = false;
    }
}

/* All owners that are left have come so far: the one that was used last takes the cell. */
static void tell_youngest(kvlazy_cache *c, uint32_t cell, kvlazy_pos pos)
{
    const kvl_cells *cells = &c->stream[0].cells;
    kvl_tally *t = known_tally(c, cell);
    kvl_turn youngest = {0, -1};

    if (!t || t->told || !t->n_left || t->n_here != t->n_left)
        return;
    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, cell, o + 1)) >= 0;) {
        c->group->losses.n_step++;
        if (loss_of(c, o)->cut > pos && kvl_turn_is_before(youngest, kvl_turn_of(c, o)))
            youngest = kvl_turn_of(c, o);
    }
    t->told = true;
    if (youngest.seq >= 0)
        kvl_loss_offer_turn(c, youngest.seq);
}

void kvl_loss_tell_sharers(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos end)
{
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t i = kvl_index_below(index, kvl_loss_end_in(c, id)), stop = kvl_index_below(index, end);

    if (!c->evict.tally || kvl_goes_whole(c))
        return;
    for (; i < stop; i++) {
        c->group->losses.n_step++;
        tell_youngest(c, kvl_index_at(index, i).cell, kvl_index_at(index, i).pos);
    }
    kvl_loss_offer_turn(c, id);
}

bool kvl_loss_all_here(kvlazy_cache *c, uint32_t cell, kvlazy_pos pos)
{
    const kvl_tally *t = tally_of(c, cell, pos);

    return t && t->n_here == t->n_left;
}

/* No owner that the plan leaves the cell was used later. */
static bool is_youngest(kvlazy_cache *c, kvlazy_seq_id id, uint32_t cell, kvlazy_pos pos)
{
    const kvl_cells *cells = &c->stream[0].cells;
    kvl_turn turn = kvl_turn_of(c, id);

    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, cell, o + 1)) >= 0;) {
        c->group->losses.n_step++;
        if (loss_of(c, o)->cut > pos && kvl_turn_is_before(turn, kvl_turn_of(c, o)))
            return false;
    }
    return true;
}

bool kvl_loss_is_turn_of(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos pos)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t end = kvl_index_below(index, pos + 1);

    for (uint32_t i = kvl_index_below(index, pos); i < end; i++) {
        uint32_t cell = kvl_index_at(index, i).cell;

        c->group->losses.n_step++;
        if (kvl_cells_only_owner(cells, cell) != id &&
            (!kvl_loss_all_here(c, cell, pos) || !is_youngest(c, id, cell, pos)))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------------------- losing, and not */

static void note_lost(kvlazy_cache *c, kvlazy_seq_id id, uint32_t cell)
{
    kvl_eviction *e = &c->evict;

    ++*n_lost_of(c, id);
    e->n_lost++;
    if (e->order)
        e->order[e->n_order++] = (kvl_lost_cell){kvl_stream_number(c, kvl_stream_of(c, id)), cell};
}

/* What a sequence holds in one cache at [p0, p1) goes, from the end. Cells that it shares go with the last one. */
static void lose(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t begin = kvl_index_below(index, p0);

    for (uint32_t i = kvl_index_below(index, p1); i > begin; i--) {
        const kvl_entry e = kvl_index_at(index, i - 1);

        c->group->losses.n_step++;
        if (kvl_cells_only_owner(cells, e.cell) != id) {
            kvl_tally *t = tally_of(c, e.cell, e.pos);

            if (!t)
                continue;
            t->told = false;
            if (--t->n_left)
                continue;
        }
        note_lost(c, id, e.cell);
    }
}

/* The reverse, of what was lost. */
static void keep(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t end = kvl_index_below(index, p1);

    for (uint32_t i = kvl_index_below(index, p0); i < end; i++) {
        const kvl_entry e = kvl_index_at(index, i);

        c->group->losses.n_step++;
        if (kvl_cells_only_owner(cells, e.cell) != id) {
            kvl_tally *t = known_tally(c, e.cell);

            if (!t || t->n_left++)
                continue;
        }
        --*n_lost_of(c, id);
        c->evict.n_lost--;
    }
}

void kvl_loss_cut(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos pos, bool joint)
{
    kvl_loss *loss = loss_of(c, id);
    kvlazy_pos old = loss->cut;
    bool fixed = loss->fixed;

    if (old <= pos)
        return;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        count_here(m, id, -1);
    loss->fixed = true; /* on the way it is nowhere */
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        kvlazy_pos low_cut = m->evict.part[id].low_cut;
        lose(m, id, low_cut > pos ? low_cut : pos, old);
    }
    set_cut(c, id, pos);
    loss->fixed = fixed;
    list_question(c, id);
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        count_here(m, id, 1);
    for (kvlazy_cache *m = joint ? NULL : c->group->first; m; m = m->next)
        kvl_loss_tell_sharers(m, id, old);
}

void kvl_loss_cut_low(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos end)
{
    kvlazy_pos *low_cut = &c->evict.part[id].low_cut;

    if (end <= *low_cut)
        return;
    lose(c, id, *low_cut, end);
    *low_cut = end;
    list_question(c, id);
}

void kvl_loss_fix(kvlazy_cache *c, kvlazy_seq_id id)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        count_here(m, id, -1);
    loss_of(c, id)->fixed = true;
}

void kvl_loss_take_back(kvlazy_cache *c, kvlazy_seq_id id)
{
    kvl_loss *loss = loss_of(c, id);

    kvl_loss_fix(c, id);
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        kvlazy_pos *low_cut = &m->evict.part[id].low_cut;

        keep(m, id, 0, *low_cut);
        keep(m, id, loss->cut > *low_cut ? loss->cut : *low_cut, INT32_MAX);
        *low_cut = 0;
    }
    set_cut(c, id, INT32_MAX);
}

/* ------------------------------------------------------------------------------------------- what is of no use */

/* The cell is lost to a sequence and stays all the same, since another one keeps it. */
static bool is_kept_by_others(const kvlazy_cache *c, uint32_t cell)
{
    const kvl_tally *t = known_tally(c, cell);

    return t && t->n_left > 0;
}

/* Where a cut would free as much in one cache as it does now. */
static kvlazy_pos useful_cut(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_index *index = kvl_index_of(c, id);
    kvlazy_pos cut = loss_of(c, id)->cut;
    uint32_t begin = kvl_index_below(index, cut);

    for (uint32_t i = index->n; i > begin; i--) {
        c->group->losses.n_step++;
        if (is_kept_by_others(c, kvl_index_at(index, i - 1).cell))
            return i == index->n ? INT32_MAX : kvl_index_at(index, i - 1).pos + 1;
    }
    return cut;
}

static bool frees_some(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_index *index = kvl_index_of(c, id);

    for (uint32_t i = kvl_index_below(index, loss_of(c, id)->cut); i < index->n; i++) {
        c->group->losses.n_step++;
        if (!is_kept_by_others(c, kvl_index_at(index, i).cell))
            return true;
    }
    return false;
}

static void drop_bits(kvlazy_cache *c, kvlazy_seq_id id, uint32_t begin, uint32_t end)
{
    kvl_cells *cells = &kvl_stream_of(c, id)->cells;

    for (uint32_t i = begin; i < end; i++) {
        uint32_t cell = kvl_index_at(kvl_index_of(c, id), i).cell;
        const kvl_tally *t = known_tally(c, cell);

        if (kvl_cells_only_owner(cells, cell) == id || (t && !t->n_left))
            kvl_bit_clear(cells->keep, cell);
    }
}

void kvl_loss_keep_rest(kvlazy_cache *c)
{
    kvl_keep_live(c);
    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++) {
        drop_bits(c, id, 0, kvl_index_below(kvl_index_of(c, id), c->evict.part[id].low_cut));
        drop_bits(c, id, kvl_loss_n_below(c, id), kvl_index_of(c, id)->n);
    }
}

static void trim_whole(kvlazy_cache *c, kvlazy_seq_id id)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        if (frees_some(m, id))
            return;
    kvl_loss_take_back(c, id);
}

void kvl_loss_trim(kvlazy_cache *c, kvlazy_seq_id id)
{
    kvl_loss *loss = loss_of(c, id);
    kvlazy_pos cut = INT32_MAX;

    if (loss->cut == INT32_MAX)
        return;
    if (kvl_goes_whole(c)) {
        trim_whole(c, id);
        return;
    }
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        kvlazy_pos useful = useful_cut(m, id);
        cut = kvl_index_of(m, id)->n && useful < cut ? useful : cut;
    }
    if (cut == loss->cut)
        return;
    kvl_loss_fix(c, id);
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        keep(m, id, loss->cut, cut);
    set_cut(c, id, cut);
}

/* ------------------------------------------------------------------------------------------- a yes that holds */

/* Tokens come and go, and each way something of this changes. */
static uint64_t generation_of(const kvlazy_cache *c, kvlazy_seq_id id, uint64_t *n_token)
{
    uint64_t generation = 0;

    *n_token = 0;
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        generation += m->seq[id].generation;
        *n_token += kvl_index_of(m, id)->n;
    }
    return generation;
}

bool kvl_loss_yes_holds(const kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_loss *loss = loss_of(c, id);
    uint64_t n_token;

    return loss->yes && !loss->loose && loss->yes_generation == generation_of(c, id, &n_token) &&
           loss->yes_tokens == n_token;
}

bool kvl_loss_is_agreed(const kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_loss *loss = loss_of(c, id);

    for (const kvlazy_cache *m = c->group->first; m; m = m->next)
        if (m->evict.part[id].low_cut != m->evict.part[id].yes_low)
            return false;
    return loss->yes && loss->loose && loss->cut == loss->yes_cut;
}

void kvl_loss_note_yes(kvlazy_cache *c, kvlazy_seq_id id)
{
    kvl_loss *loss = loss_of(c, id);

    loss->yes = true;
    loss->loose = false;
    loss->yes_cut = loss->cut;
    loss->yes_generation = generation_of(c, id, &loss->yes_tokens);
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        m->evict.part[id].yes_low = m->evict.part[id].low_cut;
}

void kvl_loss_take_agreed(kvlazy_cache *c, kvlazy_seq_id id)
{
    c->group->losses.curbed = true;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        kvl_loss_cut_low(m, id, m->evict.part[id].yes_low);
    kvl_loss_cut(c, id, loss_of(c, id)->yes_cut, false);
    kvl_loss_fix(c, id);
}

void kvl_loss_forget_yes(kvlazy_cache *c, kvlazy_seq_id id)
{
    loss_of(c, id)->yes = false;
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

void kvl_loss_forget_order(kvlazy_cache *c)
{
    free(c->evict.order);
    c->evict.order = NULL;
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
void kvl_loss_begin(kvlazy_cache *c)
{
    kvl_losses *plan = &c->group->losses;
    bool keeps = keeps_to_yes(&plan->goal);

    for (uint32_t i = 0; i < c->params.n_seq_max; i++) {
        kvl_loss *loss = &plan->loss[i];

        loss->cut = INT32_MAX;
        loss->listed = false;
        loss->loose = false;
        loss->yes = kvl_loss_yes_holds(c, (kvlazy_seq_id)i);
        loss->loose = loss->yes && !loss->asked && !keeps;
        loss->fixed = loss->asked && !loss->yes;
    }
    plan->question.n = plan->n_held = 0;
    plan->n_changed = c->group->n_changed;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        begin_in(m, &plan->goal);
}

void kvl_loss_end(kvlazy_cache *c)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        free_scratch(&m->evict);
}
