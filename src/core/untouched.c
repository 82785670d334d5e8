/* SPDX-License-Identifier: MIT */
/* untouched: see untouched.h. */
#include "core/untouched.h"
#include "core/cover.h"
#include "core/release.h"

enum {
    PIECE_PAGES = 1 << 18, /* that the host is asked about: 1 GiB of small ones, less than a millisecond */
    PIECE_SPANS = 1 << 12, /* that are looked at, perhaps with a question each */
};

/* One piece of a search: what it may still look at, ask about and give back. */
typedef struct search {
    uint64_t n_span, n_page, found_bytes;
    kvl_span dead; /* the unbroken run of dead bytes up to here, across lanes and tensors */
} search;

static bool reads_zero(const kvl_rows *rows)
{
    for (uint32_t i = 0; i < rows->geometry.n_arena; i++)
        if (!rows->geometry.arena[i]->gives_zeros)
            return false;
    return true;
}

void kvl_untouched_begin(kvlazy_cache *c, uint32_t stream)
{
    if (!reads_zero(&c->rows))
        return;
    if (c->untouched.under_way)
        c->stream[stream].searched_next = true;
    else
        c->stream[stream].searched = c->untouched.searches = true;
}

void kvl_untouched_begin_all(kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        kvl_untouched_begin(c, s);
}

/* Streams that were named since the search began are the next one's. */
static void end(kvlazy_cache *c)
{
    c->untouched = (kvl_untouched){0};
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        c->stream[s].searched = c->stream[s].searched_next;
        c->stream[s].searched_next = false;
        c->untouched.searches |= c->stream[s].searched;
    }
}

/* The pages [first, end) hold no live cell: those that are not touched are asked about, some at a time. Returns false
 * when the piece is done before. */
static bool ask(kvl_untouched *u, search *s, kvlazy_arena *a, uint64_t first, uint64_t end)
{
    uint64_t most = kvl_max(kvl_page_floor(a, KVL_PIECE_BYTES), 1);

    for (uint64_t stop; (first = kvl_bits_next(a->touched, first, end, false)) < end; first = stop) {
        uint64_t n = kvl_min(kvl_min(most, s->n_page), end - first);

        if (!n || !s->found_bytes || !s->n_span) {
            u->page = first;
            return false;
        }
        stop = kvl_bits_next(a->touched, first, first + n, true);
        s->n_page -= stop - first;
        uint64_t found_bytes = kvl_arena_resident(a, first, stop);
        if (!found_bytes)
            continue;
        kvl_span bytes = {kvl_pages_bytes(a, first), kvl_pages_bytes(a, stop)};
        kvl_arena_offer(a, bytes, bytes.end);
        s->found_bytes -= kvl_min(s->found_bytes, found_bytes);
    }
    return true;
}

/* The dead cells [begin, end) of a lane are one span. Where a run of dead bytes ends inside a page that the next
 * shares, the page is looked at with the next. */
static bool search_span(kvlazy_cache *c, search *s, const kvl_tensor *t, kvl_lane lane, uint32_t begin, uint32_t end)
{
    kvlazy_arena *a = c->rows.geometry.arena[t->arena];
    kvl_span bytes = kvl_lane_span(t, lane.base, begin, end);

    if (bytes.end == t->data_end)
        bytes.end = t->end; /* padding behind the library's last row belongs to no cell */
    if (s->dead.end != bytes.begin)
        s->dead.begin = bytes.begin;
    s->dead.end = bytes.end;
    uint64_t from = kvl_max(s->dead.begin, kvl_round_down(bytes.begin, kvl_rows_page_bytes(&c->rows)));
    uint64_t first = kvl_max(kvl_page_ceil(a, from), c->untouched.page);
    bool went_on = ask(&c->untouched, s, a, first, kvl_page_floor(a, bytes.end));
    s->n_span -= s->n_span > 0;
    return went_on;
}

/* Dead cells of one lane, from where the search stands. */
static bool search_lane(kvlazy_cache *c, search *s, const kvl_tensor *t, kvl_lane lane)
{
    const kvl_stream *stream = &c->stream[lane.stream];
    uint64_t from_byte = kvl_pages_bytes(c->rows.geometry.arena[t->arena], c->untouched.page);
    uint32_t most = kvl_tensor_span_cells(t), kv_size = c->params.kv_size, cell = 0, end;

    if (!stream->searched || (most == 1 && t->cell_bytes < kvl_rows_page_bytes(&c->rows)))
        return true; /* with bytes of the engine between its cells, no page is whole */
    if (from_byte > lane.base)
        cell = (uint32_t)((from_byte - lane.base) / t->cell_stride);
    for (; (cell = kvl_next_kept(stream, cell, false)) < kv_size; cell = end) {
        end = kvl_next_kept(stream, cell, true);
        end = end - cell > most ? cell + most : end;
        if (!search_span(c, s, t, lane, cell, end))
            return false;
    }
    return true;
}

/* Returns false when the piece ended before the search did. */
static bool search_all(kvlazy_cache *c, search *s)
{
    const kvl_geometry *g = &c->rows.geometry;
    kvl_untouched *u = &c->untouched;

    for (; u->tensor < g->n_host; u->tensor++, u->lane = 0) {
        const kvl_tensor *t = &g->tensor[u->tensor];

        if (u->tensor && g->tensor[u->tensor - 1].arena != t->arena)
            s->dead = (kvl_span){0, 0};
        for (; u->lane < (uint64_t)t->n_lane * g->n_stream; u->lane++, u->page = 0)
            if (!search_lane(c, s, t, kvl_tensor_lane(t, g->n_stream, u->lane)))
                return false;
    }
    return true;
}

bool kvl_untouched_piece(kvlazy_cache *c)
{
    search s = {.n_span = PIECE_SPANS, .n_page = PIECE_PAGES, .found_bytes = KVL_PIECE_BYTES};

    if (!c->untouched.searches)
        return false;
    c->untouched.under_way = true;
    kvl_engine_cells_sync(c, c->group->now_ms); /* the engine may have filled cells without a touch */
    kvl_keep_live(c->stream, c->params.n_stream);
    kvl_rows_gather(&c->rows);
    bool more = !search_all(c, &s);
    if (kvl_rows_gathered(&c->rows))
        kvl_rows_give(&c->rows);
    if (!more)
        end(c);
    return c->untouched.searches;
}
