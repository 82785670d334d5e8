/* SPDX-License-Identifier: MIT */
/*
 * engine_cells: cells that the engine keeps in a table of its own. The library keeps a mirror of which are in use, no
 * tokens, so that release, decay, compaction and budgets work on it as on its own cells. This noun brings the mirror up
 * to date, makes rows ready for the engine, and asks it to vacate cells.
 */
#ifndef KVL_ENGINE_CELLS_H
#define KVL_ENGINE_CELLS_H

#include "core/evict.h"

#include <kvlazy/engine_cells.h>

typedef struct kvl_engine {
    bool keeps;           /* the cells are the engine's */
    kvlazy_cell_ops ops;  /* used_end NULL: it says what it frees, and the mirror is right without a look */
    uint64_t sync_due_ms; /* no look at the engine's cells at the end of a batch before */
} kvl_engine;

/* Cells that the engine is asked to vacate, stream by stream. */
typedef struct kvl_vacating {
    kvl_goal goal;
    kvlazy_cache *cache;   /* the question: may the cells of this stream of this cache go */
    uint32_t stream, from; /* … from there on? */
    uint32_t next;         /* the stream that is looked at; n_stream: none */
    uint64_t asked_ms;     /* by bytes: since when the stream that was picked last had been idle */
    uint32_t picked;       /* … and which it was; n_stream: none so far */
} kvl_vacating;

/* Brings the mirror up to date; nothing to do where the cells are the library's. */
void kvl_engine_cells_sync(kvlazy_cache *cache, uint64_t now_ms);

/* The rows of these cells, runs of one stream that ascend, may be written, and the mirror has them in use. touch is for
 * the hot path: it looks whether all is ready, and makes more ready while a stream decodes steadily. */
int kvl_engine_cells_touch(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);
int kvl_engine_cells_take(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);

/* The engine says that these cells hold nothing any more, runs of one stream. */
void kvl_engine_cells_free(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run, uint64_t now_ms);

/* Cells in any order, each as often as you like, become *n_run runs in plan.run. KVLAZY_ENOMEM: no room for so many. */
int kvl_engine_cells_runs(kvlazy_cache *cache, uint32_t stream, const uint32_t *cell, uint32_t n, uint32_t *n_run);

/* What kvl_evict_begin, _step and _answer are to the library's own cells. A step moves one piece of a stream's cells
 * together, or says what the engine is to be asked. */
void kvl_vacate_begin(kvlazy_cache *cache, kvl_vacating *vacating, const kvl_goal *goal);
kvl_evict_state kvl_vacate_step(kvl_vacating *vacating);
void kvl_vacate_answer(kvl_vacating *vacating, uint32_t n_used, bool kept);

/* Until the engine may be asked to vacate by idling, in ms; KVL_NEVER: it is not. */
uint64_t kvl_engine_cells_vacatable_in(const kvlazy_cache *cache, uint64_t now_ms);

#endif
