/* SPDX-License-Identifier: MIT */
/* tally: see tally.h. */
#include "core/tally.h"
#include "core/cache.h"

/* Whether a sequence may lose its cell at `pos` now. Where tails go, the sequence holds nothing above; where whole
 * sequences go, each that may go is here. */
static bool is_here(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos pos)
{
    return kvl_loss_stands(c, id) && (kvl_goes_whole(c->group) || kvl_loss_end_in(c, id) == pos);
}

kvl_tally *kvl_tally_of(kvlazy_cache *c, uint32_t cell, kvlazy_pos pos)
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
        if (kvl_loss_of(c->group, o)->cut <= pos)
            continue;
        t->n_left++;
        t->n_here += is_here(c, o, pos);
    }
    t->known = true;
    return t;
}

kvl_tally *kvl_tally_known(const kvl_eviction *eviction, uint32_t cell)
{
    return cell < eviction->n_tally && eviction->tally[cell].known ? &eviction->tally[cell] : NULL;
}

void kvl_tally_count_here(kvlazy_cache *c, kvlazy_seq_id id, int n)
{
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t end = kvl_loss_n_below(c, id);
    bool whole = kvl_goes_whole(c->group);

    if (!c->evict.tally || !kvl_loss_stands(c, id))
        return;
    for (uint32_t i = end; i > 0 && (whole || kvl_index_at(index, i - 1).pos == kvl_index_at(index, end - 1).pos);
         i--) {
        kvl_tally *t = kvl_tally_known(&c->evict, kvl_index_at(index, i - 1).cell);

        c->group->losses.n_step++;
        if (!t)
            continue;
        t->n_here = (t->n_here + (uint32_t)n) & 0x3fffffff;
        t->told = false;
    }
}

/* When all owners that are left are here, the cell goes in the turn of the one that was used last. */
static void tell_youngest(kvlazy_cache *c, uint32_t cell, kvlazy_pos pos)
{
    const kvl_cells *cells = &c->stream[0].cells;
    kvl_tally *t = kvl_tally_known(&c->evict, cell);
    kvl_turn youngest = {0, -1};

    if (!t || t->told || !t->n_left || t->n_here != t->n_left)
        return;
    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, cell, o + 1)) >= 0;) {
        c->group->losses.n_step++;
        if (kvl_loss_of(c->group, o)->cut > pos && kvl_turn_is_before(youngest, kvl_turn_of(c->group, o)))
            youngest = kvl_turn_of(c->group, o);
    }
    t->told = true;
    if (youngest.seq >= 0)
        kvl_loss_offer_turn(c, youngest.seq);
}

void kvl_tally_tell_sharers(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos end)
{
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t i = kvl_index_below(index, kvl_loss_end_in(c, id)), stop = kvl_index_below(index, end);

    if (!c->evict.tally || kvl_goes_whole(c->group))
        return;
    for (; i < stop; i++) {
        c->group->losses.n_step++;
        tell_youngest(c, kvl_index_at(index, i).cell, kvl_index_at(index, i).pos);
    }
    kvl_loss_offer_turn(c, id);
}

bool kvl_tally_all_here(kvlazy_cache *c, uint32_t cell, kvlazy_pos pos)
{
    const kvl_tally *t = kvl_tally_of(c, cell, pos);

    return t && t->n_here == t->n_left;
}

/* Of the owners that the plan leaves, none was used later than this one. */
static bool is_youngest(kvlazy_cache *c, kvlazy_seq_id id, uint32_t cell, kvlazy_pos pos)
{
    const kvl_cells *cells = &c->stream[0].cells;
    kvl_turn turn = kvl_turn_of(c->group, id);

    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, cell, o + 1)) >= 0;) {
        c->group->losses.n_step++;
        if (kvl_loss_of(c->group, o)->cut > pos && kvl_turn_is_before(turn, kvl_turn_of(c->group, o)))
            return false;
    }
    return true;
}

bool kvl_tally_is_turn_of(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos pos)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t end = kvl_index_below(index, pos + 1);

    for (uint32_t i = kvl_index_below(index, pos); i < end; i++) {
        uint32_t cell = kvl_index_at(index, i).cell;

        c->group->losses.n_step++;
        if (kvl_cells_only_owner(cells, cell) != id &&
            (!kvl_tally_all_here(c, cell, pos) || !is_youngest(c, id, cell, pos)))
            return false;
    }
    return true;
}
