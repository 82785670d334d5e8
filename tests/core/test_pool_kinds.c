/* SPDX-License-Identifier: MIT */
/*
 * Pools and the rest: copies across streams, cells that an engine keeps, a limit of the cache's own, linked caches, a
 * host that refuses each of its calls in turn, and all of it at random.
 */
#define _DEFAULT_SOURCE
#include "pool_support.h"

#include <stdlib.h>
#include <string.h>

#include <kvlazy/engine_cells.h>
#include <kvlazy/pool.h>

#include "fail_alloc.h"
#include "unit.h"

/* ---- copies across streams, and cells that an engine keeps ---- */

static void a_copy_across_streams_asks_others(void **state)
{
    struct world *w = world_new(40);
    struct rig *a = new_rig(w, 0, 0), *b;
    char *before;

    (void)state;
    a->params.n_stream = 4;
    rig_open(a);
    b = add(w, 0, 0);
    ok(more(a, 0, 10));
    ok(more(b, 0, 25));
    before = rig_dump(a);
    expect(kvlazy_seq_cp(a->cache, 0, 1, -1, -1), KVLAZY_EBUDGET);
    unchanged(a, before);
    settled(w);
    idle(w);
    ok(kvlazy_seq_cp(a->cache, 0, 1, -1, -1));
    settled(w);
    assert_int_equal(end_of(a, 1), 10);
    assert_int_equal(live_of(b, 0), 20);
    world_free(w);
}

/* An engine's table: cells [0, end) of each stream are used. */
static uint32_t table_end[4];

static uint32_t used_end(void *ctx, uint32_t stream)
{
    (void)ctx;
    return table_end[stream];
}

static const kvlazy_cell_ops table_ops = {.struct_size = sizeof table_ops, .used_end = used_end};

static struct rig *add_outside(struct world *w, uint64_t min_pages)
{
    struct rig *r = new_rig(w, min_pages, 0);

    memset(table_end, 0, sizeof table_end);
    r->params.n_stream = 4;
    r->params.cell_ops = &table_ops;
    rig_open(r);
    return r;
}

static int touch(struct rig *r, uint32_t stream, uint32_t end)
{
    ok(kvlazy_init_batch(r->cache));
    int status = kvlazy_touch(r->cache, stream, end);
    if (!status && end > table_end[stream])
        table_end[stream] = end;
    ok(kvlazy_end_batch(r->cache));
    return status;
}

static void a_cache_of_memory_alone_asks_others(void **state)
{
    struct world *w = world_new(40);
    struct rig *a = add(w, 0, 0), *m = add_outside(w, 5);

    (void)state;
    ok(touch(m, 0, 10));
    assert_int_equal(taken_pages(w), 10);
    ok(more(a, 0, 30));
    expect(touch(m, 0, 11), KVLAZY_EBUDGET);
    settled(w);
    idle(w);
    ok(touch(m, 0, 14));
    assert_int_equal(live_of(a, 0), 26);
    settled(w);
    world_free(w);
}

static void a_copy_of_cells_asks_others(void **state)
{
    struct world *w = world_new(40);
    struct rig *a = add(w, 0, 0), *m = add_outside(w, 0);

    (void)state;
    ok(touch(m, 0, 8));
    ok(more(a, 0, 32));
    idle(w);
    ok(kvlazy_init_batch(m->cache));
    ok(kvlazy_copy_cells(m->cache, 0, 1, 0, 8));
    table_end[1] = 8;
    ok(kvlazy_end_batch(m->cache));
    assert_int_equal(live_of(a, 0), 24);
    world_free(w);
}

/* A refusal that the pool had nothing to do with asks nobody, whatever was refused before. */
static void an_old_refusal_asks_nobody_later(void **state)
{
    struct world *w = world_new(40);
    struct rig *a = add(w, 0, 0), *m = add_outside(w, 0);

    (void)state;
    ok(touch(m, 0, 8));
    ok(more(a, 0, 32));
    ok(kvlazy_init_batch(m->cache));
    expect(kvlazy_copy_cells(m->cache, 0, 1, 0, 8), KVLAZY_EBUDGET); /* a is active */
    ok(kvlazy_end_batch(m->cache));
    ok(kvlazy_set_limits(m->cache, UINT32_MAX, UINT32_MAX, 8 * PAGE));
    idle(w);
    expect(touch(m, 0, 9), KVLAZY_EBUDGET); /* its own limit */
    assert_int_equal(live_of(a, 0), 32);
    world_free(w);
}

