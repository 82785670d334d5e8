/* SPDX-License-Identifier: MIT */
/*
 * A slot that is full gives up the middle of its context and talks on: positions are moved, K is turned inside the
 * bracket, and every logit is that of a calloc'ed cache to which the same was done. Shared prefixes stay where they
 * are, whoever else holds them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "engine_session.h"
#include "row.h"

enum { N_SLOT = 4, N_CTX = 128, N_KEEP = 40, N_DISCARD = 30, N_VALUE = 32 };

static const struct variant {
    model_layout layout;
    int kv;
    uint32_t n_stream;
} variants[] = {
    {{MODEL_F32, MODEL_F32, false}, ENGINE_KV_LAZY, 1},   {{MODEL_F32, MODEL_F32, false}, ENGINE_KV_LAZY, N_SLOT},
    {{MODEL_F16, MODEL_F16, true}, ENGINE_KV_LAZY, 1},    {{MODEL_F16, MODEL_F16, true}, ENGINE_KV_ARENA, N_SLOT},
    {{MODEL_Q8_0, MODEL_Q8_0, false}, ENGINE_KV_LAZY, 1}, {{MODEL_Q8_0, MODEL_Q8_0, false}, ENGINE_KV_LAZY, N_SLOT},
    {{MODEL_Q8_0, MODEL_F16, true}, ENGINE_KV_MEMORY, 1}, {{MODEL_F32, MODEL_F32, false}, ENGINE_KV_MEMORY, N_SLOT},
};

typedef struct bench {
    engine_config config;
    engine_kv *plain_kv, *lazy_kv;
    engine *plain, *lazy;
} bench;

static void set_up(bench *b, const struct variant *variant)
{
    engine_kv_config kv_config;

    b->config = (engine_config){
        .dims = {.n_layer = 2, .n_embd = 64, .n_head = 4, .n_kv_head = 2, .n_ff = 64, .n_vocab = 256},
        .seed = 9,
        .layout = variant->layout,
        .n_slot = N_SLOT,
        .n_ctx = N_CTX,
        .n_batch = 64,
        .n_ubatch = 16,
    };
    kv_config = engine_kv_config_for(&b->config, variant->n_stream);
    kv_config.kv_size = variant->n_stream == 1 ? N_SLOT * N_CTX : N_CTX;
    assert_int_equal(engine_kv_plain_create(&kv_config, &b->plain_kv), KVLAZY_OK);
    assert_int_equal(engine_session_create_kv(variant->kv, &kv_config, &b->lazy_kv), KVLAZY_OK);
    assert_int_equal(engine_create(&b->config, b->plain_kv, &b->plain), KVLAZY_OK);
    assert_int_equal(engine_create(&b->config, b->lazy_kv, &b->lazy), KVLAZY_OK);
}

static void tear_down(bench *b)
{
    engine_destroy(b->plain);
    engine_destroy(b->lazy);
    b->plain_kv->ops->destroy(b->plain_kv);
    b->lazy_kv->ops->destroy(b->lazy_kv);
}

static void same(const bench *b)
{
    assert_int_equal(kvlazy_check(b->lazy_kv->cache, NULL), KVLAZY_OK);
    for (uint32_t slot = 0; slot < N_SLOT; slot++) {
        uint32_t n_plain, n_lazy;
        const uint8_t *plain = engine_record(b->plain, slot, &n_plain), *lazy = engine_record(b->lazy, slot, &n_lazy);

        assert_int_equal(n_plain, n_lazy);
        assert_memory_equal(plain, lazy, n_plain);
        for (uint32_t pos = 0; pos < n_plain; pos++) {
            assert_memory_equal(engine_logits(b->plain, slot, pos), engine_logits(b->lazy, slot, pos),
                                b->config.dims.n_vocab * sizeof(float));
        }
    }
}

static void prompt(bench *b, uint32_t slot, uint32_t from, uint32_t n)
{
    const uint8_t *token = (const uint8_t *)engine_text;

    assert_int_equal(engine_prompt_from(b->plain, slot, from, token, n), KVLAZY_OK);
    assert_int_equal(engine_prompt_from(b->lazy, slot, from, token, n), KVLAZY_OK);
}

static int decode(bench *b, uint32_t slot)
{
    const int status = engine_decode(b->plain, &slot, 1);

    assert_int_equal(engine_decode(b->lazy, &slot, 1), status);
    return status;
}

static void shift(bench *b, uint32_t slot)
{
    assert_int_equal(engine_shift(b->plain, slot, N_KEEP, N_DISCARD), KVLAZY_OK);
    assert_int_equal(engine_shift(b->lazy, slot, N_KEEP, N_DISCARD), KVLAZY_OK);
}

static void a_full_slot_talks_on(void **state)
{
    bench b;
    uint32_t n_shift = 0;

    set_up(&b, *state);
    prompt(&b, 0, 0, 100);
    prompt(&b, 1, 0, N_KEEP + 5); /* holds cells of slot 0, or copies of them */
    prompt(&b, 2, 0, N_KEEP);
    while (n_shift < 4) {
        const int status = decode(&b, 0);

        if (status == KVLAZY_ENOSLOT) {
            assert_int_equal(b.lazy_kv->ops->seq_pos_max(b.lazy_kv, 0), N_CTX - 1);
            if (n_shift == 0) { /* slot 1 shares more than is kept: it goes first, or its tokens would move too */
                assert_int_equal(engine_drop(b.plain, 1), KVLAZY_OK);
                assert_int_equal(engine_drop(b.lazy, 1), KVLAZY_OK);
            }
            shift(&b, 0);
            assert_int_equal(b.lazy_kv->ops->seq_pos_max(b.lazy_kv, 0), N_CTX - 1 - N_DISCARD);
            assert_int_equal(b.lazy_kv->ops->seq_pos_max(b.lazy_kv, 2), N_KEEP - 1);
            n_shift++;
        } else {
            assert_int_equal(status, KVLAZY_OK);
        }
        same(&b);
    }
    assert_int_equal(decode(&b, 2), KVLAZY_OK);
    prompt(&b, 3, 0, 60); /* shares what the shifted one kept, and no more */
    same(&b);
    tear_down(&b);
}

