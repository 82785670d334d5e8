/* SPDX-License-Identifier: MIT */
/*
 * shrink: the idle side of a group as one piece of work. Evict says which tokens go, compact moves the rest down,
 * release gives the pages back. It advances in steps of a few milliseconds, each under the lock; what is done with the
 * lock released, a question to the embedder or a hook that goes first, its caller does. While a batch is open it does
 * nothing.
 */
#ifndef KVL_SHRINK_H
#define KVL_SHRINK_H

#include "core/engine_cells.h"

typedef enum kvl_shrink_why {
    KVL_SHRINK_IDLE,   /* a poll: idle sequences lose what is over kv_size_initial, and pages that are due go */
    KVL_SHRINK_EARLY,  /* memory is short: the same before the idle time has passed, and all free pages go */
    KVL_SHRINK_CELLS,  /* a trim: tokens go down to goal.max_cells a stream (0: none goes), and all free pages go */
    KVL_SHRINK_BUDGET, /* tokens and pages go until what is touched fits goal.max_bytes */
    KVL_SHRINK_POOL,   /* the same for another cache of the pool: only idle sequences lose tokens, and a part will do */
} kvl_shrink_why;

typedef struct kvl_shrink {
    kvl_shrink_why why;
    kvl_goal goal;
    enum {
        KVL_SHRINK_PLANS,
        KVL_SHRINK_DROPS,
        KVL_SHRINK_COMPACTS,
        KVL_SHRINK_LOOKS,
        KVL_SHRINK_RELEASES,
        KVL_SHRINK_ENDS,
        KVL_SHRINK_ENDED
    } phase;
    uint64_t n_opened; /* batches opened when it began */
    kvl_evict evict;
    kvl_vacating vacating;
    uint32_t n_vacated; /* cells in use when the engine was asked */
    uint32_t stream;    /* that is compacted */
    kvlazy_cache *at;   /* whose pages go */
    bool more;          /* it stopped for a hook, and is not done */
    int status;         /* KVLAZY_EBUSY: a batch was opened meanwhile. KVLAZY_EBUDGET: out of reach */
} kvl_shrink;

/* What the caller does before the next step. */
typedef enum kvl_shrink_next {
    KVL_SHRINK_MORE,     /* nothing */
    KVL_SHRINK_ASK,      /* asks kvl_evict_asker's on_evict with the lock released, and hands in the answer */
    KVL_SHRINK_VACATE,   /* calls `vacate` of vacating.cache with the lock released, and hands in the answer */
    KVL_SHRINK_GIVE_WAY, /* lets a hook that waits have the lock */
    KVL_SHRINK_DONE,     /* nothing: status and more say how it ended */
} kvl_shrink_next;

/* A batch is open, or a call waits for an answer of on_evict or of a pool. */
bool kvl_shrink_is_barred(const kvl_group *group);

/* No batch is open. `limit`: cells or bytes, by `why`. */
void kvl_shrink_begin(kvlazy_cache *cache, kvl_shrink *shrink, kvl_shrink_why why, uint64_t limit, uint64_t now_ms);
kvl_shrink_next kvl_shrink_step(kvlazy_cache *cache, kvl_shrink *shrink);

/* The lock is held again: after the answer to a question, kept: no; or after a hook went first. */
void kvl_shrink_answer(kvlazy_cache *cache, kvl_shrink *shrink, bool kept);
void kvl_shrink_resume(kvlazy_cache *cache, kvl_shrink *shrink);

/* It ends here, with this status: a callback destroyed the cache, or a linked one that was asked. */
void kvl_shrink_stop(kvlazy_cache *cache, kvl_shrink *shrink, int status);

/* For another cache of the pool: free pages go until no more than max_bytes are touched. */
void kvl_shrink_free(kvlazy_cache *cache, uint64_t max_bytes, uint64_t now_ms);

#endif
