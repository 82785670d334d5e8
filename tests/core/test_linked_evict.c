/* SPDX-License-Identifier: MIT */
/*
 * What eviction takes from one of several linked caches, and so from all: how far, in which order, what one keeps for
 * all, who is asked, and the cells of twins, that must stay the same.
 */
#include "linked_support.h"

/* ---- eviction ---- */

static void whole_where_one_has_a_window(void **state)
{
    struct group *g = *state;

    open_full_and_window(g);
    ok(turn_all(g, 0, 0, 60));
    for (int i = 60; i < 600; i += 30)
        ok(turn_all(g, 0, i, 30));
    later(g, 1);
    ok(turn_all(g, 1, 0, 20));
    assert_int_equal(stats(g->r[0]).live_cells, 620);
    later(g, 499);
    ok(kvlazy_poll(g->r[1]->cache, NULL));
    all_sound(g);
    all_end_at(g, 0, -1);
    all_end_at(g, 1, 19);
    assert_int_equal(n_asked(g), 1);
    asked(g->r[1], 0, 0, -1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stats(g->r[i]).n_evict, 1);
        assert_int_equal(stats(g->r[i]).live_cells, 20);
        assert_int_equal(stats(g->r[i]).touched_bytes, cover(g->r[i]));
        expect(kvlazy_prepare(g->r[i]->cache, tokens(0, 600, 1), 1, g->slot), KVLAZY_EPOS);
        expect(kvlazy_prepare(g->r[i]->cache, tokens(0, 1, 1), 1, g->slot), KVLAZY_EPOS);
    }
    ok(turn_all(g, 0, 0, 5));
}

/* What the window is over, the full one loses too, however much room it has. */
static void the_full_one_loses_what_the_window_must(void **state)
{
    struct group *g = *state;

    set_window(g->r[0], 64, 8);
    g->r[0]->params.kv_size_initial = 12;
    open_linked(g, 2);
    ok(turn_all(g, 2, 0, 10));
    later(g, 1);
    ok(turn_all(g, 1, 0, 10));
    later(g, 1);
    ok(turn_all(g, 0, 0, 10)); /* 3 masked of each, 7 not */
    later(g, 500);
    ok(kvlazy_poll(g->r[1]->cache, NULL));
    all_sound(g);
    all_end_at(g, 2, -1);
    all_end_at(g, 1, -1);
    all_end_at(g, 0, 9);
    assert_int_equal(stats(g->r[0]).live_cells, 10);
    assert_int_equal(n_asked(g), 2);
    asked(g->r[1], 0, 2, -1);
    asked(g->r[1], 1, 1, -1);
}

static void masked_cells_go_alone(void **state)
{
    struct group *g = *state;

    set_window(g->r[1], 64, 8);
    g->r[1]->params.kv_size_initial = 20;
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 60));
    later(g, 500);
    ok(kvlazy_poll(g->r[0]->cache, NULL));
    all_sound(g);
    cells_are(g->r[0], 0, "0..59=0..59/0");
    cells_are(g->r[1], 0, "0..19=40..59/0");
    assert_int_equal(n_asked(g), 1);
    asked(g->r[0], 0, 0, 59);
    ok(turn_all(g, 0, 60, 3));
    agree(g);
}

static void dense_ones_are_cut_alike(void **state)
{
    struct group *g = *state;

    g->r[0]->params.kv_size_initial = 200;
    g->r[1]->params.kv_size_initial = 150;
    g->r[2]->params.kv_size = 300;
    open_linked(g, 3);
    ok(turn_all(g, 1, 0, 120));
    later(g, 1);
    ok(turn_all(g, 0, 0, 160));
    later(g, 500);
    ok(kvlazy_poll(g->r[2]->cache, NULL));
    all_sound(g);
    all_end_at(g, 1, -1); /* the longest idle first: 120 of 130, and 10 of the other */
    all_end_at(g, 0, 149);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(stats(g->r[i]).live_cells, 150);
        assert_int_equal(stats(g->r[i]).evicted_cells, 130);
        assert_int_equal(stats(g->r[i]).touched_bytes, cover(g->r[i]));
        assert_string_equal(cells_text(g->r[i], 0), cells_text(g->r[0], 0));
    }
    assert_int_equal(n_asked(g), 2);
    asked(g->r[2], 0, 1, -1);
    asked(g->r[2], 1, 0, 149);
    expect(turn_all(g, 0, 160, 1), KVLAZY_EPOS);
    ok(turn_all(g, 0, 150, 1));
    expect(turn_all(g, 1, 120, 1), KVLAZY_EPOS);
}

