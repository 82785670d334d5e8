/* SPDX-License-Identifier: MIT */
/*
 * What the cache remembers of a sequence beside its tokens: that eviction took some, that recycling did, when it was
 * used. A call that moves or copies nothing changes none of it; a copy that is refused is remembered; and with
 * KVLAZY_SHRINK_WHOLE no call leaves part of a sequence.
 */
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

/* ---- calls that do nothing ---- */

/* s0 0 … 99 cut to 0 … 49 by eviction, and then emptied by a bounded removal, so that only the mark is left. */
static void cut_and_emptied(struct rig *r)
{
    r->params.kv_size_initial = 50;
    rig_open(r);
    ok(turn(r, 0, 0, 100));
    r->fake.now += 1000;
    settle(r);
    seq_is(r, 0, 0, 49);
    ok(kvlazy_seq_rm(r->cache, 0, 0, 100));
}

static void a_copy_of_nothing_wipes_no_mark(void **state)
{
    struct rig *r = *state;

    cut_and_emptied(r);
    ok(put(r, 1, 0, 4));
    ok(kvlazy_seq_cp(r->cache, 2, 0, -1, -1));  /* nobody */
    ok(kvlazy_seq_cp(r->cache, 1, 0, 10, 20));  /* nothing there */
    ok(kvlazy_seq_cp(r->cache, 1, 0, 3, 3));    /* an empty range */
    ok(kvlazy_seq_cp(r->cache, 0, 0, -1, -1));  /* itself */
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, 5)); /* has nothing */
    ok(kvlazy_seq_div(r->cache, 0, -1, -1, 2));
    expect(put(r, 0, 100, 1), KVLAZY_EPOS);
    ok(put(r, 0, 0, 1));
    sound(r);
}

/* With tokens of its own dst was marked as its source is, though nothing came. */
static void a_copy_of_nothing_brings_no_mark(void **state)
{
    struct rig *r = *state;

    cut_and_emptied(r);
    ok(turn(r, 1, 0, 4));
    ok(kvlazy_seq_cp(r->cache, 0, 1, 10, 20));
    ok(kvlazy_seq_rm(r->cache, 1, 0, 100));
    ok(put(r, 1, 70, 1)); /* it lost nothing, and was emptied by the engine */
    sound(r);
}

static void a_copy_of_nothing_keeps_a_mark(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 50;
    rig_open(r);
    ok(turn(r, 0, 0, 100));
    r->fake.now += 1000;
    settle(r);
    seq_is(r, 0, 0, 49);
    ok(put(r, 1, 0, 4));
    ok(kvlazy_seq_cp(r->cache, 1, 0, 60, 70)); /* nothing there, and s0 has tokens */
    ok(kvlazy_seq_rm(r->cache, 0, 0, 1000));
    expect(put(r, 0, 100, 1), KVLAZY_EPOS);
    sound(r);
}

/* What is idle stays idle. */
static void nothing_is_no_activity(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    r->params.kv_size_initial = 4;
    rig_open(r);
    turn_at(r, 1000, 0, 0, 1);
    turn_at(r, 1000, 1, 0, 8);
    r->fake.now = 1499;
    ok(kvlazy_seq_cp(r->cache, 0, 1, 20, 30));
    ok(kvlazy_seq_add(r->cache, 1, 20, 30, 5));
    ok(kvlazy_seq_add(r->cache, 1, -1, -1, 0));
    ok(kvlazy_seq_div(r->cache, 1, -1, -1, 1));
    ok(kvlazy_seq_div(r->cache, 0, -1, -1, 7)); /* 0 stays 0 */
    ok(kvlazy_seq_rm(r->cache, 1, 20, 30));
    ok(kvlazy_seq_keep(r->cache, 1));
    r->fake.now = 1500;
    ok(poll_next(r, &next));
    seq_is(r, 1, 0, 3);
    sound(r);
}

/* Keeping what is alone makes nothing due. */
static void a_keep_of_all_is_nothing(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    rig_open(r);
    ok(turn(r, 0, 0, 4));
    settle(r);
    ok(kvlazy_seq_keep(r->cache, 0));
    ok(poll_next(r, &next));
    assert_true(next == UINT64_MAX);
}

/* A window that is empty, and was not emptied by eviction, is left as it is by a removal of nothing. */
static void a_removal_of_nothing_tears_no_window(void **state)
{
    struct rig *r = *state;

    open_window(r, 8, KVLAZY_SWA_CHUNKED, 4);
    ok(put(r, 0, 0, 8));
    ok(put(r, 0, 8, 4));
    seq_is(r, 0, 4, 11);
    ok(put(r, 1, 0, 4));
    seq_is(r, 0, 8, 11);
    ok(kvlazy_seq_rm(r->cache, 0, 8, -1)); /* 8 begins a chunk: nothing is missing */
    seq_is(r, 0, -1, -1);
    ok(kvlazy_seq_rm(r->cache, 0, 5, 6));
    ok(kvlazy_seq_cp(r->cache, 2, 0, 5, 6));
    expect(put(r, 0, 6, 1), KVLAZY_EPOS); /* 6 would see 4 and 5 */
    ok(put(r, 0, 8, 1));
    sound(r);
}

