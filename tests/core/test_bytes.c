/* SPDX-License-Identifier: MIT */
/*
 * What is in memory: where rows lie, which pages are committed and given back, what dead bytes read as, and
 * the figures, over page sizes, row sizes and streams that share pages, and on hosts that refuse or lie.
 */
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

struct shape {
    size_t page;
    uint32_t kv_size, n_stream;
    size_t rows[2][2];
};

static const struct shape shapes[] = {
    {4096, 512, 1, {{512, 512}, {36, 34}}},   {4096, 301, 2, {{36, 36}, {34, 0}}},
    {4096, 1000, 4, {{1, 3}, {0, 17}}},       {4096, 77, 3, {{4095, 255}, {2047, 1}}},
    {16384, 512, 1, {{512, 36}, {34, 34}}},   {16384, 999, 3, {{100, 260}, {36, 36}}},
    {65536, 700, 2, {{512, 512}, {272, 36}}}, {65536, 2048, 4, {{34, 34}, {1000, 0}}},
};

enum { N_SHAPE = sizeof shapes / sizeof *shapes };

static struct rig *open_shape(const struct shape *shape, struct rig *rig)
{
    if ((shape - shapes) % 2 && shape->page > 4096) /* pages that the host grants over its own */
        fake_grant(&rig->fake, shape->page, shape->page > 16384);
    rig->fake.page = rig->params.page_bytes = shape->page;
    rig->params.kv_size = shape->kv_size;
    rig->params.n_stream = shape->n_stream;
    rig->params.n_seq_max = shape->n_stream == 1 ? 4 : shape->n_stream;
    rig_rows(rig, 2, shape->rows);
    rig_open(rig);
    return rig;
}

static uint64_t whole_pages(uint64_t bytes, uint64_t page)
{
    return (bytes + page - 1) / page * page;
}

static uint64_t reserved(const struct shape *s)
{
    uint64_t n = 0;

    for (int i = 0; i < 4; i++)
        n += whole_pages((uint64_t)s->rows[i / 2][i % 2] * s->kv_size * s->n_stream, s->page);
    return n;
}

static void tensors_are_packed(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        const struct shape *shape = &shapes[i];
        struct rig *r = open_shape(shape, rig_new());
        kvlazy_tensor t;
        uint64_t bytes = 1;

        for (int l = 0; l < 2; l++)
            for (int v = 0; v < 2; v++) {
                size_t row = shape->rows[l][v];

                memset(&t, 0x55, sizeof t);
                expect((v ? kvlazy_v : kvlazy_k)(r->cache, r->layers[l].id, &t), row ? KVLAZY_OK : KVLAZY_ENOTSUP);
                if (!row)
                    continue;
                assert_int_equal((uintptr_t)t.data % shape->page, 0);
                assert_int_equal(t.row_bytes, row);
                assert_int_equal(t.cell_stride, row);
                assert_int_equal(t.stream_stride, row * shape->kv_size);
                assert_int_equal(t.n_channel, 0);
            }
        assert_int_equal(stats(r).reserved_bytes, reserved(shape));
        assert_int_equal(stats(r).touched_bytes, 0);
        assert_int_equal(r->fake.n_call[FAKE_COMMIT], 0);
        ok(kvlazy_resident(r->cache, &bytes));
        assert_int_equal(bytes, 0);
        rig_free(r);
    }
}

static void an_unknown_layer(void **state)
{
    struct rig *r = *state;
    kvlazy_tensor t, was;

    rig_open(r);
    memset(&t, 0x55, sizeof t);
    was = t;
    expect(kvlazy_k(r->cache, 99, &t), KVLAZY_EINVAL);
    expect(kvlazy_v(r->cache, 0, &t), KVLAZY_EINVAL); /* ids are the engine's, not indices */
    expect(kvlazy_v(r->cache, 4, &t), KVLAZY_ENOTSUP);
    expect(kvlazy_k(r->cache, 1, NULL), KVLAZY_EINVAL);
    assert_memory_equal(&t, &was, sizeof t);
}

