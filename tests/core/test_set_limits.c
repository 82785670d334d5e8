/* SPDX-License-Identifier: MIT */
/*
 * Limits that are moved at run time, in all combinations: what they change at once, what at the next idle, and what
 * they refuse with nothing changed.
 */
#include "support.h"

#include <stdlib.h>

#include "unit.h"

enum { PAGE = 4096, IDLE = 500 };

static const uint32_t SAME = UINT32_MAX;

static void rows_of_a_page(struct rig *r)
{
    static const size_t rows[1][2] = {{PAGE, 0}};

    rig_rows(r, 1, rows);
}

static int set_budget(struct rig *r, uint64_t pages)
{
    return kvlazy_set_limits(r->cache, SAME, SAME, pages * PAGE);
}

static uint64_t touched(struct rig *r)
{
    return stats(r).touched_bytes / PAGE;
}

static void a_budget_goes_down_by_free_pages_first(void **state)
{
    struct rig *r = *state;

    rows_of_a_page(r);
    rig_open(r);
    turn_at(r, 1000, 0, 0, 100);
    turn_at(r, 1100, 1, 0, 100);
    ok(kvlazy_seq_rm(r->cache, 1, 50, -1));
    ok(set_budget(r, 150)); /* exactly what lives */
    assert_int_equal(touched(r), 150);
    assert_int_equal(r->n_evict + (int)stats(r).n_evict, 0);
    ok(set_budget(r, 120)); /* then the longest idle, whatever the clock says */
    assert_int_equal(touched(r), 120);
    asked(r, 0, 0, 69);
    assert_int_equal(live_of(r, 0), 70);
    assert_int_equal(live_of(r, 1), 50);
    expect(turn(r, 1, 50, 1), KVLAZY_EBUDGET);
    ok(set_budget(r, 130)); /* back up, in part and in whole */
    ok(turn(r, 1, 50, 10));
    expect(turn(r, 1, 60, 1), KVLAZY_EBUDGET);
    ok(set_budget(r, 0));
    ok(turn(r, 1, 60, 200));
    assert_int_equal(kvlazy_room(r->cache, 1), 512 - 330);
    kvlazy_destroy(r->cache); /* cells may have moved */
    r->cache = NULL;
}

static void what_may_not_go_refuses_a_budget(void **state)
{
    static const char *what[] = {"KEEP", "keep_tokens", "vetoes", "KEEP with free pages"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct rig *r = rig_new();
        char *before;

        rows_of_a_page(r);
        r->params.shrink = i == 0 || i == 3 ? KVLAZY_SHRINK_KEEP : KVLAZY_SHRINK_TAILS;
        r->params.keep_tokens = i == 1 ? 150 : 0;
        r->veto = i == 2 ? 3 : 0;
        rig_open(r);
        ok(turn(r, 0, 0, 100));
        ok(turn(r, 1, 0, 100));
        if (i == 3)
            ok(kvlazy_seq_rm(r->cache, 1, 80, -1));
        before = rig_dump(r);
        fake_forget(&r->fake);
        if (set_budget(r, 150) != KVLAZY_EBUDGET)
            fail_msg("%s: not refused", what[i]);
        assert_int_equal(r->fake.n_call[FAKE_DECOMMIT] + r->fake.n_call[FAKE_COMMIT], 0);
        unchanged(r, before);
        ok(turn(r, 1, i == 3 ? 80 : 100, 100)); /* the old limit, none, still holds */
        sound(r);
        rig_free(r);
    }
}

/* Some may go and some may not: as far as it goes, or not at all. */
static void a_veto_of_one_of_two(void **state)
{
    struct rig *r = *state;
    char *before;

    rows_of_a_page(r);
    r->veto = 1;
    rig_open(r);
    turn_at(r, 1000, 0, 0, 100);
    turn_at(r, 1100, 1, 0, 100);
    before = rig_dump(r);
    expect(set_budget(r, 90), KVLAZY_EBUDGET);
    unchanged(r, before);
    r->fake.now += IDLE; /* the veto ends */
    ok(set_budget(r, 100));
    assert_int_equal(live_of(r, 0), 100);
    assert_int_equal(live_of(r, 1), 0);
    assert_int_equal(touched(r), 100);
    ok(kvlazy_seq_rm(r->cache, 1, 0, -1));
}

