/* SPDX-License-Identifier: MIT */
/* Two places for blobs as one: which is asked first, what is copied, and what a failure of one does to the other. */
#include "fake_place.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <kvlazy/kvlazy.h>

enum { BYTES = 300000, HEADER = 600, PADDED = 4096 };

struct both {
    struct fake_place near, far;
    kvlazy_store_ops ops;
};

static int both_setup(void **state)
{
    struct both *b = calloc(1, sizeof *b);
    assert_non_null(b);
    const kvlazy_store_ops near = fake_ops(&b->near), far = fake_ops(&b->far);

    b->ops.struct_size = sizeof b->ops;
    assert_int_equal(kvlazy_store_tiers(&near, &far, &b->ops), 0);
    *state = b;
    return 0;
}

static int both_teardown(void **state)
{
    struct both *b = *state;

    b->ops.destroy(b->ops.ctx);
    bool destroyed = b->near.destroyed && b->far.destroyed;
    fake_clear(&b->near);
    fake_clear(&b->far);
    free(b);
    assert_true(destroyed);
    return 0;
}

/* Puts blob i into one of them alone. */
static void put_at(struct fake_place *f, uint32_t i)
{
    kvlazy_store_ops ops = fake_ops(f);

    assert_int_equal(put_blob(&ops, i, BYTES), 0);
    memset(f->n_call, 0, sizeof f->n_call);
}

static bool is_at(struct fake_place *f, uint32_t i)
{
    const struct fake_blob *b = fake_find(f, blob_name(i));

    if (!b)
        return false;
    assert_int_equal(b->bytes, BYTES);
    size_t n_right = 0;
    for (size_t k = 0; k < BYTES; k++)
        n_right += b->data[k] == blob_byte(i, k);
    assert_int_equal(n_right, BYTES);
    return true;
}

/* As the store reads: some of the header, then rows, and not all of what pads them. */
static int read_rows(struct both *b, uint32_t i, uint64_t from, uint64_t to)
{
    static uint8_t data[10000];
    void *blob;
    int error = b->ops.open(b->ops.ctx, blob_name(i), 0, &blob);

    if (error)
        return error;
    error = b->ops.read(blob, 0, data, HEADER, 1000);
    for (uint64_t at = from; at < to && !error; at += sizeof data) {
        size_t n = to - at < sizeof data ? to - at : sizeof data;

        error = b->ops.read(blob, at, data, n, 1000);
        for (size_t k = 0; k < n && !error; k++)
            assert_int_equal(data[k], blob_byte(i, at + k));
    }
    assert_int_equal(b->ops.close(blob, false), 0);
    return error;
}

static void tables_are_looked_at(void **state)
{
    struct fake_place fake = {0};
    const kvlazy_store_ops good = fake_ops(&fake);

    (void)state;
    for (int i = 0; i < 9; i++) {
        kvlazy_store_ops bad = good, ops = {.struct_size = sizeof ops};

        switch (i) {
        case 0:
            bad.has = NULL;
            break;
        case 1:
            bad.open = NULL;
            break;
        case 2:
            bad.read = NULL;
            break;
        case 3:
            bad.write = NULL;
            break;
        case 4:
            bad.close = NULL;
            break;
        case 5:
            bad.touch = NULL;
            break;
        case 6:
            bad.drop = NULL;
            break;
        case 7:
            bad.destroy = NULL;
            break;
        default:
            bad.struct_size = offsetof(kvlazy_store_ops, drop);
            break;
        }
        assert_int_equal(kvlazy_store_tiers(&bad, &good, &ops), KVLAZY_EINVAL);
        assert_int_equal(kvlazy_store_tiers(&good, &bad, &ops), KVLAZY_EINVAL);
        assert_null(ops.ctx);
    }
    kvlazy_store_ops ops = {.struct_size = 8};
    assert_int_equal(kvlazy_store_tiers(&good, &good, &ops), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_store_tiers(&good, &good, NULL), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_store_tiers(NULL, &good, &ops), KVLAZY_EINVAL);
    assert_false(fake.destroyed);
}

