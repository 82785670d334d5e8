/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/engine_cells.h: cells that the engine keeps itself.
 *
 * THE IDEA. With kvlazy_params.cell_ops the library keeps no tokens. The engine has its own table of cells, with
 * positions and owners, and takes only memory from the library. The library reads the table through four functions, or
 * is told: an engine that says with kvlazy_free_cells what it frees needs none of them. Then nothing calls back,
 * next_ms is right, and a reaper may serve the cache, while the engine sleeps in a read too.
 *
 * LIFE CYCLE. Of a batch:
 *
 *     kvlazy_init_batch(cache);
 *     kvlazy_ensure(cache, stream, n_used + n_token);     // the soft cap now holds that many cells
 *     ... find slots below kvlazy_cap(cache, stream) ...  // so that cells stay dense
 *     kvlazy_touch_cells(cache, stream, cell, n_token);   // before the rows of these cells are written
 *     ... write rows, attend ...
 *     kvlazy_end_batch(cache);
 *     kvlazy_free_cells(cache, stream, cell, n);          // these hold nothing any more (if the engine says so)
 *
 * WHAT IS THE SAME. Free pages go back when they held no token for slot_shrink_idle_ms. The cells of an idle stream
 * move down into holes, and the engine is asked to vacate those beyond kv_size_initial. trim and budgets act.
 *
 * WHAT IS DIFFERENT.
 *  - kvlazy_prepare, _apply_ubatch, _undo_ubatch, _n_kv, the calls on sequences, _cells, _mask, _draw and _room do not
 *    exist for such a cache: they return ENOTSUP, or 0 and -1. kvlazy_clear exists; the engine clears its own table
 *    before the call.
 *  - Where cell_ops has functions, all calls belong to the thread that calls the hooks, kvlazy_poll and kvlazy_stats
 *    too, since they read the table. A reaper then only tells the engine by cell_ops.due when to poll; without `due` it
 *    takes no such cache (ENOTSUP). KVLAZY_CELLS_ANY_THREAD lifts that: the engine guards its table with a lock of its
 *    own, and reads cells that may move or go only inside a batch.
 *  - What idles is a stream: one that was not touched for slot_shrink_idle_ms. In a unified cache one busy sequence
 *    keeps all from being asked.
 *  - With used_end, the library learns of cells that the engine empties outside a batch when it next looks, unless
 *    kvlazy_free_cells said so. next_ms cannot know of them: poll then.
 *  - kvlazy_set_limits with a lower budget may find that what the engine keeps needs more. It then returns EBUDGET.
 *    What the engine vacated stays gone, after any error.
 *  - n_swa, n_pos_per_token above 1 and keep_tokens are ENOTSUP: they are about positions.
 *  - Such caches are linked (kvlazy_params.with) only to their kind, and each shrinks for itself. Functions that are
 *    bound to a thread are so in all of them or in none (EINVAL).
 */
#ifndef KVLAZY_ENGINE_CELLS_H
#define KVLAZY_ENGINE_CELLS_H

#include "kvlazy.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Makes the rows of n cells of a stream ready to be written, in any order, a cell named twice counted once. It needs an
 * open batch, and counts as activity of the stream. While a stream takes one cell a batch, cells behind it are made
 * ready as by kvlazy_apply_ubatch.
 * Fails: nothing changed, and the batch stays open.
 *  - EINVAL: the stream or a cell is out of range, cell is NULL, or no batch is open.
 *  - EBUDGET, ENOMEM: a byte limit would be passed; the host or the library's own lists got no memory.
 *  - ENOTSUP: the library keeps the cells.
 * Cost: O(n) when the rows were ready already, and a sort of what does not ascend.
 */
KVLAZY_API int kvlazy_touch_cells(kvlazy_cache *cache, uint32_t stream, const uint32_t *cell, uint32_t n);

/** The same for the cells [begin, end): a block, or a prompt. */
KVLAZY_API int kvlazy_touch_range(kvlazy_cache *cache, uint32_t stream, uint32_t begin, uint32_t end);

/** The same for all cells below `end`. Holes among them are made ready, too: an engine that appends above holes, or
 * writes a block, names the cells instead. */
KVLAZY_API int kvlazy_touch(kvlazy_cache *cache, uint32_t stream, uint32_t end);

