/* SPDX-License-Identifier: MIT */
/*
 * The bracket of a batch and the slots in it: when it is open and what that forbids, which slots apply and
 * undo take, what attention reads (n_kv), and whose token was refused.
 */
#include "support.h"

#include <stdlib.h>
#include <string.h>

/* Open: the idle side answers EBUSY and next is idle_ms. Closed: it works. */
static bool is_open(struct rig *r)
{
    uint64_t next;
    int status = poll_next(r, &next);
    char *before = rig_dump(r);

    if (status == KVLAZY_OK)
        free(before);
    if (status == KVLAZY_OK)
        return false;
    expect(status, KVLAZY_EBUSY);
    assert_true(next == (r->params.slot_shrink_idle_ms ? r->params.slot_shrink_idle_ms : UINT64_MAX));
    expect(kvlazy_trim(r->cache, 0), KVLAZY_EBUSY);
    expect(kvlazy_trim(r->cache, 1), KVLAZY_EBUSY);
    expect(kvlazy_set_limits(r->cache, 1, 1, 1), KVLAZY_EBUSY);
    expect(kvlazy_poll(r->cache, NULL), KVLAZY_EBUSY);
    unchanged(r, before);
    return true;
}

static void batch_is_open_until(void **state)
{
    struct rig *r = *state;
    uint64_t bytes;

    rig_open(r);
    assert_false(is_open(r));
    ok(kvlazy_end_batch(r->cache)); /* none open: a no-op */
    ok(kvlazy_init_batch(r->cache));
    assert_true(is_open(r));
    r->fake.now += 1000000;
    assert_true(is_open(r));
    ok(kvlazy_init_batch(r->cache));
    assert_true(is_open(r));
    stats(r);
    ok(kvlazy_resident(r->cache, &bytes));
    ok(kvlazy_end_batch(r->cache));
    assert_false(is_open(r));
    ok(put(r, 0, 0, 3)); /* prepare opens */
    assert_true(is_open(r));
    ok(kvlazy_seq_rm(r->cache, 0, 2, -1));
    assert_true(is_open(r));
    ok(kvlazy_clear(r->cache, false));
    assert_false(is_open(r));
    ok(put(r, 0, 0, 3));
    ok(kvlazy_clear(r->cache, true));
    assert_false(is_open(r));
    sound(r);
}

static void batch_is_closed_by_a_failing_prepare(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch bad = UBATCH(1, POS(0), SEQ(9));

    r->params.kv_size = 8;
    rig_open(r);
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 0, 3));
    expect(put(r, 0, 4, 1), KVLAZY_EPOS);
    assert_false(is_open(r));
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_init_batch(r->cache));
    expect(put(r, 0, 3, 6), KVLAZY_ENOSLOT);
    assert_false(is_open(r));
    ok(kvlazy_init_batch(r->cache));
    expect(kvlazy_prepare(r->cache, &bad, 1, r->slot), KVLAZY_EINVAL);
    assert_false(is_open(r));
    ok(put(r, 0, 3, 1));
    assert_true(is_open(r));
    ok(kvlazy_end_batch(r->cache));
    assert_int_equal(stats(r).n_refusal, 2); /* EINVAL is no refusal */
}

static void open_batch_without_an_idle_time(void **state)
{
    struct rig *r = *state;

    r->params.slot_shrink_idle_ms = 0;
    rig_open(r);
    ok(kvlazy_init_batch(r->cache));
    assert_true(is_open(r));
    ok(kvlazy_end_batch(r->cache));
    assert_false(is_open(r));
}

/* ---- slots ---- */

static void slot_is_applied_once(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(3, POS(0, 1, 2), SEQ(0, 0, 0));
    char *before;

    rig_open(r);
    ok(put_tokens(r, &u, 1));
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EINVAL);
    unchanged(r, before);
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    cells_are(r, 0, "");
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
    cells_are(r, 0, "0..2=0..2/0");
    write_rows(r, &r->slot[0]);
    ok(kvlazy_end_batch(r->cache));
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EINVAL); /* no batch is open */
    unchanged(r, before);
}

static void slot_is_applied_once_though_its_tokens_went(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(3, POS(0, 1, 2), SEQ(0, 0, 0));
    char *before;

    rig_open(r);
    ok(put_tokens(r, &u, 1));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EINVAL);
    unchanged(r, before);
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u)); /* undone: it may be */
    write_rows(r, &r->slot[0]);
}

static void slot_outside_a_batch(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(3, POS(0, 1, 2), SEQ(0, 0, 0));
    char *before;

    rig_open(r);
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    ok(kvlazy_end_batch(r->cache));
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EINVAL);
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    ok(kvlazy_clear(r->cache, false));
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EINVAL);
    unchanged(r, before);
}

