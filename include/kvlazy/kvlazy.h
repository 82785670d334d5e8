/* SPDX-License-Identifier: MIT */
/*
 * kvlazy: memory for the K/V cache of a language-model inference engine. This header is the manual.
 *
 * THE IDEA. A cache reserves address space for the longest context an operator allows and touches none of it. Physical
 * pages follow the tokens that are live: pages come when a batch is applied, and go back when a sequence is dropped or
 * has been idle, while the process sleeps. Addresses never move and all of [0, kv_size) stays readable, so attention
 * kernels need no change.
 *
 * LIFE CYCLE. What an engine does, in the order it does it:
 *
 *     kvlazy_params_init(&params);                    // once
 *     params.kv_size = 131072; params.kv_size_initial = 4096; params.layers = layers; params.n_layer = n_layer;
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
 *     kvlazy_poll(cache, &next_ms);                   // when there is nothing to do: memory goes back here
 *
 * WORDS. A cell is room for one token's K and V in every layer of one stream. A stream is an independent run of cells:
 * a unified cache has one, otherwise sequence i lives in stream i. A sequence is a conversation. A ubatch is a group of
 * tokens computed together, a slot the cells chosen for them. A live cell holds a token, an empty cell holds none; a
 * page without live cells is free. Touched pages were committed or handed out for writing since they were last given
 * back. Resident pages are in RAM, says the kernel. The hooks are init_batch, prepare, apply_ubatch, undo_ubatch, n_kv
 * and end_batch. docs/design.md has all words and the ten promises.
 *
 * NUMBERS PEOPLE WILL SEE. Virtual size (VSZ, VIRT) contains the whole reservation from the start and means nothing.
 * Resident size (RSS) follows the live tokens. kvlazy_stats() tells what the library knows and costs nothing;
 * kvlazy_resident() asks the kernel and is slow.
 *
 * UNITS. `_bytes`, `_ms` and `_cells` say so; n_ is a count. The index of a cell counts within its stream.
 *
 * ERRORS. A call that can fail returns KVLAZY_OK or one negative code of status.h. After any error the cells, the
 * touched pages and the idle clocks are as they were and out-parameters are untouched, unless the call says otherwise;
 * the call may be repeated. A NULL handle, or a pointer that is no living cache, is EINVAL (the second as far as a look
 * at its first bytes can tell): the calls below do not repeat that. The library never aborts, exits, prints, or waits
 * without bound.
 *
 * STRUCTS that begin with struct_size may be of an older or a newer header: the first members are enough, up to the end
 * of one. In a larger one an input must have zeros behind what this version knows, and an output gets them.
 *
 * THREADS. One thread at a time runs the hooks and the calls on sequences. kvlazy_poll, _trim, _set_limits, _stats and
 * _resident may be called from any thread. What the engine reads or writes in tensors or in a cells view, and what it
 * decides from kvlazy_seq_pos_*, belongs inside an open batch; init_batch … end_batch without a prepare is such a
 * bracket and counts as no activity. Destroy a cache only when no other thread is inside a call.
 *
 * FORK. A child gets its own copy-on-write image of the touched pages, and may use its copy of a cache as its own, if
 * no other thread was inside a call of the cache, or of one linked to it, at the fork. Else every call in the child
 * soon returns ENOTSUP (0 or -1 where there is no status), and kvlazy_destroy leaves the copy as it is. A reaper has no
 * thread in the child, which must not call it; the child polls its caches, or puts them into a reaper of its own.
 * KVLAZY_DONTFORK keeps the reservation out of children, which must then not use the cache. Core dumps leave the
 * reservation out.
 *
 * WHERE ROWS MAY BE WRITTEN. In an open batch, in the cells of slots that were applied (of an engine's own cells: that
 * were touched); K rotation writes live cells alone. Any row can be written at any time without a fault, but rows of
 * cells that hold no token may read zero at any later moment, and their pages are in no figure. They go back once their
 * stream has come to rest, by polls that search it piece by piece, or with a neighbour's page; and by kvlazy_trim and
 * kvlazy_clear(cache, true), which give back everything outside live cells.
 *
 * CAVEATS.
 *  - An eviction takes tokens. An engine that keeps its own record asks kvlazy_seq_pos_max() inside each batch.
 *  - Memory goes back only when the engine calls: poll from its loop, or use the thread of reaper.h.
 *  - A batch that is left open costs no token, but keeps all memory.
 *  - Reading a page that was never written can make it resident (a page of zeros), depending on the kernel. Such
 *    pages go back when their stream comes to rest.
 *
 * CONTENTS. 1 what every engine calls, 2 sequences, 3 idle and limits, 4 parameters from text, sizes, self-check,
 * 5 linked caches. Optional parts have headers of their own: mask.h fills attention masks, arena.h is for tensors that
 * the engine lays out, engine_cells.h for cells that the engine keeps, state.h for conversations that are saved and
 * loaded, pool.h for one budget over several caches, reaper.h for a thread that polls, mem.h for an operating system of
 * the embedder's own.
 */
#ifndef KVLAZY_KVLAZY_H
#define KVLAZY_KVLAZY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mem.h"
#include "status.h"
#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvlazy_cache kvlazy_cache; /* opaque; no globals; any number in a process */
typedef int32_t kvlazy_pos;               /* 0 … INT32_MAX - 1; -1: none */
typedef int32_t kvlazy_seq_id;            /* 0 … n_seq_max - 1 */

