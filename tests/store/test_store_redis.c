/* SPDX-License-Identifier: MIT */
/* A Redis server as a place for blobs: what it keeps and for whom, and what is told of a server that refuses. */
#include "fail_alloc.h"
#include "redis_support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvlazy/kvlazy.h>

enum { FIELD = 508 << 10, MIB = 1 << 20 };

/* ---- parameters ---- */

static void refused(struct redis_rig *r, const char *word)
{
    kvlazy_store_ops ops = {.struct_size = sizeof ops};

    r->log[0] = 0;
    assert_int_equal(kvlazy_store_redis(&r->params, &ops), KVLAZY_EINVAL);
    assert_null(ops.ctx);
    if (!n_said(r, word))
        fail_msg("'%s' does not say '%s'", r->log, word);
    const kvlazy_redis_params fresh = r->params;
    kvlazy_redis_params_init(&r->params);
    r->params.socket = r->socket;
    r->params.log = fresh.log;
    r->params.log_ctx = fresh.log_ctx;
}

static void parameters_are_looked_at(void **state)
{
    struct redis_rig *r = *state;
    kvlazy_store_ops ops = {.struct_size = 8};
    char longest[300];

    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    r->params.socket = "";
    refused(r, "socket or host");
    r->params.socket = NULL, r->params.host = "";
    refused(r, "socket or host");
    r->params.socket = NULL, r->params.port = 65536;
    refused(r, "port");
    r->params.socket = NULL, r->params.port = 0;
    refused(r, "port");
    r->params.socket = NULL, r->params.host = "no.such.host.invalid";
    refused(r, "is not found");
    r->params.user = "me";
    refused(r, "user without a password");
    r->params.prefix = "";
    refused(r, "prefix");
    r->params.prefix = "a{b}";
    refused(r, "prefix");
    r->params.prefix = longest;
    refused(r, "prefix");
    r->params.expire_s = UINT64_C(1) << 40;
    refused(r, "expire_s");
    assert_int_equal(kvlazy_store_redis(&r->params, &ops), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_store_redis(&r->params, NULL), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_store_redis(NULL, &r->ops), KVLAZY_EINVAL);
}

/* ---- blobs ---- */

static void sizes_and_steps_are_the_callers(void **state)
{
    static const size_t size[] = {1, 4096, FIELD - 1, FIELD, FIELD + 1, 3 * FIELD, 5 * MIB + 77};
    static const size_t step[] = {1 << 20, 8 << 20, FIELD, 1000, 70001};
    struct redis_rig *r = *state;
    uint32_t n = 0;

    start_server(r, NULL);
    open_redis(r);
    for (size_t i = 0; i < N_OF(size); i++)
        for (size_t k = 0; k < N_OF(step); k++, n++) {
            assert_int_equal(put_steps(&r->ops, n, size[i], step[k]), 0);
            assert_int_equal(get_steps(&r->ops, n, size[i], step[N_OF(step) - 1 - k]), 0);
            assert_int_equal(ask_server(r, "HLEN %s", key_of(n)), 1 + (size[i] + FIELD - 1) / FIELD);
        }
    assert_int_equal(n_keys(r), n);
    assert_string_equal(r->log, "");
}

static void rows_are_read_in_any_order(void **state)
{
    enum { BYTES = 7 * MIB + 3 };
    struct redis_rig *r = *state;
    static uint8_t data[700000];
    uint64_t seed = 1, bytes;
    void *blob;

    start_server(r, NULL);
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 3, BYTES), 0);
    assert_int_equal(r->ops.open(r->ops.ctx, blob_name(3), 0, &blob), 0);
    for (int i = 0; i < 100; i++) {
        uint64_t at = next_random(&seed) % BYTES;
        size_t n = next_random(&seed) % sizeof data;
        int error = r->ops.read(blob, at, data, n, 60000);

        assert_int_equal(error, at + n > BYTES ? ENODATA : 0);
        for (size_t k = 0; k < n && !error; k++)
            assert_int_equal(data[k], blob_byte(3, at + k));
    }
    assert_int_equal(r->ops.read(blob, UINT64_MAX, data, 1, 60000), ENODATA);
    assert_int_equal(r->ops.write(blob, data, 1, 60000), EINVAL);
    assert_int_equal(r->ops.size(blob, &bytes), 0);
    assert_int_equal(bytes, BYTES);
    assert_int_equal(r->ops.close(blob, true), EINVAL);
    assert_true(has_blob(&r->ops, 3)); /* on the same connection: nothing is left on it */
}

