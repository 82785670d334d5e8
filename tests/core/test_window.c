/* SPDX-License-Identifier: MIT */
/*
 * Sliding windows: which cells are masked, when they are taken and in which order, what their old owners
 * lose, what a plan made over them must find again, and what a sequence is that lost part of its window.
 */
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is masked ---- */

static bool masked(int type, kvlazy_pos n, kvlazy_pos a, kvlazy_pos b)
{
    switch (type) {
    case KVLAZY_SWA_STANDARD:
        return b - a >= n;
    case KVLAZY_SWA_CHUNKED:
        return a < b / n * n;
    default:
        return abs(b - a) > n / 2;
    }
}

/* The masked ones of a full cache can be taken, every one of them and no other. */
static void every_masked_cell_and_no_other(void **state)
{
    static const uint32_t windows[] = {1, 2, 3, 4, 5, 8, 13, 64, 100}, sizes[] = {1, 2, 9, 10, 12, 13, 64, 65, 130};

    (void)state;
    for (int type = KVLAZY_SWA_STANDARD; type <= KVLAZY_SWA_SYMMETRIC; type++)
        for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                struct rig *r = window_rig(sizes[k], type, windows[i]);
                kvlazy_pos size = (kvlazy_pos)sizes[k];
                uint32_t n = 0;

                for (kvlazy_pos a = 0; a < size; a++)
                    n += masked(type, (kvlazy_pos)windows[i], a, size);
                ok(put(r, 0, 0, sizes[k]));
                assert_int_equal(kvlazy_room(r->cache, 1), n);
                expect(dry(r, 1, 0, n + 1), KVLAZY_ENOSLOT);
                assert_int_equal(kvlazy_refused(r->cache), 1);
                if (n) {
                    ok(put(r, 1, 0, n));
                    for (uint32_t c = 0; c < n; c++)
                        assert_int_equal(r->slot[0].cell[c], c);
                    seq_is(r, 0, (kvlazy_pos)n == size ? -1 : (kvlazy_pos)n, (kvlazy_pos)n == size ? -1 : size - 1);
                }
                sound(r);
                rig_free(r);
            }
}

struct query {
    int type;
    uint32_t n_swa, have;
    uint32_t n_masked;
};

static void masks_of_the_table(void **state)
{
    static const struct query table[] = {
        {KVLAZY_SWA_STANDARD, 4, 10, 7},  {KVLAZY_SWA_CHUNKED, 4, 10, 8},    {KVLAZY_SWA_CHUNKED, 4, 12, 12},
        {KVLAZY_SWA_SYMMETRIC, 4, 10, 8}, {KVLAZY_SWA_SYMMETRIC, 5, 10, 8},  {KVLAZY_SWA_STANDARD, 1, 10, 10},
        {KVLAZY_SWA_STANDARD, 10, 10, 1}, {KVLAZY_SWA_STANDARD, 11, 10, 0},  {KVLAZY_SWA_CHUNKED, 11, 10, 0},
        {KVLAZY_SWA_CHUNKED, 7, 10, 7},   {KVLAZY_SWA_SYMMETRIC, 20, 10, 0}, {KVLAZY_SWA_SYMMETRIC, 19, 10, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct rig *r = window_rig(table[i].have, table[i].type, table[i].n_swa);

        ok(put(r, 0, 0, table[i].have));
        assert_int_equal(kvlazy_room(r->cache, 0), table[i].n_masked);
        rig_free(r);
    }
}

/* ---- recycling ---- */

static void a_full_cache_slides(void **state)
{
    struct rig *r = *state;

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 16));
    ok(put(r, 0, 16, 4));
    cells_are(r, 0, "0..3=16..19/0 4..15=4..15/0");
    ok(put(r, 0, 20, 2));
    cells_are(r, 0, "0..5=16..21/0 6..15=6..15/0");
    seq_is(r, 0, 6, 21);
    sound(r);
}

