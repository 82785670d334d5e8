/* SPDX-License-Identifier: MIT */
/* engine_state: see engine_state.h. */
#include "engine_state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvlazy/state.h>

#include "engine_session.h"

enum {
    N_PROMPT = 63,
    N_BEFORE = ENGINE_STATE_TOKENS - N_PROMPT, /* decoded before it is saved, */
    N_AFTER = 9,                               /* … and afterwards, on both sides */
    N_SLOT = 3,
    N_CTX = 160,
    WINDOW = 8,
};

#define ROWS(type) {MODEL_##type, MODEL_##type, false}
#define COLUMNS(k_type) {MODEL_##k_type, MODEL_F16, true}

static const engine_state_case cases[] = {
    {.name = "the same engine, f16", .from = ROWS(F16), .to = ROWS(F16), .n_stream = 1, .same_engine = true},
    {.name = "the same engine, q8_0", .from = ROWS(Q8_0), .to = ROWS(Q8_0), .n_stream = 1, .same_engine = true},
    {.name = "a new process, f16", .from = ROWS(F16), .to = ROWS(F16), .n_stream = 1, .process = true},
    {.name = "a new process, q8_0", .from = ROWS(Q8_0), .to = ROWS(Q8_0), .n_stream = 1, .process = true},
    {.name = "another stream", .from = ROWS(F16), .to = ROWS(F16), .n_stream = N_SLOT, .slot = 2},
    {.name = "a fragmented cache, f16", .from = ROWS(F16), .to = ROWS(F16), .n_stream = 1, .fragmented = true},
    {.name = "a fragmented cache, q8_0", .from = ROWS(Q8_0), .to = ROWS(Q8_0), .n_stream = 1, .fragmented = true},
    {.name = "rows into transposed", .from = ROWS(F16), .to = COLUMNS(F16), .n_stream = 1, .fragmented = true},
    {.name = "transposed into rows", .from = COLUMNS(F16), .to = ROWS(F16), .n_stream = N_SLOT, .slot = 1},
    {.name = "transposed", .from = COLUMNS(F16), .to = COLUMNS(F16), .n_stream = 1, .slot = 1, .process = true},
    {.name = "a window linked", .from = ROWS(F16), .to = COLUMNS(F16), .n_stream = 1, .slot = 2, .window = true},
};

const engine_state_case *engine_state_cases(uint32_t *n)
{
    *n = sizeof cases / sizeof *cases;
    return cases;
}

/* ---- one side ---- */

typedef struct side {
    engine_kv *kv;
    engine *engine;
    kvlazy_cache *window; /* NULL: none */
} side;

/* The window is linked to see that a state carries it; the model has none, so its rows only say whose they are. */
static int link_window(side *s, uint32_t n_stream)
{
    static const kvlazy_layer layer = {.id = 0, .k_row_bytes = 32};
    kvlazy_params params;

    kvlazy_params_init(&params);
    params.kv_size = 4 * WINDOW;
    params.n_stream = n_stream;
    params.n_seq_max = N_SLOT;
    params.n_swa = WINDOW;
    params.swa_type = KVLAZY_SWA_STANDARD;
    params.layers = &layer;
    params.n_layer = 1;
    params.with = s->kv->cache;
    return kvlazy_create(&params, &s->window);
}

static int open_side(side *s, const model_layout *layout, uint32_t n_stream, bool window)
{
    const engine_config config = {
        .dims = {.n_layer = 2, .n_embd = 64, .n_head = 4, .n_kv_head = 2, .n_ff = 64, .n_vocab = 96},
        .seed = 5,
        .layout = *layout,
        .n_slot = N_SLOT,
        .n_ctx = N_CTX,
        .n_batch = 32,
        .n_ubatch = 16,
    };
    engine_kv_config kv_config = engine_kv_config_for(&config, n_stream);
    int status;

    kv_config.kv_size = N_SLOT * N_CTX;
    status = engine_kv_lazy_create(&kv_config, &s->kv);
    if (status == KVLAZY_OK) {
        status = engine_create(&config, s->kv, &s->engine);
    }
    return status == KVLAZY_OK && window ? link_window(s, n_stream) : status;
}

static void close_side(side *s)
{
    engine_destroy(s->engine);
    kvlazy_destroy(s->window);
    if (s->kv != NULL) {
        s->kv->ops->destroy(s->kv);
    }
}

static int decode(side *s, uint32_t slot, uint32_t n)
{
    int status = KVLAZY_OK;

    for (uint32_t i = 0; status == KVLAZY_OK && i < n; i++) {
        status = engine_decode(s->engine, &slot, 1);
    }
    return status;
}

/* Prompts of two other slots in turn, of which one goes: what comes lies in pieces. */
static int fragment(side *s, uint32_t slot)
{
    const uint32_t a = (slot + 1) % N_SLOT, b = (slot + 2) % N_SLOT;
    const uint8_t *text = (const uint8_t *)engine_text;
    int status = KVLAZY_OK;

    for (uint32_t n = 5; status == KVLAZY_OK && n < 50; n += 5) {
        status = engine_prompt(s->engine, a, text + 200, n);
        status = status == KVLAZY_OK ? engine_prompt(s->engine, b, text + 300, n) : status;
    }
    return status == KVLAZY_OK ? engine_drop(s->engine, a) : status;
}