static void load_k(const bench *b, kvlazy_seq_id seq, uint32_t cell, float *k)
{
    float packed[N_VALUE]; /* never more */

    engine_kv_get_cell(&b->lazy_kv->k[0], engine_kv_stream(b->lazy_kv, seq), cell, packed);
    row_unpack(k, packed, b->config.layout.k_type, N_VALUE);
}

/* Turned back by what it moved, K of the first layer is what the token has at its new position: it knows no past. */
static void k_is_turned_the_right_way(void **state)
{
    const struct variant *variant = *state;
    const float near = variant->layout.k_type == MODEL_F32   ? 1e-3f
                       : variant->layout.k_type == MODEL_F16 ? 1e-2f
                                                             : 1e-1f;
    uint32_t shifted[N_CTX], fresh[N_CTX];
    uint8_t token[N_CTX];
    uint32_t n;
    bench b;

    set_up(&b, variant);
    prompt(&b, 0, 0, 120);
    shift(&b, 0);
    for (uint32_t i = 0; i < N_CTX; i++) {
        token[i] = engine_record(b.lazy, 0, &n)[i];
    }
    assert_int_equal(engine_prompt(b.lazy, 1, token, n), KVLAZY_OK);
    assert_int_equal(b.lazy_kv->ops->place(b.lazy_kv, 0, shifted, n), KVLAZY_OK);
    assert_int_equal(b.lazy_kv->ops->place(b.lazy_kv, 1, fresh, n), KVLAZY_OK);
    for (uint32_t pos = N_KEEP; pos < n; pos++) {
        float a[N_VALUE], c[N_VALUE];

        load_k(&b, 0, shifted[pos], a);
        load_k(&b, 1, fresh[pos], c);
        for (uint32_t i = 0; i < N_VALUE; i++) {
            assert_true(fabsf(a[i] - c[i]) < near);
        }
    }
    tear_down(&b);
}

int main(void)
{
#define WITH(test, i)                                        \
    {                                                        \
#test " " #i, test, NULL, NULL, (void *)&variants[i] \
    }
    const struct CMUnitTest tests[] = {
        WITH(a_full_slot_talks_on, 0),      WITH(a_full_slot_talks_on, 1),      WITH(a_full_slot_talks_on, 2),
        WITH(a_full_slot_talks_on, 3),      WITH(a_full_slot_talks_on, 4),      WITH(a_full_slot_talks_on, 5),
        WITH(a_full_slot_talks_on, 6),      WITH(a_full_slot_talks_on, 7),      WITH(k_is_turned_the_right_way, 0),
        WITH(k_is_turned_the_right_way, 1), WITH(k_is_turned_the_right_way, 2), WITH(k_is_turned_the_right_way, 3),
        WITH(k_is_turned_the_right_way, 4), WITH(k_is_turned_the_right_way, 5), WITH(k_is_turned_the_right_way, 6),
        WITH(k_is_turned_the_right_way, 7),
    };
#undef WITH

    return cmocka_run_group_tests(tests, NULL, NULL);
}
