/* SPDX-License-Identifier: MIT */
/*
 * Compaction of one cache: which cells move where, that everything known of a token goes along, when nothing moves, and
 * what budgets and a host that refuses leave of it. Linked caches are in test_linked_compact.c.
 */
#include "layout_support.h"

#include <kvlazy/mask.h>

enum { IDLE = 500 };

static int bed_setup(void **state)
{
    struct bed *bed = bed_new(4096);

    bed->params.kv_size = 1024;
    bed_layer(bed, 512, 36, 0);
    bed_layer(bed, 1088, 64, 32);
    *state = bed;
    return 0;
}

static void poll_at(struct bed *bed, uint64_t now)
{
    bed->fake.now = now;
    ok(kvlazy_poll(bed->cache, NULL));
}

/* ---- which cells go where ---- */

static void what_lies_behind_comes_down(void **state)
{
    struct bed *bed = *state;

    bed->params.kv_size_initial = 256;
    bed_open(bed);
    ok(bed_turn(bed, 0, 300));
    ok(bed_turn(bed, 1, 100));
    bed_rm(bed, 0, -1, -1);
    poll_at(bed, 1000 + IDLE);
    cells_are(bed, 0, "0..99=0..99/1");
    bed_settle(bed);
    bed_sound_released(bed);
    assert_int_equal(bed_stats(bed).moved_cells, 100);
    assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 0, 0, 100));
    assert_int_equal(bed_stats(bed).n_evict, 0);
}

/* With n live cells those below n stay; the others go up the holes, both in order. */
static void the_fewest_cells_move_in_order(void **state)
{
    struct bed *bed = *state;

    bed_open(bed);
    ok(bed_turn(bed, 0, 10));
    ok(bed_turn(bed, 1, 10));
    ok(bed_turn(bed, 0, 5));
    ok(bed_turn(bed, 2, 10));
    ok(bed_turn(bed, 0, 7));
    ok(bed_turn(bed, 1, 3));
    cells_are(bed, 0, "0..9=0..9/0 10..19=0..9/1 20..24=10..14/0 25..34=0..9/2 35..41=15..21/0 42..44=10..12/1");
    bed_rm(bed, 0, -1, -1);
    ok(kvlazy_trim(bed->cache, 0));
    cells_are(bed, 0, "0..9=0..9/2 10..22=0..12/1");
}

static void moves_as_a_simple_model_says(void **state)
{
    struct bed *bed = *state;
    uint64_t seed = 3;
    kvlazy_pos want[1024];

    bed_open(bed);
    for (int round = 0; round < 30; round++) {
        kvlazy_cells_view view = {.struct_size = sizeof view};
        uint32_t n = 0, hole = 0, n_move = 0;
        uint64_t moved = bed_stats(bed).moved_cells;

        for (uint32_t s = 0; s < 4; s++)
            if (next_random(&seed) % 2 && bed_turn(bed, (kvlazy_seq_id)s, 1 + next_random(&seed) % 150))
                bed_rm(bed, (kvlazy_seq_id)s, -1, -1);
        for (int i = 0; i < 20; i++) {
            kvlazy_pos p = (kvlazy_pos)(next_random(&seed) % 900);
            bed_rm(bed, (kvlazy_seq_id)(next_random(&seed) % 4), p, p + 1 + (kvlazy_pos)(next_random(&seed) % 40));
        }
        ok(kvlazy_cells(bed->cache, 0, &view));
        for (uint32_t i = 0; i < view.n_cell; i++) {
            want[i] = view.pos[i];
            n += view.pos[i] >= 0;
        }
        for (uint32_t i = n; i < view.n_cell; i++) {
            if (want[i] < 0)
                continue;
            while (want[hole] >= 0)
                hole++;
            want[hole] = want[i];
            want[i] = -1;
            n_move++;
        }
        uint32_t n_cell = view.n_cell;
        ok(kvlazy_trim(bed->cache, 0));
        ok(kvlazy_cells(bed->cache, 0, &view));
        for (uint32_t i = 0; i < n_cell; i++)
            assert_int_equal(i < view.n_cell ? view.pos[i] : -1, want[i]);
        assert_int_equal(bed_stats(bed).moved_cells - moved, n_move);
        bed_sound_released(bed);
        assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 0, 0, n));
    }
}

