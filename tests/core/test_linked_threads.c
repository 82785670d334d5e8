/* SPDX-License-Identifier: MIT */
/* Linked caches while a second thread polls, trims and changes limits of either: nothing live is lost. */
#include "linked_support.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct side {
    struct group *g;
    atomic_ullong now;
    atomic_bool stop;
    atomic_int wrong; /* asserts cannot jump out of another thread */
    atomic_ullong worked;
};

static uint64_t side_clock(void *ctx)
{
    return atomic_load(&((struct side *)ctx)->now);
}

static void *idle_side(void *arg)
{
    struct side *side = arg;

    for (uint32_t i = 0; !atomic_load(&side->stop); i++) {
        kvlazy_cache *cache = side->g->r[i % 2]->cache;
        kvlazy_stats_info info = {.struct_size = sizeof info};
        uint64_t next = 12345;
        int status = kvlazy_poll(cache, &next);

        atomic_fetch_add(&side->now, 1);
        atomic_fetch_add(&side->wrong, (status && status != KVLAZY_EBUSY) || next == 12345);
        atomic_fetch_add(&side->worked, status == KVLAZY_OK);
        status = KVLAZY_OK;
        if (i % 16 == 0)
            status = kvlazy_trim(cache, i % 64 ? 0 : 40);
        else if (i % 16 == 1)
            status = kvlazy_set_limits(cache, i % 32 == 1 ? 30 : 60, UINT32_MAX, UINT64_MAX);
        atomic_fetch_add(&side->wrong, status && status != KVLAZY_EBUSY);
        atomic_fetch_add(&side->wrong, kvlazy_stats(cache, &info) != KVLAZY_OK);
        sched_yield();
    }
    return NULL;
}

/* One turn, in a batch in which what was read stays true in both. */
static void converse(struct group *g, uint32_t i)
{
    kvlazy_seq_id seq = (kvlazy_seq_id)(i % 4);
    uint32_t n = 1 + i * 7 % 13;
    kvlazy_pos max;
    int status;

    ok(kvlazy_init_batch(g->r[i % 2]->cache));
    agree(g);
    max = max_of(g, 0, seq);
    if (i % 31 == 0)
        rm_all(g, seq, max / 2 + 1, -1);
    status = put_all(g, seq, max_of(g, 0, seq) + 1, n);
    if (status == KVLAZY_ENOSLOT) {                /* that ended the batch, and anything may have gone since */
        ok(kvlazy_init_batch(g->r[i % 2]->cache)); /* … or moved */
        ok(kvlazy_clear(g->r[0]->cache, i % 2));
        return;
    }
    if (!status)
        agree(g);
    else
        fail_msg("%s", kvlazy_status_name(status));
    if (i % 8 == 0)
        all_sound(g); /* all live bytes, while the batch is open */
    ok(kvlazy_end_batch(g->r[(i + 1) % 2]->cache));
}

static void beside_the_idle_side(struct group *g)
{
    enum { TURNS = 800 };
    static struct side side;
    static kvlazy_mem table;
    pthread_t thread;

    memset(&side, 0, sizeof side);
    side.g = g;
    table = *kvlazy_mem_host();
    table.ctx = &side;
    table.now_ms = side_clock;
    for (int i = 0; i < 2; i++) {
        g->r[i]->params.mem = &table;
        g->r[i]->params.slot_shrink_idle_ms = 20;
        g->r[i]->params.kv_size_initial = 60;
        g->r[i]->params.log = NULL;
        g->r[i]->params.on_evict = NULL;
        g->r[i]->beside = true;
    }
    open_linked(g, 2);
    assert_int_equal(pthread_create(&thread, NULL, idle_side, &side), 0);
    for (uint32_t i = 0; i < TURNS; i++)
        converse(g, i);
    while (!atomic_load(&side.worked)) /* it gets its turn */
        sched_yield();
    atomic_store(&side.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&side.wrong), 0);
    rig_alone(g->r[0]);
    all_sound(g);
    ok(kvlazy_trim(g->r[0]->cache, 0));
    for (int i = 0; i < 2; i++)
        assert_int_equal(stats(g->r[i]).touched_bytes, cover(g->r[i]));
}

static void dense_ones_beside_the_idle_side(void **state)
{
    beside_the_idle_side(*state);
}

static void a_window_beside_the_idle_side(void **state)
{
    struct group *g = *state;

    set_window(g->r[1], 128, 16);
    beside_the_idle_side(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GROUP_TEST(dense_ones_beside_the_idle_side),
        GROUP_TEST(a_window_beside_the_idle_side),
    };

    alarm(100);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
