/* SPDX-License-Identifier: MIT */
/*
 * A store in a directory, between processes: one saves and ends, another finds it; both at once; and a child of fork
 * has nothing in the store of its parent.
 */
#include "prefix_support.h"
#include "tree_support.h"

#include <unistd.h>

enum { BLOCK = 16, N_TOKEN = 200, LIMIT_BYTES = 1 << 26 };

static int32_t token[N_TOKEN];
static const kvlazy_prompt prompt = {.struct_size = sizeof prompt, .token = token, .n_token = N_TOKEN};

static kvlazy_store *store_in(const char *path)
{
    kvlazy_store_ops ops = {.struct_size = sizeof ops};

    ok(kvlazy_store_dir(path, LIMIT_BYTES, &ops));
    return prefix_store(&ops, BLOCK);
}

/* Saves a prompt, or what is left of it. */
static int save_and_end(void *path)
{
    kvlazy_store *store = store_in(path);
    struct box *box = box_open(prefix_box(256));
    uint32_t n = 0;

    prefix_turn(box, 0, &prompt, 0, N_TOKEN);
    ok(kvlazy_store_save(store, box->cache, 0, &prompt, 20000, &n));
    box_free(box);
    ok(kvlazy_store_destroy(store));
    return n == 192 ? 0 : 1;
}

static uint32_t load_in(kvlazy_store *store, struct box *box, kvlazy_seq_id seq)
{
    uint32_t n = 99;

    ok(kvlazy_init_batch(box->cache));
    ok(kvlazy_store_load(store, box->cache, seq, &prompt, 0, 20000, &n));
    ok(kvlazy_end_batch(box->cache));
    prefix_holds(box, seq, &prompt, n);
    box_sound(box);
    return n;
}

static int load_and_end(void *path)
{
    kvlazy_store *store = store_in(path);
    struct box *box = prefix_box(256);

    box->params.n_stream = 4;
    box_open(box_transpose(box, 2));
    uint32_t n = load_in(store, box, 2);
    box_free(box);
    ok(kvlazy_store_destroy(store));
    return n == 192 ? 0 : 1;
}

static void test_what_one_process_saved_another_finds(void **state)
{
    char *path = make_tree(false);

    (void)state;
    assert_int_equal(end_of_child(child(save_and_end, path)), 0);
    assert_int_equal(n_files_below(path), 12);
    assert_int_equal(end_of_child(child(load_and_end, path)), 0);
    remove_tree(path);
}

static void test_several_at_once(void **state)
{
    char *path = make_tree(false);
    int pid[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        pid[i] = child(save_and_end, path);
    for (int i = 0; i < 4; i++)
        assert_int_equal(end_of_child(pid[i]), 0);
    assert_int_equal(n_files_below(path), 12);
    assert_int_equal(end_of_child(child(load_and_end, path)), 0);
    remove_tree(path);
}

/* ---- a child of fork ---- */

struct parent {
    kvlazy_store *store;
    struct box *box;
};

static int use_what_is_the_parents(void *arg)
{
    struct parent *p = arg;
    uint32_t n_saved = 99, n = load_in(p->store, p->box, 1);
    bool wrong = n != 0;

    ok(kvlazy_store_save(p->store, p->box->cache, 0, &prompt, 1000, &n_saved));
    wrong |= n_saved != 0;
    ok(kvlazy_store_forget(p->store, p->box->cache, &prompt));
    ok(kvlazy_store_destroy(p->store));
    return wrong;
}

static void test_a_child_of_fork_has_nothing_in_it(void **state)
{
    char *path = make_tree(false);
    struct parent p = {store_in(path), box_open(prefix_box(512))};
    uint32_t n = 0;

    (void)state;
    prefix_turn(p.box, 0, &prompt, 0, N_TOKEN);
    ok(kvlazy_store_save(p.store, p.box->cache, 0, &prompt, 20000, &n));
    assert_int_equal(n, 192);
    assert_int_equal(end_of_child(child(use_what_is_the_parents, &p)), 0);
    assert_int_equal(n_files_below(path), 12); /* it took nothing away */
    assert_int_equal(load_in(p.store, p.box, 1), 192);
    box_free(p.box);
    ok(kvlazy_store_destroy(p.store));
    remove_tree(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_one_process_saved_another_finds),
        cmocka_unit_test(test_several_at_once),
        cmocka_unit_test(test_a_child_of_fork_has_nothing_in_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
