/* SPDX-License-Identifier: MIT */
/*
 * What happens while the place is asked: the cache says EBUSY to the place's own calls, another thread changes the
 * sequence, the time runs out in the middle, and the store cannot be destroyed.
 */
#include "fake_place.h"
#include "prefix_support.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

enum { BLOCK = 16, N_TOKEN = 72 };

static int32_t token[N_TOKEN], other[N_TOKEN];
static const kvlazy_prompt prompt = {.struct_size = sizeof prompt, .token = token, .n_token = N_TOKEN};

static struct bench {
    struct fake_place fake;
    kvlazy_store *store;
    struct box *from, *to;
    int call, in; /* what happens is at the in-th call of this kind */
    int n_happened;
} b;

static int setup(void **state)
{
    (void)state;
    b = (struct bench){0};
    for (int32_t i = 0; i < N_TOKEN; i++) {
        token[i] = 5 * i;
        other[i] = 5 * i + 1;
    }
    kvlazy_store_ops ops = fake_ops(&b.fake);
    b.store = prefix_store(&ops, BLOCK);
    b.from = box_open(prefix_box(128));
    b.to = box_open(prefix_box(96));
    prefix_turn(b.from, 0, &prompt, 0, N_TOKEN);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    box_sound(b.from);
    box_sound(b.to);
    box_free(b.from);
    box_free(b.to);
    ok(kvlazy_store_destroy(b.store));
    fake_clear(&b.fake);
    return 0;
}

#define MOMENT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static uint32_t save(uint32_t max_ms)
{
    uint32_t n = 99;

    ok(kvlazy_store_save(b.store, b.from->cache, 0, &prompt, max_ms, &n));
    return n;
}

static uint32_t load(uint32_t max_ms)
{
    uint32_t n = 99;

    ok(kvlazy_init_batch(b.to->cache));
    ok(kvlazy_store_load(b.store, b.to->cache, 0, &prompt, 0, max_ms, &n));
    ok(kvlazy_end_batch(b.to->cache));
    return n;
}

/* ---- from inside ---- */

static void call_the_cache(struct fake_place *f, int call)
{
    kvlazy_cache *cache = ((struct box *)f->ctx)->cache;
    uint32_t n = 99;

    b.n_happened++;
    (void)call;
    expect(kvlazy_seq_rm(cache, 0, -1, -1), KVLAZY_EBUSY);
    expect(kvlazy_end_batch(cache), KVLAZY_EBUSY);
    expect(kvlazy_store_save(b.store, cache, 0, &prompt, 1000, &n), KVLAZY_EBUSY);
    assert_int_equal(n, 0);
    expect(kvlazy_store_load(b.store, cache, 0, &prompt, 7, 1000, &n), KVLAZY_EBUSY);
    assert_int_equal(n, 7);
    expect(kvlazy_store_forget(b.store, cache, &prompt), KVLAZY_EBUSY);
    expect(kvlazy_store_destroy(b.store), KVLAZY_EBUSY);
    assert_true(prefix_info(b.store).held_bytes > 8192); /* of the call that is inside */
}

static void test_a_place_may_not_call_the_cache(void **state)
{
    (void)state;
    b.fake.inside = call_the_cache;
    b.fake.ctx = b.from;
    assert_int_equal(save(10000), 64);
    int n_saving = b.n_happened;
    assert_true(n_saving > 8);
    b.fake.ctx = b.to;
    assert_int_equal(load(10000), 64);
    assert_true(b.n_happened > n_saving + 8);
    prefix_holds(b.to, 0, &prompt, 64);
    ok(kvlazy_store_forget(b.store, b.to->cache, &prompt));
    b.fake.inside = NULL;
    assert_null(b.fake.blob);
}

/* ---- from another thread ---- */

/* The sequence becomes another, with as many tokens. */
static void *change_from(void *box)
{
    kvlazy_prompt another = {.struct_size = sizeof another, .token = other, .n_token = N_TOKEN};

    ok(kvlazy_seq_rm(((struct box *)box)->cache, 0, -1, -1));
    prefix_turn(box, 0, &another, 0, N_TOKEN);
    return NULL;
}

/* The sequence loses its last tokens, and gets others. */
static void *change_to(void *box)
{
    kvlazy_prompt another = {.struct_size = sizeof another, .token = other, .n_token = N_TOKEN};

    ok(kvlazy_seq_rm(((struct box *)box)->cache, 0, -1, -1));
    ok(prefix_compute(box, 0, &another, 0, BLOCK));
    return NULL;
}

static void *empty(void *box)
{
    ok(kvlazy_seq_rm(((struct box *)box)->cache, 0, -1, -1));
    return NULL;
}

