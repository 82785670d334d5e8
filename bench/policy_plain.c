/* SPDX-License-Identifier: MIT */
/*
 * The three policies kvlazy is compared with, in plain mmap: eager writes everything when created; demand leaves it to
 * page faults and gives nothing back; seed grows by powers of two and shrinks when a request finds it idle. They share
 * one layout, that of an engine: tensors one after the other, streams packed inside a tensor, and position p of a slot
 * in cell p, since a slot holds one conversation from 0 on. Called by the replay only. A fourth is eager in an engine
 * that computes layer by layer and has a second thread.
 *
 * seed, in full: the soft cap of a stream starts at `initial` cells, cleared at create. A batch that needs
 * more raises it to the next power of two and clears the new cells in every layer. A request that finds the
 * cache idle, no batch for `idle` anywhere, first evicts what its stream has above `initial` and gives those
 * pages back; until a request comes, nothing happens. With --seed-clock slot each stream has that clock for
 * itself, which lets it shrink beside a busy neighbour.
 */
#include "layers.h"
#include "policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <bsd/stdlib.h>

struct plain_slot {
    uint32_t held_cells, cap_cells, n_prompt;
    uint64_t last_ms;
};

struct policy_state {
    const struct bench_config *config;
    const uint64_t *now_us;
    unsigned char *map;
    size_t map_bytes;
    struct bench_rows *rows; /* [n_tensor] */
    struct plain_slot *slot; /* [n_slot] */
    uint64_t last_ms;        /* of the last batch in any slot */
    uint32_t *cell;          /* [kv_size]: 0, 1, 2, … */
    uint32_t n_tensor;
    struct layers_thread *thread; /* NULL: the engine has but one */
    struct layers_ubatch computed;
};

static void plain_destroy(struct policy_state *state)
{
    layers_thread_stop(state->thread);
    if (state->map != NULL) {
        munmap(state->map, state->map_bytes);
    }
    free(state->rows);
    free(state->slot);
    free(state->cell);
    free(state);
}

static int plain_create(struct policy_state **out, const struct bench_config *config, const uint64_t *now_us)
{
    struct policy_state *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        return bench_error("out of memory");
    }
    size_t page_bytes = bench_page_bytes();
    size_t stride = (bench_tensor_bytes(config) + page_bytes - 1) / page_bytes * page_bytes;
    state->config = config;
    state->now_us = now_us;
    state->n_tensor = bench_tensors(config);
    state->rows = reallocarray(NULL, state->n_tensor, sizeof(*state->rows));
    state->slot = calloc(config->n_slot, sizeof(*state->slot));
    state->cell = reallocarray(NULL, config->kv_size, sizeof(*state->cell));
    state->map_bytes = stride * state->n_tensor;
    void *map =
        mmap(NULL, state->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    state->map = map == MAP_FAILED ? NULL : map;
    if (state->rows == NULL || state->slot == NULL || state->cell == NULL || state->map == NULL) {
        int why = errno;
        plain_destroy(state);
        return bench_error("mapping %zu bytes: %s", stride * bench_tensors(config), strerror(why));
    }
    for (uint32_t t = 0; t < state->n_tensor; t++) {
        state->rows[t].data = state->map + t * stride;
        state->rows[t].row_bytes = config->row_bytes;
        state->rows[t].stream_stride = (size_t)config->kv_size * config->row_bytes;
    }
    for (uint32_t i = 0; i < config->kv_size; i++) {
        state->cell[i] = i;
    }
    *out = state;
    return 0;
}

/* Cells [cell, end) of a stream, in every layer, to zero. */
static void plain_clear(struct policy_state *state, uint32_t slot, uint32_t cell, uint32_t end)
{
    for (uint32_t t = 0; t < state->n_tensor; t++) {
        const struct bench_rows *rows = &state->rows[t];
        memset(rows->data + slot * rows->stream_stride + cell * rows->row_bytes, 0, (end - cell) * rows->row_bytes);
    }
}

static int plain_begin(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n_prompt,
                       uint32_t limit, uint32_t *kept)
{
    (void)token;
    struct plain_slot *here = &state->slot[slot];
    here->n_prompt = n_prompt;
    if (here->held_cells > limit) {
        here->held_cells = limit;
    }
    *kept = here->held_cells;
    return 0;
}

/* Cells for n tokens. */
static int plain_take(struct policy_state *state, uint32_t slot, uint32_t pos, uint32_t n)
{
    struct plain_slot *here = &state->slot[slot];
    if (pos != here->held_cells || n > state->config->kv_size - pos) {
        return bench_error("a batch at position %u of a slot that holds %u", pos, here->held_cells);
    }
    here->held_cells = pos + n;
    here->last_ms = state->last_ms = *state->now_us / 1000;
    return 0;
}

static int plain_step(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t pos, uint32_t n)
{
    int status = plain_take(state, slot, pos, n);
    if (status == 0) {
        bench_rows_write_tokens(state->rows, 0, state->n_tensor, slot, state->cell + pos, token + pos, n);
    }
    return status;
}

