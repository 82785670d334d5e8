/* SPDX-License-Identifier: MIT */
/*
 * Sliding windows: what a sequence is that lost a part of its window, by recycling, copies, shifts and undo, and
 * how an eviction takes what is masked before the whole.
 */
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

/* ---- windows that cannot be filled ---- */

static void a_window_that_cannot_be_filled_empties_its_sequence(void **state)
{
    struct rig *r = *state;

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 16));
    ok(put(r, 1, 0, 10));
    seq_is(r, 0, 10, 15);
    ok(kvlazy_seq_rm(r->cache, 0, 12, -1)); /* 12 sees 9, which is lost */
    seq_is(r, 0, -1, -1);
    seq_is(r, 1, 0, 9);
    sound(r);
    expect(put(r, 0, 12, 1), KVLAZY_EPOS);
    assert_int_equal(kvlazy_refused(r->cache), 0);
    expect(put(r, 0, 1, 1), KVLAZY_EPOS);
    ok(put(r, 0, 0, 3));
    ok(kvlazy_end_batch(r->cache));
    ok(put(r, 0, 3, 1));
    sound(r);
}

static void removed_whole_it_starts_anywhere(void **state)
{
    struct rig *r = *state;

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 16));
    ok(put(r, 1, 0, 10));
    ok(kvlazy_seq_rm(r->cache, 0, 12, -1));
    ok(kvlazy_seq_rm(r->cache, 0, 5, -1)); /* not whole */
    expect(put(r, 0, 12, 1), KVLAZY_EPOS);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(put(r, 0, 12, 1));
    seq_is(r, 0, 12, 12);
    sound(r);
}

struct cut {
    int type;
    uint32_t n_swa, take; /* positions [0, take) of s0 0..15 are recycled */
    kvlazy_pos p0, p1;
    kvlazy_pos min, max; /* after seq_rm(0, p0, p1) */
};

static void what_a_removal_leaves(void **state)
{
    static const struct cut table[] = {
        {KVLAZY_SWA_STANDARD, 4, 10, 13, -1, 10, 12}, /* 13 sees 10, 11, 12 */
        {KVLAZY_SWA_STANDARD, 4, 10, 12, -1, -1, -1},
        {KVLAZY_SWA_STANDARD, 4, 10, 15, 16, 10, 14},
        {KVLAZY_SWA_STANDARD, 4, 10, 0, 13, 13, 15},
        {KVLAZY_SWA_STANDARD, 4, 10, 11, 13, 10, 15},
        {KVLAZY_SWA_STANDARD, 4, 10, 3, 3, 10, 15},
        {KVLAZY_SWA_STANDARD, 4, 10, 16, -1, 10, 15},
        {KVLAZY_SWA_STANDARD, 4, 3, 5, -1, -1, -1}, /* 5 sees 2, 3, 4 */
        {KVLAZY_SWA_STANDARD, 4, 3, 6, -1, 3, 5},
        {KVLAZY_SWA_STANDARD, 1, 10, 11, -1, 10, 10}, /* a window of one sees itself alone */
        {KVLAZY_SWA_STANDARD, 4, 0, 1, -1, 0, 0},
        {KVLAZY_SWA_CHUNKED, 4, 10, 12, -1, 10, 11},
        {KVLAZY_SWA_CHUNKED, 4, 10, 11, -1, -1, -1}, /* 11 sees 8, 9, 10 */
        {KVLAZY_SWA_CHUNKED, 4, 8, 11, -1, 8, 10},
        {KVLAZY_SWA_CHUNKED, 4, 8, 9, -1, 8, 8},
        {KVLAZY_SWA_CHUNKED, 8, 7, 12, -1, 7, 11},
        {KVLAZY_SWA_CHUNKED, 8, 7, 8, -1, 7, 7},
        {KVLAZY_SWA_SYMMETRIC, 4, 10, 12, -1, 10, 11}, /* 12 sees 10 */
        {KVLAZY_SWA_SYMMETRIC, 4, 10, 11, -1, -1, -1}, /* 11 sees 9 */
        {KVLAZY_SWA_SYMMETRIC, 5, 10, 12, -1, 10, 11},
    };

    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const struct cut *t = &table[i];
        struct rig *r = window_rig(16, t->type, t->n_swa);

        ok(put(r, 0, 0, 16));
        if (t->take)
            ok(put(r, 1, 0, t->take));
        ok(kvlazy_seq_rm(r->cache, 0, t->p0, t->p1));
        if (kvlazy_seq_pos_min(r->cache, 0) != t->min)
            print_error("row %zu\n", i);
        seq_is(r, 0, t->min, t->max);
        if (t->max >= 0)
            ok(put(r, 0, t->max + 1, 1));
        sound(r);
        rig_free(r);
    }
}

