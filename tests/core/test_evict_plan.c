/* SPDX-License-Identifier: MIT */
/*
 * How an eviction is planned and asked about: once a sequence and call, with what then happens; a yes that holds until
 * its sequence changes; and work that grows with the tokens that are there, in pieces between which a hook gets in.
 */
#include "core/lock.h"
#include "core/shrink.h"
#include "linked_support.h"

#include <string.h>

/* ---- what was asked is what happens ---- */

/* Sequences with a tail each behind tokens that all of them share. */
static void fork_all(struct rig *r, uint32_t n_seq, uint32_t n_shared, uint32_t n_tail)
{
    turn_at(r, r->fake.now, 0, 0, n_shared);
    for (kvlazy_seq_id q = 1; q < (kvlazy_seq_id)n_seq; q++)
        ok(kvlazy_seq_cp(r->cache, 0, q, -1, -1));
    for (kvlazy_seq_id q = 0; q < (kvlazy_seq_id)n_seq; q++)
        turn_at(r, r->fake.now + 1, q, (kvlazy_pos)n_shared, n_tail);
}

static void open_many(struct rig *r, uint32_t n_seq, uint32_t n_tail, uint32_t initial)
{
    static const size_t rows[1][2] = {{64, 64}};

    rig_rows(r, 1, rows);
    r->params.n_seq_max = n_seq;
    open_with(r, n_seq * n_tail + 256, initial);
}

/* Each sequence was asked about once at most, and what agreed ends where it was told it would; what did not is whole.
 */
static void happened_as_asked(struct rig *r, int from, kvlazy_pos whole_max)
{
    for (int i = from; i < r->n_evict; i++) {
        kvlazy_seq_id q = r->evict[i].seq;
        bool kept = q < 64 && (r->veto >> q & 1);

        for (int k = from; k < i; k++)
            assert_int_not_equal(r->evict[k].seq, q);
        assert_int_equal(kvlazy_seq_pos_max(r->cache, q), kept ? whole_max : r->evict[i].pos);
    }
}

static void each_is_asked_once_whatever_is_kept(void **state)
{
    (void)state;
    for (uint64_t veto = 0; veto < 64; veto++)
        for (uint32_t target = 1; target < 60; target += 13) {
            struct rig *r = rig_new();
            int from;

            open_many(r, 6, 10, 0);
            fork_all(r, 6, 20, 10);
            r->veto = veto;
            from = r->n_evict;
            ok(kvlazy_trim(r->cache, target));
            happened_as_asked(r, from, 29);
            sound(r);
            rig_free(r);
        }
}

/* Where whole sequences go, a keep leaves the first of two that share their cells with nothing to free: it goes with the
 * second, in the same call, when the keep of another makes that one's turn come. */
static void two_that_go_together_after_keeps(void **state)
{
    struct rig *r = *state;

    r->params.shrink = KVLAZY_SHRINK_WHOLE;
    open_many(r, 4, 64, 0);
    turn_at(r, r->fake.now, 0, 0, 1);
    ok(kvlazy_seq_cp(r->cache, 0, 1, -1, -1));
    turn_at(r, r->fake.now, 1, 1, 11);
    ok(kvlazy_seq_cp(r->cache, 1, 3, -1, -1));
    turn_at(r, r->fake.now, 2, 0, 54);
    r->veto = 1 << 0 | 1 << 2;
    ok(kvlazy_trim(r->cache, 60));
    assert_int_equal(r->n_evict, 4);
    asked(r, 0, 0, -1);
    asked(r, 1, 2, -1);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 0);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 1), -1);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 2), 53);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 3), -1);
    sound(r);
}

/* The one that was used last keeps the prompt that the others were told they would lose with all they have. */
static void a_prompt_that_a_later_one_keeps(void **state)
{
    struct rig *r = *state;

    open_many(r, 3, 10, 0);
    fork_all(r, 3, 20, 10);
    r->veto = 4;
    ok(kvlazy_trim(r->cache, 1));
    assert_int_equal(r->n_evict, 3);
    asked(r, 0, 0, 0);
    asked(r, 1, 1, 0);
    happened_as_asked(r, 0, 29);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 2), 29);
    sound(r);
}

