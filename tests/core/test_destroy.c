/* SPDX-License-Identifier: MIT */
/*
 * Caches that are destroyed inside callbacks, as real programs do when they shut down: from the log sink and from
 * on_evict, vacate too, by every call that asks or tells, alone and linked, the called one, the others or all, on the
 * reaper's thread and while other threads wait. The call comes back, nothing is called any more for what is gone, and
 * nothing is left behind. Run under a sanitizer these are the tests that count.
 */
#include "support.h"

#include <kvlazy/engine_cells.h>
#include <kvlazy/pool.h>
#include <kvlazy/reaper.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CACHES = 3, LIVE = 600, MORE = 900 };

struct site;

/* What the callbacks of one cache get. */
struct place {
    struct site *site;
    int number;
    bool gone; /* destroyed: nothing may be called for it any more */
};

/* Some caches over one host, and what is to happen inside the next callback. */
struct site {
    struct fake_mem fake;
    kvlazy_params params;
    kvlazy_cache *cache[CACHES];
    struct place place[CACHES];
    int n;
    uint32_t used; /* with cells of an engine */
    bool by_log, by_question;
    unsigned doomed; /* a bit a cache: destroyed inside */
    bool fired;
    int n_late; /* callbacks for caches that were gone */
    kvlazy_pool *pool;
    int pool_status;
};

static void destroy_inside(struct site *s)
{
    s->by_log = s->by_question = false;
    s->fired = true;
    for (int i = 0; i < CACHES; i++) {
        if (!(s->doomed >> i & 1) || !s->cache[i])
            continue;
        kvlazy_destroy(s->cache[i]);
        s->cache[i] = NULL;
        s->place[i].gone = true;
    }
    if (s->pool)
        s->pool_status = kvlazy_pool_destroy(s->pool);
}

static void on_log(void *ctx, int level, const char *text)
{
    struct place *p = ctx;

    (void)level;
    (void)text;
    p->site->n_late += p->gone;
    if (p->site->by_log)
        destroy_inside(p->site);
}

static int on_evict(void *ctx, kvlazy_seq_id seq, kvlazy_pos pos)
{
    struct place *p = ctx;

    (void)seq;
    (void)pos;
    p->site->n_late += p->gone;
    if (p->site->by_question)
        destroy_inside(p->site);
    return 0;
}

static void site_init(struct site *s)
{
    memset(s, 0, sizeof *s);
    fake_init(&s->fake);
    s->fake.now = 1000;
    kvlazy_params_init(&s->params);
    s->params.kv_size = 4096;
    s->params.kv_size_initial = 256;
    s->params.n_seq_max = 4;
    s->params.slot_shrink_idle_ms = 500;
    s->params.mem = &s->fake.table;
    s->params.log = on_log;
    s->params.on_evict = on_evict;
    s->params.host_root = "";
}

static const kvlazy_layer layer = {.k_row_bytes = 64, .v_row_bytes = 64};

static void add(struct site *s)
{
    kvlazy_params p = s->params;
    int i = s->n++;

    s->place[i] = (struct place){.site = s, .number = i};
    p.log_ctx = p.evict_ctx = &s->place[i];
    p.layers = &layer;
    p.n_layer = 1;
    p.with = i && !p.pool ? s->cache[i - 1] : NULL;
    ok(kvlazy_create(&p, &s->cache[i]));
}

/* A ubatch of n tokens of one sequence. Static storage. */
static kvlazy_ubatch tokens(kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    static kvlazy_pos all[MORE];
    static kvlazy_seq_id owner[MORE];

    for (uint32_t i = 0; i < n; i++) {
        all[i] = pos + (kvlazy_pos)i;
        owner[i] = seq;
    }
    return UBATCH(n, all, owner);
}

static void serve(struct site *s, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    kvlazy_ubatch u = tokens(seq, pos, n);
    kvlazy_slot slot;

    for (int i = 0; i < s->n; i++) {
        ok(kvlazy_prepare(s->cache[i], &u, 1, &slot));
        ok(kvlazy_apply_ubatch(s->cache[i], &slot, &u));
    }
    for (int i = 0; i < s->n; i++)
        ok(kvlazy_end_batch(s->cache[i]));
}

