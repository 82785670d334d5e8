/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/reaper.h: a thread that polls.
 *
 * THE IDEA. For engines without an event loop: one thread polls any number of caches, each exactly when its next_ms
 * says. It sleeps until the next deadline, and is woken by whatever makes a deadline stale: end_batch, seq_*, clear and
 * set_limits of its caches.
 *
 * LIFE CYCLE.
 *
 *     kvlazy_reaper_create(NULL, &reaper);
 *     kvlazy_reaper_add(reaper, cache);                   // any number of them
 *     ... batches; no kvlazy_poll is needed ...
 *     kvlazy_destroy(cache);                              // takes it out of the reaper
 *     kvlazy_reaper_destroy(reaper);
 *
 * MEMORY PRESSURE. Where the kernel tells of it (PSI, of the cgroup or of the system), the reaper gives back, before
 * their time, the free pages of caches that rest, and what idle conversations hold above kv_size_initial. An engine
 * that learns of pressure in another way says so by kvlazy_reaper_pressure().
 *
 * ONE UBATCH AHEAD. With KVLAZY_UBATCH_AHEAD, and as long as a batch is open, the thread also makes pages present while
 * the engine computes a ubatch that was applied:
 *  - Those of this ubatch, if apply_ubatch found a MiB or more of them missing: it leaves them to the thread then, and
 *    what the engine writes before the thread came there faults. With KVLAZY_COMMIT_AHEAD apply_ubatch does them all.
 *  - Those of the next ubatch in the same prepare. If it never comes, they go back like any free page. Not beside linked
 *    caches with a limit.
 *
 * The thread goes tensor by tensor in the order of addresses, as layers are computed, a MiB at a time, and gives way to
 * hooks that wait. It needs a core that is idle meanwhile. The pages are those that prepare found room for, and count as
 * touched. Not on hosts with several memory nodes or locked memory, nor for the engine's own cells.
 *
 * CAVEATS.
 *  - on_evict and the log function are called on this thread too.
 *  - What the engine reads outside a batch may be old by the next line (kvlazy.h, THREADS).
 *  - A forked child has no reaper. Destroy nothing there that was in one.
 */
#ifndef KVLAZY_REAPER_H
#define KVLAZY_REAPER_H

#include "kvlazy.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvlazy_reaper kvlazy_reaper; /* opaque */

/**
 * Starts the thread. host_root: as kvlazy_params.host_root, for the pressure files.
 * Fails: EINVAL for NULL; ENOMEM when the system has no thread or no descriptor left. *reaper is untouched.
 */
KVLAZY_API int kvlazy_reaper_create(const char *host_root, kvlazy_reaper **reaper);

/**
 * From here on the cache, and those linked to it, are polled.
 * Fails: the cache is not in the reaper, or stays in the one it is in.
 *  - EINVAL: it is no cache, or it is in a reaper already.
 *  - ENOTSUP: the engine keeps its cells (engine_cells.h) in a table that is read, or asks to be told, on the thread
 *    of the hooks alone, and cell_ops.due is NULL. With it the reaper does not poll such a cache, but calls `due` when
 *    the engine should, under memory pressure too.
 *  - ENOMEM.
 */
KVLAZY_API int kvlazy_reaper_add(kvlazy_reaper *reaper, kvlazy_cache *cache);

/**
 * The cache is polled no longer, and the thread is not inside it when this returns. kvlazy_destroy does the same.
 * Fails: EINVAL for a cache that is not in this reaper.
 */
KVLAZY_API int kvlazy_reaper_remove(kvlazy_reaper *reaper, kvlazy_cache *cache);

/** Says that memory is short: the same as pressure that the kernel tells of. From any thread. Fails: EINVAL. */
KVLAZY_API int kvlazy_reaper_pressure(kvlazy_reaper *reaper);

/** Stops and joins the thread, after at most a few milliseconds of work it is at. The caches stay. NULL is allowed. */
KVLAZY_API void kvlazy_reaper_destroy(kvlazy_reaper *reaper);

#ifdef __cplusplus
}
#endif

#endif
