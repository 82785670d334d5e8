/* SPDX-License-Identifier: MIT */
/*
 * The idle side from other threads while one runs the hooks: live bytes stay intact, positions read in a batch
 * stay true, poll never waits, and a long release lets a hook pass. Made for the thread sanitizer as well.
 * Nothing here sleeps for correctness; an alarm ends what hangs.
 */
#define _DEFAULT_SOURCE
#include "support.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct side {
    struct rig *rig;
    atomic_ullong now;
    atomic_bool stop;
    atomic_int wrong; /* asserts cannot jump out of another thread: they count here */
    atomic_ullong rounds, worked, asked;
};

static kvlazy_mem table;

static uint64_t side_clock(void *ctx)
{
    return atomic_load(&((struct side *)ctx)->now);
}

static void *idle_side(void *arg)
{
    struct side *side = arg;
    kvlazy_cache *cache = side->rig->cache;

    while (!atomic_load(&side->stop)) {
        kvlazy_stats_info info = {.struct_size = sizeof info};
        uint64_t next = 12345, bytes = 0, round = atomic_fetch_add(&side->rounds, 1);
        int status = kvlazy_poll(cache, &next);

        atomic_fetch_add(&side->now, 1);
        if ((status && status != KVLAZY_EBUSY) || next == 12345)
            atomic_fetch_add(&side->wrong, 1);
        if (status == KVLAZY_OK)
            atomic_fetch_add(&side->worked, 1);
        if (kvlazy_stats(cache, &info) || info.touched_bytes > info.reserved_bytes)
            atomic_fetch_add(&side->wrong, 1);
        if (round % 8 == 0)
            status = kvlazy_trim(cache, round % 64 ? 0 : 40);
        else if (round % 8 == 1)
            status = kvlazy_set_limits(cache, round % 16 == 1 ? 30 : 100, UINT32_MAX, UINT64_MAX);
        if (status && status != KVLAZY_EBUSY)
            atomic_fetch_add(&side->wrong, 1);
        if (round % 32 == 2 && (kvlazy_resident(cache, &bytes) || bytes > info.reserved_bytes))
            atomic_fetch_add(&side->wrong, 1);
        sched_yield();
    }
    return NULL;
}

static void open_host(struct side *side, struct rig *r)
{
    memset(side, 0, sizeof *side);
    side->rig = r;
    table = *kvlazy_mem_host();
    table.ctx = side;
    table.now_ms = side_clock;
    r->params.mem = &table;
    r->params.slot_shrink_idle_ms = 20;
    r->params.kv_size_initial = 100;
    r->params.log = NULL;
    r->beside = true;
    rig_open(r);
}

/* One turn of a conversation that finds itself wherever the idle side has cut it to. */
static void converse(struct rig *r, uint32_t i)
{
    kvlazy_seq_id seq = (kvlazy_seq_id)(i % 4);
    uint32_t n = 1 + i * 7 % 23;
    kvlazy_pos max;

    ok(kvlazy_init_batch(r->cache));
    max = kvlazy_seq_pos_max(r->cache, seq);
    if (kvlazy_room(r->cache, seq) < n || i % 31 == 0) {
        ok(kvlazy_seq_rm(r->cache, seq, i % 2 ? max / 2 + 1 : 0, -1));
        max = kvlazy_seq_pos_max(r->cache, seq);
        n = n < kvlazy_room(r->cache, seq) ? n : kvlazy_room(r->cache, seq);
    }
    if (n) {
        ok(put(r, seq, max + 1, n));
        assert_int_equal(kvlazy_seq_pos_max(r->cache, seq), max + (kvlazy_pos)n);
    }
    if (i % 8 == 0)
        sound(r); /* all live bytes, while the batch is open */
    ok(kvlazy_end_batch(r->cache));
}

/* Asked on an idle thread, with no lock held: it reads, and keeps now and then. */
static int side_evict(void *ctx, kvlazy_seq_id seq, kvlazy_pos pos)
{
    struct side *side = ctx;
    kvlazy_stats_info info = {.struct_size = sizeof info};
    uint64_t n = atomic_fetch_add(&side->asked, 1);

    if (seq < 0 || seq > 3 || pos < -1 || kvlazy_stats(side->rig->cache, &info))
        atomic_fetch_add(&side->wrong, 1);
    if (n % 3 == 0)
        sched_yield(); /* a hook may get in between */
    return n % 4 == 1;
}

