/* SPDX-License-Identifier: MIT */
/*
 * Idle cells that the engine keeps itself: pages of emptied cells decay, an idle stream is packed through `move`, and
 * the engine is asked to vacate: when, for which cells, with which veto, what it may do inside, and what the log says.
 */
#include "engine_cells_support.h"

#include <stdio.h>
#include <string.h>

/* ---- decay ---- */

static void what_the_engine_emptied_decays_in_a_busy_stream(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 500));
    ok(write_cells(d, 1, 0, 10));
    empty_cells(d, 0, 40, 500);
    for (uint64_t t = 1000; t <= 1000 + IDLE * 3 / 2; t += 10) {
        d->bed->fake.now = t;
        ok(write_cells(d, 0, 39, 40));
        sound(d);
    }
    assert_true(touched(d) <= bed_cover(d->bed, 0, 0, 40) + bed_cover(d->bed, 1, 0, 10));
    sound_released(d);
    assert_int_equal(d->n_move + d->n_vacate, 0);
}

static void nothing_decays_with_idle_0(void **state)
{
    struct desk *d = *state;

    d->bed->params.slot_shrink_idle_ms = 0;
    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 500));
    empty_cells(d, 0, 20, 500);
    uint64_t all = touched(d);
    for (uint64_t t = 0; t < 100; t++)
        poll_at(d, 1000 + t * 1000);
    assert_int_equal(touched(d), all);
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 20));
    sound_released(d);
}

/* ---- moving ---- */

static void an_idle_stream_is_packed(void **state)
{
    struct desk *d = *state;

    d->bed->params.kv_size_initial = 0;
    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 400));
    ok(write_cells(d, 1, 0, 20));
    uint32_t last = d->used[0][399], kept = d->used[0][1];
    empty_cells(d, 0, 10, 310);
    empty_cells(d, 0, 0, 1);
    poll_at(d, 1000 + IDLE - 1);
    assert_int_equal(d->n_move, 0);
    poll_at(d, 1000 + IDLE);
    assert_int_equal(desk_used_end(d, 0), 99);
    bed_settle(d->bed);
    assert_int_equal(d->used[0][1], kept); /* what lies below 99 stays */
    assert_true(d->used[0][98] == last || d->used[0][0] == last);
    assert_int_equal(bed_stats(d->bed).moved_cells, 90);
    assert_int_equal(d->n_vacate, 0);
    sound_released(d);
    assert_true(touched(d) <= bed_cover(d->bed, 0, 0, 99) + bed_cover(d->bed, 1, 0, 20));

    fake_forget(&d->bed->fake);
    poll_at(d, 1000 + 10 * IDLE);
    assert_int_equal(bed_host_calls(d->bed), 0);
}

static void a_batch_open_or_no_way_to_move(void **state)
{
    struct desk *d = *state;

    d->bed->params.kv_size_initial = 0;
    d->ops.move = NULL;
    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 400));
    empty_cells(d, 0, 0, 300);
    ok(kvlazy_init_batch(d->bed->cache));
    expect(kvlazy_trim(d->bed->cache, 0), KVLAZY_EBUSY);
    expect(kvlazy_poll(d->bed->cache, NULL), KVLAZY_EBUSY);
    ok(kvlazy_end_batch(d->bed->cache));
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(desk_used_end(d, 0), 400);
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 300, 400));
    sound_released(d);
}

static void without_is_used_all_below_used_end_stays(void **state)
{
    struct desk *d = *state;

    d->ops.is_used = NULL;
    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 80));
    ok(write_cells(d, 0, 80, 90));
    empty_cells(d, 0, 80, 90);
    uint32_t hole = d->used[0][3];
    d->used[0][3] = 0; /* no callback tells */
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(d->n_move, 0);
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 80));
    assert_true(bed_holds(d->bed, 0, 3, hole));
    assert_int_equal(bed_stats(d->bed).live_cells, 80);
    poll_at(d, 1000 + IDLE);
    assert_int_equal(d->n_vacate, 0); /* 80 are within 100 */
}

