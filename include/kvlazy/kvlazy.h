/* SPDX-License-Identifier: MIT */
/*
 * kvlazy: memory for the K/V cache of a language-model inference engine. This header is the manual.
 *
 * THE IDEA. A cache reserves address space for the longest context an operator allows and touches none of
 * it. Physical pages follow the tokens that are live: they come when a batch is applied and go back when a
 * sequence is dropped or has been idle, while the process sleeps. Addresses never move and the whole of
 * [0, kv_size) stays readable, so attention kernels need no change.
 *
 * LIFE CYCLE. What an engine does, in the order it does it:
 *
 *     kvlazy_params_init(&params);                    // once
 *     params.kv_size = 131072; params.kv_size_initial = 4096; params.layers = layers; ...
 *     kvlazy_create(&params, &cache);
 *     kvlazy_k(cache, layer, &k);                     // where the rows of a layer lie; never changes
 *
 *     kvlazy_init_batch(cache);                       // a batch opens: positions read from here on stay true
 *     kvlazy_prepare(cache, ubatch, n_ubatch, slot);  // finds a cell for every token, or changes nothing
 *     for (i = 0; i < n_ubatch; i++) {
 *         kvlazy_apply_ubatch(cache, &slot[i], &ubatch[i]);
 *         n_kv = kvlazy_n_kv(cache, &slot[i]);        // write K and V rows to slot[i].cell, attend over n_kv
 *     }
 *     kvlazy_end_batch(cache);                        // on every way out, errors included
 *
 *     kvlazy_poll(cache, &next_ms);                   // when nothing is to do: memory goes back here
 *
 * WORDS. A cell is room for one token's K and V in every layer of one stream. A stream is an independent run
 * of cells: a unified cache has one, otherwise sequence i lives in stream i. A sequence is a conversation. A
 * ubatch is a group of tokens computed together, a slot the cells chosen for them. Live cells hold a token;
 * touched pages were committed or handed out for writing since they were last given back; resident pages are
 * in RAM, says the kernel. docs/design.md has the whole list and the ten promises.
 *
 * NUMBERS PEOPLE WILL SEE. Virtual size (VSZ, VIRT) contains the whole reservation from the start and means
 * nothing. Resident size (RSS) follows the live tokens; kvlazy_stats() says what the library knows and costs
 * nothing, kvlazy_resident() asks the kernel and is slow. Reading a page that was never written can make it
 * resident (a page of zeros), depending on the kernel; such pages are given back too when a stream idles.
 *
 * UNITS. `_bytes`, `_ms`, `_cells` say so. n_ counts. A cell is an index within its stream.
 *
 * ERRORS. Every fallible call returns KVLAZY_OK or one negative code of the list below. After any error
 * the cells, the touched pages and the idle clocks are as they were, out-parameters are untouched, and the
 * call may be repeated. The library never aborts, exits, prints, or waits without bound. A NULL handle, or a
 * pointer that is no living cache, is EINVAL (the second as far as a look at its first bytes can tell).
 *
 * STRUCTS that begin with struct_size may be of an older or a newer header: the first members are enough, up to the end
 * of one. In a larger one an input must have zeros behind what this version knows, and an output gets them.
 *
 * THREADS. One thread at a time runs the hooks and the sequence calls. kvlazy_poll, _trim, _set_limits,
 * _stats and _resident may be called from any thread. What the engine reads or writes in tensors or in a
 * cells view, and what it decides from kvlazy_seq_pos_*, belongs inside an open batch; init_batch …
 * end_batch without a prepare is such a bracket and stamps no clock. Destroy only when no other thread is
 * inside a call.
 *
 * FORK. A child gets its own copy-on-write image of the touched pages, and may use its copy of a cache as its own, if no
 * other thread was inside a call of the cache, or of one linked to it, at the fork. Else every call in the child
 * answers ENOTSUP (0 or -1 where there is no status), soon and not after a wait for a thread that is not there, and
 * kvlazy_destroy leaves the copy as it is. A reaper has no thread in the child, which must not call it; the child's
 * caches are polled or put into a reaper of its own. KVLAZY_DONTFORK keeps the reservation out of children, which must
 * then not use the cache. Core dumps leave the reservation out.
 */
#ifndef KVLAZY_KVLAZY_H
#define KVLAZY_KVLAZY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem.h"
#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------------------
 * Status codes. One list makes the enum, the names and the texts. The numbers are pinned.
 */
#define KVLAZY_STATUS_LIST(X)                                           \
    X(OK, 0, "success")                                                 \
    X(EINVAL, -1, "bad argument")                                       \
    X(ENOSLOT, -2, "no free cell: the hard maximum is reached")         \
    X(EBUDGET, -3, "a byte limit would be passed")                      \
    X(ENOMEM, -4, "the operating system refused memory")                \
    X(EPOS, -5, "the batch does not continue its sequence")             \
    X(ESHIFT, -6, "K rows wait to be rotated")                          \
    X(EBUSY, -7, "a batch is open, or the cache is being shrunk")       \
    X(ESTATE, -8, "malformed or foreign snapshot, or a broken promise") \
    X(EIO, -9, "the caller's reader or writer failed")                  \
    X(ENOTSUP, -10, "this cache cannot do that")

enum {
#define KVLAZY_STATUS_ENUM(name, value, text) KVLAZY_##name = (value),
    KVLAZY_STATUS_LIST(KVLAZY_STATUS_ENUM)
#undef KVLAZY_STATUS_ENUM
};

/** "KVLAZY_EPOS" for KVLAZY_EPOS; "KVLAZY_?" for a number that is no status. Never NULL. */
KVLAZY_API const char *kvlazy_status_name(int status);
/** One line of text for a status. Never NULL. */
KVLAZY_API const char *kvlazy_status_message(int status);

