/* SPDX-License-Identifier: MIT */
/*
 * What other calls do between prepare, apply and undo. What prepare found or reserved is looked at again by apply; what
 * apply filled is what undo takes, wherever it moved and whose ever it became; and a slot belongs to one batch.
 */
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

static int prepare(struct rig *r, kvlazy_ubatch u)
{
    ok(kvlazy_init_batch(r->cache));
    return kvlazy_prepare(r->cache, &u, 1, r->slot);
}

/* The slot that was prepared is applied, and its rows written. */
static int apply(struct rig *r, kvlazy_ubatch u)
{
    int status = kvlazy_apply_ubatch(r->cache, &r->slot[0], &u);

    if (!status)
        write_rows(r, &r->slot[0]);
    return status;
}

/* ---- what prepare reserved ---- */

/* s1 holds 0 and s0 1 … n - 1, so that a copy takes one entry of s0's index and leaves its end alone. */
static void one_short(struct rig *r, uint32_t n)
{
    rig_open(r);
    ok(put(r, 1, 0, 1));
    ok(put(r, 0, 1, n - 1));
    ok(kvlazy_end_batch(r->cache));
}

/* The room doubles at powers of two: every size up to some of them. */
static void a_copy_takes_the_room_of_a_token(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 258; n++) {
        struct rig *r = rig_new();
        kvlazy_ubatch u = UBATCH(1, POS((kvlazy_pos)n), SEQ(0));

        one_short(r, n);
        ok(prepare(r, u));
        ok(cp(r, 1, 0, 0, 1));
        ok(apply(r, u));
        seq_is(r, 0, 0, (kvlazy_pos)n);
        assert_int_equal(live_of(r, 0), n + 1);
        sound(r);
        rig_free(r);
    }
}

/* A copy goes into the cells that a plan chose: the pages of these count once against the ceiling. */
static void a_copy_into_planned_cells_fits(void **state)
{
    enum { N = 100 };
    static kvlazy_pos pos[N];
    static kvlazy_seq_id seq[N];
    static uint32_t stream[N], cell[N];
    struct rig *r = *state;

    for (uint32_t i = 0; i < N; i++) {
        pos[i] = (kvlazy_pos)i;
        cell[i] = i;
        seq[i] = stream[i] = 1;
    }
    r->params.n_stream = r->params.n_seq_max = 2;
    rig_open(r);
    ok(turn(r, 0, 0, N));
    r->params.budget_bytes = cover_with(r, N, stream, cell);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, r->params.budget_bytes));
    ok(prepare(r, UBATCH(N, pos, seq)));
    ok(cp(r, 0, 1, -1, -1));
    seq_is(r, 1, 0, N - 1);
    assert_true(stats(r).touched_bytes <= r->params.budget_bytes);
    expect(apply(r, UBATCH(N, pos, seq)), KVLAZY_EINVAL);
    sound(r);
}

static void a_copy_after_undo_takes_the_room_too(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 130; n++) {
        struct rig *r = rig_new();
        kvlazy_ubatch u = UBATCH(1, POS((kvlazy_pos)n), SEQ(0));

        one_short(r, n);
        ok(prepare(r, u));
        ok(apply(r, u));
        ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
        ok(cp(r, 1, 0, 0, 1));
        ok(apply(r, u));
        assert_int_equal(live_of(r, 0), n + 1);
        sound(r);
        rig_free(r);
    }
}

/* Tokens that several sequences own need room in the index of each. */
static void the_room_of_every_owner(void **state)
{
    static const kvlazy_seq_id owners[] = {2, 0};
    static const kvlazy_seq_id *const seq_id[] = {owners, owners, owners};
    static const int32_t n_seq_id[] = {2, 2, 2};

    (void)state;
    for (kvlazy_pos n = 2; n <= 130; n++) {
        struct rig *r = rig_new();
        kvlazy_ubatch u = {.n_token = 3, .pos = POS(n, n + 1, n + 2), .n_seq_id = n_seq_id, .seq_id = seq_id};

        rig_open(r);
        ok(put(r, 1, 0, 1));
        ok(put(r, 0, 1, (uint32_t)n - 1));
        ok(cp(r, 0, 2, -1, -1));
        ok(prepare(r, u));
        ok(cp(r, 1, 0, 0, 1));
        ok(cp(r, 1, 2, 0, 1));
        ok(apply(r, u));
        seq_is(r, 0, 0, n + 2);
        seq_is(r, 2, 0, n + 2);
        sound(r);
        rig_free(r);
    }
}

