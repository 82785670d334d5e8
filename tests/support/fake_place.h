/* SPDX-License-Identifier: MIT */
/*
 * A place for blobs in memory that does what a test says: fails the n-th call, is slow, refuses, forgets. Counts what
 * it is asked, and fails the test if a blob is left open.
 */
#ifndef FAKE_PLACE_H
#define FAKE_PLACE_H

#include "store_support.h"

enum { FAKE_CALLS = 8 };
enum { FAKE_HAS, FAKE_OPEN, FAKE_READ, FAKE_WRITE, FAKE_CLOSE, FAKE_TOUCH, FAKE_DROP, FAKE_DESTROY };

struct fake_blob {
    uint8_t name[32];
    uint8_t *data;
    uint64_t bytes;
    struct fake_blob *next;
};

struct fake_place {
    struct fake_blob *blob; /* that are there */
    int n_open;
    int n_call[FAKE_CALLS];
    int error[FAKE_CALLS]; /* that these calls answer; 0: they work */
    int fail_in;           /* n > 0: the n-th call of any kind fails with EIO */
    uint32_t max_ms;       /* of the last read or write */
    uint32_t slow_ms;      /* real time that a read or a write takes */
    bool no_size, destroyed;
};

/* A table over it; the fake must outlive it. */
kvlazy_store_ops fake_ops(struct fake_place *fake);
void fake_clear(struct fake_place *fake); /* wants nothing open */
const struct fake_blob *fake_find(const struct fake_place *fake, const uint8_t *name);

#endif