/* ------------------------------------------------------------------------------------------------------
 * Types
 */
typedef struct kvlazy_cache kvlazy_cache; /* opaque; no globals; any number per process */
typedef struct kvlazy_arena kvlazy_arena;
typedef struct kvlazy_pool kvlazy_pool;
typedef struct kvlazy_reaper kvlazy_reaper;
typedef int32_t kvlazy_pos;    /* 0 … INT32_MAX - 1; -1: none */
typedef int32_t kvlazy_seq_id; /* 0 … n_seq_max - 1 */

enum { KVLAZY_LOG_ERROR, KVLAZY_LOG_WARN, KVLAZY_LOG_INFO, KVLAZY_LOG_DEBUG };
enum { KVLAZY_SWA_NONE, KVLAZY_SWA_STANDARD, KVLAZY_SWA_CHUNKED, KVLAZY_SWA_SYMMETRIC };
enum {
    KVLAZY_SHRINK_TAILS, /* sequences lose their tails and keep a usable prefix */
    KVLAZY_SHRINK_WHOLE, /* only whole sequences go; what would leave part of one is ENOTSUP (hybrid models) */
    KVLAZY_SHRINK_KEEP,  /* no token ever goes; only pages without tokens do */
};
enum {
    KVLAZY_SHRINK_AT_INIT = 1u << 0,  /* init_batch shrinks too: for engines without an idle loop */
    KVLAZY_DONTFORK = 1u << 1,        /* a forked child does not get the reservation */
    KVLAZY_HUGE_PAGES = 1u << 2,      /* pages are huge ones (2 MiB), each given back only as a whole */
    KVLAZY_NO_COMMIT_AHEAD = 1u << 3, /* apply_ubatch leaves the first touch to the writing threads */
};

/**
 * Where the rows of one K or V tensor lie. Row-major (n_channel 0): cell i of stream s is row_bytes at
 * data + s·stream_stride + i·cell_stride. Transposed (n_channel n): channel j of it is row_bytes / n at
 * data + s·stream_stride + j·channel_stride + i·cell_stride.
 */
typedef struct kvlazy_tensor {
    void *data;
    size_t cell_stride, channel_stride, stream_stride, row_bytes; /* all in bytes */
    uint32_t n_channel;                                           /* 0: row-major */
} kvlazy_tensor;

/** One model layer that owns K/V. Borrowed layers are not named, and so never released. */
typedef struct kvlazy_layer {
    uint32_t id;                /* the engine's layer number, unique in a cache */
    size_t k_row_bytes;         /* bytes of one cell's K, any quantised size; 0: none */
    size_t v_row_bytes;         /* bytes of one cell's V; 0: none (MLA) */
    uint32_t v_channels;        /* 0: V row-major. n: V transposed, n channels of v_row_bytes / n bytes a cell */
    const kvlazy_tensor *k, *v; /* NULL: the library lays it out, packed. Else where the engine put it (part 6), of
                                   the same row_bytes and channels; copied. data NULL: on a device */
    kvlazy_arena *arena;        /* that holds k and v, and outlives the cache; NULL when neither has data */
} kvlazy_layer;

/**
 * An engine's own cells, as the idle side sees them (part 7). Called on the thread that calls the hooks, inside
 * kvlazy_poll, _trim, _set_limits, _stats, _stats_text, _end_batch, _clear and, with KVLAZY_SHRINK_AT_INIT,
 * _init_batch; where room is short in _touch and _copy_cells too. All but `vacate` run with a lock held, so that they
 * must not call into the cache.
 */
typedef struct kvlazy_cell_ops {
    size_t struct_size;
    void *ctx;
    /* One past the highest cell of the stream that holds a token. */
    uint32_t (*used_end)(void *ctx, uint32_t stream);
    /* Whether a cell below used_end holds one. NULL: all of them do, and none is ever moved. */
    bool (*is_used)(void *ctx, uint32_t stream, uint32_t cell);
    /* n tokens moved down from cell `from` on to cell `to` on, to + n ≤ from; their bytes are there already. NULL: none
     * may move. */
    void (*move)(void *ctx, uint32_t stream, uint32_t from, uint32_t to, uint32_t n);
    /* Is asked, with no lock held, to empty every cell from `from` on, or as many others: the cells were moved together
     * before, and are again after. Which sequences lose what is the engine's rule. What is gone then, used_end and
     * is_used say. Non-zero: no, for slot_shrink_idle_ms. NULL: never. */
    int (*vacate)(void *ctx, uint32_t stream, uint32_t from);
} kvlazy_cell_ops;

