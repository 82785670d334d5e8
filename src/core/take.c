/* SPDX-License-Identifier: MIT */
/*
 * take: see take.h.
 *
 * A turn is over when its sequence may give no more, and it gives all it may before the next one gives any. Sharing can
 * make a sequence wait for a younger one; when that one gave something, the older one has another turn.
 */
#include "core/take.h"
#include "core/cache.h"
#include "core/loss.h"
#include "core/tally.h"
#include "core/window.h"

enum { PIECE_CELLS = 4096 }; /* that one turn takes at a time */

static void step(kvl_group *group)
{
    group->losses.n_step++;
}

static kvlazy_pos cut_of(const kvl_group *group, kvlazy_seq_id id)
{
    return group->losses.loss[id].cut;
}

/* ------------------------------------------------------------------------------------------- tails */

/* Where to cut the tail that no other sequence shares: it goes in one piece, up to n_lose cells and the other cells of
 * the lowest position among them. */
static kvlazy_pos unshared_tail(kvlazy_cache *c, kvlazy_seq_id id, uint64_t n_lose)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    kvlazy_pos cut = cut_of(c->group, id);
    uint64_t n = 0;

    for (uint32_t i = kvl_loss_n_below(c, id); i-- > 0; n++) {
        const kvl_entry e = kvl_index_at(index, i);

        step(c->group);
        if (kvl_cells_only_owner(cells, e.cell) != id)
            return cut > e.pos ? cut : e.pos + 1; /* of a position all cells go or none */
        if ((n >= n_lose && e.pos < cut) || !kvl_may_go_from(c->group, e.pos))
            break;
        cut = e.pos;
    }
    return cut;
}

/* Every owner of the cells that a sequence holds at its last position loses that position. */
static void cut_owners(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos pos)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t begin = kvl_index_below(index, pos), end = kvl_index_below(index, pos + 1);

    for (uint32_t i = begin; i < end; i++)
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, kvl_index_at(index, i).cell, o + 1)) >= 0;)
            kvl_loss_cut(c->group, o, pos, true);
    for (uint32_t i = begin; i < end; i++)
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, kvl_index_at(index, i).cell, o + 1)) >= 0;)
            for (kvlazy_cache *m = c->group->first; m; m = m->next)
                kvl_tally_tell_sharers(m, o, pos + 1);
}

/* Takes the last positions of a sequence, all cells of each, from it and from those that share them. */
static void take_tail(kvlazy_cache *c, kvlazy_seq_id id, uint64_t n_lose)
{
    kvlazy_pos pos = kvl_loss_end_in(c, id), cut = unshared_tail(c, id, n_lose);

    if (pos >= cut)
        kvl_loss_cut(c->group, id, cut, false);
    else if (pos >= 0 && kvl_may_go_from(c->group, pos) && kvl_tally_is_turn_of(c, id, pos))
        cut_owners(c, id, pos);
}

/* ------------------------------------------------------------------------------------------- windows */

/* How far from its low_cut a sequence may lose what its next token cannot see, at most n_most cells and nothing at
 * `end` or above: no other sequence shares it, of a position all cells go or none, and the last position stays, for a
 * sequence that is lost altogether goes whole. */
static kvlazy_pos masked_end(kvlazy_cache *c, kvlazy_seq_id id, uint64_t n_most, kvlazy_pos end)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    kvlazy_pos low_cut = c->evict.part[id].low_cut;
    uint64_t n = 0;

    end = (kvlazy_pos)kvl_min((uint64_t)end,
                              kvl_min((uint64_t)kvl_window_begin_of(c, id), (uint64_t)kvl_index_max(index)));
    for (uint32_t i = kvl_index_below(index, low_cut); i < index->n && kvl_index_at(index, i).pos < end; i++, n++) {
        const kvl_entry e = kvl_index_at(index, i);

        step(c->group);
        if (kvl_cells_only_owner(cells, e.cell) != id)
            return (kvlazy_pos)kvl_min((uint64_t)low_cut, (uint64_t)e.pos); /* it may stop inside a position */
        if (n >= n_most && e.pos >= low_cut)
            return low_cut;
        low_cut = e.pos + 1;
    }
    return low_cut;
}

