/* SPDX-License-Identifier: MIT */
/*
 * window: see window.h.
 *
 * A masked token is one below the window of its sequence's next position. Per sequence these are the lowest positions,
 * the head of its index, so finding the oldest is looking at the heads.
 */
#include "core/window.h"
#include "core/clock.h"

/* ------------------------------------------------------------------------------------------- what is masked */

/* Positions of the sequence below this are masked for its next token. */
static int64_t window_begin(const kvlazy_params *params, const kvl_index *index)
{
    return kvl_policy_window_begin(params->swa_type, params->n_swa, (int64_t)kvl_index_max(index) + 1);
}

kvlazy_pos kvl_window_begin_of(kvlazy_cache *c, kvlazy_seq_id seq)
{
    return (kvlazy_pos)window_begin(&c->params, kvl_index_of(c, seq));
}

/* The oldest masked token of a sequence that it does not share, from number `*at` on. Returns false where there is
 * none. What it shares is passed over part by part. */
static bool oldest_masked(const kvlazy_params *params, const kvl_cells *cells, kvlazy_seq_id seq, uint32_t *at,
                          kvl_entry *e)
{
    const kvl_index *index = kvl_cells_index(cells, seq);
    int64_t begin = window_begin(params, index);

    while (*at < index->n) {
        kvl_stretch run = kvl_index_run(index, *at, index->n);

        *e = (kvl_entry){run.pos, run.cell};
        if (run.pos >= begin)
            return false;
        if (kvl_cells_only_owner(cells, run.cell) == seq)
            return true;
        *at += kvl_cells_same_owners(cells, run.cell, run.n);
    }
    return false;
}

uint32_t kvl_window_recyclable(kvlazy_cache *c, const kvl_stream *stream)
{
    const kvl_cells *cells = &stream->cells;
    kvl_entry e;
    uint32_t n = 0;

    for (uint32_t i = 0; kvl_has_window(c) && i < cells->n_seq; i++)
        for (uint32_t at = 0; oldest_masked(&c->params, cells, (kvlazy_seq_id)(cells->seq_first + i), &at, &e); at++)
            n++;
    return n;
}

bool kvl_window_may_take(kvlazy_params *params, const kvl_cells *cells, uint32_t cell, const kvl_victim *victim)
{
    return kvl_cells_is_used(cells, cell) && cells->pos[cell] == victim->pos &&
           kvl_cells_only_owner(cells, cell) == victim->seq &&
           victim->pos < window_begin(params, kvl_cells_index(cells, victim->seq));
}

/* ------------------------------------------------------------------------------------------- the oldest of all */

/* A heap of the sequences of a stream that have masked tokens, by the oldest of these. It is made once for a ubatch,
 * and then only the sequence is looked at whose token was taken. */

static bool is_older(const kvl_entry *a, const kvl_entry *b)
{
    return a->pos != b->pos ? a->pos < b->pos : a->cell < b->cell;
}

static kvl_oldest *heap_of(const kvlazy_cache *c, const kvl_cells *cells)
{
    return c->plan.oldest + cells->seq_first;
}

