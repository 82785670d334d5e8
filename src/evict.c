/* SPDX-License-Identifier: MIT */
/*
 * evict: which tokens go. Decided by sequence and position, never by cell: the longest-idle sequence first,
 * its tail first, so that what remains is a usable prefix. A plan is a `cut` for each sequence: positions from
 * there on go. It is made, shown to on_evict, and carried out only when everyone asked agreed. Gives no page
 * back; that is release's.
 *
 * A cell goes with its last owner, and counts as used by its most recent one: it is lost in that owner's turn,
 * and then for all, each of whom it must be the last position left. So no sequence gets a gap.
 */
#include "cache.h"

/* ------------------------------------------------------------------------------------------- who may lose */

/* Tokens of it may go at all, whenever that is. */
static bool can_lose(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t keep = c->params.keep_tokens;

    if (!index->n || c->params.shrink == KVLAZY_SHRINK_KEEP)
        return false;
    kvlazy_pos decides = c->params.shrink == KVLAZY_SHRINK_WHOLE ? kvl_index_min(index) : kvl_index_max(index);
    return (uint32_t)decides >= keep;
}

static bool may_lose(kvlazy_cache *c, const kvl_goal *goal, kvlazy_seq_id id)
{
    const kvl_seq *s = &c->seq[id];

    if (!can_lose(c, id) || s->veto_ms > goal->now_ms)
        return false;
    return goal->kind != KVL_GOAL_IDLE ||
           kvl_policy_until_idle(goal->now_ms, s->stamp_ms, c->params.slot_shrink_idle_ms) == 0;
}

uint64_t kvl_evictable_in(kvlazy_cache *c, kvlazy_seq_id id, uint64_t now_ms)
{
    const kvl_seq *s = &c->seq[id];
    uint64_t until = kvl_policy_until_idle(now_ms, s->stamp_ms, c->params.slot_shrink_idle_ms);

    if (!can_lose(c, id) || until == KVL_NEVER)
        return KVL_NEVER;
    return kvl_max(until, s->veto_ms > now_ms ? s->veto_ms - now_ms : 0);
}

static bool goes_before(const kvlazy_cache *c, kvlazy_seq_id a, kvlazy_seq_id b)
{
    uint64_t p = c->seq[a].stamp_ms, q = c->seq[b].stamp_ms;

    return p != q ? p < q : a < b;
}

static int by_rank(const void *a, const void *b)
{
    const kvl_rank *p = a, *q = b;

    if (p->stamp_ms != q->stamp_ms)
        return p->stamp_ms < q->stamp_ms ? -1 : 1;
    return (p->seq > q->seq) - (p->seq < q->seq);
}

/* The sequences of one stream, or of all, that may lose tokens, longest idle first. */
static uint32_t rank(kvlazy_cache *c, const kvl_goal *goal, const kvl_stream *only)
{
    uint32_t first = only ? only->cells.seq_first : 0, n_seq = only ? only->cells.n_seq : c->params.n_seq_max, n = 0;

    for (kvlazy_seq_id id = (kvlazy_seq_id)first; id < (kvlazy_seq_id)(first + n_seq); id++)
        if (may_lose(c, goal, id))
            c->rank[n++] = (kvl_rank){c->seq[id].stamp_ms, id};
    qsort(c->rank, n, sizeof *c->rank, by_rank);
    return n;
}

/* ------------------------------------------------------------------------------------------- planning */

/* The position that a sequence would end at; -1: nothing left. */
static kvlazy_pos planned_max(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t n = kvl_index_below(index, c->seq[id].cut);

    return n ? kvl_index_at(index, n - 1)->pos : -1;
}

/* Whether losing a cell at `pos` in `turn`'s turn is right by another of its owners. */
static bool owner_agrees(kvlazy_cache *c, const kvl_goal *goal, kvlazy_seq_id turn, kvlazy_seq_id other, kvlazy_pos pos)
{
    return may_lose(c, goal, other) && goes_before(c, other, turn) && planned_max(c, other) == pos;
}

/* Of the cells a sequence holds at [p0, p1), those that no owner keeps are lost. Answers how many. */
static uint32_t lose_unkept(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos p0, kvlazy_pos p1)
{
    kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    uint32_t end = kvl_index_below(index, p1), n = 0;

    for (uint32_t i = kvl_index_below(index, p0); i < end; i++) {
        const kvl_entry *e = kvl_index_at(index, i);
        bool kept = false;

        for (kvlazy_seq_id o = -1; !kept && (o = kvl_cells_next_owner(cells, e->cell, o + 1)) >= 0;)
            kept = c->seq[o].cut > e->pos;
        if (kept || !kvl_bit_get(cells->keep, e->cell))
            continue;
        kvl_bit_clear(cells->keep, e->cell);
        n++;
    }
    return n;
}

/* Takes the last position of a sequence, all cells of it, from it and from those that share them. Answers how
 * many cells that frees; 0: it may not be. */
static uint32_t take_last(kvlazy_cache *c, const kvl_goal *goal, kvlazy_seq_id id)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    kvlazy_pos pos = planned_max(c, id);
    uint32_t n = 0;

    if (pos < 0 || (uint32_t)pos < c->params.keep_tokens)
        return 0;
    uint32_t begin = kvl_index_below(index, pos), end = kvl_index_below(index, pos + 1);
    for (uint32_t i = begin; i < end; i++)
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, kvl_index_at(index, i)->cell, o + 1)) >= 0;)
            if (o != id && !owner_agrees(c, goal, id, o, pos))
                return 0;
    c->seq[id].cut = pos;
    for (uint32_t i = begin; i < end; i++)
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, kvl_index_at(index, i)->cell, o + 1)) >= 0;)
            if (c->seq[o].cut > pos) {
                c->seq[o].cut = pos;
                n += lose_unkept(c, o, pos, pos + 1);
            }
    return n + lose_unkept(c, id, pos, pos + 1);
}

