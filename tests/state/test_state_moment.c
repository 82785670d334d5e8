/* SPDX-License-Identifier: MIT */
/*
 * When a state is of: only what an end_batch settled is written; what was known of a sequence beside its tokens comes
 * along; generations; batches, plans, limits and calls from inside callbacks.
 */
#include "state_support.h"

#include <stdlib.h>
#include <string.h>

static struct box *with_tokens(struct box *box, uint32_t n)
{
    box_turn(box_open(box), 0, 0, n);
    return box;
}

/* ---- what is written ---- */

static void test_only_settled_tokens_are_written(void **state)
{
    struct box *from = with_tokens(box_new(), 9), *to = box_open(box_new());
    uint64_t sum = box_sum(from, 0);

    (void)state;
    ok(kvlazy_init_batch(from->cache));
    ok(box_put(from, 0, 9, 4));
    ok(box_put(from, 1, 0, 4));
    ok(kvlazy_seq_cp(from->cache, 0, 2, 0, -1)); /* a copy of them is not settled either */
    for (kvlazy_seq_id seq = 0; seq < 3; seq++) {
        struct tape t = tape_of(from, seq);

        ok(tape_into(&t, to, 1));
        assert_int_equal(kvlazy_seq_pos_max(to->cache, 1), seq == 1 ? -1 : 8);
        assert_true(box_sum(to, 1) == (seq == 1 ? 0 : sum));
        tape_free(&t);
    }
    struct tape whole = tape_of(from, -1);
    ok(kvlazy_clear(to->cache, false));
    ok(tape_into(&whole, to, -1));
    assert_int_equal(to->cache->stream[0].cells.n_used, 9);
    tape_free(&whole);
    ok(kvlazy_end_batch(from->cache));
    struct tape t = tape_of(from, 2);
    ok(tape_into(&t, to, 1));
    assert_int_equal(kvlazy_seq_pos_max(to->cache, 1), 12);
    tape_free(&t);
    box_free(from);
    box_free(to);
}

/* A batch that a failed prepare closed, and no end_batch followed. */
static void test_a_closed_batch_settles_nothing(void **state)
{
    struct box *box = with_tokens(box_new(), 4);

    (void)state;
    ok(kvlazy_init_batch(box->cache));
    ok(box_put(box, 0, 4, 2));
    expect(box_put(box, 0, 9, 1), KVLAZY_EPOS);
    struct tape t = tape_of(box, 0);
    ok(tape_into(&t, box, 1));
    assert_int_equal(kvlazy_seq_pos_max(box->cache, 1), 3);
    tape_free(&t);
    box_free(box);
}

static void test_a_shift_that_waits(void **state)
{
    struct box *box = with_tokens(box_new(), 9);
    struct tape t = tape_of(box, 0), none = {0};
    uint64_t bytes = 7;

    (void)state;
    ok(kvlazy_seq_add(box->cache, 0, 4, -1, -2));
    expect(kvlazy_state_write(box->cache, 0, tape_write, &none), KVLAZY_ESHIFT);
    expect(kvlazy_state_bytes(box->cache, 1, &bytes), KVLAZY_ESHIFT);
    expect(tape_into(&t, box, 2), KVLAZY_ESHIFT);
    assert_int_equal(bytes, 7);
    assert_int_equal(none.n_call + t.n_call, 0);
    ok(kvlazy_shift_done(box->cache));
    ok(tape_into(&t, box, 2));
    tape_free(&t);
    box_free(box);
}

/* Positions that moved in the middle of a batch cannot tell which tokens it brought. */
static void test_a_shift_inside_a_batch_ends_writing(void **state)
{
    struct box *box = with_tokens(box_new(), 9);
    struct tape none = {0};

    (void)state;
    ok(kvlazy_init_batch(box->cache));
    ok(box_put(box, 0, 9, 2));
    ok(kvlazy_seq_add(box->cache, 0, 4, -1, -2));
    ok(kvlazy_shift_done(box->cache));
    expect(kvlazy_state_write(box->cache, 0, tape_write, &none), KVLAZY_EPOS);
    ok(kvlazy_end_batch(box->cache));
    ok(kvlazy_state_write(box->cache, 0, tape_write, &none));
    tape_free(&none);
    box_free(box);
}

/* ---- marks ---- */

