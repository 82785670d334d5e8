/* SPDX-License-Identifier: MIT */
/* Layers read off tensors of a double of ggml: every way in which llama.cpp shows one, and what cannot be described. */
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#include <kvlazy/ggml.h>

#include "double.h"
#include "expect.h"

enum { KV = 96, STREAMS = 3, HEADS = 4, HEAD = 64, ROW = HEADS * HEAD };

/* K and V of a layer in one buffer, as [row, cells, streams]. */
typedef struct rig {
    ggml_backend_buffer_t buffer;
    struct ggml_tensor k, v;
    kvlazy_ggml_rows rows;
} rig;

static void open_rig(rig *r, enum ggml_type type, int64_t kv_size, int64_t n_stream)
{
    memset(r, 0, sizeof *r);
    r->rows.struct_size = sizeof r->rows;
    double_tensor(&r->k, type, ROW, kv_size, n_stream, 1);
    double_tensor(&r->v, type, ROW, kv_size, n_stream, 1);
    r->buffer = double_alloc(kvlazy_ggml_buffer_type(), (size_t)1 << 22);
    assert_non_null(r->buffer);
    double_place(&r->k, r->buffer, 0);
    double_place(&r->v, r->buffer, (size_t)1 << 21);
}

static void close_rig(rig *r)
{
    double_free(r->buffer);
}

/* The tensor as attention sees it: heads and their values in dimensions of their own. */
static struct ggml_tensor heads_of(struct ggml_tensor *root, int64_t kv_size, int64_t n_stream)
{
    struct ggml_tensor view, shape;

    double_view(&view, root);
    double_tensor(&shape, root->type, HEAD, HEADS, kv_size, n_stream);
    memcpy(view.ne, shape.ne, sizeof view.ne);
    memcpy(view.nb, shape.nb, sizeof view.nb);
    return view;
}

/* A transposed V as attention sees it: [cells, heads, values of a head, streams]. */
static struct ggml_tensor transposed_heads_of(struct ggml_tensor *root, int64_t kv_size, int64_t n_stream)
{
    const size_t bytes = ggml_type_size(root->type);
    struct ggml_tensor view;

    double_view(&view, root);
    view.ne[0] = kv_size;
    view.ne[1] = HEADS;
    view.ne[2] = HEAD;
    view.ne[3] = n_stream;
    view.nb[0] = bytes;
    view.nb[1] = bytes * (size_t)kv_size * HEAD;
    view.nb[2] = bytes * (size_t)kv_size;
    view.nb[3] = bytes * (size_t)kv_size * ROW;
    return view;
}

static void expect_row_major(const kvlazy_tensor *t, const void *data, size_t row_bytes, size_t kv_size)
{
    assert_ptr_equal(t->data, data);
    assert_int_equal(t->row_bytes, row_bytes);
    assert_int_equal(t->cell_stride, row_bytes);
    assert_int_equal(t->stream_stride, row_bytes * kv_size);
    assert_int_equal(t->n_channel, 0);
}

static void expect_transposed(const kvlazy_tensor *t, const void *data, size_t bytes, size_t kv_size)
{
    assert_ptr_equal(t->data, data);
    assert_int_equal(t->row_bytes, bytes * ROW);
    assert_int_equal(t->cell_stride, bytes);
    assert_int_equal(t->channel_stride, bytes * kv_size);
    assert_int_equal(t->stream_stride, bytes * kv_size * ROW);
    assert_int_equal(t->n_channel, ROW);
}

/* A cache takes what was read, and lets rows be written. */
static void expect_cache(rig *r, uint32_t kv_size, uint32_t n_stream)
{
    const kvlazy_pos pos = 0;
    const kvlazy_seq_id seq = (kvlazy_seq_id)n_stream - 1;
    kvlazy_ubatch ubatch = {.n_token = 1, .pos = &pos, .seq = &seq};
    kvlazy_slot slot;
    kvlazy_params params;
    kvlazy_cache *cache;

    kvlazy_params_init(&params);
    params.kv_size = kv_size;
    params.n_stream = n_stream;
    params.layers = &r->rows.layer;
    params.n_layer = 1;
    ok(kvlazy_create(&params, &cache));
    ok(kvlazy_init_batch(cache));
    ok(kvlazy_prepare(cache, &ubatch, 1, &slot));
    ok(kvlazy_apply_ubatch(cache, &slot, &ubatch));
    ok(kvlazy_end_batch(cache));
    ok(kvlazy_check(cache, NULL));
    kvlazy_destroy(cache);
}

