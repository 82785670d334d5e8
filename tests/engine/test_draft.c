/* SPDX-License-Identifier: MIT */
/*
 * A draft model beside its target, two caches that know nothing of each other. Whatever the draft guesses, and
 * whichever of the two caches an eviction cuts, what is said and every logit of the target are those of the target
 * alone on a calloc'ed cache. Then what happens when the draft fails, and when guesses do not fit.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "engine_draft.h"
#include "engine_session.h"

enum {
    N_SLOT = 4,
    N_CTX = 512,
    N_GUESS = 4,
    IDLE_MS = 30000,
};

static const struct variant {
    const char *name;
    model_layout layout;
    int kv;
    uint32_t n_stream;
    uint32_t n_layer; /* the target has 4; as many: a draft that is always right */
    uint64_t seed;    /* the target's is 20; another: one that is hardly ever */
} variants[] = {
    {"f32 rows, shorter", {MODEL_F32, MODEL_F32, false}, ENGINE_KV_LAZY, 1, 3, 20},
    {"q8_0 rows, 4 streams, shorter", {MODEL_Q8_0, MODEL_Q8_0, false}, ENGINE_KV_LAZY, N_SLOT, 3, 20},
    {"f16 transposed, shorter", {MODEL_F16, MODEL_F16, true}, ENGINE_KV_LAZY, 1, 3, 20},
    {"arena, f16 rows, 4 streams, shorter", {MODEL_F16, MODEL_F16, false}, ENGINE_KV_ARENA, N_SLOT, 3, 20},
    {"memory, q8_0 K, f16 transposed, shorter", {MODEL_Q8_0, MODEL_F16, true}, ENGINE_KV_MEMORY, 1, 3, 20},
    {"f32 rows, a stranger", {MODEL_F32, MODEL_F32, false}, ENGINE_KV_LAZY, 1, 1, 3},
    {"memory, arena, f16 rows, 4 streams, the same",
     {MODEL_F16, MODEL_F16, false},
     ENGINE_KV_MEMORY_ARENA,
     N_SLOT,
     4,
     20},
    {"f16 rows, the same", {MODEL_F16, MODEL_F16, false}, ENGINE_KV_LAZY, 1, 4, 20},
};

/* Both engines, and the one without a draft that they are held against. */
typedef struct bench {
    engine_config config, draft_config;
    kvlazy_mem mem;
    uint64_t clock_ms;
    engine_kv *plain_kv, *target_kv, *draft_kv;
    engine *plain;
    engine_draft *d;
} bench;

static uint64_t bench_clock(void *ctx)
{
    return ((const bench *)ctx)->clock_ms;
}

static kvlazy_cache *target_of(const bench *b)
{
    return b->target_kv->cache;
}

static kvlazy_cache *draft_of(const bench *b)
{
    return b->draft_kv->cache;
}

static int after_batch(void *ctx)
{
    bench *b = ctx;
    int status = kvlazy_check(target_of(b), NULL);

    b->clock_ms += 5;
    return status == KVLAZY_OK ? kvlazy_check(draft_of(b), NULL) : status;
}

/* kv_size: cells a stream of the target's and of the draft's cache; 0: enough for all. */
static void set_up(bench *b, const struct variant *variant, uint32_t target_kv_size, uint32_t draft_kv_size)
{
    const uint32_t enough = variant->n_stream == 1 ? N_SLOT * N_CTX : N_CTX;
    engine_kv_config kv_config;

    memset(b, 0, sizeof *b);
    b->clock_ms = 1000;
    b->mem = *kvlazy_mem_host();
    b->mem.ctx = b;
    b->mem.now_ms = bench_clock;
    b->config = (engine_config){
        .dims = {.n_layer = 4, .n_embd = 64, .n_head = 4, .n_kv_head = 2, .n_ff = 96, .n_vocab = 256},
        .seed = 20,
        .layout = variant->layout,
        .n_slot = N_SLOT,
        .n_ctx = N_CTX,
        .n_batch = 96,
        .n_ubatch = 7,
    };
    kv_config = engine_kv_config_for(&b->config, variant->n_stream);
    assert_int_equal(engine_kv_plain_create(&kv_config, &b->plain_kv), KVLAZY_OK);
    assert_int_equal(engine_create(&b->config, b->plain_kv, &b->plain), KVLAZY_OK);

    b->config.on_batch = after_batch;
    b->config.batch_ctx = b;
    kv_config.kv_size = target_kv_size != 0 ? target_kv_size : enough;
    kv_config.slot_shrink_idle_ms = IDLE_MS;
    kv_config.mem = &b->mem;
    assert_int_equal(engine_session_create_kv(variant->kv, &kv_config, &b->target_kv), KVLAZY_OK);

    b->draft_config = b->config;
    b->draft_config.seed = variant->seed;
    b->draft_config.dims.n_layer = variant->n_layer;
    b->draft_config.n_ubatch = 16;
    if (variant->seed != b->config.seed) {
        b->draft_config.dims.n_ff = 64;
    }
    kv_config = engine_kv_config_for(&b->draft_config, variant->n_stream);
    kv_config.kv_size = draft_kv_size != 0 ? draft_kv_size : enough;
    kv_config.slot_shrink_idle_ms = IDLE_MS;
    kv_config.mem = &b->mem;
    assert_int_equal(engine_session_create_kv(variant->kv, &kv_config, &b->draft_kv), KVLAZY_OK);
    assert_int_equal(engine_draft_create(&b->config, b->target_kv, &b->draft_config, b->draft_kv, N_GUESS, &b->d),
                     KVLAZY_OK);
}

