/* SPDX-License-Identifier: MIT */
/*
 * Threads on one store and one directory: two engines with a cache each, whose requests load what either of them saved,
 * and a third thread that saves an idle slot of the first one and forgets it again, while batches are open.
 * Every live token has the rows of its prompt. Meant for the thread sanitizer too.
 */
#include "prefix_support.h"
#include "tree_support.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum {
    BLOCK = 16,
    MOST = 120,
    N_TALK = 6,
    N_SLOT = 3,
    IDLE_SLOT = 3,
    N_ENGINE = 2,
    N_REQUEST = 60,
    LIMIT_BYTES = 1 << 26
};

struct engine {
    struct box *box;
    pthread_t thread;
    uint64_t random;
    uint32_t n_loaded;
};

static struct world {
    kvlazy_store *store;
    struct engine engine[N_ENGINE];
    atomic_bool ends;
    atomic_uint n_saved;
} w;

static int32_t token[N_TALK][MOST];

static kvlazy_prompt prompt_of(uint32_t talk)
{
    return (kvlazy_prompt){.struct_size = sizeof(kvlazy_prompt), .token = token[talk], .n_token = MOST};
}

static uint32_t below(uint64_t *random, uint32_t n)
{
    return (uint32_t)(next_random(random) % n);
}

/* A slot takes up a talk: what is stored of it is loaded, the rest is computed. */
static void request(struct engine *e)
{
    uint32_t talk = below(&e->random, N_TALK), slot = below(&e->random, N_SLOT), n_live = 999, n_saved = 0;
    kvlazy_cache *cache = e->box->cache;
    kvlazy_prompt p = prompt_of(talk);

    ok(kvlazy_init_batch(cache));
    ok(kvlazy_seq_rm(cache, (kvlazy_seq_id)slot, -1, -1));
    ok(kvlazy_store_load(w.store, cache, (kvlazy_seq_id)slot, &p, 0, 20000, &n_live));
    assert_true(n_live < MOST);
    e->n_loaded += n_live;
    prefix_holds(e->box, (kvlazy_seq_id)slot, &p, n_live);
    ok(prefix_compute(e->box, (kvlazy_seq_id)slot, &p, n_live, MOST));
    ok(kvlazy_end_batch(cache));
    if (below(&e->random, 2))
        ok(kvlazy_store_save(w.store, cache, (kvlazy_seq_id)slot, &p, 20000, &n_saved));
    prefix_holds(e->box, (kvlazy_seq_id)slot, &p, MOST);
}

static void *serve(void *arg)
{
    struct engine *e = arg;

    for (int i = 0; i < N_REQUEST; i++)
        request(e);
    return NULL;
}

/* The slot that the first engine has no request for: it keeps talk 0, which all others may have too. */
static void *look_after(void *arg)
{
    kvlazy_cache *cache = w.engine[0].box->cache;
    uint64_t random = 3;
    kvlazy_prompt p = prompt_of(0);

    (void)arg;
    while (!atomic_load(&w.ends)) {
        uint32_t n_saved = 0;

        if (below(&random, 4) == 0)
            ok(kvlazy_store_forget(w.store, cache, &p));
        ok(kvlazy_store_save(w.store, cache, IDLE_SLOT, &p, 20000, &n_saved));
        assert_int_equal(n_saved, MOST - MOST % BLOCK);
        atomic_fetch_add(&w.n_saved, n_saved);
    }
    return NULL;
}

static void make_engines(void)
{
    for (uint32_t t = 0; t < N_TALK; t++)
        for (int32_t i = 0; i < MOST; i++)
            token[t][i] = i < 40 ? i : i + 1000 * (int32_t)t; /* one beginning */
    for (uint64_t k = 0; k < N_ENGINE; k++) {
        struct engine *e = &w.engine[k];

        *e = (struct engine){.box = prefix_box(512), .random = 100 + k};
        if (k == 1)
            box_transpose(e->box, 2);
        box_open(e->box);
    }
    const kvlazy_prompt p = prompt_of(0);
    prefix_turn(w.engine[0].box, IDLE_SLOT, &p, 0, MOST);
}

static void test_two_engines_and_a_thread_that_saves(void **state)
{
    kvlazy_store_ops ops = {.struct_size = sizeof ops};
    char *path = make_tree(false);
    pthread_t saver;
    uint32_t n_loaded = 0;

    (void)state;
    ok(kvlazy_store_dir(path, LIMIT_BYTES, &ops));
    w.store = prefix_store(&ops, BLOCK);
    make_engines();
    assert_int_equal(pthread_create(&saver, NULL, look_after, NULL), 0);
    for (int k = 0; k < N_ENGINE; k++)
        assert_int_equal(pthread_create(&w.engine[k].thread, NULL, serve, &w.engine[k]), 0);
    for (int k = 0; k < N_ENGINE; k++)
        pthread_join(w.engine[k].thread, NULL);
    atomic_store(&w.ends, true);
    pthread_join(saver, NULL);
    kvlazy_store_info info = prefix_info(w.store);
    for (int k = 0; k < N_ENGINE; k++) {
        n_loaded += w.engine[k].n_loaded;
        box_sound(w.engine[k].box);
        box_free(w.engine[k].box);
    }
    print_message("%u tokens loaded, %u saved or there\n", n_loaded, (unsigned)w.n_saved);
    assert_true(n_loaded > 0 && w.n_saved > 0 && !info.n_corrupt && !info.n_failed);
    ok(kvlazy_store_destroy(w.store));
    remove_tree(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_engines_and_a_thread_that_saves)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
