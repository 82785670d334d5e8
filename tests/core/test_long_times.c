/* SPDX-License-Identifier: MIT */
/*
 * Long times: clocks that jump by years or start near their end, and idle times of seven weeks. Counters must not wrap.
 */
#include "support.h"

static const uint64_t jumps[] = {500,        1ull << 31,       (1ull << 31) + 1,   (1ull << 32) - 1,
                                 1ull << 32, (1ull << 32) + 5, (1ull << 32) + 500, (3ull << 32) + 499,
                                 1ull << 40, UINT64_MAX / 2};
static const uint64_t starts[] = {0, 1, 1000, (1ull << 32) - 100, 1ull << 32, (1ull << 45) + 77, UINT64_MAX / 2};

static void any_time_later_is_later(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
        for (size_t j = 0; j < sizeof jumps / sizeof *jumps; j++) {
            struct rig *r = rig_new();

            r->params.kv_size_initial = 128;
            r->fake.now = starts[s];
            rig_open(r);
            ok(turn(r, 0, 0, 300));
            ok(turn(r, 1, 0, 100));
            ok(kvlazy_seq_rm(r->cache, 1, 20, -1)); /* 320 live, free pages behind */
            r->fake.now += jumps[j];
            if (jumps[j] > 750)
                ok(kvlazy_poll(r->cache, NULL));
            else
                settle(r);
            sound(r);
            if (stats(r).live_cells != 128 || stats(r).touched_bytes != cover(r))
                print_error("from %llx by %llx\n", (unsigned long long)starts[s], (unsigned long long)jumps[j]);
            assert_int_equal(stats(r).live_cells, 128);
            assert_true(is_packed(r));
            assert_int_equal(stats(r).touched_bytes, cover(r));
            rig_free(r);
        }
}

/* The same through end_batch: free pages, no poll. */
static void decay_over_long_times(void **state)
{
    (void)state;
    for (size_t s = 0; s < sizeof starts / sizeof *starts; s++)
        for (size_t j = 0; j < sizeof jumps / sizeof *jumps; j++) {
            struct rig *r = rig_new();

            r->fake.now = starts[s];
            rig_open(r);
            ok(turn(r, 0, 0, 300));
            ok(kvlazy_seq_rm(r->cache, 0, 1, -1));
            r->fake.now += jumps[j] < 750 ? 750 : jumps[j];
            ok(turn(r, 0, 1, 1));
            if (stats(r).touched_bytes != cover(r))
                print_error("from %llx by %llx\n", (unsigned long long)starts[s], (unsigned long long)jumps[j]);
            assert_int_equal(stats(r).touched_bytes, cover(r));
            sound(r);
            rig_free(r);
        }
}

static void nothing_is_old_too_early(void **state)
{
    struct rig *r = *state;
    uint64_t next;
    char *before;

    r->params.slot_shrink_idle_ms = UINT32_MAX;
    r->params.kv_size_initial = 10;
    r->fake.now = 1ull << 50;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(kvlazy_seq_rm(r->cache, 0, 200, -1));
    before = rig_dump(r);
    for (int i = 0; i < 16; i++) { /* fifteen steps of three days: 2^28 ms each */
        ok(poll_next(r, &next));
        assert_true(next > 0 && next <= UINT32_MAX);
        if (i < 15)
            r->fake.now += 1u << 28;
    }
    unchanged(r, before);
    r->fake.now += 1u << 28;
    ok(kvlazy_poll(r->cache, NULL)); /* 2^32 ms: the sequence is idle */
    assert_int_equal(stats(r).live_cells, 10);
    r->fake.now += 1ull << 31;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(stats(r).touched_bytes, cover(r));
    sound(r);
}

static void the_longest_idle_of_long_idles(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 100;
    rig_open(r);
    ok(turn(r, 0, 0, 100));
    r->fake.now += (1ull << 32) - 10; /* a stamp of 32 bits would call s1 the elder */
    ok(turn(r, 1, 0, 100));
    r->fake.now += 600;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), -1);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), 99);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_time_later_is_later),
        cmocka_unit_test(decay_over_long_times),
        RIG_TEST(nothing_is_old_too_early),
        RIG_TEST(the_longest_idle_of_long_idles),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
