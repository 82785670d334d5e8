/* SPDX-License-Identifier: MIT */
/* budget: see budget.h. */
#include "core/budget.h"
#include "core/cover.h"
#include "core/limits.h"
#include "core/release.h"
#include "core/window.h"

/* ------------------------------------------------------------------------------------------- making room */

/* keep also holds the cells of planned tokens that were not applied yet. Applied ones are live, or were removed since.
 */
static void keep_unapplied(kvlazy_cache *c)
{
    const kvl_plan *p = &c->plan;

    for (const kvl_plan_ubatch *b = p->ubatch; c->group->open && b < p->ubatch + p->n_ubatch; b++)
        for (uint32_t i = b->token_begin; !b->applied && i < b->token_end; i++)
            if (p->cell[i] < c->stream[p->stream[i]].cells.n_cell)
                kvl_bit_set(c->stream[p->stream[i]].cells.keep, p->cell[i]);
}

static void keep_needed(kvlazy_cache *c)
{
    kvl_keep_live(c->stream, c->params.n_stream);
    keep_unapplied(c);
}

uint64_t kvl_spare_bytes(kvlazy_cache *c)
{
    keep_needed(c);
    return kvl_spare_pages(c) * kvl_rows_page_bytes(&c->rows);
}

void kvl_give_spare(kvlazy_cache *c)
{
    keep_needed(c);
    kvl_release_outside_keep(c);
    kvl_limits_give(c);
}

/* Kept cells, and n_lent pages on top, do not fit beside all that is touched: free pages outside the kept cells go
 * back, if what is kept then fits. A page that both a plan and a copy will touch counts once. KVLAZY_EBUDGET: it does
 * not, or the host would not take them. */
static int make_room(kvlazy_cache *c, uint64_t n_lent)
{
    if (kvl_limits_check(c, kvl_needed_pages(c)))
        return KVLAZY_EBUDGET;
    kvl_release_outside_keep(c);
    uint64_t n_more = kvl_kept_pages(&c->rows, c->stream, false) - kvl_kept_pages(&c->rows, c->stream, true) + n_lent;
    return kvl_limits_take(c, kvl_rows_touched(&c->rows) + n_more) ? KVLAZY_OK : KVLAZY_EBUDGET;
}

/* ------------------------------------------------------------------------------------------- shared pages */

/* Linked caches may have tensors in one arena, and where these begin and end in the middle of a page, the page counts
 * for both. What one touches there has to fit the limits of the other, too. */

static bool in_shared_arena(const kvl_rows *rows)
{
    for (uint32_t i = 0; i < rows->geometry.n_arena; i++)
        if (rows->geometry.arena[i]->n_cache > 1)
            return true;
    return false;
}

bool kvl_has_limited_twin(kvlazy_cache *c)
{
    if (KVL_LIKELY(!c->group->first->next) || !in_shared_arena(&c->rows))
        return false;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        if (m != c && kvl_limits_any(m))
            return true;
    return false;
}

/* Of the pages that a cache gathered, how many count for the linked cache m as well. */
static uint64_t shared_with(kvlazy_cache *c, kvlazy_cache *m)
{
    return m == c || !kvl_limits_any(m) ? 0 : kvl_rows_gathered_under(&c->rows, &m->rows);
}

static uint64_t pages_had(const kvl_rows *rows)
{
    return kvl_rows_touched(rows) + kvl_rows_outstanding(rows);
}

/* n pages more count for a linked cache: some of its own that are free go first. Gathers anew. */
static int make_room_in_twin(kvlazy_cache *m, uint64_t n)
{
    keep_needed(m);
    int status = kvl_limits_check(m, kvl_needed_pages(m) + n);
    m->limits.pool_wants = m->limits.machine_wants = 0; /* no call of this cache was refused */
    if (status)
        return status;
    kvl_release_outside_keep(m);
    kvl_limits_give(m);
    return kvl_limits_take(m, pages_had(&m->rows) + n) ? KVLAZY_OK : KVLAZY_EBUDGET;
}

