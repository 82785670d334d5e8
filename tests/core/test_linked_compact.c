/* SPDX-License-Identifier: MIT */
/*
 * Compaction of linked caches: both keep the same cells, with the bytes of each, and what one cannot move none does.
 */
#include "layout_support.h"
#include "owners.h"

#include <string.h>

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

/* A second cache of other rows and size, an index say, that sees the same batches. */
static kvlazy_cache *linked(struct bed *bed, size_t row_bytes, kvlazy_tensor *k)
{
    kvlazy_layer layer = {.id = 9, .k_row_bytes = row_bytes};
    kvlazy_params p = bed->params;
    kvlazy_cache *c;

    p.layers = &layer;
    p.n_layer = 1;
    p.with = bed->cache;
    ok(kvlazy_create(&p, &c));
    ok(kvlazy_k(c, 9, k));
    return c;
}

/* The same batch in both; a row of the index says whose it is. */
static int turn_both(struct bed *bed, kvlazy_cache *index, const kvlazy_tensor *k, kvlazy_seq_id seq, uint32_t n)
{
    kvlazy_pos pos[1024], from = kvlazy_seq_pos_max(bed->cache, seq) + 1;
    kvlazy_seq_id id[1024];
    kvlazy_ubatch u = {.n_token = n, .pos = pos, .seq = id};
    kvlazy_slot slot;

    for (uint32_t i = 0; i < n; i++) {
        pos[i] = from + (kvlazy_pos)i;
        id[i] = seq;
    }
    ok(kvlazy_init_batch(bed->cache));
    int status = bed_put(bed, seq, n, 1);
    if (!status)
        status = kvlazy_prepare(index, &u, 1, &slot);
    if (!status)
        status = kvlazy_apply_ubatch(index, &slot, &u);
    for (uint32_t i = 0; !status && i < n; i++)
        memset((char *)k->data + slot.cell[i] * k->cell_stride, 1 + (pos[i] * 4 + seq) % 250, k->row_bytes);
    ok(kvlazy_end_batch(bed->cache));
    return status;
}

static void same_cells(struct bed *bed, const kvlazy_cache *index, const kvlazy_tensor *k)
{
    kvlazy_cells_view a = {.struct_size = sizeof a}, b = {.struct_size = sizeof b};
    unsigned char row[64];

    ok(kvlazy_check(index, NULL));
    ok(kvlazy_cells(bed->cache, 0, &a));
    ok(kvlazy_cells(index, 0, &b));
    for (uint32_t i = 0; i < a.n_cell || i < b.n_cell; i++) {
        kvlazy_pos pos = i < a.n_cell ? a.pos[i] : -1;

        assert_int_equal(pos, i < b.n_cell ? b.pos[i] : -1);
        if (pos < 0)
            continue;
        uint64_t owners = owner_bits(bed->cache, 0, i);

        assert_true(owners == owner_bits(index, 0, i));
        memset(row, 1 + (pos * 4 + __builtin_ctzll(owners)) % 250, sizeof row);
        assert_memory_equal((char *)k->data + i * k->cell_stride, row, k->row_bytes);
    }
}

static void linked_caches_keep_the_same_cells(void **state)
{
    struct bed *bed = *state;
    kvlazy_tensor k;

    bed_open(bed);
    kvlazy_cache *index = linked(bed, 34, &k);
    uint64_t seed = 11;
    for (int round = 0; round < 40; round++) {
        kvlazy_seq_id s = (kvlazy_seq_id)(next_random(&seed) % 4);
        kvlazy_pos p = (kvlazy_pos)(next_random(&seed) % 200);

        if (turn_both(bed, index, &k, s, 1 + next_random(&seed) % 120)) {
            bed_rm(bed, s, -1, -1);
            ok(kvlazy_seq_rm(index, s, -1, -1));
        }
        s = (kvlazy_seq_id)(next_random(&seed) % 4);
        bed_rm(bed, s, p, p + 50);
        ok(kvlazy_seq_rm(index, s, p, p + 50));
        bed->fake.now += next_random(&seed) % 700;
        ok(kvlazy_poll(round % 2 ? index : bed->cache, NULL));
        same_cells(bed, index, &k);
    }
    assert_true(bed_stats(bed).moved_cells > 0);
    ok(kvlazy_trim(index, 0));
    same_cells(bed, index, &k);
    kvlazy_destroy(index);
}

/* One of them may not take the pages it needs, so none moves. */
static void what_one_cannot_move_none_does(void **state)
{
    struct bed *bed = *state;
    kvlazy_tensor k;

    bed->params.slot_shrink_idle_ms = IDLE;
    bed_open(bed);
    kvlazy_cache *index = linked(bed, 34, &k);
    ok(turn_both(bed, index, &k, 0, 600));
    ok(turn_both(bed, index, &k, 1, 100));
    bed_rm(bed, 0, -1, -1);
    ok(kvlazy_seq_rm(index, 0, -1, -1));
    for (bed->fake.now = 1000; bed->fake.now < 1000 + 2 * IDLE; bed->fake.now += 100) { /* the holes decay */
        ok(bed_cp(bed, 1, 2, 0, 1));
        ok(kvlazy_seq_cp(index, 1, 2, 0, 1));
        ok(kvlazy_poll(index, NULL));
    }
    uint64_t moved = bed_stats(bed).moved_cells;
    assert_int_equal(moved, 0);
    for (int n = 1; n < 3; n++) { /* the page of one cache, of the other */
        bed->fake.half_commit = true;
        fake_fail(&bed->fake, FAKE_COMMIT, n);
        ok(kvlazy_trim(bed->cache, 0));
        assert_true(bed->fake.failed);
        assert_int_equal(bed_stats(bed).moved_cells, 0);
        same_cells(bed, index, &k);
        assert_int_equal(kvlazy_seq_pos_min(index, 1), 0);
    }
    ok(kvlazy_trim(bed->cache, 0));
    assert_int_equal(bed_stats(bed).moved_cells, bed_stats(bed).live_cells);
    same_cells(bed, index, &k);
    kvlazy_destroy(index);
    bed->failed = true;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BED_TEST(linked_caches_keep_the_same_cells),
        BED_TEST(what_one_cannot_move_none_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
