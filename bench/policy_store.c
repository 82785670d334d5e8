/* SPDX-License-Identifier: MIT */
/*
 * kvlazy with a prefix store beside it, as an embedder would write it: a request begins with what its slot keeps, then
 * with what the store has; when it ends, its tokens are saved, and what could not be is tried again while nothing is to
 * be done. All else is policy_kvlazy's. Called by the replay.
 */
#include "policy_kvlazy.h"
#include "policy_place.h"

#include <kvlazy/store.h>

#include <stdlib.h>

#include <bsd/stdlib.h>

enum { NO_HURRY_MS = 600000 };

/* What a slot holds. */
struct kept {
    const int32_t *token;
    uint32_t n;
    bool waits; /* not all of it is saved */
};

/* Digests of the distinct prefixes of whole blocks; 0: a free place. */
struct digests {
    uint64_t *digest;
    size_t n, room;
};

struct policy_state {
    struct policy_state *lazy; /* of policy_kvlazy */
    const struct bench_config *config;
    const uint64_t *now_us;
    kvlazy_store *store;
    const void *place; /* the store's, in memory; NULL: it is another */
    struct kept *kept; /* [n_slot] */
    struct digests seen;
};

static int library_error(const char *call, int status)
{
    return bench_error("%s: %s", call, kvlazy_status_name(status));
}

/* ------------------------------------------------------------------------------------------------------
 * What is distinct
 */
static bool digests_put(struct digests *set, uint64_t digest)
{
    size_t i = digest & (set->room - 1);
    while (set->digest[i] != 0 && set->digest[i] != digest) {
        i = (i + 1) & (set->room - 1);
    }
    bool is_new = set->digest[i] == 0;
    set->digest[i] = digest;
    return is_new;
}

static int digests_grow(struct digests *set)
{
    struct digests more = {.room = set->room == 0 ? 1024 : 2 * set->room};
    more.digest = calloc(more.room, sizeof(*more.digest));
    if (more.digest == NULL) {
        return bench_error("out of memory");
    }
    for (size_t i = 0; i < set->room; i++) {
        if (set->digest[i] != 0) {
            more.n += digests_put(&more, set->digest[i]);
        }
    }
    free(set->digest);
    *set = more;
    return 0;
}

