/* SPDX-License-Identifier: MIT */
/*
 * engine_compact: what a conversation says whose rows moved. One engine computes a sequence and another behind it,
 * drops the first and idles, so that the second moves down; a twin on calloc never saw the first. Their logits are
 * compared, and the rows before and after. Tests and the bench call it; it prints nothing.
 */
#include "engine_session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_GONE = 300, N_STAY = 100, N_MORE = 20, IDLE_MS = 30000 };

typedef struct side {
    engine_kv *kv;
    engine *e;
} side;

typedef struct scene {
    engine_config config;
    kvlazy_mem mem;
    uint64_t clock_ms;
    side moved, twin;
    uint32_t cell[N_STAY];
    size_t n_bytes; /* of what is saved */
    char *before, *after;
} scene;

static uint64_t scene_clock(void *ctx)
{
    return ((const scene *)ctx)->clock_ms;
}

static int open_scene(scene *s, const engine_session_config *config)
{
    engine_kv_config kv_config;
    int status;

    s->mem = *kvlazy_mem_host();
    s->mem.ctx = s;
    s->mem.now_ms = scene_clock;
    s->config = (engine_config){
        .dims = {.n_layer = 2, .n_embd = 64, .n_head = 4, .n_kv_head = 2, .n_ff = 128, .n_vocab = 256},
        .seed = 21,
        .layout = config->layout,
        .n_slot = 2,
        .n_ctx = 512,
        .n_batch = 64,
        .n_ubatch = 32,
    };
    kv_config = engine_kv_config_for(&s->config, 1);
    kv_config.kv_size_initial = 256;
    kv_config.slot_shrink_idle_ms = IDLE_MS;
    kv_config.mem = &s->mem;
    s->n_bytes = s->config.dims.n_layer * (kv_config.k_row_bytes + kv_config.v_row_bytes) * N_STAY;
    s->before = calloc(s->n_bytes, 1);
    s->after = calloc(s->n_bytes, 1);
    status = s->before && s->after ? engine_session_create_kv(config->kv, &kv_config, &s->moved.kv) : KVLAZY_ENOMEM;
    if (status == KVLAZY_OK) {
        status = engine_kv_plain_create(&kv_config, &s->twin.kv);
    }
    if (status == KVLAZY_OK) {
        status = engine_create(&s->config, s->moved.kv, &s->moved.e);
    }
    return status == KVLAZY_OK ? engine_create(&s->config, s->twin.kv, &s->twin.e) : status;
}

static void close_side(side *it)
{
    engine_destroy(it->e);
    if (it->kv != NULL) {
        it->kv->ops->destroy(it->kv);
    }
}

static void close_scene(scene *s)
{
    close_side(&s->moved);
    close_side(&s->twin);
    free(s->before);
    free(s->after);
}

/* Every byte of the sequence that stays, in position order. */
static int save(scene *s, char *to)
{
    engine_kv *kv = s->moved.kv;
    int status = kv->ops->init_batch(kv);

    if (status == KVLAZY_OK) {
        status = kv->ops->place(kv, 1, s->cell, N_STAY);
    }
    for (uint32_t p = 0; status == KVLAZY_OK && p < N_STAY; p++) {
        for (uint32_t i = 0; i < 2 * s->config.dims.n_layer; i++) {
            const kvlazy_tensor *t = (i & 1 ? kv->v : kv->k) + i / 2;

            engine_kv_get_cell(t, 0, s->cell[p], to);
            to += t->row_bytes;
        }
    }
    if (kv->ops->end_batch(kv) != KVLAZY_OK) {
        return KVLAZY_ESTATE;
    }
    return status;
}

static int idle(scene *s)
{
    uint64_t next_ms = 0;
    int status = KVLAZY_OK;

    for (uint32_t i = 0; status == KVLAZY_OK && i < 10; i++) {
        status = engine_idle(s->moved.e, &next_ms);
        s->clock_ms += next_ms < 2 * IDLE_MS ? next_ms : IDLE_MS;
    }
    return status;
}

/* The sequence lies where the other one did, and is the same. */
static int look(const scene *s)
{
    for (uint32_t p = 0; p < N_STAY; p++) {
        if (s->cell[p] != p) {
            return KVLAZY_ESTATE;
        }
    }
    return memcmp(s->before, s->after, s->n_bytes) == 0 ? kvlazy_check(s->moved.kv->cache, NULL) : KVLAZY_ESTATE;
}

static int play(scene *s)
{
    const uint8_t *text = (const uint8_t *)engine_text;
    int status = engine_prompt(s->moved.e, 0, text + 500, N_GONE);

    if (status == KVLAZY_OK) {
        status = engine_prompt(s->moved.e, 1, text, N_STAY);
    }
    if (status == KVLAZY_OK) {
        status = save(s, s->before);
    }
    if (status == KVLAZY_OK) {
        status = engine_drop(s->moved.e, 0);
    }
    if (status == KVLAZY_OK) {
        status = idle(s);
    }
    if (status == KVLAZY_OK) {
        status = save(s, s->after);
    }
    return status == KVLAZY_OK ? look(s) : status;
}

static int talk_on(scene *s)
{
    const uint32_t slot = 1;
    int status = engine_prompt(s->twin.e, slot, (const uint8_t *)engine_text, N_STAY);

    for (uint32_t i = 0; status == KVLAZY_OK && i < N_MORE; i++) {
        status = engine_decode(s->twin.e, &slot, 1);
        if (status == KVLAZY_OK) {
            status = engine_decode(s->moved.e, &slot, 1);
        }
    }
    return status;
}

static int compare(const scene *s, double *max)
{
    for (uint32_t pos = 0; pos < N_STAY + N_MORE; pos++) {
        const float *a = engine_logits(s->moved.e, 1, pos), *b = engine_logits(s->twin.e, 1, pos);

        for (uint32_t i = 0; i < s->config.dims.n_vocab; i++) {
            const double difference = fabs((double)a[i] - (double)b[i]);

            *max = !isfinite(difference) ? INFINITY : difference > *max ? difference : *max;
        }
    }
    return KVLAZY_OK;
}

int engine_compact(const engine_session_config *config, double *max)
{
    scene s = {.clock_ms = 1000};
    engine_counts counts;
    int status = open_scene(&s, config);

    *max = 0.0;
    if (status == KVLAZY_OK) {
        status = play(&s);
    }
    if (status == KVLAZY_OK) {
        status = talk_on(&s);
    }
    if (status == KVLAZY_OK) {
        engine_get_counts(s.moved.e, &counts);
        status = counts.recomputed == 0 ? compare(&s, max) : KVLAZY_ESTATE;
    }
    close_scene(&s);
    return status;
}

int engine_compact_max_dlogit(double *max)
{
    uint32_t n;
    const engine_session_config *configs = engine_session_configs(&n);
    int status = KVLAZY_OK;

    *max = 0.0;
    for (uint32_t i = 0; status == KVLAZY_OK && i < n; i++) {
        double here = 0.0;

        status = configs[i].n_stream == 1 ? engine_compact(&configs[i], &here) : KVLAZY_OK;
        *max = here > *max ? here : *max;
    }
    return status;
}
