/* SPDX-License-Identifier: MIT */
/*
 * Caches that share a ceiling for touched bytes, as numbers: what each may take, what is kept for the minima, what is
 * fair, that room says so, and that nothing is left taken by what came to nothing.
 */
#define _DEFAULT_SOURCE
#include "pool_support.h"

#include <string.h>

#include <kvlazy/pool.h>

#include "unit.h"

/* ---- arguments ---- */

static void pools_that_are_none(void **state)
{
    static uint64_t foreign[64];
    kvlazy_pool *not_one = (kvlazy_pool *)(void *)foreign, *pool = NULL;
    kvlazy_pool_info info = {.struct_size = sizeof info};

    (void)state;
    expect(kvlazy_pool_create(1000, NULL), KVLAZY_EINVAL);
    expect(kvlazy_pool_create(0, &pool), KVLAZY_EINVAL);
    assert_null(pool);
    ok(kvlazy_pool_destroy(NULL));
    expect(kvlazy_pool_destroy(not_one), KVLAZY_EINVAL);
    expect(kvlazy_pool_stats(NULL, &info), KVLAZY_EINVAL);
    expect(kvlazy_pool_stats(not_one, &info), KVLAZY_EINVAL);
    expect(kvlazy_pool_set_budget(NULL, 1), KVLAZY_EINVAL);
    expect(kvlazy_pool_set_budget(not_one, 1), KVLAZY_EINVAL);
    ok(kvlazy_pool_create(1, &pool));
    expect(kvlazy_pool_stats(pool, NULL), KVLAZY_EINVAL);
    expect(kvlazy_pool_set_budget(pool, 0), KVLAZY_EINVAL);
    ok(kvlazy_pool_set_budget(pool, UINT64_MAX));
    ok(kvlazy_pool_stats(pool, &info));
    assert_true(info.budget_bytes == UINT64_MAX);
    ok(kvlazy_pool_destroy(pool));
}

static void stats_of_other_sizes(void **state)
{
    struct world *w = world_new(30);
    kvlazy_pool_info info = {.struct_size = offsetof(kvlazy_pool_info, min_bytes), .min_bytes = 77};
    struct {
        kvlazy_pool_info info;
        uint64_t later;
    } larger = {.info.struct_size = sizeof larger, .later = 1};

    (void)state;
    ok(more(add(w, 5, 1), 0, 7));
    ok(kvlazy_pool_stats(w->pool, &info));
    assert_int_equal(info.budget_bytes, 30 * PAGE);
    assert_int_equal(info.taken_bytes, 7 * PAGE);
    assert_int_equal(info.min_bytes, 77);
    ok(kvlazy_pool_stats(w->pool, &larger.info));
    assert_int_equal(larger.info.min_bytes, 5 * PAGE);
    assert_int_equal(larger.later, 0);
    info.struct_size = 0;
    expect(kvlazy_pool_stats(w->pool, &info), KVLAZY_EINVAL);
    world_free(w);
}

static void a_foreign_pool_is_refused(void **state)
{
    static uint64_t foreign[64];
    struct world *w = world_new(30);
    struct rig *r = new_rig(w, 0, 0);
    kvlazy_cache *cache = NULL;

    (void)state;
    r->params.pool = (kvlazy_pool *)(void *)foreign;
    expect(kvlazy_create(&r->params, &cache), KVLAZY_EINVAL);
    assert_null(cache);
    assert_non_null(strstr(r->log, "pool"));
    assert_int_equal(fake_mappings(w->fake), 0);
    world_free(w);
}

static void minima_beyond_the_pool_are_refused(void **state)
{
    struct world *w = world_new(30);
    struct rig *r = new_rig(w, 31, 1), *next;
    kvlazy_cache *cache = NULL;

    (void)state;
    expect(kvlazy_create(&r->params, &cache), KVLAZY_EBUDGET);
    r->params.pool_min_bytes = UINT64_MAX;
    expect(kvlazy_create(&r->params, &cache), KVLAZY_EBUDGET);
    assert_null(cache);
    assert_int_equal(pool_stats(w).n_cache + pool_stats(w).min_bytes, 0);
    assert_int_equal(fake_mappings(w->fake), 0);
    r->params.pool_min_bytes = 20 * PAGE;
    rig_open(r);
    next = new_rig(w, 11, 1);
    expect(kvlazy_create(&next->params, &cache), KVLAZY_EBUDGET);
    next->params.pool_min_bytes = UINT64_MAX - 20 * PAGE + 1; /* the sum wraps round */
    expect(kvlazy_create(&next->params, &cache), KVLAZY_EBUDGET);
    next->params.pool_min_bytes = 10 * PAGE; /* all of it */
    rig_open(next);
    assert_int_equal(pool_stats(w).min_bytes, 30 * PAGE);
    ok(more(r, 0, 20));
    ok(more(next, 0, 10));
    world_free(w);
}

