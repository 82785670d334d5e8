/* SPDX-License-Identifier: MIT */
/*
 * The ceiling for touched bytes: what still fits (room), what goes before a batch is refused, what is
 * refused with nothing changed, and limits that move at run time.
 */
#define _DEFAULT_SOURCE
#include "support.h"

#include <stdlib.h>
#include <string.h>

/* room says n: n tokens fit now and n + 1 do not, and touched bytes never pass the ceiling. */
static uint32_t room_is_exact(struct rig *r, kvlazy_seq_id seq)
{
    uint32_t room = kvlazy_room(r->cache, seq);
    kvlazy_pos next = kvlazy_seq_pos_max(r->cache, seq) + 1;
    uint64_t free_cells = (uint64_t)r->kv_size * r->n_stream; /* at the most */
    char *before = rig_dump(r);
    int status = dry(r, seq, next, room + 1);

    assert_true(room <= free_cells);
    if (status != KVLAZY_ENOSLOT)
        expect(status, KVLAZY_EBUDGET);
    assert_int_equal(kvlazy_refused(r->cache), seq);
    unchanged(r, before);
    if (room)
        ok(dry(r, seq, next, room));
    assert_int_equal(kvlazy_room(r->cache, seq), room);
    if (r->params.budget_bytes)
        assert_true(stats(r).touched_bytes <= r->params.budget_bytes);
    return room;
}

/* The most tokens whose pages fit in an empty cache, counted without the library. */
static uint32_t fits(struct rig *r, uint64_t budget)
{
    uint32_t n = 0;

    while (n < r->kv_size && cover_cells(r, 0, 0, n + 1) <= budget)
        n++;
    return n;
}

static void room_without_a_budget(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    assert_int_equal(room_is_exact(r, 0), 512);
    ok(put(r, 0, 0, 100));
    assert_int_equal(room_is_exact(r, 3), 412);
    ok(kvlazy_seq_rm(r->cache, 0, 10, 20));
    assert_int_equal(room_is_exact(r, 0), 422);
}

static void room_of_an_empty_cache(void **state)
{
    static const size_t pages[] = {4096, 16384, 65536};

    (void)state;
    for (uint32_t i = 0; i < 40; i++) {
        struct rig *r = rig_new();
        uint64_t budget = 4096u * (5 + 3 * i) + i % 3 * 1000;

        r->fake.page = pages[i % 3];
        r->params.budget_bytes = budget;
        rig_open(r);
        assert_int_equal(room_is_exact(r, 1), fits(r, budget));
        if (kvlazy_room(r->cache, 1))
            ok(put(r, 1, 0, kvlazy_room(r->cache, 1)));
        assert_true(stats(r).touched_bytes <= budget);
        assert_true(r->fake.committed_bytes <= budget);
        assert_int_equal(room_is_exact(r, 0), 0);
        sound(r);
        rig_free(r);
    }
}

/* Holes, dead pages, several sequences and streams: room stays exact and the ceiling is never passed. */
static void room_of_a_worn_cache(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 60; seed++) {
        struct rig *r = rig_new();
        uint32_t x = seed * 2654435761u;

        r->params.n_stream = seed % 2 ? 1 : 4;
        r->params.kv_size = 400 + seed % 100;
        r->params.budget_bytes = 4096u * (20 + seed * 3);
        rig_open(r);
        for (int i = 0; i < 25; i++) {
            kvlazy_seq_id s = (kvlazy_seq_id)((x = x * 1664525 + 1013904223) >> 30);
            uint32_t n = (x >> 8) % 120 + 1, room = room_is_exact(r, s);
            kvlazy_pos end = kvlazy_seq_pos_max(r->cache, s) + 1;

            if (x >> 20 & 1)
                ok(kvlazy_seq_rm(r->cache, s, (kvlazy_pos)(x >> 10 & 63), x >> 21 & 1 ? -1 : end - 3));
            else
                assert_int_equal(turn(r, s, end, n) == KVLAZY_OK, n <= room);
            assert_true(stats(r).touched_bytes <= r->params.budget_bytes);
            assert_true(r->fake.committed_bytes <= r->params.budget_bytes);
            assert_int_equal(stats(r).touched_bytes, r->fake.committed_bytes);
        }
        sound(r);
        rig_free(r);
    }
}