static void create_touches_nothing(void **state)
{
    struct rig *r = *state;
    uint64_t bytes = 1;

    r->fake.ask_kernel = true;
    r->params.kv_size = 100000;
    rig_open(r);
    ok(kvlazy_resident(r->cache, &bytes));
    assert_int_equal(bytes, 0);
    ok(turn(r, 0, 0, 1000));
    ok(kvlazy_resident(r->cache, &bytes));
    assert_int_equal(bytes, cover(r));
    ok(kvlazy_clear(r->cache, true));
    ok(kvlazy_resident(r->cache, &bytes));
    assert_int_equal(bytes, 0);
}

static void pages_follow_tokens(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        struct rig *r = open_shape(&shapes[i], rig_new());
        kvlazy_seq_id last = (kvlazy_seq_id)r->n_seq - 1;
        uint32_t half = r->kv_size / 2;

        for (uint32_t n = 1, at = 0; at + n <= half; at += n, n = n * 2 + 1) {
            uint64_t calls;

            fake_forget(&r->fake);
            ok(put(r, last, (kvlazy_pos)at, n));
            calls = r->fake.n_call[FAKE_COMMIT];
            assert_true(calls <= 1); /* all tensors in one call; none if the pages are there */
            assert_int_equal(r->fake.n_call[FAKE_DECOMMIT], 0);
            assert_int_equal(stats(r).touched_bytes, cover(r));
            assert_int_equal(r->fake.committed_bytes, cover(r));
        }
        sound(r);
        ok(kvlazy_end_batch(r->cache));
        fake_forget(&r->fake);
        ok(kvlazy_seq_rm(r->cache, last, 1, -1));
        for (int k = 1; k < 20; k++) /* all on pages that are touched already */
            ok(turn(r, last, k, 1));
        assert_int_equal(r->fake.n_call[FAKE_COMMIT] + r->fake.n_call[FAKE_DECOMMIT], 0);
        sound(r);
        rig_free(r);
    }
}

static void a_tail_reads_zero(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        struct rig *r = open_shape(&shapes[i], rig_new());
        uint32_t size = r->kv_size, stay = size * 2 / 5;
        uint64_t released, touched;

        for (uint32_t s = 0; s < r->n_stream; s++)
            ok(turn(r, (kvlazy_seq_id)s, 0, size - 3));
        ok(kvlazy_seq_rm(r->cache, 0, (kvlazy_pos)stay, -1));
        touched = stats(r).touched_bytes;
        ok(kvlazy_trim(r->cache, 0));
        sound(r);
        assert_true(cells_zero(r, 0, stay, size));
        assert_int_equal(stats(r).touched_bytes, cover(r));
        assert_int_equal(r->fake.committed_bytes, cover(r));
        released = stats(r).released_bytes;
        assert_int_equal(released, touched - cover(r));
        assert_int_equal(released, r->fake.decommitted_bytes);
        ok(kvlazy_trim(r->cache, 0));
        assert_int_equal(stats(r).released_bytes, released);
        ok(put(r, 0, (kvlazy_pos)stay, 1)); /* grown again: all but the new row is zero */
        assert_true(cells_zero(r, 0, stay + 1, size));
        sound(r);
        rig_free(r);
    }
}

