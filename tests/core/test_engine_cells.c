/* SPDX-License-Identifier: MIT */
/*
 * Cells that the engine keeps itself: which calls exist and which do not, touching, budgets and errors that change
 * nothing, clearing, linked caches, and refusals of the host. What idles is in test_engine_cells_idle.c.
 */
#include "engine_cells_support.h"

#include <stdlib.h>
#include <string.h>

#include <kvlazy/mask.h>

/* ---- what exists and what does not ---- */

static void calls_about_tokens_do_not_exist(void **state)
{
    struct desk *d = *state;
    kvlazy_cache *c;
    kvlazy_slot slot = {0};
    kvlazy_pos pos = 0;
    kvlazy_seq_id seq = 0;
    kvlazy_ubatch ubatch = {.n_token = 1, .pos = &pos, .seq = &seq};
    kvlazy_cells_view view = {.struct_size = sizeof view};
    float row[256];
    kvlazy_mask_info mask = {.struct_size = sizeof mask, .data = row, .data_bytes = sizeof row, .n_kv = 256};

    bed_open(d->bed);
    c = d->bed->cache;
    ok(write_cells(d, 0, 0, 3));
    expect(kvlazy_prepare(c, &ubatch, 1, &slot), KVLAZY_ENOTSUP);
    expect(kvlazy_apply_ubatch(c, &slot, &ubatch), KVLAZY_ENOTSUP);
    expect(kvlazy_undo_ubatch(c, &slot), KVLAZY_ENOTSUP);
    assert_int_equal(kvlazy_n_kv(c, &slot), 0);
    expect(kvlazy_seq_rm(c, 0, 0, -1), KVLAZY_ENOTSUP);
    expect(kvlazy_seq_cp(c, 0, 1, 0, -1), KVLAZY_ENOTSUP);
    expect(kvlazy_seq_keep(c, 0), KVLAZY_ENOTSUP);
    expect(kvlazy_seq_add(c, 0, 0, -1, 1), KVLAZY_ENOTSUP);
    expect(kvlazy_seq_div(c, 0, 0, -1, 2), KVLAZY_ENOTSUP);
    expect(kvlazy_shift_done(c), KVLAZY_ENOTSUP);
    assert_int_equal(kvlazy_seq_pos_min(c, 0), -1);
    assert_int_equal(kvlazy_seq_pos_max(c, 0), -1);
    expect(kvlazy_cells(c, 0, &view), KVLAZY_ENOTSUP);
    expect(kvlazy_mask(c, &slot, &ubatch, &mask), KVLAZY_ENOTSUP);
    assert_int_equal(kvlazy_room(c, 0), 0);
    assert_int_equal(kvlazy_refused(c), -1);
    ok(kvlazy_poll(c, NULL)); /* a refused prepare leaves no batch open */
}

static void calls_about_memory_do_not_exist_for_cells_of_the_library(void **state)
{
    struct desk *d = *state;

    d->bed->params.cell_ops = NULL;
    bed_open(d->bed);
    ok(kvlazy_init_batch(d->bed->cache));
    expect(kvlazy_touch(d->bed->cache, 0, 1), KVLAZY_ENOTSUP);
    expect(kvlazy_ensure(d->bed->cache, 0, 1), KVLAZY_ENOTSUP);
    expect(kvlazy_copy_cells(d->bed->cache, 0, 1, 0, 1), KVLAZY_ENOTSUP);
    assert_int_equal(kvlazy_cap(d->bed->cache, 0), 112); /* 100, padded */
    ok(kvlazy_end_batch(d->bed->cache));
}

