/* SPDX-License-Identifier: MIT */
/*
 * engine_kv_plain: the reference engine's cache as engines had it before: one calloc, position p of sequence s in
 * row p of run s, nothing ever given back. The session runs it beside kvlazy and compares; it answers the same
 * status codes where the engine can tell. It keeps one run of rows per sequence whatever n_stream says, and
 * never drops a token by itself, so it is the truth that the lazy side is held against.
 */
#include "engine_kv.h"

#include <stdlib.h>
#include <string.h>

typedef struct plain_kv {
    engine_kv base;
    char *rows;              /* [n_layer][K, V][n_seq][kv_size] rows, or the channels of a transposed V */
    uint32_t *n_pos;         /* [n_seq]: positions 0 … n_pos - 1 are held */
    uint32_t *next;          /* [n_seq]: the same while a batch is planned */
    uint32_t *stream, *cell; /* [n_batch]: the plan that slots point into */
    kvlazy_pos *shift;       /* [n_seq][kv_size] */
    bool is_shifted;
    uint32_t n_layer, kv_size, n_seq, n_pad, n_batch;
    kvlazy_seq_id refused;
} plain_kv;

static plain_kv *plain_of(engine_kv *kv)
{
    return (plain_kv *)kv;
}

static int plain_nothing(engine_kv *kv)
{
    (void)kv;
    return KVLAZY_OK;
}

/* Plans one token at `at`; the batch as a whole either fits or changes nothing. */
static int plan_token(plain_kv *plain, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t at)
{
    if (seq < 0 || (uint32_t)seq >= plain->n_seq || pos < 0 || at >= plain->n_batch) {
        return KVLAZY_EINVAL;
    }
    plain->refused = seq;
    if ((uint32_t)pos != plain->next[seq]) {
        return KVLAZY_EPOS;
    }
    if ((uint32_t)pos >= plain->kv_size) {
        return KVLAZY_ENOSLOT;
    }
    plain->next[seq]++;
    plain->stream[at] = (uint32_t)seq;
    plain->cell[at] = (uint32_t)pos;
    return KVLAZY_OK;
}

static int plain_prepare(engine_kv *kv, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots)
{
    plain_kv *plain = plain_of(kv);
    uint32_t at = 0;

    memcpy(plain->next, plain->n_pos, plain->n_seq * sizeof *plain->next);
    for (uint32_t u = 0; u < n_ubatch; u++) {
        for (uint32_t i = 0; i < ubatch[u].n_token; i++, at++) {
            const int status = plan_token(plain, ubatch[u].seq[i], ubatch[u].pos[i], at);

            if (status != KVLAZY_OK) {
                return status;
            }
        }
    }
    plain->refused = -1;
    at = 0;
    for (uint32_t u = 0; u < n_ubatch; u++) {
        slots[u] = (kvlazy_slot){ubatch[u].n_token, plain->stream + at, plain->cell + at};
        at += ubatch[u].n_token;
    }
    return KVLAZY_OK;
}

static int plain_apply_ubatch(engine_kv *kv, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch)
{
    plain_kv *plain = plain_of(kv);

    (void)ubatch;
    for (uint32_t i = 0; i < slot->n_token; i++) {
        if (slot->cell[i] != plain->n_pos[slot->stream[i]]) {
            return KVLAZY_EINVAL;
        }
        plain->n_pos[slot->stream[i]]++;
    }
    return KVLAZY_OK;
}

static int plain_undo_ubatch(engine_kv *kv, const kvlazy_slot *slot)
{
    plain_kv *plain = plain_of(kv);

    for (uint32_t i = 0; i < slot->n_token; i++) {
        if (plain->n_pos[slot->stream[i]] > slot->cell[i]) {
            plain->n_pos[slot->stream[i]] = slot->cell[i];
        }
    }
    return KVLAZY_OK;
}