static void a_pool_in_use_stays(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 3, 7);

    (void)state;
    ok(more(b, 0, 20));
    expect(kvlazy_pool_destroy(w->pool), KVLAZY_EBUSY);
    assert_int_equal(pool_stats(w).n_cache, 2);
    close_cache(b); /* with all it took */
    assert_int_equal(pool_stats(w).taken_bytes + pool_stats(w).min_bytes, 0);
    assert_int_equal(pool_stats(w).n_cache, 1);
    expect(kvlazy_pool_destroy(w->pool), KVLAZY_EBUSY);
    ok(more(a, 0, 30));
    world_free(w);
}

/* ---- what is taken ---- */

static void taken_follows_touched(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0);

    (void)state;
    assert_int_equal(taken_pages(w), 0); /* creating costs nothing */
    ok(kvlazy_init_batch(a->cache));
    ok(put(a, 0, 0, 10));
    assert_int_equal(taken_pages(w), 10);
    ok(kvlazy_end_batch(a->cache));
    settled(w);
    ok(kvlazy_seq_rm(a->cache, 0, 4, -1));
    assert_int_equal(taken_pages(w), 10); /* free pages are touched still */
    ok(kvlazy_trim(a->cache, 0));
    assert_int_equal(taken_pages(w), 4);
    ok(kvlazy_clear(a->cache, true));
    assert_int_equal(taken_pages(w), 0);
    ok(more(a, 0, 8));
    ok(kvlazy_seq_rm(a->cache, 0, 0, -1));
    idle(w);
    ok(kvlazy_poll(a->cache, NULL));
    assert_int_equal(taken_pages(w), 0);
    world_free(w);
}

static int plan_only(struct rig *r, uint32_t n)
{
    static kvlazy_pos pos[256];
    static const kvlazy_seq_id seq[256];
    kvlazy_ubatch u = UBATCH(n, pos, seq);

    for (uint32_t i = 0; i < n; i++)
        pos[i] = end_of(r, 0) + (kvlazy_pos)i;
    return kvlazy_prepare(r->cache, &u, 1, r->slot);
}

/* A plan is counted while its batch is open, and is promised: nobody else can have it. */
static void a_plan_is_taken_until_its_batch_ends(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);

    (void)state;
    ok(plan_only(a, 20));
    assert_int_equal(taken_pages(w), 20);
    assert_int_equal(kvlazy_room(b->cache, 0), 10);
    expect(more(b, 0, 11), KVLAZY_EBUDGET);
    ok(kvlazy_end_batch(a->cache)); /* it came to nothing */
    settled(w);
    ok(more(b, 0, 30));
    settled(w);
    ok(kvlazy_clear(b->cache, true));
    ok(plan_only(a, 20));
    ok(kvlazy_clear(a->cache, false)); /* ends it as well */
    settled(w);
    world_free(w);
}

static void a_refused_plan_takes_nothing(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0);

    (void)state;
    ok(more(a, 0, 10));
    ok(kvlazy_init_batch(a->cache));
    expect(plan_only(a, 21), KVLAZY_EBUDGET);
    settled(w);
    ok(kvlazy_init_batch(a->cache));
    expect(plan_only(a, 250), KVLAZY_ENOSLOT);
    settled(w);
    ok(kvlazy_init_batch(a->cache));
    expect(put(a, 0, 12, 3), KVLAZY_EPOS);
    settled(w);
    world_free(w);
}

static void a_plan_that_is_replaced_is_not_taken(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);

    (void)state;
    ok(plan_only(a, 20));
    ok(plan_only(a, 4));
    assert_int_equal(taken_pages(w), 4);
    ok(kvlazy_init_batch(a->cache)); /* ends the batch and its plan */
    assert_int_equal(taken_pages(w), 0);
    ok(plan_only(a, 2));
    assert_int_equal(kvlazy_room(b->cache, 0), 28);
    ok(more(b, 0, 28));
    ok(put(a, 0, 0, 2));
    ok(kvlazy_end_batch(a->cache));
    world_free(w);
}

static void an_undone_ubatch_keeps_its_pages_until_they_go(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);

    (void)state;
    ok(kvlazy_init_batch(a->cache));
    ok(put(a, 0, 0, 20));
    ok(kvlazy_undo_ubatch(a->cache, &a->slot[0]));
    ok(kvlazy_end_batch(a->cache));
    settled(w);
    assert_int_equal(taken_pages(w), 20);
    ok(more(b, 0, 30)); /* free pages, whatever their age */
    assert_int_equal(touched_pages(a), 0);
    world_free(w);
}

