/* SPDX-License-Identifier: MIT */
/*
 * What kvlazy/store.h promises, over a place in memory: a prefix that one cache saved is found by another, whatever
 * lies where; damage, another scope and other tokens are misses; and what may not be saved is not.
 */
#include "fake_place.h"
#include "state_support.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <kvlazy/store.h>

enum { BLOCK = 16, N_TOKEN = 72 };

static int32_t token[N_TOKEN];

static struct box *a_box(void)
{
    struct box *box = box_new();

    box->params.kv_size = 128;
    box->params.model_tag = "tag";
    box->params.model_tag_bytes = 3;
    for (uint32_t i = 0; i < N_TOKEN; i++)
        token[i] = (int32_t)(7 * i) - 3;
    return box_open(box);
}

static kvlazy_store *a_store(struct fake_place *fake)
{
    kvlazy_store_ops ops = fake_ops(fake);
    kvlazy_store_params params = {
        .struct_size = sizeof params, .ops = &ops, .block_tokens = BLOCK, .min_tokens = BLOCK};
    kvlazy_store *store = NULL;

    ok(kvlazy_store_create(&params, &store));
    return store;
}

static kvlazy_prompt a_prompt(void)
{
    return (kvlazy_prompt){.struct_size = sizeof(kvlazy_prompt), .token = token, .n_token = N_TOKEN};
}

static kvlazy_store_info info_of(kvlazy_store *store)
{
    kvlazy_store_info info = {.struct_size = sizeof info};

    ok(kvlazy_store_stats(store, &info));
    return info;
}

static uint32_t save(kvlazy_store *store, struct box *box, kvlazy_seq_id seq, const kvlazy_prompt *prompt)
{
    uint32_t n = 99;

    ok(kvlazy_store_save(store, box->cache, seq, prompt, 10000, &n));
    box_sound(box);
    return n;
}

static uint32_t load(kvlazy_store *store, struct box *box, kvlazy_seq_id seq, const kvlazy_prompt *prompt,
                     uint32_t n_have)
{
    uint32_t n = 99;

    ok(kvlazy_init_batch(box->cache));
    ok(kvlazy_store_load(store, box->cache, seq, prompt, n_have, 10000, &n));
    box_sound(box);
    ok(kvlazy_end_batch(box->cache));
    assert_int_equal(kvlazy_seq_pos_max(box->cache, seq), (int)n - 1);
    return n;
}

static void done(kvlazy_store *store, struct fake_place *fake)
{
    ok(kvlazy_store_destroy(store));
    assert_true(fake->destroyed);
    fake_clear(fake);
}

static void test_a_prefix_is_found_by_another_cache(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store *store = a_store(&fake);
    struct box *from = a_box(), *to = box_new();
    kvlazy_prompt prompt = a_prompt();

    (void)state;
    to->params.kv_size = 96;
    to->params.n_stream = 4;
    to->params.model_tag = "tag";
    to->params.model_tag_bytes = 3;
    box_open(box_transpose(to, 2));
    box_turn(from, 1, 0, 70);
    assert_int_equal(save(store, from, 1, &prompt), 64);
    assert_int_equal(info_of(store).n_written, 4);
    assert_int_equal(save(store, from, 1, &prompt), 64);
    assert_int_equal(info_of(store).n_written, 4);
    assert_int_equal(info_of(store).n_there, 4);
    assert_int_equal(load(store, to, 2, &prompt, 0), 64);
    ok(kvlazy_seq_rm(from->cache, 1, 64, -1));
    assert_true(box_sum(to, 2) == box_sum(from, 1));
    assert_int_equal(info_of(store).n_hit, 4);
    box_turn(to, 2, 64, 5); /* and it goes on */
    box_free(to);
    box_free(from);
    done(store, &fake);
}

static void test_the_last_token_and_those_that_are_there_are_not_loaded(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store *store = a_store(&fake);
    struct box *from = a_box(), *to = a_box();
    kvlazy_prompt prompt = a_prompt();
    uint32_t n = 99;

    (void)state;
    box_turn(from, 0, 0, 64);
    assert_int_equal(save(store, from, 0, &prompt), 64);
    prompt.n_token = 64;
    assert_int_equal(load(store, to, 0, &prompt, 0), 63);
    ok(kvlazy_seq_rm(to->cache, 0, 23, -1));
    assert_int_equal(load(store, to, 0, &prompt, 23), 63);
    ok(kvlazy_seq_rm(from->cache, 0, 63, -1));
    assert_true(box_sum(to, 0) == box_sum(from, 0));
    ok(kvlazy_init_batch(to->cache));
    assert_int_equal(kvlazy_store_load(store, to->cache, 0, &prompt, 10, 1000, &n), KVLAZY_EPOS);
    assert_int_equal(n, 10);
    ok(kvlazy_end_batch(to->cache));
    box_free(to);
    box_free(from);
    done(store, &fake);
}

