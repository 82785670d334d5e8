/* SPDX-License-Identifier: MIT */
/*
 * model: a small decoder of the Llama kind (RMSNorm, RoPE, grouped-query attention, SwiGLU) with seeded weights.
 * The engine calls it once per ubatch. It writes K and V rows where it is told and reads them through lists of
 * cells in position order, one token at a time, so that neither where tokens lie nor how batches were cut can
 * change a bit of its answer. It never chooses a cell and knows no sequence.
 */
#ifndef KVLAZY_TESTS_ENGINE_MODEL_H
#define KVLAZY_TESTS_ENGINE_MODEL_H

#include <kvlazy/kvlazy.h>

typedef struct model_dims {
    uint32_t n_layer, n_embd, n_head, n_kv_head, n_ff, n_vocab; /* n_embd / n_head and n_ff: multiples of 4 */
} model_dims;

/* One ubatch: arrays of n_token. */
typedef struct model_step {
    uint32_t n_token;
    const uint8_t *token;
    const kvlazy_pos *pos;
    const uint32_t *stream, *cell; /* where the token's K and V go */
    const uint32_t *const *past;   /* past[i][p]: the cell of position p in token i's sequence, 0 ≤ p ≤ pos[i] */
    float *const *logits;          /* [n_vocab] each */
    bool fail;                     /* give up after the first layer, with rows half written, as a device might */
} model_step;

typedef struct model model;

/** NULL: out of memory. n_token and n_ctx: the most of one step, and the most positions of a sequence. */
model *model_create(const model_dims *dims, uint64_t seed, bool f16, uint32_t n_token, uint32_t n_ctx);
void model_destroy(model *m);

/** Bytes of one cell's K (and of its V) in one layer. */
size_t model_row_bytes(const model_dims *dims, bool f16);

/** k, v: [n_layer]. False: the computation failed. */
bool model_run(model *m, const kvlazy_tensor *k, const kvlazy_tensor *v, const model_step *step);

/** Turns the K of one cell by so many positions, in every layer: after a context shift. */
void model_turn(model *m, const kvlazy_tensor *k, uint32_t stream, uint32_t cell, kvlazy_pos by);

/** The first of the largest logits. */
uint8_t model_likeliest(const float *logits, uint32_t n_vocab);

#endif
