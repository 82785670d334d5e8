/* SPDX-License-Identifier: MIT */
/*
 * engine_draft: two models, two caches, one record; engine_draft.h says what for. engine_draft_decode() is the part
 * to read: a round opens a batch on both caches, reads where each of them goes on, and brings both to the record;
 * from there to the end of the round neither can lose a token. What the draft cannot do costs guesses, never the
 * answer. It computes nothing itself: engine_batch.c does.
 */
#include "engine_draft.h"

#include <stdlib.h>
#include <string.h>

#include "engine_batch.h"

typedef struct draft_slot {
    uint8_t *token; /* [n_ctx]: n that the slot holds, then n_ahead that the target is to compute */
    float *logits;  /* [n_ctx][n_vocab], the target's; good for tokens that its cache holds or held */
    float *guess;   /* [n_vocab], the draft's after the last token it ran for */
    uint32_t n, n_ahead;
} draft_slot;

struct engine_draft {
    uint32_t n_slot, n_ctx, n_vocab, n_guess;
    engine_batch target, draft;
    draft_slot *slot;
    engine_draft_counts counts;
};

/* ---- life ---- */

static bool make_slots(engine_draft *d)
{
    d->slot = calloc(d->n_slot, sizeof *d->slot);
    for (uint32_t i = 0; d->slot != NULL && i < d->n_slot; i++) {
        draft_slot *s = &d->slot[i];

        s->token = calloc(d->n_ctx, sizeof *s->token);
        s->logits = calloc((size_t)d->n_ctx * d->n_vocab, sizeof *s->logits);
        s->guess = calloc(d->n_vocab, sizeof *s->guess);
        if (!s->token || !s->logits || !s->guess) {
            return false;
        }
    }
    return d->slot != NULL;
}

int engine_draft_create(const engine_config *target, engine_kv *target_kv, const engine_config *draft,
                        engine_kv *draft_kv, uint32_t n_guess, engine_draft **out)
{
    engine_draft *d;

    if (!target->n_slot || !target->n_ctx || !target->n_ubatch || !draft->n_ubatch || target->n_batch <= n_guess ||
        target->n_slot != draft->n_slot || target->n_ctx != draft->n_ctx || target->n_batch != draft->n_batch ||
        target->dims.n_vocab != draft->dims.n_vocab) {
        return KVLAZY_EINVAL;
    }
    d = calloc(1, sizeof *d);
    if (d == NULL) {
        return KVLAZY_ENOMEM;
    }
    d->n_slot = target->n_slot;
    d->n_ctx = target->n_ctx;
    d->n_vocab = target->dims.n_vocab;
    d->n_guess = n_guess;
    if (engine_batch_init(&d->target, target, target_kv) != KVLAZY_OK ||
        engine_batch_init(&d->draft, draft, draft_kv) != KVLAZY_OK || !make_slots(d)) {
        engine_draft_destroy(d);
        return KVLAZY_ENOMEM;
    }
    *out = d;
    return KVLAZY_OK;
}

void engine_draft_destroy(engine_draft *d)
{
    if (d == NULL) {
        return;
    }
    for (uint32_t i = 0; d->slot != NULL && i < d->n_slot; i++) {
        free(d->slot[i].token);
        free(d->slot[i].logits);
        free(d->slot[i].guess);
    }
    free(d->slot);
    engine_batch_free(&d->target);
    engine_batch_free(&d->draft);
    free(d);
}

/* ---- one cache and the record ---- */

static float *logits_at(const engine_draft *d, const draft_slot *s, uint32_t pos)
{
    return s->logits + (size_t)pos * d->n_vocab;
}

static void add(engine_draft *d, engine_batch *b, uint32_t slot, uint32_t pos)
{
    draft_slot *s = &d->slot[slot];

    engine_batch_add(b, (kvlazy_seq_id)slot, s->token[pos], pos, b == &d->draft ? s->guess : logits_at(d, s, pos));
}

static int cut(engine_batch *b, uint32_t slot, uint32_t n)
{
    return b->kv->ops->seq_rm(b->kv, (kvlazy_seq_id)slot, (kvlazy_pos)n, -1);
}