static void trim_packs_5000_cells(void **state)
{
    struct bed *bed = *state;

    bed->params.kv_size = 8192;
    bed->params.kv_size_initial = 256;
    bed_open(bed);
    for (int i = 0; i < 26; i++) {
        ok(bed_turn(bed, 0, 100));
        ok(bed_turn(bed, 1, 193));
    }
    bed_rm(bed, 0, -1, -1);
    bed_rm(bed, 1, 5000, -1);
    assert_int_equal(bed_stats(bed).live_cells, 5000);
    ok(kvlazy_trim(bed->cache, 0));
    bed_sound_released(bed);
    assert_int_equal(kvlazy_seq_pos_max(bed->cache, 1), 4999);
    assert_int_equal(bed_stats(bed).live_cells, 5000);
    assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 0, 0, 5000));
    ok(kvlazy_trim(bed->cache, 256));
    assert_int_equal(kvlazy_seq_pos_max(bed->cache, 1), 255);
    bed_sound_released(bed);
    assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 0, 0, 256));
}

static void every_stream_by_itself(void **state)
{
    struct bed *bed = *state;

    bed->params.n_stream = bed->params.n_seq_max = 3;
    bed_open(bed);
    for (kvlazy_seq_id s = 0; s < 3; s++)
        ok(bed_turn(bed, s, 100));
    bed_rm(bed, 0, 10, 60);
    bed_rm(bed, 2, 0, 99);
    poll_at(bed, 1000 + IDLE);
    cells_are(bed, 0, "0..9=0..9/0 10..49=60..99/0");
    cells_are(bed, 1, "0..99=0..99/1");
    cells_are(bed, 2, "0=99/2");
    bed_settle(bed);
    bed_sound_released(bed);
    assert_int_equal(bed_stats(bed).touched_bytes, bed_live_cover(bed));
}

/* ---- what goes along ---- */

static void shared_cells_keep_their_owners(void **state)
{
    struct bed *bed = *state;

    bed_open(bed);
    ok(bed_turn(bed, 0, 50));
    ok(bed_turn(bed, 1, 20));
    ok(bed_cp(bed, 1, 2, 5, 12));
    ok(bed_cp(bed, 1, 3, -1, -1));
    bed_rm(bed, 0, -1, -1);
    bed_rm(bed, 1, 8, 10);
    ok(kvlazy_trim(bed->cache, 0));
    cells_are(bed, 0, "0..4=0..4/1+3 5..7=5..7/1+2+3 8..9=8..9/2+3 10..11=10..11/1+2+3 12..19=12..19/1+3");
    bed_sound_released(bed);
    bed_rm(bed, 3, -1, -1);
    bed_rm(bed, 2, 10, -1);
    bed_sound(bed);
}

static void a_pending_shift_goes_along(void **state)
{
    struct bed *bed = *state;
    kvlazy_cells_view view = {.struct_size = sizeof view};

    bed_open(bed);
    ok(bed_turn(bed, 0, 50));
    ok(bed_turn(bed, 1, 20));
    bed_rm(bed, 0, -1, -1);
    ok(kvlazy_seq_add(bed->cache, 1, 10, -1, -3));
    ok(kvlazy_seq_rm(bed->cache, 1, 0, 7));
    ok(kvlazy_trim(bed->cache, 0));
    ok(kvlazy_cells(bed->cache, 0, &view));
    assert_non_null(view.shift);
    uint32_t n_shifted = 0;
    for (uint32_t i = 0; i < view.n_cell; i++) {
        assert_int_equal(view.pos[i] >= 0, i < 13);
        n_shifted += view.shift[i] == -3;
        assert_true(view.shift[i] == 0 || (view.shift[i] == -3 && view.pos[i] >= 7));
    }
    assert_int_equal(n_shifted, 10);
    ok(kvlazy_check(bed->cache, NULL));
    ok(kvlazy_shift_done(bed->cache));
    ok(kvlazy_init_batch(bed->cache));
    kvlazy_ubatch u = {.n_token = 1, .pos = (kvlazy_pos[]){17}, .seq = (kvlazy_seq_id[]){1}};
    ok(kvlazy_prepare(bed->cache, &u, 1, bed->slot));
    assert_int_equal(bed->slot[0].cell[0], 13);
    ok(kvlazy_end_batch(bed->cache));
    bed_clear(bed, true);
}

