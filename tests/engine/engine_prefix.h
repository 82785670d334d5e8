/* SPDX-License-Identifier: MIT */
/*
 * engine_prefix: the reference engine's way to a prefix store. The engine calls it where a request begins, where it
 * ended and while it idles. It turns tokens into what the store takes, lists cells where the engine keeps them, and
 * never decides what a slot holds.
 */
#ifndef KVLAZY_TESTS_ENGINE_PREFIX_H
#define KVLAZY_TESTS_ENGINE_PREFIX_H

#include "engine_kv.h"

#include <kvlazy/store.h>

/* Which store, borrowed, and how long a load and a save may take. All zero: none. */
typedef struct engine_prefix {
    kvlazy_store *store;
    uint32_t load_ms, save_ms;
} engine_prefix;

/**
 * Inside an open batch: behind the n_have tokens that the sequence holds come those of the n that the store has.
 * *n_live: so many are there now. Room that is missing is no error, nor is a sequence that has a part of one
 * whose positions moved: none come. Fails: as kvlazy_store_load; ENOMEM.
 */
int engine_prefix_load(const engine_prefix *prefix, engine_kv *kv, kvlazy_seq_id seq, const uint8_t *token, uint32_t n,
                       uint32_t n_have, uint32_t *n_live);

/** The first n tokens, as far as the sequence holds them, are written. Fails: as kvlazy_store_save; ENOMEM. */
int engine_prefix_save(const engine_prefix *prefix, engine_kv *kv, kvlazy_seq_id seq, const uint8_t *token, uint32_t n,
                       uint32_t *n_saved);

#endif
