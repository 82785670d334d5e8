/* SPDX-License-Identifier: MIT */
/* A Redis server that is not there, hangs, is slow, dies, comes back, or is something else: each call ends in time, and
 * is a miss. */
#include "redis_support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
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

/* A get that ends early waits for nothing, though much is on its way; that is no fault of the server. */
static void a_close_does_not_wait(void **state)
{
    struct redis_rig *r = *state;
    uint8_t data[1000];
    void *blob;

    start_server(r, NULL);
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 1, 20 * MIB), 0);
    for (int has_read = 0; has_read < 2; has_read++) {
        assert_int_equal(r->ops.open(r->ops.ctx, blob_name(1), 0, &blob), 0);
        if (has_read)
            assert_int_equal(r->ops.read(blob, 0, data, sizeof data, 10000), 0);
        stop_server(r); /* which keeps what the socket does not take at once */
        TIMED(r->ops.close(blob, false), 0, 0, 0, 100);
        continue_server(r);
        assert_int_equal(get_blob(&r->ops, 1, 20 * MIB), 0);
    }
    assert_string_equal(r->log, "");
}

/* A blob that goes between two reads is gone, and not damaged: the store would drop what another machine put since. */
static void an_evicted_blob_is_not_damaged(void **state)
{
    struct redis_rig *r = *state;
    uint8_t *data = malloc(4 * MIB);

    assert_non_null(data);
    start_server(r, NULL);
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 2, MIB), 0);
    for (int i = 0; i < 3; i++) {
        void *blob;

        assert_int_equal(put_blob(&r->ops, 1, 6 * MIB), 0);
        assert_int_equal(r->ops.open(r->ops.ctx, blob_name(1), 0, &blob), 0);
        assert_int_equal(r->ops.read(blob, 0, data, i ? 4 * MIB : 1000, 10000), 0);
        ask_server(r, "UNLINK %s", key_of(1));
        uint64_t at = i == 1 ? 5 * MIB : 4 * MIB; /* a jump too; what is on its way may still come */
        int error = r->ops.read(blob, at, data, MIB, 10000);
        if (!error)
            error = r->ops.read(blob, at + MIB, data, 6 * MIB - at - MIB, 10000);
        assert_int_equal(error, ENOENT);
        assert_int_equal(r->ops.read(blob, 0, data, MIB, 10000), ENOENT);
        assert_int_equal(put_blob(&r->ops, 1, 6 * MIB), 0); /* the same bytes: it may go on */
        assert_int_equal(r->ops.read(blob, 0, data, MIB, 10000), 0);
        assert_int_equal(r->ops.close(blob, false), 0);
        drop(&r->ops, 1);
        assert_int_equal(get_blob(&r->ops, 2, MIB), 0); /* the connection is in step */
    }
    assert_string_equal(r->log, "");
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

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};

    assert_true(strlen(path) < sizeof at.sun_path);
    memcpy(at.sun_path, path, strlen(path));
    return at;
}

static int connect_to(const char *path)
{
    struct sockaddr_un at = address_of(path);
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);

    return connect(sock, (struct sockaddr *)&at, sizeof at) == 0 ? sock : -1;
}

static int listen_at(const char *path)
{
    struct sockaddr_un at = address_of(path);
    int sock = socket(AF_UNIX, SOCK_STREAM, 0);

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

/* ---- a server that is slow ---- */

struct relay {
    int sock;
    const char *to;
    int wait_ms;  /* before each piece that comes from the server */
    size_t piece; /* at most so many bytes at once; 0: as many as come */
};

enum { PIECE = 256 << 10 };

/* Everything that one side sends reaches the other. */
static int pass_on(const struct relay *r, int client, int server)
{
    static char data[PIECE];
    struct pollfd side[2] = {{.fd = client, .events = POLLIN}, {.fd = server, .events = POLLIN}};

    while (poll(side, 2, -1) > 0)
        for (int i = 0; i < 2; i++) {
            ssize_t n = side[i].revents ? read(side[i].fd, data, i && r->piece ? r->piece : sizeof data) : 1;

            if (n <= 0)
                return 0;
            if (side[i].revents && i == 1 && r->wait_ms)
                usleep((useconds_t)r->wait_ms * 1000);
            for (ssize_t at = 0, k; side[i].revents && at < n; at += k) {
                k = write(side[!i].fd, data + at, (size_t)(n - at));
                if (k <= 0)
                    return 0;
            }
        }
    return 1;
}

static int relay(void *arg)
{
    const struct relay *r = arg;

    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        int client = accept(r->sock, NULL, NULL), server = connect_to(r->to);

        if (client < 0 || server < 0)
            return 1;
        pass_on(r, client, server);
        close(client);
        close(server);
    }
}