/* What was asked for ahead is taken from the connection, which the next call uses. */
static void a_get_may_end_early(void **state)
{
    struct redis_rig *r = *state;
    uint8_t byte;
    void *blob;

    start_server(r, NULL);
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 1, 8 * MIB), 0);
    long long id = ask_server(r, "CLIENT ID");
    for (int i = 0; i < 20; i++) {
        assert_int_equal(r->ops.open(r->ops.ctx, blob_name(1), 0, &blob), 0);
        assert_int_equal(r->ops.read(blob, 0, &byte, 1, 1000), 0);
        assert_int_equal(r->ops.close(blob, false), 0);
        assert_true(has_blob(&r->ops, 1));
        assert_false(has_blob(&r->ops, 2));
    }
    assert_int_equal(ask_server(r, "CLIENT ID"), id + 1); /* that of this question */
}

static void a_blob_is_visible_whole_or_not_at_all(void **state)
{
    struct redis_rig *r = *state;
    uint8_t byte = 0;
    uint64_t bytes;
    void *blob;

    start_server(r, NULL);
    open_redis(r);
    assert_int_equal(r->ops.open(r->ops.ctx, blob_name(1), 0, &blob), ENOENT);
    blob = begin_put(&r->ops, 1, 3 * MIB, 3 * MIB);
    assert_int_equal(r->ops.size(blob, &bytes), EINVAL);
    assert_int_equal(r->ops.read(blob, 0, &byte, 1, 1000), EINVAL);
    assert_false(has_blob(&r->ops, 1));
    assert_int_equal(n_keys(r), 1); /* under another name */
    assert_int_equal(r->ops.close(blob, false), 0);
    assert_int_equal(n_keys(r), 0);

    blob = begin_put(&r->ops, 1, 3 * MIB, 3 * MIB - 1);
    assert_int_equal(r->ops.close(blob, true), EINVAL);
    blob = begin_put(&r->ops, 1, 3 * MIB, 3 * MIB);
    assert_int_equal(r->ops.write(blob, &byte, 1, 1000), EINVAL);
    assert_int_equal(r->ops.close(blob, true), EINVAL);
    assert_int_equal(n_keys(r), 0);

    blob = begin_put(&r->ops, 1, 3 * MIB, 3 * MIB);
    assert_int_equal(r->ops.close(blob, true), 0);
    assert_int_equal(put_blob(&r->ops, 1, 3 * MIB), 0); /* once more */
    assert_int_equal(get_blob(&r->ops, 1, 3 * MIB), 0);
    assert_int_equal(n_keys(r), 1);
}

static void blobs_expire_unless_used(void **state)
{
    struct redis_rig *r = *state;
    void *blob;

    start_server(r, NULL);
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 1, MIB), 0);
    assert_int_equal(ask_server(r, "TTL %s", key_of(1)), 7 * 24 * 3600);
    ask_server(r, "EXPIRE %s 100", key_of(1));
    touch(&r->ops, 2, (uint32_t[]){1, 2});
    assert_int_equal(ask_server(r, "TTL %s", key_of(1)), 7 * 24 * 3600);
    blob = begin_put(&r->ops, 2, MIB, MIB);
    assert_in_range(ask_server(r, "EVAL %s 0", "return redis.call('TTL', redis.call('KEYS', '*:{*}:*')[1])"), 50, 60);
    assert_int_equal(r->ops.close(blob, false), 0);
    close_redis(r);

    r->params.expire_s = 0;
    r->params.prefix = "other";
    open_redis(r);
    assert_false(has_blob(&r->ops, 1));
    assert_int_equal(put_blob(&r->ops, 1, MIB), 0);
    touch(&r->ops, 1, (uint32_t[]){1});
    assert_int_equal(ask_server(r, "TTL other%s", strchr(key_of(1), ':')), -1);
    assert_true(has_blob(&r->ops, 1));
    drop(&r->ops, 1);
    drop(&r->ops, 1);
    assert_false(has_blob(&r->ops, 1));
    assert_int_equal(n_keys(r), 1);
}

