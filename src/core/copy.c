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

    if (kvl_cells_reserve_share(cells, src, dst, p0, p1))
        return KVLAZY_ENOMEM;
    if (kvl_cells_rm(cells, dst, p0, p1, now_ms))
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

/* The tokens from the i-th on that go in one copy: neighbours that stay neighbours. */
static kvl_stretch neighbours(const transfer *t, uint32_t i)
{
    kvl_stretch part = kvl_index_run(t->from, t->begin + i, t->begin + t->n);
    uint32_t n = 1;

    while (n < part.n && t->cell[i + n] == t->cell[i] + n)
        n++;
    part.n = n;
    return part;
}

/* The lowest cells of dst that are free, once what it held in the range is gone. Uses dst's keep bits. */
static int find_cells(kvlazy_cache *c, const transfer *t, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    kvl_cells *cells = &t->dst->cells;
    const kvl_index *held = kvl_index_of(c, dst);
    uint32_t cell = 0, end = kvl_index_below(held, p1), n_part = 0;
    kvl_stretch run;

    kvl_keep_live(c->stream, c->params.n_stream);
    for (uint32_t i = kvl_index_below(held, p0); i < end; i += run.n) {
        run = kvl_index_run(held, i, end);
        kvl_bits_fill(cells->keep, run.cell, (uint64_t)run.cell + run.n, false);
    }
    for (uint32_t i = 0; i < t->n; i++, cell++) {
        if (cell < cells->n_cell)
            cell = (uint32_t)kvl_bits_next(cells->keep, cell, cells->n_cell, false);
        if (cell >= c->params.kv_size)
            return KVLAZY_ENOSLOT;
        t->cell[i] = cell;
    }
    for (uint32_t i = 0; i < t->n; i += neighbours(t, i).n)
        n_part++;
    if (kvl_cells_reserve(cells, cell) || kvl_cells_reserve_seq(cells, dst, n_part + 1)) /* dst may be cut, too */
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

static void copy_rows(kvlazy_cache *c, const transfer *t)
{
    uint32_t src = kvl_stream_number(c, t->src), dst = kvl_stream_number(c, t->dst);
    kvl_stretch part;

    for (uint32_t i = 0; i < t->n; i += part.n) {
        part = neighbours(t, i);
        kvl_rows_copy(&c->rows, (kvl_run){src, part.cell, part.cell + part.n}, dst, t->cell[i]);
    }
}

static void record(const transfer *t, kvlazy_seq_id dst)
{
    const kvl_cells *src = &t->src->cells;
    kvl_cells *cells = &t->dst->cells;

    for (uint32_t i = 0; i < t->n; i++) {
        const kvl_entry e = kvl_index_at(t->from, t->begin + i);

        kvl_cells_put(cells, t->cell[i], e.pos);
        kvl_cells_set_shift(cells, t->cell[i], src->shift[e.cell]);
        if (cells->planes) {
            cells->ext_y[t->cell[i]] = src->ext_y[e.cell];
            cells->ext_x[t->cell[i]] = src->ext_x[e.cell];
        }
        kvl_cells_own(cells, t->cell[i], dst);
    }
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
    if (kvl_cells_rm(&t->dst->cells, dst, p0, p1, now_ms))
        kvl_note_fallow(c, now_ms);
    copy_rows(c, t);
    record(t, dst);
    kvl_plan_forget(&c->plan, t->run, t->n_run);
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

/* What a copy does. */
typedef struct effect {
    uint64_t now_ms;
    uint32_t n_copied, n_removed;
} effect;

static uint32_t held(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_index *index = kvl_index_of(c, seq);

    return kvl_index_below(index, p1) - kvl_index_below(index, p0);
}

/* What src has in the range is dst's now, and so is what the engine knows of it and what recycling took. Where the
 * whole group has none, nothing was copied, and all that happened is that dst lost some. */
static void note_copy(kvlazy_cache *c, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1,
                      const effect *e)
{
    if (e->n_copied) {
        c->seq[dst].evicted = c->seq[src].evicted;
        kvl_note_activity(c, dst, e->now_ms);
    }
    if (kvl_window_any_holds(c->group, src, p0, p1)) {
        kvl_window_copied(c, src, dst, p0, p1);
        kvl_window_refill(c, dst, p1 == INT32_MAX ? 0 : p1, INT32_MAX, e->now_ms); /* where the copy ends */
    } else if (e->n_removed || kvl_window_any_holds(c->group, dst, 0, INT32_MAX)) {
        kvl_window_refill(c, dst, p0, p1, e->now_ms);
    }
}

/* The engine may go on behind the tokens that did not come, and nothing would show that the past is missing. */
static int refuse_copy(kvlazy_cache *c, kvlazy_seq_id dst, uint32_t n, int status)
{
    if (n && !kvl_index_of(c, dst)->n)
        c->seq[dst].evicted = true;
    return status;
}

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
    bool same_stream = kvl_stream_of(c, src) == kvl_stream_of(c, dst), was_empty = !kvl_index_of(c, dst)->n;
    if ((!same_stream && kvl_rows_on_device(&c->rows)) || kvl_seq_is_torn_by(c, src, p0, p1) ||
        kvl_seq_is_torn_by(c, dst, p0, p1))
        return KVLAZY_ENOTSUP;
    effect e = {.now_ms = kvl_now(c), .n_copied = held(c, src, p0, p1), .n_removed = held(c, dst, p0, p1)};
    int status = (same_stream ? share : copy_across)(c, src, dst, p0, p1, e.now_ms);
    if (status)
        return refuse_copy(c, dst, e.n_copied, status);
    if (e.n_copied || e.n_removed)
        kvl_seq_changed(c, dst);
    mark_copy(c, src, dst, p0, p1, was_empty);
    note_copy(c, src, dst, p0, p1, &e);
    return KVLAZY_OK;
}