static void a_middle_reads_zero_or_old(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        struct rig *r = open_shape(&shapes[i], rig_new());
        kvlazy_pos size = (kvlazy_pos)r->kv_size;

        ok(turn(r, 0, 0, (uint32_t)size));
        if (r->n_stream > 1)
            ok(turn(r, 1, 0, (uint32_t)size));
        ok(kvlazy_seq_rm(r->cache, 0, 3, size / 3));
        ok(kvlazy_seq_rm(r->cache, 0, size / 3 + 1, size - 1));
        r->fake.now += 750;
        ok(kvlazy_init_batch(r->cache));
        ok(kvlazy_end_batch(r->cache)); /* free pages decay, and nothing moves */
        sound(r);
        assert_int_equal(look(r, 0).pos[size - 1], size - 1);
        assert_int_equal(stats(r).touched_bytes, cover(r));
        ok(kvlazy_trim(r->cache, 0));
        sound(r);
        assert_true(is_packed(r));
        assert_int_equal(stats(r).moved_cells, 2);
        assert_int_equal(stats(r).touched_bytes, cover(r));
        assert_int_equal(stats(r).live_cells, 5 + (r->n_stream > 1 ? size : 0));
        r->fake.now += 1000;
        settle(r);
        ok(turn(r, 0, size, (uint32_t)size - 5));
        sound(r);
        rig_free(r);
    }
}

static void a_neighbour_stream_keeps_its_row(void **state)
{
    struct rig *r = *state;
    static const size_t rows[1][2] = {{36, 36}};

    rig_rows(r, 1, rows);
    r->params.n_stream = r->params.n_seq_max = 2;
    r->params.kv_size = 300; /* stream 1 begins at 10800, inside page 2 */
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(turn(r, 1, 0, 1));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(kvlazy_trim(r->cache, 0));
    sound(r);
    cells_are(r, 1, "0=0/1");
    assert_int_equal(stats(r).touched_bytes, 2 * 4096);
    assert_true(cells_zero(r, 0, 0, 300));
    assert_true(cells_zero(r, 1, 1, 300));
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    ok(turn(r, 0, 0, 1));
    ok(kvlazy_trim(r->cache, 0));
    assert_true(cells_zero(r, 1, 0, 300));
    assert_int_equal(stats(r).touched_bytes, 2 * 4096);
}

static void a_release_inside_one_page(void **state)
{
    struct rig *r = *state;
    static const size_t rows[1][2] = {{34, 0}};

    rig_rows(r, 1, rows);
    rig_open(r);
    ok(turn(r, 0, 0, 100));
    ok(kvlazy_seq_rm(r->cache, 0, 50, -1));
    fake_forget(&r->fake);
    ok(kvlazy_trim(r->cache, 0));
    sound(r);
    assert_int_equal(stats(r).released_bytes, 0);
    assert_true(cells_zero(r, 0, 50, 512));
}

/* ---- hosts that refuse or lie ---- */

static void refused_releases_read_zero(void **state)
{
    struct rig *r = *state;
    uint64_t touched, refusals;

    rig_open(r);
    ok(turn(r, 0, 0, 500));
    ok(kvlazy_seq_rm(r->cache, 0, 100, -1));
    touched = stats(r).touched_bytes;
    r->fake.refuse_decommit = true;
    ok(kvlazy_trim(r->cache, 0));
    sound(r);
    assert_true(cells_zero(r, 0, 100, 512));
    assert_int_equal(stats(r).released_bytes, 0);
    assert_int_equal(stats(r).touched_bytes, touched);
    assert_true(stats(r).n_os_refusal > 0);
    refusals = stats(r).n_os_refusal;
    fake_forget(&r->fake);
    r->fake.now += 499;
    ok(kvlazy_poll(r->cache, NULL)); /* not asked again so soon */
    assert_int_equal(r->fake.n_call[FAKE_DECOMMIT], 0);
    r->fake.now += 251;
    ok(kvlazy_poll(r->cache, NULL));
    assert_true(r->fake.n_call[FAKE_DECOMMIT] > 0);
    assert_true(stats(r).n_os_refusal > refusals);
    assert_int_equal(stats(r).touched_bytes, touched);
    r->fake.refuse_decommit = false;
    settle(r);
    sound(r);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    assert_int_equal(stats(r).released_bytes, touched - cover(r));
    assert_int_equal(r->fake.decommitted_bytes, touched - cover(r));
}

