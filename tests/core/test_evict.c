/* SPDX-License-Identifier: MIT */
/*
 * Which tokens go when a stream is over its target: longest idle first, tails first, by count; keep_tokens,
 * the shrink modes, shared cells, trims. test_evicted.c has who is asked and what comes after.
 */
#include "support.h"

#include <stdlib.h>
#include <string.h>

static void a_tail_goes(void **state)
{
    struct rig *r = *state;
    kvlazy_stats_info s;

    open_with(r, 1024, 256);
    turn_at(r, 1000, 0, 0, 600);
    r->fake.now = 1500;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    assert_int_equal(r->n_evict, 1);
    asked(r, 0, 0, 255);
    cells_are(r, 0, "0..255=0..255/0");
    s = stats(r);
    assert_int_equal(s.n_evict, 1);
    assert_int_equal(s.evicted_cells, 344);
    assert_int_equal(s.n_shrink, 1);
    assert_int_equal(s.cap_cells, 256);
    assert_int_equal(s.touched_bytes, cover(r));
    expect(put(r, 0, 600, 1), KVLAZY_EPOS);
    assert_int_equal(kvlazy_refused(r->cache), 0);
    turn_at(r, 1600, 0, 256, 300);
    cells_are(r, 0, "0..555=0..555/0");
    r->fake.now = 2100;
    ok(kvlazy_poll(r->cache, NULL));
    asked(r, 1, 0, 255);
    cells_are(r, 0, "0..255=0..255/0");
}

static void the_longest_idle_goes_first(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    open_with(r, 1024, 256);
    turn_at(r, 1300, 1, 0, 100);
    turn_at(r, 1000 + 350, 2, 0, 100);
    turn_at(r, 1400, 0, 0, 300);
    turn_at(r, 1410, 3, 0, 50); /* 550 live: 294 are too many */
    r->fake.now = 1799;
    ok(poll_next(r, &next));
    assert_int_equal(next, 1);
    assert_int_equal(stats(r).live_cells, 550);
    r->fake.now = 1800;
    ok(poll_next(r, &next));
    sound(r);
    asked(r, 0, 1, -1);
    assert_int_equal(stats(r).live_cells, 450);
    assert_int_equal(next, 50);
    r->fake.now = 2000;
    ok(poll_next(r, &next));
    sound(r);
    assert_int_equal(r->n_evict, 3);
    asked(r, 1, 2, -1);
    asked(r, 2, 0, 300 - 94 - 1);
    assert_true(next == UINT64_MAX);
    assert_int_equal(live_of(r, 0), 206);
    assert_int_equal(live_of(r, 3), 50);
    assert_int_equal(stats(r).touched_bytes, cover(r));
}

static void what_fits_loses_nothing(void **state)
{
    struct rig *r = *state;

    open_with(r, 1024, 256);
    turn_at(r, 1000, 0, 0, 200);
    turn_at(r, 1001, 1, 0, 56);
    for (int i = 0; i < 20; i++) {
        r->fake.now += 777;
        ok(kvlazy_poll(r->cache, NULL));
    }
    assert_int_equal(r->n_evict, 0);
    cells_are(r, 0, "0..199=0..199/0 200..255=0..55/1");
}

static void without_an_initial_size_nothing_is_evicted(void **state)
{
    struct rig *r = *state;

    open_with(r, 512, 0);
    turn_at(r, 1000, 0, 0, 512);
    r->fake.now += 100000;
    ok(kvlazy_poll(r->cache, NULL));
    cells_are(r, 0, "0..511=0..511/0");
    ok(kvlazy_clear(r->cache, true));
    r->params.kv_size_initial = 0;
    assert_int_equal(r->n_evict, 0);
}

