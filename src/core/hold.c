/* SPDX-License-Identifier: MIT */
/*
 * hold: see hold.h. Held cells are fallow, with the bit that says "committed ahead of a token": pages under them are
 * accounted for, and whatever looks at the cache meanwhile finds it sound.
 */
#include "core/hold.h"
#include "core/budget.h"
#include "core/clock.h"
#include "core/cover.h"
#include "core/engine_cells.h"
#include "core/limits.h"
#include "core/release.h"

#include <bsd/stdlib.h>

int kvl_hold_init(kvl_hold *h, uint32_t n)
{
    *h = (kvl_hold){.n = n};
    h->place = calloc(n + (size_t)1, sizeof *h->place);
    h->run = reallocarray(NULL, n + (size_t)1, sizeof *h->run);
    h->piece = reallocarray(NULL, KVL_HOLD_PIECE, sizeof *h->piece);
    h->fallow = calloc(kvl_bits_words(n) + 1, sizeof *h->fallow);
    if (h->place && h->run && h->piece && h->fallow)
        return KVLAZY_OK;
    kvl_hold_fini(h);
    return KVLAZY_ENOMEM;
}

void kvl_hold_fini(kvl_hold *h)
{
    free(h->place);
    free(h->run);
    free(h->piece);
    free(h->fallow);
    *h = (kvl_hold){0};
}

/* ------------------------------------------------------------------------------------------- finding */

static int by_place(const void *a, const void *b)
{
    const kvl_run *r = a, *s = b;

    return r->stream != s->stream ? (r->stream > s->stream) - (r->stream < s->stream)
                                  : (r->begin > s->begin) - (r->begin < s->begin);
}

/* Joins runs, in order, that touch. Returns how many are left. */
static uint32_t join_runs(kvl_run *run, uint32_t n)
{
    uint32_t n_left = 0;

    for (uint32_t i = 0; i < n; i++)
        if (n_left && run[n_left - 1].stream == run[i].stream && run[n_left - 1].end == run[i].begin)
            run[n_left - 1].end = run[i].end;
        else
            run[n_left++] = run[i];
    return n_left;
}

/* The cells of some tokens as runs, by stream and cell. Tokens of one stream are placed upwards, so that few have to be
 * put in order where they come stream by stream. */
static uint32_t find_runs(const kvl_place *place, uint32_t n, kvl_run *run)
{
    uint32_t n_run = 0;
    bool ascending = true;

    for (uint32_t i = 0; i < n; i++) {
        kvl_run *last = n_run ? &run[n_run - 1] : NULL;

        if (last && last->stream == place[i].stream && last->end == place[i].cell) {
            last->end++;
            continue;
        }
        ascending &=
            !last || last->stream < place[i].stream || (last->stream == place[i].stream && last->begin < place[i].cell);
        run[n_run++] = (kvl_run){place[i].stream, place[i].cell, place[i].cell + 1};
    }
    if (ascending)
        return n_run;
    qsort(run, n_run, sizeof *run, by_place);
    return join_runs(run, n_run);
}

static int find_cells(kvlazy_cache *c, kvl_hold *h)
{
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        c->stream[s].next_free = 0;
    for (uint32_t i = 0; i < h->n; i++) {
        kvl_stream *stream = &c->stream[h->place[i].stream];
        uint32_t cell = kvl_cells_next_free(&stream->cells, stream->next_free);

        if (cell >= c->params.kv_size)
            return KVLAZY_ENOSLOT;
        h->place[i].cell = cell;
        stream->next_free = cell + 1;
    }
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        if (kvl_cells_reserve(&c->stream[s].cells, c->stream[s].next_free))
            return KVLAZY_ENOMEM;
    h->n_run = find_runs(h->place, h->n, h->run);
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- taking */

int kvl_hold_take(kvlazy_cache *c, kvl_hold *h)
{
    int status = find_cells(c, h);

    if (!status && kvl_limits_any(c))
        status = kvl_rows_want(&c->rows, h->run, h->n_run);
    if (!status && kvl_limits_any(c))
        status = kvl_fit_runs(c, h->run, h->n_run);
    if (status)
        return status;
    uint64_t now_ms = kvl_now(c);
    for (uint32_t i = 0; i < h->n; i++) {
        kvl_cells *cells = &c->stream[h->place[i].stream].cells;
        uint32_t cell = h->place[i].cell;

        if (kvl_bit_get(cells->fallow, cell))
            kvl_bit_set(h->fallow, i); /* and stays as old as it is */
        else
            kvl_cells_ahead(cells, cell, cell + 1, now_ms);
    }
    h->taken = true;
    return KVLAZY_OK;
}

int kvl_hold_touch(kvlazy_cache *c, kvl_hold *h, const kvl_tensor *t, uint32_t begin, uint32_t n)
{
    KVL_ASSERT(n <= KVL_HOLD_PIECE && begin + n <= h->n);
    return kvl_rows_touch_tensor(&c->rows, t, h->piece, find_runs(h->place + begin, n, h->piece));
}

/* ------------------------------------------------------------------------------------------- giving up */

/* keep := everything but the tokens [begin, end) whose cells were settled before. */
static void keep_others(kvlazy_cache *c, const kvl_hold *h, uint32_t begin, uint32_t end)
{
    kvl_keep_live(c->stream, c->params.n_stream);
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_cells *cells = &c->stream[s].cells;

        for (size_t w = 0; w < kvl_bits_words(cells->n_cell); w++)
            cells->keep[w] |= cells->fallow[w];
    }
    for (uint32_t i = begin; i < end; i++)
        if (!kvl_bit_get(h->fallow, i))
            kvl_bit_clear(c->stream[h->place[i].stream].cells.keep, h->place[i].cell);
}

