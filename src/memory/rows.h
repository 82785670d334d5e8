/* SPDX-License-Identifier: MIT */
/*
 * rows: the way from cells to bytes, over every tensor and arena of one cache. Makes the pages of rows touched, gives
 * pages back, zeroes rows and copies them. The callers in core decide which cells, and when; rows knows no token and no
 * clock.
 */
#ifndef KVL_ROWS_H
#define KVL_ROWS_H

#include "base/base.h"
#include "base/histogram.h"
#include "memory/arena.h"
#include "memory/geometry.h"
#include "memory/pace.h"

/* What rows remembers of one stream, so that in steady decode no page bitmap is looked at. */
typedef struct kvl_row_state {
    uint32_t ready_begin, ready_end; /* every page under the rows of these cells is touched */
    uint32_t read_end;               /* reading may have made pages of the cells below this resident */
} kvl_row_state;

typedef struct kvl_rows {
    kvl_geometry geometry; /* of all tensors, with their arenas */
    kvlazy_arena own;      /* the tensors that the library laid out */
    kvl_page page;         /* of all arenas */
    const kvlazy_mem *mem;
    kvl_row_state *stream; /* [n_stream] */
    bool commits_ahead;    /* pages are made present before they are written, */
    kvl_pacer pacer;       /* as long as that pays */
    kvl_account *account;  /* of the linked caches, for a host that keeps no sums */
    uint64_t n_promised;   /* pages that were promised and are not present yet */
    uint64_t n_faulting;   /* those of them that are touched: they come when they are written */
    uint64_t n_held;       /* pages made present less those given back, modulo 2^64: the twin may give back ours */
    uint64_t n_released;   /* pages given back, running total */
    uint64_t n_refused;    /* ranges that the host would not take back, running total */
    kvlazy_histogram commit_time, release_time;
} kvl_rows;

/* Forgets the gathered ranges of every arena: what follows gathers anew. */
void kvl_rows_gather(kvl_rows *rows);

/* Gathers the pages under these runs that are not touched. The runs ascend by stream and cell. Returns KVLAZY_ENOMEM
 * when there is no room to note the ranges. kvl_rows_gathered returns how many pages were gathered. */
int kvl_rows_want(kvl_rows *rows, const kvl_run *run, uint32_t n_run);
uint64_t kvl_rows_gathered(const kvl_rows *rows);

/* The same in one tensor, for the pages that are touched or for those that are not. */
int kvl_rows_find(kvl_rows *rows, const kvl_tensor *tensor, const kvl_run *run, uint32_t n_run, bool touched);

/* Those of them that lie under tensors of another cache as well, which has some in the same arenas. */
uint64_t kvl_rows_gathered_under(const kvl_rows *rows, const kvl_rows *other);

/* Makes the pages that were gathered for these runs touched; the runs are then ready. Returns KVLAZY_ENOMEM when the
 * host refuses, and none of the pages is touched then. kvl_rows_ready returns whether runs are ready, in O(n_run). */
int kvl_rows_touch(kvl_rows *rows, const kvl_run *run, uint32_t n_run);
bool kvl_rows_ready(const kvl_rows *rows, const kvl_run *run, uint32_t n_run);
void kvl_rows_forget_ready(kvl_rows *rows);

/* The same, but nothing is made present: for pages that another thread is about to bring. */
int kvl_rows_touch_absent(kvl_rows *rows, const kvl_run *run, uint32_t n_run);

/* The same by a call to the host and an access to each page, dear or not: for pages that no thread waits for yet. The
 * runs do not become ready. */
int kvl_rows_make_present(kvl_rows *rows, const kvl_run *run, uint32_t n_run);

/* The same call and accesses for gathered pages that are touched already, whatever they hold. KVLAZY_ENOMEM: some may
 * not be present; they still come when they are written. */
int kvl_rows_bring(kvl_rows *rows);

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

/* What all caches of the host took or were promised, in bytes: KVLAZY_COUNT_*. */
uint64_t kvl_rows_counted(const kvl_rows *rows, int what);

/* So many pages more are promised: touching them makes the promise smaller. Returns what is promised to all caches of
 * the host, in bytes. */
uint64_t kvl_rows_promise(kvl_rows *rows, uint64_t n_page);

/* What was promised and not touched is not wanted any more; and the batch is over too, so what was touched was written.
 */
void kvl_rows_drop_promise(kvl_rows *rows);
void kvl_rows_end_promise(kvl_rows *rows);

/* The cache is about to go, with all its pages: it counts for nothing. */
void kvl_rows_count_out(kvl_rows *rows);

/* Gives the gathered pages back. Those that the host refuses stay touched and are counted. */
void kvl_rows_give(kvl_rows *rows);

/* Return the touched pages of all tensors, and the bytes of the tensors that are resident, as the host says. */
uint64_t kvl_rows_touched(const kvl_rows *rows);
uint64_t kvl_rows_resident_bytes(const kvl_rows *rows);

/* Returns whether every page under the cells [begin, end) is touched. */
bool kvl_rows_are_touched(const kvl_rows *rows, uint32_t stream, uint32_t begin, uint32_t end);

/* Zeroes the rows of some runs of one stream, lane by lane, where they lie on touched pages. */
void kvl_rows_zero(kvl_rows *rows, const kvl_run *run, uint32_t n_run);

/* Copies the rows of a run to the cells of a stream from `to` on. The two runs do not overlap. */
void kvl_rows_copy(kvl_rows *rows, kvl_run from, uint32_t to_stream, uint32_t to);

static inline uint64_t kvl_rows_page_bytes(const kvl_rows *rows)
{
    return rows->geometry.page_bytes;
}

/* Pages that were promised and are not touched yet. */
static inline uint64_t kvl_rows_outstanding(const kvl_rows *rows)
{
    return rows->n_promised - rows->n_faulting;
}

static inline uint64_t kvl_rows_touched_bytes(const kvl_rows *rows)
{
    return kvl_rows_touched(rows) * kvl_rows_page_bytes(rows);
}

/* Returns whether some tensor lies in an arena of the engine, where pages may hold bytes that no layer names. Those
 * arenas come before the library's own. */
static inline bool kvl_rows_in_arena(const kvl_rows *rows)
{
    return rows->geometry.n_arena && rows->geometry.arena[0] != &rows->own;
}

/* Returns whether some tensor lies on a device, where the library cannot move bytes. */
static inline bool kvl_rows_on_device(const kvl_rows *rows)
{
    return rows->geometry.n_host < rows->geometry.n_tensor;
}

/* Notes that attention reads the cells [0, n_kv) of a stream. */
static inline void kvl_rows_note_read(kvl_rows *rows, uint32_t stream, uint32_t n_kv)
{
    kvl_row_state *s = &rows->stream[stream];

    s->read_end = n_kv > s->read_end ? n_kv : s->read_end;
}

#endif
