/* SPDX-License-Identifier: MIT */
/* cover: see cover.h. */
#include "core/cover.h"

void kvl_keep_live(kvl_stream *stream, uint32_t n_stream)
{
    for (kvl_stream *s = stream; s < stream + n_stream; s++) {
        const kvl_cells *cells = &s->cells;

        if (cells->n_cell)
            memcpy(cells->keep, cells->used, kvl_bits_words(cells->n_cell) * sizeof(uint64_t));
        s->keep_end = cells->n_cell;
    }
}

uint32_t kvl_next_kept(const kvl_stream *stream, uint32_t from, bool kept)
{
    const kvl_cells *cells = &stream->cells;

    if (from < cells->n_cell) {
        from = (uint32_t)kvl_bits_next(cells->keep, from, cells->n_cell, kept);
        if (from < cells->n_cell)
            return from;
    }
    if (kept)
        return from < stream->keep_end ? from : cells->kv_size;
    return from < stream->keep_end ? stream->keep_end : from;
}

/* Pages under what a stream keeps in one of its lanes. Pages below `done` are counted already, since rows, lanes and
 * tensors may share one. */
static uint64_t kept_in_lane(const kvlazy_arena *a, const kvl_stream *stream, const kvl_tensor *t, kvl_lane lane,
                             bool touched_only, uint64_t *done)
{
    uint32_t kv_size = stream->cells.kv_size, most = kvl_tensor_span_cells(t), end;
    uint64_t n = 0;

    for (uint32_t begin = 0; (begin = kvl_next_kept(stream, begin, true)) < kv_size; begin = end) {
        end = kvl_next_kept(stream, begin, false);
        end = end - begin > most ? begin + most : end;
        kvl_span bytes = kvl_lane_span(t, lane.base, begin, end);
        uint64_t first = kvl_max(*done, kvl_page_floor(a, bytes.begin));

        *done = kvl_max(*done, kvl_page_ceil(a, bytes.end));
        if (first < *done)
            n += touched_only ? kvl_bits_count(a->touched, first, *done) : *done - first;
    }
    return n;
}

uint64_t kvl_kept_pages(const kvl_rows *rows, const kvl_stream *stream, bool touched_only)
{
    const kvl_geometry *g = &rows->geometry;
    uint64_t n = 0, done = 0;

    for (uint32_t i = 0; i < g->n_host; i++) {
        const kvl_tensor *t = &g->tensor[i];

        done = i && g->tensor[i - 1].arena == t->arena ? done : 0;
        for (uint64_t l = 0; l < (uint64_t)t->n_lane * g->n_stream; l++) {
            kvl_lane lane = kvl_tensor_lane(t, g->n_stream, l);

            n += kept_in_lane(g->arena[t->arena], &stream[lane.stream], t, lane, touched_only, &done);
        }
    }
    return n;
}
