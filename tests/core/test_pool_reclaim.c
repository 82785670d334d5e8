/* SPDX-License-Identifier: MIT */
/*
 * What a cache lacks of its pool is taken from others: whom it is asked of and in which order, who is passed over, what
 * may not go, and that on_evict is asked with no lock held.
 */
#define _DEFAULT_SOURCE
#include "pool_support.h"

#include <pthread.h>

#include <kvlazy/pool.h>

/* ---- free pages of others first, then idle tokens ---- */

static void free_pages_of_others_go_first(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0), *c = add(w, 0, 0);

    (void)state;
    ok(more(a, 0, 20));
    ok(more(b, 0, 10));
    idle(w);
    ok(kvlazy_seq_rm(b->cache, 0, 4, -1)); /* just now */
    ok(more(c, 0, 6));
    assert_int_equal(touched_pages(a), 20); /* furthest over, and idle for long */
    assert_int_equal(touched_pages(b), 4);
    assert_int_equal(stats(a).n_evict + stats(b).n_evict, 0);
    assert_int_equal(a->n_evict + b->n_evict, 0);
    assert_int_equal(pool_stats(w).reclaimed_bytes, 6 * PAGE);
    assert_int_equal(pool_stats(w).n_reclaim, 1);
    world_free(w);
}

/* Its own free pages go before anybody is asked. */
static void own_free_pages_go_before_those_of_others(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);
    uint32_t i;

    (void)state;
    for (i = 0; i < 15; i++)
        ok(more(a, (kvlazy_seq_id)(i % 2), 1));
    ok(more(b, 0, 15));
    ok(kvlazy_seq_rm(b->cache, 0, 0, -1));
    ok(kvlazy_seq_rm(a->cache, 0, 0, -1));
    ok(more(a, 1, 8)); /* in the holes */
    assert_int_equal(touched_pages(b), 15);
    assert_int_equal(pool_stats(w).n_reclaim, 0);
    world_free(w);
}

static void free_pages_within_a_minimum_are_not_lent(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 8, 0), *b = add(w, 0, 0);

    (void)state;
    ok(more(a, 0, 10));
    ok(kvlazy_seq_rm(a->cache, 0, 0, -1));
    ok(more(b, 0, 20));
    expect(more(b, 0, 3), KVLAZY_EBUDGET); /* two would be lent, eight are kept */
    ok(more(b, 0, 2));
    ok(kvlazy_init_batch(b->cache));
    ok(more(a, 0, 8));
    ok(kvlazy_end_batch(b->cache));
    world_free(w);
}

static void only_idle_sequences_lose(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);

    (void)state;
    ok(more(a, 0, 10));
    w->fake->now += 10;
    ok(more(a, 1, 10));
    w->fake->now += 10;
    ok(more(a, 2, 10));
    w->fake->now += IDLE - 20; /* 0 is idle, 1 in 10 ms */
    ok(more(b, 0, 4));
    assert_int_equal(live_of(a, 0), 6); /* the tail */
    w->fake->now += 10;
    ok(more(b, 0, 4)); /* the longest idle first: two of 0 are left */
    assert_int_equal(live_of(a, 0), 2);
    assert_int_equal(live_of(a, 1), 10);
    ok(more(b, 0, 5));
    assert_int_equal(live_of(a, 0), 0);
    assert_int_equal(live_of(a, 1), 7);
    assert_int_equal(live_of(a, 2), 10);
    expect(more(b, 0, 8), KVLAZY_EBUDGET);
    assert_int_equal(live_of(a, 2), 10);
    assert_int_equal(end_of(b, 0), 13);
    world_free(w);
}

static void what_may_not_go_stays(void **state)
{
    static const char *what[] = {"keep_tokens", "KEEP", "a veto", "idle time 0"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct world *w = world_new(30);
        struct rig *a = new_rig(w, 0, 0), *b;

        a->params.keep_tokens = i == 0 ? 30 : 0;
        a->params.shrink = i == 1 ? KVLAZY_SHRINK_KEEP : KVLAZY_SHRINK_TAILS;
        a->veto = i == 2 ? 1 : 0;
        a->params.slot_shrink_idle_ms = i == 3 ? 0 : IDLE;
        rig_open(a);
        b = add(w, 0, 0);
        ok(more(a, 0, 30));
        w->fake->now += UINT64_C(1000) * IDLE;
        if (more(b, 0, 1) != KVLAZY_EBUDGET)
            fail_msg("%s", what[i]);
        assert_int_equal(live_of(a, 0), 30);
        assert_int_equal(touched_pages(b), 0);
        assert_int_equal(a->n_evict, i == 2);
        world_free(w);
    }
}

