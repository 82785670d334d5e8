/* SPDX-License-Identifier: MIT */
/*
 * The reference engine of tests/engine saves a conversation to a store and goes on; another engine with a cache of its
 * own loads it from there and goes on too: the greatest difference of a logit, whose bits must be the same. Built only
 * where that engine is.
 */
#include "store.h"

#include "engine.h"
#include "engine_session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PROMPT = 63, BEFORE = 9, SAVED = 64, AFTER = 20, SLOTS = 3, CONTEXT = 160, VOCAB = 96, NO_HURRY_MS = 10000 };
enum { TOKENS = PROMPT + BEFORE };

struct talk {
    kvlazy_store *store;
    uint8_t token[TOKENS];
    int32_t id[TOKENS];
    kvlazy_prompt prompt;
    float logits[2][AFTER * VOCAB];
};

struct side {
    engine_kv *kv;
    engine *engine;
};

struct engine_case {
    model_layout layout;
    uint32_t n_stream, slot; /* of the side that loads */
};

static const struct engine_case cases[] = {
    {{MODEL_F16, MODEL_F16, false}, 1, 0},
    {{MODEL_Q8_0, MODEL_Q8_0, false}, 1, 1},
    {{MODEL_F16, MODEL_F16, true}, 1, 2},
    {{MODEL_F16, MODEL_F16, false}, SLOTS, 2},
};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static int open_side(struct side *side, const model_layout *layout, uint32_t n_stream)
{
    const engine_config config = {
        .dims = {.n_layer = 2, .n_embd = 64, .n_head = 4, .n_kv_head = 2, .n_ff = 64, .n_vocab = VOCAB},
        .seed = 5,
        .layout = *layout,
        .n_slot = SLOTS,
        .n_ctx = CONTEXT,
        .n_batch = 32,
        .n_ubatch = 16,
    };
    engine_kv_config kv_config = engine_kv_config_for(&config, n_stream);
    kv_config.kv_size = SLOTS * CONTEXT;
    kv_config.model_tag = "engine, seed 5";
    int status = engine_kv_lazy_create(&kv_config, &side->kv);
    return status == KVLAZY_OK ? engine_create(&config, side->kv, &side->engine) : status;
}

static void close_side(struct side *side)
{
    engine_destroy(side->engine);
    if (side->kv != NULL) {
        side->kv->ops->destroy(side->kv);
    }
}

static int decode(struct side *side, uint32_t slot, uint32_t n)
{
    int status = KVLAZY_OK;
    for (uint32_t i = 0; status == KVLAZY_OK && i < n; i++) {
        status = engine_decode(side->engine, &slot, 1);
    }
    return status;
}

static int go_on(struct side *side, uint32_t slot, float *logits)
{
    int status = decode(side, slot, AFTER);
    for (uint32_t i = 0; status == KVLAZY_OK && i < AFTER; i++) {
        memcpy(logits + i * VOCAB, engine_logits(side->engine, slot, TOKENS + i), VOCAB * sizeof(float));
    }
    return status;
}

static int talk_and_save(struct talk *talk, struct side *side)
{
    uint32_t n = 0, n_saved = 0;
    int status = engine_prompt(side->engine, 0, (const uint8_t *)engine_text, PROMPT);
    status = status == KVLAZY_OK ? decode(side, 0, BEFORE) : status;
    if (status != KVLAZY_OK) {
        return status;
    }
    memcpy(talk->token, engine_record(side->engine, 0, &n), TOKENS);
    for (uint32_t i = 0; i < TOKENS; i++) {
        talk->id[i] = talk->token[i];
    }
    talk->prompt = (kvlazy_prompt){.struct_size = sizeof(talk->prompt), .token = talk->id, .n_token = TOKENS};
    status = kvlazy_store_save(talk->store, side->kv->cache, 0, &talk->prompt, NO_HURRY_MS, &n_saved);
    if (status == KVLAZY_OK && n_saved != SAVED) {
        return KVLAZY_ESTATE;
    }
    return status == KVLAZY_OK ? go_on(side, 0, talk->logits[0]) : status;
}

