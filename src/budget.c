/* SPDX-License-Identifier: MIT */
/*
 * budget: what fits under a ceiling for touched bytes. Asked by prepare and copies before they take pages, and by
 * engines for the room that is left. What counts is the page cover of what stays: free pages go back before a batch
 * is refused, but only when all of it then fits.
 */
#include "cache.h"

bool kvl_within_budget(const kvlazy_cache *c, uint64_t n_page)
{
    return !c->params.budget_bytes || kvl_pages_bytes(&c->arena, n_page) <= c->params.budget_bytes;
}

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
    return kvl_within_budget(c, kvl_kept_pages(c, false));
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

int kvl_make_room(kvlazy_cache *c, uint64_t n_more)
{
    if (!kvl_within_budget(c, kvl_kept_pages(c, false)))
        return KVLAZY_EBUDGET;
    kvl_release_outside_keep(c);
    return kvl_within_budget(c, c->arena.n_touched + n_more) ? KVLAZY_OK : KVLAZY_EBUDGET;
}

int kvl_fit_budget(kvlazy_cache *c)
{
    if (KVL_LIKELY(!c->params.budget_bytes))
        return KVLAZY_OK;
    if (kvl_want_runs(c, kvl_plan_runs(c, 0, c->plan.n_token)))
        return KVLAZY_ENOMEM;
    uint64_t n_more = c->arena.n_gathered;
    if (kvl_within_budget(c, c->arena.n_touched + n_more))
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
    if (kvl_is_seq(c, seq)) {
        kvl_stream *stream = kvl_stream_of(c, seq);
        uint32_t n_free = c->params.kv_size - stream->cells.n_used;
        uint64_t unfit = (uint64_t)n_free + 1;

        while (c->params.budget_bytes && fit + 1 < unfit) {
            uint32_t middle = (uint32_t)(fit + (unfit - fit) / 2);

            keep_lowest(c, stream, middle);
            if (kvl_within_budget(c, kvl_kept_pages(c, false)))
                fit = middle;
            else
                unfit = middle;
        }
        fit = c->params.budget_bytes ? fit : n_free;
        if (fit == n_free) /* only then are masked cells taken, and their pages are there */
            fit += kvl_window_recyclable(c, stream);
    }
    kvl_leave(c, KVLAZY_OK);
    return fit;
}