static void tear_down(bench *b)
{
    engine_destroy(b->plain);
    engine_draft_destroy(b->d);
    b->plain_kv->ops->destroy(b->plain_kv);
    b->target_kv->ops->destroy(b->target_kv);
    b->draft_kv->ops->destroy(b->draft_kv);
}

/* ---- both sides ---- */

static uint32_t held(const bench *b, uint32_t slot)
{
    uint32_t n;

    engine_draft_record(b->d, slot, &n);
    return n;
}

/* The plain side says as many tokens as the other has, one by one; then all must be the same. */
static void same(bench *b)
{
    for (uint32_t slot = 0; slot < N_SLOT; slot++) {
        uint32_t n, n_plain;
        const uint8_t *token = engine_draft_record(b->d, slot, &n), *plain;

        for (plain = engine_record(b->plain, slot, &n_plain); n_plain < n; engine_record(b->plain, slot, &n_plain)) {
            assert_int_equal(engine_decode(b->plain, &slot, 1), KVLAZY_OK);
        }
        assert_int_equal(n_plain, n);
        assert_memory_equal(token, plain, n);
        for (uint32_t pos = 0; pos < n; pos++) {
            assert_memory_equal(engine_draft_logits(b->d, slot, pos), engine_logits(b->plain, slot, pos),
                                b->config.dims.n_vocab * sizeof(float));
        }
    }
}

static void prompt(bench *b, uint32_t slot, uint32_t at, uint32_t n)
{
    const uint8_t *token = (const uint8_t *)engine_text + at;

    assert_int_equal(engine_draft_prompt(b->d, slot, token, n), KVLAZY_OK);
    assert_int_equal(engine_prompt(b->plain, slot, token, n), KVLAZY_OK);
}

/* Slots of the set, bit by bit. */
static int decode_once(bench *b, uint32_t set)
{
    uint32_t slot[N_SLOT], n_slot = 0;

    for (uint32_t i = 0; i < N_SLOT; i++) {
        if (set >> i & 1) {
            slot[n_slot++] = i;
        }
    }
    return engine_draft_decode(b->d, slot, n_slot);
}

static void decode(bench *b, uint32_t set, uint32_t n_round)
{
    for (uint32_t i = 0; i < n_round; i++) {
        assert_int_equal(decode_once(b, set), KVLAZY_OK);
    }
    same(b);
}

/* Between rounds a cache holds at most the record; does it hold less? */
static void cut_is(const bench *b, bool target, bool draft)
{
    uint32_t n_target = 0, n_draft = 0;

    for (kvlazy_seq_id seq = 0; seq < N_SLOT; seq++) {
        const uint32_t n = held(b, (uint32_t)seq);
        const uint32_t in_target = (uint32_t)(b->target_kv->ops->seq_pos_max(b->target_kv, seq) + 1);
        const uint32_t in_draft = (uint32_t)(b->draft_kv->ops->seq_pos_max(b->draft_kv, seq) + 1);

        assert_true(in_target <= n && in_draft <= n);
        n_target += n - in_target;
        n_draft += n - in_draft;
    }
    assert_int_equal(n_target != 0, target);
    assert_int_equal(n_draft > N_SLOT, draft); /* the last token accepted may be one it never ran for */
}

