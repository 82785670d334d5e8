/* SPDX-License-Identifier: MIT */
/*
 * The idle clock: what poll answers when, how free pages decay one by one, in a busy stream too, and what
 * trim and clear give back at once. No token is lost in this file; test_evict.c has the rest.
 */
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

/* Does the cache hold exactly the pages of its live cells, by its own word and by the fake's, unless it leaves the
 * first touch to those who write? */
static void holds_only_cover(struct rig *r)
{
    uint64_t want = cover(r);

    assert_int_equal(stats(r).touched_bytes, want);
    assert_int_equal(r->fake.committed_bytes, r->params.flags & KVLAZY_NO_COMMIT_AHEAD ? 0 : want);
}

static void nothing_was_written(void **state)
{
    struct rig *r = *state;
    static const uint64_t times[] = {0, 1, 1000, 1u << 20, UINT64_MAX / 2};
    uint64_t next;

    r->params.kv_size_initial = 16;
    rig_open(r);
    fake_forget(&r->fake);
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        r->fake.now = times[i];
        ok(poll_next(r, &next));
        assert_true(next == UINT64_MAX);
        ok(kvlazy_poll(r->cache, NULL));
    }
    assert_int_equal(r->fake.n_call[FAKE_COMMIT] + r->fake.n_call[FAKE_DECOMMIT], 0);
    assert_int_equal(r->n_evict, 0);
    assert_int_equal(stats(r).n_shrink, 0);
}

static void idle_time_is_exact(void **state)
{
    struct rig *r = *state;
    uint64_t next;
    char *before;

    r->params.kv_size_initial = 256;
    rig_open(r);
    ok(turn(r, 0, 0, 500));
    before = rig_dump(r);
    r->fake.now = 1200;
    ok(poll_next(r, &next));
    assert_int_equal(next, 300);
    r->fake.now = 1499;
    ok(poll_next(r, &next));
    assert_int_equal(next, 1);
    unchanged(r, before);
    r->fake.now = 1500;
    ok(poll_next(r, &next));
    assert_true(next == UINT64_MAX);
    sound(r);
    cells_are(r, 0, "0..255=0..255/0");
    holds_only_cover(r);
    assert_true(cells_zero(r, 0, 256, 512));
    fake_forget(&r->fake);
    r->fake.now = 100000;
    ok(poll_next(r, &next));
    assert_true(next == UINT64_MAX);
    assert_int_equal(r->fake.n_call[FAKE_DECOMMIT], 0);
}

static void a_clock_that_steps_back(void **state)
{
    struct rig *r = *state;
    uint64_t next;
    char *before;

    r->params.kv_size_initial = 256;
    rig_open(r);
    ok(turn(r, 0, 0, 500));
    ok(kvlazy_seq_rm(r->cache, 0, 400, -1));
    before = rig_dump(r);
    r->fake.now = 900;
    ok(poll_next(r, &next));
    assert_in_range(next, 1, 100000);
    r->fake.now = 0;
    ok(poll_next(r, &next));
    assert_in_range(next, 1, 100000);
    unchanged(r, before);
    r->fake.now = 5000;
    settle(r);
    sound(r);
    cells_are(r, 0, "0..255=0..255/0");
}

static void an_open_batch_holds_everything(void **state)
{
    struct rig *r = *state;
    uint64_t next;
    char *before;

    r->params.kv_size_initial = 256;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 300, 100));
    before = rig_dump(r);
    r->fake.now = 1000000;
    expect(poll_next(r, &next), KVLAZY_EBUSY);
    assert_int_equal(next, 500);
    unchanged(r, before);
    ok(kvlazy_end_batch(r->cache));
    before = rig_dump(r);
    ok(poll_next(r, &next));
    assert_int_equal(next, 500);
    r->fake.now += 499;
    ok(poll_next(r, &next));
    assert_int_equal(next, 1);
    unchanged(r, before);
    r->fake.now += 1;
    ok(poll_next(r, &next));
    cells_are(r, 0, "0..255=0..255/0");
}