/* Whole sequences only. One whose every cell is held by somebody who stays would be lost for nothing. */
static uint32_t take_whole(kvlazy_cache *c, const kvl_goal *goal, kvlazy_seq_id id)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    bool worth_it = false;

    for (uint32_t i = 0; !worth_it && i < index->n; i++) {
        worth_it = true;
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, kvl_index_at(index, i)->cell, o + 1)) >= 0;)
            worth_it &= may_lose(c, goal, o);
    }
    if (!worth_it || c->seq[id].cut == 0)
        return 0;
    c->seq[id].cut = 0;
    return lose_unkept(c, id, 0, INT32_MAX);
}

/* Frees up to n_lose cells of one stream, or of all. */
static void plan_loss(kvlazy_cache *c, const kvl_goal *goal, const kvl_stream *only, uint64_t n_lose)
{
    uint32_t n_rank = n_lose ? rank(c, goal, only) : 0;
    bool whole = c->params.shrink == KVLAZY_SHRINK_WHOLE, more = true;

    /* Sharing can make a sequence wait for another's turn, so there may be more than one round. */
    while (more && n_lose) {
        more = false;
        for (uint32_t i = 0; i < n_rank && n_lose; i++) {
            uint32_t n;

            do {
                n = whole ? take_whole(c, goal, c->rank[i].seq) : take_last(c, goal, c->rank[i].seq);
                n_lose -= kvl_min(n, n_lose);
                more |= n > 0;
            } while (n && n_lose);
        }
    }
}

static void forget_plan(kvlazy_cache *c)
{
    for (uint32_t i = 0; i < c->params.n_seq_max; i++)
        c->seq[i].cut = INT32_MAX;
    kvl_keep_live(c);
}

static bool fits_after(kvlazy_cache *c, const kvl_goal *goal, uint64_t n_lose)
{
    forget_plan(c);
    plan_loss(c, goal, NULL, n_lose);
    return kvl_pages_bytes(&c->arena, kvl_kept_pages(c, false)) <= goal->max_bytes;
}

/* The least that has to go for the pages of what stays to fit. */
static bool plan_bytes(kvlazy_cache *c, const kvl_goal *goal)
{
    uint64_t n_live = 0, few = 0;

    if (fits_after(c, goal, 0))
        return true;
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        n_live += c->stream[s].cells.n_used;
    uint64_t enough = n_live;
    if (!fits_after(c, goal, enough))
        return false;
    while (few + 1 < enough) {
        uint64_t middle = few + (enough - few) / 2;

        if (fits_after(c, goal, middle))
            enough = middle;
        else
            few = middle;
    }
    return fits_after(c, goal, enough);
}

static bool plan(kvlazy_cache *c, const kvl_goal *goal)
{
    if (goal->kind == KVL_GOAL_BYTES)
        return plan_bytes(c, goal);
    forget_plan(c);
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        uint32_t target = goal->kind == KVL_GOAL_CELLS ? goal->max_cells : c->params.kv_size_initial;

        plan_loss(c, goal, &c->stream[s], kvl_policy_excess(c->stream[s].cells.n_used, target));
    }
    return true;
}

/* ------------------------------------------------------------------------------------------- asking */

/* The longest-idle sequence that would lose what it was not asked for; -1: none. */
static kvlazy_seq_id next_to_ask(const kvlazy_cache *c)
{
    kvlazy_seq_id next = -1;

    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++)
        if (c->seq[id].cut < c->seq[id].agreed && (next < 0 || goes_before(c, id, next)))
            next = id;
    return next;
}

/* Asks with no lock held. Answers false when a batch was opened meanwhile. */
static bool ask(kvlazy_cache *c, kvlazy_seq_id id, const kvl_goal *goal)
{
    kvlazy_pos cut = c->seq[id].cut, new_pos_max = planned_max(c, id);
    uint64_t n_opened = c->n_opened;

    c->asking = true;
    kvl_leave(c, KVLAZY_OK);
    int answer = c->params.on_evict(c->params.evict_ctx, id, new_pos_max);
    kvl_enter(c);
    c->asking = false;
    if (answer)
        c->seq[id].veto_ms = goal->now_ms + kvl_max(c->params.slot_shrink_idle_ms, 1);
    else
        c->seq[id].agreed = cut;
    return !c->open && c->n_opened == n_opened;
}

int kvl_evict_agree(kvlazy_cache *c, const kvl_goal *goal)
{
    for (uint32_t i = 0; i < c->params.n_seq_max; i++)
        c->seq[i].agreed = INT32_MAX;
    for (;;) {
        if (!plan(c, goal))
            return KVLAZY_EBUDGET;
        kvlazy_seq_id id = c->params.on_evict ? next_to_ask(c) : -1;
        if (id < 0)
            return KVLAZY_OK;
        if (!ask(c, id, goal))
            return KVLAZY_EBUSY;
    }
}

/* ------------------------------------------------------------------------------------------- doing */

bool kvl_evict_apply(kvlazy_cache *c, uint32_t stamp)
{
    bool any = false;

    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++) {
        kvl_stream *stream = kvl_stream_of(c, id);
        uint32_t n_used = stream->cells.n_used;

        if (c->seq[id].cut == INT32_MAX || !kvl_cells_rm(&stream->cells, id, c->seq[id].cut, INT32_MAX, stamp))
            continue;
        c->seq[id].evicted = true;
        c->n_evict++;
        c->evicted_cells += n_used - stream->cells.n_used;
        stream->give_read = any = true;
        stream->min_age = 0;
    }
    return any;
}
