/* SPDX-License-Identifier: MIT */
/*
 * Cells that the engine keeps itself: a small engine with a table of its own over one cache. What it may call and what
 * it may not, decay, compaction through `move`, `vacate` and its veto, budgets, refusals of the host, and a random walk
 * beside the table, every byte of it looked at.
 */
#include "layout_support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvlazy/engine_cells.h>
#include <kvlazy/mask.h>

enum { STREAMS = 3, CELLS = 600, IDLE = 500 };

/* The engine: which bytes each cell holds, 0: none. */
struct desk {
    struct bed *bed;
    kvlazy_cell_ops ops;
    uint32_t used[BED_SEQS][CELLS];
    uint32_t end[BED_SEQS]; /* what used_end last said */
    int n_vacate, n_move;
    uint32_t vacated_stream, vacated_from;
    bool veto, partial; /* vacate says no; or empties and says no all the same */
    void (*in_vacate)(struct desk *desk);
    char broken[100]; /* what a callback saw, which may not fail a test itself */
};

static uint32_t used_end(void *ctx, uint32_t stream)
{
    struct desk *d = ctx;
    uint32_t end = CELLS;

    while (end && !d->used[stream][end - 1])
        end--;
    return d->end[stream] = end;
}

static bool is_used(void *ctx, uint32_t stream, uint32_t cell)
{
    struct desk *d = ctx;

    if (cell >= d->end[stream])
        snprintf(d->broken, sizeof d->broken, "is_used(%" PRIu32 ") past used_end", cell);
    return d->used[stream][cell] != 0;
}

static void on_move(void *ctx, uint32_t stream, uint32_t from, uint32_t to, uint32_t n)
{
    struct desk *d = ctx;

    d->n_move++;
    if (to + n > from)
        snprintf(d->broken, sizeof d->broken, "move of %" PRIu32 " from %" PRIu32 " to %" PRIu32, n, from, to);
    for (uint32_t i = 0; i < n; i++) {
        if (!d->used[stream][from + i] || d->used[stream][to + i] ||
            !bed_holds(d->bed, stream, to + i, d->used[stream][from + i]))
            snprintf(d->broken, sizeof d->broken, "move to %" PRIu32 ": the bytes are not there yet", to + i);
        d->used[stream][to + i] = d->bed->content[stream * d->bed->kv_size + to + i] = d->used[stream][from + i];
        d->used[stream][from + i] = 0;
        bed_may_touch(d->bed, stream, to + i);
    }
}

static int on_vacate(void *ctx, uint32_t stream, uint32_t from)
{
    struct desk *d = ctx;

    d->n_vacate++;
    d->vacated_stream = stream;
    d->vacated_from = from;
    if (d->in_vacate)
        d->in_vacate(d);
    for (uint32_t i = from; (!d->veto || d->partial) && i < CELLS; i++)
        d->used[stream][i] = 0;
    return d->veto;
}

/* ---- the rig ---- */

static int desk_setup(void **state)
{
    struct desk *d = calloc(1, sizeof *d);

    assert_non_null(d);
    d->bed = bed_new(4096);
    d->ops = (kvlazy_cell_ops){sizeof d->ops, d, used_end, is_used, on_move, on_vacate};
    d->bed->params.cell_ops = &d->ops;
    d->bed->params.kv_size = CELLS;
    d->bed->params.kv_size_initial = 100;
    d->bed->params.n_stream = d->bed->params.n_seq_max = STREAMS;
    d->bed->params.n_pad = 16;
    bed_layer(d->bed, 512, 36, 0);
    bed_layer(d->bed, 1088, 66, 33);
    *state = d;
    return 0;
}

/* Used cells hold their bytes; the others zero or what they had, and zero when they were just given back. */
static void look(struct desk *d, bool released, const char *file, int line)
{
    struct bed *bed = d->bed;
    const char *reason = NULL;

    if (d->broken[0] || kvlazy_check(bed->cache, &reason)) {
        print_error("%s%s\n", d->broken, reason ? reason : "");
        _fail(file, line);
    }
    for (uint32_t s = 0; s < bed->n_stream; s++)
        for (uint32_t i = 0; i < bed->kv_size; i++) {
            uint32_t *content = &bed->content[s * bed->kv_size + i];
            bool right = d->used[s][i] ? bed_holds(bed, s, i, d->used[s][i])
                         : released    ? bed_is_zero(bed, s, i)
                                       : bed_is_stale(bed, s, i, *content);

            *content = released && !d->used[s][i] ? 0 : *content;
            if (right)
                continue;
            print_error("stream %" PRIu32 " %s cell %" PRIu32 "\n", s, d->used[s][i] ? "used" : "empty", i);
            _fail(file, line);
        }
    fake_assert_kept(&bed->fake);
}