static void test_other_scopes_spans_and_tokens_have_nothing_in_common(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store *store = a_store(&fake);
    struct box *from = a_box(), *to = a_box();
    kvlazy_span span = {.begin = 20, .n = 3, .id = "image", .id_bytes = 5};
    kvlazy_prompt prompt = a_prompt(), scoped = prompt, spanned = prompt;

    (void)state;
    scoped.scope = "b";
    scoped.scope_bytes = 1;
    spanned.span = &span;
    spanned.n_span = 1;
    box_turn(from, 0, 0, N_TOKEN);
    assert_int_equal(save(store, from, 0, &prompt), 64);
    assert_int_equal(load(store, to, 0, &scoped, 0), 0);
    assert_int_equal(load(store, to, 1, &spanned, 0), BLOCK);
    token[40]++;
    assert_int_equal(load(store, to, 2, &prompt, 0), 32);
    token[40]--;
    ok(kvlazy_store_forget(store, to->cache, &prompt));
    assert_null(fake.blob);
    box_free(to);
    box_free(from);
    done(store, &fake);
}

static void test_only_what_is_settled_and_never_moved_is_saved(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store *store = a_store(&fake);
    struct box *box = a_box();
    kvlazy_prompt prompt = a_prompt();

    (void)state;
    ok(kvlazy_init_batch(box->cache));
    ok(box_put(box, 0, 0, 40));
    assert_int_equal(save(store, box, 0, &prompt), 0);
    ok(kvlazy_end_batch(box->cache));
    assert_int_equal(save(store, box, 0, &prompt), 32);
    ok(kvlazy_seq_cp(box->cache, 0, 1, 4, -1));
    assert_int_equal(save(store, box, 1, &prompt), 0);
    box_free(box);
    done(store, &fake);
}

static void test_a_place_that_fails_is_a_miss(void **state)
{
    struct box *from = a_box(), *to = a_box();
    kvlazy_prompt prompt = a_prompt();

    (void)state;
    box_turn(from, 0, 0, N_TOKEN);
    for (int i = 1; i < 60; i++) {
        struct fake_place fake = {.fail_in = i};
        kvlazy_store *store = a_store(&fake);
        uint32_t n = save(store, from, 0, &prompt);

        assert_true(n <= 64);
        assert_true(load(store, to, 0, &prompt, 0) <= 64);
        ok(kvlazy_seq_rm(to->cache, 0, -1, -1));
        done(store, &fake);
    }
    box_free(to);
    box_free(from);
}

static void test_room_ends_a_load_early(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store *store = a_store(&fake);
    struct box *from = a_box(), *to = a_box();
    kvlazy_prompt prompt = a_prompt();

    (void)state;
    box_turn(from, 0, 0, N_TOKEN);
    assert_int_equal(save(store, from, 0, &prompt), 64);
    box_turn(to, 1, 0, 90);
    assert_int_equal(load(store, to, 0, &prompt, 0), 32);
    assert_int_equal(info_of(store).n_refused_room, 1);
    box_free(to);
    box_free(from);
    done(store, &fake);
}

static void test_wrong_arguments(void **state)
{
    struct fake_place fake = {0};
    kvlazy_store_ops ops = fake_ops(&fake);
    kvlazy_store_params params = {.struct_size = sizeof params, .ops = &ops, .block_tokens = 15};
    kvlazy_store *store = NULL;
    struct box *box = a_box();
    kvlazy_prompt prompt = a_prompt();
    uint32_t n = 99;

    (void)state;
    assert_int_equal(kvlazy_store_create(&params, &store), KVLAZY_EINVAL);
    params.block_tokens = 257;
    assert_int_equal(kvlazy_store_create(&params, &store), KVLAZY_EINVAL);
    assert_null(store);
    store = a_store(&fake);
    assert_int_equal(kvlazy_store_load(store, box->cache, 0, &prompt, 0, 100, &n), KVLAZY_EINVAL); /* no batch */
    assert_int_equal(n, 0);
    assert_int_equal(kvlazy_store_save(store, box->cache, 4, &prompt, 100, &n), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_store_save(store, NULL, 0, &prompt, 100, &n), KVLAZY_EINVAL);
    prompt.n_span = 1;
    assert_int_equal(kvlazy_store_save(store, box->cache, 0, &prompt, 100, &n), KVLAZY_EINVAL);
    box_free(box);
    done(store, &fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_prefix_is_found_by_another_cache),
        cmocka_unit_test(test_the_last_token_and_those_that_are_there_are_not_loaded),
        cmocka_unit_test(test_other_scopes_spans_and_tokens_have_nothing_in_common),
        cmocka_unit_test(test_only_what_is_settled_and_never_moved_is_saved),
        cmocka_unit_test(test_a_place_that_fails_is_a_miss),
        cmocka_unit_test(test_room_ends_a_load_early),
        cmocka_unit_test(test_wrong_arguments),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