static void planes_go_along(void **state)
{
    struct bed *bed = *state;
    static const kvlazy_pos pos[] = {0, 1, 1, 1, 1, 5, 0, 1, 1, 2, 2, 5, 0, 1, 2, 1, 2, 5, 0, 0, 0, 0, 0, 0};
    static const kvlazy_seq_id seq[] = {1, 1, 1, 1, 1, 1};
    kvlazy_ubatch u = {.n_token = 6, .pos = pos, .seq = seq};
    kvlazy_cells_view view = {.struct_size = sizeof view};

    bed->params.n_pos_per_token = 4;
    bed_open(bed);
    kvlazy_pos text[4 * 40];
    kvlazy_seq_id zero[40] = {0};
    for (int i = 0; i < 4 * 40; i++)
        text[i] = i % 40;
    kvlazy_ubatch t = {.n_token = 40, .pos = text, .seq = zero};
    ok(kvlazy_prepare(bed->cache, &t, 1, bed->slot));
    ok(kvlazy_apply_ubatch(bed->cache, bed->slot, &t));
    ok(kvlazy_end_batch(bed->cache));
    ok(kvlazy_prepare(bed->cache, &u, 1, bed->slot));
    ok(kvlazy_apply_ubatch(bed->cache, bed->slot, &u));
    ok(kvlazy_end_batch(bed->cache));
    ok(kvlazy_seq_rm(bed->cache, 0, -1, -1));
    ok(kvlazy_trim(bed->cache, 0));
    ok(kvlazy_cells(bed->cache, 0, &view));
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(view.pos[i], pos[i]);
        assert_int_equal(view.ext_y[i], pos[6 + i]);
        assert_int_equal(view.ext_x[i], pos[12 + i]);
    }
    ok(kvlazy_check(bed->cache, NULL));
    bed_clear(bed, true);
}

/* ---- when nothing moves ---- */

static void not_before_idle_and_not_in_a_batch(void **state)
{
    struct bed *bed = *state;

    bed_open(bed);
    ok(bed_turn(bed, 0, 300));
    ok(bed_turn(bed, 1, 100));
    bed_rm(bed, 0, -1, -1);
    poll_at(bed, 1000 + IDLE - 1);
    assert_int_equal(bed_stats(bed).moved_cells, 0);
    ok(kvlazy_init_batch(bed->cache));
    bed->fake.now = 1000 + 5 * IDLE;
    expect(kvlazy_poll(bed->cache, NULL), KVLAZY_EBUSY);
    expect(kvlazy_trim(bed->cache, 0), KVLAZY_EBUSY);
    ok(kvlazy_end_batch(bed->cache));
    assert_int_equal(bed_stats(bed).moved_cells, 0);
    cells_are(bed, 0, "300..399=0..99/1");
    ok(kvlazy_poll(bed->cache, NULL));
    cells_are(bed, 0, "0..99=0..99/1");
}

static void a_busy_stream_only_decays(void **state)
{
    struct bed *bed = *state;

    bed_open(bed);
    ok(bed_turn(bed, 0, 600));
    ok(bed_turn(bed, 1, 100));
    bed_rm(bed, 0, -1, -1);
    for (int i = 0; i < 30; i++) {
        bed->fake.now += IDLE / 10;
        if (i < 4)
            ok(bed_turn(bed, 1, 1));
        else { /* a copy within the stream is activity, and needs no cell */
            ok(bed_cp(bed, 1, 2, 0, 1));
        }
        ok(kvlazy_poll(bed->cache, NULL));
    }
    assert_int_equal(bed_stats(bed).moved_cells, 0);
    cells_are(bed, 0, "0..3=100..103/1 600=0/1+2 601..699=1..99/1");
    assert_true(bed_stats(bed).touched_bytes <= bed_cover(bed, 0, 0, 36) + bed_cover(bed, 0, 600, 700));
    bed_sound(bed);
}

static void dense_streams_and_second_polls_do_no_work(void **state)
{
    struct bed *bed = *state;

    bed_open(bed);
    ok(bed_turn(bed, 0, 300));
    poll_at(bed, 1000 + IDLE);
    fake_forget(&bed->fake);
    ok(kvlazy_poll(bed->cache, NULL));
    ok(kvlazy_trim(bed->cache, 0));
    assert_int_equal(bed_host_calls(bed), 0);
    assert_int_equal(bed_stats(bed).moved_cells, 0);

    ok(bed_turn(bed, 1, 100));
    bed_rm(bed, 0, -1, -1);
    bed->fake.now += IDLE;
    bed_settle(bed);
    assert_int_equal(bed_stats(bed).moved_cells, 100);
    fake_forget(&bed->fake);
    for (int i = 0; i < 5; i++)
        poll_at(bed, bed->fake.now + IDLE);
    ok(kvlazy_trim(bed->cache, 0));
    assert_int_equal(bed_host_calls(bed), 0);
    assert_int_equal(bed_stats(bed).moved_cells, 100);
}

