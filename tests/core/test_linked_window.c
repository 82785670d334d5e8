/* SPDX-License-Identifier: MIT */
/*
 * A window that cannot be filled empties its sequence in all linked caches, whichever of them was told first and
 * however little the window still held.
 */
#include "linked_support.h"

static void recycled(struct group *g)
{
    open_full_and_window(g);
    ok(turn_all(g, 0, 0, 60));
    ok(turn_all(g, 0, 60, 40)); /* 0..35 are gone from the window */
    ok(turn_all(g, 1, 0, 20));  /* and 36..55 */
    seq_is(g->r[1], 0, 56, 99);
}

static void begins_anew(struct group *g)
{
    all_end_at(g, 0, -1);
    all_end_at(g, 1, 19);
    all_sound(g);
    for (int i = 0; i < 2; i++) {
        expect(kvlazy_prepare(g->r[i]->cache, tokens(0, 60, 1), 1, g->slot), KVLAZY_EPOS);
        expect(kvlazy_prepare(g->r[i]->cache, tokens(0, 1, 1), 1, g->slot), KVLAZY_EPOS);
    }
    ok(turn_all(g, 0, 0, 5));
    all_end_at(g, 0, 4);
}

static void a_window_that_cannot_be_filled(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        void *one;
        struct group *g;

        group_setup(&one);
        g = one;
        recycled(g);
        ok(kvlazy_seq_rm(g->r[first]->cache, 0, 60, -1)); /* 60 sees 53 */
        ok(kvlazy_seq_rm(g->r[1 - first]->cache, 0, 60, -1));
        begins_anew(g);
        group_teardown(&one);
    }
}

static int remove_whole(kvlazy_cache *c)
{
    return kvlazy_seq_rm(c, 0, -1, -1);
}

static int remove_all(kvlazy_cache *c)
{
    return kvlazy_seq_rm(c, -1, -1, -1);
}

static int keep_the_other(kvlazy_cache *c)
{
    return kvlazy_seq_keep(c, 1);
}

static int clear(kvlazy_cache *c)
{
    return kvlazy_clear(c, false);
}

/* An engine that lets go of a sequence which one window emptied lets go of it in every cache: it starts anywhere. */
static void a_removal_of_the_whole_ends_it_in_all(void **state)
{
    static int (*const let_go[])(kvlazy_cache *) = {remove_whole, remove_all, keep_the_other, clear};

    (void)state;
    for (int i = 0; i < 8; i++) {
        void *one;
        struct group *g;

        group_setup(&one);
        g = one;
        recycled(g);
        ok(kvlazy_seq_rm(g->r[0]->cache, 0, 60, -1));
        ok(kvlazy_seq_rm(g->r[1]->cache, 0, 60, -1)); /* 60 sees 53 */
        for (int k = 0; k < 2; k++)
            ok(let_go[i / 2](g->r[k ^ (i & 1)]->cache));
        ok(turn_all(g, 0, 30, 3));
        all_end_at(g, 0, 32);
        group_teardown(&one);
    }
}

/* Nothing is left of it there, and the full one ends where the window would have to be. */
static void what_is_gone_from_the_window_altogether(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        void *one;
        struct group *g;

        group_setup(&one);
        g = one;
        recycled(g);
        ok(kvlazy_seq_rm(g->r[first]->cache, 0, 50, -1));
        ok(kvlazy_seq_rm(g->r[1 - first]->cache, 0, 50, -1));
        expect(turn_all(g, 0, 50, 1), KVLAZY_EPOS);
        begins_anew(g);
        group_teardown(&one);
    }
}

/* At the end of a chunk all of a sequence may be recycled, and going on is right. Going back is not. */
static void taken_whole(struct group *g)
{
    set_window(g->r[1], 8, 8);
    g->r[1]->params.swa_type = KVLAZY_SWA_CHUNKED;
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 8));
    ok(turn_all(g, 1, 0, 8));
    seq_is(g->r[0], 0, 0, 7);
    seq_is(g->r[1], 0, -1, -1);
}

static void taken_whole_it_may_go_on(void **state)
{
    struct group *g = *state;

    taken_whole(g);
    ok(turn_all(g, 0, 8, 1));
    all_end_at(g, 0, 8);
}

static void taken_whole_and_then_cut(void **state)
{
    struct group *g = *state;

    taken_whole(g);
    rm_all(g, 0, 5, -1); /* 5 sees 0 … 4 */
    expect(turn_all(g, 0, 5, 1), KVLAZY_EPOS);
    all_end_at(g, 0, -1);
    ok(turn_all(g, 0, 0, 1));
}

