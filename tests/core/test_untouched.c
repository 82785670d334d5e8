/* SPDX-License-Identifier: MIT */
/*
 * Rows that were written outside a batch, or without being touched: trim, clear(true) and a stream that comes to rest
 * give back every page outside live cells, whatever the library knows of it, and no live byte.
 */
#include "engine_cells_support.h"

#include <stdlib.h>
#include <string.h>

#include <kvlazy/arena.h>

/* A rotation over all rows, or a restore after its batch: every row that holds no token. */
static void write_all(struct desk *d)
{
    for (uint32_t s = 0; s < STREAMS; s++)
        for (uint32_t i = 0; i < d->bed->kv_size; i++)
            if (!d->used[s][i])
                bed_write(d->bed, s, i, ++d->bed->last_stamp);
}

static uint64_t resident(struct desk *d)
{
    uint64_t bytes = 0;

    ok(kvlazy_resident(d->bed->cache, &bytes));
    return bytes;
}

static void open_asking(struct desk *d)
{
    d->bed->fake.ask_kernel = true;
    bed_open(d->bed);
}

static void clear_gives_back_what_was_never_touched(void **state)
{
    struct desk *d = *state;

    open_asking(d);
    write_all(d);
    assert_true(resident(d) > 1 << 20);
    ok(kvlazy_clear(d->bed->cache, true));
    assert_int_equal(resident(d), 0);
    assert_int_equal(bed_stats(d->bed).released_bytes, 0); /* none of it was touched */
    sound_released(d);
}

static void trim_gives_back_all_outside_live_cells(void **state)
{
    struct desk *d = *state;

    open_asking(d);
    ok(write_cells(d, 0, 0, 80));
    ok(write_cells(d, 2, 0, 30));
    write_all(d);
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(resident(d), touched(d));
    sound(d);
    ok(write_cells(d, 0, 80, 90));
    sound(d);
}

static void without_moving_the_holes_go_too(void **state)
{
    struct desk *d = *state;

    d->ops.move = NULL;
    open_asking(d);
    ok(write_cells(d, 1, 0, 300));
    empty_cells(d, 1, 20, 280);
    ok(kvlazy_trim(d->bed->cache, 0));
    write_all(d);
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(resident(d), touched(d));
    sound(d);
}

static void clear_without_data_waits(void **state)
{
    struct desk *d = *state;

    open_asking(d);
    write_all(d);
    uint64_t all = resident(d);
    ok(kvlazy_clear(d->bed->cache, false));
    assert_int_equal(resident(d), all);
    ok(kvlazy_trim(d->bed->cache, 0));
    assert_int_equal(resident(d), 0);
    sound_released(d);
}

/* ---- at rest ---- */

static void a_stream_at_rest_keeps_live_cells_alone(void **state)
{
    struct desk *d = *state;

    open_asking(d);
    ok(write_cells(d, 0, 0, 80));
    write_all(d);
    assert_true(resident(d) > touched(d) + (1 << 20));
    poll_at(d, 1000 + IDLE);
    assert_int_equal(resident(d), touched(d));
    sound(d);
    ok(write_cells(d, 0, 80, 90));
    poll_at(d, 2000 + IDLE);
    assert_int_equal(resident(d), touched(d));
    sound(d);
}

static void a_busy_stream_keeps_its_own(void **state)
{
    struct desk *d = *state;

    open_asking(d);
    ok(write_cells(d, 0, 0, 20));
    ok(write_cells(d, 1, 0, 20));
    write_all(d); /* of three streams, the last of which never had a token */
    uint64_t all = resident(d);
    d->bed->fake.now = 1000 + IDLE;
    ok(write_cells(d, 1, 20, 21));
    poll_at(d, 1000 + IDLE);
    uint64_t after_one = resident(d);
    assert_in_range(after_one, all / 2, all * 3 / 4);
    poll_at(d, 1000 + 2 * IDLE);
    assert_int_equal(resident(d), touched(d)); /* the last one came to rest: all are searched */
    sound(d);
}

/* A restore that fills the table and the rows and tells nothing. */
static void what_the_table_holds_stays_untouched_or_not(void **state)
{
    struct desk *d = *state;

    d->ops.move = NULL;
    d->ops.vacate = NULL;
    open_asking(d);
    ok(write_cells(d, 0, 0, 10));
    for (uint32_t i = 200; i < 260; i++)
        bed_write(d->bed, 0, i, d->used[0][i] = ++d->bed->last_stamp);
    write_all(d);
    uint64_t all = resident(d);
    poll_at(d, 1000 + IDLE); /* the table says: just filled */
    poll_at(d, 1000 + 2 * IDLE);
    assert_in_range(resident(d), touched(d) + 1, all / 2);
    for (uint32_t i = 200; i < 260; i++) /* kvlazy_check would say that live cells lie on pages that are not touched */
        assert_true(bed_holds(d->bed, 0, i, d->used[0][i]));
    empty_cells(d, 0, 200, 260);
    poll_at(d, 2000 + 2 * IDLE);
    ok(write_cells(d, 0, 10, 11));
    poll_at(d, 2000 + 4 * IDLE);
    assert_int_equal(resident(d), touched(d));
    sound(d);
}

