/* SPDX-License-Identifier: MIT */
/*
 * Position planes (M-RoPE): tokens with a position, a y and an x. Where they may go on, what the cells view
 * tells of them, and that an eviction takes a sequence whole, since a gap tells nothing.
 */
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

static void open_planes(struct rig *r, uint32_t n_plane)
{
    r->params.n_pos_per_token = n_plane;
    rig_open(r);
}

/* Text 0, 1, 2; an image of 2 × 2 at 3; text 9. Planes 4, the last of rubbish. */
static const kvlazy_pos picture[4 * 8] = {
    0,  1,  2,         3,         3,  3, 3, 9, /* position */
    0,  1,  2,         3,         3,  4, 4, 9, /* y */
    0,  1,  2,         3,         4,  3, 4, 9, /* x */
    -5, 70, INT32_MIN, INT32_MAX, -1, 0, 3, 1,
};

static void text_and_an_image(void **state)
{
    (void)state;
    for (uint32_t n_plane = 3; n_plane <= 4; n_plane++) {
        struct rig *r = rig_new();

        open_planes(r, n_plane);
        ok(put_planes(r, 0, 8, 0, picture));
        cells_are(r, 0, "0..3=0..3/0 4=3/0 5=3/0 6=3/0 7=9/0");
        planes_are(r, 0, "1=1,1 2=2,2 3=3,3 4=3,4 5=4,3 6=4,4 7=9,9");
        seq_is(r, 0, 0, 9);
        sound(r);
        ok(kvlazy_seq_rm(r->cache, 0, 3, 4));
        cells_are(r, 0, "0..2=0..2/0 7=9/0");
        planes_are(r, 0, "1=1,1 2=2,2 7=9,9");
        assert_int_equal(stats(r).live_cells, 4);
        sound(r);
        rig_free(r);
    }
}

static void planes_apart(void **state)
{
    static const uint32_t strides[] = {0, 5, 6, 100};

    (void)state;
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++) {
        struct rig *r = rig_new();
        uint32_t stride = strides[i] ? strides[i] : 5;
        kvlazy_pos pos[400];

        for (size_t k = 0; k < 400; k++)
            pos[k] = -77; /* never to be read */
        for (uint32_t k = 0; k < 5; k++) {
            pos[k] = (kvlazy_pos)k;
            pos[stride + k] = (kvlazy_pos)k + 10;
            pos[2 * stride + k] = (kvlazy_pos)k + 20;
        }
        open_planes(r, 3);
        ok(put_planes(r, 1, 5, strides[i], pos));
        cells_are(r, 0, "0..4=0..4/1");
        planes_are(r, 0, "0=10,20 1=11,21 2=12,22 3=13,23 4=14,24");
        sound(r);
        rig_free(r);
    }
}

static void one_plane_has_no_others(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 3));
    planes_are(r, 0, "none");
    assert_null(look(r, 0).ext_y);
}

/* y and x are the engine's: anything, negative too. */
static void planes_of_any_value(void **state)
{
    static const kvlazy_pos pos[] = {5, 6, -1, INT32_MIN, INT32_MAX, -9};
    struct rig *r = *state;

    open_planes(r, 3);
    ok(put_planes(r, 0, 2, 0, pos));
    planes_are(r, 0, "0=-1,2147483647 1=-2147483648,-9");
    sound(r);
}

/* ---- where it goes on ---- */

struct line {
    uint32_t n_first; /* first[], then second[] */
    kvlazy_pos first[4];
    uint32_t n_second;
    kvlazy_pos second[5];
    int status;
};

static int put_at(struct rig *r, kvlazy_seq_id seq, uint32_t n, const kvlazy_pos *pos)
{
    kvlazy_pos planes[4 * 8] = {0};

    for (uint32_t i = 0; i < n; i++)
        planes[i] = pos[i];
    return put_planes(r, seq, n, 8, planes);
}