/* ---- the window ---- */

static unsigned char *window_row(const side *s, uint32_t stream, uint32_t cell)
{
    kvlazy_tensor t;

    return kvlazy_k(s->window, 0, &t) != KVLAZY_OK
               ? NULL
               : (unsigned char *)t.data + stream * t.stream_stride + cell * t.cell_stride;
}

/* The window of the linked cache sees the last tokens; each row tells its position. */
static int fill_window(const side *s, uint32_t slot, uint32_t n)
{
    int status = kvlazy_init_batch(s->window);

    for (uint32_t p = n - WINDOW; status == KVLAZY_OK && p < n; p++) {
        kvlazy_pos pos = (kvlazy_pos)p;
        kvlazy_seq_id seq = (kvlazy_seq_id)slot;
        kvlazy_ubatch one = {.n_token = 1, .pos = &pos, .seq = &seq};
        kvlazy_slot place;

        status = kvlazy_prepare(s->window, &one, 1, &place);
        status = status == KVLAZY_OK ? kvlazy_apply_ubatch(s->window, &place, &one) : status;
        if (status == KVLAZY_OK) {
            memset(window_row(s, place.stream[0], place.cell[0]), (int)p + 1, 32);
        }
    }
    return kvlazy_end_batch(s->window) == KVLAZY_OK ? status : KVLAZY_ESTATE;
}

/* A cell has few owners here. */
static bool slot_owns(const side *s, uint32_t stream, uint32_t cell, uint32_t slot)
{
    kvlazy_seq_id owner[8];
    uint32_t n;
    bool yes = false;

    if (kvlazy_cell_owners(s->window, stream, cell, owner, 8, &n) == KVLAZY_OK) {
        for (uint32_t i = 0; i < n && i < 8; i++) {
            yes |= owner[i] == (kvlazy_seq_id)slot;
        }
    }
    return yes;
}

/* Every position of the window is there, with its row. */
static bool window_is_whole(const side *s, uint32_t slot, uint32_t n)
{
    const uint32_t stream = engine_kv_stream(s->kv, (kvlazy_seq_id)slot);
    kvlazy_cells_view view = {.struct_size = sizeof view};
    uint32_t n_right = 0;

    if (kvlazy_cells(s->window, stream, &view) != KVLAZY_OK) {
        return false;
    }
    for (uint32_t cell = 0; cell < view.n_cell; cell++) {
        n_right += view.pos[cell] >= 0 && slot_owns(s, stream, cell, slot) &&
                   *window_row(s, stream, cell) == (unsigned char)(view.pos[cell] + 1);
    }
    return n_right == WINDOW && kvlazy_seq_pos_max(s->window, (kvlazy_seq_id)slot) + 1 == (kvlazy_pos)n;
}

/* ---- saving, loading, going on ---- */

/* What both sides come to: the logits of N_AFTER tokens. */
typedef struct outcome {
    float *logits; /* [N_AFTER][n_vocab] */
    size_t n_byte;
    uint32_t n_reused;
    int status;
} outcome;

enum { N_VOCAB = 96 };

static void note(outcome *o, const engine *e, uint32_t slot)
{
    for (uint32_t i = 0; i < N_AFTER; i++) {
        memcpy(o->logits + i * N_VOCAB, engine_logits(e, slot, ENGINE_STATE_TOKENS + i), N_VOCAB * sizeof(float));
    }
}

static int talk_and_save(const engine_state_case *c, side *s, const char *path, outcome *o)
{
    const uint8_t *token;
    uint32_t n;
    int status = engine_prompt(s->engine, 0, (const uint8_t *)engine_text, N_PROMPT);

    status = status == KVLAZY_OK ? decode(s, 0, N_BEFORE) : status;
    status = status == KVLAZY_OK && c->window ? fill_window(s, 0, ENGINE_STATE_TOKENS) : status;
    if (status == KVLAZY_OK) {
        token = engine_record(s->engine, 0, &n);
        status = kvlazy_state_save(s->kv->cache, 0, path, token, n, 0);
    }
    if (status == KVLAZY_OK && s->window != NULL) { /* it stays behind: the engine does not drive it */
        kvlazy_destroy(s->window);
        s->window = NULL;
    }
    status = status == KVLAZY_OK ? decode(s, 0, N_AFTER) : status;
    note(o, s->engine, 0);
    return status;
}

