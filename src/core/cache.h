/* SPDX-License-Identifier: MIT */
/*
 * cache: the whole of a cache as the sum of its nouns. Each noun has a header and a struct of its own; this one only
 * puts them together, and says how to get from a sequence to its stream and its index.
 */
#ifndef KVL_CACHE_H
#define KVL_CACHE_H

#include "base/log.h"
#include "base/params.h"
#include "base/policy.h"
#include "core/compact.h"
#include "core/counts.h"
#include "core/decay.h"
#include "core/engine_cells.h"
#include "core/group.h"
#include "core/limits.h"
#include "core/loss.h"
#include "core/plan.h"
#include "core/report.h"
#include "core/seq.h"
#include "core/stream.h"
#include "core/untouched.h"
#include "memory/rows.h"

/* "kvlazy", layout 1. The first bytes of a handle show whether it is a living cache. */
#define KVL_CACHE_MAGIC UINT64_C(0x6b766c617a790001)

struct kvlazy_cache {
    uint64_t magic;
    kvl_group *group;
    kvlazy_cache *next; /* in the group, oldest first */
    bool leaves;        /* it is about to be destroyed, or was */
    uint32_t n_call;    /* calls that are inside or will come back, of a destroy too: the struct stays so long */
    bool is_asked;      /* another cache of its pool asks it to shrink, */
    pthread_t asker;    /* on this thread */

    kvlazy_params params;       /* resolved; layers, name, log, host_root and model_tag are not used from here */
    uint8_t tag[KVL_TAG_BYTES]; /* of the model, params.model_tag_bytes of it; then zeros */
    kvl_log log;
    kvlazy_mem mem;
    kvl_rows rows;
    kvl_stream *stream; /* [n_stream] */
    kvl_seq *seq;       /* [n_seq_max] */
    kvl_active active;
    kvl_plan plan;
    kvl_limits limits;
    kvl_engine engine;
    kvl_decay decay;
    kvl_untouched untouched;
    kvl_eviction evict;
    kvl_report report;
    kvl_counts counts;
    kvl_mask_scratch mask;
    char reason[160]; /* of the last kvlazy_check */
};

/* The handle is a cache. False too for what is left of one that a callback destroyed: its struct stays as long as a
 * call is inside. */
static inline bool kvl_is_cache(const kvlazy_cache *cache)
{
    return cache && cache->magic == KVL_CACHE_MAGIC;
}

static inline bool kvl_is_seq(const kvlazy_cache *cache, kvlazy_seq_id seq)
{
    return seq >= 0 && (uint32_t)seq < cache->params.n_seq_max;
}

static inline kvl_stream *kvl_stream_of(kvlazy_cache *cache, kvlazy_seq_id seq)
{
    return &cache->stream[cache->params.n_stream == 1 ? 0 : seq];
}

static inline uint32_t kvl_stream_number(const kvlazy_cache *cache, const kvl_stream *stream)
{
    return (uint32_t)(stream - cache->stream);
}

static inline kvl_index *kvl_index_of(kvlazy_cache *cache, kvlazy_seq_id seq)
{
    return kvl_cells_index(&kvl_stream_of(cache, seq)->cells, seq);
}

static inline kvl_loss *kvl_loss_of(const kvl_group *group, kvlazy_seq_id seq)
{
    return &group->losses.loss[seq];
}

/* Tokens of a sequence went, came by other ways than a batch, or have other positions or owners now: what was decided
 * about it, or promised for it, is stale. */
static inline void kvl_seq_changed(kvlazy_cache *cache, kvlazy_seq_id seq)
{
    cache->seq[seq].generation++;
    cache->group->n_changed++;
}

/* The same of every owner of a cell. */
static inline void kvl_owners_changed(kvlazy_cache *cache, const kvl_cells *cells, uint32_t cell)
{
    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, cell, o + 1)) >= 0;)
        kvl_seq_changed(cache, o);
}

/* The engine keeps the cells: the library knows no sequence, position or slot of them. */
static inline bool kvl_has_engine_cells(const kvlazy_cache *cache)
{
    return cache->engine.keeps;
}

/* The engine's table is read, or the engine asked, and that not on any thread. */
static inline bool kvl_is_bound_to_thread(const kvlazy_cache *cache)
{
    const kvlazy_cell_ops *ops = &cache->engine.ops;

    return (ops->used_end || ops->move || ops->vacate) && !(cache->params.flags & KVLAZY_CELLS_ANY_THREAD);
}

/* How many of the lowest fallow cells of each stream stay, however old they are: the next tokens go there. */
static inline uint32_t kvl_warm_cells(const kvlazy_cache *cache)
{
    uint64_t n = cache->params.warm_bytes / kvl_max(cache->rows.geometry.cell_bytes, 1) / cache->params.n_stream;

    return (uint32_t)kvl_min(n, cache->params.kv_size);
}

static inline bool kvl_has_window(const kvlazy_cache *cache)
{
    return cache->params.swa_type != KVLAZY_SWA_NONE;
}

#endif
