/* SPDX-License-Identifier: MIT */
/*
 * Sequences by name: which are kept, which ids there are, what an eviction leaves of them, and cells of very many
 * owners. Copies are test_copy's, moves test_shift's.
 */
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

/* ---- keeping ---- */

static void keep_drops_the_others_of_its_stream(void **state)
{
    struct rig *r = *state;

    streams_of(r, 3);
    for (kvlazy_seq_id s = 0; s < 3; s++)
        ok(put(r, s, 0, 4));
    ok(kvlazy_seq_keep(r->cache, 1));
    for (kvlazy_seq_id s = 0; s < 3; s++)
        seq_is(r, s, 0, 3); /* other streams keep theirs, and in its own it is alone */
    sound(r);
}

static void keep_in_a_unified_cache(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 5));
    ok(put(r, 1, 0, 3));
    ok(cp(r, 0, 2, 1, 4));
    ok(put(r, 2, 4, 2));
    ok(kvlazy_seq_add(r->cache, 2, 3, -1, 1));
    ok(kvlazy_seq_keep(r->cache, 2));
    cells_are(r, 0, "1..2=1..2/2 3=4/2 8..9=5..6/2");
    shifts_are(r, 0, "3=1 8=1 9=1");
    seq_is(r, 0, -1, -1);
    seq_is(r, 1, -1, -1);
    seq_is(r, 2, 1, 6);
    sound(r);
    ok(kvlazy_shift_done(r->cache));
    ok(put(r, 0, 77, 1));             /* the others may begin anywhere */
    ok(kvlazy_seq_keep(r->cache, 3)); /* of one that is empty nothing is kept */
    cells_are(r, 0, "");
    assert_int_equal(stats(r).live_cells, 0);
    sound(r);
}

/* ---- ids ---- */

static void ids_out_of_range_change_nothing(void **state)
{
    static const kvlazy_seq_id bad[] = {-1, -2, 4, 1000, INT32_MIN, INT32_MAX};

    (void)state;
    for (uint32_t n_stream = 1; n_stream <= 4; n_stream += 3) {
        struct rig *r = rig_new();
        char *before;

        r->params.n_stream = n_stream;
        rig_open(r);
        ok(put(r, 0, 0, 5));
        before = rig_dump(r);
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
            expect(kvlazy_seq_cp(r->cache, bad[i], 0, -1, -1), KVLAZY_EINVAL);
            expect(kvlazy_seq_cp(r->cache, 0, bad[i], -1, -1), KVLAZY_EINVAL);
            expect(kvlazy_seq_cp(r->cache, bad[i], bad[i], -1, -1), KVLAZY_EINVAL);
            expect(kvlazy_seq_cp(r->cache, 0, bad[i], 3, 2), KVLAZY_EINVAL);
            expect(kvlazy_seq_keep(r->cache, bad[i]), KVLAZY_EINVAL);
            expect(kvlazy_seq_add(r->cache, bad[i], -1, -1, 1), KVLAZY_EINVAL);
            expect(kvlazy_seq_add(r->cache, bad[i], -1, -1, 0), KVLAZY_EINVAL);
            expect(kvlazy_seq_div(r->cache, bad[i], -1, -1, 2), KVLAZY_EINVAL);
        }
        expect(kvlazy_seq_cp(NULL, 0, 1, -1, -1), KVLAZY_EINVAL);
        expect(kvlazy_seq_keep(NULL, 0), KVLAZY_EINVAL);
        expect(kvlazy_seq_add(NULL, 0, -1, -1, 1), KVLAZY_EINVAL);
        expect(kvlazy_seq_div(NULL, 0, -1, -1, 2), KVLAZY_EINVAL);
        expect(kvlazy_shift_done(NULL), KVLAZY_EINVAL);
        unchanged(r, before);
        sound(r);
        rig_free(r);
    }
}

/* ---- after an eviction ---- */

static void a_copy_onto_what_eviction_emptied(void **state)
{
    struct rig *r = *state;

    r->params.shrink = KVLAZY_SHRINK_WHOLE;
    streams_of(r, 3);
    ok(turn(r, 0, 0, 20));
    ok(kvlazy_trim(r->cache, 1));
    seq_is(r, 0, -1, -1); /* whole, or nothing of it */
    expect(put(r, 0, 20, 1), KVLAZY_EPOS);
    ok(put(r, 1, 100, 4));
    ok(cp(r, 1, 0, -1, -1)); /* the engine gave it new tokens */
    ok(put(r, 0, 104, 1));
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_seq_rm(r->cache, 0, 0, 1000));
    ok(put(r, 0, 50, 1)); /* emptied by the engine, bounded or not: eviction has no part in it */
    sound(r);
}

static void keep_of_another_forgets_an_eviction(void **state)
{
    struct rig *r = *state;

    r->params.shrink = KVLAZY_SHRINK_WHOLE;
    rig_open(r);
    ok(turn(r, 0, 0, 20));
    r->fake.now += 10;
    ok(turn(r, 1, 0, 20));
    ok(kvlazy_trim(r->cache, 20));
    seq_is(r, 0, -1, -1);
    expect(put(r, 0, 20, 1), KVLAZY_EPOS);
    ok(kvlazy_seq_keep(r->cache, 1));
    ok(put(r, 0, 20, 1));
    sound(r);
}

