/* SPDX-License-Identifier: MIT */
/* rows: see rows.h. */
#include "memory/rows.h"
#include "memory/fresh.h"

/* ------------------------------------------------------------------------------------------- spans */

/* Returns the first span of the cells [*begin, end) in one lane, and moves *begin past its cells. */
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

/* One lane of every run, in the order of bytes: its pages that are touched, or those that are not. Pages up to the byte
 * `seen_end` were looked at: scattered cells share pages. */
static int find_in_lane(kvlazy_arena *a, const kvl_tensor *t, uint64_t lane, const kvl_run *run, uint32_t n_run,
                        bool touched, uint64_t *seen_end)
{
    for (const kvl_run *at = run; at < run + n_run; at++)
        for (uint32_t cell = at->begin; cell < at->end;) {
            kvl_span bytes = next_span(t, lane_base(t, at->stream, lane), &cell, at->end);

            if (bytes.end <= *seen_end)
                continue;
            if (touched ? kvl_arena_find(a, bytes, true) : kvl_arena_want(a, bytes))
                return KVLAZY_ENOMEM;
            *seen_end = kvl_round_up(bytes.end, kvl_pages_bytes(a, 1));
        }
    return KVLAZY_OK;
}

/* The runs of one stream at a time, or of all streams where these lie inside lanes. */
static int find_in_tensor(kvlazy_arena *a, const kvl_tensor *t, const kvl_run *run, uint32_t n_run, bool touched,
                          uint64_t *seen_end)
{
    uint32_t n;

    for (uint32_t i = 0; i < n_run; i += n) {
        for (n = 1; i + n < n_run && (t->streams_in_lanes || run[i + n].stream == run[i].stream);)
            n++;
        for (uint32_t lane = 0; lane < t->n_lane; lane++)
            if (find_in_lane(a, t, lane, run + i, n, touched, seen_end))
                return KVLAZY_ENOMEM;
    }
    return KVLAZY_OK;
}

void kvl_rows_gather(kvl_rows *r)
{
    for (uint32_t i = 0; i < r->geometry.n_arena; i++)
        kvl_arena_gather(r->geometry.arena[i]);
}

int kvl_rows_find(kvl_rows *r, const kvl_tensor *t, const kvl_run *run, uint32_t n_run, bool touched)
{
    uint64_t seen_end = 0;

    kvl_rows_gather(r);
    return find_in_tensor(r->geometry.arena[t->arena], t, run, n_run, touched, &seen_end);
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
        if (find_in_tensor(g->arena[t->arena], t, run, n_run, false, &seen_end))
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

static uint64_t gathered_under(const kvlazy_arena *a, const kvl_geometry *g)
{
    uint64_t n = 0, done = 0;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++) {
        if (g->arena[t->arena] != a)
            continue;
        n += kvl_arena_gathered_in(a, kvl_max(done, kvl_page_floor(a, t->offset)), kvl_page_ceil(a, t->end));
        done = kvl_page_ceil(a, t->end);
    }
    return n;
}

uint64_t kvl_rows_gathered_under(const kvl_rows *r, const kvl_rows *other)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < r->geometry.n_arena; i++)
        if (r->geometry.arena[i]->n_cache > 1 && r->geometry.arena[i]->n_range)
            n += gathered_under(r->geometry.arena[i], &other->geometry);
    return n;
}

/* ------------------------------------------------------------------------------------------- counting */

uint64_t kvl_rows_counted(const kvl_rows *r, int what)
{
    return kvl_host_count(r->mem, r->account, what, 0);
}

/* Either way, modulo 2^64. */
static uint64_t add_pages(const kvl_rows *r, int what, uint64_t n_page)
{
    return kvl_host_count(r->mem, r->account, what, n_page * kvl_rows_page_bytes(r));
}

uint64_t kvl_rows_promise(kvl_rows *r, uint64_t n_page)
{
    r->n_promised += n_page;
    return add_pages(r, KVLAZY_COUNT_PROMISED, n_page);
}

