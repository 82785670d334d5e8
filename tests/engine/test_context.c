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

enum { N_SLOT = 4, N_CTX = 128, N_KEEP = 40, N_DISCARD = 30 };

static const struct variant {
    bool f16;
    uint32_t n_stream;
} variants[] = {{false, 1}, {false, N_SLOT}, {true, 1}, {true, N_SLOT}};

typedef struct bench {
    engine_config config;
    engine_kv *plain_kv, *lazy_kv;
    engine *plain, *lazy;
} bench;

static void set_up(bench *b, const struct variant *variant)
{
    engine_kv_config kv_config;

    b->config = (engine_config){
        .dims = {.n_layer = 2, .n_embd = 32, .n_head = 4, .n_kv_head = 2, .n_ff = 64, .n_vocab = 256},
        .seed = 9,
        .f16 = variant->f16,
        .n_slot = N_SLOT,
        .n_ctx = N_CTX,
        .n_batch = 64,
        .n_ubatch = 16,
    };
    kv_config = engine_kv_config_for(&b->config, variant->n_stream);
    kv_config.kv_size = variant->n_stream == 1 ? N_SLOT * N_CTX : N_CTX;
    assert_int_equal(engine_kv_plain_create(&kv_config, &b->plain_kv), KVLAZY_OK);
    assert_int_equal(engine_kv_lazy_create(&kv_config, &b->lazy_kv), KVLAZY_OK);
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
    assert_int_equal(kvlazy_check(engine_kv_lazy_cache(b->lazy_kv), NULL), KVLAZY_OK);
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
            assert_int_equal(kvlazy_seq_pos_max(engine_kv_lazy_cache(b.lazy_kv), 0), N_CTX - 1);
            if (n_shift == 0) { /* slot 1 shares more than is kept: it goes first, or its tokens would move too */
                assert_int_equal(engine_drop(b.plain, 1), KVLAZY_OK);
                assert_int_equal(engine_drop(b.lazy, 1), KVLAZY_OK);
            }
            shift(&b, 0);
            assert_int_equal(kvlazy_seq_pos_max(engine_kv_lazy_cache(b.lazy_kv), 0), N_CTX - 1 - N_DISCARD);
            assert_int_equal(kvlazy_seq_pos_max(engine_kv_lazy_cache(b.lazy_kv), 2), N_KEEP - 1);
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

/* Turned back by what it moved, K of the first layer is what the token has at its new position: it knows no past. */
static void k_is_turned_the_right_way(void **state)
{
    const struct variant *variant = *state;
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
    for (uint32_t pos = N_KEEP; !variant->f16 && pos < n; pos++) {
        const engine_kv *kv = b.lazy_kv;
        const float *a = engine_kv_row(&kv->k[0], 0, shifted[pos]);
        const float *c = engine_kv_row(&kv->k[0], engine_kv_stream(kv, 1), fresh[pos]);

        for (size_t i = 0; i < kv->k[0].row_bytes / sizeof *a; i++) {
            assert_true(fabsf(a[i] - c[i]) < 1e-3f);
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
        WITH(a_full_slot_talks_on, 0), WITH(a_full_slot_talks_on, 1),      WITH(a_full_slot_talks_on, 2),
        WITH(a_full_slot_talks_on, 3), WITH(k_is_turned_the_right_way, 0), WITH(k_is_turned_the_right_way, 1),
    };
#undef WITH

    return cmocka_run_group_tests(tests, NULL, NULL);
}