static void a_failed_commit_leaves_nothing_taken(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0);

    (void)state;
    fake_fail(w->fake, FAKE_COMMIT, 1);
    expect(more(a, 0, 20), KVLAZY_ENOMEM);
    settled(w);
    assert_int_equal(taken_pages(w), 0);
    world_free(w);
}

/* ---- minima ---- */

static void a_minimum_is_never_lent(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 10, 0), *b = add(w, 0, 0);

    (void)state;
    assert_int_equal(kvlazy_room(b->cache, 0), 20);
    assert_int_equal(kvlazy_room(a->cache, 0), 30);
    expect(more(b, 0, 21), KVLAZY_EBUDGET);
    ok(more(b, 0, 20));
    ok(kvlazy_init_batch(b->cache)); /* busy: what is kept needs nobody's help */
    ok(more(a, 0, 10));
    expect(more(a, 0, 1), KVLAZY_EBUDGET);
    ok(kvlazy_end_batch(b->cache));
    ok(kvlazy_clear(a->cache, true)); /* a minimum that was used and left is kept again */
    expect(more(b, 1, 1), KVLAZY_EBUDGET);
    ok(more(a, 0, 10));
    world_free(w);
}

/* Whoever comes later finds what earlier ones were promised kept. */
static void joining_does_not_lend_a_minimum(void **state)
{
    struct world *w = world_new(100);
    struct rig *a = add(w, 60, 0), *b = add(w, 0, 0), *c;
    kvlazy_cache *cache = NULL;

    (void)state;
    ok(more(b, 0, 40));
    c = new_rig(w, 40, 0);
    expect(kvlazy_create(&c->params, &cache), KVLAZY_EBUDGET); /* 60 are kept for a, and 40 are b's */
    ok(more(a, 0, 60));
    world_free(w);
}

static void lowering_the_pool_does_not_lend_a_minimum(void **state)
{
    struct world *w = world_new(100);
    struct rig *a = add(w, 50, 0), *b = add(w, 0, 0);

    (void)state;
    ok(more(b, 0, 50));
    expect(kvlazy_pool_set_budget(w->pool, 60 * PAGE), KVLAZY_EBUDGET); /* b is active */
    assert_int_equal(pool_stats(w).budget_bytes, 100 * PAGE);
    ok(more(a, 0, 50));
    ok(kvlazy_clear(a->cache, true));
    idle(w);
    ok(kvlazy_pool_set_budget(w->pool, 60 * PAGE)); /* now b gives 40 */
    host.budget = 60 * PAGE;
    assert_int_equal(touched_pages(b), 10);
    ok(more(a, 0, 50));
    world_free(w);
}

/* ---- weights ---- */

static void fair_shares_go_by_weight(void **state)
{
    struct world *w = world_new(60);
    struct rig *a = add(w, 0, 1), *b = add(w, 0, 2), *c = add(w, 0, 3); /* fair: 10, 20, 30 */

    (void)state;
    ok(more(a, 0, 40));
    ok(more(b, 0, 20));
    idle(w);
    ok(more(c, 0, 10)); /* from whoever is furthest over */
    assert_int_equal(touched_pages(a), 30);
    assert_int_equal(touched_pages(b), 20);
    idle(w);
    ok(more(c, 0, 20));
    assert_int_equal(touched_pages(a), 10);
    assert_int_equal(touched_pages(b), 20);
    assert_int_equal(touched_pages(c), 30);
    idle(w);
    expect(more(a, 0, 1), KVLAZY_EBUDGET); /* all have what is fair, and a would have more */
    assert_int_equal(touched_pages(b), 20);
    assert_int_equal(touched_pages(c), 30);
    world_free(w);
}

/* Above its own fair share a cache gets only what others have above theirs. */
static void the_unfair_takes_from_the_unfair(void **state)
{
    struct world *w = world_new(60);
    struct rig *a = add(w, 0, 1), *b = add(w, 0, 1), *c = add(w, 0, 1); /* fair: 20 each */

    (void)state;
    ok(more(a, 0, 35));
    ok(more(b, 0, 25));
    idle(w);
    ok(more(c, 0, 20)); /* its fair share: a has most over */
    assert_int_equal(touched_pages(a), 15);
    assert_int_equal(touched_pages(b), 25);
    idle(w);
    ok(more(c, 0, 5));
    assert_int_equal(touched_pages(b), 20);
    assert_int_equal(touched_pages(a), 15);
    idle(w);
    expect(more(c, 0, 1), KVLAZY_EBUDGET);
    settled(w);
    world_free(w);
}