/* Counted as taken before the promise ends: another cache that looks in between sees them twice rather than not. */
static void count_taken(kvl_rows *r, uint64_t n_page)
{
    r->n_held += n_page;
    add_pages(r, KVLAZY_COUNT_TAKEN, n_page);
}

static void count_touched_now(kvl_rows *r, uint64_t n_page, bool present)
{
    uint64_t n_kept = kvl_min(n_page, kvl_rows_outstanding(r));

    if (present) {
        count_taken(r, n_page);
        kvl_rows_promise(r, -n_kept);
        return;
    }
    kvl_rows_promise(r, n_page - n_kept); /* not present before it is written, within this batch */
    r->n_faulting += n_page;
}

void kvl_rows_drop_promise(kvl_rows *r)
{
    kvl_rows_promise(r, -kvl_rows_outstanding(r));
}

void kvl_rows_end_promise(kvl_rows *r)
{
    count_taken(r, r->n_faulting);
    kvl_rows_promise(r, -r->n_promised);
    r->n_faulting = 0;
}

void kvl_rows_count_out(kvl_rows *r)
{
    kvl_rows_end_promise(r);
    count_taken(r, -r->n_held);
}

/* ------------------------------------------------------------------------------------------- committing */

/* Attention may have read some page under these runs, of the larger pages for which that matters. */
static bool were_read(const kvl_rows *r, const kvl_run *run, uint32_t n_run)
{
    uint64_t n_cell = r->page.flags ? kvl_fresh_cells(&r->geometry) : 0;

    for (const kvl_run *at = run; n_cell && at < run + n_run; at++)
        if (r->stream[at->stream].read_end && at->begin < r->stream[at->stream].read_end + n_cell)
            return true;
    return false;
}

