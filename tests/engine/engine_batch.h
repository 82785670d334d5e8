/* SPDX-License-Identifier: MIT */
/*
 * engine_batch: tokens on their way through a cache and a model. An engine opens the batch, reads positions, adds
 * tokens, runs it and ends it, on every way out; the reference engine has one, an engine with a draft model has two.
 * It never decides which tokens are to be computed, and keeps none once the next batch is open.
 */
#ifndef KVLAZY_TESTS_ENGINE_BATCH_H
#define KVLAZY_TESTS_ENGINE_BATCH_H

#include "engine.h"

typedef struct engine_batch {
    engine_kv *kv; /* borrowed */
    model *model;
    uint32_t n_max, n_ubatch_max, n_seq, n_ctx;
    int (*on_batch)(void *ctx);
    void *batch_ctx;

    uint32_t n_token; /* added since the batch was opened */
    uint32_t n_done;  /* the first of these, computed */
    uint8_t *token;   /* [n_max], as the next three */
    kvlazy_pos *pos;
    kvlazy_seq_id *seq;
    float **logits;
    kvlazy_ubatch *ubatch; /* how it is cut, and where it went */
    kvlazy_slot *place;

    uint32_t *cells;       /* [n_seq][n_ctx]: cells in position order, good for one ubatch */
    bool *placed;          /* [n_seq] */
    const uint32_t **past; /* [n_ubatch_max] */

    uint32_t break_after, break_times; /* the model fails `times` times in a row, at the ubatch `after` ones from now */
    uint64_t n_computed, n_undone;     /* tokens the model ran for; ubatches that were taken back */
} engine_batch;

/** `b` is all zero. Fails: ENOMEM, and engine_batch_free is due all the same. */
int engine_batch_init(engine_batch *b, const engine_config *config, engine_kv *kv);
void engine_batch_free(engine_batch *b);

/** Positions read from here on stay true until the batch is ended. */
int engine_batch_open(engine_batch *b);

/** Forgets what was added and run; the batch stays open, for more tokens in the same bracket. */
void engine_batch_next(engine_batch *b);

/** Where a sequence goes on: what the cache holds of it. */
uint32_t engine_batch_n_live(const engine_batch *b, kvlazy_seq_id seq);

/** One token more, if n_token < n_max. logits: [n_vocab], written when the token was computed. */
void engine_batch_add(engine_batch *b, kvlazy_seq_id seq, uint8_t token, uint32_t pos, float *logits);

/**
 * Places and computes what was added. Fails: as kvlazy_prepare and kvlazy_apply_ubatch; ENGINE_ECOMPUTE. The first
 * n_done tokens are in the cache then, and the batch is still to be ended.
 */
int engine_batch_run(engine_batch *b);

/** Answers `status`, or else what ending it answers. */
int engine_batch_end(engine_batch *b, int status);

#endif
