/* SPDX-License-Identifier: MIT */
/* target: see target.h. */
#include "state/target.h"
#include "core/cap.h"
#include "core/clock.h"
#include "core/limits.h"

typedef kvl_state_target target;

void kvl_state_target_fini(target *t)
{
    free(t->seq);
    free(t->pos);
    free(t->plane);
    free(t->owner);
    kvl_hold_fini(&t->hold);
}

/* ------------------------------------------------------------------------------------------- cells */

/* The owners of token after token: the first of the next, and how many. */
typedef struct owners {
    const uint32_t *at;
    uint32_t alone[2];
} owners;

static owners owners_of(const target *t)
{
    return (owners){t->owner, {1, (uint32_t)t->id}};
}

static const uint32_t *next_owners(owners *o, uint32_t *n)
{
    const uint32_t *at = o->at ? o->at : o->alone;

    if (o->at)
        o->at += at[0] + 1;
    *n = at[0];
    return at + 1;
}

static kvlazy_seq_id id_of(const target *t, const kvl_state_seq *seq)
{
    return t->id < 0 ? seq->seq : t->id;
}

/* The same owners as those before, in the form of next_owners. */
static bool same_owners(const uint32_t *owner, uint32_t n, const uint32_t *last, uint32_t n_last)
{
    return n == n_last && !memcmp(owner, last, n * sizeof *owner);
}

/* Each stream has room for the sets of owners that its shared tokens begin. */
static int reserve_sets(target *t)
{
    owners o = owners_of(t);
    const uint32_t *last = NULL;
    uint32_t n_owner, n_last = 0, n_set = 0;

    for (uint32_t i = t->n_skip; i < t->shape.n_token; i++) {
        const uint32_t *owner = next_owners(&o, &n_owner);

        n_set += n_owner > 1 && !(last && same_owners(owner, n_owner, last, n_last));
        last = owner;
        n_last = n_owner;
    }
    for (uint32_t s = 0; n_set && s < t->cache->params.n_stream; s++)
        if (kvl_cells_reserve_sets(&t->cache->stream[s].cells, n_set + 1))
            return KVLAZY_ENOMEM;
    return KVLAZY_OK;
}

/* A run a token is the most. */
int kvl_state_target_reserve(target *t)
{
    for (uint32_t i = 0; i < t->shape.n_seq; i++) {
        kvlazy_seq_id id = id_of(t, &t->seq[i]);

        if (kvl_cells_reserve_seq(&kvl_stream_of(t->cache, id)->cells, id, t->seq[i].n_token))
            return KVLAZY_ENOMEM;
    }
    return reserve_sets(t);
}

/* Where cells are short, a sequence with a window comes without what its next token does not see, whole positions of
 * it, as if recycling had taken it. */
static void skip_masked(target *t)
{
    kvlazy_cache *c = t->cache;
    uint32_t n = t->shape.n_token, n_free;

    if (t->id < 0 || !n || !kvl_has_window(c))
        return;
    n_free = c->params.kv_size - kvl_stream_of(c, t->id)->cells.n_used;
    int64_t begin = kvl_policy_window_begin(c->params.swa_type, c->params.n_swa, (int64_t)t->pos[n - 1] + 1);
    while (t->n_skip < n && t->pos[t->n_skip] < begin &&
           (n - t->n_skip > n_free || (t->n_skip && t->pos[t->n_skip] == t->pos[t->n_skip - 1])))
        t->n_skip++;
    if (t->n_skip && t->seq->lost_end <= t->pos[t->n_skip - 1])
        t->seq->lost_end = t->pos[t->n_skip - 1] + 1;
}