static void many_names_at_once(void **state)
{
    enum { MANY = 1000 };
    struct redis_rig *r = *state;
    uint8_t(*name)[32] = calloc(MANY, sizeof *name);
    bool yes[MANY];

    assert_non_null(name);
    start_server(r, NULL);
    open_redis(r);
    for (uint32_t i = 0; i < MANY; i++) {
        memcpy(name[i], blob_name(i), sizeof *name);
        if (i % 100 == 7)
            assert_int_equal(put_blob(&r->ops, i, 10), 0);
    }
    assert_int_equal(r->ops.has(r->ops.ctx, (const uint8_t(*)[32])name, MANY, yes), 0);
    for (uint32_t i = 0; i < MANY; i++)
        assert_true(yes[i] == (i % 100 == 7));
    assert_int_equal(r->ops.touch(r->ops.ctx, (const uint8_t(*)[32])name, MANY), 0);
    assert_int_equal(r->ops.has(r->ops.ctx, NULL, 0, yes), 0);
    free(name);
}

/* ---- processes and threads ---- */

static int put_in_child(void *arg)
{
    struct redis_rig *r = arg;
    kvlazy_store_ops ops = {.struct_size = sizeof ops};

    if (kvlazy_store_redis(&r->params, &ops) || put_blob(&ops, 1, 3 * MIB))
        return 1;
    ops.destroy(ops.ctx);
    return 0;
}

static int use_in_child(void *arg)
{
    void *const *blob = arg;
    const struct redis_rig *r = blob[2];
    const kvlazy_store_ops *ops = &r->ops;
    const uint8_t(*name)[32] = (const uint8_t(*)[32])blob_name(1);
    uint8_t data[8];
    uint64_t bytes;
    void *other;
    bool yes;

    if (ops->has(ops->ctx, name, 1, &yes) != ECHILD || ops->open(ops->ctx, *name, 0, &other) != ECHILD ||
        ops->open(ops->ctx, *name, 9, &other) != ECHILD || ops->touch(ops->ctx, name, 1) != ECHILD ||
        ops->drop(ops->ctx, *name) != ECHILD || ops->size(blob[0], &bytes) != ECHILD)
        return 1;
    if (ops->read(blob[0], 0, data, 8, 1000) != ECHILD || ops->write(blob[1], data, 8, 1000) != ECHILD ||
        ops->close(blob[0], false) != 0 || ops->close(blob[1], true) != ECHILD)
        return 2;
    ops->destroy(ops->ctx);
    return 0;
}

static void processes_share(void **state)
{
    struct redis_rig *r = *state;
    void *blob[3] = {NULL, NULL, r};

    start_server(r, NULL);
    open_redis(r);
    assert_false(has_blob(&r->ops, 1));
    assert_int_equal(end_of_child(child(put_in_child, r)), 0);
    assert_int_equal(get_blob(&r->ops, 1, 3 * MIB), 0);

    assert_int_equal(r->ops.open(r->ops.ctx, blob_name(1), 0, &blob[0]), 0);
    blob[1] = begin_put(&r->ops, 2, MIB, MIB);
    assert_int_equal(end_of_child(child(use_in_child, blob)), 0); /* a child that was forked may not */
    assert_int_equal(r->ops.close(blob[0], false), 0);
    assert_int_equal(r->ops.close(blob[1], true), 0);
    assert_int_equal(get_blob(&r->ops, 2, MIB), 0);
}

struct thread_case {
    struct redis_rig *r;
    atomic_int n_wrong;
};

