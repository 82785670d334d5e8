/* SPDX-License-Identifier: MIT */
/*
 * redis: a Redis server is made a place for blobs, and asked by name: has, touch, drop. Looks at parameters and keys,
 * never at the bytes of a blob.
 */
#include "store/redis.h"
#include "store/ops.h"

#include <errno.h>
#include <stdio.h>

#include <bsd/string.h>

/* ------------------------------------------------------------------------------------------- words */

void kvl_redis_say_bytes(kvl_redis_words *words, const void *data, size_t bytes)
{
    KVL_ASSERT(words->n < KVL_REDIS_ARGS);
    words->word[words->n] = data;
    words->bytes[words->n++] = bytes;
}

void kvl_redis_say(kvl_redis_words *words, const char *word)
{
    kvl_redis_say_bytes(words, word, strlen(word));
}

bool kvl_redis_prefix_fits(const char *prefix)
{
    return *prefix && !strchr(prefix, '{') && strlen(prefix) < KVL_REDIS_KEY_BYTES - 100;
}

/* The braces keep a blob and its temporary name together, should there be several servers behind one. */
void kvl_redis_key(const kvl_redis *redis, char key[KVL_REDIS_KEY_BYTES], const uint8_t *name)
{
    int n = snprintf(key, KVL_REDIS_KEY_BYTES, "%s:{", redis->params.prefix);

    for (int i = 0; i < 32; i++)
        n += snprintf(key + n, KVL_REDIS_KEY_BYTES - (size_t)n, "%02x", name[i]);
    strlcat(key, "}", KVL_REDIS_KEY_BYTES);
}

/* ------------------------------------------------------------------------------------------- by name */

enum { BATCH = 64 }; /* commands sent before their replies are read */

/* One command for each of n names: verb, key, and a third word unless it is NULL. Calls `heed` with each reply; a
 * refusal of one is none of the others. */
typedef struct by_name {
    const char *verb, *third;
    void (*heed)(void *arg, uint32_t i, const kvl_redis_reply *reply);
    void *arg;
} by_name;

static int ask_batch(kvl_redis *redis, kvl_redis_link *link, const by_name *ask, const uint8_t (*name)[32],
                     uint32_t begin, uint32_t end)
{
    kvl_limit limit = kvl_limit_of(UINT64_MAX);
    int error = 0;

    for (uint32_t i = begin; i < end && !error; i++) {
        char key[KVL_REDIS_KEY_BYTES];
        kvl_redis_words words = {0};

        kvl_redis_key(redis, key, name[i]);
        kvl_redis_say(&words, ask->verb);
        kvl_redis_say(&words, key);
        if (ask->third)
            kvl_redis_say(&words, ask->third);
        error = kvl_redis_send(redis, link, &words, &limit);
    }
    for (uint32_t i = begin; i < end && !link->is_broken; i++) {
        kvl_redis_reply reply;
        int refused = kvl_redis_receive(redis, link, &reply, &limit);

        if (!refused && ask->heed)
            ask->heed(ask->arg, i, &reply);
        if (!refused)
            refused = kvl_redis_skip(redis, link, link->left, &limit);
        if (refused && refused != ENOENT && !error)
            error = refused;
    }
    return error;
}

static int ask_all(kvl_redis *redis, const by_name *ask, const uint8_t (*name)[32], uint32_t n)
{
    kvl_redis_link *link;
    int error = kvl_redis_take(redis, &link);

    if (error)
        return error;
    for (uint32_t i = 0; i < n && !error; i += BATCH)
        error = ask_batch(redis, link, ask, name, i, (uint32_t)kvl_min(n, i + BATCH));
    kvl_redis_give(redis, link);
    return error;
}

static void note_one(void *arg, uint32_t i, const kvl_redis_reply *reply)
{
    bool *yes = arg;

    yes[i] = reply->kind == ':' && reply->number == 1;
}

static int redis_has(void *ctx, const uint8_t (*name)[32], uint32_t n, bool *yes)
{
    const by_name ask = {"HEXISTS", "bytes", note_one, yes};

    memset(yes, 0, n * sizeof *yes);
    return ask_all(ctx, &ask, name, n);
}

static int redis_touch(void *ctx, const uint8_t (*name)[32], uint32_t n)
{
    kvl_redis *redis = ctx;
    char seconds[24];
    by_name ask = {.verb = "EXPIRE", .third = seconds};

    if (!redis->params.expire_s) /* the server's own clock of use is enough */
        ask = (by_name){.verb = "TOUCH"};
    snprintf(seconds, sizeof seconds, "%llu", (unsigned long long)redis->params.expire_s);
    return ask_all(redis, &ask, name, n);
}

static int redis_drop(void *ctx, const uint8_t *name)
{
    const by_name ask = {.verb = "UNLINK"};

    return ask_all(ctx, &ask, (const uint8_t(*)[32])name, 1);
}

/* ------------------------------------------------------------------------------------------- create */

