/* SPDX-License-Identifier: MIT */
/*
 * Linked caches: who may be linked, the batch and the clock they share, what serving one does for all, and what each
 * tells.
 */
#define _DEFAULT_SOURCE
#include "linked_support.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- creating and destroying ---- */

static void only_caches_of_the_same_sequences(void **state)
{
    struct group *g = *state;
    struct rig *r = g->r[1];
    uint64_t foreign[512] = {0};

    g->r[0]->params.n_stream = g->r[0]->params.n_seq_max = 4;
    open_linked(g, 1);
    r->params.with = (kvlazy_cache *)(void *)foreign;
    r->params.n_stream = r->params.n_seq_max = 4;
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_EINVAL);
    assert_non_null(strstr(r->log, "with"));
    r->params.with = g->r[0]->cache;
    r->params.n_stream = 1;
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_EINVAL);
    r->params.n_stream = r->params.n_seq_max = 3;
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_EINVAL);
    r->params.n_stream = 1;
    r->params.n_seq_max = 1;
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_EINVAL);
    assert_int_equal(r->n_log, 4);
    assert_null(r->cache);
    assert_int_equal(fake_mappings(&r->fake), 0);
    r->params.n_stream = 4;
    r->params.n_seq_max = 0; /* what that means counts, not how it was said */
    open_linked(g, 2);
    ok(turn_all(g, 3, 0, 5));
}

static void a_refused_one_leaves_the_others_alone(void **state)
{
    struct group *g = *state;
    struct rig *r = g->r[2];

    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 5));
    r->params.with = g->r[1]->cache;
    fake_fail(&r->fake, FAKE_RESERVE, 1);
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_ENOMEM);
    ok(turn_all(g, 0, 5, 5));
    ok(kvlazy_poll(g->r[0]->cache, NULL));
    ok(kvlazy_clear(g->r[1]->cache, true));
    all_sound(g);
    rig_open(r); /* asked again */
    g->n = 3;
    ok(turn_all(g, 0, 0, 5));
}

static void works_on(struct group *g)
{
    kvlazy_pos max = max_of(g, 0, 0);

    ok(turn_all(g, 0, max + 1, 100));
    ok(turn_all(g, 1, 0, 30));
    all_sound(g);
    later(g, 2000);
    ok(kvlazy_poll(g->r[g->n - 1]->cache, NULL));
    all_sound(g);
    for (int i = 0; i < g->n; i++) {
        assert_true(stats(g->r[i]).live_cells <= 60);
        assert_true(is_packed(g->r[i]));
    }
    agree(g);
    ok(kvlazy_clear(g->r[0]->cache, false));
}

static void destroyed_in_any_order(void **state)
{
    static const int orders[6][MEMBERS] = {{0, 0, 0}, {0, 1, 0}, {1, 0, 0}, {1, 1, 0}, {2, 0, 0}, {2, 1, 0}};

    (void)state;
    for (int o = 0; o < 6; o++) {
        void *one;
        struct group *g;

        group_setup(&one);
        g = one;
        for (int i = 0; i < MEMBERS; i++)
            g->r[i]->params.kv_size_initial = 60;
        open_linked(g, 3);
        works_on(g);
        while (g->n) {
            int gone = orders[o][MEMBERS - g->n];

            ok(turn_all(g, 2, 0, 3));
            ok(kvlazy_init_batch(g->r[gone]->cache)); /* it leaves a batch behind, which the others end */
            rig_free(g->r[gone]);
            g->n--;
            for (int i = gone; i < MEMBERS; i++)
                g->r[i] = i < g->n ? g->r[i + 1] : NULL;
            if (!g->n)
                break;
            ok(kvlazy_end_batch(g->r[0]->cache));
            ok(kvlazy_poll(g->r[g->n - 1]->cache, NULL));
            ok(kvlazy_clear(g->r[0]->cache, true));
            works_on(g);
        }
        free(g);
    }
}