static void another_sequence_takes_them(void **state)
{
    struct rig *r = *state;

    open_window(r, 12, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 12));
    ok(put(r, 1, 0, 3));
    cells_are(r, 0, "0..2=0..2/1 3..11=3..11/0");
    seq_is(r, 0, 3, 11);
    sound(r);
}

static void empty_ones_first(void **state)
{
    struct rig *r = *state;

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 13));
    ok(put(r, 1, 0, 3));
    cells_are(r, 0, "0..12=0..12/0 13..15=0..2/1");
    ok(kvlazy_seq_rm(r->cache, 0, 5, 7)); /* holes, and then no more */
    ok(put(r, 2, 0, 3));
    cells_are(r, 0, "0=2/2 1..4=1..4/0 5..6=0..1/2 7..12=7..12/0 13..15=0..2/1");
    assert_int_equal(r->slot[0].cell[0], 5);
    assert_int_equal(r->slot[0].cell[1], 6);
    assert_int_equal(r->slot[0].cell[2], 0);
    seq_is(r, 0, 1, 12);
    sound(r);
}

/* By position, not by cell and not by sequence. */
static void oldest_position_first(void **state)
{
    struct rig *r = *state;

    open_window(r, 18, KVLAZY_SWA_STANDARD, 3);
    ok(put(r, 0, 100, 6));
    ok(put(r, 1, 7, 6));
    ok(put(r, 2, 9, 6));
    ok(put(r, 3, 0, 5)); /* masked: 100..103 of s0, 7..10 of s1, 9..12 of s2 */
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 3), 4);
    assert_int_equal(r->slot[0].cell[0], 6); /* 7, 8 of s1; 9 of s1 and of s2; 10 of either */
    assert_int_equal(r->slot[0].cell[1], 7);
    assert_true((r->slot[0].cell[2] == 8 && r->slot[0].cell[3] == 12) ||
                (r->slot[0].cell[2] == 12 && r->slot[0].cell[3] == 8));
    assert_true(r->slot[0].cell[4] == 9 || r->slot[0].cell[4] == 13);
    seq_is(r, 0, 100, 105);
    sound(r);
}

static void a_sequence_in_disorder_too(void **state)
{
    struct rig *r = *state;

    open_window(r, 8, KVLAZY_SWA_STANDARD, 3);
    ok(put_list(r, 0, 8, POS(3, 1, 7, 0, 6, 2, 5, 4)));
    ok(put(r, 1, 0, 3));
    assert_int_equal(r->slot[0].cell[0], 3);
    assert_int_equal(r->slot[0].cell[1], 1);
    assert_int_equal(r->slot[0].cell[2], 5);
    seq_is(r, 0, 3, 7);
    sound(r);
}

static void shared_cells_are_spared(void **state)
{
    struct rig *r = *state;

    open_window(r, 12, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 12));
    ok(cp(r, 0, 1, 0, 4)); /* masked for s0 alone, seen by s1: spared */
    assert_int_equal(kvlazy_room(r->cache, 2), 5);
    expect(dry(r, 2, 0, 6), KVLAZY_ENOSLOT);
    ok(put(r, 2, 0, 2));
    cells_are(r, 0, "0..3=0..3/1 4..5=0..1/2 6..11=6..11/0");
    seq_is(r, 0, 6, 11);
    seq_is(r, 1, 0, 3);
    sound(r);
    /* masked for both of two owners is shared still */
    ok(cp(r, 0, 3, 6, 9));
    assert_int_equal(kvlazy_room(r->cache, 2), 1); /* of s1 position 0 */
    sound(r);
}

static void old_owners_are_left_without_gaps(void **state)
{
    struct rig *r = *state;

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 16));
    ok(cp(r, 0, 1, 2, 4));
    ok(put(r, 2, 0, 4)); /* 0, 1, 4, 5: then 2 and 3 are s1's alone */
    cells_are(r, 0, "0..1=0..1/2 2..3=2..3/1 4..5=2..3/2 6..15=6..15/0");
    seq_is(r, 0, 6, 15);
    seq_is(r, 1, 2, 3);
    sound(r);
}