#define sound(desk) look(desk, false, __FILE__, __LINE__)
#define sound_released(desk) look(desk, true, __FILE__, __LINE__)

static int desk_teardown(void **state)
{
    struct desk *d = *state;

    if (d->bed->cache)
        sound(d);
    bed_free(d->bed);
    free(d);
    return 0;
}

#define DESK_TEST(f) cmocka_unit_test_setup_teardown(f, desk_setup, desk_teardown)

static uint32_t n_used(const struct desk *d, uint32_t s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < CELLS; i++)
        n += d->used[s][i] != 0;
    return n;
}

static uint64_t touched(struct desk *d)
{
    return bed_stats(d->bed).touched_bytes;
}

/* The engine writes cells [from, to) of a stream in a batch of its own. */
static int write_cells(struct desk *d, uint32_t s, uint32_t from, uint32_t to)
{
    ok(kvlazy_init_batch(d->bed->cache));
    int status = kvlazy_touch(d->bed->cache, s, to);

    for (uint32_t i = from; !status && i < to; i++) {
        d->used[s][i] = ++d->bed->last_stamp;
        bed_write(d->bed, s, i, d->used[s][i]);
    }
    ok(kvlazy_end_batch(d->bed->cache));
    return status;
}

static void empty_cells(struct desk *d, uint32_t s, uint32_t from, uint32_t to)
{
    memset(&d->used[s][from], 0, (to - from) * sizeof d->used[s][0]);
}

static void poll_at(struct desk *d, uint64_t now)
{
    d->bed->fake.now = now;
    ok(kvlazy_poll(d->bed->cache, NULL));
}

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
    assert_int_equal(used_end(d, 0), 99);
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
    assert_int_equal(used_end(d, 0), 400);
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
    d->used[0][3] = 0; /* nobody can tell */
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
    assert_int_equal(used_end(d, 1), 100); /* packed first: 150 were there */
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

static void nobody_is_asked(void **state)
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
    other->ops = (kvlazy_cell_ops){sizeof other->ops, other, used_end, NULL, NULL, on_vacate};
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
    assert_int_equal(used_end(other, 0), 100);
    assert_int_equal(other->n_vacate, 1);
    assert_int_equal(d->n_vacate, 0);
    assert_int_equal(used_end(d, 1), 50); /* the other one cannot move, and does not have to */
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

/* ---- a random walk ---- */

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(next_random(&seed) % n);
}

/* Fills n of the lowest free cells, as an engine that asks for the cap. */
static void fill_lowest(struct desk *d, uint32_t s, uint32_t n)
{
    uint32_t end = 0, left = n < CELLS - n_used(d, s) ? n : CELLS - n_used(d, s);

    ok(kvlazy_init_batch(d->bed->cache));
    ok(kvlazy_ensure(d->bed->cache, s, n_used(d, s) + left));
    assert_true(kvlazy_cap(d->bed->cache, s) >= n_used(d, s) + left);
    for (uint32_t n_free = 0; n_free < left; end++)
        n_free += !d->used[s][end];
    int status = kvlazy_touch(d->bed->cache, s, end);
    assert_true(status == KVLAZY_OK || status == KVLAZY_EBUDGET || (status == KVLAZY_ENOMEM && d->bed->fake.failed));
    for (uint32_t i = 0; !status && i < end; i++)
        if (!d->used[s][i]) {
            d->used[s][i] = ++d->bed->last_stamp;
            bed_write(d->bed, s, i, d->used[s][i]);
        }
    ok(kvlazy_end_batch(d->bed->cache));
}