static void arguments_out_of_range(void **state)
{
    struct desk *d = *state;
    kvlazy_cache *c;

    bed_open(d->bed);
    c = d->bed->cache;
    expect(kvlazy_touch(c, 0, 1), KVLAZY_EINVAL); /* no batch */
    expect(kvlazy_copy_cells(c, 0, 1, 0, 1), KVLAZY_EINVAL);
    expect(kvlazy_touch(NULL, 0, 1), KVLAZY_EINVAL);
    expect(kvlazy_ensure(NULL, 0, 1), KVLAZY_EINVAL);
    expect(kvlazy_copy_cells(NULL, 0, 1, 0, 1), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_cap(NULL, 0), 0);
    ok(kvlazy_init_batch(c));
    expect(kvlazy_touch(c, STREAMS, 1), KVLAZY_EINVAL);
    expect(kvlazy_touch(c, 0, CELLS + 1), KVLAZY_EINVAL);
    ok(kvlazy_touch(c, 0, 0));
    expect(kvlazy_copy_cells(c, STREAMS, 1, 0, 1), KVLAZY_EINVAL);
    expect(kvlazy_copy_cells(c, 0, STREAMS, 0, 1), KVLAZY_EINVAL);
    expect(kvlazy_copy_cells(c, 0, 1, CELLS, 1), KVLAZY_EINVAL);
    expect(kvlazy_copy_cells(c, 0, 1, 1, UINT32_MAX), KVLAZY_EINVAL);
    ok(kvlazy_copy_cells(c, 0, 1, CELLS, 0));
    expect(kvlazy_ensure(c, STREAMS, 1), KVLAZY_EINVAL);
    expect(kvlazy_ensure(c, 0, CELLS + 1), KVLAZY_ENOSLOT);
    assert_int_equal(kvlazy_cap(c, STREAMS), 0);
    assert_int_equal(touched(d), 0);
    ok(kvlazy_end_batch(c));
}

static void parameters_about_positions_are_refused(void **state)
{
    struct desk *d = *state;
    kvlazy_params p = d->bed->params;
    kvlazy_cell_ops ops = d->ops;
    kvlazy_cache *c = NULL;

    p.swa_type = KVLAZY_SWA_STANDARD;
    p.n_swa = 4;
    expect(kvlazy_create(&p, &c), KVLAZY_ENOTSUP);
    p = d->bed->params;
    p.cell_ops = &ops;
    ops.used_end = NULL;
    expect(kvlazy_create(&p, &c), KVLAZY_EINVAL);
    ops = d->ops;
    ops.struct_size = 4;
    expect(kvlazy_create(&p, &c), KVLAZY_EINVAL);
    assert_null(c);
}

/* ---- touching ---- */

static void touch_commits_the_rows_and_the_cap_follows(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    assert_int_equal(kvlazy_cap(d->bed->cache, 0), 112);
    ok(kvlazy_ensure(d->bed->cache, 0, 300));
    assert_int_equal(kvlazy_cap(d->bed->cache, 0), 512);
    assert_int_equal(kvlazy_cap(d->bed->cache, 1), 112);
    assert_int_equal(touched(d), 0);
    ok(write_cells(d, 0, 0, 150));
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 150));
    assert_int_equal(bed_stats(d->bed).live_cells, 150);

    fake_forget(&d->bed->fake);
    ok(write_cells(d, 0, 149, 150)); /* it was so already */
    assert_int_equal(bed_host_calls(d->bed), 0);
}

static void ensured_room_ends_when_the_stream_idles(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 50));
    ok(kvlazy_ensure(d->bed->cache, 0, 600));
    assert_int_equal(kvlazy_cap(d->bed->cache, 0), 600);
    ok(kvlazy_ensure(d->bed->cache, 0, 10)); /* at least */
    assert_int_equal(kvlazy_cap(d->bed->cache, 0), 600);
    poll_at(d, 1000 + IDLE);
    assert_int_equal(kvlazy_cap(d->bed->cache, 0), 112);
}

static void copied_cells_have_the_bytes(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 40));
    ok(kvlazy_init_batch(d->bed->cache));
    ok(kvlazy_copy_cells(d->bed->cache, 0, 2, 7, 30));
    for (uint32_t i = 7; i < 37; i++)
        d->used[2][i] = d->bed->content[2 * CELLS + i] = d->used[0][i];
    ok(kvlazy_end_batch(d->bed->cache));
    sound(d);
    assert_true(touched(d) <= bed_cover(d->bed, 0, 0, 40) + bed_cover(d->bed, 2, 7, 37));
    assert_int_equal(bed_stats(d->bed).live_cells, 70);
}

