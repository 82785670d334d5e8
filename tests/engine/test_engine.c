/* SPDX-License-Identifier: MIT */
/*
 * A real model on a real cache: whatever kvlazy does with memory, every logit is the one that calloc gives. First
 * the measuring tools are held against themselves (halves, prefix reuse, batch shapes, lost rows that must show), then
 * the scripted session and random ones run on both back ends, then what a full cache answers.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine_session.h"
#include "half.h"

static const struct variant {
    const char *name;
    bool f16;
    uint32_t n_stream;
} variants[] = {
    {"f32, 1 stream", false, 1},
    {"f32, 4 streams", false, ENGINE_SESSION_SLOTS},
    {"f16, 1 stream", true, 1},
    {"f16, 4 streams", true, ENGINE_SESSION_SLOTS},
};

static const uint8_t *text_at(uint32_t offset)
{
    return (const uint8_t *)engine_text + offset;
}

static engine_config small_config(bool f16)
{
    return (engine_config){
        .dims = {.n_layer = 2, .n_embd = 32, .n_head = 4, .n_kv_head = 2, .n_ff = 64, .n_vocab = 256},
        .seed = 7,
        .f16 = f16,
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

static void prefix_reuse_changes_no_bit(void **state)
{
    (void)state;
    for (int f16 = 0; f16 < 2; f16++) {
        const engine_config config = small_config(f16 != 0);
        const engine_kv_config kv_config = engine_kv_config_for(&config, 2);
        pair reused = open_pair(&config, &kv_config, false), fresh = open_pair(&config, &kv_config, false);
        engine_counts counts;

        assert_int_equal(engine_prompt(reused.e, 0, text_at(0), 150), KVLAZY_OK);
        for (int i = 0; i < 5; i++) {
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
    const engine_config usual = small_config(true);
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

/* A row of zeros, as a page given back too early would leave, changes what is said, whichever row it is. */
static void every_live_row_counts(void **state)
{
    const engine_config config = small_config(((const struct variant *)*state)->f16);
    const engine_kv_config kv_config = engine_kv_config_for(&config, 1);
    pair p = open_pair(&config, &kv_config, true);
    uint32_t past[100];
    float want[256];
    uint8_t saved[256];

    assert_int_equal(engine_prompt(p.e, 0, text_at(0), 100), KVLAZY_OK);
    memcpy(want, engine_logits(p.e, 0, 99), sizeof want);
    for (uint32_t i = 0; i < 99 * 2 * 2; i++) {
        const kvlazy_tensor *rows = (i & 1 ? p.kv->k : p.kv->v) + (i >> 1 & 1);
        void *row;

        assert_int_equal(p.kv->ops->init_batch(p.kv), KVLAZY_OK);
        assert_int_equal(p.kv->ops->place(p.kv, 0, past, 100), KVLAZY_OK);
        row = engine_kv_row(rows, 0, past[i >> 2]);
        memcpy(saved, row, rows->row_bytes);
        memset(row, 0, rows->row_bytes);
        assert_int_equal(engine_prompt(p.e, 0, text_at(0), 100), KVLAZY_OK); /* computes the last token alone */
        assert_int_not_equal(memcmp(want, engine_logits(p.e, 0, 99), sizeof want), 0);
        assert_int_equal(p.kv->ops->init_batch(p.kv), KVLAZY_OK);
        memcpy(row, saved, rows->row_bytes);
        assert_int_equal(p.kv->ops->end_batch(p.kv), KVLAZY_OK);
    }
    assert_int_equal(engine_prompt(p.e, 0, text_at(0), 100), KVLAZY_OK);
    assert_memory_equal(want, engine_logits(p.e, 0, 99), sizeof want);
    close_pair(&p);
}

/* ---- sessions ---- */

static engine_session *open_session(const struct variant *variant)
{
    engine_session *session = NULL;

    assert_int_equal(engine_session_open(variant->f16, variant->n_stream, &session), KVLAZY_OK);
    return session;
}

static void step(engine_session *session, engine_step s)
{
    engine_session_report report;

    if (engine_session_step(session, &s) != KVLAZY_OK) {
        engine_session_get_report(session, &report);
        fail_msg("%s", report.failure);
    }
}

