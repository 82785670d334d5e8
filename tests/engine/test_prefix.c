/* SPDX-License-Identifier: MIT */
/*
 * The reference engine with a prefix store, beside its plain twin: what slots lose comes back without being computed
 * again, and whatever the place for blobs does, every logit is the same to the bit and the session goes on.
 */
#include "engine_session.h"

#include "fake_place.h"
#include "unit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16, N_TEXT = 96 };

/* What a run of steps came to. */
struct outcome {
    engine_session_report report;
    kvlazy_store_info store;
};

static kvlazy_store *store_over(struct fake_place *fake)
{
    const kvlazy_store_ops ops = fake_ops(fake);
    const kvlazy_store_params params = {
        .struct_size = sizeof params, .ops = &ops, .block_tokens = BLOCK, .min_tokens = 1};
    kvlazy_store *store = NULL;

    assert_int_equal(kvlazy_store_create(&params, &store), KVLAZY_OK);
    return store;
}

static kvlazy_store_info info_of(kvlazy_store *store)
{
    kvlazy_store_info info = {.struct_size = sizeof info};

    assert_int_equal(kvlazy_store_stats(store, &info), KVLAZY_OK);
    return info;
}

static engine_session *open_session(const engine_session_config *way, const engine_prefix *prefix)
{
    engine_session_config config = *way;
    engine_session *session = NULL;

    config.prefix = prefix;
    assert_int_equal(engine_session_open(&config, &session), KVLAZY_OK);
    return session;
}

static const engine_session_config *way_called(const char *name)
{
    uint32_t n;
    const engine_session_config *way = engine_session_configs(&n);

    while (n-- > 0 && strcmp(way->name, name) != 0)
        way++;
    assert_string_equal(way->name, name);
    return way;
}

static void expect_the_same_bits(const engine_session_report *report)
{
    if (report->failure[0] != '\0')
        fail_msg("%s", report->failure);
    assert_true(report->max_dlogit == 0.0);
    assert_int_equal(report->n_differing, 0);
    assert_true(report->n_compared > 0);
}

/* ---- the whole script ---- */

static struct outcome run_script(const engine_session_config *way, kvlazy_store *store)
{
    const engine_prefix prefix = {store, 20000, 20000};
    engine_session *session = open_session(way, store ? &prefix : NULL);
    struct outcome o;

    memset(&o, 0, sizeof o);
    engine_session_run(session);
    engine_session_get_report(session, &o.report);
    engine_session_close(session);
    if (store)
        o.store = info_of(store);
    return o;
}

/* Another session finds in the store what one saved: all but what does not fill a block is there. */
static void find_it_again(const engine_session_config *way, kvlazy_store *store)
{
    const engine_prefix prefix = {store, 20000, 20000};
    engine_session *session = open_session(way, &prefix);
    const engine_step prompt = {ENGINE_PROMPT, .slots = 1u << 2, .n_a = 700};
    engine_session_report report;

    engine_session_step(session, &prompt);
    engine_session_get_report(session, &report);
    engine_session_close(session);
    expect_the_same_bits(&report);
    assert_int_equal(report.lazy.loaded, 700 / BLOCK * BLOCK);
    assert_int_equal(report.lazy.computed, 700 % BLOCK);
}

static void test_fewer_tokens_are_computed_again(void **state)
{
    const engine_session_config *way = way_called(*state);
    struct fake_place fake = {0};
    kvlazy_store *store = store_over(&fake);
    const struct outcome without = run_script(way, NULL), with = run_script(way, store);

    expect_the_same_bits(&without.report);
    expect_the_same_bits(&with.report);
    print_message("%s: computed %llu without a store, %llu of them again; %llu with one, %llu again, %llu loaded\n",
                  way->name, (unsigned long long)without.report.lazy.computed,
                  (unsigned long long)without.report.lazy.recomputed, (unsigned long long)with.report.lazy.computed,
                  (unsigned long long)with.report.lazy.recomputed, (unsigned long long)with.report.lazy.loaded);
    assert_int_equal(without.report.lazy.loaded, 0);
    assert_true(with.report.lazy.recomputed * 4 < without.report.lazy.recomputed);
    assert_true(with.report.lazy.computed < without.report.lazy.computed);
    assert_int_equal(with.store.n_corrupt + with.store.n_timeout + with.store.n_failed, 0);
    find_it_again(way, store);
    assert_int_equal(kvlazy_store_destroy(store), KVLAZY_OK);
    fake_clear(&fake);
}

