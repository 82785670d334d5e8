/* SPDX-License-Identifier: MIT */
/* rows: see rows.h. */
#include "state/rows.h"
#include "core/batch.h"
#include "core/engine_cells.h"
#include "core/hold.h"

#include <bsd/stdlib.h>

typedef struct rows_call {
    kvl_state_io io;
    kvl_place *place; /* [n] */
    uint32_t n;
} rows_call;

static int open_call(rows_call *r, kvlazy_cache *c, uint32_t stream, const uint32_t *cell, uint32_t n,
                     const kvl_state_ends *ends)
{
    if (kvl_rows_on_device(&c->rows))
        return KVLAZY_ENOTSUP;
    r->n = n;
    r->place = reallocarray(NULL, n + (size_t)1, sizeof *r->place);
    int status = kvl_state_io_init(&r->io, c, ends);
    if (status || !r->place)
        return KVLAZY_ENOMEM;
    for (uint32_t i = 0; i < n; i++)
        r->place[i] = (kvl_place){stream, cell[i]};
    return KVLAZY_OK;
}

static int close_call(rows_call *r, const char *call, int status)
{
    if (r->io.cache)
        kvl_state_say(&r->io, call, status);
    free(r->place);
    kvl_state_io_fini(&r->io);
    return status;
}

static bool is_part(const kvl_tensor *t, const kvl_state_piece *p)
{
    return p->part.end - p->part.begin < kvl_state_row_bytes(t);
}

static size_t piece_bytes(const kvl_state_piece *p)
{
    return (size_t)(p->n * (p->part.end - p->part.begin));
}

/* Every piece of every tensor. */
static int for_pieces(rows_call *r, int (*piece)(rows_call *, const kvl_tensor *, const kvl_state_piece *))
{
    int status = KVLAZY_OK;

    for (const kvl_tensor *t = NULL; !status && (t = kvl_state_next_tensor(&r->io.cache->rows.geometry, t));) {
        kvl_state_piece p = {0};

        while (!status && kvl_state_next_piece(&p, r->n, kvl_state_row_bytes(t)))
            status = piece(r, t, &p);
    }
    return status;
}

/* ------------------------------------------------------------------------------------------- writing */

static int put_piece(rows_call *r, const kvl_tensor *t, const kvl_state_piece *p)
{
    kvl_rows *rows = &r->io.cache->rows;

    kvl_state_in(&r->io);
    if (is_part(t, p))
        kvl_rows_get_part(rows, t, r->place[p->begin], p->part, r->io.buffer);
    else
        kvl_rows_get(rows, t, r->place + p->begin, p->n, r->io.buffer);
    kvl_state_out(&r->io);
    return kvl_state_pass_raw(&r->io, r->io.buffer, piece_bytes(p));
}

int kvl_state_rows_write(kvlazy_cache *c, uint32_t stream, const uint32_t *cell, uint32_t n, const kvl_state_ends *ends)
{
    rows_call r = {.place = NULL};
    int status = open_call(&r, c, stream, cell, n, ends);

    if (status)
        return close_call(&r, "state_rows_write", status);
    for (uint32_t i = 0; i < n; i++)
        kvl_rows_note_read(&c->rows, stream, cell[i] + 1); /* what was never written becomes resident by reading */
    kvl_state_out(&r.io);
    status = for_pieces(&r, put_piece);
    kvl_state_in(&r.io);
    return close_call(&r, "state_rows_write", status);
}

/* ------------------------------------------------------------------------------------------- reading */

/* Cells that follow one another from the i-th on. */
static kvl_run run_from(const rows_call *r, uint32_t i)
{
    kvl_run run = {r->place[i].stream, r->place[i].cell, r->place[i].cell + 1};

    while (++i < r->n && r->place[i].cell == run.end)
        run.end++;
    return run;
}

static int take_cells(rows_call *r)
{
    kvlazy_cache *c = r->io.cache;
    int status = KVLAZY_OK;

    for (uint32_t i = 0; !status && i < r->n;) {
        kvl_run run = run_from(r, i);

        status = kvl_engine_cells_take(c, &run, 1);
        if (status == KVLAZY_EBUDGET && r->io.ends->reclaim(c))
            status = kvl_engine_cells_take(c, &run, 1);
        if (!status)
            c->stream[run.stream].pending = true;
        i += run.end - run.begin;
    }
    return status;
}

static int get_piece(rows_call *r, const kvl_tensor *t, const kvl_state_piece *p)
{
    kvl_rows *rows = &r->io.cache->rows;
    int status = kvl_state_pass_raw(&r->io, r->io.buffer, piece_bytes(p));

    if (status)
        return status;
    kvl_state_in(&r->io);
    if (is_part(t, p))
        kvl_rows_put_part(rows, t, r->place[p->begin], p->part, r->io.buffer);
    else
        kvl_rows_put(rows, t, r->place + p->begin, p->n, r->io.buffer);
    kvl_state_out(&r->io);
    return KVLAZY_OK;
}

/* With the lock held, but for moments between two pieces. */
static void zero_cells(rows_call *r)
{
    kvlazy_cache *c = r->io.cache;

    for (uint32_t i = 0; i < r->n;) {
        kvl_run run = run_from(r, i);

        run.end = (uint32_t)kvl_min(run.end, (uint64_t)run.begin + KVL_HOLD_PIECE);
        kvl_rows_zero(&c->rows, &run, 1);
        i += run.end - run.begin;
        kvl_unlock(c);
        kvl_lock(c);
    }
}

int kvl_state_rows_read(kvlazy_cache *c, uint32_t stream, const uint32_t *cell, uint32_t n, const kvl_state_ends *ends)
{
    rows_call r = {.place = NULL};
    bool opens = !c->group->open;
    int status = open_call(&r, c, stream, cell, n, ends);

    if (status)
        return close_call(&r, "state_rows_read", status);
    kvl_batch_open(c->group);
    status = take_cells(&r);
    if (!status) {
        kvl_state_out(&r.io);
        status = for_pieces(&r, get_piece);
        kvl_state_in(&r.io);
        if (status)
            zero_cells(&r);
    }
    if (status && opens)
        kvl_batch_close(c->group);
    return close_call(&r, "state_rows_read", status);
}