static void *use_in_thread(void *arg)
{
    struct thread_case *c = arg;
    kvlazy_store_ops *ops = &c->r->ops;
    enum { BYTES = FIELD + 100 };
    char *data = malloc(BYTES), *back = malloc(BYTES);

    for (uint32_t i = 0; i < 50; i++) {
        uint8_t name[32] = {(uint8_t)i, 1, 2};
        void *blob;

        memset(data, (int)i + 1, BYTES);
        if (ops->open(ops->ctx, name, BYTES, &blob) || ops->write(blob, data, BYTES, 10000) || ops->close(blob, true) ||
            ops->touch(ops->ctx, (const uint8_t(*)[32])name, 1) || ops->open(ops->ctx, name, 0, &blob)) {
            c->n_wrong++;
            continue;
        }
        c->n_wrong += ops->read(blob, 0, back, BYTES, 10000) || memcmp(data, back, BYTES) != 0;
        c->n_wrong += ops->close(blob, false) != 0;
    }
    free(data);
    free(back);
    return NULL;
}

static void threads_share(void **state)
{
    struct thread_case c = {.r = *state};
    pthread_t thread[6];

    start_server(c.r, NULL);
    open_redis(c.r);
    for (size_t i = 0; i < N_OF(thread); i++)
        assert_int_equal(pthread_create(&thread[i], NULL, use_in_thread, &c), 0);
    for (size_t i = 0; i < N_OF(thread); i++)
        pthread_join(thread[i], NULL);
    assert_int_equal(c.n_wrong, 0);
    assert_int_equal(n_keys(c.r), 50);
}

/* ---- other keys ---- */

static void foreign_values_are_no_blobs(void **state)
{
    struct redis_rig *r = *state;

    start_server(r, NULL);
    open_redis(r);
    ask_server(r, "SET %s text", key_of(1));
    ask_server(r, "HSET %s bytes many", key_of(2));
    ask_server(r, "HSET %s bytes 0", key_of(3));
    ask_server(r, "HSET %s field value", key_of(4));
    for (uint32_t i = 1; i <= 4; i++)
        assert_int_equal(get_blob(&r->ops, i, MIB), ENOENT);
    assert_false(has_blob(&r->ops, 1));
    assert_int_equal(get_blob(&r->ops, 1, MIB), ENOENT);
    assert_int_equal(n_said(r, "another program has keys with our prefix"), 1);

    assert_int_equal(put_blob(&r->ops, 5, 3 * MIB), 0);
    ask_server(r, "HDEL %s 2", key_of(5));
    assert_int_equal(get_blob(&r->ops, 5, 3 * MIB), ENODATA);
    ask_server(r, "HSET %s 2 short", key_of(5));
    assert_int_equal(get_blob(&r->ops, 5, 3 * MIB), ENODATA);
    for (uint32_t i = 1; i <= 5; i++) { /* a put takes their place */
        assert_int_equal(put_blob(&r->ops, i, MIB), 0);
        assert_int_equal(get_blob(&r->ops, i, MIB), 0);
    }
}

/* A server that is full may evict what is being written, and the rest of it comes after. */
static void an_evicted_put_is_not_half_a_blob(void **state)
{
    static const char forget[] = "return redis.call('DEL', redis.call('KEYS', '*:{*}:*')[1])";
    struct redis_rig *r = *state;

    start_server(r, NULL);
    open_redis(r);
    void *blob = begin_put(&r->ops, 1, 3 * MIB, 2 * MIB);
    assert_int_equal(ask_server(r, "EVAL %s 0", forget), 1);
    uint8_t *data = calloc(1, MIB);
    assert_int_equal(r->ops.write(blob, data, MIB, 10000), 0);
    assert_int_equal(r->ops.close(blob, true), ENOSPC);
    assert_int_equal(n_keys(r), 0);

    blob = begin_put(&r->ops, 1, MIB, MIB);
    assert_int_equal(ask_server(r, "EVAL %s 0", forget), 1);
    assert_int_not_equal(r->ops.close(blob, true), 0);
    assert_int_equal(n_keys(r), 0);
    free(data);
}