static void each_stream_has_its_own(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(4, POS(12, 3, 13, 4), SEQ(0, 1, 0, 1));

    r->params.n_stream = 4;
    open_window(r, 12, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 12));
    ok(put(r, 1, 0, 3));
    ok(put_tokens(r, &u, 1));
    cells_are(r, 0, "0..1=12..13/0 2..11=2..11/0");
    cells_are(r, 1, "0..4=0..4/1");
    expect(dry(r, 1, 5, 10), KVLAZY_ENOSLOT);
    assert_int_equal(kvlazy_refused(r->cache), 1);
    assert_int_equal(kvlazy_room(r->cache, 0), 9);
    assert_int_equal(kvlazy_room(r->cache, 1), 7 + 2);
    sound(r);
}

/* ---- plans ---- */

static void a_plan_over_masked_cells_is_dry(void **state)
{
    struct rig *r = *state;
    char *before;

    open_window(r, 12, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 12));
    before = rig_dump(r);
    ok(dry(r, 1, 0, 2));
    unchanged(r, before);
    before = rig_dump(r);
    expect(dry(r, 0, 12, 10), KVLAZY_ENOSLOT);
    unchanged(r, before);
    cells_are(r, 0, "0..11=0..11/0");
    ok(kvlazy_seq_rm(r->cache, 0, 4, -1)); /* nothing was lost by a plan: the window of 4 is whole */
    seq_is(r, 0, 0, 3);
    ok(put(r, 0, 4, 1));
    sound(r);
}

enum { N_UBATCH = 3, N_TOKEN = 8 };

/* Three ubatches placed at once lie where they do when each is placed after the one before was applied. */
static void ubatch_after_ubatch(void **state)
{
    uint32_t random = 12345;

    (void)state;
    for (int trial = 0; trial < 300; trial++) {
        struct rig *r[2];
        kvlazy_pos pos[N_UBATCH][N_TOKEN], next[3];
        kvlazy_seq_id seq[N_UBATCH][N_TOKEN];
        kvlazy_ubatch u[N_UBATCH];
        int status = KVLAZY_OK;

        for (int i = 0; i < 2; i++) {
            r[i] = window_rig(20, KVLAZY_SWA_STANDARD + trial % 3, 1 + (uint32_t)trial % 7);
            ok(put(r[i], 0, 0, 8));
            ok(put(r[i], 1, 3, 4 + (uint32_t)trial % 5));
        }
        for (kvlazy_seq_id s = 0; s < 3; s++)
            next[s] = kvlazy_seq_pos_max(r[0]->cache, s) + 1;
        for (int b = 0; b < N_UBATCH; b++) {
            uint32_t n = 1 + (random = random * 1664525 + 1013904223, random >> 16) % N_TOKEN;

            for (uint32_t k = 0; k < n; k++) {
                random = random * 1664525 + 1013904223;
                seq[b][k] = (kvlazy_seq_id)((random >> 20) % 3);
                pos[b][k] = next[seq[b][k]]++;
            }
            u[b] = UBATCH(n, pos[b], seq[b]);
        }
        for (int b = 0; b < N_UBATCH && !status; b++)
            status = put_tokens(r[1], &u[b], 1);
        if (status != KVLAZY_EPOS) { /* a sequence emptied by recycling may start anywhere, and does */
            expect(put_tokens(r[0], u, N_UBATCH), status);
            if (!status)
                assert_string_equal(cells_text(r[0], 0), cells_text(r[1], 0));
        }
        for (int i = 0; i < 2; i++) {
            sound(r[i]);
            rig_free(r[i]);
        }
    }
}

static void the_second_ubatch_takes_what_the_first_freed(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[2] = {UBATCH(3, POS(0, 1, 2), SEQ(1, 1, 1)), UBATCH(2, POS(16, 17), SEQ(0, 0))};

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 2));
    ok(put_owned(r, 2, SEQ(0, 2), 2, 2));
    ok(put(r, 0, 4, 12));
    ok(kvlazy_seq_rm(r->cache, 2, 3, -1)); /* s2 keeps position 2 */
    ok(put_tokens(r, u, 2));               /* 0, 1, 3 go to s1, then 4 and 5 to s0 */
    cells_are(r, 0, "0..1=0..1/1 2=2/2 3=2/1 4..5=16..17/0 6..15=6..15/0");
    sound(r);
}

