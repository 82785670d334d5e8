/* SPDX-License-Identifier: MIT */
/*
 * model: the arithmetic of the reference engine; model.h says what it is for. Sums run in one fixed order per
 * token, and nothing here depends on the number of tokens in a step. It is called by the engine alone, from one
 * thread, and never allocates after creation.
 */
#include "model.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine_kv.h"
#include "row.h"

typedef struct layer_weights {
    float *attn_norm, *wq, *wk, *wv, *wo, *ffn_norm, *w_gate, *w_up, *w_down;
} layer_weights;

struct model {
    model_dims dims;
    model_layout layout;
    uint32_t n_head_dim, n_kv_embd, n_ctx;
    float *weights, *embedding, *out_norm, *output;
    layer_weights layer[ENGINE_MAX_LAYER];
    float *x, *q;                        /* [n_token][n_embd] */
    float *turn;                         /* [n_token][n_head_dim]: cosines, then sines */
    float *norm, *mix, *row, *gate, *up; /* one token */
    float *packed;                       /* one cell as it is kept: never more than its values take as floats */
    float *key, *value;                  /* [n_kv][n_kv_embd]: what attention reads of one stream and layer */
    float *nothing;                      /* [n_kv_embd]: 0 times all of it */
    float *score;                        /* [n_head / n_kv_head][n_ctx] */
};

uint32_t model_row_values(const model_dims *dims)
{
    return dims->n_embd / dims->n_head * dims->n_kv_head;
}

size_t model_row_bytes(const model_dims *dims, int type)
{
    return row_bytes(type, model_row_values(dims));
}

/* ---- weights ---- */

typedef struct weight_source {
    float *next;
    uint64_t state;
} weight_source;