static const enum ggml_type every_type[] = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0,
                                            GGML_TYPE_Q8_0};

static void rows_lie_as_the_tensors_say(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(every_type); i++)
        for (uint32_t n_stream = 1; n_stream <= STREAMS; n_stream++) {
            const size_t row_bytes = ggml_row_size(every_type[i], ROW);
            rig r;

            open_rig(&r, every_type[i], KV, n_stream);
            ok(kvlazy_ggml_layer(&r.k, &r.v, false, KV, n_stream, &r.rows));
            expect_row_major(&r.rows.k, r.k.data, row_bytes, KV);
            expect_row_major(&r.rows.v, r.v.data, row_bytes, KV);
            assert_int_equal(r.rows.layer.k_row_bytes, row_bytes);
            assert_int_equal(r.rows.layer.v_row_bytes, row_bytes);
            assert_ptr_equal(r.rows.layer.k, &r.rows.k);
            assert_ptr_equal(r.rows.layer.v, &r.rows.v);
            assert_ptr_equal(r.rows.layer.arena, kvlazy_ggml_arena(r.buffer));
            assert_string_equal(r.rows.why, "");
            expect_cache(&r, KV, n_stream);
            close_rig(&r);
        }
}

static void views_and_permuted_views_say_the_same(void **state)
{
    static const int swaps[][2] = {{0, 0}, {1, 2}, {2, 3}, {1, 3}};

    (void)state;
    for (size_t i = 0; i < N_OF(every_type); i++)
        for (size_t s = 0; s < N_OF(swaps); s++) {
            struct ggml_tensor view;
            rig r;

            open_rig(&r, every_type[i], KV, STREAMS);
            view = heads_of(&r.k, KV, STREAMS);
            double_swap(&view, swaps[s][0], swaps[s][1]);
            ok(kvlazy_ggml_layer(&view, NULL, false, KV, STREAMS, &r.rows));
            expect_row_major(&r.rows.k, r.k.data, ggml_row_size(every_type[i], ROW), KV);
            close_rig(&r);
        }
}

/* As llama.cpp stores it, as it shows it to attention, and with as many cells as a row has values. */
static void transposed_v_is_read_from_tensor_and_view(void **state)
{
    static const uint32_t sizes[] = {KV, ROW, HEAD, HEADS, 1};

    (void)state;
    for (size_t i = 0; i < N_OF(sizes); i++)
        for (uint32_t n_stream = 1; n_stream <= STREAMS; n_stream++) {
            struct ggml_tensor view;
            rig r;

            open_rig(&r, GGML_TYPE_F16, sizes[i], n_stream);
            ok(kvlazy_ggml_layer(&r.k, &r.v, true, sizes[i], n_stream, &r.rows));
            expect_transposed(&r.rows.v, r.v.data, 2, sizes[i]);
            expect_row_major(&r.rows.k, r.k.data, 2 * ROW, sizes[i]);
            assert_int_equal(r.rows.layer.v_channels, ROW);
            expect_cache(&r, sizes[i], n_stream);
            view = transposed_heads_of(&r.v, sizes[i], n_stream);
            ok(kvlazy_ggml_layer(&r.k, &view, true, sizes[i], n_stream, &r.rows));
            expect_transposed(&r.rows.v, r.v.data, 2, sizes[i]);
            close_rig(&r);
        }
}

static void padding_and_neighbours_are_described(void **state)
{
    rig r;

    (void)state;
    open_rig(&r, GGML_TYPE_F16, KV, STREAMS);
    r.k.nb[1] = 4 * ROW; /* K and V of a cell side by side: every second row */
    r.k.nb[2] = 4 * ROW * KV + 4096;
    ok(kvlazy_ggml_layer(&r.k, NULL, false, KV, STREAMS, &r.rows));
    assert_int_equal(r.rows.k.row_bytes, 2 * ROW);
    assert_int_equal(r.rows.k.cell_stride, 4 * ROW);
    assert_int_equal(r.rows.k.stream_stride, 4 * ROW * KV + 4096);
    assert_null(r.rows.layer.v);
    assert_int_equal(r.rows.layer.v_row_bytes, 0);
    ok(kvlazy_ggml_layer(NULL, &r.v, false, KV, STREAMS, &r.rows));
    assert_null(r.rows.layer.k);
    assert_ptr_equal(r.rows.layer.arena, kvlazy_ggml_arena(r.buffer));
    ok(kvlazy_ggml_layer(NULL, NULL, true, KV, STREAMS, &r.rows));
    assert_null(r.rows.layer.arena);
    close_rig(&r);
}

