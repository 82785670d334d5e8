/* SPDX-License-Identifier: MIT */
/*
 * The ten promises of docs/design.md, one test each and in their words. The other tests look at every corner; this
 * page is what a reader is shown first.
 */
#include "support.h"

#include <string.h>

/* Rows that divide no page, two streams that share pages, and a limit that a conversation can pass. */
static void open_awkward(struct rig *r)
{
    static const size_t rows[2][2] = {{512, 36}, {34, 1088}};

    rig_rows(r, 2, rows);
    r->params.n_stream = r->params.n_seq_max = 2;
    r->params.kv_size = 1500;
    r->params.kv_size_initial = 256;
    rig_open(r);
}

static void creating_costs_nothing(void **state)
{
    struct rig *r = *state;

    open_awkward(r);
    ok(kvlazy_clear(r->cache, true));
    ok(dry(r, 0, 0, 1500)); /* a plan for all there is */
    assert_int_equal(r->fake.n_call[FAKE_COMMIT], 0);
    assert_int_equal(stats(r).touched_bytes, 0);
    assert_int_equal(fake_committed(&r->fake, r->tensor[0].data, stats(r).reserved_bytes), 0);
}

static void padding_reads_finite(void **state)
{
    struct rig *r = *state;

    open_awkward(r);
    ok(turn(r, 0, 0, 700));
    ok(turn(r, 1, 0, 300));
    ok(kvlazy_seq_rm(r->cache, 0, 100, 200));
    ok(kvlazy_seq_rm(r->cache, 0, 450, -1));
    ok(kvlazy_trim(r->cache, 0));
    cells_are(r, 0, "0..99=0..99/0 100..199=350..449/0 200..349=200..349/0");
    assert_true(cells_zero(r, 0, 350, 1500)); /* to the byte, edge pages included */
    ok(turn(r, 1, 300, 400));                 /* grown again, beside them */
    assert_true(cells_zero(r, 0, 350, 1500));
    assert_true(cells_zero(r, 1, 700, 1500));
    sound(r);
}

static void live_bytes_are_sacred(void **state)
{
    struct rig *r = *state;

    open_awkward(r);
    for (kvlazy_pos p = 0; p < 1400; p += 140) {
        ok(turn(r, 0, p, 140));
        ok(turn(r, 1, p, 140));
        if (p % 280)
            ok(kvlazy_seq_rm(r->cache, 0, p / 2, p / 2 + 30));
        r->fake.refuse_decommit = p % 420 == 0;
        ok(kvlazy_trim(r->cache, 0));
        assert_true(is_packed(r));
        sound(r); /* every live byte is what was written */
    }
}

static void an_eviction_adds_no_gap(void **state)
{
    struct rig *r = *state;

    open_awkward(r);
    ok(turn(r, 0, 0, 600));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    cells_are(r, 0, "0..255=0..255/0"); /* one run that starts where it started */
    assert_int_equal(r->evict[0].pos, 255);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 255); /* the engine learns of it … */
    expect(turn(r, 0, 600, 1), KVLAZY_EPOS);                /* … or is refused */
    ok(turn(r, 0, 256, 1));
}

static void a_refusal_changes_nothing(void **state)
{
    struct rig *r = *state;
    char *before;

    open_awkward(r);
    ok(turn(r, 0, 0, 1000));
    before = rig_dump(r);
    expect(dry(r, 0, 1000, 501), KVLAZY_ENOSLOT);
    expect(dry(r, 0, 1002, 1), KVLAZY_EPOS);
    expect(dry(r, 2, 0, 1), KVLAZY_EINVAL);
    expect(kvlazy_seq_rm(r->cache, 7, 0, -1), KVLAZY_EINVAL);
    fake_fail(&r->fake, FAKE_COMMIT, 1);
    expect(put(r, 1, 0, 300), KVLAZY_ENOMEM);
    ok(kvlazy_end_batch(r->cache));
    unchanged(r, before);
    r->fake.refuse_decommit = true; /* giving back never fails the caller */
    ok(kvlazy_trim(r->cache, 10));
    sound(r);
}