static void slot_is_stale(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[2] = {UBATCH(3, POS(0, 1, 2), SEQ(0, 0, 0)), UBATCH(5, POS(3, 4, 5, 6, 7), SEQ(0, 0, 0, 0, 0))};
    kvlazy_slot old;
    char *before;

    rig_open(r);
    ok(kvlazy_prepare(r->cache, u, 2, r->slot));
    old = r->slot[1];
    ok(kvlazy_prepare(r->cache, u, 1, r->slot));
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &old, &u[1]), KVLAZY_EINVAL);
    expect(kvlazy_undo_ubatch(r->cache, &old), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_n_kv(r->cache, &old), 0);
    unchanged(r, before);
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u[0]));
    write_rows(r, &r->slot[0]);
    old = r->slot[0];
    expect(put(r, 0, 9, 1), KVLAZY_EPOS); /* the plan is gone with the batch */
    ok(kvlazy_init_batch(r->cache));
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &old, &u[0]), KVLAZY_EINVAL);
    unchanged(r, before);
}

static void slot_is_foreign(void **state)
{
    struct rig *r = *state, *other = rig_new();
    kvlazy_ubatch u = UBATCH(2, POS(0, 1), SEQ(0, 0)), more = UBATCH(3, POS(0, 1, 2), SEQ(0, 0, 0));
    uint32_t stream[2] = {0}, cell[2] = {0, 1};
    kvlazy_slot made = {2, stream, cell}, none = {0};
    char *before;

    rig_open(r);
    rig_open(other);
    ok(kvlazy_prepare(other->cache, &u, 1, other->slot));
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &other->slot[0], &u), KVLAZY_EINVAL);
    expect(kvlazy_undo_ubatch(r->cache, &other->slot[0]), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_n_kv(r->cache, &other->slot[0]), 0);
    expect(kvlazy_apply_ubatch(r->cache, &made, &u), KVLAZY_EINVAL);
    expect(kvlazy_undo_ubatch(r->cache, &made), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_n_kv(r->cache, &made), 0);
    expect(kvlazy_apply_ubatch(r->cache, &none, &u), KVLAZY_EINVAL);
    expect(kvlazy_undo_ubatch(r->cache, &none), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_n_kv(r->cache, &none), 0);
    expect(kvlazy_apply_ubatch(r->cache, NULL, &u), KVLAZY_EINVAL);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], NULL), KVLAZY_EINVAL);
    expect(kvlazy_undo_ubatch(r->cache, NULL), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_n_kv(r->cache, NULL), 0);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &more), KVLAZY_EINVAL); /* not the ubatch it was filled for */
    unchanged(r, before);
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
    write_rows(r, &r->slot[0]);
    rig_free(other);
}

static void slot_before_any_prepare(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(1, POS(0), SEQ(0));
    kvlazy_slot none = {0};

    rig_open(r);
    ok(kvlazy_init_batch(r->cache));
    expect(kvlazy_apply_ubatch(r->cache, &none, &u), KVLAZY_EINVAL);
    expect(kvlazy_undo_ubatch(r->cache, &none), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_n_kv(r->cache, &none), 0);
    sound(r);
}

static void sequence_changed_since_prepare(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(2, POS(5, 6), SEQ(0, 0));
    char *before;

    rig_open(r);
    ok(put(r, 0, 0, 5));
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    ok(kvlazy_seq_rm(r->cache, 0, 4, -1));
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EPOS);
    unchanged(r, before);
    sound(r);
}

static void undo_empties_for_every_owner(void **state)
{
    struct rig *r = *state;
    kvlazy_seq_id owners[] = {0, 2};

    rig_open(r);
    ok(put(r, 0, 0, 4));
    ok(put_owned(r, 2, owners, 4, 3));
    cells_are(r, 0, "0..3=0..3/0 4..6=4..6/0+2");
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    sound(r);
    cells_are(r, 0, "0..3=0..3/0");
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 3);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 2), -1);
    ok(put(r, 0, 4, 1)); /* goes on where it was */
}

static void undo_after_removal(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 6));
    ok(kvlazy_seq_rm(r->cache, 0, 2, 4));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    sound(r);
    cells_are(r, 0, "");
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), -1);
}

