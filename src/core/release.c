/* SPDX-License-Identifier: MIT */
/*
 * release: see release.h.
 *
 *     cells    | live | fallow ........................ | live |
 *     pages    |     a     |     b     |     c     |     d     |
 *     released             |***********|***********|
 *     zeroed by hand |*****|                       |***|
 *
 * Zeroing happens once: a cell whose bytes were given back or zeroed is settled and not looked at again. So a piece
 * looks at the dead runs of cells that hold something due, and at the first and the last dead run of every lane: there
 * a page may be shared with the lane before or behind, which has something due. What a piece costs is its bytes, and
 * a span for every run and lane; both are bounded.
 */
#include "core/release.h"
#include "core/clock.h"
#include "core/cover.h"

enum {
    PIECE_SPANS = 1 << 17, /* runs times lanes that one piece offers and zeroes: a few ms */
    PIECE_RUNS = 4096,     /* dead runs that are walked at once */
};

/* Dead runs between the first and the last of their stream, ascending. */
typedef struct dead_runs {
    uint32_t n;
    kvl_run run[PIECE_RUNS];
} dead_runs;

/* Pages of the stream that were only read go too. */
static bool gives_read(const kvl_stream *stream)
{
    return stream->rested || stream->drains;
}

/* ------------------------------------------------------------------------------------------- what is due */

/* What one piece may still take. */
typedef struct allowance {
    uint64_t n_cell, n_span, n_run;
} allowance;

/* Spans that one more dead run costs, and one more cell of it, in all tensors. */
static void count_spans(const kvl_geometry *g, uint64_t *of_run, uint64_t *of_cell)
{
    *of_run = *of_cell = 0;
    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++)
        *(kvl_tensor_span_cells(t) > 1 ? of_run : of_cell) += t->n_lane;
}

static bool take_cell(allowance *left, bool begins_run, uint64_t spans)
{
    if (!left->n_cell || left->n_span < spans || (begins_run && !left->n_run))
        return false;
    left->n_cell--;
    left->n_span -= spans;
    left->n_run -= begins_run;
    return true;
}

/* Cells that are compacted soon go into the holes of their stream, so the pages of these holes stay until then. */
static uint64_t least_age(const kvl_stream *stream, uint64_t min_age, uint64_t now_ms)
{
    if (stream->drains)
        return 0;
    return now_ms < stream->compact_until_ms ? KVL_NEVER : min_age;
}

/* keep := live cells, fallow ones that are younger than min_age, the lowest of the others as far as warm_bytes go,
 * unless all are to go (min_age 0), and those beyond what one piece may take. Returns whether there are any such. */
static bool keep_young(kvlazy_cache *c, uint64_t min_age, uint64_t now_ms)
{
    uint64_t of_run, of_cell, cell_bytes = kvl_max(c->rows.geometry.cell_bytes, 1);
    bool full = false;

    count_spans(&c->rows.geometry, &of_run, &of_cell);
    allowance left = {kvl_max(KVL_PIECE_BYTES / cell_bytes, 1), kvl_max(PIECE_SPANS, of_run + of_cell), PIECE_RUNS};
    kvl_keep_live(c->stream, c->params.n_stream);
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_cells *cells = &c->stream[s].cells;
        uint64_t least = least_age(&c->stream[s], min_age, now_ms);
        uint32_t run_end = UINT32_MAX; /* one past the last cell taken */
        uint32_t n_warm = min_age ? kvl_warm_cells(c) : 0;

        for (uint32_t i = 0; (i = kvl_cells_next_fallow(cells, i)) < cells->n_cell; i++) {
            bool is_warm = n_warm > 0, begins = i != run_end;
            bool is_young = is_warm || kvl_cells_age(cells, i, now_ms) < least;

            n_warm -= is_warm;

            full = full || (!is_young && !take_cell(&left, begins, (begins ? of_run : 0) + of_cell));
            if (is_young || full)
                kvl_bit_set(cells->keep, i);
            else
                run_end = i + 1;
        }
    }
    return full;
}

/* ------------------------------------------------------------------------------------------- dead runs */