static void a_trim_of_one_trims_all(void **state)
{
    struct group *g = *state;

    open_linked(g, 3);
    for (int by = 0; by < 3; by++) {
        ok(turn_all(g, 0, 0, 200));
        ok(kvlazy_trim(g->r[by]->cache, 70 + (uint32_t)by));
        all_end_at(g, 0, 69 + by);
        for (int i = 0; i < 3; i++)
            assert_int_equal(stats(g->r[i]).touched_bytes, cover(g->r[i]));
        all_sound(g);
        ok(kvlazy_clear(g->r[0]->cache, true));
    }
}

static void whole_where_one_is_a_hybrid(void **state)
{
    struct group *g = *state;

    g->r[0]->params.kv_size_initial = 100;
    g->r[1]->params.shrink = KVLAZY_SHRINK_WHOLE;
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 90));
    later(g, 1);
    ok(turn_all(g, 1, 0, 90));
    later(g, 500);
    ok(kvlazy_poll(g->r[0]->cache, NULL));
    all_end_at(g, 0, -1);
    all_end_at(g, 1, 89);
    ok(kvlazy_seq_rm(g->r[0]->cache, 1, 80, -1));
    expect(kvlazy_seq_rm(g->r[1]->cache, 1, 80, -1), KVLAZY_ENOTSUP);
    all_sound(g);
}

static void whole_where_one_has_planes(void **state)
{
    struct group *g = *state;

    g->r[0]->params.kv_size_initial = 100;
    g->r[1]->params.n_pos_per_token = 4;
    open_linked(g, 2);
    for (kvlazy_seq_id seq = 0; seq < 2; seq++) {
        kvlazy_pos p[4 * 90] = {0};
        kvlazy_ubatch u = {.n_token = 90, .pos = p, .seq = (const kvlazy_seq_id[90]){0}};
        kvlazy_seq_id s[90];

        for (int i = 0; i < 90; i++) {
            p[i] = i;
            s[i] = seq;
        }
        u.seq = s;
        later(g, 1);
        ok(put_tokens(g->r[0], &u, 1)); /* one plane is what it reads */
        ok(put_tokens(g->r[1], &u, 1));
        ok(kvlazy_end_batch(g->r[0]->cache));
    }
    later(g, 500);
    ok(kvlazy_poll(g->r[0]->cache, NULL));
    all_end_at(g, 0, -1);
    all_end_at(g, 1, 89);
    all_sound(g);
}

static void what_one_keeps_all_keep(void **state)
{
    (void)state;
    for (int keeper = 0; keeper < 2; keeper++)
        for (int by = 0; by < 2; by++) {
            void *one;
            struct group *g;

            group_setup(&one);
            g = one;
            g->r[keeper]->params.shrink = KVLAZY_SHRINK_KEEP;
            g->r[1 - keeper]->params.kv_size_initial = 100;
            open_linked(g, 2);
            ok(turn_all(g, 0, 0, 300));
            later(g, 500);
            ok(kvlazy_poll(g->r[by]->cache, NULL));
            ok(kvlazy_trim(g->r[by]->cache, 50));
            all_end_at(g, 0, 299);
            assert_int_equal(n_asked(g), 0);
            expect(kvlazy_set_limits(g->r[by]->cache, UINT32_MAX, UINT32_MAX, 4096), KVLAZY_EBUDGET);
            all_end_at(g, 0, 299);
            group_teardown(&one);
        }
}

