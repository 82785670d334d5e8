/* SPDX-License-Identifier: MIT */
/*
 * redis_reply_linux: what a Redis server answers. A reply is one line, and where it is a string, the string's bytes,
 * which go from the socket to where the caller wants them without another copy. The blobs and the questions by name
 * call it; lists, which no command of ours is answered with, and strings larger than a server keeps are no replies.
 *
 *     :12\r\n     +OK\r\n     -ERR no\r\n     $-1\r\n (none)     $5\r\nbytes\r\n
 */
#include "store/redis.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <bsd/stdlib.h>
#include <bsd/string.h>

enum { BEHIND_BYTES = 64 }; /* the end of a string, and the line of the next */

#define STRING_MOST_BYTES (INT64_C(512) << 20)

/* Some more bytes: at most `bytes` to data, and to the buffer, which is empty or has room behind what is in it; little
 * of it where there is data, since what lies there is copied once more. *n: those that data got. 0 or errno, and then
 * the link is out of step. */
static int arrive(kvl_redis *redis, kvl_redis_link *link, void *data, size_t bytes, size_t *n, kvl_limit *limit)
{
    size_t room = bytes ? BEHIND_BYTES : KVL_REDIS_BUFFER_BYTES - link->end;
    struct iovec part[2] = {{data, bytes}, {link->buffer + link->end, room}};
    struct msghdr message = {.msg_iov = bytes ? part : part + 1, .msg_iovlen = bytes ? 2 : 1};
    ssize_t got = recvmsg(link->context->fd, &message, MSG_DONTWAIT);
    int error = got < 0 ? errno : 0;

    *n = 0;
    if (error == EAGAIN || error == EWOULDBLOCK)
        return kvl_redis_wait(redis, link, POLLIN, limit);
    if (error == EINTR)
        return 0;
    if (got <= 0) {
        link->is_broken = true;
        return error ? error : ECONNRESET;
    }
    kvl_limit_moved(limit);
    *n = kvl_min((size_t)got, bytes);
    link->end += (size_t)got - *n;
    return 0;
}

static void make_room(kvl_redis_link *link)
{
    memmove(link->buffer, link->buffer + link->begin, link->end - link->begin);
    link->end -= link->begin;
    link->begin = 0;
}

static int no_reply(kvl_redis *redis, kvl_redis_link *link)
{
    link->is_broken = true;
    kvl_redis_rest(redis, "what answers there is no Redis");
    return EPROTO;
}

/* ------------------------------------------------------------------------------------------- lines */

/* A line without its end, cut where it is longer than there is room. */
static int take_line(kvl_redis *redis, kvl_redis_link *link, char line[KVL_REDIS_LINE_BYTES], kvl_limit *limit)
{
    for (;;) {
        const char *begin = link->buffer + link->begin;
        size_t bytes = link->end - link->begin, ignored;
        const char *end = memchr(begin, '\n', bytes);

        if (bytes && !memchr(":+-$", *begin, 4))
            return no_reply(redis, link);
        if (end) {
            size_t n = (size_t)(end - begin) - (end > begin && end[-1] == '\r');

            snprintf(line, KVL_REDIS_LINE_BYTES, "%.*s", (int)kvl_min(n, KVL_REDIS_LINE_BYTES), begin);
            link->begin += (size_t)(end - begin) + 1;
            return 0;
        }
        make_room(link);
        if (link->end == KVL_REDIS_BUFFER_BYTES)
            return no_reply(redis, link);
        int error = arrive(redis, link, NULL, 0, &ignored, limit);
        if (error)
            return error;
    }
}

/* The end of a string's line. */
static int take_end(kvl_redis *redis, kvl_redis_link *link, kvl_limit *limit)
{
    size_t ignored;

    while (link->end - link->begin < 2) {
        make_room(link);
        int error = arrive(redis, link, NULL, 0, &ignored, limit);
        if (error)
            return error;
    }
    if (memcmp(link->buffer + link->begin, "\r\n", 2) != 0)
        return no_reply(redis, link);
    link->begin += 2;
    return 0;
}

int kvl_redis_receive(kvl_redis *redis, kvl_redis_link *link, kvl_redis_reply *reply, kvl_limit *limit)
{
    const char *wrong = NULL;

    if (link->is_broken)
        return ENOTCONN;
    int error = take_line(redis, link, reply->line, limit);
    if (error)
        return error;
    reply->kind = reply->line[0];
    reply->number = 0;
    if (reply->kind == '-')
        return kvl_redis_refusal(redis, reply->line + 1);
    if (reply->kind == ':' || reply->kind == '$')
        reply->number = strtonum(reply->line + 1, reply->kind == '$' ? -1 : INT64_MIN,
                                 reply->kind == '$' ? STRING_MOST_BYTES : INT64_MAX, &wrong);
    if (wrong)
        return no_reply(redis, link);
    link->left = reply->kind == '$' && reply->number > 0 ? (size_t)reply->number : 0;
    return reply->kind == '$' && reply->number == 0 ? take_end(redis, link, limit) : 0;
}

/* ------------------------------------------------------------------------------------------- strings */

int kvl_redis_receive_bytes(kvl_redis *redis, kvl_redis_link *link, void *data, size_t bytes, kvl_limit *limit)
{
    size_t n = kvl_min(bytes, link->end - link->begin);
    int error = 0;

    KVL_ASSERT(bytes <= link->left);
    memcpy(data, link->buffer + link->begin, n);
    link->begin += n;
    for (size_t done = n; done < bytes && !error; done += n) {
        link->begin = link->end = 0;
        error = arrive(redis, link, (char *)data + done, bytes - done, &n, limit);
    }
    link->left -= bytes;
    return !error && bytes && !link->left ? take_end(redis, link, limit) : error;
}

int kvl_redis_skip(kvl_redis *redis, kvl_redis_link *link, size_t bytes, kvl_limit *limit)
{
    int error = 0;

    while (bytes && !error) {
        size_t n = kvl_min(bytes, link->end - link->begin), ignored;

        link->begin += n;
        link->left -= n;
        bytes -= n;
        if (link->begin == link->end)
            link->begin = link->end = 0;
        if (!link->left)
            error = take_end(redis, link, limit);
        else if (bytes)
            error = arrive(redis, link, NULL, 0, &ignored, limit);
    }
    return error;
}

int kvl_redis_confirm(kvl_redis *redis, kvl_redis_link *link, kvl_limit *limit)
{
    kvl_redis_reply reply;
    int error = kvl_redis_receive(redis, link, &reply, limit);

    return error ? error : kvl_redis_skip(redis, link, link->left, limit);
}
