/* SPDX-License-Identifier: MIT */
/*
 * A real model on a real cache: whatever kvlazy does with memory, every logit is the one that calloc gives. First
 * the measuring tools are held against themselves (halves, blocks, prefix reuse, batch shapes, layouts, lost rows and
 * padding that must show), then what a full cache answers. Sessions are in test_session.c.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include <kvlazy/arena.h>

#include "engine_session.h"
#include "row.h"

static const model_layout f32 = {MODEL_F32, MODEL_F32, false}, f16 = {MODEL_F16, MODEL_F16, false},
                          f32_transposed = {MODEL_F32, MODEL_F32, true}, f16_transposed = {MODEL_F16, MODEL_F16, true},
                          q8_0 = {MODEL_Q8_0, MODEL_Q8_0, false}, q8_0_transposed = {MODEL_Q8_0, MODEL_F16, true};

static const model_layout *const layouts[] = {&f32, &f16, &f32_transposed, &f16_transposed, &q8_0, &q8_0_transposed};

enum { N_LAYOUT = sizeof layouts / sizeof *layouts };

static const uint8_t *text_at(uint32_t offset)
{
    return (const uint8_t *)engine_text + offset;
}

static engine_config small_config(const model_layout *layout)
{
    return (engine_config){
        .dims = {.n_layer = 2, .n_embd = 64, .n_head = 4, .n_kv_head = 2, .n_ff = 64, .n_vocab = 256},
        .seed = 7,
        .layout = *layout,
        .n_slot = 2,
        .n_ctx = 512,
        .n_batch = 64,
        .n_ubatch = 16,
    };
}

/* An engine and its back end. */
typedef struct pair {
    engine_kv *kv;
    engine *e;
} pair;

static pair open_pair(const engine_config *config, const engine_kv_config *kv_config, bool lazy)
{
    pair p = {0};

    assert_int_equal((lazy ? engine_kv_lazy_create : engine_kv_plain_create)(kv_config, &p.kv), KVLAZY_OK);
    assert_int_equal(engine_create(config, p.kv, &p.e), KVLAZY_OK);
    return p;
}

static void close_pair(pair *p)
{
    engine_destroy(p->e);
    p->kv->ops->destroy(p->kv);
}

static void assert_same_logits(const engine *a, const engine *b, uint32_t slot)
{
    uint32_t n_a, n_b;

    engine_record(a, slot, &n_a);
    engine_record(b, slot, &n_b);
    assert_int_equal(n_a, n_b);
    for (uint32_t pos = 0; pos < n_a; pos++) {
        assert_memory_equal(engine_logits(a, slot, pos), engine_logits(b, slot, pos), 256 * sizeof(float));
    }
}

/* ---- the tools themselves ---- */

static void half_keeps_every_value(void **state)
{
    static const struct {
        float value;
        uint16_t half;
    } known[] = {
        {0.0f, 0x0000},       {-0.0f, 0x8000},      {1.0f, 0x3c00},       {-2.0f, 0xc000},        {65504.0f, 0x7bff},
        {65519.0f, 0x7bff},   {65520.0f, 0x7c00},   {1e9f, 0x7c00},       {0x1p-14f, 0x0400},     {0x1p-24f, 0x0001},
        {0x1p-25f, 0x0000},   {0x1.8p-25f, 0x0001}, {0x1.8p-24f, 0x0002}, {0x1.ffcp-15f, 0x0400}, {1.0f / 3.0f, 0x3555},
        {0x1.002p0f, 0x3c00}, {0x1.006p0f, 0x3c02}, {-INFINITY, 0xfc00},
    };

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal(half_from_float(known[i].value), known[i].half);
    }
    for (uint32_t h = 0; h <= 0xffff; h++) {
        const float value = half_to_float((uint16_t)h);

        if ((h & 0x7fff) > 0x7c00) {
            assert_true(isnan(value) && isnan(half_to_float(half_from_float(value))));
        } else {
            assert_int_equal(half_from_float(value), h);
        }
    }
}

