/* SPDX-License-Identifier: MIT */
/*
 * The figures of a cache: what kvlazy_stats counts, and how long things took, to the nanosecond of a clock that a
 * script moves.
 */
#include "slow_host.h"

static void histogram_is(kvlazy_histogram h, uint64_t n, uint64_t total_ns)
{
    uint64_t sum = 0;

    for (int i = 0; i < KVLAZY_BUCKETS; i++)
        sum += h.bucket[i];
    assert_int_equal(h.n, n);
    assert_int_equal(h.total_ns, total_ns);
    assert_int_equal(sum, n);
}

/* ---- figures ---- */

static void figures_of_a_new_cache(void **state)
{
    struct rig *r = *state;
    kvlazy_stats_info want = {.struct_size = sizeof want}, s;

    open_slow(r);
    s = stats(r);
    want.reserved_bytes = 512 * PAGE;
    want.page_bytes = PAGE;
    want.commits_ahead = 1;
    want.cap_cells = s.cap_cells;
    want.bookkeeping_bytes = s.bookkeeping_bytes;
    assert_int_equal(s.cap_cells, 512);
    assert_memory_equal(&s, &want, sizeof want);
}

static void figures_of_what_happened(void **state)
{
    struct rig *r = *state;
    kvlazy_stats_info s;

    r->params.kv_size_initial = 256;
    open_slow(r);
    ok(turn(r, 0, 0, 300));
    ok(kvlazy_seq_rm(r->cache, 0, 290, -1));
    s = stats(r);
    assert_int_equal(s.touched_bytes, 300 * PAGE);
    assert_int_equal(s.live_cells, 290);
    assert_int_equal(s.n_grow, 1);
    assert_int_equal(s.released_bytes + s.n_shrink + s.n_evict + s.evicted_cells + s.moved_cells, 0);
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    s = stats(r);
    assert_int_equal(s.touched_bytes, 256 * PAGE);
    assert_int_equal(s.released_bytes, 44 * PAGE);
    assert_int_equal(s.live_cells, 256);
    assert_int_equal(s.n_shrink, 1);
    assert_int_equal(s.n_evict, 1);
    assert_int_equal(s.evicted_cells, 34);
    assert_int_equal(s.n_refusal + s.n_os_refusal, 0);
}

static void refusals_by_reason(void **state)
{
    struct rig *r = *state;
    kvlazy_stats_info s;

    r->params.budget_bytes = 400 * PAGE;
    open_slow(r);
    ok(turn(r, 0, 0, 10));
    expect(turn(r, 0, 20, 1), KVLAZY_EPOS);
    expect(turn(r, 0, 10, 503), KVLAZY_ENOSLOT);
    expect(turn(r, 0, 10, 503), KVLAZY_ENOSLOT);
    expect(turn(r, 0, 10, 391), KVLAZY_EBUDGET);
    expect(turn(r, 0, 10, 391), KVLAZY_EBUDGET);
    expect(turn(r, 0, 10, 391), KVLAZY_EBUDGET);
    fake_fail(&r->fake, FAKE_COMMIT, 1);
    expect(turn(r, 0, 10, 5), KVLAZY_ENOMEM);
    expect(kvlazy_prepare(r->cache, NULL, 1, r->slot), KVLAZY_EINVAL); /* a mistake is no refusal */
    s = stats(r);
    assert_int_equal(s.n_refused_pos, 1);
    assert_int_equal(s.n_refused_slot, 2);
    assert_int_equal(s.n_refused_budget, 3);
    assert_int_equal(s.n_refused_memory, 1);
    assert_int_equal(s.n_refusal, 7);
}

static void stats_of_other_sizes(void **state)
{
    struct rig *r = *state;
    kvlazy_stats_info s = {.struct_size = offsetof(kvlazy_stats_info, released_bytes), .released_bytes = 7};
    struct {
        kvlazy_stats_info info;
        uint64_t later;
    } larger = {.info.struct_size = sizeof larger, .later = 1};

    open_slow(r);
    ok(kvlazy_stats(r->cache, &s));
    assert_int_equal(s.reserved_bytes, 512 * PAGE);
    assert_int_equal(s.released_bytes, 7);
    ok(kvlazy_stats(r->cache, &larger.info));
    assert_int_equal(larger.later, 0);
    expect(kvlazy_stats(r->cache, NULL), KVLAZY_EINVAL);
    expect(kvlazy_stats(NULL, &s), KVLAZY_EINVAL);
}

/* ---- histograms ---- */