/* Removal of every sequence's tokens looks at each for itself. */
static void removal_of_all_sequences(void **state)
{
    struct rig *r = *state;

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 8));
    ok(put(r, 1, 100, 8));
    ok(put(r, 2, 100, 4)); /* 0..3 of s0 go */
    seq_is(r, 0, 4, 7);
    ok(kvlazy_seq_rm(r->cache, -1, 6, 102)); /* s0 would need 3 */
    seq_is(r, 0, -1, -1);
    seq_is(r, 1, 102, 107);
    seq_is(r, 2, 102, 103);
    sound(r);
}

/* A sequence that was emptied, and restored in part, loses nothing when only tokens of another one move. */
static void another_ones_shift_leaves_a_sequence_alone(void **state)
{
    struct rig *r = *state;
    const kvlazy_ubatch ubatch[2] = {UBATCH(3, POS(5, 4, 3), SEQ(0, 0, 0)), UBATCH(3, POS(2, 1, 0), SEQ(0, 0, 0))};
    kvlazy_slot slot[2];

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 16));
    ok(put(r, 1, 0, 8));
    ok(kvlazy_seq_rm(r->cache, 0, 0, 16)); /* not whole: 0..7 are lost as before */
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_prepare(r->cache, ubatch, 2, slot));
    ok(kvlazy_apply_ubatch(r->cache, &slot[0], &ubatch[0]));
    write_rows(r, &slot[0]);
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_seq_add(r->cache, 1, -1, -1, 3));
    seq_is(r, 0, 3, 5);
    seq_is(r, 1, 3, 10);
    sound(r);
}

/* What the engine itself removed is no loss. */
static void own_removals_are_no_loss(void **state)
{
    struct rig *r = *state;

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 16));
    ok(kvlazy_seq_rm(r->cache, 0, 0, 10));
    ok(kvlazy_seq_rm(r->cache, 0, 12, -1));
    seq_is(r, 0, 10, 11);
    ok(put(r, 0, 12, 1));
    sound(r);
}

/* A copy of what lost its head has lost it too, however it came by its cells. */
static void copies_lost_what_their_source_lost(void **state)
{
    (void)state;
    for (uint32_t n_stream = 1; n_stream <= 4; n_stream += 3) {
        struct rig *r = rig_new();

        r->params.n_stream = n_stream;
        open_window(r, 32, KVLAZY_SWA_STANDARD, 4);
        ok(put(r, 0, 0, 32));
        ok(put(r, 0, 32, 20)); /* 0..19 go */
        seq_is(r, 0, 20, 51);
        ok(cp(r, 0, 1, -1, -1));
        seq_is(r, 1, 20, 51);
        sound(r);
        ok(kvlazy_seq_rm(r->cache, 1, 24, -1)); /* 24 sees 21 */
        seq_is(r, 1, 20, 23);
        ok(kvlazy_seq_rm(r->cache, 1, 22, -1)); /* 22 sees 19 */
        seq_is(r, 1, -1, -1);
        seq_is(r, 0, 20, 51);
        sound(r);
        rig_free(r);
    }
}

