/* SPDX-License-Identifier: MIT */
/*
 * Linked caches whose tensors lie in one arena and do not begin or end on pages: a page under two of them counts for
 * both, so that what one touches there has to fit the limits of the other.
 */
#include "support.h"
#include "unit.h"

#include <kvlazy/arena.h>
#include <kvlazy/pool.h>

#include <stdlib.h>
#include <string.h>

enum { PAGE = 4096, CACHES = 3, LAYERS = 6, CELLS = 40, STREAMS = 2, ROW = 300 };

/* The tensors of all caches in turn, each right behind the one before:
 *
 *     page   |         0         |         1         |         2         |
 *     tensor | a 0 .......................| b 0 .......................| c 0 .....
 */
struct shared {
    struct fake_mem fake;
    kvlazy_arena *arena;
    char *base;
    kvlazy_cache *cache[CACHES];
    kvlazy_slot slot[CACHES];
    uint64_t budget[CACHES];
    kvlazy_pool *pool;
};

static void open_caches(struct shared *s)
{
    static kvlazy_layer layer[CACHES][LAYERS];
    static kvlazy_tensor k[CACHES][LAYERS];
    const size_t bytes = (size_t)ROW * CELLS * STREAMS;
    void *base;

    ok(kvlazy_arena_create(&s->fake.table, bytes * CACHES * LAYERS, &s->arena, &base));
    s->base = base;
    for (int c = 0; c < CACHES; c++) {
        kvlazy_params p;

        kvlazy_params_init(&p);
        for (uint32_t l = 0; l < LAYERS; l++) {
            k[c][l] = (kvlazy_tensor){.data = s->base + bytes * (l * CACHES + (size_t)c),
                                      .cell_stride = ROW,
                                      .stream_stride = (size_t)ROW * CELLS,
                                      .row_bytes = ROW};
            layer[c][l] = (kvlazy_layer){.id = l, .k_row_bytes = ROW, .k = &k[c][l], .arena = s->arena};
        }
        p.mem = &s->fake.table;
        p.kv_size = CELLS;
        p.n_stream = p.n_seq_max = STREAMS;
        p.layers = layer[c];
        p.n_layer = LAYERS;
        p.with = c ? s->cache[0] : NULL;
        p.budget_bytes = s->budget[c];
        p.pool = s->pool;
        ok(kvlazy_create(&p, &s->cache[c]));
    }
}

static int setup(void **state)
{
    struct shared *s = calloc(1, sizeof *s);

    assert_non_null(s);
    fake_init(&s->fake);
    s->fake.now = 1000;
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    struct shared *s = *state;

    for (int c = 0; c < CACHES; c++) {
        assert_int_equal(kvlazy_check(s->cache[c], NULL), KVLAZY_OK);
        kvlazy_destroy(s->cache[c]);
    }
    ok(kvlazy_arena_destroy(s->arena));
    ok(kvlazy_pool_destroy(s->pool));
    assert_int_equal(s->fake.sum[KVLAZY_COUNT_PROMISED], 0);
    assert_int_equal(s->fake.sum[KVLAZY_COUNT_TAKEN], 0);
    fake_assert_kept(&s->fake);
    fake_done(&s->fake);
    free(s);
    return 0;
}

#define SHARED_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static const kvlazy_ubatch *some(kvlazy_cache *c, kvlazy_seq_id seq, uint32_t n)
{
    static kvlazy_pos pos[CELLS];
    static kvlazy_seq_id seqs[CELLS];
    static kvlazy_ubatch u;

    for (uint32_t i = 0; i < n; i++) {
        pos[i] = kvlazy_seq_pos_max(c, seq) + 1 + (kvlazy_pos)i;
        seqs[i] = seq;
    }
    u = UBATCH(n, pos, seqs);
    return &u;
}

static uint64_t touched(struct shared *s, int c)
{
    kvlazy_stats_info info = {.struct_size = sizeof info};

    ok(kvlazy_stats(s->cache[c], &info));
    return info.touched_bytes;
}

static int plan(struct shared *s, int c, kvlazy_seq_id seq, uint32_t n)
{
    return kvlazy_prepare(s->cache[c], some(s->cache[c], seq, n), 1, &s->slot[c]);
}

static int apply(struct shared *s, int c, kvlazy_seq_id seq, uint32_t n)
{
    return kvlazy_apply_ubatch(s->cache[c], &s->slot[c], some(s->cache[c], seq, n));
}