static void hooks_beside_the_idle_side(struct rig *r, bool ask)
{
    enum { N = 2, TURNS = 1500 };
    static struct side side;
    pthread_t thread[N];

    r->params.on_evict = ask ? side_evict : NULL;
    r->params.evict_ctx = &side;
    open_host(&side, r);
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, idle_side, &side), 0);
    for (uint32_t i = 0; i < TURNS; i++)
        converse(r, i);
    while (!atomic_load(&side.worked) || (ask && !atomic_load(&side.asked))) /* it gets its turn */
        sched_yield();
    atomic_store(&side.stop, true);
    for (int i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(atomic_load(&side.wrong), 0);
    rig_alone(r);
    sound(r);
    ok(kvlazy_trim(r->cache, 0));
    assert_int_equal(stats(r).touched_bytes, cover(r));
}

static void tokens_go_unasked(void **state)
{
    hooks_beside_the_idle_side(*state, false);
}

static void tokens_go_when_asked(void **state)
{
    hooks_beside_the_idle_side(*state, true);
}

static void *own_cache(void *arg)
{
    struct side *side = arg;

    for (uint32_t i = 0; i < 400; i++) {
        uint32_t n = 1 + i % 9;

        if (kvlazy_room(side->rig->cache, 0) < n)
            kvlazy_clear(side->rig->cache, true);
        if (turn(side->rig, 0, kvlazy_seq_pos_max(side->rig->cache, 0) + 1, n))
            atomic_fetch_add(&side->wrong, 1);
        if (i % 5 == 0 && kvlazy_trim(side->rig->cache, i % 25))
            atomic_fetch_add(&side->wrong, 1);
    }
    return NULL;
}

static void two_caches_share_a_table(void **state)
{
    struct rig *r = *state, *other = rig_new();
    struct side side[2] = {{.rig = r}, {.rig = other}};
    pthread_t thread;

    other->params.mem = &r->fake.table;
    other->params.log = NULL;
    r->params.log = NULL;
    rig_open(r);
    rig_open(other);
    assert_int_equal(pthread_create(&thread, NULL, own_cache, &side[1]), 0);
    own_cache(&side[0]);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&side[0].wrong) + atomic_load(&side[1].wrong), 0);
    sound(r);
    sound(other);
    rig_free(other);
}

/* ---- what another thread does while the host is at work, the cache's lock held ---- */

struct meeting {
    struct rig *rig;
    kvlazy_mem host;
    bool met;
    int status;
    uint64_t next;
    pthread_t thread;
    atomic_int tid;
};

static void *poll_once(void *arg)
{
    struct meeting *m = arg;

    m->next = 0;
    m->status = kvlazy_poll(m->rig->cache, &m->next);
    return NULL;
}

/* The host gives pages back, and meanwhile another thread polls: it is told to come back, at once. */
static size_t decommit_polled(void *ctx, const kvlazy_range *range, size_t n_range)
{
    struct meeting *m = ctx;

    if (!m->met) {
        m->met = true;
        pthread_create(&m->thread, NULL, poll_once, m);
        pthread_join(m->thread, NULL); /* returns though the lock is held here */
    }
    return m->host.decommit(m->host.ctx, range, n_range);
}

static void *hook_once(void *arg)
{
    struct meeting *m = arg;

    atomic_store(&m->tid, (int)syscall(SYS_gettid));
    m->status = kvlazy_init_batch(m->rig->cache);
    return NULL;
}

/* Does the thread wait in the kernel? */
static bool is_waiting(int tid)
{
    char path[64], state = 0;
    FILE *stat;

    snprintf(path, sizeof path, "/proc/self/task/%d/stat", tid);
    stat = fopen(path, "r");
    if (!stat)
        return false;
    if (fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
        state = 0;
    fclose(stat);
    return state == 'S';
}

static size_t decommit_with_a_hook_waiting(void *ctx, const kvlazy_range *range, size_t n_range)
{
    struct meeting *m = ctx;

    if (!m->met) {
        m->met = true;
        pthread_create(&m->thread, NULL, hook_once, m);
        while (!atomic_load(&m->tid) || !is_waiting(atomic_load(&m->tid)))
            sched_yield();
    }
    return m->host.decommit(m->host.ctx, range, n_range);
}

static size_t pass_page_bytes(void *ctx)
{
    return ((struct meeting *)ctx)->host.page_bytes(((struct meeting *)ctx)->host.ctx);
}

static void *pass_reserve(void *ctx, size_t bytes, uint32_t flags)
{
    return ((struct meeting *)ctx)->host.reserve(((struct meeting *)ctx)->host.ctx, bytes, flags);
}

static int pass_unreserve(void *ctx, void *addr, size_t bytes)
{
    return ((struct meeting *)ctx)->host.unreserve(((struct meeting *)ctx)->host.ctx, addr, bytes);
}

static int pass_commit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    return ((struct meeting *)ctx)->host.commit(((struct meeting *)ctx)->host.ctx, range, n_range);
}