static void test_positions_moved_is_told(void **state)
{
    struct box *box = with_tokens(box_new(), 12);

    (void)state;
    assert_false(box->cache->seq[0].moved);
    ok(kvlazy_seq_cp(box->cache, 0, 1, 0, 5)); /* from the beginning */
    ok(kvlazy_seq_cp(box->cache, 0, 2, 5, 9)); /* not */
    assert_false(box->cache->seq[1].moved);
    assert_true(box->cache->seq[2].moved);
    ok(kvlazy_seq_add(box->cache, 0, 8, -1, 3)); /* sequence 2 has one of these too */
    ok(kvlazy_shift_done(box->cache));
    assert_true(box->cache->seq[0].moved);
    assert_false(box->cache->seq[1].moved);
    ok(kvlazy_seq_rm(box->cache, 3, -1, -1));
    ok(kvlazy_seq_cp(box->cache, 0, 3, 0, 3)); /* a copy inherits it */
    assert_true(box->cache->seq[3].moved);
    struct tape t = tape_of(box, 0);
    ok(tape_into(&t, box, 1)); /* and so does what was read */
    assert_true(box->cache->seq[1].moved);
    ok(kvlazy_end_batch(box->cache));
    ok(kvlazy_seq_rm(box->cache, 0, -1, -1));
    box_turn(box, 0, 0, 1); /* it begins anew */
    assert_false(box->cache->seq[0].moved);
    tape_free(&t);
    box_free(box);
}

static void test_what_eviction_took_is_remembered(void **state)
{
    struct box *box = box_new();
    uint64_t next;

    (void)state;
    box->params.kv_size_initial = 6;
    box_turn(box_open(box), 0, 0, 10);
    box->fake.now += 1000;
    ok(kvlazy_poll(box->cache, &next));
    assert_int_equal(kvlazy_seq_pos_max(box->cache, 0), 5);
    struct tape t = tape_of(box, 0);
    ok(tape_into(&t, box, 1));
    ok(kvlazy_end_batch(box->cache));
    ok(kvlazy_seq_rm(box->cache, 1, 0, 6)); /* bounded: it is empty, and what eviction took is not forgotten */
    expect(box_put(box, 1, 6, 1), KVLAZY_EPOS);
    ok(box_put(box, 1, 0, 1));
    tape_free(&t);
    box_free(box);
}

static void test_what_recycling_took_is_remembered(void **state)
{
    struct box *from = box_open(box_window(16, 4)), *to = box_open(box_window(64, 4));

    (void)state;
    for (kvlazy_pos p = 0; p < 30; p++)
        box_turn(from, 0, p, 1);
    assert_true(from->cache->seq[0].lost_end > 0);
    struct tape t = tape_of(from, 0);
    ok(tape_into(&t, to, 2));
    ok(kvlazy_end_batch(to->cache));
    assert_int_equal(to->cache->seq[2].lost_end, from->cache->seq[0].lost_end);
    assert_true(box_sum(to, 2) == box_sum(from, 0));
    box_turn(to, 2, 30, 1);
    for (int i = 0; i < 2; i++) { /* both lose the sequence when its window cannot be filled */
        struct box *box = i ? to : from;

        ok(kvlazy_seq_rm(box->cache, i ? 2 : 0, 15, -1));
        assert_int_equal(kvlazy_seq_pos_max(box->cache, i ? 2 : 0), -1);
    }
    tape_free(&t);
    box_free(from);
    box_free(to);
}

/* The batch took what the settled tokens see. */
static void test_a_window_that_the_batch_recycled(void **state)
{
    struct box *box = box_open(box_window(8, 4));
    struct tape t = {0};

    (void)state;
    for (kvlazy_pos p = 0; p < 8; p++)
        box_turn(box, 0, p, 1);
    ok(kvlazy_init_batch(box->cache));
    for (kvlazy_pos p = 8; p < 14; p++)
        ok(box_put(box, 0, p, 1));
    expect(kvlazy_state_write(box->cache, 0, tape_write, &t), KVLAZY_EPOS);
    ok(kvlazy_end_batch(box->cache));
    ok(kvlazy_state_write(box->cache, 0, tape_write, &t));
    tape_free(&t);
    box_free(box);
}

/* ---- generations ---- */

