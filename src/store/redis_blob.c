/* SPDX-License-Identifier: MIT */
/*
 * redis_blob: one blob of a Redis server, read ahead, or written behind under a temporary name and renamed when it is
 * whole. Has a connection of its own while it is open.
 */
#include "store/redis.h"

#include <errno.h>
#include <stdio.h>

#include <bsd/stdlib.h>
#include <bsd/string.h>

enum {
    AHEAD_FIELDS = 3,   /* that are asked for before they are needed */
    BEHIND_REPLIES = 6, /* that a put does not wait for */
    CLOSE_MS = 10,      /* for what a get has on its way in the end: about what a new connection takes */
};

typedef struct kvl_redis_blob {
    kvl_redis *redis;
    kvl_redis_link *link;
    bool is_put;
    int error;      /* the first, of a put: it cannot be committed any more */
    uint64_t bytes; /* of the whole */
    char key[KVL_REDIS_KEY_BYTES];

    /* A put. */
    char temp[KVL_REDIS_KEY_BYTES + 20];
    char *field; /* [KVL_REDIS_FIELD_BYTES], gathered */
    size_t fill_bytes;
    uint64_t n_sent;   /* fields */
    uint32_t n_behind; /* replies */

    /* A get. Fields next_reply to next_ask are on their way; the one before them arrives, and `at` is where in the blob
     * its next byte stands. */
    uint64_t next_reply, next_ask, at;
} kvl_redis_blob;

/* ------------------------------------------------------------------------------------------- words */

/* Sends a command of two or three words. */
static int ask(kvl_redis_blob *b, const char *verb, const char *key, const char *third, kvl_limit *limit)
{
    kvl_redis_words words = {0};

    kvl_redis_say(&words, verb);
    kvl_redis_say(&words, key);
    if (third)
        kvl_redis_say(&words, third);
    return kvl_redis_send(b->redis, b->link, &words, limit);
}

static int ask_to_expire(kvl_redis_blob *b, const char *key, uint64_t seconds, kvl_limit *limit)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)seconds);
    return seconds ? ask(b, "EXPIRE", key, text, limit) : ask(b, "PERSIST", key, NULL, limit);
}

/* A field of the temporary hash. It is told to expire each time: a server that is full may have evicted it meanwhile,
 * and then this makes it anew. */
static int send_field(kvl_redis_blob *b, const char *field, const void *data, size_t bytes, kvl_limit *limit)
{
    kvl_redis_words words = {0};

    kvl_redis_say(&words, "HSET");
    kvl_redis_say(&words, b->temp);
    kvl_redis_say(&words, field);
    kvl_redis_say_bytes(&words, data, bytes);
    int error = kvl_redis_send(b->redis, b->link, &words, limit);
    if (!error) {
        b->n_behind++;
        error = ask_to_expire(b, b->temp, KVL_REDIS_TEMP_S, limit);
    }
    b->n_behind += !error;
    return error;
}

/* Waits for replies to what was written until so many are left. */
static int catch_up(kvl_redis_blob *b, uint32_t n_left, kvl_limit *limit)
{
    int error = 0;

    while (b->n_behind > n_left && !b->link->is_broken) {
        int refused = kvl_redis_confirm(b->redis, b->link, limit);

        b->n_behind--;
        if (!error)
            error = refused;
    }
    return error;
}

/* ------------------------------------------------------------------------------------------- open and close */

static uint64_t n_field_of(const kvl_redis_blob *b)
{
    return (b->bytes + KVL_REDIS_FIELD_BYTES - 1) / KVL_REDIS_FIELD_BYTES;
}

static int ask_field(kvl_redis_blob *b, kvl_limit *limit)
{
    char field[24];

    snprintf(field, sizeof field, "%llu", (unsigned long long)b->next_ask);
    int error = ask(b, "HGET", b->key, field, limit);
    b->next_ask += !error;
    return error;
}