/** What to create. kvlazy_params_init() fills in the defaults; a 0 put there afterwards means what its line says. */
typedef struct kvlazy_params {
    size_t struct_size;           /* sizeof(kvlazy_params), by kvlazy_params_init() */
    uint32_t kv_size;             /* hard maximum of cells per stream, 1 to 2^31 - 1: what is reserved. No default */
    uint32_t kv_size_initial;     /* cells that the idle conversations of a stream may keep together;
                                     0 (default), or above kv_size: kv_size, so that no token is ever evicted */
    uint32_t slot_shrink_idle_ms; /* default 30000; 0: never shrink by itself */
    uint32_t n_stream;            /* default 1 (0 too); 1 or n_seq_max */
    uint32_t n_seq_max;           /* 0 (default): n_stream. At most 65536 */
    uint32_t n_pad;               /* default 256 (0 too); a power of two up to 2^30: n_kv is rounded up to it */
    uint32_t n_swa;               /* positions in the sliding window; 0 (default) with KVLAZY_SWA_NONE */
    int swa_type;                 /* KVLAZY_SWA_*: with a query at b, a token at a is masked where b - a ≥ n
                                     (STANDARD), a < b / n · n (CHUNKED), |b - a| > n / 2 (SYMMETRIC) */
    uint32_t n_pos_per_token;     /* default 1 (0 too); 3 or 4: planes position, y, x, the rest ignored (M-RoPE) */
    uint32_t keep_tokens;         /* positions below this are never evicted (a system prompt); default 0 */
    int shrink;                   /* KVLAZY_SHRINK_*; default TAILS */
    uint32_t flags;               /* KVLAZY_SHRINK_AT_INIT, …; default 0 */
    uint64_t budget_bytes;        /* ceiling for touched bytes; 0 (default): none. Free pages go back before a
                                     batch is refused */
    const kvlazy_layer *layers;   /* [n_layer], copied; a layer with neither K nor V is no error */
    uint32_t n_layer;             /* 0: cells are kept and nothing is reserved */
    kvlazy_cache *with;           /* a cache that sees the same batches, of as many streams and sequences: see part
                                     5. NULL (default): none */
    const kvlazy_mem *mem;        /* NULL: this host. Copied */
    const char *name;             /* in log lines; copied. NULL: "kv" */

    /* Receives one line of text per event, without a line end, on the thread that made the call, with no
     * lock held. NULL: silence. */
    void (*log)(void *ctx, int level, const char *text);
    void *log_ctx;

    /* May these tokens go? Asked once a sequence on the thread that called poll, trim or set_limits (or
     * init_batch with KVLAZY_SHRINK_AT_INIT; in a pool, on the thread of another cache that lacks room; with a reaper,
     * on its thread), with no lock held and nothing changed yet: the cache may be
     * read from inside. new_pos_max: the last position that would stay; -1: all of it goes. A non-zero answer
     * keeps the sequence as it is for slot_shrink_idle_ms. If a batch was opened meanwhile, nothing goes.
     * NULL: they may. */
    int (*on_evict)(void *ctx, kvlazy_seq_id seq, kvlazy_pos new_pos_max);
    void *evict_ctx;

    const kvlazy_cell_ops *cell_ops; /* the engine keeps the cells, the library only their memory (part 7); copied.
                                        NULL (default): the library keeps them */

    kvlazy_pool *pool;       /* a byte budget shared with other caches (part 8). NULL (default): none */
    uint64_t pool_min_bytes; /* of the pool, what is never lent to others; default 0 */
    uint32_t pool_weight;    /* its part of what is above all minima; 0 (default): 1 */
    const char *host_root;   /* where /proc and /sys are found, to read the machine's limits; copied. NULL (default):
                                "/". "": they are not read */
} kvlazy_params;

/** The tokens of one ubatch: borrowed arrays, read only. */
typedef struct kvlazy_ubatch {
    uint32_t n_token;
    const kvlazy_pos *pos;              /* [n_pos_per_token][n_token] */
    uint32_t pos_stride;                /* elements from one position plane to the next; 0: n_token */
    const kvlazy_seq_id *seq;           /* [n_token]: one owner each; then the next two are not read */
    const int32_t *n_seq_id;            /* [n_token]; NULL: 1 each */
    const kvlazy_seq_id *const *seq_id; /* [n_token][n_seq_id[i]] */
} kvlazy_ubatch;

/** The cells chosen for one ubatch. The arrays are the cache's own storage, valid until the next prepare. Once a shrink
 * after end_batch moved cells, the slot is stale: undo answers EINVAL and n_kv 0. */
typedef struct kvlazy_slot {
    uint32_t n_token;
    const uint32_t *stream, *cell; /* [n_token] */
} kvlazy_slot;

/* ------------------------------------------------------------------------------------------------------
 * 1. What every engine calls
 */

/** Fills in the defaults. */
KVLAZY_API void kvlazy_params_init(kvlazy_params *params);

/**
 * Reserves address space for everything and touches none of it.
 * Fails: EINVAL and ENOTSUP (the log line names field and value), ENOMEM when the host refuses the reservation (the
 * line names the limit), EBUDGET when pool_min_bytes is more than the pool has; *cache is untouched then, and
 * nothing is held.
 * Cost: a few system calls, independent of kv_size.
 */
KVLAZY_API int kvlazy_create(const kvlazy_params *params, kvlazy_cache **cache);

/**
 * Gives everything back. NULL is allowed. No other thread may be inside a call. A callback may do it, of this cache or of
 * another: nothing more is called for the cache from there on, and the call that made the callback, if its cache is
 * gone, answers EINVAL (what it had done by the time of a log line it answers as ever).
 */
KVLAZY_API void kvlazy_destroy(kvlazy_cache *cache);

/** Where the K rows of a layer lie. Constant for the life of the cache. Fails: EINVAL for an unknown layer, ENOTSUP for
 * one without K. */
KVLAZY_API int kvlazy_k(const kvlazy_cache *cache, uint32_t layer_id, kvlazy_tensor *tensor);
/** Where the V rows of a layer lie. As kvlazy_k. */
KVLAZY_API int kvlazy_v(const kvlazy_cache *cache, uint32_t layer_id, kvlazy_tensor *tensor);

/**
 * Opens a batch; one that is still open is ended first. Until end_batch, or a prepare that fails, no token is
 * dropped or moved and no page of a live token goes back, so positions read now stay true.
 * With KVLAZY_SHRINK_AT_INIT what idled is shrunk first.
 */
KVLAZY_API int kvlazy_init_batch(kvlazy_cache *cache);