/* n linked caches with two sequences that idle. */
static void open_idle(struct site *s, int n)
{
    while (s->n < n)
        add(s);
    serve(s, 0, 0, LIVE);
    serve(s, 1, 0, LIVE);
    s->fake.now += 1000;
}

static void site_done(struct site *s)
{
    for (int i = 0; i < CACHES; i++)
        kvlazy_destroy(s->cache[i]);
    assert_int_equal(s->n_late, 0);
    assert_int_equal(fake_mappings(&s->fake), 0);
    fake_assert_kept(&s->fake);
    fake_done(&s->fake);
}

/* ---- every call, alone and linked ---- */

static int call_poll(kvlazy_cache *c)
{
    return kvlazy_poll(c, &(uint64_t){0});
}

static int call_trim(kvlazy_cache *c)
{
    return kvlazy_trim(c, 100);
}

static int call_set_limits(kvlazy_cache *c)
{
    return kvlazy_set_limits(c, UINT32_MAX, UINT32_MAX, 5 * 4096);
}

static int call_init_batch(kvlazy_cache *c)
{
    return kvlazy_init_batch(c);
}

static int call_prepare(kvlazy_cache *c)
{
    kvlazy_ubatch u = tokens(0, 3900, 1);
    kvlazy_slot slot;

    return kvlazy_prepare(c, &u, 1, &slot);
}

static int call_apply(kvlazy_cache *c)
{
    kvlazy_ubatch u = tokens(2, 0, MORE);
    kvlazy_slot slot;

    ok(kvlazy_prepare(c, &u, 1, &slot));
    return kvlazy_apply_ubatch(c, &slot, &u);
}

static int call_clear(kvlazy_cache *c)
{
    return kvlazy_clear(c, true);
}

static int call_seq_add(kvlazy_cache *c)
{
    return kvlazy_seq_add(c, 0, -1, -1, INT32_MAX);
}

static int call_draw(kvlazy_cache *c)
{
    return kvlazy_draw(c, 0);
}

struct scene {
    const char *name;
    int (*call)(kvlazy_cache *c);
    bool tells, asks;
};

static const struct scene scenes[] = {
    {"poll", call_poll, true, true},
    {"trim", call_trim, true, true},
    {"set_limits", call_set_limits, true, true},
    {"init_batch", call_init_batch, true, true},
    {"prepare", call_prepare, true, false},
    {"apply", call_apply, true, false},
    {"clear", call_clear, true, false},
    {"seq_add", call_seq_add, true, false},
    {"draw", call_draw, true, false},
};

static void play(const struct scene *scene, int n, int called, unsigned doomed, bool asks)
{
    struct site s;

    site_init(&s);
    s.params.flags = KVLAZY_SHRINK_AT_INIT;
    open_idle(&s, n);
    s.doomed = doomed;
    *(asks ? &s.by_question : &s.by_log) = true;
    int status = scene->call(s.cache[called]);
    if (!s.fired)
        fail_msg("%s of %d caches: no callback", scene->name, n);
    if (asks && doomed >> called & 1)
        expect(status, KVLAZY_EINVAL); /* it is no cache any more */
    for (int i = 0; i < n; i++)
        if (s.cache[i]) { /* the others serve on */
            const char *why = NULL;

            ok(kvlazy_check(s.cache[i], &why));
            ok(kvlazy_end_batch(s.cache[i]));
            s.fake.now += 1000;
            ok(kvlazy_poll(s.cache[i], NULL));
            ok(kvlazy_clear(s.cache[i], true));
        }
    site_done(&s);
}

static void every_call_and_every_set(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
        for (int n = 1; n <= CACHES; n++)
            for (int called = 0; called < n; called++)
                for (unsigned doomed = 1; doomed < 1u << n; doomed++) {
                    if (scenes[i].tells)
                        play(&scenes[i], n, called, doomed, false);
                    if (scenes[i].asks)
                        play(&scenes[i], n, called, doomed, true);
                }
}

