/* SPDX-License-Identifier: MIT */
/*
 * Conversations on kvlazy and on calloc, side by side: the scripted session and random ones in every layout, with
 * tensors of the library's and of the engine's, and with cells of the engine's own. Whatever kvlazy does with memory,
 * every logit is the same to the bit, and memory comes back.
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
#include "row.h"

static engine_session *open_session(const engine_session_config *variant)
{
    engine_session *session = NULL;

    assert_int_equal(engine_session_open(variant, &session), KVLAZY_OK);
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
    const engine_session_config *variant = *state;
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

/* What moves when a neighbour goes is the same at its new place, and says the same. */
static void compaction_changes_no_bit(void **state)
{
    double max;

    assert_int_equal(engine_compact(*state, &max), KVLAZY_OK);
    assert_true(max == 0.0);
}

/* What the kernel says, before and after an idle minute. */
static void resident_memory_goes_back(void **state)
{
    const engine_session_config *variant = *state;
    engine_session *session = open_session(variant);
    kvlazy_cache *cache = engine_session_cache(session);
    kvlazy_stats_info stats = {.struct_size = sizeof stats};
    uint64_t full, idle, again;

    step(session, (engine_step){ENGINE_PROMPT, .slots = 1, .n_a = 900});
    assert_int_equal(kvlazy_resident(cache, &full), KVLAZY_OK);
    step(session, (engine_step){ENGINE_IDLE, .ms = 60000, .expect = ENGINE_EVICTED | ENGINE_RELEASED});
    assert_int_equal(kvlazy_stats(cache, &stats), KVLAZY_OK);
    assert_int_equal(stats.live_cells, 256);
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
    const engine_session_config *variant = *state;
    engine_session *session = open_session(variant);
    kvlazy_cache *cache = engine_session_cache(session);
    kvlazy_tensor t[2];
    float row[32], value[32]; /* packed it is never more */

    step(session, (engine_step){ENGINE_PROMPT, .slots = 3, .n_a = 500});
    step(session, (engine_step){ENGINE_DROP, .slots = 1});
    step(session, (engine_step){ENGINE_IDLE, .ms = 60000, .expect = ENGINE_EVICTED});
    step(session, (engine_step){ENGINE_PROMPT, .slots = 5, .n_a = 300});
    assert_int_equal(kvlazy_k(cache, 1, &t[0]), KVLAZY_OK);
    assert_int_equal(kvlazy_v(cache, 1, &t[1]), KVLAZY_OK);
    assert_int_equal(kvlazy_init_batch(cache), KVLAZY_OK);
    for (uint32_t i = 0; i < 2 * variant->n_stream * 2048; i++) {
        engine_kv_get_cell(&t[i & 1], i / 4096, i / 2 % 2048, row);
        row_unpack(value, row, i & 1 ? variant->layout.v_type : variant->layout.k_type, 32);
        for (uint32_t at = 0; at < 32; at++) {
            assert_true(isfinite(value[at]));
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

    switch (below(state, 11)) {
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
    case 7:
        s.what = ENGINE_TRIM;
        s.n = below(state, 2) ? below(state, 300) : 0;
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
    const engine_session_config *variant = *state;
    const char *text = getenv("KVLAZY_SEED");
    const uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 1;
    engine_session *session = open_session(variant);
    engine_session_report report;
    uint64_t source = seed;
    uint32_t held = 0;

    print_message("%s: KVLAZY_SEED=%llu\n", variant->name, (unsigned long long)seed);
    for (int i = 0; i < 50; i++) {
        step(session, random_step(&source, &held));
    }
    engine_session_get_report(session, &report);
    print_message("%llu cells evicted, %llu tokens computed again\n", (unsigned long long)report.stats.evicted_cells,
                  (unsigned long long)report.lazy.recomputed);
    assert_true(report.max_dlogit == 0.0);
    engine_session_close(session);
}

enum { MOST_TESTS = 128 };

static struct CMUnitTest tests[MOST_TESTS];
static size_t n_test;

static void add(const char *name, CMUnitTestFunction function, const engine_session_config *variant)
{
    assert_true(n_test < MOST_TESTS);
    tests[n_test++] =
        (struct CMUnitTest){.name = name, .test_func = function, .initial_state = (void *)(uintptr_t)variant};
}

int main(void)
{
    uint32_t n;
    const engine_session_config *variant = engine_session_configs(&n);

    for (uint32_t i = 0; i < n; i++, variant++) {
        add(variant->name, scripted_session, variant);
        add("padding is finite", padding_is_finite, variant);
        add(i % 2 ? "a random session" : "resident memory goes back",
            i % 2 ? random_session : resident_memory_goes_back, variant);
        if (variant->n_stream == 1) {
            add("compaction changes no bit", compaction_changes_no_bit, variant);
        }
    }
    return _cmocka_run_group_tests("session", tests, n_test, NULL, NULL);
}
