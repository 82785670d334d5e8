/* SPDX-License-Identifier: MIT */
/*
 * The figures of `bench/run scale`: what many sequences, shared prefixes, full windows, many streams and many layers
 * cost, each at two sizes four apart, as the ratio of the two times; and what the library's own bookkeeping takes.
 * scale_rig.c is the embedder that the files scale_*.c share: one cache with a clock moved by hand, and batches of any
 * length for any sequence.
 */
#ifndef BENCH_SCALE_H
#define BENCH_SCALE_H

#include "report.h"

#include <kvlazy/kvlazy.h>

enum { SCALE_IDLE_MS = 1000, SCALE_ROUNDS = 3 };

struct scale_rig {
    kvlazy_params params; /* scale_init fills it in; the caller may change it before scale_create */
    kvlazy_layer layer;   /* one layer of small rows */
    kvlazy_mem mem;
    uint64_t now_ms;
    kvlazy_cache *cache;
    kvlazy_pos *pos; /* [kv_size] */
    kvlazy_seq_id *seq;
};

/** The rig must stay where it is. */
void scale_init(struct scale_rig *rig, uint32_t kv_size, uint32_t n_stream, uint32_t n_seq);
/** 0 or -1. */
int scale_create(struct scale_rig *rig);
void scale_close(struct scale_rig *rig);

/** n tokens of a sequence at positions from, from + 1, …: one batch of one ubatch, ended. 0 or -1. */
int scale_put(struct scale_rig *rig, kvlazy_seq_id seq, kvlazy_pos from, uint32_t n);
/** One batch of one ubatch of the n tokens in rig->pos and rig->seq, ended. 0 or -1. */
int scale_batch(struct scale_rig *rig, uint32_t n);
/** Sequence 0 holds `shared` tokens, every other one shares them and has `tail` of its own. 0 or -1. */
int scale_fork(struct scale_rig *rig, uint32_t n_seq, uint32_t shared, uint32_t tail);
/** Every sequence is idle from here on. */
void scale_rest(struct scale_rig *rig);
/** Polls until nothing is due. 0 or -1. */
int scale_poll(struct scale_rig *rig);
int scale_error(const char *call, int status);

/** Time that this thread ran, in the kernel too: the machine is shared, and what others take is not counted. */
uint64_t scale_spent_ns(void);

/** Bytes that the heap has handed out and not got back, mappings of its own included. */
uint64_t scale_heap_bytes(void);

/** Times `work` at two sizes, in turn and SCALE_ROUNDS times each; a work sets up, times a part and tears down, and
 * says how long the part took. Reports the ratio of the medians. 0 or -1. */
struct scale_growth {
    const char *key, *what, *wanted;
    uint32_t small, large;
    int (*work)(uint32_t size, uint64_t *ns);
};
int scale_growth(const struct bench_config *config, const struct scale_growth *growth);

/** One figure each group, as the functions of micro.h: 0, -1, or 1 when this machine does not allow it. */
int scale_plans(const struct bench_config *config);
int scale_hook(const struct bench_config *config);
int scale_window(const struct bench_config *config);
int scale_sequences(const struct bench_config *config);
int scale_bookkeeping(const struct bench_config *config);
int scale_host(const struct bench_config *config);

#endif