/* The first dead run of a stream ends at first_dead_end, and the last begins at last_dead_begin; 0 and kv_size where
 * there is none. */
static void find_edges(kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_stream *stream = &c->stream[s];
        const kvl_cells *cells = &stream->cells;

        stream->first_dead_end = kvl_next_kept(stream, 0, true);
        stream->last_dead_begin = stream->keep_end > cells->n_cell
                                      ? stream->keep_end
                                      : (uint32_t)(cells->n_cell ? kvl_bits_top(cells->keep, cells->n_cell) : 0);
    }
}

/* Pages of a stream may go that no fallow cell lies on: they were only read, or the host refused them before. */
static bool looks_everywhere(const kvlazy_cache *c, uint32_t s, bool everything)
{
    return everything || (gives_read(&c->stream[s]) && c->rows.stream[s].read_end);
}

/* The next dead run of a stream between its edges, from `from` on; begin is last_dead_begin: there is none. */
static kvl_run next_run(const kvl_stream *stream, uint32_t s, uint32_t from, bool everywhere)
{
    const kvl_cells *cells = &stream->cells;
    uint32_t i = (uint32_t)kvl_max(from, stream->first_dead_end), end = stream->last_dead_begin;

    if (!everywhere)
        for (i = kvl_cells_next_fallow(cells, i); i < end && kvl_bit_get(cells->keep, i);)
            i = kvl_cells_next_fallow(cells, kvl_next_kept(stream, i, false));
    else if (i < end)
        i = kvl_next_kept(stream, i, false);
    if (i >= end)
        return (kvl_run){s, end, end};
    uint64_t begin = i;
    while (begin && !kvl_bit_get(cells->keep, begin - 1)) /* back to where it begins */
        begin--;
    return (kvl_run){s, (uint32_t)begin, kvl_next_kept(stream, i, true)};
}

