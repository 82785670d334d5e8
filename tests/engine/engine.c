/* SPDX-License-Identifier: MIT */
/*
 * engine: slots, batches and ubatches of the reference engine; engine.h says what they are for. run_batch() below
 * is the part to read: it opens with the batch already begun, prepares it whole, applies and computes it ubatch by
 * ubatch, takes back the one that failed, and ends it on every way out. prefill() decides where to go on inside
 * the bracket, decode trusts its record and is told by EPOS when that is too long. It never sees a cell's content.
 */
#include "engine.h"

#include <stdlib.h>
#include <string.h>

typedef struct slot_state {
    uint8_t *token; /* [n_ctx] */
    float *logits;  /* [n_ctx][n_vocab] */
    uint32_t *past; /* [n_ctx]: cells in position order, good for one ubatch */
    uint32_t n;     /* tokens held */
} slot_state;

struct engine {
    engine_config config;
    engine_kv *kv;
    model *model;
    slot_state *slot;
    engine_counts counts;
    uint32_t break_after, break_times;

    /* The batch that is being built, [n_batch], and how it is cut. */
    uint32_t n_token;
    uint8_t *token;
    kvlazy_pos *pos;
    kvlazy_seq_id *seq;
    kvlazy_ubatch *ubatch;
    kvlazy_slot *place;

    const uint32_t **past; /* [n_ubatch] */
    float **logits;        /* [n_ubatch] */
    bool *placed;          /* [n_slot] */
};

/* ---- life ---- */

static bool make_slots(engine *e)
{
    const engine_config *c = &e->config;

    e->slot = calloc(c->n_slot, sizeof *e->slot);
    for (uint32_t i = 0; e->slot != NULL && i < c->n_slot; i++) {
        slot_state *s = &e->slot[i];

        s->token = calloc(c->n_ctx, sizeof *s->token);
        s->logits = calloc((size_t)c->n_ctx * c->dims.n_vocab, sizeof *s->logits);
        s->past = calloc(c->n_ctx, sizeof *s->past);
        if (!s->token || !s->logits || !s->past) {
            return false;
        }
    }
    return e->slot != NULL;
}

static bool make_batch(engine *e)
{
    const engine_config *c = &e->config;
    const uint32_t n_cut = (c->n_batch + c->n_ubatch - 1) / c->n_ubatch;

    e->token = calloc(c->n_batch, sizeof *e->token);
    e->pos = calloc(c->n_batch, sizeof *e->pos);
    e->seq = calloc(c->n_batch, sizeof *e->seq);
    e->ubatch = calloc(n_cut, sizeof *e->ubatch);
    e->place = calloc(n_cut, sizeof *e->place);
    e->past = calloc(c->n_ubatch, sizeof *e->past);
    e->logits = calloc(c->n_ubatch, sizeof *e->logits);
    e->placed = calloc(c->n_slot, sizeof *e->placed);
    return e->token && e->pos && e->seq && e->ubatch && e->place && e->past && e->logits && e->placed;
}

int engine_create(const engine_config *config, engine_kv *kv, engine **out)
{
    engine *e;

    if (!config->n_slot || !config->n_ctx || !config->n_batch || !config->n_ubatch) {
        return KVLAZY_EINVAL;
    }
    e = calloc(1, sizeof *e);
    if (e == NULL) {
        return KVLAZY_ENOMEM;
    }
    e->config = *config;
    e->kv = kv;
    e->model = model_create(&config->dims, config->seed, config->f16, config->n_ubatch, config->n_ctx);
    if (e->model == NULL || !make_slots(e) || !make_batch(e)) {
        engine_destroy(e);
        return KVLAZY_ENOMEM;
    }
    *out = e;
    return KVLAZY_OK;
}

void engine_destroy(engine *e)
{
    if (e == NULL) {
        return;
    }
    for (uint32_t i = 0; e->slot != NULL && i < e->config.n_slot; i++) {
        free(e->slot[i].token);
        free(e->slot[i].logits);
        free(e->slot[i].past);
    }
    free(e->slot);
    free(e->token);
    free(e->pos);
    free(e->seq);
    free(e->ubatch);
    free(e->place);
    free(e->past);
    free(e->logits);
    free(e->placed);
    model_destroy(e->model);
    free(e);
}

engine_kv_config engine_kv_config_for(const engine_config *config, uint32_t n_stream)
{
    return (engine_kv_config){
        .n_layer = config->dims.n_layer,
        .row_bytes = model_row_bytes(&config->dims, config->f16),
        .kv_size = config->n_ctx,
        .n_seq = config->n_slot,
        .n_stream = n_stream,
        .n_batch = config->n_batch,
    };
}

/* ---- batches ---- */

static void batch_add(engine *e, uint32_t slot, uint8_t token, uint32_t pos)
{
    e->token[e->n_token] = token;
    e->pos[e->n_token] = (kvlazy_pos)pos;
    e->seq[e->n_token] = (kvlazy_seq_id)slot;
    e->n_token++;
}

