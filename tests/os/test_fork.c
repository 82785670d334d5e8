/* SPDX-License-Identifier: MIT */
/*
 * What a forked child may do with a cache: use its copy, if no other thread of the parent was inside a call; else every
 * call answers ENOTSUP, at once, and destroy leaves the copy as it is. Real forks over the real host.
 */
#define _DEFAULT_SOURCE
#include "support.h"

#include <kvlazy/engine_cells.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HANGS_S = 10 }; /* a child that takes longer is killed */

/* A cache whose callbacks and host stop where the test says. */
struct place {
    kvlazy_cache *cache, *linked;
    kvlazy_mem mem;
    atomic_bool stop_evict, stop_log, stop_host;
    atomic_bool inside, go_on;
};

static void stop_here(struct place *p)
{
    atomic_store(&p->inside, true);
    while (!atomic_load(&p->go_on))
        usleep(500);
}

static int on_evict(void *ctx, kvlazy_seq_id seq, kvlazy_pos pos)
{
    struct place *p = ctx;

    (void)seq;
    (void)pos;
    if (atomic_exchange(&p->stop_evict, false))
        stop_here(p);
    return 0;
}

static void on_log(void *ctx, int level, const char *text)
{
    struct place *p = ctx;

    (void)level;
    (void)text;
    if (atomic_exchange(&p->stop_log, false))
        stop_here(p);
}

static size_t decommit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    struct place *p = ctx;

    if (atomic_exchange(&p->stop_host, false))
        stop_here(p);
    return kvlazy_mem_host()->decommit(NULL, range, n_range);
}

static const kvlazy_layer layer = {.k_row_bytes = 256, .v_row_bytes = 256};

static int serve(kvlazy_cache *c, kvlazy_seq_id seq, uint32_t n)
{
    kvlazy_pos pos[300];
    kvlazy_seq_id owner[300];
    kvlazy_ubatch u = UBATCH(n, pos, owner);
    kvlazy_slot slot;

    for (uint32_t i = 0; i < n; i++) {
        pos[i] = kvlazy_seq_pos_max(c, seq) + 1 + (kvlazy_pos)i;
        owner[i] = seq;
    }
    int status = kvlazy_prepare(c, &u, 1, &slot);
    if (!status)
        status = kvlazy_apply_ubatch(c, &slot, &u);
    return status ? status : kvlazy_end_batch(c);
}

static int setup(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    kvlazy_params params;

    assert_non_null(p);
    p->mem = *kvlazy_mem_host();
    p->mem.ctx = p;
    p->mem.decommit = decommit;
    kvlazy_params_init(&params);
    params.kv_size = 1024;
    params.n_seq_max = 3;
    params.layers = &layer;
    params.n_layer = 1;
    params.mem = &p->mem;
    params.host_root = "";
    params.on_evict = on_evict;
    params.log = on_log;
    params.evict_ctx = params.log_ctx = p;
    ok(kvlazy_create(&params, &p->cache));
    params.with = p->cache;
    ok(kvlazy_create(&params, &p->linked));
    for (kvlazy_seq_id seq = 0; seq < 2; seq++) {
        ok(serve(p->cache, seq, 300));
        ok(serve(p->linked, seq, 300));
    }
    *state = p;
    return 0;
}

static int teardown(void **state)
{
    struct place *p = *state;

    kvlazy_destroy(p->cache);
    kvlazy_destroy(p->linked);
    free(p);
    return 0;
}

/* Runs in a child that is killed when it hangs. The number of the first line that was wrong; 0: none. */
static int in_child(int (*what)(struct place *p), struct place *p)
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (!pid) {
        alarm(HANGS_S);
        _exit(what(p));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFSIGNALED(status))
        fail_msg("the child was ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status);
}

#define NEED(what)                     \
    do {                               \
        if (!(what))                   \
            return __LINE__ % 255 + 1; \
    } while (0)

/* ---- what a child does ---- */

static int uses_its_copy(struct place *p)
{
    NEED(kvlazy_init_batch(p->cache) == KVLAZY_OK);
    NEED(serve(p->cache, 0, 20) == KVLAZY_OK);
    NEED(serve(p->linked, 0, 20) == KVLAZY_OK);
    NEED(kvlazy_trim(p->cache, 100) == KVLAZY_OK);
    NEED(kvlazy_seq_rm(p->linked, 1, -1, -1) == KVLAZY_OK);
    NEED(kvlazy_poll(p->cache, NULL) == KVLAZY_OK);
    NEED(kvlazy_check(p->cache, NULL) == KVLAZY_OK);
    kvlazy_destroy(p->cache);
    kvlazy_destroy(p->linked);
    return 0;
}

