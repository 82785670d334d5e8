/* SPDX-License-Identifier: MIT */
/*
 * The prefix store over a Redis server: two processes share a prompt; the server is full, restarted empty, stopped,
 * killed in the middle of a put and of a get; it has a foreign value under one of our names, or does not let us in; and
 * a directory stands before it. Whatever it does, each live token has the rows of its prompt, and no call fails.
 */
#include "prefix_support.h"
#include "redis_support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCK = 16, N_TOKEN = 100, N_BLOCK = N_TOKEN / BLOCK, N_WHOLE = N_BLOCK * BLOCK, MIB = 1 << 20 };
enum { LATE_MS = 250 /* what a machine that is busy may add */ };

static int32_t token[N_TOKEN];
static const kvlazy_prompt prompt = {.struct_size = sizeof prompt, .token = token, .n_token = N_TOKEN};

static int setup(void **state)
{
    for (int32_t i = 0; i < N_TOKEN; i++)
        token[i] = 11 * i;
    return redis_setup(state);
}

#define PREFIX_TEST(f) cmocka_unit_test_setup_teardown(f, setup, redis_teardown)

static kvlazy_store *a_store(const struct redis_rig *r)
{
    kvlazy_store_ops ops = {.struct_size = sizeof ops};

    assert_int_equal(kvlazy_store_redis(&r->params, &ops), 0);
    return prefix_store(&ops, BLOCK);
}

static struct box *a_box(const kvlazy_prompt *p)
{
    struct box *box = box_open(prefix_box(256));

    if (p)
        prefix_turn(box, 0, p, 0, p->n_token);
    return box;
}

static uint32_t save(kvlazy_store *store, struct box *box, const kvlazy_prompt *p)
{
    uint32_t n = 999;

    ok(kvlazy_store_save(store, box->cache, 0, p, 20000, &n));
    return n;
}

/* Into another sequence of the box, which is empty again afterwards. */
static uint32_t load(kvlazy_store *store, struct box *box, const kvlazy_prompt *p)
{
    uint32_t n = 999;

    ok(kvlazy_init_batch(box->cache));
    ok(kvlazy_store_load(store, box->cache, 1, p, 0, 20000, &n));
    ok(kvlazy_end_batch(box->cache));
    prefix_holds(box, 1, p, n);
    box_sound(box);
    ok(kvlazy_seq_rm(box->cache, 1, -1, -1));
    return n;
}

/* ---- processes ---- */

static int save_and_end(void *rig)
{
    kvlazy_store *store = a_store(rig);
    struct box *box = a_box(&prompt);
    uint32_t n = save(store, box, &prompt);

    box_free(box);
    ok(kvlazy_store_destroy(store));
    return n == N_WHOLE ? 0 : 1;
}

static int load_and_end(void *rig)
{
    kvlazy_store *store = a_store(rig);
    struct box *box = a_box(NULL);
    uint32_t n = load(store, box, &prompt);

    box_free(box);
    ok(kvlazy_store_destroy(store));
    return n == N_WHOLE ? 0 : 1;
}

static void test_two_processes_share_a_prompt(void **state)
{
    struct redis_rig *r = *state;
    int pid[4];

    start_server(r, NULL);
    for (int i = 0; i < 2; i++) /* both at once: each blob is there once */
        pid[i] = child(save_and_end, r);
    for (int i = 0; i < 2; i++)
        assert_int_equal(end_of_child(pid[i]), 0);
    assert_int_equal(n_keys(r), N_BLOCK);
    for (int i = 0; i < 4; i++)
        pid[i] = child(i % 2 ? save_and_end : load_and_end, r);
    for (int i = 0; i < 4; i++)
        assert_int_equal(end_of_child(pid[i]), 0);
    assert_int_equal(n_keys(r), N_BLOCK);
}

static int put_and_die(void *rig)
{
    struct redis_rig *r = rig;
    kvlazy_store_ops ops = {.struct_size = sizeof ops};

    assert_int_equal(kvlazy_store_redis(&r->params, &ops), 0);
    (void)begin_put(&ops, 1, 4 * MIB, 3 * MIB);
    raise(SIGKILL);
    return 0;
}

/* What it left behind is seen under no name of ours, and expires. */
static void test_a_process_dies_in_the_middle_of_a_put(void **state)
{
    static const char ttl[] = "return redis.call('TTL', redis.call('KEYS', '*:{*}:*')[1])";
    struct redis_rig *r = *state;

    start_server(r, NULL);
    assert_int_equal(end_of_child(child(put_and_die, r)), 1000 + SIGKILL);
    open_redis(r);
    assert_false(has_blob(&r->ops, 1));
    assert_int_equal(n_keys(r), 1);
    assert_in_range(ask_server(r, "EVAL %s 0", ttl), 40, 60);
    assert_int_equal(put_blob(&r->ops, 1, 4 * MIB), 0);
    assert_int_equal(get_blob(&r->ops, 1, 4 * MIB), 0);
}

