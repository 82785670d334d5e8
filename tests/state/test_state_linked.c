/* SPDX-License-Identifier: MIT */
/*
 * States of linked caches, which are written and read as one, and states while other threads are there: what changes a
 * sequence ends its writing, what looks does not wait, and what shrinks stays away.
 */
#include "state_support.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A full cache and one with a window of 4 in 16 cells, both with the same sequences. */
struct pair {
    struct box *full, *window;
};

static struct pair pair_open(uint32_t kv_size)
{
    struct pair p = {box_new(), box_window(16, 4)};

    p.full->params.kv_size = kv_size;
    p.window->params.n_layer = 1;
    box_open(p.full);
    p.window->params.with = p.full->cache;
    box_open(p.window);
    return p;
}

static void pair_free(struct pair p)
{
    box_sound(p.full);
    box_sound(p.window);
    box_free(p.window);
    box_free(p.full);
}

static void pair_turn(struct pair p, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        ok(kvlazy_init_batch(p.full->cache));
        ok(box_put(p.full, seq, pos + (kvlazy_pos)i, 1));
        ok(box_put(p.window, seq, pos + (kvlazy_pos)i, 1));
        ok(kvlazy_end_batch(p.window->cache));
    }
}

static void test_linked_caches_are_one_state(void **state)
{
    struct pair from = pair_open(64), to = pair_open(40);

    (void)state;
    pair_turn(from, 0, 0, 30);
    struct tape t = tape_of(from.full, 0), other = tape_of(from.window, 0);
    assert_int_equal(t.n, other.n);
    assert_memory_equal(t.byte, other.byte, t.n); /* whichever is asked */
    pair_turn(to, 3, 0, 5);                       /* all that was there does not fit into the window any more */
    ok(tape_into(&t, to.window, 2));
    ok(kvlazy_end_batch(to.full->cache));
    assert_true(box_sum(to.full, 2) == box_sum(from.full, 0));
    assert_int_equal(kvlazy_seq_pos_min(to.window->cache, 2), 30 - 11);
    assert_int_equal(kvlazy_seq_pos_max(to.window->cache, 2), 29);
    assert_int_equal(to.window->cache->seq[2].lost_end, 19);
    ok(kvlazy_seq_rm(from.window->cache, 0, 0, 19));
    assert_true(box_sum(to.window, 2) == box_sum(from.window, 0));
    pair_turn(to, 2, 30, 3);
    tape_free(&t);
    tape_free(&other);
    pair_free(from);
    pair_free(to);
}

/* The second has no room: the first is as it was too. */
static void test_all_of_them_or_none(void **state)
{
    struct pair from = pair_open(64), to = pair_open(64);

    (void)state;
    pair_turn(from, 0, 0, 14);
    pair_turn(to, 0, 0, 5);
    pair_turn(to, 1, 0, 5);
    pair_turn(to, 3, 0, 4); /* 2 cells are left, one less than its next token sees */
    struct tape t = tape_of(from.full, 0);
    for (int cut = 0; cut < 2; cut++) {
        struct picture *full = box_look(to.full), *window = box_look(to.window);

        expect(tape_into(&t, to.full, 2), cut ? KVLAZY_EIO : KVLAZY_ENOSLOT);
        same(to.full, full);
        same(to.window, window);
        for (int i = 0; !cut && i < 2; i++)
            ok(kvlazy_seq_rm(i ? to.full->cache : to.window->cache, 3, -1, -1));
        t.n -= 4;
    }
    t.n += 8;
    ok(tape_into(&t, to.full, 2));
    tape_free(&t);
    pair_free(from);
    pair_free(to);
}

static void test_a_state_of_one_is_none_of_two(void **state)
{
    struct box *alone = box_open(box_new());
    struct pair to = pair_open(64);

    (void)state;
    box_turn(alone, 0, 0, 5);
    struct tape t = tape_of(alone, 0);
    struct picture *before = box_look(to.full);
    expect(tape_into(&t, to.full, 0), KVLAZY_ESTATE);
    assert_non_null(strstr(to.full->log, "linked caches 1, here 2"));
    same(to.full, before);
    tape_free(&t);
    box_free(alone);
    pair_free(to);
}