/* An entry that may be too far up goes down to its place among n. */
static void sift(kvl_oldest *heap, uint32_t n, uint32_t at)
{
    kvl_oldest down = heap[at];
    uint32_t child;

    while ((child = 2 * at + 1) < n) {
        child += child + 1 < n && is_older(&heap[child + 1].token, &heap[child].token);
        if (!is_older(&heap[child].token, &down.token))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = down;
}

static void gather_oldest(kvlazy_cache *c, kvl_stream *stream, const kvl_cells *cells)
{
    kvl_oldest *heap = heap_of(c, cells);
    uint32_t n = 0;

    for (uint32_t i = 0; i < cells->n_seq; i++) {
        kvlazy_seq_id seq = (kvlazy_seq_id)(cells->seq_first + i);

        heap[n] = (kvl_oldest){.seq = seq};
        n += oldest_masked(&c->params, cells, seq, &heap[n].at, &heap[n].token);
    }
    for (uint32_t at = n / 2; at-- > 0;)
        sift(heap, n, at);
    stream->n_oldest = n;
    stream->has_oldest = true;
}

/* Takes the oldest masked cell of a stream, of whichever sequence. */
static bool take_oldest(kvlazy_cache *c, kvl_stream *stream, const kvl_cells *cells, uint32_t token)
{
    kvl_oldest *first = heap_of(c, cells);

    if (!stream->has_oldest)
        gather_oldest(c, stream, cells);
    if (!stream->n_oldest)
        return false;
    c->plan.cell[token] = first->token.cell;
    c->plan.victim[token] = (kvl_victim){first->seq, first->token.pos};
    first->at++;
    if (!oldest_masked(&c->params, cells, first->seq, &first->at, &first->token))
        *first = first[--stream->n_oldest];
    sift(first, stream->n_oldest, 0);
    return true;
}

/* ------------------------------------------------------------------------------------------- placing */

/* The cells a planned token is placed in: as they are, or as earlier ubatches would leave them. */
static kvl_cells *cells_of(kvlazy_cache *c, uint32_t token)
{
    kvl_stream *stream = &c->stream[c->plan.stream[token]];

    return stream->tried ? &stream->trial : &stream->cells;
}

/* Empty cells first, lowest index first; only then masked ones. */
static int place_ubatch(kvlazy_cache *c, const kvl_plan_ubatch *b)
{
    kvl_plan *p = &c->plan;

    for (uint32_t i = b->token_begin; i < b->token_end; i++) {
        c->stream[p->stream[i]].next_free = 0;
        c->stream[p->stream[i]].has_oldest = false;
    }
    for (uint32_t i = b->token_begin; i < b->token_end; i++) {
        kvl_stream *stream = &c->stream[p->stream[i]];
        kvl_cells *cells = cells_of(c, i);
        uint32_t cell = kvl_cells_next_free(cells, stream->next_free);

        stream->next_free = cell;
        p->victim[i].seq = -1;
        if (cell < c->params.kv_size) {
            p->cell[i] = cell;
            stream->next_free++;
        } else if (!take_oldest(c, stream, cells, i)) {
            c->plan.refused_seq = kvl_plan_first_owner(p, i);
            return KVLAZY_ENOSLOT;
        }
    }
    return KVLAZY_OK;
}

/* Takes the victims from their sequences, and all that these sequences hold below a victim, so that no gap is left.
 * Other owners of those cells keep them. The tokens of the ubatch itself are not recorded yet, so they stay. */
static void take_victims(kvlazy_cache *c, const kvl_plan_ubatch *b, uint64_t stamp)
{
    const kvl_plan *p = &c->plan;

    for (uint32_t i = b->token_begin; i < b->token_end; i++)
        if (p->victim[i].seq >= 0)
            kvl_cells_rm(cells_of(c, i), p->victim[i].seq, 0, p->victim[i].pos + 1, stamp);
}

/* The next ubatch is placed as if this one were applied. So this one is applied to copies of the cells. */
static int try_ubatch(kvlazy_cache *c, const kvl_plan_ubatch *b)
{
    const kvl_plan *p = &c->plan;

    for (uint32_t i = b->token_begin; i < b->token_end; i++) {
        kvl_stream *stream = &c->stream[p->stream[i]];

        if (!stream->tried && kvl_cells_copy(&stream->trial, &stream->cells))
            return KVLAZY_ENOMEM;
        stream->tried = true;
    }
    take_victims(c, b, 0);
    for (uint32_t i = b->token_begin; i < b->token_end; i++) {
        kvl_cells *cells = cells_of(c, i);

        if (kvl_cells_reserve(cells, p->cell[i] + 1))
            return KVLAZY_ENOMEM;
        kvl_cells_put(cells, p->cell[i], p->pos[i]);
        for (uint32_t k = kvl_plan_owner_begin(p, i); k < p->owner_end[i]; k++) {
            if (kvl_cells_reserve_seq(cells, p->owner[k].seq, 2) || kvl_cells_reserve_sets(cells, 1))
                return KVLAZY_ENOMEM;
            kvl_cells_own(cells, p->cell[i], p->owner[k].seq);
        }
    }
    return KVLAZY_OK;
}

/* What apply must find: where each sequence ends once earlier ubatches took from it. */
static void expect_trial(kvlazy_cache *c, const kvl_plan_ubatch *b)
{
    kvl_plan *p = &c->plan;

    for (uint32_t i = b->token_begin; i < b->token_end; i++)
        for (uint32_t k = kvl_plan_owner_begin(p, i); k < p->owner_end[i]; k++)
            if (p->owner[k].expect != KVL_EXPECT_ANY)
                p->owner[k].expect = kvl_index_max(kvl_cells_index(cells_of(c, i), p->owner[k].seq));
}

int kvl_window_place(kvlazy_cache *c, uint32_t n_ubatch)
{
    const kvl_plan *p = &c->plan;
    int status = KVLAZY_OK;

    for (uint32_t i = 0; i < p->n_token; i++)
        p->stream[i] = (uint32_t)(kvl_stream_of(c, kvl_plan_first_owner(p, i)) - c->stream);
    for (uint32_t b = 0; !status && b < n_ubatch; b++) {
        expect_trial(c, &p->ubatch[b]);
        status = place_ubatch(c, &p->ubatch[b]);
        if (!status && b + 1 < n_ubatch)
            status = try_ubatch(c, &p->ubatch[b]);
    }
    for (uint32_t i = 0; i < p->n_token; i++) {
        kvl_stream *stream = &c->stream[p->stream[i]];

        if (stream->tried)
            kvl_cells_fini(&stream->trial);
        stream->tried = false;
        stream->next_free = c->params.kv_size; /* every cell was looked at: room for all */
    }
    return status;
}

/* ------------------------------------------------------------------------------------------- taking */

void kvl_window_take(kvlazy_cache *c, const kvl_plan_ubatch *b)
{
    const kvl_plan *p = &c->plan;
    bool any = false;

    for (uint32_t i = b->token_begin; p->victim && i < b->token_end; i++) {
        const kvl_victim *victim = &p->victim[i];

        any |= victim->seq >= 0;
        if (victim->seq >= 0)
            kvl_seq_changed(c, victim->seq);
        if (victim->seq >= 0 && victim->pos >= c->seq[victim->seq].lost_end)
            c->seq[victim->seq].lost_end = victim->pos + 1;
    }
    if (!any)
        return;
    uint64_t now_ms = kvl_now(c);
    take_victims(c, b, now_ms);
    kvl_note_fallow(c, now_ms);
}

void kvl_window_note_undone(kvlazy_cache *c, const kvl_cells *cells, uint32_t cell)
{
    for (kvlazy_seq_id o = -1; kvl_has_window(c) && (o = kvl_cells_next_owner(cells, cell, o + 1)) >= 0;) {
        kvl_seq *s = &c->seq[o];

        if (!s->n_undone++ || cells->pos[cell] < s->undone_from)
            s->undone_from = cells->pos[cell];
    }
}

void kvl_window_give_up(kvlazy_cache *c, const kvl_plan_ubatch *b, uint64_t now_ms)
{
    const kvl_plan *p = &c->plan;

    if (!p->victim)
        return;
    for (uint32_t i = b->token_begin; i < b->token_end; i++)
        p->victim[i].seq = -1; /* the cell is empty now, and that is what a second apply finds */
    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++) {
        if (c->seq[id].n_undone)
            kvl_window_refill(c, id, c->seq[id].undone_from, INT32_MAX, now_ms);
        c->seq[id].n_undone = 0;
    }
}