static void tensors_on_a_device_never_move(void **state)
{
    static const kvlazy_tensor device = {.row_bytes = 64};
    struct desk *d = *state;

    bed_layer(d->bed, 64, 0, 0)->k = &device;
    d->bed->params.kv_size_initial = 50;
    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 300));
    empty_cells(d, 0, 0, 200);
    ok(kvlazy_init_batch(d->bed->cache));
    expect(kvlazy_copy_cells(d->bed->cache, 0, 1, 0, 2), KVLAZY_ENOTSUP);
    ok(kvlazy_end_batch(d->bed->cache));
    poll_at(d, 1000 + IDLE);
    assert_int_equal(d->n_move, 0);
    assert_int_equal(d->n_vacate, 1);
    assert_int_equal(d->vacated_from, 250); /* 50 of the 100 stay where they are */
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(d->n_move, 0);
}

/* ---- vacating ---- */

static void an_idle_stream_is_asked_down_to_initial(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 1, 0, 400));
    empty_cells(d, 1, 0, 250);
    poll_at(d, 1000 + IDLE);
    assert_int_equal(d->n_vacate, 1);
    assert_int_equal(d->vacated_stream, 1);
    assert_int_equal(d->vacated_from, 100);
    assert_int_equal(desk_used_end(d, 1), 100); /* packed first: 150 were there */
    assert_int_equal(bed_stats(d->bed).evicted_cells, 50);
    assert_int_equal(touched(d), bed_cover(d->bed, 1, 0, 100));
    sound_released(d);
    uint64_t next = 5;
    ok(kvlazy_poll(d->bed->cache, &next));
    assert_true(next == UINT64_MAX);
    assert_int_equal(d->n_vacate, 1);
}

static void a_busy_stream_is_not_asked(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 400));
    ok(write_cells(d, 1, 0, 400));
    d->bed->fake.now = 1000 + IDLE - 10;
    ok(write_cells(d, 0, 399, 400));
    poll_at(d, 1000 + IDLE);
    assert_int_equal(d->n_vacate, 1);
    assert_int_equal(d->vacated_stream, 1);
    assert_int_equal(n_used(d, 0), 400);
}

static void a_veto_holds_for_idle_ms(void **state)
{
    struct desk *d = *state;
    uint64_t next = 5;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 400));
    d->veto = true;
    d->bed->fake.now = 1000 + IDLE;
    ok(kvlazy_poll(d->bed->cache, &next));
    assert_int_equal(d->n_vacate, 1);
    assert_int_equal(next, IDLE);
    poll_at(d, 1000 + 2 * IDLE - 1);
    assert_int_equal(d->n_vacate, 1);
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 400));
    d->veto = false;
    poll_at(d, 1000 + 2 * IDLE);
    assert_int_equal(d->n_vacate, 2);
    assert_int_equal(n_used(d, 0), 100);
    sound_released(d);
}

static void what_is_gone_counts_whatever_vacate_answers(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 400));
    d->veto = d->partial = true;
    poll_at(d, 1000 + IDLE);
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 100));
    sound_released(d);
}

static void caches_that_keep_do_not_ask(void **state)
{
    struct desk *d = *state;

    d->bed->params.shrink = KVLAZY_SHRINK_KEEP;
    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 400));
    uint64_t next = 5;
    d->bed->fake.now = 1000 + IDLE;
    ok(kvlazy_poll(d->bed->cache, &next));
    assert_true(next == UINT64_MAX);
    ok(kvlazy_trim(d->bed->cache, 10));
    assert_int_equal(d->n_vacate, 0);
    assert_int_equal(n_used(d, 0), 400);
}