static int load_and_talk(struct talk *talk, struct side *side, uint32_t slot)
{
    uint32_t n_live = 0;
    engine_counts before, after;
    int status = kvlazy_init_batch(side->kv->cache);
    status = status == KVLAZY_OK ? kvlazy_store_load(talk->store, side->kv->cache, (kvlazy_seq_id)slot, &talk->prompt,
                                                     0, NO_HURRY_MS, &n_live)
                                 : status;
    status = status == KVLAZY_OK ? kvlazy_end_batch(side->kv->cache) : status;
    engine_get_counts(side->engine, &before);
    status = status == KVLAZY_OK ? engine_adopt(side->engine, slot, talk->token, TOKENS) : status;
    status = status == KVLAZY_OK ? engine_prompt(side->engine, slot, talk->token, TOKENS) : status;
    engine_get_counts(side->engine, &after);
    if (status == KVLAZY_OK && (n_live != SAVED || after.reused - before.reused != SAVED)) {
        return KVLAZY_ESTATE;
    }
    return status == KVLAZY_OK ? go_on(side, slot, talk->logits[1]) : status;
}

static int run_case(struct talk *talk, const struct engine_case *c)
{
    struct side from = {.kv = NULL}, to = {.kv = NULL};
    int status = open_side(&from, &c->layout, 1);
    status = status == KVLAZY_OK ? talk_and_save(talk, &from) : status;
    close_side(&from);
    status = status == KVLAZY_OK ? open_side(&to, &c->layout, c->n_stream) : status;
    status = status == KVLAZY_OK ? load_and_talk(talk, &to, c->slot) : status;
    close_side(&to);
    return status;
}

/* Bits that differ in what is no number count as infinite. */
static double difference(const struct talk *talk)
{
    double max = 0;
    for (uint32_t i = 0; i < AFTER * VOCAB; i++) {
        if (memcmp(&talk->logits[0][i], &talk->logits[1][i], sizeof(float)) != 0) {
            double here = fabs((double)talk->logits[0][i] - (double)talk->logits[1][i]);
            max = here > max ? here : !(here <= max) ? HUGE_VAL : max;
        }
    }
    return max;
}

static int run_cases(const char *dir, double *worst)
{
    static struct talk talk;
    kvlazy_store_ops ops = {.struct_size = sizeof(ops)};
    kvlazy_store_params params = {.struct_size = sizeof(params), .ops = &ops, .block_tokens = 16, .min_tokens = 1};
    int status = kvlazy_store_dir(dir, UINT64_C(1) << 30, &ops);
    status = status == KVLAZY_OK ? kvlazy_store_create(&params, &talk.store) : status;
    for (size_t i = 0; status == KVLAZY_OK && i < CASES; i++) {
        status = run_case(&talk, &cases[i]);
        double here = status == KVLAZY_OK ? difference(&talk) : 0;
        *worst = here > *worst ? here : *worst;
        if (status == KVLAZY_OK) { /* the next case is to save for itself */
            struct side any = {.kv = NULL};
            status = open_side(&any, &cases[i].layout, 1);
            status = status == KVLAZY_OK ? kvlazy_store_forget(talk.store, any.kv->cache, &talk.prompt) : status;
            close_side(&any);
        }
    }
    kvlazy_store_destroy(talk.store);
    return status;
}

int store_engine(const struct bench_config *config)
{
    char dir[4096];
    double worst = 0;
    store_dir_name(dir, sizeof(dir), config, "engine");
    int status = run_cases(dir, &worst);
    store_remove(dir);
    if (status != KVLAZY_OK) {
        return store_error("the engine's conversations", status);
    }
    struct figure figure = {
        "store_max_dlogit", worst, -1, "engine after save and load: greatest difference", "", "", "0"};
    snprintf(figure.ours, sizeof(figure.ours), "%d cases, another cache each", CASES);
    report_figure(config, &figure);
    return 0;
}