/* What is taken out of the middle is no place to go on at. */
static void taken_whole_and_then_thinned(void **state)
{
    struct group *g = *state;

    taken_whole(g);
    rm_all(g, 0, 2, 4);
    all_sound(g);
    seq_is(g->r[0], 0, 0, 7);
    ok(turn_all(g, 0, 8, 1));
    all_end_at(g, 0, 8);
}

/* A context shift: the front stays, which the window has lost, and what comes after it moves down to it. */
static void a_front_that_the_window_lost(void **state)
{
    struct group *g = *state;

    open_full_and_window(g);
    ok(turn_all(g, 0, 0, 60));
    ok(turn_all(g, 0, 60, 40));
    seq_is(g->r[1], 0, 36, 99);
    rm_all(g, 0, 30, 60);
    for (int i = 0; i < 2; i++) {
        ok(kvlazy_seq_add(g->r[i]->cache, 0, 60, -1, -30));
        ok(kvlazy_shift_done(g->r[i]->cache));
    }
    seq_is(g->r[0], 0, 0, 69);
    seq_is(g->r[1], 0, 30, 69);
    ok(turn_all(g, 0, 70, 1));
    rm_all(g, 0, 37, -1); /* 37 sees 30 */
    all_end_at(g, 0, 36);
    rm_all(g, 0, 36, -1); /* 36 sees 29 */
    all_end_at(g, 0, -1);
    all_sound(g);
    expect(turn_all(g, 0, 36, 1), KVLAZY_EPOS);
}

static void a_window_that_can(void **state)
{
    struct group *g = *state;

    recycled(g);
    rm_all(g, 0, 63, -1); /* 63 sees 56 */
    all_end_at(g, 0, 62);
    assert_int_equal(kvlazy_seq_pos_min(g->r[0]->cache, 0), 0);
    ok(turn_all(g, 0, 63, 1));
}

static void removed_whole_both_begin_anywhere(void **state)
{
    struct group *g = *state;

    recycled(g);
    rm_all(g, 0, 60, -1);
    all_end_at(g, 0, -1);
    rm_all(g, 0, -1, -1);
    ok(turn_all(g, 0, 60, 1));
    all_end_at(g, 0, 60);
}

/* Two ubatches, of which the second takes what the first would have left of the window. */
static void undo_both(struct group *g, uint32_t n_first, uint32_t n_second, kvlazy_pos left)
{
    kvlazy_pos p[2][64];
    kvlazy_seq_id s[64] = {0};
    kvlazy_ubatch u[2] = {UBATCH(n_first, p[0], s), UBATCH(n_second, p[1], s)};

    for (int i = 0; i < 64; i++) {
        p[0][i] = 64 + i;
        p[1][i] = 64 + (kvlazy_pos)n_first + i;
    }
    open_full_and_window(g);
    ok(turn_all(g, 0, 0, 64));
    ok(kvlazy_init_batch(g->r[0]->cache));
    for (int i = 0; i < 2; i++)
        ok(put_tokens(g->r[i], u, 2));
    assert_int_equal(kvlazy_seq_pos_min(g->r[1]->cache, 0), left);
    for (int k = 1; k >= 0; k--)
        for (int i = 1; i >= 0; i--)
            ok(kvlazy_undo_ubatch(g->r[i]->cache, &g->r[i]->slot[k]));
    ok(kvlazy_end_batch(g->r[0]->cache));
    all_sound(g);
    all_end_at(g, 0, -1);
    expect(turn_all(g, 0, 64, 1), KVLAZY_EPOS);
    ok(turn_all(g, 0, 0, 1));
}

static void an_undo_that_takes_the_window(void **state)
{
    undo_both(*state, 50, 10, 60); /* 60 … 63 are left, and 64 sees 57 */
}

static void an_undo_that_leaves_nothing(void **state)
{
    undo_both(*state, 50, 30, 80);
}