/* Compute fails in the second ubatch of three: the engine undoes, ends, and tries the whole batch again. */
static void undo_part_of_a_batch(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[3] = {UBATCH(2, POS(3, 4), SEQ(1, 1)), UBATCH(2, POS(5, 6), SEQ(1, 1)), UBATCH(1, POS(7), SEQ(1))};

    rig_open(r);
    ok(put(r, 1, 0, 3));
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_prepare(r->cache, u, 3, r->slot));
    for (int i = 0; i < 2; i++) {
        ok(kvlazy_apply_ubatch(r->cache, &r->slot[i], &u[i]));
        write_rows(r, &r->slot[i]);
    }
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[2])); /* never applied */
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[1]));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    ok(kvlazy_end_batch(r->cache));
    sound(r);
    cells_are(r, 0, "0..2=0..2/1");
    ok(put_tokens(r, u, 3));
    cells_are(r, 0, "0..7=0..7/1");
}

/* ---- n_kv ---- */

struct view_row {
    uint32_t kv_size, n_pad, used; /* cells used before the token whose slot is asked */
    uint32_t drop;                 /* of them, how many from the front are removed again */
    uint32_t n_kv;
};

static void attention_width(void **state)
{
    static const struct view_row table[] = {
        {4096, 0, 0, 0, 256},    {4096, 0, 255, 0, 256},    {4096, 0, 256, 0, 512},     {4096, 0, 257, 256, 512},
        {320, 0, 301, 300, 320}, {320, 0, 319, 0, 320},     {100, 0, 0, 0, 100},        {100, 0, 99, 0, 100},
        {4096, 512, 0, 0, 512},  {4096, 512, 600, 1, 1024}, {4096, 1, 0, 0, 1},         {4096, 1, 77, 0, 78},
        {4096, 32, 31, 0, 32},   {4096, 32, 32, 0, 64},     {1000, 64, 999, 900, 1000}, {1, 256, 0, 0, 1},
        {300, 4096, 2, 0, 300},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct view_row *row = &table[i];
        struct rig *r = rig_new();
        kvlazy_ubatch u = UBATCH(1, POS(0), SEQ(1));
        uint32_t before, after;

        r->params.kv_size = row->kv_size;
        r->params.n_pad = row->n_pad;
        rig_open(r);
        if (row->used)
            ok(put(r, 0, 0, row->used));
        ok(kvlazy_seq_rm(r->cache, 0, 0, (kvlazy_pos)row->drop));
        ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
        before = kvlazy_n_kv(r->cache, &r->slot[0]);
        ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
        write_rows(r, &r->slot[0]);
        after = kvlazy_n_kv(r->cache, &r->slot[0]);
        if (before != row->n_kv || after != row->n_kv)
            print_error("row %zu\n", i);
        assert_int_equal(before, row->n_kv);
        assert_int_equal(after, row->n_kv);
        sound(r);
        rig_free(r);
    }
}

static void attention_width_of_a_dropped_head(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 257));
    ok(kvlazy_seq_rm(r->cache, 0, 0, 256)); /* only cell 256 is live */
    ok(put(r, 1, 0, 1));
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 512);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 256);
}

static void attention_width_over_streams(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch both = UBATCH(2, POS(599, 0), SEQ(0, 1)), one = UBATCH(1, POS(1), SEQ(1));

    r->params.kv_size = 1024;
    r->params.n_stream = r->params.n_seq_max = 2;
    rig_open(r);
    ok(put(r, 0, 0, 599));
    ok(put_tokens(r, &both, 1));
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 768);
    ok(put_tokens(r, &one, 1)); /* streams that are not in the slot do not count */
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 256);
}

static void attention_width_of_later_slots(void **state)
{
    struct rig *r = *state;
    kvlazy_pos p[300];
    kvlazy_seq_id s[300] = {0};
    kvlazy_ubatch u[2];

    for (int i = 0; i < 300; i++)
        p[i] = i;
    u[0] = UBATCH(200, p, s);
    u[1] = UBATCH(100, p + 200, s);
    rig_open(r);
    ok(kvlazy_prepare(r->cache, u, 2, r->slot));
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 256);
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[1]), 512);
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u[0]));
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 256);
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[1]), 512);
    write_rows(r, &r->slot[0]);
}

/* ---- whose token ---- */