/* ---- errors change nothing ---- */

struct before {
    kvlazy_stats_info stats;
    uint64_t committed;
    uint32_t cap[STREAMS];
};

static struct before before(struct desk *d)
{
    struct before b = {bed_stats(d->bed), d->bed->fake.committed_bytes, {0}};

    b.stats.n_refusal = b.stats.n_refused_budget = b.stats.n_refused_memory = 0;
    memset(&b.stats.commit, 0, sizeof b.stats.commit); /* a call that fails counts too */
    b.stats.bookkeeping_bytes = 0;                     /* room that was made stays */
    for (uint32_t s = 0; s < STREAMS; s++)
        b.cap[s] = kvlazy_cap(d->bed->cache, s);
    return b;
}

static void same(struct desk *d, const struct before *b)
{
    struct before now = before(d);

    assert_memory_equal(&now, b, sizeof now);
}

static void a_budget_refuses_and_nothing_changes(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 50));
    ok(write_cells(d, 1, 0, 50));
    ok(kvlazy_set_limits(d->bed->cache, UINT32_MAX, UINT32_MAX, touched(d)));
    struct before b = before(d);
    ok(kvlazy_init_batch(d->bed->cache));
    expect(kvlazy_touch(d->bed->cache, 0, 300), KVLAZY_EBUDGET);
    expect(kvlazy_copy_cells(d->bed->cache, 1, 2, 0, 50), KVLAZY_EBUDGET);
    ok(kvlazy_end_batch(d->bed->cache));
    same(d, &b);
    sound(d);
    ok(write_cells(d, 1, 20, 50)); /* what is there may be written */
    same(d, &b);
}

static void a_refused_touch_is_no_activity(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 300));
    ok(kvlazy_set_limits(d->bed->cache, UINT32_MAX, UINT32_MAX, touched(d)));
    d->bed->fake.now = 1000 + IDLE - 1;
    expect(write_cells(d, 0, 300, 600), KVLAZY_EBUDGET);
    poll_at(d, 1000 + IDLE);
    assert_int_equal(d->n_vacate, 1);
    assert_int_equal(n_used(d, 0), 100);
}

static void free_pages_make_room_before_a_touch_is_refused(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 200));
    ok(kvlazy_set_limits(d->bed->cache, UINT32_MAX, UINT32_MAX, touched(d) + 16384));
    empty_cells(d, 0, 0, 200);
    ok(write_cells(d, 1, 0, 200));
    assert_true(touched(d) <= d->bed->params.budget_bytes + bed_cover(d->bed, 1, 0, 200) + 16384 * 2);
    sound(d);
}

/* Cells that a batch touched are in no table yet when the next touch of the same batch looks for room. */
static void cells_of_the_open_batch_are_no_room(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 100));
    uint64_t all = touched(d) + bed_cover(d->bed, 1, 0, 40);
    ok(kvlazy_set_limits(d->bed->cache, UINT32_MAX, UINT32_MAX, all));
    ok(kvlazy_init_batch(d->bed->cache));
    ok(kvlazy_touch(d->bed->cache, 1, 40));
    bed_stats(d->bed); /* may be asked for at any time */
    expect(kvlazy_touch(d->bed->cache, 2, 100), KVLAZY_EBUDGET);
    for (uint32_t i = 0; i < 40; i++) {
        d->used[1][i] = ++d->bed->last_stamp;
        bed_write(d->bed, 1, i, d->used[1][i]);
    }
    ok(kvlazy_end_batch(d->bed->cache));
    sound(d);
}

