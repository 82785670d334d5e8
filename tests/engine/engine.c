/* SPDX-License-Identifier: MIT */
/*
 * engine: slots, prompts and decoding of the reference engine; engine.h says what they are for. prefill() decides
 * where to go on inside the bracket of every batch, decode trusts its record and is told by EPOS when that is too
 * long. It never sees a cell's content: engine_batch.c runs what is decided here.
 */
#include "engine_batch.h"
#include "engine_restore.h"

#include <stdlib.h>
#include <string.h>

typedef struct slot_state {
    uint8_t *token;  /* [n_ctx] */
    float *logits;   /* [n_ctx][n_vocab] */
    bool *is_loaded; /* [n_ctx]: a store brought it, and its logits are not known */
    uint32_t n;      /* tokens held */

    /* For a store: from here on rows are not those of the text alone, since a shift moved some; UINT32_MAX: all are. */
    uint32_t moved_from;
    uint32_t n_saved; /* tokens that it has, as far as is known */
    bool is_new;      /* it may lack some */
} slot_state;

struct engine {
    engine_config config;
    engine_batch batch;
    slot_state *slot;
    engine_counts counts;
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
        s->is_loaded = calloc(c->n_ctx, sizeof *s->is_loaded);
        s->moved_from = UINT32_MAX;
        if (!s->token || !s->logits || !s->is_loaded) {
            return false;
        }
    }
    return e->slot != NULL;
}

static bool can_be(const engine_config *config)
{
    const model_layout *l = &config->layout;

    return model_row_bytes(&config->dims, l->k_type) != 0 && model_row_bytes(&config->dims, l->v_type) != 0 &&
           !(l->v_transposed && l->v_type == MODEL_Q8_0);
}

int engine_create(const engine_config *config, engine_kv *kv, engine **out)
{
    engine *e;

    if (!config->n_slot || !config->n_ctx || !config->n_batch || !config->n_ubatch || !can_be(config)) {
        return KVLAZY_EINVAL;
    }
    e = calloc(1, sizeof *e);
    if (e == NULL) {
        return KVLAZY_ENOMEM;
    }
    e->config = *config;
    if (engine_batch_init(&e->batch, config, kv) != KVLAZY_OK || !make_slots(e)) {
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
        free(e->slot[i].is_loaded);
    }
    free(e->slot);
    engine_batch_free(&e->batch);
    free(e);
}

engine_kv_config engine_kv_config_for(const engine_config *config, uint32_t n_stream)
{
    return (engine_kv_config){
        .n_layer = config->dims.n_layer,
        .k_row_bytes = model_row_bytes(&config->dims, config->layout.k_type),
        .v_row_bytes = model_row_bytes(&config->dims, config->layout.v_type),
        .v_channels = config->layout.v_transposed ? model_row_values(&config->dims) : 0,
        .kv_size = config->n_ctx,
        .n_seq = config->n_slot,
        .n_stream = n_stream,
        .n_batch = config->n_batch,
    };
}

/* ---- batches ---- */

static float *logits_at(const engine *e, const slot_state *s, uint32_t pos)
{
    return s->logits + (size_t)pos * e->config.dims.n_vocab;
}

static void add(engine *e, uint32_t slot, uint8_t token, uint32_t pos)
{
    engine_batch_add(&e->batch, (kvlazy_seq_id)slot, token, pos, logits_at(e, &e->slot[slot], pos));
}

/* Runs what add() gathered, records what got through, and ends the batch. */
static int run(engine *e)
{
    const engine_batch *b = &e->batch;
    const int status = engine_batch_run(&e->batch);

    for (uint32_t i = 0; i < b->n_done; i++) {
        slot_state *s = &e->slot[b->seq[i]];

        s->token[b->pos[i]] = b->token[i];
        s->is_loaded[b->pos[i]] = false;
        s->n = (uint32_t)b->pos[i] + 1;
        s->is_new = true;
    }
    return engine_batch_end(&e->batch, status);
}

/* ---- prompts ---- */

/* Cuts the slot to n tokens. What is no longer known gets bytes that are no number, so that a token which is not
 * computed again cannot pass for one that was. */