/* ---- every owner of a cell that moves ---- */

/* s0 and s1 share 8 … 15, of which recycling took 0 … 7 from both. A shift of s0 brings what was lost into the window
 * of both. */
static void share_a_window(struct rig *r)
{
    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 16));
    ok(put(r, 2, 0, 8));
    seq_is(r, 0, 8, 15);
    ok(cp(r, 0, 1, -1, -1));
    ok(kvlazy_seq_rm(r->cache, 2, -1, -1));
}

/* Of s1 8 and 15 are left, of s0 15 alone. */
static void leave_the_last(struct rig *r)
{
    share_a_window(r);
    ok(kvlazy_seq_rm(r->cache, 0, 8, 15));
    ok(kvlazy_seq_rm(r->cache, 1, 9, 15));
}

static void a_shift_looks_at_every_window(void **state)
{
    struct rig *r = *state;

    leave_the_last(r);
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, -5)); /* 11 sees 8, 9 and 10 */
    seq_is(r, 0, 10, 10);
    seq_is(r, 1, 8, 10);
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, -1)); /* 10 would see 7 */
    seq_is(r, 1, -1, -1);
    sound(r);
    ok(kvlazy_shift_done(r->cache));
    expect(put(r, 1, 10, 1), KVLAZY_EPOS);
    ok(put(r, 1, 0, 1));
    sound(r);
}

static void a_division_looks_at_every_window(void **state)
{
    struct rig *r = *state;

    leave_the_last(r);
    ok(kvlazy_seq_div(r->cache, 0, -1, -1, 2)); /* 15 becomes 7, and 9 would see 6 and 7 of s1 */
    seq_is(r, 1, -1, -1);
    sound(r);
}

/* ---- when a sequence was used ---- */

/* A failed prepare closes the batch, and the next init_batch ends it. The bracket that it opens stamps nothing. */
static void init_batch_ends_what_a_failed_prepare_closed(void **state)
{
    struct rig *r = *state;

    open_with(r, 512, 16);
    turn_at(r, 1000, 0, 0, 40);
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 40, 1));
    expect(put(r, 0, 70, 1), KVLAZY_EPOS);
    r->fake.now = 1100;
    ok(kvlazy_init_batch(r->cache));
    r->fake.now = 1500;
    ok(kvlazy_end_batch(r->cache));
    r->fake.now = 1599;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(r->n_evict, 0);
    r->fake.now = 1600;
    ok(kvlazy_poll(r->cache, NULL));
    asked(r, 0, 0, 15);
    sound(r);
}

/* ---- refused copies ---- */

/* What says no: no cell, no bytes, no memory of our own is there. */
static void full_destination(struct rig *r)
{
    r->params.n_stream = r->params.n_seq_max = 2;
    open_with(r, 64, 0);
    ok(put(r, 0, 0, 64));
}

static void a_refused_copy_is_remembered(void **state)
{
    struct rig *r = *state;
    char *before;

    r->params.n_stream = r->params.n_seq_max = 3;
    open_with(r, 64, 0);
    ok(put(r, 0, 0, 32));
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, stats(r).touched_bytes));
    before = rig_dump(r);
    expect(kvlazy_seq_cp(r->cache, 0, 1, -1, -1), KVLAZY_EBUDGET);
    unchanged(r, before);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, 0));
    expect(put(r, 1, 32, 1), KVLAZY_EPOS); /* there is no past to go on from */
    assert_int_equal(kvlazy_refused(r->cache), 1);
    ok(put(r, 2, 32, 1)); /* no copy onto this one failed */
    ok(put(r, 1, 0, 1));
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_seq_rm(r->cache, 1, 0, 100));
    ok(put(r, 1, 32, 1)); /* it began anew since */
    sound(r);
}

static void then_it_is_removed_whole(void **state)
{
    struct rig *r = *state;

    full_destination(r);
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, stats(r).touched_bytes));
    expect(kvlazy_seq_cp(r->cache, 0, 1, -1, -1), KVLAZY_EBUDGET);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, 0));
    ok(kvlazy_seq_rm(r->cache, 1, 3, -1)); /* not whole */
    expect(put(r, 1, 32, 1), KVLAZY_EPOS);
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    ok(put(r, 1, 32, 1));
    sound(r);
}

static void then_it_is_copied_after_all(void **state)
{
    struct rig *r = *state;

    full_destination(r);
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, stats(r).touched_bytes));
    expect(kvlazy_seq_cp(r->cache, 0, 1, -1, -1), KVLAZY_EBUDGET);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, 0));
    ok(cp(r, 0, 1, -1, 20));
    ok(kvlazy_seq_rm(r->cache, 1, 0, 1000));
    ok(put(r, 1, 20, 1));
    sound(r);
}

static void a_destination_with_tokens_goes_on(void **state)
{
    struct rig *r = *state;

    full_destination(r);
    ok(put(r, 1, 100, 40));
    expect(kvlazy_seq_cp(r->cache, 0, 1, -1, 50), KVLAZY_ENOSLOT);
    ok(kvlazy_seq_rm(r->cache, 1, 0, 1000));
    ok(put(r, 1, 32, 1)); /* what it holds says where it ends, so nothing was believed */
    sound(r);
}