static void anywhere_from_the_last_position_on(void **state)
{
    static const struct line table[] = {
        {2, {0, 1}, 1, {2}, KVLAZY_OK},
        {2, {0, 1}, 1, {1}, KVLAZY_OK},
        {2, {0, 1}, 1, {40}, KVLAZY_OK},
        {2, {0, 1}, 1, {0}, KVLAZY_EPOS},
        {2, {0, 9}, 1, {8}, KVLAZY_EPOS},
        {2, {0, 9}, 4, {9, 9, 30, 31}, KVLAZY_OK},
        {2, {0, 9}, 3, {12, 12, 15}, KVLAZY_OK},
        {2, {0, 9}, 3, {12, 11, 15}, KVLAZY_EPOS},
        {2, {0, 9}, 3, {12, 15, 14}, KVLAZY_EPOS},
        {2, {0, 9}, 1, {INT32_MAX - 1}, KVLAZY_OK},
        {2, {0, 9}, 1, {INT32_MAX}, KVLAZY_EINVAL},
        {1, {100}, 1, {100}, KVLAZY_OK},
        {3, {3, 3, 20}, 2, {20, 25}, KVLAZY_OK},
    };

    (void)state;
    for (uint32_t n_plane = 3; n_plane <= 4; n_plane++)
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
            struct rig *r = rig_new();
            char *before;
            int status;

            open_planes(r, n_plane);
            ok(put_at(r, 0, table[i].n_first, table[i].first));
            before = rig_dump(r);
            status = put_at(r, 0, table[i].n_second, table[i].second);
            if (status != table[i].status)
                print_error("row %zu\n", i);
            expect(status, table[i].status);
            if (status)
                unchanged(r, before);
            else
                free(before);
            sound(r);
            rig_free(r);
        }
}

/* Over the ubatches of one batch too. */
static void ubatches_go_on(void **state)
{
    static const kvlazy_pos a[] = {5, 5, 1, 2, 3, 4}, b[] = {5, 9, 1, 2, 3, 4}, c[] = {8, 9, 1, 2, 3, 4};
    struct rig *r = *state;
    kvlazy_ubatch good[2] = {UBATCH(2, a, SEQ(0, 0)), UBATCH(2, b, SEQ(0, 0))};
    kvlazy_ubatch bad[2] = {UBATCH(2, b, SEQ(0, 0)), UBATCH(2, c, SEQ(0, 0))};

    open_planes(r, 3);
    ok(put_at(r, 0, 1, POS(0)));
    expect(put_tokens(r, bad, 2), KVLAZY_EPOS);
    ok(put_tokens(r, good, 2));
    cells_are(r, 0, "0=0/0 1=5/0 2=5/0 3=5/0 4=9/0");
    sound(r);
}

/* ---- planes go with their cell ---- */

static void removal_resets_the_planes(void **state)
{
    struct rig *r = *state;

    open_planes(r, 3);
    ok(put_planes(r, 0, 8, 8, picture));
    ok(put_planes(r, 1, 2, 2, POS(0, 1, 60, 61, 70, 71)));
    ok(kvlazy_seq_cp(r->cache, 0, 2, 3, 4));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    planes_are(r, 0, "3=3,3 4=3,4 5=4,3 6=4,4 8=60,70 9=61,71");
    ok(kvlazy_seq_keep(r->cache, 1));
    planes_are(r, 0, "8=60,70 9=61,71");
    sound(r);
    ok(put_at(r, 0, 3, POS(0, 0, 0)));
    planes_are(r, 0, "8=60,70 9=61,71"); /* what comes there later has its own */
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    ok(kvlazy_clear(r->cache, false));
    planes_are(r, 0, "");
    sound(r);
}

static void undo_resets_the_planes(void **state)
{
    struct rig *r = *state;

    open_planes(r, 4);
    ok(put_planes(r, 0, 8, 8, picture));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    planes_are(r, 0, "");
    sound(r);
}