static void keep_of_itself_does_not(void **state)
{
    struct rig *r = *state;

    r->params.shrink = KVLAZY_SHRINK_WHOLE;
    rig_open(r);
    ok(turn(r, 0, 0, 20));
    r->fake.now += 10;
    ok(turn(r, 1, 0, 20));
    ok(kvlazy_trim(r->cache, 20));
    ok(kvlazy_seq_keep(r->cache, 0));
    expect(put(r, 0, 20, 1), KVLAZY_EPOS);
    ok(put(r, 0, 0, 1));
    sound(r);
}

/* A cell of two sequences goes when both of them lost it, one in the turn of a third. */
static void an_owner_that_lost_it_holds_nothing(void **state)
{
    static const kvlazy_seq_id a[] = {0, 2}, b[] = {2, 3};
    static const kvlazy_seq_id *const owners[] = {a, b};
    static const int32_t two[] = {2, 2};
    struct rig *r = *state;
    kvlazy_ubatch u = {.n_token = 2, .pos = POS(5, 5), .n_seq_id = two, .seq_id = owners};

    rig_open(r);
    ok(put_tokens(r, &u, 1));
    ok(kvlazy_end_batch(r->cache));
    for (int i = 0; i < 3; i++) {
        r->fake.now += 10;
        ok(turn(r, SEQ(3, 2, 0)[i], 6, 1));
    }
    r->fake.now += 10;
    ok(turn(r, 1, 0, 1));
    cells_are(r, 0, "0=5/0+2 1=5/2+3 2=6/3 3=6/2 4=6/0 5=0/1");
    ok(kvlazy_trim(r->cache, 1)); /* all but the youngest */
    cells_are(r, 0, "0=0/1");
    sound(r);
}

/* ---- many owners ---- */

static void many_owners(void **state)
{
    static const uint32_t counts[] = {1, 2, 63, 64, 65, 100, 128, 1000, 4096};

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct rig *r = rig_new();
        uint32_t n = counts[i];
        kvlazy_seq_id last = (kvlazy_seq_id)n - 1;

        r->params.n_seq_max = n;
        rig_open(r);
        ok(put(r, 0, 0, 10));
        for (kvlazy_seq_id s = 1; s <= last; s++)
            ok(cp(r, 0, s, 0, s % 7 + 1));
        assert_int_equal(stats(r).live_cells, 10);
        for (kvlazy_seq_id s = 1; s <= last; s++)
            seq_is(r, s, 0, s % 7);
        sound(r);
        ok(kvlazy_seq_add(r->cache, last, -1, -1, 3));
        if (n > 1) {
            assert_int_equal(kvlazy_seq_pos_min(r->cache, 1), n == 2 || last % 7 >= 1 ? 3 : 1);
            for (uint32_t s = 0; s < n; s++)
                assert_true(is_owner(r->cache, 0, 0, s));
        }
        sound(r);
        ok(kvlazy_shift_done(r->cache));
        for (kvlazy_seq_id s = 0; s < last; s++)
            ok(kvlazy_seq_rm(r->cache, s, -1, -1));
        assert_int_equal(stats(r).live_cells, n == 1 ? 10 : (uint32_t)(last % 7 + 1));
        sound(r);
        ok(kvlazy_seq_rm(r->cache, last, -1, -1));
        cells_are(r, 0, "");
        sound(r);
        rig_free(r);
    }
}

/* The owners named in a batch, all of them in one. */
static void a_token_of_a_thousand(void **state)
{
    static kvlazy_seq_id all[1000];

    (void)state;
    for (uint32_t n = 100; n <= 1000; n += 900) {
        struct rig *r = rig_new();

        r->params.n_seq_max = n;
        rig_open(r);
        for (uint32_t s = 0; s < n; s++)
            all[s] = (kvlazy_seq_id)(n - 1 - s);
        ok(put_owned(r, (int)n, all, 0, 5));
        sound(r);
        for (uint32_t s = 0; s < n; s++)
            seq_is(r, (kvlazy_seq_id)s, 0, 4);
        assert_int_equal(stats(r).live_cells, 5);
        ok(kvlazy_seq_rm(r->cache, 0, 2, -1));
        expect(put_owned(r, (int)n, all, 5, 1), KVLAZY_EPOS);
        assert_int_equal(kvlazy_refused(r->cache), 0);
        ok(put_owned(r, (int)n - 1, all, 5, 1));
        ok(kvlazy_seq_add(r->cache, 1, -1, -1, -2)); /* 0 and 1 go, for s0 too */
        seq_is(r, 0, -1, -1);
        seq_is(r, (kvlazy_seq_id)n - 1, 0, 3);
        assert_int_equal(stats(r).live_cells, 4);
        sound(r);
        ok(kvlazy_seq_keep(r->cache, 77));
        seq_is(r, 77, 0, 3);
        seq_is(r, 78, -1, -1);
        sound(r);
        rig_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(keep_drops_the_others_of_its_stream),     RIG_TEST(keep_in_a_unified_cache),
        cmocka_unit_test(ids_out_of_range_change_nothing), RIG_TEST(a_copy_onto_what_eviction_emptied),
        RIG_TEST(keep_of_another_forgets_an_eviction),     RIG_TEST(keep_of_itself_does_not),
        RIG_TEST(an_owner_that_lost_it_holds_nothing),     cmocka_unit_test(many_owners),
        cmocka_unit_test(a_token_of_a_thousand),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