/* Every value is as near as half a step, and a block of zeros or of next to nothing is one of zeros. */
static void q8_0_keeps_what_it_kept(void **state)
{
    float in[ROW_BLOCK_VALUES], out[ROW_BLOCK_VALUES];
    uint8_t block[ROW_BLOCK_BYTES];

    (void)state;
    assert_int_equal(row_bytes(MODEL_Q8_0, 64), 68);
    assert_int_equal(row_bytes(MODEL_Q8_0, 48), 0);
    for (int scale = -40; scale <= 16; scale++) {
        for (int i = 0; i < ROW_BLOCK_VALUES; i++) {
            in[i] = ldexpf((float)(i * 37 % 64 - 31) / 32.0f, scale);
        }
        row_pack(block, in, MODEL_Q8_0, ROW_BLOCK_VALUES);
        row_unpack(out, block, MODEL_Q8_0, ROW_BLOCK_VALUES);
        for (int i = 0; i < ROW_BLOCK_VALUES; i++) {
            assert_true(fabsf(out[i] - in[i]) <= ldexpf(1.0f, scale) / 200.0f + ldexpf(1.0f, -18));
        }
    }
}

static void prefix_reuse_changes_no_bit(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_LAYOUT; i++) {
        const engine_config config = small_config(layouts[i]);
        const engine_kv_config kv_config = engine_kv_config_for(&config, 2);
        pair reused = open_pair(&config, &kv_config, false), fresh = open_pair(&config, &kv_config, false);
        engine_counts counts;

        assert_int_equal(engine_prompt(reused.e, 0, text_at(0), 150), KVLAZY_OK);
        for (int n = 0; n < 5; n++) {
            assert_int_equal(engine_decode(reused.e, (uint32_t[]){0}, 1), KVLAZY_OK);
        }
        assert_int_equal(engine_prompt(reused.e, 0, text_at(0), 200), KVLAZY_OK);
        assert_int_equal(engine_prompt(reused.e, 0, text_at(0), 90), KVLAZY_OK);
        engine_get_counts(reused.e, &counts);
        assert_int_equal(counts.reused, 150 + 89);
        assert_int_equal(counts.recomputed, 0);
        assert_int_equal(counts.computed, 150 + 5 + 50 + 1);
        assert_int_equal(engine_prompt(fresh.e, 0, text_at(0), 90), KVLAZY_OK);
        assert_same_logits(reused.e, fresh.e, 0);
        close_pair(&reused);
        close_pair(&fresh);
    }
}

static void batch_shape_changes_no_bit(void **state)
{
    const engine_config usual = small_config(&f16);
    engine_config single = usual, odd = usual;
    const engine_kv_config kv_config = engine_kv_config_for(&usual, 2);
    pair a, b, c;

    (void)state;
    single.n_batch = 1;
    single.n_ubatch = 1;
    odd.n_batch = 61;
    odd.n_ubatch = 7;
    a = open_pair(&usual, &kv_config, false);
    b = open_pair(&single, &kv_config, false);
    c = open_pair(&odd, &kv_config, false);
    assert_int_equal(engine_prompt(a.e, 1, text_at(300), 130), KVLAZY_OK);
    assert_int_equal(engine_prompt(b.e, 1, text_at(300), 130), KVLAZY_OK);
    assert_int_equal(engine_prompt(c.e, 1, text_at(300), 130), KVLAZY_OK);
    assert_same_logits(a.e, b.e, 1);
    assert_same_logits(a.e, c.e, 1);
    close_pair(&a);
    close_pair(&b);
    close_pair(&c);
}

/* The order of sums is the same whichever way round V is kept. */
static void transposed_v_changes_no_bit(void **state)
{
    static const model_layout *const kept[][2] = {{&f32, &f32_transposed}, {&f16, &f16_transposed}};

    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        const engine_config rows = small_config(kept[i / 2][0]), columns = small_config(kept[i / 2][1]);
        const engine_kv_config rows_kv = engine_kv_config_for(&rows, 1), columns_kv = engine_kv_config_for(&columns, 1);
        pair a = open_pair(&rows, &rows_kv, i % 2 != 0), b = open_pair(&columns, &columns_kv, i % 2 != 0);

        for (uint32_t slot = 0; slot < 2; slot++) {
            assert_int_equal(engine_prompt(a.e, slot, text_at(slot * 100), 150), KVLAZY_OK);
            assert_int_equal(engine_prompt(b.e, slot, text_at(slot * 100), 150), KVLAZY_OK);
        }
        for (int n = 0; n < 5; n++) {
            assert_int_equal(engine_decode(a.e, (uint32_t[]){0, 1}, 2), KVLAZY_OK);
            assert_int_equal(engine_decode(b.e, (uint32_t[]){0, 1}, 2), KVLAZY_OK);
        }
        assert_int_equal(engine_shift(a.e, 0, 20, 30), KVLAZY_OK);
        assert_int_equal(engine_shift(b.e, 0, 20, 30), KVLAZY_OK);
        assert_int_equal(engine_decode(a.e, (uint32_t[]){0}, 1), KVLAZY_OK);
        assert_int_equal(engine_decode(b.e, (uint32_t[]){0}, 1), KVLAZY_OK);
        assert_same_logits(a.e, b.e, 0);
        assert_same_logits(a.e, b.e, 1);
        close_pair(&a);
        close_pair(&b);
    }
}