static uint32_t plain_n_kv(engine_kv *kv, const kvlazy_slot *slot)
{
    const plain_kv *plain = plain_of(kv);
    uint32_t end = 1;

    for (uint32_t i = 0; i < slot->n_token; i++) {
        const uint32_t n_pos = plain->n_pos[slot->stream[i]];

        end = slot->cell[i] >= end ? slot->cell[i] + 1 : end;
        end = n_pos > end ? n_pos : end;
    }
    end = (end + plain->n_pad - 1) / plain->n_pad * plain->n_pad;
    return end < plain->kv_size ? end : plain->kv_size;
}

static kvlazy_seq_id plain_refused(engine_kv *kv)
{
    return plain_of(kv)->refused;
}

static int plain_poll(engine_kv *kv, uint64_t *next_ms)
{
    (void)kv;
    if (next_ms != NULL) {
        *next_ms = UINT64_MAX;
    }
    return KVLAZY_OK;
}

/* Only tails go: the engine asks for nothing else. */
static int plain_seq_rm(engine_kv *kv, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    plain_kv *plain = plain_of(kv);
    const uint32_t keep = p0 < 0 ? 0 : (uint32_t)p0;

    if (seq < 0 || (uint32_t)seq >= plain->n_seq) {
        return KVLAZY_EINVAL;
    }
    if (p1 >= 0) {
        return KVLAZY_ENOTSUP;
    }
    if (plain->n_pos[seq] > keep) {
        plain->n_pos[seq] = keep;
    }
    return KVLAZY_OK;
}

/* n cells in every tensor, from `at` of run src to `to` of run dst. */
static void move_cells(plain_kv *plain, kvlazy_seq_id src, uint32_t at, kvlazy_seq_id dst, uint32_t to, uint32_t n)
{
    for (uint32_t i = 0; i < 2 * plain->n_layer; i++) {
        const kvlazy_tensor *t = (i & 1 ? plain->base.v : plain->base.k) + i / 2;

        for (uint32_t lane = 0; lane < engine_kv_n_lane(t); lane++) {
            memmove(engine_kv_at(t, (uint32_t)dst, lane, to), engine_kv_at(t, (uint32_t)src, lane, at),
                    n * t->cell_stride);
        }
    }
}

/* A prefix to a sequence that is empty: the engine asks for nothing else. */
static int plain_seq_cp(engine_kv *kv, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    plain_kv *plain = plain_of(kv);

    if (p0 != 0 || p1 < 0 || plain->n_pos[dst] != 0) {
        return KVLAZY_ENOTSUP;
    }
    plain->n_pos[dst] = (uint32_t)p1 < plain->n_pos[src] ? (uint32_t)p1 : plain->n_pos[src];
    move_cells(plain, src, 0, dst, 0, plain->n_pos[dst]);
    return KVLAZY_OK;
}

static int plain_discard(engine_kv *kv, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    plain_kv *plain = plain_of(kv);
    kvlazy_pos *shift = plain->shift + (size_t)seq * plain->kv_size;
    const uint32_t n = plain->n_pos[seq] - (uint32_t)p1;

    move_cells(plain, seq, (uint32_t)p1, seq, (uint32_t)p0, n);
    for (uint32_t i = 0; i < n; i++) {
        shift[(uint32_t)p0 + i] = p0 - p1;
    }
    plain->n_pos[seq] = (uint32_t)p0 + n;
    plain->is_shifted = true;
    return KVLAZY_OK;
}

static const kvlazy_pos *plain_shift(engine_kv *kv, kvlazy_seq_id seq, uint32_t *n_cell)
{
    const plain_kv *plain = plain_of(kv);

    *n_cell = plain->n_pos[seq];
    return plain->is_shifted ? plain->shift + (size_t)seq * plain->kv_size : NULL;
}

static int plain_shift_done(engine_kv *kv)
{
    plain_kv *plain = plain_of(kv);

    memset(plain->shift, 0, (size_t)plain->n_seq * plain->kv_size * sizeof *plain->shift);
    plain->is_shifted = false;
    return KVLAZY_OK;
}

static kvlazy_pos plain_seq_pos_max(engine_kv *kv, kvlazy_seq_id seq)
{
    return (kvlazy_pos)plain_of(kv)->n_pos[seq] - 1;
}