/* A quiet minute after which idle conversations keep this many cells a stream; 0: all. */
static void idle(bench *b, uint32_t n_target, uint32_t n_draft)
{
    uint64_t next_ms;

    assert_int_equal(kvlazy_set_limits(target_of(b), n_target, UINT32_MAX, UINT64_MAX), KVLAZY_OK);
    assert_int_equal(kvlazy_set_limits(draft_of(b), n_draft, UINT32_MAX, UINT64_MAX), KVLAZY_OK);
    b->clock_ms += 2 * IDLE_MS;
    assert_int_equal(kvlazy_poll(target_of(b), &next_ms), KVLAZY_OK);
    assert_int_equal(kvlazy_poll(draft_of(b), &next_ms), KVLAZY_OK);
    assert_int_equal(after_batch(b), KVLAZY_OK);
}

/* The target's cache loses everything behind the engine's back. */
static void lose_target(bench *b)
{
    for (kvlazy_seq_id seq = 0; seq < N_SLOT; seq++) {
        assert_int_equal(b->target_kv->ops->seq_rm(b->target_kv, seq, -1, -1), KVLAZY_OK);
    }
    assert_int_equal(kvlazy_clear(target_of(b), true), KVLAZY_OK);
}

/* ---- tests ---- */

static void a_draft_changes_no_bit(void **state)
{
    const struct variant *variant = *state;
    engine_draft_counts counts;
    bench b;

    set_up(&b, variant, 0, 0);
    prompt(&b, 0, 0, 150);
    prompt(&b, 1, 300, 90);
    decode(&b, 1u << 0, 6);
    decode(&b, 1u << 0 | 1u << 1, 10);
    prompt(&b, 2, 40, 60);
    prompt(&b, 3, 700, 1);
    decode(&b, 0xf, 8);
    cut_is(&b, false, false);

    idle(&b, 64, 0); /* the target's cache alone is cut */
    cut_is(&b, true, false);
    decode(&b, 1u << 0, 3);
    decode(&b, 0xf, 4);

    idle(&b, 0, 64); /* the draft's alone */
    cut_is(&b, false, true);
    decode(&b, 1u << 1 | 1u << 2, 3);
    decode(&b, 0xf, 4);

    idle(&b, 40, 70); /* both, to different lengths */
    cut_is(&b, true, true);
    prompt(&b, 0, 0, 120); /* a prompt that goes back, after an eviction */
    decode(&b, 0xf, 4);

    /* Now, not when idle: one loses all of some slots, then the other. */
    assert_int_equal(kvlazy_trim(draft_of(&b), 1), KVLAZY_OK);
    decode(&b, 0xf, 3);
    assert_int_equal(kvlazy_trim(target_of(&b), 1), KVLAZY_OK);
    decode(&b, 0xf, 3);
    lose_target(&b);
    decode(&b, 1u << 3, 3);

    assert_int_equal(engine_draft_drop(b.d, 1), KVLAZY_OK);
    assert_int_equal(engine_drop(b.plain, 1), KVLAZY_OK);
    prompt(&b, 1, 500, 200);
    decode(&b, 0xf, 4);

    engine_draft_get_counts(b.d, &counts);
    print_message("%s: %llu of %llu guesses accepted in %llu rounds, %llu tokens computed by the target, %llu by the "
                  "draft\n",
                  variant->name, (unsigned long long)counts.accepted, (unsigned long long)counts.guessed,
                  (unsigned long long)counts.rounds, (unsigned long long)counts.target,
                  (unsigned long long)counts.draft);
    assert_int_equal(counts.gave_up, 0);
    assert_int_equal(counts.alone, 0);
    assert_true(counts.guessed > 500);
    if (variant->seed == b.config.seed) {
        assert_true(counts.accepted > 20);
        assert_int_equal(counts.accepted == counts.guessed, variant->n_layer == b.config.dims.n_layer);
    } else {
        assert_true(counts.accepted < counts.guessed / 4);
    }
    tear_down(&b);
}