typedef struct kvlazy_params kvlazy_params; /* what to create: at the end of part 1 */

/* ------------------------------------------------------------------------------------------------------
 * 1. What every engine calls
 */

/** Fills in the defaults. */
KVLAZY_API void kvlazy_params_init(kvlazy_params *params);

/**
 * Creates a cache: reserves address space for everything and touches none of it.
 * Fails: nothing is held and *cache is untouched.
 *  - EINVAL, ENOTSUP: a parameter is wrong, or two do not go together. The log line names field and value.
 *  - ENOMEM: the host refuses the reservation (the log line names the limit) or memory for the library's own lists.
 *  - EBUDGET: pool_min_bytes is more than the pool has.
 * Cost: a few system calls, independent of kv_size.
 */
KVLAZY_API int kvlazy_create(const kvlazy_params *params, kvlazy_cache **cache);

/**
 * Gives everything back. NULL is allowed. No other thread may be inside a call.
 * A callback may destroy its own cache or another one. Nothing more is called for that cache from there on, and the
 * call that made the callback returns EINVAL if its cache is gone; what it had done by the time of a log line it
 * returns as ever.
 */
KVLAZY_API void kvlazy_destroy(kvlazy_cache *cache);

/**
 * Where the rows of one K or V tensor lie.
 *  - Row-major (n_channel 0): cell i of stream s is row_bytes at data + s·stream_stride + i·cell_stride.
 *  - Transposed (n_channel n): channel j of cell i of stream s is row_bytes / n at
 *    data + s·stream_stride + j·channel_stride + i·cell_stride.
 */
typedef struct kvlazy_tensor {
    void *data;
    size_t cell_stride, channel_stride, stream_stride, row_bytes; /* all in bytes */
    uint32_t n_channel;                                           /* 0: row-major */
} kvlazy_tensor;

/**
 * Says where the K rows of a layer lie. Constant for the life of the cache.
 * Fails: EINVAL for an unknown layer; ENOTSUP for a layer without K. *tensor is untouched.
 */
KVLAZY_API int kvlazy_k(const kvlazy_cache *cache, uint32_t layer_id, kvlazy_tensor *tensor);
/** Says where the V rows of a layer lie. Else as kvlazy_k. */
KVLAZY_API int kvlazy_v(const kvlazy_cache *cache, uint32_t layer_id, kvlazy_tensor *tensor);

/**
 * Opens a batch; a batch that is still open is ended first. Until end_batch, or a prepare that fails, no token is
 * dropped or moved but by the engine and no page of a live token goes back, so positions read now stay true. With
 * KVLAZY_SHRINK_AT_INIT what idled is shrunk first.
 * Fails: EINVAL for what is no cache.
 */
KVLAZY_API int kvlazy_init_batch(kvlazy_cache *cache);

/** The tokens of one ubatch: arrays of the engine's, read only during the call. */
typedef struct kvlazy_ubatch {
    uint32_t n_token;
    const kvlazy_pos *pos;              /* [n_pos_per_token][n_token] */
    uint32_t pos_stride;                /* elements from one position plane to the next; 0: n_token */
    const kvlazy_seq_id *seq;           /* [n_token]: one sequence each; then the next two are not read */
    const int32_t *n_seq_id;            /* [n_token]; NULL: 1 each */
    const kvlazy_seq_id *const *seq_id; /* [n_token][n_seq_id[i]] */
} kvlazy_ubatch;

/**
 * The cells chosen for one ubatch. The arrays are the cache's own storage, valid until the next prepare. A slot is
 * stale after the next prepare, and once a shrink after end_batch moved cells.
 */
typedef struct kvlazy_slot {
    uint32_t n_token;
    const uint32_t *stream, *cell; /* [n_token] */
} kvlazy_slot;

/**
 * Finds a cell for every token of every ubatch, as if each ubatch were applied before the next one.
 *
 * It needs:
 *  - No K rows of the batch's streams wait to be rotated (kvlazy_seq_add).
 *  - The positions of a sequence go on at pos_max + 1, never decrease and leave no gap, over the whole batch. With
 *    position planes they begin anywhere from pos_max on, and gaps are allowed.
 *  - An empty sequence begins anywhere, and takes the positions of the batch in any order that leaves no gap. (Gaps,
 *    for tokens that were saved: kvlazy_prepare_restore.)
 *  - But where eviction took tokens of an empty sequence, and the engine has not since gone on where the sequence
 *    ended, the lowest position is 0. The same holds after a kvlazy_seq_cp onto it that was refused while it was
 *    empty: an engine that goes on behind tokens that did not come has no past. That ends when the engine removes
 *    the sequence whole (kvlazy_seq_rm from p0 ≤ 0 to open, kvlazy_seq_keep of another sequence, kvlazy_clear) or
 *    copies onto it.
 *  - In a cache with a window, an empty sequence does not begin where its window would reach into what recycling
 *    took from it. (Recycling: see the next list.)
 *  - There is room under budget_bytes, in the pool, and in what the machine and its cgroups have left.
 *
 * It does:
 *  - It takes empty cells, lowest index first: in a stream of one sequence that starts at 0 and is only cut at its end,
 *    the cell is the position. Where no cell is empty and the cache has a window, it recycles cells
 *    whose token its only sequence does not see any more, oldest position first.
 *  - It fills slots[n_ubatch] when all tokens fit, and else none. The slots of an earlier prepare are stale.
 *  - It opens a batch if none is open.
 *  - It changes no cell and commits no page. Under a byte limit it may give back free pages, if the whole batch then
 *    fits. In a pool it may ask other caches to shrink (pool.h).
 *
 * Fails: the batch is closed, for linked caches too, and no cell changed. Ubatches that were applied before stay as
 * they are. kvlazy_refused() returns the sequence of the token that was refused, where a token was.
 *  - EINVAL: an array is NULL, a ubatch has no token, an id or a position is out of range, or, with a stream for every
 *    sequence, a token has two sequences.
 *  - ESHIFT: K rows of one of the batch's streams wait to be rotated.
 *  - EPOS: the positions do not go on as above. kvlazy_seq_pos_max() returns where the sequence ends.
 *  - ENOSLOT: not enough cells are empty or can be recycled.
 *  - EBUDGET: the bytes would pass a limit, with all free pages given back.
 *  - ENOMEM: memory for the library's own lists was refused.
 * Cost: O(tokens) plus a scan for free cells, 64 cells a step.
 */
