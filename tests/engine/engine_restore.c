/* SPDX-License-Identifier: MIT */
/* engine_restore: see engine_restore.h. */
#include "engine_restore.h"

#include <stdlib.h>

/* Rows of n tokens, by tensor: K of all layers, then V. */
typedef struct saved {
    uint32_t n, n_layer;
    size_t token_bytes;
    char *row;
} saved;

static const kvlazy_tensor *tensor_of(const engine_batch *b, const saved *s, uint32_t i)
{
    return i < s->n_layer ? &b->kv->k[i] : &b->kv->v[i - s->n_layer];
}

/* Rows go out or come in, token by token at the cells where these are. */
static int copy_rows(engine_batch *b, const saved *s, kvlazy_seq_id seq, bool out, uint32_t from)
{
    uint32_t *cell = b->cells + (size_t)seq * b->n_ctx;
    const uint32_t n_live = engine_batch_n_live(b, seq);
    const int status = b->kv->ops->place(b->kv, seq, cell, n_live);

    for (uint32_t p = from; status == KVLAZY_OK && p < n_live; p++) {
        char *row = s->row + p * s->token_bytes;

        for (uint32_t i = 0; i < 2 * s->n_layer; i++) {
            const kvlazy_tensor *t = tensor_of(b, s, i);

            (out ? engine_kv_get_cell(t, engine_kv_stream(b->kv, seq), cell[p], row)
                 : engine_kv_put_cell(t, engine_kv_stream(b->kv, seq), cell[p], row));
            row += t->row_bytes;
        }
    }
    return status;
}

static int save(engine_batch *b, saved *s, kvlazy_seq_id seq)
{
    s->n = engine_batch_n_live(b, seq);
    while (s->n_layer < ENGINE_MAX_LAYER && b->kv->k[s->n_layer].data != NULL) {
        s->token_bytes += b->kv->k[s->n_layer].row_bytes + b->kv->v[s->n_layer].row_bytes;
        s->n_layer++;
    }
    s->row = calloc((size_t)s->n + 1, s->token_bytes);
    return s->row != NULL ? copy_rows(b, s, seq, true, 0) : KVLAZY_ENOMEM;
}

/* The next tokens of a sequence get their cells, in one ubatch: the first as tokens that were saved, the others as
 * tokens that go on. */
static int put_some(engine_batch *b, const saved *s, kvlazy_seq_id seq, bool late)
{
    const uint32_t n_live = engine_batch_n_live(b, seq);
    int status;

    while (b->n_token < b->n_ubatch_max && n_live + b->n_token < s->n) {
        engine_batch_add(b, seq, 0, n_live + b->n_token, NULL);
    }
    b->ubatch[0] = (kvlazy_ubatch){.n_token = b->n_token, .pos = b->pos, .seq = b->seq};
    status = (n_live == 0 ? b->kv->ops->prepare_restore : b->kv->ops->prepare)(b->kv, b->ubatch, 1, b->place);
    if (status == KVLAZY_OK) {
        status = b->kv->ops->apply_ubatch(b->kv, b->place, b->ubatch);
    }
    return status == KVLAZY_OK && !late ? copy_rows(b, s, seq, false, n_live) : status;
}

int engine_restore_sequence(engine_batch *b, kvlazy_seq_id seq, bool late)
{
    saved s = {0};
    int status = engine_batch_open(b);

    if (status == KVLAZY_OK) {
        status = save(b, &s, seq);
    }
    status = engine_batch_end(b, status);
    if (status == KVLAZY_OK) {
        status = b->kv->ops->seq_rm(b->kv, seq, -1, -1);
    }
    while (status == KVLAZY_OK && engine_batch_n_live(b, seq) < s.n) {
        status = engine_batch_open(b);
        if (status == KVLAZY_OK) {
            status = put_some(b, &s, seq, late);
        }
        status = engine_batch_end(b, status);
    }
    if (status == KVLAZY_OK && late) {
        status = copy_rows(b, &s, seq, false, 0);
    }
    free(s.row);
    return status;
}