static void a_full_server_evicts_whole_blobs(void **state)
{
    enum { BLOBS = 12, BYTES = 4 * MIB };
    struct redis_rig *r = *state;
    int n_there = 0;

    start_server(r, "--maxmemory", "24mb", "--maxmemory-policy", "allkeys-lru", NULL);
    open_redis(r);
    for (uint32_t i = 0; i < BLOBS; i++) {
        int error = put_blob(&r->ops, i, BYTES);

        assert_true(error == 0 || error == ENOSPC || error == ENOENT);
    }
    for (uint32_t i = 0; i < BLOBS; i++) {
        int error = get_blob(&r->ops, i, BYTES);

        assert_true(error == 0 || error == ENOENT);
        n_there += !error;
    }
    print_message("%d of %d blobs are there\n", n_there, BLOBS);
    assert_in_range(n_there, 2, 6);
}

/* ---- refusals, each told once ---- */

static void told_once(struct redis_rig *r, int error, int want, const char *text)
{
    assert_int_equal(error, want);
    if (n_said(r, text) != 1)
        fail_msg("'%s' is not told once: %s", text, r->log);
}

static void a_server_that_evicts_nothing(void **state)
{
    struct redis_rig *r = *state;

    start_server(r, "--maxmemory", "10mb", "--maxmemory-policy", "noeviction", NULL);
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 1, MIB), 0);
    for (int i = 0; i < 3; i++)
        told_once(r, put_blob(&r->ops, 2, 20 * MIB), ENOSPC, "set maxmemory-policy to allkeys-lru");
    assert_int_equal(get_blob(&r->ops, 1, MIB), 0);
    assert_false(has_blob(&r->ops, 2));
    assert_int_equal(n_keys(r), 1);
}

static void passwords(void **state)
{
    struct redis_rig *r = *state;
    start_server(r, "--requirepass", "open sesame", "--user", "reader", "on", ">secret", "~kvlazy:*", "+@read",
                 "+select", "+ping", NULL);
    open_redis(r);
    told_once(r, put_blob(&r->ops, 1, MIB), EACCES, "it wants a password");
    assert_int_equal(put_blob(&r->ops, 1, MIB), EHOSTDOWN); /* it is not asked again and again */
    close_redis(r);
    r->params.password = "wrong";
    open_redis(r);
    told_once(r, put_blob(&r->ops, 1, MIB), EACCES, "user or password are wrong");
    close_redis(r);
    r->params.password = "open sesame";
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 1, MIB), 0);
    close_redis(r);
    r->params.user = "reader";
    r->params.password = "secret";
    open_redis(r);
    assert_int_equal(get_blob(&r->ops, 1, MIB), 0);
    for (int i = 0; i < 3; i++)
        told_once(r, put_blob(&r->ops, 2, MIB), EACCES, "this user lacks rights");
    assert_int_equal(get_blob(&r->ops, 1, MIB), 0);
    assert_int_equal(n_said(r, "sesame") + n_said(r, "secret"), 0);
    kill_server(r);
    close_redis(r);
    start_server(r, NULL);
    r->params.user = NULL;
    open_redis(r);
    told_once(r, put_blob(&r->ops, 1, MIB), EACCES, "it has no password");
}

static void a_read_only_replica(void **state)
{
    struct redis_rig *r = *state;

    start_server(r, "--replicaof", "127.0.0.1", "1", NULL);
    open_redis(r);
    for (int i = 0; i < 3; i++)
        told_once(r, put_blob(&r->ops, 1, MIB), EROFS, "give the address of the primary");
    assert_int_equal(get_blob(&r->ops, 1, MIB), ENOENT); /* it can be read */
}

static void an_old_server(void **state)
{
    struct redis_rig *r = *state;

    start_server(r, "--rename-command", "UNLINK", "", NULL);
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 1, MIB), 0);
    for (int i = 0; i < 3; i++)
        told_once(r, r->ops.drop(r->ops.ctx, blob_name(1)), ENOTSUP, "Redis 4, Valkey or newer is needed");
    assert_int_equal(get_blob(&r->ops, 1, MIB), 0);
}