/* A sequence that the first ubatch takes everything from goes on in the second. */
static void a_sequence_may_be_taken_whole_and_go_on(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[2] = {UBATCH(4, POS(0, 1, 2, 3), SEQ(2, 2, 2, 2)), UBATCH(2, POS(2, 3), SEQ(1, 1))};

    open_window(r, 4, KVLAZY_SWA_CHUNKED, 2);
    ok(put(r, 1, 0, 2));
    ok(put(r, 0, 0, 2));
    ok(put_tokens(r, u, 2));
    seq_is(r, 0, -1, -1);
    seq_is(r, 1, 2, 3);
    seq_is(r, 2, 2, 3);
    sound(r);
}

/* A masked position named again, in a window of one. */
static void a_token_does_not_purge_itself(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[2] = {UBATCH(1, POS(0), SEQ(0)), UBATCH(1, POS(0), SEQ(0))};

    open_window(r, 1, KVLAZY_SWA_STANDARD, 1);
    ok(put_tokens(r, u, 2));
    cells_are(r, 0, "0=0/0");
    sound(r);
}

static int apply_planned(struct rig *r, const kvlazy_ubatch *u)
{
    return kvlazy_apply_ubatch(r->cache, &r->slot[0], u);
}

/* What a plan was made over must be there still. */
static void a_stale_victim_is_refused(void **state)
{
    const kvlazy_ubatch u = UBATCH(2, POS(0, 1), SEQ(1, 1));

    (void)state;
    for (int how = 0; how < 6; how++) {
        struct rig *r = window_rig(12, KVLAZY_SWA_STANDARD, 4);
        int want = KVLAZY_EINVAL;
        char *before;

        ok(put(r, 0, 0, 12));
        ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
        switch (how) {
        case 0: /* untouched */
            want = KVLAZY_OK;
            break;
        case 1: /* gone */
            ok(kvlazy_seq_rm(r->cache, 0, 1, 2));
            break;
        case 2: /* shared by now */
            ok(cp(r, 0, 2, 0, 1));
            break;
        case 3: /* another's by now */
            ok(cp(r, 0, 2, 0, 1));
            ok(kvlazy_seq_rm(r->cache, 0, 0, 1));
            break;
        case 4: /* not masked any more */
            ok(kvlazy_seq_rm(r->cache, 0, 3, -1));
            break;
        case 5: /* moved */
            ok(kvlazy_seq_add(r->cache, 0, -1, -1, 5));
            ok(kvlazy_shift_done(r->cache));
            break;
        }
        before = rig_dump(r);
        expect(apply_planned(r, &u), want);
        if (want)
            unchanged(r, before);
        else {
            free(before);
            write_rows(r, &r->slot[0]);
        }
        sound(r);
        rig_free(r);
    }
}

static void undo_empties_what_was_recycled(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(2, POS(0, 1), SEQ(1, 1));

    open_window(r, 12, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 12));
    ok(put_tokens(r, &u, 1));
    cells_are(r, 0, "0..1=0..1/1 2..11=2..11/0");
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    cells_are(r, 0, "2..11=2..11/0");
    seq_is(r, 0, 2, 11);
    seq_is(r, 1, -1, -1);
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    sound(r);
}

/* Undone, it may be applied again while its batch is open, over recycled cells too. */
static void undone_may_be_applied_again(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(2, POS(0, 1), SEQ(1, 1));

    open_window(r, 12, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 12));
    ok(put_tokens(r, &u, 1));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    ok(apply_planned(r, &u));
    write_rows(r, &r->slot[0]);
    cells_are(r, 0, "0..1=0..1/1 2..11=2..11/0");
    sound(r);
}

