/* SPDX-License-Identifier: MIT */
/*
 * What kvlazy/state.h promises, rule by rule: a state that is read gives the engine what was written, in another
 * arrangement of cells, stream, layout, size and cache. When and what is test_state_moment.c's, damage and malice
 * test_state_hostile.c's.
 */
#include "state_support.h"

#include <stdlib.h>
#include <string.h>

#include <kvlazy/arena.h>

/* ---- round trips ---- */

/* Sequence 0 of `from` becomes sequence `seq` of `to`, and both are freed. */
static void goes_over(struct box *from, struct box *to, kvlazy_seq_id seq)
{
    struct tape t = tape_of(from, 0);
    uint64_t sum = box_sum(from, 0);
    kvlazy_pos max = kvlazy_seq_pos_max(from->cache, 0);

    ok(tape_into(&t, to, seq));
    assert_int_equal(t.at, t.n);
    assert_int_equal(kvlazy_seq_pos_max(to->cache, seq), max);
    assert_true(box_sum(to, seq) == sum);
    ok(kvlazy_end_batch(to->cache));
    box_sound(to);
    struct tape again = tape_of(to, seq);
    assert_int_equal(again.n, t.n); /* what was read is written again, byte by byte */
    assert_memory_equal(again.byte, t.byte, t.n);
    if (max >= 0)
        box_turn(to, seq, max + 1, 3);
    box_sound(to);
    tape_free(&again);
    tape_free(&t);
    box_free(to);
    if (to != from)
        box_free(from);
}

static struct box *with_tokens(struct box *box, uint32_t n)
{
    box_turn(box_open(box), 0, 0, n);
    return box;
}

static void test_a_sequence_goes_into_an_empty_cache(void **state)
{
    (void)state;
    goes_over(with_tokens(box_new(), 20), box_open(box_new()), 0);
    goes_over(with_tokens(box_new(), 20), box_open(box_new()), 3);
    goes_over(with_tokens(box_new(), 1), box_open(box_new()), 1);
}

static void test_it_goes_into_a_fragmented_cache(void **state)
{
    struct box *to = box_open(box_new());

    (void)state;
    box_riddle(to, 2, 3);
    uint64_t sum = box_sum(to, 2);
    struct box *from = with_tokens(box_new(), 20);
    struct tape t = tape_of(from, 0);
    ok(tape_into(&t, to, 0));
    assert_true(box_sum(to, 0) == box_sum(from, 0));
    assert_true(box_sum(to, 2) == sum);
    assert_int_equal(kvl_index_at(kvl_cells_index(&to->cache->stream[0].cells, 0), 0).cell, 0);
    assert_int_equal(kvl_index_at(kvl_cells_index(&to->cache->stream[0].cells, 0), 3).cell, 6);
    box_sound(to);
    tape_free(&t);
    box_free(from);
    box_free(to);
}

/* Row-major, elements of 1, 2 and 4 bytes and, for what no machine has, of 12. */
static void test_any_layout_goes_into_any_other(void **state)
{
    static const uint32_t element[] = {0, 1, 2, 4};

    (void)state;
    for (size_t i = 0; i < N_OF(element); i++)
        for (size_t k = 0; k < N_OF(element); k++)
            goes_over(with_tokens(box_transpose(box_new(), element[i]), 33),
                      box_open(box_transpose(box_new(), element[k])), 1);
}

static void test_size_and_streams_may_differ(void **state)
{
    struct box *to = box_streams();

    (void)state;
    to->params.kv_size = 4096;
    goes_over(with_tokens(box_new(), 40), box_open(to), 2);
    to = box_new();
    to->params.kv_size = 50;
    goes_over(with_tokens(box_streams(), 40), box_open(to), 2);
    goes_over(with_tokens(box_transpose(box_streams(), 2), 40), box_open(box_streams()), 3);
}

/* Rows larger than a piece, whole and in parts. */
static void test_rows_of_any_size_pass(void **state)
{
    static const size_t bytes[] = {1, 4096, KVL_ROWS_PIECE_BYTES / 2 + 4, KVL_ROWS_PIECE_BYTES + 8};

    (void)state;
    for (size_t i = 0; i < N_OF(bytes); i++)
        for (uint32_t element = 0; element < (bytes[i] == 1 ? 1 : 5); element += 4) {
            struct box *from = box_new(), *to = box_new();

            for (int k = 0; k < 2; k++) {
                struct box *box = k ? to : from;

                box->params.kv_size = 8;
                box->params.n_layer = 1;
                box->layer[0] = (kvlazy_layer){.id = 7, .k_row_bytes = bytes[i], .v_row_bytes = bytes[i]};
                box_transpose(box, k ? 0 : element);
            }
            goes_over(with_tokens(from, 5), box_open(to), 1);
        }
}