/* ---- what is used is renewed ---- */

/* The keys of the commands `verb` that the server was given since the last time, in order, up to `most`. */
static int keys_of(redisContext *monitor, struct redis_rig *r, const char *verb, char (*key)[96], int most)
{
    char wanted[64];
    void *reply = NULL;
    int n = 0;

    snprintf(wanted, sizeof wanted, "\"%s\" \"", verb);
    ask_server(r, "ECHO end-of-keys");
    for (bool at_end = false; !at_end; freeReplyObject(reply)) {
        assert_int_equal(redisGetReply(monitor, &reply), REDIS_OK);
        const char *text = ((redisReply *)reply)->str, *at = strstr(text, wanted);

        at_end = strstr(text, "end-of-keys") != NULL;
        if (at && n < most)
            snprintf(key[n++], sizeof *key, "%.*s", (int)strcspn(at + strlen(wanted), "\""), at + strlen(wanted));
    }
    return n;
}

static void test_what_is_used_is_renewed_leaf_first(void **state)
{
    struct redis_rig *r = *state;
    static char used[4 * N_BLOCK][96], named[N_BLOCK][96];

    start_server(r, NULL);
    kvlazy_store *store = a_store(r);
    struct box *box = a_box(&prompt);
    redisContext *monitor = redisConnectUnix(r->socket);

    assert_true(monitor && !monitor->err);
    freeReplyObject(redisCommand(monitor, "MONITOR"));
    assert_int_equal(save(store, box, &prompt), N_WHOLE);
    ask_server(r, "EVAL %s 0", "for _, k in ipairs(redis.call('KEYS', '*')) do redis.call('EXPIRE', k, 100) end");
    (void)keys_of(monitor, r, "NONE", NULL, 0);
    assert_int_equal(load(store, box, &prompt), N_WHOLE);
    int n = keys_of(monitor, r, "EXPIRE", used, N_BLOCK);
    assert_int_equal(n, N_BLOCK);
    for (int i = 0; i < N_BLOCK; i++)
        assert_in_range(ask_server(r, "TTL %s", used[i]), 7 * 24 * 3600 - 60, 7 * 24 * 3600);
    ask_server(r, "FLUSHALL");
    (void)keys_of(monitor, r, "NONE", NULL, 0);
    assert_int_equal(save(store, box, &prompt), N_WHOLE); /* root first */
    n = keys_of(monitor, r, "RENAME", named, N_BLOCK);
    assert_int_equal(n, N_BLOCK);
    for (int i = 0; i < N_BLOCK; i++)
        assert_int_equal(strncmp(named[i], used[N_BLOCK - 1 - i], strlen(used[0])), 0);
    redisFree(monitor);
    box_free(box);
    ok(kvlazy_store_destroy(store));
}

/* ---- a server that is full, new, foreign, closed ---- */

static void test_a_full_server_forgets_and_never_errs(void **state)
{
    enum { TALKS = 60 };
    struct redis_rig *r = *state;
    kvlazy_prompt p = prompt;
    uint32_t n_live = 0, n_refused = 0;

    start_server(r, "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru", NULL);
    kvlazy_store *store = a_store(r);
    struct box *box = a_box(NULL);
    for (int round = 0; round < 2; round++)
        for (int32_t talk = 0; talk < TALKS; talk++) {
            token[0] = talk;
            if (round) {
                n_live += load(store, box, &p);
                continue;
            }
            prefix_turn(box, 0, &p, 0, N_TOKEN);
            n_refused += save(store, box, &p) < N_WHOLE;
            ok(kvlazy_seq_rm(box->cache, 0, -1, -1));
        }
    print_message("%u of %d tokens are there, %u saves were refused some\n", n_live, TALKS * N_WHOLE, n_refused);
    assert_in_range(n_live, 1, TALKS * N_WHOLE - 1);
    box_free(box);
    ok(kvlazy_store_destroy(store));
}

static void test_a_server_that_begins_anew(void **state)
{
    struct redis_rig *r = *state;

    start_server(r, NULL);
    kvlazy_store *store = a_store(r);
    struct box *box = a_box(&prompt);
    assert_int_equal(save(store, box, &prompt), N_WHOLE);
    assert_int_equal(load(store, box, &prompt), N_WHOLE);
    kill_server(r);
    start_server(r, NULL);
    assert_int_equal(load(store, box, &prompt), 0);
    assert_int_equal(save(store, box, &prompt), N_WHOLE);
    assert_int_equal(load(store, box, &prompt), N_WHOLE);
    assert_int_equal(prefix_info(store).n_written, 2 * N_BLOCK);
    box_free(box);
    ok(kvlazy_store_destroy(store));
}

