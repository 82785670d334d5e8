/* SPDX-License-Identifier: MIT */
/*
 * loss_cut: what of loss.h takes tokens into a plan of eviction, and takes parts of the plan back.
 *
 * A cell goes with its last owner, and counts as used by its most recent one. It is lost in that owner's turn, and then
 * for every owner; so it must be the last position left of each, and no sequence gets a gap. A sequence whose last
 * position is shared waits. The cell's tally says when all owners have come so far, and then offers the turn to the
 * owner that was used last. So every entry of an index, and every owner of a cell, is looked at once for each time that
 * it is lost or taken back.
 */
#include "core/cache.h"
#include "core/cover.h"
#include "core/loss.h"
#include "core/tally.h"

static uint32_t *n_lost_of(kvlazy_cache *c, kvlazy_seq_id id)
{
    return &c->evict.part[kvl_stream_number(c, kvl_stream_of(c, id))].n_lost;
}

static void set_cut(kvl_group *group, kvlazy_seq_id id, kvlazy_pos cut)
{
    kvl_loss_of(group, id)->cut = cut;
    for (kvlazy_cache *m = group->first; m; m = m->next)
        m->evict.part[id].n_end = kvl_index_below(kvl_index_of(m, id), cut);
}

/* The sequence loses some: on_evict is to be asked about it. */
static void list_question(kvl_group *group, kvlazy_seq_id id)
{
    kvl_losses *plan = &group->losses;

    if (plan->loss[id].listed)
        return;
    plan->loss[id].listed = true;
    kvl_turns_add(&plan->question, kvl_turn_of(group, id));
}

/* ------------------------------------------------------------------------------------------- losing, and taking back
 */

static void note_lost(kvlazy_cache *c, kvlazy_seq_id id, uint32_t cell)
{
    kvl_eviction *e = &c->evict;

    ++*n_lost_of(c, id);
    e->n_lost++;
    if (e->order)
        e->order[e->n_order++] = (kvl_lost_cell){kvl_stream_number(c, kvl_stream_of(c, id)), cell};
}

/* A sequence loses what it holds in one cache at [p0, p1), from the end. A cell that it shares goes with its last
 * owner.
 */
static void lose(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t begin = kvl_index_below(index, p0);

    for (uint32_t i = kvl_index_below(index, p1); i > begin; i--) {
        const kvl_entry e = kvl_index_at(index, i - 1);

        c->group->losses.n_step++;
        if (kvl_cells_only_owner(cells, e.cell) != id) {
            kvl_tally *t = kvl_tally_of(c, e.cell, e.pos);

            if (!t)
                continue;
            t->told = false;
            if (--t->n_left)
                continue;
        }
        note_lost(c, id, e.cell);
    }
}

/* A sequence keeps, after all, what it was to lose in one cache at [p0, p1). */
static void keep(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t end = kvl_index_below(index, p1);

    for (uint32_t i = kvl_index_below(index, p0); i < end; i++) {
        const kvl_entry e = kvl_index_at(index, i);

        c->group->losses.n_step++;
        if (kvl_cells_only_owner(cells, e.cell) != id) {
            kvl_tally *t = kvl_tally_known(&c->evict, e.cell);

            if (!t || t->n_left++)
                continue;
        }
        --*n_lost_of(c, id);
        c->evict.n_lost--;
    }
}

void kvl_loss_cut(kvl_group *group, kvlazy_seq_id id, kvlazy_pos pos, bool joint)
{
    kvl_loss *loss = kvl_loss_of(group, id);
    kvlazy_pos old = loss->cut;
    bool fixed = loss->fixed;

    if (old <= pos)
        return;
    for (kvlazy_cache *m = group->first; m; m = m->next)
        kvl_tally_count_here(m, id, -1);
    loss->fixed = true; /* between two positions the sequence counts as here at neither */
    for (kvlazy_cache *m = group->first; m; m = m->next) {
        kvlazy_pos low_cut = m->evict.part[id].low_cut;
        lose(m, id, low_cut > pos ? low_cut : pos, old);
    }
    set_cut(group, id, pos);
    loss->fixed = fixed;
    list_question(group, id);
    for (kvlazy_cache *m = group->first; m; m = m->next)
        kvl_tally_count_here(m, id, 1);
    for (kvlazy_cache *m = joint ? NULL : group->first; m; m = m->next)
        kvl_tally_tell_sharers(m, id, old);
}

void kvl_loss_cut_low(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos end)
{
    kvlazy_pos *low_cut = &c->evict.part[id].low_cut;

    if (end <= *low_cut)
        return;
    lose(c, id, *low_cut, end);
    *low_cut = end;
    list_question(c->group, id);
}

void kvl_loss_fix(kvl_group *group, kvlazy_seq_id id)
{
    for (kvlazy_cache *m = group->first; m; m = m->next)
        kvl_tally_count_here(m, id, -1);
    kvl_loss_of(group, id)->fixed = true;
}

