/* SPDX-License-Identifier: MIT */
/*
 * Loads into a cache that shares a pool with others: the ceiling holds at every commit, the others are asked for room
 * as they are for a batch and lose what they may lose, and where there is none the load ends early without an error.
 * All that is live has its rows, in the cache that loads and in those that gave.
 */
#include "fake_place.h"
#include "prefix_support.h"

#include <string.h>

#include <kvlazy/pool.h>

enum { BLOCK = 16, N_TOKEN = 385, N_WHOLE = N_TOKEN - N_TOKEN % BLOCK, PAGE = 4096, ROW = 64, IDLE_MS = 500 };
/* A page has 64 rows, and there are four tensors. */
enum { PAGES_OF_ALL = 4 * ((N_WHOLE + 63) / 64) };

static int32_t token[2][N_TOKEN];
static kvlazy_prompt prompt[2]; /* of the cache that loads, and of the other */

static struct pool_case {
    struct fake_place fake;
    kvlazy_store *store;
    kvlazy_pool *pool;
    struct box *to, *other;
    int (*commit)(void *ctx, const kvlazy_range *range, size_t n_range);
    uint64_t most_bytes; /* committed by both, at most */
    uint32_t n_evict;
} c;

/* ---- the case ---- */

static int watched_commit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    int error = c.commit(ctx, range, n_range);
    uint64_t now = (c.to ? c.to->fake.committed_bytes : 0) + (c.other ? c.other->fake.committed_bytes : 0);

    c.most_bytes = now > c.most_bytes ? now : c.most_bytes;
    return error;
}

static struct box *a_box(kvlazy_pool *pool, uint64_t min_bytes)
{
    struct box *box = prefix_box(512);

    for (int i = 0; i < 2; i++)
        box->layer[i].k_row_bytes = box->layer[i].v_row_bytes = ROW;
    box->params.pool = pool;
    box->params.pool_min_bytes = min_bytes;
    box->params.kv_size_initial = 64;
    c.commit = box->fake.table.commit;
    box->fake.table.commit = watched_commit;
    return box_open(box);
}

/* The prompt of the cache that loads is in the store. */
static void begin(uint64_t budget_pages, uint64_t min_pages_of_other)
{
    c = (struct pool_case){.n_evict = 0};
    kvlazy_store_ops ops = fake_ops(&c.fake);
    uint32_t n = 0;

    for (uint32_t i = 0; i < N_TOKEN; i++) {
        token[0][i] = (int32_t)(3 * i);
        token[1][i] = (int32_t)(3 * i + 1);
    }
    for (int i = 0; i < 2; i++)
        prompt[i] = (kvlazy_prompt){.struct_size = sizeof prompt[i], .token = token[i], .n_token = N_TOKEN};
    c.store = prefix_store(&ops, BLOCK);
    struct box *from = a_box(NULL, 0);
    prefix_turn(from, 0, &prompt[0], 0, N_TOKEN);
    ok(kvlazy_store_save(c.store, from->cache, 0, &prompt[0], 60000, &n));
    assert_int_equal(n, N_WHOLE);
    box_free(from);
    ok(kvlazy_pool_create(budget_pages * PAGE, &c.pool));
    c.to = a_box(c.pool, 0);
    c.other = a_box(c.pool, min_pages_of_other * PAGE);
    c.most_bytes = 0;
}

static void end(void)
{
    for (int i = 0; i < 2; i++)
        box_free(i ? c.other : c.to);
    ok(kvlazy_pool_destroy(c.pool));
    ok(kvlazy_store_destroy(c.store));
    fake_clear(&c.fake);
}

static uint64_t taken_pages(void)
{
    kvlazy_pool_info info = {.struct_size = sizeof info};

    ok(kvlazy_pool_stats(c.pool, &info));
    assert_true(info.taken_bytes <= info.budget_bytes && c.most_bytes <= info.budget_bytes);
    assert_true(info.taken_bytes == c.to->fake.committed_bytes + c.other->fake.committed_bytes);
    return info.taken_bytes / PAGE;
}

static uint32_t load(void)
{
    uint32_t n = 999;

    ok(kvlazy_init_batch(c.to->cache));
    ok(kvlazy_store_load(c.store, c.to->cache, 0, &prompt[0], 0, 60000, &n));
    ok(kvlazy_end_batch(c.to->cache));
    prefix_holds(c.to, 0, &prompt[0], n);
    box_sound(c.to);
    box_sound(c.other);
    return n;
}

static uint64_t n_refused(void)
{
    return prefix_info(c.store).n_refused_room;
}

/* The other one keeps a usable prefix. */
static uint32_t other_has(void)
{
    uint32_t n = (uint32_t)(kvlazy_seq_pos_max(c.other->cache, 0) + 1);

    prefix_holds(c.other, 0, &prompt[1], n);
    return n;
}

static void pass_time(void)
{
    c.to->fake.now += 2 * IDLE_MS;
    c.other->fake.now += 2 * IDLE_MS;
}

/* ---- tests ---- */

static void test_what_is_free_is_taken(void **state)
{
    (void)state;
    begin(PAGES_OF_ALL, 0);
    assert_int_equal(load(), N_WHOLE);
    assert_int_equal(taken_pages(), PAGES_OF_ALL);
    assert_int_equal(n_refused(), 0);
    end();
}

