/* SPDX-License-Identifier: MIT */
/*
 * A blob is right whole or not at all: with any one bit turned round, and cut at any byte, it is a miss, is counted as
 * corrupt, and is dropped. The rows are small, so that every bit and every byte has its turn.
 */
#include "fake_place.h"
#include "prefix_support.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 16 };

static int32_t token[BLOCK + 1];
static const kvlazy_prompt prompt = {.struct_size = sizeof prompt, .token = token, .n_token = BLOCK + 1};

struct bench {
    struct fake_place fake;
    kvlazy_store *store;
    struct box *box;
    uint8_t name[32], *data; /* of the only blob */
    uint64_t bytes;
};

static int setup(void **state)
{
    struct bench *b = calloc(1, sizeof *b);
    kvlazy_store_ops ops;
    uint32_t n = 0;

    assert_non_null(b);
    ops = fake_ops(&b->fake);
    for (int32_t i = 0; i <= BLOCK; i++)
        token[i] = 3 * i;
    b->store = prefix_store(&ops, BLOCK);
    b->box = prefix_box(32);
    b->box->params.n_layer = 1;
    b->box->layer[0] = (kvlazy_layer){.id = 3, .k_row_bytes = 2, .v_row_bytes = 1};
    box_open(b->box);
    prefix_turn(b->box, 0, &prompt, 0, BLOCK + 1);
    ok(kvlazy_store_save(b->store, b->box->cache, 0, &prompt, 10000, &n));
    assert_int_equal(n, BLOCK);
    ok(kvlazy_seq_rm(b->box->cache, 0, -1, -1));
    b->bytes = b->fake.blob->bytes;
    b->data = malloc(b->bytes);
    assert_non_null(b->data);
    memcpy(b->data, b->fake.blob->data, b->bytes);
    memcpy(b->name, b->fake.blob->name, sizeof b->name);
    fake_lose(&b->fake, 0);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    box_free(b->box);
    ok(kvlazy_store_destroy(b->store));
    fake_clear(&b->fake);
    free(b->data);
    free(b);
    return 0;
}

/* Loads the first `bytes` of the blob as it is now. */
static uint32_t load(struct bench *b, uint64_t bytes)
{
    uint32_t n = 99;

    fake_put(&b->fake, b->name, b->data, bytes);
    ok(kvlazy_init_batch(b->box->cache));
    ok(kvlazy_store_load(b->store, b->box->cache, 0, &prompt, 0, 10000, &n));
    ok(kvlazy_end_batch(b->box->cache));
    return n;
}

static void is_whole(struct bench *b)
{
    assert_int_equal(load(b, b->bytes), BLOCK);
    prefix_holds(b->box, 0, &prompt, BLOCK);
    box_sound(b->box);
    ok(kvlazy_seq_rm(b->box->cache, 0, -1, -1));
    fake_lose(&b->fake, 0);
}

static void is_a_miss(struct bench *b, uint64_t bytes, uint64_t n_corrupt)
{
    assert_int_equal(load(b, bytes), 0);
    assert_null(b->fake.blob);
    assert_true(prefix_info(b->store).n_corrupt == n_corrupt);
}

static void test_every_flipped_bit(void **state)
{
    struct bench *b = *state;

    is_whole(b);
    for (uint64_t i = 0; i < 8 * b->bytes; i++) {
        b->data[i / 8] ^= (uint8_t)(1 << i % 8);
        is_a_miss(b, b->bytes, i + 1);
        b->data[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    box_sound(b->box);
    is_whole(b);
}

static void test_every_truncation(void **state)
{
    struct bench *b = *state;

    for (uint64_t bytes = 1; bytes < b->bytes; bytes++)
        is_a_miss(b, bytes, bytes);
    box_sound(b->box);
    is_whole(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_every_flipped_bit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_every_truncation, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