static uint32_t batch_cut(engine *e)
{
    uint32_t n_cut = 0;

    for (uint32_t at = 0; at < e->n_token; at += e->config.n_ubatch) {
        const uint32_t left = e->n_token - at;

        e->ubatch[n_cut++] = (kvlazy_ubatch){
            .n_token = left < e->config.n_ubatch ? left : e->config.n_ubatch,
            .pos = e->pos + at,
            .seq = e->seq + at,
        };
    }
    return n_cut;
}

/* Lists the cells of every sequence of the ubatch, once each. Attention may read below n_kv only. */
static int list_past(engine *e, const kvlazy_ubatch *ubatch, uint32_t n_kv)
{
    memset(e->placed, 0, e->config.n_slot * sizeof *e->placed);
    for (uint32_t i = 0; i < ubatch->n_token; i++) {
        const kvlazy_seq_id seq = ubatch->seq[i];
        slot_state *s = &e->slot[seq];
        const uint32_t n_pos = (uint32_t)(e->kv->ops->seq_pos_max(e->kv, seq) + 1);

        e->past[i] = s->past;
        e->logits[i] = s->logits + (size_t)ubatch->pos[i] * e->config.dims.n_vocab;
        if (e->placed[seq]) {
            continue;
        }
        if (n_pos > e->config.n_ctx || e->kv->ops->place(e->kv, seq, s->past, n_pos) != KVLAZY_OK) {
            return KVLAZY_ESTATE;
        }
        for (uint32_t p = 0; p < n_pos; p++) {
            if (s->past[p] >= n_kv) {
                return KVLAZY_ESTATE;
            }
        }
        e->placed[seq] = true;
    }
    return KVLAZY_OK;
}

/* Whether the model is to fail now. */
static bool is_broken(engine *e)
{
    if (e->break_times == 0 || e->break_after > 0) {
        e->break_after -= e->break_times != 0;
        return false;
    }
    e->break_times--;
    return true;
}

static int compute(engine *e, const kvlazy_ubatch *ubatch, const kvlazy_slot *place)
{
    const size_t first = (size_t)(ubatch->pos - e->pos);
    int status = list_past(e, ubatch, e->kv->ops->n_kv(e->kv, place));
    model_step step;

    if (status != KVLAZY_OK) {
        return status;
    }
    step = (model_step){
        .n_token = ubatch->n_token,
        .token = e->token + first,
        .pos = ubatch->pos,
        .stream = place->stream,
        .cell = place->cell,
        .past = e->past,
        .logits = e->logits,
        .fail = is_broken(e),
    };
    e->counts.computed += ubatch->n_token;
    if (!model_run(e->model, e->kv->k, e->kv->v, &step)) {
        return ENGINE_ECOMPUTE;
    }
    for (uint32_t i = 0; i < ubatch->n_token; i++) {
        slot_state *s = &e->slot[ubatch->seq[i]];

        s->token[ubatch->pos[i]] = e->token[first + i];
        s->n = (uint32_t)ubatch->pos[i] + 1;
    }
    return KVLAZY_OK;
}

/* A failed computation is taken back and tried once more in the same cells. */
static int run_ubatch(engine *e, const kvlazy_ubatch *ubatch, const kvlazy_slot *place)
{
    int status = KVLAZY_OK;

    for (int try = 0; try < 2; try++) {
        status = e->kv->ops->apply_ubatch(e->kv, place, ubatch);
        if (status != KVLAZY_OK) {
            return status;
        }
        status = compute(e, ubatch, place);
        if (status == KVLAZY_OK) {
            return KVLAZY_OK;
        }
        e->counts.undone++;
        if (e->kv->ops->undo_ubatch(e->kv, place) != KVLAZY_OK) {
            return KVLAZY_ESTATE;
        }
        if (status != ENGINE_ECOMPUTE) {
            return status;
        }
    }
    return status;
}

static int finish_batch(engine *e, int status)
{
    int end = e->kv->ops->end_batch(e->kv);

    if (end == KVLAZY_OK && e->config.on_batch != NULL) {
        end = e->config.on_batch(e->config.batch_ctx);
    }
    return status != KVLAZY_OK ? status : end;
}

/* Runs what batch_add() gathered since init_batch, and ends the batch. */
static int run_batch(engine *e)
{
    const uint32_t n_ubatch = batch_cut(e);
    int status = e->kv->ops->prepare(e->kv, e->ubatch, n_ubatch, e->place);

    for (uint32_t i = 0; status == KVLAZY_OK && i < n_ubatch; i++) {
        status = run_ubatch(e, &e->ubatch[i], &e->place[i]);
    }
    return finish_batch(e, status);
}

/* ---- prompts ---- */

/* Cuts the slot to n tokens. What is no longer known gets bytes that are no number, so that a token which is not
 * computed again cannot pass for one that was. */
static void cut_record(engine *e, slot_state *s, uint32_t n)
{
    const size_t n_vocab = e->config.dims.n_vocab;

    if (n < s->n) {
        memset(s->logits + n * n_vocab, 0xff, (s->n - n) * n_vocab * sizeof *s->logits);
        s->n = n;
    }
}