static int layers_step(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t pos, uint32_t n)
{
    if (pos >= state->slot[slot].n_prompt) { /* an answer */
        return plain_step(state, slot, token, pos, n);
    }
    layers_thread_wake(state->thread);
    state->computed =
        (struct layers_ubatch){.slot = slot, .n_token = n, .cell = state->cell + pos, .token = token + pos};
    return plain_take(state, slot, pos, n);
}

static int plain_compute(struct policy_state *state, uint64_t *memory_ns)
{
    *memory_ns = layers_compute(state->config, state->rows, &state->computed);
    return 0;
}

static int plain_verify(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n)
{
    for (uint32_t pos = 0; pos < n; pos++) {
        if (!bench_rows_hold(state->rows, state->n_tensor, slot, pos, token[pos])) {
            return bench_error("slot %u lost the row of position %u", slot, pos);
        }
    }
    return 0;
}

static int plain_resident(struct policy_state *state, uint64_t *bytes)
{
    *bytes = 0;
    return bench_resident(state->map, state->map_bytes, bytes);
}

static int eager_create(struct policy_state **out, const struct bench_config *config, const uint64_t *now_us)
{
    if (plain_create(out, config, now_us) != 0) {
        return -1;
    }
    for (uint32_t s = 0; s < config->n_slot; s++) {
        plain_clear(*out, s, 0, config->kv_size);
    }
    return 0;
}

static int layers_create(struct policy_state **out, const struct bench_config *config, const uint64_t *now_us)
{
    if (eager_create(out, config, now_us) != 0) {
        return -1;
    }
    int status = layers_thread_start(&(*out)->thread);
    if (status != 0) {
        plain_destroy(*out);
    }
    return status;
}

static int seed_create(struct policy_state **out, const struct bench_config *config, const uint64_t *now_us)
{
    if (plain_create(out, config, now_us) != 0) {
        return -1;
    }
    for (uint32_t s = 0; s < config->n_slot; s++) {
        (*out)->slot[s].cap_cells = bench_initial(config);
        plain_clear(*out, s, 0, bench_initial(config));
    }
    return 0;
}

/* Gives back the whole pages of cells [cell, end) of a stream. */
static int seed_return(struct policy_state *state, uint32_t slot, uint32_t cell, uint32_t end)
{
    uintptr_t page_bytes = bench_page_bytes();
    for (uint32_t t = 0; t < state->n_tensor; t++) {
        const struct bench_rows *rows = &state->rows[t];
        uintptr_t base = (uintptr_t)rows->data + slot * rows->stream_stride;
        uintptr_t from = (base + cell * rows->row_bytes + page_bytes - 1) & ~(page_bytes - 1);
        uintptr_t to = (base + end * rows->row_bytes) & ~(page_bytes - 1);
        if (to > from && madvise((void *)from, to - from, MADV_DONTNEED) != 0) {
            return bench_error("madvise: %s", strerror(errno));
        }
    }
    return 0;
}

static int seed_begin(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n_prompt,
                      uint32_t limit, uint32_t *kept)
{
    struct plain_slot *here = &state->slot[slot];
    uint32_t initial = bench_initial(state->config), idle_ms = state->config->idle_ms;
    uint64_t last_ms = state->config->seed_slot_clock ? here->last_ms : state->last_ms;
    if (idle_ms != 0 && here->cap_cells > initial && *state->now_us / 1000 - last_ms >= idle_ms) {
        if (seed_return(state, slot, initial, here->cap_cells) != 0) {
            return -1;
        }
        here->cap_cells = initial;
        here->held_cells = here->held_cells < initial ? here->held_cells : initial;
    }
    return plain_begin(state, slot, token, n_prompt, limit, kept);
}

static int seed_step(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t pos, uint32_t n)
{
    struct plain_slot *here = &state->slot[slot];
    if (pos + n > here->cap_cells) {
        uint32_t cap = 1;
        while (cap < pos + n && cap < state->config->kv_size) {
            cap *= 2;
        }
        cap = cap < state->config->kv_size ? cap : state->config->kv_size;
        plain_clear(state, slot, here->cap_cells, cap);
        here->cap_cells = cap;
    }
    return plain_step(state, slot, token, pos, n);
}

const struct policy policy_eager = {
    .name = "eager",
    .key = "eager",
    .create = eager_create,
    .destroy = plain_destroy,
    .begin = plain_begin,
    .step = plain_step,
    .verify = plain_verify,
    .resident = plain_resident,
};

const struct policy policy_eager_layers = {
    .name = "eager, layer by layer",
    .key = "eager_layers",
    .create = layers_create,
    .destroy = plain_destroy,
    .begin = plain_begin,
    .step = layers_step,
    .compute = plain_compute,
    .verify = plain_verify,
    .resident = plain_resident,
};

const struct policy policy_demand = {
    .name = "demand",
    .key = "demand",
    .create = plain_create,
    .destroy = plain_destroy,
    .begin = plain_begin,
    .step = plain_step,
    .verify = plain_verify,
    .resident = plain_resident,
};

const struct policy policy_seed = {
    .name = "seed",
    .key = "seed",
    .create = seed_create,
    .destroy = plain_destroy,
    .begin = seed_begin,
    .step = seed_step,
    .verify = plain_verify,
    .resident = plain_resident,
};