void kvl_loss_take_back(kvl_group *group, kvlazy_seq_id id)
{
    kvl_loss *loss = kvl_loss_of(group, id);

    kvl_loss_fix(group, id);
    for (kvlazy_cache *m = group->first; m; m = m->next) {
        kvlazy_pos *low_cut = &m->evict.part[id].low_cut;

        keep(m, id, 0, *low_cut);
        keep(m, id, loss->cut > *low_cut ? loss->cut : *low_cut, INT32_MAX);
        *low_cut = 0;
    }
    set_cut(group, id, INT32_MAX);
}

void kvl_loss_take_agreed(kvl_group *group, kvlazy_seq_id id)
{
    group->losses.curbed = true;
    for (kvlazy_cache *m = group->first; m; m = m->next)
        kvl_loss_cut_low(m, id, m->evict.part[id].yes_low);
    kvl_loss_cut(group, id, kvl_loss_of(group, id)->yes_cut, false);
    kvl_loss_fix(group, id);
}

/* ------------------------------------------------------------------------------------------- cuts that free no cell */

/* Another sequence keeps the cell, so it stays though this one loses it. */
static bool is_kept_by_others(const kvl_eviction *eviction, uint32_t cell)
{
    const kvl_tally *t = kvl_tally_known(eviction, cell);

    return t && t->n_left > 0;
}

/* The highest cut of a sequence that frees as much in one cache as the cut it has now. */
static kvlazy_pos useful_cut(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_index *index = kvl_index_of(c, id);
    kvlazy_pos cut = kvl_loss_of(c->group, id)->cut;
    uint32_t begin = kvl_index_below(index, cut);

    for (uint32_t i = index->n; i > begin; i--) {
        c->group->losses.n_step++;
        if (is_kept_by_others(&c->evict, kvl_index_at(index, i - 1).cell))
            return i == index->n ? INT32_MAX : kvl_index_at(index, i - 1).pos + 1;
    }
    return cut;
}

static bool frees_some(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_index *index = kvl_index_of(c, id);

    for (uint32_t i = kvl_index_below(index, kvl_loss_of(c->group, id)->cut); i < index->n; i++) {
        c->group->losses.n_step++;
        if (!is_kept_by_others(&c->evict, kvl_index_at(index, i).cell))
            return true;
    }
    return false;
}

static void drop_bits(kvlazy_cache *c, kvlazy_seq_id id, uint32_t begin, uint32_t end)
{
    kvl_cells *cells = &kvl_stream_of(c, id)->cells;

    for (uint32_t i = begin; i < end; i++) {
        uint32_t cell = kvl_index_at(kvl_index_of(c, id), i).cell;
        const kvl_tally *t = kvl_tally_known(&c->evict, cell);

        if (kvl_cells_only_owner(cells, cell) == id || (t && !t->n_left))
            kvl_bit_clear(cells->keep, cell);
    }
}

void kvl_loss_keep_rest(kvlazy_cache *c)
{
    kvl_keep_live(c->stream, c->params.n_stream);
    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++) {
        drop_bits(c, id, 0, kvl_index_below(kvl_index_of(c, id), c->evict.part[id].low_cut));
        drop_bits(c, id, kvl_loss_n_below(c, id), kvl_index_of(c, id)->n);
    }
}

/* What was taken back whole may go after all: with a sequence that shares its cells, once a veto makes that one's turn
 * come. Only the second time without a veto between is the last. */
static void offer_again(kvl_group *group, kvlazy_seq_id id)
{
    kvl_loss *loss = kvl_loss_of(group, id);
    bool again = loss->trimmed_at != group->losses.n_held + 1;

    loss->trimmed_at = group->losses.n_held + 1;
    loss->fixed = !again;
    for (kvlazy_cache *m = again ? group->first : NULL; m; m = m->next) {
        kvl_tally_count_here(m, id, 1);
        kvl_loss_offer_turn(m, id);
    }
}

static void trim_whole(kvl_group *group, kvlazy_seq_id id)
{
    for (kvlazy_cache *m = group->first; m; m = m->next)
        if (frees_some(m, id))
            return;
    kvl_loss_take_back(group, id);
    offer_again(group, id);
}

void kvl_loss_trim(kvl_group *group, kvlazy_seq_id id)
{
    kvl_loss *loss = kvl_loss_of(group, id);
    kvlazy_pos cut = INT32_MAX;

    if (loss->cut == INT32_MAX)
        return;
    if (kvl_goes_whole(group)) {
        trim_whole(group, id);
        return;
    }
    for (kvlazy_cache *m = group->first; m; m = m->next) {
        kvlazy_pos useful = useful_cut(m, id);
        cut = kvl_index_of(m, id)->n && useful < cut ? useful : cut;
    }
    if (cut == loss->cut)
        return;
    kvl_loss_fix(group, id);
    for (kvlazy_cache *m = group->first; m; m = m->next)
        keep(m, id, loss->cut, cut);
    set_cut(group, id, cut);
}
