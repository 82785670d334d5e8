/* SPDX-License-Identifier: MIT */
/*
 * When pages come: not in prepare, in one call to the host for all tensors of an apply, and some cells early in steady
 * decode, so that most tokens find theirs there. What came early counts, obeys the budget, and goes back.
 */
#include "layout_support.h"

#include <inttypes.h>
#include <string.h>

#include <kvlazy/engine_cells.h>

enum { IDLE = 500, PAGE = 4096, AHEAD = 32 };

static int bed_setup(void **state)
{
    struct bed *bed = bed_new(PAGE);

    bed->params.kv_size = 1024;
    bed_layer(bed, PAGE, 0, 0); /* a page a cell: what came is counted by dividing */
    *state = bed;
    return 0;
}

static uint64_t touched_cells(struct bed *bed)
{
    return bed_stats(bed).touched_bytes / PAGE;
}

static uint64_t commits(const struct bed *bed)
{
    return bed->fake.n_call[FAKE_COMMIT];
}

static void decode(struct bed *bed, kvlazy_seq_id seq, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ok(bed_turn(bed, seq, 1));
}

/* ---- when ---- */

static void prepare_commits_nothing(void **state)
{
    struct bed *bed = *state;
    kvlazy_pos pos[] = {0, 1, 2};
    kvlazy_seq_id seq[] = {0, 0, 0};
    kvlazy_ubatch u = {.n_token = 3, .pos = pos, .seq = seq};

    bed_open(bed);
    uint64_t calls = commits(bed); /* those of create, if any */
    ok(kvlazy_prepare(bed->cache, &u, 1, bed->slot));
    assert_int_equal(commits(bed), calls);
    assert_int_equal(touched_cells(bed), 0);
    ok(kvlazy_apply_ubatch(bed->cache, bed->slot, &u));
    assert_int_equal(commits(bed), calls + 1);
    assert_int_equal(touched_cells(bed), 3);
    ok(kvlazy_end_batch(bed->cache));
    bed_clear(bed, true);
}

static void one_call_for_all_tensors(void **state)
{
    struct bed *bed = *state;

    bed_layer(bed, 512, 66, 33);
    bed_layer(bed, 5000, 34, 0);
    bed->params.n_stream = bed->params.n_seq_max = 2;
    bed_open(bed);
    uint64_t calls = commits(bed);
    ok(bed_turn(bed, 1, 40));
    assert_int_equal(commits(bed), calls + 1);
    assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 1, 0, 40));
    ok(kvlazy_init_batch(bed->cache));
    ok(bed_put(bed, 0, 40, 4));
    ok(kvlazy_end_batch(bed->cache));
    assert_true(commits(bed) <= calls + 1 + 4);
}

static void only_after_two_batches_of_one_token(void **state)
{
    static const struct {
        uint32_t n[6], ahead;
    } turns[] = {{{1}, 0},          {{1, 1}, 0},           {{1, 1, 1}, AHEAD},
                 {{5, 1, 1}, 0},    {{5, 1, 1, 1}, AHEAD}, {{1, 1, 2}, 0},
                 {{1, 1, 5, 1}, 0}, {{1, 1, 2, 1, 1}, 0},  {{1, 1, 2, 1, 1, 1}, AHEAD}};
    struct bed *bed = *state;

    bed_open(bed);
    for (size_t i = 0; i < N_OF(turns); i++) {
        uint32_t n = 0;

        for (int k = 0; k < 6 && turns[i].n[k]; n += turns[i].n[k++])
            ok(bed_turn(bed, 0, turns[i].n[k]));
        if (touched_cells(bed) != n + turns[i].ahead)
            fail_msg("case %zu: %" PRIu64 " cells touched, not %" PRIu32, i, touched_cells(bed), n + turns[i].ahead);
        bed_sound(bed);
        bed_clear(bed, true);
        ok(bed_turn(bed, 1, 7)); /* what was before is not remembered */
        bed_clear(bed, true);
    }
}

static void streams_are_counted_apart(void **state)
{
    struct bed *bed = *state;

    bed->params.n_stream = bed->params.n_seq_max = 2;
    bed_open(bed);
    decode(bed, 0, 2);
    ok(bed_turn(bed, 1, 50));
    decode(bed, 1, 1);
    assert_int_equal(touched_cells(bed), 2 + 51);
    decode(bed, 0, 1); /* the other stream's prompt does not matter */
    assert_int_equal(touched_cells(bed), 3 + AHEAD + 51);
    decode(bed, 1, 2);
    assert_int_equal(touched_cells(bed), 3 + AHEAD + 53 + AHEAD);
}

static void steady_decode_asks_once_in_33_tokens(void **state)
{
    struct bed *bed = *state;

    bed_layer(bed, 512, 66, 33);
    bed_open(bed);
    ok(bed_turn(bed, 0, 100));
    decode(bed, 0, 2);
    fake_forget(&bed->fake);
    for (int i = 0; i < 33 * 8; i++) {
        uint64_t calls = bed_host_calls(bed);

        decode(bed, 0, 1);
        if (i % 33)
            assert_int_equal(bed_host_calls(bed), calls);
    }
    assert_int_equal(bed_host_calls(bed), 8);
    assert_int_equal(touched_cells(bed), bed_cover(bed, 0, 0, 102 + 33 * 8) / PAGE);
}