static void test_a_foreign_value_is_a_miss_and_is_replaced(void **state)
{
    static const char spoil[] = "local keys = redis.call('KEYS', '*') table.sort(keys) "
                                "redis.call('SET', keys[tonumber(ARGV[1])], 'text')";
    struct redis_rig *r = *state;
    uint32_t n_less = 0;

    start_server(r, NULL);
    kvlazy_store *store = a_store(r);
    struct box *box = a_box(&prompt);
    assert_int_equal(save(store, box, &prompt), N_WHOLE);
    for (int i = 1; i <= N_BLOCK; i++) {
        ask_server(r, "EVAL %s 0 %d", spoil, i);
        uint32_t n = load(store, box, &prompt);
        assert_int_equal(n % BLOCK, 0);
        n_less += n / BLOCK; /* each of the blocks was the missing one once */
        assert_int_equal(save(store, box, &prompt), N_WHOLE);
        assert_int_equal(load(store, box, &prompt), N_WHOLE);
    }
    assert_int_equal(n_less, N_BLOCK * (N_BLOCK - 1) / 2);
    box_free(box);
    ok(kvlazy_store_destroy(store));
}

static void test_a_server_that_does_not_let_us_in(void **state)
{
    struct redis_rig *r = *state;

    start_server(r, "--requirepass", "open sesame", NULL);
    r->params.password = "wrong";
    kvlazy_store *store = a_store(r);
    struct box *box = a_box(&prompt);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(save(store, box, &prompt), 0);
        assert_int_equal(load(store, box, &prompt), 0);
    }
    assert_int_equal(n_said(r, "user or password are wrong"), 1);
    ok(kvlazy_store_destroy(store));
    r->params.password = "open sesame";
    store = a_store(r);
    assert_int_equal(save(store, box, &prompt), N_WHOLE);
    assert_int_equal(load(store, box, &prompt), N_WHOLE);
    box_free(box);
    ok(kvlazy_store_destroy(store));
}

/* ---- a server that hangs or dies in the middle ---- */

static struct fuse {
    kvlazy_store_ops ops; /* the place's */
    struct redis_rig *rig;
    void (*what)(struct redis_rig *rig); /* happens before the in-th read or write */
    int in;
} fuse;

static void burn(void)
{
    if (fuse.in > 0 && --fuse.in == 0)
        fuse.what(fuse.rig);
}

static int fused_read(void *blob, uint64_t at, void *data, size_t bytes, uint32_t max_ms)
{
    burn();
    return fuse.ops.read(blob, at, data, bytes, max_ms);
}

static int fused_write(void *blob, const void *data, size_t bytes, uint32_t max_ms)
{
    burn();
    return fuse.ops.write(blob, data, bytes, max_ms);
}

static int fused_close(void *blob, bool commit)
{
    burn();
    return fuse.ops.close(blob, commit);
}

static kvlazy_store *a_fused_store(struct redis_rig *r, void (*what)(struct redis_rig *rig))
{
    fuse = (struct fuse){.ops = {.struct_size = sizeof fuse.ops}, .rig = r, .what = what};
    assert_int_equal(kvlazy_store_redis(&r->params, &fuse.ops), 0);
    kvlazy_store_ops ops = fuse.ops;
    ops.read = fused_read;
    ops.write = fused_write;
    ops.close = fused_close;
    return prefix_store(&ops, BLOCK);
}

static void stand_up(struct redis_rig *r)
{
    kill_server(r);
    start_server(r, NULL);
    passed_ms += 120000; /* what it is left alone for */
}

static void test_it_is_killed_in_the_middle_of_a_put_and_of_a_get(void **state)
{
    struct redis_rig *r = *state;
    bool burnt = true;

    start_server(r, NULL);
    kvlazy_store *store = a_fused_store(r, kill_server);
    struct box *box = a_box(&prompt);
    for (int n = 1; burnt; n += 3) {
        fuse.in = n;
        (void)save(store, box, &prompt);
        burnt = fuse.in == 0;
        fuse.in = 0;
        if (burnt)
            stand_up(r);
        assert_int_equal(save(store, box, &prompt), N_WHOLE);
        fuse.in = n;
        uint32_t n_live = load(store, box, &prompt);
        burnt |= fuse.in == 0;
        fuse.in = 0;
        assert_true(n_live == N_WHOLE || burnt);
        stand_up(r);
    }
    box_free(box);
    ok(kvlazy_store_destroy(store));
}

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* One call of the place waits, and the rest of this call and all later ones wait for nothing. */
static void test_it_is_stopped_in_the_middle_of_a_put_and_of_a_get(void **state)
{
    struct redis_rig *r = *state;

    start_server(r, NULL);
    kvlazy_store *store = a_fused_store(r, stop_server);
    struct box *box = a_box(&prompt);
    for (int n = 1; n <= 2 * N_BLOCK; n += 4)
        for (int get = 0; get < 2; get++) {
            ok(kvlazy_store_forget(store, box->cache, &prompt));
            if (get)
                assert_int_equal(save(store, box, &prompt), N_WHOLE);
            fuse.in = n;
            int64_t begin_ms = now();
            uint32_t some = get ? load(store, box, &prompt) : save(store, box, &prompt);
            int64_t took_ms = now() - begin_ms;
            assert_int_equal(fuse.in, 0);
            assert_true(some < N_WHOLE);
            assert_in_range(took_ms, 150, 400 + LATE_MS);
            begin_ms = now();
            assert_int_equal(load(store, box, &prompt), 0);
            assert_int_equal(save(store, box, &prompt), 0);
            assert_in_range(now() - begin_ms, 0, LATE_MS);
            continue_server(r);
            passed_ms += 120000;
            assert_int_equal(save(store, box, &prompt), N_WHOLE);
            assert_int_equal(load(store, box, &prompt), N_WHOLE);
        }
    box_free(box);
    ok(kvlazy_store_destroy(store));
}