/* Holes whose pages are gone, a limit that is reached, and nothing that may go: no page to move with. */
static void a_budget_that_only_moving_could_meet(void **state)
{
    static const size_t rows[1][2] = {{PAGE / 4, 0}};
    struct rig *r = *state;
    char *before;
    uint64_t pages;

    rig_rows(r, 1, rows);
    r->params.shrink = KVLAZY_SHRINK_KEEP;
    rig_open(r);
    ok(turn(r, 0, 0, 40));
    ok(turn(r, 1, 0, 80));
    for (kvlazy_pos p = 0; p < 80; p += 4)
        ok(kvlazy_seq_cp(r->cache, 1, 2, p, p + 1)); /* one cell a page */
    ok(kvlazy_seq_rm(r->cache, 1, 0, -1));
    ok(kvlazy_seq_rm(r->cache, 0, 0, -1));
    r->fake.now += IDLE;
    ok(kvlazy_init_batch(r->cache)); /* decay alone: nothing moves */
    ok(kvlazy_end_batch(r->cache));
    pages = touched(r);
    ok(set_budget(r, pages));
    before = rig_dump(r);
    if (set_budget(r, pages - 5) == KVLAZY_OK) {
        free(before);
        assert_true(touched(r) <= pages - 5);
        assert_int_equal(stats(r).n_evict, 0);
    } else {
        unchanged(r, before);
        assert_int_equal(kvlazy_room(r->cache, 0), kvlazy_room(r->cache, 1));
    }
    kvlazy_destroy(r->cache); /* cells may have moved */
    r->cache = NULL;
}

static void a_batch_keeps_limits_as_they_are(void **state)
{
    struct rig *r = *state;
    char *before;

    rows_of_a_page(r);
    rig_open(r);
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 0, 100));
    before = rig_dump(r);
    expect(kvlazy_set_limits(r->cache, 10, 10, 50 * PAGE), KVLAZY_EBUSY);
    expect(kvlazy_set_limits(r->cache, SAME, SAME, UINT64_MAX), KVLAZY_EBUSY);
    unchanged(r, before);
    ok(put(r, 0, 100, 100));
    ok(kvlazy_end_batch(r->cache));
    r->fake.now += 100;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(stats(r).live_cells, 200);
}

/* All eight ways to change three limits at once, down and up again; the first two act at the next idle. */
static void limits_in_all_combinations(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 8; k++) {
        struct rig *r = rig_new();
        bool initial = k & 1, idle = k & 2, budget = k & 4;
        uint64_t next, expected = budget ? 120 : 200;

        rows_of_a_page(r);
        rig_open(r);
        ok(turn(r, 0, 0, 200));
        ok(kvlazy_set_limits(r->cache, initial ? 64 : SAME, idle ? 100 : SAME, budget ? 120 * PAGE : UINT64_MAX));
        assert_int_equal(stats(r).live_cells, expected); /* only a budget acts at once */
        r->fake.now += 100;
        ok(poll_next(r, &next));
        assert_int_equal(stats(r).live_cells, initial && idle ? 64 : expected);
        r->fake.now += IDLE;
        ok(poll_next(r, &next));
        assert_int_equal(stats(r).live_cells, initial ? 64 : expected);
        assert_int_equal(touched(r), initial ? 64 : expected);
        assert_true(next == UINT64_MAX);
        ok(kvlazy_set_limits(r->cache, initial ? 0 : SAME, idle ? IDLE : SAME, budget ? 0 : UINT64_MAX));
        ok(turn(r, 0, kvlazy_seq_pos_max(r->cache, 0) + 1, 300 - (uint32_t)stats(r).live_cells));
        r->fake.now += 2 * IDLE;
        ok(kvlazy_poll(r->cache, NULL));
        assert_int_equal(stats(r).live_cells, 300);
        sound(r);
        rig_free(r);
    }
}

