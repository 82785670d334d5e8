/* SPDX-License-Identifier: MIT */
/* A Redis server that is not there, hangs, dies, comes back, or is something else: each call ends in time, and is a
 * miss. */
#include "redis_support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <kvlazy/kvlazy.h>

enum { MIB = 1 << 20, LATE_MS = 250 /* what a machine that is busy may add */ };

static int64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The call answers one of two errors, between so many milliseconds. */
#define TIMED(call, first, second, least_ms, most_ms)                                           \
    do {                                                                                        \
        int64_t begin_ms = now();                                                               \
        int got = (call);                                                                       \
        int64_t took_ms = now() - begin_ms;                                                     \
        if ((got != (first) && got != (second)) || took_ms < (least_ms) || took_ms > (most_ms)) \
            fail_msg("%s: %s after %d ms", #call, strerror(got), (int)took_ms);                 \
    } while (0)

static int ask_has(struct redis_rig *r)
{
    bool yes;

    return r->ops.has(r->ops.ctx, (const uint8_t(*)[32])blob_name(1), 1, &yes);
}

static void a_server_that_is_not_there(void **state)
{
    struct redis_rig *r = *state;
    int64_t rest_s = 1;

    open_redis(r);
    TIMED(ask_has(r), ECONNREFUSED, ECONNREFUSED, 0, LATE_MS);
    for (int i = 0; i < 12; i++) {
        passed_ms += rest_s * 1000 - 400;
        TIMED(ask_has(r), EHOSTDOWN, EHOSTDOWN, 0, LATE_MS);
        TIMED(put_blob(&r->ops, 1, MIB), EHOSTDOWN, EHOSTDOWN, 0, LATE_MS);
        passed_ms += 410;
        TIMED(ask_has(r), ECONNREFUSED, ECONNREFUSED, 0, LATE_MS);
        rest_s = rest_s < 32 ? 2 * rest_s : 60;
    }
    assert_int_equal(n_said(r, "it is left alone"), 1);
    start_server(r, NULL);
    TIMED(put_blob(&r->ops, 1, MIB), EHOSTDOWN, EHOSTDOWN, 0, LATE_MS);
    passed_ms += 60000;
    assert_int_equal(put_blob(&r->ops, 1, MIB), 0);
    assert_int_equal(get_blob(&r->ops, 1, MIB), 0);
    assert_int_equal(n_said(r, "answers again"), 1);
    kill_server(r);
    TIMED(ask_has(r), ECONNREFUSED, ECONNREFUSED, 0, LATE_MS);
    passed_ms += 1010; /* from the beginning */
    TIMED(ask_has(r), ECONNREFUSED, ECONNREFUSED, 0, LATE_MS);
    assert_int_equal(n_said(r, "it is left alone"), 2);
}

static void a_server_that_hangs(void **state)
{
    struct redis_rig *r = *state;

    start_server(r, NULL);
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 1, MIB), 0);
    stop_server(r);
    TIMED(ask_has(r), ETIMEDOUT, ETIMEDOUT, 195, 200 + LATE_MS); /* by a connection that stands */
    TIMED(ask_has(r), EHOSTDOWN, EHOSTDOWN, 0, LATE_MS);
    TIMED(get_blob(&r->ops, 1, MIB), EHOSTDOWN, EHOSTDOWN, 0, LATE_MS);
    passed_ms += 1000;
    TIMED(get_blob(&r->ops, 1, MIB), ETIMEDOUT, ETIMEDOUT, 195, 200 + LATE_MS); /* by a new one */
    TIMED(get_blob(&r->ops, 1, MIB), EHOSTDOWN, EHOSTDOWN, 0, LATE_MS);
    continue_server(r);
    passed_ms += 2000;
    assert_int_equal(get_blob(&r->ops, 1, MIB), 0);
    assert_int_equal(n_said(r, "no answer within 200 ms"), 1);
    assert_int_equal(n_said(r, "answers again"), 1);
}

static void a_server_that_hangs_in_the_middle(void **state)
{
    struct redis_rig *r = *state;
    uint8_t *data = calloc(1, 8 * MIB);
    void *blob;

    assert_non_null(data);
    start_server(r, NULL);
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 1, 20 * MIB), 0);
    assert_int_equal(r->ops.open(r->ops.ctx, blob_name(1), 0, &blob), 0);
    assert_int_equal(r->ops.read(blob, 0, data, 100, 10000), 0);
    void *writer = begin_put(&r->ops, 2, 20 * MIB, MIB);
    void *ender = begin_put(&r->ops, 3, MIB, MIB);
    void *quick = begin_put(&r->ops, 4, 20 * MIB, MIB);
    stop_server(r);
    TIMED(r->ops.write(quick, data, 8 * MIB, 50), ETIMEDOUT, ETIMEDOUT, 45, 50 + LATE_MS); /* its own limit */
    TIMED(r->ops.read(blob, 5 * MIB, data, 8 * MIB, 10000), ETIMEDOUT, ETIMEDOUT, 195, 200 + LATE_MS);
    TIMED(r->ops.write(writer, data, 8 * MIB, 10000), ETIMEDOUT, ETIMEDOUT, 195, 200 + LATE_MS);
    TIMED(r->ops.close(ender, true), ETIMEDOUT, ETIMEDOUT, 195, 200 + LATE_MS);
    TIMED(r->ops.close(blob, false), 0, 0, 0, LATE_MS); /* without another word */
    TIMED(r->ops.close(writer, true), ETIMEDOUT, ETIMEDOUT, 0, LATE_MS);
    TIMED(r->ops.close(quick, false), 0, 0, 0, LATE_MS);
    continue_server(r);
    passed_ms += 60000;
    assert_int_equal(get_blob(&r->ops, 1, 20 * MIB), 0);
    assert_false(has_blob(&r->ops, 2));
    assert_false(has_blob(&r->ops, 4));
    if (has_blob(&r->ops, 3)) /* the answer did not arrive, the command did */
        assert_int_equal(get_blob(&r->ops, 3, MIB), 0);
    free(data);
}