/* One that is asked after a veto is told what it then loses: the prompt is held, and stays with it. */
static void a_prompt_that_an_earlier_one_keeps(void **state)
{
    struct rig *r = *state;

    open_many(r, 3, 10, 0);
    fork_all(r, 3, 20, 10);
    r->veto = 1;
    ok(kvlazy_trim(r->cache, 1));
    assert_int_equal(r->n_evict, 3);
    asked(r, 1, 1, 19);
    asked(r, 2, 2, 19);
    happened_as_asked(r, 0, 29);
    assert_int_equal(stats(r).live_cells, 30);
    sound(r);
}

static void linked_caches_get_one_answer(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 3; i++)
        g->r[i]->params.kv_size_initial = 30 + 20 * (uint32_t)i;
    open_linked(g, 3);
    ok(turn_all(g, 0, 0, 60));
    for (int i = 0; i < 3; i++)
        ok(kvlazy_seq_cp(g->r[i]->cache, 0, 1, 0, 20));
    later(g, 1);
    ok(turn_all(g, 1, 20, 40));
    later(g, 1);
    ok(turn_all(g, 2, 0, 40));
    for (int i = 0; i < 3; i++)
        g->r[i]->veto = 2;
    later(g, 500);
    ok(kvlazy_poll(g->r[1]->cache, NULL));
    assert_int_equal(n_asked(g), g->r[1]->n_evict); /* the one that was called asks for all */
    happened_as_asked(g->r[1], 0, 59);
    agree(g);
    all_sound(g);
}

/* ---- a yes that holds ---- */

static int n_decoded;

/* The answer takes 50 ms, and every 10 ms another sequence gets a token. */
static void decodes_meanwhile(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)seq;
    (void)pos;
    for (int i = 0; i < 5; i++) {
        r->fake.now += 10;
        ok(turn(r, 1, n_decoded++, 1));
    }
}

static void a_slow_yes_beside_a_busy_sequence(void **state)
{
    struct rig *r = *state;

    n_decoded = 0;
    open_with(r, 4096, 256);
    turn_at(r, 1000, 0, 0, 600);
    r->fake.now = 1500;
    r->in_evict = decodes_meanwhile;
    expect(kvlazy_poll(r->cache, NULL), KVLAZY_EBUSY);
    assert_int_equal(r->n_evict, 1);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 599);
    ok(turn(r, 1, n_decoded++, 1));
    ok(kvlazy_poll(r->cache, NULL));
    assert_int_equal(r->n_evict, 1);
    asked(r, 0, 0, 255);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 255);
    sound(r);
}

static void opens_a_batch(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)seq;
    (void)pos;
    ok(kvlazy_init_batch(r->cache));
}

/* s0 of 600 tokens; a poll asked about all above 255, and a batch came between. */
static void agree_in_vain(struct rig *r)
{
    open_with(r, 4096, 256);
    turn_at(r, 1000, 0, 0, 600);
    r->fake.now = 1500;
    r->in_evict = opens_a_batch;
    expect(kvlazy_poll(r->cache, NULL), KVLAZY_EBUSY);
    r->in_evict = NULL;
    ok(kvlazy_end_batch(r->cache));
    assert_int_equal(r->n_evict, 1);
    asked(r, 0, 0, 255);
}

static void a_trim_takes_more_than_was_agreed(void **state)
{
    struct rig *r = *state;

    agree_in_vain(r);
    ok(kvlazy_trim(r->cache, 100));
    assert_int_equal(r->n_evict, 2);
    asked(r, 1, 0, 99);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 99);
    sound(r);
}

static void a_trim_asks_nothing_that_was_agreed(void **state)
{
    struct rig *r = *state;

    agree_in_vain(r);
    ok(kvlazy_trim(r->cache, 256));
    assert_int_equal(r->n_evict, 1);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 255);
    sound(r);
}