bool kvl_hold_give_up(kvlazy_cache *c, kvl_hold *h, uint32_t *next)
{
    uint64_t most = kvl_max(KVL_PIECE_BYTES / kvl_max(c->rows.geometry.cell_bytes, 1), 1);
    uint32_t begin = *next, n = (uint32_t)kvl_min(kvl_min(most, KVL_HOLD_PIECE), h->n - begin);

    if (!h->taken || !n)
        return false;
    keep_others(c, h, begin, begin + n);
    kvl_release_outside_keep(c);
    uint32_t n_run = find_runs(h->place + begin, n, h->piece);
    for (uint32_t i = 0, k; i < n_run; i = k) { /* the runs of one stream together */
        for (k = i + 1; k < n_run && h->piece[k].stream == h->piece[i].stream;)
            k++;
        kvl_rows_zero(&c->rows, h->piece + i, k - i);
    }
    for (uint32_t i = begin; i < begin + n; i++)
        if (!kvl_bit_get(h->fallow, i))
            kvl_cells_settle(&c->stream[h->place[i].stream].cells, h->place[i].cell);
    *next = begin + n;
    return *next < h->n;
}

/* ------------------------------------------------------------------------------------------- cells of the engine */

int kvl_hold_engine_cells(kvlazy_cache *c, kvl_hold *hold, uint32_t s, const uint32_t *cell,
                          bool (*reclaim)(kvlazy_cache *cache))
{
    int status = kvl_engine_cells_runs(c, s, cell, hold->n, &hold->n_run);

    if (status)
        return status;
    memcpy(hold->run, c->plan.run, hold->n_run * sizeof *hold->run);
    for (uint32_t i = 0; i < hold->n; i++) {
        hold->place[i] = (kvl_place){s, cell[i]};
        if (kvl_cells_is_used(&c->stream[s].cells, cell[i]))
            kvl_bit_set(hold->fallow, i);
    }
    status = kvl_engine_cells_take(c, hold->run, hold->n_run);
    if (status == KVLAZY_EBUDGET && reclaim(c))
        status = kvl_engine_cells_take(c, hold->run, hold->n_run);
    if (!status)
        c->stream[s].pending = true;
    hold->taken = !status;
    return status;
}

bool kvl_hold_give_up_engine_cells(kvlazy_cache *c, const kvl_hold *hold, uint64_t now_ms, uint32_t *next)
{
    uint64_t most = kvl_max(KVL_PIECE_BYTES / kvl_max(c->rows.geometry.cell_bytes, 1), 1);
    uint32_t end = (uint32_t)kvl_min(*next + kvl_min(most, KVL_HOLD_PIECE), hold->n);

    for (; hold->taken && *next < end; ++*next) {
        const kvl_place *at = &hold->place[*next];
        kvl_run run = {at->stream, at->cell, at->cell + 1};

        kvl_rows_zero(&c->rows, &run, 1);
        if (!kvl_bit_get(hold->fallow, *next))
            kvl_engine_cells_free(c, &run, 1, now_ms);
    }
    return hold->taken && *next < hold->n;
}
