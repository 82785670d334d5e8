/* SPDX-License-Identifier: MIT */
/*
 * seq_add, seq_div and shift_done: positions that move, for every owner of a cell, and the shifts that wait for K
 * to be rotated.
 */
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

/* ---- moving positions ---- */

static void a_context_shift(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 1, 0, 2));
    ok(put(r, 0, 102, 1));
    ok(put(r, 1, 2, 1));
    ok(put(r, 0, 103, 3));
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    ok(kvlazy_seq_rm(r->cache, 0, 103, 104));
    cells_are(r, 0, "2=102/0 5..6=104..105/0");
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, -103));
    cells_are(r, 0, "5..6=1..2/0");
    shifts_are(r, 0, "5=-103 6=-103");
    seq_is(r, 0, 1, 2);
    assert_int_equal(stats(r).live_cells, 2);
    sound(r);
    expect(put(r, 0, 3, 1), KVLAZY_ESHIFT);
    ok(kvlazy_shift_done(r->cache));
    shifts_are(r, 0, "none");
    ok(put(r, 0, 3, 1));
    cells_are(r, 0, "0=3/0 5..6=1..2/0");
    sound(r);
}

static void every_owner_sees_a_cell_move(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put_owned(r, 2, SEQ(0, 1), 10, 1));
    ok(kvlazy_seq_add(r->cache, 1, -1, -1, -3));
    cells_are(r, 0, "0=7/0+1");
    shifts_are(r, 0, "0=-3");
    seq_is(r, 0, 7, 7);
    seq_is(r, 1, 7, 7);
    sound(r);
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, -8)); /* below 0: for both */
    cells_are(r, 0, "");
    seq_is(r, 0, -1, -1);
    seq_is(r, 1, -1, -1);
    shifts_are(r, 0, "none");
    sound(r);
}

/* A shared prefix and tails of their own: the order of each sequence is right afterwards. */
static void shared_prefixes_move(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 8));
    ok(cp(r, 0, 1, 0, 5));
    ok(cp(r, 0, 2, 3, 8));
    ok(put(r, 1, 5, 4));
    ok(put(r, 2, 8, 3));
    ok(kvlazy_seq_add(r->cache, 0, 2, 5, 20)); /* 2..4 of s0 and s1, 3..4 of s2 */
    seq_is(r, 0, 0, 24);
    seq_is(r, 1, 0, 24);
    seq_is(r, 2, 5, 24);
    sound(r);
    ok(kvlazy_seq_add(r->cache, 2, 6, -1, -6)); /* 6, 7 of s0 and s2; 8.. of s2; 23, 24 of all */
    cells_are(r, 0, "0..1=0..1/0+1 2=22/0+1 3..4=17..18/0+1+2 5=5/0+2 6..7=0..1/0+2 8..11=5..8/1 12..14=2..4/2");
    seq_is(r, 0, 0, 22);
    seq_is(r, 1, 0, 22);
    seq_is(r, 2, 0, 18);
    sound(r);
    ok(kvlazy_seq_rm(r->cache, 0, 6, 18));
    cells_are(r, 0, "0..1=0..1/0+1 2=22/0+1 3=17/1+2 4=18/0+1+2 5=5/0+2 6..7=0..1/0+2 8..11=5..8/1 12..14=2..4/2");
    sound(r);
}

/* A shift that meets what does not move: positions repeat, and each is still to be found. */
static void moved_onto_others(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 10));
    ok(kvlazy_seq_add(r->cache, 0, 5, 8, -3));
    cells_are(r, 0, "0..4=0..4/0 5..7=2..4/0 8..9=8..9/0");
    shifts_are(r, 0, "5=-3 6=-3 7=-3");
    sound(r);
    ok(kvlazy_seq_rm(r->cache, 0, 3, 4));
    cells_are(r, 0, "0..2=0..2/0 4=4/0 5=2/0 7=4/0 8..9=8..9/0");
    sound(r);
    ok(kvlazy_seq_add(r->cache, 0, 2, 5, 6));
    cells_are(r, 0, "0..1=0..1/0 2=8/0 4=10/0 5=8/0 7=10/0 8..9=8..9/0");
    shifts_are(r, 0, "2=6 4=6 5=3 7=3");
    seq_is(r, 0, 0, 10);
    sound(r);
    ok(kvlazy_seq_rm(r->cache, 0, 8, 9));
    cells_are(r, 0, "0..1=0..1/0 4=10/0 7=10/0 9=9/0");
    sound(r);
}

