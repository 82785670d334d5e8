/* SPDX-License-Identifier: MIT */
/*
 * model: a small decoder of the Llama kind (RMSNorm, RoPE, grouped-query attention, SwiGLU) with seeded weights.
 * The engine calls it once per ubatch. It writes K and V where it is told, in one of three types and with V either way
 * round, and reads them through lists of cells in position order, one token at a time, so that neither where tokens
 * lie nor how batches were cut can change a bit of its answer. Like a kernel with a mask it reads every cell below
 * n_kv all the same and adds it with weight 0, so that one which is no number shows. It never chooses a cell and knows
 * no sequence.
 */
#ifndef KVLAZY_TESTS_ENGINE_MODEL_H
#define KVLAZY_TESTS_ENGINE_MODEL_H

#include <kvlazy/kvlazy.h>

typedef struct model_dims {
    uint32_t n_layer, n_embd, n_head, n_kv_head, n_ff, n_vocab; /* n_embd / n_head and n_ff: multiples of 4 */
} model_dims;

enum {
    MODEL_F32,
    MODEL_F16,
    MODEL_Q8_0, /* 32 values in 34 bytes: a scale of half precision and 32 integers of 8 bits */
    MODEL_N_TYPE,
};

/* How K and V are kept; all zero: f32, row-major. */
typedef struct model_layout {
    int k_type, v_type;
    bool v_transposed; /* not with MODEL_Q8_0: its blocks lie in a row */
} model_layout;

/* One ubatch: arrays of n_token. */
typedef struct model_step {
    uint32_t n_token;
    uint32_t n_kv; /* cells of the streams below that attention reads */
    const uint8_t *token;
    const kvlazy_pos *pos;
    const uint32_t *stream, *cell; /* where the token's K and V go */
    const uint32_t *const *past;   /* past[i][p]: the cell of position p in token i's sequence, 0 ≤ p ≤ pos[i] */
    float *const *logits;          /* [n_vocab] each */
    bool fail;                     /* give up after the first layer, with rows half written, as a device might */
} model_step;

typedef struct model model;

/** NULL: out of memory. n_token, n_ctx and n_kv: the most of one step, positions of a sequence, cells of a stream. */
model *model_create(const model_dims *dims, uint64_t seed, const model_layout *layout, uint32_t n_token, uint32_t n_ctx,
                    uint32_t n_kv);
void model_destroy(model *m);

/** Values of one cell's K, and of its V, in one layer. */
uint32_t model_row_values(const model_dims *dims);

/** Bytes they take; 0: a row of that type cannot be. */
size_t model_row_bytes(const model_dims *dims, int type);

/** k, v: [n_layer]. False: the computation failed. */
bool model_run(model *m, const kvlazy_tensor *k, const kvlazy_tensor *v, const model_step *step);

/** Turns the K of one cell by so many positions, in every layer: after a context shift. */
void model_turn(model *m, const kvlazy_tensor *k, uint32_t stream, uint32_t cell, kvlazy_pos by);

/** The first of the largest logits. */
uint8_t model_likeliest(const float *logits, uint32_t n_vocab);

#endif