static void a_server_that_dies_in_the_middle(void **state)
{
    struct redis_rig *r = *state;
    uint8_t *data = calloc(1, 8 * MIB);
    void *reader;

    assert_non_null(data);
    start_server(r, NULL);
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 1, 20 * MIB), 0);
    assert_int_equal(r->ops.open(r->ops.ctx, blob_name(1), 0, &reader), 0);
    assert_int_equal(r->ops.read(reader, 0, data, 100, 10000), 0);
    void *writer = begin_put(&r->ops, 2, 20 * MIB, MIB);
    void *ender = begin_put(&r->ops, 3, MIB, MIB);
    kill_server(r);
    assert_int_not_equal(r->ops.read(reader, 5 * MIB, data, 8 * MIB, 10000), 0);
    assert_int_not_equal(r->ops.write(writer, data, 8 * MIB, 10000), 0); /* and no SIGPIPE */
    assert_int_not_equal(r->ops.close(ender, true), 0);
    assert_int_equal(r->ops.close(reader, false), 0);
    assert_int_not_equal(r->ops.close(writer, true), 0);

    start_server(r, NULL); /* empty, and at once in use */
    for (uint32_t i = 1; i <= 3; i++)
        assert_false(has_blob(&r->ops, i));
    assert_int_equal(put_blob(&r->ops, 1, MIB), 0);
    kill_server(r);
    start_server(r, NULL);
    assert_false(has_blob(&r->ops, 1)); /* idle connections are looked at before they are used */
    assert_int_equal(put_blob(&r->ops, 1, MIB), 0);
    assert_int_equal(get_blob(&r->ops, 1, MIB), 0);
    free(data);
}

/* ---- something else answers ---- */

static int listen_at(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    unlink(path);
    assert_int_equal(bind(sock, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(sock, 8), 0);
    return sock;
}

struct impostor {
    int sock;
    const char *answer;
};

static int pretend(void *arg)
{
    const struct impostor *i = arg;
    char request[256];

    for (;;) {
        int peer = accept(i->sock, NULL, NULL);

        if (peer < 0)
            return 1;
        (void)!read(peer, request, sizeof request);
        (void)!write(peer, i->answer, strlen(i->answer));
        close(peer);
    }
}

static void something_else_answers(void **state)
{
    static const char *const answer[] = {"HTTP/1.0 400 Bad Request\r\n\r\n",
                                         "",
                                         "$99999999999999\r\n",
                                         "-ERR max number of clients reached\r\n",
                                         "-LOADING wait\r\n",
                                         "-?\r\n",
                                         "*3\r\n*1000000000\r\n",
                                         "\r\n"};
    struct redis_rig *r = *state;

    for (size_t i = 0; i < N_OF(answer); i++) {
        struct impostor impostor = {listen_at(r->socket), answer[i]};
        int pid = child(pretend, &impostor);

        open_redis(r);
        assert_int_not_equal(ask_has(r), 0);
        TIMED(ask_has(r), EHOSTDOWN, EHOSTDOWN, 0, LATE_MS);
        close_redis(r);
        kill(pid, SIGKILL);
        assert_int_equal(end_of_child(pid), 1000 + SIGKILL);
        close(impostor.sock);
    }
    assert_true(n_said(r, "there is no Redis") >= 1);
    assert_int_equal(n_said(r, "raise maxclients"), 1);
}

static void something_listens_and_says_nothing(void **state)
{
    struct redis_rig *r = *state;
    int sock = listen_at(r->socket);

    open_redis(r);
    TIMED(ask_has(r), ETIMEDOUT, ETIMEDOUT, 195, 200 + LATE_MS);
    TIMED(ask_has(r), EHOSTDOWN, EHOSTDOWN, 0, LATE_MS);
    close(sock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        REDIS_TEST(a_server_that_is_not_there),
        REDIS_TEST(a_server_that_hangs),
        REDIS_TEST(a_server_that_hangs_in_the_middle),
        REDIS_TEST(a_server_that_dies_in_the_middle),
        REDIS_TEST(something_else_answers),
        REDIS_TEST(something_listens_and_says_nothing),
    };
    if (!has_server()) {
        print_message("there is no redis-server here\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
