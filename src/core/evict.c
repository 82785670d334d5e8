/* SPDX-License-Identifier: MIT */
/*
 * evict: see evict.h.
 *
 * A sequence with a window first loses what its next token cannot see, then all of it: its tail alone would be of no
 * use. A plan is a `cut` for each sequence, positions from there on go, and a `low_cut`, positions below go. It is
 * made, shown to on_evict, and carried out only when every sequence that was asked about may go.
 *
 * A cell goes with its last owner, and counts as used by its most recent one: it is lost in that owner's turn, and then
 * for all, each of which it must be the last position left. So no sequence gets a gap.
 */
#include "core/evict.h"
#include "core/clock.h"
#include "core/cover.h"
#include "core/lock.h"
#include "core/release.h"
#include "core/window.h"

/* ------------------------------------------------------------------------------------------- who may lose */

/* In all the group: whole sequences only. With position planes a gap cannot be told from a loss, with a window
 * a tail is of no use. */
static bool goes_whole(const kvlazy_cache *c)
{
    for (const kvlazy_cache *m = c->group->first; m; m = m->next)
        if (m->params.shrink == KVLAZY_SHRINK_WHOLE || m->params.n_pos_per_token > 1 || kvl_has_window(m))
            return true;
    return false;
}

/* Nobody in the group wants to keep what a sequence holds at `pos` and above. */
static bool may_go_from(kvlazy_cache *c, kvlazy_pos pos)
{
    for (const kvlazy_cache *m = c->group->first; m; m = m->next)
        if (m->params.shrink == KVLAZY_SHRINK_KEEP || (uint32_t)pos < m->params.keep_tokens)
            return false;
    return true;
}

/* The lowest position that any of the group holds. */
static kvlazy_pos group_min(const kvlazy_cache *c, kvlazy_seq_id id)
{
    kvlazy_pos min = INT32_MAX;

    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        if (kvl_index_of(m, id)->n && kvl_index_min(kvl_index_of(m, id)) < min)
            min = kvl_index_min(kvl_index_of(m, id));
    return min;
}

/* Tokens of it may go at all, whenever that is. */
static bool can_lose(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_index *index = kvl_index_of(c, id);

    return index->n && may_go_from(c, goes_whole(c) ? group_min(c, id) : kvl_index_max(index));
}

static uint64_t last_use_ms(const kvlazy_cache *c, kvlazy_seq_id id)
{
    uint64_t last_ms = 0;

    for (const kvlazy_cache *m = c->group->first; m; m = m->next)
        last_ms = kvl_max(last_ms, m->seq[id].stamp_ms);
    return last_ms;
}

static bool may_lose(kvlazy_cache *c, const kvl_goal *goal, kvlazy_seq_id id)
{
    if (!can_lose(c, id) || c->seq[id].veto_ms > goal->now_ms)
        return false;
    return (goal->kind != KVL_GOAL_IDLE && !goal->idle_only) ||
           kvl_policy_until_idle(goal->now_ms, last_use_ms(c, id), c->params.slot_shrink_idle_ms) == 0;
}

uint64_t kvl_evictable_in(kvlazy_cache *c, kvlazy_seq_id id, uint64_t now_ms)
{
    const kvl_seq *s = &c->seq[id];
    uint64_t until = kvl_policy_until_idle(now_ms, last_use_ms(c, id), c->params.slot_shrink_idle_ms);

    if (!can_lose(c, id) || until == KVL_NEVER)
        return KVL_NEVER;
    return kvl_max(until, s->veto_ms > now_ms ? s->veto_ms - now_ms : 0);
}

static bool goes_before(const kvlazy_cache *c, kvlazy_seq_id a, kvlazy_seq_id b)
{
    uint64_t p = last_use_ms(c, a), q = last_use_ms(c, b);

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
            c->evict.rank[n++] = (kvl_rank){last_use_ms(c, id), id};
    qsort(c->evict.rank, n, sizeof *c->evict.rank, by_rank);
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

/* Whether losing a cell at `pos` in `turn`'s turn is right by another of its owners: it lost that position already,
 * or may lose it now. */
static bool owner_agrees(kvlazy_cache *c, const kvl_goal *goal, kvlazy_seq_id turn, kvlazy_seq_id other, kvlazy_pos pos)
{
    if (c->seq[other].cut <= pos)
        return true;
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
            kept = e->pos < c->seq[o].cut && e->pos >= c->seq[o].low_cut;
        if (kept || !kvl_bit_get(cells->keep, e->cell))
            continue;
        kvl_bit_clear(cells->keep, e->cell);
        n++;
    }
    return n;
}

