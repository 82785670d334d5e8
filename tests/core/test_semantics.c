/* SPDX-License-Identifier: MIT */
/*
 * Which cells hold what: owners, sequences and their removal, where prepare places tokens and which
 * positions it takes. Examples of the rules, in many sizes; nothing here moves the clock.
 */
#include "support.h"

#include <stdlib.h>
#include <string.h>

/* ---- cells and owners ---- */

static void used_cells_count(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 3, 0, 2));
    ok(put(r, 0, 0, 4));
    sound(r);
    cells_are(r, 0, "0..1=0..1/3 2..5=0..3/0");
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 0), 0);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 3);
    ok(kvlazy_seq_rm(r->cache, 3, -1, -1));
    cells_are(r, 0, "2..5=0..3/0");
    assert_int_equal(stats(r).live_cells, 4);
}

static void cell_empties_with_its_last_owner(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 1));
    ok(put_owned(r, 2, SEQ(0, 1), 1, 1));
    ok(put(r, 0, 2, 2));
    cells_are(r, 0, "0=0/0 1=1/0+1 2..3=2..3/0");
    ok(kvlazy_seq_rm(r->cache, 0, 1, 2));
    sound(r);
    cells_are(r, 0, "0=0/0 1=1/1 2..3=2..3/0");
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 1), 1);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), 1);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 3);
    ok(kvlazy_seq_rm(r->cache, 1, 1, 2));
    sound(r);
    cells_are(r, 0, "0=0/0 2..3=2..3/0");
    assert_int_equal(stats(r).live_cells, 3);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), -1);
}

static void an_owner_added_twice_is_once(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put_owned(r, 3, SEQ(1, 1, 1), 0, 2));
    sound(r);
    cells_are(r, 0, "0..1=0..1/1");
    ok(kvlazy_seq_rm(r->cache, 1, 0, 1));
    cells_are(r, 0, "1=1/1");
    ok(kvlazy_seq_rm(r->cache, 1, 1, 2));
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), -1);
    assert_int_equal(stats(r).live_cells, 0);
}

static void a_position_may_repeat(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[2] = {UBATCH(1, POS(4), SEQ(1)), UBATCH(2, POS(4, 4), SEQ(1, 1))};

    rig_open(r);
    ok(put_tokens(r, u, 2));
    sound(r);
    cells_are(r, 0, "0=4/1 1=4/1 2=4/1");
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[1]));
    sound(r);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), 4);
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 1), 4);
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), -1);
    sound(r);
}

static void owners_of_many_words(void **state)
{
    struct rig *r = *state;
    kvlazy_cells_view view = {.struct_size = sizeof view};

    r->params.n_seq_max = 200;
    rig_open(r);
    ok(put_owned(r, 4, SEQ(0, 63, 64, 199), 0, 3));
    ok(put(r, 130, 0, 1));
    sound(r);
    cells_are(r, 0, "0..2=0..2/0+63+64+199 3=0/130");
    ok(kvlazy_cells(r->cache, 0, &view));
    assert_null(view.shift);
    assert_null(view.ext_x);
    assert_null(view.ext_y);
    ok(kvlazy_seq_rm(r->cache, 64, 1, -1));
    cells_are(r, 0, "0=0/0+63+64+199 1..2=1..2/0+63+199 3=0/130");
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 64), 0);
    ok(kvlazy_seq_rm(r->cache, -1, 1, -1));
    cells_are(r, 0, "0=0/0+63+64+199 3=0/130");
    sound(r);
}

/* ---- sequences ---- */

static void removal_leaves_a_hole(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 5));
    ok(put(r, 1, 0, 3));
    cells_are(r, 0, "0..4=0..4/0 5..7=0..2/1");
    assert_int_equal(stats(r).live_cells, 8);
    ok(kvlazy_seq_rm(r->cache, 0, 2, 4));
    sound(r);
    cells_are(r, 0, "0..1=0..1/0 4=4/0 5..7=0..2/1");
    assert_int_equal(stats(r).live_cells, 6);
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 0), 0);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 4);
    ok(put(r, 0, 5, 3));
    cells_are(r, 0, "0..1=0..1/0 2..3=5..6/0 4=4/0 5..7=0..2/1 8=7/0");
    sound(r);
}