static void scripted_session(void **state)
{
    const struct variant *variant = *state;
    engine_session *session = open_session(variant);
    const int status = engine_session_run(session);
    engine_session_report report;

    engine_session_get_report(session, &report);
    engine_session_close(session);
    print_message("%s: max_dlogit %g over %llu logit vectors, %llu tokens computed, %llu of them again, %llu cells "
                  "evicted, peak %llu KiB touched\n",
                  variant->name, report.max_dlogit, (unsigned long long)report.n_compared,
                  (unsigned long long)report.lazy.computed, (unsigned long long)report.lazy.recomputed,
                  (unsigned long long)report.stats.evicted_cells, (unsigned long long)report.peak_touched_bytes / 1024);
    if (status != KVLAZY_OK) {
        fail_msg("%s", report.failure);
    }
    assert_true(report.max_dlogit == 0.0);
    assert_int_equal(report.n_differing, 0);
    assert_true(report.n_check > 100);
    assert_true(report.stats.evicted_cells > 500);
    assert_true(report.lazy.recomputed > 500);
    assert_int_equal(report.plain.recomputed, 0);
    assert_true(report.lazy.computed > report.plain.computed);
    assert_true(report.stats.touched_bytes < report.peak_touched_bytes);
}

/* What the kernel says, before and after an idle minute. */
static void resident_memory_goes_back(void **state)
{
    const struct variant *variant = *state;
    engine_session *session = open_session(variant);
    kvlazy_cache *cache = engine_session_cache(session);
    uint64_t full, idle, again;

    step(session, (engine_step){ENGINE_PROMPT, .slots = 1, .n_a = 900});
    assert_int_equal(kvlazy_resident(cache, &full), KVLAZY_OK);
    step(session, (engine_step){ENGINE_IDLE, .ms = 60000, .expect = ENGINE_EVICTED | ENGINE_RELEASED});
    assert_int_equal(kvlazy_seq_pos_max(cache, 0), 255);
    assert_int_equal(kvlazy_resident(cache, &idle), KVLAZY_OK);
    assert_true(idle < full);
    step(session, (engine_step){ENGINE_DECODE, .slots = 1, .n = 1, .expect = ENGINE_REFUSED | ENGINE_RECOMPUTED});
    assert_int_equal(kvlazy_resident(cache, &again), KVLAZY_OK);
    assert_true(again > idle);
    engine_session_close(session);
}

/* A kernel that reads all of [0, n_kv) and masks afterwards must find numbers there, live or not. */
static void padding_is_finite(void **state)
{
    const struct variant *variant = *state;
    engine_session *session = open_session(variant);
    kvlazy_cache *cache = engine_session_cache(session);
    kvlazy_tensor rows[2];

    step(session, (engine_step){ENGINE_PROMPT, .slots = 3, .n_a = 500});
    step(session, (engine_step){ENGINE_DROP, .slots = 1});
    step(session, (engine_step){ENGINE_IDLE, .ms = 60000, .expect = ENGINE_EVICTED});
    step(session, (engine_step){ENGINE_PROMPT, .slots = 5, .n_a = 300});
    assert_int_equal(kvlazy_k(cache, 3, &rows[0]), KVLAZY_OK);
    assert_int_equal(kvlazy_v(cache, 3, &rows[1]), KVLAZY_OK);
    assert_int_equal(kvlazy_init_batch(cache), KVLAZY_OK);
    for (uint32_t i = 0; i < 2 * variant->n_stream * 2048; i++) {
        const char *row = engine_kv_row(&rows[i & 1], i / 4096, i / 2 % 2048);

        for (size_t at = 0; at < rows[i & 1].row_bytes; at += variant->f16 ? 2 : 4) {
            uint16_t half;
            float value;

            memcpy(&half, row + at, sizeof half);
            memcpy(&value, row + at, variant->f16 ? 2 : sizeof value);
            assert_true(isfinite(variant->f16 ? half_to_float(half) : value));
        }
    }
    assert_int_equal(kvlazy_end_batch(cache), KVLAZY_OK);
    engine_session_close(session);
}

/* ---- random sessions ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint32_t below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(next_random(state) % n);
}

/* held: the slots that have something to decode after. Prompts are short enough for all to fit in kv_size. */
static engine_step random_step(uint64_t *state, uint32_t *held)
{
    engine_step s = {.what = ENGINE_PROMPT, .slots = 1u << below(state, ENGINE_SESSION_SLOTS)};

    switch (below(state, 10)) {
    case 0:
        *held &= ~s.slots;
        s.what = ENGINE_DROP;
        return s;
    case 1:
    case 2:
        s.what = ENGINE_IDLE;
        s.ms = 1000 + below(state, 50000);
        return s;
    case 3:
        s.what = ENGINE_BREAK;
        s.a = below(state, 6);
        s.n = 1;
        return s;
    case 4:
    case 5:
    case 6:
        s.what = ENGINE_DECODE;
        s.slots = *held & (uint32_t)(1 + below(state, 15));
        s.n = s.slots ? 1 + below(state, 3) : 0;
        s.ms = below(state, 4000);
        return s;
    default:
        *held |= s.slots;
        s.n_a = 1 + below(state, 380);
        s.b = below(state, 1000);
        s.n_b = below(state, 50);
        s.from = below(state, 2) ? 1 + below(state, ENGINE_SESSION_SLOTS) : 0;
        return s;
    }
}

