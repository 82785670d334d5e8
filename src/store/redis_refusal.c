/* SPDX-License-Identifier: MIT */
/*
 * redis_refusal: what the error replies of a server mean: an errno value for the caller, and for the operator a line
 * with what to do, once for each kind. Never talks to the server.
 */
#include "store/redis.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

typedef struct refusal {
    const char *begin; /* of the reply */
    int error;
    const char *advice; /* NULL: it passes by itself */
} refusal;

/* Every row has a bit in kvl_redis.told; rows with one advice tell it once for each. */
static const refusal refusals[] = {
    {"NOAUTH", EACCES, "it wants a password: set kvlazy_redis_params.password, and user if it has users"},
    {"WRONGPASS", EACCES, "user or password are wrong"},
    {"ERR invalid password", EACCES, "the password is wrong"},
    {"ERR AUTH", EACCES, "it has no password: leave kvlazy_redis_params.password out"},
    {"ERR Client sent AUTH", EACCES, "it has no password: leave kvlazy_redis_params.password out"},
    {"ERR wrong number of arguments for 'auth'", ENOTSUP, "it is too old to know users: Redis 6 does"},
    {"NOPERM", EACCES,
     "this user lacks rights: allow the commands of hashes and keys, on keys that begin with the prefix"},
    {"READONLY", EROFS, "it is a read-only replica: give the address of the primary"},
    {"OOM", ENOSPC, "it is full and evicts nothing: set maxmemory-policy to allkeys-lru"},
    {"MISCONF", EROFS, "it cannot write to its disk and takes nothing: a cache needs no persistence, set save \"\""},
    {"ERR unknown command", ENOTSUP, "it is too old, or a command is forbidden: Redis 4, Valkey or newer is needed"},
    {"ERR wrong number of arguments", ENOTSUP, "it is too old: Redis 4, Valkey or newer is needed"},
    {"ERR DB index", EINVAL, "it has no such database: see kvlazy_redis_params.database"},
    {"ERR invalid DB index", EINVAL, "it has no such database: see kvlazy_redis_params.database"},
    {"ERR max number of clients", EAGAIN, "it has too many clients: raise maxclients"},
    {"MOVED", ENOTSUP, "it is part of a cluster, which is not supported: give a server of its own"},
    {"ASK", ENOTSUP, "it is part of a cluster, which is not supported: give a server of its own"},
    {"CLUSTERDOWN", ENOTSUP, "it is part of a cluster, which is not supported: give a server of its own"},
    {"WRONGTYPE", ENOENT, "another program has keys with our prefix: set kvlazy_redis_params.prefix"},
    {"LOADING", EAGAIN, NULL},
    {"ERR no such key", ENOENT, NULL}, /* it was evicted */
    {"MASTERDOWN", EAGAIN, NULL},
    {"BUSY", EAGAIN, NULL},
    {"", EIO, "an answer that is not known"},
};

void kvl_redis_log(const kvl_redis *redis, int level, const char *format, ...)
{
    char text[512];
    va_list args;

    if (!redis->params.log)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    redis->params.log(redis->params.log_ctx, level, text);
}

int kvl_redis_refusal(kvl_redis *redis, const char *text)
{
    const refusal *row = refusals;

    while (strncmp(text, row->begin, strlen(row->begin)) != 0)
        row++;
    uint32_t bit = UINT32_C(1) << (row - refusals);
    pthread_mutex_lock(&redis->lock);
    bool is_new = row->advice && !(redis->told & bit);
    redis->told |= bit;
    pthread_mutex_unlock(&redis->lock);
    if (is_new)
        kvl_redis_log(redis, KVLAZY_LOG_WARN, "%s: %s (it says: %.160s)", redis->where, row->advice, text);
    return row->error;
}
