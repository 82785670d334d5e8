/* SPDX-License-Identifier: MIT */
/*
 * Touching cells that the engine names: what is committed for a cell above a hole and for a block, in any order and
 * twice, what a refusal leaves, and how far ahead a stream that decodes steadily is made ready.
 */
#include "engine_cells_support.h"

/* The engine writes the cells that it names, in a batch of its own. */
static int write_named(struct desk *d, uint32_t s, const uint32_t *cell, uint32_t n)
{
    ok(kvlazy_init_batch(d->bed->cache));
    int status = kvlazy_touch_cells(d->bed->cache, s, cell, n);

    for (uint32_t i = 0; !status && i < n; i++) {
        d->used[s][cell[i]] = ++d->bed->last_stamp;
        bed_write(d->bed, s, cell[i], d->used[s][cell[i]]);
    }
    ok(kvlazy_end_batch(d->bed->cache));
    return status;
}

static void cells_above_a_hole_leave_the_hole(void **state)
{
    struct desk *d = *state;

    d->bed->params.kv_size_initial = 0;
    d->ops.move = NULL;
    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 500));
    empty_cells(d, 0, 40, 460);
    poll_at(d, 1000 + IDLE); /* the library sees them now, */
    poll_at(d, 1000 + 2 * IDLE);
    uint64_t least = bed_cover(d->bed, 0, 0, 40) + bed_cover(d->bed, 0, 460, 500);
    assert_true(touched(d) <= least);
    for (uint32_t cell = 500; cell < 540; cell++)
        ok(write_named(d, 0, &cell, 1));
    sound(d);
    d->bed->fake.now += IDLE;
    poll_at(d, d->bed->fake.now); /* what was made ready ahead goes */
    assert_true(touched(d) <= bed_cover(d->bed, 0, 0, 40) + bed_cover(d->bed, 0, 460, 540));
    sound(d);
}

static void a_block_commits_its_own_rows(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(kvlazy_init_batch(d->bed->cache));
    ok(kvlazy_touch_range(d->bed->cache, 1, 320, 352));
    assert_int_equal(touched(d), bed_cover(d->bed, 1, 320, 352));
    for (uint32_t i = 320; i < 352; i++)
        bed_write(d->bed, 1, i, d->used[1][i] = ++d->bed->last_stamp);
    fake_forget(&d->bed->fake);
    ok(kvlazy_touch_range(d->bed->cache, 1, 320, 352));
    assert_int_equal(bed_host_calls(d->bed), 0);
    ok(kvlazy_end_batch(d->bed->cache));
    assert_int_equal(bed_stats(d->bed).live_cells, 32);
    sound(d);
}

static void any_order_and_twice(void **state)
{
    struct desk *d = *state;
    const uint32_t cell[] = {70, 3, 4, 5, 300, 4, 71, 3, 599};

    bed_open(d->bed);
    ok(write_named(d, 2, cell, 9));
    assert_int_equal(bed_stats(d->bed).live_cells, 7);
    assert_true(touched(d) <= bed_cover(d->bed, 2, 3, 6) + bed_cover(d->bed, 2, 70, 72) +
                                  bed_cover(d->bed, 2, 300, 301) + bed_cover(d->bed, 2, 599, 600));
    sound(d);
    fake_forget(&d->bed->fake);
    ok(write_named(d, 2, cell, 9));
    assert_int_equal(d->bed->fake.n_call[FAKE_COMMIT], 0);
}

static void refusals_change_nothing(void **state)
{
    struct desk *d = *state;
    const uint32_t far[] = {1, CELLS}, many[] = {500, 200, 400, 300};

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 20));
    uint64_t before = touched(d);
    expect(kvlazy_touch_cells(d->bed->cache, 0, many, 1), KVLAZY_EINVAL); /* no batch */
    expect(kvlazy_touch_range(d->bed->cache, 0, 0, 1), KVLAZY_EINVAL);
    ok(kvlazy_init_batch(d->bed->cache));
    expect(kvlazy_touch_cells(NULL, 0, many, 1), KVLAZY_EINVAL);
    expect(kvlazy_touch_cells(d->bed->cache, STREAMS, many, 1), KVLAZY_EINVAL);
    expect(kvlazy_touch_cells(d->bed->cache, 0, NULL, 1), KVLAZY_EINVAL);
    expect(kvlazy_touch_cells(d->bed->cache, 0, far, 2), KVLAZY_EINVAL);
    expect(kvlazy_touch_range(d->bed->cache, 0, 3, 2), KVLAZY_EINVAL);
    expect(kvlazy_touch_range(d->bed->cache, 0, 3, CELLS + 1), KVLAZY_EINVAL);
    expect(kvlazy_touch_range(d->bed->cache, STREAMS, 0, 1), KVLAZY_EINVAL);
    ok(kvlazy_touch_cells(d->bed->cache, 0, NULL, 0));
    ok(kvlazy_touch_range(d->bed->cache, 0, CELLS, CELLS));
    fake_fail(&d->bed->fake, FAKE_COMMIT, 1);
    expect(kvlazy_touch_cells(d->bed->cache, 1, many, 4), KVLAZY_ENOMEM);
    ok(kvlazy_end_batch(d->bed->cache));
    ok(kvlazy_set_limits(d->bed->cache, UINT32_MAX, UINT32_MAX, before));
    expect(write_named(d, 1, many, 4), KVLAZY_EBUDGET);
    assert_int_equal(touched(d), before);
    assert_int_equal(bed_stats(d->bed).live_cells, 20);
    sound(d);
}

/* Cells with rows of many pages: what is made ready ahead is bounded in bytes. */
static void ahead_is_bounded_in_bytes(void **state)
{
    struct desk *d = *state;

    for (int layer = 0; layer < 4; layer++) /* 512 KiB a cell */
        bed_layer(d->bed, 1 << 16, 1 << 16, 0);
    d->bed->params.kv_size = 40;
    d->bed->params.kv_size_initial = 0;
    bed_open(d->bed);
    for (uint32_t cell = 0; cell < 16; cell++) {
        ok(kvlazy_init_batch(d->bed->cache));
        ok(kvlazy_touch_cells(d->bed->cache, 0, &cell, 1));
        d->used[0][cell] = ++d->bed->last_stamp;
        bed_write(d->bed, 0, cell, d->used[0][cell]);
        ok(kvlazy_end_batch(d->bed->cache));
        assert_true(touched(d) <= bed_cover(d->bed, 0, 0, cell + 1) + (4 << 20));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DESK_TEST(cells_above_a_hole_leave_the_hole),
        DESK_TEST(a_block_commits_its_own_rows),
        DESK_TEST(any_order_and_twice),
        DESK_TEST(refusals_change_nothing),
        DESK_TEST(ahead_is_bounded_in_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
