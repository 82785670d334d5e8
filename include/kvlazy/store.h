/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/store.h: the prefix store, which remembers tokens that caches forget.
 *
 * THE IDEA. Blocks of tokens, with their rows of K and V, are saved under names, and any cache that has the same tokens
 * from position 0 on finds them again: another slot, another process, after a restart. The name of a block is a digest
 * of the model, of what the rows look like, of the caller's scope, and of every token up to the end of the block. The
 * store remembers, the cache does not: eviction stays as it is, and nothing in a cache is kept for the store.
 *
 * LIFE CYCLE. A request begins with what its slot keeps, then with what the store has, and computes the rest:
 *
 *     kvlazy_store_ops ops;
 *     kvlazy_store_params wanted;
 *     ops.struct_size = sizeof ops;
 *     kvlazy_store_dir("/var/cache/kv", 64ull << 30, &ops);
 *     memset(&wanted, 0, sizeof wanted);
 *     wanted.struct_size = sizeof wanted;
 *     wanted.ops = &ops;
 *     kvlazy_store_create(&wanted, &store);                          // owns the place from here on
 *     ...
 *     kvlazy_prompt prompt;
 *     memset(&prompt, 0, sizeof prompt);
 *     prompt.struct_size = sizeof prompt;
 *     prompt.token = token;
 *     prompt.n_token = n;
 *     kvlazy_init_batch(cache);
 *     kvlazy_seq_rm(cache, seq, n_have, -1);                         // the slot keeps the prefix of n_have tokens
 *     kvlazy_store_load(store, cache, seq, &prompt, n_have, 2000, &n_live);
 *     ... compute from position n_live on; and when the request ends, or the loop is idle ...
 *     kvlazy_store_save(store, cache, seq, &prompt, 50, &n_saved);
 *
 * A MISS IS NO ERROR. Whatever the place for blobs does, a block that does not come whole and correct is a miss, is
 * counted, and its tokens are computed again. The calls fail for what the caller did wrong, and for nothing else but
 * what is listed.
 *
 * WHAT IS SAVED. Whole blocks, of tokens that an end_batch has settled, at the positions 0, 1, 2 … which never moved.
 * What does not fill a block at the end is computed again. With position planes the text before the first span is
 * saved. Linked caches (kvlazy.h, part 5) are saved and loaded as one, by a call on any of them.
 *
 * TRUST. A store is trusted like the weights of the model: write access to its place decides what a model attends to.
 * Checksums find damage, not malice. The scope separates tenants and adapters; it comes from the server, never from a
 * client.
 *
 * CALLBACKS. The place is called with no lock held. Calls on the cache from inside it return KVLAZY_EBUSY, as in
 * state.h.
 *
 * THREADS. Any number of threads may use one store at once. To the cache that it names, a load is a hook and a save is
 * a call on a sequence (kvlazy.h). A store is destroyed when no call can begin any more.
 *
 * FORK. In a child a store that the parent created has no block and takes none; kvlazy_store_destroy gives back the
 * child's memory.
 */
#ifndef KVLAZY_STORE_H
#define KVLAZY_STORE_H

#include "kvlazy.h"
#include "store_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvlazy_store kvlazy_store;

/** What to create. Zero means the default that a line names. */
typedef struct kvlazy_store_params {
    size_t struct_size;            /* sizeof(kvlazy_store_params) */
    const kvlazy_store_ops *ops;   /* the place for blobs, copied; the store owns it after a success */
    uint32_t block_tokens;         /* tokens of a block, 16 to 256; default 64. Stores that share have the same */
    uint32_t min_tokens;           /* a shorter prompt is not saved; default 256, 1 saves every whole block */
    uint64_t write_bytes_per_hour; /* most that is written, so that a disk is not worn; default 0: no limit. What the
                                      place refused to take does not count */
    void (*log)(void *ctx, int level, const char *text); /* lines of the store, as in kvlazy_params; NULL: none */
    void *log_ctx;
} kvlazy_store_params;

/** Tokens whose ids do not say what they are, as those of an image: a digest says it. */
typedef struct kvlazy_span {
    uint32_t begin, n; /* tokens [begin, begin + n) of the prompt */
    const void *id;    /* what they are */
    size_t id_bytes;
} kvlazy_span;

/** What a sequence is about. */
typedef struct kvlazy_prompt {
    size_t struct_size;
    const int32_t *token; /* token i stands at position i */
    uint32_t n_token;
    uint32_t n_span;
    const kvlazy_span *span; /* ascending, none over another */
    const void *scope;       /* tenant, adapters: whatever else rows depend on */
    size_t scope_bytes;
    const uint32_t *cell; /* [n_token] where the engine keeps the cells: that of token i; else NULL */
    uint32_t stream;      /* of these cells */
} kvlazy_prompt;

/**
 * Creates a store upon a place for blobs. The place is the store's from here on, and goes with it.
 * Fails: EINVAL (a table that lacks a function, block_tokens out of range, a struct_size that is none); ENOMEM. *store
 * is untouched, and the place is still the caller's.
 */
KVLAZY_API int kvlazy_store_create(const kvlazy_store_params *params, kvlazy_store **store);

