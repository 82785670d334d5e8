/* SPDX-License-Identifier: MIT */
/* rows: see rows.h. */
#include "memory/rows.h"

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
    for (const kvl_run *at = run; at < run + n_run; at++)
        for (uint32_t cell = at->begin; cell < at->end;) {
            kvl_span bytes = next_span(t, lane_base(t, at->stream, lane), &cell, at->end);

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

void kvl_rows_gather(kvl_rows *r)
{
    for (uint32_t i = 0; i < r->geometry.n_arena; i++)
        kvl_arena_gather(r->geometry.arena[i]);
}

int kvl_rows_want(kvl_rows *r, const kvl_run *run, uint32_t n_run)
{
    const kvl_geometry *g = &r->geometry;
    uint64_t seen_end = 0;

    kvl_rows_gather(r);
    for (uint32_t i = 0; i < g->n_host; i++) {
        const kvl_tensor *t = &g->tensor[i];

        if (i && g->tensor[i - 1].arena != t->arena)
            seen_end = 0;
        if (want_tensor(g->arena[t->arena], t, run, n_run, &seen_end))
            return KVLAZY_ENOMEM;
    }
    return KVLAZY_OK;
}

uint64_t kvl_rows_gathered(const kvl_rows *r)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < r->geometry.n_arena; i++)
        n += r->geometry.arena[i]->n_gathered;
    return n;
}

/* ------------------------------------------------------------------------------------------- committing */

static int commit(kvl_rows *r)
{
    kvlazy_arena **arena = r->geometry.arena;

    for (uint32_t i = 0; i < r->geometry.n_arena; i++)
        if (kvl_arena_commit(arena[i], r->commits_ahead)) {
            while (i-- > 0)
                kvl_arena_uncommit(arena[i]);
            return KVLAZY_ENOMEM;
        }
    return KVLAZY_OK;
}

bool kvl_rows_ready(const kvl_rows *r, const kvl_run *run, uint32_t n_run)
{
    for (const kvl_run *at = run; at < run + n_run; at++)
        if (at->begin < r->stream[at->stream].ready_begin || at->end > r->stream[at->stream].ready_end)
            return false;
    return true;
}

/* Runs that continue what was ready, or begin anew: writing moves on, and one interval a stream is enough. */
static void note_ready(kvl_rows *r, const kvl_run *run, uint32_t n_run)
{
    for (const kvl_run *at = run; at < run + n_run; at++) {
        kvl_row_state *s = &r->stream[at->stream];

        if (at->begin > s->ready_end || at->end < s->ready_begin) {
            s->ready_begin = at->begin;
            s->ready_end = at->end;
            continue;
        }
        s->ready_begin = at->begin < s->ready_begin ? at->begin : s->ready_begin;
        s->ready_end = at->end > s->ready_end ? at->end : s->ready_end;
    }
}

void kvl_rows_forget_ready(kvl_rows *r)
{
    for (uint32_t s = 0; s < r->geometry.n_stream; s++)
        r->stream[s].ready_begin = r->stream[s].ready_end = 0;
}

int kvl_rows_touch(kvl_rows *r, const kvl_run *run, uint32_t n_run)
{
    uint64_t from_ns = kvl_rows_gathered(r) ? kvl_host_now_ns(r->mem) : 0;
    int status = commit(r);

    if (kvl_rows_gathered(r))
        kvl_histogram_add(&r->commit_time, kvl_host_now_ns(r->mem) - from_ns);
    if (!status)
        note_ready(r, run, n_run);
    for (uint32_t i = 0; status && i < n_run; i++) /* some of it may be there all the same, like what was only read */
        kvl_rows_note_read(r, run[i].stream, run[i].end);
    return status;
}

int kvl_rows_touch_tensor(kvl_rows *r, const kvl_tensor *t, const kvl_run *run, uint32_t n_run)
{
    kvlazy_arena *a = r->geometry.arena[t->arena];
    uint64_t seen_end = 0;

    kvl_rows_gather(r);
    if (want_tensor(a, t, run, n_run, &seen_end))
        return KVLAZY_ENOMEM;
    if (!a->n_gathered)
        return KVLAZY_OK;
    uint64_t from_ns = kvl_host_now_ns(r->mem);
    int status = kvl_arena_commit(a, r->commits_ahead);
    kvl_histogram_add(&r->commit_time, kvl_host_now_ns(r->mem) - from_ns);
    for (uint32_t i = 0; status && i < n_run; i++) /* some of it may be there all the same */
        kvl_rows_note_read(r, run[i].stream, run[i].end);
    return status;
}

/* ------------------------------------------------------------------------------------------- giving back */

void kvl_rows_give(kvl_rows *r)
{
    uint64_t n_page = kvl_rows_gathered(r), from_ns = n_page ? kvl_host_now_ns(r->mem) : 0;

    kvl_rows_forget_ready(r);
    for (uint32_t i = 0; i < r->geometry.n_arena; i++) {
        kvlazy_arena *a = r->geometry.arena[i];
        uint64_t n_released = a->n_released, n_refused = a->n_refused;

        kvl_arena_give(a);
        r->n_released += a->n_released - n_released;
        r->n_refused += a->n_refused - n_refused;
    }
    if (n_page)
        kvl_histogram_add(&r->release_time, kvl_host_now_ns(r->mem) - from_ns);
}

/* ------------------------------------------------------------------------------------------- looking */

typedef uint64_t (*count)(const kvlazy_arena *a, uint64_t first, uint64_t end);

/* Something of the pages under a cache's tensors in one arena, each page once. */
static uint64_t sum_under(const kvl_rows *r, uint32_t arena, count count_pages)
{
    const kvl_geometry *g = &r->geometry;
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

uint64_t kvl_rows_resident_bytes(const kvl_rows *r)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < r->geometry.n_arena; i++)
        bytes += sum_under(r, i, kvl_arena_resident);
    return bytes;
}

uint64_t kvl_rows_touched(const kvl_rows *r)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < r->geometry.n_arena; i++) {
        const kvlazy_arena *a = r->geometry.arena[i];

        n += KVL_LIKELY(a->n_cache <= 1) ? a->n_touched : sum_under(r, i, count_touched);
    }
    return n;
}

bool kvl_rows_are_touched(const kvl_rows *r, uint32_t stream, uint32_t begin, uint32_t end)
{
    const kvl_geometry *g = &r->geometry;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++)
        for (uint32_t lane = 0; lane < t->n_lane; lane++)
            for (uint32_t cell = begin; cell < end;)
                if (!kvl_arena_has(g->arena[t->arena], next_span(t, lane_base(t, stream, lane), &cell, end)))
                    return false;
    return true;
}

/* ------------------------------------------------------------------------------------------- rows */

void kvl_rows_zero(kvl_rows *r, uint32_t stream, uint32_t begin, uint32_t end)
{
    const kvl_geometry *g = &r->geometry;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++)
        for (uint32_t lane = 0; lane < t->n_lane; lane++)
            for (uint32_t cell = begin; cell < end;)
                kvl_arena_zero(g->arena[t->arena], next_span(t, lane_base(t, stream, lane), &cell, end));
}

void kvl_rows_copy(kvl_rows *r, kvl_run from, uint32_t to_stream, uint32_t to)
{
    const kvl_geometry *g = &r->geometry;

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