/* Inside an open batch: what the cache holds beyond the record goes, what it lacks is added, as far as it fits. */
static int add_missing(engine_draft *d, engine_batch *b, uint32_t slot)
{
    const uint32_t n = d->slot[slot].n, n_live = engine_batch_n_live(b, (kvlazy_seq_id)slot);
    uint32_t at = n_live < n ? n_live : n;
    const int status = cut(b, slot, at);

    for (; status == KVLAZY_OK && at < n && b->n_token < b->n_max; at++) {
        add(d, b, slot, at);
    }
    return status;
}

/* Brings one cache to the record and leaves its batch open. Every batch asks anew: between two of them tokens may
 * have been evicted. */
static int catch_up(engine_draft *d, engine_batch *b, const uint32_t *slot, uint32_t n_slot)
{
    int status;

    do {
        status = engine_batch_open(b);
        for (uint32_t i = 0; status == KVLAZY_OK && i < n_slot; i++) {
            status = add_missing(d, b, slot[i]);
        }
        if (status == KVLAZY_OK && b->n_token == 0) {
            return KVLAZY_OK;
        }
        if (status == KVLAZY_OK) {
            status = engine_batch_run(b);
        }
        status = engine_batch_end(b, status);
    } while (status == KVLAZY_OK);
    return status;
}

/* ---- a round ---- */

/* The target's own next token, which needs no guess. */
static void start_round(engine_draft *d, const uint32_t *slot, uint32_t n_slot)
{
    for (uint32_t i = 0; i < n_slot; i++) {
        draft_slot *s = &d->slot[slot[i]];

        s->token[s->n] = model_likeliest(logits_at(d, s, s->n - 1), d->n_vocab);
        s->n_ahead = 1;
    }
}

/* One guess more for every slot with room for it, in one batch of the draft, inside the bracket of the round. */
static int guess_once(engine_draft *d, const uint32_t *slot, uint32_t n_slot)
{
    engine_batch *b = &d->draft;
    int status;

    engine_batch_next(b);
    for (uint32_t i = 0; i < n_slot; i++) {
        const draft_slot *s = &d->slot[slot[i]];

        if (s->n + s->n_ahead < d->n_ctx) {
            add(d, b, slot[i], s->n + s->n_ahead - 1);
        }
    }
    if (b->n_token == 0) {
        return KVLAZY_OK;
    }
    status = engine_batch_run(b);
    for (uint32_t i = 0; i < b->n_done; i++) {
        draft_slot *s = &d->slot[b->seq[i]];

        s->token[s->n + s->n_ahead++] = model_likeliest(s->guess, d->n_vocab);
        d->counts.guessed++;
    }
    return status;
}

/* A draft that fails, whatever the reason, guesses less. */
static void guess(engine_draft *d, const uint32_t *slot, uint32_t n_slot)
{
    int status = catch_up(d, &d->draft, slot, n_slot);

    for (uint32_t i = 0; status == KVLAZY_OK && i < d->n_guess; i++) {
        status = guess_once(d, slot, n_slot);
    }
    d->counts.gave_up += status != KVLAZY_OK;
}

static int verify(engine_draft *d, const uint32_t *slot, uint32_t n_slot)
{
    engine_batch_next(&d->target);
    for (uint32_t i = 0; i < n_slot; i++) {
        const draft_slot *s = &d->slot[slot[i]];

        for (uint32_t ahead = 0; ahead < s->n_ahead; ahead++) {
            add(d, &d->target, slot[i], s->n + ahead);
        }
    }
    return engine_batch_run(&d->target);
}

/* The guesses did not fit, the target's own tokens may. The refusal closed the batch. */
static int verify_alone(engine_draft *d, const uint32_t *slot, uint32_t n_slot)
{
    int status = catch_up(d, &d->target, slot, n_slot);

    d->counts.alone++;
    if (status == KVLAZY_OK) {
        start_round(d, slot, n_slot);
        status = verify(d, slot, n_slot);
    }
    return status;
}

static bool is_room_refused(int status)
{
    return status == KVLAZY_ENOSLOT || status == KVLAZY_EBUDGET || status == KVLAZY_ENOMEM;
}

/* Guesses go into the record as long as the target says the same. */
static void accept(engine_draft *d, draft_slot *s)
{
    uint32_t n = 1;

    while (n < s->n_ahead && s->token[s->n + n] == model_likeliest(logits_at(d, s, s->n + n - 1), d->n_vocab)) {
        n++;
    }
    d->counts.accepted += n - 1;
    s->n += n;
}