/* A copy of the front of what was recycled has no window either, whichever cache is told first. */
static void a_copy_without_a_window(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        void *one;
        struct group *g;

        group_setup(&one);
        g = one;
        recycled(g);
        ok(cp(g->r[first], 0, 2, 0, 60));
        ok(cp(g->r[1 - first], 0, 2, 0, 60));
        all_sound(g);
        assert_int_equal(max_of(g, 1, 2), -1);
        if (!first) /* told last, the window empties it in both */
            all_end_at(g, 2, -1);
        expect(turn_all(g, 2, 60, 1), KVLAZY_EPOS);
        rm_all(g, 2, -1, -1);
        ok(turn_all(g, 2, 0, 1));
        all_end_at(g, 2, 0);
        group_teardown(&one);
    }
}

/* Nothing is there to copy in the window, and all that came before it is in the full one. */
static void a_copy_of_what_the_window_lost(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        void *one;
        struct group *g;

        group_setup(&one);
        g = one;
        recycled(g);
        ok(cp(g->r[first], 0, 2, 0, 50));
        ok(cp(g->r[1 - first], 0, 2, 0, 50));
        all_sound(g);
        assert_int_equal(max_of(g, 1, 2), -1);
        expect(turn_all(g, 2, 50, 1), KVLAZY_EPOS);
        rm_all(g, 2, -1, -1);
        ok(turn_all(g, 2, 0, 1));
        group_teardown(&one);
    }
}

/* Some of the front of another that lost more: what this one lost after it is lost still. */
static void a_short_copy_brings_nothing_back(void **state)
{
    struct group *g = *state;

    open_full_and_window(g);
    ok(turn_all(g, 1, 0, 40));
    ok(turn_all(g, 0, 0, 20));
    ok(turn_all(g, 1, 40, 20));
    ok(turn_all(g, 1, 60, 20));
    seq_is(g->r[1], 0, 13, 19);
    seq_is(g->r[1], 1, 23, 79);
    for (int i = 0; i < 2; i++)
        ok(cp(g->r[i], 1, 0, 0, 2));
    all_end_at(g, 0, 19);
    all_sound(g);
    rm_all(g, 0, 14, -1); /* 14 sees 7 */
    all_end_at(g, 0, -1);
    expect(turn_all(g, 0, 14, 1), KVLAZY_EPOS);
}

/* The same calls on both, and nobody looks in between: what the first tears does not change what the second does. */
static void twins_move_shared_cells_alike(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 2; i++)
        set_window(g->r[i], 8, 4);
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 8));
    ok(turn_all(g, 0, 8, 4));
    for (int i = 0; i < 2; i++)
        ok(kvlazy_seq_cp(g->r[i]->cache, 0, 1, 8, -1));
    for (int i = 0; i < 2; i++)
        ok(kvlazy_seq_div(g->r[i]->cache, 0, -1, -1, 8));
    assert_string_equal(cells_text(g->r[0], 0), cells_text(g->r[1], 0));
    all_end_at(g, 0, -1);
    all_end_at(g, 1, 1);
}

static void twins_copy_onto_what_tears_alike(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 2; i++)
        set_window(g->r[i], 8, 4);
    open_linked(g, 2);
    ok(turn_all(g, 1, 0, 8));
    ok(turn_all(g, 1, 8, 4));
    rm_all(g, 1, 8, -1);
    ok(turn_all(g, 0, 5, 1));
    for (int i = 0; i < 2; i++)
        ok(kvlazy_seq_cp(g->r[i]->cache, 0, 1, 5, -1));
    assert_string_equal(cells_text(g->r[0], 0), cells_text(g->r[1], 0));
    all_end_at(g, 1, -1);
    expect(turn_all(g, 1, 6, 1), KVLAZY_EPOS);
    ok(turn_all(g, 1, 0, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_window_that_cannot_be_filled),
        cmocka_unit_test(a_removal_of_the_whole_ends_it_in_all),
        cmocka_unit_test(what_is_gone_from_the_window_altogether),
        GROUP_TEST(twins_move_shared_cells_alike),
        GROUP_TEST(twins_copy_onto_what_tears_alike),
        GROUP_TEST(taken_whole_it_may_go_on),
        GROUP_TEST(taken_whole_and_then_cut),
        GROUP_TEST(taken_whole_and_then_thinned),
        GROUP_TEST(a_front_that_the_window_lost),
        GROUP_TEST(a_window_that_can),
        GROUP_TEST(removed_whole_both_begin_anywhere),
        GROUP_TEST(an_undo_that_takes_the_window),
        GROUP_TEST(an_undo_that_leaves_nothing),
        cmocka_unit_test(a_copy_without_a_window),
        cmocka_unit_test(a_copy_of_what_the_window_lost),
        GROUP_TEST(a_short_copy_brings_nothing_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