static void the_range_of_dst_across_streams(void **state)
{
    struct rig *r = *state;

    r->params.n_stream = 3;
    r->params.n_seq_max = 3;
    open_planes(r, 3);
    ok(put_planes(r, 0, 8, 8, picture));
    ok(put_planes(r, 1, 3, 3, POS(2, 3, 4, 50, 51, 52, 60, 61, 62)));
    ok(cp(r, 0, 1, 3, 9));
    seq_is(r, 1, 2, 3);
    assert_int_equal(stats(r).live_cells, 8 + 1 + 4);
    planes_are(r, 1, "0=50,60 1=3,3 2=3,4 3=4,3 4=4,4"); /* lowest free: those of 3 and 4 that it had */
    sound(r);
    ok(cp(r, 1, 2, -1, -1));
    planes_are(r, 2, "0=50,60 1=3,3 2=3,4 3=4,3 4=4,4");
    sound(r);
}

static void a_shared_cell_has_one_pair(void **state)
{
    struct rig *r = *state;

    open_planes(r, 3);
    ok(put_planes(r, 0, 8, 8, picture));
    ok(cp(r, 0, 1, -1, -1));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    planes_are(r, 0, "1=1,1 2=2,2 3=3,3 4=3,4 5=4,3 6=4,4 7=9,9");
    cells_are(r, 0, "0..3=0..3/1 4=3/1 5=3/1 6=3/1 7=9/1");
    ok(put_at(r, 1, 1, POS(9)));
    sound(r);
}

static void no_shifts(void **state)
{
    (void)state;
    for (uint32_t n_plane = 3; n_plane <= 4; n_plane++) {
        struct rig *r = rig_new();
        char *before;

        open_planes(r, n_plane);
        ok(put_planes(r, 0, 8, 8, picture));
        before = rig_dump(r);
        expect(kvlazy_seq_add(r->cache, 0, -1, -1, 1), KVLAZY_ENOTSUP);
        expect(kvlazy_seq_add(r->cache, 0, -1, -1, -100), KVLAZY_ENOTSUP);
        expect(kvlazy_seq_div(r->cache, 0, 3, -1, 2), KVLAZY_ENOTSUP);
        expect(kvlazy_seq_add(r->cache, 7, -1, -1, 1), KVLAZY_EINVAL);
        unchanged(r, before);
        shifts_are(r, 0, "none");
        ok(kvlazy_shift_done(r->cache));
        sound(r);
        rig_free(r);
    }
}

/* ---- eviction ---- */

static int turn_planes(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    kvlazy_pos *planes = calloc(4u * n, sizeof *planes);
    int status;

    assert_non_null(planes);
    for (uint32_t i = 0; i < n; i++)
        planes[i] = planes[n + i] = planes[2 * n + i] = pos + (kvlazy_pos)i;
    ok(kvlazy_init_batch(r->cache));
    status = put_planes(r, seq, n, n, planes);
    ok(kvlazy_end_batch(r->cache));
    free(planes);
    return status;
}

static void eviction_takes_it_whole(void **state)
{
    (void)state;
    for (uint32_t n_plane = 3; n_plane <= 4; n_plane++)
        for (int trim = 0; trim < 2; trim++) {
            struct rig *r = rig_new();

            r->params.kv_size = 1024;
            r->params.kv_size_initial = 256;
            open_planes(r, n_plane);
            ok(turn_planes(r, 0, 0, 600));
            r->fake.now += 500;
            ok(trim ? kvlazy_trim(r->cache, 599) : kvlazy_poll(r->cache, NULL));
            seq_is(r, 0, -1, -1);
            assert_int_equal(r->n_evict, 1);
            assert_int_equal(r->evict[0].seq, 0);
            assert_int_equal(r->evict[0].pos, -1);
            assert_int_equal(stats(r).touched_bytes, 0);
            planes_are(r, 0, "");
            sound(r);
            expect(turn_planes(r, 0, 600, 1), KVLAZY_EPOS);
            assert_int_equal(kvlazy_refused(r->cache), 0);
            expect(turn_planes(r, 0, 1, 1), KVLAZY_EPOS);
            ok(turn_planes(r, 0, 0, 1));
            ok(turn_planes(r, 0, 600, 1)); /* gaps are allowed to it now */
            sound(r);
            rig_free(r);
        }
}

