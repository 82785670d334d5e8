/* SPDX-License-Identifier: MIT */
/* bits against an array of bools, at every place where a word begins or ends. */
#include "unit.h"

#include "base/bits.h"

enum { N = 200 };

static const uint64_t edges[] = {0, 1, 2, 31, 62, 63, 64, 65, 66, 127, 128, 129, 191, 192, 193, 199, 200};

static void scatter(uint64_t *word, bool *naive, uint64_t seed)
{
    memset(word, 0, kvl_bits_words(N) * sizeof *word);
    for (int i = 0; i < N; i++) {
        naive[i] = next_random(&seed) % 5 == 0;
        if (naive[i])
            kvl_bit_set(word, (uint64_t)i);
    }
}

static uint64_t naive_next(const bool *naive, uint64_t from, uint64_t end, bool value)
{
    for (; from < end; from++)
        if (naive[from] == value)
            return from;
    return end;
}

static void searches_agree(void **state)
{
    uint64_t word[4];
    bool naive[N];

    (void)state;
    for (uint64_t seed = 1; seed < 20; seed++) {
        scatter(word, naive, seed);
        for (size_t a = 0; a < N_OF(edges); a++)
            for (size_t b = a; b < N_OF(edges); b++) {
                uint64_t from = edges[a], end = edges[b], n = 0, top = 0, above = from;

                for (uint64_t i = from; i < end; i++)
                    n += naive[i];
                for (uint64_t i = 0; i < end; i++)
                    top = naive[i] ? i + 1 : top;
                assert_int_equal(kvl_bits_count(word, from, end), n);
                assert_int_equal(kvl_bits_next(word, from, end, true), naive_next(naive, from, end, true));
                assert_int_equal(kvl_bits_next(word, from, end, false), naive_next(naive, from, end, false));
                for (uint64_t i = from; i < end; i++)
                    above = naive[i] ? i + 1 : above;
                assert_int_equal(kvl_bits_top(word, end), top);
                assert_int_equal(kvl_bits_top_above(word, from, end), above);
            }
    }
}

static void filling_says_what_changed(void **state)
{
    uint64_t word[4];
    bool naive[N];

    (void)state;
    for (size_t a = 0; a < N_OF(edges); a++)
        for (size_t b = 0; b < N_OF(edges); b++)
            for (int value = 0; value < 2; value++) {
                uint64_t changed = 0;

                scatter(word, naive, 7);
                for (uint64_t i = edges[a]; i < edges[b]; i++) {
                    changed += naive[i] != value;
                    naive[i] = value;
                }
                assert_int_equal(kvl_bits_fill(word, edges[a], edges[b], value), changed);
                for (uint64_t i = 0; i < N; i++)
                    assert_int_equal(kvl_bit_get(word, i), naive[i]);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(searches_agree),
        cmocka_unit_test(filling_says_what_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