/* 4^i µs is the most that bucket i counts. */
static void times_fall_into_buckets(void **state)
{
    struct rig *r = *state;
    uint64_t total = 0, n = 0, want[KVLAZY_BUCKETS] = {0};

    open_slow(r);
    for (uint32_t i = 0; i < KVLAZY_BUCKETS; i++)
        for (int k = -1; k <= 1; k++) {
            uint32_t at = k <= 0 ? i : i + 1;

            slow.commit_ns = (UINT64_C(1000) << 2 * i) + (uint64_t)(int64_t)k;
            ok(turn(r, 0, (kvlazy_pos)n, 1));
            ok(kvlazy_trim(r->cache, 0)); /* what was committed ahead goes: each token needs its page */
            total += slow.commit_ns;
            n++;
            want[at < KVLAZY_BUCKETS ? at : KVLAZY_BUCKETS - 1]++;
        }
    slow.commit_ns = 0;
    ok(turn(r, 0, (kvlazy_pos)n++, 1));
    want[0]++;
    histogram_is(stats(r).commit, n, total);
    assert_memory_equal(stats(r).commit.bucket, want, sizeof want);
}

static void only_what_asks_the_host_is_timed(void **state)
{
    struct rig *r = *state;

    open_slow(r);
    slow.commit_ns = 3000;
    slow.decommit_ns = 70000;
    ok(turn(r, 0, 0, 100));
    ok(turn(r, 0, 100, 50));
    histogram_is(stats(r).commit, 2, 6000);
    ok(kvlazy_seq_rm(r->cache, 0, 50, -1));
    ok(turn(r, 0, 50, 50)); /* on touched pages */
    histogram_is(stats(r).commit, 2, 6000);
    ok(kvlazy_trim(r->cache, 0));
    histogram_is(stats(r).release, 1, 70000);
    ok(kvlazy_trim(r->cache, 0)); /* nothing to give */
    histogram_is(stats(r).release, 1, 70000);
    histogram_is(stats(r).evict, 0, 0);
    histogram_is(stats(r).compact, 0, 0);
}

static void a_commit_that_fails_took_time_too(void **state)
{
    struct rig *r = *state;

    open_slow(r);
    slow.commit_ns = 5000;
    fake_fail(&r->fake, FAKE_COMMIT, 1);
    expect(turn(r, 0, 0, 10), KVLAZY_ENOMEM);
    histogram_is(stats(r).commit, 1, 5000);
    ok(turn(r, 0, 0, 10));
    histogram_is(stats(r).commit, 2, 10000);
}

static void take_a_second(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)r;
    (void)seq;
    (void)pos;
    slow.now_ns += 1000000000;
}

static void an_eviction_is_timed_without_the_asking(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 256;
    r->in_evict = take_a_second;
    open_slow(r);
    ok(turn(r, 0, 0, 400));
    slow.look_ns = 100;
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(stats(r).evict.n, 1);
    assert_true(stats(r).evict.total_ns > 0 && stats(r).evict.total_ns < 100000);
    assert_int_equal(stats(r).n_evict, 1);
    ok(kvlazy_poll(r->cache, NULL)); /* nothing goes: nothing is counted */
    assert_int_equal(stats(r).evict.n, 1);
    r->in_evict = NULL;
}

static void moves_are_timed(void **state)
{
    struct rig *r = *state;

    open_slow(r);
    ok(turn(r, 0, 0, 10));
    ok(turn(r, 1, 0, 10));
    ok(kvlazy_seq_rm(r->cache, 0, 0, -1));
    slow.look_ns = 1000;
    ok(kvlazy_trim(r->cache, 0));
    histogram_is(stats(r).compact, 1, 1000);
    assert_int_equal(stats(r).moved_cells, 10);
    assert_int_equal(stats(r).released_bytes, 10 * PAGE);
    kvlazy_destroy(r->cache); /* the rig does not follow cells that moved */
    r->cache = NULL;
}

static void without_a_clock_times_are_zero(void **state)
{
    struct rig *r = *state;

    open_slow(r);
    kvlazy_destroy(r->cache);
    r->fake.table.now_ns = NULL;
    rig_open(r);
    slow.commit_ns = 5000;
    ok(turn(r, 0, 0, 10));
    histogram_is(stats(r).commit, 1, 0);
    assert_int_equal(stats(r).commit.bucket[0], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(figures_of_a_new_cache),
        RIG_TEST(figures_of_what_happened),
        RIG_TEST(refusals_by_reason),
        RIG_TEST(stats_of_other_sizes),
        RIG_TEST(times_fall_into_buckets),
        RIG_TEST(only_what_asks_the_host_is_timed),
        RIG_TEST(a_commit_that_fails_took_time_too),
        RIG_TEST(an_eviction_is_timed_without_the_asking),
        RIG_TEST(moves_are_timed),
        RIG_TEST(without_a_clock_times_are_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