static void shifts_add_up_and_cancel(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 4, 3));
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, 5));
    ok(kvlazy_seq_add(r->cache, 0, 10, -1, -2));
    shifts_are(r, 0, "0=5 1=3 2=3");
    ok(kvlazy_seq_add(r->cache, 0, 9, 10, -5)); /* position 9 twice by now? 9, 8, 9 */
    cells_are(r, 0, "0=4/0 1=8/0 2=4/0");
    shifts_are(r, 0, "1=3 2=-2");
    ok(kvlazy_seq_add(r->cache, 0, 8, 9, -3));
    ok(kvlazy_seq_add(r->cache, 0, 4, 5, 2));
    shifts_are(r, 0, "0=2");
    ok(kvlazy_seq_add(r->cache, 0, 6, 7, -2));
    seq_is(r, 0, 4, 5);
    sound(r);
}

/* Nothing waits when every shift is back at 0, or gone with its cell. */
static void nothing_waits_when_all_are_zero(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 3));
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, 5));
    expect(put(r, 1, 0, 1), KVLAZY_ESHIFT);
    assert_int_equal(kvlazy_refused(r->cache), -1);
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, -5));
    shifts_are(r, 0, "none");
    ok(put(r, 1, 0, 1));
    ok(kvlazy_seq_add(r->cache, 0, 2, -1, 5));
    ok(kvlazy_seq_rm(r->cache, 0, 7, 8)); /* the only one that was shifted */
    shifts_are(r, 0, "none");
    ok(put(r, 1, 1, 1));
    cells_are(r, 0, "0..1=0..1/0 2=1/1 3=0/1");
    ok(kvlazy_seq_add(r->cache, 1, -1, -1, 5));
    ok(kvlazy_seq_keep(r->cache, 0));
    shifts_are(r, 0, "none");
    ok(put(r, 0, 2, 1));
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, 1));
    ok(kvlazy_clear(r->cache, false));
    shifts_are(r, 0, "none");
    ok(put(r, 0, 0, 3));
    shifts_are(r, 0, "none");
    sound(r);
}

/* A cell with a shift that empties and is filled anew has none. */
static void a_cell_filled_anew_has_no_shift(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 4));
    ok(put(r, 1, 0, 1));
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, 10));
    ok(kvlazy_seq_rm(r->cache, 0, 11, 13));
    shifts_are(r, 0, "0=10 3=10");
    ok(kvlazy_shift_done(r->cache));
    ok(put(r, 0, 14, 2));
    ok(kvlazy_seq_add(r->cache, 1, -1, -1, 1));
    shifts_are(r, 0, "4=1");
    sound(r);
}

static void a_removal_of_one_owner_keeps_the_shift_of_the_others(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put_owned(r, 2, SEQ(0, 1), 0, 3));
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, 4));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    cells_are(r, 0, "0..2=4..6/1");
    shifts_are(r, 0, "0=4 1=4 2=4");
    sound(r);
}

static void division(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 9, 1));
    ok(kvlazy_seq_div(r->cache, 0, -1, -1, 2));
    cells_are(r, 0, "0=4/0");
    shifts_are(r, 0, "0=-5");
    ok(kvlazy_seq_div(r->cache, 0, -1, -1, 3));
    cells_are(r, 0, "0=1/0");
    shifts_are(r, 0, "0=-8");
    sound(r);
    ok(kvlazy_seq_div(r->cache, 0, -1, -1, INT32_MAX));
    cells_are(r, 0, "0=0/0");
    shifts_are(r, 0, "0=-9");
    ok(kvlazy_shift_done(r->cache));
    ok(kvlazy_seq_div(r->cache, 0, -1, -1, 5)); /* 0 stays 0: nothing to rotate */
    shifts_are(r, 0, "none");
    sound(r);
}

static void division_of_a_range(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 12));
    ok(cp(r, 0, 1, 4, 9));
    ok(kvlazy_seq_div(r->cache, 0, 4, 10, 4)); /* 4..7 are 1, 8 and 9 are 2 */
    seq_is(r, 0, 0, 11);
    seq_is(r, 1, 1, 2);
    cells_are(r, 0, "0..3=0..3/0 4=1/0+1 5=1/0+1 6=1/0+1 7..8=1..2/0+1 9=2/0 10..11=10..11/0");
    shifts_are(r, 0, "4=-3 5=-4 6=-5 7=-6 8=-6 9=-7");
    sound(r);
    ok(kvlazy_seq_rm(r->cache, 0, 1, 2));
    cells_are(r, 0, "0=0/0 2..3=2..3/0 4=1/1 5=1/1 6=1/1 7=1/1 8=2/0+1 9=2/0 10..11=10..11/0");
    ok(kvlazy_seq_div(r->cache, 1, -1, -1, 1)); /* by one is nothing */
    sound(r);
}