/* ---- layouts ---- */

/* Writes every cell without a token, of whatever layout, without a word. */
static void write_free_cells(struct bed *bed)
{
    for (uint32_t s = 0; s < bed->n_stream; s++) {
        kvlazy_cells_view view = bed_view(bed, s);

        for (uint32_t i = 0; i < bed->kv_size; i++)
            if (i >= view.n_cell || view.pos[i] < 0)
                bed_write(bed, s, i, ++bed->last_stamp);
    }
}

/* Bytes that no layer names keep their page, and what they say; so do the bytes between rows. */
static void own_layouts_give_back_whole_pages_alone(void **state)
{
    struct bed *bed = bed_new(4096);

    (void)state;
    bed->fake.ask_kernel = true;
    bed->params.n_stream = bed->params.n_seq_max = 2;
    kvlazy_layer *layer[2] = {bed_layer(bed, 1088, 512, 16), bed_layer(bed, 512, 8192, 0)};
    bed_layer(bed, 272, 36, 9);
    kvlazy_tensor t[3] = {bed_packed(512, 16, 512, 2), bed_packed(512, 0, 512, 2), bed_packed(8192, 0, 512, 2)};
    t[0].channel_stride += 8;
    t[0].stream_stride = 16 * t[0].channel_stride;
    t[2].cell_stride += 100; /* every page has bytes of the engine, or lies within a row */
    t[2].stream_stride = 512 * t[2].cell_stride;
    size_t at[3] = {4096 + 60, 0, 0};
    at[1] = at[0] + bed_tensor_bytes(&t[0], 512, 2);
    at[2] = at[1] + bed_tensor_bytes(&t[1], 512, 2) + 10000;
    struct bed_area *area = bed_arena(bed, at[2] + bed_tensor_bytes(&t[2], 512, 2) + 5000);
    for (int i = 0; i < 3; i++)
        t[i].data = area->base + at[i];
    layer[0]->v = &t[0];
    layer[1]->k = &t[1];
    layer[1]->v = &t[2];
    layer[0]->arena = layer[1]->arena = area->arena;
    bed_open(bed);
    ok(bed_turn(bed, 0, 200));
    ok(bed_turn(bed, 1, 300));
    write_free_cells(bed);
    uint64_t bytes, all;
    ok(kvlazy_resident(bed->cache, &all));
    bed->fake.now += 500;
    ok(kvlazy_poll(bed->cache, NULL));
    ok(kvlazy_resident(bed->cache, &bytes));
    assert_in_range(bytes, bed_live_cover(bed), bed_live_cover(bed) + (all - bed_live_cover(bed)) / 2);
    bed_sound(bed);
    *state = bed;
    bed_teardown(state);
}

/* ---- in pieces ---- */

enum { LONG_CELLS = 1 << 20, LONG_ROW = 8192 }; /* 8 GiB of address space */

struct host {
    kvlazy_mem mem;
    uint64_t now, asked_bytes, given_bytes;
};

static uint64_t host_now(void *ctx)
{
    return ((struct host *)ctx)->now;
}

static size_t host_resident(void *ctx, const void *addr, size_t bytes)
{
    ((struct host *)ctx)->asked_bytes += bytes;
    return kvlazy_mem_host()->resident(kvlazy_mem_host()->ctx, addr, bytes);
}

static size_t host_decommit(void *ctx, const kvlazy_range *range, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((struct host *)ctx)->given_bytes +=
            kvlazy_mem_host()->resident(kvlazy_mem_host()->ctx, range[i].addr, range[i].bytes);
    return kvlazy_mem_host()->decommit(kvlazy_mem_host()->ctx, range, n);
}

static void one_token(kvlazy_cache *c, kvlazy_seq_id seq)
{
    const kvlazy_pos pos = kvlazy_seq_pos_max(c, seq) + 1;
    const kvlazy_ubatch ubatch = {.n_token = 1, .pos = &pos, .seq = &seq};
    kvlazy_slot slot;

    ok(kvlazy_init_batch(c));
    ok(kvlazy_prepare(c, &ubatch, 1, &slot));
    ok(kvlazy_apply_ubatch(c, &slot, &ubatch));
    ok(kvlazy_end_batch(c));
}

