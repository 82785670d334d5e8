/* SPDX-License-Identifier: MIT */
/*
 * The recipes of docs/tensors.md, compiled as they stand there and run on the real host: rows are written where the
 * engine of each recipe has them, some tokens go, and after the idle time exactly the pages of the rows that stay are
 * touched and in RAM, with every byte as it was.
 */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvlazy/arena.h>
#include <kvlazy/engine_cells.h>

#include "expect.h"

enum { IDLE = 500, N_LAYER = 3, MOST_LANES = 256, PAGE = 4096 };

/* Where the engine has a part of each cell: bytes at base + cell · step. */
struct lane {
    unsigned char *base;
    size_t step, bytes;
};

struct stand {
    kvlazy_mem mem; /* the host, with a clock that is moved by hand */
    uint64_t now;
    kvlazy_params params;
    kvlazy_layer layers[2 * N_LAYER];
    kvlazy_tensor k[N_LAYER], v[N_LAYER];
    kvlazy_cell_ops told;
    kvlazy_cache *cache;
    kvlazy_arena *arena[2];
    struct lane lane[MOST_LANES];
    int n_lane;
};

static uint64_t now_ms(void *ctx)
{
    return ((struct stand *)ctx)->now;
}

static void open_cache(struct stand *s, uint32_t n_layer, uint32_t kv_size)
{
    s->params.layers = s->layers;
    s->params.n_layer = n_layer;
    s->params.kv_size = kv_size;
    ok(kvlazy_create(&s->params, &s->cache));
}

static void add_lane(struct stand *s, void *base, size_t step, size_t bytes)
{
    assert_true(s->n_lane < MOST_LANES);
    s->lane[s->n_lane++] = (struct lane){base, step, bytes};
}

/* The rows of a tensor as the library tells where they lie. */
static void add_rows(struct stand *s, uint32_t layer_id, bool is_v)
{
    kvlazy_tensor t;

    ok((is_v ? kvlazy_v : kvlazy_k)(s->cache, layer_id, &t));
    for (uint32_t c = 0; c < (t.n_channel ? t.n_channel : 1); c++)
        add_lane(s, (char *)t.data + c * t.channel_stride, t.cell_stride,
                 t.row_bytes / (t.n_channel ? t.n_channel : 1));
}

static unsigned char byte_of(int lane, uint32_t cell, size_t i)
{
    return (unsigned char)(1 + (cell * 31 + (uint32_t)lane * 7 + (uint32_t)i) % 255);
}

static void write_cells(struct stand *s, uint32_t begin, uint32_t end)
{
    for (int l = 0; l < s->n_lane; l++)
        for (uint32_t cell = begin; cell < end; cell++)
            for (size_t i = 0; i < s->lane[l].bytes; i++)
                s->lane[l].base[cell * s->lane[l].step + i] = byte_of(l, cell, i);
}

static void cells_hold(struct stand *s, uint32_t begin, uint32_t end)
{
    for (int l = 0; l < s->n_lane; l++)
        for (uint32_t cell = begin; cell < end; cell++)
            for (size_t i = 0; i < s->lane[l].bytes; i++)
                if (s->lane[l].base[cell * s->lane[l].step + i] != byte_of(l, cell, i))
                    fail_msg("lane %d cell %u byte %zu", l, cell, i);
}

static int by_number(const void *a, const void *b)
{
    const uintptr_t p = *(const uintptr_t *)a, q = *(const uintptr_t *)b;

    return (p > q) - (p < q);
}

/* The pages of these cells' rows in all lanes, each once, found row by row. */
static uint64_t cover_bytes(const struct stand *s, uint32_t begin, uint32_t end)
{
    size_t n_most = 1;

    for (int l = 0; l < s->n_lane; l++)
        n_most += (end - begin) * (s->lane[l].bytes / PAGE + 2);
    uintptr_t *page = calloc(n_most, sizeof *page);
    size_t n = 0, n_unique = 0;

    assert_non_null(page);
    for (int l = 0; l < s->n_lane; l++)
        for (uint32_t cell = begin; cell < end; cell++) {
            const uintptr_t at = (uintptr_t)s->lane[l].base + cell * s->lane[l].step;

            for (uintptr_t p = at / PAGE; p <= (at + s->lane[l].bytes - 1) / PAGE; p++) {
                assert_true(n < n_most);
                page[n++] = p;
            }
        }
    qsort(page, n, sizeof *page, by_number);
    for (size_t i = 0; i < n; i++)
        n_unique += i == 0 || page[i] != page[i - 1];
    free(page);
    return n_unique * PAGE;
}