/* A blob may take long while something moves; how long in all is said by the call. */
static void a_server_that_is_slow(void **state)
{
    enum { BYTES = 12 * MIB };
    struct redis_rig *r = *state;
    char path[300];
    uint8_t *data = calloc(1, BYTES);
    void *blob;

    assert_non_null(data);
    start_server(r, NULL);
    snprintf(path, sizeof path, "%s/slow", r->dir);
    struct relay slow = {listen_at(path), r->socket, 10, 0};
    int pid = child(relay, &slow);
    r->params.socket = path;
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 1, BYTES), 0);
    TIMED(get_blob(&r->ops, 1, BYTES), 0, 0, 400, 60000); /* at least so many pieces of the size of a socket's buffer */
    assert_int_equal(r->ops.open(r->ops.ctx, blob_name(1), 0, &blob), 0);
    TIMED(r->ops.read(blob, 0, data, BYTES, 250), ETIMEDOUT, ETIMEDOUT, 245, 250 + LATE_MS);
    assert_int_equal(r->ops.close(blob, false), 0);
    assert_string_equal(r->log, ""); /* the server is not at fault */
    assert_int_equal(get_blob(&r->ops, 1, BYTES), 0);
    close_redis(r);
    kill(pid, SIGKILL);
    assert_int_equal(end_of_child(pid), 1000 + SIGKILL);
    close(slow.sock);
    free(data);
    r->params.socket = r->socket;
}

/* Lines and strings end anywhere in what arrives at once. */
static void replies_come_in_pieces(void **state)
{
    struct redis_rig *r = *state;
    char path[300];

    stop_clocks();
    start_server(r, NULL);
    snprintf(path, sizeof path, "%s/pieces", r->dir);
    r->params.socket = path;
    for (size_t piece = 1; piece < 9; piece++) {
        struct relay relays = {listen_at(path), r->socket, 0, piece};
        int pid = child(relay, &relays);

        open_redis(r);
        for (uint32_t i = 1; i < 4; i++) {
            size_t bytes = 1000 * i + piece;

            assert_int_equal(put_steps(&r->ops, i, bytes, 700), 0);
            for (size_t step = 90; step < 3000; step += 400)
                assert_int_equal(get_steps(&r->ops, i, bytes, step), 0);
            assert_true(has_blob(&r->ops, i));
            drop(&r->ops, i);
            assert_false(has_blob(&r->ops, i));
        }
        close_redis(r);
        assert_string_equal(r->log, "");
        kill(pid, SIGKILL);
        assert_int_equal(end_of_child(pid), 1000 + SIGKILL);
        close(relays.sock);
    }
    start_clocks();
    r->params.socket = r->socket;
}

static int read_foreign(struct redis_rig *r, uint8_t *data, size_t bytes)
{
    void *blob;
    int error = r->ops.open(r->ops.ctx, blob_name(1), 0, &blob);

    if (error)
        return error;
    error = r->ops.read(blob, 0, data, bytes, 10000);
    assert_int_equal(r->ops.close(blob, false), 0);
    return error;
}

/* Another program's hash under one of our keys, with strings of any size: a miss, and the connection stays in step. */
static void foreign_strings_of_any_size(void **state)
{
    static const size_t size[] = {0, 1, 23, 24, 25, 508 << 10, (508 << 10) + 1, 3 * MIB};
    struct redis_rig *r = *state;
    char *text = malloc(3 * MIB);
    uint8_t *data = malloc(2 * MIB);

    assert_true(text && data);
    memset(text, '1', 3 * MIB);
    stop_clocks();
    start_server(r, NULL);
    open_redis(r);
    assert_int_equal(put_blob(&r->ops, 2, MIB), 0);
    long long id = ask_server(r, "CLIENT ID");
    for (size_t i = 0; i < N_OF(size); i++)
        for (size_t k = 0; k < N_OF(size); k++) {
            ask_server(r, "HSET %s bytes 2000000 0 %b 1 %b 2 %b 3 %b", key_of(1), text, size[i], text, size[k], text,
                       size[i], text, size[k]);
            assert_int_equal(read_foreign(r, data, 2 * (508 << 10)),
                             size[i] == 508 << 10 && size[k] == 508 << 10 ? 0 : ENODATA);
            ask_server(r, "HSET %s bytes %b", key_of(1), text, size[i]);
            assert_in_range(read_foreign(r, data, MIB), 1, 200);
            assert_int_equal(get_blob(&r->ops, 2, MIB), 0);
        }
    assert_int_equal(n_said(r, "left alone"), 0);
    assert_in_range(ask_server(r, "CLIENT ID"), id + 1, id + 2 * (long long)(N_OF(size) * N_OF(size)) + 1);
    free(text);
    free(data);
    start_clocks();
}

