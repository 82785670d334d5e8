/* SPDX-License-Identifier: MIT */
/*
 * engine_batch: the hooks in the order an engine calls them; engine_batch.h says who does. engine_batch_run() is the
 * part to read: it prepares the whole batch, applies and computes it ubatch by ubatch, and takes back the one that
 * failed. It finds a sequence's cells anew for every ubatch, and never looks at a
 * row.
 */
#include "engine_batch.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

int engine_batch_init(engine_batch *b, const engine_config *config, engine_kv *kv)
{
    const uint32_t n_cut = (config->n_batch + config->n_ubatch - 1) / config->n_ubatch;

    b->kv = kv;
    b->n_max = config->n_batch;
    b->n_ubatch_max = config->n_ubatch;
    b->n_seq = config->n_slot;
    b->n_ctx = config->n_ctx;
    b->on_batch = config->on_batch;
    b->batch_ctx = config->batch_ctx;
    b->model = model_create(&config->dims, config->seed, &config->layout, config->n_ubatch, config->n_ctx, kv->kv_size);
    b->token = calloc(b->n_max, sizeof *b->token);
    b->pos = calloc(b->n_max, sizeof *b->pos);
    b->seq = calloc(b->n_max, sizeof *b->seq);
    b->logits = calloc(b->n_max, sizeof *b->logits);
    b->ubatch = calloc(n_cut, sizeof *b->ubatch);
    b->place = calloc(n_cut, sizeof *b->place);
    b->cells = calloc((size_t)b->n_seq * b->n_ctx, sizeof *b->cells);
    b->placed = calloc(b->n_seq, sizeof *b->placed);
    b->past = calloc(b->n_ubatch_max, sizeof *b->past);
    return b->model && b->token && b->pos && b->seq && b->logits && b->ubatch && b->place && b->cells && b->placed &&
                   b->past
               ? KVLAZY_OK
               : KVLAZY_ENOMEM;
}

void engine_batch_free(engine_batch *b)
{
    model_destroy(b->model);
    free(b->token);
    free(b->pos);
    free(b->seq);
    free(b->logits);
    free(b->ubatch);
    free(b->place);
    free(b->cells);
    free(b->placed);
    free(b->past);
}

/* ---- building ---- */

int engine_batch_open(engine_batch *b)
{
    engine_batch_next(b);
    return b->kv->ops->init_batch(b->kv);
}

void engine_batch_next(engine_batch *b)
{
    b->n_token = 0;
    b->n_done = 0;
}

uint32_t engine_batch_n_live(const engine_batch *b, kvlazy_seq_id seq)
{
    return (uint32_t)(b->kv->ops->seq_pos_max(b->kv, seq) + 1);
}

void engine_batch_add(engine_batch *b, kvlazy_seq_id seq, uint8_t token, uint32_t pos, float *logits)
{
    b->token[b->n_token] = token;
    b->pos[b->n_token] = (kvlazy_pos)pos;
    b->seq[b->n_token] = seq;
    b->logits[b->n_token] = logits;
    b->n_token++;
}

static uint32_t cut(engine_batch *b)
{
    uint32_t n_cut = 0;

    for (uint32_t at = 0; at < b->n_token; at += b->n_ubatch_max) {
        const uint32_t left = b->n_token - at;

        b->ubatch[n_cut++] = (kvlazy_ubatch){
            .n_token = left < b->n_ubatch_max ? left : b->n_ubatch_max,
            .pos = b->pos + at,
            .seq = b->seq + at,
        };
    }
    return n_cut;
}

/* ---- computing ---- */

/* Lists the cells of every sequence of the ubatch, once each. Attention may read below n_kv only. */
static int list_past(engine_batch *b, const kvlazy_ubatch *ubatch, uint32_t n_kv)
{
    memset(b->placed, 0, b->n_seq * sizeof *b->placed);
    for (uint32_t i = 0; i < ubatch->n_token; i++) {
        const kvlazy_seq_id seq = ubatch->seq[i];
        uint32_t *cells = b->cells + (size_t)seq * b->n_ctx;
        uint32_t n_pos;

        b->past[i] = cells;
        if (b->placed[seq]) {
            continue;
        }
        n_pos = engine_batch_n_live(b, seq);
        if (n_pos > b->n_ctx || b->kv->ops->place(b->kv, seq, cells, n_pos) != KVLAZY_OK) {
            return KVLAZY_ESTATE;
        }
        for (uint32_t p = 0; p < n_pos; p++) {
            if (cells[p] >= n_kv) {
                return KVLAZY_ESTATE;
            }
        }
        b->placed[seq] = true;
    }
    return KVLAZY_OK;
}

/* Whether the model is to fail now. */
static bool is_broken(engine_batch *b)
{
    if (b->break_times == 0 || b->break_after > 0) {
        b->break_after -= b->break_times != 0;
        return false;
    }
    b->break_times--;
    return true;
}

static int compute(engine_batch *b, const kvlazy_ubatch *ubatch, const kvlazy_slot *place)
{
    const size_t first = (size_t)(ubatch->pos - b->pos);
    const uint32_t n_kv = b->kv->ops->n_kv(b->kv, place);
    const int status = list_past(b, ubatch, n_kv);
    model_step step;

    if (status != KVLAZY_OK) {
        return status;
    }
    step = (model_step){
        .n_token = ubatch->n_token,
        .n_kv = n_kv,
        .token = b->token + first,
        .pos = ubatch->pos,
        .stream = place->stream,
        .cell = place->cell,
        .past = b->past,
        .logits = b->logits + first,
        .fail = is_broken(b),
    };
    b->n_computed += ubatch->n_token;
    return model_run(b->model, b->kv->k, b->kv->v, &step) ? KVLAZY_OK : ENGINE_ECOMPUTE;
}

/* A failed computation is taken back and tried once more in the same cells. */
static int run_ubatch(engine_batch *b, const kvlazy_ubatch *ubatch, const kvlazy_slot *place)
{
    int status = KVLAZY_OK;

    for (int try = 0; try < 2; try++) {
        status = b->kv->ops->apply_ubatch(b->kv, place, ubatch);
        if (status != KVLAZY_OK) {
            return status;
        }
        status = compute(b, ubatch, place);
        if (status == KVLAZY_OK) {
            b->n_done += ubatch->n_token;
            return KVLAZY_OK;
        }
        b->n_undone++;
        if (b->kv->ops->undo_ubatch(b->kv, place) != KVLAZY_OK) {
            return KVLAZY_ESTATE;
        }
        if (status != ENGINE_ECOMPUTE) {
            return status;
        }
    }
    return status;
}

int engine_batch_run(engine_batch *b)
{
    const uint32_t n_ubatch = cut(b);
    int status = b->kv->ops->prepare(b->kv, b->ubatch, n_ubatch, b->place);

    for (uint32_t i = 0; status == KVLAZY_OK && i < n_ubatch; i++) {
        status = run_ubatch(b, &b->ubatch[i], &b->place[i]);
    }
    return status;
}

int engine_batch_end(engine_batch *b, int status)
{
    int end = b->kv->ops->end_batch(b->kv);

    if (end == KVLAZY_OK && b->on_batch != NULL) {
        end = b->on_batch(b->batch_ctx);
    }
    return status != KVLAZY_OK ? status : end;
}