KVLAZY_API int kvlazy_prepare(kvlazy_cache *cache, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots);

/**
 * The same for a batch that puts back tokens which the engine saved: their rows are written to the slots, not computed.
 *  - Each sequence of the batch is empty. Its positions come in any order, with gaps and duplicates, and a token may
 *    have several sequences as ever. Eviction marks nothing here: the engine knows that the tokens were gone.
 *  - It takes empty cells alone, in a cache with a window too. There the rule about what recycling took holds until the
 *    sequence is removed whole.
 *  - apply_ubatch, undo_ubatch, n_kv and end_batch are as ever. The next batch goes on at pos_max + 1.
 * Fails: as kvlazy_prepare; EPOS: a sequence of the batch has tokens.
 */
KVLAZY_API int kvlazy_prepare_restore(kvlazy_cache *cache, const kvlazy_ubatch *ubatch, uint32_t n_ubatch,
                                      kvlazy_slot *slots);

/**
 * Puts the tokens of a ubatch into the cells of its slot, and makes the pages of their rows ready to be written.
 *
 * It needs: an open batch; a slot that the last prepare filled, and the ubatch it was filled for. Slots are applied in
 * order, once each.
 *
 * It does:
 *  - Pages that are not there yet are made present in one call for all tensors, so that writing does not fault.
 *  - While a stream decodes steadily, one token a batch, up to 32 cells more, of at most 4 MiB, are made ready.
 *    These count as touched, and go back like any free page.
 *  - With KVLAZY_UBATCH_AHEAD and a reaper, a MiB or more of missing pages is left to the reaper's thread, and those of
 *    the next ubatch come while this one is computed (reaper.h).
 *  - Not so where faults are cheaper (n_writer of kvlazy_params), with KVLAZY_NO_COMMIT_AHEAD, on a host with several
 *    memory nodes (a page should belong to the thread that writes it), and where all memory is locked.
 *
 * Fails: no token was put anywhere, and the batch stays open.
 *  - EINVAL: no batch is open; the slot is stale, foreign, of another batch, or applied already; the ubatch is another
 *    one; or one of the cells was taken since prepare.
 *  - EPOS: a sequence was changed since prepare.
 *  - EBUDGET: a copy took the room since prepare.
 *  - ENOMEM: the host cannot commit, or room in the library's own lists that a call since prepare took is refused.
 * Cost: O(tokens); with pages to commit O(tokens · tensors). Where the pages are touched already: no system call, no
 * allocation.
 */
KVLAZY_API int kvlazy_apply_ubatch(kvlazy_cache *cache, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch);

/**
 * Takes an apply back, after a computation that failed: empties the cells that apply filled, for every owner, whatever
 * position and owners their tokens have by now; a cell that was emptied and filled again since is left alone. So is a
 * slot that was not applied, or was undone, and the call returns OK. The slot may be applied again while its batch is
 * open.
 * Fails: EINVAL for a slot that is stale or foreign.
 */
KVLAZY_API int kvlazy_undo_ubatch(kvlazy_cache *cache, const kvlazy_slot *slot);

/**
 * Returns how many cells attention reads for this slot, from cell 0 on, the same number in all its streams. The number
 * is padded to n_pad and contains the slot's own cells, whether or not the slot was applied. Bytes in there that no
 * live cell owns are zero, or what the engine once wrote. 0 for a slot that is stale or foreign.
 */
KVLAZY_API uint32_t kvlazy_n_kv(const kvlazy_cache *cache, const kvlazy_slot *slot);

/**
 * Ends the batch: the computation is done, not only queued, and from here on memory may go back.
 *  - The idle clock of every sequence that an apply touched starts anew.
 *  - Pages that held no token for slot_shrink_idle_ms go back, at most 64 MiB of cells a call.
 *  - Without an open batch nothing happens, but for ubatches that were applied before a prepare failed: their
 *    sequences count as used now.
 * Fails: EINVAL for what is no cache, and never else.
 */
KVLAZY_API int kvlazy_end_batch(kvlazy_cache *cache);

