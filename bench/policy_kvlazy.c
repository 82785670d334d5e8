/* SPDX-License-Identifier: MIT */
/*
 * The policy under test, written as an embedder would write it: a copy of the host's memory table with the
 * virtual clock in it, one sequence a slot, the three hooks and end_batch around every engine step, and poll
 * when nothing is to do. Called by the replay and by longtail.c; it never looks into the cache.
 */
#include "policy_kvlazy.h"

#include <kvlazy/kvlazy.h>

#include <stdlib.h>
#include <string.h>

#include <bsd/stdlib.h>

struct policy_state {
    const struct bench_config *config;
    const uint64_t *now_us;
    kvlazy_cache *cache;
    bool open;               /* begin left its batch open for the first step */
    struct bench_rows *rows; /* [n_tensor] */
    uint32_t n_tensor;
    kvlazy_pos *pos;    /* [ubatch_tokens] */
    kvlazy_seq_id *seq; /* [ubatch_tokens] */
    uint32_t *cell_of;  /* [kv_size]: scratch of verify */
    uint64_t *step_us;  /* [n_slot]: when it last had a token */
    uint64_t poll_us;   /* when the last poll was */
};

static int library_error(const char *call, int status)
{
    return bench_error("%s: %s (%s)", call, kvlazy_status_name(status), kvlazy_status_message(status));
}

static uint64_t virtual_now_ms(void *ctx)
{
    return *(const uint64_t *)ctx / 1000;
}

int bench_kvlazy_create(kvlazy_cache **cache, const struct bench_config *config, const kvlazy_mem *mem)
{
    kvlazy_layer *layers = calloc(config->n_layer, sizeof(*layers));
    if (layers == NULL) {
        return bench_error("out of memory");
    }
    for (uint32_t i = 0; i < config->n_layer; i++) {
        layers[i].id = i;
        layers[i].k_row_bytes = config->row_bytes;
        layers[i].v_row_bytes = config->row_bytes;
    }
    kvlazy_params params;
    kvlazy_params_init(&params);
    params.kv_size = config->kv_size;
    params.kv_size_initial = config->kv_initial;
    params.slot_shrink_idle_ms = config->idle_ms;
    params.n_stream = config->n_slot;
    params.n_seq_max = config->n_slot;
    params.layers = layers;
    params.n_layer = config->n_layer;
    params.mem = mem;
    params.flags = config->flags;
    params.keep_tokens = config->keep_tokens;
    params.shrink = config->shrink;
    params.budget_bytes = config->budget_bytes;
    params.page_bytes = config->page_bytes;
    params.warm_bytes = config->warm_bytes;
    params.model_tag = "bench";
    params.model_tag_bytes = 5;
    int status = kvlazy_create(&params, cache);
    free(layers);
    return status == KVLAZY_OK ? 0 : library_error("kvlazy_create", status);
}

int bench_kvlazy_rows(const kvlazy_cache *cache, const struct bench_config *config, struct bench_rows *rows)
{
    for (uint32_t t = 0; t < bench_tensors(config); t++) {
        kvlazy_tensor tensor;
        int status = t % 2 == 0 ? kvlazy_k(cache, t / 2, &tensor) : kvlazy_v(cache, t / 2, &tensor);
        if (status != KVLAZY_OK) {
            return library_error("kvlazy_k", status);
        }
        rows[t].data = tensor.data;
        rows[t].row_bytes = tensor.row_bytes;
        rows[t].stream_stride = tensor.stream_stride;
    }
    return 0;
}

static void lazy_destroy(struct policy_state *state)
{
    kvlazy_destroy(state->cache);
    free(state->rows);
    free(state->pos);
    free(state->seq);
    free(state->cell_of);
    free(state->step_us);
    free(state);
}

static int lazy_create(struct policy_state **out, const struct bench_config *config, const uint64_t *now_us)
{
    struct policy_state *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        return bench_error("out of memory");
    }
    state->config = config;
    state->now_us = now_us;
    state->n_tensor = bench_tensors(config);
    state->rows = calloc(state->n_tensor, sizeof(*state->rows));
    state->pos = calloc(config->ubatch_tokens, sizeof(*state->pos));
    state->seq = calloc(config->ubatch_tokens, sizeof(*state->seq));
    state->cell_of = calloc(config->kv_size, sizeof(*state->cell_of));
    state->step_us = calloc(config->n_slot, sizeof(*state->step_us));
    kvlazy_mem mem = *kvlazy_mem_host();
    mem.ctx = (void *)(uintptr_t)now_us;
    mem.now_ms = virtual_now_ms;
    if (state->step_us == NULL || state->rows == NULL || state->pos == NULL || state->seq == NULL ||
        state->cell_of == NULL) {
        lazy_destroy(state);
        return bench_error("out of memory");
    }
    if (bench_kvlazy_create(&state->cache, config, &mem) != 0 ||
        bench_kvlazy_rows(state->cache, config, state->rows) != 0) {
        lazy_destroy(state);
        return -1;
    }
    *out = state;
    return 0;
}

static int lazy_begin(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n_prompt,
                      uint32_t limit, uint32_t *kept)
{
    (void)token, (void)n_prompt;
    int status = kvlazy_init_batch(state->cache);
    if (status != KVLAZY_OK) {
        return library_error("kvlazy_init_batch", status);
    }
    state->open = true;
    status = kvlazy_seq_rm(state->cache, (kvlazy_seq_id)slot, (kvlazy_pos)limit, -1);
    if (status == KVLAZY_ENOTSUP) { /* whole or not at all */
        status = kvlazy_seq_rm(state->cache, (kvlazy_seq_id)slot, -1, -1);
    }
    *kept = (uint32_t)(kvlazy_seq_pos_max(state->cache, (kvlazy_seq_id)slot) + 1);
    return status == KVLAZY_OK ? 0 : library_error("kvlazy_seq_rm", status);
}