static void prompts_that_one_keeps_all_keep(void **state)
{
    struct group *g = *state;

    g->r[0]->params.keep_tokens = 40;
    g->r[1]->params.kv_size_initial = 10;
    open_linked(g, 3);
    ok(turn_all(g, 0, 0, 300));
    later(g, 500);
    ok(kvlazy_poll(g->r[2]->cache, NULL));
    all_end_at(g, 0, 39);
    ok(kvlazy_trim(g->r[1]->cache, 5));
    all_end_at(g, 0, 39);
    all_sound(g);
}

/* The window has long recycled the prompt that the full one keeps; the sequence cannot go whole. */
static void a_prompt_that_the_window_has_recycled(void **state)
{
    struct group *g = *state;

    g->r[0]->params.keep_tokens = 10;
    set_window(g->r[1], 64, 8);
    g->r[1]->params.kv_size_initial = 4;
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 60));
    ok(turn_all(g, 0, 60, 40));
    seq_is(g->r[1], 0, 36, 99);
    later(g, 500);
    ok(kvlazy_poll(g->r[1]->cache, NULL));
    cells_are(g->r[0], 0, "0..99=0..99/0");
    all_end_at(g, 0, 99);
    ok(kvlazy_trim(g->r[0]->cache, 2));
    cells_are(g->r[0], 0, "0..99=0..99/0");
    all_end_at(g, 0, 99);
    ok(turn_all(g, 0, 100, 1));
    all_sound(g);
}

/* ---- who is asked ---- */

static void one_is_asked_for_all(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 3; i++)
        g->r[i]->params.kv_size_initial = 100;
    g->r[2]->params.on_evict = NULL;
    open_linked(g, 3);
    for (int by = 0; by < 3; by++) {
        int asker = by == 2 ? 0 : by; /* that has nobody to ask: the oldest's is */

        ok(turn_all(g, 0, 0, 200));
        later(g, 500);
        ok(kvlazy_poll(g->r[by]->cache, NULL));
        all_end_at(g, 0, 99);
        assert_int_equal(n_asked(g), by + 1);
        asked(g->r[asker], g->r[asker]->n_evict - 1, 0, 99);
        ok(kvlazy_clear(g->r[0]->cache, true));
    }
    assert_int_equal(g->r[0]->n_evict, 2);
    rig_free(g->r[0]); /* then the next one's */
    g->r[0] = g->r[1];
    g->r[1] = g->r[2];
    g->r[2] = NULL;
    g->n = 2;
    ok(turn_all(g, 0, 0, 200));
    later(g, 500);
    ok(kvlazy_poll(g->r[1]->cache, NULL));
    all_end_at(g, 0, 99);
    assert_int_equal(g->r[0]->n_evict, 2);
    asked(g->r[0], 1, 0, 99);
}

static void nobody_to_ask(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 2; i++) {
        g->r[i]->params.kv_size_initial = 100;
        g->r[i]->params.on_evict = NULL;
    }
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 200));
    later(g, 500);
    ok(kvlazy_poll(g->r[1]->cache, NULL));
    all_end_at(g, 0, 99);
}

static void a_veto_holds_in_all(void **state)
{
    struct group *g = *state;
    char *before[2];
    uint64_t next;

    g->r[0]->params.kv_size = g->r[1]->params.kv_size = 1024;
    g->r[0]->params.kv_size_initial = 100;
    g->r[1]->params.kv_size_initial = 250;
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 300));
    g->r[0]->veto = g->r[1]->veto = 1;
    later(g, 500);
    for (int i = 0; i < 2; i++)
        before[i] = rig_dump(g->r[i]);
    ok(poll_next(g->r[1], &next));
    assert_int_equal(next, 500);
    ok(poll_next(g->r[0], &next)); /* nobody is asked again so soon */
    assert_int_equal(next, 500);
    assert_int_equal(n_asked(g), 1);
    for (int i = 0; i < 2; i++)
        unchanged(g->r[i], before[i]);
    ok(turn_all(g, 1, 0, 200)); /* another goes in its stead */
    later(g, 499);
    ok(poll_next(g->r[0], &next));
    assert_int_equal(next, 1);
    assert_int_equal(n_asked(g), 1);
    later(g, 1);
    g->r[0]->veto = g->r[1]->veto = 2;
    ok(kvlazy_poll(g->r[0]->cache, NULL));
    all_sound(g);
    all_end_at(g, 1, 199);
    all_end_at(g, 0, -1);
    agree(g);
}