static void one_refused_range_stops_no_other(void **state)
{
    struct rig *r = *state;
    uint64_t touched;

    rig_open(r);
    ok(turn(r, 0, 0, 500));
    ok(kvlazy_seq_rm(r->cache, 0, 100, -1));
    touched = stats(r).touched_bytes;
    /* rows of 512 bytes: pages 13 … 62 are free; the host keeps page 20 */
    r->fake.refuse_lo = (unsigned char *)r->tensor[0].data + 20 * 4096;
    r->fake.refuse_hi = r->fake.refuse_lo + 4096;
    ok(kvlazy_trim(r->cache, 0));
    sound(r);
    assert_true(cells_zero(r, 0, 100, 512));
    assert_true(stats(r).n_os_refusal > 0);
    assert_true(stats(r).released_bytes > 0); /* the other tensors at the least */
    assert_int_equal(stats(r).released_bytes, touched - stats(r).touched_bytes);
    assert_int_equal(r->fake.decommitted_bytes, stats(r).released_bytes);
    assert_int_equal(r->fake.committed_bytes, stats(r).touched_bytes);
    for (int i = 1; i < r->n_tensor; i++) /* … of which all free pages went */
        assert_int_equal(fake_committed(&r->fake, r->tensor[i].data, 512 * r->tensor[i].row_bytes),
                         whole_pages(100 * r->tensor[i].row_bytes, 4096));
    r->fake.refuse_lo = r->fake.refuse_hi = NULL;
    settle(r);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    sound(r);
}

static void refused_at_clear(void **state)
{
    struct rig *r = *state;
    uint64_t touched;

    rig_open(r);
    ok(turn(r, 0, 0, 500));
    touched = stats(r).touched_bytes;
    r->fake.refuse_decommit = true;
    ok(kvlazy_clear(r->cache, true));
    sound(r);
    assert_true(cells_zero(r, 0, 0, 512));
    assert_int_equal(stats(r).touched_bytes, touched);
    assert_int_equal(stats(r).released_bytes, 0);
    assert_true(stats(r).n_os_refusal > 0);
    r->fake.refuse_decommit = false;
    settle(r);
    assert_int_equal(stats(r).touched_bytes, 0);
    assert_int_equal(r->fake.committed_bytes, 0);
}

/* A host whose releases leave the bytes, and one that hands out dirty pages: padding still reads finite. */
static void a_host_that_does_not_zero(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        struct rig *r = rig_new();
        uint32_t size = shapes[i].kv_size;

        r->fake.lazy_decommit = true;
        open_shape(&shapes[i], r);
        ok(turn(r, 0, 0, size));
        ok(kvlazy_seq_rm(r->cache, 0, 5, -1));
        ok(kvlazy_trim(r->cache, 0));
        sound(r);
        assert_true(cells_zero(r, 0, 5, size));
        ok(turn(r, 0, 5, size - 6));
        sound(r);
        r->fake.now += 1000;
        ok(kvlazy_clear(r->cache, true));
        sound(r);
        ok(turn(r, 0, 0, 1));
        assert_true(cells_zero(r, 0, 1, size));
        rig_free(r);
    }
}

static void a_host_with_dirty_pages(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        struct rig *r = rig_new();

        r->fake.dirty_reserve = true;
        r->fake.lazy_decommit = true;
        open_shape(&shapes[i], r);
        ok(turn(r, 0, 0, 3));
        sound(r); /* cells 3 … n_kv are zero, not what the host left there */
        assert_true(cells_zero(r, 0, 3, shapes[i].kv_size < 256 ? shapes[i].kv_size : 256));
        rig_free(r);
    }
}

/* ---- flags and figures ---- */