static void a_bracket_without_prepare_stamps_nothing(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    r->params.kv_size_initial = 256;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    r->fake.now = 1400;
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_end_batch(r->cache));
    ok(dry(r, 0, 300, 1)); /* prepared and never applied: the same */
    ok(poll_next(r, &next));
    assert_int_equal(next, 100);
    r->fake.now = 1500;
    ok(poll_next(r, &next));
    cells_are(r, 0, "0..255=0..255/0");
}

static void init_ends_a_batch_left_open(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    r->params.kv_size_initial = 256;
    rig_open(r);
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 0, 300));
    r->fake.now = 3000;
    ok(kvlazy_init_batch(r->cache)); /* here the first one ends: stamped */
    r->fake.now = 3400;
    ok(kvlazy_end_batch(r->cache));
    ok(poll_next(r, &next));
    assert_int_equal(next, 100);
    assert_int_equal(stats(r).live_cells, 300);
}

static void tokens_of_a_batch_that_a_refusal_closed(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    r->params.kv_size_initial = 256;
    rig_open(r);
    r->fake.now = 50000;
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 0, 300));
    expect(put(r, 0, 400, 1), KVLAZY_EPOS);
    ok(kvlazy_end_batch(r->cache));
    r->fake.now += 1;
    ok(poll_next(r, &next)); /* they are a millisecond old */
    assert_int_equal(stats(r).live_cells, 300);
    sound(r);
}

/* ---- decay ---- */

static void free_pages_decay(void **state)
{
    struct rig *r = *state;
    uint64_t next;
    char *before;

    r->params.kv_size_initial = 400;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(turn(r, 1, 0, 100));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    before = rig_dump(r);
    r->fake.now += 499;
    ok(poll_next(r, &next));
    assert_in_range(next, 1, 251);
    unchanged(r, before);
    r->fake.now += 251;
    ok(poll_next(r, &next));
    sound(r);
    cells_are(r, 0, "0..99=0..99/1");
    holds_only_cover(r);
    assert_int_equal(r->n_evict, 0);
    assert_int_equal(stats(r).moved_cells, 100);
    assert_int_equal(stats(r).released_bytes, r->fake.decommitted_bytes);
}

/* s0 leaves 300 cells free below s1: it keeps its tokens, at cells 0..99, once it has come to rest and not before. */
static void what_stays_moves_down(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    r->params.kv_size_initial = 256;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(turn(r, 1, 0, 100));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    r->fake.now += 499;
    ok(poll_next(r, &next));
    cells_are(r, 0, "300..399=0..99/1");
    r->fake.now += 1;
    ok(kvlazy_init_batch(r->cache));
    expect(poll_next(r, &next), KVLAZY_EBUSY);
    cells_are(r, 0, "300..399=0..99/1");
    ok(kvlazy_end_batch(r->cache)); /* without an apply it stamps nothing */
    cells_are(r, 0, "300..399=0..99/1");
    ok(poll_next(r, &next));
    sound(r);
    cells_are(r, 0, "0..99=0..99/1");
    assert_int_equal(stats(r).moved_cells, 100);
    assert_int_equal(stats(r).n_evict, 0);
    assert_int_equal(r->n_evict, 0);
    holds_only_cover(r);
    assert_true(next == UINT64_MAX);
    assert_true(cells_zero(r, 0, 100, 512));
    ok(turn(r, 1, 100, 1)); /* it goes on where it was */
    cells_are(r, 0, "0..100=0..100/1");
    sound(r);
}

static void pages_of_an_undone_slot_decay_like_any(void **state)
{
    struct rig *r = *state;
    char *before;

    rig_open(r);
    ok(turn(r, 0, 0, 10));
    r->fake.now = 50000;
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 10, 300));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    ok(kvlazy_end_batch(r->cache));
    before = rig_dump(r);
    r->fake.now += 499;
    ok(kvlazy_poll(r->cache, NULL));
    unchanged(r, before);
    r->fake.now += 251;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    cells_are(r, 0, "0..9=0..9/0");
    holds_only_cover(r);
}

