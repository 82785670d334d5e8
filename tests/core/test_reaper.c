/* SPDX-License-Identifier: MIT */
/*
 * A thread that polls: memory comes back with no further call, whatever made the time stale that it slept until, for
 * one cache, many, and linked ones, and under pressure. Made for the thread sanitizer too.
 */
#include "reaper_support.h"
#include "core/lock.h"

#include <unistd.h>

#include <kvlazy/engine_cells.h>

/* ------------------------------------------------------------------------------------------- arguments */

static uint32_t no_cells(void *ctx, uint32_t stream)
{
    (void)ctx, (void)stream;
    return 0;
}

static void arguments(void **state)
{
    struct rig *r = open_fake(*state, 0, NEVER_MS), *other = rig_new();
    kvlazy_reaper *reaper = new_reaper(), *second = new_reaper();
    kvlazy_cell_ops ops = {.struct_size = sizeof ops, .used_end = no_cells};
    static uint64_t foreign[64];

    expect(kvlazy_reaper_create("", NULL), KVLAZY_EINVAL);
    expect(kvlazy_reaper_add(NULL, r->cache), KVLAZY_EINVAL);
    expect(kvlazy_reaper_add(reaper, NULL), KVLAZY_EINVAL);
    expect(kvlazy_reaper_add((kvlazy_reaper *)foreign, r->cache), KVLAZY_EINVAL);
    expect(kvlazy_reaper_add(reaper, (kvlazy_cache *)foreign), KVLAZY_EINVAL);
    expect(kvlazy_reaper_remove(NULL, r->cache), KVLAZY_EINVAL);
    expect(kvlazy_reaper_remove(reaper, NULL), KVLAZY_EINVAL);
    expect(kvlazy_reaper_remove(reaper, r->cache), KVLAZY_EINVAL); /* not in it */
    expect(kvlazy_reaper_pressure(NULL), KVLAZY_EINVAL);
    expect(kvlazy_reaper_pressure((kvlazy_reaper *)foreign), KVLAZY_EINVAL);
    kvlazy_reaper_destroy(NULL);
    kvlazy_reaper_destroy((kvlazy_reaper *)foreign);

    ok(kvlazy_reaper_add(reaper, r->cache));
    expect(kvlazy_reaper_add(reaper, r->cache), KVLAZY_EINVAL);
    expect(kvlazy_reaper_add(second, r->cache), KVLAZY_EINVAL);
    expect(kvlazy_reaper_remove(second, r->cache), KVLAZY_EINVAL);
    ok(kvlazy_reaper_remove(reaper, r->cache));
    expect(kvlazy_reaper_remove(reaper, r->cache), KVLAZY_EINVAL);
    ok(kvlazy_reaper_add(second, r->cache));

    quiet(other);
    other->params.cell_ops = &ops;
    ok(kvlazy_create(&other->params, &other->cache));
    expect(kvlazy_reaper_add(reaper, other->cache), KVLAZY_ENOTSUP);
    kvlazy_destroy(other->cache);
    other->params.flags = KVLAZY_CELLS_ANY_THREAD;
    ok(kvlazy_create(&other->params, &other->cache));
    ok(kvlazy_reaper_add(reaper, other->cache));
    kvlazy_destroy(other->cache);
    other->params.flags = 0;
    ops.used_end = NULL; /* the engine says everything */
    ok(kvlazy_create(&other->params, &other->cache));
    ok(kvlazy_reaper_add(reaper, other->cache));
    kvlazy_reaper_destroy(reaper);
    kvlazy_reaper_destroy(second);
    assert_false(is_watched(r));
    kvlazy_destroy(other->cache);
    other->cache = NULL;
    rig_free(other);
}

/* ------------------------------------------------------------------------------------------- what wakes it */

