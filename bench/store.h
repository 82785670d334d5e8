/* SPDX-License-Identifier: MIT */
/*
 * The figures of `bench/run store`: what saving a prefix to a directory and loading it again costs beside a plain write
 * and a plain read of the same bytes, what a hook waits meanwhile, what stays in the page cache, how long a full
 * directory takes to open, and whether the reference engine goes on with the same bits. store_rig.c is what they share:
 * a cache, the tokens of one conversation, and a directory of their own that is removed in the end.
 */
#ifndef BENCH_STORE_H
#define BENCH_STORE_H

#include "report.h"

#include <kvlazy/kvlazy.h>
#include <kvlazy/store.h>

enum { STORE_LAYERS = 28, STORE_ROW_BYTES = 2048, STORE_BLOCK = 64 };

struct store_rig {
    kvlazy_cache *cache;
    kvlazy_store *store;
    char dir[4096];
    int32_t *token; /* [n_cell + 1]: the last one is never loaded */
    kvlazy_prompt prompt;
    uint32_t n_cell; /* tokens of the conversation, whole blocks */
    kvlazy_tensor tensor[2 * STORE_LAYERS];
    uint64_t n_byte; /* of its rows */
};

/** A cache with a conversation of n_byte of rows in sequence 0 and ten tokens in sequence 1, and a store upon an empty
 * directory. transposed: V in channels of f16. 0 or -1; store_close in any case. */
int store_open(struct store_rig *rig, const struct bench_config *config, uint64_t n_byte, bool transposed);
/** The same upon a place of the caller's, which the rig owns from then on, also where this fails. */
int store_open_upon(struct store_rig *rig, const kvlazy_store_ops *ops, uint64_t n_byte, bool transposed);
void store_close(struct store_rig *rig);
/** The conversation from token n_have on, of a cache that has nothing else. 0 or -1. */
int store_compute(struct store_rig *rig, uint32_t n_have);
/** Compares every byte of what the sequence has with what was computed. 0 or -1. */
int store_count_rows(const struct store_rig *rig, uint64_t *n_row, uint64_t *n_wrong);

/** Saves the whole conversation, or loads it into the sequence, which has nothing. A call that the disk held up is
 * followed by another, as in an engine. 0 or -1. */
int store_save(struct store_rig *rig);
int store_load(struct store_rig *rig);
int store_error(const char *call, int status);

/** Bytes of rows that the figures are of: 1 GiB, or what --store says, or what fits the machine. */
uint64_t store_bytes(const struct bench_config *config);

/** Calls `each` for every regular file below a directory, until it fails. 0 or -1. */
int store_files(const char *dir, int (*each)(const char *path, void *ctx), void *ctx);
/** Removes a directory with all that is in it. */
void store_remove(const char *dir);
/** A name for a directory below that of the run, which is not there yet. */
void store_dir_name(char *dir, size_t room, const struct bench_config *config, const char *what);

/** One figure each group: 0, -1, or 1 when this machine does not allow it. */
int store_file(const struct bench_config *config);
int store_hook(const struct bench_config *config);
int store_opening(const struct bench_config *config);
int store_engine(const struct bench_config *config);

#endif
