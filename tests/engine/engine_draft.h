/* SPDX-License-Identifier: MIT */
/*
 * engine_draft: decoding with a small draft model beside the target. The draft guesses a few tokens, the target
 * computes them in one batch and keeps those it would have said itself, so that what is said, and every logit, is
 * that of the target alone. Each model has a cache of its own, and the two are not linked: either may be cut by
 * eviction while the other is not. The tests call it, one thread at a time. It samples nothing: likeliest tokens only.
 */
#ifndef KVLAZY_TESTS_ENGINE_DRAFT_H
#define KVLAZY_TESTS_ENGINE_DRAFT_H

#include "engine.h"

typedef struct engine_draft_counts {
    uint64_t rounds, guessed, accepted; /* guesses, and those the target agreed with */
    uint64_t target, draft;             /* tokens each model ran for */
    uint64_t gave_up;                   /* rounds in which the draft guessed less because it failed */
    uint64_t alone;                     /* rounds repeated without guesses, since these did not fit */
} engine_draft_counts;

typedef struct engine_draft engine_draft;

/**
 * Back ends are borrowed. n_slot, n_ctx, n_batch and n_vocab must be the same in both configurations, and a slot's
 * guesses and one token more fit in a batch. Fails: ENOMEM; EINVAL.
 */
int engine_draft_create(const engine_config *target, engine_kv *target_kv, const engine_config *draft,
                        engine_kv *draft_kv, uint32_t n_guess, engine_draft **d);
void engine_draft_destroy(engine_draft *d);

/** Makes the slot hold exactly these n tokens, n ≥ 1. Fails: as engine_prompt, and the next call goes on from there. */
int engine_draft_prompt(engine_draft *d, uint32_t slot, const uint8_t *token, uint32_t n);

/** 1 to n_guess + 1 tokens more for every slot of the list. Fails: as engine_decode; no token is recorded then. */
int engine_draft_decode(engine_draft *d, const uint32_t *slot, uint32_t n_slot);

int engine_draft_drop(engine_draft *d, uint32_t slot);

/** As engine_record and engine_logits: the target's. */
const uint8_t *engine_draft_record(const engine_draft *d, uint32_t slot, uint32_t *n);
const float *engine_draft_logits(const engine_draft *d, uint32_t slot, uint32_t pos);

void engine_draft_get_counts(const engine_draft *d, engine_draft_counts *counts);

/** As engine_break, for one of the two models. */
void engine_draft_break(engine_draft *d, bool draft, uint32_t after, uint32_t times);

#endif