static int load_and_talk(const engine_state_case *c, side *s, const char *path, outcome *o)
{
    uint8_t token[N_CTX];
    size_t n = sizeof token;
    engine_counts before, after;
    int status = c->fragmented ? fragment(s, c->slot) : KVLAZY_OK;

    status = status == KVLAZY_OK ? kvlazy_state_load(s->kv->cache, (kvlazy_seq_id)c->slot, path, token, &n) : status;
    status = status == KVLAZY_OK ? kvlazy_end_batch(s->kv->cache) : status;
    if (status == KVLAZY_OK && s->window != NULL) {
        status = window_is_whole(s, c->slot, ENGINE_STATE_TOKENS) ? KVLAZY_OK : KVLAZY_ESTATE;
        kvlazy_destroy(s->window);
        s->window = NULL;
    }
    engine_get_counts(s->engine, &before);
    status = status == KVLAZY_OK ? engine_adopt(s->engine, c->slot, token, (uint32_t)n) : status;
    status = status == KVLAZY_OK ? engine_prompt(s->engine, c->slot, token, (uint32_t)n) : status;
    engine_get_counts(s->engine, &after);
    o->n_reused = (uint32_t)(after.reused - before.reused);
    status = status == KVLAZY_OK ? decode(s, c->slot, N_AFTER) : status;
    note(o, s->engine, c->slot);
    return status;
}

static int load_elsewhere(const engine_state_case *c, const char *path, outcome *o)
{
    side s = {.kv = NULL};
    int status = open_side(&s, &c->to, c->n_stream, c->window);

    status = status == KVLAZY_OK ? load_and_talk(c, &s, path, o) : status;
    close_side(&s);
    return status;
}

/* A process of its own, which tells what it came to through a pipe. */
static int load_in_process(const engine_state_case *c, const char *path, outcome *o)
{
    int fd[2], child_status;
    uint32_t head[2];

    if (pipe(fd) != 0) {
        return KVLAZY_EIO;
    }
    pid_t pid = fork();
    if (pid == 0) {
        head[0] = (uint32_t)load_elsewhere(c, path, o);
        head[1] = o->n_reused;
        bool told = write(fd[1], head, sizeof head) == sizeof head &&
                    write(fd[1], o->logits, o->n_byte) == (ssize_t)o->n_byte;
        _exit(!told);
    }
    close(fd[1]);
    bool got = pid > 0 && read(fd[0], head, sizeof head) == sizeof head;
    for (size_t at = 0; got && at < o->n_byte;) {
        ssize_t n = read(fd[0], (char *)o->logits + at, o->n_byte - at);

        got = n > 0;
        at += got ? (size_t)n : 0;
    }
    close(fd[0]);
    if (pid > 0) {
        waitpid(pid, &child_status, 0);
    }
    o->n_reused = got ? head[1] : 0;
    return got ? (int)head[0] : KVLAZY_EIO;
}

/* The largest difference; bits that differ in what is no number count as infinite. */
static double difference(const outcome *a, const outcome *b)
{
    double max = 0.0;

    for (size_t i = 0; i < a->n_byte / sizeof(float); i++) {
        double d = fabs((double)a->logits[i] - (double)b->logits[i]);

        if (memcmp(&a->logits[i], &b->logits[i], sizeof(float)) != 0) {
            max = d > max ? d : !(d <= max) ? HUGE_VAL : max;
        }
    }
    return max;
}

static int run_case(const engine_state_case *c, const char *path, outcome *was, outcome *is)
{
    side s = {.kv = NULL};
    int status = open_side(&s, &c->from, 1, c->window);

    status = status == KVLAZY_OK ? talk_and_save(c, &s, path, was) : status;
    if (status == KVLAZY_OK && c->same_engine) {
        status = engine_drop(s.engine, 0);
        status = status == KVLAZY_OK ? load_and_talk(c, &s, path, is) : status;
    }
    close_side(&s);
    if (status == KVLAZY_OK && !c->same_engine) {
        status = (c->process ? load_in_process : load_elsewhere)(c, path, is);
    }
    return status;
}

int engine_state_run(const engine_state_case *c, const char *dir, double *max_dlogit, uint32_t *n_reused)
{
    char path[4096];
    const size_t n_byte = (size_t)N_AFTER * N_VOCAB * sizeof(float);
    outcome was = {calloc(1, n_byte), n_byte, 0, 0}, is = {calloc(1, n_byte), n_byte, 0, 0};
    int status = KVLAZY_ENOMEM;

    snprintf(path, sizeof path, "%s/engine-%ld.state", dir, (long)getpid());
    if (was.logits != NULL && is.logits != NULL) {
        status = run_case(c, path, &was, &is);
        *max_dlogit = difference(&was, &is);
        *n_reused = is.n_reused;
    }
    unlink(path);
    free(was.logits);
    free(is.logits);
    return status;
}

int engine_state_max_dlogit(const char *dir, double *max)
{
    uint32_t n, n_reused = 0;
    const engine_state_case *all = engine_state_cases(&n);
    int status = KVLAZY_OK;

    *max = 0.0;
    for (uint32_t i = 0; status == KVLAZY_OK && i < n; i++) {
        double here = 0.0;

        status = engine_state_run(&all[i], dir, &here, &n_reused);
        if (status == KVLAZY_OK && n_reused != ENGINE_STATE_TOKENS - 1) {
            status = KVLAZY_ESTATE;
        }
        *max = here > *max ? here : *max;
    }
    return status;
}
