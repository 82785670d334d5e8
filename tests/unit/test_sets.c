/* SPDX-License-Identifier: MIT */
/*
 * sets: sets of owners that cells name by number, beside arrays of bools: taken alike, left by the last cell, taken
 * again, copied and given back; and what was reserved cannot fail.
 */
#include "unit.h"

#include "fail_alloc.h"
#include "tokens/sets.h"

enum { SEQS = 130, SETS = 60 };

typedef struct twin {
    kvl_sets sets;
    uint64_t seed;
    uint32_t n_cell[SETS]; /* of the set with this number; 0: there is none */
    bool owner[SETS][SEQS];
} twin;

static uint32_t pick(twin *t, uint32_t n)
{
    return (uint32_t)(next_random(&t->seed) % n);
}

static void same(const twin *t, const kvl_sets *sets)
{
    uint32_t n_used = 0;

    for (uint32_t i = 0; i < SETS; i++) {
        uint32_t n_owner = 0;

        if (!t->n_cell[i])
            continue;
        n_used++;
        assert_true(i < sets->n);
        assert_int_equal(sets->set[i]->n_cell, t->n_cell[i]);
        for (uint32_t s = 0; s < SEQS; s++) {
            assert_int_equal(kvl_bit_get(sets->set[i]->bit, s), t->owner[i][s]);
            n_owner += t->owner[i][s];
        }
        assert_int_equal(sets->set[i]->n_owner, n_owner);
    }
    assert_int_equal(sets->n_used, n_used);
}

/* A number in use, or KVL_NO_SET. */
static uint32_t any_set(twin *t)
{
    uint32_t from = pick(t, SETS);

    for (uint32_t i = 0; i < SETS; i++)
        if (t->n_cell[(from + i) % SETS])
            return (from + i) % SETS;
    return KVL_NO_SET;
}

static void take(twin *t)
{
    uint32_t like = pick(t, 3) ? any_set(t) : KVL_NO_SET, number = kvl_sets_take(&t->sets, like);

    assert_true(number < SETS && !t->n_cell[number]);
    for (uint32_t s = 0; s < SEQS; s++)
        t->owner[number][s] = like != KVL_NO_SET && t->owner[like][s];
    t->sets.set[number]->n_cell = t->n_cell[number] = 1 + pick(t, 5);
}

static void change(twin *t, uint32_t number)
{
    uint32_t s = pick(t, SEQS);
    bool adds = pick(t, 2);

    (adds ? kvl_set_add : kvl_set_remove)(t->sets.set[number], s);
    t->owner[number][s] = adds;
}

static void leave(twin *t, uint32_t number)
{
    uint32_t n = 1 + pick(t, t->n_cell[number]);

    kvl_sets_leave(&t->sets, number, n);
    t->n_cell[number] -= n;
}

static void any_order_of_calls(void **state)
{
    twin t = {.seed = 5};

    (void)state;
    kvl_sets_init(&t.sets, SEQS);
    for (int i = 0; i < 5000; i++) {
        uint32_t number = any_set(&t);

        if (t.sets.n_used < SETS / 2 && pick(&t, 2))
            take(&t);
        else if (number != KVL_NO_SET && pick(&t, 2))
            change(&t, number);
        else if (number != KVL_NO_SET)
            leave(&t, number);
        if (pick(&t, 50) == 0)
            kvl_sets_shrink(&t.sets);
        same(&t, &t.sets);
    }
    kvl_sets_fini(&t.sets);
}

static void a_copy_has_the_same_numbers_and_nothing_spare(void **state)
{
    twin t = {.seed = 9};
    kvl_sets copy;

    (void)state;
    kvl_sets_init(&t.sets, SEQS);
    assert_int_equal(kvl_sets_copy(&copy, &t.sets), KVLAZY_OK); /* of none */
    kvl_sets_fini(&copy);
    for (int i = 0; i < 20; i++) {
        take(&t);
        change(&t, any_set(&t));
    }
    for (int i = 0; i < 12; i++)
        leave(&t, any_set(&t));
    assert_int_equal(kvl_sets_copy(&copy, &t.sets), KVLAZY_OK);
    same(&t, &copy);
    assert_int_equal(copy.n_spare, 0);
    assert_true(kvl_sets_bytes(&copy) <= kvl_sets_bytes(&t.sets));
    kvl_sets_fini(&t.sets);
    same(&t, &copy);
    kvl_sets_fini(&copy);
}

static void what_was_reserved_cannot_fail(void **state)
{
    kvl_sets sets;

    (void)state;
    kvl_sets_init(&sets, SEQS);
    assert_int_equal(kvl_sets_reserve(&sets, 10), KVLAZY_OK);
    alloc_fail_in = 1;
    alloc_stays_failed = alloc_armed = true; /* from here on no allocation succeeds */
    for (uint32_t i = 0; i < 10; i++) {
        uint32_t number = kvl_sets_take(&sets, KVL_NO_SET);

        assert_true(number != KVL_NO_SET);
        sets.set[number]->n_cell = 1;
    }
    assert_true(kvl_sets_take(&sets, KVL_NO_SET) == KVL_NO_SET);
    kvl_sets_leave(&sets, 3, 1);
    assert_int_equal(kvl_sets_take(&sets, KVL_NO_SET), 3);
    alloc_armed = alloc_stays_failed = false;
    kvl_sets_fini(&sets);
}

static void nothing_is_left_when_all_is_given_back(void **state)
{
    kvl_sets sets;

    (void)state;
    kvl_sets_init(&sets, SEQS);
    assert_int_equal(kvl_sets_bytes(&sets), 0);
    assert_int_equal(kvl_sets_reserve(&sets, 30), KVLAZY_OK);
    assert_true(kvl_sets_bytes(&sets) >= 30 * sizeof(kvl_set));
    kvl_sets_shrink(&sets);
    assert_int_equal(kvl_sets_bytes(&sets), 0);
    kvl_sets_fini(&sets);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_order_of_calls),
        cmocka_unit_test(a_copy_has_the_same_numbers_and_nothing_spare),
        cmocka_unit_test(what_was_reserved_cannot_fail),
        cmocka_unit_test(nothing_is_left_when_all_is_given_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