static void no_vacate_means_never(void **state)
{
    struct desk *d = *state;

    d->ops.vacate = NULL;
    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 400));
    poll_at(d, 1000 + IDLE);
    ok(kvlazy_trim(d->bed->cache, 10));
    expect(kvlazy_set_limits(d->bed->cache, UINT32_MAX, UINT32_MAX, 4096), KVLAZY_EBUDGET);
    assert_int_equal(n_used(d, 0), 400);
    sound(d);
}

static void open_a_batch(struct desk *d)
{
    ok(kvlazy_init_batch(d->bed->cache));
}

static void a_batch_opened_inside_vacate(void **state)
{
    struct desk *d = *state;
    uint64_t next = 7;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 400));
    empty_cells(d, 0, 0, 20);
    d->in_vacate = open_a_batch;
    d->veto = true;
    d->bed->fake.now = 1000 + IDLE;
    expect(kvlazy_poll(d->bed->cache, &next), KVLAZY_EBUSY);
    assert_int_equal(next, IDLE);
    int n = d->n_move;
    expect(kvlazy_trim(d->bed->cache, 0), KVLAZY_EBUSY);
    ok(kvlazy_end_batch(d->bed->cache));
    assert_int_equal(d->n_move, n);
    assert_int_equal(n_used(d, 0), 380);
    sound(d);
    d->in_vacate = NULL;
    d->veto = false;
    ok(kvlazy_trim(d->bed->cache, 30));
    poll_at(d, 1000 + 2 * IDLE);
    assert_true(n_used(d, 0) <= 100);
    sound(d);
}

static void look_from_inside(struct desk *d)
{
    assert_true(bed_stats(d->bed).live_cells > 0);
    ok(kvlazy_check(d->bed->cache, NULL));
}

static void trim_asks_every_stream(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 60));
    ok(write_cells(d, 1, 0, 300));
    ok(write_cells(d, 2, 0, 20));
    empty_cells(d, 1, 5, 10);
    d->in_vacate = look_from_inside;
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(d->n_vacate, 0);
    ok(kvlazy_trim(d->bed->cache, 30));
    assert_int_equal(d->n_vacate, 2);
    assert_int_equal(n_used(d, 0), 30);
    assert_int_equal(n_used(d, 1), 30);
    assert_int_equal(n_used(d, 2), 20);
    sound_released(d);
}

static void a_lowered_budget_asks_the_longest_idle_stream(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 1, 0, 300));
    d->bed->fake.now += 10;
    ok(write_cells(d, 0, 0, 300));
    uint64_t budget = bed_cover(d->bed, 0, 0, 300) + bed_cover(d->bed, 1, 0, 100);
    ok(kvlazy_set_limits(d->bed->cache, UINT32_MAX, UINT32_MAX, budget));
    assert_int_equal(d->n_vacate, 1);
    assert_int_equal(d->vacated_stream, 1);
    assert_int_equal(n_used(d, 0), 300);
    assert_true(n_used(d, 1) >= 100 && n_used(d, 1) < 300);
    assert_true(touched(d) <= budget);
    sound_released(d);
}

static void open_and_touch(struct desk *d)
{
    ok(kvlazy_init_batch(d->bed->cache));
    ok(kvlazy_touch(d->bed->cache, 0, 500));
}

/* What a batch touched that was opened inside vacate is in the table only later. */
static void cells_touched_inside_vacate_stay(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 400));
    ok(write_cells(d, 1, 0, 90));
    empty_cells(d, 1, 0, 90);
    poll_at(d, 1000 + IDLE / 2); /* sees them empty */
    d->in_vacate = open_and_touch;
    d->veto = true;
    d->bed->fake.now = 1000 + 2 * IDLE;
    expect(kvlazy_poll(d->bed->cache, NULL), KVLAZY_EBUSY);
    for (uint32_t i = 400; i < 500; i++) {
        d->used[0][i] = ++d->bed->last_stamp;
        bed_write(d->bed, 0, i, d->used[0][i]);
    }
    ok(kvlazy_end_batch(d->bed->cache));
    sound(d);
}

/* ---- what the log says ---- */

static char told[512]; /* the last line about a shrink */

