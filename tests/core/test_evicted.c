/* SPDX-License-Identifier: MIT */
/*
 * Who is asked before tokens go, what an answer holds, and what a sequence that eviction emptied may do next.
 */
#include "support.h"

#include <stdlib.h>
#include <string.h>

/* ---- who is asked ---- */

static void look_inside(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    const char *reason;
    uint64_t bytes;

    assert_int_equal(kvlazy_seq_pos_max(r->cache, seq), 599); /* nothing has changed yet */
    assert_true(pos < 599);
    assert_int_equal(stats(r).live_cells, 1200);
    assert_int_equal(strlen(cells_text(r, 0)) > 0, 1);
    ok(kvlazy_check(r->cache, &reason));
    ok(kvlazy_resident(r->cache, &bytes));
}

static void the_callback_may_read(void **state)
{
    struct rig *r = *state;

    open_with(r, 2048, 256);
    r->in_evict = look_inside;
    turn_at(r, 1000, 0, 0, 600);
    turn_at(r, 1001, 1, 0, 600);
    r->fake.now = 1600;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    assert_int_equal(r->n_evict, 2);
    asked(r, 0, 0, -1);
    asked(r, 1, 1, 255);
    assert_int_equal(stats(r).live_cells, 256);
}

static void a_veto_holds_for_idle_ms(void **state)
{
    struct rig *r = *state;
    uint64_t next;
    char *before;

    open_with(r, 1024, 256);
    turn_at(r, 1000, 0, 0, 600);
    r->veto = 1;
    r->fake.now = 1500;
    before = rig_dump(r);
    ok(poll_next(r, &next));
    assert_int_equal(r->n_evict, 1);
    assert_in_range(next, 450, 500);
    ok(poll_next(r, &next));
    assert_in_range(next, 450, 500);
    unchanged(r, before);
    assert_int_equal(r->n_evict, 1); /* not asked again so soon */
    r->fake.now = 1999;
    ok(poll_next(r, &next));
    assert_int_equal(r->n_evict, 1);
    r->fake.now = 2000;
    r->veto = 0;
    ok(poll_next(r, &next));
    sound(r);
    assert_int_equal(r->n_evict, 2);
    asked(r, 1, 0, 255);
    assert_int_equal(stats(r).live_cells, 256);
}

static void a_veto_of_one_costs_no_other(void **state)
{
    struct rig *r = *state;

    open_with(r, 2048, 256);
    turn_at(r, 1000, 0, 0, 300); /* keeps all: the target rises to 300 */
    turn_at(r, 1001, 1, 0, 300);
    r->veto = 1;
    r->fake.now = 1600;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    asked(r, 0, 0, -1);
    assert_int_equal(live_of(r, 0), 300);
    assert_true(live_of(r, 1) <= 256); /* it may go as far as the target asks for */
    assert_true(stats(r).live_cells >= 300);
}

static void open_a_batch(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)seq;
    (void)pos;
    ok(kvlazy_init_batch(r->cache));
}

static void a_batch_opened_inside_stops_it(void **state)
{
    struct rig *r = *state;
    uint64_t next;
    char *before;
    int status;

    open_with(r, 2048, 256);
    turn_at(r, 1000, 0, 0, 600);
    turn_at(r, 1001, 1, 0, 600);
    r->fake.now = 1600;
    r->in_evict = open_a_batch;
    before = rig_dump(r);
    status = poll_next(r, &next);
    assert_true(status == KVLAZY_OK || status == KVLAZY_EBUSY);
    unchanged(r, before);
    expect(kvlazy_poll(r->cache, NULL), KVLAZY_EBUSY); /* it is open */
    ok(put(r, 0, 600, 1));
    r->in_evict = NULL;
    ok(kvlazy_end_batch(r->cache));
    sound(r);
    before = rig_dump(r);
    r->in_evict = open_a_batch;
    status = kvlazy_trim(r->cache, 10);
    assert_true(status == KVLAZY_OK || status == KVLAZY_EBUSY);
    unchanged(r, before);
    ok(kvlazy_end_batch(r->cache));
    r->in_evict = NULL;
    ok(kvlazy_trim(r->cache, 10));
    assert_int_equal(stats(r).live_cells, 10);
}

/* ---- emptied by eviction ---- */

/* s0 is evicted to nothing, s1 keeps 256. */
static void empty_by_eviction(struct rig *r)
{
    open_with(r, 2048, 256);
    turn_at(r, 1000, 0, 0, 600);
    turn_at(r, 1001, 1, 0, 256);
    r->fake.now = 1600;
    ok(kvlazy_poll(r->cache, NULL));
    asked(r, 0, 0, -1);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), -1);
    expect(put(r, 0, 600, 1), KVLAZY_EPOS);
    assert_int_equal(kvlazy_refused(r->cache), 0);
    expect(put(r, 0, 1, 1), KVLAZY_EPOS);
}

static void emptied_starts_at_0(void **state)
{
    struct rig *r = *state;

    empty_by_eviction(r);
    ok(kvlazy_seq_rm(r->cache, 0, 600, -1));
    ok(kvlazy_seq_rm(r->cache, 0, 1, -1));
    ok(kvlazy_seq_rm(r->cache, 0, 0, 600));
    expect(put(r, 0, 600, 1), KVLAZY_EPOS);
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1)); /* another one */
    expect(put(r, 0, 600, 1), KVLAZY_EPOS);
    ok(put(r, 0, 0, 3));
    sound(r);
    ok(put(r, 0, 3, 2));
    ok(put(r, 2, 600, 1)); /* that was never evicted */
}

static void emptied_forgets_when_removed(void **state)
{
    struct rig *r = *state;

    empty_by_eviction(r);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(put(r, 0, 600, 1));
    sound(r);
}

static void emptied_forgets_when_removed_from_0(void **state)
{
    struct rig *r = *state;

    empty_by_eviction(r);
    ok(kvlazy_seq_rm(r->cache, 0, 0, -5));
    ok(put(r, 0, 600, 1));
}

static void emptied_forgets_when_all_go(void **state)
{
    struct rig *r = *state;

    empty_by_eviction(r);
    ok(kvlazy_seq_rm(r->cache, -1, -1, -1));
    ok(put(r, 0, 600, 1));
}

static void emptied_forgets_at_clear(void **state)
{
    struct rig *r = *state;

    empty_by_eviction(r);
    ok(kvlazy_clear(r->cache, false));
    ok(put(r, 0, 600, 1));
}

static void emptied_by_trim(void **state)
{
    struct rig *r = *state;

    open_with(r, 2048, 0);
    turn_at(r, 1000, 0, 0, 600);
    turn_at(r, 1001, 1, 0, 256);
    ok(kvlazy_trim(r->cache, 100)); /* whatever the clock says */
    sound(r);
    asked(r, 0, 0, -1);
    asked(r, 1, 1, 99);
    expect(put(r, 0, 600, 1), KVLAZY_EPOS);
    ok(put(r, 0, 0, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(the_callback_may_read),
        RIG_TEST(a_veto_holds_for_idle_ms),
        RIG_TEST(a_veto_of_one_costs_no_other),
        RIG_TEST(a_batch_opened_inside_stops_it),
        RIG_TEST(emptied_starts_at_0),
        RIG_TEST(emptied_forgets_when_removed),
        RIG_TEST(emptied_forgets_when_removed_from_0),
        RIG_TEST(emptied_forgets_when_all_go),
        RIG_TEST(emptied_forgets_at_clear),
        RIG_TEST(emptied_by_trim),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