/* A sequence ends before `pos` from now on, in all the group. Answers how many cells that frees in this cache. */
static uint32_t cut_at(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos pos)
{
    uint32_t n = 0;

    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        kvlazy_pos old = m->seq[id].cut;

        if (old <= pos)
            continue;
        m->seq[id].cut = pos;
        uint32_t n_lost = lose_unkept(m, id, pos, old);
        n += m == c ? n_lost : 0;
    }
    return n;
}

/* The tail that nobody shares goes in one piece, up to n_lose cells and the rest of the lowest position: where to cut.
 */
static kvlazy_pos unshared_tail(kvlazy_cache *c, kvlazy_seq_id id, uint64_t n_lose)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    kvlazy_pos cut = c->seq[id].cut;
    uint64_t n = 0;

    for (uint32_t i = kvl_index_below(index, cut); i-- > 0; n++) {
        const kvl_entry *e = kvl_index_at(index, i);

        if (kvl_cells_only_owner(cells, e->cell) != id)
            return cut > e->pos ? cut : e->pos + 1; /* of a position all cells go or none */
        if ((n >= n_lose && e->pos < cut) || !may_go_from(c, e->pos))
            break;
        cut = e->pos;
    }
    return cut;
}

/* Takes the last positions of a sequence, all cells of each, from it and from those that share them. Answers how many
 * cells that frees; 0: it may not be, *blocked: because somebody who shares them has to go first. */
static uint32_t take_last(kvlazy_cache *c, const kvl_goal *goal, kvlazy_seq_id id, uint64_t n_lose, bool *blocked)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    kvlazy_pos pos = planned_max(c, id), cut = unshared_tail(c, id, n_lose);
    uint32_t n = 0;

    if (pos >= cut)
        return cut_at(c, id, cut);
    if (pos < 0 || !may_go_from(c, pos))
        return 0;
    uint32_t begin = kvl_index_below(index, pos), end = kvl_index_below(index, pos + 1);
    for (uint32_t i = begin; i < end; i++)
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, kvl_index_at(index, i)->cell, o + 1)) >= 0;)
            if (o != id && !owner_agrees(c, goal, id, o, pos)) {
                *blocked = true;
                return 0;
            }
    for (uint32_t i = begin; i < end; i++)
        for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, kvl_index_at(index, i)->cell, o + 1)) >= 0;)
            n += cut_at(c, o, pos);
    return n;
}

/* How far from its low_cut a sequence may lose what its next token cannot see, at most n_most cells and nothing at
 * `end` or above: nobody shares it, of a position all cells go or none, and the last position stays, for a sequence
 * that is lost altogether goes whole. */
static kvlazy_pos masked_end(kvlazy_cache *c, kvlazy_seq_id id, uint64_t n_most, kvlazy_pos end)
{
    const kvl_cells *cells = &kvl_stream_of(c, id)->cells;
    const kvl_index *index = kvl_index_of(c, id);
    kvlazy_pos low_cut = c->seq[id].low_cut;
    uint64_t n = 0;

    end = (kvlazy_pos)kvl_min((uint64_t)end,
                              kvl_min((uint64_t)kvl_window_begin_of(c, id), (uint64_t)kvl_index_max(index)));
    for (uint32_t i = kvl_index_below(index, low_cut); i < index->n && kvl_index_at(index, i)->pos < end; i++, n++) {
        const kvl_entry *e = kvl_index_at(index, i);

        if (kvl_cells_only_owner(cells, e->cell) != id)
            return kvl_min((uint64_t)low_cut, (uint64_t)e->pos); /* it may stop inside a position */
        if (n >= n_most && e->pos >= low_cut)
            return low_cut;
        low_cut = e->pos + 1;
    }
    return low_cut;
}

/* Takes masked tokens, oldest first, from every cache of the group where they are masked too. Answers how many cells
 * that frees in this one. */