static void removal_ranges(void **state)
{
    struct rig *r = *state;
    char *before;

    r->params.kv_size = 16;
    rig_open(r);
    ok(put(r, 0, 0, 8));
    before = rig_dump(r);
    ok(kvlazy_seq_rm(r->cache, 0, 5, 3));
    ok(kvlazy_seq_rm(r->cache, 0, 3, 3));
    ok(kvlazy_seq_rm(r->cache, 0, 8, -1));
    ok(kvlazy_seq_rm(r->cache, 0, 100, 200));
    ok(kvlazy_seq_rm(r->cache, 0, INT32_MAX, INT32_MAX));
    ok(kvlazy_seq_rm(r->cache, 0, -7, 0));
    ok(kvlazy_seq_rm(r->cache, 1, 0, -1));
    unchanged(r, before);
    ok(kvlazy_seq_rm(r->cache, 0, -7, 2));
    cells_are(r, 0, "2..7=2..7/0");
    ok(kvlazy_seq_rm(r->cache, 0, 6, -9));
    cells_are(r, 0, "2..5=2..5/0");
    ok(kvlazy_seq_rm(r->cache, 2, 0, -1));
    ok(kvlazy_seq_rm(r->cache, -1, 3, 4));
    cells_are(r, 0, "2=2/0 4..5=4..5/0");
    sound(r);
    ok(kvlazy_seq_rm(r->cache, 0, INT32_MIN, INT32_MIN));
    cells_are(r, 0, "");
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 0), -1);
}

static void removal_of_every_sequence(void **state)
{
    struct rig *r = *state;

    r->params.n_stream = r->params.n_seq_max = 2;
    rig_open(r);
    ok(put(r, 0, 0, 5));
    ok(put(r, 1, 0, 5));
    ok(kvlazy_seq_rm(r->cache, -1, 1, 3));
    sound(r);
    cells_are(r, 0, "0=0/0 3..4=3..4/0");
    cells_are(r, 1, "0=0/1 3..4=3..4/1");
}

static void ids_out_of_range(void **state)
{
    struct rig *r = *state;
    char *before;

    rig_open(r);
    ok(put(r, 0, 0, 3));
    before = rig_dump(r);
    expect(kvlazy_seq_rm(r->cache, 4, 0, -1), KVLAZY_EINVAL);
    expect(kvlazy_seq_rm(r->cache, -2, 0, -1), KVLAZY_EINVAL);
    expect(kvlazy_seq_rm(r->cache, INT32_MAX, 5, 3), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 4), -1);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, -1), -1);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, INT32_MIN), -1);
    assert_int_equal(kvlazy_room(r->cache, 4), 0);
    assert_int_equal(kvlazy_room(r->cache, -1), 0);
    unchanged(r, before);
}

static void one_batch_over_four_streams(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(9, POS(0, 7, 1, 0, 1, 8, 2, 2, 3), SEQ(0, 1, 0, 3, 3, 1, 0, 3, 3));

    r->params.n_stream = r->params.n_seq_max = 4;
    rig_open(r);
    ok(put(r, 2, 0, 5));
    ok(put(r, 1, 0, 7));
    ok(put_tokens(r, &u, 1));
    sound(r);
    cells_are(r, 0, "0..2=0..2/0");
    cells_are(r, 1, "0..8=0..8/1");
    cells_are(r, 2, "0..4=0..4/2");
    cells_are(r, 3, "0..3=0..3/3");
}

static void whole_mode_keeps_sequences_whole(void **state)
{
    struct rig *r = *state;
    char *before;

    r->params.shrink = KVLAZY_SHRINK_WHOLE;
    rig_open(r);
    ok(put(r, 0, 0, 8));
    ok(put(r, 1, 4, 4));
    before = rig_dump(r);
    expect(kvlazy_seq_rm(r->cache, 0, 4, -1), KVLAZY_ENOTSUP);
    expect(kvlazy_seq_rm(r->cache, 0, 0, 7), KVLAZY_ENOTSUP);
    expect(kvlazy_seq_rm(r->cache, 0, 3, 4), KVLAZY_ENOTSUP);
    expect(kvlazy_seq_rm(r->cache, -1, 4, -1), KVLAZY_ENOTSUP); /* whole for s1, not for s0 */
    ok(kvlazy_seq_rm(r->cache, 0, 8, -1));                      /* nothing of it */
    ok(kvlazy_seq_rm(r->cache, 0, 5, 5));
    unchanged(r, before);
    ok(kvlazy_seq_rm(r->cache, 1, 4, 8)); /* all of it, though not said from 0 to open */
    cells_are(r, 0, "0..7=0..7/0");
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    cells_are(r, 0, "");
}