/* A draft that cannot go on costs guesses; its cache is as good as before when it can again. */
static void a_failing_draft_costs_guesses_only(void **state)
{
    const struct variant *variant = *state;
    engine_draft_counts was, is;
    bench b;

    set_up(&b, variant, 0, 128);
    prompt(&b, 0, 0, 100);
    decode(&b, 1u << 0, 2);
    engine_draft_break(b.d, true, 2, 2); /* its third ubatch fails twice */
    decode(&b, 1u << 0, 2);
    engine_draft_get_counts(b.d, &was);
    assert_int_equal(was.gave_up, 1);
    assert_true(was.guessed > 0);

    prompt(&b, 0, 0, 140); /* more than its cache can ever hold */
    decode(&b, 1u << 0, 3);
    engine_draft_get_counts(b.d, &is);
    assert_int_equal(is.gave_up, was.gave_up + 3);
    assert_int_equal(is.guessed, was.guessed);

    prompt(&b, 0, 0, 90);
    decode(&b, 1u << 0, 3);
    engine_draft_get_counts(b.d, &was);
    assert_int_equal(was.gave_up, is.gave_up);
    assert_true(was.guessed > is.guessed);
    tear_down(&b);
}

static void a_failing_target_records_nothing(void **state)
{
    const struct variant *variant = *state;
    uint32_t n;
    bench b;

    set_up(&b, variant, 0, 0);
    prompt(&b, 0, 0, 100);
    prompt(&b, 1, 200, 50);
    decode(&b, 3, 2);
    n = held(&b, 0);
    engine_draft_break(b.d, false, 1, 2); /* the second ubatch of the batch, after one that was computed */
    assert_int_equal(decode_once(&b, 3), ENGINE_ECOMPUTE);
    assert_int_equal(held(&b, 0), n);
    assert_int_equal(b.target_kv->ops->seq_pos_max(b.target_kv, 0), n - 1);
    assert_true(b.draft_kv->ops->seq_pos_max(b.draft_kv, 0) <= (kvlazy_pos)n - 1);
    assert_int_equal(kvlazy_poll(target_of(&b), NULL), KVLAZY_OK); /* both batches were ended */
    assert_int_equal(kvlazy_poll(draft_of(&b), NULL), KVLAZY_OK);
    engine_draft_break(b.d, false, 0, 1); /* once is taken back and tried again */
    decode(&b, 3, 3);
    tear_down(&b);
}

/* Guesses that do not fit are left out: the last cell is reached as without a draft, and no sooner refused. */
static void a_full_cache_is_filled_to_the_end(void **state)
{
    const struct variant *variant = *state;
    engine_draft_counts counts;
    bench b;
    int status;

    set_up(&b, variant, 128, 0);
    prompt(&b, 0, 0, 100);
    do {
        status = decode_once(&b, 1);
    } while (status == KVLAZY_OK);
    assert_int_equal(status, KVLAZY_ENOSLOT);
    assert_int_equal(held(&b, 0), 128);
    same(&b);
    engine_draft_get_counts(b.d, &counts);
    assert_true(counts.alone > 0);
    tear_down(&b);

    set_up(&b, variant, 0, 0); /* the end of the context, which the draft knows before it guesses */
    prompt(&b, 0, 0, N_CTX - 10);
    do {
        status = decode_once(&b, 1);
    } while (status == KVLAZY_OK);
    assert_int_equal(status, KVLAZY_ENOSLOT);
    assert_int_equal(held(&b, 0), N_CTX);
    same(&b);
    engine_draft_get_counts(b.d, &counts);
    assert_int_equal(counts.alone, 0);
    tear_down(&b);
}

int main(void)
{
#define WITH(test, i)                                        \
    {                                                        \
#test " " #i, test, NULL, NULL, (void *)&variants[i] \
    }
    const struct CMUnitTest tests[] = {
        WITH(a_draft_changes_no_bit, 0),
        WITH(a_draft_changes_no_bit, 1),
        WITH(a_draft_changes_no_bit, 2),
        WITH(a_draft_changes_no_bit, 3),
        WITH(a_draft_changes_no_bit, 4),
        WITH(a_draft_changes_no_bit, 5),
        WITH(a_draft_changes_no_bit, 6),
        WITH(a_draft_changes_no_bit, 7),
        WITH(a_failing_draft_costs_guesses_only, 0),
        WITH(a_failing_draft_costs_guesses_only, 3),
        WITH(a_failing_draft_costs_guesses_only, 4),
        WITH(a_failing_target_records_nothing, 0),
        WITH(a_failing_target_records_nothing, 3),
        WITH(a_failing_target_records_nothing, 4),
        WITH(a_full_cache_is_filled_to_the_end, 0),
        WITH(a_full_cache_is_filled_to_the_end, 3),
        WITH(a_full_cache_is_filled_to_the_end, 4),
    };
#undef WITH

    return cmocka_run_group_tests(tests, NULL, NULL);
}