/* After a batch was refused for want of bytes: drops what the slot that has rested longest holds. Returns false when no
 * slot rests. */
static bool drop_resting(struct policy_state *state)
{
    enum { RESTS_US = 1000000 }; /* no step is that long */
    uint32_t oldest = state->config->n_slot;
    for (uint32_t s = 0; s < state->config->n_slot; s++) {
        if (*state->now_us - state->step_us[s] > RESTS_US && kvlazy_seq_pos_max(state->cache, (kvlazy_seq_id)s) >= 0 &&
            (oldest == state->config->n_slot || state->step_us[s] < state->step_us[oldest])) {
            oldest = s;
        }
    }
    return oldest < state->config->n_slot && kvlazy_seq_rm(state->cache, (kvlazy_seq_id)oldest, -1, -1) == KVLAZY_OK;
}

static int lazy_step(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t pos, uint32_t n)
{
    kvlazy_slot place;
    for (uint32_t i = 0; i < n; i++) {
        state->pos[i] = (kvlazy_pos)(pos + i);
        state->seq[i] = (kvlazy_seq_id)slot;
    }
    kvlazy_ubatch ubatch = {.n_token = n, .pos = state->pos, .seq = state->seq};
    int status = state->open ? KVLAZY_OK : kvlazy_init_batch(state->cache);
    if (status != KVLAZY_OK) {
        return library_error("kvlazy_init_batch", status);
    }
    state->open = false;
    state->step_us[slot] = *state->now_us;
    do {
        status = kvlazy_prepare(state->cache, &ubatch, 1, &place);
    } while (status == KVLAZY_EBUDGET && drop_resting(state));
    if (status != KVLAZY_OK) {
        return library_error("kvlazy_prepare", status);
    }
    status = kvlazy_apply_ubatch(state->cache, &place, &ubatch);
    if (status == KVLAZY_OK) {
        bench_rows_write_tokens(state->rows, 0, state->n_tensor, slot, place.cell, token + pos, n);
    }
    int ended = kvlazy_end_batch(state->cache);
    if (status != KVLAZY_OK) {
        return library_error("kvlazy_apply_ubatch", status);
    }
    return ended == KVLAZY_OK ? 0 : library_error("kvlazy_end_batch", ended);
}

/* Where the positions 0 … n-1 of a slot lie, to cell_of. */
static int find_cells(struct policy_state *state, uint32_t slot, uint32_t n)
{
    kvlazy_cells_view view = {.struct_size = sizeof(view)};
    int status = kvlazy_cells(state->cache, slot, &view);
    if (status != KVLAZY_OK) {
        return library_error("kvlazy_cells", status);
    }
    uint32_t n_found = 0;
    for (uint32_t cell = 0; cell < view.n_cell; cell++) {
        if (view.pos[cell] >= 0 && (uint32_t)view.pos[cell] < n) {
            state->cell_of[view.pos[cell]] = cell;
            n_found++;
        }
    }
    if (n_found != n) {
        return bench_error("slot %u should hold %u tokens, its cells show %u", slot, n, n_found);
    }
    return 0;
}

static int lazy_verify(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n)
{
    if (find_cells(state, slot, n) != 0) {
        return -1;
    }
    for (uint32_t pos = 0; pos < n; pos++) {
        if (!bench_rows_hold(state->rows, state->n_tensor, slot, state->cell_of[pos], token[pos])) {
            return bench_error("slot %u lost the row of position %u", slot, pos);
        }
    }
    return 0;
}

int bench_kvlazy_count(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n, uint64_t *n_row,
                       uint64_t *n_wrong)
{
    if (find_cells(state, slot, n) != 0) {
        return -1;
    }
    for (uint32_t pos = 0; pos < n; pos++) {
        *n_wrong += bench_rows_wrong(state->rows, state->n_tensor, slot, state->cell_of[pos], token[pos]);
    }
    *n_row += (uint64_t)n * state->n_tensor;
    return 0;
}

static int lazy_poll(struct policy_state *state, uint64_t *next_ms)
{
    uint64_t poll_ms = state->config->poll_ms, since_ms = (*state->now_us - state->poll_us) / 1000;
    if (poll_ms == BENCH_POLL_NEVER || (poll_ms != 0 && since_ms < poll_ms)) {
        *next_ms = poll_ms == BENCH_POLL_NEVER ? UINT64_MAX : poll_ms - since_ms;
        return 0;
    }
    state->poll_us = *state->now_us;
    int status = kvlazy_poll(state->cache, next_ms);
    if (poll_ms != 0 && *next_ms != 0 && *next_ms != UINT64_MAX) {
        *next_ms = poll_ms;
    }
    return status == KVLAZY_OK ? 0 : library_error("kvlazy_poll", status);
}

static int lazy_resident(struct policy_state *state, uint64_t *bytes)
{
    int status = kvlazy_resident(state->cache, bytes);
    return status == KVLAZY_OK ? 0 : library_error("kvlazy_resident", status);
}

kvlazy_cache *bench_kvlazy_cache(struct policy_state *state)
{
    return state->cache;
}

const struct policy policy_kvlazy = {
    .name = "kvlazy",
    .key = "kvlazy",
    .create = lazy_create,
    .destroy = lazy_destroy,
    .begin = lazy_begin,
    .step = lazy_step,
    .verify = lazy_verify,
    .poll = lazy_poll,
    .resident = lazy_resident,
};