/* A row of zeros, as a page given back too early would leave, changes what is said, whichever row it is. */
static void every_live_row_counts_with(const model_layout *layout)
{
    const engine_config config = small_config(layout);
    const engine_kv_config kv_config = engine_kv_config_for(&config, 1);
    pair p = open_pair(&config, &kv_config, true);
    const uint8_t nothing[256] = {0};
    uint32_t past[100];
    float want[256];
    uint8_t saved[256];

    assert_int_equal(engine_prompt(p.e, 0, text_at(0), 100), KVLAZY_OK);
    memcpy(want, engine_logits(p.e, 0, 99), sizeof want);
    for (uint32_t i = 0; i < 99 * 2 * 2; i++) {
        const kvlazy_tensor *t = (i & 1 ? p.kv->k : p.kv->v) + (i >> 1 & 1);

        assert_int_equal(p.kv->ops->init_batch(p.kv), KVLAZY_OK);
        assert_int_equal(p.kv->ops->place(p.kv, 0, past, 100), KVLAZY_OK);
        engine_kv_get_cell(t, 0, past[i >> 2], saved);
        engine_kv_put_cell(t, 0, past[i >> 2], nothing);
        assert_int_equal(engine_prompt(p.e, 0, text_at(0), 100), KVLAZY_OK); /* computes the last token alone */
        assert_int_not_equal(memcmp(want, engine_logits(p.e, 0, 99), sizeof want), 0);
        assert_int_equal(p.kv->ops->init_batch(p.kv), KVLAZY_OK);
        engine_kv_put_cell(t, 0, past[i >> 2], saved);
        assert_int_equal(p.kv->ops->end_batch(p.kv), KVLAZY_OK);
    }
    assert_int_equal(engine_prompt(p.e, 0, text_at(0), 100), KVLAZY_OK);
    assert_memory_equal(want, engine_logits(p.e, 0, 99), sizeof want);
    close_pair(&p);
}

static void every_live_row_counts(void **state)
{
    (void)state;
    every_live_row_counts_with(&f32);
    every_live_row_counts_with(&f16_transposed);
    every_live_row_counts_with(&q8_0);
}

/* Attention reads cells that no token holds. A number there changes nothing, anything else everything. */
static void padding_is_read(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 2 * N_LAYOUT; i++) {
        const engine_config config = small_config(layouts[i / 2]);
        const engine_kv_config kv_config = engine_kv_config_for(&config, 1);
        pair p = open_pair(&config, &kv_config, false);
        const kvlazy_tensor *t = i & 1 ? &p.kv->k[1] : &p.kv->v[0];
        float want[256];
        uint8_t bytes[256];

        assert_int_equal(engine_prompt(p.e, 0, text_at(0), 50), KVLAZY_OK);
        memcpy(want, engine_logits(p.e, 0, 49), sizeof want);
        memset(bytes, 0x33, sizeof bytes);
        engine_kv_put_cell(t, 0, 255, bytes);
        assert_int_equal(engine_prompt(p.e, 0, text_at(0), 50), KVLAZY_OK);
        assert_memory_equal(want, engine_logits(p.e, 0, 49), sizeof want);
        memset(bytes, 0xff, sizeof bytes); /* no number in any type */
        engine_kv_put_cell(t, 0, 255, bytes);
        assert_int_equal(engine_prompt(p.e, 0, text_at(0), 50), KVLAZY_OK);
        assert_true(isnan(engine_logits(p.e, 0, 49)[0]));
        close_pair(&p);
    }
}

static void a_layout_that_cannot_be(void **state)
{
    engine_config config = small_config(&q8_0);
    const engine_kv_config kv_config = engine_kv_config_for(&config, 1);
    engine_kv *kv;
    engine *e;

    (void)state;
    assert_int_equal(engine_kv_plain_create(&kv_config, &kv), KVLAZY_OK);
    config.layout.v_transposed = true;
    assert_int_equal(engine_create(&config, kv, &e), KVLAZY_EINVAL);
    config.layout.v_transposed = false;
    config.dims.n_kv_head = 1; /* 16 values: half a block */
    assert_int_equal(engine_create(&config, kv, &e), KVLAZY_EINVAL);
    kv->ops->destroy(kv);
}

