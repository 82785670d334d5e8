/* SPDX-License-Identifier: MIT */
/* prepare: see prepare.h. */
#include "core/prepare.h"
#include "core/batch.h"
#include "core/budget.h"
#include "core/clock.h"
#include "core/limits.h"
#include "core/window.h"

#include <inttypes.h>

/* ------------------------------------------------------------------------------------------- the batch, read */

static uint32_t n_owner_of(const kvlazy_ubatch *u, uint32_t i)
{
    return u->seq || !u->n_seq_id ? 1 : (uint32_t)u->n_seq_id[i];
}

static kvlazy_seq_id owner_of(const kvlazy_ubatch *u, uint32_t i, uint32_t k)
{
    return u->seq ? u->seq[i] : u->seq_id[i][k];
}

static int bad(kvl_log *log, uint32_t ubatch, uint32_t token, const char *what, int64_t value)
{
    kvl_log_note(log, KVLAZY_LOG_ERROR, "prepare: ubatch %u token %u: %s %" PRId64, ubatch, token, what, value);
    return KVLAZY_EINVAL;
}

static int check_token(kvlazy_cache *c, const kvlazy_ubatch *u, uint32_t number, uint32_t i)
{
    if (u->pos[i] < 0 || u->pos[i] == INT32_MAX)
        return bad(&c->log, number, i, "position out of range:", u->pos[i]);
    if (!u->seq && u->n_seq_id && (u->n_seq_id[i] < 1 || u->n_seq_id[i] > KVL_SEQ_MAX))
        return bad(&c->log, number, i, "number of sequences:", u->n_seq_id[i]);
    if (!u->seq && !u->seq_id[i])
        return bad(&c->log, number, i, "seq_id is NULL, entry", i);
    for (uint32_t k = 0; k < n_owner_of(u, i); k++) {
        if (!kvl_is_seq(c, owner_of(u, i, k)))
            return bad(&c->log, number, i, "sequence out of range:", owner_of(u, i, k));
        if (c->params.n_stream > 1 && owner_of(u, i, k) != owner_of(u, i, 0))
            return bad(&c->log, number, i, "a second stream's sequence:", owner_of(u, i, k));
    }
    return KVLAZY_OK;
}

/* Counts tokens and owners of the whole batch; every value in range. */
static int measure(kvlazy_cache *c, const kvlazy_ubatch *u, uint32_t n_ubatch, uint64_t *n_token, uint64_t *n_owner)
{
    *n_token = *n_owner = 0;
    for (uint32_t b = 0; b < n_ubatch; b++) {
        if (!u[b].n_token || !u[b].pos || (!u[b].seq && !u[b].seq_id))
            return bad(&c->log, b, 0, "no tokens, pos or sequences; n_token:", u[b].n_token);
        for (uint32_t i = 0; i < u[b].n_token; i++) {
            int status = check_token(c, &u[b], b, i);

            if (status)
                return status;
            *n_owner += n_owner_of(&u[b], i);
        }
        *n_token += u[b].n_token;
    }
    return *n_token > INT32_MAX || *n_owner > INT32_MAX ? bad(&c->log, 0, 0, "tokens in one batch:", (int64_t)*n_token)
                                                        : KVLAZY_OK;
}

/* K of a stream of the batch waits to be rotated. */
static bool waits_for_rotation(kvlazy_cache *c, const kvlazy_ubatch *u, uint32_t n_ubatch)
{
    if (KVL_LIKELY(!kvl_waits_for_rotation(c)))
        return false;
    for (uint32_t b = 0; b < n_ubatch; b++)
        for (uint32_t i = 0; i < u[b].n_token; i++)
            if (kvl_stream_of(c, owner_of(&u[b], i, 0))->cells.n_shifted)
                return true;
    return false;
}

/* ------------------------------------------------------------------------------------------- positions */

/* Notes one more token of a sequence. Returns false when it does not continue a sequence that has tokens, or a restore
 * finds one. Where a sequence without tokens may start is known only when the whole batch was seen. */