/* ---- What kvlazy_create() is told ---------------------------------------------------------------------- */

typedef struct kvlazy_arena kvlazy_arena;       /* arena.h */
typedef struct kvlazy_cell_ops kvlazy_cell_ops; /* engine_cells.h */
typedef struct kvlazy_pool kvlazy_pool;         /* pool.h */

/** The sliding window: which tokens a token does not see, with the query at b and a token of its sequence at a. */
enum {
    KVLAZY_SWA_NONE,      /* no window */
    KVLAZY_SWA_STANDARD,  /* masked where b - a ≥ n_swa */
    KVLAZY_SWA_CHUNKED,   /* masked where a < b / n_swa · n_swa */
    KVLAZY_SWA_SYMMETRIC, /* masked where |b - a| > n_swa / 2 */
};

/** What an idle stream may lose. */
enum {
    KVLAZY_SHRINK_TAILS, /* sequences lose their tails and keep a usable prefix */
    KVLAZY_SHRINK_WHOLE, /* only whole sequences go; what would leave part of one is ENOTSUP (hybrid models) */
    KVLAZY_SHRINK_KEEP,  /* no token ever goes; only pages without tokens do */
};

/** Flags. */
enum {
    KVLAZY_SHRINK_AT_INIT = 1u << 0,   /* init_batch shrinks too: for engines without an idle loop */
    KVLAZY_DONTFORK = 1u << 1,         /* a forked child does not get the reservation */
    KVLAZY_HUGE_PAGES = 1u << 2,       /* pages are huge ones (2 MiB), each given back only as a whole */
    KVLAZY_NO_COMMIT_AHEAD = 1u << 3,  /* apply_ubatch leaves the first touch to the writing threads */
    KVLAZY_CELLS_ANY_THREAD = 1u << 4, /* the functions of cell_ops may be called on any thread (engine_cells.h) */
    KVLAZY_COMMIT_AHEAD = 1u << 5,     /* apply_ubatch makes pages present where the host can, cheaper or not */
    KVLAZY_UBATCH_AHEAD = 1u << 6,     /* a reaper's thread makes pages present beside the engine (reaper.h) */
};

/** Levels of a log line. */
enum { KVLAZY_LOG_ERROR, KVLAZY_LOG_WARN, KVLAZY_LOG_INFO, KVLAZY_LOG_DEBUG };

/** A layer of the model that has K or V of its own. A layer that borrows another's is not named, and so never
 * released. */
typedef struct kvlazy_layer {
    uint32_t id;         /* the engine's layer number, unique in a cache */
    size_t k_row_bytes;  /* bytes of one cell's K, any quantised size; 0: none */
    size_t v_row_bytes;  /* bytes of one cell's V; 0: none (MLA) */
    uint32_t v_channels; /* 0: V row-major. n: V transposed, n channels of v_row_bytes / n bytes a cell. For K there is
                            no such member: k->n_channel */

    /* NULL: the library lays the tensor out, packed. Else where the engine put it, of the same row_bytes and channels;
     * copied. data NULL: the tensor lies on a device. See arena.h. */
    const kvlazy_tensor *k, *v;
    kvlazy_arena *arena; /* that holds k and v, and outlives the cache; NULL when neither has data */
} kvlazy_layer;

/** What to create. kvlazy_params_init() fills in the defaults; a 0 put there afterwards means what its line says. */
struct kvlazy_params {
    size_t struct_size;           /* sizeof(kvlazy_params), by kvlazy_params_init() */
    uint32_t kv_size;             /* hard maximum of cells per stream, 1 to 2^31 - 1: what is reserved. No default */
    uint32_t kv_size_initial;     /* cells that the idle conversations of a stream may keep together;
                                     0 (default), or above kv_size: kv_size, so that no token is ever evicted */
    uint32_t slot_shrink_idle_ms; /* default 30000; 0: never shrink by itself */
    uint32_t n_stream;            /* default 1 (0 too); 1 or n_seq_max */
    uint32_t n_seq_max;           /* 0 (default): n_stream. At most 65536 */
    uint32_t n_pad;               /* default 256 (0 too); a power of two up to 2^30: n_kv is rounded up to it */
    uint32_t n_swa;               /* positions in the sliding window; 0 (default) with KVLAZY_SWA_NONE */
    int swa_type;                 /* KVLAZY_SWA_*; default NONE */
    uint32_t n_pos_per_token;     /* position planes. Default 1 (0 too); 3 or 4: position, y, x, the rest ignored
                                     (M-RoPE) */
    uint32_t keep_tokens;         /* positions below this are never evicted (a system prompt); default 0 */
    int shrink;                   /* KVLAZY_SHRINK_*; default TAILS */
    uint32_t flags;               /* KVLAZY_SHRINK_AT_INIT, …; default 0 */
    uint64_t budget_bytes;        /* ceiling for touched bytes; 0 (default): none. Free pages go back before a
                                     batch is refused */
    const kvlazy_layer *layers;   /* [n_layer], copied; a layer with neither K nor V is no error */
    uint32_t n_layer;             /* 0: cells are kept and nothing is reserved */
    kvlazy_cache *with;           /* a cache that sees the same batches, of as many streams and sequences (part 5).
                                     NULL (default): none */
    const kvlazy_mem *mem;        /* NULL: this host. Copied. See mem.h */
    const char *name;             /* in log lines; copied. NULL: "kv" */

