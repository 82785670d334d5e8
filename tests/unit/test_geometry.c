/* SPDX-License-Identifier: MIT */
/* geometry: where rows lie, over awkward sizes, against sums made the slow way. */
#include "unit.h"

#include "memory/geometry.h"

static const uint64_t page_sizes[] = {4096, 16384, 65536};
static const size_t row_sizes[] = {1, 34, 36, 272, 512, 1088, 2048, 4096, 5000};
static const uint32_t kv_sizes[] = {1, 3, 100, 256, 1000};

static kvlazy_layer layer(uint32_t id, size_t k, size_t v)
{
    return (kvlazy_layer){.id = id, .k_row_bytes = k, .v_row_bytes = v};
}

/* Layers that the library lays out. */
static int lay_out(kvl_geometry *g, const kvlazy_layer *layers, uint32_t n_layer, uint32_t kv_size, uint32_t n_stream,
                   uint64_t page_bytes)
{
    kvl_complaint complaint;

    return kvl_geometry_init(g, layers, n_layer, kv_size, n_stream, page_bytes, NULL, &complaint);
}

static void tensors_are_packed_and_apart(void **state)
{
    (void)state;
    for (size_t p = 0; p < N_OF(page_sizes); p++)
        for (size_t r = 0; r < N_OF(row_sizes); r++)
            for (size_t n = 0; n < N_OF(kv_sizes); n++) {
                kvlazy_layer layers[] = {layer(3, row_sizes[r], 34), layer(7, 0, row_sizes[r]), layer(9, 0, 0)};
                kvl_geometry g;
                uint64_t end = 0;

                assert_int_equal(lay_out(&g, layers, 3, kv_sizes[n], 3, page_sizes[p]), KVLAZY_OK);
                assert_int_equal(g.n_tensor, 3);
                assert_int_equal(g.cell_bytes, 2 * row_sizes[r] + 34);
                for (uint32_t t = 0; t < g.n_tensor; t++) {
                    const kvl_tensor *x = &g.tensor[t];

                    assert_int_equal(x->offset, end); /* on a page, right behind the one before */
                    assert_int_equal(x->offset % page_sizes[p], 0);
                    assert_int_equal(x->stream_stride, kv_sizes[n] * x->cell_stride);
                    end = x->end;
                    assert_true(end - x->offset >= 3 * x->stream_stride);
                    assert_true(end - x->offset < 3 * x->stream_stride + page_sizes[p]);
                }
                assert_int_equal(g.reserved_bytes, end);
                assert_ptr_equal(kvl_geometry_find(&g, 7, true), &g.tensor[2]);
                assert_null(kvl_geometry_find(&g, 7, false));
                assert_null(kvl_geometry_find(&g, 9, true));
                kvl_geometry_fini(&g);
            }
}

/* Marks the pages of every row, one at a time. */
static uint64_t slow_cover(const kvl_geometry *g, uint32_t n_cell)
{
    uint64_t n_page = g->reserved_bytes / g->page_bytes, n = 0;
    bool *seen = calloc(n_page, sizeof *seen);

    for (uint32_t t = 0; t < g->n_tensor; t++)
        for (uint32_t s = 0; s < g->n_stream; s++)
            for (uint32_t i = 0; i < n_cell; i++) {
                kvl_span row =
                    kvl_lane_span(&g->tensor[t], kvl_tensor_lane(&g->tensor[t], g->n_stream, s).base, i, i + 1);

                for (uint64_t page = row.begin / g->page_bytes; page * g->page_bytes < row.end; page++)
                    seen[page] = true;
            }
    for (uint64_t page = 0; page < n_page; page++)
        n += seen[page];
    free(seen);
    return n * g->page_bytes;
}

static void cover_counts_each_page_once(void **state)
{
    (void)state;
    for (size_t p = 0; p < N_OF(page_sizes); p++)
        for (size_t r = 0; r < N_OF(row_sizes); r++)
            for (size_t n = 0; n < N_OF(kv_sizes); n++) {
                kvlazy_layer layers[] = {layer(0, row_sizes[r], 18)};
                kvl_geometry g;

                assert_int_equal(lay_out(&g, layers, 1, kv_sizes[n], 4, page_sizes[p]), KVLAZY_OK);
                for (uint32_t cells = 0; cells <= kv_sizes[n]; cells += 1 + kv_sizes[n] / 7)
                    assert_int_equal(kvl_geometry_cover_bytes(&g, cells, g.page_bytes), slow_cover(&g, cells));
                kvl_geometry_fini(&g);
            }
}

static void what_no_address_holds_is_refused(void **state)
{
    kvl_geometry g;

    (void)state;
    kvlazy_layer huge[] = {layer(0, SIZE_MAX, 0)};
    assert_int_equal(lay_out(&g, huge, 1, 2, 1, 4096), KVLAZY_EINVAL);
    assert_null(g.tensor);
    kvlazy_layer large[] = {layer(0, (size_t)1 << 31, 0)};
    assert_int_equal(lay_out(&g, large, 1, INT32_MAX, 4, 4096), KVLAZY_EINVAL);
    kvlazy_layer two[] = {layer(0, (size_t)1 << 30, (size_t)1 << 30), layer(1, (size_t)1 << 30, (size_t)1 << 30)};
    assert_int_equal(lay_out(&g, two, 2, INT32_MAX, 1, 4096), KVLAZY_EINVAL); /* each fits, together not */
    assert_int_equal(lay_out(&g, two, 1, 1 << 30, 1, 4096), KVLAZY_OK);
    kvl_geometry_fini(&g);
}

static void no_layers_reserve_nothing(void **state)
{
    kvl_geometry g;

    (void)state;
    assert_int_equal(lay_out(&g, NULL, 0, 100, 1, 4096), KVLAZY_OK);
    assert_int_equal(g.reserved_bytes, 0);
    assert_int_equal(kvl_geometry_cover_bytes(&g, 100, 4096), 0);
    kvl_geometry_fini(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_packed_and_apart),
        cmocka_unit_test(cover_counts_each_page_once),
        cmocka_unit_test(what_no_address_holds_is_refused),
        cmocka_unit_test(no_layers_reserve_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
