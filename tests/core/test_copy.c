/* SPDX-License-Identifier: MIT */
/*
 * seq_cp, inside a stream and across: what cells, owners, bytes and shifts are afterwards, what is refused, and
 * that a refusal changes nothing.
 */
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

/* ---- copies inside a stream ---- */

static void a_copy_is_one_more_owner(void **state)
{
    struct rig *r = *state;
    uint64_t touched;

    rig_open(r);
    ok(put(r, 0, 0, 2));
    ok(put(r, 1, 0, 2));
    ok(put(r, 0, 2, 2));
    ok(put(r, 1, 2, 3));
    ok(put(r, 0, 4, 2));
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    ok(kvlazy_seq_rm(r->cache, 0, 2, 4));
    cells_are(r, 0, "0..1=0..1/0 9..10=4..5/0");
    touched = stats(r).touched_bytes;
    fake_forget(&r->fake);
    ok(cp(r, 0, 2, 1, 5));
    cells_are(r, 0, "0=0/0 1=1/0+2 9=4/0+2 10=5/0");
    seq_is(r, 2, 1, 4);
    seq_is(r, 0, 0, 5);
    assert_int_equal(stats(r).live_cells, 4);
    assert_int_equal(stats(r).touched_bytes, touched);
    assert_int_equal(r->fake.n_call[FAKE_COMMIT], 0);
    sound(r);
    ok(kvlazy_seq_keep(r->cache, 2));
    cells_are(r, 0, "1=1/2 9=4/2");
    seq_is(r, 0, -1, -1);
    seq_is(r, 2, 1, 4);
    assert_int_equal(stats(r).live_cells, 2);
    sound(r);
}

static void ranges_of_a_copy(void **state)
{
    static const struct {
        kvlazy_pos p0, p1, min, max;
    } table[] = {
        {-1, -1, 10, 19},       {0, -1, 10, 19},         {-7, 12, 10, 11},
        {12, -1, 12, 19},       {12, 12, -1, -1},        {15, 12, -1, -1},
        {13, 15, 13, 14},       {19, 20, 19, 19},        {20, -1, -1, -1},
        {0, 10, -1, -1},        {-5, 0, -1, -1},         {6, -9, 10, 19},
        {0, INT32_MAX, 10, 19}, {INT32_MAX, -1, -1, -1}, {INT32_MIN, INT32_MIN, 10, 19},
    };

    (void)state;
    for (uint32_t n_stream = 1; n_stream <= 4; n_stream += 3)
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
            struct rig *r = rig_new();

            r->params.n_stream = n_stream;
            rig_open(r);
            ok(put(r, 0, 10, 10));
            ok(cp(r, 0, 3, table[i].p0, table[i].p1));
            if (kvlazy_seq_pos_max(r->cache, 3) != table[i].max)
                print_error("row %zu\n", i);
            seq_is(r, 3, table[i].min, table[i].max);
            seq_is(r, 0, 10, 19);
            sound(r);
            rig_free(r);
        }
}

/* What dst held in the range goes first, be there something to take its place or not; the rest stays. */
static void the_range_of_dst_goes_first(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 1, 0, 5));
    ok(put(r, 2, 0, 9));
    ok(cp(r, 1, 2, -1, -1)); /* no cell of the tail is left */
    cells_are(r, 0, "0..4=0..4/1+2");
    sound(r);
    ok(put(r, 2, 5, 3));
    ok(put(r, 1, 5, 1));
    cells_are(r, 0, "0..4=0..4/1+2 5..7=5..7/2 8=5/1");
    ok(cp(r, 1, 2, 5, 7));
    cells_are(r, 0, "0..4=0..4/1+2 7=7/2 8=5/1+2");
    sound(r);
    ok(cp(r, 3, 2, 2, 8)); /* of an absent one */
    cells_are(r, 0, "0..1=0..1/1+2 2..4=2..4/1 8=5/1");
    ok(cp(r, 1, 2, 2, 2));
    cells_are(r, 0, "0..1=0..1/1+2 2..4=2..4/1 8=5/1");
    sound(r);
}