/* ---- placement ---- */

static void lowest_free_cells(void **state)
{
    struct rig *r = *state;
    char *before;

    r->params.kv_size = 10;
    rig_open(r);
    ok(put(r, 0, 0, 10));
    ok(kvlazy_seq_rm(r->cache, 0, 3, 7));
    ok(kvlazy_seq_rm(r->cache, 0, 9, -1));
    before = rig_dump(r);
    expect(dry(r, 1, 0, 6), KVLAZY_ENOSLOT);
    unchanged(r, before);
    ok(put(r, 1, 0, 4));
    cells_are(r, 0, "0..2=0..2/0 3..6=0..3/1 7..8=7..8/0");
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    ok(put(r, 1, 7, 5));
    sound(r);
    cells_are(r, 0, "0..2=0..2/0 3..6=7..10/1 7..8=7..8/0 9=11/1");
    expect(put(r, 1, 12, 1), KVLAZY_ENOSLOT);
}

static void prepare_is_dry(void **state)
{
    struct rig *r = *state;
    kvlazy_pos p[10];
    kvlazy_seq_id s[10] = {0};
    kvlazy_ubatch u[3];
    char *before;

    for (int i = 0; i < 10; i++)
        p[i] = i;
    for (int i = 0; i < 3; i++)
        u[i] = UBATCH(i < 2 ? 4 : 2, p + 4 * i, s);
    r->params.kv_size = 16;
    rig_open(r);
    before = rig_dump(r);
    fake_forget(&r->fake);
    for (int again = 0; again < 3; again++) {
        ok(kvlazy_prepare(r->cache, u, 3, r->slot));
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(r->slot[i].n_token, u[i].n_token);
            for (uint32_t k = 0; k < u[i].n_token; k++) {
                assert_int_equal(r->slot[i].cell[k], 4 * i + k);
                assert_int_equal(r->slot[i].stream[k], 0);
            }
        }
    }
    unchanged(r, before);
    assert_int_equal(r->fake.n_call[FAKE_COMMIT], 0);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), -1);
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u[0]));
    cells_are(r, 0, "0..3=0..3/0");
    sound(r);
}

static void the_hard_maximum(void **state)
{
    static const uint32_t sizes[] = {1, 2, 63, 64, 65, 127, 300, 512};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct rig *r = rig_new();
        uint32_t size = sizes[i], some = size - size / 3;
        char *before;

        r->params.kv_size = size;
        rig_open(r);
        ok(put(r, 0, 0, some));
        assert_int_equal(kvlazy_room(r->cache, 1), size - some);
        before = rig_dump(r);
        expect(dry(r, 0, (kvlazy_pos)some, size - some + 1), KVLAZY_ENOSLOT);
        assert_int_equal(kvlazy_refused(r->cache), 0);
        unchanged(r, before);
        if (size > some)
            ok(put(r, 1, 0, size - some));
        assert_int_equal(kvlazy_room(r->cache, 0), 0);
        before = rig_dump(r);
        expect(put(r, 2, 0, 1), KVLAZY_ENOSLOT);
        unchanged(r, before);
        sound(r);
        rig_free(r);
    }
}

static void the_cap_follows(void **state)
{
    struct rig *r = *state;
    static const uint32_t hold[] = {257, 600, 1100};
    static const uint64_t cap[] = {512, 1024, 1536};

    r->params.kv_size_initial = 256;
    r->params.kv_size = 1536;
    rig_open(r);
    assert_int_equal(stats(r).cap_cells, 256);
    for (uint32_t i = 0, had = 0; i < 3; had = hold[i++]) {
        ok(put(r, 0, (kvlazy_pos)had, hold[i] - had));
        assert_int_equal(stats(r).cap_cells, cap[i]);
        assert_int_equal(stats(r).n_grow, i + 1);
    }
    expect(put(r, 0, 1100, 437), KVLAZY_ENOSLOT);
    ok(put(r, 0, 1100, 436));
    assert_int_equal(stats(r).cap_cells, 1536);
    sound(r);
}

