/* SPDX-License-Identifier: MIT */
/*
 * A table of cells that is nothing but a row of flags, over kvlazy's memory: what the engine's own back end never does,
 * an answer of no, cells that go at the wrong end, a look at the figures in the middle of a batch, and a table that
 * leaves questions out.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include <kvlazy/engine_cells.h>
#include <kvlazy/kvlazy.h>

enum { KV_SIZE = 4096, INITIAL = 256, IDLE_MS = 30000, ROW_BYTES = 1024 };

typedef struct table {
    kvlazy_mem mem;
    uint64_t clock_ms;
    kvlazy_cache *cache;
    kvlazy_tensor k;
    uint8_t token[2][KV_SIZE]; /* 0: none; else what its row is full of */
    bool keep;                 /* vacate answers no */
    uint32_t n_asked;
} table;

static uint64_t table_clock(void *ctx)
{
    return ((const table *)ctx)->clock_ms;
}

static uint32_t table_used_end(void *ctx, uint32_t stream)
{
    const table *t = ctx;
    uint32_t end = KV_SIZE;

    while (end > 0 && t->token[stream][end - 1] == 0) {
        end--;
    }
    return end;
}

static bool table_is_used(void *ctx, uint32_t stream, uint32_t cell)
{
    return ((const table *)ctx)->token[stream][cell] != 0;
}

static void table_move(void *ctx, uint32_t stream, uint32_t from, uint32_t to, uint32_t n)
{
    table *t = ctx;

    memcpy(t->token[stream] + to, t->token[stream] + from, n);
    memset(t->token[stream] + from, 0, n);
}

/* The lowest cells go, so that what is left has to move. */
static int table_vacate(void *ctx, uint32_t stream, uint32_t from)
{
    table *t = ctx;
    uint32_t n_used = 0;

    t->n_asked++;
    for (uint32_t cell = 0; cell < KV_SIZE; cell++) {
        n_used += t->token[stream][cell] != 0;
    }
    for (uint32_t cell = 0; !t->keep && cell < KV_SIZE && n_used > from; cell++) {
        n_used -= t->token[stream][cell] != 0;
        t->token[stream][cell] = 0;
    }
    return t->keep;
}

static void open_table(table *t, uint64_t budget_bytes, const kvlazy_cell_ops *ops)
{
    const kvlazy_layer layer = {.k_row_bytes = ROW_BYTES};
    kvlazy_cell_ops own = *ops;
    kvlazy_params params;

    memset(t, 0, sizeof *t);
    t->clock_ms = 1000;
    t->mem = *kvlazy_mem_host();
    t->mem.ctx = t;
    t->mem.now_ms = table_clock;
    own.struct_size = sizeof own;
    own.ctx = t;
    kvlazy_params_init(&params);
    params.kv_size = KV_SIZE;
    params.kv_size_initial = INITIAL;
    params.slot_shrink_idle_ms = IDLE_MS;
    params.n_stream = 2;
    params.n_seq_max = 2;
    params.budget_bytes = budget_bytes;
    params.layers = &layer;
    params.n_layer = 1;
    params.mem = &t->mem;
    params.cell_ops = &own;
    assert_int_equal(kvlazy_create(&params, &t->cache), KVLAZY_OK);
    assert_int_equal(kvlazy_k(t->cache, 0, &t->k), KVLAZY_OK);
}

static char *row_of(const table *t, uint32_t stream, uint32_t cell)
{
    return (char *)t->k.data + stream * t->k.stream_stride + cell * t->k.cell_stride;
}

static int write_cells(table *t, uint32_t stream, uint32_t n)
{
    int status = kvlazy_init_batch(t->cache);

    if (status == KVLAZY_OK) {
        status = kvlazy_touch(t->cache, stream, n);
    }
    for (uint32_t cell = 0; status == KVLAZY_OK && cell < n; cell++) {
        t->token[stream][cell] = (uint8_t)(cell % 251 + 1);
        memset(row_of(t, stream, cell), t->token[stream][cell], ROW_BYTES);
    }
    assert_int_equal(kvlazy_end_batch(t->cache), KVLAZY_OK);
    return status;
}

static uint64_t touched_bytes(const table *t)
{
    kvlazy_stats_info stats = {.struct_size = sizeof stats};

    assert_int_equal(kvlazy_stats(t->cache, &stats), KVLAZY_OK);
    return stats.touched_bytes;
}

/* Every row is what its token says. */
static void look(const table *t)
{
    const char *reason = NULL;

    if (kvlazy_check(t->cache, &reason) != KVLAZY_OK) {
        fail_msg("kvlazy_check: %s", reason);
    }
    for (uint32_t cell = 0; cell < 2 * KV_SIZE; cell++) {
        const uint8_t token = t->token[cell / KV_SIZE][cell % KV_SIZE];
        const uint8_t *row = (const uint8_t *)row_of(t, cell / KV_SIZE, cell % KV_SIZE);

        if (token != 0) {
            assert_int_equal(row[0], token);
            assert_int_equal(row[ROW_BYTES - 1], token);
        }
    }
}

static void pass(table *t, uint64_t ms)
{
    t->clock_ms += ms;
    assert_int_equal(kvlazy_poll(t->cache, NULL), KVLAZY_OK);
    look(t);
}

static const kvlazy_cell_ops all_ops = {
    .used_end = table_used_end, .is_used = table_is_used, .move = table_move, .vacate = table_vacate};