/**
 * Finds a cell for every token of every ubatch, as if each ubatch were applied before the next: empty cells,
 * lowest index first; in a cache with a window that is full, cells whose token its sequence does not see any
 * more, oldest position first. Fills slots[n_ubatch] when all fit. Opens a batch if none is open. Changes no cell and
 * commits no page; under budget_bytes it may give back pages without tokens, if the whole batch then fits.
 * Room is limited by budget_bytes, by the pool, and by what the machine and its cgroups have left.
 * The positions of a sequence must go on at pos_max + 1, never decrease and leave no gap (with position planes:
 * anywhere ≥ pos_max, gaps allowed). An empty sequence may start anywhere and take the batch's positions in any
 * order that leaves no gap, unless eviction took tokens of it since the engine last went on where it ended: then the
 * lowest must be 0, until the engine removes the sequence whole (kvlazy_seq_rm from ≤ 0 to open, kvlazy_seq_keep of
 * another, kvlazy_clear) or copies onto it. The same holds after a kvlazy_seq_cp onto it that was refused while it
 * was empty: an engine that goes on behind tokens that did not come has no past. In a cache with a window, a sequence without tokens does not start where
 * its window would reach into what recycling took from it.
 * Fails: EINVAL; ESHIFT while K rows of one of the batch's streams wait to be rotated; EPOS; ENOSLOT; EBUDGET; ENOMEM. Then the batch is closed and
 * kvlazy_refused() says whose token it was.
 * Cost: O(tokens) plus a scan for free cells, 64 cells a step.
 */
KVLAZY_API int kvlazy_prepare(kvlazy_cache *cache, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots);

/**
 * The cells of a slot now hold the tokens of its ubatch, and the pages of their rows are ready to be written.
 * `slot` is one that the last prepare filled, `ubatch` the one it was filled for. Slots may be applied in
 * order, once each.
 * Pages that are not there yet are made present in one call for all tensors, so that writing does not fault. While a
 * stream decodes steadily, one token a batch, up to 32 cells more are made ready; they count as touched and go back
 * like any free page. Not so with KVLAZY_NO_COMMIT_AHEAD, on a host with several memory nodes (a page should belong to
 * the thread that writes it) and where all memory is locked.
 * Fails: EINVAL for a slot that is stale, foreign, of another batch, already applied, or whose cell was taken, and
 * outside an open batch; EPOS when the sequence changed since prepare; EBUDGET when a copy took the room since; ENOMEM
 * when the host cannot commit, or for want of the room in the library's own tables that a call since prepare took.
 * Cost: O(tokens); with pages to commit O(tokens · tensors). No system call and no allocation when the pages are
 * touched already.
 */
KVLAZY_API int kvlazy_apply_ubatch(kvlazy_cache *cache, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch);

/**
 * Compute failed: empties the cells that apply filled, for every owner, whatever position and owners their tokens have
 * by now; a cell that was emptied and filled again since is not meant. A slot that was not applied, or was undone, is
 * left alone and answers OK. It may be applied again while its batch is open.
 * Fails: EINVAL for a slot that is stale or foreign.
 */
KVLAZY_API int kvlazy_undo_ubatch(kvlazy_cache *cache, const kvlazy_slot *slot);

/**
 * Cells attention reads for this slot, the same for all its streams: from 0, padded to n_pad, the slot's own
 * cells among them, whether or not it was applied. Bytes in there that no live cell owns are zero or what the
 * engine once wrote. 0 for a slot that is stale or foreign.
 */
KVLAZY_API uint32_t kvlazy_n_kv(const kvlazy_cache *cache, const kvlazy_slot *slot);

/**
 * Compute is done: from here memory may go back. Stamps the idle clock of every sequence that an apply
 * touched and gives back pages that held no token for slot_shrink_idle_ms, at most 64 MiB of cells a call.
 * Without an open batch it is a no-op. Fails: EINVAL for a NULL handle only.
 */
KVLAZY_API int kvlazy_end_batch(kvlazy_cache *cache);

/* ------------------------------------------------------------------------------------------------------
 * 2. Sequences. Ranges are [p0, p1): p0 < 0 is 0, p1 < 0 is open. All allowed while a batch is open.
 */

/**
 * Removes a sequence's tokens in [p0, p1); seq -1: every sequence's. A cell empties with its last owner. An
 * empty range and an absent sequence are no-ops. A cache with a window then empties a sequence whose next token
 * would miss what recycling took: pos_max + 1 is always where to go on. So do kvlazy_seq_add, _div and _cp.
 * Fails: EINVAL for an id out of range; ENOTSUP with KVLAZY_SHRINK_WHOLE when it would leave part of a
 * sequence. Cost: O(cells removed), and a memmove when they are not its last.
 */
KVLAZY_API int kvlazy_seq_rm(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);

/**
 * dst gets src's tokens in [p0, p1); what dst held in the range goes first. Inside a stream a copy is one more
 * owner of the same cells. Across streams the rows are copied into dst's lowest free cells, a pending shift with
 * them, done on return. Source and destination the same: a no-op. Counts as activity of dst, if any token came.
 * Fails: EINVAL; ENOSLOT, EBUDGET, ENOMEM, before anything changed, but that a dst without tokens may then start
 * only at 0 (kvlazy_prepare); ENOTSUP across streams with a tensor on a device, and with KVLAZY_SHRINK_WHOLE for part
 * of src, or where dst would lose part of its tokens.
 * Cost: O(tokens); across streams the bytes of their rows.
 */
KVLAZY_API int kvlazy_seq_cp(kvlazy_cache *cache, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1);

/** Drops every other sequence of this one's stream; other streams keep theirs. Fails: EINVAL. Cost: O(live cells). */
KVLAZY_API int kvlazy_seq_keep(kvlazy_cache *cache, kvlazy_seq_id seq);

/**
 * Moves the positions of a sequence's tokens in [p0, p1) by delta, for every owner of their cells; one that
 * falls below 0 is removed. Only the shift is recorded: the engine finds it in kvlazy_cells, rotates the K of
 * those cells inside an open batch and calls kvlazy_shift_done; until then prepare answers ESHIFT for their stream.
 * Fails: EINVAL for an id or a position that would be out of range; ENOTSUP with several position planes, and with
 * KVLAZY_SHRINK_WHOLE when an owner would lose part of its tokens; ENOMEM.
 */
