/* SPDX-License-Identifier: MIT */
/*
 * The reference engine of tests/engine and the layouts: its own prefill with pages committed ahead and by faults, in
 * turn, and the greatest difference of a logit from a plain calloc'ed cache over both layouts of V and quantised rows.
 * Built only where that engine is.
 */
#include "tensors.h"

#include "micro.h"

#include "engine.h"
#include "engine_session.h"

#include <stdio.h>

enum { PROMPT_TOKENS = 512, ROUNDS = 7 };

/* ------------------------------------------------------------------------------------------------------
 * Logits
 */

static int report_dlogit(const struct bench_config *config)
{
    double worst = 0;
    if (engine_layouts_max_dlogit(&worst) != 0) {
        return bench_error("the engine's session over the layouts failed");
    }
    struct figure figure = {"engine_layouts_max_dlogit",
                            worst,
                            -1,
                            "engine, layouts: greatest difference of a logit",
                            "V row-major, transposed; q8_0",
                            "a plain calloc'ed cache",
                            "0"};
    report_figure(config, &figure);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * Prefill
 */

/* Small weights and many layers, so that writing rows is as large a part of the engine's work as it can be. */
static const engine_config prefill_config = {
    .dims = {.n_layer = ENGINE_MAX_LAYER, .n_embd = 64, .n_head = 4, .n_kv_head = 4, .n_ff = 64, .n_vocab = 64},
    .seed = 1,
    .n_slot = 1,
    .n_ctx = 1024,
    .n_batch = PROMPT_TOKENS,
    .n_ubatch = PROMPT_TOKENS,
};

struct side {
    engine_kv *kv;
    engine *engine;
    struct bench_series ns;
};

/* Does what KVLAZY_NO_COMMIT_AHEAD does, for an engine that passes no flags: the first write of a page is a fault. */
static int commit_nothing(void *ctx, const kvlazy_range *range, size_t n)
{
    (void)ctx, (void)range, (void)n;
    return 0;
}

static int side_open(struct side *side, bool ahead)
{
    kvlazy_mem mem = *kvlazy_mem_host();
    engine_kv_config kv_config = engine_kv_config_for(&prefill_config, 1);
    if (!ahead) {
        mem.commit = commit_nothing;
    }
    kv_config.mem = &mem;
    int status = engine_kv_lazy_create(&kv_config, &side->kv);
    status = status == KVLAZY_OK ? engine_create(&prefill_config, side->kv, &side->engine) : status;
    return status == KVLAZY_OK ? 0 : rig_error("creating the engine", status);
}

static void side_close(struct side *side)
{
    if (side->engine != NULL) {
        engine_destroy(side->engine);
    }
    if (side->kv != NULL) {
        side->kv->ops->destroy(side->kv);
    }
}

static int side_prefill(struct side *side, bool counts)
{
    uint8_t token[PROMPT_TOKENS];
    for (uint32_t i = 0; i < PROMPT_TOKENS; i++) {
        token[i] = (uint8_t)(i * 7 % prefill_config.dims.n_vocab);
    }
    uint64_t start_ns = bench_now_ns();
    int status = engine_prompt(side->engine, 0, token, PROMPT_TOKENS);
    if (counts) {
        bench_series_add(&side->ns, (double)(bench_now_ns() - start_ns));
    }
    status = status == KVLAZY_OK ? engine_drop(side->engine, 0) : status;
    status = status == KVLAZY_OK ? kvlazy_trim(side->kv->cache, 0) : status;
    return status == KVLAZY_OK ? 0 : rig_error("the engine's prefill", status);
}

static void report_prefill(const struct bench_config *config, struct side *side)
{
    struct figure figure = {.value = bench_series_at(&side[1].ns, 0.5) / bench_series_at(&side[0].ns, 0.5),
                            .digits = 3,
                            .what = "engine: prefill of 512, ahead / faults"};
    char text[48];
    report_time(figure.ours, sizeof(figure.ours), &side[1].ns);
    report_time(text, sizeof(text), &side[0].ns);
    snprintf(figure.other, sizeof(figure.other), "by faults %s", text);
    report_figure(config, &figure);
}

/* Side 1 commits ahead. */
static int engine_prefill(const struct bench_config *config)
{
    struct side side[2] = {{.kv = NULL}, {.kv = NULL}};
    int status = side_open(&side[0], false);
    status = status == 0 ? side_open(&side[1], true) : status;
    for (int round = 0; status == 0 && round <= ROUNDS; round++) {
        for (int k = 0; status == 0 && k < 2; k++) {
            status = side_prefill(&side[(round + k) % 2], round > 0);
        }
    }
    if (status == 0) {
        report_prefill(config, side);
    }
    side_close(&side[0]);
    side_close(&side[1]);
    return status;
}

int tensors_engine(const struct bench_config *config)
{
    int status = engine_prefill(config);
    return status != 0 ? status : report_dlogit(config);
}