/* ---- a place that goes wrong ---- */

/* Slots talk, idle, lose tokens and get them again; two begin alike. */
static const engine_step short_script[] = {
    {ENGINE_PROMPT, .slots = 1, .n_a = N_TEXT},
    {ENGINE_DECODE, .slots = 1, .n = 3, .ms = 50},
    {ENGINE_PROMPT, .slots = 2, .n_a = 60, .b = 700, .n_b = 30},
    {ENGINE_IDLE, .ms = 60000},
    {ENGINE_TRIM, .n = 24, .expect = ENGINE_EVICTED},
    {ENGINE_PROMPT, .slots = 1, .n_a = N_TEXT, .b = 900, .n_b = 30, .expect = ENGINE_RECOMPUTED},
    {ENGINE_DECODE, .slots = 3, .n = 2, .ms = 50},
    {ENGINE_DROP, .slots = 3},
    {ENGINE_PROMPT, .slots = 4, .n_a = 80},
    {ENGINE_SHIFT, .slots = 4, .a = 40, .n = 20},
    {ENGINE_PROMPT, .slots = 8, .n_a = 70, .b = 500, .n_b = 20, .from = 3},
    {ENGINE_DECODE, .slots = 12, .n = 2, .ms = 50},
    /* The text that the shift left, in a slot where nothing moved, and then in the one where it did. */
    {ENGINE_PROMPT, .slots = 1, .n_a = 40, .b = 60, .n_b = 60},
    {ENGINE_PROMPT, .slots = 4, .n_a = 40, .b = 60, .n_b = 60},
    {ENGINE_DROP, .slots = 13},
};

static void talk(engine_session *session, const char *what)
{
    engine_session_report report;

    for (size_t i = 0; i < sizeof short_script / sizeof *short_script; i++) {
        if (engine_session_step(session, &short_script[i]) != KVLAZY_OK) {
            engine_session_get_report(session, &report);
            fail_msg("%s: step %zu: %s", what, i, report.failure);
        }
    }
}

/* How a place goes wrong, and by how much. */
struct ill {
    const char *name;
    void (*make)(struct fake_place *fake, uint32_t much);
    uint32_t much[4];
    size_t of_store; /* the count in kvlazy_store_info that says so; 0: none does */
};

static void fail_again(struct fake_place *fake, int call)
{
    (void)call;
    if (fake->fail_in == 0)
        fake->fail_in = *(const int *)fake->ctx;
}

static void fail_each_nth(struct fake_place *fake, uint32_t much)
{
    *(int *)fake->ctx = (int)much;
    fake->inside = fail_again;
}

static void slow(struct fake_place *fake, uint32_t much)
{
    fake->slow_ms = much;
}

static void forget_now(struct fake_place *fake, int call)
{
    (void)call;
    if (fake->n_call[FAKE_OPEN] % *(const int *)fake->ctx == 0)
        fake_lose(fake, (uint32_t)fake->n_call[FAKE_OPEN] % 7);
}

static void forget(struct fake_place *fake, uint32_t much)
{
    *(int *)fake->ctx = (int)much;
    fake->inside = forget_now;
}

static void tear(struct fake_place *fake, uint32_t much)
{
    fake->tears = true;
    fake->no_size = much == 2;
}

static void lie(struct fake_place *fake, uint32_t much)
{
    fake->lie = (int)much;
}

