/* SPDX-License-Identifier: MIT */
/*
 * engine_cells: cells that the engine keeps in a table of its own. The library keeps a mirror of which are in use, no
 * tokens, so that release, decay, compaction and budgets work on it as on its own cells. This noun brings the mirror up
 * to date, makes rows ready for the engine, and asks it to vacate cells.
 */
#ifndef KVL_ENGINE_CELLS_H
#define KVL_ENGINE_CELLS_H

#include "base/base.h"

#include <kvlazy/engine_cells.h>

typedef struct kvl_engine {
    kvlazy_cell_ops ops;  /* used_end NULL: the cells are the library's */
    uint64_t sync_due_ms; /* no look at the engine's cells at the end of a batch before */
} kvl_engine;

typedef struct kvl_goal kvl_goal;

/* Brings the mirror up to date; nothing to do where the cells are the library's. */
void kvl_engine_cells_sync(kvlazy_cache *cache, uint64_t now_ms);

/* The rows of these cells may be written, and the mirror has them in use. */
int kvl_engine_cells_touch(kvlazy_cache *cache, uint32_t stream, uint32_t end);
int kvl_engine_cells_take(kvlazy_cache *cache, kvl_run run);

/* What kvl_evict_agree is to the library's own cells: asks the engine to vacate, with the lock released, and returns
 * the same codes. */
int kvl_engine_cells_vacate(kvlazy_cache *cache, const kvl_goal *goal);

/* Until the engine may be asked to vacate by idling, in ms; KVL_NEVER: it is not. */
uint64_t kvl_engine_cells_vacatable_in(const kvlazy_cache *cache, uint64_t now_ms);

#endif
