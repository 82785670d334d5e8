/* SPDX-License-Identifier: MIT */
/*
 * Rows that were written outside a batch, or without being touched: trim and clear(true) give back every page outside
 * live cells, whatever the library knows of it, and no live byte.
 */
#include "engine_cells_support.h"

/* A rotation over all rows, or a restore after its batch: every row that holds no token. */
static void write_all(struct desk *d)
{
    for (uint32_t s = 0; s < STREAMS; s++)
        for (uint32_t i = 0; i < d->bed->kv_size; i++)
            if (!d->used[s][i])
                bed_write(d->bed, s, i, ++d->bed->last_stamp);
}

static uint64_t resident(struct desk *d)
{
    uint64_t bytes = 0;

    ok(kvlazy_resident(d->bed->cache, &bytes));
    return bytes;
}

static void open_asking(struct desk *d)
{
    d->bed->fake.ask_kernel = true;
    bed_open(d->bed);
}

static void clear_gives_back_what_was_never_touched(void **state)
{
    struct desk *d = *state;

    open_asking(d);
    write_all(d);
    assert_true(resident(d) > 1 << 20);
    ok(kvlazy_clear(d->bed->cache, true));
    assert_int_equal(resident(d), 0);
    assert_int_equal(bed_stats(d->bed).released_bytes, 0); /* none of it was touched */
    sound_released(d);
}

static void trim_gives_back_all_outside_live_cells(void **state)
{
    struct desk *d = *state;

    open_asking(d);
    ok(write_cells(d, 0, 0, 80));
    ok(write_cells(d, 2, 0, 30));
    write_all(d);
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(resident(d), touched(d));
    sound(d);
    ok(write_cells(d, 0, 80, 90));
    sound(d);
}

static void without_moving_the_holes_go_too(void **state)
{
    struct desk *d = *state;

    d->ops.move = NULL;
    open_asking(d);
    ok(write_cells(d, 1, 0, 300));
    empty_cells(d, 1, 20, 280);
    ok(kvlazy_trim(d->bed->cache, 0));
    write_all(d);
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(resident(d), touched(d));
    sound(d);
}

static void clear_without_data_waits(void **state)
{
    struct desk *d = *state;

    open_asking(d);
    write_all(d);
    uint64_t all = resident(d);
    ok(kvlazy_clear(d->bed->cache, false));
    assert_int_equal(resident(d), all);
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(resident(d), 0);
    sound_released(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DESK_TEST(clear_gives_back_what_was_never_touched),
        DESK_TEST(trim_gives_back_all_outside_live_cells),
        DESK_TEST(without_moving_the_holes_go_too),
        DESK_TEST(clear_without_data_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