static void the_caches_own_limit_asks_nobody(void **state)
{
    struct world *w = world_new(40);
    struct rig *a = add(w, 0, 0), *b = new_rig(w, 0, 0);

    (void)state;
    b->params.budget_bytes = 12 * PAGE;
    rig_open(b);
    ok(more(a, 0, 30));
    idle(w);
    expect(more(b, 0, 13), KVLAZY_EBUDGET);
    assert_int_equal(live_of(a, 0), 30);
    assert_int_equal(pool_stats(w).n_reclaim, 0);
    assert_int_equal(kvlazy_room(b->cache, 0), 10);
    ok(more(b, 0, 12)); /* both allow it, with two of a's */
    assert_int_equal(live_of(a, 0), 28);
    assert_int_equal(kvlazy_room(b->cache, 0), 0);
    ok(kvlazy_set_limits(b->cache, UINT32_MAX, UINT32_MAX, 0));
    idle(w);
    ok(more(b, 0, 8));
    world_free(w);
}

/* ---- linked caches ---- */

static void linked_caches_in_one_pool(void **state)
{
    struct world *w = world_new(60);
    struct rig *a = add(w, 0, 0), *index = new_rig(w, 0, 0), *b;

    (void)state;
    index->params.with = a->cache;
    rig_open(index);
    b = add(w, 0, 0);
    ok(kvlazy_init_batch(a->cache));
    ok(put(a, 0, 0, 25));
    ok(put(index, 0, 0, 25));
    assert_int_equal(taken_pages(w), 50);
    ok(kvlazy_end_batch(a->cache)); /* for both */
    settled(w);
    expect(more(b, 0, 20), KVLAZY_EBUDGET);
    idle(w);
    ok(more(b, 0, 20));
    settled(w);
    assert_int_equal(live_of(a, 0), live_of(index, 0)); /* what one loses both lose */
    assert_true(live_of(a, 0) <= 20);
    ok(kvlazy_seq_rm(a->cache, 0, 0, -1));
    ok(kvlazy_seq_rm(index->cache, 0, 0, -1));
    ok(kvlazy_trim(a->cache, 0));
    settled(w);
    assert_int_equal(taken_pages(w), 20);
    world_free(w);
}

/* Two that are linked wait for one another never, and lose no token to one another; but free pages go, where they are
 * enough. Naive: each is barred by the lock and the batch that they share, and megabytes of the twin stay free. */
static void linked_caches_give_free_pages(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *index = new_rig(w, 0, 0);

    (void)state;
    index->params.with = a->cache;
    rig_open(index);
    ok(more(a, 0, 20));
    ok(kvlazy_seq_rm(a->cache, 0, 10, -1));
    idle(w);
    expect(more(index, 0, 21), KVLAZY_EBUDGET);
    assert_int_equal(touched_pages(a), 20); /* not for nothing */
    settled(w);
    ok(more(index, 0, 15));
    assert_int_equal(touched_pages(a), 15 - 5); /* all of them at once */
    settled(w);
    assert_int_equal(live_of(a, 0), 10);
    ok(kvlazy_seq_rm(index->cache, 0, 5, -1));
    ok(kvlazy_init_batch(a->cache)); /* a copy asks in the same way, and in a batch as well */
    ok(put(a, 0, 10, 15));
    ok(kvlazy_end_batch(a->cache));
    settled(w);
    assert_int_equal(taken_pages(w), 30);
    world_free(w);
}

