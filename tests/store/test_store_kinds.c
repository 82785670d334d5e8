/* SPDX-License-Identifier: MIT */
/*
 * A prefix store with every kind of cache: linked ones are one, planes are those of text, what cannot be is refused by
 * name; and what a call may not do while the place is asked.
 */
#include "fake_place.h"
#include "prefix_support.h"

#include <errno.h>
#include <unistd.h>

#include <kvlazy/engine_cells.h>

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

/* So little comes back between two saves that it is less than a byte: all of it counts. */
static void test_a_small_allowance_comes_back(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store_ops ops = fake_ops(&fake);
    kvlazy_store *store = store_over(&ops, 2 * 2 * 4096 - 1); /* a byte less than two blocks; 4.5 bytes a second */
    struct box *box = box_open(tagged());
    uint32_t n = 0;

    (void)state;
    box_turn(box, 0, 0, N_TOKEN);
    for (int i = 0; i < 5000 && n < 2 * BLOCK; i++) {
        ok(kvlazy_store_save(store, box->cache, 0, &prompt, 10000, &n));
        usleep(1000);
    }
    assert_int_equal(n, 2 * BLOCK);
    box_free(box);
    ok(kvlazy_store_destroy(store));
    fake_clear(&fake);
}

/* A far place that is down: all of a long chain is touched in the near one, and nothing counts as a failure. */
static void test_a_chain_is_touched_without_the_far_place(void **state)
{
    enum { LONG = 70 * BLOCK + 5 };
    static int32_t many[LONG];
    const kvlazy_prompt longer = {.struct_size = sizeof longer, .token = many, .n_token = LONG};
    struct fake_place near = {0}, far = {0};
    const kvlazy_store_ops near_ops = fake_ops(&near), far_ops = fake_ops(&far);
    kvlazy_store_ops ops = {.struct_size = sizeof ops};
    struct box *box = tagged();
    uint32_t n = 0;

    (void)state;
    ok(kvlazy_store_tiers(&near_ops, &far_ops, &ops));
    kvlazy_store *store = store_over(&ops, 0);
    box->params.kv_size = 2048;
    box_open(box);
    box_turn(box, 0, 0, LONG);
    for (int call = 0; call < FAKE_DESTROY; call++)
        far.error[call] = EHOSTDOWN;
    ok(kvlazy_store_save(store, box->cache, 0, &longer, 60000, &n));
    assert_int_equal(n, 70 * BLOCK);
    int n_touch = near.n_call[FAKE_TOUCH];
    ok(kvlazy_store_save(store, box->cache, 0, &longer, 60000, &n));
    assert_int_equal(near.n_call[FAKE_TOUCH] - n_touch, 2); /* of 64 and of 6 */
    assert_true(prefix_info(store).n_failed == 0);
    box_free(box);
    ok(kvlazy_store_destroy(store));
    fake_clear(&near);
    fake_clear(&far);
}

/* Text has its position in every plane; an image has not, and what follows it hangs on it. */
static void test_of_planes_the_text_before_the_first_span(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store_ops ops = fake_ops(&fake);
    kvlazy_store *store = prefix_store(&ops, BLOCK);
    struct box *from = tagged(), *to = tagged();
    const kvlazy_span image = {.begin = 36, .n = 2, .id = "cat", .id_bytes = 3};
    kvlazy_prompt spanned = prompt;
    uint32_t n = 0;

    (void)state;
    from->params.n_pos_per_token = to->params.n_pos_per_token = 3;
    box_open(from);
    box_open(to);
    prefix_turn(from, 0, &prompt, 0, N_TOKEN);
    spanned.span = &image;
    spanned.n_span = 1;
    ok(kvlazy_store_save(store, from->cache, 0, &spanned, 10000, &n));
    assert_int_equal(n, 32);
    ok(kvlazy_init_batch(to->cache));
    ok(kvlazy_store_load(store, to->cache, 2, &spanned, 0, 10000, &n));
    ok(kvlazy_end_batch(to->cache));
    assert_int_equal(n, 32);
    prefix_holds(to, 2, &prompt, 32);
    box_sound(to);
    for (uint32_t i = 0; i < 32; i++) {
        uint32_t cell = kvl_index_at(kvl_index_of(to->cache, 2), i).cell;

        assert_int_equal(to->cache->stream[0].cells.ext_y[cell], i);
        assert_int_equal(to->cache->stream[0].cells.ext_x[cell], i);
    }
    box_turn(from, 1, 0, N_TOKEN); /* positions of no text in the other planes */
    ok(kvlazy_store_save(store, from->cache, 1, &prompt, 10000, &n));
    assert_int_equal(n, 0);
    box_free(from);
    box_free(to);
    ok(kvlazy_store_destroy(store));
    fake_clear(&fake);
}

/* ---- cells that the engine keeps ---- */

static uint32_t there[N_TOKEN]; /* the cell of each token */

static struct box *engine_box(uint32_t first)
{
    static const kvlazy_cell_ops tells = {.struct_size = sizeof tells}; /* it says what it frees */
    struct box *box = tagged();