/* ---- a directory before it ---- */

static kvlazy_store *a_store_of_two(const struct redis_rig *r, const char *dir, uint64_t max_bytes)
{
    kvlazy_store_ops near = {.struct_size = sizeof near}, far = near, both = near;

    ok(kvlazy_store_dir(dir, max_bytes, &near));
    ok(kvlazy_store_redis(&r->params, &far));
    ok(kvlazy_store_tiers(&near, &far, &both));
    return prefix_store(&both, BLOCK);
}

/* Two machines with a directory each. */
static void test_a_directory_before_the_server(void **state)
{
    struct redis_rig *r = *state;
    char *dir[3] = {make_tree(false), make_tree(false), make_tree(false)};

    start_server(r, NULL);
    kvlazy_store *store[3] = {a_store_of_two(r, dir[0], 1 << 26), a_store_of_two(r, dir[1], 1 << 26),
                              a_store_of_two(r, dir[2], 3 * 8192)};
    struct box *box = a_box(&prompt);
    assert_int_equal(save(store[0], box, &prompt), N_WHOLE);
    assert_int_equal(n_keys(r), N_BLOCK);
    assert_int_equal(n_files_below(dir[0]), N_BLOCK);
    assert_int_equal(load(store[1], box, &prompt), N_WHOLE); /* and is in its directory from now on */
    assert_int_equal(n_files_below(dir[1]), N_BLOCK);
    assert_int_equal(load(store[2], box, &prompt), N_WHOLE); /* which has no room for all of it */
    assert_in_range(n_files_below(dir[2]), 1, 3);

    stop_server(r);
    int64_t begin_ms = now();
    assert_int_equal(load(store[1], box, &prompt), N_WHOLE); /* the server is told once that it was used */
    assert_in_range(now() - begin_ms, 0, 200 + LATE_MS);
    begin_ms = now();
    assert_int_equal(load(store[1], box, &prompt), N_WHOLE);
    assert_in_range(now() - begin_ms, 0, LATE_MS);
    ok(kvlazy_seq_rm(box->cache, 0, -1, -1));
    token[0] = -1;
    prefix_turn(box, 0, &prompt, 0, N_TOKEN);
    begin_ms = now();
    assert_int_equal(save(store[0], box, &prompt), N_WHOLE); /* is content with the directory */
    assert_in_range(now() - begin_ms, 0, 200 + LATE_MS);
    assert_int_equal(n_files_below(dir[0]), 2 * N_BLOCK);
    continue_server(r);
    passed_ms += 120000;
    assert_int_equal(load(store[1], box, &prompt), 0); /* the server never had it */
    assert_int_equal(load(store[0], box, &prompt), N_WHOLE);
    box_free(box);
    for (int i = 0; i < 3; i++) {
        ok(kvlazy_store_destroy(store[i]));
        remove_tree(dir[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PREFIX_TEST(test_two_processes_share_a_prompt),
        PREFIX_TEST(test_a_process_dies_in_the_middle_of_a_put),
        PREFIX_TEST(test_what_is_used_is_renewed_leaf_first),
        PREFIX_TEST(test_a_full_server_forgets_and_never_errs),
        PREFIX_TEST(test_a_server_that_begins_anew),
        PREFIX_TEST(test_a_foreign_value_is_a_miss_and_is_replaced),
        PREFIX_TEST(test_a_server_that_does_not_let_us_in),
        PREFIX_TEST(test_it_is_killed_in_the_middle_of_a_put_and_of_a_get),
        PREFIX_TEST(test_it_is_stopped_in_the_middle_of_a_put_and_of_a_get),
        PREFIX_TEST(test_a_directory_before_the_server),
    };

    if (!has_server()) {
        print_message("there is no redis-server here\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