    /* Receives one line of text per event, without a line end, on the thread that made the call, with no lock held.
     * NULL: silence. */
    void (*log)(void *ctx, int level, const char *text);
    void *log_ctx;

    /* May these tokens go? NULL: they may.
     *  - new_pos_max is the last position that would stay; -1: all of the sequence goes.
     *  - 0: they may go. Else the sequence stays as it is for slot_shrink_idle_ms.
     *  - It is called once a sequence, with no lock held and nothing changed yet: it may read the cache. If a batch was
     *    opened meanwhile, nothing goes. A yes holds for the next polls, until the sequence changes.
     *  - A lowered budget that leaves no room to move the rest together takes more, in a second round: then it is
     *    called again, for what has to go beyond what it agreed to and what went.
     *  - It is called on the thread that called poll, trim or set_limits, or init_batch with KVLAZY_SHRINK_AT_INIT.
     *    With a reaper that is the reaper's thread; in a pool also the thread of another cache that lacks room. */
    int (*on_evict)(void *ctx, kvlazy_seq_id seq, kvlazy_pos new_pos_max);
    void *evict_ctx;

    const kvlazy_cell_ops *cell_ops; /* the engine keeps the cells, the library only their memory (engine_cells.h);
                                        copied. NULL (default): the library keeps them */

    kvlazy_pool *pool;       /* a byte budget shared with other caches (pool.h). NULL (default): none */
    uint64_t pool_min_bytes; /* of the pool, what is never lent to others; default 0 */
    uint32_t pool_weight;    /* its part of what is above all minima; 0 (default): 1 */
    const char *host_root;   /* where /proc and /sys are found, to read the machine's limits; copied. NULL (default):
                                "/". "": they are not read */

    const void *model_tag;  /* what rows depend on: weights, adapters, types of K and V, RoPE (state.h). A state is
                               read only by a cache of the same tag. Copied. NULL (default): the empty tag */
    size_t model_tag_bytes; /* at most 64 */

    uint64_t page_bytes; /* pages are at most so large: a power of two, of which the largest is taken that the host
                            grants; at least the host's own. 0 (default): the largest up to 64 KiB that holds no more
                            than kv_size_initial cells. Not read with KVLAZY_HUGE_PAGES */
    uint32_t n_writer;   /* threads that write rows at the same time, as a hint. With it, and with pages larger than the
                            host's own, kvlazy_create tries out a few pages, and apply_ubatch makes pages present only
                            where, and as long as, that is cheaper than the faults of so many threads. 0 (default): not
                            known, and of a trial 1 */
    uint64_t warm_bytes; /* of free pages, so many bytes stay touched for the next prompt, those of the lowest cells,
                            the same in every stream: neither age nor an idle shrink takes them. kvlazy_trim,
                            kvlazy_clear, limits, pools and memory pressure do. 0 (default): none stays */
};

/* ------------------------------------------------------------------------------------------------------
 * 2. Sequences
 *
 * Ranges of positions are [p0, p1): p0 < 0 means 0, p1 < 0 means open. An empty range and a sequence without tokens
 * are no errors, and nothing happens. All calls are allowed while a batch is open. With linked caches each call is made
 * on every one (part 5).
 *
 * Window rule: after kvlazy_seq_rm, _add, _div and _cp a cache with a window empties each sequence whose next token
 * would miss something that recycling took. So pos_max + 1 is always where to go on.
 */

/** Returns the smallest position of a sequence; -1: it is empty, or there is no such sequence. */
KVLAZY_API kvlazy_pos kvlazy_seq_pos_min(const kvlazy_cache *cache, kvlazy_seq_id seq);
/** Returns the largest position of a sequence; -1: it is empty, or there is no such sequence. */
KVLAZY_API kvlazy_pos kvlazy_seq_pos_max(const kvlazy_cache *cache, kvlazy_seq_id seq);

/**
 * Removes the tokens of a sequence in [p0, p1); with seq -1, those of every sequence.
 *  - A cell that several sequences own is emptied when its last owner goes.
 *  - The window rule applies.
 *  - The pages go back later, when they held no token for slot_shrink_idle_ms.
 * Fails: nothing is removed.
 *  - EINVAL: the id is out of range.
 *  - ENOTSUP: with KVLAZY_SHRINK_WHOLE, part of a sequence would be left.
 *  - ENOMEM: tokens stay on both sides of the range, and memory for the library's own lists was refused.
 * Cost: O(cells removed), and a memmove when they are not the last of the sequence.
 */
KVLAZY_API int kvlazy_seq_rm(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);

/**
 * Copies the tokens of src in [p0, p1) to dst; what dst held in the range goes first.
 *  - Inside a stream dst becomes one more owner of the same cells: no row is copied.
 *  - Across streams the rows are copied into the lowest free cells of dst's stream, a pending shift with them. The copy
 *    is done when the call returns.
 *  - src and dst the same: nothing happens.
 *  - It counts as activity of dst, if any token was copied. The window rule applies to dst.
 * Fails: nothing was copied, and dst has what it had; but a dst without tokens may then begin only at 0, see
 * kvlazy_prepare().
 *  - EINVAL: an id is out of range.
 *  - ENOSLOT, EBUDGET: across streams, dst's stream has not enough free cells, or a byte limit would be passed.
 *  - ENOMEM: the host cannot commit the pages, or refuses memory for the library's own lists.
 *  - ENOTSUP: across streams, a tensor lies on a device; or, with KVLAZY_SHRINK_WHOLE, part of src would be copied, or
 *    dst would lose part of its tokens.
 * Cost: O(tokens); across streams the bytes of their rows.
 */