static void a_copy_of_what_is_shared(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 6));
    ok(cp(r, 0, 1, -1, -1));
    ok(cp(r, 0, 1, -1, -1));
    ok(cp(r, 1, 0, 2, 4));
    ok(cp(r, 1, 2, 3, -1));
    cells_are(r, 0, "0..2=0..2/0+1 3..5=3..5/0+1+2");
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(kvlazy_seq_rm(r->cache, 1, 4, -1));
    cells_are(r, 0, "0..2=0..2/1 3=3/1+2 4..5=4..5/2");
    sound(r);
    ok(put(r, 1, 4, 2)); /* the two part ways */
    ok(put(r, 2, 6, 1));
    cells_are(r, 0, "0..2=0..2/1 3=3/1+2 4..5=4..5/2 6..7=4..5/1 8=6/2");
    sound(r);
}

static void a_copy_onto_itself_is_nothing(void **state)
{
    (void)state;
    for (uint32_t n_stream = 1; n_stream <= 4; n_stream += 3) {
        struct rig *r = rig_new();
        char *before;

        r->params.n_stream = n_stream;
        rig_open(r);
        ok(put(r, 2, 0, 6));
        ok(kvlazy_seq_add(r->cache, 2, 3, -1, 2));
        before = rig_dump(r);
        ok(kvlazy_seq_cp(r->cache, 2, 2, -1, -1));
        ok(kvlazy_seq_cp(r->cache, 2, 2, 2, 4));
        ok(kvlazy_seq_cp(r->cache, 1, 1, -1, -1));
        unchanged(r, before);
        shifts_are(r, n_stream == 1 ? 0 : 2, "3=2 4=2 5=2");
        sound(r);
        rig_free(r);
    }
}

static void repeated_positions_are_copied_all(void **state)
{
    (void)state;
    for (uint32_t n_stream = 1; n_stream <= 4; n_stream += 3) {
        struct rig *r = rig_new();

        r->params.n_stream = n_stream;
        rig_open(r);
        ok(put_list(r, 0, 7, POS(0, 1, 1, 1, 2, 2, 3)));
        ok(put_list(r, 1, 4, POS(1, 1, 2, 3)));
        ok(cp(r, 0, 1, 1, 3)); /* five cells for the three it had there */
        assert_int_equal(stats(r).live_cells, n_stream == 1 ? 8u : 13u);
        if (n_stream > 1)
            cells_are(r, 1, "0=1/1 1=1/1 2=1/1 3=3/1 4=2/1 5=2/1");
        seq_is(r, 1, 1, 3);
        ok(kvlazy_seq_rm(r->cache, 1, 1, 2));
        seq_is(r, 1, 2, 3);
        sound(r);
        rig_free(r);
    }
}

/* ---- copies across streams ---- */

static void a_copy_across_streams(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(9, POS(0, 1, 2, 7, 8, 0, 1, 2, 3), SEQ(0, 0, 0, 1, 1, 3, 3, 3, 3));

    streams_of(r, 4);
    ok(put(r, 2, 0, 5));
    ok(put(r, 1, 0, 7));
    ok(put_tokens(r, &u, 1));
    cells_are(r, 0, "0..2=0..2/0");
    cells_are(r, 1, "0..8=0..8/1");
    cells_are(r, 2, "0..4=0..4/2");
    cells_are(r, 3, "0..3=0..3/3");
    ok(cp(r, 1, 3, -1, -1));
    cells_are(r, 3, "0..8=0..8/3");
    cells_are(r, 1, "0..8=0..8/1");
    sound(r);
    ok(cp(r, 0, 1, -1, 0));
    cells_are(r, 1, "0..8=0..8/1");
    ok(cp(r, 1, 2, 3, 8));
    cells_are(r, 2, "0..7=0..7/2");
    sound(r);
}