static void a_fair_share_is_above_the_minimum(void **state)
{
    struct world *w = world_new(60);
    struct rig *a = add(w, 30, 1), *b = add(w, 0, 2); /* fair: 40 and 20 */

    (void)state;
    ok(more(b, 0, 30));
    idle(w);
    ok(more(a, 0, 35)); /* within its fair share */
    assert_int_equal(touched_pages(b), 25);
    ok(more(a, 0, 5));
    assert_int_equal(touched_pages(b), 20);
    ok(kvlazy_seq_rm(a->cache, 0, 30, -1));
    ok(kvlazy_trim(a->cache, 0));
    ok(more(b, 1, 10));
    idle(w);
    ok(more(a, 0, 1)); /* 31 of 40 */
    assert_int_equal(touched_pages(b), 29);
    world_free(w);
}

/* ---- room ---- */

static void room_tells_what_is_free_now(void **state)
{
    struct world *w = world_new(60);
    struct rig *a = add(w, 10, 0), *b = add(w, 0, 0);
    uint64_t rng = 7;

    (void)state;
    for (int i = 0; i < 200; i++) {
        struct rig *r = next_random(&rng) % 2 ? a : b;
        uint32_t room = kvlazy_room(r->cache, 0), n = 1 + (uint32_t)(next_random(&rng) % 20);

        if (room) {
            ok(dry(r, 0, end_of(r, 0), room));
            assert_int_equal(kvlazy_room(r->cache, 0), room);
        }
        expect(dry(r, 0, end_of(r, 0), room + 1), KVLAZY_EBUDGET); /* nobody is idle, nobody else has free pages */
        if (n <= room)
            ok(more(r, 0, n));
        else
            ok(kvlazy_clear(r->cache, true));
        settled(w);
    }
    world_free(w);
}

/* ---- limits of the pool ---- */

static void the_pool_moves_at_run_time(void **state)
{
    struct world *w = world_new(60);
    struct rig *a = add(w, 5, 1), *b = add(w, 0, 1);

    (void)state;
    ok(more(a, 0, 30));
    ok(more(b, 0, 30));
    ok(kvlazy_seq_rm(b->cache, 0, 20, -1));
    ok(kvlazy_pool_set_budget(w->pool, 50 * PAGE)); /* free pages */
    host.budget = 50 * PAGE;
    settled(w);
    expect(kvlazy_pool_set_budget(w->pool, 49 * PAGE), KVLAZY_EBUDGET);
    assert_int_equal(pool_stats(w).budget_bytes, 50 * PAGE);
    expect(kvlazy_pool_set_budget(w->pool, 4 * PAGE), KVLAZY_EBUDGET); /* below a minimum */
    idle(w);
    ok(kvlazy_pool_set_budget(w->pool, 20 * PAGE));
    host.budget = 20 * PAGE;
    settled(w);
    assert_true(touched_pages(a) >= 5);
    ok(kvlazy_pool_set_budget(w->pool, 5 * PAGE));
    host.budget = 5 * PAGE;
    assert_int_equal(touched_pages(a), 5);
    assert_int_equal(touched_pages(b), 0);
    expect(kvlazy_pool_set_budget(w->pool, 5 * PAGE - 1), KVLAZY_EBUDGET);
    ok(kvlazy_pool_set_budget(w->pool, 100 * PAGE));
    host.budget = 100 * PAGE;
    ok(more(b, 1, 95));
    world_free(w);
}

/* A ceiling that is no whole number of pages. */
static void a_ceiling_inside_a_page(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0);

    (void)state;
    host.budget = 10 * PAGE + 7;
    ok(kvlazy_pool_set_budget(w->pool, 10 * PAGE + 7));
    assert_int_equal(kvlazy_room(a->cache, 0), 10);
    expect(more(a, 0, 11), KVLAZY_EBUDGET);
    ok(more(a, 0, 10));
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_that_are_none),
        cmocka_unit_test(stats_of_other_sizes),
        cmocka_unit_test(a_foreign_pool_is_refused),
        cmocka_unit_test(minima_beyond_the_pool_are_refused),
        cmocka_unit_test(a_pool_in_use_stays),
        cmocka_unit_test(taken_follows_touched),
        cmocka_unit_test(a_plan_is_taken_until_its_batch_ends),
        cmocka_unit_test(a_refused_plan_takes_nothing),
        cmocka_unit_test(a_plan_that_is_replaced_is_not_taken),
        cmocka_unit_test(an_undone_ubatch_keeps_its_pages_until_they_go),
        cmocka_unit_test(a_failed_commit_leaves_nothing_taken),
        cmocka_unit_test(a_minimum_is_never_lent),
        cmocka_unit_test(joining_does_not_lend_a_minimum),
        cmocka_unit_test(lowering_the_pool_does_not_lend_a_minimum),
        cmocka_unit_test(fair_shares_go_by_weight),
        cmocka_unit_test(the_unfair_takes_from_the_unfair),
        cmocka_unit_test(a_fair_share_is_above_the_minimum),
        cmocka_unit_test(room_tells_what_is_free_now),
        cmocka_unit_test(the_pool_moves_at_run_time),
        cmocka_unit_test(a_ceiling_inside_a_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