static void both_are_written(void **state)
{
    struct both *b = *state;
    uint64_t bytes;
    void *blob;

    assert_int_equal(put_steps(&b->ops, 1, BYTES, 7000), 0);
    assert_true(is_at(&b->near, 1) && is_at(&b->far, 1));
    blob = begin_put(&b->ops, 2, BYTES, BYTES);
    assert_int_equal(b->ops.read(blob, 0, &bytes, 1, 1000), EINVAL);
    assert_int_equal(b->ops.size(blob, &bytes), EINVAL);
    assert_int_equal(b->ops.close(blob, false), 0);
    assert_false(has_blob(&b->ops, 2));
    assert_int_equal(b->ops.close(begin_put(&b->ops, 2, BYTES, 5), true), EINVAL);
    touch(&b->ops, 1, (uint32_t[]){1});
    assert_int_equal(b->near.n_call[FAKE_TOUCH] + b->far.n_call[FAKE_TOUCH], 2);
    drop(&b->ops, 1);
    assert_false(is_at(&b->near, 1) || is_at(&b->far, 1));
}

static void the_near_one_is_read_first(void **state)
{
    struct both *b = *state;

    put_at(&b->near, 1);
    put_at(&b->far, 1);
    assert_int_equal(get_blob(&b->ops, 1, BYTES), 0);
    assert_int_equal(b->far.n_call[FAKE_OPEN], 0);
    assert_true(has_blob(&b->ops, 1));
    assert_int_equal(b->far.n_call[FAKE_HAS], 0); /* there is nothing left to ask */
}

static void each_has_what_it_has(void **state)
{
    struct both *b = *state;
    uint8_t name[6][32];
    bool yes[6];

    for (uint32_t i = 0; i < 6; i++) {
        memcpy(name[i], blob_name(i), 32);
        if (i % 3 == 0)
            put_at(&b->near, i);
        if (i % 3 == 1)
            put_at(&b->far, i);
    }
    assert_int_equal(b->ops.has(b->ops.ctx, (const uint8_t(*)[32])name, 6, yes), 0);
    for (uint32_t i = 0; i < 6; i++)
        assert_true(yes[i] == (i % 3 < 2));
    b->near.error[FAKE_HAS] = EIO;
    assert_int_equal(b->ops.has(b->ops.ctx, (const uint8_t(*)[32])name, 6, yes), 0);
    for (uint32_t i = 0; i < 6; i++)
        assert_true(yes[i] == (i % 3 == 1));
    b->far.error[FAKE_HAS] = EHOSTDOWN;
    assert_int_equal(b->ops.has(b->ops.ctx, (const uint8_t(*)[32])name, 6, yes), EHOSTDOWN);
    b->near.error[FAKE_HAS] = 0;
    assert_int_equal(b->ops.has(b->ops.ctx, (const uint8_t(*)[32])name, 6, yes), 0);
    for (uint32_t i = 0; i < 6; i++)
        assert_true(yes[i] == (i % 3 == 0));
}

static void what_is_far_is_copied(void **state)
{
    struct both *b = *state;

    for (uint32_t i = 1; i <= 6; i++)
        put_at(&b->far, i);
    assert_int_equal(get_steps(&b->ops, 1, BYTES, 7000), 0);
    assert_true(is_at(&b->near, 1));
    assert_int_equal(read_rows(b, 2, PADDED, BYTES - 3000), 0); /* what is left out is fetched */
    assert_true(is_at(&b->near, 2));
    assert_int_equal(read_rows(b, 3, 0, BYTES), 0); /* some of it twice */
    assert_true(is_at(&b->near, 3));
    assert_int_equal(read_rows(b, 4, 100000, BYTES), 0); /* too far */
    assert_false(is_at(&b->near, 4));
    assert_int_equal(read_rows(b, 5, PADDED, 50000), 0); /* not to the end */
    assert_false(is_at(&b->near, 5));
    assert_int_equal(read_rows(b, 6, 0, 0), 0);
    assert_false(is_at(&b->near, 6));
    b->far.error[FAKE_OPEN] = EHOSTDOWN;
    for (uint32_t i = 1; i <= 3; i++)
        assert_int_equal(get_blob(&b->ops, i, BYTES), 0);
    assert_int_equal(get_blob(&b->ops, 4, BYTES), EHOSTDOWN);
}

static void a_size_that_is_not_told(void **state)
{
    struct both *b = *state;
    struct fake_place far = {.no_size = true}, near = {0};
    kvlazy_store_ops near_ops = fake_ops(&near), far_ops = fake_ops(&far), ops = {.struct_size = sizeof ops};

    (void)b;
    far_ops.struct_size = offsetof(kvlazy_store_ops, size); /* or a table that ends before it */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kvlazy_store_tiers(&near_ops, &far_ops, &ops), 0);
        put_at(&far, 1);
        assert_int_equal(get_blob(&ops, 1, BYTES), 0);
        assert_false(is_at(&near, 1));
        ops.destroy(ops.ctx);
        far_ops = fake_ops(&far);
    }
    fake_clear(&near);
    fake_clear(&far);
}

