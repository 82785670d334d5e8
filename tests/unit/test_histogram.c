/* SPDX-License-Identifier: MIT */
/* histogram: each time falls into the one bucket whose bounds hold it, and the sums are exact. */
#include "unit.h"

#include "base/histogram.h"

/* Bounds are made the slow way: a microsecond, then four times as much each. */
static uint32_t naive_bucket(uint64_t ns)
{
    uint64_t most = 1000;
    uint32_t i = 0;

    for (; i < KVLAZY_BUCKETS - 1 && ns > most; i++)
        most *= 4;
    return i;
}

static void bounds_grow_fourfold(void **state)
{
    uint64_t most = 1000;

    (void)state;
    for (uint32_t i = 0; i < KVLAZY_BUCKETS; i++, most *= 4)
        assert_true(kvl_bucket_ns(i) == most);
}

static void times_at_every_bound(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < KVLAZY_BUCKETS; i++)
        for (int k = -1; k <= 1; k++) {
            kvlazy_histogram h = {.n = 0};
            uint64_t ns = kvl_bucket_ns(i) + (uint64_t)(int64_t)k;

            kvl_histogram_add(&h, ns);
            assert_int_equal(h.bucket[naive_bucket(ns)], 1);
            assert_int_equal(h.n, 1);
            assert_true(h.total_ns == ns);
        }
}

static void the_shortest_and_the_longest_time(void **state)
{
    kvlazy_histogram h = {.n = 0};

    (void)state;
    kvl_histogram_add(&h, 0);
    kvl_histogram_add(&h, UINT64_MAX);
    assert_int_equal(h.bucket[0], 1);
    assert_int_equal(h.bucket[KVLAZY_BUCKETS - 1], 1);
    assert_int_equal(h.n, 2);
}

static void sums_of_many_times(void **state)
{
    kvlazy_histogram h = {.n = 0};
    uint64_t seed = 7, total = 0, naive[KVLAZY_BUCKETS] = {0};

    (void)state;
    for (int i = 0; i < 10000; i++) {
        uint64_t ns = next_random(&seed) >> (24 + next_random(&seed) % 40);

        kvl_histogram_add(&h, ns);
        naive[naive_bucket(ns)]++;
        total += ns;
    }
    assert_memory_equal(h.bucket, naive, sizeof naive);
    assert_int_equal(h.n, 10000);
    assert_true(h.total_ns == total);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bounds_grow_fourfold),
        cmocka_unit_test(times_at_every_bound),
        cmocka_unit_test(the_shortest_and_the_longest_time),
        cmocka_unit_test(sums_of_many_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