static void bad_divisors(void **state)
{
    static const int bad[] = {0, -1, -4, INT32_MIN};
    struct rig *r = *state;
    char *before;

    rig_open(r);
    ok(put(r, 0, 0, 5));
    before = rig_dump(r);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect(kvlazy_seq_div(r->cache, 0, -1, -1, bad[i]), KVLAZY_EINVAL);
    expect(kvlazy_seq_div(r->cache, 4, -1, -1, 2), KVLAZY_EINVAL);
    expect(kvlazy_seq_div(r->cache, -1, -1, -1, 2), KVLAZY_EINVAL);
    unchanged(r, before);
    shifts_are(r, 0, "none");
}

struct add {
    kvlazy_pos p0, p1, delta;
    int status;
    const char *cells;
};

static void additions(void **state)
{
    enum { LAST = INT32_MAX - 1 };
    static const struct add table[] = {
        {-1, -1, 0, KVLAZY_OK, "0..4=10..14/0"},
        {-1, -1, 1, KVLAZY_OK, "0..4=11..15/0"},
        {12, 12, 7, KVLAZY_OK, "0..4=10..14/0"},
        {14, 12, 7, KVLAZY_OK, "0..4=10..14/0"},
        {15, -1, INT32_MAX, KVLAZY_OK, "0..4=10..14/0"},
        {0, 10, INT32_MIN, KVLAZY_OK, "0..4=10..14/0"},
        {12, -1, 7, KVLAZY_OK, "0..1=10..11/0 2..4=19..21/0"},
        {-3, 12, -10, KVLAZY_OK, "0..1=0..1/0 2..4=12..14/0"},
        {-1, -1, -11, KVLAZY_OK, "1..4=0..3/0"},
        {-1, -1, -14, KVLAZY_OK, "4=0/0"},
        {-1, -1, -15, KVLAZY_OK, ""},
        {-1, -1, INT32_MIN, KVLAZY_OK, ""},
        {13, 14, -INT32_MAX, KVLAZY_OK, "0..2=10..12/0 4=14/0"},
        {-1, -1, LAST - 14, KVLAZY_OK, "0..4=2147483642..2147483646/0"},
        {-1, -1, LAST - 13, KVLAZY_EINVAL, "0..4=10..14/0"},
        {-1, -1, INT32_MAX, KVLAZY_EINVAL, "0..4=10..14/0"},
        {10, 11, LAST - 10, KVLAZY_OK, "0=2147483646/0 1..4=11..14/0"},
        {10, 11, LAST - 9, KVLAZY_EINVAL, "0..4=10..14/0"},
        {10, 12, LAST - 10, KVLAZY_EINVAL, "0..4=10..14/0"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct rig *r = rig_new();
        char *before;

        rig_open(r);
        ok(put(r, 0, 10, 5));
        before = rig_dump(r);
        expect(kvlazy_seq_add(r->cache, 0, table[i].p0, table[i].p1, table[i].delta), table[i].status);
        if (strcmp(cells_text(r, 0), table[i].cells))
            print_error("row %zu\n", i);
        cells_are(r, 0, table[i].cells);
        if (table[i].status) {
            shifts_are(r, 0, "none");
            unchanged(r, before);
        } else {
            free(before);
        }
        sound(r);
        rig_free(r);
    }
}

static void a_shift_waits_in_its_stream(void **state)
{
    struct rig *r = *state;
    const kvlazy_ubatch two[] = {UBATCH(1, POS(4), SEQ(0)), UBATCH(1, POS(6), SEQ(1))};
    char *before;
    uint64_t refusals;

    streams_of(r, 3);
    ok(put(r, 0, 0, 4));
    ok(put(r, 1, 0, 4));
    ok(kvlazy_seq_add(r->cache, 1, -1, -1, 2));
    shifts_are(r, 0, "none");
    shifts_are(r, 1, "0=2 1=2 2=2 3=2");
    refusals = stats(r).n_refusal;
    before = rig_dump(r);
    expect(put(r, 1, 6, 1), KVLAZY_ESHIFT);
    expect(put_tokens(r, two, 2), KVLAZY_ESHIFT); /* one of its ubatches goes there */
    unchanged(r, before);
    assert_int_equal(kvlazy_refused(r->cache), -1);
    assert_int_equal(stats(r).n_refusal, refusals); /* it names four codes, and this is none of them */
    ok(put(r, 0, 4, 1));
    ok(put(r, 2, 0, 1));
    ok(kvlazy_end_batch(r->cache));
    expect(put(r, 1, 6, 1), KVLAZY_ESHIFT);
    ok(kvlazy_poll(r->cache, NULL)); /* a prepare that fails closes its batch */
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_shift_done(r->cache));
    ok(put(r, 0, 5, 1));
    ok(put(r, 1, 6, 1));
    ok(kvlazy_shift_done(r->cache)); /* again is nothing */
    sound(r);
}