static void rows_of_the_table(void **state)
{
    struct rig *r = *state;

    streams_of(r, 4);
    ok(put(r, 0, 0, 10));
    ok(cp(r, 0, 1, -1, 0));
    seq_is(r, 1, -1, -1);
    ok(put(r, 1, 50, 2));
    ok(cp(r, 0, 1, -1, 0)); /* an empty range takes nothing either */
    seq_is(r, 1, 50, 51);
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    ok(cp(r, 0, 1, 3, 8));
    cells_are(r, 1, "0..4=3..7/1");
    ok(cp(r, 1, 2, -1, -1)); /* a copy of a copy */
    cells_are(r, 2, "0..4=3..7/2");
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(kvlazy_seq_rm(r->cache, 1, 4, 6));
    sound(r); /* s2 has rows of its own */
    cells_are(r, 2, "0..4=3..7/2");
    ok(cp(r, 2, 0, -1, -1)); /* and home again */
    cells_are(r, 0, "0..4=3..7/0");
    sound(r);
}

/* The rows of live cells are written and nothing else: no page is touched that they do not lie in. */
static void only_live_rows_are_written(void **state)
{
    struct rig *r = *state;

    r->params.kv_size = 4096;
    streams_of(r, 4);
    r->fake.dirty_reserve = false;
    ok(put(r, 0, 0, 300));
    ok(kvlazy_seq_rm(r->cache, 0, 10, 290)); /* cells 0..9 and 290..299 */
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_trim(r->cache, 0)); /* and then 0..19 */
    cells_are(r, 0, "0..9=0..9/0 10..19=290..299/0");
    ok(cp(r, 0, 2, -1, -1));
    cells_are(r, 2, "0..9=0..9/2 10..19=290..299/2");
    assert_int_equal(stats(r).touched_bytes, cover(r));
    assert_int_equal(r->fake.committed_bytes, cover(r));
    assert_true(cells_zero(r, 2, 20, 4096));
    sound(r);
}

static void lowest_free_cells_of_dst(void **state)
{
    struct rig *r = *state;

    streams_of(r, 4);
    ok(put(r, 0, 0, 8));
    ok(put(r, 1, 100, 12));
    ok(kvlazy_seq_rm(r->cache, 1, 101, 103)); /* holes 1, 2, 5 */
    ok(kvlazy_seq_rm(r->cache, 1, 105, 106));
    ok(cp(r, 0, 1, 2, 8));
    cells_are(r, 1, "0=100/1 1..2=2..3/1 3..4=103..104/1 5=4/1 6..11=106..111/1 12..14=5..7/1");
    sound(r);
    ok(cp(r, 0, 1, -1, -1)); /* its own cells in the range are free again */
    cells_are(r, 1, "0..7=0..7/1");
    sound(r);
}

static void no_slot_before_anything_changed(void **state)
{
    static const uint32_t sizes[] = {1, 2, 63, 64, 65, 200};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct rig *r = rig_new();
        char *before;

        r->params.kv_size = sizes[i];
        streams_of(r, 2);
        ok(put(r, 0, 0, sizes[i]));
        ok(put(r, 1, (kvlazy_pos)sizes[i], 1));
        before = rig_dump(r);
        expect(cp(r, 0, 1, -1, (kvlazy_pos)sizes[i]), KVLAZY_ENOSLOT);
        unchanged(r, before);
        sound(r);
        ok(cp(r, 0, 1, -1, (kvlazy_pos)sizes[i] - 1)); /* all but one */
        assert_int_equal(stats(r).live_cells, 2 * sizes[i]);
        sound(r);
        ok(cp(r, 0, 1, -1, -1)); /* now dst's own goes first */
        seq_is(r, 1, 0, (kvlazy_pos)sizes[i] - 1);
        sound(r);
        rig_free(r);
    }
}