KVLAZY_API int kvlazy_seq_add(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvlazy_pos delta);

/** Divides the positions by d ≥ 1, rounding down; the shift is new - old. Else as kvlazy_seq_add. */
KVLAZY_API int kvlazy_seq_div(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, int d);

/** The engine rotated K: every shift is 0 again. Fails: EINVAL for no cache. */
KVLAZY_API int kvlazy_shift_done(kvlazy_cache *cache);

/** Smallest position of a sequence; -1: it is empty, or no such sequence. */
KVLAZY_API kvlazy_pos kvlazy_seq_pos_min(const kvlazy_cache *cache, kvlazy_seq_id seq);
/** Largest position of a sequence; -1: it is empty, or no such sequence. pos_max + 1 is where to go on. */
KVLAZY_API kvlazy_pos kvlazy_seq_pos_max(const kvlazy_cache *cache, kvlazy_seq_id seq);

/**
 * Drops every token and ends an open batch. data: the pages go back now, all of them, and are faulted in
 * again by the next batch, so not for between two requests; otherwise they decay like any free page.
 */
KVLAZY_API int kvlazy_clear(kvlazy_cache *cache, bool data);

/** Whose token the last prepare refused; -1: nobody's, it succeeded or its arguments were bad. */
KVLAZY_API kvlazy_seq_id kvlazy_refused(const kvlazy_cache *cache);

/**
 * Tokens this sequence can still take now: hard maximum, budget_bytes, the pool and the machine. 0 for an id out of
 * range. Cost: a search over the touched pages; O(1) where nothing but the maximum limits.
 */
KVLAZY_API uint32_t kvlazy_room(const kvlazy_cache *cache, kvlazy_seq_id seq);

/** The cells of a stream, read only; stale after the next call that changes cells. */
typedef struct kvlazy_cells_view {
    size_t struct_size;
    uint32_t n_cell;                 /* the arrays end here, often before n_kv; every cell past it is empty */
    uint32_t owner_words;            /* 64-bit words of owners a cell */
    const kvlazy_pos *pos;           /* [n_cell]; -1: empty */
    const kvlazy_pos *shift;         /* NULL: no K of this stream waits to be rotated */
    const kvlazy_pos *ext_y, *ext_x; /* NULL with one position plane */
    const uint64_t *owner;           /* [n_cell][owner_words], bit i = sequence i */
} kvlazy_cells_view;

/** Set view->struct_size first. Fails: EINVAL for a stream out of range. O(1). */
KVLAZY_API int kvlazy_cells(const kvlazy_cache *cache, uint32_t stream, kvlazy_cells_view *view);

enum { KVLAZY_MASK_F32, KVLAZY_MASK_F16 };

/** An attention mask to fill: one row a token of a ubatch, one column a cell, 0 where the token sees the cell and
 * -infinity where it does not. */
typedef struct kvlazy_mask_info {
    size_t struct_size;
    void *data;        /* [n_token][row_stride] */
    size_t data_bytes; /* that may be written there */
    size_t row_stride; /* elements from one row to the next; 0: n_kv */
    uint32_t n_kv;     /* columns filled; 0: kvlazy_n_kv of the slot. At least that many */
    int type;          /* KVLAZY_MASK_F32 | _F16 */
    bool causal;       /* a token sees its sequence up to its own position; else all of it */
    bool alibi;        /* a cell that is seen gets minus the distance in positions, instead of 0 */
} kvlazy_mask_info;

/**
 * Fills the mask of an applied slot: a token sees the cells of its first sequence in its own stream, with causal up
 * to its position (with position planes, of equal positions those before it in reading order, y then x), and
 * inside the sliding window of the cache. Columns from n_kv to row_stride are left alone.
 * A slot can be asked for until the next prepare.
 * Fails: EINVAL for a slot that is stale, foreign or not applied, a ubatch it was not applied for, a NULL array,
 * fewer columns than kvlazy_n_kv, rows shorter than n_kv, and data_bytes too small; ENOMEM for want of scratch, which
 * is kept. Nothing is written then. Cost: O(n_token · n_kv); without alibi near the speed of memset.
 */
KVLAZY_API int kvlazy_mask(const kvlazy_cache *cache, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch,
                           const kvlazy_mask_info *mask);

/* ------------------------------------------------------------------------------------------------------
 * 3. Idle and limits. These five may be called from any thread.
 */

/**
 * Shrinks what idled: a stream with more live cells than kv_size_initial loses the tails of its idle sequences, longest
 * idle first, until it fits or none is idle. Then its live cells move down into holes, positions and bytes as they
 * were, and its free pages go back; so does a stream that came to rest and lost nothing. Free pages of every stream
 * that held no token for slot_shrink_idle_ms go back too.
 * next_ms (may be NULL) is always written: how long until a call can matter; UINT64_MAX: not before the next
 * end_batch, seq_*, clear or set_limits; 0: a hook was waiting and there is more to do.
 * Fails: EBUSY in an open batch (next_ms: slot_shrink_idle_ms, or UINT64_MAX when that is 0) or when another
 * thread is inside (next_ms: 1); EINVAL.
 */
KVLAZY_API int kvlazy_poll(kvlazy_cache *cache, uint64_t *next_ms);

/**
 * Shrinks now, whatever the clock says: moves live cells down and gives back every free page. max_cells 0: no token is
 * lost. n: the longest-idle sequences lose their tails until no stream holds more than n cells, but for what
 * keep_tokens, KVLAZY_SHRINK_KEEP and on_evict hold. (To drop everything: kvlazy_clear.)
 * A hook that waits meanwhile goes first; if it opens a batch, the rest goes when that ends.
 * Fails: EBUSY in an open batch; EINVAL. What the kernel refuses to take back is zeroed, counted and retried.
 */
