/* SPDX-License-Identifier: MIT */
/*
 * engine: a small inference engine with slots. A slot is a conversation that keeps its prompt: the next prompt
 * reuses the longest prefix they share, and what an eviction took is computed again without being asked for. The
 * session, the tests and the bench call it, one thread at a time. Status codes are kvlazy's, and ENGINE_ECOMPUTE.
 * It never looks at cells itself: the K/V back end places, the model computes.
 */
#ifndef KVLAZY_TESTS_ENGINE_H
#define KVLAZY_TESTS_ENGINE_H

#include "engine_kv.h"
#include "engine_prefix.h"
#include "model.h"

enum { ENGINE_ECOMPUTE = -100 }; /* the model failed twice in a row on one ubatch */

typedef struct engine_config {
    model_dims dims;
    uint64_t seed;
    model_layout layout;
    uint32_t n_slot;            /* slot i is sequence i */
    uint32_t n_ctx;             /* most tokens of one slot */
    uint32_t n_batch, n_ubatch; /* most tokens of one prepare, and of one computation */

    /* Called after every end_batch; a status other than OK goes to the caller. NULL: no one looks. */
    int (*on_batch)(void *ctx);
    void *batch_ctx;

    bool turns_all;       /* a context shift turns every row of a stream: by 0 where no token moved, or none is */
    engine_prefix prefix; /* what slots lose comes back from here */
} engine_config;

typedef struct engine_counts {
    uint64_t computed;   /* tokens the model ran for */
    uint64_t reused;     /* tokens of prompts that were in the cache */
    uint64_t loaded;     /* tokens that a prefix store brought */
    uint64_t recomputed; /* tokens that had been in the cache, were lost to eviction, and that no store brought */
    uint64_t undone;     /* ubatches that failed in the model and were taken back */
    uint64_t refused;    /* batches refused with EPOS, and then served */
} engine_counts;

typedef struct engine engine;

/** The back end is borrowed: it must outlive the engine. Fails: ENOMEM; EINVAL for sizes of 0 and a layout that
 * cannot be. */
int engine_create(const engine_config *config, engine_kv *kv, engine **e);
void engine_destroy(engine *e);

/** Sizes of the K/V cache that a configuration needs, the memory side left 0. */
engine_kv_config engine_kv_config_for(const engine_config *config, uint32_t n_stream);

/**
 * Makes the slot hold exactly these n tokens, n ≥ 1, and computes what the cache does not hold; the last token is
 * always computed. Before that a store brings what it has, and afterwards it is given what it lacks. Fails: as
 * kvlazy_prepare, kvlazy_store_load and _save, and ENGINE_ECOMPUTE; what was computed until then stays and is reused.
 */
int engine_prompt(engine *e, uint32_t slot, const uint8_t *token, uint32_t n);

/**
 * As engine_prompt, for a slot whose prompt begins like the tokens of another: what `from` has in the cache of them is
 * shared, not computed.
 */
int engine_prompt_from(engine *e, uint32_t slot, uint32_t from, const uint8_t *token, uint32_t n);

/**
 * Makes room in a slot that is full: the first n_keep tokens stay, the next n_discard go, and the rest moves down, with
 * what it remembers of them. Cells that are shared with another slot must be among the first n_keep.
 */
int engine_shift(engine *e, uint32_t slot, uint32_t n_keep, uint32_t n_discard);

/**
 * One token more for every slot of the list, in one batch: the likeliest after what the slot holds. Fails: as
 * engine_prompt, and EINVAL for a slot that holds nothing. The records show what got through.
 */
int engine_decode(engine *e, const uint32_t *slot, uint32_t n_slot);

/**
 * The slot holds these tokens, and its cache has them or some of them: a state was read into it. Logits are not known,
 * so that a prompt of the same tokens computes the last one again.
 */
int engine_adopt(engine *e, uint32_t slot, const uint8_t *token, uint32_t n);

/** All that the cache holds of a slot leaves it and comes back (engine_restore.h). */
int engine_restore(engine *e, uint32_t slot, bool late);

/** Forgets a slot. */
int engine_drop(engine *e, uint32_t slot);

/** Nothing is to do: what a store lacks is saved, then memory may go back. next_ms: as kvlazy_poll. */
int engine_idle(engine *e, uint64_t *next_ms);

/** The tokens a slot holds, as the engine remembers them; the cache may hold fewer since the last idle. */
const uint8_t *engine_record(const engine *e, uint32_t slot, uint32_t *n);

/** [n_vocab] after position pos of a slot, pos < n of its record. */
const float *engine_logits(const engine *e, uint32_t slot, uint32_t pos);

/** A store brought the token at pos: its logits are not known here. */
bool engine_is_loaded(const engine *e, uint32_t slot, uint32_t pos);

void engine_get_counts(const engine *e, engine_counts *counts);

/** The model fails `times` times in a row, at the ubatch `after` ones from now. */
void engine_break(engine *e, uint32_t after, uint32_t times);

#endif