/* ------------------------------------------------------------------------------------------- what is lost */

/* A token at `next` would miss some of what recycling took. */
static bool misses_some(const kvlazy_cache *c, kvlazy_seq_id seq, int64_t next)
{
    return next > 0 && c->seq[seq].lost_end > kvl_policy_window_begin(c->params.swa_type, c->params.n_swa, next);
}

bool kvl_window_may_start(const kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos pos)
{
    return !kvl_has_window(c) || !misses_some(c, seq, pos);
}

/* Where the engine goes on after a removal of [p0, p1): behind what is left of the sequence, here or in a linked
 * cache. A linked cache that still ends inside the range was not told of the removal yet, and is passed over. */
static int64_t next_after(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    kvlazy_pos max = kvl_index_max(kvl_index_of(c, seq));

    for (kvlazy_cache *m = c->group->first; max < 0 && m; m = m->next) {
        kvlazy_pos left = kvl_index_max(kvl_index_of(m, seq));
        max = left < p0 || left >= p1 ? left : max;
    }
    return max < 0 ? p0 : (int64_t)max + 1;
}

static void set_torn(kvlazy_cache *c, kvlazy_seq_id seq, bool torn)
{
    c->group->n_torn += torn - c->seq[seq].torn;
    c->seq[seq].torn = torn;
}