static void kept_positions_of_a_victim(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = new_rig(w, 0, 0), *b;

    (void)state;
    a->params.keep_tokens = 25;
    rig_open(a);
    b = add(w, 0, 0);
    ok(more(a, 0, 30));
    idle(w);
    ok(more(b, 0, 5));
    assert_int_equal(live_of(a, 0), 25);
    expect(more(b, 0, 1), KVLAZY_EBUDGET);
    assert_int_equal(live_of(a, 0), 25);
    world_free(w);
}

/* ---- on_evict ---- */

static struct asking {
    struct world *w;
    int n;
    int other_status;
} asking;

static void *look_from_aside(void *arg)
{
    struct world *w = arg;

    for (int i = 0; i < w->n; i++) {
        stats(w->rig[i]);
        kvlazy_room(w->rig[i]->cache, 0);
        kvlazy_seq_pos_max(w->rig[i]->cache, 0);
    }
    pool_stats(w);
    return NULL;
}

static void look_at_all(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    struct world *w = asking.w;
    pthread_t thread;
    uint64_t next;

    asking.n++;
    assert_int_equal(live_of(r, seq), 30); /* nothing changed yet */
    assert_int_equal(pos, 24);
    look_from_aside(w); /* no lock is held by this thread … */
    assert_int_equal(pthread_create(&thread, NULL, look_from_aside, w), 0);
    pthread_join(thread, NULL); /* … nor for it */
    asking.other_status = kvlazy_poll(r->cache, &next);
    expect(kvlazy_trim(w->rig[1]->cache, 0), KVLAZY_EBUSY); /* the one that asks is in a batch */
}

static void on_evict_is_asked_with_no_lock_held(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);

    (void)state;
    asking = (struct asking){.w = w};
    a->in_evict = look_at_all;
    ok(more(a, 0, 30));
    idle(w);
    ok(more(b, 0, 5));
    assert_int_equal(asking.n, 1);
    expect(asking.other_status, KVLAZY_EBUSY);
    assert_int_equal(live_of(a, 0), 25);
    a->in_evict = NULL;
    world_free(w);
}

static void open_a_batch(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)seq;
    (void)pos;
    ok(kvlazy_init_batch(r->cache));
}

static void a_batch_opened_while_asked_saves_the_victim(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);

    (void)state;
    a->in_evict = open_a_batch;
    ok(more(a, 0, 30));
    idle(w);
    expect(more(b, 0, 5), KVLAZY_EBUDGET);
    assert_int_equal(live_of(a, 0), 30);
    ok(kvlazy_end_batch(a->cache));
    a->in_evict = NULL;
    ok(more(b, 0, 5));
    world_free(w);
}

/* ---- who is busy ---- */

static void an_open_batch_is_passed_over(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0), *c = add(w, 0, 0);
    char *a_before, *b_before;

    (void)state;
    ok(more(a, 0, 20));
    ok(more(c, 0, 10));
    ok(kvlazy_seq_rm(a->cache, 0, 15, -1));
    idle(w);
    ok(kvlazy_init_batch(a->cache));
    a_before = rig_dump(a);
    b_before = rig_dump(b);
    ok(kvlazy_init_batch(b->cache));
    expect(put(b, 0, 0, 11), KVLAZY_EBUDGET); /* more than its fair share: c gives nothing */
    unchanged(a, a_before);
    unchanged(b, b_before);
    ok(more(b, 0, 10)); /* c is under its fair share, and b within its own */
    assert_int_equal(touched_pages(a), 20);
    assert_int_equal(touched_pages(c), 0);
    ok(kvlazy_end_batch(a->cache));
    world_free(w);
}

static struct world *inside_of;

/* Another cache's thread is in the middle of a release. */
static void ask_for_more(void)
{
    struct rig *a = inside_of->rig[0], *b = inside_of->rig[1];

    a->beside = true; /* its lock is held: no look at its cells */
    expect(more(b, 0, 4), KVLAZY_EBUDGET);
    a->beside = false;
    assert_int_equal(touched_pages(b), 0);
}

static void who_is_inside_a_call_is_passed_over(void **state)
{
    struct world *w = inside_of = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);

    (void)state;
    ok(more(a, 0, 30));
    ok(kvlazy_seq_rm(a->cache, 0, 20, -1));
    idle(w);
    host.in_decommit = ask_for_more;
    ok(kvlazy_trim(a->cache, 0));
    assert_null(host.in_decommit);
    ok(more(b, 0, 4));
    world_free(w);
}