/* The gathered runs fit the limits of all that share pages with them. Afterwards they are gathered still. */
static int fit_twins(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    int status = KVLAZY_OK;

    if (KVL_LIKELY(!kvl_has_limited_twin(c)))
        return KVLAZY_OK;
    for (kvlazy_cache *m = c->group->first; !status && m; m = m->next) {
        uint64_t n = shared_with(c, m);

        if (!n || kvl_limits_take(m, pages_had(&m->rows) + n))
            continue;
        status = make_room_in_twin(m, n);
        if (!status)
            status = kvl_rows_want(&c->rows, run, n_run);
    }
    return status;
}

/* The first n tokens of the plan would fit them. Gathers anew. */
static bool twins_allow(kvlazy_cache *c, uint32_t n_token)
{
    if (KVL_LIKELY(!kvl_has_limited_twin(c)))
        return true;
    uint32_t n_run = kvl_plan_runs(&c->plan, 0, n_token);
    if (kvl_rows_want(&c->rows, c->plan.run, n_run))
        return false;
    for (kvlazy_cache *m = c->group->first; m; m = m->next) {
        uint64_t n = shared_with(c, m);

        if (!n)
            continue;
        keep_needed(m);
        if (!kvl_limits_allow(m, kvl_needed_pages(m) + n))
            return false;
    }
    return true;
}

static bool may_be_lent(const kvlazy_cache *c)
{
    return KVL_UNLIKELY(c->group->first->next) && kvl_limits_any(c) && in_shared_arena(&c->rows);
}

/* What the open plans of linked caches will touch under this one. Gathers anew, in the arenas of all. */
static uint64_t pages_lent(kvlazy_cache *c)
{
    uint64_t n = 0;

    if (!may_be_lent(c))
        return 0;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        if (m != c && m->plan.n_ubatch && kvl_rows_outstanding(&m->rows) &&
            !kvl_rows_want(&m->rows, m->plan.run, kvl_plan_runs(&m->plan, 0, m->plan.n_token)))
            n += shared_with(m, c);
    return n;
}

/* ------------------------------------------------------------------------------------------- some runs */

/* What an open plan was promised is its own: pages for anything else come on top, and on top of what plans of linked
 * caches will touch here. Runs of the plan itself take of it. */
static int fits_on_top(kvlazy_cache *c, const kvl_run *run, uint32_t n_run, uint64_t *n_lent)
{
    bool planned = run == c->plan.run;

    *n_lent = planned ? 0 : pages_lent(c);

    if (!planned && may_be_lent(c) && kvl_rows_want(&c->rows, run, n_run))
        return KVLAZY_ENOMEM;
    uint64_t n_more = kvl_rows_gathered(&c->rows) + *n_lent + (planned ? 0 : kvl_rows_outstanding(&c->rows));
    return !kvl_limits_any(c) || kvl_limits_take(c, kvl_rows_touched(&c->rows) + n_more) ? KVLAZY_OK : KVLAZY_EBUDGET;
}

bool kvl_runs_fit(kvlazy_cache *c)
{
    uint64_t n_more = kvl_rows_gathered(&c->rows) + kvl_rows_outstanding(&c->rows);

    return !kvl_rows_gathered(&c->rows) ||
           (!kvl_has_limited_twin(c) &&
            (!kvl_limits_any(c) || kvl_limits_take(c, kvl_rows_touched(&c->rows) + n_more)));
}

int kvl_fit_runs(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    uint64_t n_lent;

    if (!kvl_rows_gathered(&c->rows))
        return KVLAZY_OK;
    int status = fits_on_top(c, run, n_run, &n_lent);
    if (status == KVLAZY_EBUDGET) {
        keep_needed(c);
        for (const kvl_run *r = run; r < run + n_run; r++)
            kvl_bits_fill(c->stream[r->stream].cells.keep, r->begin, r->end, true);
        status = make_room(c, n_lent);
        if (!status)
            status = kvl_rows_want(&c->rows, run, n_run); /* making room gathers too */
    }
    return status || run == c->plan.run ? status : fit_twins(c, run, n_run);
}

/* ------------------------------------------------------------------------------------------- a whole batch */

static void keep_planned(kvlazy_cache *c, uint32_t n_token)
{
    kvl_keep_live(c->stream, c->params.n_stream);
    for (uint32_t i = 0; i < n_token; i++)
        kvl_bit_set(c->stream[c->plan.stream[i]].cells.keep, c->plan.cell[i]);
}