/* ---- a full cache ---- */

/* The refused prompt keeps what fitted, others are untouched, and after a drop it goes through. */
static void no_slot_is_an_error_to_recover_from(void **state)
{
    const engine_config config = small_config(&f16);
    engine_kv_config kv_config = engine_kv_config_for(&config, 1);
    pair plain = open_pair(&config, &kv_config, false), lazy;
    engine_counts counts;

    (void)state;
    kv_config.kv_size = 256;
    lazy = open_pair(&config, &kv_config, true);
    assert_int_equal(engine_prompt(plain.e, 0, text_at(0), 170), KVLAZY_OK);
    assert_int_equal(engine_prompt(plain.e, 1, text_at(200), 150), KVLAZY_OK);
    assert_int_equal(engine_prompt(lazy.e, 0, text_at(0), 170), KVLAZY_OK);
    assert_int_equal(engine_prompt(lazy.e, 1, text_at(200), 150), KVLAZY_ENOSLOT);
    assert_same_logits(plain.e, lazy.e, 0);
    assert_int_equal(kvlazy_seq_pos_max(lazy.kv->cache, 1), 63);
    assert_int_equal(kvlazy_check(lazy.kv->cache, NULL), KVLAZY_OK);
    assert_int_equal(engine_idle(lazy.e, NULL), KVLAZY_OK); /* the batch was ended */
    assert_int_equal(engine_drop(lazy.e, 0), KVLAZY_OK);
    assert_int_equal(engine_prompt(lazy.e, 1, text_at(200), 150), KVLAZY_OK);
    engine_get_counts(lazy.e, &counts);
    assert_int_equal(counts.reused, 64);
    assert_same_logits(plain.e, lazy.e, 1);
    close_pair(&plain);
    close_pair(&lazy);
}

static void budget_is_an_error_to_recover_from(void **state)
{
    const engine_config config = small_config(&f16);
    engine_kv_config kv_config = engine_kv_config_for(&config, 1);
    pair plain = open_pair(&config, &kv_config, false), lazy;
    kvlazy_stats_info stats = {.struct_size = sizeof stats};

    (void)state;
    kv_config.budget_bytes = 4 * 2 * (uint64_t)kvlazy_page_bytes(NULL); /* two pages a tensor */
    kv_config.k_row_bytes = kv_config.budget_bytes / 8 / 64;            /* at least the model's: 64 cells a page */
    kv_config.v_row_bytes = kv_config.k_row_bytes;
    assert_true(kv_config.k_row_bytes >= model_row_bytes(&config.dims, MODEL_F16));
    lazy = open_pair(&config, &kv_config, true);
    assert_int_equal(engine_prompt(plain.e, 0, text_at(0), 100), KVLAZY_OK);
    assert_int_equal(engine_prompt(plain.e, 1, text_at(200), 100), KVLAZY_OK);
    assert_int_equal(engine_prompt(lazy.e, 0, text_at(0), 100), KVLAZY_OK);
    assert_int_equal(engine_prompt(lazy.e, 1, text_at(200), 100), KVLAZY_EBUDGET);
    assert_same_logits(plain.e, lazy.e, 0);
    assert_int_equal(kvlazy_check(lazy.kv->cache, NULL), KVLAZY_OK);
    assert_int_equal(engine_drop(lazy.e, 0), KVLAZY_OK);
    assert_int_equal(engine_prompt(lazy.e, 1, text_at(200), 100), KVLAZY_OK);
    assert_same_logits(plain.e, lazy.e, 1);
    assert_int_equal(kvlazy_stats(lazy.kv->cache, &stats), KVLAZY_OK);
    assert_true(stats.touched_bytes <= kv_config.budget_bytes);
    close_pair(&plain);
    close_pair(&lazy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_keeps_every_value),
        cmocka_unit_test(q8_0_keeps_what_it_kept),
        cmocka_unit_test(prefix_reuse_changes_no_bit),
        cmocka_unit_test(batch_shape_changes_no_bit),
        cmocka_unit_test(transposed_v_changes_no_bit),
        cmocka_unit_test(every_live_row_counts),
        cmocka_unit_test(padding_is_read),
        cmocka_unit_test(a_layout_that_cannot_be),
        cmocka_unit_test(no_slot_is_an_error_to_recover_from),
        cmocka_unit_test(budget_is_an_error_to_recover_from),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