static void prepare_is_pure(void **state)
{
    struct rig *r = *state;
    kvlazy_pos pos[4] = {300, 301, 302, 303};
    kvlazy_ubatch u = UBATCH(4, pos, SEQ(0, 0, 0, 0));
    char *before;

    open_awkward(r);
    ok(turn(r, 0, 0, 300));
    before = rig_dump(r);
    fake_forget(&r->fake);
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot)); /* replaces the plan */
    assert_int_equal(r->fake.n_call[FAKE_COMMIT] + r->fake.n_call[FAKE_DECOMMIT], 0);
    unchanged(r, before);
}

static void addresses_never_move(void **state)
{
    struct rig *r = *state;
    kvlazy_tensor now;

    open_awkward(r);
    for (uint32_t i = 0; i < 1000; i++) {
        kvlazy_seq_id seq = (kvlazy_seq_id)(i % 2);

        ok(turn(r, seq, kvlazy_seq_pos_max(r->cache, seq) + 1, 1 + i * 31 % 200));
        ok(kvlazy_trim(r->cache, 1 + i * 17 % 300));
        ok(kvlazy_k(r->cache, r->layers[1].id, &now));
        assert_memory_equal(&now, &r->tensor[2], sizeof now);
    }
}

static void figures_tell_the_truth(void **state)
{
    struct rig *r = *state;
    uint64_t touched, released;

    open_awkward(r);
    ok(turn(r, 0, 0, 1000));
    touched = stats(r).touched_bytes;
    assert_int_equal(touched, cover(r));
    assert_int_equal(touched, r->fake.committed_bytes);
    ok(kvlazy_seq_rm(r->cache, 0, 200, -1));
    ok(kvlazy_trim(r->cache, 0));
    released = stats(r).released_bytes;
    assert_int_equal(released, touched - stats(r).touched_bytes);
    assert_int_equal(stats(r).touched_bytes, r->fake.committed_bytes);
    fake_forget(&r->fake);
    ok(kvlazy_trim(r->cache, 0)); /* the same pages a second time */
    assert_int_equal(stats(r).released_bytes, released);
    assert_int_equal(stats(r).live_cells, 200);
}

static void steady_decode_costs_nothing_visible(void **state)
{
    struct rig *r = *state;

    open_awkward(r);
    ok(turn(r, 0, 0, 1500));
    ok(kvlazy_seq_rm(r->cache, 0, 1000, -1)); /* their pages are touched, and stay for now */
    fake_forget(&r->fake);
    for (kvlazy_pos p = 1000; p < 1400; p++)
        ok(turn(r, 0, p, 1));
    assert_int_equal(r->fake.n_call[FAKE_COMMIT] + r->fake.n_call[FAKE_DECOMMIT], 0);
    assert_true(r->fake.n_call[FAKE_NOW] <= 400); /* the clock, once a batch; allocations are test_fault's */
}

static void memory_comes_back_while_idle(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    open_awkward(r);
    ok(turn(r, 0, 0, 1200));
    ok(turn(r, 1, 0, 200));
    ok(poll_next(r, &next));
    assert_int_equal(next, 500);
    r->fake.now += next; /* no request comes */
    ok(poll_next(r, &next));
    assert_int_equal(stats(r).live_cells, 256 + 200);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    assert_int_equal(r->fake.committed_bytes, cover(r));
    assert_true(next == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(creating_costs_nothing),
        RIG_TEST(padding_reads_finite),
        RIG_TEST(live_bytes_are_sacred),
        RIG_TEST(an_eviction_adds_no_gap),
        RIG_TEST(a_refusal_changes_nothing),
        RIG_TEST(prepare_is_pure),
        RIG_TEST(addresses_never_move),
        RIG_TEST(figures_tell_the_truth),
        RIG_TEST(steady_decode_costs_nothing_visible),
        RIG_TEST(memory_comes_back_while_idle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