static void never_past_kv_size_nor_over_live_cells(void **state)
{
    struct bed *bed = *state;

    bed->params.kv_size = 20;
    bed_open(bed);
    decode(bed, 0, 3);
    assert_int_equal(touched_cells(bed), 20);
    decode(bed, 0, 17);
    assert_int_equal(bed_turn(bed, 0, 1), KVLAZY_ENOSLOT);
    bed_sound(bed);

    bed_clear(bed, true);
    ok(bed_turn(bed, 1, 5));
    ok(bed_turn(bed, 2, 3));
    bed_rm(bed, 1, -1, -1);
    ok(kvlazy_clear(bed->cache, false));
    bed_forget(bed, 2);
    bed_clear(bed, true);
    bed_sound_released(bed);
}

static void a_hole_before_live_cells_is_filled_no_further(void **state)
{
    struct bed *bed = *state;

    bed_open(bed);
    ok(bed_turn(bed, 1, 10));
    ok(bed_turn(bed, 2, 10));
    bed_rm(bed, 1, -1, -1);
    for (int i = 0; i < 20; i++) { /* the hole decays, its stream is busy */
        bed->fake.now += IDLE / 10;
        ok(bed_cp(bed, 2, 3, 0, 1));
        ok(kvlazy_poll(bed->cache, NULL));
    }
    assert_int_equal(touched_cells(bed), 10);
    decode(bed, 0, 3);
    assert_int_equal(touched_cells(bed), 20); /* the seven behind, up to the live ones */
    bed_sound(bed);
}

/* ---- what came early ---- */

static void it_goes_back(void **state)
{
    struct bed *bed = *state;

    bed_open(bed);
    decode(bed, 0, 3);
    assert_int_equal(touched_cells(bed), 3 + AHEAD);
    ok(kvlazy_trim(bed->cache, 0));
    assert_int_equal(touched_cells(bed), 3);
    bed_sound_released(bed);
    bed_clear(bed, true);

    decode(bed, 0, 3);
    bed->fake.now += IDLE;
    bed_settle(bed);
    assert_true(bed->fake.now <= 1000 + IDLE * 3 / 2);
    assert_int_equal(touched_cells(bed), 3);
    bed_sound_released(bed);
}

static void it_goes_back_in_a_busy_cache_too(void **state)
{
    struct bed *bed = *state;

    bed_open(bed);
    decode(bed, 0, 3);
    for (int i = 0; i <= 15; i++) {
        bed->fake.now = 1000 + (uint64_t)i * IDLE / 10;
        ok(bed_cp(bed, 0, 1, 0, 1));
        ok(kvlazy_poll(bed->cache, NULL));
    }
    assert_int_equal(touched_cells(bed), 3);
    decode(bed, 0, 1); /* and comes again */
    assert_int_equal(touched_cells(bed), 4 + AHEAD);
}

static void it_raises_no_cap(void **state)
{
    struct bed *bed = *state;

    bed->params.n_pad = 1;
    bed->params.kv_size_initial = 2;
    bed_open(bed);
    decode(bed, 0, 4);
    assert_int_equal(kvlazy_cap(bed->cache, 0), 4);
    assert_int_equal(bed_stats(bed).cap_cells, 4);
    assert_int_equal(bed_stats(bed).live_cells, 4);
    bed->params.kv_size_initial = 2;
}

static void the_budget_is_kept_to_the_page(void **state)
{
    struct bed *bed = *state;

    for (uint32_t room = 0; room <= AHEAD + 2; room++) {
        bed->params.budget_bytes = (3 + room) * PAGE;
        if (!bed->cache)
            bed_open(bed);
        bed_clear(bed, true);
        ok(kvlazy_set_limits(bed->cache, UINT32_MAX, UINT32_MAX, bed->params.budget_bytes));
        ok(bed_turn(bed, 1, 2));
        bed_clear(bed, true);
        decode(bed, 0, 3);
        assert_int_equal(touched_cells(bed), room < AHEAD ? 3 : 3 + AHEAD);
        bed_sound(bed);
        for (uint32_t i = 0; i < room; i++)
            ok(bed_turn(bed, 0, 1));
        assert_int_equal(bed_turn(bed, 0, 1), KVLAZY_EBUDGET);
        bed_sound(bed);
    }
}

/* Cells that came ahead are free ones: a batch elsewhere takes their pages before it is refused. */
static void it_makes_room_under_a_budget(void **state)
{
    struct bed *bed = *state;

    bed->params.budget_bytes = (3 + AHEAD) * PAGE;
    bed->params.n_stream = bed->params.n_seq_max = 2;
    bed_open(bed);
    decode(bed, 0, 3);
    assert_int_equal(kvlazy_room(bed->cache, 1), AHEAD);
    ok(bed_turn(bed, 1, AHEAD));
    assert_int_equal(touched_cells(bed), 3 + AHEAD);
    bed_sound(bed);
}

