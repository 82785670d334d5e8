/* SPDX-License-Identifier: MIT */
/*
 * A Redis server of a test's own, on a Unix socket in a temporary directory, a place for blobs that reaches it, and
 * what that place told its log.
 */
#ifndef REDIS_SUPPORT_H
#define REDIS_SUPPORT_H

#include "store_support.h"

#include <hiredis/hiredis.h>

#include <kvlazy/redis.h>

struct redis_rig {
    char *dir;
    char socket[256];
    int pid; /* of the server; 0: none runs */
    kvlazy_redis_params params;
    kvlazy_store_ops ops;
    bool is_open;
    int n_open_files;
    char log[4096]; /* the lines, each with its end */
};

bool has_server(void); /* is redis-server installed? */

/* The setup starts nothing. */
int redis_setup(void **state);
int redis_teardown(void **state);
#define REDIS_TEST(f) cmocka_unit_test_setup_teardown(f, redis_setup, redis_teardown)

/* Options of the server follow, each a word, then NULL. It answers before this returns. */
void start_server(struct redis_rig *r, ...);
void kill_server(struct redis_rig *r);
void stop_server(struct redis_rig *r); /* SIGSTOP: it is there and says nothing */
void continue_server(struct redis_rig *r);

void open_redis(struct redis_rig *r); /* a place, with the parameters that stand */
void close_redis(struct redis_rig *r);

/* One command behind the place's back, as redisCommand has it. Its integer, or of a list how many there are. */
long long ask_server(struct redis_rig *r, const char *format, ...);
const char *key_of(uint32_t i); /* "kvlazy:{…}"; of 4 in turn */
int n_keys(struct redis_rig *r);

int n_said(struct redis_rig *r, const char *text); /* how often the log has it */

extern int64_t passed_ms; /* on all clocks of the library, beyond what passes by itself */
void stop_clocks(void);   /* nothing passes by itself any more, so that no call on a busy machine takes too long */
void start_clocks(void);

#endif