/* A cache that comes later comes into the batch as it is, and into the same time. */
static void one_that_comes_later(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < MEMBERS; i++)
        g->r[i]->params.kv_size_initial = 100;
    open_linked(g, 1);
    ok(turn_all(g, 0, 0, 50));
    later(g, 100000);
    ok(kvlazy_init_batch(g->r[0]->cache));
    g->r[1]->params.with = g->r[0]->cache;
    rig_open(g->r[1]);
    g->n = 2;
    expect(kvlazy_poll(g->r[1]->cache, NULL), KVLAZY_EBUSY);
    ok(kvlazy_end_batch(g->r[1]->cache));
    ok(kvlazy_poll(g->r[1]->cache, NULL));
    ok(turn_all(g, 1, 0, 90));
    later(g, 499);
    ok(kvlazy_poll(g->r[1]->cache, NULL));
    assert_int_equal(max_of(g, 1, 1), 89);
    assert_int_equal(max_of(g, 0, 1), 89);
    assert_int_equal(max_of(g, 0, 0), 9); /* idle for long, and only the first has it */
    all_sound(g);
}

/* Ages of cells are short numbers: who joins after months must not make old ones look young. */
static void one_that_comes_after_months(void **state)
{
    struct group *g = *state;

    open_linked(g, 1);
    ok(turn_all(g, 0, 0, 200));
    rm_all(g, 0, -1, -1);
    later(g, (UINT64_C(1) << 32) + 100);
    open_linked(g, 2);
    ok(kvlazy_poll(g->r[1]->cache, NULL));
    assert_int_equal(stats(g->r[0]).touched_bytes, 0);
    ok(turn_all(g, 0, 0, 200));
    all_sound(g);
}

/* ---- the batch ---- */

static void all_busy(struct group *g, int want)
{
    for (int i = 0; i < g->n; i++) {
        uint64_t next;

        expect(poll_next(g->r[i], &next), want);
        if (want)
            assert_int_equal(next, 500);
        expect(kvlazy_trim(g->r[i]->cache, 0), want);
        expect(kvlazy_trim(g->r[i]->cache, 100), want);
        expect(kvlazy_set_limits(g->r[i]->cache, UINT32_MAX, UINT32_MAX, UINT64_MAX), want);
    }
}

static void a_batch_of_one_is_a_batch_of_all(void **state)
{
    struct group *g = *state;
    kvlazy_slot slot;

    open_linked(g, 3);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++) {
            all_busy(g, KVLAZY_OK);
            ok(kvlazy_init_batch(g->r[i]->cache));
            all_busy(g, KVLAZY_EBUSY);
            ok(kvlazy_end_batch(g->r[k]->cache));
            all_busy(g, KVLAZY_OK);
            ok(kvlazy_prepare(g->r[i]->cache, tokens(0, 0, 3), 1, &slot));
            all_busy(g, KVLAZY_EBUSY);
            ok(kvlazy_init_batch(g->r[k]->cache));
            all_busy(g, KVLAZY_EBUSY);
            ok(kvlazy_clear(g->r[k]->cache, false));
            all_busy(g, KVLAZY_OK);
        }
}

static void an_ended_batch_has_ended_in_all(void **state)
{
    struct group *g = *state;
    char *before[2];

    open_linked(g, 2);
    for (int by = 0; by < 2; by++) {
        ok(plan_all(g, 0, 0, 5));
        for (int i = 0; i < 2; i++)
            before[i] = rig_dump(g->r[i]);
        ok(kvlazy_end_batch(g->r[by]->cache));
        for (int i = 0; i < 2; i++) {
            expect(kvlazy_apply_ubatch(g->r[i]->cache, &g->slot[i], tokens(0, 0, 5)), KVLAZY_EINVAL);
            unchanged(g->r[i], before[i]);
        }
    }
    ok(plan_all(g, 0, 0, 5)); /* one applied, one not */
    ok(kvlazy_apply_ubatch(g->r[0]->cache, &g->slot[0], tokens(0, 0, 5)));
    write_rows(g->r[0], &g->slot[0]);
    ok(kvlazy_end_batch(g->r[1]->cache));
    expect(kvlazy_apply_ubatch(g->r[1]->cache, &g->slot[1], tokens(0, 0, 5)), KVLAZY_EINVAL);
    ok(kvlazy_undo_ubatch(g->r[0]->cache, &g->slot[0]));
    ok(turn_all(g, 0, 0, 5));
    all_sound(g);
}