/* Uniform in [-1, 1), 24 bits of a splitmix64 step. */
static float draw(weight_source *source)
{
    uint64_t z = source->state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (float)((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1.0f;
}

/* gain 1: outputs are as large as inputs. */
static float *draw_matrix(weight_source *source, uint32_t n_out, uint32_t n_in, float gain)
{
    float *matrix = source->next; /* [n_in][n_out] */
    const float scale = gain * sqrtf(3.0f / (float)n_in);

    for (size_t i = 0; i < (size_t)n_out * n_in; i++) {
        matrix[i] = draw(source) * scale;
    }
    source->next += (size_t)n_out * n_in;
    return matrix;
}

static float *draw_norm(weight_source *source, uint32_t n)
{
    float *norm = source->next;

    for (uint32_t i = 0; i < n; i++) {
        norm[i] = 1.0f + 0.1f * draw(source);
    }
    source->next += n;
    return norm;
}

static size_t weight_count(const model *m)
{
    const size_t e = m->dims.n_embd, kv = m->n_kv_embd, f = m->dims.n_ff, v = m->dims.n_vocab;

    return m->dims.n_layer * (2 * e + 2 * e * e + 2 * e * kv + 3 * e * f) + 2 * v * e + e;
}

static void draw_weights(model *m, uint64_t seed)
{
    const model_dims *d = &m->dims;
    weight_source source = {m->weights, seed};

    /* Layers come last: a model with fewer of them is the same one cut short, which makes a draft that often agrees. */
    m->embedding = draw_matrix(&source, d->n_vocab, d->n_embd, 1.0f);
    m->out_norm = draw_norm(&source, d->n_embd);
    m->output = draw_matrix(&source, d->n_vocab, d->n_embd, 1.0f);
    for (uint32_t i = 0; i < d->n_layer; i++) {
        layer_weights *w = &m->layer[i];

        w->attn_norm = draw_norm(&source, d->n_embd);
        /* Attention is sharp enough for what is said to hang on single tokens of the past, and not so sharp that
         * the others are rounded away: a lost row anywhere must show. */
        w->wq = draw_matrix(&source, d->n_embd, d->n_embd, 2.0f);
        w->wk = draw_matrix(&source, m->n_kv_embd, d->n_embd, 1.5f);
        w->wv = draw_matrix(&source, m->n_kv_embd, d->n_embd, 1.0f);
        w->wo = draw_matrix(&source, d->n_embd, d->n_embd, 1.0f);
        w->ffn_norm = draw_norm(&source, d->n_embd);
        w->w_gate = draw_matrix(&source, d->n_ff, d->n_embd, 1.0f);
        w->w_up = draw_matrix(&source, d->n_ff, d->n_embd, 1.0f);
        w->w_down = draw_matrix(&source, d->n_embd, d->n_ff, 1.0f);
    }
}

static bool make_room(model *m, uint32_t n_token, uint32_t n_ctx, uint32_t n_kv)
{
    const model_dims *d = &m->dims;

    m->weights = calloc(weight_count(m), sizeof(float));
    m->x = calloc((size_t)n_token * d->n_embd, sizeof(float));
    m->q = calloc((size_t)n_token * d->n_embd, sizeof(float));
    m->turn = calloc((size_t)n_token * m->n_head_dim, sizeof(float));
    m->norm = calloc(d->n_embd, sizeof(float));
    m->mix = calloc(d->n_embd, sizeof(float));
    m->row = calloc(d->n_embd, sizeof(float));
    m->gate = calloc(d->n_ff, sizeof(float));
    m->up = calloc(d->n_ff, sizeof(float));
    m->packed = calloc(m->n_kv_embd, sizeof(float));
    m->key = calloc((size_t)n_kv * m->n_kv_embd, sizeof(float));
    m->value = calloc((size_t)n_kv * m->n_kv_embd, sizeof(float));
    m->nothing = calloc(m->n_kv_embd, sizeof(float));
    m->score = calloc((size_t)d->n_head / d->n_kv_head * n_ctx, sizeof(float));
    return m->weights && m->x && m->q && m->turn && m->norm && m->mix && m->row && m->gate && m->up && m->packed &&
           m->key && m->value && m->nothing && m->score;
}

model *model_create(const model_dims *dims, uint64_t seed, const model_layout *layout, uint32_t n_token, uint32_t n_ctx,
                    uint32_t n_kv)
{
    model *m = calloc(1, sizeof *m);

    if (m == NULL) {
        return NULL;
    }
    m->dims = *dims;
    m->layout = *layout;
    m->n_head_dim = dims->n_embd / dims->n_head;
    m->n_kv_embd = model_row_values(dims);
    m->n_ctx = n_ctx;
    if (dims->n_layer > ENGINE_MAX_LAYER || !make_room(m, n_token, n_ctx, n_kv)) {
        model_destroy(m);
        return NULL;
    }
    draw_weights(m, seed);
    return m;
}

void model_destroy(model *m)
{
    if (m == NULL) {
        return;
    }
    free(m->weights);
    free(m->x);
    free(m->q);
    free(m->turn);
    free(m->norm);
    free(m->mix);
    free(m->row);
    free(m->gate);
    free(m->up);
    free(m->packed);
    free(m->key);
    free(m->value);
    free(m->nothing);
    free(m->score);
    free(m);
}

/* ---- vectors ---- */

static float dot(const float *a, const float *b, uint32_t n)
{
    float sum[4] = {0};

    for (; n > 0; n -= 4, a += 4, b += 4) {
        for (uint32_t j = 0; j < 4; j++) {
            sum[j] += a[j] * b[j];
        }
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void add_weighted(float *restrict to, const float *restrict what, float weight, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        to[i] += weight * what[i];
    }
}

/* matrix: [n_in][n_out], so that no sum waits for another. */
static void multiply(float *out, const float *matrix, const float *in, uint32_t n_out, uint32_t n_in)
{
    memset(out, 0, n_out * sizeof *out);
    for (uint32_t i = 0; i < n_in; i++, matrix += n_out) {
        add_weighted(out, matrix, in[i], n_out);
    }
}

static void add(float *to, const float *what, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        to[i] += what[i];
    }
}

static void rms_norm(float *out, const float *in, const float *weight, uint32_t n)
{
    const float scale = 1.0f / sqrtf(dot(in, in, n) / (float)n + 1e-5f);

    for (uint32_t i = 0; i < n; i++) {
        out[i] = in[i] * scale * weight[i];
    }
}

/* Turns pair (j, j + half) of every head by its angle. */
static void rotate(float *heads, uint32_t n_head, uint32_t n_head_dim, const float *turn)
{
    const uint32_t half = n_head_dim / 2;

    for (uint32_t h = 0; h < n_head; h++, heads += n_head_dim) {
        for (uint32_t j = 0; j < half; j++) {
            const float a = heads[j], b = heads[j + half];

            heads[j] = a * turn[j] - b * turn[j + half];
            heads[j + half] = a * turn[j + half] + b * turn[j];
        }
    }
}

static void make_turn(float *turn, kvlazy_pos pos, uint32_t n_head_dim)
{
    const uint32_t half = n_head_dim / 2;

    for (uint32_t j = 0; j < half; j++) {
        const float angle = (float)pos * powf(10000.0f, -(float)j / (float)half);

        turn[j] = cosf(angle);
        turn[j + half] = sinf(angle);
    }
}

/* ---- rows of the cache ---- */

static void store_cell(model *m, const kvlazy_tensor *t, int type, uint32_t stream, uint32_t cell)
{
    row_pack(m->packed, m->row, type, m->n_kv_embd);
    engine_kv_put_cell(t, stream, cell, m->packed);
}

static void load_cell(model *m, const kvlazy_tensor *t, int type, uint32_t stream, uint32_t cell)
{
    engine_kv_get_cell(t, stream, cell, m->packed);
    row_unpack(m->row, m->packed, type, m->n_kv_embd);
}

/* The cells below n_kv of one stream as floats, cell by cell whichever way round they are kept. */
static void load_stream(const model *m, float *to, const kvlazy_tensor *t, int type, uint32_t stream, uint32_t n_kv)
{
    const uint32_t n = m->n_kv_embd;

    for (uint32_t lane = 0; lane < t->n_channel; lane++) {
        for (uint32_t cell = 0; cell < n_kv; cell++) {
            row_unpack(to + (size_t)cell * n + lane, engine_kv_at(t, stream, lane, cell), type, 1);
        }
    }
    for (uint32_t cell = 0; t->n_channel == 0 && cell < n_kv; cell++) {
        row_unpack(to + (size_t)cell * n, engine_kv_at(t, stream, 0, cell), type, n);
    }
}

/* A mask gives most cells no weight, and 0 times a number is 0; but 0 times a NaN is none. */
static void weigh_nothing(model *m, uint32_t n_kv)
{
    const uint32_t n = m->n_kv_embd;

    memset(m->nothing, 0, n * sizeof *m->nothing);
    for (size_t at = 0; at < (size_t)n_kv * n; at += n) {
        for (uint32_t i = 0; i < n; i++) {
            m->nothing[i] += 0.0f * m->key[at + i] + 0.0f * m->value[at + i];
        }
    }
}

/* ---- layers ---- */

static void soft_max(float *score, uint32_t n)
{
    float top = score[0], sum = 0.0f;

    for (uint32_t i = 1; i < n; i++) {
        top = score[i] > top ? score[i] : top;
    }
    for (uint32_t i = 0; i < n; i++) {
        score[i] = expf(score[i] - top);
        sum += score[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        score[i] /= sum;
    }
}

/* One token, the heads that share K/V head g, over its past and itself in position order. */
static void attend_group(model *m, const model_step *step, uint32_t t, uint32_t g)
{
    const uint32_t n_group = m->dims.n_head / m->dims.n_kv_head, dim = m->n_head_dim;
    const uint32_t n_past = (uint32_t)step->pos[t] + 1;
    const float *q = m->q + (size_t)t * m->dims.n_embd + (size_t)g * n_group * dim;
    float *out = m->mix + (size_t)g * n_group * dim;
    const float scale = 1.0f / sqrtf((float)dim);

    for (uint32_t p = 0; p < n_past; p++) {
        const float *key = m->key + (size_t)step->past[t][p] * m->n_kv_embd + g * dim;

        for (uint32_t h = 0; h < n_group; h++) {
            m->score[(size_t)h * m->n_ctx + p] = dot(q + h * dim, key, dim) * scale;
        }
    }
    for (uint32_t h = 0; h < n_group; h++) {
        soft_max(m->score + (size_t)h * m->n_ctx, n_past);
        memcpy(out + h * dim, m->nothing + g * dim, dim * sizeof *out);
    }
    for (uint32_t p = 0; p < n_past; p++) {
        const float *value = m->value + (size_t)step->past[t][p] * m->n_kv_embd + g * dim;

        for (uint32_t h = 0; h < n_group; h++) {
            add_weighted(out + (size_t)h * dim, value, m->score[(size_t)h * m->n_ctx + p], dim);
        }
    }
}

/* Q stays here; K and V go to the token's cell. */
static void project(model *m, const layer_weights *w, const kvlazy_tensor *k, const kvlazy_tensor *v,
                    const model_step *step, uint32_t t)
{
    const uint32_t e = m->dims.n_embd;
    const float *turn = m->turn + (size_t)t * m->n_head_dim;
    float *q = m->q + (size_t)t * e;

    rms_norm(m->norm, m->x + (size_t)t * e, w->attn_norm, e);
    multiply(q, w->wq, m->norm, e, e);
    rotate(q, m->dims.n_head, m->n_head_dim, turn);
    multiply(m->row, w->wk, m->norm, m->n_kv_embd, e);
    rotate(m->row, m->dims.n_kv_head, m->n_head_dim, turn);
    store_cell(m, k, m->layout.k_type, step->stream[t], step->cell[t]);
    multiply(m->row, w->wv, m->norm, m->n_kv_embd, e);
    store_cell(m, v, m->layout.v_type, step->stream[t], step->cell[t]);
}

static void feed_forward(model *m, const layer_weights *w, float *x)
{
    const uint32_t e = m->dims.n_embd, f = m->dims.n_ff;

    rms_norm(m->norm, x, w->ffn_norm, e);
    multiply(m->gate, w->w_gate, m->norm, f, e);
    multiply(m->up, w->w_up, m->norm, f, e);
    for (uint32_t i = 0; i < f; i++) {
        m->gate[i] = m->gate[i] / (1.0f + expf(-m->gate[i])) * m->up[i];
    }
    multiply(m->row, w->w_down, m->gate, e, f);
    add(x, m->row, e);
}

static void run_layer(model *m, uint32_t i, const kvlazy_tensor *k, const kvlazy_tensor *v, const model_step *step)
{
    const layer_weights *w = &m->layer[i];
    const uint32_t e = m->dims.n_embd;

    for (uint32_t t = 0; t < step->n_token; t++) {
        project(m, w, k, v, step, t);
    }
    for (uint32_t t = 0; t < step->n_token; t++) {
        float *x = m->x + (size_t)t * e;

        if (t == 0 || step->stream[t] != step->stream[t - 1]) {
            load_stream(m, m->key, k, m->layout.k_type, step->stream[t], step->n_kv);
            load_stream(m, m->value, v, m->layout.v_type, step->stream[t], step->n_kv);
            weigh_nothing(m, step->n_kv);
        }
        for (uint32_t g = 0; g < m->dims.n_kv_head; g++) {
            attend_group(m, step, t, g);
        }
        multiply(m->row, w->wo, m->mix, e, e);
        add(x, m->row, e);
        feed_forward(m, w, x);
    }
}

bool model_run(model *m, const kvlazy_tensor *k, const kvlazy_tensor *v, const model_step *step)
{
    const uint32_t e = m->dims.n_embd;

    for (uint32_t t = 0; t < step->n_token; t++) {
        memcpy(m->x + (size_t)t * e, m->embedding + (size_t)step->token[t] * e, e * sizeof(float));
        make_turn(m->turn + (size_t)t * m->n_head_dim, step->pos[t], m->n_head_dim);
    }
    for (uint32_t i = 0; i < m->dims.n_layer; i++) {
        run_layer(m, i, &k[i], &v[i], step);
        if (step->fail) {
            return false;
        }
    }
    for (uint32_t t = 0; t < step->n_token; t++) {
        rms_norm(m->norm, m->x + (size_t)t * e, m->out_norm, e);
        multiply(step->logits[t], m->output, m->norm, m->dims.n_vocab, e);
    }
    return true;
}

void model_turn(model *m, const kvlazy_tensor *k, uint32_t stream, uint32_t cell, kvlazy_pos by)
{
    const uint32_t dim = m->n_head_dim;

    make_turn(m->turn, by, dim);
    for (uint32_t i = 0; i < m->dims.n_layer; i++) {
        load_cell(m, &k[i], m->layout.k_type, stream, cell);
        rotate(m->row, m->dims.n_kv_head, dim, m->turn);
        store_cell(m, &k[i], m->layout.k_type, stream, cell);
    }
}

uint8_t model_likeliest(const float *logits, uint32_t n_vocab)
{
    uint32_t best = 0;

    for (uint32_t i = 1; i < n_vocab; i++) {
        best = logits[i] > logits[best] ? i : best;
    }
    return (uint8_t)best;
}