static void a_plan_made_before_the_refusal(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(1, POS(64), SEQ(1));
    char *before;

    full_destination(r);
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, stats(r).touched_bytes + 2 * 4096 * 6));
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    expect(kvlazy_seq_cp(r->cache, 0, 1, -1, -1), KVLAZY_EBUDGET);
    before = rig_dump(r);
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EPOS);
    unchanged(r, before);
    sound(r);
}

/* ---- whole sequences ---- */

static void open_whole(struct rig *r, uint32_t n_stream)
{
    r->params.shrink = KVLAZY_SHRINK_WHOLE;
    r->params.n_stream = n_stream;
    rig_open(r);
    ok(put(r, 0, 0, 10));
    ok(put(r, 1, 0, 4));
}

#define WHOLE(call)                   \
    do {                              \
        before = rig_dump(r);         \
        expect(call, KVLAZY_ENOTSUP); \
        unchanged(r, before);         \
    } while (0)

static void no_copy_leaves_a_part(struct rig *r)
{
    char *before;

    WHOLE(kvlazy_seq_cp(r->cache, 0, 2, 0, 5));  /* of a part */
    WHOLE(kvlazy_seq_cp(r->cache, 0, 2, 9, -1)); /* of its tail */
    WHOLE(kvlazy_seq_cp(r->cache, 0, 1, 0, 2));  /* of a part over a part */
    WHOLE(kvlazy_seq_cp(r->cache, 2, 0, 5, -1)); /* of nothing over a part */
    WHOLE(kvlazy_seq_cp(r->cache, 1, 0, -1, 4)); /* of a whole over a part */
    ok(cp(r, 1, 0, 20, 30));                     /* of nothing over nothing */
    ok(cp(r, 1, 2, 0, 4));                       /* of all there is */
    seq_is(r, 2, 0, 3);
    ok(cp(r, 0, 1, -1, -1)); /* over a whole */
    seq_is(r, 1, 0, 9);
    ok(cp(r, 3, 1, -1, -1)); /* of nothing over a whole */
    seq_is(r, 1, -1, -1);
    sound(r);
}

static void whole_copies_in_a_stream(void **state)
{
    open_whole(*state, 1);
    no_copy_leaves_a_part(*state);
}

static void whole_copies_across_streams(void **state)
{
    open_whole(*state, 4);
    no_copy_leaves_a_part(*state);
}

static void no_shift_leaves_a_part(void **state)
{
    struct rig *r = *state;
    char *before;

    open_whole(r, 1);
    WHOLE(kvlazy_seq_add(r->cache, 0, -1, -1, -1));
    WHOLE(kvlazy_seq_add(r->cache, 0, -1, -1, -9));
    WHOLE(kvlazy_seq_add(r->cache, 0, 3, 5, -4)); /* 3 alone falls */
    ok(kvlazy_seq_add(r->cache, 0, 3, 5, -3));    /* nothing falls */
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, 2));
    ok(kvlazy_seq_div(r->cache, 0, -1, -1, 3));
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, -100)); /* all of it */
    seq_is(r, 0, -1, -1);
    seq_is(r, 1, 0, 3);
    sound(r);
}

/* All of s0 falls, but s1 shares it and has more. */
static void nor_part_of_another_owner(void **state)
{
    struct rig *r = *state;
    char *before;

    open_whole(r, 1);
    ok(cp(r, 1, 2, -1, -1));
    ok(put(r, 1, 4, 2));
    WHOLE(kvlazy_seq_add(r->cache, 2, -1, -1, -4));
    WHOLE(kvlazy_seq_add(r->cache, 1, -1, 4, -4));
    ok(kvlazy_seq_add(r->cache, 1, -1, -1, -6)); /* both go whole */
    seq_is(r, 1, -1, -1);
    seq_is(r, 2, -1, -1);
    sound(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_copy_of_nothing_wipes_no_mark),
        RIG_TEST(a_copy_of_nothing_brings_no_mark),
        RIG_TEST(a_copy_of_nothing_keeps_a_mark),
        RIG_TEST(nothing_is_no_activity),
        RIG_TEST(a_keep_of_all_is_nothing),
        RIG_TEST(a_removal_of_nothing_tears_no_window),
        RIG_TEST(a_shift_looks_at_every_window),
        RIG_TEST(a_division_looks_at_every_window),
        RIG_TEST(init_batch_ends_what_a_failed_prepare_closed),
        RIG_TEST(a_refused_copy_is_remembered),
        RIG_TEST(then_it_is_removed_whole),
        RIG_TEST(then_it_is_copied_after_all),
        RIG_TEST(a_destination_with_tokens_goes_on),
        RIG_TEST(a_plan_made_before_the_refusal),
        RIG_TEST(whole_copies_in_a_stream),
        RIG_TEST(whole_copies_across_streams),
        RIG_TEST(no_shift_leaves_a_part),
        RIG_TEST(nor_part_of_another_owner),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
