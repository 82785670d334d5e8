/* SPDX-License-Identifier: MIT */
/*
 * Tensors that are not row-major, not the library's or not on the host: the tables about bytes literally, what is
 * answered about packed tensors, which layouts are refused, and tensors on a device.
 */
#include "layout_support.h"

#include <stdlib.h>

#include <kvlazy/arena.h>

enum { IDLE = 500, PAGE = 4096 };

static int bed_setup(void **state)
{
    *state = bed_new(PAGE);
    return 0;
}

/* Cells [lo, hi) lose their tokens: of one sequence whose positions are its cells, after a trim nothing moves as long
 * as they are the last ones. */
static void fill_and_cut(struct bed *bed, uint32_t n, uint32_t left)
{
    ok(bed_turn(bed, 0, n));
    bed_rm(bed, 0, (kvlazy_pos)left, -1);
}

/* ---- the tables about bytes ---- */

static void rows_of_512_bytes(void **state)
{
    static const size_t page[] = {4096, 16384, 65536};

    for (size_t i = 0; i < N_OF(page); i++) {
        struct bed *bed = bed_new(page[i]);

        bed->params.kv_size = 4096;
        bed_layer(bed, 512, 512, 0);
        bed_open(bed);
        fill_and_cut(bed, 2000, 200);
        ok(kvlazy_trim(bed->cache, 0));
        bed_sound_released(bed);
        assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 0, 0, 200));
        assert_int_equal(fake_committed(&bed->fake, bed->tensor[0].data, bed->tensor[0].stream_stride),
                         (200 * 512 + page[i] - 1) / page[i] * page[i]);
        bed_free(bed);
    }
    (void)state;
}

static void transposed_v_goes_back_channel_by_channel(void **state)
{
    static const size_t page[] = {4096, 16384};

    for (size_t i = 0; i < N_OF(page); i++) {
        struct bed *bed = bed_new(page[i]);

        bed->params.kv_size = 16384;
        bed->params.shrink = KVLAZY_SHRINK_TAILS;
        bed_layer(bed, 0, 512, 256);
        bed_open(bed);
        for (int k = 0; k < 3; k++) /* [0, 6000) were written */
            ok(bed_turn(bed, 0, 2000));
        assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 0, 0, 6000));
        uint64_t released = bed_stats(bed).released_bytes;
        bed_rm(bed, 0, 200, -1);
        ok(kvlazy_trim(bed->cache, 0));
        uint64_t per_channel = (page[i] == 4096 ? 2 : 0) * 4096; /* 12000 bytes are 3 pages, or 1 */
        assert_int_equal(bed_stats(bed).released_bytes - released, 256 * per_channel);
        assert_int_equal(bed_stats(bed).touched_bytes, 256 * page[i]);
        bed_sound_released(bed);
        bed_free(bed);
    }
    (void)state;
}

static void a_release_inside_one_page_of_each_channel(void **state)
{
    struct bed *bed = *state;

    bed->params.kv_size = 16384;
    bed_layer(bed, 0, 512, 256);
    bed_open(bed);
    fill_and_cut(bed, 2048, 256);
    ok(kvlazy_trim(bed->cache, 0));
    assert_int_equal(bed_stats(bed).released_bytes, 0);
    assert_int_equal(bed_stats(bed).n_os_refusal, 0);
    assert_int_equal(bed_stats(bed).touched_bytes, 256 * PAGE);
    bed_sound_released(bed);
}

static void rows_of_36_bytes_in_two_streams(void **state)
{
    struct bed *bed = *state;

    bed->params.n_stream = bed->params.n_seq_max = 2;
    bed->params.kv_size = 100; /* stream 1 begins inside the page where stream 0 ends */
    bed_layer(bed, 36, 0, 0);
    bed_open(bed);
    ok(bed_turn(bed, 0, 100));
    ok(bed_turn(bed, 1, 1));
    bed_rm(bed, 0, -1, -1);
    ok(kvlazy_trim(bed->cache, 0));
    bed_sound_released(bed);
    assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 1, 0, 1));
    bed_rm(bed, 1, -1, -1);
    ok(kvlazy_trim(bed->cache, 0));
    assert_int_equal(bed_stats(bed).touched_bytes, 0);
}

