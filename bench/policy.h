/* SPDX-License-Identifier: MIT */
/*
 * A policy: one way to hold the K/V rows of an embedder's slots. The replay drives every policy through this
 * one table, so that all of them see the same requests, write the same rows and are measured at the same
 * instants. Slot i is stream i. Functions return 0, or -1 with the reason in bench_why().
 */
#ifndef BENCH_POLICY_H
#define BENCH_POLICY_H

#include "bench.h"

struct policy_state; /* each policy has its own */

/* What a policy moved to a place for blobs and from it. */
struct policy_stored {
    uint64_t written_bytes, read_bytes, held_bytes; /* held: by the place in the end */
    uint64_t distinct_bytes;                        /* rows of the distinct whole blocks that were to be saved */
    uint64_t n_lost;                                /* calls that failed or took too long */
};

/* `token` is what stands in a slot, from position 0 on, to the end of the request: ids that are equal where prefixes
 * are. It stays as it is until the next begin in that slot. */
struct policy {
    const char *name;
    const char *key; /* its name in keys and in the plot's variables */

    /* `now_us` is the virtual clock; it moves while the policy lives and is read only. */
    int (*create)(struct policy_state **state, const struct bench_config *config, const uint64_t *now_us);
    void (*destroy)(struct policy_state *state);

    /* A request begins in a slot: what the slot holds at positions ≥ limit goes; *kept says what is left, or
     * was there by other means, of the n_prompt tokens of its prompt. */
    int (*begin)(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n_prompt, uint32_t limit,
                 uint32_t *kept);
    /* One engine step: a batch of n tokens at positions pos, pos + 1, …; their rows are written, unless compute
     * writes them. */
    int (*step)(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t pos, uint32_t n);
    /* The engine computes what the last step of a prompt put there. *memory_ns says how long of it was memory work,
     * where rows are written layer by layer; the rest is not timed. NULL: in no time. */
    int (*compute)(struct policy_state *state, uint64_t *memory_ns);
    /* Are the rows of positions 0 … n-1 of a slot what was written? Not timed. NULL: it has no rows. */
    int (*verify)(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n);
    /* The request in a slot ended; n tokens are there. NULL: nothing is to be done then. */
    int (*finish)(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n);
    /* Nothing to do just now: give memory back. *next_ms: how long until that can matter again; UINT64_MAX:
     * not before the next begin or step. NULL: a policy that does nothing between requests. */
    int (*poll)(struct policy_state *state, uint64_t *next_ms);
    /* Bytes in RAM now. */
    int (*resident)(struct policy_state *state, uint64_t *bytes);
    /* NULL: it has no place for blobs. */
    void (*stored)(struct policy_state *state, struct policy_stored *stored);
    bool ages; /* its resident bytes change with time alone, without any of the calls above */
};

extern const struct policy policy_eager;        /* cleared when created, as most engines do */
extern const struct policy policy_eager_layers; /* the same, in an engine that computes and has a second thread */
extern const struct policy policy_demand;       /* touched on use, never returned */
extern const struct policy policy_seed;         /* grows by powers of two, shrinks at the next request */
extern const struct policy policy_kvlazy;
extern const struct policy policy_ahead; /* kvlazy with KVLAZY_UBATCH_AHEAD and a reaper */
extern const struct policy policy_store; /* kvlazy with a prefix store beside it */
/* No memory: what kvlazy's rules allow, by arithmetic. Tight: evicted cells are gone at once. model.c */
extern const struct policy policy_model, policy_model_tight;

/** Bytes of the page cover of n_cell[s] cells, from 0, in every stream s, in all tensors of the geometry. */
uint64_t model_cover_bytes(const struct bench_config *config, const uint32_t *n_cell);

#endif