/* The first field tells early whether the server takes anything at all. */
static int begin_put(kvl_redis_blob *b, kvl_limit *limit)
{
    char bytes[24];

    b->field = malloc(KVL_REDIS_FIELD_BYTES);
    if (!b->field)
        return ENOMEM;
    snprintf(b->temp, sizeof b->temp, "%s:%08x%08x", b->key, arc4random(), arc4random());
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)b->bytes);
    int error = send_field(b, "bytes", bytes, strlen(bytes), limit);
    int refused = catch_up(b, 0, limit);
    return error ? error : refused;
}

static int begin_get(kvl_redis_blob *b, kvl_limit *limit)
{
    const char *wrong = "not there";
    char text[24] = "";
    kvl_redis_reply reply;
    int error = ask(b, "HGET", b->key, "bytes", limit);

    if (!error)
        error = kvl_redis_receive(b->redis, b->link, &reply, limit);
    if (!error && b->link->left < sizeof text)
        error = kvl_redis_receive_bytes(b->redis, b->link, text, b->link->left, limit);
    if (!error) /* another program's, and longer than a number */
        error = kvl_redis_skip(b->redis, b->link, b->link->left, limit);
    if (error)
        return error;
    if (reply.kind == '$')
        b->bytes = (uint64_t)strtonum(text, 1, INT64_MAX, &wrong);
    if (wrong)
        return ENOENT;
    while (!error && b->next_ask < kvl_min(AHEAD_FIELDS, n_field_of(b))) /* they arrive while the caller is elsewhere */
        error = ask_field(b, limit);
    return error;
}

/* A get that ends early has fields on their way: if they come at once, to take them costs less than a new connection.
 * If not, the connection is closed, and the server is not blamed: the caller's time may be over. */
static void take_what_comes(kvl_redis_blob *b)
{
    kvl_limit limit = kvl_limit_of(CLOSE_MS);

    (void)kvl_redis_skip(b->redis, b->link, b->link->is_broken ? 0 : b->link->left, &limit);
    for (; b->next_reply < b->next_ask && !b->link->is_broken; b->next_reply++)
        (void)kvl_redis_confirm(b->redis, b->link, &limit);
}

static void end_blob(kvl_redis_blob *b)
{
    if (b->link && !kvl_redis_in_child(b->redis))
        take_what_comes(b);
    if (b->link)
        kvl_redis_give(b->redis, b->link);
    free(b->field);
    free(b);
}

int kvl_redis_open(void *ctx, const uint8_t *name, uint64_t put_bytes, void **blob)
{
    kvl_redis *redis = ctx;
    kvl_redis_blob *b;

    if (kvl_redis_in_child(redis))
        return ECHILD;
    b = calloc(1, sizeof *b);
    if (!b)
        return ENOMEM;
    b->redis = redis;
    b->is_put = put_bytes > 0;
    b->bytes = put_bytes;
    kvl_redis_key(redis, b->key, name);
    int error = kvl_redis_take(redis, &b->link);
    kvl_limit limit = kvl_limit_of(UINT64_MAX);
    if (!error)
        error = b->is_put ? begin_put(b, &limit) : begin_get(b, &limit);
    if (error)
        end_blob(b);
    else
        *blob = b;
    return error;
}

int kvl_redis_size(void *blob, uint64_t *bytes)
{
    const kvl_redis_blob *b = blob;

    if (kvl_redis_in_child(b->redis))
        return ECHILD;
    if (b->is_put)
        return EINVAL;
    *bytes = b->bytes;
    return 0;
}

/* ------------------------------------------------------------------------------------------- read */

static uint64_t field_bytes(const kvl_redis_blob *b, uint64_t field)
{
    return kvl_min(KVL_REDIS_FIELD_BYTES, b->bytes - field * KVL_REDIS_FIELD_BYTES);
}

/* A field is not there. ENOENT: nor is the blob, which was evicted after it was opened. ENODATA: it is, and not whole.
 * What else was asked for is taken first, and can be asked for again. */