/* Inside an open batch: how much of the prompt is there already. The rest of the slot goes. */
static int resume(engine *e, uint32_t slot, const uint8_t *token, uint32_t n, uint32_t *at)
{
    slot_state *s = &e->slot[slot];
    const uint32_t n_live = (uint32_t)(e->kv->ops->seq_pos_max(e->kv, (kvlazy_seq_id)slot) + 1);
    uint32_t keep = 0;
    int status;

    while (keep < n && keep < s->n && token[keep] == s->token[keep]) {
        keep++;
    }
    if (keep > n_live) {
        e->counts.recomputed += keep - n_live;
        keep = n_live;
    }
    keep = keep < n ? keep : n - 1;
    status = e->kv->ops->seq_rm(e->kv, (kvlazy_seq_id)slot, (kvlazy_pos)keep, -1);
    if (status == KVLAZY_OK) {
        cut_record(e, s, keep);
        *at = keep;
    }
    return status;
}

/* Every batch asks anew where to go on, inside its bracket: between two of them tokens may have been evicted. */
static int prefill(engine *e, uint32_t slot, const uint8_t *token, uint32_t n, uint32_t *n_reused)
{
    uint32_t at = 0, first = UINT32_MAX;
    int status;

    do {
        status = e->kv->ops->init_batch(e->kv);
        if (status == KVLAZY_OK) {
            status = resume(e, slot, token, n, &at);
        }
        if (status != KVLAZY_OK) {
            return finish_batch(e, status);
        }
        first = first == UINT32_MAX ? at : first;
        for (e->n_token = 0; at < n && e->n_token < e->config.n_batch; at++) {
            batch_add(e, slot, token[at], at);
        }
        status = run_batch(e);
    } while (status == KVLAZY_OK && at < n);
    *n_reused = first;
    return status;
}

int engine_prompt(engine *e, uint32_t slot, const uint8_t *token, uint32_t n)
{
    uint32_t n_reused = 0;
    int status;

    if (slot >= e->config.n_slot || n == 0) {
        return KVLAZY_EINVAL;
    }
    if (n > e->config.n_ctx) {
        return KVLAZY_ENOSLOT;
    }
    status = prefill(e, slot, token, n, &n_reused);
    e->counts.reused += n_reused;
    return status;
}

/* ---- decode ---- */

static uint8_t likeliest(const engine *e, const slot_state *s)
{
    const uint32_t n_vocab = e->config.dims.n_vocab;
    const float *logits = s->logits + (size_t)(s->n - 1) * n_vocab;
    uint32_t best = 0;

    for (uint32_t i = 1; i < n_vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return (uint8_t)best;
}

/* The record is longer than what the cache kept: computes the lost tokens from the record itself. */
static int restore(engine *e, kvlazy_seq_id seq)
{
    slot_state *s = &e->slot[seq];
    uint32_t n_reused;

    e->counts.refused++;
    return prefill(e, (uint32_t)seq, s->token, s->n, &n_reused);
}

int engine_decode(engine *e, const uint32_t *slot, uint32_t n_slot)
{
    int status = KVLAZY_EPOS;

    for (uint32_t i = 0; i < n_slot; i++) {
        if (slot[i] >= e->config.n_slot || e->slot[slot[i]].n == 0 || n_slot > e->config.n_batch) {
            return KVLAZY_EINVAL;
        }
        if (e->slot[slot[i]].n == e->config.n_ctx) {
            return KVLAZY_ENOSLOT;
        }
    }
    for (uint32_t round = 0; status == KVLAZY_EPOS && round <= n_slot; round++) {
        status = round == 0 ? KVLAZY_OK : restore(e, e->kv->ops->refused(e->kv));
        if (status == KVLAZY_OK) {
            status = e->kv->ops->init_batch(e->kv);
        }
        if (status != KVLAZY_OK) {
            return finish_batch(e, status);
        }
        e->n_token = 0;
        for (uint32_t i = 0; i < n_slot; i++) {
            batch_add(e, slot[i], likeliest(e, &e->slot[slot[i]]), e->slot[slot[i]].n);
        }
        status = run_batch(e);
    }
    return status;
}

/* ---- the rest ---- */

int engine_drop(engine *e, uint32_t slot)
{
    int status;

    if (slot >= e->config.n_slot) {
        return KVLAZY_EINVAL;
    }
    status = e->kv->ops->seq_rm(e->kv, (kvlazy_seq_id)slot, -1, -1);
    if (status == KVLAZY_OK) {
        cut_record(e, &e->slot[slot], 0);
    }
    return status;
}

int engine_idle(engine *e, uint64_t *next_ms)
{
    return e->kv->ops->poll(e->kv, next_ms);
}

const uint8_t *engine_record(const engine *e, uint32_t slot, uint32_t *n)
{
    *n = e->slot[slot].n;
    return e->slot[slot].token;
}

const float *engine_logits(const engine *e, uint32_t slot, uint32_t pos)
{
    return e->slot[slot].logits + (size_t)pos * e->config.dims.n_vocab;
}

void engine_get_counts(const engine *e, engine_counts *counts)
{
    *counts = e->counts;
}

void engine_break(engine *e, uint32_t after, uint32_t times)
{
    e->break_after = after;
    e->break_times = times;
}