/* Only the rows of these cells take memory, and no byte of them changed. */
static void only_these_stay(struct stand *s, uint32_t begin, uint32_t end)
{
    kvlazy_stats_info stats = {.struct_size = sizeof stats};
    const char *why = NULL;
    uint64_t resident;

    if (kvlazy_check(s->cache, &why))
        fail_msg("%s", why);
    ok(kvlazy_stats(s->cache, &stats));
    assert_int_equal(stats.touched_bytes, cover_bytes(s, begin, end));
    ok(kvlazy_resident(s->cache, &resident));
    assert_int_equal(resident, stats.touched_bytes);
    cells_hold(s, begin, end);
}

static void rest(struct stand *s)
{
    s->now += IDLE + IDLE / 2;
    ok(kvlazy_poll(s->cache, NULL));
}

/* ---- tokens of the library's cells ---- */

static void put_tokens(struct stand *s, uint32_t begin, uint32_t end)
{
    kvlazy_pos *pos = calloc(end - begin, sizeof *pos);
    kvlazy_seq_id *seq = calloc(end - begin, sizeof *seq);
    kvlazy_ubatch ubatch = {.n_token = end - begin, .pos = pos, .seq = seq};
    kvlazy_slot slot;

    assert_true(pos && seq);
    for (uint32_t i = begin; i < end; i++)
        pos[i - begin] = (kvlazy_pos)i;
    ok(kvlazy_init_batch(s->cache));
    ok(kvlazy_prepare(s->cache, &ubatch, 1, &slot));
    ok(kvlazy_apply_ubatch(s->cache, &slot, &ubatch));
    for (uint32_t i = 0; i < slot.n_token; i++)
        assert_int_equal(slot.cell[i], begin + i);
    write_cells(s, begin, end);
    ok(kvlazy_end_batch(s->cache));
    free(pos);
    free(seq);
}

/* A conversation grows, is cut, rests, grows again and goes. */
static void talk(struct stand *s)
{
    put_tokens(s, 0, 900);
    put_tokens(s, 900, 1000);
    only_these_stay(s, 0, 1000);
    ok(kvlazy_seq_rm(s->cache, 0, 300, -1));
    rest(s);
    only_these_stay(s, 0, 300);
    put_tokens(s, 300, 500);
    only_these_stay(s, 0, 500);
    ok(kvlazy_seq_rm(s->cache, 0, -1, -1));
    rest(s);
    only_these_stay(s, 0, 0);
}

static void neighbours(void **state)
{
    struct stand *s = *state;
    kvlazy_layer *layers = s->layers;
    const uint32_t n_layer = N_LAYER;
    const size_t k_bytes = 512, v_bytes = 272;
    kvlazy_tensor k;

#define RECIPE_K_AND_V_OF_A_CELL_AS_NEIGHBOURS_1
#include "recipes.inc"
    open_cache(s, n_layer, 2048);
    for (uint32_t i = 0; i < n_layer; i++) {
        ok(kvlazy_k(s->cache, i, &k));
        add_lane(s, k.data, k_bytes + v_bytes, k_bytes);
        add_lane(s, (char *)k.data + k_bytes, k_bytes + v_bytes, v_bytes);
    }
    talk(s);
}

static void scales(void **state)
{
    struct stand *s = *state;
    kvlazy_layer *layers = s->layers;
    const uint32_t n_layer = N_LAYER;

#define RECIPE_SCALES_IN_ARRAYS_OF_THEIR_OWN_1
#include "recipes.inc"
    open_cache(s, 2 * n_layer, 2048);
    for (uint32_t i = 0; i < n_layer; i++) {
        add_rows(s, i, false);
        add_rows(s, i, true);
        add_rows(s, n_layer + i, true);
    }
    talk(s);
}

