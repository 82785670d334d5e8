/* SPDX-License-Identifier: MIT */
/*
 * Restores: a batch that puts saved tokens back into sequences without tokens. Gaps, duplicates, any order and shared
 * owners come back as they were; a sequence that has tokens refuses; a refusal changes nothing; what follows goes on.
 */
#include "support.h"

static int restore(struct rig *rig, const kvlazy_ubatch *ubatch, uint32_t n_ubatch)
{
    ok(kvlazy_init_batch(rig->cache));
    int status = kvlazy_prepare_restore(rig->cache, ubatch, n_ubatch, rig->slot);

    for (uint32_t i = 0; !status && i < n_ubatch; i++) {
        status = kvlazy_apply_ubatch(rig->cache, &rig->slot[i], &ubatch[i]);
        if (!status)
            write_rows(rig, &rig->slot[i]);
    }
    ok(kvlazy_end_batch(rig->cache));
    return status;
}

static int restore_list(struct rig *rig, kvlazy_seq_id seq, uint32_t n, const kvlazy_pos *pos)
{
    kvlazy_seq_id all[16];

    for (uint32_t i = 0; i < n; i++)
        all[i] = seq;
    return restore(rig, &UBATCH(n, pos, all), 1);
}

/* What the removal of a middle left cannot come back by kvlazy_prepare. */
static void a_gap_comes_back(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(turn(r, 0, 0, 8));
    ok(kvlazy_seq_rm(r->cache, 0, 2, 5));
    cells_are(r, 0, "0..1=0..1/0 5..7=5..7/0");
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    expect(put_list(r, 0, 5, POS(0, 1, 5, 6, 7)), KVLAZY_EPOS);
    ok(restore_list(r, 0, 5, POS(0, 1, 5, 6, 7)));
    cells_are(r, 0, "0..1=0..1/0 2..4=5..7/0");
    ok(turn(r, 0, 8, 1));
    sound(r);
}

static void any_positions_in_any_order(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(restore_list(r, 0, 6, POS(7, 3, 3, 100, 0, 7)));
    cells_are(r, 0, "0=7/0 1=3/0 2=3/0 3=100/0 4=0/0 5=7/0");
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 0), 0);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 100);
    sound(r);
    ok(turn(r, 0, 101, 2));
    ok(kvlazy_seq_rm(r->cache, 0, 3, 7)); /* both at 3 */
    assert_int_equal(stats(r).live_cells, 6);
    expect(turn(r, 0, 105, 1), KVLAZY_EPOS);
    sound(r);
}

static void shared_owners_over_several_ubatches(void **state)
{
    struct rig *r = *state;
    const kvlazy_seq_id both[] = {2, 0}, first[] = {0}, second[] = {2};
    const kvlazy_seq_id *ids[] = {both, both, first}, *more[] = {second, both};
    const kvlazy_ubatch u[] = {
        {.n_token = 3, .pos = POS(4, 9, 20), .n_seq_id = (const int32_t[]){2, 2, 1}, .seq_id = ids},
        {.n_token = 2, .pos = POS(2, 10), .n_seq_id = (const int32_t[]){1, 2}, .seq_id = more},
    };

    rig_open(r);
    ok(restore(r, u, 2));
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 20);
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 0), 4);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 2), 10);
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 2), 2);
    assert_int_equal(stats(r).live_cells, 5);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    assert_int_equal(stats(r).live_cells, 4);
    sound(r);
}

static void a_sequence_with_tokens_refuses(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(turn(r, 1, 0, 3));
    char *dump = rig_dump(r);
    expect(restore(r, &UBATCH(2, POS(0, 3), SEQ(0, 1)), 1), KVLAZY_EPOS); /* 3 would go on in sequence 1 */
    assert_int_equal(kvlazy_refused(r->cache), 1);
    unchanged(r, dump);
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    ok(restore(r, &UBATCH(2, POS(0, 3), SEQ(0, 1)), 1));
}

static void an_evicted_sequence_is_restored_and_goes_on(void **state)
{
    struct rig *r = *state;

    open_with(r, 512, 16);
    ok(turn(r, 0, 0, 40));
    ok(turn(r, 1, 0, 16));
    r->fake.now += 100;
    ok(turn(r, 1, 16, 1));
    ok(kvlazy_trim(r->cache, 17));
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), -1);
    expect(turn(r, 0, 30, 1), KVLAZY_EPOS);
    ok(restore_list(r, 0, 3, POS(30, 32, 31)));
    ok(turn(r, 0, 33, 1));
    ok(kvlazy_seq_rm(r->cache, 0, 31, -1));
    ok(turn(r, 0, 31, 1));
    sound(r);
}

static void an_undone_restore_leaves_nothing(void **state)
{
    struct rig *r = *state;
    const kvlazy_ubatch u = UBATCH(3, POS(9, 1, 9), SEQ(0, 0, 0));

    rig_open(r);
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_prepare_restore(r->cache, &u, 1, r->slot));
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), -1);
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
    write_rows(r, &r->slot[0]);
    ok(kvlazy_end_batch(r->cache));
    cells_are(r, 0, "0=9/0 1=1/0 2=9/0");
    sound(r);
}

/* Tokens come between: the plan is stale, as for any batch. */
static void tokens_that_came_since_refuse_the_apply(void **state)
{
    struct rig *r = *state;
    const kvlazy_ubatch u = UBATCH(2, POS(9, 1), SEQ(0, 0));

    rig_open(r);
    ok(turn(r, 1, 0, 3));
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_prepare_restore(r->cache, &u, 1, r->slot));
    ok(kvlazy_seq_cp(r->cache, 1, 0, 0, -1));
    expect(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u), KVLAZY_EPOS);
    ok(kvlazy_end_batch(r->cache));
    sound(r);
}

static void a_window_is_not_recycled(void **state)
{
    struct rig *r = *state;

    r->params.swa_type = KVLAZY_SWA_STANDARD;
    r->params.n_swa = 4;
    open_with(r, 12, 0);
    ok(turn(r, 0, 0, 12));
    expect(restore_list(r, 1, 2, POS(5, 3)), KVLAZY_ENOSLOT);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(restore_list(r, 1, 3, POS(5, 3, 6)));
    ok(turn(r, 1, 7, 1));
    sound(r);
}

static void arguments_are_those_of_prepare(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    expect(kvlazy_prepare_restore(NULL, &UBATCH(1, POS(0), SEQ(0)), 1, r->slot), KVLAZY_EINVAL);
    expect(kvlazy_prepare_restore(r->cache, NULL, 1, r->slot), KVLAZY_EINVAL);
    expect(restore(r, &UBATCH(1, POS(-1), SEQ(0)), 1), KVLAZY_EINVAL);
    expect(restore(r, &UBATCH(1, POS(0), SEQ(4)), 1), KVLAZY_EINVAL);
    assert_int_equal(stats(r).live_cells, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_gap_comes_back),
        RIG_TEST(any_positions_in_any_order),
        RIG_TEST(shared_owners_over_several_ubatches),
        RIG_TEST(a_sequence_with_tokens_refuses),
        RIG_TEST(an_evicted_sequence_is_restored_and_goes_on),
        RIG_TEST(an_undone_restore_leaves_nothing),
        RIG_TEST(tokens_that_came_since_refuse_the_apply),
        RIG_TEST(a_window_is_not_recycled),
        RIG_TEST(arguments_are_those_of_prepare),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