static struct group *asking;
static bool opens_batch;

static void reads_both(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)r;
    (void)pos;
    for (int i = 0; i < asking->n; i++) {
        assert_int_equal(stats(asking->r[i]).live_cells, 300); /* no lock is held and nothing has gone */
        assert_int_equal(max_of(asking, i, seq), 299);
        ok(kvlazy_check(asking->r[i]->cache, NULL));
        expect(kvlazy_poll(asking->r[i]->cache, NULL), KVLAZY_EBUSY);
        expect(kvlazy_trim(asking->r[i]->cache, 0), KVLAZY_EBUSY);
    }
    if (opens_batch)
        ok(kvlazy_init_batch(asking->r[1]->cache));
}

static void what_may_be_done_while_one_is_asked(void **state)
{
    struct group *g = *state;

    asking = g;
    for (int i = 0; i < 2; i++) {
        g->r[i]->params.kv_size_initial = 100;
        g->r[i]->in_evict = reads_both;
    }
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 300));
    later(g, 500);
    opens_batch = true;
    expect(kvlazy_poll(g->r[0]->cache, NULL), KVLAZY_EBUSY);
    all_end_at(g, 0, 299);
    ok(put_all(g, 0, 300, 1)); /* what the engine read in its batch is true */
    rm_all(g, 0, 300, -1);
    ok(kvlazy_end_batch(g->r[1]->cache));
    later(g, 500);
    opens_batch = false;
    ok(kvlazy_poll(g->r[0]->cache, NULL));
    all_end_at(g, 0, 99);
    all_sound(g);
}

/* ---- idle time ---- */

static void used_in_one_is_used(void **state)
{
    struct group *g = *state;
    uint64_t next;

    g->r[0]->params.kv_size_initial = 100;
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 200));
    later(g, 400);
    ok(kvlazy_seq_add(g->r[1]->cache, 0, -1, -1, 1)); /* that is a use, and only there */
    ok(kvlazy_seq_add(g->r[1]->cache, 0, -1, -1, -1));
    ok(kvlazy_shift_done(g->r[1]->cache));
    later(g, 100);
    for (int by = 0; by < 2; by++) {
        ok(poll_next(g->r[by], &next));
        assert_int_equal(next, 400);
    }
    all_end_at(g, 0, 199);
    later(g, 400);
    ok(poll_next(g->r[0], &next));
    all_end_at(g, 0, 99);
    all_sound(g);
}

/* The order in which they go is the order in which they were last used in either. */
static void the_most_recent_use_decides_the_order(void **state)
{
    struct group *g = *state;

    g->r[0]->params.kv_size_initial = 100;
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 80));
    later(g, 100);
    ok(turn_all(g, 1, 0, 80));
    later(g, 100);
    ok(kvlazy_seq_add(g->r[1]->cache, 0, -1, -1, 1));
    ok(kvlazy_seq_add(g->r[1]->cache, 0, -1, -1, -1));
    ok(kvlazy_shift_done(g->r[1]->cache));
    later(g, 500);
    ok(kvlazy_poll(g->r[0]->cache, NULL));
    all_end_at(g, 0, 79);
    all_end_at(g, 1, 19);
}

/* ---- budgets ---- */

static void a_budget_of_one_cuts_all(void **state)
{
    (void)state;
    for (int by = 0; by < 2; by++) {
        void *one;
        struct group *g;
        uint64_t budget;

        group_setup(&one);
        g = one;
        open_linked(g, 2);
        ok(turn_all(g, 0, 0, 300));
        later(g, 1);
        ok(turn_all(g, 1, 0, 200));
        budget = stats(g->r[by]).touched_bytes * 3 / 4;
        ok(kvlazy_set_limits(g->r[by]->cache, UINT32_MAX, UINT32_MAX, budget));
        all_sound(g);
        agree(g);
        assert_true(stats(g->r[by]).touched_bytes <= budget);
        all_end_at(g, 1, 199); /* the other has been idle for longer */
        assert_in_range(max_of(g, 0, 0), 0, 290);
        assert_string_equal(cells_text(g->r[0], 0), cells_text(g->r[1], 0));
        assert_true(is_packed(g->r[0]));
        for (int i = 0; i < 2; i++)
            assert_int_equal(stats(g->r[i]).touched_bytes, cover(g->r[i]));
        expect(turn_all(g, 0, 300, 1), KVLAZY_EPOS);
        group_teardown(&one);
    }
}