static void *end_batch(void *box)
{
    ok(kvlazy_end_batch(((struct box *)box)->cache));
    return NULL;
}

static void *(*change)(void *);

static void change_at(struct fake_place *f, int call)
{
    pthread_t thread;

    if (call != b.call || --b.in)
        return;
    b.n_happened++;
    assert_int_equal(pthread_create(&thread, NULL, change, f->ctx), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void happens(void *(*what)(void *), struct box *box, int call, int in)
{
    b.fake.inside = change_at;
    b.fake.ctx = box;
    b.call = call;
    b.in = in;
    b.n_happened = 0;
    change = what;
}

static void test_a_sequence_that_changes_is_saved_as_far_as_it_was(void **state)
{
    (void)state;
    happens(change_from, b.from, FAKE_WRITE, 2); /* while the second block is written */
    assert_int_equal(save(10000), 32);
    assert_int_equal(b.n_happened, 1);
    b.fake.inside = NULL;
    assert_int_equal(load(10000), 32);
    prefix_holds(b.to, 0, &prompt, 32); /* and not what came later */
}

static void test_a_sequence_that_changes_loads_no_more(void **state)
{
    kvlazy_prompt another = {.struct_size = sizeof another, .token = other, .n_token = BLOCK};

    (void)state;
    assert_int_equal(save(10000), 64);
    happens(change_to, b.to, FAKE_READ, 2); /* as many tokens as before, and others */
    assert_int_equal(load(10000), BLOCK);
    assert_int_equal(b.n_happened, 1);
    prefix_holds(b.to, 0, &another, BLOCK);
    ok(kvlazy_seq_rm(b.to->cache, 0, -1, -1));
    happens(end_batch, b.to, FAKE_READ, 2);
    assert_int_equal(load(10000), BLOCK);
    assert_int_equal(b.n_happened, 1);
    prefix_holds(b.to, 0, &prompt, BLOCK);
    ok(kvlazy_seq_rm(b.to->cache, 0, -1, -1));
    happens(empty, b.to, FAKE_READ, 3);
    assert_int_equal(load(10000), 0);
    assert_int_equal(b.n_happened, 1);
    prefix_holds(b.to, 0, &prompt, 0);
}

/* ---- time ---- */

static void test_time_runs_out_in_the_middle(void **state)
{
    uint32_t n;

    (void)state;
    b.fake.slow_ms = 40;
    n = save(100); /* a block takes 40 ms or more */
    assert_true(n < 64);
    assert_true(prefix_info(b.store).n_timeout == 1);
    assert_true(b.fake.max_ms <= 100);
    b.fake.slow_ms = 0;
    assert_int_equal(save(10000), 64); /* what was left */
    b.fake.slow_ms = 40;
    n = load(100);
    assert_true(n < 64);
    assert_true(prefix_info(b.store).n_timeout == 2);
    prefix_holds(b.to, 0, &prompt, n);
}

static void test_a_refused_put_costs_no_allowance(void **state)
{
    kvlazy_store_ops ops = fake_ops(&b.fake);
    kvlazy_store_params params = {.struct_size = sizeof params,
                                  .ops = &ops,
                                  .block_tokens = BLOCK,
                                  .min_tokens = BLOCK,
                                  .write_bytes_per_hour = 5 * 4096};
    kvlazy_store *store = NULL;
    uint32_t n;

    (void)state;
    ok(kvlazy_store_create(&params, &store));
    b.fake.error[FAKE_WRITE] = EIO;
    for (int i = 0; i < 9; i++) {
        ok(kvlazy_store_save(store, b.from->cache, 0, &prompt, 10000, &n));
        assert_int_equal(n, 0);
    }
    b.fake.error[FAKE_WRITE] = 0;
    ok(kvlazy_store_save(store, b.from->cache, 0, &prompt, 10000, &n));
    assert_int_equal(n, 2 * BLOCK); /* of two pages each */
    assert_true(prefix_info(store).n_refused_allowance == 1);
    ok(kvlazy_store_destroy(store));
}

/* What a place took counts, though it then failed: a disk may have been written. */
static void test_bytes_that_were_sent_cost_allowance(void **state)
{
    kvlazy_store_ops ops = fake_ops(&b.fake);
    kvlazy_store_params params = {.struct_size = sizeof params,
                                  .ops = &ops,
                                  .block_tokens = BLOCK,
                                  .min_tokens = BLOCK,
                                  .write_bytes_per_hour = 5 * 4096};
    kvlazy_store *store = NULL;
    uint32_t n;

    (void)state;
    ok(kvlazy_store_create(&params, &store));
    b.fake.error[FAKE_CLOSE] = EIO;
    for (uint32_t i = 0; i < 4; i++) { /* two blocks of two pages each, then no more */
        ok(kvlazy_store_save(store, b.from->cache, 0, &prompt, 10000, &n));
        assert_int_equal(n, 0);
        assert_int_equal(prefix_info(store).n_refused_allowance, i < 2 ? 0 : i - 1);
    }
    b.fake.error[FAKE_CLOSE] = 0;
    ok(kvlazy_store_destroy(store));
}

/* A disk is not worn by blocks that end in the middle, call after call. */
static void test_a_block_that_has_no_time_is_not_begun(void **state)
{
    (void)state;
    b.fake.slow_ms = 60;
    assert_int_equal(save(50), BLOCK); /* late: how long one takes was not known */
    int n_open = b.fake.n_call[FAKE_OPEN];
    for (int i = 0; i < 3; i++)
        assert_int_equal(save(20), BLOCK);
    assert_int_equal(b.fake.n_call[FAKE_OPEN], n_open);
    assert_true(prefix_info(b.store).n_timeout == 4);
    b.fake.slow_ms = 0; /* it was bad luck */
    for (int i = 0; i < 40 && b.fake.n_call[FAKE_OPEN] == n_open; i++)
        save(20);
    assert_true(b.fake.n_call[FAKE_OPEN] > n_open);
    assert_int_equal(save(10000), 64);
}

/* A size that is not that of the block tells it before a byte is read. */
static void test_a_blob_of_another_size_is_damaged(void **state)
{
    (void)state;
    assert_int_equal(save(10000), 64);
    int n_read = b.fake.n_call[FAKE_READ];
    for (struct fake_blob *blob = b.fake.blob; blob; blob = blob->next)
        blob->bytes -= 1;
    assert_int_equal(load(10000), 0);
    assert_true(prefix_info(b.store).n_corrupt == 1);
    assert_int_equal(b.fake.n_call[FAKE_READ], n_read);
    assert_int_equal(b.fake.n_call[FAKE_DROP], 1);
}

static void slowly(struct fake_place *fake, int call)
{
    (void)fake;
    usleep(call == FAKE_DROP ? 600000 : 0);
}

/* A place that fails, or takes its time, does not hold up the caller once for every block. */
static void test_forgetting_ends_with_the_place(void **state)
{
    (void)state;
    assert_int_equal(save(10000), 64);
    b.fake.error[FAKE_DROP] = ETIMEDOUT;
    ok(kvlazy_store_forget(b.store, b.from->cache, &prompt));
    assert_int_equal(b.fake.n_call[FAKE_DROP], 1);
    assert_true(prefix_info(b.store).n_timeout == 1);
    b.fake.error[FAKE_DROP] = 0;
    b.fake.inside = slowly;
    ok(kvlazy_store_forget(b.store, b.from->cache, &prompt));
    b.fake.inside = NULL;
    assert_in_range(b.fake.n_call[FAKE_DROP], 2, 3);
    assert_true(prefix_info(b.store).n_timeout == 2);
    ok(kvlazy_store_forget(b.store, b.from->cache, &prompt));
    assert_null(b.fake.blob);
}

static void on_evict_saves(struct box *box, kvlazy_seq_id seq)
{
    uint32_t n = 99;

    ok(kvlazy_store_save(b.store, box->cache, seq, &prompt, 10000, &n));
    assert_int_equal(n, 64);
    b.n_happened++;
}

static void test_what_is_evicted_may_be_saved_before(void **state)
{
    (void)state;
    b.from->in_evict = on_evict_saves;
    ok(kvlazy_trim(b.from->cache, 20));
    assert_true(b.n_happened > 0);
    assert_int_equal(load(10000), 64);
    prefix_holds(b.to, 0, &prompt, 64);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MOMENT_TEST(test_a_place_may_not_call_the_cache),
        MOMENT_TEST(test_a_sequence_that_changes_is_saved_as_far_as_it_was),
        MOMENT_TEST(test_a_sequence_that_changes_loads_no_more),
        MOMENT_TEST(test_time_runs_out_in_the_middle),
        MOMENT_TEST(test_a_refused_put_costs_no_allowance),
        MOMENT_TEST(test_bytes_that_were_sent_cost_allowance),
        MOMENT_TEST(test_a_block_that_has_no_time_is_not_begun),
        MOMENT_TEST(test_a_blob_of_another_size_is_damaged),
        MOMENT_TEST(test_forgetting_ends_with_the_place),
        MOMENT_TEST(test_what_is_evicted_may_be_saved_before),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
