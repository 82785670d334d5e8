/* SPDX-License-Identifier: MIT */
/*
 * The figures of `bench/run idle`: what the idle side gives back, when it does, and how long a hook waits meanwhile.
 * idle_rig.c is the embedder that the files idle_*.c share: a cache of one stream or several, batches of any sequences,
 * and a memory table that notes when memory goes back. Threads that poll stand behind one small table, so that the
 * library's thread and one of the bench can be measured alike.
 */
#ifndef BENCH_IDLE_H
#define BENCH_IDLE_H

#include "report.h"

#include <kvlazy/kvlazy.h>

#include <stdatomic.h>

enum { IDLE_UBATCH = 512, IDLE_LAYERS = 32 };

/* What went back through the memory table. */
struct idle_watch {
    atomic_uint_least64_t n_byte, last_ns; /* all so far; when the newest was gone */
    struct bench_series piece_ns;          /* of the one thread that times its pieces */
};

struct idle_rig {
    struct bench_config geometry; /* n_slot: streams */
    uint32_t n_seq;
    kvlazy_params params;
    kvlazy_layer layer[IDLE_LAYERS];
    kvlazy_mem mem;
    kvlazy_cache *cache;
    struct bench_rows *rows;
    uint64_t now_ms; /* of the cache's clock, if it is moved by hand */
    struct idle_watch watch;
    kvlazy_pos pos[IDLE_UBATCH];
    kvlazy_seq_id seq[IDLE_UBATCH];
};

/** Fills in the parameters of a cache; the caller may change rig->params before idle_create. n_seq sequences live in
 * one stream, or each in its own where the geometry has as many slots. The rig must stay where it is. */
void idle_init(struct idle_rig *rig, const struct bench_config *geometry, uint32_t n_seq, bool manual_clock);
/** 0 or -1. */
int idle_create(struct idle_rig *rig);
void idle_close(struct idle_rig *rig);
/** One batch of the n tokens in rig->pos and rig->seq. rows: and writes their rows. A status of the library. */
int idle_batch(struct idle_rig *rig, uint32_t n, bool rows);
/** n tokens more of one sequence, in batches of `step` ≤ IDLE_UBATCH. A status of the library. */
int idle_put(struct idle_rig *rig, kvlazy_seq_id seq, uint32_t n, uint32_t step, bool rows);
/** Polls until nothing is due, by a clock moved by hand. 0 or -1. */
int idle_poll_out(struct idle_rig *rig);
/** From here on this thread works at a piece, and at the next one when a piece is gone; or it does so no longer. */
void idle_time_pieces(bool on);
/** Bytes of touched pages; 0 when they cannot be told. */
uint64_t idle_touched(const struct idle_rig *rig);
int idle_error(const char *call, int status);
/** Sleeps. */
void idle_nap_us(uint32_t us);
/** The same figures every run: a generator of its own, of values below n. */
uint32_t idle_random(uint64_t *state, uint32_t n);

/** A thread that polls a cache from now on. NULL with bench_why(). */
struct idle_side {
    const char *name;
    void *(*start)(kvlazy_cache *cache);
    void (*stop)(void *side, kvlazy_cache *cache);
};
extern const struct idle_side idle_poller; /* of our own: sleeps as long as the last poll said */
extern const struct idle_side idle_reaper; /* kvlazy_reaper */

/** One figure each group, as the functions of micro.h: 0, -1, or 1 when this machine does not allow it. */
int idle_floor(const struct bench_config *config);
int idle_return(const struct bench_config *config);
int idle_hook(const struct bench_config *config);
int idle_swing(const struct bench_config *config);
int idle_pool(const struct bench_config *config);
int idle_cost(const struct bench_config *config);
int idle_engine(const struct bench_config *config);

#endif