/* Empties a sequence. The engine did not ask for this, so the sequence is marked and has to start anew at 0. */
static void tear(kvlazy_cache *c, kvlazy_seq_id seq, uint64_t now_ms)
{
    kvl_cells_rm(&kvl_stream_of(c, seq)->cells, seq, 0, INT32_MAX, now_ms);
    kvl_seq_changed(c, seq);
    kvl_note_fallow(c, now_ms);
    c->seq[seq].lost_end = 0;
    c->seq[seq].evicted = true;
    set_torn(c, seq, false);
}

void kvl_window_forget(kvlazy_cache *c, kvlazy_seq_id seq)
{
    c->seq[seq].lost_end = 0;
    set_torn(c, seq, false);
}

void kvl_window_follow_torn(kvlazy_cache *c)
{
    for (kvlazy_seq_id seq = 0; c->group->n_torn && seq < (kvlazy_seq_id)c->params.n_seq_max; seq++)
        if (c->seq[seq].torn)
            tear(c, seq, c->group->now_ms);
}

void kvl_window_refill(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, uint64_t now_ms)
{
    if (!kvl_has_window(c) || !c->seq[seq].lost_end || !misses_some(c, seq, next_after(c, seq, p0, p1)))
        return;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        set_torn(m, seq, true);
    tear(c, seq, now_ms);
}

void kvl_window_refill_shifted(kvlazy_cache *c, const kvl_cells *cells, uint64_t now_ms)
{
    for (uint32_t i = 0; kvl_has_window(c) && i < cells->n_seq; i++) {
        kvlazy_seq_id seq = (kvlazy_seq_id)(cells->seq_first + i);

        if (c->seq[seq].shifted)
            kvl_window_refill(c, seq, 0, 0, now_ms);
        c->seq[seq].shifted = false;
    }
}

bool kvl_window_any_holds(kvl_group *group, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    for (kvlazy_cache *m = group->first; m; m = m->next)
        if (kvl_index_below(kvl_index_of(m, seq), p0) < kvl_index_below(kvl_index_of(m, seq), p1))
            return true;
    return false;
}

/* Where no cache of the group holds a token in the range nothing was copied, and what recycling took stays as it is. A
 * linked cache may have copied what this one lost. */
void kvl_window_copied(kvlazy_cache *c, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    if (!kvl_has_window(c) || !kvl_window_any_holds(c->group, src, p0, p1))
        return;
    kvlazy_pos *lost_end = &c->seq[dst].lost_end, src_lost_end = c->seq[src].lost_end;
    const kvl_index *index = kvl_index_of(c, dst);

    if (index->n && kvl_index_min(index) >= p0 && kvl_index_max(index) < p1)
        *lost_end = 0; /* the sequence has nothing but what was copied */

    if (p1 >= *lost_end && p0 < *lost_end)
        *lost_end = p0; /* what was lost from there on was copied anew */
    kvlazy_pos taken_end = src_lost_end < p1 ? src_lost_end : p1;
    if (src_lost_end > p0 && taken_end > *lost_end)
        *lost_end = taken_end;
}

static int64_t moved(int64_t pos, kvl_motion motion)
{
    int64_t to = (pos + motion.delta + motion.divisor - 1) / motion.divisor;

    return to < 0 ? 0 : to;
}

/* Positions that were lost lie below the oldest token. Those that lie in the range move with it, in every sequence
 * whose oldest token moves, those that share it included. */
void kvl_window_moved(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion)
{
    const kvl_cells *cells = &kvl_stream_of(c, seq)->cells;

    for (uint32_t i = 0; kvl_has_window(c) && i < cells->n_seq; i++) {
        const kvl_index *index = &cells->index[i];
        kvlazy_pos *lost_end = &c->seq[cells->seq_first + i].lost_end;

        if (!*lost_end || !index->n || kvl_index_min(index) < p0 || kvl_index_min(index) >= p1 ||
            !kvl_cells_owns(cells, kvl_index_at(index, 0).cell, seq))
            continue;
        int64_t stays = *lost_end < p0 ? *lost_end : p0, goes = *lost_end > p0 ? moved(*lost_end, motion) : 0;
        int64_t oldest = moved(kvl_index_min(index), motion);
        *lost_end = (kvlazy_pos)kvl_min((uint64_t)(goes > stays ? goes : stays), (uint64_t)oldest);
    }
}

void kvl_window_follow_group(kvl_group *group)
{
    for (kvlazy_cache *m = group->n_torn ? group->first : NULL; m; m = m->next)
        kvl_window_follow(m);
}