static void slots_are_not_shared(void **state)
{
    struct group *g = *state;

    open_linked(g, 2);
    ok(plan_all(g, 0, 0, 5));
    for (int i = 0; i < 2; i++) {
        expect(kvlazy_apply_ubatch(g->r[i]->cache, &g->slot[1 - i], tokens(0, 0, 5)), KVLAZY_EINVAL);
        expect(kvlazy_undo_ubatch(g->r[i]->cache, &g->slot[1 - i]), KVLAZY_EINVAL);
        assert_int_equal(kvlazy_n_kv(g->r[i]->cache, &g->slot[1 - i]), 0);
    }
    for (int i = 0; i < 2; i++) { /* and the batch is open still */
        ok(kvlazy_apply_ubatch(g->r[i]->cache, &g->slot[i], tokens(0, 0, 5)));
        write_rows(g->r[i], &g->slot[i]);
    }
    ok(kvlazy_end_batch(g->r[0]->cache));
}

static void a_refused_prepare_ends_it_in_all(void **state)
{
    struct group *g = *state;
    kvlazy_slot slot;

    g->r[1]->params.kv_size = 64;
    open_linked(g, 2);
    ok(turn_all(g, 0, 0, 60));
    for (int by = 0; by < 2; by++) {
        ok(kvlazy_init_batch(g->r[by]->cache));
        ok(plan_all(g, 0, 60, 4));
        expect(kvlazy_prepare(g->r[by]->cache, tokens(0, 61, 1), 1, &slot), KVLAZY_EPOS);
        for (int i = 0; i < 2; i++)
            expect(kvlazy_apply_ubatch(g->r[i]->cache, &g->slot[i], tokens(0, 60, 4)), KVLAZY_EINVAL);
        all_busy(g, KVLAZY_OK);
        assert_int_equal(kvlazy_refused(g->r[by]->cache), 0);
        all_end_at(g, 0, 59);
    }
    expect(turn_all(g, 0, 60, 5), KVLAZY_ENOSLOT); /* the first has room, the second has not */
    all_busy(g, KVLAZY_OK);
    all_end_at(g, 0, 59);
    assert_int_equal(stats(g->r[0]).n_refusal + stats(g->r[1]).n_refusal, 3);
    ok(turn_all(g, 0, 60, 4));
    all_sound(g);
}

/* The clock of every sequence starts where the batch ended, whoever said so. */
static void one_end_stamps_all(void **state)
{
    struct group *g = *state;
    uint64_t next;

    for (int i = 0; i < 2; i++)
        g->r[i]->params.kv_size_initial = 100;
    open_linked(g, 2);
    ok(kvlazy_init_batch(g->r[0]->cache));
    ok(put_all(g, 0, 0, 200));
    later(g, 300);
    ok(kvlazy_end_batch(g->r[1]->cache)); /* at 1300 */
    later(g, 300);
    ok(kvlazy_end_batch(g->r[0]->cache)); /* and that is no end of anything */
    for (int i = 0; i < 2; i++) {
        ok(poll_next(g->r[i], &next));
        assert_int_equal(next, 200);
    }
    later(g, 200);
    ok(kvlazy_poll(g->r[0]->cache, NULL));
    all_end_at(g, 0, 99);
    all_sound(g);
}

/* ---- serving ---- */

/* All lost 400 tokens each to the engine, and hold their pages still. */
static void drop_all(struct group *g)
{
    ok(turn_all(g, 0, 0, 400));
    rm_all(g, 0, -1, -1);
    for (int i = 0; i < g->n; i++)
        assert_int_not_equal(stats(g->r[i]).touched_bytes, 0);
}