static void a_host_that_takes_nothing_back(void **state)
{
    struct bed *bed = *state;

    bed->params.kv_size = 4096;
    bed_layer(bed, 512, 512, 128);
    bed_open(bed);
    fill_and_cut(bed, 4000, 100);
    uint64_t touched = bed_stats(bed).touched_bytes;
    bed->fake.refuse_decommit = true;
    ok(kvlazy_trim(bed->cache, 0));
    assert_true(bed_stats(bed).n_os_refusal > 0);
    assert_int_equal(bed_stats(bed).released_bytes, 0);
    assert_int_equal(bed_stats(bed).touched_bytes, touched);
    bed_sound_released(bed);
    bed->fake.refuse_decommit = false;
    bed->fake.now += IDLE;
    ok(kvlazy_poll(bed->cache, NULL));
    assert_int_equal(bed_stats(bed).released_bytes, touched - bed_cover(bed, 0, 0, 100));
    bed_sound_released(bed);
}

/* ---- what is answered about tensors ---- */

static void packed_strides_exactly(void **state)
{
    struct bed *bed = *state;
    kvlazy_tensor t;

    bed->params.kv_size = 1000;
    bed->params.n_stream = bed->params.n_seq_max = 3;
    bed_layer(bed, 36, 66, 33);
    bed_layer(bed, 0, 34, 0);
    bed_open(bed);
    ok(kvlazy_k(bed->cache, 1, &t));
    assert_true(t.cell_stride == 36 && t.channel_stride == 0 && t.stream_stride == 36000 && t.row_bytes == 36);
    assert_int_equal(t.n_channel, 0);
    ok(kvlazy_v(bed->cache, 1, &t));
    assert_true(t.cell_stride == 2 && t.channel_stride == 2000 && t.stream_stride == 66000 && t.row_bytes == 66);
    assert_int_equal(t.n_channel, 33);
    assert_int_equal((uintptr_t)t.data % PAGE, 0);
    kvlazy_tensor before = t;
    expect(kvlazy_k(bed->cache, 4, &t), KVLAZY_ENOTSUP);
    expect(kvlazy_k(bed->cache, 5, &t), KVLAZY_EINVAL);
    expect(kvlazy_v(bed->cache, 1, NULL), KVLAZY_EINVAL);
    assert_memory_equal(&t, &before, sizeof t);
}

static void plans_of_every_kind(void **state)
{
    static const kvlazy_tensor device = {.row_bytes = 512};
    struct bed *bed = *state;
    kvlazy_plan_info plan = {.struct_size = sizeof plan};

    bed->params.kv_size = 4096;
    bed->params.kv_size_initial = 256;
    bed_layer(bed, 512, 66, 33);
    ok(kvlazy_plan(&bed->params, &plan));
    assert_int_equal(plan.cell_bytes, 578);
    assert_int_equal(plan.reserved_bytes, 4096 * 512 + 4096 * 66);
    assert_int_equal(plan.initial_bytes, 256 * 512 + 33 * PAGE); /* 512 bytes of each channel of 8192 */

    bed_layer(bed, 512, 0, 0)->k = &device; /* bytes that are not here */
    ok(kvlazy_plan(&bed->params, &plan));
    assert_int_equal(plan.cell_bytes, 578 + 512);
    assert_int_equal(plan.reserved_bytes, 4096 * 512 + 4096 * 66);

    struct bed_area *area = bed_arena(bed, 100 + 4096 * 512);
    kvlazy_layer *l = bed_layer(bed, 512, 0, 0);
    bed->theirs[0] = bed_packed(512, 0, 4096, 1);
    bed->theirs[0].data = area->base + 100;
    l->k = &bed->theirs[0];
    l->arena = area->arena;
    ok(kvlazy_plan(&bed->params, &plan));
    assert_int_equal(plan.cell_bytes, 578 + 512 + 512);
    assert_int_equal(plan.reserved_bytes, 4096 * 512 + 4096 * 66 + 4096 * 512 + PAGE);
    assert_int_equal(plan.initial_bytes, 256 * 512 + 33 * PAGE + 256 * 512 + PAGE);
    assert_int_equal(fake_mappings(&bed->fake), 1);
    bed_open(bed);
    assert_int_equal(bed_stats(bed).reserved_bytes, plan.reserved_bytes);
    kvlazy_tensor t;
    ok(kvlazy_k(bed->cache, 4, &t));
    assert_null(t.data);
    assert_int_equal(t.row_bytes, 512);
    ok(kvlazy_k(bed->cache, 7, &t));
    assert_memory_equal(&t, &bed->theirs[0], sizeof t);
}

/* ---- layouts that are refused ---- */