static bool yes(ggml_backend_buffer_type_t type)
{
    (void)type;
    return true;
}

static const char *plain(ggml_backend_buffer_type_t type)
{
    (void)type;
    return "plain";
}

static void a_device_is_described_without_its_bytes(void **state)
{
    struct ggml_backend_buffer_type device = {.iface = {.get_name = plain}};
    struct ggml_backend_buffer far_buffer = {.buft = &device};
    rig r;

    (void)state;
    open_rig(&r, GGML_TYPE_F16, KV, 1);
    r.v.buffer = &far_buffer;
    ok(kvlazy_ggml_layer(&r.k, &r.v, false, KV, 1, &r.rows));
    assert_null(r.rows.v.data);
    assert_ptr_equal(r.rows.layer.arena, kvlazy_ggml_arena(r.buffer));
    expect_cache(&r, KV, 1);
    r.k.buffer = &far_buffer;
    ok(kvlazy_ggml_layer(&r.k, &r.v, true, KV, 1, &r.rows));
    assert_null(r.rows.layer.arena);
    expect_cache(&r, KV, 1);
    close_rig(&r);
}

/* Refused with these words, and nothing but the words is told. */
static void expect_refusal(rig *r, int got, int status, const char *why)
{
    const kvlazy_layer none = {0};

    expect(got, status);
    assert_string_equal(r->rows.why, why);
    assert_memory_equal(&r->rows.layer, &none, sizeof none);
    assert_null(r->rows.k.data);
    assert_null(r->rows.v.data);
}

#define REFUSED(r, k, v, trans, kv_size, n_stream, status, why) \
    expect_refusal((r), kvlazy_ggml_layer((k), (v), (trans), (kv_size), (n_stream), &(r)->rows), (status), (why))

static void what_does_not_fit_is_named(void **state)
{
    struct ggml_tensor view;
    rig r;

    (void)state;
    open_rig(&r, GGML_TYPE_F16, KV, STREAMS);
    expect(kvlazy_ggml_layer(&r.k, &r.v, false, KV, STREAMS, NULL), KVLAZY_EINVAL);
    r.rows.struct_size = sizeof r.rows - 1;
    expect(kvlazy_ggml_layer(&r.k, &r.v, false, KV, STREAMS, &r.rows), KVLAZY_EINVAL);
    r.rows.struct_size = SIZE_MAX;
    expect(kvlazy_ggml_layer(&r.k, &r.v, false, KV, STREAMS, &r.rows), KVLAZY_EINVAL);
    r.rows.struct_size = sizeof r.rows;
    REFUSED(&r, &r.k, &r.v, false, 0, 3, KVLAZY_EINVAL, "K and V cannot have 0 cells in 3 streams");
    REFUSED(&r, &r.k, &r.v, false, KV, 0, KVLAZY_EINVAL, "K and V cannot have 96 cells in 0 streams");
    REFUSED(&r, &r.k, &r.v, false, KV, 2, KVLAZY_EINVAL, "K has 3 streams, not 2");
    REFUSED(&r, &r.k, &r.v, false, KV, 1, KVLAZY_EINVAL, "K has 3 cells, not 96");
    REFUSED(&r, NULL, &r.v, false, 97, STREAMS, KVLAZY_EINVAL, "V has 96 cells, not 97");
    REFUSED(&r, NULL, &r.v, true, 97, STREAMS, KVLAZY_EINVAL, "V has 96 cells, not 97");
    view = r.k;
    view.ne[1] = 32; /* what attention reads of it */
    REFUSED(&r, &view, NULL, false, KV, STREAMS, KVLAZY_EINVAL, "K has 32 cells, not 96");
    view.ne[1] = view.ne[2] = 1;
    REFUSED(&r, &view, NULL, false, KV, STREAMS, KVLAZY_EINVAL, "K has 256 streams, not 3");
    view.ne[0] = 1;
    REFUSED(&r, &view, NULL, false, KV, STREAMS, KVLAZY_EINVAL, "K has 1 streams, not 3");
    view = r.k;
    view.buffer = NULL;
    REFUSED(&r, &view, &r.v, false, KV, STREAMS, KVLAZY_EINVAL, "K has no buffer yet");
    view.buffer = double_alloc(kvlazy_ggml_buffer_type(), 0); /* as of a context that is only measured */
    REFUSED(&r, &r.k, &view, false, KV, STREAMS, KVLAZY_EINVAL, "V has a buffer without memory");
    double_free(view.buffer);
    view = r.k;
    view.data = NULL;
    REFUSED(&r, &view, NULL, false, KV, STREAMS, KVLAZY_EINVAL, "K has a buffer without memory");
    close_rig(&r);
}