static int why_missing(kvl_redis_blob *b, kvl_limit *limit)
{
    kvl_redis_reply reply;

    for (; b->next_reply < b->next_ask && !b->link->is_broken; b->next_reply++)
        (void)kvl_redis_confirm(b->redis, b->link, limit);
    int error = ask(b, "HEXISTS", b->key, "bytes", limit);
    if (!error)
        error = kvl_redis_receive(b->redis, b->link, &reply, limit);
    if (!error)
        error = kvl_redis_skip(b->redis, b->link, b->link->left, limit);
    if (error)
        return error;
    return reply.kind == ':' && reply.number == 0 ? ENOENT : ENODATA;
}

/* The next field begins to arrive. ENOENT, ENODATA: it does not, and the connection is in step. */
static int begin_field(kvl_redis_blob *b, kvl_limit *limit)
{
    kvl_redis_reply reply;
    int error = kvl_redis_receive(b->redis, b->link, &reply, limit);

    if (b->link->is_broken)
        return error;
    uint64_t field = b->next_reply++;
    b->at = field * KVL_REDIS_FIELD_BYTES;
    if (error || (reply.kind == '$' && (uint64_t)reply.number == field_bytes(b, field)))
        return error;
    if (reply.kind == '$' && reply.number < 0)
        return why_missing(b, limit);
    error = kvl_redis_skip(b->redis, b->link, b->link->left, limit);
    return error ? error : ENODATA;
}

static int skip(kvl_redis_blob *b, uint64_t bytes, kvl_limit *limit)
{
    b->at += bytes;
    return kvl_redis_skip(b->redis, b->link, (size_t)bytes, limit);
}

/* This field is the one that arrives. Reading in order asks ahead; a jump takes what is on its way first. */
static int go_to_field(kvl_redis_blob *b, uint64_t field, kvl_limit *limit)
{
    int error = skip(b, b->link->left, limit);

    while (b->next_reply < b->next_ask && b->next_reply != field && !b->link->is_broken) {
        error = begin_field(b, limit);
        if (!error)
            error = skip(b, b->link->left, limit);
    }
    if (b->link->is_broken)
        return error ? error : ENOTCONN;
    if (b->next_reply == b->next_ask)
        b->next_reply = b->next_ask = field;
    uint64_t end = kvl_min(field + 1 + AHEAD_FIELDS, n_field_of(b));
    for (error = 0; !error && b->next_ask < end;)
        error = ask_field(b, limit);
    return error ? error : begin_field(b, limit);
}

/* Byte `at` of the blob comes next. */
static int go_to(kvl_redis_blob *b, uint64_t at, kvl_limit *limit)
{
    bool is_ahead = b->link->left && at >= b->at && at - b->at < b->link->left;
    int error = is_ahead ? 0 : go_to_field(b, at / KVL_REDIS_FIELD_BYTES, limit);

    return error ? error : skip(b, at - b->at, limit);
}

int kvl_redis_read(void *blob, uint64_t at, void *data, size_t bytes, uint32_t max_ms)
{
    kvl_redis_blob *b = blob;
    kvl_limit limit = kvl_limit_of(max_ms);
    int error = 0;

    if (kvl_redis_in_child(b->redis))
        return ECHILD;
    if (b->is_put)
        return EINVAL;
    if (at > b->bytes || bytes > b->bytes - at)
        return ENODATA;
    if (b->link->is_broken)
        return ENOTCONN;
    for (size_t done = 0, n; done < bytes && !error; done += n) {
        n = 0;
        error = go_to(b, at + done, &limit);
        if (error)
            break;
        n = kvl_min(bytes - done, b->link->left);
        error = kvl_redis_receive_bytes(b->redis, b->link, (char *)data + done, n, &limit);
        b->at += n;
    }
    return error;
}

/* ------------------------------------------------------------------------------------------- write */

static int send_next(kvl_redis_blob *b, const void *data, size_t bytes, kvl_limit *limit)
{
    char field[24];

    snprintf(field, sizeof field, "%llu", (unsigned long long)b->n_sent);
    int error = send_field(b, field, data, bytes, limit);
    if (error)
        return error;
    b->n_sent++;
    return catch_up(b, BEHIND_REPLIES, limit);
}

