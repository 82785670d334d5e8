/* SPDX-License-Identifier: MIT */
/*
 * Threads beside the reaper's: calls that come while it gives back the first piece of many, hooks that never pause, and
 * caches and reapers that come and go in any order while it is at work. Made for the thread sanitizer too.
 */
#include "reaper_support.h"
#include "core/lock.h"

#include <sched.h>
#include <stdatomic.h>
#include <unistd.h>

/* ------------------------------------------------------------------------------------------- while it is at work */

/* The first piece of a release waits until the test lets it go. */
static struct {
    kvlazy_mem host;
    atomic_bool armed, inside, open;
} gate;

static size_t gated_decommit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    if (atomic_load(&gate.armed)) {
        atomic_store(&gate.inside, true);
        while (!atomic_load(&gate.open))
            sched_yield();
        atomic_store(&gate.armed, false);
    }
    return gate.host.decommit(ctx, range, n_range);
}

/* 600 MiB are due at once. */
static void open_gated(struct rig *r)
{
    static const size_t rows[1][2] = {{1 << 20, 1 << 20}};
    static kvlazy_mem table;
    kvlazy_pos p[300];
    kvlazy_seq_id s[300] = {0};
    kvlazy_ubatch u = UBATCH(300, p, s);

    for (int i = 0; i < 300; i++)
        p[i] = i;
    rig_rows(r, 1, rows);
    table = gate.host = r->fake.table;
    table.decommit = gated_decommit;
    r->params.mem = &table;
    open_fake(r, 0, IDLE_MS);
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    set_now(r, 1000 + IDLE_MS);
    r->n_tensor = 0; /* no byte was written */
    atomic_store(&gate.inside, false);
    atomic_store(&gate.open, false);
    atomic_store(&gate.armed, true);
}

struct meeting {
    struct rig *rig;
    kvlazy_reaper *reaper;
    void *(*does)(void *);
    pthread_t thread;
};

static void *destroys_the_reaper(void *arg)
{
    kvlazy_reaper_destroy(((struct meeting *)arg)->reaper);
    return NULL;
}

static void *removes_the_cache(void *arg)
{
    struct meeting *m = arg;

    kvlazy_reaper_remove(m->reaper, m->rig->cache);
    return NULL;
}

static void *destroys_the_cache(void *arg)
{
    struct meeting *m = arg;

    kvlazy_destroy(m->rig->cache);
    m->rig->cache = NULL;
    return NULL;
}

static void *opens_a_batch(void *arg)
{
    struct meeting *m = arg;

    kvlazy_init_batch(m->rig->cache);
    return NULL;
}

/* A thread calls while the first piece of many goes back. */
static struct meeting meet(struct rig *r, void *(*does)(void *))
{
    struct meeting m = {.rig = r, .does = does};

    open_gated(r);
    kvl_group *group = r->cache->group;
    m.reaper = new_reaper();
    ok(kvlazy_reaper_add(m.reaper, r->cache));
    await(atomic_load(&gate.inside));
    assert_int_equal(pthread_create(&m.thread, NULL, does, &m), 0);
    await(atomic_load(&group->n_waiting) > 0);
    atomic_store(&gate.open, true);
    pthread_join(m.thread, NULL);
    return m;
}

static void it_stops_after_a_piece(void **state)
{
    struct rig *r = *state;

    meet(r, destroys_the_reaper);
    assert_in_range(touched(r), 1, ((uint64_t)600 << 20) - 1);
    assert_false(is_watched(r));
    assert_int_equal(atomic_load(&r->cache->group->n_waiting), 0);
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(touched(r), 0);
}

static void removed_while_it_polls(void **state)
{
    struct rig *r = *state;
    struct meeting m = meet(r, removes_the_cache);

    assert_in_range(touched(r), 1, ((uint64_t)600 << 20) - 1);
    assert_false(is_watched(r));
    ok(kvlazy_reaper_add(m.reaper, r->cache));
    await(touched(r) == 0);
    kvlazy_reaper_destroy(m.reaper);
}

static void destroyed_while_it_polls(void **state)
{
    struct rig *r = *state;
    struct meeting m = meet(r, destroys_the_cache);

    assert_int_equal(fake_mappings(&r->fake), 0);
    kvlazy_reaper_destroy(m.reaper);
}

/* A hook goes first, and the rest of a long release follows without another call. */
static void a_hook_goes_first(void **state)
{
    struct rig *r = *state;
    struct meeting m = meet(r, opens_a_batch);

    assert_in_range(touched(r), 1, ((uint64_t)600 << 20) - 1);
    ok(kvlazy_end_batch(r->cache));
    await(touched(r) == 0);
    kvlazy_reaper_destroy(m.reaper);
}

/* ------------------------------------------------------------------------------------------- races */

struct side {
    struct rig *rig;
    kvlazy_reaper *reaper;
    atomic_bool stop;
    atomic_int wrong;
};

static void *adds_and_removes(void *arg)
{
    struct side *s = arg;

    for (int i = 0; i < 300; i++) {
        int status = kvlazy_reaper_add(s->reaper, s->rig->cache);

        if (status && status != KVLAZY_EINVAL)
            atomic_fetch_add(&s->wrong, 1);
        if (i % 7 == 0)
            kvlazy_reaper_pressure(s->reaper);
        status = kvlazy_reaper_remove(s->reaper, s->rig->cache);
        if (status && status != KVLAZY_EINVAL)
            atomic_fetch_add(&s->wrong, 1);
    }
    return NULL;
}