static void a_failure_of_one_is_none_of_the_other(void **state)
{
    static const int calls[] = {FAKE_OPEN, FAKE_WRITE, FAKE_CLOSE};
    struct both *b = *state;

    for (size_t i = 0; i < N_OF(calls); i++)
        for (int k = 0; k < 2; k++) {
            struct fake_place *bad = k ? &b->near : &b->far, *good = k ? &b->far : &b->near;

            bad->error[calls[i]] = ENOSPC;
            assert_int_equal(put_steps(&b->ops, 1, BYTES, 7000), 0);
            assert_true(is_at(good, 1));
            assert_false(is_at(bad, 1));
            assert_int_equal(bad->n_call[FAKE_WRITE], calls[i] == FAKE_OPEN ? 0 : calls[i] == FAKE_WRITE ? 1 : 43);
            good->error[calls[i]] = ENOSPC;
            drop(&b->ops, 1);
            assert_int_equal(put_steps(&b->ops, 1, BYTES, 7000), ENOSPC);
            memset(bad->error, 0, sizeof bad->error);
            memset(good->error, 0, sizeof good->error);
            memset(bad->n_call, 0, sizeof bad->n_call);
            memset(good->n_call, 0, sizeof good->n_call);
            assert_false(has_blob(&b->ops, 1));
        }
}

/* Each of the two fails in a call of its own: nothing is kept, so the put fails, and says why. */
static void a_put_that_neither_kept_has_failed(void **state)
{
    static const int calls[] = {FAKE_OPEN, FAKE_WRITE, FAKE_CLOSE};
    struct both *b = *state;

    for (size_t near = 0; near < N_OF(calls); near++)
        for (size_t far = 0; far < N_OF(calls); far++) {
            b->near.error[calls[near]] = ENOSPC;
            b->far.error[calls[far]] = EIO;
            int error = put_steps(&b->ops, 1, BYTES, 7000);
            assert_true(error == ENOSPC || error == EIO);
            memset(b->near.error, 0, sizeof b->near.error);
            memset(b->far.error, 0, sizeof b->far.error);
            assert_false(has_blob(&b->ops, 1));
        }
}

static void a_touch_of_one_is_a_touch(void **state)
{
    struct both *b = *state;

    for (int k = 0; k < 2; k++) {
        struct fake_place *bad = k ? &b->near : &b->far, *good = k ? &b->far : &b->near;

        bad->error[FAKE_TOUCH] = EHOSTDOWN;
        assert_int_equal(b->ops.touch(b->ops.ctx, (const uint8_t(*)[32])blob_name(1), 1), 0);
        good->error[FAKE_TOUCH] = EIO;
        assert_in_range(b->ops.touch(b->ops.ctx, (const uint8_t(*)[32])blob_name(1), 1), 1, 200);
        bad->error[FAKE_TOUCH] = good->error[FAKE_TOUCH] = 0;
        assert_int_equal(bad->n_call[FAKE_TOUCH], 2);
        assert_int_equal(good->n_call[FAKE_TOUCH], 2);
        memset(b->near.n_call, 0, sizeof b->near.n_call);
        memset(b->far.n_call, 0, sizeof b->far.n_call);
    }
}

/* The near one may evict to make room for a copy: so it is asked for room once there is something to copy. */
static void a_copy_begins_with_its_first_byte(void **state)
{
    struct both *b = *state;
    uint8_t data[1000];
    void *blob;

    put_at(&b->far, 1);
    assert_int_equal(b->ops.open(b->ops.ctx, blob_name(1), 0, &blob), 0);
    assert_int_equal(b->near.n_call[FAKE_OPEN], 1); /* to read */
    assert_int_equal(b->near.n_open, 0);
    b->far.error[FAKE_READ] = ETIMEDOUT;
    assert_int_equal(b->ops.read(blob, 0, data, sizeof data, 1000), ETIMEDOUT);
    b->far.error[FAKE_READ] = 0;
    assert_int_equal(b->ops.read(blob, 5000, data, sizeof data, 1000), 0);
    assert_int_equal(b->near.n_call[FAKE_OPEN], 1);
    b->near.error[FAKE_OPEN] = ENOSPC;
    assert_int_equal(b->ops.read(blob, 0, data, sizeof data, 1000), 0);
    assert_int_equal(b->ops.read(blob, 0, data, sizeof data, 1000), 0);
    assert_int_equal(b->near.n_call[FAKE_OPEN], 2); /* and no more than once */
    assert_int_equal(b->ops.close(blob, false), 0);
    b->near.error[FAKE_OPEN] = 0;
    assert_int_equal(get_steps(&b->ops, 1, BYTES, 7000), 0);
    assert_true(is_at(&b->near, 1));
}

