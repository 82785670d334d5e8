/* SPDX-License-Identifier: MIT */
/*
 * The figures of `bench/run state`: what writing and reading a state costs beside memcpy of the same bytes into pages
 * as fresh, and beside a plain write to a file; what a hook waits that comes meanwhile; and that nothing else changes.
 * state_rig.c is the cache they share: rows of one layout, one conversation that is filled in batches.
 */
#ifndef BENCH_STATE_H
#define BENCH_STATE_H

#include "report.h"

#include <kvlazy/kvlazy.h>

enum { STATE_LAYERS = 16, STATE_ROW_BYTES = 2048 };

struct state_rig {
    kvlazy_cache *cache;
    kvlazy_mem mem; /* the host's, with a clock that is moved by hand */
    _Atomic uint64_t now_ms;
    int (*on_evict)(void *ctx, kvlazy_seq_id seq, kvlazy_pos new_pos_max); /* set before it is opened; NULL: none */
    void *evict_ctx;
    uint32_t n_tensor, n_cell; /* cells of the conversation */
    kvlazy_tensor tensor[2 * STATE_LAYERS];
    uint64_t n_byte; /* of its rows */
};

/** A cache of two conversations, in one stream, of n_byte of rows each. transposed: V alone, in channels of f16.
 * With on_evict one of them idles too large. The rig is otherwise all zero. 0 or -1. */
int state_open(struct state_rig *rig, uint64_t n_byte, bool transposed);
void state_close(struct state_rig *rig);
/** n tokens more of a conversation, with rows that differ from cell to cell. 0 or -1. */
int state_fill(struct state_rig *rig, kvlazy_seq_id seq, uint32_t n);
int state_error(const char *call, int status);

/** Bytes of rows that the figures are of: 1 GiB, or what --state says, or what fits the machine. */
uint64_t state_bytes(const struct bench_config *config);

/** Memory that no one touched yet; and given back. NULL with bench_why(). */
unsigned char *state_fresh(size_t n_byte);
void state_unmap(unsigned char *map, size_t n_byte);

/** A run of bytes that a state is written to and read from. */
struct state_tape {
    unsigned char *byte;
    size_t n, room;
};
int state_tape_write(void *tape, const void *data, size_t bytes);
int state_tape_read(void *tape, void *data, size_t bytes); /* goes on at n */

/** One figure each group: 0, -1, or 1 when this machine does not allow it. */
int state_copy(const struct bench_config *config);
int state_file(const struct bench_config *config);
int state_hook(const struct bench_config *config);
int state_others(const struct bench_config *config);
int state_engine(const struct bench_config *config);

#endif
