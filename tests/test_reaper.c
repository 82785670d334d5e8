/* SPDX-License-Identifier: MIT */
/*
 * A thread that polls: memory comes back with no further call, whatever made the time stale that it slept until, and
 * caches come and go in any order while it is at work. Tests wait for what must happen and time out after long; where
 * the clock is the fake's, the idle time passes by hand and only the sleep is real. Made for the thread sanitizer too.
 */
#include "support.h"
#include "core/lock.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <kvlazy/engine_cells.h>
#include <kvlazy/reaper.h>

enum { IDLE_MS = 30, PATIENCE_MS = 20000, NEVER_MS = 3600000 };

static uint64_t real_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void nap(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* Waits for something that another thread makes true. */
#define await(condition)                                    \
    do {                                                    \
        uint64_t await_end = real_ms() + PATIENCE_MS;       \
        while (!(condition)) {                              \
            if (real_ms() > await_end)                      \
                fail_msg("waited in vain: %s", #condition); \
            nap(1);                                         \
        }                                                   \
    } while (0)

/* ------------------------------------------------------------------------------------------- caches to reap */

static void set_now(struct rig *r, uint64_t now)
{
    pthread_mutex_lock(&r->fake.lock);
    r->fake.now = now;
    pthread_mutex_unlock(&r->fake.lock);
}

static uint64_t n_looked(struct rig *r) /* how often anybody asked the time */
{
    pthread_mutex_lock(&r->fake.lock);
    uint64_t n = r->fake.n_call[FAKE_NOW];
    pthread_mutex_unlock(&r->fake.lock);
    return n;
}

/* Callbacks of the rig write without a lock, so they are not for two threads. */
static void quiet(struct rig *r)
{
    r->params.log = NULL;
    r->params.on_evict = NULL;
}

/* The memory is the fake's, the time is real. */
static kvlazy_mem timed;

static uint64_t host_clock(void *ctx)
{
    (void)ctx;
    return kvlazy_mem_host()->now_ms(NULL);
}

static struct rig *open_timed(struct rig *r, uint32_t initial, uint32_t idle_ms)
{
    quiet(r);
    timed = r->fake.table;
    timed.now_ms = host_clock;
    r->params.mem = &timed;
    r->params.kv_size_initial = initial;
    r->params.slot_shrink_idle_ms = idle_ms;
    r->beside = true; /* the reaper moves cells meanwhile */
    rig_open(r);
    return r;
}

static struct rig *open_fake(struct rig *r, uint32_t initial, uint32_t idle_ms)
{
    quiet(r);
    r->params.kv_size_initial = initial;
    r->params.slot_shrink_idle_ms = idle_ms;
    r->beside = true; /* the reaper moves cells meanwhile */
    rig_open(r);
    return r;
}

static kvlazy_reaper *new_reaper(void)
{
    kvlazy_reaper *reaper = NULL;

    ok(kvlazy_reaper_create("", &reaper));
    return reaper;
}

static uint64_t touched(struct rig *r)
{
    return stats(r).touched_bytes;
}

static bool is_watched(struct rig *r)
{
    kvl_lock(r->cache);
    bool is = r->cache->group->watcher != NULL;
    kvl_unlock(r->cache);
    return is;
}

/* ------------------------------------------------------------------------------------------- arguments */

static uint32_t no_cells(void *ctx, uint32_t stream)
{
    (void)ctx, (void)stream;
    return 0;
}

static void arguments(void **state)
{
    struct rig *r = open_fake(*state, 0, NEVER_MS), *other = rig_new();
    kvlazy_reaper *reaper = new_reaper(), *second = new_reaper();
    kvlazy_cell_ops ops = {.struct_size = sizeof ops, .used_end = no_cells};
    static uint64_t foreign[64];

    expect(kvlazy_reaper_create("", NULL), KVLAZY_EINVAL);
    expect(kvlazy_reaper_add(NULL, r->cache), KVLAZY_EINVAL);
    expect(kvlazy_reaper_add(reaper, NULL), KVLAZY_EINVAL);
    expect(kvlazy_reaper_add((kvlazy_reaper *)foreign, r->cache), KVLAZY_EINVAL);
    expect(kvlazy_reaper_add(reaper, (kvlazy_cache *)foreign), KVLAZY_EINVAL);
    expect(kvlazy_reaper_remove(NULL, r->cache), KVLAZY_EINVAL);
    expect(kvlazy_reaper_remove(reaper, NULL), KVLAZY_EINVAL);
    expect(kvlazy_reaper_remove(reaper, r->cache), KVLAZY_EINVAL); /* not in it */
    expect(kvlazy_reaper_pressure(NULL), KVLAZY_EINVAL);
    expect(kvlazy_reaper_pressure((kvlazy_reaper *)foreign), KVLAZY_EINVAL);
    kvlazy_reaper_destroy(NULL);
    kvlazy_reaper_destroy((kvlazy_reaper *)foreign);

    ok(kvlazy_reaper_add(reaper, r->cache));
    expect(kvlazy_reaper_add(reaper, r->cache), KVLAZY_EINVAL);
    expect(kvlazy_reaper_add(second, r->cache), KVLAZY_EINVAL);
    expect(kvlazy_reaper_remove(second, r->cache), KVLAZY_EINVAL);
    ok(kvlazy_reaper_remove(reaper, r->cache));
    expect(kvlazy_reaper_remove(reaper, r->cache), KVLAZY_EINVAL);
    ok(kvlazy_reaper_add(second, r->cache));

    quiet(other);
    other->params.cell_ops = &ops;
    ok(kvlazy_create(&other->params, &other->cache));
    expect(kvlazy_reaper_add(reaper, other->cache), KVLAZY_ENOTSUP);
    kvlazy_reaper_destroy(reaper);
    kvlazy_reaper_destroy(second);
    assert_false(is_watched(r));
    kvlazy_destroy(other->cache);
    other->cache = NULL;
    rig_free(other);
}

/* ------------------------------------------------------------------------------------------- what wakes it */

static void memory_comes_back_with_no_further_call(void **state)
{
    struct rig *r = open_timed(*state, 100, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    ok(turn(r, 0, 0, 300));
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 299);
    await(stats(r).live_cells == 100 && touched(r) == cover(r));
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

/* Once everything is given back it is not looked at again until something happens. */
static void await_rest(struct rig *r)
{
    uint64_t n;

    do {
        n = n_looked(r);
        nap(3 * IDLE_MS);
    } while (n_looked(r) != n);
}

static void it_sleeps_when_nothing_is_due(void **state)
{
    struct rig *r = open_fake(*state, 100, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    await_rest(r); /* ends */
    ok(turn(r, 0, 0, 50));
    set_now(r, 1000 + IDLE_MS);
    await_rest(r);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1)); /* it was told never */
    set_now(r, 1000 + 2 * IDLE_MS);
    await(touched(r) == 0);
    ok(turn(r, 0, 0, 50)); /* and again */
    ok(kvlazy_clear(r->cache, false));
    set_now(r, 1000 + 4 * IDLE_MS);
    await(touched(r) == 0);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void limits_wake_it(void **state)
{
    struct rig *r = open_fake(*state, 0, NEVER_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(turn(r, 0, 0, 300));
    ok(kvlazy_reaper_add(reaper, r->cache));
    set_now(r, 1000 + NEVER_MS / 2);
    ok(kvlazy_set_limits(r->cache, 200, IDLE_MS, UINT64_MAX));
    await(stats(r).live_cells == 200);
    await_rest(r);
    ok(kvlazy_set_limits(r->cache, 100, UINT32_MAX, UINT64_MAX)); /* it idles already */
    await(stats(r).live_cells == 100 && touched(r) == cover(r));
    ok(kvlazy_set_limits(r->cache, 50, 0, UINT64_MAX));
    await_rest(r);
    assert_int_equal(stats(r).live_cells, 100);
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, IDLE_MS, UINT64_MAX));
    await(stats(r).live_cells == 50);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void added_with_an_open_batch(void **state)
{
    struct rig *r = open_fake(*state, 100, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 0, 300));
    ok(kvlazy_reaper_add(reaper, r->cache));
    set_now(r, 5000);
    nap(2);
    assert_int_equal(stats(r).live_cells, 300);
    ok(kvlazy_end_batch(r->cache));
    set_now(r, 5000 + IDLE_MS);
    await(stats(r).live_cells == 100);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

/* It came when pages were due and a batch was open: the end of that batch is when it has to come back, though nothing
 * was applied. The hour of the idle time would be the next occasion. */
static void turned_away_it_comes_back(void **state)
{
    struct rig *r = open_fake(*state, 0, NEVER_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(turn(r, 0, 0, 300));
    ok(kvlazy_set_limits(r->cache, 100, UINT32_MAX, UINT64_MAX));
    ok(kvlazy_init_batch(r->cache));
    set_now(r, 1000 + NEVER_MS);
    ok(kvlazy_reaper_add(reaper, r->cache));
    uint64_t give_up = real_ms() + PATIENCE_MS;
    for (bool away = false; !away; nap(1)) { /* until it was there */
        kvl_lock(r->cache);
        away = r->cache->group->turned_away;
        kvl_unlock(r->cache);
        assert_true(real_ms() < give_up);
    }
    ok(kvlazy_end_batch(r->cache));
    await(stats(r).live_cells == 100 && touched(r) == cover(r));
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void a_batch_that_nobody_ended(void **state)
{
    struct rig *r = open_fake(*state, 100, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    await_rest(r);
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 0, 300));
    expect(put(r, 0, 900, 1), KVLAZY_EPOS); /* closes it */
    uint64_t n = n_looked(r);
    await(n_looked(r) > n);
    set_now(r, 1000 + 2 * IDLE_MS);
    await(stats(r).live_cells == 100);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void somebody_else_polls_too(void **state)
{
    struct rig *r = open_timed(*state, 100, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();
    uint64_t next;

    ok(kvlazy_reaper_add(reaper, r->cache));
    ok(turn(r, 0, 0, 300));
    while (stats(r).live_cells == 300) /* what they are told is not what the thread was */
        kvlazy_poll(r->cache, &next);
    for (int i = 0; i < 3; i++)
        kvlazy_poll(r->cache, &next);
    ok(turn(r, 0, 100, 200));
    await(stats(r).live_cells == 100);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void refused_pages_are_offered_again(void **state)
{
    struct rig *r = open_fake(*state, 0, IDLE_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    ok(turn(r, 0, 0, 300));
    set_now(r, 1000 + IDLE_MS);
    await_rest(r);
    r->fake.refuse_decommit = true;
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(kvlazy_trim(r->cache, 0));
    r->fake.refuse_decommit = false;
    assert_true(touched(r) > 0);
    set_now(r, 1000 + 2 * IDLE_MS);
    await(touched(r) == 0);
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

/* ------------------------------------------------------------------------------------------- many */

static void many_caches(void **state)
{
    enum { N = 8 };
    struct rig *r[N];
    kvlazy_reaper *reaper = new_reaper();

    for (int i = 0; i < N; i++) {
        r[i] = open_fake(i ? rig_new() : *state, 20 + (uint32_t)i, IDLE_MS + (uint32_t)i);
        ok(kvlazy_reaper_add(reaper, r[i]->cache));
        ok(turn(r[i], 0, 0, 100 + (uint32_t)i));
    }
    for (int i = 0; i < N; i++)
        set_now(r[i], 1000 + IDLE_MS + (uint64_t)i);
    for (int i = 0; i < N; i++)
        await(stats(r[i]).live_cells == 20 + (uint64_t)i);
    for (int i = N - 1; i > 0; i--) {
        if (i % 2)
            ok(kvlazy_reaper_remove(reaper, r[i]->cache));
        sound(r[i]);
        rig_free(r[i]); /* some with the thread watching */
    }
    kvlazy_reaper_destroy(reaper);
    sound(r[0]);
}

static struct rig *open_linked(struct rig *full)
{
    struct rig *r = rig_new();

    quiet(r);
    r->params.with = full->cache;
    r->params.mem = &full->fake.table;
    r->params.kv_size_initial = full->params.kv_size_initial;
    r->params.slot_shrink_idle_ms = full->params.slot_shrink_idle_ms;
    rig_open(r);
    return r;
}

static void linked_caches_are_one(void **state)
{
    struct rig *full = open_fake(*state, 100, IDLE_MS), *window = open_linked(full);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, window->cache));
    expect(kvlazy_reaper_add(reaper, full->cache), KVLAZY_EINVAL);
    ok(put(full, 0, 0, 300));
    ok(put(window, 0, 0, 300));
    ok(kvlazy_end_batch(full->cache));
    set_now(full, 1000 + IDLE_MS);
    await(stats(full).live_cells == 100 && stats(window).live_cells == 100);
    rig_free(window); /* the one that was added: the other stays in */
    assert_true(is_watched(full));
    ok(turn(full, 0, 100, 200));
    set_now(full, 1000 + 2 * IDLE_MS);
    await(stats(full).live_cells == 100);
    ok(kvlazy_reaper_remove(reaper, full->cache));
    assert_false(is_watched(full));
    window = open_linked(full);
    ok(kvlazy_reaper_add(reaper, full->cache));
    ok(kvlazy_reaper_remove(reaper, window->cache)); /* any of them stands for all */
    assert_false(is_watched(full));
    ok(kvlazy_reaper_add(reaper, full->cache));
    rig_free(window);
    kvlazy_reaper_destroy(reaper);
    sound(full);
}

static void from_one_reaper_to_another(void **state)
{
    struct rig *r = open_fake(*state, 100, IDLE_MS);
    uint64_t now = 1000;

    for (int i = 0; i < 5; i++) {
        kvlazy_reaper *reaper = new_reaper();

        ok(kvlazy_reaper_add(reaper, r->cache));
        ok(turn(r, 0, kvlazy_seq_pos_max(r->cache, 0) + 1, 200));
        set_now(r, now += IDLE_MS);
        await(stats(r).live_cells == 100);
        kvlazy_reaper_destroy(reaper);
    }
    sound(r);
}

/* ------------------------------------------------------------------------------------------- pressure */

static void pressure_takes_what_rests(void **state)
{
    struct rig *r = open_fake(*state, 100, NEVER_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    ok(turn(r, 0, 0, 300));
    ok(turn(r, 1, 0, 50));
    ok(kvlazy_seq_rm(r->cache, 1, -1, -1));
    set_now(r, 1000 + NEVER_MS / 8);
    ok(kvlazy_reaper_pressure(reaper));
    await(stats(r).live_cells == 100 && touched(r) == cover(r));
    kvlazy_reaper_destroy(reaper);
    sound(r);
}

static void pressure_leaves_a_batch_alone(void **state)
{
    struct rig *r = open_fake(*state, 100, NEVER_MS), *other = open_fake(rig_new(), 100, NEVER_MS);
    kvlazy_reaper *reaper = new_reaper();

    ok(kvlazy_reaper_add(reaper, r->cache));
    ok(kvlazy_reaper_add(reaper, other->cache)); /* asked first: the newest is */
    ok(turn(r, 0, 0, 300));
    ok(turn(other, 0, 0, 300));
    set_now(r, 1000 + NEVER_MS / 8);
    set_now(other, 1000 + NEVER_MS / 8);
    ok(kvlazy_init_batch(other->cache));
    ok(kvlazy_reaper_pressure(reaper));
    await(stats(r).live_cells == 100);
    assert_int_equal(stats(other).live_cells, 300);
    ok(kvlazy_end_batch(other->cache));
    ok(kvlazy_reaper_pressure(reaper)); /* once a second: this one waits its turn */
    await(stats(other).live_cells == 100);
    kvlazy_reaper_destroy(reaper);
    sound(r);
    sound(other);
    rig_free(other);
}

/* ------------------------------------------------------------------------------------------- callbacks */

struct asked {
    struct rig *rig;
    kvlazy_reaper *reaper;
    pthread_t main;
    atomic_int n;
    int answer;
    atomic_int wrong;
    enum { NOTHING, REMOVE, DESTROY } does;
};

static int on_evict(void *ctx, kvlazy_seq_id seq, kvlazy_pos pos)
{
    struct asked *a = ctx;
    sigset_t blocked;

    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (pthread_equal(pthread_self(), a->main) || seq != 0 || pos != 99 || !sigismember(&blocked, SIGTERM))
        atomic_fetch_add(&a->wrong, 1);
    if (a->does == REMOVE && kvlazy_reaper_remove(a->reaper, a->rig->cache))
        atomic_fetch_add(&a->wrong, 1);
    if (a->does == DESTROY)
        kvlazy_reaper_destroy(a->reaper);
    atomic_fetch_add(&a->n, 1);
    return a->answer;
}

static void open_asking(struct rig *r, struct asked *a)
{
    a->rig = r;
    a->main = pthread_self();
    a->reaper = new_reaper();
    quiet(r);
    r->params.kv_size_initial = 100;
    r->params.slot_shrink_idle_ms = IDLE_MS;
    r->params.on_evict = on_evict;
    r->params.evict_ctx = a;
    rig_open(r);
    ok(kvlazy_reaper_add(a->reaper, r->cache));
    ok(turn(r, 0, 0, 300));
    set_now(r, 1000 + IDLE_MS);
}

static void questions_come_from_its_thread(void **state)
{
    struct asked a = {.answer = 0};

    open_asking(*state, &a);
    await(stats(a.rig).live_cells == 100);
    kvlazy_reaper_destroy(a.reaper);
    assert_int_equal(atomic_load(&a.n), 1);
    assert_int_equal(atomic_load(&a.wrong), 0);
    sound(a.rig);
}

static void who_keeps_is_asked_again(void **state)
{
    struct asked a = {.answer = 1};

    open_asking(*state, &a);
    for (int i = 1; i < 4; i++) {
        await(atomic_load(&a.n) == i);
        set_now(a.rig, 1000 + IDLE_MS * (uint64_t)(i + 1));
    }
    kvlazy_reaper_destroy(a.reaper);
    assert_int_equal(stats(a.rig).live_cells, 300);
    assert_int_equal(atomic_load(&a.wrong), 0);
    sound(a.rig);
}

static void removed_by_its_own_question(void **state)
{
    struct asked a = {.answer = 0, .does = REMOVE};

    open_asking(*state, &a);
    await(stats(a.rig).live_cells == 100);
    assert_false(is_watched(a.rig));
    ok(turn(a.rig, 0, 100, 200));
    set_now(a.rig, 9000);
    nap(2 * IDLE_MS);
    assert_int_equal(stats(a.rig).live_cells, 300); /* nobody polls */
    ok(kvlazy_reaper_add(a.reaper, a.rig->cache));
    await(atomic_load(&a.n) == 2);
    kvlazy_reaper_destroy(a.reaper);
    assert_int_equal(atomic_load(&a.wrong), 0);
    sound(a.rig);
}

static void destroyed_by_its_own_question(void **state)
{
    struct asked a = {.answer = 0, .does = DESTROY};

    open_asking(*state, &a);
    await(stats(a.rig).live_cells == 100);
    assert_false(is_watched(a.rig));
    assert_int_equal(atomic_load(&a.wrong), 0);
    nap(20); /* it frees itself */
    sound(a.rig);
}

/* A log sink may remove too: it is called with the poll all but over. */
static void remove_in_log(void *ctx, int level, const char *text)
{
    struct asked *a = ctx;

    (void)level;
    if (!pthread_equal(pthread_self(), a->main) && strstr(text, "shrink:")) {
        kvlazy_reaper_remove(a->reaper, a->rig->cache);
        atomic_fetch_add(&a->n, 1);
    }
}

static void removed_by_a_log_line(void **state)
{
    struct rig *r = *state;
    struct asked a = {.rig = r, .main = pthread_self(), .reaper = new_reaper()};

    open_fake(r, 100, IDLE_MS);
    kvlazy_destroy(r->cache);
    r->params.log = remove_in_log;
    r->params.log_ctx = &a;
    ok(kvlazy_create(&r->params, &r->cache));
    rig_adopt(r);
    ok(kvlazy_reaper_add(a.reaper, r->cache));
    ok(turn(r, 0, 0, 300));
    set_now(r, 1000 + IDLE_MS);
    await(atomic_load(&a.n) == 1);
    await(!is_watched(r));
    kvlazy_reaper_destroy(a.reaper);
    sound(r);
}

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

/* Somebody comes while the first piece of many goes back. */
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

static void hooks_and_two_who_add(void **state)
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
        RIG_TEST(arguments),
        RIG_TEST(memory_comes_back_with_no_further_call),
        RIG_TEST(it_sleeps_when_nothing_is_due),
        RIG_TEST(limits_wake_it),
        RIG_TEST(added_with_an_open_batch),
        RIG_TEST(turned_away_it_comes_back),
        RIG_TEST(a_batch_that_nobody_ended),
        RIG_TEST(somebody_else_polls_too),
        RIG_TEST(refused_pages_are_offered_again),
        RIG_TEST(many_caches),
        RIG_TEST(linked_caches_are_one),
        RIG_TEST(from_one_reaper_to_another),
        RIG_TEST(pressure_takes_what_rests),
        RIG_TEST(pressure_leaves_a_batch_alone),
        RIG_TEST(questions_come_from_its_thread),
        RIG_TEST(who_keeps_is_asked_again),
        RIG_TEST(removed_by_its_own_question),
        RIG_TEST(destroyed_by_its_own_question),
        RIG_TEST(removed_by_a_log_line),
        RIG_TEST(it_stops_after_a_piece),
        RIG_TEST(removed_while_it_polls),
        RIG_TEST(destroyed_while_it_polls),
        RIG_TEST(a_hook_goes_first),
        RIG_TEST(hooks_and_two_who_add),
        RIG_TEST(hooks_beside_it),
        RIG_TEST(no_pause_is_too_short),
        RIG_TEST(caches_come_and_go),
        RIG_TEST(both_go_at_once),
    };

    alarm(110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