static void free_pages_go_before_a_refusal(void **state)
{
    struct rig *r = *state;
    uint64_t touched;
    char *before;

    r->params.n_stream = r->params.n_seq_max = 2;
    rig_open(r);
    r->params.budget_bytes = cover_cells(r, 0, 0, 300) + cover_cells(r, 0, 0, 60);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, r->params.budget_bytes));
    ok(turn(r, 0, 0, 300));
    before = rig_dump(r);
    fake_forget(&r->fake);
    expect(turn(r, 1, 0, 200), KVLAZY_EBUDGET);
    assert_int_equal(kvlazy_refused(r->cache), 1);
    unchanged(r, before);
    ok(kvlazy_seq_rm(r->cache, 0, 100, -1)); /* now there are free pages, no idle time needed */
    touched = stats(r).touched_bytes;
    before = rig_dump(r);
    expect(turn(r, 1, 0, 400), KVLAZY_EBUDGET); /* they would not do: none goes */
    unchanged(r, before);
    assert_int_equal(r->fake.n_call[FAKE_DECOMMIT] + r->fake.n_call[FAKE_COMMIT], 0);
    ok(turn(r, 1, 0, 200));
    sound(r);
    assert_true(stats(r).released_bytes > 0);
    assert_true(stats(r).touched_bytes <= r->params.budget_bytes);
    assert_true(stats(r).touched_bytes <= touched + cover_cells(r, 1, 0, 200));
    assert_int_equal(stats(r).live_cells, 300);
    assert_int_equal(stats(r).n_refusal, 2);
    assert_int_equal(r->n_evict, 0);
}

static void pages_touched_already_are_free_of_charge(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, cover(r)));
    ok(kvlazy_seq_rm(r->cache, 0, 200, -1));
    ok(turn(r, 1, 0, 100));
    assert_int_equal(stats(r).released_bytes, 0);
    expect(turn(r, 1, 100, 100), KVLAZY_EBUDGET);
    sound(r);
}

static void a_ceiling_below_one_cell(void **state)
{
    struct rig *r = *state;

    r->params.budget_bytes = 1;
    rig_open(r);
    assert_int_equal(kvlazy_room(r->cache, 0), 0);
    expect(put(r, 0, 0, 1), KVLAZY_EBUDGET);
    assert_int_equal(stats(r).touched_bytes, 0);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, 0)); /* none again */
    assert_int_equal(kvlazy_room(r->cache, 0), 512);
    ok(put(r, 0, 0, 512));
}

static void a_whole_batch_or_none_of_it(void **state)
{
    struct rig *r = *state;
    kvlazy_pos p[200];
    kvlazy_seq_id s[200];
    kvlazy_ubatch u[2];
    char *before;

    for (int i = 0; i < 200; i++) {
        p[i] = i % 100;
        s[i] = i / 100;
    }
    u[0] = UBATCH(100, p, s);
    u[1] = UBATCH(100, p + 100, s + 100);
    rig_open(r);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, cover_cells(r, 0, 0, 150)));
    before = rig_dump(r);
    expect(kvlazy_prepare(r->cache, u, 2, r->slot), KVLAZY_EBUDGET);
    assert_int_equal(kvlazy_refused(r->cache), 1);
    unchanged(r, before);
    ok(put_tokens(r, u, 1));
    sound(r);
}

