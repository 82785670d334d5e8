/* SPDX-License-Identifier: MIT */
/*
 * The largest caches, paddings, and numbers of sequences, streams and layers. Sums must not overflow, and time must not
 * grow with the square of their number.
 */
#include "support.h"

#include <stdlib.h>
#include <time.h>

static void the_largest_cache(void **state)
{
    struct rig *r = *state;
    static const size_t rows[1][2] = {{1, 0}};

    rig_rows(r, 1, rows);
    r->params.kv_size = INT32_MAX;
    r->params.kv_size_initial = INT32_MAX - 1;
    r->params.n_pad = 1u << 30;
    ok(kvlazy_create(&r->params, &r->cache));
    r->n_stream = 1;
    r->kv_size = 4096; /* enough for what the rig writes down */
    r->n_seq = 4;
    rig_follows(r);
    ok(kvlazy_k(r->cache, r->layers[0].id, &r->tensor[r->n_tensor++]));
    assert_int_equal(stats(r).reserved_bytes, 1u << 31);
    assert_int_equal(kvlazy_room(r->cache, 0), INT32_MAX);
    ok(turn(r, 0, 0, 100));
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 1 << 30);
    assert_int_equal(kvlazy_room(r->cache, 0), INT32_MAX - 100);
    assert_true(stats(r).cap_cells <= INT32_MAX);
    ok(kvlazy_trim(r->cache, 10));
    sound(r);
    assert_int_equal(stats(r).live_cells, 10);
}

static void many_sequences(void **state)
{
    struct rig *r = *state;
    kvlazy_cells_view view = {.struct_size = sizeof view};

    r->params.n_seq_max = 65536;
    r->params.kv_size = 100;
    rig_open(r);
    ok(put(r, 65535, 0, 3));
    ok(put(r, 0, 0, 3));
    ok(put_owned(r, 3, SEQ(65535, 64, 4000), 3, 1)); /* s64 and s4000 are empty: they may start at 3 */
    assert_int_equal(kvlazy_seq_pos_min(r->cache, 4000), 3);
    ok(kvlazy_cells(r->cache, 0, &view));
    cells_are(r, 0, "0..2=0..2/65535 3..5=0..2/0 6=3/64+4000+65535");
    sound(r);
}

static void many_streams(void **state)
{
    struct rig *r = *state;
    static const size_t rows[1][2] = {{34, 2}};

    rig_rows(r, 1, rows);
    r->params.n_stream = r->params.n_seq_max = 3000;
    r->params.kv_size = 10;
    rig_open(r);
    ok(turn(r, 2999, 0, 10));
    ok(turn(r, 1500, 5, 3));
    expect(turn(r, 2999, 10, 1), KVLAZY_ENOSLOT);
    ok(kvlazy_seq_rm(r->cache, -1, 7, -1));
    assert_int_equal(stats(r).live_cells, 9);
    ok(kvlazy_trim(r->cache, 5));
    assert_int_equal(stats(r).live_cells, 7);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    sound(r);
}

/* CPU time of creating a cache and finding every tensor of it. */
static double layer_seconds(uint32_t n_layer)
{
    kvlazy_layer *layers = calloc(n_layer, sizeof *layers);
    kvlazy_params p;
    kvlazy_cache *cache;
    kvlazy_tensor t;

    assert_non_null(layers);
    for (uint32_t i = 0; i < n_layer; i++)
        layers[i] = (kvlazy_layer){.id = i * 40503u, .k_row_bytes = 16, .v_row_bytes = 16}; /* in no order */
    kvlazy_params_init(&p);
    p.kv_size = 16;
    p.layers = layers;
    p.n_layer = n_layer;
    clock_t from = clock();
    ok(kvlazy_create(&p, &cache));
    for (uint32_t i = 0; i < n_layer; i++) {
        ok(kvlazy_k(cache, layers[i].id, &t));
        ok(kvlazy_v(cache, layers[i].id, &t));
    }
    clock_t took = clock() - from;
    kvlazy_destroy(cache);
    layers[n_layer / 3].id = layers[n_layer - 1].id;
    expect(kvlazy_create(&p, &cache), KVLAZY_EINVAL); /* named twice */
    free(layers);
    return (double)took / CLOCKS_PER_SEC;
}

/* Naive: each id is compared with all others, and each tensor is searched for from the first one on. */
static void many_layers(void **state)
{
    double few = 1e9, many = 1e9;

    (void)state;
    for (int i = 0; i < 3; i++) {
        double seconds = layer_seconds(16384);

        few = seconds < few ? seconds : few;
        seconds = layer_seconds(65536);
        many = seconds < many ? seconds : many;
    }
    print_message("65536 layers: %.1f ms, %.1f times those of 16384\n", 1000 * many, many / few);
    assert_true(many <= 6 * few + 0.02);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(the_largest_cache),
        RIG_TEST(many_sequences),
        RIG_TEST(many_streams),
        cmocka_unit_test(many_layers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
