/* SPDX-License-Identifier: MIT */
/*
 * redis_link_linux: connections to a Redis server. No call waits longer than 200 ms for something to move; a server
 * that does not answer is left alone for a while. Knows nothing of blobs.
 */
#include "store/redis.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

enum { HEAD_BYTES = 48 };

/* ------------------------------------------------------------------------------------------- process and rest */

pid_t kvl_redis_this_process(void)
{
    return getpid();
}

bool kvl_redis_in_child(const kvl_redis *redis)
{
    return getpid() != redis->pid;
}

/* The server answers, after it did not. */
static void answers(kvl_redis *redis)
{
    pthread_mutex_lock(&redis->lock);
    bool is_back = redis->rest_ms != 0;
    redis->rest_ms = redis->rest_until_ms = 0;
    pthread_mutex_unlock(&redis->lock);
    if (is_back)
        kvl_redis_log(redis, KVLAZY_LOG_INFO, "%s answers again", redis->where);
}

void kvl_redis_rest(kvl_redis *redis, const char *why)
{
    pthread_mutex_lock(&redis->lock);
    bool is_new = redis->rest_ms == 0;
    redis->rest_ms = is_new ? KVL_REDIS_REST_MS : kvl_min(2 * redis->rest_ms, KVL_REDIS_REST_MAX_MS);
    redis->rest_until_ms = kvl_store_now_ms() + redis->rest_ms;
    pthread_mutex_unlock(&redis->lock);
    if (is_new)
        kvl_redis_log(redis, KVLAZY_LOG_WARN, "%s: %s; it is left alone for 1 s, then for longer", redis->where, why);
}

int kvl_redis_wait(kvl_redis *redis, kvl_redis_link *link, short events, kvl_limit *limit)
{
    struct pollfd poller = {.fd = link->context->fd, .events = events};

    for (;;) {
        uint64_t left_ms = kvl_limit_left_ms(limit);

        if (!left_ms) {
            link->is_broken = true;
            if (kvl_limit_is_stalled(limit))
                kvl_redis_rest(redis, "no answer within 200 ms");
            return ETIMEDOUT;
        }
        int n = poll(&poller, 1, (int)left_ms);
        if (n > 0)
            return 0;
        if (n < 0 && errno != EINTR) {
            link->is_broken = true;
            return errno;
        }
    }
}

/* ------------------------------------------------------------------------------------------- commands */

/* "*2\r\n$5\r\n" "HLEN…" "\r\n$3\r\n" … "\r\n". Returns how many parts. */
static int put_in_parts(const kvl_redis_words *words, char head[KVL_REDIS_ARGS][HEAD_BYTES], struct iovec *part)
{
    int n = 0;

    for (int i = 0; i < words->n; i++) {
        int bytes = i ? snprintf(head[i], HEAD_BYTES, "\r\n$%zu\r\n", words->bytes[i])
                      : snprintf(head[i], HEAD_BYTES, "*%d\r\n$%zu\r\n", words->n, words->bytes[i]);

        part[n++] = (struct iovec){head[i], (size_t)bytes};
        part[n++] = (struct iovec){(void *)(uintptr_t)words->word[i], words->bytes[i]};
    }
    part[n++] = (struct iovec){(void *)(uintptr_t) "\r\n", 2};
    return n;
}

static void skip_sent(struct msghdr *message, size_t sent)
{
    while (message->msg_iovlen && sent >= message->msg_iov->iov_len) {
        sent -= message->msg_iov->iov_len;
        message->msg_iov++;
        message->msg_iovlen--;
    }
    if (message->msg_iovlen) {
        message->msg_iov->iov_base = (char *)message->msg_iov->iov_base + sent;
        message->msg_iov->iov_len -= sent;
    }
}