/* Gathers dead runs from a stream and cell on, which move on. Returns false when these are the last. */
static bool find_runs(kvlazy_cache *c, uint32_t *s, uint32_t *cell, bool everything, dead_runs *dead)
{
    dead->n = 0;
    for (; *s < c->params.n_stream; ++*s, *cell = 0) {
        bool everywhere = looks_everywhere(c, *s, everything);

        for (;;) {
            kvl_run run = next_run(&c->stream[*s], *s, *cell, everywhere);
            if (run.begin == c->stream[*s].last_dead_begin)
                break;
            if (dead->n == PIECE_RUNS)
                return true;
            dead->run[dead->n++] = run;
            *cell = run.end;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------------------- offering */

/* A walk over the bytes that nothing keeps, upwards. */
typedef struct walk {
    kvl_span dead;    /* the unbroken run of dead bytes up to here, across lanes and tensors */
    bool counts_only; /* offers nothing */
    bool everything;  /* pages too that no fallow cell lies on */
    uint64_t n_page;  /* touched ones that would go */
} walk;

/* Bytes of one arena are offered to it, or only looked at. */
static void offer(walk *w, kvlazy_arena *a, kvl_span bytes, uint64_t read_end)
{
    if (w->counts_only)
        w->n_page += kvl_bits_count(a->touched, kvl_page_ceil(a, bytes.begin), kvl_page_floor(a, bytes.end));
    else
        kvl_arena_offer(a, bytes, read_end);
}

/* The cells [begin, end) of a lane hold nothing that stays. Where the run of dead bytes ends inside a page that the
 * next shares, the page goes with the next. Pages past what the arrays ever reached were never touched, so a long dead
 * end is looked at no further than the page where those or the reading ended. */
static void offer_span(kvlazy_cache *c, walk *w, const kvl_tensor *t, kvl_lane lane, uint32_t begin, uint32_t end)
{
    const kvl_stream *stream = &c->stream[lane.stream];
    uint64_t page_bytes = kvl_rows_page_bytes(&c->rows);
    uint32_t read_end = gives_read(stream) ? c->rows.stream[lane.stream].read_end : 0;
    uint32_t look_end = (uint32_t)kvl_min(end, kvl_max(begin + 1, kvl_max(stream->cells.reach, read_end)));
    kvl_span bytes = kvl_lane_span(t, lane.base, begin, end);
    uint64_t looked = kvl_round_up(kvl_lane_span(t, lane.base, begin, look_end).end, page_bytes);

    if (bytes.end == t->data_end)
        bytes.end = t->end; /* padding behind the library's last row belongs to no cell */
    if (w->dead.end != bytes.begin)
        w->dead.begin = bytes.begin;
    w->dead.end = bytes.end;
    offer(w, c->rows.geometry.arena[t->arena],
          (kvl_span){kvl_max(w->dead.begin, kvl_round_down(bytes.begin, page_bytes)), kvl_min(bytes.end, looked)},
          read_end > begin ? kvl_lane_span(t, lane.base, begin, read_end).end : 0);
}

/* A run of dead cells in one lane: one span, or a span a cell. Of those past all that was touched or read only the last
 * is looked at, whose page may be that of the next lane. */
static void offer_run(kvlazy_cache *c, walk *w, const kvl_tensor *t, kvl_lane lane, uint32_t begin, uint32_t end)
{
    uint32_t touched_end =
        (uint32_t)kvl_max(kvl_max(c->stream[lane.stream].cells.reach, c->rows.stream[lane.stream].read_end), 1);

    if (kvl_tensor_span_cells(t) > 1) {
        offer_span(c, w, t, lane, begin, end);
        return;
    }
    for (uint32_t cell = begin; cell < kvl_min(end, touched_end); cell++)
        offer_span(c, w, t, lane, cell, cell + 1);
    if (end > touched_end && end == c->params.kv_size)
        offer_span(c, w, t, lane, end - 1, end);
}

/* Runs of one stream in one of its lanes, its first and last among them. A run that lies within a page frees none. */
static void offer_lane(kvlazy_cache *c, walk *w, const kvl_tensor *t, kvl_lane lane, const kvl_run *run, uint32_t n_run)
{
    const kvl_stream *stream = &c->stream[lane.stream];
    uint64_t least = (kvl_rows_page_bytes(&c->rows) + t->cell_stride - 1) / t->cell_stride;

    if (stream->first_dead_end)
        offer_run(c, w, t, lane, 0, stream->first_dead_end);
    for (const kvl_run *r = run; r < run + n_run; r++)
        if (r->end - r->begin >= least)
            offer_run(c, w, t, lane, r->begin, r->end);
    if (stream->last_dead_begin < c->params.kv_size && stream->first_dead_end < c->params.kv_size)
        offer_run(c, w, t, lane, stream->last_dead_begin, c->params.kv_size);
}

/* The runs of one stream in a list that is ascending by stream. */
static const kvl_run *runs_of(const dead_runs *dead, uint32_t stream, uint32_t *n)
{
    uint32_t low = 0, high = dead->n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (dead->run[middle].stream < stream)
            low = middle + 1;
        else
            high = middle;
    }
    for (*n = 0; low + *n < dead->n && dead->run[low + *n].stream == stream;)
        ++*n;
    return &dead->run[low];
}

static void offer_runs(kvlazy_cache *c, walk *w, const dead_runs *dead)
{
    const kvl_geometry *g = &c->rows.geometry;

    for (uint32_t i = 0; i < g->n_host; i++) {
        const kvl_tensor *t = &g->tensor[i];

        if (!i || g->tensor[i - 1].arena != t->arena)
            w->dead = (kvl_span){t->offset, t->offset};
        for (uint64_t l = 0; l < (uint64_t)t->n_lane * g->n_stream; l++) {
            kvl_lane lane = kvl_tensor_lane(t, g->n_stream, l);
            uint32_t n;
            const kvl_run *run = runs_of(dead, lane.stream, &n);

            offer_lane(c, w, t, lane, run, n);
        }
    }
}

/* All dead runs, some at a time. */
static void walk_dead(kvlazy_cache *c, walk *w)
{
    uint32_t stream = 0, cell = 0;
    dead_runs dead;
    bool more = true;

    find_edges(c);
    while (more) {
        more = find_runs(c, &stream, &cell, w->everything, &dead);
        if (!w->counts_only)
            kvl_rows_gather(&c->rows);
        offer_runs(c, w, &dead);
        if (!w->counts_only)
            kvl_rows_give(&c->rows);
    }
}

/* Gives back what nothing keeps; everything: also pages that no fallow cell lies on. What the host refuses now is asked
 * for again after the idle time, and everything then. */
static void give_back(kvlazy_cache *c, bool everything)
{
    uint32_t idle_ms = c->params.slot_shrink_idle_ms;
    uint64_t n_refused = c->rows.n_refused;

    walk_dead(c, &(walk){.everything = everything});
    if (everything)
        c->decay.retry_ms = KVL_NEVER;
    if (c->rows.n_refused > n_refused && idle_ms)
        c->decay.retry_ms = kvl_min(c->decay.retry_ms, c->group->now_ms + idle_ms);
    kvl_note_due(c, c->decay.retry_ms);
}

void kvl_release_outside_keep(kvlazy_cache *c)
{
    give_back(c, true);
}

uint64_t kvl_spare_pages(kvlazy_cache *c)
{
    walk w = {.counts_only = true, .everything = true};

    walk_dead(c, &w);
    return w.n_page;
}

uint64_t kvl_needed_pages(kvlazy_cache *c)
{
    uint64_t n = kvl_kept_pages(&c->rows, c->stream, false);

    if (KVL_LIKELY(!kvl_rows_in_arena(&c->rows)))
        return n;
    return n + kvl_rows_touched(&c->rows) - kvl_kept_pages(&c->rows, c->stream, true) - kvl_spare_pages(c);
}

uint64_t kvl_needed_bytes(kvlazy_cache *c)
{
    return kvl_needed_pages(c) * kvl_rows_page_bytes(&c->rows);
}

/* ------------------------------------------------------------------------------------------- settling */

/* The next run of fallow cells that are not kept; begin is n_cell: there is none. */
static kvl_run next_due(const kvl_cells *cells, uint32_t s, uint32_t from)
{
    uint32_t n_cell = cells->n_cell, i = kvl_cells_next_fallow(cells, from);

    while (i < n_cell && kvl_bit_get(cells->keep, i))
        i = kvl_cells_next_fallow(cells, (uint32_t)kvl_bits_next(cells->keep, i, n_cell, false));
    if (i >= n_cell)
        return (kvl_run){s, n_cell, n_cell};
    uint64_t end = kvl_bits_next(cells->fallow, i, n_cell, false);
    return (kvl_run){s, i, (uint32_t)kvl_bits_next(cells->keep, i, end, true)};
}

/* Zeroes by hand the rows on pages that stayed, because a kept row lies there too or because the host refused. */
static void settle_stream(kvlazy_cache *c, uint32_t s)
{
    kvl_cells *cells = &c->stream[s].cells;
    dead_runs due = {.n = 0};
    kvl_run run = {s, 0, 0};

    do {
        for (due.n = 0; due.n < PIECE_RUNS; due.run[due.n++] = run) {
            run = next_due(cells, s, run.end);
            if (run.begin == cells->n_cell)
                break;
        }
        kvl_rows_zero(&c->rows, due.run, due.n);
        for (uint32_t i = 0; i < due.n; i++)
            for (uint32_t cell = due.run[i].begin; cell < due.run[i].end; cell++)
                kvl_cells_settle(cells, cell);
    } while (due.n == PIECE_RUNS);
}

/* Fallow cells that are not kept become settled: no later release looks at them again. */
static void settle(kvlazy_cache *c, bool more)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_stream *stream = &c->stream[s];

        settle_stream(c, s);
        if (gives_read(stream))
            c->rows.stream[s].read_end = 0;
        stream->rested = false;
        stream->drains &= more;
    }
}

/* ------------------------------------------------------------------------------------------- in pieces */

bool kvl_release_piece(kvlazy_cache *c, uint64_t min_age, uint64_t now_ms)
{
    bool more = keep_young(c, min_age, now_ms);

    give_back(c, now_ms >= c->decay.retry_ms);
    settle(c, more);
    return more;
}

bool kvl_release_free_piece(kvlazy_cache *c, uint64_t now_ms)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        c->stream[s].drains = true;
    return kvl_release_piece(c, 0, now_ms);
}