static void a_page_used_again_starts_anew(void **state)
{
    struct rig *r = *state;
    char *before;

    rig_open(r);
    ok(turn(r, 0, 0, 200));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1)); /* free at 1000 */
    r->fake.now = 1450;
    ok(turn(r, 1, 0, 200));
    ok(kvlazy_seq_rm(r->cache, 1, 20, -1)); /* free again at 1450 */
    before = rig_dump(r);
    for (r->fake.now = 1460; r->fake.now < 1950; r->fake.now += 10) {
        ok(kvlazy_poll(r->cache, NULL));
        ok(kvlazy_init_batch(r->cache));
        ok(kvlazy_end_batch(r->cache));
    }
    unchanged(r, before);
    r->fake.now = 1450 + 750;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    holds_only_cover(r);
}

/* Does it hold those, and of the cells up to 32 behind a stream's end at most what it made ready for the next tokens?
 */
static void holds_little_more(struct rig *r, uint32_t end)
{
    enum { AHEAD = 32 };
    uint32_t stream[AHEAD] = {0}, cell[AHEAD];

    for (uint32_t i = 0; i < AHEAD; i++)
        cell[i] = end + i;
    assert_in_range(stats(r).touched_bytes, cover(r), cover_with(r, AHEAD, stream, cell));
    assert_int_equal(stats(r).touched_bytes, r->fake.committed_bytes);
}

static void give_back_beside(struct rig *r, uint32_t flags)
{
    uint64_t drop;
    kvlazy_pos p = 100;

    r->params.flags = flags;
    r->params.kv_size = 8192;
    rig_open(r);
    ok(turn(r, 0, 0, 6000));
    ok(turn(r, 1, 0, 100));
    r->fake.now = 20000;
    ok(turn(r, 1, p++, 1));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    drop = r->fake.now;
    for (r->fake.now += 20; r->fake.now <= drop + 750; r->fake.now += 20) {
        ok(turn(r, 1, p++, 1));
        if (r->fake.now < drop + 500)
            assert_int_equal(stats(r).released_bytes, 0);
    }
    r->fake.now = drop + 750;
    ok(turn(r, 1, p++, 1));
    sound(r);
    assert_int_equal(r->n_evict, 0);
    if (flags & KVLAZY_NO_COMMIT_AHEAD)
        holds_only_cover(r);
    else
        holds_little_more(r, (uint32_t)p - 101); /* 101 tokens are where they were */
    assert_int_equal(stats(r).live_cells, p);
    assert_int_equal(stats(r).moved_cells, 0);
    assert_true(cells_zero(r, 0, 200, 5900));
    assert_int_equal(look(r, 0).pos[6000], 0);
}

static void a_busy_stream_gives_back_too(void **state)
{
    give_back_beside(*state, KVLAZY_NO_COMMIT_AHEAD);
}

static void a_busy_stream_keeps_some_cells_ready(void **state)
{
    give_back_beside(*state, 0);
}

static void one_long_prompt_is_not_paid_for_ever(void **state)
{
    struct rig *r = *state;
    uint64_t drop, next_turn;

    r->params.kv_size = 8192;
    r->params.slot_shrink_idle_ms = 30000;
    rig_open(r);
    ok(turn(r, 0, 0, 6000));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    drop = r->fake.now;
    next_turn = drop + 10000;
    while (r->fake.now < drop + 45000) {
        uint64_t next;

        ok(poll_next(r, &next)); /* an engine sleeps no longer than this */
        if (next > next_turn - r->fake.now)
            next = next_turn - r->fake.now;
        r->fake.now = next < drop + 45000 - r->fake.now ? r->fake.now + next : drop + 45000;
        if (r->fake.now < drop + 30000)
            assert_int_equal(stats(r).released_bytes, 0);
        if (r->fake.now == next_turn) {
            ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
            ok(turn(r, 0, 0, 300));
            next_turn += 10000;
        }
    }
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    holds_only_cover(r);
    assert_int_equal(stats(r).live_cells, 300);
}

