/* SPDX-License-Identifier: MIT */
/*
 * A load that swings around a power of two, where a naive soft cap would grow and shrink for ever: after warm-up the
 * host is asked for nothing but the time, whatever the steps are made of, in every kind of cache and at any pace.
 */
#include "support.h"

#include <stdio.h>

#include <kvlazy/engine_cells.h>
#include <kvlazy/pool.h>

#include "unit.h"

/* A load comes round every four steps, and the idle time passes every fifty at most: the more checks a build has, and
 * the slower it is, the fewer steps it takes. */
enum { PAD = 256, IDLE = 500, STEPS = KVLAZY_CHECKS >= 2 ? 300 : KVLAZY_CHECKS ? 1000 : 2000, WARM_UP = 8 };

struct swing {
    const char *what;
    uint32_t n_stream, initial, center, amplitude;
    uint32_t flags;
    uint32_t step_ms;   /* the clock moves by so much a step */
    bool polls, pooled; /* polls after each step; the cache is one of a pool */
};

static uint64_t host_calls(struct rig *r)
{
    uint64_t n = 0;

    for (int k = 0; k < FAKE_KINDS; k++)
        n += k == FAKE_NOW ? 0 : r->fake.n_call[k];
    return n;
}

static void open_swing(struct rig *r, const struct swing *s, kvlazy_pool *pool)
{
    static const size_t rows[2][2] = {{64, 36}, {34, 0}};

    rig_rows(r, 2, rows);
    r->params.n_stream = s->n_stream;
    r->params.kv_size = 2 * s->center + PAD;
    r->params.kv_size_initial = s->initial;
    r->params.n_pad = PAD;
    r->params.flags = s->flags;
    r->params.pool = pool;
    rig_open(r);
}

/* The sequence has n tokens from here on: more are put, in ubatches of 512, or its tail is taken. */
static void set_length(struct rig *r, kvlazy_seq_id seq, uint32_t n)
{
    kvlazy_pos end = kvlazy_seq_pos_max(r->cache, seq) + 1;

    ok(kvlazy_init_batch(r->cache));
    if (n < (uint32_t)end)
        ok(kvlazy_seq_rm(r->cache, seq, (kvlazy_pos)n, -1));
    for (uint32_t k; (uint32_t)end < n; end += (kvlazy_pos)k) {
        k = n - (uint32_t)end < 512 ? n - (uint32_t)end : 512;
        ok(put(r, seq, end, k));
    }
    ok(kvlazy_end_batch(r->cache));
}

static void swing_step(struct rig *r, const struct swing *s, uint32_t i)
{
    uint32_t low = s->center - s->amplitude / 2, high = low + s->amplitude;

    r->fake.now += s->step_ms;
    set_length(r, 0, (i % 2 ? high : low) - 1 + i / 2 % 2); /* one token more or less each time */
    if (s->n_stream > 1)
        set_length(r, 1, i % 2 ? low : high); /* the other way round */
    if (s->polls) {
        int status = kvlazy_poll(r->cache, NULL);

        if (status)
            fail_msg("%s: poll answers %s", s->what, kvlazy_status_name(status));
    }
}

static void swing(const struct swing *s)
{
    struct rig *r = rig_new();
    kvlazy_pool *pool = NULL;
    uint64_t commit_n, grow_n;

    if (s->pooled)
        ok(kvlazy_pool_create(UINT64_C(1) << 40, &pool));
    open_swing(r, s, pool);
    for (uint32_t i = 0; i < WARM_UP; i++)
        swing_step(r, s, i);
    fake_forget(&r->fake);
    commit_n = stats(r).commit.n;
    grow_n = stats(r).n_grow;
    for (uint32_t i = 0; i < STEPS; i++)
        swing_step(r, s, i);
    if (host_calls(r))
        fail_msg("%s: %llu calls of the host (commit %llu, decommit %llu)", s->what, (unsigned long long)host_calls(r),
                 (unsigned long long)r->fake.n_call[FAKE_COMMIT], (unsigned long long)r->fake.n_call[FAKE_DECOMMIT]);
    assert_int_equal(stats(r).commit.n, commit_n);
    if (stats(r).n_grow != grow_n)
        fail_msg("%s: the cap moved %llu times", s->what, (unsigned long long)(stats(r).n_grow - grow_n));
    sound(r);
    rig_free(r);
    ok(kvlazy_pool_destroy(pool));
}

static void around_powers_of_two(void **state)
{
    static const uint32_t centers[] = {256, 512, 1024, 4096};
    char what[100];

    (void)state;
    for (size_t i = 0; i < N_OF(centers); i++)
        for (uint32_t amplitude = 2; amplitude <= PAD; amplitude += PAD - 2) {
            snprintf(what, sizeof what, "%u±%u", (unsigned)centers[i], (unsigned)amplitude / 2);
            swing(&(struct swing){.what = what,
                                  .n_stream = 1,
                                  .center = centers[i],
                                  .amplitude = i == 3 ? amplitude / 8 + 1 : amplitude,
                                  .step_ms = 10,
                                  .polls = i % 2});
        }
}