static void a_device_tensor_holds_every_cell(void **state)
{
    static const kvlazy_tensor device = {.row_bytes = 64};
    struct bed *bed = *state;

    bed_layer(bed, 64, 0, 0)->k = &device;
    bed_open(bed);
    ok(bed_turn(bed, 0, 300));
    ok(bed_turn(bed, 1, 100));
    bed_rm(bed, 0, -1, -1);
    poll_at(bed, 1000 + 2 * IDLE);
    ok(kvlazy_trim(bed->cache, 0));
    cells_are(bed, 0, "300..399=0..99/1");
    bed_sound_released(bed);
    assert_int_equal(bed_stats(bed).moved_cells, 0);
    assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 0, 300, 400));
}

/* ---- budgets and refusals ---- */

static uint64_t most_committed;
static int (*fake_commit)(void *ctx, const kvlazy_range *range, size_t n);

static int sampled_commit(void *ctx, const kvlazy_range *range, size_t n)
{
    struct fake_mem *fake = ctx;
    int error = fake_commit(ctx, range, n);

    most_committed = fake->committed_bytes > most_committed ? fake->committed_bytes : most_committed;
    return error;
}

static void a_budget_is_never_passed_on_the_way(void **state)
{
    struct bed *bed = *state;

    fake_commit = bed->fake.table.commit;
    bed->fake.table.commit = sampled_commit;
    bed->params.kv_size = 2048;
    bed_open(bed);
    for (uint32_t extra = 0; extra < 12; extra++) {
        bed_clear(bed, true);
        bed->params.budget_bytes = 0;
        ok(kvlazy_set_limits(bed->cache, UINT32_MAX, UINT32_MAX, 0));
        ok(bed_turn(bed, 0, 1000));
        ok(bed_turn(bed, 1, 400));
        bed_rm(bed, 0, -1, 990);
        bed_rm(bed, 0, 995, -1);
        for (int i = 0; i < 20; i++) { /* the holes go, the stream is busy */
            bed->fake.now += IDLE / 10;
            ok(bed_cp(bed, 1, 2, 0, 1));
            ok(kvlazy_poll(bed->cache, NULL));
        }
        assert_int_equal(bed_stats(bed).moved_cells % 405, 0);
        bed->params.budget_bytes = bed_stats(bed).touched_bytes + extra * 4096;
        ok(kvlazy_set_limits(bed->cache, UINT32_MAX, UINT32_MAX, bed->params.budget_bytes));
        assert_int_equal(bed_stats(bed).live_cells, 405);
        most_committed = 0;
        bed->fake.now += 2 * IDLE;
        bed_settle(bed);
        ok(kvlazy_trim(bed->cache, 0));
        assert_true(most_committed <= bed->params.budget_bytes);
        assert_int_equal(bed_stats(bed).live_cells, 405);
        bed_sound_released(bed);
    }
}

static void a_host_that_refuses_loses_nothing(void **state)
{
    struct bed *bed = *state;

    bed_open(bed);
    for (int n = 1; n < 20; n++) {
        bed_clear(bed, true);
        for (int i = 0; i < 8; i++) { /* more runs than one piece of moves */
            ok(bed_turn(bed, 0, 40));
            ok(bed_turn(bed, 1, 20));
        }
        for (int i = 0; i < 40; i++)
            bed_rm(bed, 0, i * 8, i * 8 + 5);
        for (int i = 0; i < 20; i++) {
            bed->fake.now += IDLE / 10;
            ok(bed_cp(bed, 1, 2, 0, 1));
            ok(kvlazy_poll(bed->cache, NULL));
        }
        bed->fake.half_commit = n % 2;
        fake_fail(&bed->fake, FAKE_ANY, n);
        ok(kvlazy_trim(bed->cache, 0));
        bed_sound(bed);
        assert_int_equal(bed_stats(bed).touched_bytes, bed->fake.committed_bytes);
        fake_fail(&bed->fake, FAKE_ANY, 0);
        ok(kvlazy_trim(bed->cache, 0));
        bed_sound_released(bed);
        assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 0, 0, 120 + 160));
    }
}

