/* SPDX-License-Identifier: MIT */
/*
 * What every file of the bench shares: the options of one run, the clock that timings are taken with, medians with
 * their spread, the text of the last error, and the rows of K/V that policies write. It knows no policy, no trace and
 * no kvlazy.
 */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvlazy_store_ops;

/** A fleet of which the replay serves one part: its policy kvlazy+store shares a place for blobs with others. */
struct bench_fleet {
    int (*place)(void *ctx, struct kvlazy_store_ops *ops); /* 0 or -1. NULL: each has its own, in memory */
    void (*turn)(void *ctx, uint64_t now_us); /* before each call on the store: waits for the others. NULL: does not */
    void *ctx;
    uint64_t *n_row, *n_wrong; /* rows of kept and loaded tokens that were looked at, and that were not theirs */
};

/** The options of a run; options.c fills them in and has checked every range. */
struct bench_config {
    const char *trace_path; /* NULL: the built-in trace */
    const char *plot_path;  /* NULL: no plot */
    const char *data_dir;   /* where the plot's data go */
    bool keys, micro, replay;
    const char *part; /* the figures of this part, "cells" for instance, and nothing else; NULL: all but the parts */
    uint64_t state_bytes; /* of rows in a state; 0: as many as are measured */
    uint64_t store_bytes; /* of rows in a store; the same */
    bool set_folios;      /* switch pages of 64 KiB on for this run */
    bool seed_slot_clock; /* the seed policy has an idle clock a slot, not one for the cache */
    uint32_t take;        /* every take-th request of the trace */
    uint32_t n_slot, kv_size, kv_initial, idle_ms, n_layer, row_bytes;
    uint32_t ubatch_tokens, shared_tokens;
    uint32_t prefill_per_s, decode_per_s; /* tokens */
    /* knobs of kvlazy alone */
    uint32_t flags, keep_tokens;     /* as in kvlazy_params */
    int shrink;                      /* the same */
    uint64_t budget_bytes;           /* the same */
    uint64_t page_bytes;             /* the same; 0: what the library takes */
    uint64_t warm_bytes;             /* the same */
    uint32_t block_tokens;           /* of the prefix store, as in kvlazy_store_params */
    uint32_t poll_ms;                /* between two polls; 0: when the last one said; BENCH_POLL_NEVER */
    const struct bench_fleet *fleet; /* NULL: one server by itself */
};
#define BENCH_POLL_NEVER UINT32_MAX

/** Prompts are cut so that this many cells of kv_size stay for the answer. */
#define BENCH_ANSWER_CELLS 1100u

/** The defaults of every option. The micro figures are of this geometry whatever the options say. */
void bench_config_default(struct bench_config *config);
/** Reads the command line. Exits with 0 after --help, and with 2 and a line on stderr for a bad option. */
void bench_config_parse(struct bench_config *config, int argc, char **argv);

/** Whether figures have a part of this name. main.c has the list. */
bool bench_is_part(const char *name);

static inline uint32_t bench_tensors(const struct bench_config *config)
{
    return 2 * config->n_layer;
}
/** Bytes of one tensor: all streams, packed. */
static inline uint64_t bench_tensor_bytes(const struct bench_config *config)
{
    return (uint64_t)config->n_slot * config->kv_size * config->row_bytes;
}
/** Cells an idle stream may keep; 0 in the options means all of them. */
static inline uint32_t bench_initial(const struct bench_config *config)
{
    return config->kv_initial == 0 || config->kv_initial > config->kv_size ? config->kv_size : config->kv_initial;
}

/* ------------------------------------------------------------------------------------------------------
 * Time and spread
 */
uint64_t bench_now_ns(void);

/** A set of measurements of one thing. */
struct bench_series {
    double value[512];
    uint32_t n;
};
void bench_series_add(struct bench_series *series, double value); /* values past the last place are dropped */
/** The value below which `part` of the measurements lie: 0 the least, 0.5 the median, 1 the greatest. */
double bench_series_at(struct bench_series *series, double part);

/* ------------------------------------------------------------------------------------------------------
 * Errors: a function that fails says why by bench_error and returns -1. A caller up the way reads bench_why.
 */
int bench_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *bench_why(void);

/* ------------------------------------------------------------------------------------------------------
 * Pages and rows
 */
size_t bench_page_bytes(void);
/** MemAvailable of this machine in bytes; UINT64_MAX where it cannot be told. */
uint64_t bench_available_bytes(void);
/** Adds the resident bytes of a mapping, as mincore has them. 0 or -1. */
int bench_resident(const void *addr, size_t n_bytes, uint64_t *bytes);

/** Where the rows of one tensor lie; cell i of stream s at data + s * stream_stride + i * row_bytes. */
struct bench_rows {
    unsigned char *data;
    size_t stream_stride, row_bytes;
};

/** Writes the rows of n tokens at positions pos, pos + 1, … into cells cell[0 … n-1] of every tensor. */
void bench_rows_write(const struct bench_rows *rows, uint32_t n_tensor, uint32_t stream, const uint32_t *cell,
                      uint32_t pos, uint32_t n);
/** Writes the rows of n tokens, whichever stream they are in, into cells cell[0 … n-1] of the tensors
 * [tensor, tensor_end). */
void bench_rows_write_tokens(const struct bench_rows *rows, uint32_t tensor, uint32_t tensor_end, uint32_t stream,
                             const uint32_t *cell, const int32_t *token, uint32_t n);
/** Whether the row of a token lies in that cell of every tensor, by its first and last byte. */
bool bench_rows_hold(const struct bench_rows *rows, uint32_t n_tensor, uint32_t stream, uint32_t cell, int32_t token);
/** In how many tensors the row there is not that of the token, by every byte. */
uint32_t bench_rows_wrong(const struct bench_rows *rows, uint32_t n_tensor, uint32_t stream, uint32_t cell,
                          int32_t token);
/** Is every byte the same as this one? */
bool bench_bytes_are(const unsigned char *data, size_t n_byte, unsigned char byte);

#endif