/* Polls until there is nothing to do. No poll asks about or gives back more than a piece. */
static uint32_t poll_out(struct host *h, kvlazy_cache *c)
{
    uint64_t next_ms = 0;
    uint32_t n_poll = 0;

    for (; next_ms == 0; n_poll++) {
        h->asked_bytes = h->given_bytes = 0;
        ok(kvlazy_poll(c, &next_ms));
        assert_in_range(h->asked_bytes, 0, (1u << 30) + (64 << 20));
        assert_in_range(h->given_bytes, 0, 2 * (64 << 20));
    }
    assert_true(next_ms == UINT64_MAX);
    return n_poll;
}

static kvlazy_cache *open_long(struct host *h, uint32_t n_stream, kvlazy_tensor *k)
{
    const kvlazy_layer layer = {.id = 0, .k_row_bytes = LONG_ROW};
    kvlazy_plan_info plan = {.struct_size = sizeof plan};
    kvlazy_params params;
    kvlazy_cache *c;

    *h = (struct host){.mem = *kvlazy_mem_host(), .now = 1000};
    h->mem.ctx = h;
    h->mem.now_ms = host_now;
    h->mem.resident = host_resident;
    h->mem.decommit = host_decommit;
    kvlazy_params_init(&params);
    params.page_bytes = 4096; /* whatever the host grants: pages are counted */
    params.kv_size = LONG_CELLS;
    params.n_stream = params.n_seq_max = n_stream;
    params.layers = &layer;
    params.n_layer = 1;
    params.slot_shrink_idle_ms = IDLE;
    params.mem = &h->mem;
    params.host_root = "";
    ok(kvlazy_plan(&params, &plan));
    if (plan.writable_cells < LONG_CELLS)
        skip(); /* a host that grants no such reservation to be written anywhere */
    ok(kvlazy_create(&params, &c));
    ok(kvlazy_k(c, 0, k));
    return c;
}

static void write_untold(const kvlazy_tensor *k, uint32_t stream, size_t cell, size_t n)
{
    memset((char *)k->data + stream * k->stream_stride + cell * LONG_ROW, 7, n * LONG_ROW);
}

static void only_tokens_are_resident(kvlazy_cache *c, uint32_t n_token)
{
    uint64_t bytes;

    ok(kvlazy_resident(c, &bytes));
    assert_int_equal(bytes, (uint64_t)n_token * LONG_ROW);
}

static void a_large_reservation_is_searched_in_pieces(void **state)
{
    struct host h;
    kvlazy_tensor k;
    kvlazy_cache *c = open_long(&h, 1, &k);

    (void)state;
    one_token(c, 0);
    for (size_t i = 1; i < LONG_CELLS; i += 40000)
        write_untold(&k, 0, i, 1);
    write_untold(&k, 0, 500000, 20000); /* 156 MiB at one place */
    h.now += IDLE;
    assert_in_range(poll_out(&h, c), 4, 20);
    only_tokens_are_resident(c, 1);

    one_token(c, 0); /* in the middle of a search the stream wakes */
    write_untold(&k, 0, 900000, 1);
    h.now += IDLE;
    ok(kvlazy_poll(c, NULL));
    one_token(c, 0);
    h.now += IDLE;
    poll_out(&h, c);
    only_tokens_are_resident(c, 3);
    kvlazy_destroy(c);
}

static void what_rests_during_a_search_is_searched_next(void **state)
{
    struct host h;
    kvlazy_tensor k;
    kvlazy_cache *c = open_long(&h, 3, &k);

    (void)state;
    for (int round = 0; round < 40; round++) { /* every few pieces another one comes to rest */
        one_token(c, round % 2);
        write_untold(&k, (uint32_t)(round % 3), 1000000, 1);
        h.now += IDLE;
        for (int n = 0; n < 3; n++)
            ok(kvlazy_poll(c, NULL));
    }
    assert_in_range(poll_out(&h, c), 1, 60);
    only_tokens_are_resident(c, 40);
    kvlazy_destroy(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DESK_TEST(clear_gives_back_what_was_never_touched),
        DESK_TEST(trim_gives_back_all_outside_live_cells),
        DESK_TEST(without_moving_the_holes_go_too),
        DESK_TEST(clear_without_data_waits),
        DESK_TEST(a_stream_at_rest_keeps_live_cells_alone),
        DESK_TEST(a_busy_stream_keeps_its_own),
        DESK_TEST(what_the_table_holds_stays_untouched_or_not),
        cmocka_unit_test(own_layouts_give_back_whole_pages_alone),
        cmocka_unit_test(a_large_reservation_is_searched_in_pieces),
        cmocka_unit_test(what_rests_during_a_search_is_searched_next),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
