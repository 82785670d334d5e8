/* SPDX-License-Identifier: MIT */
/* rows: see rows.h. */
#include "state/rows.h"
#include "core/batch.h"
#include "core/clock.h"
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

/* With the lock held, but for moments between two pieces, out as for a callback, so that the cache is not destroyed. */
static void give_up(rows_call *r, const kvl_hold *hold)
{
    uint64_t now_ms = kvl_now(r->io.cache);

    for (uint32_t next = 0; kvl_hold_give_up_engine_cells(r->io.cache, hold, now_ms, &next);) {
        kvl_state_out(&r->io);
        kvl_state_in(&r->io);
    }
}

/* In an open batch. */
static int read_into(rows_call *r, kvl_hold *hold, uint32_t stream, const uint32_t *cell)
{
    if (!r->n)
        return KVLAZY_OK;
    int status = kvl_hold_engine_cells(r->io.cache, hold, stream, cell, r->io.ends->reclaim);

    if (status)
        return status;
    kvl_state_out(&r->io);
    status = for_pieces(r, get_piece);
    kvl_state_in(&r->io);
    if (status)
        give_up(r, hold);
    return status;
}

int kvl_state_rows_read(kvlazy_cache *c, uint32_t stream, const uint32_t *cell, uint32_t n, const kvl_state_ends *ends)
{
    rows_call r = {.place = NULL};
    bool opens = !c->group->open;
    int status = open_call(&r, c, stream, cell, n, ends);
    kvl_hold hold = {0};

    if (!status)
        status = kvl_hold_init(&hold, n);
    if (status)
        return close_call(&r, "state_rows_read", status);
    kvl_batch_open(c->group);
    status = read_into(&r, &hold, stream, cell);
    if (status && opens)
        kvl_batch_close(c->group);
    kvl_hold_fini(&hold);
    return close_call(&r, "state_rows_read", status);
}