static void cut_record(engine *e, slot_state *s, uint32_t n)
{
    const size_t n_vocab = e->config.dims.n_vocab;

    if (n < s->n) {
        memset(logits_at(e, s, n), 0xff, (s->n - n) * n_vocab * sizeof *s->logits);
        memset(s->is_loaded + n, 0, (s->n - n) * sizeof *s->is_loaded);
        s->moved_from = n > s->moved_from ? s->moved_from : UINT32_MAX;
        s->n_saved = n > s->n_saved ? s->n_saved : n;
        s->n = n;
    }
}

static uint32_t common(const slot_state *s, const uint8_t *token, uint32_t n)
{
    uint32_t i = 0;

    while (i < n && i < s->n && token[i] == s->token[i]) {
        i++;
    }
    return i;
}

/* Inside an open batch: how much of the prompt is there already. The rest of the slot goes. *lost_end: one past what
 * was there until an eviction took it; 0: nothing was. */
static int resume(engine *e, uint32_t slot, const uint8_t *token, uint32_t n, uint32_t *at, uint32_t *lost_end)
{
    slot_state *s = &e->slot[slot];
    const uint32_t n_live = engine_batch_n_live(&e->batch, (kvlazy_seq_id)slot);
    uint32_t keep = common(s, token, n);
    int status;

    *lost_end = 0;
    if (keep > n_live) {
        *lost_end = keep;
        keep = n_live;
    }
    keep = keep < n ? keep : n - 1;
    status = e->batch.kv->ops->seq_rm(e->batch.kv, (kvlazy_seq_id)slot, (kvlazy_pos)keep, -1);
    if (status == KVLAZY_OK) {
        cut_record(e, s, keep);
        *at = keep;
    }
    return status;
}

/* Inside an open batch: behind the first *at tokens come those that a store has. Behind rows that a shift moved stand
 * others than those of the text alone, which is what a store has. */
static int load(engine *e, uint32_t slot, const uint8_t *token, uint32_t n, uint32_t *at)
{
    slot_state *s = &e->slot[slot];
    uint32_t n_live, from = *at;
    int status;

    if (e->config.prefix.store == NULL || s->moved_from < from) {
        return KVLAZY_OK;
    }
    status = engine_prefix_load(&e->config.prefix, e->batch.kv, (kvlazy_seq_id)slot, token, n, from, &n_live);
    memmove(s->token + from, token + from, n_live - from);
    memset(s->is_loaded + from, true, n_live - from);
    e->counts.loaded += n_live - from;
    s->n = n_live;
    *at = n_live;
    return status;
}

/* Outside of a batch: a store is given what it lacks of a slot. Where it takes no more, it is asked again when there
 * are new tokens. */
static int save(engine *e, uint32_t slot)
{
    slot_state *s = &e->slot[slot];
    uint32_t n_saved;
    int status;

    if (e->config.prefix.store == NULL || !s->is_new) {
        return KVLAZY_OK;
    }
    status = engine_prefix_save(&e->config.prefix, e->batch.kv, (kvlazy_seq_id)slot, s->token,
                                s->n < s->moved_from ? s->n : s->moved_from, &n_saved);
    s->is_new = n_saved > s->n_saved;
    s->n_saved = n_saved;
    return status;
}

/* Every batch asks anew where to go on, inside its bracket: between two of them tokens may have been evicted.
 * The first one asks a store, too. */
static int prefill(engine *e, uint32_t slot, const uint8_t *token, uint32_t n, uint32_t *n_reused)
{
    uint32_t at = 0, first = UINT32_MAX, lost_end = 0;
    int status;

    do {
        status = engine_batch_open(&e->batch);
        if (status == KVLAZY_OK) {
            status = resume(e, slot, token, n, &at, &lost_end);
        }
        if (status == KVLAZY_OK && first == UINT32_MAX) {
            first = at;
            status = load(e, slot, token, n, &at);
        }
        if (status != KVLAZY_OK) {
            return engine_batch_end(&e->batch, status);
        }
        e->counts.recomputed += lost_end > at ? lost_end - at : 0;
        for (; at < n && e->batch.n_token < e->batch.n_max; at++) {
            add(e, slot, token[at], at);
        }
        status = run(e);
    } while (status == KVLAZY_OK && at < n);
    *n_reused = first;
    return status;
}