/* What a linked cache planned in the same batch is not free, and what it keeps for its minimum helps no other. */
static void a_plan_and_a_minimum_of_a_linked_cache_stay(void **state)
{
    struct world *w = world_new(40);
    struct rig *a = add(w, 15, 0), *index = new_rig(w, 0, 0);
    kvlazy_slot slot;

    (void)state;
    index->params.with = a->cache;
    rig_open(index);
    ok(more(a, 0, 20));
    ok(kvlazy_seq_rm(a->cache, 0, 5, -1)); /* 15 are free, 5 of them above the minimum */
    expect(more(index, 0, 26), KVLAZY_EBUDGET);
    ok(kvlazy_init_batch(a->cache));
    ok(kvlazy_prepare(a->cache, &UBATCH(13, POS(5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17), SEQ([12] = 0)), 1,
                      &slot));
    expect(put(index, 0, 0, 23), KVLAZY_EBUDGET);
    ok(kvlazy_init_batch(a->cache));
    ok(kvlazy_prepare(a->cache, &UBATCH(13, POS(5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17), SEQ([12] = 0)), 1,
                      &slot));
    ok(put(index, 0, 0, 22)); /* two that the plan does not need */
    assert_int_equal(touched_pages(a), 18);
    ok(kvlazy_apply_ubatch(a->cache, &slot,
                           &UBATCH(13, POS(5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17), SEQ([12] = 0))));
    write_rows(a, &slot);
    ok(kvlazy_end_batch(a->cache));
    settled(w);
    ok(kvlazy_seq_rm(a->cache, 0, 5, -1));
    ok(kvlazy_seq_rm(index->cache, 0, 0, -1));
    ok(more(index, 0, 25)); /* its own, and what a has above its minimum */
    settled(w);
    world_free(w);
}

/* A third cache and a linked one have enough together, and neither alone. */
static void a_linked_cache_and_another_help_together(void **state)
{
    struct world *w = world_new(60);
    struct rig *a = add(w, 0, 0), *index = new_rig(w, 0, 0), *b;

    (void)state;
    index->params.with = a->cache;
    rig_open(index);
    b = add(w, 0, 0);
    ok(more(a, 0, 20));
    ok(more(b, 0, 20));
    ok(kvlazy_seq_rm(a->cache, 0, 5, -1));
    ok(kvlazy_seq_rm(b->cache, 0, 5, -1));
    ok(more(index, 0, 45)); /* 20, and 15, and 10 of 15 */
    settled(w);
    assert_int_equal(touched_pages(a), 5);
    assert_in_range(touched_pages(b), 5, 10);
    world_free(w);
}

/* ---- failures of the host ---- */

/* Some of everything, each call allowed to be refused. */
static void scenario(struct world *w)
{
    struct rig *a = w->rig[0], *b = w->rig[1], *c = w->rig[2];

    more(a, 0, 20);
    more(b, 0, 10);
    w->fake->now += 10;
    more(a, 1, 8);
    kvlazy_seq_rm(b->cache, 0, 5, -1);
    more(c, 0, 9);
    w->fake->now += IDLE;
    kvlazy_seq_cp(c->cache, 0, 1, -1, -1);
    more(c, 0, 9);
    kvlazy_seq_rm(a->cache, 0, 0, 7);
    more(b, 0, 12);
    kvlazy_poll(a->cache, NULL);
    w->fake->now += IDLE;
    kvlazy_pool_set_budget(w->pool, 31 * PAGE);
    kvlazy_trim(b->cache, 4);
    more(a, 1, 6);
}

static struct world *scenario_world(void)
{
    struct world *w = world_new(40);

    add(w, 6, 1);
    add(w, 0, 2);
    new_rig(w, 4, 1)->params.n_stream = 4;
    rig_open(w->rig[2]);
    return w;
}

static void every_call_of_the_host_may_fail(void **state)
{
    static const enum fake_kind kinds[] = {FAKE_COMMIT, FAKE_DECOMMIT, FAKE_ANY};
    bool failed = true;

    (void)state;
    for (size_t k = 0; k < N_OF(kinds); k++, failed = true)
        for (int n = 1; failed; n++) {
            struct world *w = scenario_world();

            w->fake->half_commit = n % 2;
            fake_fail(w->fake, kinds[k], n);
            scenario(w);
            failed = w->fake->failed;
            fake_fail(w->fake, FAKE_ANY, 0);
            settled(w);
            ok(kvlazy_clear(w->rig[0]->cache, true));
            ok(kvlazy_clear(w->rig[1]->cache, true));
            ok(kvlazy_clear(w->rig[2]->cache, true));
            assert_int_equal(taken_pages(w), 0);
            world_free(w);
        }
}