static void memory_comes_back_with_no_further_call(void **state)
{
    struct rig *r = open_timed(*state, 100, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    ok(turn(r, 0, 0, 300));
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 299);
    await(stats(r).live_cells == 100 && touched(r) == cover(r));
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

/* Once everything is given back it is not looked at again until something happens. */
static void await_rest(struct rig *r)
{
    uint64_t n;

    do {
        n = n_looked(r);
        nap(3 * IDLE_MS);
    } while (n_looked(r) != n);
}

static void it_sleeps_when_nothing_is_due(void **state)
{
    struct rig *r = open_fake(*state, 100, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    await_rest(r); /* ends */
    ok(turn(r, 0, 0, 50));
    set_now(r, 1000 + IDLE_MS);
    await_rest(r);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1)); /* it was told never */
    set_now(r, 1000 + 2 * IDLE_MS);
    await(touched(r) == 0);
    ok(turn(r, 0, 0, 50)); /* and again */
    ok(kvlazy_clear(r->cache, false));
    set_now(r, 1000 + 4 * IDLE_MS);
    await(touched(r) == 0);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void limits_wake_it(void **state)
{
    struct rig *r = open_fake(*state, 0, NEVER_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(turn(r, 0, 0, 300));
    ok(kvlazy_reaper_add(reaper, r->cache));
    set_now(r, 1000 + NEVER_MS / 2);
    ok(kvlazy_set_limits(r->cache, 200, IDLE_MS, UINT64_MAX));
    await(stats(r).live_cells == 200);
    await_rest(r);
    ok(kvlazy_set_limits(r->cache, 100, UINT32_MAX, UINT64_MAX)); /* it idles already */
    await(stats(r).live_cells == 100 && touched(r) == cover(r));
    ok(kvlazy_set_limits(r->cache, 50, 0, UINT64_MAX));
    await_rest(r);
    assert_int_equal(stats(r).live_cells, 100);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, IDLE_MS, UINT64_MAX));
    await(stats(r).live_cells == 50);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void added_with_an_open_batch(void **state)
{
    struct rig *r = open_fake(*state, 100, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 0, 300));
    ok(kvlazy_reaper_add(reaper, r->cache));
    set_now(r, 5000);
    nap(2);
    assert_int_equal(stats(r).live_cells, 300);
    ok(kvlazy_end_batch(r->cache));
    set_now(r, 5000 + IDLE_MS);
    await(stats(r).live_cells == 100);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

/* It came when pages were due and a batch was open: the end of that batch is when it has to come back, though nothing
 * was applied. The hour of the idle time would be the next occasion. */
static void turned_away_it_comes_back(void **state)
{
    struct rig *r = open_fake(*state, 0, NEVER_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(turn(r, 0, 0, 300));
    ok(kvlazy_set_limits(r->cache, 100, UINT32_MAX, UINT64_MAX));
    ok(kvlazy_init_batch(r->cache));
    set_now(r, 1000 + NEVER_MS);
    ok(kvlazy_reaper_add(reaper, r->cache));
    uint64_t give_up = real_ms() + PATIENCE_MS;
    for (bool away = false; !away; nap(1)) { /* until it was there */
        kvl_lock(r->cache);
        away = r->cache->group->turned_away;
        kvl_unlock(r->cache);
        assert_true(real_ms() < give_up);
    }
    ok(kvlazy_end_batch(r->cache));
    await(stats(r).live_cells == 100 && touched(r) == cover(r));
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void a_batch_that_an_error_ended(void **state)
{
    struct rig *r = open_fake(*state, 100, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    await_rest(r);
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 0, 300));
    expect(put(r, 0, 900, 1), KVLAZY_EPOS); /* closes it */
    uint64_t n = n_looked(r);
    await(n_looked(r) > n);
    set_now(r, 1000 + 2 * IDLE_MS);
    await(stats(r).live_cells == 100);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void the_engine_polls_too(void **state)
{
    struct rig *r = open_timed(*state, 100, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();
    uint64_t next;

    ok(kvlazy_reaper_add(reaper, r->cache));
    ok(turn(r, 0, 0, 300));
    while (stats(r).live_cells == 300) /* what this thread is told the reaper was not */
        kvlazy_poll(r->cache, &next);
    for (int i = 0; i < 3; i++)
        kvlazy_poll(r->cache, &next);
    ok(turn(r, 0, 100, 200));
    await(stats(r).live_cells == 100);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void refused_pages_are_offered_again(void **state)
{
    struct rig *r = open_fake(*state, 0, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    ok(turn(r, 0, 0, 300));
    set_now(r, 1000 + IDLE_MS);
    await_rest(r);
    r->fake.refuse_decommit = true;
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(kvlazy_trim(r->cache, 0));
    r->fake.refuse_decommit = false;
    assert_true(touched(r) > 0);
    set_now(r, 1000 + 2 * IDLE_MS);
    await(touched(r) == 0);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

/* ------------------------------------------------------------------------------------------- many */

static void many_caches(void **state)
{
    enum { N = 8 };
    struct rig *r[N];
    kvlazy_reaper *reaper = new_reaper();

    for (int i = 0; i < N; i++) {
        r[i] = open_fake(i ? rig_new() : *state, 20 + (uint32_t)i, IDLE_MS + (uint32_t)i);
        ok(kvlazy_reaper_add(reaper, r[i]->cache));
        ok(turn(r[i], 0, 0, 100 + (uint32_t)i));
    }
    for (int i = 0; i < N; i++)
        set_now(r[i], 1000 + IDLE_MS + (uint64_t)i);
    for (int i = 0; i < N; i++)
        await(stats(r[i]).live_cells == 20 + (uint64_t)i);
    for (int i = N - 1; i > 0; i--) {
        if (i % 2)
            ok(kvlazy_reaper_remove(reaper, r[i]->cache));
        sound(r[i]);
        rig_free(r[i]); /* some with the thread watching */
    }
    kvlazy_reaper_destroy(reaper);
    sound(r[0]);
}

static struct rig *open_linked(struct rig *full)
{
    struct rig *r = rig_new();

    quiet(r);
    r->params.with = full->cache;
    r->params.mem = &full->fake.table;
    r->params.kv_size_initial = full->params.kv_size_initial;
    r->params.slot_shrink_idle_ms = full->params.slot_shrink_idle_ms;
    rig_open(r);
    return r;
}

static void linked_caches_are_one(void **state)
{
    struct rig *full = open_fake(*state, 100, IDLE_MS), *window = open_linked(full);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, window->cache));
    expect(kvlazy_reaper_add(reaper, full->cache), KVLAZY_EINVAL);
    ok(put(full, 0, 0, 300));
    ok(put(window, 0, 0, 300));
    ok(kvlazy_end_batch(full->cache));
    set_now(full, 1000 + IDLE_MS);
    await(stats(full).live_cells == 100 && stats(window).live_cells == 100);
    rig_free(window); /* the one that was added: the other stays in */
    assert_true(is_watched(full));
    ok(turn(full, 0, 100, 200));
    set_now(full, 1000 + 2 * IDLE_MS);
    await(stats(full).live_cells == 100);
    ok(kvlazy_reaper_remove(reaper, full->cache));
    assert_false(is_watched(full));
    window = open_linked(full);
    ok(kvlazy_reaper_add(reaper, full->cache));
    ok(kvlazy_reaper_remove(reaper, window->cache)); /* any of them stands for all */
    assert_false(is_watched(full));
    ok(kvlazy_reaper_add(reaper, full->cache));
    rig_free(window);
    kvlazy_reaper_destroy(reaper);
    sound(full);
}

static void from_one_reaper_to_another(void **state)
{
    struct rig *r = open_fake(*state, 100, IDLE_MS);
    uint64_t now = 1000;

    for (int i = 0; i < 5; i++) {
        kvlazy_reaper *reaper = new_reaper();

        ok(kvlazy_reaper_add(reaper, r->cache));
        ok(turn(r, 0, kvlazy_seq_pos_max(r->cache, 0) + 1, 200));
        set_now(r, now += IDLE_MS);
        await(stats(r).live_cells == 100);
        kvlazy_reaper_destroy(reaper);
    }
    sound(r);
}

/* ------------------------------------------------------------------------------------------- pressure */

static void pressure_takes_what_rests(void **state)
{
    struct rig *r = open_fake(*state, 100, NEVER_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    ok(turn(r, 0, 0, 300));
    ok(turn(r, 1, 0, 50));
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    set_now(r, 1000 + NEVER_MS / 8);
    ok(kvlazy_reaper_pressure(reaper));
    await(stats(r).live_cells == 100 && touched(r) == cover(r));
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void pressure_leaves_a_batch_alone(void **state)
{
    struct rig *r = open_fake(*state, 100, NEVER_MS), *other = open_fake(rig_new(), 100, NEVER_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    ok(kvlazy_reaper_add(reaper, other->cache)); /* asked first: the newest is */
    ok(turn(r, 0, 0, 300));
    ok(turn(other, 0, 0, 300));
    set_now(r, 1000 + NEVER_MS / 8);
    set_now(other, 1000 + NEVER_MS / 8);
    ok(kvlazy_init_batch(other->cache));
    ok(kvlazy_reaper_pressure(reaper));
    await(stats(r).live_cells == 100);
    assert_int_equal(stats(other).live_cells, 300);
    ok(kvlazy_end_batch(other->cache));
    ok(kvlazy_reaper_pressure(reaper)); /* once a second: this one waits its turn */
    await(stats(other).live_cells == 100);
    kvlazy_reaper_destroy(reaper);
    sound(r);
    sound(other);
    rig_free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(arguments),
        RIG_TEST(memory_comes_back_with_no_further_call),
        RIG_TEST(it_sleeps_when_nothing_is_due),
        RIG_TEST(limits_wake_it),
        RIG_TEST(added_with_an_open_batch),
        RIG_TEST(turned_away_it_comes_back),
        RIG_TEST(a_batch_that_an_error_ended),
        RIG_TEST(the_engine_polls_too),
        RIG_TEST(refused_pages_are_offered_again),
        RIG_TEST(many_caches),
        RIG_TEST(linked_caches_are_one),
        RIG_TEST(from_one_reaper_to_another),
        RIG_TEST(pressure_takes_what_rests),
        RIG_TEST(pressure_leaves_a_batch_alone),
    };

    alarm(110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
