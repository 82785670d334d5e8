/* SPDX-License-Identifier: MIT */
/*
 * redis: a Redis server as a place for blobs. A kvl_redis is the place, a kvl_redis_link one connection, which one call
 * or one open blob has for itself. hiredis connects. What is sent goes out here, since hiredis waits without a limit
 * and dies of SIGPIPE; and replies are read here, since it would copy each byte of a blob three times.
 */
#ifndef KVL_STORE_REDIS_H
#define KVL_STORE_REDIS_H

#include "base/base.h"
#include "store/limit.h"

#include <kvlazy/redis.h>

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <sys/types.h>

enum {
    KVL_REDIS_FIELD_BYTES = 508 << 10,
    KVL_REDIS_REST_MS = 1000, /* a server that does not answer is left alone for so long, then twice as long */
    KVL_REDIS_REST_MAX_MS = 60000,
    KVL_REDIS_IDLE_LINKS = 4, /* kept open for the next calls */
    KVL_REDIS_TEMP_S = 60,    /* what is not renamed goes */
    KVL_REDIS_ARGS = 6,
    KVL_REDIS_BUFFER_BYTES = 256 << 10,
    KVL_REDIS_LINE_BYTES = 256,
};

typedef struct kvl_redis_link {
    struct kvl_redis_link *next; /* idle ones */
    redisContext *context;
    char *buffer;      /* [KVL_REDIS_BUFFER_BYTES]: what arrived … */
    size_t begin, end; /* … and was not taken yet */
    size_t left;       /* bytes of the string that arrives now */
    bool is_broken;    /* out of step with the server: to be closed */
} kvl_redis_link;

typedef struct kvl_redis {
    kvlazy_redis_params params; /* strings are ours */
    char where[300];            /* for the log: "redis at /run/redis.sock" */
    pid_t pid;
    pthread_mutex_t lock; /* over what follows */
    kvl_redis_link *idle;
    uint32_t n_idle;
    uint64_t rest_ms, rest_until_ms; /* 0: it answers */
    uint32_t told;                   /* one bit for each kind of refusal */
} kvl_redis;

/* One command in words. */
typedef struct kvl_redis_words {
    int n;
    const char *word[KVL_REDIS_ARGS];
    size_t bytes[KVL_REDIS_ARGS];
} kvl_redis_words;

void kvl_redis_say(kvl_redis_words *words, const char *word); /* one word more; it must outlive its use */
void kvl_redis_say_bytes(kvl_redis_words *words, const void *data, size_t bytes);

/* ---- connections: redis_link_linux.c ---- */

bool kvl_redis_in_child(const kvl_redis *redis);
pid_t kvl_redis_this_process(void);

/* The address of a host as a number, of at most `bytes`. False: it is not found. */
bool kvl_redis_look_up(const char *host, char *address, size_t bytes);

/* A connection that is logged in. 0, EHOSTDOWN while the server is left alone, or why it is not to be had. */
int kvl_redis_take(kvl_redis *redis, kvl_redis_link **link);

/* Broken ones are closed. In a forked child all are. */
void kvl_redis_give(kvl_redis *redis, kvl_redis_link *link);
void kvl_redis_close(kvl_redis_link *link);

int kvl_redis_send(kvl_redis *redis, kvl_redis_link *link, const kvl_redis_words *words, kvl_limit *limit);

/* Until something can be read, or written. 0, or ETIMEDOUT, and then the link is out of step. */
int kvl_redis_wait(kvl_redis *redis, kvl_redis_link *link, short events, kvl_limit *limit);

/* It does not answer, or not as a Redis server does. */
void kvl_redis_rest(kvl_redis *redis, const char *why);

/* ---- replies: redis_reply_linux.c ---- */

/* The first line of a reply. kind ':': a number; '$': a string of so many bytes, -1: none; '+': else. */
typedef struct kvl_redis_reply {
    char kind;
    int64_t number;
    char line[KVL_REDIS_LINE_BYTES];
} kvl_redis_reply;

/* The reply to the eldest command that was sent. 0, or errno: that of a refusal too. A string's bytes, link->left, are
 * to be taken before the next reply. */
int kvl_redis_receive(kvl_redis *redis, kvl_redis_link *link, kvl_redis_reply *reply, kvl_limit *limit);
int kvl_redis_receive_bytes(kvl_redis *redis, kvl_redis_link *link, void *data, size_t bytes, kvl_limit *limit);
int kvl_redis_skip(kvl_redis *redis, kvl_redis_link *link, size_t bytes, kvl_limit *limit);

/* The whole reply, which nothing is wanted of. */
int kvl_redis_confirm(kvl_redis *redis, kvl_redis_link *link, kvl_limit *limit);

/* ---- refusals and what is told of them: redis_refusal.c ---- */

/* The errno value of an error reply. Tells the log what to do, the first time. */
int kvl_redis_refusal(kvl_redis *redis, const char *text);
__attribute__((format(printf, 3, 4))) void kvl_redis_log(const kvl_redis *redis, int level, const char *format, ...);

/* ---- blobs: redis_blob.c ---- */

enum { KVL_REDIS_KEY_BYTES = 256 };
bool kvl_redis_prefix_fits(const char *prefix);
void kvl_redis_key(const kvl_redis *redis, char key[KVL_REDIS_KEY_BYTES], const uint8_t *name);

int kvl_redis_open(void *ctx, const uint8_t *name, uint64_t put_bytes, void **blob);
int kvl_redis_read(void *blob, uint64_t at, void *data, size_t bytes, uint32_t max_ms);
int kvl_redis_write(void *blob, const void *data, size_t bytes, uint32_t max_ms);
int kvl_redis_end(void *blob, bool commit);
int kvl_redis_size(void *blob, uint64_t *bytes);

#endif
