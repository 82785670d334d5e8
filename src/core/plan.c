/* SPDX-License-Identifier: MIT */
/* plan: see plan.h. */
#include "core/plan.h"
#include "core/cache.h"
#include <bsd/stdlib.h>

static bool grow(void *array, size_t item_bytes, uint32_t n)
{
    void *grown = reallocarray(*(void **)array, n, item_bytes);

    if (grown)
        memcpy(array, &grown, sizeof grown);
    return grown != NULL;
}

int kvl_plan_init(kvl_plan *p, uint32_t n_seq_max, uint32_t n_stream)
{
    p->order = calloc(n_seq_max, sizeof *p->order);
    p->last_run = calloc(n_stream, sizeof *p->last_run);
    return p->order && p->last_run ? KVLAZY_OK : KVLAZY_ENOMEM;
}

/* An array that grew while another could not is harmless: `cap` speaks for all. */
int kvl_plan_reserve(kvl_plan *p, uint32_t n_ubatch, uint32_t n_token, uint32_t n_owner, bool window)
{
    if (n_ubatch > p->cap_ubatch) {
        if (!grow(&p->ubatch, sizeof *p->ubatch, n_ubatch))
            return KVLAZY_ENOMEM;
        p->cap_ubatch = n_ubatch;
    }
    if (n_token > p->cap_token) {
        if (!grow(&p->stream, sizeof *p->stream, n_token) || !grow(&p->cell, sizeof *p->cell, n_token) ||
            !grow(&p->owner_end, sizeof *p->owner_end, n_token) || !grow(&p->pos, sizeof *p->pos, n_token) ||
            !grow(&p->filled, sizeof *p->filled, n_token) || !grow(&p->run, sizeof *p->run, n_token) ||
            (window && !grow(&p->victim, sizeof *p->victim, n_token)))
            return KVLAZY_ENOMEM;
        p->cap_token = n_token;
    }
    if (n_owner > p->cap_owner) {
        if (!grow(&p->owner, sizeof *p->owner, n_owner))
            return KVLAZY_ENOMEM;
        p->cap_owner = n_owner;
    }
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- room for tokens */

/* Where the tokens from `begin` on end, below `end`, that all have the same owners. */
static uint32_t same_owners_end(const kvl_plan *p, uint32_t begin, uint32_t end)
{
    const kvl_plan_owner *first = &p->owner[kvl_plan_owner_begin(p, begin)], *last = p->owner + p->owner_end[begin];
    kvlazy_seq_id alone = last - first == 1 ? first->seq : -1;
    uint32_t i = begin + 1;

    for (const kvl_plan_owner *o = last; i < end && p->owner_end[i] - p->owner_end[i - 1] == last - first; i++) {
        if (alone >= 0 && (o++)->seq != alone)
            return i;
        for (const kvl_plan_owner *f = first; alone < 0 && f < last; f++, o++)
            if (f->seq != o->seq)
                return i;
    }
    return i;
}

/* More tokens of a sequence: a run each, if it does not go on with the last one, and where it may come between others,
 * another for what it splits. */
static void count_runs(kvlazy_cache *c, kvlazy_seq_id id, uint32_t begin, uint32_t end)
{
    const kvl_plan *p = &c->plan;
    kvl_seq *s = &c->seq[id];
    uint32_t n = s->n_run, cell = s->run_cell;
    kvlazy_pos pos = s->run_pos, top = n ? s->run_top : kvl_index_max(kvl_index_of(c, id));

    for (uint32_t i = begin; i < end; i++) {
        bool goes_on = n && p->pos[i] == pos && p->cell[i] == cell;

        n += p->pos[i] < top ? 2 : !goes_on;
        top = p->pos[i] > top ? p->pos[i] : top;
        pos = p->pos[i] + 1;
        cell = p->cell[i] + 1;
    }
    s->n_run = n;
    s->run_cell = cell;
    s->run_pos = pos;
    s->run_top = top;
}

/* Neighbours name one set. */
static uint32_t count_sets(const kvl_plan *p, uint32_t begin, uint32_t end)
{
    uint32_t n = 1;

    for (uint32_t i = begin + 1; i < end; i++)
        n += p->cell[i] != p->cell[i - 1] + 1;
    return n;
}

static int reserve_cells(kvlazy_cache *c, uint32_t begin, uint32_t end)
{
    const kvl_plan *p = &c->plan;
    uint32_t top = 0;

    for (uint32_t i = begin; i < end; i++)
        top = p->cell[i] > top ? p->cell[i] : top;
    return kvl_cells_reserve(&c->stream[p->stream[begin]].cells, top + 1);
}

/* What was counted, once a sequence. */
static int reserve_counted(kvlazy_cache *c, uint32_t token_begin, uint32_t token_end)
{
    const kvl_plan *p = &c->plan;
    int status = KVLAZY_OK;

    for (uint32_t k = kvl_plan_owner_begin(p, token_begin); k < p->owner_end[token_end - 1]; k++) {
        kvl_seq *s = &c->seq[p->owner[k].seq];

        if (s->n_run && kvl_index_reserve(kvl_index_of(c, p->owner[k].seq), s->n_run))
            status = KVLAZY_ENOMEM;
        s->n_run = 0;
    }
    return status;
}

/* One token that one sequence owns, the most frequent case. */
static int reserve_one(kvlazy_cache *c, uint32_t token)
{
    const kvl_plan *p = &c->plan;
    kvl_cells *cells = &c->stream[p->stream[token]].cells;
    kvl_index *index = kvl_cells_index(cells, p->owner[kvl_plan_owner_begin(p, token)].seq);

    if (kvl_cells_reserve(cells, p->cell[token] + 1))
        return KVLAZY_ENOMEM;
    return kvl_index_reserve(index, p->pos[token] < kvl_index_max(index) ? 2 : 1);
}

int kvl_plan_reserve_cells(kvlazy_cache *c, uint32_t token_begin, uint32_t token_end)
{
    const kvl_plan *p = &c->plan;
    uint32_t n_set = 0;
    int status = KVLAZY_OK;

    if (token_begin + 1 == token_end && kvl_plan_owner_begin(p, token_begin) + 1 == p->owner_end[token_begin])
        return reserve_one(c, token_begin);
    for (uint32_t i = token_begin, end; i < token_end; i = end) {
        uint32_t first = kvl_plan_owner_begin(p, i);

        end = same_owners_end(p, i, token_end);
        for (uint32_t k = first; k < p->owner_end[i]; k++)
            count_runs(c, p->owner[k].seq, i, end);
        if (p->owner_end[i] - first > 1)
            n_set += count_sets(p, i, end);
        if (reserve_cells(c, i, end))
            status = KVLAZY_ENOMEM;
    }
    if (n_set && kvl_cells_reserve_sets(&c->stream[p->stream[token_begin]].cells, n_set + 1)) /* there is but one */
        status = KVLAZY_ENOMEM;
    return reserve_counted(c, token_begin, token_end) ? KVLAZY_ENOMEM : status;
}

/* ------------------------------------------------------------------------------------------- runs of cells */

static int by_place(const void *a, const void *b)
{
    const kvl_run *r = a, *s = b;

    return r->stream != s->stream ? (r->stream > s->stream) - (r->stream < s->stream)
                                  : (r->begin > s->begin) - (r->begin < s->begin);
}

uint32_t kvl_plan_runs(kvl_plan *p, uint32_t token_begin, uint32_t token_end)
{
    uint32_t n = 0;
    bool ascending = true;

    if (token_begin + 1 == token_end) {
        p->run[0] = (kvl_run){p->stream[token_begin], p->cell[token_begin], p->cell[token_begin] + 1};
        return 1;
    }
    for (uint32_t i = token_begin; i < token_end; i++) {
        uint32_t *last = &p->last_run[p->stream[i]];

        if (*last && p->run[*last - 1].end == p->cell[i]) {
            p->run[*last - 1].end++;
            continue;
        }
        ascending &= !n || p->run[n - 1].stream < p->stream[i] ||
                     (p->run[n - 1].stream == p->stream[i] && p->run[n - 1].begin < p->cell[i]);
        p->run[n++] = (kvl_run){p->stream[i], p->cell[i], p->cell[i] + 1};
        *last = n;
    }
    for (uint32_t i = 0; i < n; i++)
        p->last_run[p->run[i].stream] = 0;
    if (!ascending)
        qsort(p->run, n, sizeof *p->run, by_place);
    return n;
}

/* Only the pointers are compared, since a stale slot's arrays may be gone. */
kvl_plan_ubatch *kvl_plan_find(kvl_plan *p, const kvlazy_slot *slot)
{
    uint32_t low = 0, high = p->n_ubatch;

    if (!slot || !high)
        return NULL;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if ((uintptr_t)(p->cell + p->ubatch[middle].token_begin) <= (uintptr_t)slot->cell)
            low = middle;
        else
            high = middle;
    }
    kvl_plan_ubatch *u = &p->ubatch[low];
    bool same = slot->cell == p->cell + u->token_begin && slot->stream == p->stream + u->token_begin &&
                slot->n_token == u->token_end - u->token_begin;
    return same ? u : NULL;
}

