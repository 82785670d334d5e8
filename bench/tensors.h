/* SPDX-License-Identifier: MIT */
/*
 * The figures of `bench/run tensors`: what a layout of K and V keeps resident, what a prefill pays for pages that come
 * late, what decode pays, and what giving back costs. tensors_rig.c is the embedder that the files tensors_*.c share:
 * a cache of one layout, batches of one sequence, and rows that are really written, by one or two threads.
 */
#ifndef BENCH_TENSORS_H
#define BENCH_TENSORS_H

#include "report.h"

#include <kvlazy/kvlazy.h>

enum { TENSORS_F16, TENSORS_Q8_0, TENSORS_Q4_0, TENSORS_F16_TRANSPOSED, TENSORS_LAYOUTS };
enum { TENSORS_BATCH = 2048, TENSORS_UBATCH = 512 };

/** Rows of K and V, the same in every layer. */
struct tensors_layout {
    const char *key, *what;
    uint32_t row_bytes;
    uint32_t v_channels; /* 0: V row-major */
};
extern const struct tensors_layout tensors_layouts[TENSORS_LAYOUTS];

/** Time of one batch in its parts. */
struct tensors_time {
    uint64_t whole_ns; /* from init_batch to end_batch */
    uint64_t apply_ns, write_ns;
};

struct tensors_writers;

struct tensors_rig {
    struct bench_config geometry;
    kvlazy_cache *cache;
    uint32_t n_tensor;
    kvlazy_tensor *tensor;           /* [n_tensor] */
    struct tensors_writers *writers; /* NULL: the calling thread writes alone */
    kvlazy_pos pos[TENSORS_BATCH];
    kvlazy_seq_id seq[TENSORS_BATCH];
    uint32_t n_held;                                     /* tokens of sequence 0 */
    uint32_t stream[TENSORS_BATCH], cell[TENSORS_BATCH]; /* where those lie */
};

/** The default geometry with rows of a layout. flags: of kvlazy_params. 0 or -1. */
int tensors_open(struct tensors_rig *rig, const struct tensors_layout *layout, uint32_t flags);
/** The same with pages of a size, and a hint how many threads write. The other one has the host's own pages. */
int tensors_open_pages(struct tensors_rig *rig, const struct tensors_layout *layout, uint32_t flags,
                       uint64_t page_bytes, uint32_t n_writer);
void tensors_close(struct tensors_rig *rig);

/** n tokens more for sequence 0, TENSORS_BATCH in all at most: one batch, in ubatches of TENSORS_UBATCH, with their
 * rows written. time may be NULL. 0 or -1. */
int tensors_put(struct tensors_rig *rig, uint32_t n, struct tensors_time *time);
/** The same, and then all rows up to n_kv are read. Row-major tensors only. */
int tensors_put_and_read(struct tensors_rig *rig, uint32_t n);
/** Drops the tokens. pages: and gives back what they lay on. 0 or -1. */
int tensors_drop(struct tensors_rig *rig, bool pages);
/** Drops all tokens but the first n, and gives back what no other needs. 0 or -1. */
int tensors_cut(struct tensors_rig *rig, uint32_t n);
/** Writes the rows of n tokens, the first of which is the i-th held. */
void tensors_write(const struct tensors_rig *rig, uint32_t i, uint32_t n);
/** The next batch is one token, applied and not written: the caller does that before tensors_end. 0 or -1. */
int tensors_begin_one(struct tensors_rig *rig);
int tensors_end(struct tensors_rig *rig);

/** Bytes of the tensors in RAM, by the bench's own mincore; rows must not have been read. 0 or -1. */
int tensors_resident(const struct tensors_rig *rig, uint64_t *bytes);
/** Bytes of the pages that the rows of the held tokens lie on, found cell by cell and channel by channel. 0 or -1. */
int tensors_cover(const struct tensors_rig *rig, uint64_t *bytes);

/** A second thread that writes every other tensor. NULL with bench_why(). */
struct tensors_writers *tensors_writers_start(void);
void tensors_writers_stop(struct tensors_writers *writers);

/** One figure each group, as the functions of micro.h: 0, -1, or 1 when this machine does not allow it. */
int tensors_table(const struct bench_config *config);
int tensors_prefill(const struct bench_config *config);
int tensors_commit_ahead(const struct bench_config *config);
int tensors_decode(const struct bench_config *config);
int tensors_release(const struct bench_config *config);
int tensors_outside(const struct bench_config *config);
int tensors_maps(const struct bench_config *config);
int tensors_engine(const struct bench_config *config);

#endif