/* A refused budget leaves the other two limits of the call as they were. */
static void a_refused_call_changes_no_limit(void **state)
{
    struct rig *r = *state;

    rows_of_a_page(r);
    r->params.keep_tokens = 100;
    rig_open(r);
    ok(turn(r, 0, 0, 200));
    expect(kvlazy_set_limits(r->cache, 50, 10, 90 * PAGE), KVLAZY_EBUDGET);
    r->fake.now += 10 * IDLE;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(stats(r).live_cells, 200);
    ok(turn(r, 0, 200, 200));
}

/* Idle time 0 stops shrinking, and starts it again. */
static void idle_time_of_zero_and_back(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    rows_of_a_page(r);
    r->params.kv_size_initial = 100;
    rig_open(r);
    ok(turn(r, 0, 0, 200));
    ok(kvlazy_set_limits(r->cache, SAME, 0, UINT64_MAX));
    r->fake.now += 100 * IDLE;
    ok(poll_next(r, &next));
    assert_true(next == UINT64_MAX);
    assert_int_equal(stats(r).live_cells, 200);
    ok(kvlazy_set_limits(r->cache, SAME, IDLE, UINT64_MAX));
    ok(poll_next(r, &next));
    assert_int_equal(stats(r).live_cells, 100);
    assert_int_equal(touched(r), 100);
}

/* Whatever is done under a limit, not a page more is touched, and the limit is reached to the page. */
static void a_budget_is_exact(void **state)
{
    struct rig *r = *state;
    uint64_t rng = 5, budget = 100;

    rows_of_a_page(r);
    r->params.budget_bytes = budget * PAGE + 4095; /* not a page more for that */
    rig_open(r);
    for (int i = 0; i < 3000; i++) {
        kvlazy_seq_id seq = (kvlazy_seq_id)(next_random(&rng) % 4);
        uint32_t n = 1 + (uint32_t)(next_random(&rng) % 30), room = kvlazy_room(r->cache, seq);
        kvlazy_pos end = kvlazy_seq_pos_max(r->cache, seq) + 1;

        r->fake.now += 1 + next_random(&rng) % 20;
        if (next_random(&rng) % 50 == 0) {
            budget = 40 + next_random(&rng) % 100;
            ok(set_budget(r, budget));
        } else if (next_random(&rng) % 6 == 0) {
            ok(kvlazy_seq_rm(r->cache, seq, end / 2, -1));
        } else if (end) {
            assert_int_equal(turn(r, seq, end, n), n <= room ? KVLAZY_OK : KVLAZY_EBUDGET);
        } else {
            ok(kvlazy_seq_rm(r->cache, seq, 0, -1));
            assert_int_equal(turn(r, seq, 0, n), n <= room ? KVLAZY_OK : KVLAZY_EBUDGET);
        }
        assert_true(touched(r) <= budget && r->fake.committed_bytes <= budget * PAGE);
    }
    ok(kvlazy_check(r->cache, NULL));
    kvlazy_destroy(r->cache); /* cells may have moved */
    r->cache = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_budget_goes_down_by_free_pages_first),
        cmocka_unit_test(what_may_not_go_refuses_a_budget),
        RIG_TEST(a_veto_of_one_of_two),
        RIG_TEST(a_budget_that_only_moving_could_meet),
        RIG_TEST(a_batch_keeps_limits_as_they_are),
        cmocka_unit_test(limits_in_all_combinations),
        RIG_TEST(a_refused_call_changes_no_limit),
        RIG_TEST(idle_time_of_zero_and_back),
        RIG_TEST(a_budget_is_exact),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