/* ---- slots ---- */

static void slots_of_before_a_move_are_stale(void **state)
{
    struct bed *bed = *state;
    float data[1024];
    kvlazy_mask_info mask = {.struct_size = sizeof mask, .data = data, .data_bytes = sizeof data, .causal = true};
    kvlazy_pos pos = 100;
    kvlazy_seq_id seq = 1;
    kvlazy_ubatch u = {.n_token = 1, .pos = &pos, .seq = &seq};

    bed_open(bed);
    ok(bed_turn(bed, 0, 300));
    ok(bed_turn(bed, 1, 100));
    ok(bed_turn(bed, 1, 1));
    kvlazy_slot slot = bed->slot[0];
    ok(kvlazy_mask(bed->cache, &slot, &u, &mask));
    bed_rm(bed, 0, -1, -1);
    ok(kvlazy_trim(bed->cache, 0));
    assert_int_equal(kvlazy_n_kv(bed->cache, &slot), 0);
    expect(kvlazy_undo_ubatch(bed->cache, &slot), KVLAZY_EINVAL);
    expect(kvlazy_mask(bed->cache, &slot, &u, &mask), KVLAZY_EINVAL);
    ok(kvlazy_init_batch(bed->cache));
    expect(kvlazy_apply_ubatch(bed->cache, &slot, &u), KVLAZY_EINVAL);
    ok(kvlazy_end_batch(bed->cache));
    cells_are(bed, 0, "0..100=0..100/1");
}

static void eviction_then_packing(void **state)
{
    struct bed *bed = *state;

    bed->params.kv_size_initial = 64;
    bed_open(bed);
    ok(bed_turn(bed, 0, 100));
    bed->fake.now += 1;
    ok(bed_turn(bed, 1, 100));
    bed->fake.now += 1;
    ok(bed_turn(bed, 2, 40));
    bed->fake.now += IDLE;
    ok(kvlazy_poll(bed->cache, NULL));
    cells_are(bed, 0, "0..23=0..23/1 24..63=0..39/2");
    bed_sound_released(bed);
    assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 0, 0, 64));
}

static void a_thousand_rounds_in_place(void **state)
{
    struct bed *bed = *state;
    uint64_t seed = 5;

    bed->params.kv_size = 400;
    bed->params.kv_size_initial = 200;
    bed_open(bed);
    for (int i = 0; i < 1000; i++) {
        kvlazy_seq_id s = (kvlazy_seq_id)(next_random(&seed) % 4);

        if (bed_turn(bed, s, 1 + next_random(&seed) % 60))
            bed_rm(bed, s, -1, -1);
        if (next_random(&seed) % 3 == 0)
            bed_rm(bed, (kvlazy_seq_id)(next_random(&seed) % 4), (kvlazy_pos)(next_random(&seed) % 60), -1);
        if (kvlazy_seq_pos_max(bed->cache, s) > 4000)
            bed_rm(bed, s, -1, -1);
        bed->fake.now += next_random(&seed) % 300;
        if (next_random(&seed) % 2)
            ok(kvlazy_trim(bed->cache, next_random(&seed) % 4 ? 0 : 100));
        else
            ok(kvlazy_poll(bed->cache, NULL));
        bed_sound(bed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BED_TEST(what_lies_behind_comes_down),
        BED_TEST(the_fewest_cells_move_in_order),
        BED_TEST(moves_as_a_simple_model_says),
        BED_TEST(trim_packs_5000_cells),
        BED_TEST(every_stream_by_itself),
        BED_TEST(shared_cells_keep_their_owners),
        BED_TEST(a_pending_shift_goes_along),
        BED_TEST(planes_go_along),
        BED_TEST(not_before_idle_and_not_in_a_batch),
        BED_TEST(a_busy_stream_only_decays),
        BED_TEST(dense_streams_and_second_polls_do_no_work),
        BED_TEST(a_device_tensor_holds_every_cell),
        BED_TEST(a_budget_is_never_passed_on_the_way),
        BED_TEST(a_host_that_refuses_loses_nothing),
        BED_TEST(slots_of_before_a_move_are_stale),
        BED_TEST(eviction_then_packing),
        BED_TEST(a_thousand_rounds_in_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