static void no_budget_before_anything_changed(void **state)
{
    struct rig *r = *state;
    uint64_t had;
    char *before;

    streams_of(r, 2);
    ok(put(r, 0, 0, 200));
    ok(put(r, 1, 500, 3));
    ok(kvlazy_end_batch(r->cache));
    had = cover(r);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, had + r->fake.page));
    before = rig_dump(r);
    expect(cp(r, 0, 1, -1, -1), KVLAZY_EBUDGET);
    expect(cp(r, 0, 1, 0, 150), KVLAZY_EBUDGET);
    unchanged(r, before);
    ok(cp(r, 0, 1, 0, 3));
    cells_are(r, 1, "0..2=500..502/1 3..5=0..2/1");
    assert_true(stats(r).touched_bytes <= had + r->fake.page);
    sound(r);
}

/* Free pages go back before a copy is refused. */
static void a_copy_makes_room_of_free_pages(void **state)
{
    struct rig *r = *state;
    uint64_t budget;

    streams_of(r, 3);
    ok(put(r, 0, 0, 100));
    ok(put(r, 2, 0, 100));
    ok(kvlazy_end_batch(r->cache));
    budget = stats(r).touched_bytes + 5 * r->fake.page; /* streams begin anywhere in a page */
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, budget));
    expect(cp(r, 0, 1, -1, -1), KVLAZY_EBUDGET);
    ok(kvlazy_seq_rm(r->cache, 2, -1, -1));
    ok(cp(r, 0, 1, -1, -1));
    cells_are(r, 1, "0..99=0..99/1");
    assert_true(stats(r).touched_bytes <= budget);
    sound(r);
}

static void no_memory_before_anything_changed(void **state)
{
    struct rig *r = *state;
    char *before;

    streams_of(r, 2);
    ok(put(r, 0, 0, 200));
    ok(put(r, 1, 5, 3));
    before = rig_dump(r);
    r->fake.budget_bytes = r->fake.committed_bytes + r->fake.page;
    expect(cp(r, 0, 1, -1, -1), KVLAZY_ENOMEM);
    unchanged(r, before);
    sound(r);
    r->fake.budget_bytes = 0;
    ok(cp(r, 0, 1, -1, -1));
    cells_are(r, 1, "0..199=0..199/1");
    sound(r);
}

static void pending_shifts_travel(void **state)
{
    struct rig *r = *state;

    streams_of(r, 3);
    ok(put(r, 0, 0, 6));
    ok(put(r, 1, 20, 2));
    ok(kvlazy_seq_add(r->cache, 0, 2, -1, 3));
    shifts_are(r, 0, "2=3 3=3 4=3 5=3");
    ok(cp(r, 0, 1, 1, 8));
    cells_are(r, 1, "0..1=20..21/1 2=1/1 3..5=5..7/1");
    shifts_are(r, 1, "3=3 4=3 5=3");
    shifts_are(r, 2, "none");
    sound(r);
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, -1)); /* the copy is on its own */
    shifts_are(r, 1, "3=3 4=3 5=3");
    shifts_are(r, 0, "1=-1 2=2 3=2 4=2 5=2"); /* position 0 is gone */
    ok(kvlazy_shift_done(r->cache));
    for (uint32_t s = 0; s < 3; s++)
        shifts_are(r, s, "none");
    sound(r);
}

static void a_copied_shift_must_be_rotated_too(void **state)
{
    struct rig *r = *state;

    streams_of(r, 3);
    ok(put(r, 0, 0, 6));
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, 1));
    ok(cp(r, 0, 1, -1, -1));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    expect(put(r, 1, 7, 1), KVLAZY_ESHIFT);
    ok(put(r, 2, 0, 1)); /* in another stream */
    ok(kvlazy_seq_rm(r->cache, 2, -1, -1));
    ok(cp(r, 2, 1, -1, -1)); /* overwritten by nothing: nothing waits */
    ok(put(r, 1, 7, 1));
    sound(r);
}