static void what_cannot_be_described_is_named(void **state)
{
    struct ggml_backend_buffer_type host = {.iface = {.get_name = plain, .is_host = yes}};
    struct ggml_backend_buffer host_buffer = {.buft = &host};
    struct ggml_tensor view;
    rig r, other;

    (void)state;
    open_rig(&r, GGML_TYPE_F16, KV, STREAMS);
    open_rig(&other, GGML_TYPE_Q8_0, KV, STREAMS);
    REFUSED(&r, &r.k, &other.v, false, KV, STREAMS, KVLAZY_ENOTSUP, "V lies in another buffer than K");
    REFUSED(&r, NULL, &other.v, true, KV, STREAMS, KVLAZY_ENOTSUP,
            "V is transposed, and of the type q8_0, whose values come in blocks");
    view = r.v;
    view.buffer = &host_buffer;
    REFUSED(&r, &r.k, &view, false, KV, STREAMS, KVLAZY_ENOTSUP,
            "V lies in a buffer of the type plain, which gives nothing back");
    view = transposed_heads_of(&r.k, KV, STREAMS);
    REFUSED(&r, &view, NULL, false, KV, STREAMS, KVLAZY_EINVAL, "K has 4 cells, not 96");
    view = r.k;
    view.nb[0] = 4;
    REFUSED(&r, &view, NULL, false, KV, STREAMS, KVLAZY_ENOTSUP,
            "K has no row whose values are neighbours (transposed?)");
    view = heads_of(&r.k, KV, STREAMS);
    view.nb[1] += 32;
    REFUSED(&r, &view, NULL, false, KV, STREAMS, KVLAZY_ENOTSUP,
            "K has parts of a row that lie 160 bytes apart, not 128");
    view = r.k;
    view.nb[1] = 2 * ROW - 2;
    REFUSED(&r, &view, NULL, false, KV, STREAMS, KVLAZY_ENOTSUP, "K has cells that overlap");
    view = r.k;
    view.nb[2] -= 2;
    REFUSED(&r, &view, NULL, false, KV, STREAMS, KVLAZY_ENOTSUP, "K has streams that overlap");
    view = r.v;
    view.nb[1] += 32;
    view.nb[2] += 32 * KV;
    REFUSED(&r, NULL, &view, true, KV, STREAMS, KVLAZY_ENOTSUP,
            "V is transposed, and has bytes between what its shape calls rows");
    view = transposed_heads_of(&r.v, KV, STREAMS);
    view.nb[1] += 2;
    REFUSED(&r, NULL, &view, true, KV, STREAMS, KVLAZY_ENOTSUP,
            "V has parts of its channels that lie 12290 bytes apart, not 12288");
    view = transposed_heads_of(&r.v, KV, STREAMS);
    view.nb[2] -= 2;
    view.nb[1] = view.nb[2] * HEAD;
    REFUSED(&r, NULL, &view, true, KV, STREAMS, KVLAZY_ENOTSUP, "V has channels that overlap");
    view = transposed_heads_of(&r.v, KV, STREAMS);
    view.nb[3] -= 2;
    REFUSED(&r, NULL, &view, true, KV, STREAMS, KVLAZY_ENOTSUP, "V has streams that overlap");
    close_rig(&other);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_lie_as_the_tensors_say),
        cmocka_unit_test(views_and_permuted_views_say_the_same),
        cmocka_unit_test(transposed_v_is_read_from_tensor_and_view),
        cmocka_unit_test(padding_and_neighbours_are_described),
        cmocka_unit_test(a_device_is_described_without_its_bytes),
        cmocka_unit_test(what_does_not_fit_is_named),
        cmocka_unit_test(what_cannot_be_described_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