static void an_active_sequence_keeps_no_others_memory(void **state)
{
    struct rig *r = *state;

    open_with(r, 2048, 256);
    turn_at(r, 1000, 0, 0, 200);
    turn_at(r, 1001, 1, 0, 600);
    for (uint64_t t = 1100; t <= 1600; t += 100) { /* s0 decodes all the time at 200 cells */
        r->fake.now = t;
        ok(kvlazy_seq_rm(r->cache, 0, 199, -1));
        ok(turn(r, 0, 199, 1));
        ok(kvlazy_poll(r->cache, NULL));
    }
    sound(r);
    assert_int_equal(r->n_evict, 1);
    asked(r, 0, 1, 55);
    cells_are(r, 0, "0..199=0..199/0 200..255=0..55/1");
}

static void streams_are_idle_alone(void **state)
{
    struct rig *r = *state;

    r->params.n_stream = r->params.n_seq_max = 2;
    r->params.flags = KVLAZY_NO_COMMIT_AHEAD; /* every touched page is under a token */
    open_with(r, 1024, 256);
    turn_at(r, 1000, 0, 0, 600);
    turn_at(r, 1001, 1, 0, 600);
    for (int i = 0; i < 10; i++) {
        turn_at(r, 1100 + 100u * (uint32_t)i, 0, 600 + i, 1);
        ok(kvlazy_poll(r->cache, NULL));
    }
    sound(r);
    cells_are(r, 0, "0..609=0..609/0");
    cells_are(r, 1, "0..255=0..255/1");
    assert_int_equal(stats(r).touched_bytes, cover(r));
}

static void never_polled_nothing_goes(void **state)
{
    struct rig *r = *state;

    open_with(r, 1024, 256);
    turn_at(r, 1000, 0, 0, 600);
    r->fake.now = 1000000;
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 600, 4));
    cells_are(r, 0, "0..603=0..603/0");
    ok(kvlazy_end_batch(r->cache));
    assert_int_equal(r->n_evict, 0);
}

static void init_shrinks_when_told(void **state)
{
    struct rig *r = *state;

    r->params.flags = KVLAZY_SHRINK_AT_INIT;
    open_with(r, 1024, 256);
    turn_at(r, 1000, 0, 0, 600);
    r->fake.now = 1499;
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_end_batch(r->cache));
    assert_int_equal(r->n_evict, 0);
    r->fake.now = 100000;
    ok(kvlazy_init_batch(r->cache));
    assert_int_equal(r->n_evict, 1);
    asked(r, 0, 0, 255);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    expect(put(r, 0, 600, 4), KVLAZY_EPOS);
    ok(put(r, 0, 256, 4));
    ok(kvlazy_end_batch(r->cache));
    sound(r);
    cells_are(r, 0, "0..259=0..259/0");
}

/* ---- modes ---- */

static void keep_drops_no_token(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    r->params.shrink = KVLAZY_SHRINK_KEEP;
    open_with(r, 2048, 256);
    turn_at(r, 1000, 0, 0, 1000);
    turn_at(r, 1001, 1, 0, 500);
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    r->fake.now = 1001 + 750;
    ok(poll_next(r, &next));
    sound(r);
    assert_int_equal(r->n_evict, 0);
    cells_are(r, 0, "0..999=0..999/0");
    assert_int_equal(stats(r).cap_cells, 1024);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    ok(kvlazy_trim(r->cache, 1));
    assert_int_equal(stats(r).live_cells, 1000);
    assert_int_equal(stats(r).n_evict, 0);
    ok(kvlazy_seq_rm(r->cache, 0, 400, 600)); /* part of a sequence may go, if the engine says so */
}

static void whole_drops_whole_sequences(void **state)
{
    struct rig *r = *state;

    r->params.shrink = KVLAZY_SHRINK_WHOLE;
    open_with(r, 2048, 256);
    turn_at(r, 1000, 0, 0, 300);
    turn_at(r, 1001, 1, 0, 200);
    turn_at(r, 1002, 2, 0, 50);
    r->fake.now = 1600;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    assert_int_equal(r->n_evict, 1);
    asked(r, 0, 0, -1);
    cells_are(r, 0, "0..199=0..199/1 200..249=0..49/2");
    turn_at(r, 1700, 0, 0, 10);
    ok(kvlazy_trim(r->cache, 255)); /* 260 live: the longest idle goes whole, though 5 cells would do */
    sound(r);
    asked(r, 1, 1, -1);
    assert_int_equal(stats(r).live_cells, 60);
}