/* Positions that move in the middle, with the end where it was. */
static void a_shift_between(void **state)
{
    (void)state;
    for (kvlazy_pos n = 8; n <= 130; n++) {
        struct rig *r = rig_new();
        kvlazy_ubatch u = UBATCH(2, POS(n, n + 1), SEQ(0, 0));

        rig_open(r);
        ok(put(r, 0, 0, (uint32_t)n));
        ok(prepare(r, u));
        ok(kvlazy_seq_add(r->cache, 0, 1, n - 1, -1));
        ok(kvlazy_seq_div(r->cache, 0, 0, n - 1, 2));
        ok(apply(r, u));
        seq_is(r, 0, 0, n + 1);
        assert_int_equal(look(r, 0).pos[n], n);
        sound(r);
        rig_free(r);
    }
}

/* Across streams a copy takes cells, and cells that were planned among them. */
static void a_copy_into_the_cells(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(4, POS(4, 5, 6, 7), SEQ(0, 0, 0, 0));
    char *before;

    streams_of(r, 2);
    ok(put(r, 0, 0, 4));
    ok(put(r, 1, 0, 2));
    ok(prepare(r, u));
    ok(cp(r, 1, 0, 0, 2));
    assert_int_equal(live_of(r, 0), 4); /* 0 and 1 came anew */
    ok(apply(r, u));                    /* into cells 4 … 7: 0 and 1 took their own places */
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    ok(put(r, 1, 2, 1));
    ok(prepare(r, u));
    ok(cp(r, 1, 0, 2, 3));
    ok(kvlazy_seq_rm(r->cache, 0, 1, 2));
    ok(cp(r, 1, 0, 0, 2)); /* lowest free cells: none of the planned ones */
    before = rig_dump(r);
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    unchanged(r, before);
    ok(apply(r, u));
    sound(r);
}

/* ---- a slot belongs to its batch ---- */

static void a_slot_of_an_ended_batch(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(2, POS(4, 5), SEQ(0, 0));
    char *before;

    rig_open(r);
    ok(put(r, 0, 0, 4));
    ok(prepare(r, u));
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_init_batch(r->cache));
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EINVAL);
    unchanged(r, before);
    ok(prepare(r, u)); /* init_batch ends the open one */
    ok(kvlazy_init_batch(r->cache));
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EINVAL);
    ok(prepare(r, u));
    ok(apply(r, u));
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0])); /* compute failed, and that became known late */
    seq_is(r, 0, 0, 3);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EINVAL);
    sound(r);
}

/* ---- what a slot filled ---- */

static void undo_of_what_moved(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 4));
    ok(put(r, 0, 4, 3));
    ok(kvlazy_seq_add(r->cache, 0, 5, -1, 10));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    cells_are(r, 0, "0..3=0..3/0");
    shifts_are(r, 0, "none");
    sound(r);
}

static void undo_of_what_was_divided(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 4));
    ok(put(r, 0, 4, 4));
    ok(kvlazy_seq_div(r->cache, 0, 4, -1, 4));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    cells_are(r, 0, "0..3=0..3/0");
    sound(r);
}

static void undo_of_what_changed_hands(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 4));
    ok(put(r, 0, 4, 3));
    ok(cp(r, 0, 1, -1, -1));
    ok(kvlazy_seq_rm(r->cache, 0, 5, -1)); /* s1 alone has these */
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    cells_are(r, 0, "0..3=0..3/0+1");
    seq_is(r, 1, 0, 3);
    sound(r);
}

static void undo_of_what_a_keep_left_to_another(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 4));
    ok(cp(r, 0, 1, -1, -1));
    ok(kvlazy_seq_keep(r->cache, 1));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    cells_are(r, 0, "");
    sound(r);
}