static void a_cluster(void **state)
{
    struct redis_rig *r = *state;
    int sock = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    char port[16];

    assert_int_equal(bind(sock, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(sock, (struct sockaddr *)&at, &n), 0);
    close(sock);
    snprintf(port, sizeof port, "%d", ntohs(at.sin_port) % 50000 + 1024);
    start_server(r, "--cluster-enabled", "yes", "--port", port, "--bind", "127.0.0.1", NULL);
    open_redis(r);
    for (int i = 0; i < 3; i++)
        told_once(r, put_blob(&r->ops, 1, MIB), ENOTSUP, "part of a cluster, which is not supported");
    close_redis(r);

    r->params.socket = NULL; /* and by TCP, with a name, in a database that is not there */
    r->params.host = "localhost";
    r->params.port = (uint32_t)atoi(port);
    r->params.database = 3;
    open_redis(r);
    assert_int_not_equal(put_blob(&r->ops, 1, MIB), 0);
    assert_int_equal(n_said(r, "redis at 127.0.0.1, port") + n_said(r, "redis at ::1, port") > 0, 1);
}

static void a_database_of_its_own_over_tcp(void **state)
{
    struct redis_rig *r = *state;
    char port[16];

    snprintf(port, sizeof port, "%d", 20000 + getpid() % 20000);
    start_server(r, "--port", port, "--bind", "127.0.0.1", NULL);
    r->params.socket = NULL;
    r->params.port = (uint32_t)atoi(port);
    r->params.database = 5;
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 1, 3 * MIB), 0);
    assert_int_equal(get_blob(&r->ops, 1, 3 * MIB), 0);
    assert_int_equal(n_keys(r), 0);
    close_redis(r);
    r->params.database = 99;
    open_redis(r);
    told_once(r, put_blob(&r->ops, 1, MIB), EINVAL, "it has no such database");
}

/* ---- memory ---- */

/* The first errno value of a put and a get, as a status too if the place cannot be made. */
static int use_all(struct redis_rig *r, bool *made)
{
    static uint8_t data[FIELD + 10];
    kvlazy_store_ops ops = {.struct_size = sizeof ops};
    int error = kvlazy_store_redis(&r->params, &ops);
    void *blob;

    *made = !error;
    if (error)
        return error;
    for (int i = 0; i < 2 && !error; i++) {
        error = ops.open(ops.ctx, blob_name(1), i ? 0 : sizeof data, &blob);
        if (!error)
            error = i ? ops.read(blob, 0, data, sizeof data, 10000) : ops.write(blob, data, sizeof data, 10000);
        if (!error)
            error = ops.close(blob, !i);
    }
    ops.destroy(ops.ctx);
    return error;
}

static void every_allocation_fails_once(void **state)
{
    struct redis_rig *r = *state;
    int n = 0, error;
    bool made;

    start_server(r, NULL);
    do {
        alloc_fail_in = ++n;
        alloc_failed = false;
        UNDER_FIRE(error, use_all(r, &made));
        if (alloc_failed)
            assert_int_equal(error, made ? ENOMEM : KVLAZY_ENOMEM);
        else
            assert_int_equal(error, 0);
    } while (alloc_failed);
    print_message("%d allocations\n", n - 1);
    assert_in_range(n, 6, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        REDIS_TEST(parameters_are_looked_at),
        REDIS_TEST(sizes_and_steps_are_the_callers),
        REDIS_TEST(rows_are_read_in_any_order),
        REDIS_TEST(a_get_may_end_early),
        REDIS_TEST(a_blob_is_visible_whole_or_not_at_all),
        REDIS_TEST(blobs_expire_unless_used),
        REDIS_TEST(many_names_at_once),
        REDIS_TEST(processes_share),
        REDIS_TEST(threads_share),
        REDIS_TEST(foreign_values_are_no_blobs),
        REDIS_TEST(an_evicted_put_is_not_half_a_blob),
        REDIS_TEST(a_full_server_evicts_whole_blobs),
        REDIS_TEST(a_server_that_evicts_nothing),
        REDIS_TEST(passwords),
        REDIS_TEST(a_read_only_replica),
        REDIS_TEST(an_old_server),
        REDIS_TEST(a_cluster),
        REDIS_TEST(a_database_of_its_own_over_tcp),
        REDIS_TEST(every_allocation_fails_once),
    };
    if (!has_server()) {
        print_message("there is no redis-server here\n");
        return 77;
    }
    stop_clocks(); /* how long a server may take is test_store_redis_down.c's */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