static void kept_tokens_stay(void **state)
{
    struct rig *r = *state;

    r->params.keep_tokens = 200;
    open_with(r, 2048, 256);
    turn_at(r, 1000, 0, 0, 600);
    turn_at(r, 1001, 1, 0, 600);
    turn_at(r, 1002, 2, 0, 30);
    r->fake.now = 1600;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    assert_int_equal(r->n_evict, 2);
    asked(r, 0, 0, 199);
    asked(r, 1, 1, 199);
    cells_are(r, 0, "0..199=0..199/0 200..399=0..199/1 400..429=0..29/2");
    ok(kvlazy_trim(r->cache, 1));
    assert_int_equal(stats(r).live_cells, 430);
    assert_int_equal(r->n_evict, 2);
    assert_int_equal(stats(r).n_evict, 2);
}

static void kept_tokens_hold_a_whole_sequence(void **state)
{
    struct rig *r = *state;

    r->params.keep_tokens = 1;
    r->params.shrink = KVLAZY_SHRINK_WHOLE;
    open_with(r, 2048, 256);
    turn_at(r, 1000, 0, 0, 600);
    turn_at(r, 1001, 1, 1, 600); /* nothing below 1 */
    r->fake.now = 1600;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    cells_are(r, 0, "0..599=0..599/0");
    assert_int_equal(r->n_evict, 1);
    asked(r, 0, 1, -1);
}

/* ---- what else is counted ---- */

static void trim_to_a_count(void **state)
{
    struct rig *r = *state;

    r->params.n_stream = r->params.n_seq_max = 3;
    open_with(r, 1024, 0);
    turn_at(r, 1000, 0, 0, 100);
    turn_at(r, 1001, 1, 0, 300);
    turn_at(r, 1002, 2, 0, 1024);
    ok(kvlazy_trim(r->cache, UINT32_MAX));
    assert_int_equal(stats(r).live_cells, 1424);
    ok(kvlazy_trim(r->cache, 1024));
    assert_int_equal(r->n_evict, 0);
    ok(kvlazy_trim(r->cache, 150));
    sound(r);
    cells_are(r, 0, "0..99=0..99/0");
    cells_are(r, 1, "0..149=0..149/1");
    cells_are(r, 2, "0..149=0..149/2");
    assert_int_equal(r->n_evict, 2);
    assert_int_equal(stats(r).evicted_cells, 150 + 874);
    assert_int_equal(stats(r).touched_bytes, cover(r));
}

static void a_sequence_with_holes(void **state)
{
    struct rig *r = *state;

    open_with(r, 1024, 100);
    turn_at(r, 1000, 0, 0, 200);
    ok(kvlazy_seq_rm(r->cache, 0, 20, 60)); /* the engine's own hole stays, in positions */
    r->fake.now = 1500;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    asked(r, 0, 0, 139);
    cells_are(r, 0, "0..19=0..19/0 20..59=100..139/0 60..99=60..99/0");
}

static void repeated_positions_go_together(void **state)
{
    struct rig *r = *state;
    kvlazy_pos p[120];

    for (int i = 0; i < 120; i++)
        p[i] = i / 4;
    open_with(r, 1024, 98);
    ok(kvlazy_init_batch(r->cache));
    ok(put_list(r, 0, 120, p));
    ok(kvlazy_end_batch(r->cache));
    r->fake.now = 1500;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    asked(r, 0, 0, 23); /* 24 positions of 4 cells: 96; 98 would tear one */
    assert_int_equal(stats(r).live_cells, 96);
}