/* Another sequence filled the stream meanwhile. The poll takes what was agreed, and says that another one has to come.
 */
static void a_poll_of_less_than_the_excess_comes_again(void **state)
{
    struct rig *r = *state;
    uint64_t next;

    agree_in_vain(r);
    ok(turn(r, 1, 0, 50));
    ok(poll_next(r, &next));
    assert_int_equal(next, 0);
    assert_int_equal(r->n_evict, 1);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 255);
    ok(poll_next(r, &next));
    assert_true(next > 0);
    asked(r, 1, 0, 205);
    assert_int_equal(kvlazy_seq_pos_max(r->cache, 0), 205);
    sound(r);
}

/* What each change of the sequence does to a yes. */
static void shortens(struct rig *r)
{
    ok(kvlazy_seq_rm(r->cache, 0, 590, -1));
}

static void shifts(struct rig *r)
{
    ok(kvlazy_seq_rm(r->cache, 0, 0, 10));
    ok(kvlazy_seq_add(r->cache, 0, 10, -1, -10));
    ok(kvlazy_init_batch(r->cache));
    ok(kvlazy_shift_done(r->cache));
    ok(kvlazy_end_batch(r->cache));
}

static void is_copied_onto(struct rig *r)
{
    ok(kvlazy_seq_cp(r->cache, 1, 0, 0, 1));
}

static void grows(struct rig *r)
{
    ok(turn(r, 0, 600, 1));
}

static void grows_and_is_undone(struct rig *r)
{
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, 600, 1));
    ok(kvlazy_undo_ubatch(r->cache, &r->slot[0]));
    ok(kvlazy_end_batch(r->cache));
}

static void a_yes_ends_when_its_sequence_changes(void **state)
{
    static void (*const changes[])(struct rig *) = {shortens, shifts, is_copied_onto, grows, grows_and_is_undone};

    (void)state;
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        struct rig *r = rig_new();

        n_decoded = 0;
        open_with(r, 4096, 256);
        turn_at(r, 1000, 0, 0, 600);
        r->fake.now = 1500;
        r->in_evict = decodes_meanwhile;
        expect(kvlazy_poll(r->cache, NULL), KVLAZY_EBUSY);
        r->in_evict = NULL;
        changes[i](r);
        r->fake.now += 1000;
        ok(kvlazy_poll(r->cache, NULL));
        assert_true(r->n_evict >= 2);
        assert_int_equal(r->evict[1].seq, 0);
        happened_as_asked(r, 1, -1);
        sound(r);
        rig_free(r);
    }
}

/* ---- work ---- */

enum scenario { A_POLL, A_BUDGET, ALL_KEEP };

static uint64_t steps_of(enum scenario what, uint32_t n_seq)
{
    struct rig *r = rig_new();
    uint64_t n_step;

    open_many(r, n_seq, 10, what == A_BUDGET ? 0 : 8);
    fork_all(r, n_seq, 1, 10);
    r->veto = what == ALL_KEEP ? UINT64_MAX : 0;
    r->fake.now += 1000;
    if (what == A_BUDGET)
        ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, stats(r).touched_bytes / 8));
    else
        ok(kvlazy_poll(r->cache, NULL));
    n_step = r->cache->group->losses.n_step;
    sound(r);
    rig_free(r);
    return n_step;
}

/* on_evict of the rig keeps the first 64 sequences at most: as many are there. */
static void work_follows_the_tokens(void **state)
{
    (void)state;
    for (enum scenario what = A_POLL; what <= ALL_KEEP; what++) {
        uint64_t few = steps_of(what, 16), many = steps_of(what, 64);

        print_message("%d: %u steps, then %u\n", (int)what, (unsigned)few, (unsigned)many);
        assert_true(many <= 6 * few);
    }
    assert_true(steps_of(A_POLL, 256) <= 6 * steps_of(A_POLL, 64));
    assert_true(steps_of(A_BUDGET, 256) <= 6 * steps_of(A_BUDGET, 64));
}

/* A hook waits: once the plan has done some work the shrink says so. Until then it is less than 2^11 looks and 8 pieces,
 * and no piece is more than 2^15 looks and what one turn takes on top of that. */
