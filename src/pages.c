/* SPDX-License-Identifier: MIT */
/*
 * pages: from cells to bytes and back, over every tensor and arena of a cache. Makes the pages of rows touched, zeroes
 * rows, copies rows. Decides nothing: which cells, and when, is for its callers to say.
 */
#include "cache.h"

/* ------------------------------------------------------------------------------------------- spans */

/* The spans of the cells [*begin, end) in one lane, one after the other; begin moves on. */
static kvl_span next_span(const kvl_tensor *t, uint64_t base, uint32_t *begin, uint32_t end)
{
    uint32_t from = *begin, n = kvl_tensor_span_cells(t);

    *begin = end - from > n ? from + n : end;
    return kvl_lane_span(t, base, from, *begin);
}

static uint64_t lane_base(const kvl_tensor *t, uint32_t stream, uint64_t lane)
{
    return t->offset + stream * t->stream_stride + lane * t->lane_stride;
}

/* ------------------------------------------------------------------------------------------- gathering */

/* One lane of every run, in the order of bytes. `seen_end`: pages up to here were looked at, scattered cells share
 * them. */
static int want_lane(kvlazy_arena *a, const kvl_tensor *t, uint64_t lane, const kvl_run *run, uint32_t n_run,
                     uint64_t *seen_end)
{
    for (const kvl_run *r = run; r < run + n_run; r++)
        for (uint32_t cell = r->begin; cell < r->end;) {
            kvl_span bytes = next_span(t, lane_base(t, r->stream, lane), &cell, r->end);

            if (bytes.end <= *seen_end)
                continue;
            if (kvl_arena_want(a, bytes))
                return KVLAZY_ENOMEM;
            *seen_end = kvl_round_up(bytes.end, kvl_pages_bytes(a, 1));
        }
    return KVLAZY_OK;
}

/* Runs of one stream at a time, or of all where streams lie inside lanes. */
static int want_tensor(kvlazy_arena *a, const kvl_tensor *t, const kvl_run *run, uint32_t n_run, uint64_t *seen_end)
{
    uint32_t n;

    for (uint32_t i = 0; i < n_run; i += n) {
        for (n = 1; i + n < n_run && (t->streams_in_lanes || run[i + n].stream == run[i].stream);)
            n++;
        for (uint32_t lane = 0; lane < t->n_lane; lane++)
            if (want_lane(a, t, lane, run + i, n, seen_end))
                return KVLAZY_ENOMEM;
    }
    return KVLAZY_OK;
}

void kvl_gather(kvlazy_cache *c)
{
    for (uint32_t i = 0; i < c->geometry.n_arena; i++)
        kvl_arena_gather(c->geometry.arena[i]);
}

int kvl_want_runs(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    const kvl_geometry *g = &c->geometry;
    uint64_t seen_end = 0;

    kvl_gather(c);
    for (uint32_t i = 0; i < g->n_host; i++) {
        const kvl_tensor *t = &g->tensor[i];

        if (i && g->tensor[i - 1].arena != t->arena)
            seen_end = 0;
        if (want_tensor(g->arena[t->arena], t, run, n_run, &seen_end))
            return KVLAZY_ENOMEM;
    }
    return KVLAZY_OK;
}

uint64_t kvl_gathered_pages(const kvlazy_cache *c)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < c->geometry.n_arena; i++)
        n += c->geometry.arena[i]->n_gathered;
    return n;
}

/* ------------------------------------------------------------------------------------------- committing */

static int commit(kvlazy_cache *c)
{
    kvlazy_arena **arena = c->geometry.arena;

    for (uint32_t i = 0; i < c->geometry.n_arena; i++)
        if (kvl_arena_commit(arena[i], c->commits_ahead)) {
            while (i-- > 0)
                kvl_arena_uncommit(arena[i]);
            return KVLAZY_ENOMEM;
        }
    return KVLAZY_OK;
}

bool kvl_is_ready(const kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    for (const kvl_run *r = run; r < run + n_run; r++)
        if (r->begin < c->stream[r->stream].ready_begin || r->end > c->stream[r->stream].ready_end)
            return false;
    return true;
}

/* Runs that continue what was ready, or begin anew: writing moves on, and one interval a stream is enough. */
static void note_ready(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    for (const kvl_run *r = run; r < run + n_run; r++) {
        kvl_stream *s = &c->stream[r->stream];

        if (r->begin > s->ready_end || r->end < s->ready_begin) {
            s->ready_begin = r->begin;
            s->ready_end = r->end;
            continue;
        }
        s->ready_begin = r->begin < s->ready_begin ? r->begin : s->ready_begin;
        s->ready_end = r->end > s->ready_end ? r->end : s->ready_end;
    }
}