/* ---- other threads ---- */

/* In the middle of a call, another thread does something, and is done before the call goes on. */
struct visit {
    struct box *box;
    int at_call, n_call;
    void (*act)(struct box *box);
};

static void *run_visit(void *ctx)
{
    struct visit *v = ctx;

    v->act(v->box);
    return NULL;
}

static void maybe_visit(void *ctx)
{
    struct visit *v = ctx;
    pthread_t thread;

    if (++v->n_call != v->at_call)
        return;
    assert_int_equal(pthread_create(&thread, NULL, run_visit, v), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void remove_tail(struct box *box)
{
    ok(kvlazy_seq_rm(box->cache, 0, 7, -1));
}

static void append(struct box *box)
{
    box_turn(box, 0, 9, 3);
}

static void change_another(struct box *box)
{
    box_turn(box, 1, 0, 3);
    ok(kvlazy_seq_rm(box->cache, 1, 1, -1));
}

static void look_and_shrink(struct box *box)
{
    kvlazy_stats_info info = {.struct_size = sizeof info};
    uint64_t next;

    ok(kvlazy_stats(box->cache, &info));
    box_sound(box);
    box->fake.now += 10000;
    expect(kvlazy_poll(box->cache, &next), KVLAZY_EBUSY);
    expect(kvlazy_trim(box->cache, 1), KVLAZY_EBUSY);
    expect(kvlazy_set_limits(box->cache, 1, 1, 4096), KVLAZY_EBUSY);
}

/* Returns how a write of sequence 0 ended, with a visit in one of its calls. */
static int write_visited(void (*act)(struct box *), int at_call, int *n_call)
{
    struct box *box = box_open(box_new()), *to = box_open(box_new());
    struct visit v = {.box = box, .at_call = at_call, .act = act};
    struct tape t = {.inside = maybe_visit, .ctx = &v};

    box_turn(box, 0, 0, 9);
    uint64_t sum = box_sum(box, 0);
    int status = kvlazy_state_write(box->cache, 0, tape_write, &t);
    *n_call = v.n_call;
    if (!status) { /* then it is what was there when the call began */
        t.inside = NULL;
        ok(tape_into(&t, to, 0));
        assert_true(box_sum(to, 0) == sum);
    }
    tape_free(&t);
    box_sound(box);
    box_free(box);
    box_free(to);
    return status;
}

/* A visit in a call of the last piece or behind it finds everything copied. */
static void test_a_sequence_that_changes_ends_its_writing(void **state)
{
    int n_epos = 0, n_call = 1;

    (void)state;
    for (int at = 1; at <= n_call; at++) {
        int status = write_visited(remove_tail, at, &n_call);

        assert_true(status == KVLAZY_EPOS || (status == KVLAZY_OK && at > n_call - 3));
        n_epos += status == KVLAZY_EPOS;
    }
    assert_true(n_epos > 10);
}

static void test_what_does_not_change_it_does_not(void **state)
{
    void (*const acts[])(struct box *) = {append, change_another, look_and_shrink};
    int n_call = 1;

    (void)state;
    for (size_t i = 0; i < N_OF(acts); i++)
        for (int at = 1; at <= n_call; at++)
            ok(write_visited(acts[i], at, &n_call));
}

static void test_others_may_look_while_a_state_is_read(void **state)
{
    struct box *box = box_open(box_new());

    (void)state;
    box_turn(box, 0, 0, 20);
    struct tape t = tape_of(box, 0);
    for (int at = 1; at < 40; at++) {
        struct visit v = {.box = box, .at_call = at, .act = look_and_shrink};

        t.inside = maybe_visit;
        t.ctx = &v;
        ok(tape_into(&t, box, 1));
        ok(kvlazy_end_batch(box->cache));
    }
    tape_free(&t);
    box_free(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linked_caches_are_one_state),
        cmocka_unit_test(test_all_of_them_or_none),
        cmocka_unit_test(test_a_state_of_one_is_none_of_two),
        cmocka_unit_test(test_a_sequence_that_changes_ends_its_writing),
        cmocka_unit_test(test_what_does_not_change_it_does_not),
        cmocka_unit_test(test_others_may_look_while_a_state_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