static size_t pass_resident(void *ctx, const void *addr, size_t bytes)
{
    return ((struct meeting *)ctx)->host.resident(((struct meeting *)ctx)->host.ctx, addr, bytes);
}

static uint64_t pass_now(void *ctx)
{
    return ((struct meeting *)ctx)->host.now_ms(((struct meeting *)ctx)->host.ctx);
}

/* The rig's cache over its fake, with a decommit that lets another thread in. */
static void open_meeting(struct meeting *m, struct rig *r, size_t (*decommit)(void *, const kvlazy_range *, size_t))
{
    memset(m, 0, sizeof *m);
    m->rig = r;
    m->met = true; /* not while create probes the host */
    m->host = r->fake.table;
    table = m->host;
    table.ctx = m;
    table.page_bytes = pass_page_bytes;
    table.reserve = pass_reserve;
    table.unreserve = pass_unreserve;
    table.commit = pass_commit;
    table.decommit = decommit;
    table.resident = pass_resident;
    table.now_ms = pass_now;
    r->params.mem = &table;
    r->params.log = NULL;
    r->beside = true;
    rig_open(r);
    m->met = false;
}

static void poll_only_tries(void **state)
{
    struct rig *r = *state;
    static struct meeting m;

    open_meeting(&m, r, decommit_polled);
    ok(turn(r, 0, 0, 400));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(kvlazy_trim(r->cache, 0));
    assert_true(m.met);
    expect(m.status, KVLAZY_EBUSY);
    assert_int_equal(m.next, 1);
    sound(r);
}

/* 600 MiB are to go when a hook comes in the middle of it. */
static void pass_a_release(struct rig *r, bool trim)
{
    static const size_t rows[1][2] = {{1 << 20, 1 << 20}};
    static struct meeting m;
    kvlazy_pos p[300];
    kvlazy_seq_id s[300] = {0};
    kvlazy_ubatch u = UBATCH(300, p, s);
    uint64_t next, touched;

    for (int i = 0; i < 300; i++)
        p[i] = i;
    rig_rows(r, 1, rows);
    open_meeting(&m, r, decommit_with_a_hook_waiting);
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    touched = stats(r).touched_bytes;
    assert_int_equal(touched, (uint64_t)600 << 20);
    r->fake.now += trim ? 0 : 750;
    if (trim)
        ok(kvlazy_trim(r->cache, 0));
    else
        ok(poll_next(r, &next));
    assert_true(m.met);
    pthread_join(m.thread, NULL);
    ok(m.status);
    assert_true(trim || next == 0); /* there is more to do */
    assert_true(stats(r).touched_bytes > 0);
    assert_true(stats(r).touched_bytes < touched);
    expect(kvlazy_poll(r->cache, NULL), KVLAZY_EBUSY); /* the hook opened its batch */
    ok(kvlazy_end_batch(r->cache));
    ok(kvlazy_poll(r->cache, NULL)); /* the rest is due at once, though a trim's cells emptied just now */
    assert_int_equal(stats(r).touched_bytes, 0);
    r->n_tensor = 0; /* the teardown shall not look at rows */
}

static void a_long_release_lets_a_hook_pass(void **state)
{
    pass_a_release(*state, false);
}

static void a_long_trim_lets_a_hook_pass(void **state)
{
    pass_a_release(*state, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(tokens_go_unasked),
        RIG_TEST(tokens_go_when_asked),
        RIG_TEST(two_caches_share_a_table),
        RIG_TEST(poll_only_tries),
        RIG_TEST(a_long_release_lets_a_hook_pass),
        RIG_TEST(a_long_trim_lets_a_hook_pass),
    };

    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