static uint32_t take_masked(kvlazy_cache *c, kvlazy_seq_id id, uint64_t n_lose)
{
    kvlazy_pos end = kvl_index_of(c, id)->n ? masked_end(c, id, n_lose, INT32_MAX) : 0;
    uint32_t n = 0;

    if (end <= c->seq[id].low_cut)
        return 0;
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        kvlazy_pos from = m->seq[id].low_cut;
        kvlazy_pos to = kvl_has_window(m) && kvl_index_of(m, id)->n ? masked_end(m, id, UINT64_MAX, end) : 0;

        if (to <= from)
            continue;
        m->seq[id].low_cut = to;
        uint32_t n_lost = lose_unkept(m, id, from, to);
        n += m == c ? n_lost : 0;
    }
    return n;
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
    return cut_at(c, id, 0);
}

static uint32_t take(kvlazy_cache *c, const kvl_goal *goal, kvlazy_seq_id id, uint64_t n_lose, bool *blocked)
{
    uint32_t n = kvl_has_window(c) ? take_masked(c, id, n_lose) : 0;

    if (n)
        return n;
    return goes_whole(c) ? take_whole(c, goal, id) : take_last(c, goal, id, n_lose, blocked);
}

/* Frees up to n_lose cells of one stream, or of all: the longest idle gives all it may before the next one does.
 * Sharing can make a sequence wait for a younger one, so when that one gave something the older are asked again. */
static void plan_loss(kvlazy_cache *c, const kvl_goal *goal, const kvl_stream *only, uint64_t n_lose)
{
    uint32_t n_rank = n_lose ? rank(c, goal, only) : 0, i = 0;
    bool blocked = false, progress = false;

    while (i < n_rank && n_lose) {
        uint32_t n = take(c, goal, c->evict.rank[i].seq, n_lose, &blocked);

        n_lose -= kvl_min(n, n_lose);
        progress |= n > 0;
        if (n)
            continue;
        i++;
        if (progress && blocked)
            i = 0;
        if (!i)
            progress = blocked = false;
    }
}

static void forget_plan(kvlazy_cache *c)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        for (uint32_t i = 0; i < m->params.n_seq_max; i++) {
            m->seq[i].cut = INT32_MAX;
            m->seq[i].low_cut = 0;
        }
        kvl_keep_live(m);
    }
}

/* keep := as many cells as it has, where they will be once they are packed. */
static void keep_packed(kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_cells *cells = &c->stream[s].cells;
        uint64_t n = kvl_bits_count(cells->keep, 0, cells->n_cell);

        kvl_bits_fill(cells->keep, 0, n, true);
        kvl_bits_fill(cells->keep, n, cells->n_cell, false);
    }
}

static bool fits_after(kvlazy_cache *c, const kvl_goal *goal, uint64_t n_lose)
{
    forget_plan(c);
    plan_loss(c, goal, NULL, n_lose);
    if (goal->packs)
        keep_packed(c);
    return kvl_needed_pages(c) * kvl_rows_page_bytes(&c->rows) <= goal->max_bytes;
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
        return goal->best_effort; /* all they may is planned now */
    while (few + 1 < enough) {
        uint64_t middle = few + (enough - few) / 2;

        if (fits_after(c, goal, middle))
            enough = middle;
        else
            few = middle;
    }
    return fits_after(c, goal, enough);
}

/* What one member loses counts for the next, since it loses the same. */
static void plan_streams(kvlazy_cache *c, const kvl_goal *goal)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        const kvl_cells *cells = &c->stream[s].cells;
        uint32_t target = goal->kind == KVL_GOAL_CELLS ? goal->max_cells : c->params.kv_size_initial;

        if (kvl_policy_excess(cells->n_used, target))
            plan_loss(c, goal, &c->stream[s],
                      kvl_policy_excess((uint32_t)kvl_bits_count(cells->keep, 0, cells->n_cell), target));
    }
}

static bool plan(kvlazy_cache *c, const kvl_goal *goal)
{
    if (goal->kind == KVL_GOAL_BYTES)
        return plan_bytes(c, goal);
    forget_plan(c);
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        plan_streams(m, goal);
    return true;
}

/* ------------------------------------------------------------------------------------------- asking */

/* The longest-idle sequence that would lose what it was not asked for; -1: none. */
static kvlazy_seq_id next_to_ask(const kvlazy_cache *c)
{
    kvlazy_seq_id next = -1;

    for (const kvlazy_cache *m = c->group->first; m; m = m->next)
        for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++)
            if ((m->seq[id].cut < m->seq[id].agreed || m->seq[id].low_cut > m->seq[id].agreed_low) &&
                (next < 0 || goes_before(c, id, next)))
                next = id;
    return next;
}