/* The plan of an earlier prepare may have these cells, and is void. */
int kvl_state_target_place(target *t, bool (*reclaim)(kvlazy_cache *cache))
{
    owners o = owners_of(t);
    uint32_t n_owner;

    skip_masked(t);
    int status = kvl_hold_init(&t->hold, t->shape.n_token - t->n_skip);
    t->cache->plan.n_ubatch = 0;
    kvl_limits_settle(t->cache);
    for (uint32_t i = 0; !status && i < t->hold.n; i++) {
        const uint32_t *owner = next_owners(&o, &n_owner);

        t->hold.place[i].stream = kvl_stream_number(t->cache, kvl_stream_of(t->cache, (kvlazy_seq_id)owner[0]));
    }
    if (!status)
        status = kvl_state_target_reserve(t);
    if (!status)
        status = kvl_hold_take(t->cache, &t->hold);
    if (status == KVLAZY_EBUDGET && reclaim(t->cache))
        status = kvl_hold_take(t->cache, &t->hold);
    return status;
}

/* ------------------------------------------------------------------------------------------- rows */

/* Those of tokens that are not taken are passed over. */
int kvl_state_target_put(target *t, const kvl_tensor *k, const kvl_state_piece *p, const void *rows)
{
    uint64_t row_bytes = kvl_state_row_bytes(k);

    if (p->begin + p->n <= t->n_skip)
        return KVLAZY_OK;
    uint32_t begin = p->begin > t->n_skip ? p->begin : t->n_skip, n = p->begin + p->n - begin, at = begin - t->n_skip;
    const unsigned char *row = (const unsigned char *)rows + (begin - p->begin) * row_bytes;
    int status = kvl_hold_touch(t->cache, &t->hold, k, at, n);

    if (!status && p->part.end - p->part.begin < row_bytes)
        kvl_rows_put_part(&t->cache->rows, k, t->hold.place[at], p->part, row);
    else if (!status)
        kvl_rows_put(&t->cache->rows, k, t->hold.place + at, n, row);
    return status;
}

/* ------------------------------------------------------------------------------------------- becoming live */

/* What the sequence was is gone: what is known of it is what the state says. */
static void become(kvlazy_cache *c, kvlazy_seq_id id, const kvl_state_seq *is, uint64_t now_ms)
{
    kvl_seq *s = &c->seq[id];

    if (kvl_cells_rm(&kvl_stream_of(c, id)->cells, id, 0, INT32_MAX, now_ms))
        kvl_note_fallow(c, now_ms);
    s->lost_end = is->lost_end;
    s->moved = is->marks & KVL_STATE_MOVED;
    s->evicted = is->marks & KVL_STATE_EVICTED;
    s->fresh = INT32_MAX; /* what was applied in this batch is gone, what came is settled */
    kvl_seq_changed(c, id);
    if (is->n_token)
        kvl_note_activity(c, id, now_ms);
}

static void fill(target *t)
{
    kvlazy_cache *c = t->cache;
    owners o = owners_of(t);
    uint32_t n_owner, n = t->shape.n_token;

    for (uint32_t i = t->n_skip; i < n; i++) { /* only of a sequence alone any are skipped */
        kvl_place place = t->hold.place[i - t->n_skip];
        kvl_cells *cells = &c->stream[place.stream].cells;
        const uint32_t *owner = next_owners(&o, &n_owner);
        uint32_t cell = place.cell;

        kvl_cells_put(cells, cell, t->pos[i]);
        if (cells->planes) {
            cells->ext_y[cell] = t->plane[i];
            cells->ext_x[cell] = t->plane[n + (size_t)i];
        }
        for (uint32_t k = 0; k < n_owner; k++)
            kvl_cells_own(cells, cell, (kvlazy_seq_id)owner[k]);
    }
    t->hold.taken = false;
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        kvl_follow_cap(c, &c->stream[s]);
}

/* Nothing here can fail. */
void kvl_state_target_commit(target *t, uint64_t now_ms)
{
    for (kvlazy_seq_id id = 0; t->id < 0 && id < (kvlazy_seq_id)t->cache->params.n_seq_max; id++)
        become(t->cache, id, &(kvl_state_seq){0}, now_ms); /* those without a record are as new */
    for (uint32_t i = 0; i < t->shape.n_seq; i++)
        become(t->cache, id_of(t, &t->seq[i]), &t->seq[i], now_ms);
    fill(t);
}