static int commit(kvl_rows *r, bool fresh, bool present)
{
    kvlazy_arena **arena = r->geometry.arena;

    for (uint32_t i = 0; fresh && i < r->geometry.n_arena; i++)
        kvl_fresh_gathered(&r->geometry, i);
    for (uint32_t i = 0; i < r->geometry.n_arena; i++)
        if (kvl_arena_commit(arena[i], present)) {
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

/* Each run lengthens the ready run of its stream, or replaces it where the two do not meet: since writing moves on, one
 * run a stream is enough. */
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

/* The gathered pages become touched; present: by a call. */
static int touch(kvl_rows *r, const kvl_run *run, uint32_t n_run, bool present)
{
    uint64_t n_page = kvl_rows_gathered(r);

    if (!n_page)
        return KVLAZY_OK;
    uint64_t from_ns = kvl_host_now_ns(r->mem);
    bool fresh = were_read(r, run, n_run);
    int status = commit(r, fresh, present);
    uint64_t ns = kvl_host_now_ns(r->mem) - from_ns;

    kvl_histogram_add(&r->commit_time, ns);
    if (!status)
        count_touched_now(r, n_page, present);
    if (!status && !fresh && present && r->commits_ahead)
        r->commits_ahead = kvl_pacer_note(&r->pacer, n_page, ns);
    for (uint32_t i = 0; status && i < n_run; i++) /* a failed commit may have left pages resident, like reading does */
        kvl_rows_note_read(r, run[i].stream, run[i].end);
    return status;
}

static int make_ready(kvl_rows *r, const kvl_run *run, uint32_t n_run, bool present)
{
    int status = touch(r, run, n_run, present);

    if (!status)
        note_ready(r, run, n_run);
    return status;
}

int kvl_rows_touch(kvl_rows *r, const kvl_run *run, uint32_t n_run)
{
    return make_ready(r, run, n_run, r->commits_ahead);
}

int kvl_rows_touch_absent(kvl_rows *r, const kvl_run *run, uint32_t n_run)
{
    return make_ready(r, run, n_run, false);
}

static void access_gathered(kvl_rows *r)
{
    for (uint32_t i = 0; i < r->geometry.n_arena; i++)
        kvl_arena_access(r->geometry.arena[i]);
}

int kvl_rows_make_present(kvl_rows *r, const kvl_run *run, uint32_t n_run)
{
    int status = touch(r, run, n_run, true);

    if (!status)
        access_gathered(r);
    return status;
}

int kvl_rows_bring(kvl_rows *r)
{
    uint64_t from_ns = kvl_host_now_ns(r->mem);
    int status = KVLAZY_OK;

    for (uint32_t i = 0; !status && i < r->geometry.n_arena; i++)
        status = kvl_arena_bring(r->geometry.arena[i]);
    kvl_histogram_add(&r->commit_time, kvl_host_now_ns(r->mem) - from_ns);
    if (!status)
        access_gathered(r);
    return status;
}

int kvl_rows_touch_tensor(kvl_rows *r, const kvl_tensor *t, const kvl_run *run, uint32_t n_run)
{
    int status = kvl_rows_find(r, t, run, n_run, false);

    return status ? status : touch(r, run, n_run, r->commits_ahead);
}

/* ------------------------------------------------------------------------------------------- giving back */

/* Returns how many pages went that were touched. */
static uint64_t give(kvl_rows *r)
{
    uint64_t n_before = r->n_released;

    for (uint32_t i = 0; i < r->geometry.n_arena; i++) {
        kvlazy_arena *a = r->geometry.arena[i];
        uint64_t n_released = a->n_released, n_refused = a->n_refused;

        kvl_arena_give(a);
        r->n_released += a->n_released - n_released;
        r->n_refused += a->n_refused - n_refused;
    }
    return r->n_released - n_before;
}

/* Of the gathered pages, those that are touched: the rest was counted as taken by no cache. */
static uint64_t gathered_touched(const kvl_rows *r)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < r->geometry.n_arena; i++) {
        const kvlazy_arena *a = r->geometry.arena[i];

        for (const kvlazy_range *at = a->range; at < a->range + a->n_range; at++) {
            uint64_t first = kvl_page_floor(a, (uint64_t)((char *)at->addr - a->base));

            n += kvl_bits_count(a->touched, first, first + kvl_page_floor(a, at->bytes));
        }
    }
    return n;
}

void kvl_rows_give(kvl_rows *r)
{
    uint64_t n_page = kvl_rows_gathered(r), from_ns = n_page ? kvl_host_now_ns(r->mem) : 0;
    uint64_t n_touched = n_page ? gathered_touched(r) : 0;

    kvl_rows_forget_ready(r);
    if (n_touched) /* all of it, first: a look at the host in between sees too little rather than too much */
        count_taken(r, -n_touched);
    uint64_t n_given = give(r);
    if (n_touched != n_given)
        count_taken(r, n_touched - n_given);
    if (n_page)
        kvl_histogram_add(&r->release_time, kvl_host_now_ns(r->mem) - from_ns);
}

/* ------------------------------------------------------------------------------------------- looking */

typedef uint64_t (*count)(const kvlazy_arena *a, uint64_t first, uint64_t end);

/* Sums up a count over the pages under a cache's tensors in one arena, each page once. */
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

void kvl_rows_zero(kvl_rows *r, const kvl_run *run, uint32_t n_run)
{
    const kvl_geometry *g = &r->geometry;

    for (const kvl_tensor *t = g->tensor; n_run && t < g->tensor + g->n_host; t++)
        for (uint32_t lane = 0; lane < t->n_lane; lane++) {
            uint64_t base = lane_base(t, run->stream, lane);

            for (const kvl_run *at = run; at < run + n_run; at++)
                for (uint32_t cell = at->begin; cell < at->end;)
                    kvl_arena_zero(g->arena[t->arena], next_span(t, base, &cell, at->end));
        }
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