static void bad_arguments_come_before_a_shift(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 4));
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, 2));
    expect(put(r, 9, 0, 1), KVLAZY_EINVAL);
    expect(put(r, 0, 17, 1), KVLAZY_ESHIFT);
    expect(put(r, 0, 6, 1000), KVLAZY_ESHIFT);
}

/* The batch that is open stays open over all of them. */
static void in_an_open_batch(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[2] = {UBATCH(2, POS(0, 1), SEQ(0, 0)), UBATCH(1, POS(5), SEQ(1))};

    rig_open(r);
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_prepare(r->cache, u, 2, r->slot));
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u[0]));
    write_rows(r, &r->slot[0]);
    ok(cp(r, 0, 2, -1, -1));
    ok(kvlazy_seq_add(r->cache, 2, 1, -1, 7));
    ok(kvlazy_shift_done(r->cache));
    ok(kvlazy_seq_keep(r->cache, 2));
    expect(kvlazy_poll(r->cache, NULL), KVLAZY_EBUSY);
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[1], &u[1]));
    write_rows(r, &r->slot[1]);
    cells_are(r, 0, "0=0/2 1=8/2 2=5/1");
    sound(r);
}

/* A sequence that an operation took from under a plan does not end where the plan found it. */
static void a_moved_sequence_does_not_go_on(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(1, POS(4), SEQ(0));
    char *before;

    rig_open(r);
    ok(put(r, 0, 0, 4));
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, 2));
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EPOS);
    unchanged(r, before);
    sound(r);
}

static void shifts_count_as_activity(void **state)
{
    (void)state;
    for (int div = 0; div < 2; div++) {
        struct rig *r = rig_new();

        r->params.kv_size_initial = 10;
        rig_open(r);
        ok(turn(r, 0, 0, 40));
        r->fake.now += 499;
        ok(div ? kvlazy_seq_div(r->cache, 0, 39, -1, 1000) : kvlazy_seq_add(r->cache, 0, -1, -1, 3));
        r->fake.now += 400;
        ok(kvlazy_poll(r->cache, NULL));
        assert_int_equal(stats(r).live_cells, 40);
        r->fake.now += 100;
        ok(kvlazy_poll(r->cache, NULL));
        assert_int_equal(stats(r).live_cells, 10);
        sound(r);
        rig_free(r);
    }
}

/* What fell below 0 decays like what was removed. */
static void what_fell_below_zero_decays(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, -250));
    assert_int_equal(stats(r).live_cells, 50);
    settle(r);
    cells_are(r, 0, "0..49=0..49/0");
    for (uint32_t c = 0; c < 50; c++) /* K still waits to be rotated, where it lies now */
        assert_int_equal(look(r, 0).shift[c], -250);
    expect(turn(r, 0, 50, 1), KVLAZY_ESHIFT);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    sound(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_context_shift),
        RIG_TEST(every_owner_sees_a_cell_move),
        RIG_TEST(shared_prefixes_move),
        RIG_TEST(moved_onto_others),
        RIG_TEST(shifts_add_up_and_cancel),
        RIG_TEST(nothing_waits_when_all_are_zero),
        RIG_TEST(a_cell_filled_anew_has_no_shift),
        RIG_TEST(a_removal_of_one_owner_keeps_the_shift_of_the_others),
        RIG_TEST(division),
        RIG_TEST(division_of_a_range),
        RIG_TEST(bad_divisors),
        cmocka_unit_test(additions),
        RIG_TEST(a_shift_waits_in_its_stream),
        RIG_TEST(bad_arguments_come_before_a_shift),
        RIG_TEST(in_an_open_batch),
        RIG_TEST(a_moved_sequence_does_not_go_on),
        cmocka_unit_test(shifts_count_as_activity),
        RIG_TEST(what_fell_below_zero_decays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
