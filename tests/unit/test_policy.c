/* SPDX-License-Identifier: MIT */
/* policy: the arithmetic of caps and clocks over tables. */
#include "unit.h"

#include "base/policy.h"

static void soft_cap(void **state)
{
    static const struct {
        uint32_t kv_size, initial, n_pad, end, cap;
    } rows[] = {
        {1536, 256, 256, 0, 256},     {1536, 256, 256, 256, 256},   {1536, 256, 256, 257, 512},
        {1536, 256, 256, 600, 1024},  {1536, 256, 256, 1100, 1536}, {1536, 1536, 256, 1, 1536},
        {8192, 256, 256, 2048, 2048}, {8192, 300, 256, 10, 512},    {8192, 300, 1, 10, 300},
        {320, 1, 256, 300, 320},      {100, 100, 256, 0, 100},      {10, 1, 1, 3, 4},
        {INT32_MAX, 1, 1, INT32_MAX, INT32_MAX},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++)
        assert_int_equal(kvl_policy_cap(rows[i].kv_size, rows[i].initial, rows[i].n_pad, rows[i].end), rows[i].cap);
}

static void padding(void **state)
{
    static const struct {
        uint32_t kv_size, n_pad, used_end, n_kv;
    } rows[] = {
        {8192, 256, 0, 256},  {8192, 256, 256, 256}, {8192, 256, 257, 512}, {320, 256, 301, 320},
        {100, 256, 1, 100},   {8192, 512, 1, 512},   {8192, 256, 600, 768}, {10, 1, 0, 1},
        {INT32_MAX, 1u << 30, INT32_MAX, INT32_MAX},
    };

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++)
        assert_int_equal(kvl_policy_n_kv(rows[i].kv_size, rows[i].n_pad, rows[i].used_end), rows[i].n_kv);
}

static void page_sizes(void **state)
{
    static const struct {
        uint64_t asked, row_bytes;
        uint32_t initial;
        uint64_t most;
    } rows[] = {
        {0, 2048, 256, 65536}, /* 32 cells a page */
        {0, 2048, 32, 65536},
        {0, 2048, 31, 31 * 2048}, /* the next smaller page is taken */
        {0, 34, 256, 34 * 256},
        {0, 2, 8192, 16384}, /* a channel of transposed V */
        {0, 1, 1, 1},        /* no page is so small: the host's own */
        {0, 0, 256, 65536},
        {0, UINT64_MAX / 2, 256, 65536},
        {4096, 2048, 256, 4096},
        {1 << 21, 34, 1, 1 << 21}, /* the operator wants it so */
    };

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++)
        assert_int_equal(kvl_policy_page_most(rows[i].asked, rows[i].row_bytes, rows[i].initial), rows[i].most);
}

static void cost_of_faults(void **state)
{
    static const struct {
        uint64_t write, fault;
        uint32_t n_writer;
        uint64_t ns;
    } rows[] = {
        {100, 371, 0, 271}, {100, 371, 1, 271}, {100, 371, 2, 135}, {0, 98, 3, 32}, {0, 0, 9, 0},
        {200, 100, 1, 0}, /* writing after the call costs more than a fault */
    };

    (void)state;
    for (size_t i = 0; i < N_OF(rows); i++)
        assert_int_equal(kvl_policy_fault_ns(rows[i].write, rows[i].fault, rows[i].n_writer), rows[i].ns);
}

static void excess(void **state)
{
    (void)state;
    assert_int_equal(kvl_policy_excess(0, 256), 0);
    assert_int_equal(kvl_policy_excess(256, 256), 0);
    assert_int_equal(kvl_policy_excess(257, 256), 1);
    assert_int_equal(kvl_policy_excess(UINT32_MAX, 0), UINT32_MAX);
}

static void idling(void **state)
{
    (void)state;
    assert_int_equal(kvl_policy_until_idle(1200, 1000, 500), 300);
    assert_int_equal(kvl_policy_until_idle(1499, 1000, 500), 1);
    assert_int_equal(kvl_policy_until_idle(1500, 1000, 500), 0);
    assert_int_equal(kvl_policy_until_idle(900, 1000, 500), 500); /* a clock that stepped back */
    assert_true(kvl_policy_until_idle(UINT64_MAX, 0, 0) == KVL_NEVER);
    assert_int_equal(kvl_policy_until_idle(UINT64_MAX, 0, UINT32_MAX), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(soft_cap),
        cmocka_unit_test(padding),
        cmocka_unit_test(page_sizes),
        cmocka_unit_test(cost_of_faults),
        cmocka_unit_test(excess),
        cmocka_unit_test(idling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