KVLAZY_API int kvlazy_trim(kvlazy_cache *cache, uint32_t max_cells);

/**
 * Changes limits at run time; UINT32_MAX, UINT64_MAX (that is, -1) leave one as it is, 0 means what it means
 * in the parameters. The first two act at the next idle. A lowered budget acts at once: free pages go back,
 * then the longest-idle sequences lose their tails, as much as is needed once the rest is moved together.
 * Fails: EBUSY in an open batch; EBUDGET when the cells that may not go need more than budget_bytes: nothing changed
 * then, unless the host refused the pages that moving cells together took.
 */
KVLAZY_API int kvlazy_set_limits(kvlazy_cache *cache, uint32_t kv_size_initial, uint32_t slot_shrink_idle_ms,
                                 uint64_t budget_bytes);

enum { KVLAZY_BUCKETS = 12 };

/** How long something took. bucket[i] counts what took at most 4^i µs (1 µs … 1.05 s), the last all the rest. */
typedef struct kvlazy_histogram {
    uint64_t n, total_ns;
    uint64_t bucket[KVLAZY_BUCKETS];
} kvlazy_histogram;

/** Figures of a cache. Bytes are whole pages. */
typedef struct kvlazy_stats_info {
    size_t struct_size;
    uint64_t reserved_bytes; /* address space of the tensors in whole pages, nothing else */
    uint64_t touched_bytes;  /* pages committed or handed out for writing since they were last given back */
    uint64_t released_bytes; /* running total given back to the host; pages that were not touched count 0 */
    uint64_t cap_cells;      /* soft caps, sum over streams */
    uint64_t live_cells;     /* cells that hold a token, sum over streams */
    uint64_t n_grow;         /* times a soft cap rose */
    uint64_t n_shrink;       /* times a shrink gave back pages or tokens */
    uint64_t n_evict;        /* sequences cut or dropped by eviction */
    uint64_t evicted_cells;  /* cells those emptied */
    uint64_t n_refusal;      /* batches refused: EPOS, ENOSLOT, EBUDGET, ENOMEM */
    uint64_t n_os_refusal;   /* ranges the host would not take back */
    uint64_t moved_cells;    /* live cells that moved down into holes */
    uint64_t n_refused_pos, n_refused_slot, n_refused_budget, n_refused_memory; /* n_refusal by code */
    kvlazy_histogram commit;  /* making pages present, one call for all tensors */
    kvlazy_histogram release; /* giving pages back, a piece each */
    kvlazy_histogram evict;   /* deciding what goes, without on_evict */
    kvlazy_histogram compact; /* moving cells, a piece each */
} kvlazy_stats_info;

/** Set info->struct_size first. Cost: O(streams) plus the cells that emptied lately. */
KVLAZY_API int kvlazy_stats(const kvlazy_cache *cache, kvlazy_stats_info *info);

/**
 * The same figures as Prometheus text exposition, labelled with the name of the cache. Writes at most `bytes`, with a
 * final 0; *needed (may be NULL) is what all of it takes, the 0 included: more than `bytes`, and the text was cut.
 * Fails: EINVAL.
 */
KVLAZY_API int kvlazy_stats_text(const kvlazy_cache *cache, char *text, size_t bytes, size_t *needed);

/** Bytes of the reservation in RAM, as the kernel says. Slow; for audits. */
KVLAZY_API int kvlazy_resident(const kvlazy_cache *cache, uint64_t *bytes);

/**
 * Draws the cells of a stream through the log sink, level DEBUG, 64 a line: one character a cell (0-9, a-z: its only
 * owner; *: one with a larger id; +: several; ~: emptied lately; .: empty), and below it the positions as runs.
 * Without a sink it does nothing. Fails: EINVAL; ENOMEM. Cost: O(cells in use); the lock is not held while drawing.
 */
KVLAZY_API int kvlazy_draw(const kvlazy_cache *cache, uint32_t stream);

/* ------------------------------------------------------------------------------------------------------
 * 4. Parameters from text, sizes without allocating, self-check
 */

/**
 * Sets one option from text. Names: kv-size; slot-initial-ctx (kv-size-initial); slot-shrink-idle-ms
 * (shrink-idle-ms); budget-bytes. Sizes take k, m, g, t (powers of 1024: "4k" is 4096); times take ms, s,
 * min, h and are milliseconds without ("30s" is 30000). 0 keeps its meaning.
 * Fails: EINVAL for an unknown name and a negative, overflowing or malformed value, with a log line (if
 * params->log is set) that names option and value.
 */
KVLAZY_API int kvlazy_params_set(kvlazy_params *params, const char *name, const char *value);

/**
 * Sets what the environment names: KVLAZY_<NAME>, else LLAMA_ARG_<NAME>, for instance
 * KVLAZY_SLOT_INITIAL_CTX. The only call that reads the environment. Fails: as kvlazy_params_set, and then
 * none of them is set.
 */
KVLAZY_API int kvlazy_params_from_env(kvlazy_params *params);

/** What a cache would take, with the defaults resolved. */
typedef struct kvlazy_plan_info {
    size_t struct_size;
    uint64_t reserved_bytes; /* address space of the tensors, whole pages */
    uint64_t cell_bytes;     /* bytes of one cell's rows in all layers of one stream */
    uint64_t initial_bytes;  /* pages of kv_size_initial cells in every stream: what an idle cache may keep */
    uint64_t page_bytes;
    uint32_t kv_size, kv_size_initial, n_stream, n_seq_max, n_pad;
    uint32_t writable_cells; /* cells per stream writable from the start; 0 instead of kv_size on a host that refuses
                                the reservation, where cells become writable as they are applied */
} kvlazy_plan_info;

/** Sizes without allocating: the engine's dry pass. A host that could refuse is asked for the address space, which goes
 * back at once. Set info->struct_size first. Fails: as kvlazy_create. */