static void no_is_an_answer(void **state)
{
    table t;
    uint64_t next_ms;

    (void)state;
    open_table(&t, 0, &all_ops);
    assert_int_equal(write_cells(&t, 0, 1024), KVLAZY_OK);
    t.keep = true;
    pass(&t, IDLE_MS);
    assert_int_equal(t.n_asked, 1);
    assert_int_equal(table_used_end(&t, 0), 1024);
    assert_int_equal(kvlazy_poll(t.cache, &next_ms), KVLAZY_OK);
    assert_int_equal(t.n_asked, 1);
    assert_int_equal(next_ms, IDLE_MS);

    /* Then yes: what is left lies low, although the stream came to rest long ago. */
    t.keep = false;
    pass(&t, IDLE_MS);
    assert_int_equal(t.n_asked, 2);
    assert_int_equal(table_used_end(&t, 0), INITIAL);
    assert_int_equal(touched_bytes(&t), INITIAL * ROW_BYTES);
    assert_int_equal(kvlazy_cap(t.cache, 0), INITIAL);
    kvlazy_destroy(t.cache);
}

/* Rows that were written are not given back because the table does not name them yet. */
static void a_batch_keeps_what_it_touched(void **state)
{
    table t;

    (void)state;
    open_table(&t, 1024 * ROW_BYTES, &all_ops);
    assert_int_equal(kvlazy_init_batch(t.cache), KVLAZY_OK);
    assert_int_equal(kvlazy_touch(t.cache, 0, 704), KVLAZY_OK);
    memset(row_of(&t, 0, 0), 7, 704 * ROW_BYTES);
    assert_int_equal(touched_bytes(&t), 704 * ROW_BYTES);
    assert_int_equal(kvlazy_touch(t.cache, 1, 704), KVLAZY_EBUDGET);
    memset(t.token[0], 7, 704);
    assert_int_equal(kvlazy_end_batch(t.cache), KVLAZY_OK);
    look(&t);

    /* Dropped, they make room at once. */
    memset(t.token[0], 0, 704);
    pass(&t, 0);
    assert_int_equal(write_cells(&t, 1, 704), KVLAZY_OK);
    look(&t);
    assert_true(touched_bytes(&t) <= 1024 * ROW_BYTES);
    kvlazy_destroy(t.cache);
}

/* Without is_used there are no holes, without move none is closed, without vacate no token goes. */
static void questions_left_out(void **state)
{
    const kvlazy_cell_ops only_end = {.used_end = table_used_end};
    const kvlazy_cell_ops no_move = {.used_end = table_used_end, .is_used = table_is_used};
    table t;

    (void)state;
    for (int i = 0; i < 2; i++) {
        open_table(&t, 0, i ? &no_move : &only_end);
        assert_int_equal(write_cells(&t, 0, 1024), KVLAZY_OK);
        memset(t.token[0], 0, 512);
        memset(t.token[0] + 896, 0, 128);
        pass(&t, IDLE_MS);
        pass(&t, IDLE_MS);
        assert_int_equal(table_used_end(&t, 0), 896);
        assert_int_equal(touched_bytes(&t), (i ? 384 : 896) * ROW_BYTES);
        assert_int_equal(kvlazy_trim(t.cache, 10), KVLAZY_OK);
        look(&t);
        assert_int_equal(table_used_end(&t, 0), 896);
        kvlazy_destroy(t.cache);
    }
}

static void rows_are_copied_across_streams(void **state)
{
    table t;

    (void)state;
    open_table(&t, 0, &all_ops);
    assert_int_equal(write_cells(&t, 0, 128), KVLAZY_OK);
    assert_int_equal(kvlazy_copy_cells(t.cache, 0, 1, 32, 64), KVLAZY_EINVAL); /* no batch is open */
    assert_int_equal(kvlazy_init_batch(t.cache), KVLAZY_OK);
    assert_int_equal(kvlazy_copy_cells(t.cache, 0, 1, 32, 64), KVLAZY_OK);
    memcpy(t.token[1] + 32, t.token[0] + 32, 64);
    assert_int_equal(kvlazy_end_batch(t.cache), KVLAZY_OK);
    look(&t);
    assert_int_equal(kvlazy_trim(t.cache, 0), KVLAZY_OK);
    look(&t);
    assert_int_equal(table_used_end(&t, 1), 64);
    assert_int_equal(touched_bytes(&t), 192 * ROW_BYTES);
    kvlazy_destroy(t.cache);
}

static void calls_that_do_not_exist(void **state)
{
    kvlazy_cells_view view = {.struct_size = sizeof view};
    const kvlazy_ubatch none = {0};
    kvlazy_slot slot;
    table t;

    (void)state;
    open_table(&t, 0, &all_ops);
    assert_int_equal(kvlazy_prepare(t.cache, &none, 1, &slot), KVLAZY_ENOTSUP);
    assert_int_equal(kvlazy_seq_rm(t.cache, 0, -1, -1), KVLAZY_ENOTSUP);
    assert_int_equal(kvlazy_cells(t.cache, 0, &view), KVLAZY_ENOTSUP);
    assert_int_equal(kvlazy_seq_pos_max(t.cache, 0), -1);
    assert_int_equal(kvlazy_room(t.cache, 0), 0);
    assert_int_equal(kvlazy_ensure(t.cache, 0, KV_SIZE + 1), KVLAZY_ENOSLOT);
    assert_int_equal(kvlazy_ensure(t.cache, 0, 300), KVLAZY_OK);
    assert_int_equal(kvlazy_cap(t.cache, 0), 512);
    assert_int_equal(touched_bytes(&t), 0);
    kvlazy_destroy(t.cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_is_an_answer),         cmocka_unit_test(a_batch_keeps_what_it_touched),
        cmocka_unit_test(questions_left_out),      cmocka_unit_test(rows_are_copied_across_streams),
        cmocka_unit_test(calls_that_do_not_exist),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