static int every_call_is_refused(struct place *p)
{
    kvlazy_cache *caches[] = {p->linked, p->cache};

    for (int i = 0; i < 2; i++) {
        kvlazy_cache *c = caches[i], *another = NULL;
        kvlazy_stats_info info = {.struct_size = sizeof info};
        kvlazy_cells_view view = {.struct_size = sizeof view};
        kvlazy_ubatch u = UBATCH(1, POS(300), SEQ(0));
        kvlazy_params params;
        kvlazy_slot slot = {0};
        uint64_t next = 0, bytes;

        NEED(kvlazy_poll(c, &next) == KVLAZY_ENOTSUP && next == UINT64_MAX);
        NEED(kvlazy_init_batch(c) == KVLAZY_ENOTSUP);
        NEED(kvlazy_prepare(c, &u, 1, &slot) == KVLAZY_ENOTSUP);
        NEED(kvlazy_apply_ubatch(c, &slot, &u) == KVLAZY_ENOTSUP);
        NEED(kvlazy_undo_ubatch(c, &slot) == KVLAZY_ENOTSUP);
        NEED(kvlazy_n_kv(c, &slot) == 0);
        NEED(kvlazy_end_batch(c) == KVLAZY_ENOTSUP);
        NEED(kvlazy_seq_rm(c, 0, -1, -1) == KVLAZY_ENOTSUP);
        NEED(kvlazy_seq_cp(c, 0, 1, -1, -1) == KVLAZY_ENOTSUP);
        NEED(kvlazy_seq_keep(c, 0) == KVLAZY_ENOTSUP);
        NEED(kvlazy_seq_add(c, 0, -1, -1, 1) == KVLAZY_ENOTSUP);
        NEED(kvlazy_seq_div(c, 0, -1, -1, 2) == KVLAZY_ENOTSUP);
        NEED(kvlazy_shift_done(c) == KVLAZY_ENOTSUP);
        NEED(kvlazy_seq_pos_min(c, 0) == -1 && kvlazy_seq_pos_max(c, 0) == -1);
        NEED(kvlazy_clear(c, true) == KVLAZY_ENOTSUP);
        NEED(kvlazy_refused(c) == -1);
        NEED(kvlazy_room(c, 0) == 0);
        NEED(kvlazy_cells(c, 0, &view) == KVLAZY_ENOTSUP);
        NEED(kvlazy_trim(c, 0) == KVLAZY_ENOTSUP);
        NEED(kvlazy_set_limits(c, 1, 1, 1) == KVLAZY_ENOTSUP);
        NEED(kvlazy_stats(c, &info) == KVLAZY_ENOTSUP);
        NEED(kvlazy_stats_text(c, NULL, 0, &bytes) == KVLAZY_ENOTSUP);
        NEED(kvlazy_resident(c, &bytes) == KVLAZY_ENOTSUP);
        NEED(kvlazy_draw(c, 0) == KVLAZY_ENOTSUP);
        NEED(kvlazy_check(c, NULL) == KVLAZY_ENOTSUP);
        NEED(kvlazy_cap(c, 0) == 0);
        kvlazy_params_init(&params);
        params.kv_size = 64;
        params.n_seq_max = 3;
        params.with = c;
        NEED(kvlazy_create(&params, &another) == KVLAZY_ENOTSUP && !another);
    }
    kvlazy_destroy(p->cache);
    kvlazy_destroy(p->linked);
    return 0;
}

/* ---- beside a thread that is inside ---- */

static void *shrink(void *ctx)
{
    struct place *p = ctx;

    kvlazy_trim(p->cache, 100);
    return NULL;
}

static void beside(struct place *p, atomic_bool *stop)
{
    pthread_t thread;

    atomic_store(stop, true);
    assert_int_equal(pthread_create(&thread, NULL, shrink, p), 0);
    while (!atomic_load(&p->inside))
        usleep(500);
    int line = in_child(every_call_is_refused, p);
    atomic_store(&p->go_on, true);
    pthread_join(thread, NULL);
    assert_int_equal(line, 0);
    ok(kvlazy_check(p->cache, NULL)); /* the parent goes on as if nothing was */
    ok(serve(p->cache, 2, 20));
    assert_int_equal(in_child(uses_its_copy, p), 0); /* nobody is inside any more */
}

static void beside_on_evict(void **state)
{
    struct place *p = *state;

    beside(p, &p->stop_evict);
}

static void beside_a_log_sink(void **state)
{
    struct place *p = *state;

    beside(p, &p->stop_log);
}

/* With the lock held. */
static void beside_a_release(void **state)
{
    struct place *p = *state;

    beside(p, &p->stop_host);
}

static void beside_nothing(void **state)
{
    assert_int_equal(in_child(uses_its_copy, *state), 0);
}

/* ---- from inside ---- */

static struct place *forks;
static int line_of_child;

static int counts(struct place *p)
{
    NEED(kvlazy_seq_pos_max(p->cache, 0) == 299); /* this thread alone is inside, and it is here too */
    NEED(kvlazy_check(p->cache, NULL) == KVLAZY_OK);
    return 0;
}

static int on_evict_that_forks(void *ctx, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)ctx;
    (void)seq;
    (void)pos;
    line_of_child = in_child(counts, forks);
    return 1;
}

static void inside_on_evict(void **state)
{
    kvlazy_params params;
    struct place p = {0};

    (void)state;
    kvlazy_params_init(&params);
    params.kv_size = 1024;
    params.layers = &layer;
    params.n_layer = 1;
    params.host_root = "";
    params.on_evict = on_evict_that_forks;
    ok(kvlazy_create(&params, &p.cache));
    ok(serve(p.cache, 0, 300));
    forks = &p;
    line_of_child = -1;
    ok(kvlazy_trim(p.cache, 100));
    assert_int_equal(line_of_child, 0);
    kvlazy_destroy(p.cache);
}

#define FORK_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FORK_TEST(beside_nothing),   FORK_TEST(beside_on_evict),        FORK_TEST(beside_a_log_sink),
        FORK_TEST(beside_a_release), cmocka_unit_test(inside_on_evict),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
