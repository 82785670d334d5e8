/* SPDX-License-Identifier: MIT */
/*
 * An engine whose table is bound to its thread, beside a reaper: the reaper reads no table and polls nothing, but tells
 * the engine when to poll; then cells move, go, and memory comes back on the engine's own thread.
 */
#include "engine_cells_support.h"

#include <stdatomic.h>
#include <time.h>

#include <kvlazy/reaper.h>

enum { SOON_MS = 30, PATIENCE_MS = 20000 };

static atomic_int n_due;
static pthread_t engine_thread;
static atomic_bool called_elsewhere;

static void due(void *ctx)
{
    (void)ctx;
    atomic_fetch_add(&n_due, 1);
}

static int vacate_here(void *ctx, uint32_t stream, uint32_t from)
{
    if (!pthread_equal(pthread_self(), engine_thread))
        atomic_store(&called_elsewhere, true);
    return desk_vacate(ctx, stream, from);
}

static void nap(long ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000}, NULL);
}

static void await_due(int n)
{
    for (int ms = 0; atomic_load(&n_due) < n; ms++) {
        assert_true(ms < PATIENCE_MS);
        nap(1);
    }
    assert_int_equal(atomic_load(&n_due), n);
}

static kvlazy_reaper *open_reminded(struct desk *d)
{
    kvlazy_reaper *reaper;

    atomic_store(&n_due, 0);
    atomic_store(&called_elsewhere, false);
    engine_thread = pthread_self();
    d->ops.vacate = vacate_here;
    d->ops.due = due;
    d->bed->params.slot_shrink_idle_ms = SOON_MS;
    bed_open(d->bed);
    ok(kvlazy_reaper_create("", &reaper));
    ok(kvlazy_reaper_add(reaper, d->bed->cache));
    return reaper;
}

static void close_reminded(struct desk *d, kvlazy_reaper *reaper)
{
    ok(kvlazy_reaper_remove(reaper, d->bed->cache));
    kvlazy_reaper_destroy(reaper);
    assert_false(atomic_load(&called_elsewhere));
}

static void the_engine_is_told_when_to_poll(void **state)
{
    struct desk *d = *state;
    kvlazy_reaper *reaper = open_reminded(d);

    await_due(1); /* when it is added */
    poll_at(d, 1000);
    ok(write_cells(d, 0, 0, 300));
    await_due(2);
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 300));
    poll_at(d, 1000 + SOON_MS);
    assert_int_equal(d->n_vacate, 1);
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 100));
    sound_released(d);
    nap(3 * SOON_MS);
    assert_int_equal(atomic_load(&n_due), 2); /* nothing is due */

    empty_cells(d, 0, 50, 100);
    ok(kvlazy_free_range(d->bed->cache, 0, 50, 100));
    await_due(3);
    poll_at(d, 1000 + 2 * SOON_MS);
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 50));
    close_reminded(d, reaper);
}

static void not_while_a_batch_is_open(void **state)
{
    struct desk *d = *state;
    kvlazy_reaper *reaper = open_reminded(d);

    await_due(1);
    poll_at(d, 1000);
    ok(kvlazy_init_batch(d->bed->cache));
    ok(kvlazy_touch_range(d->bed->cache, 0, 0, 10));
    nap(3 * SOON_MS);
    assert_int_equal(atomic_load(&n_due), 1);
    for (uint32_t i = 0; i < 10; i++)
        bed_write(d->bed, 0, i, d->used[0][i] = ++d->bed->last_stamp);
    ok(kvlazy_end_batch(d->bed->cache));
    await_due(2);
    ok(kvlazy_reaper_pressure(reaper));
    await_due(3);
    close_reminded(d, reaper);
}

static void without_the_function_it_is_refused(void **state)
{
    struct desk *d = *state;
    kvlazy_reaper *reaper;

    bed_open(d->bed);
    ok(kvlazy_reaper_create("", &reaper));
    expect(kvlazy_reaper_add(reaper, d->bed->cache), KVLAZY_ENOTSUP);
    kvlazy_reaper_destroy(reaper);
}

static void a_cache_goes_from_under_the_reaper(void **state)
{
    struct desk *d = *state;
    kvlazy_reaper *reaper = open_reminded(d);

    await_due(1);
    kvlazy_destroy(d->bed->cache);
    d->bed->cache = NULL;
    kvlazy_reaper_destroy(reaper);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DESK_TEST(the_engine_is_told_when_to_poll),
        DESK_TEST(not_while_a_batch_is_open),
        DESK_TEST(without_the_function_it_is_refused),
        DESK_TEST(a_cache_goes_from_under_the_reaper),
    };

    return cmocka_run_group_tests_name("engine_cells_due", tests, NULL, NULL);
}