static void none_touched(struct group *g)
{
    for (int i = 0; i < g->n; i++)
        assert_int_equal(stats(g->r[i]).touched_bytes, 0);
    all_sound(g);
}

static void whoever_is_called_serves_all(void **state)
{
    struct group *g = *state;

    open_linked(g, 3);
    for (int by = 0; by < 3; by++) {
        drop_all(g);
        later(g, 750);
        ok(kvlazy_poll(g->r[by]->cache, NULL));
        none_touched(g);
        drop_all(g);
        ok(kvlazy_trim(g->r[by]->cache, 0));
        none_touched(g);
        drop_all(g);
        later(g, 750);
        ok(kvlazy_init_batch(g->r[by]->cache));
        ok(kvlazy_end_batch(g->r[by]->cache));
        none_touched(g);
        ok(turn_all(g, 0, 0, 400));
        ok(kvlazy_clear(g->r[by]->cache, true));
        none_touched(g);
    }
}

static void one_clear_is_for_all(void **state)
{
    struct group *g = *state;

    open_full_and_window(g);
    for (int i = 0; i < 8; i++) {
        ok(turn_all(g, 0, 0, 30));
        ok(kvlazy_init_batch(g->r[0]->cache));
        ok(put_all(g, 0, 30, 20));
        ok(kvlazy_clear(g->r[i & 1]->cache, i & 2));
        for (int k = 0; k < 2; k++) {
            assert_int_equal(stats(g->r[k]).live_cells, 0);
            assert_int_equal(kvlazy_seq_pos_max(g->r[k]->cache, 0), -1);
            expect(kvlazy_apply_ubatch(g->r[k]->cache, &g->slot[k], tokens(0, 30, 20)), KVLAZY_EINVAL);
        }
        if (i & 2)
            none_touched(g);
        all_busy(g, KVLAZY_OK);
        ok(turn_all(g, 0, 70, 3)); /* what a clear emptied may begin anywhere */
        ok(kvlazy_clear(g->r[1]->cache, true));
    }
    none_touched(g);
}

/* A member that never shrinks by itself is no reason to leave the others unserved. */
static void one_that_never_idles(void **state)
{
    struct group *g = *state;
    uint64_t next;

    g->r[0]->params.slot_shrink_idle_ms = 0;
    g->r[1]->params.kv_size_initial = 100;
    open_linked(g, 2);
    for (int by = 0; by < 2; by++) {
        ok(turn_all(g, 0, 0, 200));
        ok(poll_next(g->r[by], &next));
        assert_int_equal(next, 500);
        later(g, 500);
        ok(kvlazy_poll(g->r[by]->cache, NULL));
        all_end_at(g, 0, 99);
        all_sound(g);
        ok(kvlazy_clear(g->r[0]->cache, true));
    }
}

static void init_shrinks_all(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 2; i++) {
        g->r[i]->params.kv_size_initial = 100 + 50 * (uint32_t)i;
        g->r[i]->params.flags = KVLAZY_SHRINK_AT_INIT;
    }
    open_linked(g, 2);
    for (int by = 0; by < 2; by++) {
        ok(turn_all(g, 0, 0, 300));
        later(g, 500);
        ok(kvlazy_init_batch(g->r[by]->cache));
        all_end_at(g, 0, 99);
        all_busy(g, KVLAZY_EBUSY);
        expect(put_all(g, 0, 300, 1), KVLAZY_EPOS);
        ok(put_all(g, 0, 100, 1));
        ok(kvlazy_init_batch(g->r[1 - by]->cache)); /* the engine's other call: nothing is idle any more */
        all_end_at(g, 0, 100);
        ok(kvlazy_clear(g->r[0]->cache, true));
    }
    assert_int_equal(n_asked(g), 2);
}