static int take(struct shared *s, int c, kvlazy_seq_id seq, uint32_t n)
{
    int status = plan(s, c, seq, n);

    status = status ? status : apply(s, c, seq, n);
    ok(kvlazy_end_batch(s->cache[c]));
    return status;
}

static void hold(struct shared *s)
{
    for (int c = 0; c < CACHES; c++)
        if (s->budget[c])
            assert_in_range(touched(s, c), 0, s->budget[c]);
}

/* The first cache has no limit of its own; the second may touch no page. */
static void what_one_touches_fits_the_other(void **state)
{
    struct shared *s = *state;

    s->budget[1] = PAGE;
    open_caches(s);
    ok(take(s, 0, 0, CELLS)); /* the first stream: its pages are under no other, but for the first one */
    hold(s);
    expect(take(s, 0, 1, CELLS), KVLAZY_EBUDGET); /* and the second runs into the next tensors */
    assert_int_equal(kvlazy_refused(s->cache[0]), 1);
    hold(s);
    ok(take(s, 0, 1, 20));
    hold(s);
}

/* Free pages of the cache whose limit is met go, before the other is refused. */
static void free_pages_of_the_other_go_first(void **state)
{
    struct shared *s = *state;

    s->budget[1] = 18 * PAGE;
    open_caches(s);
    ok(take(s, 1, 0, 12)); /* a page or two of six tensors each */
    ok(kvlazy_seq_rm(s->cache[1], 0, 0, -1));
    assert_in_range(touched(s, 1), 6 * PAGE, 18 * PAGE);
    ok(take(s, 0, 0, CELLS));
    ok(take(s, 2, 0, CELLS));
    hold(s);
    ok(take(s, 0, 1, CELLS));
    hold(s);
}

/* Plans, copies and releases in any order: no budget is passed, no plan that was accepted fails, no promise is left. */
static void at_random(void **state)
{
    struct shared *s = *state;
    uint64_t random = 3;
    int n_ok = 0, n_refused = 0;

    s->budget[0] = 40 * PAGE;
    s->budget[1] = 25 * PAGE;
    ok(kvlazy_pool_create(90 * PAGE, &s->pool));
    open_caches(s);
    for (int i = 0; i < 6000; i++) {
        kvlazy_seq_id seq[CACHES];
        uint32_t n[CACHES];
        bool planned[CACHES] = {false};

        ok(kvlazy_init_batch(s->cache[0]));
        for (int c = 0; c < CACHES; c++) {
            seq[c] = (kvlazy_seq_id)(next_random(&random) % STREAMS);
            n[c] = 1 + (uint32_t)(next_random(&random) % 12);
            int status = plan(s, c, seq[c], n[c]);

            planned[c] = !status;
            n_ok += !status;
            n_refused += status == KVLAZY_EBUDGET;
            if (!status)
                continue;
            assert_true(status == KVLAZY_EBUDGET || status == KVLAZY_ENOSLOT);
            memset(planned, 0, sizeof planned); /* the refusal ended the batch */
            ok(kvlazy_seq_rm(s->cache[c], seq[c], (kvlazy_pos)(next_random(&random) % 10), -1));
        }
        if (next_random(&random) % 3 == 0) {
            int c = (int)(next_random(&random) % CACHES);
            int status = kvlazy_seq_cp(s->cache[c], seq[c], 1 - seq[c], 0, (kvlazy_pos)(next_random(&random) % 8));

            assert_true(status == KVLAZY_OK || status == KVLAZY_EBUDGET || status == KVLAZY_ENOSLOT);
            planned[c] = false; /* it may have taken the cells of the plan */
            hold(s);
        }
        for (int c = 0; c < CACHES; c++)
            if (planned[c])
                ok(apply(s, c, seq[c], n[c]));
        hold(s);
        ok(kvlazy_end_batch(s->cache[0]));
        for (int c = 0; c < CACHES; c++)
            if (next_random(&random) % 8 == 0)
                ok(kvlazy_seq_rm(s->cache[c], seq[c], (kvlazy_pos)(next_random(&random) % 20), -1));
        if (next_random(&random) % 16 == 0)
            ok(kvlazy_trim(s->cache[0], 0));
        hold(s);
    }
    assert_in_range(n_ok, 1000, 18000);
    assert_in_range(n_refused, 500, 18000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SHARED_TEST(what_one_touches_fits_the_other),
        SHARED_TEST(free_pages_of_the_other_go_first),
        SHARED_TEST(at_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