/* Of a sequence that lost all it had nothing is copied, and no loss either. */
static void a_copy_of_nothing_brings_nothing(void **state)
{
    struct rig *r = *state;

    open_window(r, 8, KVLAZY_SWA_CHUNKED, 4);
    ok(put(r, 0, 0, 8));
    ok(put(r, 1, 0, 8));
    seq_is(r, 0, -1, -1);
    ok(cp(r, 0, 2, -1, -1));
    ok(cp(r, 0, 3, 2, 7));
    ok(put(r, 2, 5, 1));
    ok(put(r, 3, 6, 1));
    sound(r);
}

/* Two sequences that own the same cells answer the same, whichever of them was named. */
static void shifted_together(void **state)
{
    struct rig *r = *state;

    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(put(r, 0, 0, 16));
    ok(put(r, 0, 16, 4));
    ok(cp(r, 0, 1, -1, -1));
    ok(kvlazy_seq_add(r->cache, 0, -1, -1, -4));
    ok(kvlazy_shift_done(r->cache));
    seq_is(r, 0, 0, 15);
    seq_is(r, 1, 0, 15);
    ok(kvlazy_seq_rm(r->cache, 0, 3, -1));
    seq_is(r, 0, 0, 2);
    ok(kvlazy_seq_rm(r->cache, 1, 3, -1));
    seq_is(r, 1, 0, 2);
    sound(r);
}

/* A sequence that is a copy onto an evicted one owes nothing to what was lost before. */
static void a_copy_onto_what_was_emptied(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 4;
    open_window(r, 16, KVLAZY_SWA_STANDARD, 4);
    ok(turn(r, 0, 0, 16));
    ok(kvlazy_trim(r->cache, 10)); /* what is masked: 0..5 */
    seq_is(r, 0, 6, 15);
    ok(kvlazy_trim(r->cache, 2)); /* and then all of it */
    seq_is(r, 0, -1, -1);
    ok(turn(r, 1, 0, 8));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(cp(r, 1, 0, 5, 8));
    seq_is(r, 0, 5, 7);
    ok(put(r, 0, 8, 1));
    sound(r);
}

/* ---- eviction ---- */

/* The second ubatch recycles all that the first one brought: undo finds nothing of it, and takes and marks nothing. */
static void undo_of_what_was_recycled(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[2] = {UBATCH(2, POS(0, 1), SEQ(0, 0)), UBATCH(2, POS(0, 1), SEQ(1, 1))};

    open_window(r, 2, KVLAZY_SWA_STANDARD, 1);
    ok(put_tokens(r, u, 2));
    seq_is(r, 0, -1, -1);
    seq_is(r, 1, 0, 1);
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    seq_is(r, 1, 0, 1);
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[1]));
    ok(kvlazy_end_batch(r->cache));
    ok(put(r, 0, 40, 1));
    seq_is(r, 0, 40, 40);
    sound(r);
}

static void masked_cells_are_evicted_first(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 20;
    open_window(r, 64, KVLAZY_SWA_STANDARD, 8);
    ok(turn(r, 0, 0, 40));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    seq_is(r, 0, 20, 39); /* 33..39 are seen by 40 */
    assert_int_equal(r->n_evict, 1);
    assert_int_equal(r->evict[0].pos, 39);
    assert_int_equal(stats(r).live_cells, 20);
    sound(r);
    ok(turn(r, 0, 40, 3));
    ok(kvlazy_seq_rm(r->cache, 0, 30, -1)); /* 30 sees 23 */
    seq_is(r, 0, 20, 29);
    ok(kvlazy_seq_rm(r->cache, 0, 26, -1)); /* 26 sees 19 */
    seq_is(r, 0, -1, -1);
    sound(r);
}