static void lanes_of_heads(void **state)
{
    struct stand *s = *state;
    kvlazy_layer *layers = s->layers;
    kvlazy_tensor *k = s->k;
    kvlazy_arena *arena;
    const uint32_t n_layer = N_LAYER, n_head = 8, kv_size = 2048;
    const size_t head_bytes = 128;
    void *base;

#define RECIPE_LANES_OF_HEADS_1
#include "recipes.inc"
    s->arena[0] = arena;
    open_cache(s, n_layer, kv_size);
    for (uint32_t i = 0; i < n_layer; i++) {
        for (uint32_t h = 0; h < n_head; h++)
            add_lane(s, (char *)base + ((size_t)i * n_head + h) * kv_size * head_bytes, head_bytes, head_bytes);
        add_rows(s, i, true);
    }
    assert_int_equal(s->n_lane, 2 * N_LAYER * n_head);
    talk(s);
}

static void two_arenas(void **state)
{
    struct stand *s = *state;
    kvlazy_layer *layers = s->layers;
    kvlazy_tensor *k = s->k, *v = s->v;
    kvlazy_arena *k_arena, *v_arena;
    const uint32_t n_layer = N_LAYER, kv_size = 2048, row_bytes = 512;
    void *k_base, *v_base;

#define RECIPE_K_AND_V_IN_TWO_ARENAS_1
#include "recipes.inc"
    s->arena[0] = k_arena;
    s->arena[1] = v_arena;
    open_cache(s, 2 * n_layer, kv_size);
    for (uint32_t i = 0; i < n_layer; i++) {
        add_lane(s, (char *)k_base + (size_t)i * kv_size * row_bytes, row_bytes, row_bytes);
        add_lane(s, (char *)v_base + (size_t)i * kv_size * row_bytes, row_bytes, row_bytes);
    }
    talk(s);
}

/* ---- cells of the engine's own ---- */

/* Two caches on one stand: which one is looked at. */
static void look_at(struct stand *s, kvlazy_cache *cache, uint32_t layer_id)
{
    s->cache = cache;
    s->n_lane = 0;
    add_rows(s, layer_id, false);
}

static void fractions_of_the_rate(void **state)
{
    struct stand *s = *state;
    kvlazy_layer *layers = s->layers;
    kvlazy_params params = s->params;
    kvlazy_cell_ops told = s->told;
    kvlazy_cache *quarter, *slow;
    const uint32_t kv_size = 16384;
    uint32_t n_old = 0, n_new, n_kept = 2050;

    layers[0] = (kvlazy_layer){.id = 0, .k_row_bytes = 1024};
    layers[1] = (kvlazy_layer){.id = 1, .k_row_bytes = 2048};
#define RECIPE_CACHES_AT_A_FRACTION_OF_THE_TOKEN_RATE_1
#include "recipes.inc"
    for (n_new = 1; n_new <= 8001; n_old = n_new, n_new += n_old % 5 ? 7 : 90) {
#define RECIPE_CACHES_AT_A_FRACTION_OF_THE_TOKEN_RATE_2
#include "recipes.inc"
        look_at(s, quarter, 0);
        write_cells(s, n_old / 4, n_new / 4);
        look_at(s, slow, 1);
        write_cells(s, n_old / 128, n_new / 128);
#define RECIPE_CACHES_AT_A_FRACTION_OF_THE_TOKEN_RATE_3
#include "recipes.inc"
    }
    assert_true(n_old > 7900);
    rest(s);
    look_at(s, quarter, 0);
    only_these_stay(s, 0, n_old / 4);
    look_at(s, slow, 1);
    only_these_stay(s, 0, n_old / 128);
#define RECIPE_CACHES_AT_A_FRACTION_OF_THE_TOKEN_RATE_4
#include "recipes.inc"
    rest(s);
    only_these_stay(s, 0, n_kept / 128);
    look_at(s, quarter, 0);
    only_these_stay(s, 0, n_kept / 4);
    kvlazy_destroy(slow);
}

