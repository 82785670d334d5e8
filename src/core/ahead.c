/* SPDX-License-Identifier: MIT */
/* ahead: see ahead.h. */
#include "core/ahead.h"
#include "core/budget.h"
#include "core/clock.h"
#include "core/limits.h"

enum { AHEAD_CELLS = 32, AHEAD_BYTES = 4 << 20, PAGE_CELLS = 16 };

/* A cell may be a block of tokens, or have rows of many pages: then fewer of them are worth the memory, or none. */
static uint32_t most_ahead(const kvl_geometry *geometry)
{
    return (uint32_t)kvl_min(AHEAD_CELLS, AHEAD_BYTES / kvl_max(geometry->cell_bytes, 1));
}

/* Where a page holds many cells, those to the end of it cost nothing more, and one beyond a page in every tensor. */
static uint32_t worth_ahead(const kvl_rows *rows, const kvl_run *run)
{
    const kvl_geometry *g = &rows->geometry;
    uint32_t most = most_ahead(g);
    bool many = rows->page.flags && g->n_host;

    for (const kvl_tensor *t = g->tensor; many && t < g->tensor + g->n_host; t++)
        many = t->cell_stride * PAGE_CELLS <= g->page_bytes;
    return many ? (uint32_t)kvl_min(most, kvl_geometry_cells_beside(g, run->stream, run->begin)) : most;
}

/* The only token of its stream in this ubatch. */
static bool is_alone(const kvl_run *run, uint32_t i, uint32_t n_run)
{
    return run[i].end - run[i].begin == 1 && (!i || run[i - 1].stream != run[i].stream) &&
           (i + 1 == n_run || run[i + 1].stream != run[i].stream);
}

/* Steady decode, one token a batch: some cells more are made ready, so that most tokens find their pages there. They
 * count like cells that just emptied. Only cells right behind, which hold nothing, in arrays that are there; and only
 * for a batch of one ubatch, so that no page is taken that was planned for another. */
static uint32_t cells_ahead(kvlazy_cache *c, const kvl_run *run)
{
    kvl_stream *stream = &c->stream[run->stream];
    uint32_t end = (uint32_t)kvl_min((uint64_t)run->end + worth_ahead(&c->rows, run), c->params.kv_size);

    if (!c->rows.commits_ahead || c->plan.n_ubatch > 1 || stream->n_single < 2 || stream->n_applied ||
        kvl_cells_reserve(&stream->cells, end))
        return 0;
    return (uint32_t)kvl_bits_next(stream->cells.used, run->end, end, true) - run->end;
}

bool kvl_ahead_reach(kvlazy_cache *c, kvl_run *run, uint32_t n_run)
{
    uint32_t n_ahead = 0;

    for (uint32_t i = 0; i < n_run; i++) {
        uint32_t n = is_alone(run, i, n_run) ? cells_ahead(c, &run[i]) : 0;

        n_ahead += n;
        run[i].end += n;
    }
    return n_ahead > 0;
}

bool kvl_ahead_touch(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    if (kvl_has_limited_twin(c) || kvl_rows_want(&c->rows, run, n_run) || /* the exact plan was checked against it */
        !kvl_limits_take(c, kvl_rows_touched(&c->rows) + kvl_rows_gathered(&c->rows)) ||
        kvl_rows_touch(&c->rows, run, n_run))
        return false;
    uint64_t now_ms = kvl_now(c);
    for (uint32_t i = 0; i < n_run; i++)
        kvl_cells_ahead(&c->stream[run[i].stream].cells, run[i].begin, run[i].end, now_ms);
    kvl_note_fallow(c, now_ms);
    return true;
}