/* With every free page gone, would live cells and the first n tokens fit? */
static bool tokens_fit(kvlazy_cache *c, uint32_t n_token)
{
    keep_planned(c, n_token);
    return kvl_limits_allow(c, kvl_needed_pages(c)) && twins_allow(c, n_token);
}

/* The first token that does not fit any more; the whole batch does not. */
static uint32_t first_unfit(kvlazy_cache *c)
{
    uint32_t fit = 0, unfit = c->plan.n_token;

    while (fit + 1 < unfit) {
        uint32_t middle = fit + (unfit - fit) / 2;

        if (tokens_fit(c, middle))
            fit = middle;
        else
            unfit = middle;
    }
    return unfit - 1;
}

/* The plan's own cache allows it, once room was made where it must be. Afterwards the plan is gathered still. */
static int fit_own(kvlazy_cache *c, uint32_t n_run, uint64_t n_lent)
{
    uint64_t n_more = kvl_rows_gathered(&c->rows) + n_lent;

    if (!kvl_limits_any(c) || kvl_limits_take(c, kvl_rows_touched(&c->rows) + n_more))
        return KVLAZY_OK;
    keep_planned(c, c->plan.n_token);
    int status = make_room(c, n_lent);
    return status ? status : kvl_rows_want(&c->rows, c->plan.run, n_run);
}

int kvl_fit_plan(kvlazy_cache *c)
{
    if (!kvl_limits_any(c) && !kvl_has_limited_twin(c))
        return KVLAZY_OK;
    uint32_t n_run = kvl_plan_runs(&c->plan, 0, c->plan.n_token);
    uint64_t n_lent = pages_lent(c); /* the plan before this one held them, and this one has to */
    if (KVL_LIKELY(!n_lent && kvl_rows_ready(&c->rows, c->plan.run, n_run)))
        return KVLAZY_OK;
    if (kvl_rows_want(&c->rows, c->plan.run, n_run))
        return KVLAZY_ENOMEM;
    if (!n_lent && !kvl_rows_gathered(&c->rows))
        return KVLAZY_OK;
    int status = fit_own(c, n_run, n_lent);
    if (!status)
        status = fit_twins(c, c->plan.run, n_run);
    if (status == KVLAZY_EBUDGET) {
        uint64_t pool_wants = c->limits.pool_wants, machine_wants = c->limits.machine_wants;

        c->plan.refused_seq = kvl_plan_first_owner(&c->plan, first_unfit(c));
        c->limits.pool_wants = pool_wants;
        c->limits.machine_wants = machine_wants;
    }
    return status;
}

/* ------------------------------------------------------------------------------------------- room */

/* keep := live cells and the n lowest free cells of one stream. */
static void keep_lowest(kvlazy_cache *c, kvl_stream *stream, uint32_t n)
{
    kvl_cells *cells = &stream->cells;
    uint32_t cell = 0;

    kvl_keep_live(c->stream, c->params.n_stream);
    while (n && (cell = kvl_cells_next_free(cells, cell)) < cells->n_cell) {
        uint32_t end = (uint32_t)kvl_bits_next(cells->used, cell, cells->n_cell, true);

        end = (uint32_t)kvl_min(end, (uint64_t)cell + n);
        kvl_bits_fill(cells->keep, cell, end, true);
        n -= end - cell;
        cell = end;
    }
    stream->keep_end = cells->n_cell + n;
}

static uint32_t room_under_limits(kvlazy_cache *c, kvl_stream *stream, uint32_t n_free)
{
    uint64_t unfit = (uint64_t)n_free + 1;
    uint32_t fit = 0;

    while (fit + 1 < unfit) {
        uint32_t middle = (uint32_t)(fit + (unfit - fit) / 2);

        keep_lowest(c, stream, middle);
        if (kvl_limits_allow(c, kvl_needed_pages(c)))
            fit = middle;
        else
            unfit = middle;
    }
    return fit;
}

uint32_t kvl_room(kvlazy_cache *c, kvlazy_seq_id seq)
{
    kvl_stream *stream = kvl_stream_of(c, seq);
    uint32_t n_free = c->params.kv_size - stream->cells.n_used;
    uint32_t fit = kvl_limits_any(c) ? room_under_limits(c, stream, n_free) : n_free;

    if (fit == n_free) /* only then are masked cells taken, and their pages are there */
        fit += kvl_window_recyclable(c, stream);
    return fit;
}
