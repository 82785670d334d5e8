/* SPDX-License-Identifier: MIT */
/* Rows alone, for an engine that keeps cells and has a format of its own. */
#include "state_support.h"

#include <stdlib.h>
#include <string.h>

#include <kvlazy/engine_cells.h>

static bool used[2][64]; /* the engine's table */

static uint32_t used_end(void *ctx, uint32_t stream)
{
    uint32_t end = 64;

    (void)ctx;
    while (end && !used[stream][end - 1])
        end--;
    return end;
}

static bool is_used(void *ctx, uint32_t stream, uint32_t cell)
{
    (void)ctx;
    return used[stream][cell];
}

static const kvlazy_cell_ops table = {.struct_size = sizeof table, .used_end = used_end, .is_used = is_used};

static struct box *engine_box(uint32_t element_bytes)
{
    struct box *box = box_transpose(box_new(), element_bytes);

    memset(used, 0, sizeof used);
    box->params.cell_ops = &table;
    box->params.n_stream = box->params.n_seq_max = 2;
    return box_open(box);
}

/* Every byte of one cell's rows, row-major, in the order of the call: by layer, K before V. */
static size_t all_rows(struct box *box, uint32_t stream, uint32_t cell, unsigned char *out)
{
    static const uint32_t id[2] = {2, 5}; /* the layers of a box */
    size_t n = 0;

    for (int i = 0; i < 4; i++) {
        kvlazy_tensor t;

        ok((i % 2 ? kvlazy_v : kvlazy_k)(box->cache, id[i / 2], &t));
        box_row(box, &t, stream, cell, out + n);
        n += t.row_bytes;
    }
    return n;
}

/* Some bytes for the rows of n cells, tensor after tensor. */
static struct tape made_rows(uint32_t n)
{
    static unsigned char bytes[64 * 64];
    struct tape t = {0};
    uint64_t random = 7;

    for (size_t i = 0; i < n * (size_t)60; i++)
        bytes[i] = (unsigned char)next_random(&random) | 1;
    tape_write(&t, bytes, n * (size_t)60);
    t.n_call = 0;
    return t;
}

static void test_rows_of_cells_that_the_engine_keeps(void **state)
{
    static const uint32_t cell[] = {3, 4, 5, 9, 7, 30}, back[] = {0, 1, 40, 41, 42, 8};

    (void)state;
    for (uint32_t element = 0; element < 3; element += 2) {
        struct box *box = engine_box(element);
        struct tape t = made_rows(6), out = {0}, moved = {0};

        ok(kvlazy_state_rows_read(box->cache, 1, cell, 6, tape_read, &t));
        assert_int_equal(t.at, t.n);
        for (size_t i = 0; i < 6; i++)
            used[1][cell[i]] = true;
        ok(kvlazy_end_batch(box->cache));
        ok(kvlazy_state_rows_write(box->cache, 1, cell, 6, tape_write, &out));
        assert_int_equal(out.n, t.n);
        assert_memory_equal(out.byte, t.byte, t.n);
        ok(kvlazy_state_rows_read(box->cache, 0, back, 6, tape_read, &out));
        for (size_t i = 0; i < 6; i++) {
            unsigned char a[60], b[60];

            assert_int_equal(all_rows(box, 1, cell[i], a), 60);
            all_rows(box, 0, back[i], b);
            assert_memory_equal(a, b, 60);
            assert_memory_equal(a, t.byte + i * 16, 16); /* layer 2 comes first */
            used[0][back[i]] = true;
        }
        box_sound(box);
        tape_free(&t);
        tape_free(&out);
        tape_free(&moved);
        box_free(box);
    }
}