/* Another bit each time, of the header and of the rows. */
static void flip_now(struct fake_place *fake, int call)
{
    (void)call;
    fake->flip_at = fake->flip_at * 7 + 12345;
}

static void flip(struct fake_place *fake, uint32_t much)
{
    fake->lie = FAKE_FLIP;
    fake->flip_at = much;
    fake->inside = flip_now;
}

static void say_that_all_is_there(struct fake_place *fake, uint32_t much)
{
    (void)much;
    fake->has_lies = true;
}

static void hang(struct fake_place *fake, uint32_t much)
{
    fake->slow_ms = 20;
    fake->error[much] = ETIMEDOUT;
}

static void refuse(struct fake_place *fake, uint32_t much)
{
    fake->error[much - 1] = ENOSPC;
}

#define COUNT(field) offsetof(kvlazy_store_info, field)

static const struct ill ills[] = {
    {"fails each n-th call", fail_each_nth, {1, 3, 17}, COUNT(n_failed)},
    {"is slow", slow, {3}, COUNT(n_timeout)},
    {"forgets", forget, {3}, COUNT(n_miss)},
    {"tears", tear, {1, 2}, COUNT(n_corrupt)},
    {"brings others or nothing", lie, {FAKE_OTHER, FAKE_NOTHING}, COUNT(n_corrupt)},
    {"flips bits", flip, {4242}, COUNT(n_corrupt)},
    {"says that all is there", say_that_all_is_there, {1}, 0},
    {"hangs", hang, {FAKE_READ, FAKE_WRITE}, COUNT(n_timeout)},
    {"refuses", refuse, {1 + FAKE_CLOSE}, 0},
};

/* It goes wrong with an empty place, with a filled one, and is well again in the end. */
static void go_through(const engine_session_config *way, const struct ill *ill, uint32_t much)
{
    int number = 0;
    struct fake_place fake = {.ctx = &number}, well;
    kvlazy_store *store;
    engine_prefix prefix = {NULL, 15, 15};
    engine_session *session;
    struct outcome o;
    uint64_t n_hit;

    ill->make(&fake, much); /* a table says whether it has a size */
    store = store_over(&fake);
    prefix.store = store;
    session = open_session(way, &prefix);
    for (int round = 0; round < 2; round++) {
        talk(session, ill->name);
        well = (struct fake_place){.ctx = &number, .no_size = fake.no_size, .blob = fake.blob};
        assert_int_equal(fake.n_open, 0);
        fake = well;
        if (round == 0) {
            talk(session, ill->name); /* fills it */
            ill->make(&fake, much);
        }
    }
    n_hit = info_of(store).n_hit;
    talk(session, ill->name);
    engine_session_get_report(session, &o.report);
    engine_session_close(session);
    o.store = info_of(store);
    expect_the_same_bits(&o.report);
    assert_true(o.store.n_hit > n_hit);
    if (ill->of_store != 0 && *(const uint64_t *)(const void *)((const char *)&o.store + ill->of_store) == 0)
        fail_msg("a place that %s (%u) left no trace", ill->name, much);
    assert_int_equal(kvlazy_store_destroy(store), KVLAZY_OK);
    fake_clear(&fake);
}

static void test_whatever_the_place_does(void **state)
{
    static const char *const names[] = {"f16 rows", "f16 transposed, 4 streams", "memory, f16 rows",
                                        "memory, q8_0 rows, 4 streams"};
    uint32_t way = 0;

    (void)state;
    for (size_t i = 0; i < sizeof ills / sizeof *ills; i++)
        for (int k = 0; k < 4 && ills[i].much[k] != 0; k++)
            go_through(way_called(names[way++ % 4]), &ills[i], ills[i].much[k]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_fewer_tokens_are_computed_again, "memory, q8_0 rows, 4 streams"),
        cmocka_unit_test(test_whatever_the_place_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