static void unapplied_cells_are_planned_around(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[2] = {UBATCH(3, POS(0, 1, 2), SEQ(0, 0, 0)), UBATCH(2, POS(0, 1), SEQ(1, 1))};

    rig_open(r);
    ok(put(r, 2, 0, 2));
    ok(kvlazy_prepare(r->cache, u, 2, r->slot));
    assert_int_equal(r->slot[0].cell[0], 2);
    assert_int_equal(r->slot[1].cell[0], 5);
    ok(put(r, 1, 0, 1)); /* a new plan; the old one is forgotten */
    cells_are(r, 0, "0..1=0..1/2 2=0/1");
    sound(r);
}

/* ---- positions ---- */

struct line {
    uint32_t have; /* sequence 0 holds 0 … have-1 */
    int n_ubatch;
    uint32_t n[3];
    kvlazy_pos pos[3][6];
    int status;
};

static void positions_go_on(void **state)
{
    static const struct line table[] = {
        {0, 1, {1}, {{7}}, KVLAZY_OK},
        {0, 1, {3}, {{9, 7, 8}}, KVLAZY_OK},
        {0, 1, {5}, {{3, 1, 4, 0, 2}}, KVLAZY_OK},
        {0, 1, {2}, {{7, 9}}, KVLAZY_EPOS},
        {0, 2, {2, 1}, {{7, 9}, {8}}, KVLAZY_OK}, /* over the whole batch */
        {0, 2, {1, 1}, {{7}, {9}}, KVLAZY_EPOS},
        {0, 1, {4}, {{4, 5, 4, 5}}, KVLAZY_OK},
        {0, 1, {2}, {{0, INT32_MAX - 1}}, KVLAZY_EPOS},
        {0, 1, {2}, {{INT32_MAX - 1, INT32_MAX - 2}}, KVLAZY_OK},
        {5, 1, {1}, {{5}}, KVLAZY_OK},
        {5, 1, {1}, {{6}}, KVLAZY_EPOS},
        {5, 1, {1}, {{4}}, KVLAZY_EPOS},
        {5, 1, {1}, {{0}}, KVLAZY_EPOS},
        {5, 1, {3}, {{5, 6, 7}}, KVLAZY_OK},
        {5, 1, {2}, {{5, 7}}, KVLAZY_EPOS},
        {5, 1, {2}, {{6, 5}}, KVLAZY_EPOS},
        {5, 1, {3}, {{5, 6, 5}}, KVLAZY_EPOS},
        {5, 1, {4}, {{5, 5, 6, 6}}, KVLAZY_OK},
        {5, 2, {2, 2}, {{5, 6}, {7, 8}}, KVLAZY_OK},
        {5, 2, {2, 2}, {{5, 6}, {6, 7}}, KVLAZY_OK},
        {5, 2, {2, 2}, {{5, 6}, {8, 9}}, KVLAZY_EPOS},
        {5, 2, {2, 2}, {{7, 8}, {5, 6}}, KVLAZY_EPOS},
        {5, 3, {1, 1, 1}, {{5}, {6}, {8}}, KVLAZY_EPOS},
        {5, 1, {1}, {{INT32_MAX - 1}}, KVLAZY_EPOS},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct line *l = &table[i];
        static const kvlazy_seq_id zero[6];
        struct rig *r = rig_new();
        kvlazy_ubatch u[3];
        char *before;
        int status;

        rig_open(r);
        if (l->have)
            ok(put(r, 0, 0, l->have));
        for (int k = 0; k < l->n_ubatch; k++)
            u[k] = UBATCH(l->n[k], l->pos[k], zero);
        before = rig_dump(r);
        status = kvlazy_prepare(r->cache, u, (uint32_t)l->n_ubatch, r->slot);
        if (status != l->status)
            print_error("row %zu\n", i);
        expect(status, l->status);
        assert_int_equal(kvlazy_refused(r->cache), status == KVLAZY_EPOS ? 0 : -1);
        unchanged(r, before);
        for (uint32_t k = 0; !status && k < (uint32_t)l->n_ubatch; k++) {
            ok(kvlazy_apply_ubatch(r->cache, &r->slot[k], &u[k]));
            write_rows(r, &r->slot[k]);
        }
        sound(r);
        rig_free(r);
    }
}

