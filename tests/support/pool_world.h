/* SPDX-License-Identifier: MIT */
/*
 * A world of one pool and many caches over the real host: places in which caches are opened and closed again and again,
 * and a host's table for each place that knows at every commit what all caches have together, so that not one moment
 * above the ceiling is missed. Called by test_pool_threads.c, whose threads do the work.
 */
#ifndef POOL_WORLD_H
#define POOL_WORLD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvlazy/engine_cells.h>
#include <kvlazy/kvlazy.h>
#include <kvlazy/pool.h>
#include <kvlazy/reaper.h>
#include <pthread.h>

enum {
    N_THREAD = 16,
    N_OWN = 2, /* caches a thread */
    N_SLOT = N_THREAD * N_OWN,
    N_SEQ = 4,
    KV_SIZE = 512,
    ROW_BYTES = 512,
    MAX_TOKENS = 64,
    IDLE_MS = 20,
    N_MAP = 4,
    ROUND_MS = 250,
};

enum kind { UNIFIED, STREAMS, LINKED, ENGINE_CELLS };

/* A reservation of a cache: which pages are committed. */
struct map {
    char *addr;
    size_t bytes;
    unsigned char *state;
};

/* Where a cache lives, again and again; what of it other threads look at is guarded by `gone`. */
struct place {
    pthread_rwlock_t gone; /* held to read: the cache stays */
    kvlazy_cache *_Atomic cache;
    enum kind kind;
    struct place *with;
    uint64_t serial;
    kvlazy_mem table;
    struct map map[N_MAP];
    kvlazy_tensor k;
    uint32_t table_end[N_SEQ]; /* ENGINE_CELLS: cells in use */
};

struct worker {
    struct place *own;
    uint64_t rng, n_op, n_batch, n_refused, n_created;
};

extern struct world {
    kvlazy_pool *pool;
    kvlazy_reaper *reaper; /* of this round */
    size_t page;
    struct place place[N_SLOT];
    struct worker worker[N_THREAD];
    atomic_ullong now;
    atomic_ullong ceiling;   /* no more than this may be committed */
    atomic_ullong n_ceiling; /* times it changed */
    atomic_ullong committed; /* by all caches */
    atomic_ullong most, n_over, n_sample;
    atomic_bool round_over, stop;
    atomic_int n_wrong;
    pthread_barrier_t barrier;
} all;

/* Asserts cannot jump out of another thread: they count here. */
void wrong(const char *what, int status);

/* The places share the pool and the reaper of the world, which is there before the first of them. */
void make_table(struct place *place);
void open_place(struct place *place);
void close_place(struct place *place);

/* Adds the cache to the reaper; of linked caches one stands for both. */
void watch(struct place *place, kvlazy_cache *cache);

#endif