/* A host that takes nothing back: what is not given cannot be had. */
static void a_host_that_takes_nothing_back(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);

    (void)state;
    ok(more(a, 0, 30));
    idle(w);
    w->fake->refuse_decommit = true;
    expect(more(b, 0, 5), KVLAZY_EBUDGET);
    settled(w);
    expect(kvlazy_pool_set_budget(w->pool, 20 * PAGE), KVLAZY_EBUDGET);
    assert_int_equal(pool_stats(w).budget_bytes, 30 * PAGE);
    w->fake->refuse_decommit = false;
    ok(more(b, 0, 5));
    world_free(w);
}

static void a_creation_that_fails_leaves_the_pool_alone(void **state)
{
    struct world *w = world_new(30);

    (void)state;
    add(w, 6, 1);
    for (int n = 1; n <= 2; n++) {
        struct rig *r = rig_new();
        kvlazy_cache *cache = NULL;

        r->params.mem = &w->fake->table;
        r->params.pool = w->pool;
        r->params.pool_min_bytes = PAGE;
        fake_fail(w->fake, FAKE_RESERVE, n);
        if (!kvlazy_create(&r->params, &cache))
            kvlazy_destroy(cache);
        fake_fail(w->fake, FAKE_ANY, 0);
        assert_int_equal(pool_stats(w).n_cache, 1);
        assert_int_equal(pool_stats(w).min_bytes, 6 * PAGE);
        rig_free(r);
    }
    world_free(w);
}

/* Our own memory may be refused as well: a pool, a cache in it, and a batch that asks others. */
static void every_allocation_may_fail(void **state)
{
    kvlazy_pool *pool = NULL;
    int status, n;

    (void)state;
    alloc_fail_in = 1;
    UNDER_FIRE(status, kvlazy_pool_create(1000, &pool));
    expect(status, KVLAZY_ENOMEM);
    assert_null(pool);
    for (n = 1, alloc_failed = true; alloc_failed; n++) {
        struct world *w = scenario_world();
        struct rig *r = new_rig(w, PAGE, 1);
        kvlazy_pool_info before = pool_stats(w), after;
        kvlazy_cache *cache = NULL;

        r->params.pool_min_bytes = PAGE;
        alloc_failed = false;
        alloc_fail_in = n;
        UNDER_FIRE(status, kvlazy_create(&r->params, &cache));
        expect(status, alloc_failed ? KVLAZY_ENOMEM : KVLAZY_OK);
        kvlazy_destroy(cache);
        after = pool_stats(w);
        assert_memory_equal(&after, &before, sizeof after);
        world_free(w);
    }
    assert_true(n > 5);
    alloc_fail_in = 0;
}

/* Another gives idle tokens, and our own memory is refused on the way: both stay sound, and the next try is served. */
static void every_allocation_of_a_reclaim_may_fail(void **state)
{
    kvlazy_pos pos[5] = {0, 1, 2, 3, 4};
    kvlazy_seq_id seq[5] = {0};
    kvlazy_ubatch u = UBATCH(5, pos, seq);

    (void)state;
    alloc_failed = true;
    for (int n = 1; alloc_failed; n++) {
        struct world *w = world_new(30);
        struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);
        int status;

        ok(more(a, 0, 30));
        idle(w);
        alloc_failed = false;
        alloc_fail_in = n;
        UNDER_FIRE(status, kvlazy_prepare(b->cache, &u, 1, b->slot));
        expect(status, alloc_failed ? KVLAZY_ENOMEM : KVLAZY_OK);
        alloc_fail_in = 0;
        ok(kvlazy_end_batch(b->cache));
        settled(w);
        ok(more(b, 0, 5));
        assert_int_equal(live_of(a, 0), 25);
        world_free(w);
    }
}

/* ---- at random ---- */