static void refusals_name_a_sequence(void **state)
{
    struct rig *r = *state;
    kvlazy_pos p[24];
    kvlazy_seq_id s[24];
    kvlazy_ubatch u[2];

    for (int i = 0; i < 24; i++) {
        p[i] = i % 12;
        s[i] = i < 12 ? 2 : 3;
    }
    r->params.kv_size = 20;
    rig_open(r);
    assert_int_equal(kvlazy_refused(r->cache), -1);
    u[0] = UBATCH(12, p, s);
    u[1] = UBATCH(12, p + 12, s + 12);
    expect(kvlazy_prepare(r->cache, u, 2, r->slot), KVLAZY_ENOSLOT);
    assert_int_equal(kvlazy_refused(r->cache), 3);
    expect(dry(r, 1, 0, 21), KVLAZY_ENOSLOT);
    assert_int_equal(kvlazy_refused(r->cache), 1);
    expect(put_list(r, 1, 2, POS(1, 3)), KVLAZY_EPOS);
    assert_int_equal(kvlazy_refused(r->cache), 1);
    ok(kvlazy_end_batch(r->cache));
    assert_int_equal(kvlazy_refused(r->cache), 1);
    expect(put_list(r, 7, 1, POS(0)), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_refused(r->cache), -1);
    expect(put_list(r, 1, 2, POS(1, 3)), KVLAZY_EPOS);
    ok(put(r, 0, 0, 20));
    assert_int_equal(kvlazy_refused(r->cache), -1);
    expect(put(r, 0, 20, 1), KVLAZY_ENOSLOT);
    assert_int_equal(kvlazy_refused(r->cache), 0);
    assert_int_equal(stats(r).n_refusal, 5);
}

static void refusal_in_one_of_two_streams(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(3, POS(3, 4, 8), SEQ(0, 0, 1));
    char *before;

    r->params.kv_size = 8;
    r->params.n_stream = r->params.n_seq_max = 2;
    rig_open(r);
    ok(put(r, 0, 0, 3));
    ok(put(r, 1, 0, 8));
    before = rig_dump(r);
    expect(put_tokens(r, &u, 1), KVLAZY_ENOSLOT);
    assert_int_equal(kvlazy_refused(r->cache), 1);
    unchanged(r, before);
    assert_int_equal(kvlazy_room(r->cache, 0), 5);
    assert_int_equal(kvlazy_room(r->cache, 1), 0);
}

/* Its cells are others' now, so a slot from before a shrink that moved some stands for nothing. */
static void a_slot_is_stale_once_cells_moved(void **state)
{
    struct rig *r = *state;
    char *before;

    rig_open(r);
    ok(turn(r, 0, 0, 20));
    ok(turn(r, 1, 0, 10));
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 256);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(kvlazy_trim(r->cache, 0));
    cells_are(r, 0, "0..9=0..9/1");
    before = rig_dump(r);
    expect(kvlazy_undo_ubatch(r->cache, &r->slot[0]), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 0);
    unchanged(r, before);
}

/* What prepare made room for in the index another call takes: apply makes room again, or nothing happens. */
static void a_copy_takes_the_room_of_a_plan(void **state)
{
    struct rig *r = *state;
    kvlazy_seq_id seq = 0;
    kvlazy_pos pos = 64;
    const kvlazy_ubatch u = {.n_token = 1, .pos = &pos, .seq = &seq};
    kvlazy_slot slot;

    rig_open(r);
    ok(put(r, 1, 0, 1));
    ok(put(r, 0, 1, 63));
    for (int again = 0; again < 3; again++) {
        ok(kvlazy_init_batch(r->cache));
        ok(kvlazy_prepare(r->cache, &u, 1, &slot));
        ok(kvlazy_seq_cp(r->cache, 1, 0, 0, 1)); /* in front: pos_max stays */
        ok(kvlazy_apply_ubatch(r->cache, &slot, &u));
        ok(kvlazy_check(r->cache, NULL));
        ok(kvlazy_undo_ubatch(r->cache, &slot));
        ok(kvlazy_seq_cp(r->cache, 1, 0, 0, 1));
        ok(kvlazy_apply_ubatch(r->cache, &slot, &u));
        ok(kvlazy_check(r->cache, NULL));
        ok(kvlazy_end_batch(r->cache));
        pos++;
    }
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 66);
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(batch_is_open_until),
        RIG_TEST(batch_is_closed_by_a_failing_prepare),
        RIG_TEST(open_batch_without_an_idle_time),
        RIG_TEST(slot_is_applied_once),
        RIG_TEST(slot_is_applied_once_though_its_tokens_went),
        RIG_TEST(slot_outside_a_batch),
        RIG_TEST(slot_is_stale),
        RIG_TEST(slot_is_foreign),
        RIG_TEST(slot_before_any_prepare),
        RIG_TEST(sequence_changed_since_prepare),
        RIG_TEST(undo_empties_for_every_owner),
        RIG_TEST(undo_after_removal),
        RIG_TEST(undo_part_of_a_batch),
        cmocka_unit_test(attention_width),
        RIG_TEST(attention_width_of_a_dropped_head),
        RIG_TEST(attention_width_over_streams),
        RIG_TEST(attention_width_of_later_slots),
        RIG_TEST(refusals_name_a_sequence),
        RIG_TEST(refusal_in_one_of_two_streams),
        RIG_TEST(a_slot_is_stale_once_cells_moved),
        RIG_TEST(a_copy_takes_the_room_of_a_plan),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