static void a_copy_counts_as_activity(void **state)
{
    (void)state;
    for (uint32_t n_stream = 1; n_stream <= 4; n_stream += 3) {
        struct rig *r = rig_new();

        r->params.n_stream = n_stream;
        r->params.kv_size_initial = 10;
        rig_open(r);
        ok(turn(r, 0, 0, 40));
        r->fake.now += 499;
        ok(cp(r, 0, 1, -1, -1));
        r->fake.now += 1;
        ok(kvlazy_poll(r->cache, NULL));
        seq_is(r, 1, 0, 39);
        seq_is(r, 0, 0,
               n_stream == 1 ? 39 : 9); /* alone in its stream it is idle; a shared cell is its newest owner's */
        r->fake.now += 499;
        ok(kvlazy_poll(r->cache, NULL));
        assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), 9);
        sound(r);
        rig_free(r);
    }
}

/* The cells that a copy took are no free ones for a plan made before. */
static void a_copy_into_planned_cells(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(2, POS(30, 31), SEQ(1, 1));
    char *before;

    streams_of(r, 2);
    ok(put(r, 0, 0, 3));
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    ok(cp(r, 0, 1, -1, -1));
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EINVAL);
    unchanged(r, before);
    sound(r);
}

/* What an undo empties is what its slot filled, not what came there since. */
static void undo_leaves_what_was_copied_there_since(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(3, POS(0, 1, 2), SEQ(1, 1, 1));

    streams_of(r, 2);
    ok(put(r, 0, 0, 3));
    ok(put_tokens(r, &u, 1));
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    ok(cp(r, 0, 1, -1, -1));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    cells_are(r, 1, "0..2=0..2/1");
    sound(r);
}

static void copies_of_many_sizes(void **state)
{
    static const uint32_t sizes[] = {1, 7, 63, 64, 65, 256, 257, 511, 512};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int page = 0; page < 3; page++) {
            struct rig *r = rig_new();

            r->fake.page = (size_t)4096 << 2 * page;
            streams_of(r, 3);
            ok(put(r, 0, 0, sizes[i]));
            ok(kvlazy_seq_rm(r->cache, 0, 3, (kvlazy_pos)sizes[i] / 2));
            ok(cp(r, 0, 1, -1, -1));
            ok(cp(r, 1, 2, 1, -1));
            sound(r);
            ok(cp(r, 2, 0, -1, (kvlazy_pos)sizes[i] - 1));
            sound(r);
            seq_is(r, 1, 0, (kvlazy_pos)sizes[i] - 1);
            rig_free(r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_copy_is_one_more_owner),
        cmocka_unit_test(ranges_of_a_copy),
        RIG_TEST(the_range_of_dst_goes_first),
        RIG_TEST(a_copy_of_what_is_shared),
        cmocka_unit_test(a_copy_onto_itself_is_nothing),
        cmocka_unit_test(repeated_positions_are_copied_all),
        RIG_TEST(a_copy_across_streams),
        RIG_TEST(rows_of_the_table),
        RIG_TEST(only_live_rows_are_written),
        RIG_TEST(lowest_free_cells_of_dst),
        cmocka_unit_test(no_slot_before_anything_changed),
        RIG_TEST(no_budget_before_anything_changed),
        RIG_TEST(a_copy_makes_room_of_free_pages),
        RIG_TEST(no_memory_before_anything_changed),
        RIG_TEST(pending_shifts_travel),
        RIG_TEST(a_copied_shift_must_be_rotated_too),
        cmocka_unit_test(a_copy_counts_as_activity),
        RIG_TEST(a_copy_into_planned_cells),
        RIG_TEST(undo_leaves_what_was_copied_there_since),
        cmocka_unit_test(copies_of_many_sizes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
