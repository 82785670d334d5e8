/* SPDX-License-Identifier: MIT */
/*
 * What the reaper's thread calls: on_evict and the log, which may remove the cache from the reaper or destroy the
 * reaper. Made for the thread sanitizer too.
 */
#include "reaper_support.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

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

static void a_veto_is_asked_for_again(void **state)
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
    assert_int_equal(stats(a.rig).live_cells, 300); /* no thread polls */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(questions_come_from_its_thread), RIG_TEST(a_veto_is_asked_for_again),
        RIG_TEST(removed_by_its_own_question),    RIG_TEST(destroyed_by_its_own_question),
        RIG_TEST(removed_by_a_log_line),
    };

    alarm(110);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
