/* SPDX-License-Identifier: MIT */
/*
 * kvlazy with one ubatch ahead: a prompt is one batch of several ubatches, as engines with a larger n_batch have it,
 * computed layer by layer, and a reaper makes pages present meanwhile. All else is policy_kvlazy's. Called by
 * pages_trace.c.
 */
#include "layers.h"
#include "policy_kvlazy.h"

#include <kvlazy/reaper.h>

#include <stdlib.h>

#include <bsd/stdlib.h>

enum { UBATCHES_MAX = 64 };

struct policy_state {
    struct policy_state *lazy; /* of policy_kvlazy */
    const struct bench_config *config;
    kvlazy_cache *cache;
    kvlazy_reaper *reaper;
    struct bench_rows *rows; /* [n_tensor] */
    uint32_t n_tensor;
    uint32_t *n_prompt; /* [n_slot] */
    kvlazy_pos *pos;    /* [kv_size] of the batch that is under way, */
    kvlazy_seq_id *seq; /* [kv_size] */
    kvlazy_ubatch ubatch[UBATCHES_MAX];
    kvlazy_slot place[UBATCHES_MAX];
    uint32_t n_ubatch, next, slot, next_pos; /* of which these are applied: [0, next); all of them: none is under way */
    struct layers_ubatch computed;
};

static int library_error(const char *call, int status)
{
    return bench_error("%s: %s", call, kvlazy_status_name(status));
}

static void ahead_destroy(struct policy_state *state)
{
    kvlazy_reaper_destroy(state->reaper);
    if (state->lazy != NULL) {
        policy_kvlazy.destroy(state->lazy);
    }
    free(state->rows);
    free(state->n_prompt);
    free(state->pos);
    free(state->seq);
    free(state);
}

static int ahead_open(struct policy_state *state, const uint64_t *now_us)
{
    const struct bench_config *config = state->config;
    state->n_tensor = bench_tensors(config);
    state->rows = calloc(state->n_tensor, sizeof(*state->rows));
    state->n_prompt = calloc(config->n_slot, sizeof(*state->n_prompt));
    state->pos = calloc(config->kv_size, sizeof(*state->pos));
    state->seq = calloc(config->kv_size, sizeof(*state->seq));
    if (state->rows == NULL || state->n_prompt == NULL || state->pos == NULL || state->seq == NULL) {
        return bench_error("out of memory");
    }
    if (policy_kvlazy.create(&state->lazy, config, now_us) != 0) {
        return -1;
    }
    state->cache = bench_kvlazy_cache(state->lazy);
    int status = kvlazy_reaper_create("", &state->reaper);
    status = status == KVLAZY_OK ? kvlazy_reaper_add(state->reaper, state->cache) : status;
    return status == KVLAZY_OK ? bench_kvlazy_rows(state->cache, config, state->rows)
                               : library_error("kvlazy_reaper_add", status);
}

static int ahead_create(struct policy_state **out, const struct bench_config *config, const uint64_t *now_us)
{
    struct policy_state *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        return bench_error("out of memory");
    }
    state->config = config;
    if (ahead_open(state, now_us) != 0) {
        ahead_destroy(state);
        return -1;
    }
    *out = state;
    return 0;
}

static int ahead_begin(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n_prompt,
                       uint32_t limit, uint32_t *kept)
{
    state->n_ubatch = state->next = 0;
    state->n_prompt[slot] = n_prompt;
    return policy_kvlazy.begin(state->lazy, slot, token, n_prompt, limit, kept);
}

/* The rest of a prompt, in ubatches. */
static int prepare(struct policy_state *state, uint32_t slot, uint32_t pos)
{
    uint32_t n_left = state->n_prompt[slot] - pos, most = state->config->ubatch_tokens;
    state->n_ubatch = state->next = 0;
    for (uint32_t i = 0; i < n_left; i++) {
        state->pos[i] = (kvlazy_pos)(pos + i);
        state->seq[i] = (kvlazy_seq_id)slot;
    }
    for (uint32_t at = 0; at < n_left && state->n_ubatch < UBATCHES_MAX; at += most) {
        state->ubatch[state->n_ubatch++] = (kvlazy_ubatch){
            .n_token = n_left - at < most ? n_left - at : most, .pos = state->pos + at, .seq = state->seq + at};
    }
    state->slot = slot;
    state->next_pos = pos;
    int status = kvlazy_prepare(state->cache, state->ubatch, state->n_ubatch, state->place);
    return status == KVLAZY_OK ? 0 : library_error("kvlazy_prepare", status);
}

static int ahead_step(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t pos, uint32_t n)
{
    if (pos >= state->n_prompt[slot]) { /* an answer; what was under way elsewhere is prepared anew */
        state->n_ubatch = state->next = 0;
        return policy_kvlazy.step(state->lazy, slot, token, pos, n);
    }
    if ((state->next == state->n_ubatch || state->slot != slot || state->next_pos != pos) &&
        prepare(state, slot, pos) != 0) {
        return -1;
    }
    const kvlazy_slot *place = &state->place[state->next];
    int status = kvlazy_apply_ubatch(state->cache, place, &state->ubatch[state->next]);
    if (status != KVLAZY_OK) {
        return library_error("kvlazy_apply_ubatch", status);
    }
    state->computed = (struct layers_ubatch){.slot = slot, .n_token = n, .cell = place->cell, .token = token + pos};
    state->next++;
    state->next_pos += n;
    return 0;
}

static int ahead_compute(struct policy_state *state, uint64_t *memory_ns)
{
    *memory_ns = layers_compute(state->config, state->rows, &state->computed);
    uint64_t start_ns = bench_now_ns();
    int status = state->next == state->n_ubatch ? kvlazy_end_batch(state->cache) : KVLAZY_OK;
    *memory_ns += bench_now_ns() - start_ns;
    return status == KVLAZY_OK ? 0 : library_error("kvlazy_end_batch", status);
}

static int ahead_verify(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n)
{
    return policy_kvlazy.verify(state->lazy, slot, token, n);
}

/* The reaper may be inside, or a batch be under way: the same poll comes a little later. */
static int ahead_poll(struct policy_state *state, uint64_t *next_ms)
{
    int status = kvlazy_poll(state->cache, next_ms);
    return status == KVLAZY_OK || status == KVLAZY_EBUSY ? 0 : library_error("kvlazy_poll", status);
}

static int ahead_resident(struct policy_state *state, uint64_t *bytes)
{
    return policy_kvlazy.resident(state->lazy, bytes);
}

const struct policy policy_ahead = {
    .name = "kvlazy, a ubatch ahead",
    .key = "ahead",
    .create = ahead_create,
    .destroy = ahead_destroy,
    .begin = ahead_begin,
    .step = ahead_step,
    .compute = ahead_compute,
    .verify = ahead_verify,
    .poll = ahead_poll,
    .resident = ahead_resident,
};