static void then_the_sequence_whole(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 6;
    open_window(r, 64, KVLAZY_SWA_STANDARD, 8);
    ok(turn(r, 0, 0, 40));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL)); /* 7 are seen by 40, and 6 may stay */
    seq_is(r, 0, -1, -1);
    assert_int_equal(r->evict[r->n_evict - 1].pos, -1);
    sound(r);
    expect(turn(r, 0, 40, 1), KVLAZY_EPOS);
    ok(turn(r, 0, 0, 1));
    sound(r);
}

/* All of it is masked: it goes by the first rule, and is as gone as by the second. */
static void nothing_but_masked_cells(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 6;
    open_window(r, 64, KVLAZY_SWA_CHUNKED, 8);
    ok(turn(r, 0, 0, 40));
    r->fake.now += 10;
    ok(turn(r, 1, 0, 6));
    r->fake.now += 490;
    ok(kvlazy_poll(r->cache, NULL));
    seq_is(r, 0, -1, -1);
    seq_is(r, 1, 0, 5);
    assert_int_equal(r->n_evict, 1);
    assert_int_equal(r->evict[0].pos, -1);
    expect(turn(r, 0, 33, 1), KVLAZY_EPOS);
    ok(turn(r, 0, 0, 1));
    sound(r);
}

static void the_window_fits_exactly(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 7;
    open_window(r, 64, KVLAZY_SWA_STANDARD, 8);
    ok(turn(r, 0, 0, 40));
    r->fake.now += 500;
    ok(kvlazy_poll(r->cache, NULL));
    seq_is(r, 0, 33, 39);
    ok(turn(r, 0, 40, 1));
    sound(r);
}

static void a_busy_window_keeps_what_it_has(void **state)
{
    struct rig *r = *state;

    r->params.kv_size_initial = 16;
    open_window(r, 64, KVLAZY_SWA_STANDARD, 8);
    ok(turn(r, 0, 0, 20));
    r->fake.now += 400;
    ok(turn(r, 1, 0, 20));
    r->fake.now += 200;
    ok(kvlazy_poll(r->cache, NULL)); /* 40 live, 24 too many: s0 loses 13 and then the rest */
    seq_is(r, 0, -1, -1);
    seq_is(r, 1, 0, 19);
    r->fake.now += 300;
    ok(kvlazy_poll(r->cache, NULL));
    seq_is(r, 1, 4, 19);
    sound(r);
}

static void refused_eviction_changes_nothing(void **state)
{
    struct rig *r = *state;
    char *before;

    r->params.kv_size_initial = 6;
    r->veto = 1;
    open_window(r, 64, KVLAZY_SWA_CHUNKED, 8);
    ok(turn(r, 0, 0, 42));
    r->fake.now += 500;
    before = rig_dump(r);
    ok(kvlazy_poll(r->cache, NULL));
    unchanged(r, before);
    seq_is(r, 0, 0, 41);
    sound(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(a_window_that_cannot_be_filled_empties_its_sequence),
        RIG_TEST(removed_whole_it_starts_anywhere),
        RIG_TEST(undo_of_what_was_recycled),
        cmocka_unit_test(what_a_removal_leaves),
        RIG_TEST(removal_of_all_sequences),
        RIG_TEST(another_ones_shift_leaves_a_sequence_alone),
        RIG_TEST(own_removals_are_no_loss),
        cmocka_unit_test(copies_lost_what_their_source_lost),
        RIG_TEST(a_copy_of_nothing_brings_nothing),
        RIG_TEST(shifted_together),
        RIG_TEST(a_copy_onto_what_was_emptied),
        RIG_TEST(masked_cells_are_evicted_first),
        RIG_TEST(then_the_sequence_whole),
        RIG_TEST(nothing_but_masked_cells),
        RIG_TEST(the_window_fits_exactly),
        RIG_TEST(a_busy_window_keeps_what_it_has),
        RIG_TEST(refused_eviction_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