static void in_every_kind_of_cache(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 32; k++) {
        char what[100];

        snprintf(what, sizeof what, "streams %d, initial %d, at_init %d, polls %d, pool %d", k & 1 ? 4 : 1,
                 k & 2 ? 256 : 0, !!(k & 4), !!(k & 8), !!(k & 16));
        swing(&(struct swing){.what = what,
                              .n_stream = k & 1 ? 4 : 1,
                              .initial = k & 2 ? 256 : 0,
                              .flags = k & 4 ? KVLAZY_SHRINK_AT_INIT : 0,
                              .polls = k & 8,
                              .pooled = k & 16,
                              .center = 512,
                              .amplitude = PAD / 8,
                              .step_ms = 20});
    }
}

/* The same load but slow: half the idle time passes between two steps. */
static void at_any_pace(void **state)
{
    static const uint32_t paces[] = {0, 1, 100, IDLE / 4, IDLE / 2 - 1};

    (void)state;
    for (size_t i = 0; i < N_OF(paces); i++)
        for (int polls = 0; polls < 2; polls++)
            swing(&(struct swing){.what = "pace",
                                  .n_stream = 1,
                                  .initial = 256,
                                  .center = 256,
                                  .amplitude = 64,
                                  .step_ms = paces[i],
                                  .polls = polls});
}

/* Sequences of one unified cache take turns, and each comes in the holes that another left. */
static void sequences_take_turns(void **state)
{
    struct rig *r = *state;

    r->params.n_pad = PAD;
    r->params.kv_size_initial = 256;
    open_with(r, 2048, 256);
    for (uint32_t i = 0; i < STEPS + WARM_UP; i++) {
        kvlazy_seq_id seq = (kvlazy_seq_id)(i % 4);

        r->fake.now += 10;
        ok(kvlazy_seq_rm(r->cache, seq, 0, -1));
        ok(turn(r, seq, 0, 60 + i % 2 * 9));
        ok(kvlazy_poll(r->cache, NULL));
        if (i + 1 == WARM_UP)
            fake_forget(&r->fake);
    }
    assert_int_equal(host_calls(r), 0);
}

/* An engine with cells of its own. */
static uint32_t table_end;

static uint32_t used_end(void *ctx, uint32_t stream)
{
    (void)ctx;
    (void)stream;
    return table_end;
}

static void with_cells_of_the_engine(void **state)
{
    static const kvlazy_cell_ops ops = {.struct_size = sizeof ops, .used_end = used_end};
    struct rig *r = *state;

    r->params.cell_ops = &ops;
    r->params.n_pad = PAD;
    table_end = 0;
    open_with(r, 2048, 256);
    for (uint32_t i = 0; i < STEPS + WARM_UP; i++) {
        uint32_t end = i % 2 ? 512 + PAD / 2 : 512 - PAD / 2;

        r->fake.now += 10;
        table_end = table_end > end ? end : table_end;
        ok(kvlazy_init_batch(r->cache));
        ok(kvlazy_ensure(r->cache, 0, end));
        assert_true(kvlazy_cap(r->cache, 0) >= end);
        ok(kvlazy_touch(r->cache, 0, end));
        table_end = end;
        ok(kvlazy_end_batch(r->cache));
        ok(kvlazy_poll(r->cache, NULL));
        if (i + 1 == WARM_UP)
            fake_forget(&r->fake);
    }
    assert_int_equal(host_calls(r), 0);
    kvlazy_destroy(r->cache); /* the rig asks for cells, which are not there */
    r->cache = NULL;
}

/* Hysteresis is no leak: when the load stays low, what the high half had goes within one and a half idle times. */
static void when_it_stays_low_the_rest_goes(void **state)
{
    struct rig *r = *state;
    uint64_t low;

    open_with(r, 2048, 0);
    for (uint32_t i = 0; i < 100; i++) {
        r->fake.now += 10;
        set_length(r, 0, i % 2 ? 640 : 384);
    }
    set_length(r, 0, 384);
    low = cover(r);
    for (uint32_t t = 0; t <= IDLE * 3 / 2; t += 10) {
        r->fake.now += 10;
        set_length(r, 0, 383 + t / 10 % 2);
    }
    assert_true(stats(r).touched_bytes <= low + 4096 * 2 * RIG_TENSORS); /* what decode has ahead */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(around_powers_of_two), cmocka_unit_test(in_every_kind_of_cache),
        cmocka_unit_test(at_any_pace),          RIG_TEST(sequences_take_turns),
        RIG_TEST(with_cells_of_the_engine),     RIG_TEST(when_it_stays_low_the_rest_goes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
