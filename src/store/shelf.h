/* SPDX-License-Identifier: MIT */
/*
 * shelf: a store as one call sees it: the place, the figures, what may still be written this hour, and the visit, which
 * is all that a save, a load or a forget knows while it runs. Every answer of the place is counted here, by kind.
 */
#ifndef KVL_STORE_SHELF_H
#define KVL_STORE_SHELF_H

#include "core/lock.h"
#include "store/blob.h"

#include <pthread.h>
#include <stdatomic.h>

#define KVL_STORE_MAGIC UINT64_C(0x6b7673746f720001)

typedef enum kvl_store_count {
    KVL_N_HIT,
    KVL_N_MISS,
    KVL_N_WRITTEN,
    KVL_N_THERE,
    KVL_N_CORRUPT,
    KVL_N_TIMEOUT,
    KVL_N_FAILED,
    KVL_N_NO_ROOM,
    KVL_N_NO_ALLOWANCE,
    KVL_READ_BYTES,
    KVL_WRITTEN_BYTES,
    KVL_HELD_BYTES,
    KVL_N_STORE_COUNT
} kvl_store_count;

struct kvlazy_store {
    uint64_t magic;
    kvlazy_store_ops ops;
    uint32_t block_tokens, min_tokens;
    uint64_t allowance_bytes; /* an hour; 0: no limit */
    void (*sink)(void *ctx, int level, const char *text);
    void *sink_ctx;
    atomic_uint block_ms; /* what the last block took to be saved */
    long process;         /* that created it */
    atomic_uint n_visit;  /* calls that are inside */
    _Atomic uint64_t count[KVL_N_STORE_COUNT];
    pthread_mutex_t lock;         /* of what follows */
    double spent_bytes;           /* of the allowance, which comes back evenly in an hour, parts of a byte too */
    uint64_t spent_ms, warned_ms; /* when they were last looked at; 0: never */
};

/* One call. */
typedef struct kvl_visit {
    kvlazy_store *store;
    kvlazy_cache *cache;
    kvlazy_seq_id seq;
    kvlazy_prompt prompt;
    uint64_t begin_ms, max_ms;            /* begin: before the lock was waited for */
    uint64_t generation;                  /* of the sequence, when a load began */
    bool (*reclaim)(kvlazy_cache *cache); /* a pool is short: others are asked, with the lock held */
    kvl_log log;                          /* lines, for after the call */
    kvl_callback callback;
    kvl_chain chain;
    kvl_blob_shape shape;
    unsigned char *blob, *scratch; /* [shape.bytes], [shape.header_bytes] */
    uint64_t touched_ms;           /* when the chain was last touched */
} kvl_visit;

static inline bool kvl_is_store(const kvlazy_store *store)
{
    return store && store->magic == KVL_STORE_MAGIC;
}

static inline void kvl_store_add(kvlazy_store *store, kvl_store_count what, uint64_t n)
{
    atomic_fetch_add(&store->count[what], n);
}

/* The process is a child of the one that created the store: it has nothing there. */
bool kvl_store_is_forked(const kvlazy_store *store);

/* The store belongs to this process. */
void kvl_store_own(kvlazy_store *store);

/* Takes all that a visit needs: names of the blocks of n_token tokens, room for one blob. The lock is held, but not
 * while the names are made: what was seen of the sequence before may have changed. KVLAZY_ENOMEM; kvl_visit_end is due
 * after both. */
int kvl_visit_begin(kvl_visit *visit, uint32_t n_token);
void kvl_visit_end(kvl_visit *visit);

/* Out of the cache, where the place is called, and in again. */
static inline void kvl_visit_out(kvl_visit *visit)
{
    kvl_begin_callback(visit->cache, &visit->callback);
}

static inline void kvl_visit_in(kvl_visit *visit)
{
    kvl_end_callback(visit->cache, &visit->callback);
}

/* What is left of max_ms. */
uint32_t kvl_visit_left_ms(const kvl_visit *visit);

/* Counts what the place said, and notes a warning where it fails, once a minute. Hands `error` through. */
int kvl_visit_count(kvl_visit *visit, int error);

/* So many bytes may be written now, and count as written; and they were not written after all. */
bool kvl_store_allows(kvlazy_store *store, uint64_t bytes);
void kvl_store_take_back(kvlazy_store *store, uint64_t bytes);

/* The first n blocks of the chain were used now. */
void kvl_visit_touch(kvl_visit *visit, uint32_t n);

/* The cache and the sequence can have a part in a store. KVLAZY_EINVAL, KVLAZY_ENOTSUP, KVLAZY_ESHIFT. */
int kvl_visit_check(const kvlazy_cache *cache);

/* How many tokens the sequence has at 0, 1, 2 … in every linked cache, with planes that say the same; *all: it has no
 * others in any of them. */
uint32_t kvl_visit_plain(const kvl_visit *visit, bool settled, bool *all);

/* Changes of the sequence in every linked cache. */
uint64_t kvl_visit_generation(const kvl_visit *visit);

/* The three calls, with the lock held. */
int kvl_store_save(kvl_visit *visit, uint32_t *n_saved);
int kvl_store_load(kvl_visit *visit, uint32_t n_have, uint32_t *n_live);
int kvl_store_forget(kvl_visit *visit);

#endif