/* Freed and filled again, by a copy: not the slot's any more, at whatever position and of whichever sequence. */
static void undo_of_what_was_filled_again(void **state)
{
    struct rig *r = *state;

    streams_of(r, 2);
    ok(put(r, 1, 0, 6));
    ok(put(r, 0, 0, 4));
    ok(kvlazy_seq_rm(r->cache, 0, 1, 3));
    ok(cp(r, 1, 0, 1, 2)); /* 1 comes back into cell 1 */
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    cells_are(r, 0, "1=1/0");
    sound(r);
}

/* The mark goes with the undo: a second apply fills the cells anew. */
static void undo_of_a_second_apply(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(2, POS(4, 5), SEQ(0, 0));

    rig_open(r);
    ok(put(r, 0, 0, 4));
    ok(prepare(r, u));
    ok(apply(r, u));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    ok(apply(r, u));
    ok(kvlazy_seq_add(r->cache, 0, 4, -1, 1));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    cells_are(r, 0, "0..3=0..3/0");
    sound(r);
}

/* In a window a later ubatch of the batch recycles cells of an earlier one: those are the later one's. */
static void undo_of_what_a_later_ubatch_took(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[] = {UBATCH(6, POS(0, 1, 2, 3, 4, 5), SEQ(0, 0, 0, 0, 0, 0)),
                         UBATCH(3, POS(6, 7, 8), SEQ(0, 0, 0))};

    open_window(r, 6, KVLAZY_SWA_STANDARD, 2);
    ok(put_tokens(r, u, 2));
    cells_are(r, 0, "0..2=6..8/0 3..5=3..5/0");
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    cells_are(r, 0, "0..2=6..8/0");
    sound(r);
}

/* ---- every owner of an undone cell ---- */

/* s1 shares what was undone, and its own window would reach what recycling took from it. */
static void undo_looks_at_every_window(void **state)
{
    struct rig *r = *state;

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 1, 0, 12));
    ok(put(r, 2, 0, 12)); /* takes 0 … 7 of s1: 8 of its cells */
    seq_is(r, 1, 8, 11);
    ok(kvlazy_seq_rm(r->cache, 2, -1, -1));
    ok(put(r, 1, 12, 4));
    ok(cp(r, 1, 3, -1, -1)); /* s3 lost what s1 lost, and holds the undone tokens too */
    ok(kvlazy_seq_rm(r->cache, 1, 12, -1));
    seq_is(r, 1, 8, 11);
    ok(kvlazy_seq_rm(r->cache, 3, 9, 12)); /* 13 … sees 12 … 15: nothing is missing */
    seq_is(r, 3, 8, 15);
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    seq_is(r, 1, 8, 11);  /* 12 sees 9, 10, 11 */
    seq_is(r, 3, -1, -1); /* 9 would see 6 and 7 */
    expect(put(r, 3, 9, 1), KVLAZY_EPOS);
    ok(put(r, 3, 0, 1));
    sound(r);
}

/* What came and was removed whole again leaves the sequence as prepare found it. */
static void a_start_that_is_still_right(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(1, POS(100), SEQ(1));

    r->params.n_stream = r->params.n_seq_max = 2;
    open_with(r, 64, 0);
    ok(put(r, 0, 0, 64));
    ok(put(r, 1, 0, 1));
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    ok(prepare(r, u)); /* s1 is empty and may start anywhere */
    ok(kvlazy_seq_cp(r->cache, 0, 1, 0, 1));
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    ok(apply(r, u));
    sound(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_copy_into_planned_cells_fits),
        cmocka_unit_test(a_copy_takes_the_room_of_a_token),
        cmocka_unit_test(a_copy_after_undo_takes_the_room_too),
        cmocka_unit_test(the_room_of_every_owner),
        cmocka_unit_test(a_shift_between),
        RIG_TEST(a_copy_into_the_cells),
        RIG_TEST(a_slot_of_an_ended_batch),
        RIG_TEST(undo_of_what_moved),
        RIG_TEST(undo_of_what_was_divided),
        RIG_TEST(undo_of_what_changed_hands),
        RIG_TEST(undo_of_what_a_keep_left_to_another),
        RIG_TEST(undo_of_what_was_filled_again),
        RIG_TEST(undo_of_a_second_apply),
        RIG_TEST(undo_of_what_a_later_ubatch_took),
        RIG_TEST(undo_looks_at_every_window),
        RIG_TEST(a_start_that_is_still_right),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
