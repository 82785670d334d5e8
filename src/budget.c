/* SPDX-License-Identifier: MIT */
/*
 * budget: what fits under the ceilings for touched bytes: the cache's own, that of its pool, and what the machine has
 * left. Asked before pages are taken, and by engines for the room there is. What counts is the page cover of what
 * stays: free pages go back before a batch is refused, but only when all of it then fits.
 */
#include "cache.h"

enum {
    HEADROOM_MS = 100, /* between two looks at the limits of the machine */
    LOOK_PART = 16,    /* of what was free then, after which another look is worth it */
};

/* ------------------------------------------------------------------------------------------- what is allowed */

static bool within_budget(const kvlazy_cache *c, uint64_t n_page)
{
    return !c->params.budget_bytes || n_page * kvl_page_size(c) <= c->params.budget_bytes;
}

/* What the machine allows is read again when a part of what it had is used, since others live on it too. What was seen
 * last counts while it is too early for another look. */
static bool machine_allows(kvlazy_cache *c, uint64_t n_page)
{
    if (KVL_LIKELY(!c->mem.headroom || !c->host_root || n_page <= c->look_pages))
        return true;
    uint64_t now_ms = kvl_now(c), n_touched = kvl_touched_pages(c);
    if (c->look_ms && now_ms < c->look_ms + HEADROOM_MS)
        return n_page <= c->headroom_pages;
    uint64_t n_free = kvl_host_headroom(&c->mem, c->host_root) / kvl_page_size(c);
    c->look_ms = kvl_max(now_ms, 1);
    c->look_pages = n_touched + n_free / LOOK_PART;
    c->headroom_pages = n_touched + n_free;
    return n_page <= c->headroom_pages;
}

static bool pool_allows(const kvlazy_cache *c, uint64_t n_page)
{
    uint64_t bytes = n_page * kvl_page_size(c);

    return !c->share.pool || bytes <= c->share.taken_bytes || bytes - c->share.taken_bytes <= kvl_share_room(&c->share);
}

bool kvl_may_touch(kvlazy_cache *c, uint64_t n_page)
{
    return within_budget(c, n_page) && machine_allows(c, n_page) &&
           kvl_share_resize(&c->share, kvl_max(c->share.taken_bytes, n_page * kvl_page_size(c)));
}

static bool is_limited(const kvlazy_cache *c)
{
    return c->params.budget_bytes || c->share.pool || (c->mem.headroom && c->host_root);
}

/* Would this many pages be allowed? Takes nothing. */
static bool could_touch(kvlazy_cache *c, uint64_t n_page)
{
    return within_budget(c, n_page) && machine_allows(c, n_page) && pool_allows(c, n_page);
}

/* ------------------------------------------------------------------------------------------- making room */

int kvl_make_room(kvlazy_cache *c, uint64_t n_more)
{
    uint64_t n_kept = kvl_needed_pages(c);

    c->pool_wants = 0;
    if (!within_budget(c, n_kept) || !machine_allows(c, n_kept))
        return KVLAZY_EBUDGET;
    if (!pool_allows(c, n_kept)) {
        c->pool_wants = n_kept * kvl_page_size(c); /* others may have some to give */
        return KVLAZY_EBUDGET;
    }
    kvl_release_outside_keep(c);
    return kvl_may_touch(c, kvl_touched_pages(c) + n_more) ? KVLAZY_OK : KVLAZY_EBUDGET;
}

int kvl_fit_runs(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    uint64_t n_more = kvl_gathered_pages(c);

    if (!n_more || !is_limited(c) || kvl_may_touch(c, kvl_touched_pages(c) + n_more))
        return KVLAZY_OK;
    if (c->group->open) /* what an engine emptied makes room; the idle side looked already */
        kvl_outside_sync(c, c->group->now_ms);
    kvl_keep_live(c);
    for (const kvl_run *r = run; r < run + n_run; r++)
        kvl_bits_fill(c->stream[r->stream].cells.keep, r->begin, r->end, true);
    int status = kvl_make_room(c, n_more);
    return status ? status : kvl_want_runs(c, run, n_run); /* making room gathers too */
}

void kvl_settle_share(kvlazy_cache *c)
{
    kvl_share_resize(&c->share, kvl_touched_pages(c) * kvl_page_size(c));
}

/* ------------------------------------------------------------------------------------------- a whole batch */

static void keep_planned(kvlazy_cache *c, uint32_t n_token)
{
    kvl_keep_live(c);
    for (uint32_t i = 0; i < n_token; i++)
        kvl_bit_set(c->stream[c->plan.stream[i]].cells.keep, c->plan.cell[i]);
}

/* With every free page gone, would live cells and the first n tokens fit? */
static bool tokens_fit(kvlazy_cache *c, uint32_t n_token)
{
    keep_planned(c, n_token);
    return could_touch(c, kvl_needed_pages(c));
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

int kvl_fit_budget(kvlazy_cache *c)
{
    if (!is_limited(c))
        return KVLAZY_OK;
    uint32_t n_run = kvl_plan_runs(c, 0, c->plan.n_token);
    if (KVL_LIKELY(kvl_is_ready(c, c->plan.run, n_run)))
        return KVLAZY_OK;
    if (kvl_want_runs(c, c->plan.run, n_run))
        return KVLAZY_ENOMEM;
    uint64_t n_more = kvl_gathered_pages(c);
    if (!n_more || kvl_may_touch(c, kvl_touched_pages(c) + n_more))
        return KVLAZY_OK;
    keep_planned(c, c->plan.n_token);
    int status = kvl_make_room(c, n_more);
    if (status)
        c->refused = kvl_plan_first_owner(&c->plan, first_unfit(c));
    return status;
}

/* ------------------------------------------------------------------------------------------- room */

/* keep := live cells and the n lowest free cells of one stream. */
static void keep_lowest(kvlazy_cache *c, kvl_stream *stream, uint32_t n)
{
    kvl_cells *cells = &stream->cells;
    uint32_t cell = 0;

    kvl_keep_live(c);
    while (n && (cell = kvl_cells_next_free(cells, cell)) < cells->n_cell) {
        uint32_t end = (uint32_t)kvl_bits_next(cells->used, cell, cells->n_cell, true);

        end = (uint32_t)kvl_min(end, (uint64_t)cell + n);
        kvl_bits_fill(cells->keep, cell, end, true);
        n -= end - cell;
        cell = end;
    }
    stream->keep_end = cells->n_cell + n;
}

uint32_t kvlazy_room(const kvlazy_cache *cache, kvlazy_seq_id seq)
{
    kvlazy_cache *c = (kvlazy_cache *)(uintptr_t)cache; /* its scratch is used */

    if (kvl_enter(c))
        return 0;
    uint32_t fit = 0;
    if (kvl_is_seq(c, seq) && !kvl_is_outside(c)) {
        kvl_stream *stream = kvl_stream_of(c, seq);
        uint32_t n_free = c->params.kv_size - stream->cells.n_used;
        uint64_t unfit = (uint64_t)n_free + 1;

        while (is_limited(c) && fit + 1 < unfit) {
            uint32_t middle = (uint32_t)(fit + (unfit - fit) / 2);

            keep_lowest(c, stream, middle);
            if (could_touch(c, kvl_needed_pages(c)))
                fit = middle;
            else
                unfit = middle;
        }
        fit = is_limited(c) ? fit : n_free;
        if (fit == n_free) /* only then are masked cells taken, and their pages are there */
            fit += kvl_window_recyclable(c, stream);
    }
    kvl_leave(c, KVLAZY_OK);
    return fit;
}