/* The old ceiling holds until the new one does. */
static void change_budget(struct world *w, uint64_t bytes)
{
    host.budget = bytes > host.budget ? bytes : host.budget;
    int status = kvlazy_pool_set_budget(w->pool, bytes);

    if (status)
        expect(status, KVLAZY_EBUDGET);
    host.budget = pool_stats(w).budget_bytes;
}

static void step(struct world *w, uint64_t *rng)
{
    struct rig *r = w->rig[next_random(rng) % (unsigned)w->n];
    kvlazy_seq_id seq = (kvlazy_seq_id)(next_random(rng) % 4);
    uint32_t n = 1 + (uint32_t)(next_random(rng) % 60);
    int status = KVLAZY_OK;

    w->fake->now += next_random(rng) % 60;
    switch (next_random(rng) % 12) {
    case 0:
        ok(kvlazy_seq_rm(r->cache, seq, end_of(r, seq) / 2, -1));
        break;
    case 1:
        ok(kvlazy_seq_rm(r->cache, seq, 0, -1));
        break;
    case 2:
        status = kvlazy_seq_cp(r->cache, seq, (seq + 1) % 4, -1, -1);
        break;
    case 3:
        ok(kvlazy_poll(r->cache, NULL));
        break;
    case 4:
        ok(kvlazy_trim(r->cache, (uint32_t)(next_random(rng) % 3) * 50));
        break;
    case 5:
        change_budget(w, (60 + next_random(rng) % 60) * PAGE);
        break;
    case 6:
        status = dry(r, seq, end_of(r, seq), n);
        break;
    default:
        status = more(r, seq, n);
    }
    if (status == KVLAZY_EPOS) /* evicted to nothing */
        ok(kvlazy_seq_rm(r->cache, seq, 0, -1));
    else if (status && status != KVLAZY_EBUDGET && status != KVLAZY_ENOSLOT)
        fail_msg("%s", kvlazy_status_name(status));
}

/* Within its minimum a cache is always served, whatever others do. */
static void minimum_is_served(struct rig *r)
{
    uint64_t min = r->params.pool_min_bytes, touched = stats(r).touched_bytes;

    if (touched >= min || kvlazy_room(r->cache, 0))
        return;
    assert_true(min - touched < (uint64_t)RIG_TENSORS * 2 * PAGE); /* a token needs a page or two of each tensor */
}

static void at_random(void **state)
{
    static const size_t rows[3][2] = {{512, 36}, {34, 0}, {100, 260}};

    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        struct world *w = world_new(100);
        uint64_t rng = seed;

        for (int i = 0; i < 4; i++) {
            struct rig *r = new_rig(w, (uint64_t)i * 14, (uint32_t)i);

            rig_rows(r, 3, rows);
            r->params.kv_size = 512;
            r->params.n_stream = i % 2 ? 4 : 1;
            r->params.kv_size_initial = i == 2 ? 64 : 0;
            r->params.on_evict = i == 3 ? r->params.on_evict : NULL;
            rig_open(r);
        }
        for (int i = 0; i < 400; i++) {
            step(w, &rng);
            for (int k = 0; k < w->n; k++)
                minimum_is_served(w->rig[k]);
            settled(w);
        }
        world_free(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_across_streams_asks_others),
        cmocka_unit_test(a_cache_of_memory_alone_asks_others),
        cmocka_unit_test(a_copy_of_cells_asks_others),
        cmocka_unit_test(an_old_refusal_asks_nobody_later),
        cmocka_unit_test(the_caches_own_limit_asks_nobody),
        cmocka_unit_test(linked_caches_in_one_pool),
        cmocka_unit_test(linked_caches_give_free_pages),
        cmocka_unit_test(a_plan_and_a_minimum_of_a_linked_cache_stay),
        cmocka_unit_test(a_linked_cache_and_another_help_together),
        cmocka_unit_test(every_call_of_the_host_may_fail),
        cmocka_unit_test(a_host_that_takes_nothing_back),
        cmocka_unit_test(a_creation_that_fails_leaves_the_pool_alone),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(every_allocation_of_a_reclaim_may_fail),
        cmocka_unit_test(at_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
