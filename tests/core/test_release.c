/* SPDX-License-Identifier: MIT */
/*
 * Pages given back by complement: what one piece of a release may cost, and that nothing is forgotten when the rest
 * comes later. What one piece took is read off the private count of fallow cells.
 */
#include "layout_support.h"

#include "core/cache.h"

#include <stdlib.h>

enum { CELLS = 4096, LAYERS = 4, CHANNELS = 256, PIECE_SPANS = 1 << 17 };

/* Two sequences that take turns, token by token, so that dropping one leaves a hole behind every token. */
static struct bed *interleaved(uint32_t v_channels)
{
    struct bed *bed = bed_new(4096);
    kvlazy_pos *pos = calloc(CELLS, sizeof *pos);
    kvlazy_seq_id *seq = calloc(CELLS, sizeof *seq);

    assert_true(pos && seq);
    for (int i = 0; i < LAYERS; i++)
        bed_layer(bed, 64, 512, v_channels);
    bed->params.kv_size = CELLS;
    bed_open(bed);
    for (uint32_t i = 0; i < CELLS; i++) {
        pos[i] = (kvlazy_pos)(i / 2);
        seq[i] = (kvlazy_seq_id)(i % 2);
    }
    kvlazy_ubatch ubatch = {.n_token = CELLS, .pos = pos, .seq = seq};
    assert_int_equal(kvlazy_init_batch(bed->cache), KVLAZY_OK);
    assert_int_equal(kvlazy_prepare(bed->cache, &ubatch, 1, bed->slot), KVLAZY_OK);
    assert_int_equal(kvlazy_apply_ubatch(bed->cache, &bed->slot[0], &ubatch), KVLAZY_OK);
    assert_int_equal(kvlazy_end_batch(bed->cache), KVLAZY_OK);
    free(pos);
    free(seq);
    return bed;
}

static uint32_t n_fallow(const struct bed *bed)
{
    return bed->cache->stream[0].cells.n_fallow;
}

/* Cells that one end_batch deals with, long after sequence 0 was dropped. */
static uint32_t piece_of_end_batch(struct bed *bed)
{
    uint32_t before;

    assert_int_equal(kvlazy_seq_rm(bed->cache, 0, -1, -1), KVLAZY_OK);
    bed->fake.now += 10 * 500;
    before = n_fallow(bed);
    assert_int_equal(before, CELLS / 2);
    assert_int_equal(kvlazy_init_batch(bed->cache), KVLAZY_OK);
    assert_int_equal(kvlazy_end_batch(bed->cache), KVLAZY_OK);
    return before - n_fallow(bed);
}

static void rest_follows(struct bed *bed)
{
    uint64_t next_ms = 0;

    while (next_ms == 0)
        assert_int_equal(kvlazy_poll(bed->cache, &next_ms), KVLAZY_OK);
    assert_int_equal(n_fallow(bed), 0);
    assert_int_equal(kvlazy_check(bed->cache, NULL), KVLAZY_OK);
}

static void a_piece_is_bounded_by_its_work(void **state)
{
    (void)state;
    struct bed *bed = interleaved(CHANNELS);
    uint64_t spans = (uint64_t)piece_of_end_batch(bed) * LAYERS * (1 + CHANNELS);

    assert_true(spans > 0);
    assert_true(spans <= PIECE_SPANS);
    rest_follows(bed);
    bed_free(bed);
}

static void row_major_goes_in_one_piece(void **state)
{
    (void)state;
    struct bed *bed = interleaved(0);

    assert_int_equal(piece_of_end_batch(bed), CELLS / 2);
    rest_follows(bed);
    bed_free(bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piece_is_bounded_by_its_work),
        cmocka_unit_test(row_major_goes_in_one_piece),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