/* The line that says that it was created. */
static void from_the_first_line(void **state)
{
    struct site s;
    kvlazy_params p;

    (void)state;
    site_init(&s);
    s.doomed = 1;
    s.by_log = true;
    s.place[0].site = &s;
    p = s.params;
    p.log_ctx = &s.place[0];
    p.layers = &layer;
    p.n_layer = 1;
    s.n = 1;
    kvlazy_create(&p, &s.cache[0]);
    assert_true(s.fired);
    site_done(&s);
}

/* A sink that destroys whatever happens is told of it by destroy itself. */
static void from_destroy(void **state)
{
    struct site s;

    (void)state;
    site_init(&s);
    open_idle(&s, 2);
    s.doomed = 3;
    for (int i = 0; i < 5; i++)
        expect(kvlazy_seq_add(s.cache[0], 0, -1, -1, INT32_MAX), KVLAZY_EINVAL);
    s.by_log = true;
    kvlazy_cache *first = s.cache[0];
    s.cache[0] = NULL;
    kvlazy_destroy(first);
    s.by_log = false;
    site_done(&s);
}

/* ---- cells of the engine ---- */

static uint32_t used_end(void *ctx, uint32_t stream)
{
    (void)stream;
    return ((struct place *)ctx)->site->used;
}

static int vacate(void *ctx, uint32_t stream, uint32_t from)
{
    struct place *p = ctx;

    (void)stream;
    p->site->n_late += p->gone;
    p->site->used = from;
    if (p->site->by_question)
        destroy_inside(p->site);
    return 0;
}

static void from_vacate(void **state)
{
    static int (*const calls[])(kvlazy_cache *) = {call_poll, call_trim, call_set_limits, call_init_batch};

    (void)state;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (int n = 1; n <= 2; n++)
            for (unsigned doomed = 1; doomed < 1u << n; doomed++) {
                struct site s;

                site_init(&s);
                s.params.flags = KVLAZY_SHRINK_AT_INIT;
                for (int k = 0; k < n; k++) {
                    kvlazy_cell_ops ops = {
                        .struct_size = sizeof ops, .ctx = &s.place[k], .used_end = used_end, .vacate = vacate};

                    s.params.cell_ops = &ops;
                    add(&s);
                    ok(kvlazy_init_batch(s.cache[k]));
                    ok(kvlazy_touch(s.cache[k], 0, LIVE));
                    s.used = LIVE;
                    ok(kvlazy_end_batch(s.cache[k]));
                }
                s.fake.now += 1000;
                s.doomed = doomed;
                s.by_question = true;
                calls[i](s.cache[0]);
                assert_true(s.fired);
                site_done(&s);
            }
}

/* ---- a pool ---- */

/* One cache lacks room, another is asked for it, and in the answer caches are destroyed; and the pool, if it is empty
 * then. */
static void from_a_question_for_another(void **state)
{
    (void)state;
    for (unsigned doomed = 1; doomed < 8; doomed++)
        for (int holds = 0; holds < 2; holds++) {
            struct site s;
            kvlazy_pool *pool;
            kvlazy_ubatch u;
            kvlazy_slot slot;

            site_init(&s);
            ok(kvlazy_pool_create(30 * 4096, &pool)); /* 600 cells take 20 pages, 400 take 14 */
            s.params.pool = pool;
            s.params.n_stream = s.params.n_seq_max;
            s.params.kv_size_initial = 1;
            for (int i = 0; i < 3; i++)
                add(&s);
            s.n = 1;
            serve(&s, 0, 0, LIVE);
            s.n = 3;
            if (holds) {
                kvlazy_ubatch few = tokens(0, 0, 60);

                ok(kvlazy_prepare(s.cache[1], &few, 1, &slot));
                ok(kvlazy_apply_ubatch(s.cache[1], &slot, &few));
                ok(kvlazy_end_batch(s.cache[1]));
            }
            s.fake.now += 1000;
            s.doomed = doomed;
            s.by_question = true;
            s.pool = pool;
            u = tokens(1, 0, 400);
            int status = kvlazy_prepare(s.cache[1], &u, 1, &slot);
            assert_true(s.fired);
            if (doomed & 2)
                expect(status, KVLAZY_EINVAL);
            expect(s.pool_status, doomed == 7 ? KVLAZY_OK : KVLAZY_EBUSY);
            site_done(&s);
            if (doomed != 7)
                ok(kvlazy_pool_destroy(pool));
        }
}