/**
 * Says that n cells hold nothing any more, at any time, in any order; one that held nothing is no error. Their pages go
 * back like any free page. With used_end the engine's table says so first, else the next look takes the cells for used
 * again. Without used_end every cell that was touched or copied to is in use until this call or kvlazy_clear, a
 * computation that failed included.
 * Fails: EINVAL, ENOTSUP: as kvlazy_touch_cells, but that no batch need be open. Nothing changed.
 * Cost: O(n).
 */
KVLAZY_API int kvlazy_free_cells(kvlazy_cache *cache, uint32_t stream, const uint32_t *cell, uint32_t n);

/** The same for the cells [begin, end). Cost: O(cells in use there). */
KVLAZY_API int kvlazy_free_range(kvlazy_cache *cache, uint32_t stream, uint32_t begin, uint32_t end);

/**
 * Raises the soft cap of a stream to hold at least that many cells, until the stream idles. Commits nothing.
 * Fails: the cap is as it was.
 *  - EINVAL: the stream is out of range.
 *  - ENOSLOT: more cells than kv_size.
 *  - ENOTSUP: the library keeps the cells.
 */
KVLAZY_API int kvlazy_ensure(kvlazy_cache *cache, uint32_t stream, uint32_t cells);

/** Returns the soft cap of a stream, in cells, of any cache. 0: there is no such cache or stream. */
KVLAZY_API uint32_t kvlazy_cap(const kvlazy_cache *cache, uint32_t stream);

/**
 * Copies the rows of n cells, in every layer of whatever layout, from one stream to the same cells of another. It needs
 * an open batch; the cells of dst_stream count as touched.
 * Fails: nothing changed.
 *  - EINVAL, EBUDGET, ENOMEM: as kvlazy_touch_range.
 *  - ENOTSUP: the library keeps the cells, or a tensor lies on a device.
 * Cost: the bytes of the rows.
 */
KVLAZY_API int kvlazy_copy_cells(kvlazy_cache *cache, uint32_t src_stream, uint32_t dst_stream, uint32_t from,
                                 uint32_t n);

/**
 * The engine's table, as the library reads it: kvlazy_params.cell_ops points to one, which is copied.
 *  - The functions but `due` are called on the thread that calls the hooks, inside kvlazy_poll, _trim, _set_limits, _stats,
 *    _stats_text, _end_batch, _clear and, with KVLAZY_SHRINK_AT_INIT, _init_batch; where room is short, inside _touch*
 *    and _copy_cells too.
 *  - All but `vacate` and `due` are called with a lock held, and must not call into the cache.
 */
struct kvlazy_cell_ops {
    size_t struct_size; /* sizeof(kvlazy_cell_ops) */
    void *ctx;

    /* Returns one past the highest cell of the stream that holds a token. NULL, with is_used NULL: the engine says what
     * it frees (kvlazy_free_cells, inside `vacate` too). */
    uint32_t (*used_end)(void *ctx, uint32_t stream);

    /* Returns whether a cell below used_end holds a token. NULL: all of them do, and none is ever moved. */
    bool (*is_used)(void *ctx, uint32_t stream, uint32_t cell);

    /* n tokens moved down, from the cells [from, from + n) to the cells [to, to + n), with to + n ≤ from. Their bytes
     * are there already; the table is to follow. NULL: no token may move. */
    void (*move)(void *ctx, uint32_t stream, uint32_t from, uint32_t to, uint32_t n);

    /* Empties every cell from `from` on, or as many others. The cells were moved together before, and are moved
     * together again after. Which sequences lose what is the engine's rule; used_end and is_used then say what is gone.
     * Called with no lock held. Returns 0, or not 0 to keep the cells: then the stream is not asked again for
     * slot_shrink_idle_ms. NULL: nothing is ever vacated. */
    int (*vacate)(void *ctx, uint32_t stream, uint32_t from);

    /* Memory can come back: kvlazy_poll is due on the thread that calls the hooks. For caches in a reaper (reaper.h)
     * whose functions above are bound to that thread. Called on the reaper's thread with no lock held, and not while a
     * batch is open; it must not call into the cache, and wakes the engine, by an eventfd for instance. It is called
     * once for a time that has come, until the next poll or batch. NULL: a reaper does not take such a cache. */
    void (*due)(void *ctx);
};

#ifdef __cplusplus
}
#endif

#endif