/* ---- where not ---- */

static void off_by_flag(void **state)
{
    struct bed *bed = *state;

    bed->params.flags = KVLAZY_NO_COMMIT_AHEAD;
    bed_open(bed);
    uint64_t calls = commits(bed);
    decode(bed, 0, 40);
    assert_int_equal(touched_cells(bed), 40);
    assert_int_equal(commits(bed), calls); /* the first touch is the writing threads' */
}

static uint32_t host_traits;

static uint32_t some_traits(void *ctx)
{
    (void)ctx;
    return host_traits;
}

static void off_on_hosts_where_it_would_harm(void **state)
{
    static const uint32_t traits[] = {KVLAZY_HOST_NUMA, KVLAZY_HOST_LOCKED, KVLAZY_HOST_NUMA | KVLAZY_HOST_LOCKED};

    for (size_t i = 0; i < N_OF(traits); i++) {
        struct bed *bed;

        host_traits = traits[i];
        bed_setup((void **)&bed);
        bed->fake.table.traits = some_traits;
        bed->params.flags = KVLAZY_NO_COMMIT_AHEAD; /* for the bed, which holds the host's figure against ours */
        kvlazy_params p = bed->params;
        kvlazy_cache *c;
        bed_open(bed);
        p.flags = 0;
        ok(kvlazy_create(&p, &c));
        uint64_t calls = commits(bed);
        kvlazy_pos pos = 0;
        kvlazy_seq_id seq = 0;
        kvlazy_ubatch u = {.n_token = 1, .pos = &pos, .seq = &seq};
        for (; pos < 40; pos++) {
            kvlazy_slot slot;

            ok(kvlazy_prepare(c, &u, 1, &slot));
            ok(kvlazy_apply_ubatch(c, &slot, &u));
            ok(kvlazy_end_batch(c));
        }
        kvlazy_stats_info s = {.struct_size = sizeof s};
        ok(kvlazy_stats(c, &s));
        assert_int_equal(s.touched_bytes, 40 * PAGE);
        assert_int_equal(commits(bed), calls);
        kvlazy_destroy(c);
        bed_teardown((void **)&bed);
    }
    (void)state;
}

/* ---- refusals ---- */

static void without_room_for_more_the_row_alone(void **state)
{
    struct bed *bed = *state;

    bed_open(bed);
    decode(bed, 0, 2);
    for (int half = 0; half < 2; half++) {
        bed->fake.half_commit = half;
        fake_fail(&bed->fake, FAKE_COMMIT, 1);
        decode(bed, 0, 1);
        assert_true(bed->fake.failed);
        assert_int_equal(touched_cells(bed), 3 + half);
        assert_int_equal(bed->fake.committed_bytes / PAGE, 3 + half);
        bed_sound(bed);
    }
    decode(bed, 0, 1); /* the host is well again */
    assert_int_equal(touched_cells(bed), 5 + AHEAD);
}

static void without_room_for_the_row_nothing(void **state)
{
    struct bed *bed = *state;

    bed_open(bed);
    decode(bed, 0, 3);
    decode(bed, 0, AHEAD);
    uint64_t cells = touched_cells(bed);
    bed->fake.budget_bytes = cells * PAGE;
    expect(bed_turn(bed, 0, 1), KVLAZY_ENOMEM);
    assert_int_equal(touched_cells(bed), cells);
    assert_int_equal(kvlazy_seq_pos_max(bed->cache, 0), AHEAD + 2);
    bed->fake.budget_bytes = (cells + 1) * PAGE;
    ok(bed_turn(bed, 0, 1));
    assert_int_equal(touched_cells(bed), cells + 1);
    bed->fake.budget_bytes = 0;
    ok(bed_turn(bed, 0, 1));
    assert_int_equal(touched_cells(bed), cells + 2 + AHEAD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BED_TEST(prepare_commits_nothing),
        BED_TEST(one_call_for_all_tensors),
        BED_TEST(only_after_two_batches_of_one_token),
        BED_TEST(streams_are_counted_apart),
        BED_TEST(steady_decode_asks_once_in_33_tokens),
        BED_TEST(never_past_kv_size_nor_over_live_cells),
        BED_TEST(a_hole_before_live_cells_is_filled_no_further),
        BED_TEST(it_goes_back),
        BED_TEST(it_goes_back_in_a_busy_cache_too),
        BED_TEST(it_raises_no_cap),
        BED_TEST(the_budget_is_kept_to_the_page),
        BED_TEST(it_makes_room_under_a_budget),
        BED_TEST(off_by_flag),
        cmocka_unit_test(off_on_hosts_where_it_would_harm),
        BED_TEST(without_room_for_more_the_row_alone),
        BED_TEST(without_room_for_the_row_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
