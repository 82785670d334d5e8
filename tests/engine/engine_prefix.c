/* SPDX-License-Identifier: MIT */
/*
 * engine_prefix: a prefix store in an engine, where the library keeps the cells and where the engine does;
 * engine_prefix.h says what for. It holds nothing between two calls.
 */
#include "engine_prefix.h"

#include <stdlib.h>
#include <string.h>

/* A prompt as the store takes it. */
typedef struct text {
    kvlazy_prompt prompt;
    int32_t *token;
    uint32_t *cell; /* NULL: the library keeps the cells */
} text;

static void free_text(text *t)
{
    free(t->token);
    free(t->cell);
}

/* n_cell: of the list of cells, where the engine keeps them. */
static int make_text(text *t, const engine_kv *kv, kvlazy_seq_id seq, const uint8_t *token, uint32_t n, uint32_t n_cell)
{
    const bool has_cells = kv->ops->seat != NULL;

    memset(t, 0, sizeof *t);
    t->token = calloc((size_t)n + 1, sizeof *t->token);
    t->cell = has_cells ? calloc((size_t)n_cell + 1, sizeof *t->cell) : NULL;
    if (t->token == NULL || (has_cells && t->cell == NULL)) {
        free_text(t);
        return KVLAZY_ENOMEM;
    }
    for (uint32_t i = 0; i < n; i++) {
        t->token[i] = token[i];
    }
    t->prompt.struct_size = sizeof t->prompt;
    t->prompt.token = t->token;
    t->prompt.n_token = n;
    t->prompt.cell = t->cell;
    t->prompt.stream = has_cells ? engine_kv_stream(kv, seq) : 0;
    return KVLAZY_OK;
}

int engine_prefix_load(const engine_prefix *prefix, engine_kv *kv, kvlazy_seq_id seq, const uint8_t *token, uint32_t n,
                       uint32_t n_have, uint32_t *n_live)
{
    text t;
    int status = make_text(&t, kv, seq, token, n, n);

    *n_live = n_have;
    if (status != KVLAZY_OK) {
        return status;
    }
    if (t.cell == NULL || kv->ops->seat(kv, seq, t.cell, n_have, n) == KVLAZY_OK) {
        status = kvlazy_store_load(prefix->store, kv->cache, seq, &t.prompt, n_have, prefix->load_ms, n_live);
    }
    if (status == KVLAZY_EPOS && t.cell == NULL) {
        status = KVLAZY_OK; /* it began as a part of a sequence whose positions moved, which says nothing of its rows */
    }
    if (t.cell != NULL && *n_live > n_have) {
        kv->ops->seated(kv, seq, t.cell, n_have, *n_live);
    }
    free_text(&t);
    return status;
}

int engine_prefix_save(const engine_prefix *prefix, engine_kv *kv, kvlazy_seq_id seq, const uint8_t *token, uint32_t n,
                       uint32_t *n_saved)
{
    const uint32_t n_live = (uint32_t)(kv->ops->seq_pos_max(kv, seq) + 1);
    text t;
    int status = make_text(&t, kv, seq, token, n < n_live ? n : n_live, n_live);

    *n_saved = 0;
    if (status != KVLAZY_OK) {
        return status;
    }
    if (t.cell != NULL) {
        status = kv->ops->place(kv, seq, t.cell, n_live);
    }
    if (status == KVLAZY_OK && t.prompt.n_token > 0) {
        status = kvlazy_store_save(prefix->store, kv->cache, seq, &t.prompt, prefix->save_ms, n_saved);
    }
    free_text(&t);
    return status;
}