static void evicted_and_removed_whole(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 10;
    open_planes(r, 4);
    ok(turn_planes(r, 0, 0, 100));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    ok(kvlazy_seq_rm(r->cache, 0, 50, -1));
    expect(turn_planes(r, 0, 100, 1), KVLAZY_EPOS);
    ok(kvlazy_seq_rm(r->cache, 0, 0, -1));
    ok(turn_planes(r, 0, 100, 1));
    sound(r);
}

static void the_longest_idle_goes_whole(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 40;
    open_planes(r, 3);
    ok(turn_planes(r, 1, 0, 30));
    r->fake.now += 10;
    ok(turn_planes(r, 0, 0, 30));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    seq_is(r, 1, -1, -1);
    seq_is(r, 0, 0, 29);
    cells_are(r, 0, "0..29=0..29/0");
    sound(r);
}

/* Of several cells at one position none goes without the others. */
static void keep_tokens_holds_it_whole(void **state)
{
    struct rig *r = *state;
    char *before;

    r->params.kv_size_initial = 10;
    r->params.keep_tokens = 5;
    open_planes(r, 3);
    ok(turn_planes(r, 0, 0, 60));
    r->fake.now += 500;
    before = rig_dump(r);
    ok(kvlazy_poll(r->cache, NULL));
    unchanged(r, before); /* position 0 is never evicted, and so nothing of it is */
    ok(kvlazy_clear(r->cache, true));
    ok(turn_planes(r, 0, 5, 60));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    seq_is(r, 0, -1, -1);
    sound(r);
}

/* ---- arguments ---- */

static void numbers_of_planes(void **state)
{
    static const uint32_t bad[] = {2, 5, 6, 100, UINT32_MAX};
    struct rig *r = *state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        r->params.n_pos_per_token = bad[i];
        expect(kvlazy_create(&r->params, &r->cache), KVLAZY_EINVAL);
    }
    r->params.n_pos_per_token = 0;
    rig_open(r);
    ok(put(r, 0, 0, 1));
    planes_are(r, 0, "none");
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, 1));
}

/* Windows and planes at once: recycling takes by position, and all of the planes with it. */
static void planes_in_a_window(void **state)
{
    struct rig *r = *state;

    r->params.kv_size = 8;
    r->params.swa_type = KVLAZY_SWA_STANDARD;
    r->params.n_swa = 4;
    open_planes(r, 3);
    ok(put_planes(r, 0, 8, 8, picture)); /* at 10, all below 7 is masked */
    assert_int_equal(kvlazy_room(r->cache, 1), 7);
    ok(put_planes(r, 1, 2, 2, POS(0, 1, 8, 8, 9, 9)));
    cells_are(r, 0, "0..1=0..1/1 2..3=2..3/0 4=3/0 5=3/0 6=3/0 7=9/0");
    planes_are(r, 0, "0=8,9 1=8,9 2=2,2 3=3,3 4=3,4 5=4,3 6=4,4 7=9,9");
    ok(put_planes(r, 1, 2, 2, POS(1, 1, 5, 6, 7, 8))); /* of position 3 one goes, and so all */
    seq_is(r, 0, 9, 9);
    assert_int_equal(stats(r).live_cells, 5);
    planes_are(r, 0, "0=8,9 1=8,9 2=5,7 3=6,8 7=9,9");
    sound(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_an_image),
        cmocka_unit_test(planes_apart),
        RIG_TEST(one_plane_has_no_others),
        RIG_TEST(planes_of_any_value),
        cmocka_unit_test(anywhere_from_the_last_position_on),
        RIG_TEST(ubatches_go_on),
        RIG_TEST(removal_resets_the_planes),
        RIG_TEST(undo_resets_the_planes),
        RIG_TEST(the_range_of_dst_across_streams),
        RIG_TEST(a_shared_cell_has_one_pair),
        cmocka_unit_test(no_shifts),
        cmocka_unit_test(eviction_takes_it_whole),
        RIG_TEST(evicted_and_removed_whole),
        RIG_TEST(the_longest_idle_goes_whole),
        RIG_TEST(keep_tokens_holds_it_whole),
        RIG_TEST(numbers_of_planes),
        RIG_TEST(planes_in_a_window),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