static void when_nobody_can_give_nothing_changes(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);
    char *a_before, *b_before;
    kvlazy_pool_info info;

    (void)state;
    ok(more(a, 0, 20));
    ok(more(b, 0, 5));
    a_before = rig_dump(a);
    b_before = rig_dump(b);
    fake_forget(w->fake);
    info = pool_stats(w);
    expect(more(b, 0, 6), KVLAZY_EBUDGET);
    assert_int_equal(kvlazy_refused(b->cache), 0);
    unchanged(a, a_before);
    unchanged(b, b_before);
    assert_int_equal(w->fake->n_call[FAKE_COMMIT] + w->fake->n_call[FAKE_DECOMMIT], 0);
    assert_int_equal(pool_stats(w).taken_bytes, info.taken_bytes);
    assert_int_equal(stats(b).n_refused_budget, 1);
    ok(more(b, 0, 5)); /* what is free is there */
    idle(w);
    ok(more(b, 0, 5)); /* and now a rests */
    assert_int_equal(live_of(a, 0), 15);
    world_free(w);
}

/* What others have would not be enough: they are not robbed of their tokens for nothing. */
static void others_keep_their_tokens_when_they_would_not_do(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0);

    (void)state;
    ok(more(a, 0, 30));
    idle(w);
    expect(more(b, 0, 100), KVLAZY_EBUDGET); /* more than the pool has */
    assert_int_equal(live_of(a, 0), 30);
    world_free(w);
}

/* ---- holes ---- */

/* Sequence 1 alone is left, behind n cells whose pages are gone, and nobody has a page to spare. */
static void a_victim_with_holes_and_no_page_to_move(void **state)
{
    struct world *w = world_new(30);
    struct rig *a = add(w, 0, 0), *b = add(w, 0, 0), *c = add(w, 0, 0);

    (void)state;
    ok(more(a, 0, 10));
    ok(more(a, 1, 20));
    ok(kvlazy_seq_rm(a->cache, 0, 0, -1));
    w->fake->now += IDLE;
    ok(more(a, 1, 1));
    ok(kvlazy_end_batch(a->cache));
    ok(kvlazy_poll(a->cache, NULL));
    assert_int_equal(live_of(a, 1), 21);
    ok(more(c, 0, kvlazy_room(c->cache, 0)));
    assert_int_equal(taken_pages(w), 30);
    idle(w);
    ok(kvlazy_init_batch(c->cache));
    ok(more(b, 0, 5));
    ok(kvlazy_end_batch(c->cache));
    settled(w);
    world_free(w);
}

/* Rows of less than a page, so that moving together frees pages without a token lost; but first it takes one. */
static void a_scattered_victim_gives_all_the_same(void **state)
{
    static const size_t rows[1][2] = {{PAGE / 4, 0}};
    struct world *w = world_new(30);
    struct rig *a = new_rig(w, 0, 0), *b, *c;

    (void)state;
    rig_rows(a, 1, rows);
    rig_open(a);
    b = add(w, 0, 0);
    c = add(w, 0, 0);
    ok(more(a, 0, 8));  /* cells 0..7, two pages that will be given back */
    ok(more(a, 1, 80)); /* and twenty */
    ok(kvlazy_seq_rm(a->cache, 0, 0, -1));
    for (kvlazy_pos p = 0; p < 80; p += 4)
        ok(kvlazy_seq_cp(a->cache, 1, 2, p, p + 1)); /* one cell a page stays */
    ok(kvlazy_seq_rm(a->cache, 1, 0, -1));
    ok(kvlazy_init_batch(b->cache));
    ok(kvlazy_end_batch(b->cache));
    w->fake->now += IDLE / 2;
    ok(kvlazy_seq_cp(a->cache, 2, 2, 0, -1));
    w->fake->now += IDLE / 2;
    ok(kvlazy_init_batch(a->cache)); /* decay alone: nothing moves */
    ok(kvlazy_end_batch(a->cache));
    ok(more(c, 0, kvlazy_room(c->cache, 0)));
    assert_int_equal(taken_pages(w), 30);
    idle(w);
    ok(kvlazy_init_batch(c->cache)); /* c gives nothing */
    ok(more(b, 0, 4));
    ok(kvlazy_end_batch(c->cache));
    settled(w);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(free_pages_of_others_go_first),
        cmocka_unit_test(own_free_pages_go_before_those_of_others),
        cmocka_unit_test(free_pages_within_a_minimum_are_not_lent),
        cmocka_unit_test(only_idle_sequences_lose),
        cmocka_unit_test(what_may_not_go_stays),
        cmocka_unit_test(kept_positions_of_a_victim),
        cmocka_unit_test(on_evict_is_asked_with_no_lock_held),
        cmocka_unit_test(a_batch_opened_while_asked_saves_the_victim),
        cmocka_unit_test(an_open_batch_is_passed_over),
        cmocka_unit_test(who_is_inside_a_call_is_passed_over),
        cmocka_unit_test(when_nobody_can_give_nothing_changes),
        cmocka_unit_test(others_keep_their_tokens_when_they_would_not_do),
        cmocka_unit_test(a_victim_with_holes_and_no_page_to_move),
        cmocka_unit_test(a_scattered_victim_gives_all_the_same),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