static void random_session(void **state)
{
    const struct variant *variant = *state;
    const char *text = getenv("KVLAZY_SEED");
    const uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 1;
    engine_session *session = open_session(variant);
    engine_session_report report;
    uint64_t source = seed;
    uint32_t held = 0;

    print_message("%s: KVLAZY_SEED=%llu\n", variant->name, (unsigned long long)seed);
    for (int i = 0; i < 80; i++) {
        step(session, random_step(&source, &held));
    }
    engine_session_get_report(session, &report);
    print_message("%llu cells evicted, %llu tokens computed again\n", (unsigned long long)report.stats.evicted_cells,
                  (unsigned long long)report.lazy.recomputed);
    assert_true(report.max_dlogit == 0.0);
    engine_session_close(session);
}

/* ---- a full cache ---- */

/* The refused prompt keeps what fitted, others are untouched, and after a drop it goes through. */
static void no_slot_is_an_error_to_recover_from(void **state)
{
    const engine_config config = small_config(false);
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
    assert_int_equal(kvlazy_seq_pos_max(engine_kv_lazy_cache(lazy.kv), 1), 63);
    assert_int_equal(kvlazy_check(engine_kv_lazy_cache(lazy.kv), NULL), KVLAZY_OK);
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
    const engine_config config = small_config(false);
    engine_kv_config kv_config = engine_kv_config_for(&config, 1);
    pair plain = open_pair(&config, &kv_config, false), lazy;
    kvlazy_stats_info stats = {.struct_size = sizeof stats};

    (void)state;
    kv_config.budget_bytes = 4 * 2 * (uint64_t)kvlazy_mem_host()->page_bytes(NULL); /* two pages a tensor */
    kv_config.row_bytes = kv_config.budget_bytes / 8 / 64; /* at least the model's: 64 cells a page */
    assert_true(kv_config.row_bytes >= model_row_bytes(&config.dims, false));
    lazy = open_pair(&config, &kv_config, true);
    assert_int_equal(engine_prompt(plain.e, 0, text_at(0), 100), KVLAZY_OK);
    assert_int_equal(engine_prompt(plain.e, 1, text_at(200), 100), KVLAZY_OK);
    assert_int_equal(engine_prompt(lazy.e, 0, text_at(0), 100), KVLAZY_OK);
    assert_int_equal(engine_prompt(lazy.e, 1, text_at(200), 100), KVLAZY_EBUDGET);
    assert_same_logits(plain.e, lazy.e, 0);
    assert_int_equal(kvlazy_check(engine_kv_lazy_cache(lazy.kv), NULL), KVLAZY_OK);
    assert_int_equal(engine_drop(lazy.e, 0), KVLAZY_OK);
    assert_int_equal(engine_prompt(lazy.e, 1, text_at(200), 100), KVLAZY_OK);
    assert_same_logits(plain.e, lazy.e, 1);
    assert_int_equal(kvlazy_stats(engine_kv_lazy_cache(lazy.kv), &stats), KVLAZY_OK);
    assert_true(stats.touched_bytes <= kv_config.budget_bytes);
    close_pair(&plain);
    close_pair(&lazy);
}

#define VARIANT_TEST(function, i)                                                                                      \
    {                                                                                                                  \
#function " " #i, function, NULL, NULL, (void *)&variants[i]                                                   \
    }
#define VARIANT_TESTS(function)                                                                                        \
    VARIANT_TEST(function, 0), VARIANT_TEST(function, 1), VARIANT_TEST(function, 2), VARIANT_TEST(function, 3)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_keeps_every_value),
        cmocka_unit_test(prefix_reuse_changes_no_bit),
        cmocka_unit_test(batch_shape_changes_no_bit),
        VARIANT_TEST(every_live_row_counts, 0),
        VARIANT_TEST(every_live_row_counts, 2),
        VARIANT_TESTS(scripted_session),
        VARIANT_TEST(resident_memory_goes_back, 0),
        VARIANT_TEST(resident_memory_goes_back, 1),
        VARIANT_TESTS(padding_is_finite),
        VARIANT_TESTS(random_session),
        cmocka_unit_test(no_slot_is_an_error_to_recover_from),
        cmocka_unit_test(budget_is_an_error_to_recover_from),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