KVLAZY_API int kvlazy_plan(const kvlazy_params *params, kvlazy_plan_info *info);

/**
 * Recomputes every number the cache keeps and names the first that is wrong in *reason (may be NULL; valid
 * until the next check of this cache; NULL when all is well). Fails: ESTATE when a promise is broken.
 * Cost: O(cells + pages).
 */
KVLAZY_API int kvlazy_check(const kvlazy_cache *cache, const char **reason);

/* ------------------------------------------------------------------------------------------------------
 * 5. Linked caches
 *
 * Two or three caches may see the same batches: a full and a windowed one of other sizes, K/V and an index whose cells
 * must stay the same. Each is created with params.with = any one of them, and keeps its own calls and its own memory:
 *
 *     ok = !kvlazy_prepare(full, ...) && !kvlazy_prepare(window, ...);    // pure, so all or nothing is this line
 *
 * They share a lock, a clock and the batch. init_batch of one opens it for all; end_batch or a failed prepare of one
 * ends it for all; poll, trim and clear of one serve all, and so does init_batch of one with KVLAZY_SHRINK_AT_INIT.
 * What eviction takes from one it takes from all: up to the same position, whole sequences where one of them has a
 * window, position planes or KVLAZY_SHRINK_WHOLE; nothing goes that one of them keeps (KVLAZY_SHRINK_KEEP,
 * keep_tokens), and one on_evict answers for all, that of the cache that was called or else of the oldest. A sequence
 * whose window cannot be filled any more is emptied in all. seq_* calls act on one cache each: an engine makes them on
 * every one.
 *
 * Make the same seq_* call on every member before you look at any of them or begin a batch. A window that empties a
 * sequence does so in the others after their own call, so that copies and shifts end alike; a call that looks at a
 * member before its turn empties it there and then.
 */

/* ------------------------------------------------------------------------------------------------------
 * 6. Memory that the engine lays out itself
 *
 * An arena is a range of address space that costs nothing until it is written, all that a buffer type of an engine's
 * allocator needs: reserve, carve tensors out of it, clear by discarding. A cache learns where its tensors lie by
 * kvlazy_layer.k, .v and .arena, and treats them as its own: it commits what a batch writes and gives back what no
 * cell needs. Bytes of an arena that no layer names are never touched, and a page that they share stays.
 *
 *     kvlazy_arena_create(NULL, n_bytes, &arena, &base);
 *     k = (kvlazy_tensor){.data = base, .cell_stride = 1024, .stream_stride = 1024 * kv_size, .row_bytes = 1024};
 *     layers[0] = (kvlazy_layer){.id = 0, .k_row_bytes = 1024, .k = &k, .arena = arena};
 *
 * Tensors may be padded between rows, channels and streams, but a page with such bytes, or with others that no layer
 * names, never goes back; they must lie inside their arena and not run into one another. One cache uses an arena, or
 * several linked ones. Part of a cache may be laid out by the library and part of it here; arenas and cache must have
 * pages of one size. docs/tensors.md has a picture of each layout.
 *
 * KVLAZY_DONTFORK and KVLAZY_HUGE_PAGES are about what the library lays out, and ENOTSUP with tensors in an arena.
 *
 * A tensor with data NULL lies on a device: cells, soft cap and eviction work, its bytes are never touched or counted,
 * no cell of that cache ever moves, and copies across streams are ENOTSUP.
 */

/**
 * Reserves bytes (0 is legal), page-aligned, reading zero. mem NULL: this host; copied. *base is NULL for 0 bytes.
 * Fails: EINVAL for NULL pointers, a bad table, or more bytes than an address holds; ENOMEM when the host refuses.
 * Both out-parameters are untouched then.
 */
KVLAZY_API int kvlazy_arena_create(const kvlazy_mem *mem, size_t bytes, kvlazy_arena **arena, void **base);

/**
 * These bytes read zero afterwards, whatever the kernel answers, and their whole pages are given back. Tokens of a
 * cache that lie there are lost: drop them first. Takes the lock of the caches that use the arena.
 * Fails: EINVAL for a range that is not inside, with nothing changed.
 */
KVLAZY_API int kvlazy_arena_discard(kvlazy_arena *arena, size_t offset, size_t bytes);

/** Gives everything back. NULL is allowed. Fails: EBUSY while a cache uses it; EINVAL for what is no arena. */
KVLAZY_API int kvlazy_arena_destroy(kvlazy_arena *arena);

/** The page size of a host, which is the alignment a buffer should have; NULL: this host. 0: not a table. */
KVLAZY_API size_t kvlazy_page_bytes(const kvlazy_mem *mem);

/* ------------------------------------------------------------------------------------------------------
 * 7. Cells that the engine keeps itself
 *
 * With kvlazy_params.cell_ops the library keeps no tokens: the engine has its own table of cells and asks only for
 * memory. kvlazy_prepare, _apply_ubatch, _undo_ubatch, _n_kv, the sequence calls, _cells, _mask, _draw and _room do not
 * exist for such a cache (ENOTSUP, or 0 and -1); instead, inside an open batch:
 *
 *     kvlazy_init_batch(cache);
 *     kvlazy_ensure(cache, stream, n_used + n_token);      // room for so many, says the soft cap
 *     ... find slots below kvlazy_cap(cache, stream) ...   // so that cells stay dense
 *     kvlazy_touch(cache, stream, end);                    // before rows of cells below `end` are written
 *     ... write rows, attend ...
 *     kvlazy_end_batch(cache);
 *
 * All the rest works as with cells of the library: free pages decay, an idle stream's cells move down into holes and
 * are asked away (`vacate`) beyond kv_size_initial, trim and budgets act. It asks the engine's table, so all of it
 * then belongs to the thread that calls the hooks; the stream that is idle is the one not touched for
 * slot_shrink_idle_ms, so in a unified cache one busy sequence keeps all from being asked. The library learns of cells
 * that the engine empties outside a batch when it looks: poll then, next_ms cannot know. The engine clears its own
 * table before kvlazy_clear. A lowered budget that the engine's answers put out of reach is EBUDGET, and what it
 * vacated until then is gone. Caches are linked (`with`) only to their kind, and each then shrinks for itself.
 */

