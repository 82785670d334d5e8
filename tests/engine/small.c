/* SPDX-License-Identifier: MIT */
/*
 * small: an engine that is whole in one file: a decoder, one conversation, and a loop that blocks on input. Keys and
 * values lie in one block [layer][position][value] each, and the cell of a token is its position. With "plain" the
 * blocks are calloc'ed, as in engines of this size; with "lazy" they lie in an arena of kvlazy, and a reaper gives back
 * what an idle conversation holds, while this program sleeps in read(). test_small.c compares every logit of both.
 *
 *     kvlazy_small lazy|plain LOGITS_FILE < messages > answers
 */
#include <kvlazy/arena.h>
#include <kvlazy/reaper.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS = 8, WIDTH = 64, HEAD = 16, HIDDEN = 128, VOCAB = 256, CONTEXT = 4096, ANSWER = 20 };
enum { BLOCK = LAYERS * CONTEXT * WIDTH, KEEP = 64, IDLE_MS = 100 }; /* idle, it keeps KEEP tokens */

typedef struct engine {
    float embedding[VOCAB][WIDTH], query[LAYERS][WIDTH][WIDTH], key[LAYERS][WIDTH][WIDTH], value[LAYERS][WIDTH][WIDTH];
    float mix[LAYERS][WIDTH][WIDTH], up[LAYERS][HIDDEN][WIDTH], down[LAYERS][WIDTH][HIDDEN];
    float *keys, *values; /* [LAYERS][CONTEXT][WIDTH]: the blocks */
    float logits[VOCAB], score[CONTEXT];
    unsigned char token[CONTEXT];
    int n_token, n_held; /* n_held: with "plain", those that the blocks hold */
    FILE *record;        /* of every computation: a position and its logits */
    kvlazy_cache *cache; /* NULL: "plain", as the next two */
    kvlazy_arena *arena;
    kvlazy_reaper *reaper;
} engine;

/* ---- the model ---- */

static void draw_weights(float *weight, size_t n)
{
    unsigned long long state = 1;

    for (size_t i = 0; i < n; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        weight[i] = ((float)(state >> 40) * 0x1p-23f - 1.0f) * sqrtf(6.0f / WIDTH);
    }
}