/* Inside an open batch: the slot gets the beginning of the prompt from another one, if that has more of it. */
static int borrow(engine *e, uint32_t slot, uint32_t from, const uint8_t *token, uint32_t n)
{
    engine_kv *kv = e->batch.kv;
    slot_state *s = &e->slot[slot];
    const slot_state *source = &e->slot[from];
    const uint32_t n_own = engine_batch_n_live(&e->batch, (kvlazy_seq_id)slot);
    uint32_t n_shared = engine_batch_n_live(&e->batch, (kvlazy_seq_id)from);
    int status;

    n_shared = common(source, token, n < n_shared ? n : n_shared);
    if (n_shared <= common(s, token, n < n_own ? n : n_own)) {
        return KVLAZY_OK;
    }
    status = kv->ops->seq_rm(kv, (kvlazy_seq_id)slot, -1, -1); /* a tail of its own would stay */
    if (status == KVLAZY_OK) {
        cut_record(e, s, 0);
        status = kv->ops->seq_cp(kv, (kvlazy_seq_id)from, (kvlazy_seq_id)slot, 0, (kvlazy_pos)n_shared);
    }
    if (status == KVLAZY_OK) {
        memcpy(s->token, source->token, n_shared);
        memcpy(s->logits, source->logits, n_shared * e->config.dims.n_vocab * sizeof *s->logits);
        memcpy(s->is_loaded, source->is_loaded, n_shared * sizeof *s->is_loaded);
        s->moved_from = source->moved_from < n_shared ? source->moved_from : UINT32_MAX;
        s->n = n_shared;
    }
    return status;
}

int engine_prompt(engine *e, uint32_t slot, const uint8_t *token, uint32_t n)
{
    return engine_prompt_from(e, slot, slot, token, n);
}

int engine_prompt_from(engine *e, uint32_t slot, uint32_t from, const uint8_t *token, uint32_t n)
{
    uint32_t n_reused = 0;
    int status = KVLAZY_OK;

    if (slot >= e->config.n_slot || from >= e->config.n_slot || n == 0) {
        return KVLAZY_EINVAL;
    }
    if (n > e->config.n_ctx) {
        return KVLAZY_ENOSLOT;
    }
    if (from != slot) {
        status = engine_batch_open(&e->batch);
        if (status == KVLAZY_OK) {
            status = borrow(e, slot, from, token, n);
        }
        status = engine_batch_end(&e->batch, status);
    }
    if (status == KVLAZY_OK) {
        status = prefill(e, slot, token, n, &n_reused);
    }
    e->counts.reused += n_reused;
    return status == KVLAZY_OK ? save(e, slot) : status;
}

/* ---- decode ---- */

static uint8_t likeliest(const engine *e, const slot_state *s)
{
    return model_likeliest(logits_at(e, s, s->n - 1), e->config.dims.n_vocab);
}

/* The record is longer than what the cache kept: computes the lost tokens from the record itself. */
static int compute_lost(engine *e, kvlazy_seq_id seq)
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
        status = round == 0 ? KVLAZY_OK : compute_lost(e, e->batch.kv->ops->refused(e->batch.kv));
        if (status == KVLAZY_OK) {
            status = engine_batch_open(&e->batch);
        }
        if (status != KVLAZY_OK) {
            return engine_batch_end(&e->batch, status);
        }
        for (uint32_t i = 0; i < n_slot; i++) {
            add(e, slot[i], likeliest(e, &e->slot[slot[i]]), e->slot[slot[i]].n);
        }
        status = run(e);
    }
    return status;
}

/* ---- a full slot ---- */

/* The K of tokens that moved still stands for where they were. */
static void turn_shifted(engine *e, kvlazy_seq_id seq)
{
    engine_kv *kv = e->batch.kv;
    uint32_t n_cell = 0;
    const kvlazy_pos *shift = kv->ops->shift(kv, seq, &n_cell);

    for (uint32_t i = 0; shift != NULL && i < n_cell; i++) {
        if (shift[i] != 0) {
            model_turn(e->batch.model, kv->k, engine_kv_stream(kv, seq), i, shift[i]);
        }
    }
    for (uint32_t i = 0; shift != NULL && e->config.turns_all && i < kv->kv_size; i++) {
        if (i >= n_cell || shift[i] == 0) {
            model_turn(e->batch.model, kv->k, engine_kv_stream(kv, seq), i, 0);
        }
    }
}