/* One end_batch gives back at most 64 MiB of cells; poll gives back the rest. Rows are never written here. */
static void end_batch_works_in_pieces(void **state)
{
    struct rig *r = *state;
    static const size_t rows[1][2] = {{1 << 20, 1 << 19}};
    const uint64_t piece = 64 << 20;
    uint64_t released = 0;
    kvlazy_pos p[400];
    kvlazy_seq_id s[400] = {0};
    kvlazy_ubatch u = UBATCH(400, p, s), one = UBATCH(1, POS(0), SEQ(1));

    for (int i = 0; i < 400; i++)
        p[i] = i;
    rig_rows(r, 1, rows);
    rig_open(r);
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
    ok(kvlazy_end_batch(r->cache));
    assert_int_equal(stats(r).touched_bytes, 400u * (3u << 19));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    r->fake.now += 750;
    ok(kvlazy_prepare(r->cache, &one, 1, r->slot));
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &one));
    for (int i = 0; i < 12; i++) {
        ok(i ? kvlazy_init_batch(r->cache) : KVLAZY_OK);
        ok(kvlazy_end_batch(r->cache));
        assert_true(stats(r).released_bytes - released <= piece + 2 * (3u << 19));
        assert_true(i || stats(r).released_bytes);
        released = stats(r).released_bytes;
    }
    assert_int_equal(released, 399u * (3u << 19));
    r->n_tensor = 0; /* the teardown shall not look at rows */
}

static void without_an_idle_time_nothing_goes_by_itself(void **state)
{
    struct rig *r = *state;
    uint64_t next;
    char *before;

    r->params.kv_size_initial = 16;
    r->params.slot_shrink_idle_ms = 0;
    rig_open(r);
    ok(turn(r, 0, 0, 400));
    ok(kvlazy_seq_rm(r->cache, 0, 300, -1));
    before = rig_dump(r);
    r->fake.now += 1000000000;
    ok(poll_next(r, &next));
    assert_true(next == UINT64_MAX);
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_end_batch(r->cache));
    unchanged(r, before);
    ok(kvlazy_trim(r->cache, 0));
    sound(r);
    cells_are(r, 0, "0..299=0..299/0");
    holds_only_cover(r);
}

/* Whatever was left behind, sleeping as long as poll says gives back everything within 1.5 idle times. */
static void sleeping_as_told_is_enough(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        struct rig *r = rig_new();
        uint32_t x = seed * 2654435761u;

        r->params.n_stream = seed % 2 ? 1 : 4;
        r->params.n_seq_max = 4;
        r->params.kv_size = 700;
        r->params.kv_size_initial = seed % 3 * 150;
        rig_open(r);
        for (int i = 0; i < 30; i++) {
            kvlazy_seq_id s = (kvlazy_seq_id)((x = x * 1664525 + 1013904223) >> 30);
            uint32_t n = (x >> 8) % 90 + 1;

            if (x >> 20 & 1)
                ok(kvlazy_seq_rm(r->cache, s, (kvlazy_pos)(x >> 10 & 63), -1));
            else if (kvlazy_room(r->cache, s) >= n)
                turn(r, s, kvlazy_seq_pos_max(r->cache, s) + 1, n);
            r->fake.now += x >> 16 & 255;
        }
        assert_true(settle(r) <= 750);
        sound(r);
        assert_true(is_packed(r));
        holds_only_cover(r);
        for (uint32_t s = 0; r->n_stream == 4 && s < 4 && r->params.kv_size_initial; s++) {
            kvlazy_cells_view v = {.struct_size = sizeof v};
            uint32_t live = 0;

            ok(kvlazy_cells(r->cache, s, &v));
            for (uint32_t c = 0; c < v.n_cell; c++)
                live += v.pos[c] >= 0;
            assert_true(live <= r->params.kv_size_initial);
        }
        rig_free(r);
    }
}