static void a_ring(void **state)
{
    struct stand *s = *state;
    kvlazy_params params = s->params;
    kvlazy_cell_ops told = s->told;
    kvlazy_cache *cache;
    const uint32_t n_ring = 1000;

    s->layers[0] = (kvlazy_layer){.id = 0, .k_row_bytes = 1024, .v_row_bytes = 1024};
    params.layers = s->layers;
    params.n_layer = 1;
#define RECIPE_A_RING_1
#include "recipes.inc"
    s->cache = cache;
    add_rows(s, 0, false);
    add_rows(s, 0, true);
    for (uint32_t pos = 0; pos < 2345; pos++) {
#define RECIPE_A_RING_2
#include "recipes.inc"
        write_cells(s, pos % n_ring, pos % n_ring + 1);
#define RECIPE_A_RING_3
#include "recipes.inc"
        if (pos == 350) {
            rest(s);
            only_these_stay(s, 0, 351);
        }
    }
    rest(s);
    only_these_stay(s, 0, n_ring);
#define RECIPE_A_RING_4
#include "recipes.inc"
    rest(s);
    only_these_stay(s, 0, 0);
}

static void a_block_as_a_cell(void **state)
{
    struct stand *s = *state;
    kvlazy_layer *layers = s->layers;
    kvlazy_params params = s->params;
    kvlazy_cell_ops told = s->told;
    kvlazy_cache *cache;
    const uint32_t n_block_token = 32, n_block = 300;
    const size_t row_bytes = 1024;
    uint32_t block[] = {4, 5, 6, 200, 7, 8}, n = 6;

#define RECIPE_A_BLOCK_AS_A_CELL_1
#include "recipes.inc"
    s->cache = cache;
    add_rows(s, 0, false);
    add_rows(s, 0, true);
#define RECIPE_A_BLOCK_AS_A_CELL_2
#include "recipes.inc"
    for (uint32_t i = 0; i < n; i++)
        write_cells(s, block[i], block[i] + 1);
#define RECIPE_A_BLOCK_AS_A_CELL_3
#include "recipes.inc"
    rest(s);
    uint64_t touched = cover_bytes(s, 4, 9) + cover_bytes(s, 200, 201);
    kvlazy_stats_info stats = {.struct_size = sizeof stats};
    ok(kvlazy_stats(cache, &stats));
    assert_int_equal(stats.touched_bytes, touched);
    memmove(block, block + 3, 2 * sizeof *block); /* 200 and 7 */
    n = 2;
#define RECIPE_A_BLOCK_AS_A_CELL_4
#include "recipes.inc"
    rest(s);
    cells_hold(s, 4, 7);
    cells_hold(s, 8, 9);
    ok(kvlazy_stats(cache, &stats));
    assert_int_equal(stats.touched_bytes, cover_bytes(s, 4, 7) + cover_bytes(s, 8, 9));
}

/* ---- around them ---- */

static int setup(void **state)
{
    struct stand *s = calloc(1, sizeof *s);

    assert_non_null(s);
    s->now = 1000;
    s->mem = *kvlazy_mem_host();
    s->mem.ctx = s;
    s->mem.now_ms = now_ms;
    kvlazy_params_init(&s->params);
    s->params.page_bytes = PAGE; /* whatever the host grants: pages are counted */
    s->params.mem = &s->mem;
    s->params.slot_shrink_idle_ms = IDLE;
    s->params.host_root = "";
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct stand *s = *state;

    kvlazy_destroy(s->cache);
    for (int i = 0; i < 2; i++)
        ok(kvlazy_arena_destroy(s->arena[i]));
    free(s);
    return 0;
}

#define RECIPE_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RECIPE_TEST(neighbours),
        RECIPE_TEST(scales),
        RECIPE_TEST(lanes_of_heads),
        RECIPE_TEST(two_arenas),
        RECIPE_TEST(fractions_of_the_rate),
        RECIPE_TEST(a_ring),
        RECIPE_TEST(a_block_as_a_cell),
    };

    return sysconf(_SC_PAGESIZE) == PAGE ? cmocka_run_group_tests_name("recipes", tests, NULL, NULL) : 77;
}
