/* SPDX-License-Identifier: MIT */
/* See redis_support.h. */
#include "redis_support.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ARGS = 32, START_MS = 20000 };

static void listen_to(void *ctx, int level, const char *text)
{
    struct redis_rig *r = ctx;
    size_t n = strlen(r->log);

    (void)level;
    snprintf(r->log + n, sizeof r->log - n, "%s\n", text);
}

bool has_server(void)
{
    return system("redis-server --version >/dev/null 2>&1") == 0;
}

int redis_setup(void **state)
{
    struct redis_rig *r = calloc(1, sizeof *r);

    assert_non_null(r);
    r->dir = make_tree(true);
    snprintf(r->socket, sizeof r->socket, "%s/socket", r->dir);
    kvlazy_redis_params_init(&r->params);
    r->params.socket = r->socket;
    r->params.log = listen_to;
    r->params.log_ctx = r;
    r->n_open_files = n_open_files();
    *state = r;
    return 0;
}

int redis_teardown(void **state)
{
    struct redis_rig *r = *state;

    close_redis(r);
    kill_server(r);
    int leaked = n_open_files() - r->n_open_files;
    remove_tree(r->dir);
    free(r);
    assert_int_equal(leaked, 0);
    return 0;
}

static void run_server(struct redis_rig *r, va_list options)
{
    static const char *const base[] = {"redis-server", "--save",      "",  "--appendonly", "no", "--unixsocket",
                                       "socket",       "--daemonize", "no"};
    const char *arg[ARGS];
    const char *port = "0";
    int n = 0;

    for (; n < (int)N_OF(base); n++)
        arg[n] = base[n];
    for (const char *word; (word = va_arg(options, const char *)) && n < ARGS - 3;) {
        if (strcmp(word, "--port") == 0)
            port = NULL;
        arg[n++] = word;
    }
    if (port) {
        arg[n++] = "--port";
        arg[n++] = port;
    }
    arg[n] = NULL;
    int log = open("/dev/null", O_WRONLY);
    if (chdir(r->dir) != 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(1);
    execvp(arg[0], (char *const *)(uintptr_t)arg);
    _exit(127);
}

static bool answers(struct redis_rig *r)
{
    redisContext *c = redisConnectUnix(r->socket);
    redisReply *reply = c && !c->err ? redisCommand(c, "PING") : NULL;
    bool yes = reply && (reply->type != REDIS_REPLY_ERROR || strncmp(reply->str, "LOADING", 7) != 0);

    if (reply)
        freeReplyObject(reply);
    if (c)
        redisFree(c);
    return yes;
}

void start_server(struct redis_rig *r, ...)
{
    va_list options;

    fflush(NULL);
    unlink(r->socket);
    va_start(options, r);
    r->pid = fork();
    assert_true(r->pid >= 0);
    if (r->pid == 0)
        run_server(r, options);
    va_end(options);
    for (int i = 0; i < START_MS && !answers(r); i++) {
        usleep(1000);
        if (waitpid(r->pid, NULL, WNOHANG) != 0)
            fail_msg("redis-server does not start");
    }
}

void kill_server(struct redis_rig *r)
{
    if (r->pid) {
        kill(r->pid, SIGKILL);
        assert_int_equal(waitpid(r->pid, NULL, 0), r->pid);
    }
    r->pid = 0;
}

void stop_server(struct redis_rig *r)
{
    int status;

    assert_int_equal(kill(r->pid, SIGSTOP), 0);
    assert_int_equal(waitpid(r->pid, &status, WUNTRACED), r->pid);
}

void continue_server(struct redis_rig *r)
{
    assert_int_equal(kill(r->pid, SIGCONT), 0);
}

void open_redis(struct redis_rig *r)
{
    r->ops = (kvlazy_store_ops){.struct_size = sizeof r->ops};
    assert_int_equal(kvlazy_store_redis(&r->params, &r->ops), 0);
    r->is_open = true;
}

void close_redis(struct redis_rig *r)
{
    if (r->is_open)
        r->ops.destroy(r->ops.ctx);
    r->is_open = false;
}

long long ask_server(struct redis_rig *r, const char *format, ...)
{
    redisContext *c = redisConnectUnix(r->socket);
    va_list args;

    assert_true(c && !c->err);
    va_start(args, format);
    redisReply *reply = redisvCommand(c, format, args);
    va_end(args);
    assert_non_null(reply);
    if (reply->type == REDIS_REPLY_ERROR)
        fail_msg("%s: %s", format, reply->str);
    long long answer = reply->type == REDIS_REPLY_ARRAY ? (long long)reply->elements : reply->integer;
    freeReplyObject(reply);
    redisFree(c);
    return answer;
}

const char *key_of(uint32_t i)
{
    static char key[4][96];
    static int next;
    const uint8_t *name = blob_name(i);
    char *at = key[next++ % 4];
    int n = snprintf(at, 96, "kvlazy:{");

    for (int k = 0; k < 32; k++)
        n += snprintf(at + n, 96 - (size_t)n, "%02x", name[k]);
    snprintf(at + n, 96 - (size_t)n, "}");
    return at;
}

int n_keys(struct redis_rig *r)
{
    return (int)ask_server(r, "DBSIZE");
}

int n_said(struct redis_rig *r, const char *text)
{
    int n = 0;

    for (const char *at = r->log; (at = strstr(at, text)); at++)
        n++;
    return n;
}

/* ---- time ---- */

int64_t passed_ms;
static bool clocks_stand;
static struct timespec stopped_at[2]; /* CLOCK_REALTIME, CLOCK_MONOTONIC */

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);

void stop_clocks(void)
{
    for (clockid_t clock = CLOCK_REALTIME; clock <= CLOCK_MONOTONIC; clock++)
        __real_clock_gettime(clock, &stopped_at[clock]);
    clocks_stand = true;
}

void start_clocks(void)
{
    clocks_stand = false;
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    int answer = __real_clock_gettime(clock, t);

    if (clocks_stand && clock <= CLOCK_MONOTONIC)
        *t = stopped_at[clock];
    t->tv_sec += passed_ms / 1000;
    t->tv_nsec += passed_ms % 1000 * 1000000;
    t->tv_sec += t->tv_nsec / 1000000000;
    t->tv_nsec %= 1000000000;
    return answer;
}