/**
 * Makes the rows of the cells [0, end) of a stream ready to be written. Inside an open batch. Counts as activity.
 * Fails: EINVAL for a stream or end out of range, or without an open batch; EBUDGET, ENOMEM; ENOTSUP without cell_ops.
 * Nothing changed then. Cost: O(1) when it was so already.
 */
KVLAZY_API int kvlazy_touch(kvlazy_cache *cache, uint32_t stream, uint32_t end);

/**
 * The soft cap of a stream holds at least so many cells, until it idles. Commits nothing. Fails: EINVAL for a stream
 * out of range; ENOSLOT for more than kv_size; ENOTSUP without cell_ops.
 */
KVLAZY_API int kvlazy_ensure(kvlazy_cache *cache, uint32_t stream, uint32_t cells);

/** The soft cap of a stream, in cells; of any cache. 0: no such cache or stream. */
KVLAZY_API uint32_t kvlazy_cap(const kvlazy_cache *cache, uint32_t stream);

/**
 * Copies the rows of n cells, in every layer of whatever layout, from one stream to the same cells of another. Inside
 * an open batch; the cells of dst count as touched. Fails: EINVAL, EBUDGET, ENOMEM as kvlazy_touch; ENOTSUP without
 * cell_ops, or with a tensor on a device. Nothing changed then.
 */
KVLAZY_API int kvlazy_copy_cells(kvlazy_cache *cache, uint32_t src_stream, uint32_t dst_stream, uint32_t from,
                                 uint32_t n);

/* ------------------------------------------------------------------------------------------------------
 * 8. Budgets across caches
 *
 * The caches of a process can share one ceiling for touched bytes. Each has a minimum that is never lent to others and
 * a weight: its fair share is its minimum and, of what is above all minima, its part by weight. A cache takes what is
 * free in the pool. When that is not enough for a batch or a copy, others are asked: first their free pages go, then
 * tokens of their sequences that idle, as a lowered budget would take them, from the cache furthest over its fair share
 * first; down to its fair share, or to its minimum where the one that asks is within its own. A cache whose batch is
 * open, that another thread is inside, or whose cells are the engine's, is passed over. What is missing then is
 * EBUDGET.
 */

/** Fails: EINVAL for NULL or 0 bytes; ENOMEM. */
KVLAZY_API int kvlazy_pool_create(uint64_t budget_bytes, kvlazy_pool **pool);

/** NULL is allowed. Fails: EBUSY while a cache is in it, or kvlazy_pool_set_budget is; EINVAL for what is no pool. */
KVLAZY_API int kvlazy_pool_destroy(kvlazy_pool *pool);

/**
 * Changes the ceiling at run time. Lowering it shrinks the caches as above. Fails: EINVAL for 0; EBUDGET when what the
 * caches hold and what is kept for their minima is still above it; the old ceiling then stays.
 */
KVLAZY_API int kvlazy_pool_set_budget(kvlazy_pool *pool, uint64_t budget_bytes);

typedef struct kvlazy_pool_info {
    size_t struct_size;
    uint64_t budget_bytes;
    uint64_t taken_bytes; /* by all caches: what they touched, and what open batches are about to; never above budget */
    uint64_t min_bytes;   /* sum of the minima */
    uint64_t n_reclaim;   /* times others were asked */
    uint64_t reclaimed_bytes;
    uint32_t n_cache;
} kvlazy_pool_info;

/** Set info->struct_size first. From any thread. */
KVLAZY_API int kvlazy_pool_stats(kvlazy_pool *pool, kvlazy_pool_info *info);

/* ------------------------------------------------------------------------------------------------------
 * 9. A thread that polls
 *
 * For engines without an event loop: one thread that polls any number of caches, each exactly when it said. It sleeps
 * until the next deadline, and is woken by whatever makes a deadline stale: end_batch, seq_*, clear and set_limits of
 * its caches. Where the kernel tells of memory pressure (PSI, of the cgroup or of the system), it gives back free pages
 * of the caches that rest, before their time, and what idle conversations hold above kv_size_initial. on_evict is asked
 * on this thread.
 */

/** host_root: as kvlazy_params.host_root, for the pressure files. Fails: EINVAL; ENOMEM (no thread, no descriptor). */
KVLAZY_API int kvlazy_reaper_create(const char *host_root, kvlazy_reaper **reaper);

/** Stops and joins the thread, after at most the piece it is at. The caches stay. NULL is allowed. */
KVLAZY_API void kvlazy_reaper_destroy(kvlazy_reaper *reaper);

/**
 * From here on the cache, and those linked to it, are polled.
 * Fails: EINVAL for what is no cache or in a reaper already; ENOTSUP with cell_ops, whose idle side belongs to the
 * thread of the hooks; ENOMEM.
 */
KVLAZY_API int kvlazy_reaper_add(kvlazy_reaper *reaper, kvlazy_cache *cache);

/** No longer; the thread is not inside it when this returns. kvlazy_destroy does the same. Fails: EINVAL. */
KVLAZY_API int kvlazy_reaper_remove(kvlazy_reaper *reaper, kvlazy_cache *cache);

/** Memory is short, says somebody who knows: the same as pressure that the kernel tells of. From any thread. */
KVLAZY_API int kvlazy_reaper_pressure(kvlazy_reaper *reaper);

#ifdef __cplusplus
}
#endif

#endif