static void a_budget_takes_whole_sequences(void **state)
{
    struct group *g = *state;
    uint64_t budget;

    open_full_and_window(g);
    ok(turn_all(g, 0, 0, 30));
    later(g, 1);
    ok(turn_all(g, 1, 0, 30));
    budget = stats(g->r[0]).touched_bytes - 2 * 4096;
    ok(kvlazy_set_limits(g->r[0]->cache, UINT32_MAX, UINT32_MAX, budget));
    all_end_at(g, 0, -1);
    all_end_at(g, 1, 29);
    assert_true(stats(g->r[0]).touched_bytes <= budget);
    all_sound(g);
    expect(turn_all(g, 0, 30, 1), KVLAZY_EPOS);
}

/* Two windows over the same cells, K/V and an index: a budget of one leaves the cells of both the same. */
static void twin_windows_stay_twins(void **state)
{
    for (int by = 0; by < 2; by++) {
        struct group *g;

        if (by)
            group_setup(state);
        g = *state;
        for (int i = 0; i < 2; i++)
            set_window(g->r[i], 256, 8);
        open_linked(g, 2);
        ok(turn_all(g, 0, 0, 150));
        later(g, 1);
        ok(turn_all(g, 1, 0, 100));
        ok(kvlazy_set_limits(g->r[by]->cache, UINT32_MAX, UINT32_MAX, stats(g->r[by]).touched_bytes / 2));
        all_sound(g);
        agree(g);
        assert_string_equal(cells_text(g->r[0], 0), cells_text(g->r[1], 0));
        ok(kvlazy_set_limits(g->r[by]->cache, UINT32_MAX, UINT32_MAX, 0));
        ok(turn_all(g, 1, 100, 20));
        assert_string_equal(cells_text(g->r[0], 0), cells_text(g->r[1], 0));
        if (!by)
            group_teardown(state);
    }
}

static void twin_windows_of_other_initials_stay_twins(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 2; i++)
        set_window(g->r[i], 256, 8);
    g->r[1]->params.kv_size_initial = 60;
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 150));
    later(g, 500);
    ok(kvlazy_poll(g->r[0]->cache, NULL));
    all_sound(g);
    assert_int_equal(stats(g->r[1]).live_cells, 60);
    assert_string_equal(cells_text(g->r[0], 0), cells_text(g->r[1], 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GROUP_TEST(whole_where_one_has_a_window),
        GROUP_TEST(the_full_one_loses_what_the_window_must),
        GROUP_TEST(masked_cells_go_alone),
        GROUP_TEST(dense_ones_are_cut_alike),
        GROUP_TEST(a_trim_of_one_trims_all),
        GROUP_TEST(whole_where_one_is_a_hybrid),
        GROUP_TEST(whole_where_one_has_planes),
        cmocka_unit_test(what_one_keeps_all_keep),
        GROUP_TEST(prompts_that_one_keeps_all_keep),
        GROUP_TEST(a_prompt_that_the_window_has_recycled),
        GROUP_TEST(one_is_asked_for_all),
        GROUP_TEST(nobody_to_ask),
        GROUP_TEST(a_veto_holds_in_all),
        GROUP_TEST(what_may_be_done_while_one_is_asked),
        GROUP_TEST(used_in_one_is_used),
        GROUP_TEST(the_most_recent_use_decides_the_order),
        cmocka_unit_test(a_budget_of_one_cuts_all),
        GROUP_TEST(a_budget_takes_whole_sequences),
        GROUP_TEST(twin_windows_stay_twins),
        GROUP_TEST(twin_windows_of_other_initials_stay_twins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