KVLAZY_API int kvlazy_seq_cp(kvlazy_cache *cache, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1);

/**
 * Drops every other sequence of this one's stream; other streams keep theirs.
 * Fails: EINVAL for an id out of range; nothing is dropped.
 * Cost: O(live cells of the stream).
 */
KVLAZY_API int kvlazy_seq_keep(kvlazy_cache *cache, kvlazy_seq_id seq);

/**
 * Moves the positions of a sequence's tokens in [p0, p1) by delta (a context shift).
 *  - The positions move for every owner of their cells. A token that falls below 0 is removed.
 *  - Only the shift is recorded. The engine finds it in kvlazy_cells(), rotates the K rows of those cells inside an
 *    open batch, and calls kvlazy_shift_done(); until then prepare returns ESHIFT for their stream.
 *  - It counts as activity. The window rule applies.
 * Fails: no position moved.
 *  - EINVAL: the id is out of range, or a position would be.
 *  - ENOTSUP: the cache has several position planes; or, with KVLAZY_SHRINK_WHOLE, an owner would lose part of its
 *    tokens.
 *  - ENOMEM: memory for the library's own lists was refused.
 * Cost: O(tokens moved), and a merge where positions then interleave.
 */
KVLAZY_API int kvlazy_seq_add(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvlazy_pos delta);

/** Divides the positions in [p0, p1) by d ≥ 1, rounding down; the shift is new - old. Else as kvlazy_seq_add. */
KVLAZY_API int kvlazy_seq_div(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, int d);

/** Says that the engine rotated K: every shift is 0 again. Fails: EINVAL for what is no cache. */
KVLAZY_API int kvlazy_shift_done(kvlazy_cache *cache);

/**
 * Drops every token and ends an open batch.
 *  - data false: the pages go back like any free page, when slot_shrink_idle_ms has passed.
 *  - data true: all pages go back now, those too that were written without a batch, and are faulted in again by the
 *    next batch. Not for between two requests.
 * Fails: EINVAL for what is no cache.
 */
KVLAZY_API int kvlazy_clear(kvlazy_cache *cache, bool data);

/** Returns the sequence whose token the last prepare refused; -1: prepare succeeded, or its arguments were bad. */
KVLAZY_API kvlazy_seq_id kvlazy_refused(const kvlazy_cache *cache);

/**
 * Returns how many tokens a sequence can still take now, by the hard maximum, budget_bytes, the pool and the machine.
 * 0 for an id out of range.
 * Cost: a search over the touched pages; O(1) where nothing but the maximum limits.
 */
KVLAZY_API uint32_t kvlazy_room(const kvlazy_cache *cache, kvlazy_seq_id seq);

/** The cells of a stream, read only; stale after the next call that changes cells. */
typedef struct kvlazy_cells_view {
    size_t struct_size;
    uint32_t n_cell;                 /* the arrays end here, often before n_kv; every cell past it is empty */
    const kvlazy_pos *pos;           /* [n_cell]; -1: empty */
    const kvlazy_pos *shift;         /* [n_cell]; NULL: no K of this stream waits to be rotated */
    const kvlazy_pos *ext_y, *ext_x; /* [n_cell]; NULL with one position plane */
} kvlazy_cells_view;

/**
 * Shows the cells of a stream. Set view->struct_size first.
 * Fails: EINVAL for a stream out of range, or a struct_size that is none; *view is untouched.
 */
KVLAZY_API int kvlazy_cells(const kvlazy_cache *cache, uint32_t stream, kvlazy_cells_view *view);

/**
 * The sequences that own a cell, ascending: *n is how many there are, of which the first n_max are written to seq,
 * which may be NULL with n_max 0. An empty cell has none. Fails: EINVAL for a stream or cell out of range, or n NULL.
 * Cost: O(n), and for a shared cell of many sequences the number of sequences / 64.
 */
KVLAZY_API int kvlazy_cell_owners(const kvlazy_cache *cache, uint32_t stream, uint32_t cell, kvlazy_seq_id *seq,
                                  uint32_t n_max, uint32_t *n);

/* ------------------------------------------------------------------------------------------------------
 * 3. Idle and limits
 *
 * kvlazy_poll, _trim, _set_limits, _stats and _resident may be called from any thread.
 *
 * Two things come back by themselves, both in kvlazy_poll():
 *  - Free pages, each when it has held no token for slot_shrink_idle_ms, wherever it lies and however busy its stream
 *    is. No token is lost by this. end_batch gives such pages back too.
 *  - Tokens of idle sequences, in a stream with more live cells than kv_size_initial. A sequence is idle when
 *    slot_shrink_idle_ms has passed since the last end_batch that followed an apply of its tokens; copies and shifts
 *    count as activity. A stream whose live cells fit kv_size_initial loses nothing, however long it is idle.
 *
 * An eviction takes tails: what is left of a sequence is a usable prefix. With a window, with position planes and with
 * KVLAZY_SHRINK_WHOLE it takes whole sequences. The engine learns of it from on_evict, from kvlazy_seq_pos_max(), or
 * from prepare, which returns EPOS for a batch that would go on after a gap.
 */

