/* SPDX-License-Identifier: MIT */
/*
 * draw: the cells of a stream as text, for the hunt for a bug. Copies what it needs under the lock and draws after the
 * lock was released, so that a slow sink delays no other thread. No other file depends on it.
 *
 *     kv: cells 64..91: 0000000011111111++++....~~~~
 *     kv:   positions: 0..7 100..107 8..11
 */
#include "api/door.h"
#include "core/lock.h"

#include <inttypes.h>
#include <stdio.h>

#include <bsd/stdlib.h>
#include <bsd/string.h>

enum { CELLS_A_LINE = 64 };

/* What is drawn of a cell. */
typedef struct seen_cell {
    kvlazy_pos pos;
    char mark;
} seen_cell;

/* Returns the owner of a cell as one character: 0-9, a-z, then *; + for several owners; ~ for a fallow cell; . for an
 * empty one. */
static char mark_of(const kvl_cells *cells, uint32_t cell)
{
    static const char names[] = "0123456789abcdefghijklmnopqrstuvwxyz";
    kvlazy_seq_id owner = kvl_cells_only_owner(cells, cell);

    if (!kvl_cells_is_used(cells, cell))
        return kvl_bit_get(cells->fallow, cell) ? '~' : '.';
    if (owner < 0)
        return '+';
    return (size_t)owner < sizeof names - 1 ? names[owner] : '*';
}

/* Appends the positions of consecutive cells, p..q where they rise by one; ends with ... where the line is full. */
static void add_positions(char *text, size_t bytes, const seen_cell *cell, uint32_t n)
{
    char run[32];

    for (uint32_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && cell[i].pos >= 0 && cell[end].pos == cell[end - 1].pos + 1;)
            end++;
        if (cell[i].pos < 0)
            continue;
        if (end == i + 1)
            snprintf(run, sizeof run, " %" PRId32, cell[i].pos);
        else
            snprintf(run, sizeof run, " %" PRId32 "..%" PRId32, cell[i].pos, cell[end - 1].pos);
        if (strlen(text) + strlen(run) + sizeof " ..." > bytes) {
            strlcat(text, " ...", bytes);
            return;
        }
        strlcat(text, run, bytes);
    }
}

/* A sink may destroy the cache, and is told nothing more then. */
static void tell(const kvlazy_cache *c, const kvl_log *log, const char *text)
{
    if (kvl_is_cache(c))
        log->sink(log->ctx, KVLAZY_LOG_DEBUG, text);
}

static void draw_line(const kvlazy_cache *c, const kvl_log *log, const seen_cell *cell, uint32_t first, uint32_t n)
{
    char marks[CELLS_A_LINE + 1] = "", text[KVL_LOG_LINE_BYTES];
    uint32_t n_live = 0;

    for (uint32_t i = 0; i < n; i++) {
        marks[i] = cell[i].mark;
        n_live += cell[i].pos >= 0;
    }
    marks[n] = 0;
    snprintf(text, sizeof text, "%s: cells %" PRIu32 "..%" PRIu32 ": %s", log->name, first, first + n - 1, marks);
    tell(c, log, text);
    if (!n_live)
        return;
    snprintf(text, sizeof text, "%s:   positions:", log->name);
    add_positions(text, sizeof text, cell, n);
    tell(c, log, text);
}

int kvlazy_draw(const kvlazy_cache *cache, uint32_t stream)
{
    kvlazy_cache *c = kvl_mutable(cache); /* only the lock is released */

    int status = kvl_enter(c, KVL_DOOR_LOOK);
    if (status)
        return status;
    if (kvl_has_engine_cells(c))
        return kvl_leave_look(c, KVLAZY_ENOTSUP);
    if (stream >= c->params.n_stream)
        return kvl_leave_look(c, KVLAZY_EINVAL);
    if (!c->log.sink)
        return kvl_leave_look(c, KVLAZY_OK);
    const kvl_cells *cells = &c->stream[stream].cells;
    uint32_t fallow_end = (uint32_t)kvl_bits_top(cells->fallow, cells->n_cell);
    uint32_t n_cell = fallow_end > cells->used_end ? fallow_end : cells->used_end;
    seen_cell *cell = reallocarray(NULL, n_cell + (size_t)1, sizeof *cell);
    kvl_log log = c->log;

    if (!cell)
        return kvl_leave_look(c, KVLAZY_ENOMEM);
    for (uint32_t i = 0; i < n_cell; i++)
        cell[i] = (seen_cell){cells->pos[i], mark_of(cells, i)};
    kvl_begin_telling(c);
    for (uint32_t i = 0; i < n_cell; i += CELLS_A_LINE)
        draw_line(c, &log, cell + i, i, (uint32_t)kvl_min(CELLS_A_LINE, n_cell - i));
    kvl_end_telling(c->group);
    free(cell);
    return kvl_leave_look(c, KVLAZY_OK);
}
