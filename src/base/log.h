/* SPDX-License-Identifier: MIT */
/*
 * log: lines for an operator. Most lines arise while the lock is held, and the sink is the embedder's code. So a line
 * is noted first and handed to the sink after the lock was released. A sink may therefore call back into the cache.
 */
#ifndef KVL_LOG_H
#define KVL_LOG_H

#include "base/base.h"

enum {
    KVL_LOG_LINE_BYTES = 240,
    KVL_LOG_LINES = 4, /* lines that one call may note; of more than these only the number is told */
};

typedef struct kvl_log_line {
    int level;
    char text[KVL_LOG_LINE_BYTES];
} kvl_log_line;

typedef struct kvl_log {
    void (*sink)(void *ctx, int level, const char *text);
    void *ctx;
    char name[32];
    uint32_t n_line, n_lost;
    kvl_log_line line[KVL_LOG_LINES];
} kvl_log;

void kvl_log_init(kvl_log *log, const kvlazy_params *params);

/* Notes a line, "name: text". Does nothing without a sink. */
__attribute__((format(printf, 3, 4))) void kvl_log_note(kvl_log *log, int level, const char *format, ...);

/* Moves the noted lines to *out, so that kvl_log_tell can run after the lock was released. */
void kvl_log_take(kvl_log *log, kvl_log *out);

/* Hands the i-th line that was noted to the sink. Returns false when there is none. */
bool kvl_log_tell_next(kvl_log *log, uint32_t i);

/* Hands the noted lines to the sink. */
void kvl_log_tell(kvl_log *log);

/* "391M" for a number of bytes. */
enum { KVL_HUMAN_BYTES = 7 };
const char *kvl_human(char text[KVL_HUMAN_BYTES], uint64_t bytes);

#endif