/* As an engine copies a sequence: rows, and what its table says of them. */
static void copy_some(struct desk *d, uint32_t src, uint32_t from, uint32_t n)
{
    uint32_t dst = (src + 1) % STREAMS;

    ok(kvlazy_init_batch(d->bed->cache));
    int status = kvlazy_copy_cells(d->bed->cache, src, dst, from, n);
    assert_true(status == KVLAZY_OK || status == KVLAZY_EBUDGET || (status == KVLAZY_ENOMEM && d->bed->fake.failed));
    for (uint32_t i = from; !status && i < from + n; i++) {
        d->used[dst][i] = d->used[src][i];
        d->bed->content[dst * CELLS + i] = d->bed->content[src * CELLS + i];
    }
    ok(kvlazy_end_batch(d->bed->cache));
}

static void walk(struct desk *d)
{
    uint32_t s = below(STREAMS), from = below(CELLS), to = from + below(CELLS - from);

    switch (below(13)) {
    case 12:
        copy_some(d, s, from, to - from);
        break;
    case 0:
    case 1:
        fill_lowest(d, s, 1 + below(200));
        break;
    case 2:
        for (uint32_t i = below(40); i > 0; i--)
            fill_lowest(d, s, 1);
        break;
    case 3:
        empty_cells(d, s, from, CELLS);
        break;
    case 4:
    case 5:
        empty_cells(d, s, from, to);
        break;
    case 6:
    case 7:
        d->veto = below(3) == 0;
        d->bed->fake.now += below(IDLE);
        ok(kvlazy_poll(d->bed->cache, NULL));
        break;
    case 8:
        ok(kvlazy_trim(d->bed->cache, below(2) ? 0 : 1 + below(CELLS)));
        break;
    case 9:
        d->bed->fake.refuse_decommit = below(4) == 0;
        fake_fail(&d->bed->fake, FAKE_COMMIT, (int)below(4));
        break;
    case 10:
        kvlazy_set_limits(d->bed->cache, UINT32_MAX, UINT32_MAX, below(2) ? 0 : touched(d) + below(3) * 65536 - 65536);
        break;
    default:
        if (below(4) == 0)
            empty_cells(d, s, 0, CELLS);
        ok(kvlazy_clear(d->bed->cache, below(2)));
    }
}

static void walk_on(struct desk *d)
{
    bed_open(d->bed);
    for (int i = 0; i < 70; i++) {
        walk(d);
        sound(d);
    }
    d->bed->fake.refuse_decommit = false;
    fake_fail(&d->bed->fake, FAKE_ANY, 0);
    ok(kvlazy_trim(d->bed->cache, 0));
    sound_released(d);
    uint64_t most = 0;
    for (uint32_t s = 0; s < STREAMS; s++)
        most += bed_cover(d->bed, s, 0, used_end(d, s));
    assert_true(touched(d) <= most);
}

static void random_walks(void **state)
{
    const char *text = getenv("KVLAZY_TEST_SEED");

    (void)state;
    seed = text ? strtoull(text, NULL, 10) : 1;
    print_message("KVLAZY_TEST_SEED=%" PRIu64 "\n", seed);
    for (int shape = 0; shape < 6; shape++) {
        void *fresh;
        struct desk *d;

        desk_setup(&fresh);
        d = fresh;
        d->bed->params.kv_size_initial = shape % 2 ? 100 : 0;
        d->bed->params.slot_shrink_idle_ms = shape == 2 ? 0 : IDLE;
        d->bed->params.flags = shape == 3 ? KVLAZY_NO_COMMIT_AHEAD | KVLAZY_SHRINK_AT_INIT : 0;
        d->ops.move = shape == 4 ? NULL : on_move;
        d->ops.vacate = shape == 5 ? NULL : on_vacate;
        walk_on(d);
        desk_teardown(&fresh);
    }
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
        DESK_TEST(nobody_is_asked),
        DESK_TEST(no_vacate_means_never),
        DESK_TEST(a_batch_opened_inside_vacate),
        DESK_TEST(trim_asks_every_stream),
        DESK_TEST(a_lowered_budget_asks_the_longest_idle_stream),
        DESK_TEST(cells_touched_inside_vacate_stay),
        DESK_TEST(clear_follows_the_engine),
        DESK_TEST(kinds_do_not_mix),
        DESK_TEST(linked_caches_shrink_each_for_itself),
        cmocka_unit_test(every_call_of_the_host_may_fail),
        DESK_TEST(refused_releases_lose_nothing),
        cmocka_unit_test(random_walks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