static void a_shared_cell_goes_with_its_last_owner(void **state)
{
    struct rig *r = *state;

    open_with(r, 2048, 256);
    ok(kvlazy_init_batch(r->cache));
    ok(put_owned(r, 2, SEQ(0, 1), 0, 100)); /* a shared prompt */
    ok(kvlazy_end_batch(r->cache));
    turn_at(r, 1100, 0, 100, 300);
    turn_at(r, 1400, 1, 100, 50);
    r->fake.now = 1600; /* s0 is idle, s1 and with it the prompt is not; 450 live */
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    asked(r, 0, 0, 205);
    assert_int_equal(r->n_evict, 1);
    cells_are(r, 0, "0..99=0..99/0+1 100..205=100..205/0 206..255=100..149/1");
    r->fake.now = 2000; /* all idle */
    ok(kvlazy_set_limits(r->cache, 60, UINT32_MAX, UINT64_MAX));
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    cells_are(r, 0, "0..59=0..59/0+1");
}

static void a_busy_owner_holds_a_shared_cell(void **state)
{
    struct rig *r = *state;

    open_with(r, 2048, 10);
    ok(kvlazy_init_batch(r->cache));
    ok(put_owned(r, 2, SEQ(0, 1), 0, 100));
    ok(kvlazy_end_batch(r->cache));
    turn_at(r, 1100, 0, 100, 300);
    turn_at(r, 1400, 1, 100, 50);
    r->fake.now = 1600;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    assert_int_equal(stats(r).live_cells, 150);
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 1), 0);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), 149);
    assert_true(kvlazy_seq_pos_max(r->cache, 0) <= 99);
}

static void limits_act_at_the_next_idle(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    open_with(r, 1024, 0);
    turn_at(r, 1000, 0, 0, 600);
    r->fake.now = 10000;
    ok(poll_next(r, &next));
    assert_int_equal(stats(r).live_cells, 600);
    ok(kvlazy_set_limits(r->cache, 128, UINT32_MAX, UINT64_MAX));
    assert_int_equal(stats(r).live_cells, 600);
    ok(poll_next(r, &next));
    assert_int_equal(stats(r).live_cells, 128);
    turn_at(r, 20000, 0, 128, 400);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, 2000, UINT64_MAX));
    ok(poll_next(r, &next));
    assert_int_equal(next, 2000);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, 0, UINT64_MAX));
    ok(poll_next(r, &next));
    assert_true(next == UINT64_MAX);
    r->fake.now = 90000;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(stats(r).live_cells, 528);
    ok(kvlazy_set_limits(r->cache, 0, 500, UINT64_MAX)); /* 0: kv_size again */
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(stats(r).live_cells, 528);
    ok(kvlazy_set_limits(r->cache, 100000, UINT32_MAX, UINT64_MAX)); /* above kv_size: kv_size */
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(stats(r).live_cells, 528);
    sound(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_tail_goes),
        RIG_TEST(the_longest_idle_goes_first),
        RIG_TEST(what_fits_loses_nothing),
        RIG_TEST(without_an_initial_size_nothing_is_evicted),
        RIG_TEST(an_active_sequence_keeps_no_others_memory),
        RIG_TEST(streams_are_idle_alone),
        RIG_TEST(never_polled_nothing_goes),
        RIG_TEST(init_shrinks_when_told),
        RIG_TEST(keep_drops_no_token),
        RIG_TEST(whole_drops_whole_sequences),
        RIG_TEST(kept_tokens_stay),
        RIG_TEST(kept_tokens_hold_a_whole_sequence),
        RIG_TEST(trim_to_a_count),
        RIG_TEST(a_sequence_with_holes),
        RIG_TEST(repeated_positions_go_together),
        RIG_TEST(a_shared_cell_goes_with_its_last_owner),
        RIG_TEST(a_busy_owner_holds_a_shared_cell),
        RIG_TEST(limits_act_at_the_next_idle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
