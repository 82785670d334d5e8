/* SPDX-License-Identifier: MIT */
/*
 * A Redis server of this run's own, on a Unix socket in a directory of its own, without persistence, with a limit and
 * the policy that a cache wants. It ends with the bench, however that ends. Measures nothing.
 */
#include "fleet.h"

#include <kvlazy/redis.h>
#include <kvlazy/status.h>

#include <errno.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { START_TRIES = 500, TRY_MS = 20, NOT_THERE = 127 };

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = TRY_MS * 1000000L}, NULL);
}

/* In the child. */
static void become_server(const struct fleet_server *server, pid_t parent, uint64_t max_bytes)
{
    char max[32];
    int nowhere = open("/dev/null", O_WRONLY);
    snprintf(max, sizeof(max), "%llu", (unsigned long long)max_bytes);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && nowhere >= 0 && dup2(nowhere, 1) >= 0 && dup2(nowhere, 2) >= 0 &&
        chdir(server->dir) == 0) {
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", "socket", "--save", "", "--appendonly",
               "no", "--daemonize", "no", "--maxmemory", max, "--maxmemory-policy", "allkeys-lru", (char *)NULL);
    }
    _exit(NOT_THERE);
}

/* One command, whose reply must be no error. 0 or -1. */
static int ask(const struct fleet_server *server, const char *command)
{
    redisContext *context = redisConnectUnix(server->socket);
    redisReply *reply = context != NULL && context->err == 0 ? redisCommand(context, command) : NULL;
    bool good = reply != NULL && reply->type != REDIS_REPLY_ERROR;
    if (reply != NULL) {
        freeReplyObject(reply);
    }
    if (context != NULL) {
        redisFree(context);
    }
    return good ? 0 : bench_error("redis-server does not answer %s", command);
}

static int wait_until_it_answers(struct fleet_server *server)
{
    for (int i = 0; i < START_TRIES; i++) {
        int how = 0;
        if (waitpid(server->pid, &how, WNOHANG) == server->pid) {
            server->pid = 0;
            bench_error("there is no redis-server, or it does not start here");
            return WIFEXITED(how) && WEXITSTATUS(how) == NOT_THERE ? 1 : -1;
        }
        if (access(server->socket, F_OK) == 0 && ask(server, "PING") == 0) {
            return 0;
        }
        nap();
    }
    return bench_error("redis-server does not answer within %d s", START_TRIES * TRY_MS / 1000);
}

int fleet_server_start(struct fleet_server *server, uint64_t max_bytes)
{
    *server = (struct fleet_server){.dir = "/tmp/kvlazy-bench-XXXXXX"};
    if (bench_available_bytes() / 2 < max_bytes) {
        bench_error("the server may take %llu MiB, and this machine has not twice as much",
                    (unsigned long long)(max_bytes >> 20));
        server->dir[0] = '\0';
        return 1;
    }
    if (mkdtemp(server->dir) == NULL) {
        server->dir[0] = '\0';
        return bench_error("a directory below /tmp: %s", strerror(errno));
    }
    snprintf(server->socket, sizeof(server->socket), "%s/socket", server->dir);
    pid_t parent = getpid();
    fflush(NULL);
    server->pid = fork();
    if (server->pid == 0) {
        become_server(server, parent, max_bytes);
    }
    if (server->pid < 0) {
        server->pid = 0;
        return bench_error("fork: %s", strerror(errno));
    }
    return wait_until_it_answers(server);
}

void fleet_server_end(struct fleet_server *server)
{
    if (server->pid != 0) {
        kill(server->pid, SIGKILL);
        waitpid(server->pid, NULL, 0);
    }
    if (server->dir[0] != '\0') {
        unlink(server->socket);
        rmdir(server->dir);
    }
    *server = (struct fleet_server){.pid = 0};
}

int fleet_server_hang(struct fleet_server *server)
{
    return kill(server->pid, SIGSTOP) == 0 ? 0 : bench_error("SIGSTOP: %s", strerror(errno));
}

int fleet_server_go_on(struct fleet_server *server)
{
    return kill(server->pid, SIGCONT) == 0 ? 0 : bench_error("SIGCONT: %s", strerror(errno));
}

int fleet_server_empty(const struct fleet_server *server)
{
    return ask(server, "FLUSHALL");
}

int fleet_place(void *ctx, kvlazy_store_ops *ops)
{
    const struct fleet_server *server = ctx;
    kvlazy_redis_params params;
    kvlazy_redis_params_init(&params);
    params.socket = server->socket;
    *ops = (kvlazy_store_ops){.struct_size = sizeof(*ops)};
    int status = kvlazy_store_redis(&params, ops);
    return status == KVLAZY_OK ? 0 : bench_error("kvlazy_store_redis: %s", kvlazy_status_name(status));
}