static void test_a_cache_without_rows_has_states_too(void **state)
{
    struct box *from = box_new(), *to = box_new();

    (void)state;
    from->params.n_layer = to->params.n_layer = 0;
    goes_over(with_tokens(from, 10), box_open(to), 1);
}

/* Tensors of the engine's own, with bytes between cells, channels and streams. */
static void test_padded_tensors_go_into_packed_ones(void **state)
{
    (void)state;
    for (int transposed = 0; transposed < 2; transposed++) {
        struct box *box = box_transpose(box_streams(), transposed ? 2 : 0), *to = box_open(box_new());
        kvlazy_tensor t[4];
        kvlazy_arena *arena;
        size_t at = 32;
        void *base;

        ok(kvlazy_arena_create(&box->fake.table, 1 << 20, &arena, &base));
        for (int i = 0; i < 4; i++) {
            kvlazy_layer *layer = &box->layer[i / 2];
            size_t row_bytes = i % 2 ? layer->v_row_bytes : layer->k_row_bytes;
            uint32_t n_channel = i % 2 ? layer->v_channels : 0;
            size_t cell = (n_channel ? row_bytes / n_channel : row_bytes) + 3, channel = 64 * cell + 5;

            t[i] = (kvlazy_tensor){
                (char *)base + at, cell,     n_channel ? channel : 0, (n_channel ? n_channel : 1) * channel + 7,
                row_bytes,         n_channel};
            at += 4 * t[i].stream_stride + 64;
            *(i % 2 ? &layer->v : &layer->k) = &t[i];
            layer->arena = arena;
        }
        with_tokens(box, 30);
        struct tape tape = tape_of(box, 0);
        ok(tape_into(&tape, to, 1));
        assert_true(box_sum(to, 1) == box_sum(box, 0));
        ok(tape_into(&tape, box, 2));
        assert_true(box_sum(box, 2) == box_sum(box, 0));
        box_sound(box);
        tape_free(&tape);
        box_free(to);
        kvlazy_destroy(box->cache);
        box->cache = NULL;
        ok(kvlazy_arena_destroy(arena));
        box_free(box);
    }
}

static void test_planes_come_along(void **state)
{
    struct box *from = box_new(), *to = box_new();

    (void)state;
    from->params.n_pos_per_token = to->params.n_pos_per_token = 4;
    box_turn(box_open(from), 0, 0, 3);
    box_turn_planes(from, 0, 3, 12);
    goes_over(from, box_open(to), 1);
}

static void test_it_replaces_what_was_there(void **state)
{
    struct box *from = with_tokens(box_new(), 9), *to = with_tokens(box_new(), 30);
    uint64_t sum;

    (void)state;
    ok(kvlazy_seq_cp(to->cache, 0, 1, 0, 10)); /* shared cells stay with the other */
    sum = box_sum(to, 1);
    struct tape t = tape_of(from, 0);
    ok(tape_into(&t, to, 0));
    assert_true(box_sum(to, 0) == box_sum(from, 0));
    assert_true(box_sum(to, 1) == sum);
    assert_int_equal(to->cache->stream[0].cells.n_used, 19);
    box_sound(to);
    tape_free(&t);
    box_free(from);
    box_free(to);
}

static void test_an_empty_state_empties(void **state)
{
    struct box *box = with_tokens(box_new(), 9);
    struct tape t = tape_of(box, 2);

    (void)state;
    ok(tape_into(&t, box, 0));
    assert_int_equal(kvlazy_seq_pos_max(box->cache, 0), -1);
    ok(kvlazy_end_batch(box->cache));
    box_turn(box, 0, 7, 2); /* an empty sequence begins anywhere */
    box_sound(box);
    tape_free(&t);
    box_free(box);
}

/* ---- whole caches ---- */

static struct box *shared_cache(struct box *box)
{
    box_turn(box_open(box), 0, 0, 12);
    box_turn(box, 3, 5, 7);
    if (box->params.n_stream == 1) {
        ok(kvlazy_seq_cp(box->cache, 0, 1, 0, 6));
        ok(kvlazy_seq_cp(box->cache, 0, 2, 4, 9));
    }
    ok(kvlazy_seq_rm(box->cache, 0, 2, 4));
    return box;
}