/* What changes a sequence bumps its generation, and what does not, does not. */
static void test_generations(void **state)
{
    struct box *box = with_tokens(box_new(), 12);
    const kvl_seq *s = box->cache->seq;
    kvlazy_slot slot;
    kvlazy_ubatch one = {.n_token = 1, .pos = (kvlazy_pos[]){12}, .seq = (kvlazy_seq_id[]){0}};
    uint64_t was = s[0].generation, next;

    (void)state;
#define BUMPS(yes, call)                              \
    do {                                              \
        was = s[0].generation;                        \
        call;                                         \
        assert_true((s[0].generation != was) == yes); \
    } while (0)
    BUMPS(false, box_turn(box, 1, 0, 3));
    BUMPS(false, ok(kvlazy_seq_cp(box->cache, 0, 2, 0, -1)));
    BUMPS(true, ok(kvlazy_seq_cp(box->cache, 1, 0, 0, 2)));
    BUMPS(false, ok(kvlazy_trim(box->cache, 0)));
    BUMPS(false, ok(kvlazy_poll(box->cache, &next)));
    ok(kvlazy_init_batch(box->cache));
    BUMPS(false, ok(kvlazy_prepare(box->cache, &one, 1, &slot)));
    BUMPS(false, ok(kvlazy_apply_ubatch(box->cache, &slot, &one)));
    BUMPS(true, ok(kvlazy_undo_ubatch(box->cache, &slot)));
    BUMPS(false, ok(kvlazy_end_batch(box->cache)));
    BUMPS(false, ok(kvlazy_seq_rm(box->cache, 0, 40, -1)));
    BUMPS(true, ok(kvlazy_seq_rm(box->cache, 0, 10, -1)));
    BUMPS(true, ok(kvlazy_seq_add(box->cache, 0, 5, -1, 2)));
    BUMPS(true, ok(kvlazy_seq_add(box->cache, 2, 5, -1, 2))); /* shared */
    BUMPS(true, ok(kvlazy_seq_div(box->cache, 0, 5, -1, 2)));
    ok(kvlazy_shift_done(box->cache));
    BUMPS(true, ok(kvlazy_seq_keep(box->cache, 1)));
    BUMPS(true, ok(kvlazy_clear(box->cache, false)));
#undef BUMPS
    box_free(box);
}

/* ---- callbacks ---- */

struct meddling {
    struct box *box;
    int at_call, n_call;
    void (*meddle)(struct box *box);
};

static void maybe_meddle(void *ctx)
{
    struct meddling *m = ctx;

    if (++m->n_call == m->at_call)
        m->meddle(m->box);
}

static void call_everything(struct box *box)
{
    kvlazy_cache *c = box->cache, *other;
    kvlazy_cells_view view = {.struct_size = sizeof view};
    kvlazy_stats_info info = {.struct_size = sizeof info};
    kvlazy_params params = box->params;
    kvlazy_slot slot = {0};
    uint64_t bytes;
    size_t needed;

    expect(kvlazy_init_batch(c), KVLAZY_EBUSY);
    expect(box_put(box, 1, 0, 1), KVLAZY_EBUSY);
    expect(kvlazy_undo_ubatch(c, &slot), KVLAZY_EBUSY);
    expect(kvlazy_end_batch(c), KVLAZY_EBUSY);
    expect(kvlazy_seq_rm(c, 0, -1, -1), KVLAZY_EBUSY);
    expect(kvlazy_seq_cp(c, 0, 1, -1, -1), KVLAZY_EBUSY);
    expect(kvlazy_seq_keep(c, 0), KVLAZY_EBUSY);
    expect(kvlazy_seq_add(c, 0, 0, -1, 1), KVLAZY_EBUSY);
    expect(kvlazy_seq_div(c, 0, 0, -1, 2), KVLAZY_EBUSY);
    expect(kvlazy_shift_done(c), KVLAZY_EBUSY);
    expect(kvlazy_clear(c, true), KVLAZY_EBUSY);
    expect(kvlazy_poll(c, &bytes), KVLAZY_EBUSY);
    expect(kvlazy_trim(c, 1), KVLAZY_EBUSY);
    expect(kvlazy_set_limits(c, 1, 1, 1), KVLAZY_EBUSY);
    expect(kvlazy_cells(c, 0, &view), KVLAZY_EBUSY);
    expect(kvlazy_stats(c, &info), KVLAZY_EBUSY);
    expect(kvlazy_stats_text(c, NULL, 0, &needed), KVLAZY_EBUSY);
    expect(kvlazy_resident(c, &bytes), KVLAZY_EBUSY);
    expect(kvlazy_draw(c, 0), KVLAZY_EBUSY);
    expect(kvlazy_check(c, NULL), KVLAZY_EBUSY);
    expect(kvlazy_state_bytes(c, 0, &bytes), KVLAZY_EBUSY);
    expect(kvlazy_state_write(c, 0, tape_write, NULL), KVLAZY_EBUSY);
    expect(kvlazy_state_read(c, 0, tape_read, NULL), KVLAZY_EBUSY);
    expect(kvlazy_state_save(c, 0, "/nowhere/at/all", NULL, 0, 0), KVLAZY_EBUSY);
    expect(kvlazy_state_load(c, 0, "/nowhere/at/all", NULL, NULL), KVLAZY_EBUSY);
    params.with = c;
    expect(kvlazy_create(&params, &other), KVLAZY_EBUSY);
    assert_int_equal(kvlazy_seq_pos_max(c, 0), -1);
    assert_int_equal(kvlazy_room(c, 0), 0);
    assert_int_equal(kvlazy_n_kv(c, &slot), 0);
    kvlazy_destroy(c);
}

