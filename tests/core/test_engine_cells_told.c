/* SPDX-License-Identifier: MIT */
/*
 * An engine that says everything: cells are in use from when they are touched until the engine frees them, no function
 * is called to find that out, next_ms is right, and a second thread may poll.
 */
#include "engine_cells_support.h"

#include <pthread.h>

/* Without functions, or with those that change the table. */
static void open_told(struct desk *d, bool changes)
{
    d->ops.used_end = NULL;
    d->ops.is_used = NULL;
    if (!changes) {
        d->ops.move = NULL;
        d->ops.vacate = NULL;
    }
    bed_open(d->bed);
}

static void free_told(struct desk *d, uint32_t s, uint32_t begin, uint32_t end)
{
    empty_cells(d, s, begin, end);
    ok(kvlazy_free_range(d->bed->cache, s, begin, end));
}

static uint64_t poll_next(struct desk *d, uint64_t now)
{
    uint64_t next_ms = 7;

    d->bed->fake.now = now;
    ok(kvlazy_poll(d->bed->cache, &next_ms));
    return next_ms;
}

static void what_is_freed_goes_at_the_time_that_poll_told(void **state)
{
    struct desk *d = *state;

    open_told(d, false);
    ok(write_cells(d, 0, 0, 80));
    ok(write_cells(d, 1, 0, 10));
    assert_int_equal(poll_next(d, 1000), IDLE);
    assert_int_equal(poll_next(d, 1000 + IDLE), UINT64_MAX); /* what is in use stays for ever */
    uint64_t all = touched(d);
    assert_true(all >= bed_cover(d->bed, 0, 0, 80)); /* streams may share a page */

    d->bed->fake.now = 3000;
    free_told(d, 0, 20, 80);
    assert_int_equal(bed_stats(d->bed).live_cells, 30);
    assert_int_equal(poll_next(d, 3100), IDLE - 100);
    assert_int_equal(touched(d), all);
    assert_int_equal(poll_next(d, 3000 + IDLE), UINT64_MAX);
    assert_true(touched(d) <= bed_cover(d->bed, 0, 0, 20) + bed_cover(d->bed, 1, 0, 10));
    sound_released(d);
}

static void single_cells_in_any_order_and_again(void **state)
{
    struct desk *d = *state;
    const uint32_t cell[] = {9, 3, 3, 500, 4};

    open_told(d, false);
    ok(write_cells(d, 2, 0, 10));
    ok(kvlazy_free_cells(d->bed->cache, 2, cell, 5));
    ok(kvlazy_free_cells(d->bed->cache, 2, cell, 5));
    ok(kvlazy_free_cells(d->bed->cache, 2, NULL, 0));
    empty_cells(d, 2, 3, 5);
    empty_cells(d, 2, 9, 10);
    assert_int_equal(bed_stats(d->bed).live_cells, 7);
    expect(kvlazy_free_cells(d->bed->cache, 2, NULL, 1), KVLAZY_EINVAL);
    expect(kvlazy_free_cells(d->bed->cache, STREAMS, cell, 1), KVLAZY_EINVAL);
    expect(kvlazy_free_cells(d->bed->cache, 2, (const uint32_t[]){1, CELLS}, 2), KVLAZY_EINVAL);
    expect(kvlazy_free_range(d->bed->cache, 2, 2, 1), KVLAZY_EINVAL);
    expect(kvlazy_free_range(d->bed->cache, 2, 0, CELLS + 1), KVLAZY_EINVAL);
    expect(kvlazy_free_range(NULL, 2, 0, 1), KVLAZY_EINVAL);
    assert_int_equal(bed_stats(d->bed).live_cells, 7);
    sound(d);
}