/**
 * Shrinks what idled.
 *  - A stream with more live cells than kv_size_initial loses the tails of its idle sequences, longest idle first.
 *    That ends when the stream fits, or no sequence is idle.
 *  - The live cells of a stream that lost tokens, or came to rest, move down into holes, positions and bytes as they
 *    were, and its free pages go back.
 *  - Free pages of every stream that held no token for slot_shrink_idle_ms go back.
 *
 * next_ms (may be NULL) is always written, after an error too: how long until the next call can matter.
 *  - UINT64_MAX: not before the next end_batch, seq_*, clear or set_limits.
 *  - 0: there is more to do. A hook was waiting for the cache; a sequence that lost what on_evict had agreed to has to
 *    lose more; or a stream at rest is searched for rows that were written outside a batch, 1 GiB of its reservation
 *    with each poll.
 *
 * Fails: no page and no token goes.
 *  - EBUSY: a batch is open, or was opened while on_evict was asked (next_ms: slot_shrink_idle_ms, or UINT64_MAX when
 *    that is 0); or another thread is inside (next_ms: 1).
 *  - EINVAL: it is no cache (next_ms: UINT64_MAX).
 */
KVLAZY_API int kvlazy_poll(kvlazy_cache *cache, uint64_t *next_ms);

/**
 * Shrinks now, whatever the clock says: moves live cells down and gives back every free page, one too that was written
 * without a batch.
 *  - max_cells 0: no token is lost.
 *  - max_cells n: first the longest-idle sequences lose their tails until no stream holds more than n cells. What
 *    keep_tokens, KVLAZY_SHRINK_KEEP and on_evict hold stays. (To drop everything: kvlazy_clear.)
 *  - A hook that waits meanwhile goes first. If it opens a batch, the rest goes when that batch ends.
 *  - Pages that the kernel refuses to take back are zeroed, counted in n_os_refusal, and tried again later: no error.
 * Fails: EBUSY; nothing is lost then. A batch is open, or was opened while on_evict was asked, or another thread's call
 * waits for an answer of on_evict.
 */
KVLAZY_API int kvlazy_trim(kvlazy_cache *cache, uint32_t max_cells);

/**
 * Changes limits at run time. UINT32_MAX and UINT64_MAX (that is, -1) leave one as it is; 0 means what it means in the
 * parameters.
 *  - kv_size_initial and slot_shrink_idle_ms act at the next idle.
 *  - A lowered budget_bytes acts at once: free pages go back, then the longest-idle sequences lose their tails, as much
 *    as is needed once the rest is moved together.
 * Fails: the limits are as they were.
 *  - EBUSY: as kvlazy_trim. Nothing changed.
 *  - EBUDGET: the cells that may not go need more than budget_bytes. Nothing changed, unless the host refused the pages
 *    that moving cells together took.
 */
KVLAZY_API int kvlazy_set_limits(kvlazy_cache *cache, uint32_t kv_size_initial, uint32_t slot_shrink_idle_ms,
                                 uint64_t budget_bytes);

typedef struct kvlazy_stats_info kvlazy_stats_info; /* below */

/**
 * Tells the figures of a cache. Set info->struct_size first.
 * Fails: EINVAL for a struct_size that is none; *info is untouched.
 * Cost: O(streams) plus the cells that emptied lately.
 */
KVLAZY_API int kvlazy_stats(const kvlazy_cache *cache, kvlazy_stats_info *info);

/**
 * Writes the same figures as Prometheus text exposition, labelled with the name of the cache: at most `bytes`, with a
 * final 0. *needed (may be NULL) is what all of it takes, the 0 included; where that is more than `bytes`, the text was
 * cut.
 * Fails: EINVAL when both text and needed are NULL.
 */
KVLAZY_API int kvlazy_stats_text(const kvlazy_cache *cache, char *text, size_t bytes, size_t *needed);

/** Tells how many bytes of the reservation are in RAM, as the kernel says. Slow; for audits. Fails: EINVAL. */
KVLAZY_API int kvlazy_resident(const kvlazy_cache *cache, uint64_t *bytes);

/**
 * Draws the cells of a stream through the log sink, level DEBUG: 64 cells a line, one character a cell, and below it
 * the positions as runs. Without a sink nothing happens.
 *
 *     0-9, a-z  the only owner    *  an only owner with a larger id    +  several owners
 *     ~         emptied lately    .  empty
 *
 * Fails: EINVAL for a stream out of range; ENOMEM.
 * Cost: O(cells in use); the lock is not held while drawing.
 */
KVLAZY_API int kvlazy_draw(const kvlazy_cache *cache, uint32_t stream);

enum { KVLAZY_BUCKETS = 12 };

/** How long something took. bucket[i] counts what took at most 4^i µs (1 µs … 1.05 s), the last all the rest. */
typedef struct kvlazy_histogram {
    uint64_t n, total_ns;
    uint64_t bucket[KVLAZY_BUCKETS];
} kvlazy_histogram;

/** Figures of a cache. Bytes are whole pages. The soft cap of a stream is the power of two that holds its highest cell
 * in recent use, at least kv_size_initial; it is derived from the cells, for operators to look at. */