static void hear(void *ctx, int level, const char *text)
{
    (void)ctx;
    (void)level;
    if (strstr(text, "shrink:"))
        snprintf(told, sizeof told, "%s", text);
}

static void open_heard(struct desk *d)
{
    told[0] = 0;
    d->bed->params.log = hear;
    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 500));
    empty_cells(d, 0, 0, 20);
}

/* 480 cells are left: 20 move down into the holes, and 380 go. */
static void heard_all(struct desk *d)
{
    char counts[80];
    kvlazy_stats_info info = bed_stats(d->bed);

    assert_int_equal(d->n_vacate, 1);
    assert_int_equal(info.evicted_cells, 380);
    assert_int_equal(info.moved_cells, 20);
    snprintf(counts, sizeof counts, ", %u evicted, %u moved,", (unsigned)info.evicted_cells,
             (unsigned)info.moved_cells);
    assert_non_null(strstr(told, counts));
}

static void a_poll_tells_what_the_engine_vacated(void **state)
{
    struct desk *d = *state;

    d->bed->params.n_pad = 256;
    open_heard(d);
    poll_at(d, 1000 + IDLE);
    heard_all(d);
    assert_non_null(
        strstr(told, "cap 1024 -> 768 cells (kv_size_initial 100 in steps of n_pad 256) after 500 ms idle"));
}

static void a_shrink_at_init_tells_what_the_engine_vacated(void **state)
{
    struct desk *d = *state;

    d->bed->params.flags = KVLAZY_SHRINK_AT_INIT;
    open_heard(d);
    d->bed->fake.now = 1000 + IDLE;
    ok(kvlazy_init_batch(d->bed->cache));
    heard_all(d);
    ok(kvlazy_end_batch(d->bed->cache));
}

static void a_trim_tells_what_the_engine_vacated(void **state)
{
    struct desk *d = *state;

    open_heard(d);
    ok(kvlazy_trim(d->bed->cache, 100));
    heard_all(d);
}

static void a_lowered_budget_tells_what_the_engine_vacated(void **state)
{
    struct desk *d = *state;
    char counts[80];

    open_heard(d);
    ok(kvlazy_set_limits(d->bed->cache, UINT32_MAX, UINT32_MAX, touched(d) / 4));
    kvlazy_stats_info info = bed_stats(d->bed);
    assert_true(info.evicted_cells > 300);
    snprintf(counts, sizeof counts, ", %u evicted, %u moved,", (unsigned)info.evicted_cells,
             (unsigned)info.moved_cells);
    assert_non_null(strstr(told, counts));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DESK_TEST(what_the_engine_emptied_decays_in_a_busy_stream),
        DESK_TEST(nothing_decays_with_idle_0),
        DESK_TEST(an_idle_stream_is_packed),
        DESK_TEST(a_batch_open_or_no_way_to_move),
        DESK_TEST(without_is_used_all_below_used_end_stays),
        DESK_TEST(tensors_on_a_device_never_move),
        DESK_TEST(an_idle_stream_is_asked_down_to_initial),
        DESK_TEST(a_busy_stream_is_not_asked),
        DESK_TEST(a_veto_holds_for_idle_ms),
        DESK_TEST(what_is_gone_counts_whatever_vacate_answers),
        DESK_TEST(caches_that_keep_do_not_ask),
        DESK_TEST(no_vacate_means_never),
        DESK_TEST(a_batch_opened_inside_vacate),
        DESK_TEST(trim_asks_every_stream),
        DESK_TEST(a_lowered_budget_asks_the_longest_idle_stream),
        DESK_TEST(cells_touched_inside_vacate_stay),
        DESK_TEST(a_poll_tells_what_the_engine_vacated),
        DESK_TEST(a_shrink_at_init_tells_what_the_engine_vacated),
        DESK_TEST(a_trim_tells_what_the_engine_vacated),
        DESK_TEST(a_lowered_budget_tells_what_the_engine_vacated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