struct wrong_tensor {
    const char *what;
    ptrdiff_t at; /* from the arena's base */
    kvlazy_tensor t;
    bool no_arena;
    int status;
};

static void tensors_that_are_refused(void **state)
{
    static const struct wrong_tensor wrong[] = {
        {"fits to the byte", 0, {NULL, 512, 0, 0, 512, 0}, false, KVLAZY_OK},
        {"one byte too far", 1, {NULL, 512, 0, 0, 512, 0}, false, KVLAZY_EINVAL},
        {"before its arena", -1, {NULL, 512, 0, 0, 512, 0}, false, KVLAZY_EINVAL},
        {"far before", -(ptrdiff_t)(1ull << 40), {NULL, 512, 0, 0, 512, 0}, false, KVLAZY_EINVAL},
        {"far behind", (ptrdiff_t)1 << 40, {NULL, 512, 0, 0, 512, 0}, false, KVLAZY_EINVAL},
        {"cells that overlap", 0, {NULL, 511, 0, 0, 512, 0}, false, KVLAZY_EINVAL},
        {"cells in one place", 0, {NULL, 0, 0, 0, 512, 0}, false, KVLAZY_EINVAL},
        {"a stride that overflows", 0, {NULL, SIZE_MAX / 2, 0, 0, 512, 0}, false, KVLAZY_EINVAL},
        {"one that wraps to a small one", 0, {NULL, SIZE_MAX / 99 + 1, 0, 0, 512, 0}, false, KVLAZY_EINVAL},
        {"other rows than the layer", 0, {NULL, 512, 0, 0, 500, 0}, false, KVLAZY_EINVAL},
        {"other channels than V has", 0, {NULL, 2, 200, 0, 512, 256}, true, KVLAZY_EINVAL},
        {"no arena", 0, {NULL, 512, 0, 0, 512, 0}, true, KVLAZY_EINVAL},
    };
    struct bed *bed = *state;
    kvlazy_plan_info plan = {.struct_size = sizeof plan};

    bed->params.kv_size = 100;
    kvlazy_layer *l = bed_layer(bed, 0, 512, 0);
    struct bed_area *area = bed_arena(bed, 100 * 512);
    for (size_t i = 0; i < N_OF(wrong); i++) {
        kvlazy_tensor t = wrong[i].t;
        kvlazy_cache *c = NULL;

        t.data = (void *)((uintptr_t)area->base + (uintptr_t)wrong[i].at);
        l->v = &t;
        l->arena = wrong[i].no_arena ? NULL : area->arena;
        int status = kvlazy_create(&bed->params, &c);
        if (status != wrong[i].status || kvlazy_plan(&bed->params, &plan) != status || !c != (status != 0))
            fail_msg("%s: %s", wrong[i].what, kvlazy_status_name(status));
        kvlazy_destroy(c);
    }
    char foreign[1024] = {0};
    kvlazy_tensor t = {area->base, 512, 0, 0, 512, 0};
    kvlazy_cache *c = NULL;
    l->v = &t;
    l->arena = (kvlazy_arena *)foreign;
    expect(kvlazy_create(&bed->params, &c), KVLAZY_EINVAL);
    ok(kvlazy_arena_discard(area->arena, 0, area->bytes)); /* not left in use */
    l->v = NULL;
    l->arena = NULL;
    bed_open(bed);
    free(area->named);
    area->named = NULL;
}

static void streams_that_overlap_or_lie_inside_channels(void **state)
{
    static const struct {
        size_t cell, channel, stream;
        int status;
    } stride[] = {
        {2, 200, 800, KVLAZY_OK},     /* 4 channels of 100 cells, stream by stream */
        {2, 200, 799, KVLAZY_EINVAL}, /* one byte too near */
        {2, 199, 800, KVLAZY_EINVAL}, /* channels overlap */
        {2, 400, 200, KVLAZY_OK},     /* both streams in every channel */
        {2, 399, 200, KVLAZY_EINVAL}, /* not quite */
        {2, 400, 199, KVLAZY_EINVAL}, /* streams overlap inside */
        {2, 200, 200, KVLAZY_EINVAL}, /* channel 1 is stream 1 */
        {3, 299, 1196, KVLAZY_OK},    /* the padding behind the last cell of a channel need not be there */
        {2, 0, 800, KVLAZY_EINVAL},   /* all channels in one place */
        {8, 2, 800, KVLAZY_EINVAL},   /* channels inside cells: no run of cells */
        {2, SIZE_MAX, 800, KVLAZY_EINVAL}, {2, 200, SIZE_MAX - 700, KVLAZY_EINVAL},
    };
    struct bed *bed = *state;

    bed->params.kv_size = 100;
    bed->params.n_stream = bed->params.n_seq_max = 2;
    kvlazy_layer *l = bed_layer(bed, 0, 8, 4);
    struct bed_area *area = bed_arena(bed, 8192);
    for (size_t i = 0; i < N_OF(stride); i++) {
        kvlazy_tensor t = {area->base, stride[i].cell, stride[i].channel, stride[i].stream, 8, 4};
        kvlazy_cache *c = NULL;

        l->v = &t;
        l->arena = area->arena;
        int status = kvlazy_create(&bed->params, &c);
        kvlazy_destroy(c);
        if (status != stride[i].status)
            fail_msg("case %zu: %s", i, kvlazy_status_name(status));
    }
}