static void the_machine_refuses(void **state)
{
    struct rig *r = *state;
    char *before;

    rig_open(r);
    ok(turn(r, 0, 0, 100));
    ok(kvlazy_seq_rm(r->cache, 0, 0, 10));
    r->fake.budget_bytes = r->fake.committed_bytes;
    ok(turn(r, 1, 0, 10)); /* on pages that are there */
    before = rig_dump(r);
    ok(kvlazy_init_batch(r->cache));
    expect(put(r, 1, 10, 200), KVLAZY_ENOMEM);
    unchanged(r, before);
    sound(r);
    r->fake.budget_bytes = 0;
    ok(kvlazy_end_batch(r->cache));
    ok(turn(r, 1, 10, 200)); /* the host has memory again */
    assert_int_equal(stats(r).touched_bytes, cover(r));
}

/* Room for the batch is in free pages that the host will not take: no byte passes the ceiling. */
static void the_machine_keeps_free_pages(void **state)
{
    struct rig *r = *state;
    char *cells;

    r->params.n_stream = r->params.n_seq_max = 2;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    r->params.budget_bytes = cover(r) + 8 * 4096;
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, r->params.budget_bytes));
    ok(kvlazy_seq_rm(r->cache, 0, 100, -1));
    r->fake.refuse_decommit = true;
    cells = strdup(cells_text(r, 0));
    expect(turn(r, 1, 0, 200), KVLAZY_EBUDGET);
    assert_int_equal(kvlazy_refused(r->cache), 1);
    assert_string_equal(cells_text(r, 0), cells);
    assert_string_equal(cells_text(r, 1), "");
    free(cells);
    sound(r);
    assert_true(stats(r).n_os_refusal > 0);
    assert_true(stats(r).touched_bytes <= r->params.budget_bytes);
    r->fake.refuse_decommit = false;
    ok(turn(r, 1, 0, 200));
    sound(r);
    assert_true(stats(r).touched_bytes <= r->params.budget_bytes);
    assert_int_equal(stats(r).touched_bytes, r->fake.committed_bytes);
}

/* Pages 1, 2 and 3 are free; a plan for stream 0 wants pages 0 and 1, so 2 and 3 go back. The batch ends without
 * an apply: page 1 holds no token, and decays like any. */
static void a_plan_that_came_to_nothing_holds_no_page(void **state)
{
    struct rig *r = *state;
    static const size_t rows[1][2] = {{36, 0}};

    rig_rows(r, 1, rows);
    r->params.n_stream = r->params.n_seq_max = 2;
    r->params.kv_size = 200; /* stream 1 begins at 7200, inside page 1 */
    r->params.budget_bytes = 3 * 4096;
    rig_open(r);
    ok(turn(r, 1, 0, 200));
    assert_int_equal(stats(r).touched_bytes, 3 * 4096);
    settle(r);
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    ok(dry(r, 0, 0, 150));
    assert_int_equal(stats(r).touched_bytes, 4096);
    settle(r);
    r->fake.now += 750;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    assert_int_equal(stats(r).touched_bytes, 0);
}

static void room_with_a_plan_open(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[2] = {UBATCH(2, POS(0, 1), SEQ(0, 0)), UBATCH(1, POS(2), SEQ(0))};

    r->params.kv_size = 16;
    rig_open(r);
    ok(kvlazy_prepare(r->cache, u, 2, r->slot));
    assert_int_equal(kvlazy_room(r->cache, 1), 16); /* a plan holds nothing */
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u[0]));
    write_rows(r, &r->slot[0]);
    assert_int_equal(kvlazy_room(r->cache, 1), 14);
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    assert_int_equal(kvlazy_room(r->cache, 1), 16);
}

/* ---- limits that move ---- */