static float dot(const float *a, const float *b, int n)
{
    float sum = 0.0f;

    for (int i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}

/* out = matrix · in, or out += that */
static void multiply(float *out, bool adds, const float *matrix, const float *in, int n_out, int n_in)
{
    for (int i = 0; i < n_out; i++) {
        out[i] = (adds ? out[i] : 0.0f) + dot(matrix + i * n_in, in, n_in);
    }
}

static void normalise(float *out, const float *in)
{
    const float length = sqrtf(dot(in, in, WIDTH) / WIDTH + 1e-6f);

    for (int i = 0; i < WIDTH; i++) {
        out[i] = in[i] / length;
    }
}

/* Turns pairs of a row by angles that grow with the position. */
static void turn(float *row, int pos)
{
    for (int i = 0; i < WIDTH; i += 2) {
        const float angle = (float)pos * powf(10000.0f, -(float)(i % HEAD) / HEAD), x = row[i], y = row[i + 1];

        row[i] = x * cosf(angle) - y * sinf(angle);
        row[i + 1] = x * sinf(angle) + y * cosf(angle);
    }
}

static void attend(engine *e, float *out, const float *query, const float *keys, const float *values, int pos)
{
    float sum = 0.0f;

    memset(out, 0, HEAD * sizeof *out);
    for (int p = 0; p <= pos; p++) {
        e->score[p] = expf(dot(keys + p * WIDTH, query, HEAD) / HEAD);
        sum += e->score[p];
    }
    for (int p = 0; p <= pos; p++) {
        for (int i = 0; i < HEAD; i++) {
            out[i] += e->score[p] / sum * values[p * WIDTH + i];
        }
    }
}

/* Writes the row `pos` of every layer of both blocks, reads all up to it, and leaves the logits. */
static void forward(engine *e, int pos)
{
    float x[WIDTH], in[WIDTH], query[WIDTH], past[WIDTH], wide[HIDDEN];

    memcpy(x, e->embedding[e->token[pos]], sizeof x);
    for (int l = 0; l < LAYERS; l++) {
        float *keys = e->keys + l * CONTEXT * WIDTH, *values = e->values + l * CONTEXT * WIDTH;

        normalise(in, x);
        multiply(query, false, e->query[l][0], in, WIDTH, WIDTH);
        multiply(keys + pos * WIDTH, false, e->key[l][0], in, WIDTH, WIDTH);
        multiply(values + pos * WIDTH, false, e->value[l][0], in, WIDTH, WIDTH);
        turn(query, pos);
        turn(keys + pos * WIDTH, pos);
        for (int h = 0; h < WIDTH; h += HEAD) {
            attend(e, past + h, query + h, keys + h, values + h, pos);
        }
        multiply(x, true, e->mix[l][0], past, WIDTH, WIDTH);
        normalise(in, x);
        multiply(wide, false, e->up[l][0], in, HIDDEN, WIDTH);
        for (int i = 0; i < HIDDEN; i++) {
            wide[i] = fmaxf(wide[i], 0.0f);
        }
        multiply(x, true, e->down[l][0], wide, WIDTH, HIDDEN);
    }
    normalise(in, x);
    multiply(e->logits, false, e->embedding[0], in, VOCAB, WIDTH);
    fwrite(&pos, sizeof pos, 1, e->record);
    fwrite(e->logits, sizeof e->logits, 1, e->record);
}

/* ---- what kvlazy changes ---- */

static bool open_lazy(engine *e)
{
    const size_t row_bytes = WIDTH * sizeof(float), layer_bytes = CONTEXT * row_bytes;
    kvlazy_tensor k[LAYERS], v[LAYERS];
    kvlazy_layer layer[LAYERS];
    kvlazy_params params;
    void *base;

    if (kvlazy_arena_create(NULL, 2 * BLOCK * sizeof(float), &e->arena, &base) != KVLAZY_OK) { /* instead of calloc */
        return false;
    }
    e->keys = base;
    e->values = e->keys + BLOCK;
    for (int l = 0; l < LAYERS; l++) {
        k[l] = (kvlazy_tensor){e->keys + l * CONTEXT * WIDTH, row_bytes, 0, layer_bytes, row_bytes, 0};
        v[l] = (kvlazy_tensor){e->values + l * CONTEXT * WIDTH, row_bytes, 0, layer_bytes, row_bytes, 0};
        layer[l] = (kvlazy_layer){(uint32_t)l, row_bytes, row_bytes, 0, &k[l], &v[l], e->arena};
    }
    kvlazy_params_init(&params);
    params.kv_size = CONTEXT;
    params.kv_size_initial = KEEP;
    params.slot_shrink_idle_ms = IDLE_MS;
    params.layers = layer;
    params.n_layer = LAYERS;
    return kvlazy_create(&params, &e->cache) == KVLAZY_OK && kvlazy_reaper_create(NULL, &e->reaper) == KVLAZY_OK &&
           kvlazy_reaper_add(e->reaper, e->cache) == KVLAZY_OK;
}

static void close_engine(engine *e)
{
    if (e->cache == NULL) {
        free(e->keys);
    }
    kvlazy_destroy(e->cache); /* it leaves the reaper, and then the arena */
    kvlazy_reaper_destroy(e->reaper);
    kvlazy_arena_destroy(e->arena);
    fclose(e->record);
    free(e);
}

/* Makes the rows of the next token ready to be written, behind what the blocks hold. Returns its position. */
static int begin_token(engine *e)
{
    const kvlazy_seq_id seq = 0;
    kvlazy_ubatch ubatch = {.n_token = 1, .seq = &seq};
    kvlazy_slot slot;
    kvlazy_pos pos;

    if (e->cache == NULL) {
        return e->n_held++;
    }
    kvlazy_init_batch(e->cache);
    pos = kvlazy_seq_pos_max(e->cache, seq) + 1; /* an idle time may have taken some; until end_batch none goes */
    ubatch.pos = &pos;
    if (kvlazy_prepare(e->cache, &ubatch, 1, &slot) || slot.cell[0] != (uint32_t)pos ||
        kvlazy_apply_ubatch(e->cache, &slot, &ubatch)) {
        exit(1);
    }
    return pos;
}

/* Computes the tokens that the blocks do not hold: the new ones, and before them those that idle time took. */
static void catch_up(engine *e)
{
    for (int pos = -1; pos + 1 < e->n_token;) {
        pos = begin_token(e);
        forward(e, pos);
        if (e->cache != NULL) {
            kvlazy_end_batch(e->cache);
        }
    }
}

/* ---- the loop ---- */

/* The likeliest tokens, one after the other, as letters. */
static void answer(engine *e)
{
    char text[ANSWER + 1];

    for (int n = 0; n < ANSWER; n++) {
        int best = 0;

        for (int i = 1; i < VOCAB; i++) {
            best = e->logits[i] > e->logits[best] ? i : best;
        }
        text[n] = (char)('a' + best % 26);
        e->token[e->n_token++] = (unsigned char)best;
        catch_up(e);
    }
    text[ANSWER] = '\n';
    fflush(e->record);
    if (write(STDOUT_FILENO, text, sizeof text) != (ssize_t)sizeof text) {
        exit(1);
    }
}

int main(int argc, char **argv)
{
    engine *e = calloc(1, sizeof *e);
    char byte;

    if (argc != 3 || e == NULL || (e->record = fopen(argv[2], "wb")) == NULL) {
        return 2;
    }
    draw_weights(e->embedding[0], offsetof(engine, keys) / sizeof(float));
    if (strcmp(argv[1], "plain") == 0) {
        e->keys = calloc(2 * BLOCK, sizeof(float));
        e->values = e->keys != NULL ? e->keys + BLOCK : NULL;
    }
    if (e->keys == NULL && !open_lazy(e)) {
        return 1;
    }
    while (read(STDIN_FILENO, &byte, 1) == 1 && e->n_token + ANSWER < CONTEXT) { /* memory comes back in here */
        e->token[e->n_token++] = (unsigned char)byte;
        if (byte == '\n') {
            catch_up(e);
            answer(e);
        }
    }
    close_engine(e);
    return 0;
}
