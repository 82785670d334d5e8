/* SPDX-License-Identifier: MIT */
/*
 * lane: a few pieces of memory on their way to a file or from it, several at once: a disk that gets one request at a
 * time gives a third of what it has. A blob of a directory has one while it is open. A lane moves bytes and waits for
 * them; which bytes those are is the blob's matter.
 */
#ifndef KVL_STORE_LANE_H
#define KVL_STORE_LANE_H

#include "base/base.h"
#include "store/limit.h"

#include <linux/aio_abi.h>

enum {
    KVL_BLOCK_BYTES = 4096,      /* alignment of what goes around the page cache */
    KVL_PIECE_BYTES = 256 << 10, /* one request */
    KVL_LANE_PIECES = 8,         /* requests at once */
};

typedef struct kvl_piece {
    char *data;    /* [KVL_PIECE_BYTES], aligned */
    uint64_t at;   /* where in the file */
    size_t bytes;  /* asked for */
    int64_t moved; /* bytes, or a negative errno value; once it is no longer busy */
    bool is_busy;  /* the kernel has it */
    struct iocb job;
} kvl_piece;

typedef struct kvl_lane {
    struct kvl_lane *next; /* in a list of the owner */
    aio_context_t aio;     /* 0: the host has no such thing, and each request is waited for where it is made */
    uint32_t n_busy;
    kvl_piece piece[KVL_LANE_PIECES];
} kvl_lane;

/* NULL: no memory. */
kvl_lane *kvl_lane_new(void);

/* Waits for what the kernel still has; not so in a forked child, which has nothing to do with it. */
void kvl_lane_free(kvl_lane *lane, bool in_child);

/* Hands a piece to the kernel. False: it is to be moved in place. */
bool kvl_lane_start(kvl_lane *lane, kvl_piece *piece, int fd, bool is_write);

/* Until this piece is no longer busy. 0, ETIMEDOUT, or why the kernel does not tell. */
int kvl_lane_wait(kvl_lane *lane, const kvl_piece *piece, kvl_limit *limit);

/* Has the kernel given all pieces back? Does not wait. */
bool kvl_lane_is_idle(kvl_lane *lane);

#endif