static void test_calls_from_inside_callbacks_are_busy(void **state)
{
    struct box *box = with_tokens(box_new(), 9);
    uint64_t sum = box_sum(box, 0);

    (void)state;
    for (int call = 1; call < 30; call++) {
        struct meddling m = {.box = box, .at_call = call, .meddle = call_everything};
        struct tape t = {.inside = maybe_meddle, .ctx = &m};

        ok(kvlazy_state_write(box->cache, 0, tape_write, &t));
        m.n_call = 0;
        ok(tape_into(&t, box, 1));
        ok(kvlazy_end_batch(box->cache));
        assert_true(box_sum(box, 0) == sum && box_sum(box, 1) == sum);
        tape_free(&t);
    }
    box_free(box);
}

static struct tape evict_tape;
static int evict_status;

static void save_in_evict(struct box *box, kvlazy_seq_id seq)
{
    evict_tape.n = 0;
    evict_status = kvlazy_state_write(box->cache, seq, tape_write, &evict_tape);
}

static void test_on_evict_may_write(void **state)
{
    struct box *box = box_new(), *to = box_open(box_new());
    uint64_t next;

    (void)state;
    box->params.kv_size_initial = 6;
    box->in_evict = save_in_evict;
    box_turn(box_open(box), 0, 0, 10);
    uint64_t sum = box_sum(box, 0);
    box->fake.now += 1000;
    evict_status = -100;
    ok(kvlazy_poll(box->cache, &next));
    ok(evict_status);
    assert_int_equal(kvlazy_seq_pos_max(box->cache, 0), 5);
    ok(tape_into(&evict_tape, to, 0));
    assert_true(box_sum(to, 0) == sum);
    tape_free(&evict_tape);
    box_free(box);
    box_free(to);
}

/* ---- reading and batches ---- */

static void test_reading_opens_a_batch_or_uses_the_one_that_is_open(void **state)
{
    struct box *box = with_tokens(box_new(), 9);
    struct tape t = tape_of(box, 0);
    uint64_t next;

    (void)state;
    ok(tape_into(&t, box, 1));
    expect(kvlazy_poll(box->cache, &next), KVLAZY_EBUSY);
    ok(box_put(box, 1, 9, 1));
    ok(tape_into(&t, box, 1)); /* what the batch put there is gone */
    assert_int_equal(kvlazy_seq_pos_max(box->cache, 1), 8);
    struct tape again = tape_of(box, 1); /* what was read is settled */
    assert_int_equal(again.n, t.n);
    ok(kvlazy_end_batch(box->cache));
    t.n--;
    expect(tape_into(&t, box, 1), KVLAZY_EIO); /* a batch that the call opened is closed */
    ok(kvlazy_poll(box->cache, &next));
    ok(kvlazy_init_batch(box->cache));
    expect(tape_into(&t, box, 1), KVLAZY_EIO); /* another stays open */
    expect(kvlazy_poll(box->cache, &next), KVLAZY_EBUSY);
    tape_free(&again);
    tape_free(&t);
    box_free(box);
}

static void test_reading_voids_the_plan(void **state)
{
    struct box *box = with_tokens(box_new(), 9);
    struct tape t = tape_of(box, 0);
    kvlazy_ubatch two = {.n_token = 2, .pos = (kvlazy_pos[]){0, 1}, .seq = (kvlazy_seq_id[]){2, 2}};
    kvlazy_slot slot;

    (void)state;
    ok(kvlazy_prepare(box->cache, &two, 1, &slot));
    ok(tape_into(&t, box, 1));
    expect(kvlazy_apply_ubatch(box->cache, &slot, &two), KVLAZY_EINVAL);
    expect(kvlazy_undo_ubatch(box->cache, &slot), KVLAZY_EINVAL);
    ok(kvlazy_prepare(box->cache, &two, 1, &slot));
    ok(kvlazy_apply_ubatch(box->cache, &slot, &two));
    box_sound(box);
    tape_free(&t);
    box_free(box);
}