/* Figures are asked for between touch and the engine's own note: later, room is made, and nothing may be lost. */
static void figures_in_an_open_batch_cost_no_cell(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(kvlazy_init_batch(d->bed->cache));
    ok(kvlazy_touch(d->bed->cache, 0, 100));
    bed_stats(d->bed);
    for (uint32_t i = 0; i < 100; i++) {
        d->used[0][i] = ++d->bed->last_stamp;
        bed_write(d->bed, 0, i, d->used[0][i]);
    }
    ok(kvlazy_end_batch(d->bed->cache));
    uint64_t of_100 = bed_cover(d->bed, 0, 0, 100);
    ok(kvlazy_set_limits(d->bed->cache, UINT32_MAX, UINT32_MAX, of_100 + 4096 * 5));
    ok(kvlazy_init_batch(d->bed->cache));
    ok(kvlazy_touch(d->bed->cache, 0, 110));
    bed_stats(d->bed);
    for (uint32_t i = 100; i < 110; i++) {
        d->used[0][i] = ++d->bed->last_stamp;
        bed_write(d->bed, 0, i, d->used[0][i]);
    }
    ok(kvlazy_end_batch(d->bed->cache));
    expect(write_cells(d, 1, 0, 100), KVLAZY_EBUDGET);
    sound(d);
}

/* ---- clearing, linking ---- */

static void clear_follows_the_engine(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 300));
    empty_cells(d, 0, 0, CELLS);
    ok(kvlazy_clear(d->bed->cache, false));
    assert_int_equal(bed_stats(d->bed).live_cells, 0);
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 300));
    ok(kvlazy_clear(d->bed->cache, true));
    assert_int_equal(touched(d), 0);
    sound_released(d);
    ok(write_cells(d, 0, 0, 3));
}

static void kinds_do_not_mix(void **state)
{
    struct desk *d = *state;
    kvlazy_params p = d->bed->params;
    kvlazy_cache *c = NULL;

    bed_open(d->bed);
    p.with = d->bed->cache;
    p.cell_ops = NULL;
    expect(kvlazy_create(&p, &c), KVLAZY_EINVAL);
    assert_null(c);
    p.cell_ops = &d->ops;
    ok(kvlazy_create(&p, &c)); /* two views of one table */
    ok(kvlazy_init_batch(c));
    ok(kvlazy_touch(d->bed->cache, 0, 30)); /* open for all */
    ok(kvlazy_touch(c, 0, 30));
    for (uint32_t i = 0; i < 30; i++) {
        d->used[0][i] = ++d->bed->last_stamp;
        bed_write(d->bed, 0, i, d->used[0][i]);
    }
    expect(kvlazy_poll(d->bed->cache, NULL), KVLAZY_EBUSY);
    ok(kvlazy_end_batch(d->bed->cache));
    expect(kvlazy_touch(c, 0, 30), KVLAZY_EINVAL);
    empty_cells(d, 0, 0, CELLS);
    ok(kvlazy_trim(c, 0));
    assert_int_equal(touched(d), 0);
    ok(kvlazy_check(c, NULL));
    kvlazy_destroy(c);
}

/* Two linked caches with tables of their own shrink each for itself. */
static void linked_caches_shrink_each_for_itself(void **state)
{
    struct desk *d = *state;
    struct desk *other = calloc(1, sizeof *other);
    kvlazy_params p = d->bed->params;

    assert_non_null(other);
    bed_open(d->bed);
    other->bed = d->bed;
    other->ops = (kvlazy_cell_ops){sizeof other->ops, other, desk_used_end, NULL, NULL, desk_vacate, NULL};
    p.with = d->bed->cache;
    p.cell_ops = &other->ops;
    kvlazy_cache *c;
    ok(kvlazy_create(&p, &c));
    ok(kvlazy_init_batch(c));
    ok(kvlazy_touch(c, 0, 200));
    for (uint32_t i = 0; i < 200; i++)
        other->used[0][i] = 1;
    ok(kvlazy_end_batch(c));
    ok(write_cells(d, 1, 0, 300));
    empty_cells(d, 1, 0, 250);
    poll_at(d, 1000 + IDLE);
    assert_int_equal(desk_used_end(other, 0), 100);
    assert_int_equal(other->n_vacate, 1);
    assert_int_equal(d->n_vacate, 0);
    assert_int_equal(desk_used_end(d, 1), 50); /* the other one cannot move, and does not have to */
    kvlazy_destroy(c);
    free(other);
}