static void a_copy_that_fails_harms_no_reader(void **state)
{
    static const int calls[] = {FAKE_OPEN, FAKE_WRITE, FAKE_CLOSE};
    struct both *b = *state;

    for (size_t i = 0; i < N_OF(calls); i++) {
        put_at(&b->far, 1);
        b->near.error[calls[i]] = ENOSPC;
        assert_int_equal(get_steps(&b->ops, 1, BYTES, 7000), 0);
        assert_false(is_at(&b->near, 1));
        memset(b->near.error, 0, sizeof b->near.error);
        drop(&b->ops, 1);
    }
    put_at(&b->far, 1);
    b->far.error[FAKE_READ] = ETIMEDOUT;
    assert_int_equal(get_blob(&b->ops, 1, BYTES), ETIMEDOUT);
    assert_false(is_at(&b->near, 1));
}

static int64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void the_second_one_has_what_is_left_of_the_time(void **state)
{
    struct both *b = *state;
    uint8_t data[1000];
    void *blob;

    put_at(&b->far, 1);
    assert_int_equal(b->ops.open(b->ops.ctx, blob_name(1), 0, &blob), 0);
    b->far.slow_ms = 30;
    assert_int_equal(b->ops.read(blob, 0, data, sizeof data, 1000), 0);
    assert_int_equal(b->far.max_ms, 1000);
    assert_in_range(b->near.max_ms, 1, 970);
    assert_int_equal(b->ops.read(blob, 1000, data, sizeof data, 10), 0);
    assert_int_equal(b->near.max_ms, 0);
    assert_int_equal(b->ops.close(blob, false), 0);
    b->far.slow_ms = 0;

    b->near.slow_ms = 30;
    int64_t begin_ms = now_ms();
    blob = begin_put(&b->ops, 2, BYTES, 1000);
    assert_int_equal(b->ops.write(blob, data, sizeof data, 1000), 0);
    assert_int_equal(b->near.max_ms, 1000);
    assert_in_range(b->far.max_ms, 1, 970);
    assert_true(now_ms() - begin_ms >= 60);
    assert_int_equal(b->ops.close(blob, false), 0);
}

/* The n-th call of either fails: what a reader gets is right, what is visible is whole, nothing stays open. */
static void every_call_fails_once(void **state)
{
    struct both *b = *state;

    for (int k = 0; k < 2; k++)
        for (int n = 1; n < 200; n++) {
            struct fake_place *bad = k ? &b->near : &b->far;

            put_at(&b->far, 1);
            bad->fail_in = n;
            (void)get_steps(&b->ops, 1, BYTES, 20000);
            (void)put_steps(&b->ops, 2, BYTES, 20000);
            (void)get_steps(&b->ops, 2, BYTES, 20000);
            (void)b->ops.drop(b->ops.ctx, blob_name(2));
            bool done = bad->fail_in > 0;
            bad->fail_in = 0;
            for (uint32_t i = 1; i <= 2; i++) {
                (void)is_at(&b->near, i);
                (void)is_at(&b->far, i);
                drop(&b->ops, i);
            }
            assert_int_equal(b->near.n_open + b->far.n_open, 0);
            if (done)
                break;
            assert_true(n < 199);
        }
}

int main(void)
{
#define BOTH_TEST(f) cmocka_unit_test_setup_teardown(f, both_setup, both_teardown)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_looked_at),
        BOTH_TEST(both_are_written),
        BOTH_TEST(the_near_one_is_read_first),
        BOTH_TEST(each_has_what_it_has),
        BOTH_TEST(what_is_far_is_copied),
        BOTH_TEST(a_size_that_is_not_told),
        BOTH_TEST(a_failure_of_one_is_none_of_the_other),
        BOTH_TEST(a_put_that_neither_kept_has_failed),
        BOTH_TEST(a_touch_of_one_is_a_touch),
        BOTH_TEST(a_copy_begins_with_its_first_byte),
        BOTH_TEST(a_copy_that_fails_harms_no_reader),
        BOTH_TEST(the_second_one_has_what_is_left_of_the_time),
        BOTH_TEST(every_call_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