static void test_reading_is_activity(void **state)
{
    struct box *box = box_new();
    uint64_t next;

    (void)state;
    box->params.kv_size_initial = 6;
    box_turn(box_open(box), 0, 0, 6);
    struct tape t = tape_of(box, 0);
    box->fake.now += 400;
    ok(tape_into(&t, box, 1));
    ok(kvlazy_end_batch(box->cache));
    box->fake.now += 200; /* 0 has been idle, 1 has not */
    ok(kvlazy_poll(box->cache, &next));
    assert_int_equal(kvlazy_seq_pos_max(box->cache, 0), -1);
    assert_int_equal(kvlazy_seq_pos_max(box->cache, 1), 5);
    tape_free(&t);
    box_free(box);
}

/* Room for both; the old one may be removed before. */
static void test_room(void **state)
{
    struct box *box = with_tokens(box_new(), 33);
    struct tape t = tape_of(box, 0);
    struct picture *before = box_look(box);

    (void)state;
    expect(tape_into(&t, box, 0), KVLAZY_ENOSLOT);
    same(box, before);
    ok(kvlazy_seq_rm(box->cache, 0, -1, -1));
    ok(tape_into(&t, box, 0));
    assert_int_equal(kvlazy_seq_pos_max(box->cache, 0), 32);
    tape_free(&t);
    box_free(box);
}

static void test_a_budget(void **state)
{
    struct box *from = box_new(), *to = box_new();

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct box *box = i ? to : from;

        box->params.kv_size = 1024;
        box->params.n_layer = 1;
        box->layer[0] = (kvlazy_layer){.id = 1, .k_row_bytes = 1024};
    }
    to->params.budget_bytes = 16 * 4096; /* 64 cells */
    with_tokens(from, 40);
    with_tokens(to, 40);
    struct tape t = tape_of(from, 0);
    struct picture *before = box_look(to);
    expect(tape_into(&t, to, 1), KVLAZY_EBUDGET);
    same(to, before);
    ok(kvlazy_seq_rm(to->cache, 0, 20, -1)); /* free pages make room */
    ok(tape_into(&t, to, 1));
    box_sound(to);
    tape_free(&t);
    box_free(from);
    box_free(to);
}

static void test_arguments(void **state)
{
    struct box *box = box_open(box_new());
    struct tape t = {0};
    uint64_t bytes;

    (void)state;
    expect(kvlazy_state_write(box->cache, 4, tape_write, &t), KVLAZY_EINVAL);
    expect(kvlazy_state_write(box->cache, -2, tape_write, &t), KVLAZY_EINVAL);
    expect(kvlazy_state_write(box->cache, 0, NULL, &t), KVLAZY_EINVAL);
    expect(kvlazy_state_read(box->cache, 4, tape_read, &t), KVLAZY_EINVAL);
    expect(kvlazy_state_read(box->cache, 0, NULL, &t), KVLAZY_EINVAL);
    expect(kvlazy_state_bytes(box->cache, 0, NULL), KVLAZY_EINVAL);
    expect(kvlazy_state_bytes(NULL, 0, &bytes), KVLAZY_EINVAL);
    expect(kvlazy_state_rows_write(box->cache, 0, NULL, 0, tape_write, &t), KVLAZY_ENOTSUP);
    assert_int_equal(t.n_call, 0);
    box_free(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_settled_tokens_are_written),
        cmocka_unit_test(test_a_closed_batch_settles_nothing),
        cmocka_unit_test(test_a_shift_that_waits),
        cmocka_unit_test(test_a_shift_inside_a_batch_ends_writing),
        cmocka_unit_test(test_positions_moved_is_told),
        cmocka_unit_test(test_what_eviction_took_is_remembered),
        cmocka_unit_test(test_what_recycling_took_is_remembered),
        cmocka_unit_test(test_a_window_that_the_batch_recycled),
        cmocka_unit_test(test_generations),
        cmocka_unit_test(test_calls_from_inside_callbacks_are_busy),
        cmocka_unit_test(test_on_evict_may_write),
        cmocka_unit_test(test_reading_opens_a_batch_or_uses_the_one_that_is_open),
        cmocka_unit_test(test_reading_voids_the_plan),
        cmocka_unit_test(test_reading_is_activity),
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_a_budget),
        cmocka_unit_test(test_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