static void the_earliest_of_all(void **state)
{
    struct group *g = *state;
    uint64_t next;

    g->r[1]->params.kv_size_initial = 100;
    open_linked(g, 2);
    for (int by = 0; by < 2; by++) {
        ok(turn_all(g, 0, 0, 90));
        later(g, 200);
        ok(poll_next(g->r[by], &next));
        assert_int_equal(next, 300);
        later(g, 300);
        ok(poll_next(g->r[by], &next));
        assert_true(next == UINT64_MAX);
        ok(kvlazy_seq_rm(g->r[0]->cache, 0, 50, -1)); /* comes due in 500 */
        later(g, 100);
        ok(kvlazy_seq_rm(g->r[1]->cache, 0, 50, -1)); /* and this 100 later */
        later(g, 100);
        ok(poll_next(g->r[by], &next));
        assert_int_equal(next, 300);
        later(g, 300);
        ok(poll_next(g->r[by], &next));
        assert_int_equal(next, 100);
        later(g, 100);
        ok(poll_next(g->r[by], &next));
        assert_true(next == UINT64_MAX);
        rm_all(g, 0, -1, -1);
        later(g, 1000);
        ok(poll_next(g->r[by], &next));
    }
    ok(kvlazy_set_limits(g->r[1]->cache, UINT32_MAX, 300, UINT64_MAX));
    ok(turn_all(g, 0, 0, 90));
    for (int by = 0; by < 2; by++) {
        ok(poll_next(g->r[by], &next));
        assert_int_equal(next, 300);
    }
    later(g, 300);
    for (int by = 0; by < 2; by++) {
        ok(poll_next(g->r[by], &next));
        assert_int_equal(next, 200);
    }
    all_sound(g);
}

/* ---- log ---- */

static int shrink_lines(struct rig *r)
{
    int n = 0;

    for (const char *at = r->log; (at = strstr(at, ": shrink: ")); at++)
        n++;
    return n;
}

static void each_tells_what_became_of_it(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 3; i++)
        g->r[i]->params.kv_size_initial = 100;
    open_linked(g, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(g->r[i]->n_log, 1);
    ok(turn_all(g, 0, 0, 300));
    later(g, 500);
    ok(kvlazy_poll(g->r[1]->cache, NULL));
    for (int i = 0; i < 3; i++) /* by the time the call is over, and once */
        assert_int_equal(shrink_lines(g->r[i]), 1);
    assert_non_null(strstr(g->r[0]->log, "one: shrink"));
    assert_non_null(strstr(g->r[1]->log, "two: shrink"));
    assert_non_null(strstr(g->r[2]->log, "three: shrink"));
    later(g, 500);
    ok(kvlazy_poll(g->r[1]->cache, NULL));
    for (int i = 0; i < 3; i++)
        assert_int_equal(shrink_lines(g->r[i]), 1);
    ok(kvlazy_trim(g->r[2]->cache, 50));
    for (int i = 0; i < 3; i++)
        assert_int_equal(shrink_lines(g->r[i]), 2);
    ok(kvlazy_clear(g->r[0]->cache, true));
    for (int i = 0; i < 3; i++)
        assert_int_equal(shrink_lines(g->r[i]), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GROUP_TEST(only_caches_of_the_same_sequences),
        GROUP_TEST(a_refused_one_leaves_the_others_alone),
        cmocka_unit_test(destroyed_in_any_order),
        GROUP_TEST(one_that_comes_later),
        GROUP_TEST(one_that_comes_after_months),
        GROUP_TEST(slots_are_not_shared),
        GROUP_TEST(a_batch_of_one_is_a_batch_of_all),
        GROUP_TEST(an_ended_batch_has_ended_in_all),
        GROUP_TEST(a_refused_prepare_ends_it_in_all),
        GROUP_TEST(one_end_stamps_all),
        GROUP_TEST(whoever_is_called_serves_all),
        GROUP_TEST(one_clear_is_for_all),
        GROUP_TEST(one_that_never_idles),
        GROUP_TEST(init_shrinks_all),
        GROUP_TEST(the_earliest_of_all),
        GROUP_TEST(each_tells_what_became_of_it),
    };

    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
