/* SPDX-License-Identifier: MIT */
/*
 * Free pages that stay for the next prompt: how many, which, that a prompt finds them, and what takes them all the
 * same. A row takes a page, so that pages are counted in cells.
 */
#include "support.h"
#include "unit.h"

enum { PAGE = 4096, WARM = 60 };

static struct rig *open_warm(struct rig *r, uint32_t n_stream)
{
    static const size_t rows[1][2] = {{PAGE, 0}};

    rig_rows(r, 1, rows);
    r->params.kv_size = 1024;
    r->params.n_stream = n_stream;
    r->params.n_seq_max = 4;
    r->params.warm_bytes = n_stream * WARM * (uint64_t)PAGE + PAGE / 2; /* whole cells of it */
    rig_open(r);
    return r;
}

static uint64_t touched_cells(struct rig *r)
{
    return stats(r).touched_bytes / PAGE;
}

/* A free page stays however long. Naive: it is due, so that the next poll is due at once, for ever. */
static void the_lowest_stay_and_are_never_due(void **state)
{
    struct rig *r = open_warm(*state, 1);
    uint64_t next_ms;

    ok(turn(r, 0, 0, 300));
    ok(kvlazy_seq_rm(r->cache, 0, 10, -1));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, &next_ms));
    assert_int_equal(touched_cells(r), 10 + WARM);
    assert_true(next_ms == UINT64_MAX);
    for (int i = 0; i < 20; i++) {
        r->fake.now += 300;
        ok(kvlazy_init_batch(r->cache));
        ok(kvlazy_end_batch(r->cache));
        ok(kvlazy_poll(r->cache, &next_ms));
        assert_true(next_ms == UINT64_MAX);
    }
    assert_int_equal(touched_cells(r), 10 + WARM);
    sound(r);
    fake_forget(&r->fake);
    ok(turn(r, 0, 10, WARM)); /* they are there */
    assert_int_equal(r->fake.n_call[FAKE_COMMIT], 0);
    ok(turn(r, 0, 10 + WARM, 1));
    assert_int_equal(r->fake.n_call[FAKE_COMMIT], 1);
    sound(r);
}

/* Naive: what an eviction frees goes whole, and the conversation that goes on waits for it. */
static void an_idle_shrink_leaves_them(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 100;
    open_warm(r, 1);
    ok(turn(r, 0, 0, 300));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(stats(r).live_cells, 100);
    assert_int_equal(touched_cells(r), 100 + WARM);
    r->fake.now += 5000;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(touched_cells(r), 100 + WARM);
    sound(r);
}

static void every_stream_has_its_part(void **state)
{
    struct rig *r = open_warm(*state, 4);

    for (kvlazy_seq_id s = 0; s < 4; s++)
        ok(turn(r, s, 0, s == 3 ? 20 : 200)); /* one has less than its part */
    ok(kvlazy_clear(r->cache, false));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(touched_cells(r), 3 * WARM + 20);
    for (kvlazy_seq_id s = 0; s < 4; s++) {
        fake_forget(&r->fake);
        ok(turn(r, s, 0, s == 3 ? 20 : WARM));
        assert_int_equal(r->fake.n_call[FAKE_COMMIT], 0);
    }
    sound(r);
}

static void what_is_asked_for_takes_them_too(void **state)
{
    struct rig *r = open_warm(*state, 1);

    ok(turn(r, 0, 0, 300));
    ok(kvlazy_seq_rm(r->cache, 0, 10, -1));
    ok(kvlazy_trim(r->cache, 0));
    assert_int_equal(touched_cells(r), 10);

    ok(turn(r, 0, 10, 300));
    ok(kvlazy_seq_rm(r->cache, 0, 10, -1));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(touched_cells(r), 10 + WARM);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, 12 * PAGE));
    assert_true(touched_cells(r) <= 12);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, 0));

    ok(turn(r, 0, 10, 300));
    ok(kvlazy_clear(r->cache, true));
    assert_int_equal(touched_cells(r), 0);
}

/* A batch that needs other pages under a ceiling: the warm ones make room. */
static void a_batch_takes_their_room(void **state)
{
    struct rig *r = *state;

    r->params.budget_bytes = 100 * PAGE;
    open_warm(r, 4);
    ok(turn(r, 0, 0, 90));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(touched_cells(r), WARM);
    ok(turn(r, 1, 0, 95));
    assert_true(touched_cells(r) <= 100);
    sound(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(the_lowest_stay_and_are_never_due), RIG_TEST(an_idle_shrink_leaves_them),
        RIG_TEST(every_stream_has_its_part),         RIG_TEST(what_is_asked_for_takes_them_too),
        RIG_TEST(a_batch_takes_their_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