/* Takes masked tokens, oldest first, from every cache of the group where they are masked too. */
static void take_masked(kvlazy_cache *c, kvlazy_seq_id id, uint64_t n_lose)
{
    kvlazy_pos end = kvl_index_of(c, id)->n ? masked_end(c, id, n_lose, INT32_MAX) : 0;

    if (end <= c->evict.part[id].low_cut)
        return;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        if (kvl_has_window(m) && kvl_index_of(m, id)->n)
            kvl_loss_cut_low(m, id, masked_end(m, id, UINT64_MAX, end));
}

/* Where only whole sequences go. Losing a sequence whose every cell belongs to a sequence that stays frees no cell. */
static void take_whole(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    bool worth_it = false;

    for (uint32_t i = 0; !worth_it && i < index->n; i++) {
        const kvl_entry e = kvl_index_at(index, i);

        step(c->group);
        worth_it = kvl_cells_only_owner(cells, e.cell) == id || kvl_tally_all_here(c, e.cell, e.pos);
    }
    if (worth_it)
        kvl_loss_cut(c->group, id, 0, false);
}

/* ------------------------------------------------------------------------------------------- turns */

/* Returns how many cells that frees; 0: the turn is over. */
static uint64_t take(kvlazy_cache *c, kvlazy_seq_id id, uint64_t n_lose)
{
    uint64_t n_lost = c->evict.n_lost;

    if (c->group->losses.loss[id].fixed || cut_of(c->group, id) == 0)
        return 0;
    if (kvl_loss_yes_holds(c->group, id)) {
        kvl_loss_take_agreed(c->group, id);
        return c->evict.n_lost - n_lost;
    }
    if (kvl_has_window(c))
        take_masked(c, id, n_lose);
    if (c->evict.n_lost > n_lost)
        return c->evict.n_lost - n_lost;
    if (kvl_goes_whole(c->group))
        take_whole(c, id);
    else
        take_tail(c, id, n_lose);
    return c->evict.n_lost - n_lost;
}

uint64_t kvl_take_missing(const kvlazy_cache *c, uint32_t s)
{
    const kvl_losses *plan = &c->group->losses;
    uint64_t target = plan->goal.kind == KVL_GOAL_CELLS ? plan->goal.max_cells : c->params.kv_size_initial;
    uint64_t has = c->stream[s].cells.n_used - (uint64_t)c->evict.part[s].n_lost;

    if (plan->goal.kind == KVL_GOAL_BYTES)
        return plan->n_lose > c->evict.n_lost ? plan->n_lose - c->evict.n_lost : 0;
    return has > target ? has - target : 0;
}

static uint64_t missing_of(kvlazy_cache *c, kvlazy_seq_id id)
{
    return kvl_take_missing(c, kvl_stream_number(c, kvl_stream_of(c, id)));
}

/* For a goal in bytes one number, losses.n_lose, says whether any sequence has to lose more. */
static bool fits(const kvlazy_cache *c)
{
    bool is_one = c->params.n_stream == 1 || c->group->losses.goal.kind == KVL_GOAL_BYTES;

    return is_one && !kvl_take_missing(c, 0);
}

/* Every sequence of a stream that is over its target waits for its turn. */
static bool offer_turns(kvlazy_cache *c, uint64_t until)
{
    kvl_eviction *e = &c->evict;

    for (; e->n_offered < c->params.n_seq_max; e->n_offered++) {
        if (c->group->losses.n_step >= until)
            return false;
        step(c->group);
        if (missing_of(c, (kvlazy_seq_id)e->n_offered))
            kvl_loss_offer_turn(c, (kvlazy_seq_id)e->n_offered);
    }
    return true;
}

bool kvl_take(kvlazy_cache *c, uint64_t until)
{
    kvl_eviction *e = &c->evict;

    if (fits(c))
        return true;
    if (!offer_turns(c, until))
        return false;
    while (!fits(c) && (e->turn >= 0 || e->turns.n)) {
        if (c->group->losses.n_step >= until)
            return false;
        step(c->group);
        if (e->turn < 0)
            e->turn = kvl_turns_take(&e->turns).seq;
        uint64_t n_lose = kvl_min(missing_of(c, e->turn), PIECE_CELLS);
        if (n_lose && take(c, e->turn, n_lose))
            continue;
        e->part[e->turn].waits = false;
        e->turn = -1;
    }
    return true;
}