static void test_a_load_ends_where_the_pool_does(void **state)
{
    (void)state;
    for (uint64_t pages = 1; pages < PAGES_OF_ALL; pages++) {
        begin(pages, 0);
        assert_int_equal(load(), pages / 4 * 64); /* whole blocks of whole pages, in four tensors */
        assert_int_equal(taken_pages(), pages / 4 * 4);
        assert_int_equal(n_refused(), 1);
        end();
    }
}

static void test_an_idle_cache_gives(void **state)
{
    (void)state;
    begin(PAGES_OF_ALL + 8, 0);
    prefix_turn(c.other, 0, &prompt[1], 0, N_WHOLE);
    assert_int_equal(taken_pages(), PAGES_OF_ALL);
    pass_time();
    uint32_t n = load();
    assert_true(n >= 64 && n % BLOCK == 0);
    assert_true(other_has() < N_WHOLE);
    (void)taken_pages();
    kvlazy_pool_info info = {.struct_size = sizeof info};
    ok(kvlazy_pool_stats(c.pool, &info));
    assert_true(info.n_reclaim > 0 && info.reclaimed_bytes > 0);
    end();
}

static void test_a_minimum_is_never_lent(void **state)
{
    (void)state;
    begin(PAGES_OF_ALL + 8, PAGES_OF_ALL);
    prefix_turn(c.other, 0, &prompt[1], 0, N_WHOLE);
    pass_time();
    assert_int_equal(load(), 2 * 64); /* the 8 pages beyond the minimum */
    assert_int_equal(other_has(), N_WHOLE);
    assert_int_equal(n_refused(), 1);
    (void)taken_pages();
    end();
}

static void test_a_busy_cache_is_passed_over(void **state)
{
    (void)state;
    begin(PAGES_OF_ALL + 4, 0);
    prefix_turn(c.other, 0, &prompt[1], 0, N_WHOLE);
    pass_time();
    ok(kvlazy_init_batch(c.other->cache));
    assert_int_equal(load(), 64);
    ok(kvlazy_end_batch(c.other->cache));
    assert_int_equal(other_has(), N_WHOLE);
    (void)taken_pages();
    end();
}

/* What a victim is about to lose it saves to the same store, in the middle of the load, which asks again for a later
 * block. */
static void save_it(struct box *box, kvlazy_seq_id seq)
{
    uint32_t n = 999;

    ok(kvlazy_store_save(c.store, box->cache, seq, &prompt[1], 60000, &n));
    assert_int_equal(n, c.n_evict++ ? (uint32_t)(kvlazy_seq_pos_max(box->cache, seq) + 1) : N_WHOLE);
}

static void test_a_victim_saves_before_it_gives(void **state)
{
    (void)state;
    begin(PAGES_OF_ALL + 8, 0);
    prefix_turn(c.other, 0, &prompt[1], 0, N_WHOLE);
    c.other->in_evict = save_it;
    pass_time();
    assert_true(load() >= 64);
    assert_true(c.n_evict > 0);
    uint32_t n_left = other_has(), n = 0;
    assert_true(n_left < N_WHOLE);
    ok(kvlazy_clear(c.to->cache, true)); /* there is room again */
    ok(kvlazy_seq_rm(c.other->cache, 0, -1, -1));
    ok(kvlazy_init_batch(c.other->cache));
    ok(kvlazy_store_load(c.store, c.other->cache, 0, &prompt[1], 0, 60000, &n));
    ok(kvlazy_end_batch(c.other->cache));
    assert_int_equal(n, N_WHOLE);
    assert_int_equal(other_has(), N_WHOLE);
    (void)taken_pages();
    end();
}

/* Cells are held for the load, so what a victim's callback does to its cache is refused. */
static void end_it(struct box *box, kvlazy_seq_id seq)
{
    (void)box;
    (void)seq;
    kvlazy_destroy(c.to->cache);
    expect(kvlazy_clear(c.to->cache, true), KVLAZY_EBUSY);
    expect(kvlazy_end_batch(c.to->cache), KVLAZY_EBUSY);
    c.n_evict++;
}

static void test_a_victim_cannot_end_the_cache_that_loads(void **state)
{
    (void)state;
    begin(PAGES_OF_ALL + 8, 0);
    prefix_turn(c.other, 0, &prompt[1], 0, N_WHOLE);
    c.other->in_evict = end_it;
    pass_time();
    assert_true(load() >= 64);
    assert_true(c.n_evict > 0);
    (void)taken_pages();
    end();
}

/* What fails in the middle of a load gives its pages back. */
static void test_a_load_that_breaks_off_keeps_nothing(void **state)
{
    (void)state;
    begin(PAGES_OF_ALL, 0);
    for (int n = 1; n < 3 * N_WHOLE / BLOCK; n++) {
        c.fake.fail_in = n;
        uint32_t n_live = load();
        c.fake.fail_in = 0;
        assert_int_equal(taken_pages(), 4 * ((n_live + 63) / 64));
        ok(kvlazy_clear(c.to->cache, true));
    }
    assert_int_equal(load(), N_WHOLE);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_free_is_taken),
        cmocka_unit_test(test_a_load_ends_where_the_pool_does),
        cmocka_unit_test(test_an_idle_cache_gives),
        cmocka_unit_test(test_a_minimum_is_never_lent),
        cmocka_unit_test(test_a_busy_cache_is_passed_over),
        cmocka_unit_test(test_a_victim_saves_before_it_gives),
        cmocka_unit_test(test_a_victim_cannot_end_the_cache_that_loads),
        cmocka_unit_test(test_a_load_that_breaks_off_keeps_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
