/* SPDX-License-Identifier: MIT */
/*
 * What runs inside the library's two callbacks: no lock is held there, so the engine, on this thread or on its
 * own, may meanwhile read, remove, run a batch or change limits. And what the log says, once an event.
 */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int depth, deepest;

/* s0 0 … 599, then s1 0 … 599, both idle, 256 may stay. */
static void open_full(struct rig *r)
{
    r->params.kv_size = 2048;
    r->params.kv_size_initial = 256;
    rig_open(r);
    ok(turn(r, 0, 0, 600));
    r->fake.now++;
    ok(turn(r, 1, 0, 600));
    r->fake.now += 1000;
    depth = deepest = 0;
}

/* Whatever happened in between, the cache is sound and goes on shrinking and serving. */
static void works_on(struct rig *r)
{
    r->in_evict = NULL;
    ok(kvlazy_end_batch(r->cache));
    sound(r);
    r->fake.now += 1000;
    settle(r);
    sound(r);
    assert_true(stats(r).live_cells <= 256);
    ok(turn(r, 3, 0, 10));
    sound(r);
}

static void runs_a_turn(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)seq;
    (void)pos;
    ok(turn(r, 2, kvlazy_seq_pos_max(r->cache, 2) + 1, 5));
}

static void a_whole_batch_inside(void **state)
{
    struct rig *r = *state;
    int status;

    open_full(r);
    r->in_evict = runs_a_turn;
    status = kvlazy_poll(r->cache, NULL);
    assert_true(status == KVLAZY_OK || status == KVLAZY_EBUSY);
    sound(r);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 599); /* a batch was opened meanwhile: nothing goes */
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), 599);
    assert_int_equal(stats(r).n_evict, 0);
    works_on(r);
}

static void removes(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)pos;
    ok(kvlazy_seq_rm(r->cache, seq, 100, 200));
    ok(kvlazy_seq_rm(r->cache, 1 - seq, -1, -1));
}

static void a_removal_inside(void **state)
{
    struct rig *r = *state;

    open_full(r);
    r->in_evict = removes;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    works_on(r);
}

static void clears(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)seq;
    (void)pos;
    ok(kvlazy_clear(r->cache, true));
}

static void a_clear_inside(void **state)
{
    struct rig *r = *state;

    open_full(r);
    r->in_evict = clears;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    assert_int_equal(stats(r).live_cells, 0);
    assert_int_equal(stats(r).n_evict, 0);
    works_on(r);
    ok(kvlazy_clear(r->cache, false));
    ok(turn(r, 0, 600, 1)); /* what a clear emptied was not emptied by eviction */
}

static void goes_deeper(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    int status;

    (void)seq;
    (void)pos;
    if (++depth > deepest)
        deepest = depth;
    if (depth < 20) {
        status = kvlazy_poll(r->cache, NULL);
        assert_true(status == KVLAZY_OK || status == KVLAZY_EBUSY);
        status = kvlazy_trim(r->cache, 100);
        assert_true(status == KVLAZY_OK || status == KVLAZY_EBUSY);
        status = kvlazy_set_limits(r->cache, 200, UINT32_MAX, UINT64_MAX);
        assert_true(status == KVLAZY_OK || status == KVLAZY_EBUSY);
    }
    depth--;
}

static void the_idle_side_inside(void **state)
{
    struct rig *r = *state;

    open_full(r);
    r->in_evict = goes_deeper;
    ok(kvlazy_poll(r->cache, NULL));
    sound(r);
    assert_true(deepest < 20); /* a question is not asked inside its own answer without end */
    works_on(r);
}

static void opens(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)seq;
    (void)pos;
    if (++depth > deepest)
        deepest = depth;
    if (depth < 20)
        ok(kvlazy_init_batch(r->cache));
    depth--;
}

static void init_inside_init(void **state)
{
    struct rig *r = *state;

    r->params.flags = KVLAZY_SHRINK_AT_INIT;
    open_full(r);
    r->in_evict = opens;
    ok(kvlazy_init_batch(r->cache));
    assert_true(deepest < 20);
    r->in_evict = NULL;
    sound(r);
    assert_int_equal(stats(r).n_evict, 0);
    expect(kvlazy_poll(r->cache, NULL), KVLAZY_EBUSY);
    ok(put(r, 0, 600, 1)); /* the positions read in the batch that was opened inside stay true */
    works_on(r);
}

/* ---- the log ---- */

static struct rig *logged;

static void reads_while_logging(void *ctx, int level, const char *text)
{
    kvlazy_stats_info info = {.struct_size = sizeof info};

    (void)ctx;
    assert_in_range(level, KVLAZY_LOG_ERROR, KVLAZY_LOG_DEBUG);
    assert_null(strchr(text, '\n'));
    logged->n_log++;
    if (logged->cache) { /* no lock is held */
        ok(kvlazy_stats(logged->cache, &info));
        ok(kvlazy_check(logged->cache, NULL));
    }
}

static void the_log_may_read(void **state)
{
    struct rig *r = *state;

    logged = r;
    r->params.log = reads_while_logging;
    open_full(r);
    ok(kvlazy_poll(r->cache, NULL));
    expect(turn(r, 0, 999, 1), KVLAZY_EPOS);
    ok(kvlazy_trim(r->cache, 10));
    ok(kvlazy_clear(r->cache, true));
    assert_true(r->n_log >= 4);
}

static bool says(struct rig *r, const char *a, const char *b)
{
    for (char *line = strtok(r->log, "\n"); line; line = strtok(NULL, "\n"))
        if (strstr(line, a) && strstr(line, b))
            return true;
    return false;
}

static void an_event_is_a_line(void **state)
{
    struct rig *r = *state;
    int lines;

    r->params.name = "%s%n a name";
    r->params.kv_size = 4096;
    r->params.kv_size_initial = 256;
    rig_open(r);
    assert_int_equal(r->n_log, 1);
    assert_non_null(strstr(r->log, "%s%n a name"));
    ok(turn(r, 0, 0, 256));
    assert_int_equal(r->n_log, 1);
    r->log_bytes = 0;
    ok(turn(r, 0, 256, 300)); /* one line: 256 -> 1024 */
    assert_int_equal(r->n_log, 2);
    assert_true(says(r, "256", "1024"));
    lines = r->n_log;
    for (int i = 0; i < 50; i++) {
        ok(turn(r, 0, 556 + i, 1));
        ok(kvlazy_poll(r->cache, NULL));
    }
    assert_int_equal(r->n_log, lines); /* steady decode says nothing */
    r->log_bytes = 0;
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(r->n_log, lines + 1);
    assert_true(says(r, "1024", "350")); /* cap from, cells evicted */
    for (int i = 0; i < 5; i++) {
        r->fake.now += 500;
        ok(kvlazy_poll(r->cache, NULL));
    }
    assert_int_equal(r->n_log, lines + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_whole_batch_inside), RIG_TEST(a_removal_inside), RIG_TEST(a_clear_inside),
        RIG_TEST(the_idle_side_inside), RIG_TEST(init_inside_init), RIG_TEST(the_log_may_read),
        RIG_TEST(an_event_is_a_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
