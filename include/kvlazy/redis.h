/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/redis.h: Redis, or Valkey, as a place for the blobs of the prefix store, so that many machines find what one
 * of them computed. In a library of its own, libkvlazy_redis, which needs hiredis; libkvlazy does not.
 *
 * WHAT THE SERVER NEEDS. Redis 4 or Valkey, Redis 6 for a user's name. `maxmemory` and `maxmemory-policy allkeys-lru`:
 * its limits are the server's, and so is what it evicts; an expiry is ours. Not a cluster: MOVED and ASK are told in
 * the log and are a miss. No persistence is needed.
 *
 * KEYS. A blob is one hash, PREFIX:{64 hexadecimal digits}, with a field "bytes" and its bytes in fields 0, 1, 2 … of
 * 508 KiB (an allocator rounds 512 KiB and a little up by a quarter). It is written under PREFIX:{…}:RANDOM, which
 * expires by itself after a minute, and renamed when it is whole: so it is visible whole and evicted whole.
 *
 * SECURITY. hiredis is used without TLS: a Unix socket, a tunnel or a private network. Write access to the server is as
 * good as write access to the model's weights.
 *
 * FAILURE. Every failure is a miss. A server that does not answer costs one call 200 ms; then it is left alone for 1,
 * 2, 4 … 60 s, and calls fail at once (EHOSTDOWN). Connections are made again by themselves. What an operator can mend
 * is told in the log, once for each kind: a wrong password, missing rights, a read-only replica, a server that is full
 * or too old, a cluster. A get that is closed early takes what is on its way for 10 ms at most, and closes its
 * connection if there is more.
 */
#ifndef KVLAZY_REDIS_H
#define KVLAZY_REDIS_H

#include "store_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where the server is. kvlazy_redis_params_init() fills in the defaults; strings are copied. */
typedef struct kvlazy_redis_params {
    size_t struct_size;   /* sizeof(kvlazy_redis_params), by kvlazy_redis_params_init() */
    const char *socket;   /* path of a Unix socket. NULL (default): host and port */
    const char *host;     /* default "127.0.0.1". A name is looked up once, by kvlazy_store_redis, which waits for it */
    uint32_t port;        /* default 6379 */
    uint32_t database;    /* default 0 */
    const char *user;     /* NULL (default): the default user */
    const char *password; /* NULL (default): none */
    const char *prefix;   /* of all keys; default "kvlazy" */
    uint64_t expire_s;    /* a blob that was not used for so long goes; default 604800, 7 days. 0: never */

    /* Receives one line of text per event, without a line end, on the thread that made the call, with no lock held;
     * level is one of KVLAZY_LOG_*. NULL (default): silence. */
    void (*log)(void *ctx, int level, const char *text);
    void *log_ctx;
} kvlazy_redis_params;

/** Fills in the defaults. */
KVLAZY_API void kvlazy_redis_params_init(kvlazy_redis_params *params);

/**
 * A place for blobs on a Redis server, for any number of threads, processes and machines at once. Set ops->struct_size
 * first. Connects when it is first used: a server that is down now is one that is back later.
 * Fails: ENOMEM; EINVAL for ops, an empty socket or host, a host that is not found, port 0 or above 65535, a user
 * without a password, a prefix that is empty, has a `{` or takes 156 bytes or more, and expire_s above INT32_MAX; the
 * log line says which. *ops is untouched then.
 * Cost: a connection for each blob that is open at the same time, and 256 KiB; 508 KiB more while it is written.
 */
KVLAZY_API int kvlazy_store_redis(const kvlazy_redis_params *params, kvlazy_store_ops *ops);

#ifdef __cplusplus
}
#endif

#endif