static void shift_record(engine *e, slot_state *s, uint32_t n_keep, uint32_t n_discard)
{
    const uint32_t n_move = s->n - n_keep - n_discard;

    memmove(s->token + n_keep, s->token + n_keep + n_discard, n_move);
    memmove(logits_at(e, s, n_keep), logits_at(e, s, n_keep + n_discard),
            n_move * e->config.dims.n_vocab * sizeof *s->logits);
    memmove(s->is_loaded + n_keep, s->is_loaded + n_keep + n_discard, n_move * sizeof *s->is_loaded);
    cut_record(e, s, n_keep + n_move);
    s->moved_from = n_move > 0 && n_keep < s->moved_from ? n_keep : s->moved_from;
    s->n_saved = n_keep < s->n_saved ? n_keep : s->n_saved;
}

/* Positions are moved, K is turned and that is said, all in one bracket. */
int engine_shift(engine *e, uint32_t slot, uint32_t n_keep, uint32_t n_discard)
{
    engine_kv *kv = e->batch.kv;
    int status;

    if (slot >= e->config.n_slot || n_keep > e->slot[slot].n || n_discard > e->slot[slot].n - n_keep) {
        return KVLAZY_EINVAL;
    }
    status = engine_batch_open(&e->batch);
    if (status == KVLAZY_OK) {
        status = kv->ops->discard(kv, (kvlazy_seq_id)slot, (kvlazy_pos)n_keep, (kvlazy_pos)(n_keep + n_discard));
    }
    if (status == KVLAZY_OK) {
        turn_shifted(e, (kvlazy_seq_id)slot);
        status = kv->ops->shift_done(kv);
        shift_record(e, &e->slot[slot], n_keep, n_discard);
    }
    return engine_batch_end(&e->batch, status);
}

/* ---- the rest ---- */

int engine_adopt(engine *e, uint32_t slot, const uint8_t *token, uint32_t n)
{
    slot_state *s;

    if (slot >= e->config.n_slot || n > e->config.n_ctx) {
        return KVLAZY_EINVAL;
    }
    s = &e->slot[slot];
    s->n = n > s->n ? n : s->n;
    memmove(s->token, token, n);
    cut_record(e, s, 0);
    s->n = n;
    return KVLAZY_OK;
}

int engine_restore(engine *e, uint32_t slot, bool late)
{
    return slot < e->config.n_slot ? engine_restore_sequence(&e->batch, (kvlazy_seq_id)slot, late) : KVLAZY_EINVAL;
}

int engine_drop(engine *e, uint32_t slot)
{
    int status;

    if (slot >= e->config.n_slot) {
        return KVLAZY_EINVAL;
    }
    status = e->batch.kv->ops->seq_rm(e->batch.kv, (kvlazy_seq_id)slot, -1, -1);
    if (status == KVLAZY_OK) {
        cut_record(e, &e->slot[slot], 0);
    }
    return status;
}

int engine_idle(engine *e, uint64_t *next_ms)
{
    for (uint32_t slot = 0; slot < e->config.n_slot; slot++) {
        const int status = save(e, slot);

        if (status != KVLAZY_OK) {
            return status;
        }
    }
    return e->batch.kv->ops->poll(e->batch.kv, next_ms);
}

const uint8_t *engine_record(const engine *e, uint32_t slot, uint32_t *n)
{
    *n = e->slot[slot].n;
    return e->slot[slot].token;
}

const float *engine_logits(const engine *e, uint32_t slot, uint32_t pos)
{
    return logits_at(e, &e->slot[slot], pos);
}

bool engine_is_loaded(const engine *e, uint32_t slot, uint32_t pos)
{
    return e->slot[slot].is_loaded[pos];
}

void engine_get_counts(const engine *e, engine_counts *counts)
{
    *counts = e->counts;
    counts->computed = e->batch.n_computed;
    counts->undone = e->batch.n_undone;
}

void engine_break(engine *e, uint32_t after, uint32_t times)
{
    e->batch.break_after = after;
    e->batch.break_times = times;
}
