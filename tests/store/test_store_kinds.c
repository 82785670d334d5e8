/* SPDX-License-Identifier: MIT */
/*
 * A prefix store with every kind of cache: linked ones are one, planes are those of text, what cannot be is refused by
 * name; and what a call may not do while the place is asked.
 */
#include "fake_place.h"
#include "state_support.h"

#include <errno.h>

#include <kvlazy/store.h>

enum { BLOCK = 16, N_TOKEN = 40 };

static int32_t token[N_TOKEN];
static kvlazy_prompt prompt = {.struct_size = sizeof prompt, .token = token, .n_token = N_TOKEN};

static struct box *tagged(void)
{
    struct box *box = box_new();

    box->params.kv_size = 128;
    box->params.model_tag = "tag";
    box->params.model_tag_bytes = 3;
    return box;
}

static kvlazy_store *store_over(kvlazy_store_ops *ops, uint64_t bytes_per_hour)
{
    kvlazy_store_params params = {.struct_size = sizeof params,
                                  .ops = ops,
                                  .block_tokens = BLOCK,
                                  .min_tokens = BLOCK,
                                  .write_bytes_per_hour = bytes_per_hour};
    kvlazy_store *store = NULL;

    ok(kvlazy_store_create(&params, &store));
    return store;
}

static void test_linked_caches_are_one(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store_ops ops = fake_ops(&fake);
    kvlazy_store *store = store_over(&ops, 0);
    struct box *a = box_open(tagged()), *b = tagged();
    uint32_t n = 0;

    (void)state;
    b->params.with = a->cache;
    box_open(b);
    ok(kvlazy_init_batch(a->cache));
    ok(box_put(a, 0, 0, N_TOKEN));
    ok(box_put(b, 0, 0, N_TOKEN));
    ok(kvlazy_end_batch(a->cache));
    uint64_t sum_a = box_sum(a, 0), sum_b = box_sum(b, 0);
    ok(kvlazy_store_save(store, b->cache, 0, &prompt, 10000, &n));
    assert_int_equal(n, 32);
    ok(kvlazy_init_batch(a->cache));
    ok(kvlazy_store_load(store, a->cache, 1, &prompt, 0, 10000, &n));
    assert_int_equal(n, 32);
    ok(kvlazy_end_batch(a->cache));
    for (struct box *m = a; m; m = m == a ? b : NULL) {
        assert_true(box_sum(m, 0) == (m == a ? sum_a : sum_b));
        ok(kvlazy_seq_rm(m->cache, 0, 32, -1));
        assert_true(box_sum(m, 0) == box_sum(m, 1));
        box_sound(m);
    }
    box_free(b);
    box_free(a);
    ok(kvlazy_store_destroy(store));
    fake_clear(&fake);
}

static void test_what_cannot_be_is_refused(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store_ops ops = fake_ops(&fake);
    kvlazy_store *store = store_over(&ops, 0);
    struct box *window = box_window(64, 8), *whole = tagged(), *bare = box_open(box_new());
    uint32_t n = 0;

    (void)state;
    window->params.model_tag = "tag";
    window->params.model_tag_bytes = 3;
    box_open(window);
    whole->params.shrink = KVLAZY_SHRINK_WHOLE;
    box_open(whole);
    assert_int_equal(kvlazy_store_save(store, window->cache, 0, &prompt, 100, &n), KVLAZY_ENOTSUP);
    assert_int_equal(kvlazy_store_save(store, whole->cache, 0, &prompt, 100, &n), KVLAZY_ENOTSUP);
    assert_int_equal(kvlazy_store_save(store, bare->cache, 0, &prompt, 100, &n), KVLAZY_EINVAL);
    box_free(window);
    box_free(whole);
    box_free(bare);
    ok(kvlazy_store_destroy(store));
    fake_clear(&fake);
}

static void test_time_and_allowance_are_kept(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store_ops ops = fake_ops(&fake);
    kvlazy_store *store = store_over(&ops, 3 * 4096);
    struct box *box = box_open(tagged());
    kvlazy_store_info info = {.struct_size = sizeof info};
    uint32_t n = 9;

    (void)state;
    box_turn(box, 0, 0, N_TOKEN);
    ok(kvlazy_store_save(store, box->cache, 0, &prompt, 0, &n));
    assert_int_equal(n, 0);
    assert_int_equal(fake.n_call[FAKE_OPEN], 0);
    ok(kvlazy_store_save(store, box->cache, 0, &prompt, 10000, &n));
    assert_int_equal(n, BLOCK);
    ok(kvlazy_store_stats(store, &info));
    assert_int_equal(info.n_refused_allowance, 1);
    assert_true(info.written_bytes <= 3 * 4096);
    size_t needed = 0;
    ok(kvlazy_store_prometheus(store, NULL, 0, &needed));
    assert_true(needed > 500);
    box_free(box);
    ok(kvlazy_store_destroy(store));
    fake_clear(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linked_caches_are_one),
        cmocka_unit_test(test_what_cannot_be_is_refused),
        cmocka_unit_test(test_time_and_allowance_are_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