static void cells_are_freed_inside_a_batch(void **state)
{
    struct desk *d = *state;

    open_told(d, false);
    ok(kvlazy_init_batch(d->bed->cache));
    ok(kvlazy_touch_range(d->bed->cache, 0, 0, 60)); /* the computation fails */
    ok(kvlazy_free_range(d->bed->cache, 0, 0, 60));
    ok(kvlazy_end_batch(d->bed->cache));
    assert_int_equal(bed_stats(d->bed).live_cells, 0);
    poll_next(d, 1000 + IDLE);
    assert_int_equal(touched(d), 0);
}

static void clear_and_trim_need_no_table(void **state)
{
    struct desk *d = *state;

    open_told(d, false);
    ok(write_cells(d, 0, 0, 200));
    free_told(d, 0, 50, 200);
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 50));
    sound_released(d);
    empty_cells(d, 0, 0, 50);
    ok(kvlazy_clear(d->bed->cache, true));
    assert_int_equal(touched(d), 0);
    assert_int_equal(bed_stats(d->bed).live_cells, 0);
    sound_released(d);
}

/* The cells that the desk's vacate emptied are freed from inside it. */
static void say_freed(struct desk *d)
{
    ok(kvlazy_free_range(d->bed->cache, d->vacated_stream, d->vacated_from, CELLS));
}

static void cells_move_and_are_vacated(void **state)
{
    struct desk *d = *state;

    open_told(d, true);
    d->in_vacate = say_freed;
    ok(write_cells(d, 1, 0, 400));
    free_told(d, 1, 0, 250);
    poll_next(d, 1000 + IDLE);
    assert_int_equal(d->n_vacate, 1);
    assert_int_equal(desk_used_end(d, 1), 100);
    assert_int_equal(bed_stats(d->bed).live_cells, 100);
    assert_int_equal(bed_stats(d->bed).evicted_cells, 50);
    assert_int_equal(touched(d), bed_cover(d->bed, 1, 0, 100));
    sound_released(d);
}

static void *poll_there(void *cache)
{
    return kvlazy_poll(cache, NULL) ? cache : NULL;
}

static void another_thread_polls(void **state)
{
    struct desk *d = *state;
    pthread_t thread;
    void *failed = d;

    open_told(d, false);
    ok(write_cells(d, 0, 0, 300));
    free_told(d, 0, 100, 300);
    d->bed->fake.now += IDLE;
    assert_int_equal(pthread_create(&thread, NULL, poll_there, d->bed->cache), 0);
    assert_int_equal(pthread_join(thread, &failed), 0); /* this one sleeps in a read meanwhile */
    assert_null(failed);
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 100));
    sound_released(d);
}

static void with_used_end_the_time_is_right_too(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 80));
    assert_int_equal(poll_next(d, 1000 + IDLE), UINT64_MAX);
    d->bed->fake.now = 3000;
    free_told(d, 0, 20, 80);
    assert_int_equal(poll_next(d, 3200), IDLE - 200);
    assert_int_equal(poll_next(d, 3000 + IDLE), UINT64_MAX);
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 20));
}

static void functions_are_bound_in_all_linked_caches_or_none(void **state)
{
    struct desk *d = *state;
    kvlazy_cache *other = NULL;

    bed_open(d->bed);
    kvlazy_params p = d->bed->params;
    kvlazy_cell_ops ops = {.struct_size = sizeof ops};
    p.with = d->bed->cache;
    p.cell_ops = &ops;
    expect(kvlazy_create(&p, &other), KVLAZY_EINVAL);
    ops = d->ops;
    ok(kvlazy_create(&p, &other));
    kvlazy_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DESK_TEST(what_is_freed_goes_at_the_time_that_poll_told),
        DESK_TEST(single_cells_in_any_order_and_again),
        DESK_TEST(cells_are_freed_inside_a_batch),
        DESK_TEST(clear_and_trim_need_no_table),
        DESK_TEST(cells_move_and_are_vacated),
        DESK_TEST(another_thread_polls),
        DESK_TEST(with_used_end_the_time_is_right_too),
        DESK_TEST(functions_are_bound_in_all_linked_caches_or_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