static int plain_place(engine_kv *kv, kvlazy_seq_id seq, uint32_t *cell, uint32_t n_pos)
{
    if (plain_of(kv)->n_pos[seq] != n_pos) {
        return KVLAZY_ESTATE;
    }
    for (uint32_t p = 0; p < n_pos; p++) {
        cell[p] = p;
    }
    return KVLAZY_OK;
}

static void plain_destroy(engine_kv *kv)
{
    plain_kv *plain = plain_of(kv);

    if (plain != NULL) {
        free(plain->rows);
        free(plain->n_pos);
        free(plain->next);
        free(plain->shift);
        free(plain->stream);
        free(plain->cell);
        free(plain);
    }
}

static const engine_kv_ops plain_ops = {
    .init_batch = plain_nothing,
    .prepare = plain_prepare,
    .prepare_restore = plain_prepare,
    .apply_ubatch = plain_apply_ubatch,
    .undo_ubatch = plain_undo_ubatch,
    .n_kv = plain_n_kv,
    .end_batch = plain_nothing,
    .refused = plain_refused,
    .poll = plain_poll,
    .seq_rm = plain_seq_rm,
    .seq_cp = plain_seq_cp,
    .seq_pos_max = plain_seq_pos_max,
    .discard = plain_discard,
    .shift = plain_shift,
    .shift_done = plain_shift_done,
    .place = plain_place,
    .destroy = plain_destroy,
};

/* One tensor at `at`, packed; answers where it ends. */
static char *lay_out_tensor(kvlazy_tensor *t, char *at, const engine_kv_config *config, size_t row_bytes,
                            uint32_t n_channel)
{
    const size_t stream_bytes = row_bytes * config->kv_size;

    *t = (kvlazy_tensor){
        .data = at,
        .cell_stride = n_channel != 0 ? row_bytes / n_channel : row_bytes,
        .channel_stride = n_channel != 0 ? stream_bytes / n_channel : 0,
        .stream_stride = stream_bytes,
        .row_bytes = row_bytes,
        .n_channel = n_channel,
    };
    return at + stream_bytes * config->n_seq;
}

static void lay_out(plain_kv *plain, const engine_kv_config *config)
{
    char *at = plain->rows;

    for (uint32_t i = 0; i < config->n_layer; i++) {
        at = lay_out_tensor(&plain->base.k[i], at, config, config->k_row_bytes, 0);
        at = lay_out_tensor(&plain->base.v[i], at, config, config->v_row_bytes, config->v_channels);
    }
}

int engine_kv_plain_create(const engine_kv_config *config, engine_kv **kv)
{
    plain_kv *plain;

    if (config->n_layer > ENGINE_MAX_LAYER) {
        return KVLAZY_EINVAL;
    }
    plain = calloc(1, sizeof *plain);
    if (plain == NULL) {
        return KVLAZY_ENOMEM;
    }
    plain->base.ops = &plain_ops;
    plain->base.n_stream = config->n_seq;
    plain->base.kv_size = config->kv_size;
    plain->n_layer = config->n_layer;
    plain->kv_size = config->kv_size;
    plain->n_seq = config->n_seq;
    plain->n_pad = config->n_pad != 0 ? config->n_pad : 256;
    plain->n_batch = config->n_batch;
    plain->refused = -1;
    plain->rows =
        calloc((size_t)config->n_layer * config->n_seq * config->kv_size, config->k_row_bytes + config->v_row_bytes);
    plain->n_pos = calloc(config->n_seq, sizeof *plain->n_pos);
    plain->next = calloc(config->n_seq, sizeof *plain->next);
    plain->shift = calloc((size_t)config->n_seq * config->kv_size, sizeof *plain->shift);
    plain->stream = calloc(config->n_batch, sizeof *plain->stream);
    plain->cell = calloc(config->n_batch, sizeof *plain->cell);
    if (!plain->rows || !plain->n_pos || !plain->next || !plain->shift || !plain->stream || !plain->cell) {
        plain_destroy(&plain->base);
        return KVLAZY_ENOMEM;
    }
    lay_out(plain, config);
    *kv = &plain->base;
    return KVLAZY_OK;
}