/**
 * Writes the blocks of a prompt that the store lacks, in order, for max_ms at most; what is left is written by a later
 * call. It is allowed outside of a batch, inside one, and inside on_evict. The lock of the cache is held to copy
 * 256 KiB at a time, and not while anything is written.
 * max_ms counts from the beginning of the call, its wait for the lock included; 0 is no time at all. A block that would
 * not be whole in time, as long as the last one took, is not begun (n_timeout). So max_ms has to be enough for one
 * block: 8 MiB take 20 to 40 ms on a disk of 500 MB/s.
 * *n_saved (may be NULL): so many tokens, from the first on, are in the store now, as far as is known.
 * Saved is what is settled: the sequence has to have the tokens of the prompt at the positions 0 to n − 1 (as many as
 * it has), which is the caller's to say; a sequence whose positions moved is passed over, and so is a change of the
 * sequence by another thread meanwhile: *n_saved says how far it got.
 * Where the engine keeps the cells, which tokens they hold is the caller's to say, settled or not, and seq says
 * nothing. Fails: *n_saved is 0.
 *  - EINVAL: no store or cache; an id, span, stream or cell out of range; `cell` for a cache that keeps its own cells,
 *    or NULL where the engine keeps them; a cache without model_tag.
 *  - EBUSY: inside a callback of state or store.
 *  - ESHIFT: K rows wait to be rotated.
 *  - ENOMEM: memory for the names, or for one block, was refused.
 *  - ENOTSUP: a cache with a window, KVLAZY_SHRINK_WHOLE or a tensor on a device; linked caches whose cells the engine
 *    keeps; a child of fork that cannot have the lock of the cache.
 */
KVLAZY_API int kvlazy_store_save(kvlazy_store *store, kvlazy_cache *cache, kvlazy_seq_id seq,
                                 const kvlazy_prompt *prompt, uint32_t max_ms, uint32_t *n_saved);

/**
 * Loads blocks behind the n_have tokens that the sequence has, for max_ms at most. A block becomes live when all of it
 * arrived and was verified. It needs an open batch, and counts as activity. The last token is never loaded, since its
 * logits have to be computed. max_ms counts as that of a save. The slots of earlier prepares are stale afterwards.
 * *n_live: so many tokens are live now, from n_have to n_token − 1. Go on there, after an error too. It is less than
 * n_have only where another thread took tokens of the sequence meanwhile.
 * Room (cells, a byte limit, memory once blocks come) ends it early, without an error: the block that found none is not
 * there at all, its rows read zero, and n_refused_room counts it.
 * Where the engine keeps the cells, those of the tokens behind n_have are touched as by kvlazy_touch; those of a block
 * that did not become live are free again, unless they were in use before.
 * Fails: *n_live is n_have, and the sequence is as it was.
 *  - as kvlazy_store_save; EINVAL without an open batch, for n_live NULL, and where n_have is more than n_token.
 *  - EPOS: the sequence is not exactly 0 … n_have − 1.
 */
KVLAZY_API int kvlazy_store_load(kvlazy_store *store, kvlazy_cache *cache, kvlazy_seq_id seq,
                                 const kvlazy_prompt *prompt, uint32_t n_have, uint32_t max_ms, uint32_t *n_live);

/**
 * Drops the blocks of a prompt, the last first: of a prefix that proved bad. It ends where the place fails once, or
 * after a second (n_failed, n_timeout): what is left then goes by a later call. Where the engine keeps the cells,
 * `cell` is needed here too. Fails: as kvlazy_store_save.
 */
KVLAZY_API int kvlazy_store_forget(kvlazy_store *store, kvlazy_cache *cache, const kvlazy_prompt *prompt);

/** What a store did so far in this process. Running totals, but for held_bytes. */
typedef struct kvlazy_store_info {
    size_t struct_size;
    uint64_t n_hit;               /* blocks loaded */
    uint64_t n_miss;              /* looked for and not there */
    uint64_t n_written;           /* blocks saved */
    uint64_t n_there;             /* to be saved, and there already */
    uint64_t n_corrupt;           /* damaged, and dropped */
    uint64_t n_timeout;           /* the time was over */
    uint64_t n_failed;            /* the place failed otherwise */
    uint64_t n_refused_room;      /* loads that found no room in the cache, and saves that found none in the place */
    uint64_t n_refused_allowance; /* blocks not saved for write_bytes_per_hour */
    uint64_t read_bytes, written_bytes;
    uint64_t held_bytes; /* memory of the store itself, calls in progress with it */
} kvlazy_store_info;

/** Tells the figures of a store, from any thread. Set info->struct_size first. Fails: EINVAL; *info is untouched. */
KVLAZY_API int kvlazy_store_stats(kvlazy_store *store, kvlazy_store_info *info);

/** Writes the same figures as Prometheus text exposition, as kvlazy_stats_text does. Fails: EINVAL as there. */
KVLAZY_API int kvlazy_store_prometheus(kvlazy_store *store, char *text, size_t bytes, size_t *needed);

/**
 * Destroys a store and its place; what is stored stays. NULL is allowed. No other thread may begin a call on the store
 * meanwhile: a call that is inside already is noticed, one that is about to begin cannot be.
 * Fails: EBUSY while a call is inside, also from its callbacks; EINVAL for what is no store. The store stays as it is.
 */
KVLAZY_API int kvlazy_store_destroy(kvlazy_store *store);

#ifdef __cplusplus
}
#endif

#endif
