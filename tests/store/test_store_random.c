/* SPDX-License-Identifier: MIT */
/*
 * A long random conversation of two caches with one store, over a place that fails, forgets, tears blobs, lies and is
 * slow. After every step each live token of the cache that took it has the rows that its prompt gives it, nothing is
 * held that was not before, and no call answers an error that it would not answer without a store.
 *
 * KVLAZY_TEST_SEED: another conversation.
 */
#include "fake_place.h"
#include "prefix_support.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer) || KVLAZY_CHECKS >= 2
enum { N_STEP = 2000 };
#else
enum { N_STEP = 10000 };
#endif

enum { BLOCK = 16, MOST = 90, N_SEQ = 4, N_CACHE = 2, N_TALK = 12 };

/* What one sequence is about: the tokens of talk `talk`, n of them live. */
struct slot {
    uint32_t talk, n;
};

static struct world {
    uint64_t random;
    struct fake_place fake;
    kvlazy_store *store;
    struct box *box[N_CACHE];
    struct slot slot[N_CACHE][N_SEQ];
    uint64_t held_bytes; /* of the store without a call inside */
    uint32_t n_loaded, n_saved;
} w;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(next_random(&w.random) % n);
}

/* ---- talks: four beginnings, and from token 40 on each has its own; some have an image, some another scope ---- */

static int32_t token_of_talk[N_TALK][MOST];

static void make_talks(void)
{
    for (uint32_t t = 0; t < N_TALK; t++)
        for (uint32_t i = 0; i < MOST; i++)
            token_of_talk[t][i] = (int32_t)(i < 40 ? i + 1000 * (t % 4) : i + 1000 * t) - 7;
}

static kvlazy_prompt prompt_of(uint32_t talk, uint32_t n)
{
    static const kvlazy_span image[2] = {{.begin = 20, .n = 5, .id = "cat", .id_bytes = 3},
                                         {.begin = 20, .n = 5, .id = "dog", .id_bytes = 3}};
    kvlazy_prompt p = {.struct_size = sizeof p, .token = token_of_talk[talk], .n_token = n};

    if (talk >= 8 && n >= 25) {
        p.span = &image[talk % 2];
        p.n_span = 1;
    }
    if (talk % 4 == 3) {
        p.scope = talk < 8 ? "a" : "b";
        p.scope_bytes = 1;
    }
    return p;
}

/* ---- the place ---- */

static void misbehave(struct fake_place *f, int call)
{
    static const int errors[] = {EIO, ENOENT, ENOSPC, ETIMEDOUT, ENODATA, ECHILD, EINVAL};

    if (call == FAKE_DESTROY)
        return;
    f->error[call] = below(20) ? 0 : errors[below(N_OF(errors))];
    f->lie = below(12) ? FAKE_TRUTH : FAKE_FLIP + (int)below(3);
    f->flip_at = next_random(&w.random);
    f->has_lies = !below(10);
    f->tears = !below(20);
    f->slow_ms = below(400) ? 0 : 3;
    if (call != FAKE_READ && call != FAKE_WRITE && call != FAKE_CLOSE && !below(15))
        fake_lose(f, below(50));
}

/* ---- what is always so ---- */

static void look_at_store(void)
{
    assert_int_equal(w.fake.n_open, 0);
    assert_true(prefix_info(w.store).held_bytes == w.held_bytes);
}

/* Eviction may have taken the ends of sequences, and nothing else. */
static void look(uint32_t b)
{
    for (kvlazy_seq_id seq = 0; seq < N_SEQ; seq++) {
        struct slot *s = &w.slot[b][seq];
        kvlazy_prompt p = prompt_of(s->talk, MOST);
        uint32_t n = (uint32_t)(kvlazy_seq_pos_max(w.box[b]->cache, seq) + 1);

        assert_true(n <= s->n);
        s->n = n;
        prefix_holds(w.box[b], seq, &p, n);
    }
    box_sound(w.box[b]);
}

/* ---- steps ---- */

static uint32_t n_used(uint32_t b, kvlazy_seq_id seq)
{
    return kvl_stream_of(w.box[b]->cache, seq)->cells.n_used;
}

static void save(uint32_t b, kvlazy_seq_id seq)
{
    struct slot *s = &w.slot[b][seq];
    kvlazy_prompt p = prompt_of(s->talk, s->n);
    uint32_t n = 999;

    ok(kvlazy_store_save(w.store, w.box[b]->cache, seq, &p, below(30) ? 10000 : 2, &n));
    assert_true(n <= s->n && n % BLOCK == 0);
    w.n_saved += n;
    look_at_store();
}