static void tensors_that_overlap_or_interleave(void **state)
{
    struct bed *bed = *state;
    kvlazy_cache *c = NULL;

    bed->params.kv_size = 100;
    struct bed_area *area = bed_arena(bed, 100 * 64 * 4);
    kvlazy_layer *l = bed_layer(bed, 64, 64, 0);
    kvlazy_tensor k = {area->base, 64, 0, 0, 64, 0}, v = k;
    l->k = &k;
    l->v = &v;
    l->arena = area->arena;
    expect(kvlazy_create(&bed->params, &c), KVLAZY_EINVAL); /* the same place */
    v.data = area->base + 99 * 64 + 63;
    expect(kvlazy_create(&bed->params, &c), KVLAZY_EINVAL); /* one byte */
    v.data = area->base + 64;
    k.cell_stride = v.cell_stride = 128;
    expect(kvlazy_create(&bed->params, &c), KVLAZY_ENOTSUP); /* K and V of a cell side by side */
    v.data = area->base + 63;
    expect(kvlazy_create(&bed->params, &c), KVLAZY_EINVAL);
    v.data = area->base + 99 * 128 + 64; /* right behind K's last cell */
    v.cell_stride = 64;
    ok(kvlazy_create(&bed->params, &c));
    kvlazy_destroy(c);
}

/* ---- on a device ---- */

static void a_cache_on_a_device(void **state)
{
    static const kvlazy_tensor k = {.row_bytes = 512}, v = {.row_bytes = 64, .n_channel = 32};
    struct bed *bed = *state;
    kvlazy_layer *l = bed_layer(bed, 512, 64, 32);

    l->k = &k;
    l->v = &v;
    bed->params.kv_size_initial = 64;
    bed->params.n_stream = bed->params.n_seq_max = 2;
    bed->params.budget_bytes = 1; /* nothing counts */
    bed_open(bed);
    assert_int_equal(bed_stats(bed).reserved_bytes, 0);
    ok(bed_turn(bed, 0, 200));
    ok(bed_turn(bed, 1, 100));
    assert_int_equal(bed_stats(bed).touched_bytes, 0);
    assert_int_equal(bed_stats(bed).cap_cells, 256 * 2);
    assert_int_equal(bed_host_calls(bed), 0);
    expect(kvlazy_seq_cp(bed->cache, 0, 1, 0, -1), KVLAZY_ENOTSUP);
    assert_int_equal(kvlazy_seq_pos_max(bed->cache, 1), 99);
    ok(kvlazy_seq_cp(bed->cache, 0, 0, 0, -1));
    bed_rm(bed, 0, 0, 50);
    bed->fake.now += IDLE;
    ok(kvlazy_poll(bed->cache, NULL));
    cells_are(bed, 0, "50..113=50..113/0"); /* cut to 64, and where it was */
    cells_are(bed, 1, "0..63=0..63/1");
    ok(kvlazy_trim(bed->cache, 0));
    cells_are(bed, 0, "50..113=50..113/0");
    bed->params.budget_bytes = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_of_512_bytes),
        cmocka_unit_test(transposed_v_goes_back_channel_by_channel),
        BED_TEST(a_release_inside_one_page_of_each_channel),
        BED_TEST(rows_of_36_bytes_in_two_streams),
        BED_TEST(a_host_that_takes_nothing_back),
        BED_TEST(packed_strides_exactly),
        BED_TEST(plans_of_every_kind),
        BED_TEST(tensors_that_are_refused),
        BED_TEST(streams_that_overlap_or_lie_inside_channels),
        BED_TEST(tensors_that_overlap_or_interleave),
        BED_TEST(a_cache_on_a_device),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
