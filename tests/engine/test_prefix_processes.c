/* SPDX-License-Identifier: MIT */
/*
 * Engines in several processes on one directory: a second one computes only what does not fill a block, and one that is
 * killed at any moment shows the others no wrong byte. Each has its plain twin beside it, which says what is right.
 */
#include "engine_session.h"

#include "tree_support.h"
#include "unit.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BLOCK = 16, N_PROMPT = 90, LIMIT_BYTES = 1 << 28 };

#ifdef __SANITIZE_ADDRESS__
enum { N_KILLED = 20 };
#else
enum { N_KILLED = 100 };
#endif

/* What the processes share. */
struct shared {
    atomic_uint round; /* which text is talked about */
    atomic_bool is_over;
    atomic_ullong n_loaded;
    char path[128];
    uint32_t want_loaded; /* of a process that asks once */
};

static kvlazy_store *store_in(const char *path)
{
    kvlazy_store_ops ops = {.struct_size = sizeof ops};
    const kvlazy_store_params params = {
        .struct_size = sizeof params, .ops = &ops, .block_tokens = BLOCK, .min_tokens = 1};
    kvlazy_store *store = NULL;

    assert_int_equal(kvlazy_store_dir(path, LIMIT_BYTES, &ops), KVLAZY_OK);
    assert_int_equal(kvlazy_store_create(&params, &store), KVLAZY_OK);
    return store;
}

static engine_session *session_on(const engine_prefix *prefix)
{
    const engine_session_config config = {
        .layout = {MODEL_F16, MODEL_F16, false}, .kv = ENGINE_KV_LAZY, .n_stream = 1, .prefix = prefix};
    engine_session *session = NULL;

    assert_int_equal(engine_session_open(&config, &session), KVLAZY_OK);
    return session;
}

static engine_step prompt_of(uint32_t text)
{
    return (engine_step){ENGINE_PROMPT, .slots = 1u << text % ENGINE_SESSION_SLOTS, .a = text * 7, .n_a = N_PROMPT};
}

/* One prompt. Returns 0 if so much of it was loaded as is wanted, and the rest computed. */
static int ask_once(void *arg)
{
    const struct shared *shared = arg;
    const engine_prefix prefix = {store_in(shared->path), 20000, 20000};
    engine_session *session = session_on(&prefix);
    const engine_step prompt = prompt_of(atomic_load(&shared->round));
    engine_session_report report;
    int status = engine_session_step(session, &prompt);

    engine_session_get_report(session, &report);
    engine_session_close(session);
    if (kvlazy_store_destroy(prefix.store) != KVLAZY_OK || status != KVLAZY_OK || report.n_differing != 0)
        return 1;
    return report.lazy.loaded == shared->want_loaded && report.lazy.computed == N_PROMPT - shared->want_loaded ? 0 : 2;
}

static struct shared *make_shared(const char *path)
{
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(shared != MAP_FAILED);
    assert_true(strlen(path) < sizeof shared->path);
    memcpy(shared->path, path, strlen(path) + 1);
    return shared;
}

static void test_a_second_process_computes_what_fills_no_block(void **state)
{
    char *path = make_tree(false);
    struct shared *shared = make_shared(path);

    (void)state;
    assert_int_equal(end_of_child(child(ask_once, shared)), 0);
    assert_int_equal(n_files_below(path), N_PROMPT / BLOCK);
    shared->want_loaded = N_PROMPT / BLOCK * BLOCK;
    assert_int_equal(end_of_child(child(ask_once, shared)), 0);
    munmap(shared, sizeof *shared);
    remove_tree(path);
}

/* ---- killed ---- */

/* Talks about this text and that of the last round, until it is told to end: it loads what the others save meanwhile,
 * whole or not at all. */
static int talk_on(void *arg)
{
    struct shared *shared = arg;
    const engine_prefix prefix = {store_in(shared->path), 20000, 20000};
    engine_session *session = session_on(&prefix);
    kvlazy_store_info info = {.struct_size = sizeof info};
    engine_session_report report;
    int status = KVLAZY_OK;

    for (uint32_t i = 0; status == KVLAZY_OK && !atomic_load(&shared->is_over); i++) {
        const uint32_t round = atomic_load(&shared->round);
        const engine_step prompt = prompt_of(round - (round > 0 && i % 2)), drop = {ENGINE_DROP, .slots = 15};

        status = engine_session_step(session, &prompt);
        status = status == KVLAZY_OK ? engine_session_step(session, &drop) : status;
    }
    engine_session_get_report(session, &report);
    atomic_fetch_add(&shared->n_loaded, report.lazy.loaded);
    engine_session_close(session);
    if (kvlazy_store_stats(prefix.store, &info) != KVLAZY_OK || kvlazy_store_destroy(prefix.store) != KVLAZY_OK)
        return 3;
    return status != KVLAZY_OK || report.n_differing != 0 ? 1 : info.n_corrupt + info.n_failed != 0 ? 2 : 0;
}

/* Any moment of its life: before it has a store, while it computes, saves or loads. */
static void kill_soon(int pid, uint32_t number)
{
    const struct timespec wait = {.tv_nsec = (long)(number * 7919u % 100u) * 800000};

    nanosleep(&wait, NULL);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(end_of_child(pid), 1000 + SIGKILL);
}

static void test_one_that_is_killed_harms_no_other(void **state)
{
    char *path = make_tree(false);
    struct shared *shared = make_shared(path);
    const int survivor[2] = {child(talk_on, shared), child(talk_on, shared)};

    (void)state;
    for (uint32_t i = 0; i < N_KILLED; i++) {
        atomic_store(&shared->round, i);
        kill_soon(child(talk_on, shared), i);
    }
    atomic_store(&shared->is_over, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(end_of_child(survivor[i]), 0);
    print_message("%d processes killed, %llu tokens loaded by the others, %d blobs\n", N_KILLED,
                  (unsigned long long)atomic_load(&shared->n_loaded), n_files_below(path));
    assert_true(atomic_load(&shared->n_loaded) > 0);
    atomic_store(&shared->round, N_KILLED); /* a text that no other talked about */
    assert_int_equal(end_of_child(child(ask_once, shared)), 0);
    shared->want_loaded = N_PROMPT / BLOCK * BLOCK;
    assert_int_equal(end_of_child(child(ask_once, shared)), 0);
    munmap(shared, sizeof *shared);
    remove_tree(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_second_process_computes_what_fills_no_block),
        cmocka_unit_test(test_one_that_is_killed_harms_no_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