/* ---- refusals of the host ---- */

static int scenario(struct desk *d)
{
    int status = write_cells(d, 0, 0, 150);

    if (!status)
        status = write_cells(d, 0, 150, 151);
    if (!status)
        status = write_cells(d, 1, 0, 90);
    if (!status) {
        ok(kvlazy_init_batch(d->bed->cache));
        status = kvlazy_copy_cells(d->bed->cache, 1, 2, 0, 90);
        for (uint32_t i = 0; !status && i < 90; i++)
            d->used[2][i] = d->bed->content[2 * CELLS + i] = d->used[1][i];
        ok(kvlazy_end_batch(d->bed->cache));
    }
    return status;
}

static void idle_part(struct desk *d)
{
    empty_cells(d, 0, 3, 140);
    ok(kvlazy_trim(d->bed->cache, 0));
    sound(d);
    d->bed->fake.now += IDLE;
    ok(kvlazy_poll(d->bed->cache, NULL));
    ok(kvlazy_trim(d->bed->cache, 4));
    sound(d);
}

static void every_call_of_the_host_may_fail(void **state)
{
    for (int n = 1;; n++) {
        void *fresh;
        struct desk *d;

        desk_setup(&fresh);
        d = fresh;
        d->bed->fake.half_commit = n % 2;
        bed_open(d->bed);
        fake_fail(&d->bed->fake, FAKE_ANY, n);
        int status = scenario(d);
        bool failed = d->bed->fake.failed;
        assert_int_equal(status, failed ? KVLAZY_ENOMEM : KVLAZY_OK);
        sound(d);
        assert_true(d->bed->fake.committed_bytes == touched(d));
        if (failed)
            ok(scenario(d));
        idle_part(d);
        assert_true(d->bed->fake.committed_bytes == touched(d));
        failed = d->bed->fake.failed;
        desk_teardown(&fresh);
        if (!failed)
            break;
        assert_true(n < 200);
    }
    (void)state;
}

static void refused_releases_lose_nothing(void **state)
{
    struct desk *d = *state;

    bed_open(d->bed);
    ok(write_cells(d, 0, 0, 300));
    d->bed->fake.refuse_decommit = true;
    empty_cells(d, 0, 0, 280);
    ok(kvlazy_trim(d->bed->cache, 0));
    sound_released(d); /* zero all the same */
    assert_true(bed_stats(d->bed).n_os_refusal > 0);
    assert_int_equal(bed_stats(d->bed).released_bytes, 0);
    d->bed->fake.refuse_decommit = false;
    poll_at(d, 1000 + IDLE);
    assert_int_equal(touched(d), bed_cover(d->bed, 0, 0, 20));
    sound_released(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DESK_TEST(calls_about_tokens_do_not_exist),
        DESK_TEST(calls_about_memory_do_not_exist_for_cells_of_the_library),
        DESK_TEST(arguments_out_of_range),
        DESK_TEST(parameters_about_positions_are_refused),
        DESK_TEST(touch_commits_the_rows_and_the_cap_follows),
        DESK_TEST(ensured_room_ends_when_the_stream_idles),
        DESK_TEST(copied_cells_have_the_bytes),
        DESK_TEST(a_budget_refuses_and_nothing_changes),
        DESK_TEST(a_refused_touch_is_no_activity),
        DESK_TEST(free_pages_make_room_before_a_touch_is_refused),
        DESK_TEST(cells_of_the_open_batch_are_no_room),
        DESK_TEST(figures_in_an_open_batch_cost_no_cell),
        DESK_TEST(clear_follows_the_engine),
        DESK_TEST(kinds_do_not_mix),
        DESK_TEST(linked_caches_shrink_each_for_itself),
        cmocka_unit_test(every_call_of_the_host_may_fail),
        DESK_TEST(refused_releases_lose_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