/* ---- trim and clear ---- */

static void trim_gives_back_at_once(void **state)
{
    struct rig *r = *state;
    uint64_t released;

    r->params.kv_size = 8192;
    r->params.kv_size_initial = 64;
    rig_open(r);
    ok(turn(r, 0, 0, 1000));
    ok(turn(r, 1, 0, 2000));
    ok(turn(r, 0, 1000, 1000));
    ok(turn(r, 2, 0, 4000));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(kvlazy_seq_rm(r->cache, 2, 3000, -1));
    assert_int_equal(stats(r).live_cells, 5000);
    ok(kvlazy_trim(r->cache, 0));
    sound(r);
    assert_int_equal(stats(r).live_cells, 5000);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), 1999);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 2), 2999);
    assert_int_equal(r->n_evict, 0);
    cells_are(r, 0, "0..999=1000..1999/2 1000..2999=0..1999/1 3000..3999=2000..2999/2 4000..4999=0..999/2");
    assert_int_equal(stats(r).moved_cells, 2000);
    holds_only_cover(r);
    released = stats(r).released_bytes;
    assert_int_equal(released, r->fake.decommitted_bytes);
    ok(kvlazy_trim(r->cache, 0));
    assert_int_equal(stats(r).released_bytes, released);
    ok(kvlazy_trim(r->cache, 256));
    sound(r);
    assert_int_equal(stats(r).live_cells, 256);
    assert_true(is_packed(r));
    holds_only_cover(r);
}

static void clear_keeps_or_gives_back(void **state)
{
    struct rig *r = *state;
    uint64_t touched, released;

    r->params.n_stream = r->params.n_seq_max = 3;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(turn(r, 2, 0, 200));
    touched = stats(r).touched_bytes;
    ok(kvlazy_clear(r->cache, false));
    sound(r);
    assert_int_equal(stats(r).live_cells, 0);
    assert_int_equal(stats(r).touched_bytes, touched);
    r->fake.now += 499;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(stats(r).touched_bytes, touched);
    settle(r);
    holds_only_cover(r);
    assert_int_equal(stats(r).released_bytes, touched);
    ok(turn(r, 1, 0, 400));
    touched = stats(r).touched_bytes;
    released = stats(r).released_bytes;
    ok(kvlazy_clear(r->cache, true));
    sound(r);
    assert_int_equal(stats(r).touched_bytes, 0);
    assert_int_equal(r->fake.committed_bytes, 0);
    assert_int_equal(stats(r).released_bytes, released + touched);
    for (uint32_t s = 0; s < 3; s++)
        assert_true(cells_zero(r, s, 0, 512));
    ok(kvlazy_clear(r->cache, true));
    assert_int_equal(stats(r).released_bytes, released + touched);
    ok(turn(r, 1, 5, 400)); /* and it works as before */
    sound(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(nothing_was_written),
        RIG_TEST(idle_time_is_exact),
        RIG_TEST(a_clock_that_steps_back),
        RIG_TEST(an_open_batch_holds_everything),
        RIG_TEST(a_bracket_without_prepare_stamps_nothing),
        RIG_TEST(init_ends_a_batch_left_open),
        RIG_TEST(tokens_of_a_batch_that_a_refusal_closed),
        RIG_TEST(free_pages_decay),
        RIG_TEST(what_stays_moves_down),
        RIG_TEST(pages_of_an_undone_slot_decay_like_any),
        RIG_TEST(a_page_used_again_starts_anew),
        RIG_TEST(a_busy_stream_gives_back_too),
        RIG_TEST(a_busy_stream_keeps_some_cells_ready),
        RIG_TEST(one_long_prompt_is_not_paid_for_ever),
        RIG_TEST(end_batch_works_in_pieces),
        RIG_TEST(without_an_idle_time_nothing_goes_by_itself),
        cmocka_unit_test(sleeping_as_told_is_enough),
        RIG_TEST(trim_gives_back_at_once),
        RIG_TEST(clear_keeps_or_gives_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