static void positions_of_several_sequences(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch mixed = UBATCH(4, POS(5, 0, 6, 1), SEQ(0, 1, 0, 1));
    kvlazy_ubatch gap = UBATCH(4, POS(7, 2, 8, 4), SEQ(0, 1, 0, 1));
    char *before;

    rig_open(r);
    ok(put(r, 0, 0, 5));
    ok(put_tokens(r, &mixed, 1));
    cells_are(r, 0, "0..5=0..5/0 6=0/1 7=6/0 8=1/1");
    before = rig_dump(r);
    expect(put_tokens(r, &gap, 1), KVLAZY_EPOS);
    assert_int_equal(kvlazy_refused(r->cache), 1);
    unchanged(r, before);
    expect(put_owned(r, 2, SEQ(0, 1), 7, 1), KVLAZY_EPOS); /* goes on in s0, not in s1 */
    assert_int_equal(kvlazy_refused(r->cache), 1);
    expect(put_owned(r, 2, SEQ(0, 1), 2, 1), KVLAZY_EPOS);
    assert_int_equal(kvlazy_refused(r->cache), 0);
    ok(put_owned(r, 2, SEQ(0, 2), 7, 2)); /* s2 is empty: it may start anywhere */
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 2), 7);
    ok(put_owned(r, 2, SEQ(2, 0), 9, 1));
    sound(r);
}

static void positions_after_removal(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 10));
    ok(kvlazy_seq_rm(r->cache, 0, 6, -1));
    expect(put(r, 0, 10, 1), KVLAZY_EPOS);
    ok(put(r, 0, 6, 1));
    ok(kvlazy_seq_rm(r->cache, 0, 0, 3)); /* the head goes: pos_max stays */
    ok(put(r, 0, 7, 1));
    ok(kvlazy_seq_rm(r->cache, 0, 0, 100)); /* emptied, by the engine itself: anywhere again */
    ok(put(r, 0, 40, 2));
    cells_are(r, 0, "0..1=40..41/0");
    ok(kvlazy_clear(r->cache, false));
    ok(put(r, 0, 9, 2));
    sound(r);
}

static void the_last_position(void **state)
{
    struct rig *r = *state;
    char *before;

    rig_open(r);
    ok(put(r, 0, INT32_MAX - 1, 1));
    before = rig_dump(r);
    expect(put_list(r, 0, 1, POS(INT32_MAX)), KVLAZY_EINVAL);
    expect(put_list(r, 0, 1, POS(INT32_MIN)), KVLAZY_EINVAL);
    expect(put_list(r, 0, 1, POS(0)), KVLAZY_EPOS);
    unchanged(r, before);
    ok(kvlazy_seq_rm(r->cache, 0, INT32_MAX - 1, INT32_MAX));
    cells_are(r, 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(used_cells_count),
        RIG_TEST(cell_empties_with_its_last_owner),
        RIG_TEST(an_owner_added_twice_is_once),
        RIG_TEST(a_position_may_repeat),
        RIG_TEST(owners_of_many_words),
        RIG_TEST(removal_leaves_a_hole),
        RIG_TEST(removal_ranges),
        RIG_TEST(removal_of_every_sequence),
        RIG_TEST(ids_out_of_range),
        RIG_TEST(one_batch_over_four_streams),
        RIG_TEST(whole_mode_keeps_sequences_whole),
        RIG_TEST(lowest_free_cells),
        RIG_TEST(prepare_is_dry),
        cmocka_unit_test(the_hard_maximum),
        RIG_TEST(the_cap_follows),
        RIG_TEST(unapplied_cells_are_planned_around),
        cmocka_unit_test(positions_go_on),
        RIG_TEST(positions_of_several_sequences),
        RIG_TEST(positions_after_removal),
        RIG_TEST(the_last_position),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