static void touch_may_be_left_to_the_engine(void **state)
{
    struct rig *r = *state;

    r->params.flags = KVLAZY_NO_COMMIT_AHEAD;
    rig_open(r);
    ok(turn(r, 0, 0, 400));
    sound(r);
    assert_int_equal(r->fake.n_call[FAKE_COMMIT], 0);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    ok(kvlazy_seq_rm(r->cache, 0, 10, -1));
    ok(kvlazy_trim(r->cache, 0));
    sound(r);
    assert_true(r->fake.n_call[FAKE_DECOMMIT] > 0);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    assert_true(cells_zero(r, 0, 10, 512));
}

static void addresses_never_change(void **state)
{
    struct rig *r = *state;
    uint32_t x = 7;

    r->params.kv_size_initial = 64;
    rig_open(r);
    for (int i = 0; i < 1000; i++) {
        uint32_t n = (x = x * 1664525 + 1013904223) >> 24;

        if (kvlazy_room(r->cache, 1) >= n)
            ok(turn(r, 1, kvlazy_seq_pos_max(r->cache, 1) + 1, n + 1 <= kvlazy_room(r->cache, 1) ? n + 1 : n));
        if (i % 2) /* leaves a hole to move into */
            ok(kvlazy_seq_rm(r->cache, 1, (kvlazy_pos)(n / 2), (kvlazy_pos)(n / 2 + 7)));
        ok(kvlazy_trim(r->cache, n % 3 ? 0 : n + 1));
        assert_true(is_packed(r));
        r->fake.now += n;
        ok(kvlazy_poll(r->cache, NULL));
        for (int k = 0, t = 0; k < 3; k++) {
            kvlazy_tensor now;

            ok(kvlazy_k(r->cache, r->layers[k].id, &now));
            assert_memory_equal(&now, &r->tensor[t++], sizeof now);
            t += r->layers[k].v_row_bytes != 0;
        }
    }
    assert_true(stats(r).moved_cells > 100);
    sound(r);
}

static void five_figures(void **state)
{
    (void)state;
    for (int i = 0; i < N_SHAPE; i++) {
        struct rig *r = rig_new();
        kvlazy_plan_info plan = {.struct_size = sizeof plan};
        uint64_t resident = 1;

        r->params.kv_size_initial = 40;
        open_shape(&shapes[i], r);
        ok(kvlazy_plan(&r->params, &plan));
        assert_int_equal(plan.reserved_bytes, stats(r).reserved_bytes);
        assert_int_equal(plan.page_bytes, shapes[i].page);
        ok(turn(r, 0, 0, 70));
        ok(kvlazy_resident(r->cache, &resident));
        assert_int_equal(resident, r->fake.committed_bytes);
        assert_int_equal(stats(r).touched_bytes, resident);
        assert_int_equal(stats(r).live_cells, 70);
        assert_int_equal(stats(r).released_bytes, 0);
        settle(r);
        assert_int_equal(stats(r).live_cells, 40);
        ok(kvlazy_resident(r->cache, &resident));
        assert_int_equal(resident, cover(r));
        assert_true(resident <= plan.initial_bytes);
        assert_true(stats(r).cap_cells >= 40u * r->n_stream);
        rig_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_packed),
        RIG_TEST(an_unknown_layer),
        RIG_TEST(create_touches_nothing),
        cmocka_unit_test(pages_follow_tokens),
        cmocka_unit_test(a_tail_reads_zero),
        cmocka_unit_test(a_middle_reads_zero_or_old),
        RIG_TEST(a_neighbour_stream_keeps_its_row),
        RIG_TEST(a_release_inside_one_page),
        RIG_TEST(refused_releases_read_zero),
        RIG_TEST(one_refused_range_stops_no_other),
        RIG_TEST(refused_at_clear),
        cmocka_unit_test(a_host_that_does_not_zero),
        cmocka_unit_test(a_host_with_dirty_pages),
        RIG_TEST(touch_may_be_left_to_the_engine),
        RIG_TEST(addresses_never_change),
        cmocka_unit_test(five_figures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
