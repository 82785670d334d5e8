/* SPDX-License-Identifier: MIT */
/* check: see check.h. */
#include "core/check.h"
#include "core/cover.h"

#include <inttypes.h>
#include <stdio.h>

static kvl_fault check_arenas(const kvl_geometry *g)
{
    for (uint32_t i = 0; i < g->n_arena; i++) {
        const kvlazy_arena *a = g->arena[i];
        uint64_t n = a->touched ? kvl_bits_count(a->touched, 0, a->n_page) : 0;

        if (a->n_touched != n)
            return (kvl_fault){"touched pages, bitmap", a->n_touched, n};
    }
    return (kvl_fault){0};
}

/* What is remembered of the bitmaps is what they say. */
static kvl_fault check_ready(const kvl_rows *rows, uint32_t s)
{
    const kvl_row_state *stream = &rows->stream[s];

    if (stream->ready_begin == stream->ready_end ||
        kvl_rows_are_touched(rows, s, stream->ready_begin, stream->ready_end))
        return (kvl_fault){0};
    return (kvl_fault){"a ready cell's page is not touched; cells from, to", stream->ready_begin, stream->ready_end};
}

/* Rows of live cells are about to be read, or were written: their pages are touched. */
static kvl_fault check_live_touched(const kvl_rows *rows, uint32_t s, const kvl_cells *cells)
{
    uint32_t end = cells->used_end, stop;

    for (uint32_t i = 0; (i = (uint32_t)kvl_bits_next(cells->used, i, end, true)) < end; i = stop) {
        stop = (uint32_t)kvl_bits_next(cells->used, i, end, false);
        if (!kvl_rows_are_touched(rows, s, i, stop))
            return (kvl_fault){"a live cell's page is not touched; run of cells from, to", i, stop};
    }
    return (kvl_fault){0};
}

/* A touched page has a cell that will come due, or one that lives: else nothing would ever give it back. Of an engine's
 * own arena pages may stay for bytes that are not ours. */
static kvl_fault check_all_due(kvlazy_cache *c)
{
    if (c->rows.n_refused || kvl_rows_in_arena(&c->rows))
        return (kvl_fault){0}; /* what the host refused waits for its own time */
    kvl_keep_live(c->stream, c->params.n_stream);
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_cells *cells = &c->stream[s].cells;

        for (size_t w = 0; w < kvl_bits_words(cells->n_cell); w++)
            cells->keep[w] |= cells->fallow[w];
    }
    uint64_t n = kvl_kept_pages(&c->rows, c->stream, true);
    uint64_t n_touched = kvl_rows_touched(&c->rows);
    return n != n_touched ? (kvl_fault){"touched pages, under live or fallow cells", n_touched, n} : (kvl_fault){0};
}

static kvl_fault check_seqs(const kvlazy_cache *c)
{
    uint32_t n_pending = 0;

    for (uint32_t i = 0; i < c->params.n_seq_max; i++)
        n_pending += c->seq[i].pending;
    if (n_pending != c->active.n)
        return (kvl_fault){"sequences to stamp", c->active.n, n_pending};
    return (kvl_fault){0};
}

/* An engine's cells and arenas can be wrong by its own doing. */
static bool is_all_ours(const kvlazy_cache *c)
{
    return !kvl_has_engine_cells(c) && !kvl_rows_in_arena(&c->rows);
}

static kvl_fault find_fault(kvlazy_cache *c, bool ours_only)
{
    kvl_fault fault = check_arenas(&c->rows.geometry);

    for (uint32_t s = 0; !fault.what && s < c->params.n_stream; s++)
        fault = kvl_cells_check(&c->stream[s].cells);
    for (uint32_t s = 0; !fault.what && (is_all_ours(c) || !ours_only) && s < c->params.n_stream; s++)
        fault = check_live_touched(&c->rows, s, &c->stream[s].cells);
    for (uint32_t s = 0; !fault.what && s < c->params.n_stream; s++)
        fault = check_ready(&c->rows, s);
    if (!fault.what)
        fault = check_all_due(c);
    return fault.what ? fault : check_seqs(c);
}

const char *kvl_check(kvlazy_cache *c, bool ours_only)
{
    kvl_fault fault = find_fault(c, ours_only);

    if (!fault.what)
        return NULL;
    snprintf(c->reason, sizeof c->reason, "%s: %" PRIu64 ", counted %" PRIu64, fault.what, fault.kept, fault.counted);
    return c->reason;
}