static bool follow(kvlazy_cache *c, kvlazy_seq_id id, kvlazy_pos pos, uint32_t *n_seq)
{
    const kvl_index *index = kvl_index_of(c, id);
    kvl_seq *s = &c->seq[id];
    bool follows, planes = c->params.n_pos_per_token > 1;

    if (!s->n_new) {
        c->plan.order[(*n_seq)++] = id;
        s->planned_low = INT32_MAX;
        s->high = kvl_index_max(index);
        s->unordered = false;
        s->mark_ubatch = 0;
        follows = !index->n || pos == s->high + 1 || (planes && pos >= s->high);
    } else {
        follows = pos == s->last || pos == s->last + 1 || (planes && pos > s->last);
    }
    if (index->n && (!follows || c->plan.restores))
        return false;
    s->unordered |= !follows && !planes; /* with planes gaps are allowed, so any order is */
    s->n_new++;
    s->last = pos;
    s->planned_low = pos < s->planned_low ? pos : s->planned_low;
    return true;
}

/* Writes into the plan the owners of a token, each once, and where apply must find that each sequence ends. */
static bool follow_owners(kvlazy_cache *c, const kvlazy_ubatch *u, uint32_t number, uint32_t i, uint32_t *n_seq)
{
    kvl_plan *p = &c->plan;

    for (uint32_t k = 0; k < n_owner_of(u, i); k++) {
        kvlazy_seq_id id = owner_of(u, i, k);
        kvl_seq *s = &c->seq[id];

        if (s->n_new && s->mark == p->n_token)
            continue;
        if (!follow(c, id, u->pos[i], n_seq)) {
            c->plan.refused_seq = id;
            return false;
        }
        s->mark = p->n_token;
        bool first = s->mark_ubatch != number + 1;
        if (first)
            s->first_owner = p->n_owner;
        p->owner[p->n_owner++] = (kvl_plan_owner){.seq = id, .expect = first ? s->high : KVL_EXPECT_ANY};
        p->owner[s->first_owner].n_token++;
        s->mark_ubatch = number + 1;
        s->high = u->pos[i] > s->high ? u->pos[i] : s->high;
    }
    p->owner_end[p->n_token] = p->n_owner;
    p->filled[p->n_token] = false;
    p->pos[p->n_token++] = u->pos[i];
    return true;
}

static int by_begin(const void *a, const void *b)
{
    const kvl_run *r = a, *s = b;

    return (r->begin > s->begin) - (r->begin < s->begin);
}

/* Positions of a sequence in the order of the plan, as runs in plan.run. Returns how many runs. */
static uint32_t position_runs(kvl_plan *p, kvlazy_seq_id id)
{
    uint32_t n = 0, begin = 0;

    for (uint32_t i = 0; i < p->n_token; begin = p->owner_end[i++])
        for (uint32_t k = begin; k < p->owner_end[i]; k++) {
            uint32_t pos = (uint32_t)p->pos[i];

            if (p->owner[k].seq != id)
                continue;
            if (n && p->run[n - 1].end == pos)
                p->run[n - 1].end++;
            else
                p->run[n++] = (kvl_run){.begin = pos, .end = pos + 1};
        }
    return n;
}

/* Positions in any order must still be all of [low, high]. Restores only, so sorting is fine. */
static bool has_gap(kvl_plan *plan, kvlazy_seq_id id)
{
    kvl_run *run = plan->run; /* scratch */
    uint32_t n = position_runs(plan, id), end = INT32_MAX;

    qsort(run, n, sizeof *run, by_begin);
    for (uint32_t i = 0; i < n; i++) {
        if (run[i].begin > end)
            return true;
        end = i ? (uint32_t)kvl_max(end, run[i].end) : run[i].end;
    }
    return false;
}

/* A sequence without tokens may start at any position, unless the engine may believe that it still has tokens. One that
 * restores does not believe so, and its gaps are what it saved. */
static bool starts_badly(kvlazy_cache *c, kvlazy_seq_id id)
{
    const kvl_seq *s = &c->seq[id];

    if (kvl_index_of(c, id)->n)
        return false;
    if (!kvl_window_may_start(c, id, s->planned_low))
        return true;
    return !c->plan.restores && (kvl_seq_must_start_anew(c, id) || (s->unordered && has_gap(&c->plan, id)));
}

