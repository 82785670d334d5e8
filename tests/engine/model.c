/* SPDX-License-Identifier: MIT */
/*
 * model: the arithmetic of the reference engine; model.h says what it is for. Sums run in one fixed order per
 * token, and nothing here depends on the number of tokens in a step. It is called by the engine alone, from one
 * thread, and never allocates after creation.
 */
#include "model.h"

#include "half.h"

#include <math.h>
#include <stdlib.h>

#include "engine_kv.h"

typedef struct layer_weights {
    float *attn_norm, *wq, *wk, *wv, *wo, *ffn_norm, *w_gate, *w_up, *w_down;
} layer_weights;

struct model {
    model_dims dims;
    bool f16;
    uint32_t n_head_dim, n_kv_embd, n_ctx;
    float *weights, *embedding, *out_norm, *output;
    layer_weights layer[ENGINE_MAX_LAYER];
    float *x, *q;                        /* [n_token][n_embd] */
    float *turn;                         /* [n_token][n_head_dim]: cosines, then sines */
    float *norm, *mix, *row, *gate, *up; /* one token */
    float *head;                         /* one head of one row */
    float *score;                        /* [n_head / n_kv_head][n_ctx] */
};

size_t model_row_bytes(const model_dims *dims, bool f16)
{
    return (size_t)dims->n_embd / dims->n_head * dims->n_kv_head * (f16 ? 2 : 4);
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
    float *matrix = source->next;
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

static bool make_room(model *m, uint32_t n_token, uint32_t n_ctx)
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
    m->head = calloc(m->n_head_dim, sizeof(float));
    m->score = calloc((size_t)d->n_head / d->n_kv_head * n_ctx, sizeof(float));
    return m->weights && m->x && m->q && m->turn && m->norm && m->mix && m->row && m->gate && m->up && m->head &&
           m->score;
}

model *model_create(const model_dims *dims, uint64_t seed, bool f16, uint32_t n_token, uint32_t n_ctx)
{
    model *m = calloc(1, sizeof *m);

    if (m == NULL) {
        return NULL;
    }
    m->dims = *dims;
    m->f16 = f16;
    m->n_head_dim = dims->n_embd / dims->n_head;
    m->n_kv_embd = m->n_head_dim * dims->n_kv_head;
    m->n_ctx = n_ctx;
    if (dims->n_layer > ENGINE_MAX_LAYER || !make_room(m, n_token, n_ctx)) {
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
    free(m->head);
    free(m->score);
    free(m);
}

/* ---- vectors ---- */

static float dot(const float *a, const float *b, uint32_t n)
{
    float sum[4] = {0};

    for (uint32_t i = 0; i < n; i += 4) {
        for (uint32_t j = 0; j < 4; j++) {
            sum[j] += a[i + j] * b[i + j];
        }
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void multiply(float *out, const float *matrix, const float *in, uint32_t n_out, uint32_t n_in)
{
    for (uint32_t i = 0; i < n_out; i++) {
        out[i] = dot(matrix + (size_t)i * n_in, in, n_in);
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

static void store_row(const model *m, void *row, const float *from)
{
    if (!m->f16) {
        memcpy(row, from, m->n_kv_embd * sizeof(float));
        return;
    }
    for (uint32_t i = 0; i < m->n_kv_embd; i++) {
        ((uint16_t *)row)[i] = half_from_float(from[i]);
    }
}

/* Head g of a row, as floats: in place, or unpacked into m->head until the next call. */
static const float *load_head(const model *m, const void *row, uint32_t g)
{
    const uint16_t *half = (const uint16_t *)row + (size_t)g * m->n_head_dim;

    if (!m->f16) {
        return (const float *)row + (size_t)g * m->n_head_dim;
    }
    for (uint32_t i = 0; i < m->n_head_dim; i++) {
        m->head[i] = half_to_float(half[i]);
    }
    return m->head;
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
static void attend_group(model *m, const kvlazy_tensor *k, const kvlazy_tensor *v, const model_step *step, uint32_t t,
                         uint32_t g)
{
    const uint32_t n_group = m->dims.n_head / m->dims.n_kv_head, dim = m->n_head_dim;
    const uint32_t n_past = (uint32_t)step->pos[t] + 1;
    const float *q = m->q + (size_t)t * m->dims.n_embd + (size_t)g * n_group * dim;
    float *out = m->mix + (size_t)g * n_group * dim;
    const float scale = 1.0f / sqrtf((float)dim);

    for (uint32_t p = 0; p < n_past; p++) {
        const float *key = load_head(m, engine_kv_row(k, step->stream[t], step->past[t][p]), g);

        for (uint32_t h = 0; h < n_group; h++) {
            m->score[(size_t)h * m->n_ctx + p] = dot(q + h * dim, key, dim) * scale;
        }
    }
    for (uint32_t h = 0; h < n_group; h++) {
        soft_max(m->score + (size_t)h * m->n_ctx, n_past);
    }
    memset(out, 0, n_group * dim * sizeof *out);
    for (uint32_t p = 0; p < n_past; p++) {
        const float *value = load_head(m, engine_kv_row(v, step->stream[t], step->past[t][p]), g);

        for (uint32_t h = 0; h < n_group; h++) {
            const float weight = m->score[(size_t)h * m->n_ctx + p];

            for (uint32_t i = 0; i < dim; i++) {
                out[h * dim + i] += weight * value[i];
            }
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
    store_row(m, engine_kv_row(k, step->stream[t], step->cell[t]), m->row);
    multiply(m->row, w->wv, m->norm, m->n_kv_embd, e);
    store_row(m, engine_kv_row(v, step->stream[t], step->cell[t]), m->row);
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

        for (uint32_t g = 0; g < m->dims.n_kv_head; g++) {
            attend_group(m, k, v, step, t, g);
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
        void *row = engine_kv_row(&k[i], stream, cell);

        for (uint32_t g = 0; g < m->dims.n_kv_head; g++) {
            memcpy(m->row + (size_t)g * dim, load_head(m, row, g), dim * sizeof *m->row);
        }
        rotate(m->row, m->dims.n_kv_head, dim, m->turn);
        store_row(m, row, m->row);
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