void kvl_forget_ready(kvlazy_cache *c)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        c->stream[s].ready_begin = c->stream[s].ready_end = 0;
}

int kvl_touch_gathered(kvlazy_cache *c, const kvl_run *run, uint32_t n_run)
{
    uint64_t from_ns = kvl_gathered_pages(c) ? kvl_host_now_ns(&c->mem) : 0;
    int status = commit(c);

    if (kvl_gathered_pages(c))
        kvl_histogram_add(&c->commit_time, kvl_host_now_ns(&c->mem) - from_ns);
    if (!status)
        note_ready(c, run, n_run);
    for (uint32_t i = 0; status && i < n_run; i++) /* some of it may be there all the same, like what was only read */
        c->stream[run[i].stream].read_end = (uint32_t)kvl_max(c->stream[run[i].stream].read_end, run[i].end);
    return status;
}

/* ------------------------------------------------------------------------------------------- giving back */

void kvl_give(kvlazy_cache *c)
{
    uint64_t n_page = kvl_gathered_pages(c), from_ns = n_page ? kvl_host_now_ns(&c->mem) : 0;

    kvl_forget_ready(c);
    for (uint32_t i = 0; i < c->geometry.n_arena; i++) {
        kvlazy_arena *a = c->geometry.arena[i];
        uint64_t n_released = a->n_released, n_refused = a->n_refused;

        kvl_arena_give(a);
        c->n_released += a->n_released - n_released;
        c->look_pages -= kvl_min(c->look_pages, a->n_released - n_released); /* others may have them now */
        c->n_refused += a->n_refused - n_refused;
    }
    if (n_page)
        kvl_histogram_add(&c->release_time, kvl_host_now_ns(&c->mem) - from_ns);
}

/* ------------------------------------------------------------------------------------------- looking */

typedef uint64_t (*count)(const kvlazy_arena *a, uint64_t first, uint64_t end);

/* Something of the pages under a cache's tensors in one arena, each page once. */
static uint64_t sum_under(const kvlazy_cache *c, uint32_t arena, count count_pages)
{
    const kvl_geometry *g = &c->geometry;
    const kvlazy_arena *a = g->arena[arena];
    uint64_t n = 0, done = 0;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++) {
        if (t->arena != arena)
            continue;
        uint64_t first = kvl_max(done, kvl_page_floor(a, t->offset));

        done = kvl_page_ceil(a, t->end);
        n += count_pages(a, first, done);
    }
    return n;
}

static uint64_t count_touched(const kvlazy_arena *a, uint64_t first, uint64_t end)
{
    return kvl_bits_count(a->touched, first, end);
}

uint64_t kvl_resident_bytes(const kvlazy_cache *c)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < c->geometry.n_arena; i++)
        bytes += sum_under(c, i, kvl_arena_resident);
    return bytes;
}

uint64_t kvl_touched_pages(const kvlazy_cache *c)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < c->geometry.n_arena; i++) {
        const kvlazy_arena *a = c->geometry.arena[i];

        n += KVL_LIKELY(a->n_cache <= 1) ? a->n_touched : sum_under(c, i, count_touched);
    }
    return n;
}

bool kvl_rows_touched(const kvlazy_cache *c, uint32_t stream, uint32_t begin, uint32_t end)
{
    const kvl_geometry *g = &c->geometry;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++)
        for (uint32_t lane = 0; lane < t->n_lane; lane++)
            for (uint32_t cell = begin; cell < end;)
                if (!kvl_arena_has(g->arena[t->arena], next_span(t, lane_base(t, stream, lane), &cell, end)))
                    return false;
    return true;
}

/* ------------------------------------------------------------------------------------------- rows */

void kvl_zero_rows(kvlazy_cache *c, uint32_t stream, uint32_t begin, uint32_t end)
{
    const kvl_geometry *g = &c->geometry;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++)
        for (uint32_t lane = 0; lane < t->n_lane; lane++)
            for (uint32_t cell = begin; cell < end;)
                kvl_arena_zero(g->arena[t->arena], next_span(t, lane_base(t, stream, lane), &cell, end));
}

void kvl_copy_rows(kvlazy_cache *c, kvl_run from, uint32_t to_stream, uint32_t to)
{
    const kvl_geometry *g = &c->geometry;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++) {
        char *base = g->arena[t->arena]->base;

        for (uint32_t lane = 0; lane < t->n_lane; lane++)
            for (uint32_t cell = from.begin, at = to; cell < from.end;) {
                uint32_t end = to + (from.end - from.begin);
                kvl_span src = next_span(t, lane_base(t, from.stream, lane), &cell, from.end);
                kvl_span dst = next_span(t, lane_base(t, to_stream, lane), &at, end);

                memcpy(base + dst.begin, base + src.begin, (size_t)(src.end - src.begin));
            }
    }
}
