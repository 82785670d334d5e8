/* SPDX-License-Identifier: MIT */
/*
 * engine_state: a conversation is saved, goes on, is loaded elsewhere and goes on there: the reference engine's logits
 * must be the same, bit by bit. A table of where from and where to; the tests walk it, the bench asks for the largest
 * difference. It prints nothing.
 */
#ifndef KVLAZY_TESTS_ENGINE_STATE_H
#define KVLAZY_TESTS_ENGINE_STATE_H

#include "engine.h"

typedef struct engine_state_case {
    const char *name;
    model_layout from, to;
    uint32_t n_stream;    /* of the receiving cache */
    uint32_t slot;        /* there */
    bool fragmented;      /* cells of another slot and holes come first there */
    bool same_engine;     /* the engine that saved it loads it again */
    bool process;         /* a new process loads it */
    bool window;          /* a cache with a window is linked to both */
} engine_state_case;

const engine_state_case *engine_state_cases(uint32_t *n);

/**
 * Runs one case over a file in `dir`. *n_reused: tokens of the conversation that did not have to be computed again, all
 * but one when it went over whole. Fails: as the engine's calls, kvlazy_state_save and _load; EIO for a process that
 * could not be made.
 */
int engine_state_run(const engine_state_case *c, const char *dir, double *max_dlogit, uint32_t *n_reused);

/** The largest difference of all cases. */
int engine_state_max_dlogit(const char *dir, double *max);

enum { ENGINE_STATE_TOKENS = 71 }; /* of the conversation when it is saved */

#endif