/* ---- a host that does not answer ---- */

/* A port whose queue is full drops what comes, as a host does that is gone. */
static void a_host_that_says_nothing(void **state)
{
    struct redis_rig *r = *state;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    int sock = socket(AF_INET, SOCK_STREAM, 0), peer[8];

    assert_int_equal(bind(sock, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(sock, (struct sockaddr *)&at, &n), 0);
    assert_int_equal(listen(sock, 0), 0);
    for (size_t i = 0; i < N_OF(peer); i++) {
        peer[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        (void)!connect(peer[i], (struct sockaddr *)&at, sizeof at);
    }
    r->params.socket = NULL;
    r->params.port = ntohs(at.sin_port);
    open_redis(r);
    TIMED(ask_has(r), ETIMEDOUT, ECONNREFUSED, 195, 200 + LATE_MS);
    TIMED(ask_has(r), EHOSTDOWN, EHOSTDOWN, 0, LATE_MS);
    assert_int_equal(n_said(r, "it is left alone"), 1);
    for (size_t i = 0; i < N_OF(peer); i++)
        close(peer[i]);
    close(sock);
}

/* ---- one server of a cluster, which sends to another ---- */

struct redirection {
    int sock;
    const char *answer; /* to all but PING */
};

static int redirect(void *arg)
{
    const struct redirection *d = arg;
    char request[4096];

    for (;;) {
        int peer = accept(d->sock, NULL, NULL);

        if (peer < 0)
            return 1;
        for (ssize_t n; (n = read(peer, request, sizeof request - 1)) > 0;) {
            request[n] = 0;
            const char *answer = strstr(request, "PING") ? "+PONG\r\n" : d->answer;
            for (const char *command = request; (command = strchr(command, '*')); command++)
                (void)!write(peer, answer, strlen(answer));
        }
        close(peer);
    }
}

static void a_cluster_sends_to_another_server(void **state)
{
    static const char *const answer[] = {"-MOVED 3999 127.0.0.1:6381\r\n", "-ASK 3999 127.0.0.1:6381\r\n"};
    struct redis_rig *r = *state;

    for (size_t i = 0; i < N_OF(answer); i++) {
        struct redirection d = {listen_at(r->socket), answer[i]};
        int pid = child(redirect, &d);

        r->log[0] = 0;
        open_redis(r);
        for (int k = 0; k < 3; k++) { /* a miss, and the connection stands */
            assert_int_equal(ask_has(r), ENOTSUP);
            assert_int_equal(get_blob(&r->ops, 1, MIB), ENOTSUP);
            assert_int_equal(put_blob(&r->ops, 1, MIB), ENOTSUP);
        }
        assert_int_equal(n_said(r, "part of a cluster, which is not supported"), 1);
        assert_int_equal(n_said(r, "left alone"), 0);
        close_redis(r);
        kill(pid, SIGKILL);
        assert_int_equal(end_of_child(pid), 1000 + SIGKILL);
        close(d.sock);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        REDIS_TEST(a_server_that_is_not_there),
        REDIS_TEST(a_server_that_hangs),
        REDIS_TEST(a_server_that_hangs_in_the_middle),
        REDIS_TEST(a_close_does_not_wait),
        REDIS_TEST(an_evicted_blob_is_not_damaged),
        REDIS_TEST(a_server_that_dies_in_the_middle),
        REDIS_TEST(something_else_answers),
        REDIS_TEST(something_listens_and_says_nothing),
        REDIS_TEST(a_server_that_is_slow),
        REDIS_TEST(replies_come_in_pieces),
        REDIS_TEST(foreign_strings_of_any_size),
        REDIS_TEST(a_host_that_says_nothing),
        REDIS_TEST(a_cluster_sends_to_another_server),
    };
    if (!has_server()) {
        print_message("there is no redis-server here\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