static int digests_note(struct digests *set, const int32_t *token, uint32_t n, uint32_t block)
{
    uint64_t digest = UINT64_C(14695981039346656037);
    for (uint32_t i = 0; i < n / block * block; i++) {
        digest = (digest ^ (uint32_t)token[i]) * UINT64_C(1099511628211);
        digest ^= digest >> 29;
        if ((i + 1) % block != 0) {
            continue;
        }
        if (2 * set->n >= set->room && digests_grow(set) != 0) {
            return -1;
        }
        set->n += digests_put(set, digest | 1);
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * The policy
 */
static void store_destroy(struct policy_state *state)
{
    if (state->lazy != NULL) {
        policy_kvlazy.destroy(state->lazy);
    }
    kvlazy_store_destroy(state->store);
    free(state->kept);
    free(state->seen.digest);
    free(state);
}

static int open_store(struct policy_state *state)
{
    const struct bench_fleet *fleet = state->config->fleet;
    bool shared = fleet != NULL && fleet->place != NULL;
    kvlazy_store_ops ops;
    if ((shared ? fleet->place(fleet->ctx, &ops) : place_create(&ops)) != 0) {
        return -1;
    }
    kvlazy_store_params params = {
        .struct_size = sizeof(params), .ops = &ops, .block_tokens = state->config->block_tokens, .min_tokens = 1};
    int status = kvlazy_store_create(&params, &state->store);
    if (status != KVLAZY_OK) {
        ops.destroy(ops.ctx);
        return library_error("kvlazy_store_create", status);
    }
    state->place = shared ? NULL : ops.ctx;
    return 0;
}

static int store_create(struct policy_state **out, const struct bench_config *config, const uint64_t *now_us)
{
    struct policy_state *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        return bench_error("out of memory");
    }
    state->config = config;
    state->now_us = now_us;
    state->kept = calloc(config->n_slot, sizeof(*state->kept));
    int status =
        state->kept == NULL ? bench_error("out of memory") : policy_kvlazy.create(&state->lazy, config, now_us);
    status = status == 0 ? open_store(state) : status;
    if (status != 0) {
        store_destroy(state);
        return -1;
    }
    *out = state;
    return 0;
}

/* With --shrink whole nothing is stored, and a request goes on without. */
static bool is_served(int status)
{
    return status == KVLAZY_OK || status == KVLAZY_ENOTSUP;
}

/* In a fleet the calls on the store come in the order of the clock that all share. */
static void take_turn(const struct policy_state *state)
{
    const struct bench_fleet *fleet = state->config->fleet;
    if (fleet != NULL && fleet->turn != NULL) {
        fleet->turn(fleet->ctx, *state->now_us);
    }
}

static int store_begin(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n_prompt,
                       uint32_t limit, uint32_t *kept)
{
    kvlazy_prompt prompt = {.struct_size = sizeof(prompt), .token = token, .n_token = n_prompt};
    state->kept[slot].waits = false;
    if (policy_kvlazy.begin(state->lazy, slot, token, n_prompt, limit, kept) != 0) {
        return -1;
    }
    take_turn(state);
    int status = kvlazy_store_load(state->store, bench_kvlazy_cache(state->lazy), (kvlazy_seq_id)slot, &prompt, *kept,
                                   NO_HURRY_MS, kept);
    return is_served(status) ? 0 : library_error("kvlazy_store_load", status);
}

static int store_step(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t pos, uint32_t n)
{
    return policy_kvlazy.step(state->lazy, slot, token, pos, n);
}

static int store_verify(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n)
{
    const struct bench_fleet *fleet = state->config->fleet;
    return fleet == NULL ? policy_kvlazy.verify(state->lazy, slot, token, n)
                         : bench_kvlazy_count(state->lazy, slot, token, n, fleet->n_row, fleet->n_wrong);
}

static int save(struct policy_state *state, uint32_t slot)
{
    struct kept *here = &state->kept[slot];
    kvlazy_prompt prompt = {.struct_size = sizeof(prompt), .token = here->token, .n_token = here->n};
    uint32_t n_saved = 0, block = state->config->block_tokens;
    take_turn(state);
    int status = kvlazy_store_save(state->store, bench_kvlazy_cache(state->lazy), (kvlazy_seq_id)slot, &prompt,
                                   NO_HURRY_MS, &n_saved);
    kvlazy_pos last = kvlazy_seq_pos_max(bench_kvlazy_cache(state->lazy), (kvlazy_seq_id)slot);
    uint32_t n_left = last < 0 ? 0 : (uint32_t)last + 1; /* what was evicted can be saved no more */
    uint32_t n_most = n_left < here->n ? n_left : here->n;
    here->waits = status == KVLAZY_OK && n_saved < n_most / block * block;
    return is_served(status) ? 0 : library_error("kvlazy_store_save", status);
}

static int store_finish(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n)
{
    state->kept[slot] = (struct kept){.token = token, .n = n};
    return digests_note(&state->seen, token, n, state->config->block_tokens) == 0 ? save(state, slot) : -1;
}

static int store_poll(struct policy_state *state, uint64_t *next_ms)
{
    for (uint32_t s = 0; s < state->config->n_slot; s++) {
        if (state->kept[s].waits && save(state, s) != 0) {
            return -1;
        }
    }
    return policy_kvlazy.poll(state->lazy, next_ms);
}

static int store_resident(struct policy_state *state, uint64_t *bytes)
{
    return policy_kvlazy.resident(state->lazy, bytes);
}

static void store_stored(struct policy_state *state, struct policy_stored *stored)
{
    kvlazy_store_info info = {.struct_size = sizeof(info)};
    const struct bench_config *config = state->config;
    uint64_t block_bytes = (uint64_t)config->block_tokens * bench_tensors(config) * config->row_bytes;
    if (kvlazy_store_stats(state->store, &info) == KVLAZY_OK) {
        *stored = (struct policy_stored){.written_bytes = info.written_bytes,
                                         .read_bytes = info.read_bytes,
                                         .held_bytes = state->place == NULL ? 0 : place_held_bytes(state->place),
                                         .distinct_bytes = state->seen.n * block_bytes,
                                         .n_lost = info.n_timeout + info.n_failed};
    }
}

const struct policy policy_store = {
    .name = "kvlazy+store",
    .key = "store",
    .create = store_create,
    .destroy = store_destroy,
    .begin = store_begin,
    .step = store_step,
    .verify = store_verify,
    .finish = store_finish,
    .poll = store_poll,
    .resident = store_resident,
    .stored = store_stored,
};