    box->params.cell_ops = &tells;
    box->params.n_stream = box->params.n_seq_max = 2;
    for (uint32_t i = 0; i < N_TOKEN; i++)
        there[i] = first + 2 * (N_TOKEN - i);
    return box;
}

static void test_cells_that_the_engine_keeps(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store_ops ops = fake_ops(&fake);
    kvlazy_store *store = prefix_store(&ops, BLOCK);
    struct box *from = box_open(engine_box(3)), *to = box_open(box_transpose(engine_box(40), 2));
    kvlazy_prompt mine = prompt;
    uint32_t n = 0;

    (void)state;
    mine.cell = there;
    mine.stream = 1;
    ok(kvlazy_init_batch(from->cache));
    ok(kvlazy_touch(from->cache, 1, 128));
    for (uint32_t i = 0; i < N_TOKEN; i++)
        prefix_write(from, &mine, i);
    ok(kvlazy_end_batch(from->cache));
    ok(kvlazy_store_save(store, from->cache, -1, &mine, 10000, &n));
    assert_int_equal(n, 32);
    for (uint32_t i = 0; i < N_TOKEN; i++)
        there[i] = i;
    ok(kvlazy_init_batch(to->cache));
    ok(kvlazy_store_load(store, to->cache, 9, &mine, 5, 10000, &n));
    ok(kvlazy_end_batch(to->cache));
    assert_int_equal(n, 32);
    assert_int_equal(to->cache->stream[1].cells.n_used, 27);
    for (uint32_t i = 0; i < N_TOKEN; i++)
        assert_true(i >= 5 && i < 32 ? prefix_is(to, &mine, i) : prefix_is_zero(to, 1, i));
    expect(kvlazy_store_save(store, to->cache, 0, &prompt, 100, &n), KVLAZY_EINVAL); /* no cells */
    mine.stream = 2;
    expect(kvlazy_store_save(store, to->cache, 0, &mine, 100, &n), KVLAZY_EINVAL);
    box_sound(to);
    box_free(from);
    box_free(to);
    ok(kvlazy_store_destroy(store));
    fake_clear(&fake);
}

/* The host refuses pages of a block: its cells are free again, but for those that the engine had touched itself. */
static void test_a_refused_block_gives_back_the_cells(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store_ops ops = fake_ops(&fake);
    kvlazy_store *store = prefix_store(&ops, BLOCK);
    struct box *box = box_open(engine_box(0));
    kvlazy_prompt mine = prompt;
    uint32_t n = 0;

    (void)state;
    mine.cell = there;
    ok(kvlazy_init_batch(box->cache));
    ok(kvlazy_touch(box->cache, 0, 128));
    for (uint32_t i = 0; i < N_TOKEN; i++)
        prefix_write(box, &mine, i);
    ok(kvlazy_end_batch(box->cache));
    ok(kvlazy_store_save(store, box->cache, 0, &mine, 10000, &n));
    ok(kvlazy_clear(box->cache, true));
    for (int in = 1;; in++) {
        ok(kvlazy_init_batch(box->cache));
        ok(kvlazy_touch_range(box->cache, 0, there[3], there[3] + 1));
        fake_fail(&box->fake, FAKE_COMMIT, in);
        ok(kvlazy_store_load(store, box->cache, 0, &mine, 0, 10000, &n));
        ok(kvlazy_end_batch(box->cache));
        assert_int_equal(box->cache->stream[0].cells.n_used, n ? n : 1);
        for (uint32_t i = 0; i < N_TOKEN; i++)
            assert_true(i < n ? prefix_is(box, &mine, i) : prefix_is_zero(box, 0, there[i]));
        box_sound(box);
        if (!box->fake.failed)
            break;
        ok(kvlazy_clear(box->cache, true));
    }
    assert_int_equal(n, 32);
    box_free(box);
    ok(kvlazy_store_destroy(store));
    fake_clear(&fake);
}

static void test_linked_caches_of_engine_cells_are_refused(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store_ops ops = fake_ops(&fake);
    kvlazy_store *store = prefix_store(&ops, BLOCK);
    struct box *a = box_open(engine_box(0)), *b = engine_box(0);
    kvlazy_prompt mine = prompt;
    uint32_t n = 0;

    (void)state;
    mine.cell = there;
    b->params.with = a->cache;
    box_open(b);
    expect(kvlazy_store_save(store, b->cache, 0, &mine, 100, &n), KVLAZY_ENOTSUP);
    expect(kvlazy_store_forget(store, a->cache, &mine), KVLAZY_ENOTSUP);
    box_free(b);
    box_free(a);
    ok(kvlazy_store_destroy(store));
    fake_clear(&fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linked_caches_are_one),
        cmocka_unit_test(test_what_cannot_be_is_refused),
        cmocka_unit_test(test_time_and_allowance_are_kept),
        cmocka_unit_test(test_a_small_allowance_comes_back),
        cmocka_unit_test(test_a_chain_is_touched_without_the_far_place),
        cmocka_unit_test(test_of_planes_the_text_before_the_first_span),
        cmocka_unit_test(test_cells_that_the_engine_keeps),
        cmocka_unit_test(test_a_refused_block_gives_back_the_cells),
        cmocka_unit_test(test_linked_caches_of_engine_cells_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