/* Whole fields go as they are; the rest is gathered. */
static int write_some(kvl_redis_blob *b, const char *data, size_t bytes, kvl_limit *limit, size_t *took)
{
    if (!b->fill_bytes && bytes >= KVL_REDIS_FIELD_BYTES) {
        *took = KVL_REDIS_FIELD_BYTES;
        return send_next(b, data, *took, limit);
    }
    *took = kvl_min(bytes, KVL_REDIS_FIELD_BYTES - b->fill_bytes);
    memcpy(b->field + b->fill_bytes, data, *took);
    b->fill_bytes += *took;
    if (b->fill_bytes < KVL_REDIS_FIELD_BYTES)
        return 0;
    b->fill_bytes = 0;
    return send_next(b, b->field, KVL_REDIS_FIELD_BYTES, limit);
}

int kvl_redis_write(void *blob, const void *data, size_t bytes, uint32_t max_ms)
{
    kvl_redis_blob *b = blob;
    kvl_limit limit = kvl_limit_of(max_ms);

    if (kvl_redis_in_child(b->redis))
        return ECHILD;
    if (!b->is_put)
        return EINVAL;
    if (!b->error && bytes > b->bytes - (b->n_sent * KVL_REDIS_FIELD_BYTES + b->fill_bytes))
        b->error = EINVAL;
    for (size_t done = 0; done < bytes && !b->error;) {
        size_t took = 0;

        b->error = write_some(b, (const char *)data + done, bytes - done, &limit, &took);
        done += took;
    }
    return b->error;
}

/* Are all fields there? A server that is full may have evicted some before the rest came. */
static int count_fields(kvl_redis_blob *b, kvl_limit *limit)
{
    kvl_redis_reply reply;
    int error = ask(b, "HLEN", b->temp, NULL, limit);
    int refused = catch_up(b, 0, limit);

    if (!error)
        error = kvl_redis_receive(b->redis, b->link, &reply, limit);
    if (!error && (reply.kind != ':' || (uint64_t)reply.number != n_field_of(b) + 1))
        error = ENOSPC;
    return refused ? refused : error;
}

static int commit(kvl_redis_blob *b, kvl_limit *limit)
{
    int error = b->error;

    if (!error && b->n_sent * KVL_REDIS_FIELD_BYTES + b->fill_bytes != b->bytes)
        error = EINVAL;
    if (!error && b->fill_bytes)
        error = send_next(b, b->field, b->fill_bytes, limit);
    if (!error)
        error = count_fields(b, limit);
    if (!error)
        error = ask(b, "RENAME", b->temp, b->key, limit);
    if (!error)
        error = ask_to_expire(b, b->key, b->redis->params.expire_s, limit);
    if (error)
        return error;
    error = kvl_redis_confirm(b->redis, b->link, limit);
    (void)kvl_redis_confirm(b->redis, b->link, limit); /* if not, it goes within a minute */
    return error;
}

/* What was written goes now; if the server cannot be told, within a minute. */
static void abandon(kvl_redis_blob *b, kvl_limit *limit)
{
    (void)catch_up(b, 0, limit);
    if (ask(b, "UNLINK", b->temp, NULL, limit) == 0)
        (void)kvl_redis_confirm(b->redis, b->link, limit);
}

int kvl_redis_end(void *blob, bool want_commit)
{
    kvl_redis_blob *b = blob;
    kvl_limit limit = kvl_limit_of(UINT64_MAX);
    int error = 0;

    if (kvl_redis_in_child(b->redis))
        error = b->is_put || want_commit ? ECHILD : 0;
    else if (want_commit)
        error = b->is_put ? commit(b, &limit) : EINVAL;
    if (b->is_put && (error || !want_commit) && error != ECHILD && !b->link->is_broken)
        abandon(b, &limit);
    end_blob(b);
    return error;
}