void kvlazy_redis_params_init(kvlazy_redis_params *params)
{
    *params = (kvlazy_redis_params){.struct_size = sizeof *params,
                                    .host = "127.0.0.1",
                                    .port = 6379,
                                    .prefix = "kvlazy",
                                    .expire_s = 7 * 24 * 3600};
}

/* NULL stays NULL. False: no memory. */
static bool own(const char **text)
{
    if (*text)
        *text = strdup(*text);
    return *text != NULL;
}

static void free_redis(kvl_redis *redis)
{
    const char **text[] = {&redis->params.socket, &redis->params.host, &redis->params.user, &redis->params.password,
                           &redis->params.prefix};

    for (size_t i = 0; i < sizeof text / sizeof *text; i++)
        free((char *)(uintptr_t)*text[i]);
    free(redis);
}

static void redis_destroy(void *ctx)
{
    kvl_redis *redis = ctx;

    while (redis->idle) {
        kvl_redis_link *link = redis->idle;

        redis->idle = link->next;
        kvl_redis_close(link);
    }
    if (!kvl_redis_in_child(redis))
        pthread_mutex_destroy(&redis->lock);
    free_redis(redis);
}

/* Which parameter is wrong; NULL: none is. */
static const char *wrong(const kvlazy_redis_params *p)
{
    if (p->socket ? !*p->socket : !p->host || !*p->host)
        return "socket or host";
    if (!p->socket && (!p->port || p->port > 65535))
        return "port";
    if (p->user && !p->password)
        return "user without a password";
    if (!p->prefix || !kvl_redis_prefix_fits(p->prefix))
        return "prefix";
    return p->expire_s > INT32_MAX ? "expire_s" : NULL;
}

static kvl_redis *new_redis(const kvlazy_redis_params *params)
{
    kvl_redis *redis = calloc(1, sizeof *redis);

    if (!redis)
        return NULL;
    kvlazy_redis_params *p = &redis->params;
    *p = *params;
    bool whole = own(&p->socket) | !params->socket;
    whole &= own(&p->host) | !params->host;
    whole &= own(&p->user) | !params->user;
    whole &= own(&p->password) | !params->password;
    whole &= own(&p->prefix);
    redis->pid = kvl_redis_this_process();
    if (p->socket)
        snprintf(redis->where, sizeof redis->where, "redis at %s", p->socket);
    else
        snprintf(redis->where, sizeof redis->where, "redis at %s, port %u", params->host, p->port);
    if (!whole || pthread_mutex_init(&redis->lock, NULL) != 0) {
        free_redis(redis);
        return NULL;
    }
    return redis;
}

static const uint16_t params_end[] = {
    KVL_END(kvlazy_redis_params, socket),
    KVL_END(kvlazy_redis_params, host),
    KVL_END(kvlazy_redis_params, port),
    KVL_END(kvlazy_redis_params, database),
    KVL_END(kvlazy_redis_params, user),
    KVL_END(kvlazy_redis_params, password),
    KVL_END(kvlazy_redis_params, prefix),
    KVL_END(kvlazy_redis_params, expire_s),
    KVL_END(kvlazy_redis_params, log),
    KVL_END(kvlazy_redis_params, log_ctx),
    0,
};

_Static_assert(KVL_IS_LAST(kvlazy_redis_params, log_ctx), "a member is not among the ends");

int kvlazy_store_redis(const kvlazy_redis_params *theirs, kvlazy_store_ops *ops)
{
    kvlazy_redis_params params;
    char address[64];

    if (!theirs || !kvl_input_fits(theirs, sizeof params, params_end) || !kvl_ops_can_be_filled(ops))
        return KVLAZY_EINVAL;
    kvlazy_redis_params_init(&params);
    kvl_struct_copy(&params, sizeof params, theirs, kvl_struct_size(theirs));
    const kvl_redis teller = {.params = params};
    if (wrong(&params)) {
        kvl_redis_log(&teller, KVLAZY_LOG_ERROR, "redis: %s does not do", wrong(&params));
        return KVLAZY_EINVAL;
    }
    if (!params.socket && !kvl_redis_look_up(params.host, address, sizeof address)) {
        kvl_redis_log(&teller, KVLAZY_LOG_ERROR, "redis: host %s is not found", params.host);
        return KVLAZY_EINVAL;
    }
    if (!params.socket)
        params.host = address;
    kvl_redis *redis = new_redis(&params);
    if (!redis)
        return KVLAZY_ENOMEM;
    kvlazy_store_ops table = {
        .ctx = redis,
        .has = redis_has,
        .open = kvl_redis_open,
        .read = kvl_redis_read,
        .write = kvl_redis_write,
        .close = kvl_redis_end,
        .touch = redis_touch,
        .drop = redis_drop,
        .destroy = redis_destroy,
        .size = kvl_redis_size,
    };
    kvl_struct_fill(ops, &table, sizeof table);
    return KVLAZY_OK;
}