/* An undo can take a window too. What is then left must be where to go on, or nothing. */
static void undo_of_two_ubatches(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[2] = {
        UBATCH(13, POS(16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28), SEQ(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)),
        UBATCH(2, POS(29, 30), SEQ(0, 0))};

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 16));
    ok(put_tokens(r, u, 2)); /* lost: 0..14 */
    seq_is(r, 0, 15, 30);
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[1]));
    seq_is(r, 0, 15, 28);
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    seq_is(r, 0, -1, -1); /* 16 needs 13, 14 and 15 */
    sound(r);
}

/* ---- room ---- */

static void room_is_what_prepare_takes(void **state)
{
    uint32_t random = 99;

    (void)state;
    for (int trial = 0; trial < 200; trial++) {
        struct rig *r = window_rig(24, KVLAZY_SWA_STANDARD + trial % 3, 1 + (uint32_t)trial % 9);

        for (int i = 0; i < 12; i++) {
            kvlazy_seq_id seq = (kvlazy_seq_id)((random = random * 1664525 + 1013904223) >> 16) % 3;
            uint32_t n = (random >> 8) % 7, room;

            if (n == 6) {
                ok(cp(r, seq, 3, -1, -1));
                continue;
            }
            room = kvlazy_room(r->cache, seq);
            if (room)
                ok(dry(r, seq, kvlazy_seq_pos_max(r->cache, seq) + 1, room));
            expect(dry(r, seq, kvlazy_seq_pos_max(r->cache, seq) + 1, room + 1), KVLAZY_ENOSLOT);
            if (n && n <= room)
                ok(put(r, seq, kvlazy_seq_pos_max(r->cache, seq) + 1, n));
        }
        sound(r);
        rig_free(r);
    }
}

static void windows_out_of_range(void **state)
{
    struct rig *r = *state;

    r->params.swa_type = KVLAZY_SWA_SYMMETRIC + 1;
    r->params.n_swa = 4;
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_EINVAL);
    r->params.swa_type = -1;
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_EINVAL);
    r->params.swa_type = KVLAZY_SWA_STANDARD;
    r->params.n_swa = 0;
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_EINVAL);
    r->params.n_swa = 1000; /* wider than the cache: nothing is ever masked */
    rig_open(r);
    ok(put(r, 0, 0, 512));
    expect(put(r, 0, 512, 1), KVLAZY_ENOSLOT);
}

static void windows_at_the_last_positions(void **state)
{
    struct rig *r = *state;

    open_window(r, 8, KVLAZY_SWA_STANDARD, INT32_MAX);
    ok(put(r, 0, INT32_MAX - 9, 8));
    assert_int_equal(kvlazy_room(r->cache, 0), 0);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(put(r, 0, 0, 3));
    ok(put(r, 1, INT32_MAX - 6, 5));
    sound(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_masked_cell_and_no_other),
        cmocka_unit_test(masks_of_the_table),
        RIG_TEST(a_full_cache_slides),
        RIG_TEST(another_sequence_takes_them),
        RIG_TEST(empty_ones_first),
        RIG_TEST(oldest_position_first),
        RIG_TEST(a_sequence_in_disorder_too),
        RIG_TEST(shared_cells_are_spared),
        RIG_TEST(old_owners_are_left_without_gaps),
        RIG_TEST(each_stream_has_its_own),
        RIG_TEST(a_plan_over_masked_cells_is_dry),
        cmocka_unit_test(ubatch_after_ubatch),
        RIG_TEST(the_second_ubatch_takes_what_the_first_freed),
        RIG_TEST(a_sequence_may_be_taken_whole_and_go_on),
        RIG_TEST(a_token_does_not_purge_itself),
        cmocka_unit_test(a_stale_victim_is_refused),
        RIG_TEST(undo_empties_what_was_recycled),
        RIG_TEST(undone_may_be_applied_again),
        RIG_TEST(undo_of_two_ubatches),
        cmocka_unit_test(room_is_what_prepare_takes),
        RIG_TEST(windows_out_of_range),
        RIG_TEST(windows_at_the_last_positions),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
