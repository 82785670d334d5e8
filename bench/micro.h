/* SPDX-License-Identifier: MIT */
/*
 * The micro figures: one function each, which measures, compares in turn and reports. Each returns 0; -1 with
 * bench_why() when something failed; 1 with bench_why() when this machine does not allow the measurement, and then
 * the figure is absent. rig_* is the embedder they share: a cache, its rows, and batches of one sequence.
 */
#ifndef BENCH_MICRO_H
#define BENCH_MICRO_H

#include "policy_kvlazy.h"
#include "report.h"

int micro_create(const struct bench_config *config);
int micro_cover(const struct bench_config *config);
int micro_shrink(const struct bench_config *config);
int micro_hook(const struct bench_config *config);
int micro_syscall(const struct bench_config *config);
int micro_longtail(const struct bench_config *config);
int micro_engine(const struct bench_config *config);

enum { RIG_UBATCH = 512 };

struct rig {
    struct bench_config geometry;
    kvlazy_cache *cache;
    struct bench_rows *rows;
    uint64_t now_ms; /* of the cache's clock, if it is moved by hand */
    kvlazy_pos pos[RIG_UBATCH];
    kvlazy_seq_id seq[RIG_UBATCH];
};

/** manual_clock: the cache's time is rig->now_ms. The rig must stay where it is. 0 or -1. */
int rig_open(struct rig *rig, const struct bench_config *geometry, bool manual_clock);
void rig_close(struct rig *rig);
/** Puts n tokens at pos, pos + 1, … of a sequence, a batch a ubatch, and writes their rows. 0 or -1. */
int rig_put(struct rig *rig, uint32_t seq, uint32_t pos, uint32_t n);
/** One token through init_batch, prepare, apply_ubatch, end_batch; no row is written. A status of the library. */
int rig_decode(struct rig *rig, uint32_t seq, uint32_t pos);
/** Every stream from what it holds to n tokens; then the idle time of silence, by the manual clock. 0 or -1. */
int rig_idle_at(struct rig *rig, uint32_t n);
/** Polls until there is nothing more to do now. 0 or -1. */
int rig_poll_out(struct rig *rig);
/** Resident bytes of the tensors, by the bench's own mincore. 0 or -1. */
int rig_resident(const struct rig *rig, uint64_t *bytes);
int rig_error(const char *call, int status);

#endif
