/* SPDX-License-Identifier: MIT */
/*
 * The library beside the naive model, driven by the same random operations over several shapes. Codes, slots,
 * cells, positions, shifts, planes, n_kv, bytes, evictions and figures are compared as they go. A finding says shape,
 * seed and operation. What is run comes from the environment:
 *
 *     KVLAZY_TEST_SEED     the seed; default 1
 *     KVLAZY_TEST_STEPS    how many operations all shapes get together
 *     KVLAZY_TEST_OPS      how many one shape gets
 *     KVLAZY_TEST_SHAPE    a shape that alone is run (* and ? match)
 *     KVLAZY_TEST_WITHOUT  names of operations that are left out; fire: nothing is refused; disturb: no batch is opened
 *                          inside on_evict
 *
 * A million operations take a few minutes in a release build:
 *
 *     KVLAZY_TEST_STEPS=1000000 KVLAZY_TEST_SEED=2 build/release/tests/test_differential
 */
#include "differential.h"

#include <inttypes.h>
#include <stdlib.h>

/* At least 100,000 operations in all where nothing slows them down. */
enum { OPS = KVLAZY_CHECKS ? 700 : 3200, MOST_SHAPES = 64 };

static uint32_t number(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);

    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static struct world w;

/* However a finding came to light, it says where. */
static int say_where(void **state)
{
    (void)state;
    if (w.r)
        print_error("%s, seed %" PRIu32 ", operation %d, %s: it ended here\n", w.shape->name, w.seed, w.op, w.what);
    w.r = NULL;
    return 0;
}

static void run_shape(void **state)
{
    uint32_t seed = number("KVLAZY_TEST_SEED", 1), n_step = number("KVLAZY_TEST_STEPS", 0);
    uint32_t n_op = n_step ? n_step / (uint32_t)n_shape + 1 : number("KVLAZY_TEST_OPS", OPS);

    world_open(&w, *state, seed, NULL, 0);
    w.without = getenv("KVLAZY_TEST_WITHOUT");
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
    print_message("%" PRIu64 " batches that a linked cache refused; %" PRIu64 " restores\n", sights.refused_by_other,
                  sights.restored);
    n = sights.applied;
    print_message("apply: %" PRIu64 " OK, %" PRIu64 " EINVAL, %" PRIu64 " EPOS, %" PRIu64 " EBUDGET, %" PRIu64
                  " ENOMEM; %" PRIu64 " undone late; %" PRIu64 " calls not for whole sequences\n",
                  n[0], n[-KVLAZY_EINVAL], n[-KVLAZY_EPOS], n[-KVLAZY_EBUDGET], n[-KVLAZY_ENOMEM], sights.undone_late,
                  sights.not_for_whole);
    print_message("on_evict: %" PRIu64 " questions, %" PRIu64 " answered keep, %" PRIu64 " polls with a batch inside\n",
                  sights.asked, sights.vetoed, sights.disturbed);
    print_message("refused: %" PRIu64 " allocations, %" PRIu64 " commits, %" PRIu64 " pages given back; %" PRIu64
                  " operations\n",
                  sights.hits[FIRE_ALLOC], sights.hits[FIRE_COMMIT], sights.hits[FIRE_DECOMMIT], sights.n_step);
    assert_true(n[0] && n[-KVLAZY_EINVAL] && n[-KVLAZY_EPOS] && n[-KVLAZY_ENOMEM] && sights.undone_late);
    assert_true(sights.asked && sights.vetoed && sights.disturbed && sights.not_for_whole);
    assert_true(sights.hits[FIRE_ALLOC] && sights.hits[FIRE_COMMIT] && sights.hits[FIRE_DECOMMIT]);
    n = sights.status;
    assert_true(sights.packed && sights.held_back && sights.decoded);
    assert_true(sights.refused_by_other && sights.restored);
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
        tests[n] = (struct CMUnitTest){shapes[n].name, run_shape, NULL, say_where, (void *)(uintptr_t)&shapes[n]};
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(it_came_across_everything);
    return _cmocka_run_group_tests("tests", tests, (size_t)n, NULL, NULL);
}