/* The owners of a planned token, each once, are those of the ubatch, in its order. */
static bool same_owners(const kvl_plan *p, uint32_t token, const kvlazy_ubatch *u, uint32_t i)
{
    uint32_t at = kvl_plan_owner_begin(p, token), end = p->owner_end[token];

    if (KVL_UNLIKELY(!u->seq && !u->seq_id[i]))
        return false;
    if (KVL_LIKELY(u->seq || !u->n_seq_id))
        return at + 1 == end && p->owner[at].seq == (u->seq ? u->seq[i] : u->seq_id[i][0]);
    for (int32_t k = 0; k < u->n_seq_id[i]; k++) {
        if (at < end && p->owner[at].seq == u->seq_id[i][k]) {
            at++;
            continue;
        }
        bool again = false; /* named twice */
        for (uint32_t j = kvl_plan_owner_begin(p, token); j < at; j++)
            again |= p->owner[j].seq == u->seq_id[i][k];
        if (!again)
            return false;
    }
    return at == end;
}

bool kvl_plan_matches(const kvl_plan *p, const kvl_plan_ubatch *b, const kvlazy_ubatch *u)
{
    if (u->n_token != b->token_end - b->token_begin || !u->pos || (!u->seq && !u->seq_id))
        return false;
    for (uint32_t i = 0; i < u->n_token; i++)
        if (u->pos[i] != p->pos[b->token_begin + i] || !same_owners(p, b->token_begin + i, u, i))
            return false;
    return true;
}

