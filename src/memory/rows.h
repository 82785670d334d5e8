/* SPDX-License-Identifier: MIT */
/*
 * rows: from cells to bytes and back, over every tensor and arena of one cache. Makes the pages of rows touched, gives
 * pages back, zeroes rows and copies them. Which cells, and when, its callers in core decide; rows knows no token and
 * no clock.
 */
#ifndef KVL_ROWS_H
#define KVL_ROWS_H

#include "base/base.h"
#include "base/histogram.h"
#include "memory/arena.h"
#include "memory/geometry.h"

/* What is remembered of one stream, so that the common case needs no look at the page bitmaps. */
typedef struct kvl_row_state {
    uint32_t ready_begin, ready_end; /* every page under the rows of these cells is touched */
    uint32_t read_end;               /* largest n_kv handed out: reading may have made the pages below it resident */
} kvl_row_state;

typedef struct kvl_rows {
    kvl_geometry geometry; /* and all the arenas */
    kvlazy_arena own;      /* what the library laid out */
    const kvlazy_mem *mem;
    kvl_row_state *stream; /* [n_stream] */
    bool commits_ahead;    /* pages are made present before they are written */
    uint64_t n_released;   /* pages given back, running total */
    uint64_t n_refused;    /* ranges that the host would not take back, running total */
    kvlazy_histogram commit_time, release_time;
} kvl_rows;

/* Begins a new batch of page ranges in every arena. */
void kvl_rows_gather(kvl_rows *rows);

/* Gathers the pages under these runs, by stream and cell, that are not touched. KVLAZY_ENOMEM: no room to note them. */
int kvl_rows_want(kvl_rows *rows, const kvl_run *run, uint32_t n_run);
uint64_t kvl_rows_gathered(const kvl_rows *rows);

/* Makes what was gathered for these runs touched, all of it or nothing: KVLAZY_ENOMEM. The runs are ready then, and
 * kvl_rows_ready knows it in O(n_run). */
int kvl_rows_touch(kvl_rows *rows, const kvl_run *run, uint32_t n_run);
bool kvl_rows_ready(const kvl_rows *rows, const kvl_run *run, uint32_t n_run);
void kvl_rows_forget_ready(kvl_rows *rows);

/* A cell, by its stream. */
typedef struct kvl_place {
    uint32_t stream, cell;
} kvl_place;

/* Some whole rows of a tensor to or from `row`, row-major whatever the layout, in this order of cells. What is written
 * to has touched pages. At most KVL_ROWS_PIECE_BYTES at a time. */
enum { KVL_ROWS_PIECE_BYTES = 1 << 18 };
void kvl_rows_get(const kvl_rows *rows, const kvl_tensor *tensor, const kvl_place *place, uint32_t n, void *row);
void kvl_rows_put(kvl_rows *rows, const kvl_tensor *tensor, const kvl_place *place, uint32_t n, const void *row);

/* The same for the bytes [begin, end) of one row that is longer. */
void kvl_rows_get_part(const kvl_rows *rows, const kvl_tensor *tensor, kvl_place place, kvl_span part, void *bytes);
void kvl_rows_put_part(kvl_rows *rows, const kvl_tensor *tensor, kvl_place place, kvl_span part, const void *bytes);

/* Makes the pages touched that the rows of one tensor lie on, for these runs, by stream and cell. Whether the cells are
 * ready in other tensors is not known by it. KVLAZY_ENOMEM: as they were. */
int kvl_rows_touch_tensor(kvl_rows *rows, const kvl_tensor *tensor, const kvl_run *run, uint32_t n_run);

/* Gives back what was gathered. */
void kvl_rows_give(kvl_rows *rows);

/* Touched pages of all tensors; and how many bytes of the tensors are in RAM, as the host says. */
uint64_t kvl_rows_touched(const kvl_rows *rows);
uint64_t kvl_rows_resident_bytes(const kvl_rows *rows);

/* Whether every page under the cells [begin, end) is touched. */
bool kvl_rows_are_touched(const kvl_rows *rows, uint32_t stream, uint32_t begin, uint32_t end);

/* Zeroes those rows that lie on touched pages. */
void kvl_rows_zero(kvl_rows *rows, uint32_t stream, uint32_t begin, uint32_t end);

/* Copies a run of rows to the cells of a stream from `to` on. The two do not overlap. */
void kvl_rows_copy(kvl_rows *rows, kvl_run from, uint32_t to_stream, uint32_t to);

static inline uint64_t kvl_rows_page_bytes(const kvl_rows *rows)
{
    return rows->geometry.page_bytes;
}

static inline uint64_t kvl_rows_touched_bytes(const kvl_rows *rows)
{
    return kvl_rows_touched(rows) * kvl_rows_page_bytes(rows);
}

/* Some tensor lies in an arena of the engine, where pages may hold bytes that no layer names; those arenas come first.
 */
static inline bool kvl_rows_in_arena(const kvl_rows *rows)
{
    return rows->geometry.n_arena && rows->geometry.arena[0] != &rows->own;
}

/* Some tensor lies on a device, where its bytes cannot be moved. */
static inline bool kvl_rows_on_device(const kvl_rows *rows)
{
    return rows->geometry.n_host < rows->geometry.n_tensor;
}

/* Attention reads the cells [0, n_kv) of a stream. */
static inline void kvl_rows_note_read(kvl_rows *rows, uint32_t stream, uint32_t n_kv)
{
    kvl_row_state *s = &rows->stream[stream];

    s->read_end = n_kv > s->read_end ? n_kv : s->read_end;
}

#endif