/* The answer of on_evict is for all the group. */
static void note_answer(kvlazy_cache *c, kvlazy_seq_id id, uint64_t veto_ms)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        m->seq[id].agreed = m->seq[id].cut;
        m->seq[id].agreed_low = m->seq[id].low_cut;
        if (veto_ms)
            m->seq[id].veto_ms = veto_ms;
    }
}

/* Asks with no lock held. Answers false when a batch was opened meanwhile. What is agreed to is noted before: the plan
 * may be gone when the answer comes, *holds says, and is then made anew. */
static bool ask(kvlazy_cache *c, kvlazy_cache *asker, kvlazy_seq_id id, const kvl_goal *goal, bool *holds)
{
    kvl_group *group = c->group;
    uint64_t n_opened = group->n_opened, n_entered = group->n_entered;
    kvlazy_pos new_pos_max = -1;

    for (kvlazy_cache *m = group->first; m; m = m->next) {
        kvlazy_pos left = planned_max(m, id);
        new_pos_max = left > new_pos_max ? left : new_pos_max;
    }
    note_answer(c, id, 0);
    int (*on_evict)(void *, kvlazy_seq_id, kvlazy_pos) = asker->params.on_evict;
    void *evict_ctx = asker->params.evict_ctx;
    kvl_begin_asking(c);
    int answer = on_evict(evict_ctx, id, new_pos_max);
    kvl_end_asking(c);
    kvl_window_follow(c);
    *holds = !answer && group->n_entered == n_entered + 1; /* nobody but this one was here */
    if (answer)
        note_answer(c, id, goal->now_ms + kvl_max(kvl_group_idle_ms(c), 1));
    return !group->open && group->n_opened == n_opened;
}

/* Linked caches belong to one engine, so one of them asks. */
static kvlazy_cache *find_asker(kvlazy_cache *c)
{
    kvlazy_cache *asker = c->params.on_evict && !c->leaves ? c : c->group->first;

    while (asker && (!asker->params.on_evict || asker->leaves))
        asker = asker->next;
    return asker;
}

static void forget_answers(kvlazy_cache *c)
{
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        for (uint32_t i = 0; i < m->params.n_seq_max; i++) {
            m->seq[i].agreed = INT32_MAX;
            m->seq[i].agreed_low = 0;
        }
}

static bool make_plan(kvlazy_cache *c, const kvl_goal *goal)
{
    uint64_t from_ns = kvl_host_now_ns(&c->mem);
    bool in_reach = plan(c, goal);

    c->evict.plan_ns += kvl_host_now_ns(&c->mem) - from_ns;
    return in_reach;
}

int kvl_evict_agree(kvlazy_cache *c, const kvl_goal *goal)
{
    forget_answers(c);
    c->evict.plan_ns = 0;
    for (bool holds = false;;) {
        if (!holds && !make_plan(c, goal))
            return KVLAZY_EBUDGET;
        kvlazy_cache *asker = find_asker(c);
        kvlazy_seq_id id = asker ? next_to_ask(c) : -1;
        if (id < 0)
            return KVLAZY_OK;
        if (!ask(c, asker, id, goal, &holds))
            return KVLAZY_EBUSY;
    }
}

/* ------------------------------------------------------------------------------------------- doing */

bool kvl_evict_apply(kvlazy_cache *c, uint32_t stamp)
{
    bool any = false;

    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++) {
        kvl_stream *stream = kvl_stream_of(c, id);
        kvl_seq *s = &c->seq[id];
        uint32_t n_used = stream->cells.n_used, n_masked = kvl_cells_rm(&stream->cells, id, 0, s->low_cut, stamp);

        if (n_masked)
            s->lost_end = s->low_cut > s->lost_end ? s->low_cut : s->lost_end;
        bool tail = s->cut != INT32_MAX && kvl_cells_rm(&stream->cells, id, s->cut, INT32_MAX, stamp);
        if (!tail && !n_masked)
            continue;
        s->evicted |= tail;
        kvl_seq_changed(s);
        if (s->cut == 0)
            s->lost_end = 0; /* nothing is left that could miss it */
        c->counts.n_evict++;
        c->counts.evicted_cells += n_used - stream->cells.n_used;
        stream->give_read = any = true;
        stream->min_age = 0;
    }
    if (any)
        kvl_histogram_add(&c->counts.evict_time, c->evict.plan_ns);
    c->evict.plan_ns = 0;
    return any;
}
