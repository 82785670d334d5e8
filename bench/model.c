/* SPDX-License-Identifier: MIT */
/*
 * The bench's own model of what kvlazy may hold, by arithmetic from the trace alone: it owns no tensor and
 * calls nothing of the library. It stands behind the same table as the policies, so the replay drives it with
 * the same requests, and its `resident` returns the page cover of the cells that are live now or were live at
 * some time in the last 1.5 × idle. Called by the replay, and by the micro figures for the page cover.
 *
 *   n cells of stream s in a tensor     |<- stream 0 ->|<- stream 1 ->|
 *   (packed, the tensor's start         [#####.........|####..........]
 *   page-aligned)                        ^   ^ n·row    ^ kv_size·row, anywhere in a page
 *
 * The rules it knows. A slot holds one conversation from cell 0 on, because the lowest free cells are taken
 * and a request drops what lies behind the shared prefix. A slot whose last batch ended `idle` ago and that
 * holds more than `initial` cells is cut to `initial` then, not later. So the cells live in a stream are always
 * 0 … n-1, and what was live in the window is the greatest n of the window. Eviction gives its pages back in
 * the call that evicts, so there is a second, tight model, in which what was evicted leaves the window at once.
 */
#include "policy.h"

#include <stdlib.h>

#include <bsd/stdlib.h>

/* Cells that ceased to be live: [.., n_cell) went at gone_ms. */
struct model_drop {
    uint64_t gone_ms;
    uint32_t n_cell;
};

/* The drops of a stream that the window may still need: later ones have fewer cells. */
struct model_slot {
    uint32_t n_live;
    bool used;
    uint64_t last_ms; /* end of the last batch */
    struct model_drop *drop;
    size_t first, end, room;
};

struct policy_state {
    const struct bench_config *config;
    const uint64_t *now_us;
    struct model_slot *slot;
    uint32_t *n_cell; /* [n_slot] */
    bool tight;
};

uint64_t model_cover_bytes(const struct bench_config *config, const uint32_t *n_cell)
{
    uint64_t page_bytes = bench_page_bytes(), n_page = 0, next_page = 0;
    for (uint32_t s = 0; s < config->n_slot; s++) {
        if (n_cell[s] == 0) {
            continue;
        }
        uint64_t from = (uint64_t)s * config->kv_size * config->row_bytes;
        uint64_t to = from + (uint64_t)n_cell[s] * config->row_bytes;
        uint64_t page = from / page_bytes, end = (to + page_bytes - 1) / page_bytes;
        page = page > next_page ? page : next_page; /* the page two streams share counts once */
        n_page += end > page ? end - page : 0;
        next_page = end > next_page ? end : next_page;
    }
    return n_page * page_bytes * bench_tensors(config);
}

/* The stream is cut to n cells at gone_ms. */
static int model_cut(struct model_slot *slot, uint32_t n, uint64_t gone_ms)
{
    if (n >= slot->n_live) {
        return 0;
    }
    while (slot->end > slot->first && slot->drop[slot->end - 1].n_cell <= slot->n_live) {
        slot->end--;
    }
    if (slot->end == slot->room) {
        size_t room = slot->room == 0 ? 64 : 2 * slot->room;
        struct model_drop *drop = reallocarray(slot->drop, room, sizeof(*drop));
        if (drop == NULL) {
            return bench_error("out of memory");
        }
        slot->drop = drop;
        slot->room = room;
    }
    slot->drop[slot->end++] = (struct model_drop){.gone_ms = gone_ms, .n_cell = slot->n_live};
    slot->n_live = n;
    return 0;
}

/* What the clock alone does to a stream: an idle one is cut. */
static int model_age(const struct policy_state *state, struct model_slot *slot)
{
    uint64_t now_ms = *state->now_us / 1000, idle_ms = state->config->idle_ms;
    if (!slot->used || idle_ms == 0 || now_ms - slot->last_ms < idle_ms) {
        return 0;
    }
    uint32_t initial = bench_initial(state->config);
    if (state->tight) {
        slot->n_live = slot->n_live < initial ? slot->n_live : initial;
        return 0;
    }
    return model_cut(slot, initial, slot->last_ms + idle_ms);
}

static void model_destroy(struct policy_state *state)
{
    for (uint32_t s = 0; state->slot != NULL && s < state->config->n_slot; s++) {
        free(state->slot[s].drop);
    }
    free(state->slot);
    free(state->n_cell);
    free(state);
}

static int model_create(struct policy_state **out, const struct bench_config *config, const uint64_t *now_us)
{
    struct policy_state *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        return bench_error("out of memory");
    }
    state->config = config;
    state->now_us = now_us;
    state->slot = calloc(config->n_slot, sizeof(*state->slot));
    state->n_cell = calloc(config->n_slot, sizeof(*state->n_cell));
    if (state->slot == NULL || state->n_cell == NULL) {
        model_destroy(state);
        return bench_error("out of memory");
    }
    *out = state;
    return 0;
}

static int tight_create(struct policy_state **out, const struct bench_config *config, const uint64_t *now_us)
{
    int status = model_create(out, config, now_us);
    if (status == 0) {
        (*out)->tight = true;
    }
    return status;
}

static int model_begin(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t n_prompt,
                       uint32_t limit, uint32_t *kept)
{
    (void)token, (void)n_prompt;
    struct model_slot *here = &state->slot[slot];
    if (model_age(state, here) != 0 || model_cut(here, limit, *state->now_us / 1000) != 0) {
        return -1;
    }
    *kept = here->n_live;
    return 0;
}

static int model_step(struct policy_state *state, uint32_t slot, const int32_t *token, uint32_t pos, uint32_t n)
{
    (void)token;
    struct model_slot *here = &state->slot[slot];
    if (pos != here->n_live || n > state->config->kv_size - pos) {
        return bench_error("a batch at position %u of a slot that holds %u", pos, here->n_live);
    }
    here->n_live = pos + n;
    here->used = true;
    here->last_ms = *state->now_us / 1000;
    return 0;
}

/* With idle 0 nothing is ever given back: the greatest n so far stays. */
static int model_resident(struct policy_state *state, uint64_t *bytes)
{
    uint64_t now_ms = *state->now_us / 1000, window_ms = state->config->idle_ms + state->config->idle_ms / 2;
    for (uint32_t s = 0; s < state->config->n_slot; s++) {
        struct model_slot *here = &state->slot[s];
        if (model_age(state, here) != 0) {
            return -1;
        }
        while (window_ms != 0 && here->first < here->end && here->drop[here->first].gone_ms + window_ms < now_ms) {
            here->first++;
        }
        uint32_t n = here->n_live;
        if (here->first < here->end && here->drop[here->first].n_cell > n) {
            n = here->drop[here->first].n_cell;
        }
        state->n_cell[s] = n;
    }
    *bytes = model_cover_bytes(state->config, state->n_cell);
    return 0;
}

const struct policy policy_model = {
    .name = "model",
    .create = model_create,
    .destroy = model_destroy,
    .begin = model_begin,
    .step = model_step,
    .resident = model_resident,
    .ages = true,
};

const struct policy policy_model_tight = {
    .name = "tight model",
    .create = tight_create,
    .destroy = model_destroy,
    .begin = model_begin,
    .step = model_step,
    .resident = model_resident,
    .ages = true,
};
