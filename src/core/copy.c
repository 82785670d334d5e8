/* SPDX-License-Identifier: MIT */
/* copy: see copy.h. */
#include "core/copy.h"
#include "core/batch.h"
#include "core/budget.h"
#include "core/cap.h"
#include "core/clock.h"
#include "core/cover.h"
#include "core/seq.h"
#include "core/window.h"

#include <bsd/stdlib.h>

/* ------------------------------------------------------------------------------------------- inside a stream */

static int share(kvlazy_cache *c, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1, uint64_t now_ms)
{
    kvl_cells *cells = &kvl_stream_of(c, src)->cells;
    const kvl_index *from = kvl_index_of(c, src);
    uint32_t n = kvl_index_below(from, p1) - kvl_index_below(from, p0);

    if (kvl_cells_reserve_seq(cells, dst, n))
        return KVLAZY_ENOMEM;
    if (kvl_cells_rm(cells, dst, p0, p1, kvl_stamp(c, now_ms)))
        kvl_note_fallow(c, now_ms);
    kvl_cells_share(cells, src, dst, p0, p1);
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- across streams */

/* src's tokens [begin, end) of its index, and the cells they go to. */
typedef struct transfer {
    kvl_stream *src, *dst;
    const kvl_index *from;
    uint32_t begin, n;
    uint32_t *cell; /* [n] */
    kvl_run *run;   /* [n_run], the same */
    uint32_t n_run;
} transfer;

/* The lowest cells of dst that are free, once what it held in the range is gone. Uses dst's keep bits. */
static int find_cells(kvlazy_cache *c, const transfer *t, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    kvl_cells *cells = &t->dst->cells;
    const kvl_index *held = kvl_index_of(c, dst);
    uint32_t cell = 0, end = kvl_index_below(held, p1);

    kvl_keep_live(c);
    for (uint32_t i = kvl_index_below(held, p0); i < end; i++)
        kvl_bit_clear(cells->keep, kvl_index_at(held, i)->cell);
    for (uint32_t i = 0; i < t->n; i++, cell++) {
        if (cell < cells->n_cell)
            cell = (uint32_t)kvl_bits_next(cells->keep, cell, cells->n_cell, false);
        if (cell >= c->params.kv_size)
            return KVLAZY_ENOSLOT;
        t->cell[i] = cell;
    }
    if (kvl_cells_reserve(cells, cell) || kvl_cells_reserve_seq(cells, dst, t->n))
        return KVLAZY_ENOMEM;
    return KVLAZY_OK;
}

/* The rows to be written. */
static void find_runs(const kvlazy_cache *c, transfer *t)
{
    uint32_t dst = kvl_stream_number(c, t->dst);

    t->n_run = 0;
    for (uint32_t i = 0; i < t->n; i++) {
        kvl_run *last = t->n_run ? &t->run[t->n_run - 1] : NULL;

        if (last && last->end == t->cell[i])
            last->end++;
        else
            t->run[t->n_run++] = (kvl_run){dst, t->cell[i], t->cell[i] + 1};
    }
}

/* Neighbours that stay neighbours go in one copy. */
static uint32_t run_length(const transfer *t, uint32_t i)
{
    uint32_t n = 1;

    while (i + n < t->n && t->cell[i + n] == t->cell[i] + n &&
           kvl_index_at(t->from, t->begin + i + n)->cell == kvl_index_at(t->from, t->begin + i)->cell + n)
        n++;
    return n;
}

static void copy_rows(kvlazy_cache *c, const transfer *t)
{
    for (uint32_t i = 0, n; i < t->n; i += n) {
        uint32_t cell = kvl_index_at(t->from, t->begin + i)->cell;

        n = run_length(t, i);
        kvl_rows_copy(&c->rows, (kvl_run){kvl_stream_number(c, t->src), cell, cell + n}, kvl_stream_number(c, t->dst),
                      t->cell[i]);
    }
}

static void record(const transfer *t, kvlazy_seq_id dst)
{
    const kvl_cells *src = &t->src->cells;
    kvl_cells *cells = &t->dst->cells;

    for (uint32_t i = 0; i < t->n; i++) {
        const kvl_entry *e = kvl_index_at(t->from, t->begin + i);

        kvl_cells_put(cells, t->cell[i], e->pos);
        kvl_cells_set_shift(cells, t->cell[i], src->shift[e->cell]);
        if (cells->planes) {
            cells->ext_y[t->cell[i]] = src->ext_y[e->cell];
            cells->ext_x[t->cell[i]] = src->ext_x[e->cell];
        }
        kvl_cells_own(cells, t->cell[i], dst);
    }
}

static int by_cell(const void *a, const void *b)
{
    uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;

    return (p > q) - (p < q);
}

/* A slot whose token the engine removed meanwhile does not stand for what came into its cell instead. */
static void forget_planned(kvlazy_cache *c, const transfer *t)
{
    kvl_plan *p = &c->plan;
    uint32_t n_token = p->n_ubatch ? p->n_token : 0;

    for (uint32_t i = 0; i < n_token; i++)
        if (p->stream[i] == kvl_stream_number(c, t->dst) &&
            bsearch(&p->cell[i], t->cell, t->n, sizeof *t->cell, by_cell))
            p->pos[i] = -1;
}

static int transfer_rows(kvlazy_cache *c, transfer *t, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1, uint64_t now_ms)
{
    int status = find_cells(c, t, dst, p0, p1);

    if (status)
        return status;
    find_runs(c, t);
    status = kvl_rows_want(&c->rows, t->run, t->n_run);
    if (!status)
        status = kvl_fit_runs(c, t->run, t->n_run); /* what dst loses stays until all is decided */
    if (!status)
        status = kvl_rows_touch(&c->rows, t->run, t->n_run);
    if (status)
        return status;
    if (kvl_cells_rm(&t->dst->cells, dst, p0, p1, kvl_stamp(c, now_ms)))
        kvl_note_fallow(c, now_ms);
    copy_rows(c, t);
    record(t, dst);
    forget_planned(c, t);
    kvl_follow_cap(c, t->dst);
    return KVLAZY_OK;
}

static int copy_across(kvlazy_cache *c, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1,
                       uint64_t now_ms)
{
    transfer t = {.src = kvl_stream_of(c, src), .dst = kvl_stream_of(c, dst), .from = kvl_index_of(c, src)};

    t.begin = kvl_index_below(t.from, p0);
    t.n = kvl_index_below(t.from, p1) - t.begin;
    t.cell = reallocarray(NULL, t.n + (size_t)1, sizeof *t.cell);
    t.run = reallocarray(NULL, t.n + (size_t)1, sizeof *t.run);
    int status = t.cell && t.run ? transfer_rows(c, &t, dst, p0, p1, now_ms) : KVLAZY_ENOMEM;
    free(t.cell);
    free(t.run);
    return status;
}

/* ------------------------------------------------------------------------------------------- the call */

/* What is known of the positions of src is known of those of dst: that they moved, and which are still to be settled.
 */
static void mark_copy(kvlazy_cache *c, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1,
                      bool was_empty)
{
    const kvl_index *from = kvl_index_of(c, src);
    const kvl_seq *s = &c->seq[src];
    kvl_seq *d = &c->seq[dst];

    if (kvl_index_below(from, p0) == kvl_index_below(from, p1))
        return; /* nothing was copied */
    bool moved = (d->moved && !was_empty) || s->moved || p0 > 0;
    if (s->pending && s->fresh < p1)
        kvl_batch_note(c, dst, s->fresh < 0 || s->fresh > p0 ? s->fresh : p0);
    d->moved = moved;
}

int kvl_copy(kvlazy_cache *c, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    if (src == dst || !kvl_normalise_range(&p0, &p1))
        return KVLAZY_OK;
    uint64_t now_ms = kvl_now(c);
    bool same_stream = kvl_stream_of(c, src) == kvl_stream_of(c, dst), was_empty = !kvl_index_of(c, dst)->n;
    if (!same_stream && kvl_rows_on_device(&c->rows))
        return KVLAZY_ENOTSUP;
    int status = (same_stream ? share : copy_across)(c, src, dst, p0, p1, now_ms);

    if (!status && kvl_index_of(c, dst)->n) {
        c->seq[dst].evicted = c->seq[src].evicted; /* what the engine knows of src it now knows of dst */
        kvl_note_activity(c, dst, now_ms);
        mark_copy(c, src, dst, p0, p1, was_empty);
    }
    if (!status) {
        kvl_seq_changed(&c->seq[dst]);
        kvl_window_copied(c, src, dst, p0, p1);
        kvl_window_refill(c, dst, p1 == INT32_MAX ? 0 : p1, INT32_MAX, now_ms); /* where the copy ends */
    }
    return status;
}