bool kvl_plan_still_holds(const kvl_cells *cells, const kvl_plan *p, uint32_t token)
{
    return p->filled[token] && kvl_cells_is_used(cells, p->cell[token]);
}

static bool in_runs(const kvl_run *run, uint32_t n_run, uint32_t stream, uint32_t cell)
{
    uint32_t low = 0, high = n_run; /* the last run that does not begin behind the cell */

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        const kvl_run *r = &run[middle];

        if (r->stream < stream || (r->stream == stream && r->begin <= cell))
            low = middle;
        else
            high = middle;
    }
    return n_run && run[low].stream == stream && run[low].begin <= cell && cell < run[low].end;
}

void kvl_plan_forget(kvl_plan *p, const kvl_run *run, uint32_t n_run)
{
    for (uint32_t i = 0; p->n_ubatch && i < p->n_token; i++)
        p->filled[i] = p->filled[i] && !in_runs(run, n_run, p->stream[i], p->cell[i]);
}

void kvl_plan_fini(kvl_plan *p)
{
    free(p->ubatch);
    free(p->stream);
    free(p->cell);
    free(p->owner_end);
    free(p->pos);
    free(p->filled);
    free(p->owner);
    free(p->victim);
    free(p->run);
    free(p->last_run);
    free(p->order);
    free(p->oldest);
}
