/* SPDX-License-Identifier: MIT */
/*
 * The library beside the naive model, driven by the same random operations over several shapes. Codes, slots,
 * cells, positions, shifts, planes, n_kv, bytes, evictions and figures are compared as they go. The seed is
 * printed; KVLAZY_TEST_SEED replays one, KVLAZY_TEST_OPS sets how many operations a shape gets, KVLAZY_TEST_SHAPE
 * names a shape that alone is run (* and ? match).
 */
#include "differential.h"

#include <inttypes.h>
#include <stdlib.h>

/* At least 100,000 operations in all where nothing slows them down. */
enum { OPS = KVLAZY_CHECKS >= 2 ? 700 : KVLAZY_CHECKS ? 1500 : 4200, MOST_SHAPES = 64 };

static uint32_t number(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);

    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static void run_shape(void **state)
{
    static struct world w;
    uint32_t seed = number("KVLAZY_TEST_SEED", 1), n_op = number("KVLAZY_TEST_OPS", OPS);

    world_open(&w, *state, seed, NULL, 0);
    print_message("%s: KVLAZY_TEST_SEED=%" PRIu32 "\n", w.shape->name, seed);
    for (uint32_t i = 0; i < n_op; i++)
        world_step(&w);
    world_close(&w);
}

/* A run that met none of a kind has compared nothing of it. */
static void it_came_across_everything(void **state)
{
    const uint64_t *n = sights.status;

    (void)state;
    print_message("prepare: %" PRIu64 " OK, %" PRIu64 " EPOS, %" PRIu64 " ENOSLOT, %" PRIu64 " EBUDGET, %" PRIu64
                  " ESHIFT, %" PRIu64 " applied again\n",
                  n[0], n[-KVLAZY_EPOS], n[-KVLAZY_ENOSLOT], n[-KVLAZY_EBUDGET], n[-KVLAZY_ESHIFT], sights.replayed);
    print_message("%" PRIu64 " evictions, %" PRIu64 " cells recycled, %" PRIu64 " windows that could not be filled\n",
                  sights.evicted, sights.recycled, sights.unfillable);
    print_message("%" PRIu64 " rows copied, %" PRIu64 " copies refused, %" PRIu64 " shared; %" PRIu64 " moves\n",
                  sights.copied_rows, sights.copies_refused, sights.shared, sights.moved);
    print_message("%" PRIu64 " cells packed, %" PRIu64 " times not for want of room, %" PRIu64 " times twice; %" PRIu64
                  " tokens decoded\n",
                  sights.packed, sights.held_back, sights.packed_twice, sights.decoded);
    print_message("%" PRIu64 " batches that a linked cache refused\n", sights.refused_by_other);
    assert_true(sights.packed && sights.held_back && sights.decoded);
    assert_true(sights.refused_by_other);
    assert_true(n[0] && n[-KVLAZY_EPOS] && n[-KVLAZY_ENOSLOT] && n[-KVLAZY_EBUDGET] && n[-KVLAZY_ESHIFT]);
    assert_true(sights.evicted && sights.recycled && sights.unfillable && sights.replayed);
    assert_true(sights.copied_rows && sights.copies_refused && sights.shared && sights.moved);
}

int main(void)
{
    struct CMUnitTest tests[MOST_SHAPES + 1];
    int n = 0;

    if (getenv("KVLAZY_TEST_SHAPE"))
        cmocka_set_test_filter(getenv("KVLAZY_TEST_SHAPE"));
    for (; n < n_shape && n < MOST_SHAPES; n++)
        tests[n] = (struct CMUnitTest){shapes[n].name, run_shape, NULL, NULL, (void *)(uintptr_t)&shapes[n]};
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(it_came_across_everything);
    return _cmocka_run_group_tests("tests", tests, (size_t)n, NULL, NULL);
}