int kvl_redis_send(kvl_redis *redis, kvl_redis_link *link, const kvl_redis_words *words, kvl_limit *limit)
{
    char head[KVL_REDIS_ARGS][HEAD_BYTES];
    struct iovec part[2 * KVL_REDIS_ARGS + 1];
    struct msghdr message = {.msg_iov = part, .msg_iovlen = (size_t)put_in_parts(words, head, part)};

    if (link->is_broken)
        return ENOTCONN;
    while (message.msg_iovlen) {
        ssize_t n = sendmsg(link->context->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        int error = n < 0 ? errno : 0;

        if (n > 0) {
            skip_sent(&message, (size_t)n);
            kvl_limit_moved(limit);
        } else if (error == EAGAIN || error == EWOULDBLOCK) {
            error = kvl_redis_wait(redis, link, POLLOUT, limit);
            if (error)
                return error;
        } else if (error != EINTR) {
            link->is_broken = true;
            return error ? error : EPIPE;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------- connect */

bool kvl_redis_look_up(const char *host, char *address, size_t bytes)
{
    const struct addrinfo hint = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;

    if (getaddrinfo(host, NULL, &hint, &found) != 0)
        return false;
    bool ok = getnameinfo(found->ai_addr, found->ai_addrlen, address, (socklen_t)bytes, NULL, 0, NI_NUMERICHOST) == 0;
    freeaddrinfo(found);
    return ok;
}

void kvl_redis_close(kvl_redis_link *link)
{
    if (link->context)
        redisFree(link->context);
    free(link->buffer);
    free(link);
}

/* Logs in and chooses the database. The first refusal, or what went wrong. */
static int introduce(kvl_redis *redis, kvl_redis_link *link)
{
    const kvlazy_redis_params *p = &redis->params;
    kvl_limit limit = kvl_limit_of(UINT64_MAX);
    kvl_redis_words ping = {0}, select = {0}, auth = {0};
    char database[16];
    int error;

    if (p->password) {
        kvl_redis_say(&auth, "AUTH");
        if (p->user)
            kvl_redis_say(&auth, p->user);
        kvl_redis_say(&auth, p->password);
        error = kvl_redis_send(redis, link, &auth, &limit);
        if (!error)
            error = kvl_redis_confirm(redis, link, &limit);
        if (error)
            return error;
    }
    snprintf(database, sizeof database, "%u", p->database);
    kvl_redis_say(&select, "SELECT");
    kvl_redis_say(&select, database);
    kvl_redis_say(&ping, "PING"); /* asks for nothing that a user must be allowed */
    error = kvl_redis_send(redis, link, p->database ? &select : &ping, &limit);
    if (!error)
        error = kvl_redis_confirm(redis, link, &limit);
    return error == ENOENT ? EPROTO : error;
}

static kvl_redis_link *new_link(const kvlazy_redis_params *p)
{
    const struct timeval wait = {0, KVL_STALL_MS * 1000};
    kvl_redis_link *link = calloc(1, sizeof *link);

    if (!link)
        return NULL;
    link->buffer = malloc(KVL_REDIS_BUFFER_BYTES);
    if (link->buffer)
        link->context = p->socket ? redisConnectUnixWithTimeout(p->socket, wait)
                                  : redisConnectWithTimeout(p->host, (int)p->port, wait);
    if (link->context)
        return link;
    kvl_redis_close(link);
    return NULL;
}

static int connect_link(kvl_redis *redis, kvl_redis_link **made)
{
    char why[200];
    kvl_redis_link *link = new_link(&redis->params);

    if (!link)
        return ENOMEM;
    int error = link->context->err ? ECONNREFUSED : 0;
    if (!error) {
        (void)fcntl(link->context->fd, F_SETFD, FD_CLOEXEC);
        error = introduce(redis, link);
    }
    if (!error) {
        *made = link;
        answers(redis);
        return 0;
    }
    snprintf(why, sizeof why, "%s", link->context->err ? link->context->errstr : strerror(error));
    if (error != ETIMEDOUT) /* which is told already */
        kvl_redis_rest(redis, why);
    kvl_redis_close(link);
    return error;
}

/* An idle connection at which nothing is to be read is one that still stands. */
static bool stands(const kvl_redis_link *link)
{
    struct pollfd poller = {.fd = link->context->fd, .events = POLLIN};

    return poll(&poller, 1, 0) == 0;
}

/* The next idle connection, or NULL. EHOSTDOWN: the server is left alone. *looks: whether it is back is for this call
 * to find out, and the others go on without it. */
static int take_idle(kvl_redis *redis, kvl_redis_link **idle, bool *looks)
{
    uint64_t now = kvl_store_now_ms();

    pthread_mutex_lock(&redis->lock);
    bool rests = redis->rest_ms && now < redis->rest_until_ms;
    *looks = redis->rest_ms && !rests;
    if (*looks)
        redis->rest_until_ms = now + 2 * KVL_STALL_MS;
    *idle = rests ? NULL : redis->idle;
    if (*idle) {
        redis->idle = (*idle)->next;
        redis->n_idle--;
    }
    pthread_mutex_unlock(&redis->lock);
    return rests ? EHOSTDOWN : 0;
}

int kvl_redis_take(kvl_redis *redis, kvl_redis_link **link)
{
    kvl_redis_link *idle;
    bool looks;

    if (kvl_redis_in_child(redis))
        return ECHILD;
    for (;;) {
        int error = take_idle(redis, &idle, &looks);

        if (error)
            return error;
        if (idle && !looks && stands(idle)) {
            *link = idle;
            return 0;
        }
        if (idle)
            kvl_redis_close(idle);
        if (!idle || looks)
            return connect_link(redis, link);
    }
}

void kvl_redis_give(kvl_redis *redis, kvl_redis_link *link)
{
    bool is_in_step = !link->is_broken && !link->left && link->begin == link->end;
    bool keep = is_in_step && !kvl_redis_in_child(redis);

    if (keep) {
        pthread_mutex_lock(&redis->lock);
        keep = redis->n_idle < KVL_REDIS_IDLE_LINKS;
        if (keep) {
            link->next = redis->idle;
            redis->idle = link;
            redis->n_idle++;
        }
        pthread_mutex_unlock(&redis->lock);
    }
    if (!keep)
        kvl_redis_close(link);
}