struct kvlazy_stats_info {
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
    kvlazy_histogram commit;    /* making pages present, one call for all tensors */
    kvlazy_histogram release;   /* giving pages back, a bounded piece of work each */
    kvlazy_histogram evict;     /* deciding what goes, without on_evict */
    kvlazy_histogram compact;   /* moving cells, a bounded piece of work each */
    uint64_t bookkeeping_bytes; /* the library's own memory: cells, sequences, plans, page bitmaps */
    uint64_t page_bytes;        /* size of a page, in which all other figures are counted */
    uint64_t commits_ahead;     /* 1: apply_ubatch makes pages present; 0: they come when they are written */
};

/* ------------------------------------------------------------------------------------------------------
 * 4. Parameters from text, sizes without allocating, self-check
 */

/**
 * Sets one option from text.
 *  - Names: kv-size; slot-initial-ctx (or kv-size-initial); slot-shrink-idle-ms (or shrink-idle-ms); budget-bytes;
 *    page-bytes; warm-bytes.
 *  - Sizes take k, m, g, t, powers of 1024: "4k" is 4096. Times take ms, s, min, h, and are milliseconds without:
 *    "30s" is 30000. 0 keeps its meaning.
 * Fails: EINVAL for an unknown name, and for a negative, overflowing or malformed value; nothing is set. A log line (if
 * params->log is set) names option and value.
 */
KVLAZY_API int kvlazy_params_set(kvlazy_params *params, const char *name, const char *value);

/**
 * Sets what the environment names: KVLAZY_<NAME>, else LLAMA_ARG_<NAME>, for instance KVLAZY_SLOT_INITIAL_CTX. This is
 * the only call that reads the environment.
 * Fails: as kvlazy_params_set, and then none of the options is set.
 */
KVLAZY_API int kvlazy_params_from_env(kvlazy_params *params);

/** What a cache would take, with the defaults resolved. */
typedef struct kvlazy_plan_info {
    size_t struct_size;
    uint64_t reserved_bytes; /* address space of the tensors, whole pages */
    uint64_t cell_bytes;     /* bytes of one cell's rows in all layers of one stream */
    uint64_t initial_bytes;  /* pages of kv_size_initial cells in every stream: what an idle cache may keep */
    uint64_t page_bytes;     /* see page_bytes of kvlazy_params */
    uint32_t kv_size, kv_size_initial, n_stream, n_seq_max, n_pad;
    uint32_t writable_cells; /* cells per stream writable from the start; 0 instead of kv_size on a host that refuses
                                the reservation, where cells become writable as they are applied */
    uint64_t waste_bytes;    /* of initial_bytes, what pages of the host's own size would not take */
} kvlazy_plan_info;

/**
 * Tells sizes without allocating: the engine's dry pass. A host that could refuse is asked for the address space, which
 * goes back at once. Set info->struct_size first.
 * Fails: as kvlazy_create; *info is untouched.
 */
KVLAZY_API int kvlazy_plan(const kvlazy_params *params, kvlazy_plan_info *info);

/**
 * Recomputes every number the cache keeps and names the first that is wrong in *reason (may be NULL; valid until the
 * next check of this cache; NULL when all is well).
 * Fails: ESTATE when a number is wrong.
 * Cost: O(cells + pages).
 */
KVLAZY_API int kvlazy_check(const kvlazy_cache *cache, const char **reason);

/* ------------------------------------------------------------------------------------------------------
 * 5. Linked caches
 *
 * kvlazy_init_batch on one, kvlazy_prepare on each.
 *
 * Two or three caches may see the same batches: a full one and a windowed one of another size, or K/V and an index
 * whose cells must stay the same. Each is created with params.with = any one of them, and keeps its own calls and its
 * own memory. They share a lock, a clock and the batch:
 *
 *     kvlazy_init_batch(full);                                                    // opens the batch of both
 *     ok = !kvlazy_prepare(full, ubatch, n_ubatch, slot_full) &&                  // prepare changes no cell, so this
 *          !kvlazy_prepare(window, ubatch, n_ubatch, slot_window);                // is all or nothing
 *     ...                                                                         // apply, undo, n_kv: on each
 *     kvlazy_end_batch(full);                                                     // ends the batch of both
 *
 *  - Once for all: init_batch, end_batch, poll, trim, clear. A prepare of one that fails ends the batch of all. An
 *    init_batch of one with KVLAZY_SHRINK_AT_INIT shrinks all.
 *  - On every one: prepare, apply_ubatch, undo_ubatch, n_kv, and the seq_* calls. Make the same seq_* call on every one
 *    before you look at any of them or begin a batch. A window that empties a sequence (part 2) empties it in the other
 *    caches after their own call, so that copies and shifts end alike. A call that looks at one of the caches before
 *    its turn empties the sequence there and then.
 *
 * Eviction takes from all what it takes from one:
 *  - Every cache loses the sequence up to the same position; whole, where one of them has a window, position planes or
 *    KVLAZY_SHRINK_WHOLE.
 *  - What one of them keeps (KVLAZY_SHRINK_KEEP, keep_tokens) stays in all.
 *  - One on_evict speaks for all: that of the cache that was called, or else that of the oldest.
 *  - A sequence whose window cannot be filled any more is emptied in all.
 */

#ifdef __cplusplus
}
#endif

#endif