/* What was not accepted leaves both caches. */
static int finish_round(engine_draft *d, int status, const uint32_t *slot, uint32_t n_slot)
{
    for (uint32_t i = 0; i < n_slot; i++) {
        draft_slot *s = &d->slot[slot[i]];

        if (status == KVLAZY_OK) {
            accept(d, s);
        }
        if (cut(&d->target, slot[i], s->n) != KVLAZY_OK || cut(&d->draft, slot[i], s->n) != KVLAZY_OK) {
            status = KVLAZY_ESTATE;
        }
    }
    status = engine_batch_end(&d->draft, status);
    return engine_batch_end(&d->target, status);
}

int engine_draft_decode(engine_draft *d, const uint32_t *slot, uint32_t n_slot)
{
    int status;

    for (uint32_t i = 0; i < n_slot; i++) {
        if (slot[i] >= d->n_slot || d->slot[slot[i]].n == 0 || n_slot > d->target.n_max / (d->n_guess + 1)) {
            return KVLAZY_EINVAL;
        }
        if (d->slot[slot[i]].n == d->n_ctx) {
            return KVLAZY_ENOSLOT;
        }
    }
    d->counts.rounds++;
    status = catch_up(d, &d->target, slot, n_slot);
    if (status != KVLAZY_OK) {
        return status;
    }
    start_round(d, slot, n_slot);
    guess(d, slot, n_slot);
    status = verify(d, slot, n_slot);
    if (is_room_refused(status) && d->target.n_token > n_slot) {
        status = verify_alone(d, slot, n_slot);
    }
    return finish_round(d, status, slot, n_slot);
}

/* ---- the rest ---- */

/* The slot holds n tokens at most, in the record and in both caches. Logits of others become no numbers, so that a
 * token which is not computed again cannot pass for one that was. */
static int shorten(engine_draft *d, uint32_t slot, uint32_t n)
{
    draft_slot *s = &d->slot[slot];

    if (cut(&d->target, slot, n) != KVLAZY_OK || cut(&d->draft, slot, n) != KVLAZY_OK) {
        return KVLAZY_ESTATE;
    }
    memset(logits_at(d, s, n), 0xff, (size_t)(d->n_ctx - n) * d->n_vocab * sizeof *s->logits);
    s->n = s->n < n ? s->n : n;
    return KVLAZY_OK;
}

int engine_draft_prompt(engine_draft *d, uint32_t slot, const uint8_t *token, uint32_t n)
{
    draft_slot *s;
    uint32_t keep = 0;
    int status;

    if (slot >= d->n_slot || n == 0) {
        return KVLAZY_EINVAL;
    }
    if (n > d->n_ctx) {
        return KVLAZY_ENOSLOT;
    }
    s = &d->slot[slot];
    while (keep < n && keep < s->n && token[keep] == s->token[keep]) {
        keep++;
    }
    status = shorten(d, slot, keep);
    if (status != KVLAZY_OK) {
        return status;
    }
    memcpy(s->token + keep, token + keep, n - keep);
    s->n = n;
    status = catch_up(d, &d->target, &slot, 1);
    return status == KVLAZY_OK ? engine_batch_end(&d->target, KVLAZY_OK) : status;
}

int engine_draft_drop(engine_draft *d, uint32_t slot)
{
    return slot < d->n_slot ? shorten(d, slot, 0) : KVLAZY_EINVAL;
}

const uint8_t *engine_draft_record(const engine_draft *d, uint32_t slot, uint32_t *n)
{
    *n = d->slot[slot].n;
    return d->slot[slot].token;
}

const float *engine_draft_logits(const engine_draft *d, uint32_t slot, uint32_t pos)
{
    return logits_at(d, &d->slot[slot], pos);
}

void engine_draft_get_counts(const engine_draft *d, engine_draft_counts *counts)
{
    *counts = d->counts;
    counts->target = d->target.n_computed;
    counts->draft = d->draft.n_computed;
}

void engine_draft_break(engine_draft *d, bool draft, uint32_t after, uint32_t times)
{
    engine_batch *b = draft ? &d->draft : &d->target;

    b->break_after = after;
    b->break_times = times;
}