static void whole_goes_over(struct box *from, struct box *to)
{
    struct tape t = tape_of(from, -1);

    box_turn(to, 1, 0, 3);
    expect(tape_into(&t, to, -1), KVLAZY_EINVAL); /* it is not empty */
    ok(kvlazy_clear(to->cache, false));
    ok(tape_into(&t, to, -1));
    for (kvlazy_seq_id id = 0; id < 4; id++)
        assert_true(box_sum(to, id) == box_sum(from, id));
    ok(kvlazy_end_batch(to->cache));
    box_sound(to);
    struct tape again = tape_of(to, -1);
    assert_int_equal(again.n, t.n);
    assert_memory_equal(again.byte, t.byte, t.n);
    tape_free(&again);
    tape_free(&t);
    box_free(from);
    box_free(to);
}

static void test_a_whole_cache_goes_over_with_its_shared_cells(void **state)
{
    (void)state;
    whole_goes_over(shared_cache(box_new()), box_open(box_transpose(box_new(), 2)));
    whole_goes_over(shared_cache(box_streams()), box_open(box_streams()));
}

static void test_shared_cells_stay_shared(void **state)
{
    struct box *from = shared_cache(box_new()), *to = box_open(box_new());
    struct tape t = tape_of(from, -1);

    (void)state;
    ok(tape_into(&t, to, -1));
    assert_int_equal(to->cache->stream[0].cells.n_used, from->cache->stream[0].cells.n_used);
    tape_free(&t);
    box_free(from);
    box_free(to);
}

/* Sequences that share cells need one stream; those that do not may be taken apart. */
static void test_a_whole_cache_may_change_its_streams(void **state)
{
    struct box *from = shared_cache(box_new()), *to = box_open(box_streams());
    struct tape t = tape_of(from, -1);
    struct picture *before = box_look(to);

    (void)state;
    expect(tape_into(&t, to, -1), KVLAZY_ESTATE);
    same(to, before);
    tape_free(&t);
    ok(kvlazy_seq_rm(from->cache, 1, -1, -1));
    ok(kvlazy_seq_rm(from->cache, 2, -1, -1));
    t = tape_of(from, -1);
    ok(tape_into(&t, to, -1));
    assert_true(box_sum(to, 0) == box_sum(from, 0) && box_sum(to, 3) == box_sum(from, 3));
    box_sound(to);
    tape_free(&t);
    box_free(from);
    box_free(to);
}

static void test_more_sequences_than_there_are_here(void **state)
{
    struct box *from = shared_cache(box_new()), *to = box_new();
    struct tape t = tape_of(from, -1);

    (void)state;
    to->params.n_seq_max = 3;
    struct picture *before = box_look(box_open(to));
    expect(tape_into(&t, to, -1), KVLAZY_ESTATE);
    same(to, before);
    tape_free(&t);
    box_free(from);
    box_free(to);
}

/* What all caches of a host took is one sum, which each looks at before it takes more: pages that a state brings are in
 * it, as those of a batch are, and leave it when they go back. */
static void test_the_pages_it_brings_are_counted_as_taken(void **state)
{
    struct box *from = with_tokens(box_new(), 20), *to = box_new();
    struct tape t = tape_of(from, 0);

    (void)state;
    fake_complete(&to->fake);
    box_open(to);
    for (int i = 0; i < 2; i++) {
        kvlazy_stats_info s = {.struct_size = sizeof s};

        ok(tape_into(&t, to, 0));
        ok(kvlazy_end_batch(to->cache));
        ok(kvlazy_stats(to->cache, &s));
        assert_true(s.touched_bytes > 0);
        assert_int_equal(to->fake.sum[KVLAZY_COUNT_TAKEN], s.touched_bytes);
        assert_int_equal(to->fake.sum[KVLAZY_COUNT_PROMISED], 0);
        ok(kvlazy_clear(to->cache, true));
        assert_int_equal(to->fake.sum[KVLAZY_COUNT_TAKEN], 0);
    }
    tape_free(&t);
    box_free(from);
    box_free(to);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_sequence_goes_into_an_empty_cache),
        cmocka_unit_test(test_it_goes_into_a_fragmented_cache),
        cmocka_unit_test(test_any_layout_goes_into_any_other),
        cmocka_unit_test(test_size_and_streams_may_differ),
        cmocka_unit_test(test_rows_of_any_size_pass),
        cmocka_unit_test(test_a_cache_without_rows_has_states_too),
        cmocka_unit_test(test_padded_tensors_go_into_packed_ones),
        cmocka_unit_test(test_planes_come_along),
        cmocka_unit_test(test_it_replaces_what_was_there),
        cmocka_unit_test(test_an_empty_state_empties),
        cmocka_unit_test(test_a_whole_cache_goes_over_with_its_shared_cells),
        cmocka_unit_test(test_shared_cells_stay_shared),
        cmocka_unit_test(test_a_whole_cache_may_change_its_streams),
        cmocka_unit_test(test_more_sequences_than_there_are_here),
        cmocka_unit_test(test_the_pages_it_brings_are_counted_as_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