static void test_rows_that_do_not_arrive_read_zero(void **state)
{
    static const uint32_t cell[] = {3, 4, 5, 9, 7, 30};
    struct box *box = engine_box(2);
    struct tape t = made_rows(6);

    (void)state;
    for (int n = 1; n <= 4; n++) {
        uint64_t next;

        t.at = 0;
        t.fail_in = n;
        expect(kvlazy_state_rows_read(box->cache, 1, cell, 6, tape_read, &t), KVLAZY_EIO);
        for (uint64_t i = 0; i < box->cache->rows.own.bytes; i++)
            assert_int_equal(box->cache->rows.own.base[i], 0);
        ok(kvlazy_poll(box->cache, &next)); /* the batch is closed */
        box_sound(box);
    }
    tape_free(&t);
    box_free(box);
}

/* An engine without a table says itself what it frees: cells of a read that failed are free, but for one that it had
 * touched before. */
static void test_cells_of_a_failed_read_are_free_again(void **state)
{
    static const uint32_t cell[] = {3, 4, 5, 9, 7, 30};
    static const kvlazy_cell_ops tells = {.struct_size = sizeof tells};
    struct box *box = box_new();
    struct tape t = made_rows(6);

    (void)state;
    box->params.cell_ops = &tells;
    box->params.n_stream = box->params.n_seq_max = 2;
    box_open(box);
    const kvl_cells *cells = &box->cache->stream[1].cells;
    for (int n = 1; n <= 12; n++) {
        ok(kvlazy_init_batch(box->cache));
        ok(kvlazy_touch_range(box->cache, 1, 9, 10));
        t.at = 0;
        t.fail_in = n <= 4 ? n : 0;
        fake_fail(&box->fake, FAKE_COMMIT, n <= 4 ? 0 : n - 4);
        int status = kvlazy_state_rows_read(box->cache, 1, cell, 6, tape_read, &t);
        bool failed = n <= 4 || box->fake.failed;
        fake_fail(&box->fake, FAKE_COMMIT, 0);
        ok(kvlazy_end_batch(box->cache));
        assert_int_equal(status, n <= 4 ? KVLAZY_EIO : failed ? KVLAZY_ENOMEM : KVLAZY_OK);
        assert_int_equal(cells->n_used, failed ? 1 : 6);
        assert_true(kvl_cells_is_used(cells, 9));
        box_sound(box);
        ok(kvlazy_clear(box->cache, true));
    }
    tape_free(&t);
    box_free(box);
}

static void test_arguments_of_rows(void **state)
{
    static const uint32_t cell[] = {3, 64};
    struct box *box = engine_box(0), *ours = box_open(box_new());
    struct tape t = {0};

    (void)state;
    expect(kvlazy_state_rows_write(box->cache, 0, cell, 2, tape_write, &t), KVLAZY_EINVAL);
    expect(kvlazy_state_rows_write(box->cache, 2, cell, 1, tape_write, &t), KVLAZY_EINVAL);
    expect(kvlazy_state_rows_write(box->cache, 0, cell, 1, NULL, &t), KVLAZY_EINVAL);
    expect(kvlazy_state_rows_read(box->cache, 0, cell, 2, tape_read, &t), KVLAZY_EINVAL);
    expect(kvlazy_state_rows_read(box->cache, 0, NULL, 2, tape_read, &t), KVLAZY_EINVAL);
    expect(kvlazy_state_rows_read(ours->cache, 0, cell, 1, tape_read, &t), KVLAZY_ENOTSUP);
    expect(kvlazy_state_write(box->cache, 0, tape_write, &t), KVLAZY_ENOTSUP);
    expect(kvlazy_state_read(box->cache, 0, tape_read, &t), KVLAZY_ENOTSUP);
    ok(kvlazy_state_rows_write(box->cache, 0, NULL, 0, tape_write, &t));
    assert_int_equal(t.n_call, 0);
    box_free(box);
    box_free(ours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_of_cells_that_the_engine_keeps),
        cmocka_unit_test(test_rows_that_do_not_arrive_read_zero),
        cmocka_unit_test(test_cells_of_a_failed_read_are_free_again),
        cmocka_unit_test(test_arguments_of_rows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