static void *uses(void *arg)
{
    struct side *s = arg;

    for (uint32_t i = 0; !atomic_load(&s->stop); i++) {
        struct rig *r = s->rig;
        kvlazy_pos max;

        if (kvlazy_init_batch(r->cache))
            atomic_fetch_add(&s->wrong, 1);
        max = kvlazy_seq_pos_max(r->cache, 0);
        if (max > 150) {
            kvlazy_seq_rm(r->cache, 0, i % 2 ? 0 : 40, -1);
            max = kvlazy_seq_pos_max(r->cache, 0);
        }
        if (put(r, 0, max + 1, 1 + i % 20) || kvlazy_seq_pos_max(r->cache, 0) != max + 1 + (kvlazy_pos)(i % 20))
            atomic_fetch_add(&s->wrong, 1);
        if (kvlazy_end_batch(r->cache))
            atomic_fetch_add(&s->wrong, 1);
        if (i % 5 == 0)
            nap(1);
    }
    return NULL;
}

static void hooks_and_two_threads_that_add(void **state)
{
    struct side s = {.rig = open_timed(*state, 20, 2), .reaper = new_reaper()};
    pthread_t thread[3];

    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, i ? adds_and_removes : uses, &s), 0);
    for (int i = 1; i < 3; i++)
        pthread_join(thread[i], NULL);
    atomic_store(&s.stop, true);
    pthread_join(thread[0], NULL);
    kvlazy_reaper_destroy(s.reaper);
    assert_int_equal(atomic_load(&s.wrong), 0);
    assert_false(is_watched(s.rig));
    ok(kvlazy_check(s.rig->cache, NULL));
    rig_alone(s.rig);
}

/* An engine at work, and the thread beside it: tokens go when they idle, in between batches. */
static void hooks_beside_it(void **state)
{
    struct side s = {.rig = open_timed(*state, 20, 3), .reaper = new_reaper()};
    pthread_t thread;

    ok(kvlazy_reaper_add(s.reaper, s.rig->cache));
    assert_int_equal(pthread_create(&thread, NULL, uses, &s), 0);
    for (int i = 0; i < 50; i++) {
        kvlazy_reaper_pressure(s.reaper);
        nap(1);
    }
    atomic_store(&s.stop, true);
    pthread_join(thread, NULL);
    await(stats(s.rig).live_cells <= 20);
    kvlazy_reaper_destroy(s.reaper);
    assert_int_equal(atomic_load(&s.wrong), 0);
    ok(kvlazy_check(s.rig->cache, NULL));
    rig_alone(s.rig);
}

/* Batch follows batch without a pause; another conversation idles, and loses its tail all the same. */
static void no_pause_is_too_short(void **state)
{
    struct rig *r = open_timed(*state, 50, 20);
    kvlazy_reaper *reaper = new_reaper();
    uint64_t give_up = real_ms() + PATIENCE_MS;

    ok(turn(r, 1, 0, 200));
    ok(kvlazy_reaper_add(reaper, r->cache));
    while (kvlazy_seq_pos_max(r->cache, 1) == 199) {
        ok(kvlazy_init_batch(r->cache));
        if (kvlazy_seq_pos_max(r->cache, 0) > 10)
            ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
        ok(put(r, 0, kvlazy_seq_pos_max(r->cache, 0) + 1, 1));
        ok(kvlazy_end_batch(r->cache));
        assert_true(real_ms() < give_up);
    }
    kvlazy_reaper_destroy(reaper);
    rig_alone(r);
}

static void *creates_and_destroys(void *arg)
{
    struct side *s = arg;

    for (int i = 0; i < 60; i++) {
        kvlazy_params params = s->rig->params;
        kvlazy_cache *a, *b = NULL;

        if (kvlazy_create(&params, &a))
            continue;
        params.with = a;
        if (i % 2 && kvlazy_create(&params, &b))
            b = NULL;
        if (kvlazy_reaper_add(s->reaper, i % 3 && b ? b : a))
            atomic_fetch_add(&s->wrong, 1);
        kvlazy_seq_rm(a, 0, -1, -1);
        kvlazy_destroy(i % 4 < 2 ? a : b);
        kvlazy_destroy(i % 4 < 2 ? b : a);
    }
    return NULL;
}

static void caches_come_and_go(void **state)
{
    enum { N = 3 };
    struct side s = {.rig = open_timed(*state, 20, 2), .reaper = new_reaper()};
    pthread_t thread[N];

    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, creates_and_destroys, &s), 0);
    for (int i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
    kvlazy_reaper_destroy(s.reaper);
    assert_int_equal(atomic_load(&s.wrong), 0);
}

/* The reaper goes while its caches do: each of them ends, and neither waits for ever. */
static void *destroys_later(void *arg)
{
    struct side *s = arg;

    kvlazy_destroy(s->rig->cache);
    s->rig->cache = NULL;
    return NULL;
}

static void both_go_at_once(void **state)
{
    struct rig *r = open_timed(*state, 20, 2);

    for (int i = 0; i < 100; i++) {
        struct side s = {.rig = r, .reaper = new_reaper()};
        pthread_t thread;

        ok(kvlazy_reaper_add(s.reaper, r->cache));
        ok(turn(r, 0, 0, 50));
        assert_int_equal(pthread_create(&thread, NULL, destroys_later, &s), 0);
        kvlazy_reaper_destroy(s.reaper);
        pthread_join(thread, NULL);
        ok(kvlazy_create(&r->params, &r->cache));
        rig_adopt(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(it_stops_after_a_piece),
        RIG_TEST(removed_while_it_polls),
        RIG_TEST(destroyed_while_it_polls),
        RIG_TEST(a_hook_goes_first),
        RIG_TEST(hooks_and_two_threads_that_add),
        RIG_TEST(hooks_beside_it),
        RIG_TEST(no_pause_is_too_short),
        RIG_TEST(caches_come_and_go),
        RIG_TEST(both_go_at_once),
    };

    alarm(110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