/* A request: what the slot has, what the store has, and the rest is computed. */
static void request(uint32_t b, kvlazy_seq_id seq)
{
    struct slot *s = &w.slot[b][seq];
    kvlazy_cache *cache = w.box[b]->cache;
    uint32_t n = 1 + below(MOST);

    if (s->n >= n || !s->n) {
        ok(kvlazy_seq_rm(cache, seq, -1, -1));
        *s = (struct slot){.talk = below(N_TALK)};
    }
    kvlazy_prompt p = prompt_of(s->talk, MOST); /* its rows; the call is about n of its tokens */
    p.n_token = n;
    if (p.n_span && n < 25)
        p = prompt_of(s->talk, n);
    uint32_t n_live = 999;

    ok(kvlazy_init_batch(cache));
    ok(kvlazy_store_load(w.store, cache, seq, &p, s->n, below(30) ? 10000 : 2, &n_live));
    look_at_store();
    assert_true(n_live >= s->n && (n_live == s->n || n_live < n));
    w.n_loaded += n_live - s->n;
    s->n = n_live;
    p = prompt_of(s->talk, MOST);
    prefix_holds(w.box[b], seq, &p, n_live);
    bool full = n_used(b, seq) + n - s->n > w.box[b]->params.kv_size;
    int status = prefix_compute(w.box[b], seq, &p, s->n, n);
    if (!full && !w.box[b]->params.budget_bytes)
        ok(status);
    if (!status)
        s->n = n;
    else
        assert_true(status == KVLAZY_ENOSLOT || status == KVLAZY_EBUDGET);
    if (!below(4))
        save(b, seq); /* in the batch: what is settled */
    ok(kvlazy_end_batch(cache));
}

static void forget(uint32_t b)
{
    kvlazy_prompt p = prompt_of(below(N_TALK), MOST);

    ok(kvlazy_store_forget(w.store, w.box[b]->cache, &p));
    look_at_store();
}

/* One slot begins like another. */
static void copy(uint32_t b, kvlazy_seq_id seq)
{
    kvlazy_seq_id dst = (seq + 1) % N_SEQ;
    uint32_t n = below(w.slot[b][seq].n + 1);

    ok(kvlazy_seq_rm(w.box[b]->cache, dst, -1, -1));
    w.slot[b][dst].n = 0;
    int status = kvlazy_seq_cp(w.box[b]->cache, seq, dst, 0, (kvlazy_pos)n);
    if (b == 0)
        ok(status); /* one stream: nothing is copied that could lack room */
    if (!status)
        w.slot[b][dst] = (struct slot){w.slot[b][seq].talk, n};
}

/* Behind a hole nothing is saved. */
static void hole(uint32_t b, kvlazy_seq_id seq)
{
    struct slot *s = &w.slot[b][seq];
    kvlazy_prompt p = prompt_of(s->talk, s->n);
    uint32_t n = 999;

    if (s->n < 20)
        return;
    ok(kvlazy_seq_rm(w.box[b]->cache, seq, 8, 12));
    ok(kvlazy_store_save(w.store, w.box[b]->cache, seq, &p, 10000, &n));
    assert_int_equal(n, 0); /* eight tokens from 0 on */
    ok(kvlazy_seq_rm(w.box[b]->cache, seq, 8, -1));
    s->n = 8;
}

static void step(void)
{
    uint32_t b = below(N_CACHE), what = below(100);
    kvlazy_seq_id seq = (kvlazy_seq_id)below(N_SEQ);
    struct slot *s = &w.slot[b][seq];
    kvlazy_cache *cache = w.box[b]->cache;

    if (what < 45) {
        request(b, seq);
    } else if (what < 75) {
        save(b, seq);
    } else if (what < 80) {
        copy(b, seq);
    } else if (what < 84) {
        hole(b, seq);
    } else if (what < 90) {
        uint32_t n = below(s->n + 1);

        ok(kvlazy_seq_rm(cache, seq, (kvlazy_pos)n, -1));
        s->n = n;
    } else if (what < 91) {
        forget(b);
    } else if (what < 92) {
        ok(kvlazy_clear(cache, below(2)));
        for (seq = 0; seq < N_SEQ; seq++)
            w.slot[b][seq].n = 0;
    } else {
        w.box[b]->fake.now += 1 + below(900);
        ok(kvlazy_poll(cache, NULL));
    }
    look(b);
}

static void test_random_steps(void **state)
{
    kvlazy_store_ops ops = fake_ops(&w.fake);
    const char *seed = getenv("KVLAZY_TEST_SEED");

    (void)state;
    w.random = seed ? strtoull(seed, NULL, 0) : 14;
    make_talks();
    w.fake.inside = misbehave;
    w.store = prefix_store(&ops, BLOCK);
    w.held_bytes = prefix_info(w.store).held_bytes;
    w.box[0] = prefix_box(160); /* one stream, and now and then no room */
    w.box[0]->params.kv_size_initial = 48;
    w.box[1] = prefix_box(MOST);
    w.box[1]->params.n_stream = N_SEQ;
    w.box[1]->params.budget_bytes = 6 * 4096;
    box_open(w.box[0]);
    box_open(box_transpose(w.box[1], 2));
    for (uint32_t i = 0; i < N_STEP; i++)
        step();
    kvlazy_store_info info = prefix_info(w.store);
    print_message("%u tokens loaded, %u saved; corrupt %llu, failed %llu, no room %llu, timeout %llu\n",
                  (unsigned)w.n_loaded, (unsigned)w.n_saved, (unsigned long long)info.n_corrupt,
                  (unsigned long long)info.n_failed, (unsigned long long)info.n_refused_room,
                  (unsigned long long)info.n_timeout);
    assert_true(info.n_hit > N_STEP / 20 && info.n_written > N_STEP / 20);
    assert_true(info.n_corrupt > N_STEP / 200 && info.n_refused_room > 0 && info.n_failed > 0);
    for (uint32_t b = 0; b < N_CACHE; b++) {
        look(b);
        box_free(w.box[b]);
    }
    ok(kvlazy_store_destroy(w.store));
    fake_clear(&w.fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_steps)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