static void a_lower_ceiling_acts_at_once(void **state)
{
    struct rig *r = *state;
    uint64_t budget;
    uint32_t live;

    r->params.kv_size = 1024;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    r->fake.now++;
    ok(turn(r, 1, 0, 300));
    r->fake.now++;
    ok(turn(r, 2, 0, 100));
    ok(kvlazy_seq_rm(r->cache, 2, -1, -1)); /* 100 dead cells behind */
    budget = cover(r);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, budget));
    sound(r);
    assert_int_equal(stats(r).touched_bytes, budget); /* free pages were enough */
    assert_int_equal(r->n_evict, 0);
    assert_int_equal(stats(r).live_cells, 600);
    budget = cover_cells(r, 0, 300, 600) + cover_cells(r, 0, 0, 100);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, budget));
    sound(r);
    live = (uint32_t)kvlazy_seq_pos_max(r->cache, 0) + 1;
    assert_int_equal(r->n_evict, 1);
    assert_int_equal(r->evict[0].seq, 0);
    assert_int_equal(r->evict[0].pos, (int)live - 1);
    assert_in_range(live, 60, 240);
    assert_true(is_packed(r));
    assert_true(cover_cells(r, 0, 0, live + 300) <= budget); /* and not one more would have fitted */
    assert_true(cover_cells(r, 0, 0, live + 301) > budget);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), 299);
    assert_true(stats(r).touched_bytes <= budget);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    expect(put(r, 0, 300, 1), KVLAZY_EPOS);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, cover_cells(r, 0, 0, 1)));
    sound(r);
    assert_true(stats(r).touched_bytes <= cover_cells(r, 0, 0, 1));
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, 1)); /* nothing fits: all may go */
    assert_int_equal(stats(r).live_cells, 0);
    assert_int_equal(stats(r).touched_bytes, 0);
}

static void no_more_goes_than_must(void **state)
{
    struct rig *r = *state;
    uint64_t budget;
    uint32_t live;

    rig_open(r);
    ok(turn(r, 0, 0, 500));
    for (budget = cover(r) - 4096; budget > 4096 * 10; budget -= 4096 * 3) {
        ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, budget));
        sound(r);
        live = (uint32_t)kvlazy_seq_pos_max(r->cache, 0) + 1;
        assert_int_equal(live, fits(r, budget));
        assert_int_equal(stats(r).touched_bytes, cover(r));
    }
}

static void what_may_not_go(struct rig *r)
{
    uint64_t need = cover(r), next;
    char *before = rig_dump(r);

    fake_forget(&r->fake);
    expect(kvlazy_set_limits(r->cache, 7, 9, need - 1), KVLAZY_EBUDGET);
    unchanged(r, before);
    assert_int_equal(r->fake.n_call[FAKE_DECOMMIT], 0);
    ok(poll_next(r, &next)); /* the other two limits are as they were, too */
    assert_true(next == UINT64_MAX || next > 9);
    ok(turn(r, 3, 0, 100)); /* and so is the budget */
    sound(r);
}

static void kept_by_mode(void **state)
{
    struct rig *r = *state;

    r->params.shrink = KVLAZY_SHRINK_KEEP;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(turn(r, 1, 0, 50));
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    what_may_not_go(r);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, cover(r)));
    assert_int_equal(stats(r).touched_bytes, cover(r));
}

static void kept_by_count(void **state)
{
    struct rig *r = *state;

    r->params.keep_tokens = 300;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    what_may_not_go(r);
}

static void kept_by_veto(void **state)
{
    struct rig *r = *state;

    r->veto = 1;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    what_may_not_go(r);
    r->veto = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(room_without_a_budget),
        cmocka_unit_test(room_of_an_empty_cache),
        cmocka_unit_test(room_of_a_worn_cache),
        RIG_TEST(free_pages_go_before_a_refusal),
        RIG_TEST(pages_touched_already_are_free_of_charge),
        RIG_TEST(a_ceiling_below_one_cell),
        RIG_TEST(a_whole_batch_or_none_of_it),
        RIG_TEST(the_machine_refuses),
        RIG_TEST(the_machine_keeps_free_pages),
        RIG_TEST(a_plan_that_came_to_nothing_holds_no_page),
        RIG_TEST(room_with_a_plan_open),
        RIG_TEST(a_lower_ceiling_acts_at_once),
        RIG_TEST(no_more_goes_than_must),
        RIG_TEST(kept_by_mode),
        RIG_TEST(kept_by_count),
        RIG_TEST(kept_by_veto),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