static void a_hook_waits_for_one_piece(void **state)
{
    enum { PIECE = (1 << 15) + 4 * (1 << 12) + 4 * 256, LITTLE = 1 << 11, PIECES = 8, MOST = 10000 };
    struct rig *r = *state;
    kvlazy_cache *c;
    kvl_shrink s;
    kvl_shrink_next next;
    int n_way = 0, n_piece = 0;

    open_many(r, 256, 40, 64);
    fork_all(r, 256, 1, 40);
    c = r->cache;
    kvl_lock(c);
    atomic_fetch_add(&c->group->n_waiting, 1);
    kvl_shrink_begin(c, &s, KVL_SHRINK_CELLS, 64, r->fake.now + 1000);
    uint64_t free_at = c->group->losses.n_step;
    for (int i = 0; s.phase == KVL_SHRINK_PLANS; i++) {
        uint64_t n_step = c->group->losses.n_step;

        assert_true(i < MOST);
        next = kvl_shrink_step(c, &s);
        n_piece++;
        assert_true(c->group->losses.n_step - n_step <= PIECE);
        if (next == KVL_SHRINK_MORE && s.phase == KVL_SHRINK_PLANS)
            assert_true(n_piece < PIECES && c->group->losses.n_step - free_at < LITTLE);
        n_way += next == KVL_SHRINK_GIVE_WAY;
        if (next == KVL_SHRINK_ASK)
            kvl_shrink_answer(c, &s, false);
        else if (next == KVL_SHRINK_GIVE_WAY)
            kvl_shrink_resume(c, &s);
        if (next == KVL_SHRINK_MORE)
            continue;
        free_at = c->group->losses.n_step;
        n_piece = 0;
    }
    assert_true(n_way > 0);
    assert_int_equal(s.evict.n_restart, 0); /* no other call changed a sequence */
    atomic_fetch_sub(&c->group->n_waiting, 1);
    kvl_evict_end(c->group);
    kvl_unlock(c);
}

/* Beside batches that follow one another without a pause a hook always waits. A small plan is done all the same. */
static void a_small_plan_is_done_first(void **state)
{
    struct rig *r = *state;
    kvlazy_cache *c;
    kvl_shrink s;
    kvl_shrink_next next;
    int n_piece = 0;

    open_many(r, 4, 40, 64);
    fork_all(r, 4, 1, 40);
    c = r->cache;
    kvl_lock(c);
    atomic_fetch_add(&c->group->n_waiting, 1);
    kvl_shrink_begin(c, &s, KVL_SHRINK_CELLS, 64, r->fake.now + 1000);
    for (; s.phase == KVL_SHRINK_PLANS; n_piece++) {
        next = kvl_shrink_step(c, &s);
        assert_int_not_equal(next, KVL_SHRINK_GIVE_WAY);
        if (next == KVL_SHRINK_ASK)
            kvl_shrink_answer(c, &s, false);
    }
    assert_true(n_piece > 2); /* there was something to plan */
    atomic_fetch_sub(&c->group->n_waiting, 1);
    kvl_evict_end(c->group);
    kvl_unlock(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_asked_once_whatever_is_kept),
        RIG_TEST(two_that_go_together_after_keeps),
        RIG_TEST(a_prompt_that_a_later_one_keeps),
        RIG_TEST(a_prompt_that_an_earlier_one_keeps),
        GROUP_TEST(linked_caches_get_one_answer),
        RIG_TEST(a_slow_yes_beside_a_busy_sequence),
        RIG_TEST(a_trim_takes_more_than_was_agreed),
        RIG_TEST(a_trim_asks_nothing_that_was_agreed),
        RIG_TEST(a_poll_of_less_than_the_excess_comes_again),
        cmocka_unit_test(a_yes_ends_when_its_sequence_changes),
        cmocka_unit_test(work_follows_the_tokens),
        RIG_TEST(a_hook_waits_for_one_piece),
        RIG_TEST(a_small_plan_is_done_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