/* A lowered ceiling asks too. */
static void from_a_lowered_ceiling(void **state)
{
    (void)state;
    for (unsigned doomed = 1; doomed < 4; doomed++) {
        struct site s;
        kvlazy_pool *pool;

        site_init(&s);
        ok(kvlazy_pool_create(60 * 4096, &pool));
        s.params.pool = pool;
        s.params.kv_size_initial = 1;
        for (int i = 0; i < 2; i++)
            add(&s);
        serve(&s, 0, 0, LIVE);
        s.fake.now += 1000;
        s.doomed = doomed;
        s.by_question = true;
        s.pool = pool;
        ok(kvlazy_pool_set_budget(pool, 25 * 4096));
        assert_true(s.fired);
        expect(s.pool_status, KVLAZY_EBUSY); /* the call is inside */
        site_done(&s);
        ok(kvlazy_pool_destroy(pool));
    }
}

/* ---- threads ---- */

static kvlazy_reaper *reaper;
static atomic_int stage;

static int on_evict_of_the_reaper(void *ctx, kvlazy_seq_id seq, kvlazy_pos pos)
{
    struct place *p = ctx;

    (void)seq;
    (void)pos;
    if (!p->site->by_question)
        return 0;
    atomic_store(&stage, 1);
    while (atomic_load(&stage) < 2)
        usleep(500);
    usleep(20000); /* the other thread waits by now */
    destroy_inside(p->site);
    atomic_store(&stage, 3);
    return 0;
}

static void *stop_the_reaper(void *unused)
{
    (void)unused;
    atomic_store(&stage, 2);
    kvlazy_reaper_destroy(reaper);
    return NULL;
}

/* All caches go on the reaper's thread, while another thread stops the reaper. */
static void on_the_thread_of_a_reaper(void **state)
{
    (void)state;
    for (int n = 1; n <= CACHES; n++) {
        struct site s;
        pthread_t thread;

        site_init(&s);
        s.params.on_evict = on_evict_of_the_reaper;
        open_idle(&s, n);
        s.doomed = (1u << n) - 1;
        s.by_question = true;
        atomic_store(&stage, 0);
        ok(kvlazy_reaper_create("", &reaper));
        ok(kvlazy_reaper_add(reaper, s.cache[0]));
        while (!atomic_load(&stage))
            usleep(500);
        assert_int_equal(pthread_create(&thread, NULL, stop_the_reaper, NULL), 0);
        pthread_join(thread, NULL);
        assert_int_equal(atomic_load(&stage), 3);
        site_done(&s);
    }
}

/* Two threads are in callbacks of a group at once, and each destroys a member: neither waits for the other. */
static pthread_barrier_t both_inside;

static void on_log_of_two(void *ctx, int level, const char *text)
{
    struct place *p = ctx;

    (void)level;
    (void)text;
    if (!p->site->by_log)
        return;
    pthread_barrier_wait(&both_inside);
    kvlazy_destroy(p->site->cache[p->number]);
}

static void *tell_of_one(void *ctx)
{
    struct place *p = ctx;

    kvlazy_seq_add(p->site->cache[p->number], 0, -1, -1, INT32_MAX);
    return NULL;
}

static void two_threads_in_callbacks(void **state)
{
    struct site s;
    pthread_t thread[2];

    (void)state;
    site_init(&s);
    s.params.log = on_log_of_two;
    open_idle(&s, 2);
    s.by_log = true;
    assert_int_equal(pthread_barrier_init(&both_inside, NULL, 2), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, tell_of_one, &s.place[i]), 0);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&both_inside);
    s.cache[0] = s.cache[1] = NULL;
    site_done(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_and_every_set),
        cmocka_unit_test(from_the_first_line),
        cmocka_unit_test(from_destroy),
        cmocka_unit_test(from_vacate),
        cmocka_unit_test(from_a_question_for_another),
        cmocka_unit_test(from_a_lowered_ceiling),
        cmocka_unit_test(on_the_thread_of_a_reaper),
        cmocka_unit_test(two_threads_in_callbacks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
