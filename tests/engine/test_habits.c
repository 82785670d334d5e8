/* SPDX-License-Identifier: MIT */
/*
 * Habits of engines that take memory: a restore that writes its rows when its batches have ended, a context shift that
 * turns every row of a stream, a search for cells that only goes on behind the last ones, and a record of tokens that
 * is longer than what an eviction left. With each of them every logit is that of a calloc'ed cache under the same
 * engine, to the bit, and what rows were written outside of live cells comes back when the cache is at rest.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <kvlazy/arena.h>

#include "engine_session.h"

#define LATE 1

static const engine_session_config variants[] = {
    {"f16 rows", {MODEL_F16, MODEL_F16, false}, ENGINE_KV_LAZY, 1, NULL, ENGINE_TURNS_ALL},
    {"f32 rows, 4 streams", {MODEL_F32, MODEL_F32, false}, ENGINE_KV_LAZY, 4, NULL, ENGINE_TURNS_ALL},
    {"arena, f16 transposed", {MODEL_F16, MODEL_F16, true}, ENGINE_KV_ARENA, 1, NULL, ENGINE_TURNS_ALL},
    {"memory, f16 rows", {MODEL_F16, MODEL_F16, false}, ENGINE_KV_MEMORY, 1, NULL, ENGINE_TURNS_ALL | ENGINE_APPENDS},
    {"memory, arena, f16 transposed, 4 streams",
     {MODEL_F16, MODEL_F16, true},
     ENGINE_KV_MEMORY_ARENA,
     4,
     NULL,
     ENGINE_TURNS_ALL | ENGINE_APPENDS},
};

static const engine_step steps[] = {
    /* Two conversations; what the first holds goes to a file and comes back, its rows after its batches. */
    {ENGINE_PROMPT, .slots = 1u << 0, .a = 0, .n_a = 400, .expect = ENGINE_GREW},
    {ENGINE_PROMPT, .slots = 1u << 1, .a = 700, .n_a = 150, .expect = ENGINE_GREW},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 1, .n = 3, .ms = 50},
    {ENGINE_RESTORE, .slots = 1u << 0, .n = LATE},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 1, .n = 3, .ms = 50},

    /* The second is full: every row of its stream is turned. The first goes, and a third comes. */
    {ENGINE_SHIFT, .slots = 1u << 1, .a = 60, .n = 40},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 1, .n = 3, .ms = 50},
    {ENGINE_DROP, .slots = 1u << 0},
    {ENGINE_PROMPT, .slots = 1u << 2, .a = 100, .n_a = 90},
    {ENGINE_DECODE, .slots = 1u << 1 | 1u << 2, .n = 5, .ms = 50},
    {ENGINE_RESTORE, .slots = 1u << 1 | 1u << 2, .n = LATE},
    {ENGINE_DECODE, .slots = 1u << 1 | 1u << 2, .n = 5, .ms = 50},
    {ENGINE_IDLE, .ms = 60000, .expect = ENGINE_RELEASED},
    {ENGINE_DECODE, .slots = 1u << 1 | 1u << 2, .n = 5, .ms = 50},

    /* A record is longer than what an eviction left; what is left goes to a file and comes back before that is seen. */
    {ENGINE_DROP, .slots = 1u << 1},
    {ENGINE_PROMPT, .slots = 1u << 0, .a = 200, .n_a = 500, .expect = ENGINE_GREW},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 2, .n = 3, .ms = 50},
    {ENGINE_IDLE, .ms = 60000, .expect = ENGINE_EVICTED | ENGINE_RELEASED},
    {ENGINE_RESTORE, .slots = 1u << 0 | 1u << 2},
    {ENGINE_DECODE, .slots = 1u << 0, .n = 3, .ms = 50, .expect = ENGINE_REFUSED | ENGINE_RECOMPUTED | ENGINE_GREW},
    {ENGINE_RESTORE, .slots = 1u << 0, .n = LATE},
    {ENGINE_PROMPT, .slots = 1u << 2, .a = 100, .n_a = 90, .b = 900, .n_b = 30, .expect = ENGINE_REUSED},
    {ENGINE_DECODE, .slots = 1u << 0 | 1u << 2, .n = 5, .ms = 50},
    {ENGINE_IDLE, .ms = 60000, .expect = ENGINE_EVICTED | ENGINE_RELEASED},
    {ENGINE_DROP, .slots = 0xfu},
    {ENGINE_IDLE, .ms = 120000, .expect = ENGINE_RELEASED | ENGINE_EMPTY},
};

/* At rest nothing is in RAM but what is touched, and pages that tensors share with bytes of the engine. */
static void nothing_else_is_resident(const engine_session *session, const engine_session_config *variant)
{
    const bool is_arena = variant->kv == ENGINE_KV_ARENA || variant->kv == ENGINE_KV_MEMORY_ARENA;
    kvlazy_cache *cache = engine_session_cache(session);
    kvlazy_stats_info stats = {.struct_size = sizeof stats};
    uint64_t resident;

    assert_int_equal(kvlazy_stats(cache, &stats), KVLAZY_OK);
    assert_int_equal(kvlazy_resident(cache, &resident), KVLAZY_OK);
    assert_in_range(resident, 0, stats.touched_bytes + (is_arena ? 2 * kvlazy_page_bytes(NULL) : 0));
}

static void no_habit_changes_a_bit(void **state)
{
    const engine_session_config *variant = *state;
    engine_session *session = NULL;
    engine_session_report report;

    assert_int_equal(engine_session_open(variant, &session), KVLAZY_OK);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        if (engine_session_step(session, &steps[i]) != KVLAZY_OK) {
            engine_session_get_report(session, &report);
            fail_msg("%s, step %zu: %s", variant->name, i, report.failure);
        }
        if (steps[i].what == ENGINE_IDLE) {
            nothing_else_is_resident(session, variant);
        }
    }
    engine_session_get_report(session, &report);
    engine_session_close(session);
    assert_true(report.max_dlogit == 0.0);
    assert_int_equal(report.n_differing, 0);
    assert_true(report.n_compared > 5000);
    assert_true(report.stats.evicted_cells > 200);
    assert_true(report.lazy.recomputed > 200);
}

int main(void)
{
    struct CMUnitTest tests[sizeof variants / sizeof *variants];

    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        tests[i] = (struct CMUnitTest){.name = variants[i].name,
                                       .test_func = no_habit_changes_a_bit,
                                       .initial_state = (void *)(uintptr_t)&variants[i]};
    }
    return cmocka_run_group_tests_name("habits", tests, NULL, NULL);
}