static int check_positions(kvlazy_cache *c, const kvlazy_ubatch *u, uint32_t n_ubatch, uint32_t *n_seq)
{
    kvl_plan *p = &c->plan;

    p->n_token = p->n_owner = 0;
    for (uint32_t b = 0; b < n_ubatch; b++) {
        p->ubatch[b] = (kvl_plan_ubatch){.token_begin = p->n_token, .token_end = p->n_token + u[b].n_token};
        for (uint32_t i = 0; i < u[b].n_token; i++)
            if (!follow_owners(c, &u[b], b, i, n_seq))
                return KVLAZY_EPOS;
    }
    for (uint32_t i = 0; i < *n_seq; i++)
        if (starts_badly(c, c->plan.order[i])) {
            c->plan.refused_seq = c->plan.order[i];
            return KVLAZY_EPOS;
        }
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- cells */

/* Lowest free cell first. Within a batch the search only goes up, so each stream remembers where it stands. */
static int find_empty(kvlazy_cache *c, uint32_t n_seq)
{
    kvl_plan *p = &c->plan;

    for (uint32_t i = 0; i < n_seq; i++)
        kvl_stream_of(c, c->plan.order[i])->next_free = 0;
    for (uint32_t i = 0; i < p->n_token; i++) {
        kvl_stream *stream = kvl_stream_of(c, kvl_plan_first_owner(p, i));
        uint32_t cell = kvl_cells_next_free(&stream->cells, stream->next_free);

        if (cell >= c->params.kv_size) {
            c->plan.refused_seq = kvl_plan_first_owner(p, i);
            return KVLAZY_ENOSLOT;
        }
        p->stream[i] = (uint32_t)(stream - c->stream);
        p->cell[i] = cell;
        if (p->victim)
            p->victim[i].seq = -1;
        stream->next_free = cell + 1;
    }
    return KVLAZY_OK;
}

static int find_cells(kvlazy_cache *c, uint32_t n_seq, uint32_t n_ubatch)
{
    int status = find_empty(c, n_seq);

    if (status != KVLAZY_ENOSLOT || !kvl_has_window(c) || c->plan.restores)
        return status;
    c->plan.refused_seq = -1;
    return kvl_window_place(c, n_ubatch);
}

/* ------------------------------------------------------------------------------------------- prepare */

static int make_plan(kvlazy_cache *c, const kvlazy_ubatch *ubatch, uint32_t n_ubatch)
{
    uint64_t n_token, n_owner;
    uint32_t n_seq = 0;

    int status = measure(c, ubatch, n_ubatch, &n_token, &n_owner);
    if (!status && waits_for_rotation(c, ubatch, n_ubatch))
        status = KVLAZY_ESHIFT;
    if (!status)
        status = kvl_plan_reserve(&c->plan, n_ubatch, (uint32_t)n_token, (uint32_t)n_owner, kvl_has_window(c));
    if (!status)
        status = check_positions(c, ubatch, n_ubatch, &n_seq);
    if (!status)
        status = find_cells(c, n_seq, n_ubatch);
    if (!status)
        status = kvl_plan_reserve_cells(c, 0, c->plan.n_token);
    if (!status)
        status = kvl_fit_plan(c);
    for (uint32_t i = 0; i < n_seq; i++)
        c->seq[c->plan.order[i]].n_new = 0;
    return status;
}

int kvl_prepare(kvlazy_cache *c, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots, bool restores)
{
    kvl_plan *p = &c->plan;

    p->refused_seq = -1;
    p->n_ubatch = 0;
    p->ahead = (kvl_plan_ahead){0};
    p->restores = restores;
    kvl_limits_settle(c); /* a plan that is replaced needs nothing of the limits any more */
    int status = ubatch && n_ubatch && slots ? make_plan(c, ubatch, n_ubatch) : KVLAZY_EINVAL;
    if (status)
        return status;
    for (uint32_t b = 0; b < n_ubatch; b++)
        slots[b] = (kvlazy_slot){
            .n_token = p->ubatch[b].token_end - p->ubatch[b].token_begin,
            .stream = p->stream + p->ubatch[b].token_begin,
            .cell = p->cell + p->ubatch[b].token_begin,
        };
    p->n_ubatch = n_ubatch;
    kvl_batch_open(c->group);
    p->batch = c->group->n_opened;
    p->entered = c->group->n_entered;
    return KVLAZY_OK;
}

void kvl_prepare_refused(kvlazy_cache *c, int status, uint32_t n_ubatch)
{
    kvl_count_refusal(&c->counts, status);
    kvl_log_note(&c->log, status == KVLAZY_EINVAL ? KVLAZY_LOG_ERROR : KVLAZY_LOG_DEBUG,
                 "prepare: %u ubatches refused, sequence %" PRId32 ": %s", n_ubatch, c->plan.refused_seq,
                 kvlazy_status_message(status));
    kvl_batch_close(c->group);
    if (kvl_batch_is_due(c->group)) /* what was applied before is stamped by the next look, if no end_batch follows */
        kvl_note_due(c, c->group->now_ms);
}
