/* SPDX-License-Identifier: MIT */
/*
 * A place for blobs in memory that does what a test says: fails the n-th call, is slow, refuses, forgets, tears blobs,
 * and lies. Counts what it is asked, and fails the test if a blob is left open.
 */
#ifndef FAKE_PLACE_H
#define FAKE_PLACE_H

#include "store_support.h"

enum { FAKE_CALLS = 8 };
enum { FAKE_HAS, FAKE_OPEN, FAKE_READ, FAKE_WRITE, FAKE_CLOSE, FAKE_TOUCH, FAKE_DROP, FAKE_DESTROY };

/* What a read brings: the truth, one wrong bit, the bytes of another blob, or none though it says that it did. */
enum { FAKE_TRUTH, FAKE_FLIP, FAKE_OTHER, FAKE_NOTHING };

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
    int lie;                                           /* FAKE_TRUTH … */
    uint64_t flip_at;                                  /* of each read, modulo its bits */
    bool has_lies;                                     /* has says yes to all */
    bool tears;                                        /* commit keeps half of a blob */
    void (*inside)(struct fake_place *fake, int call); /* runs in every call, first */
    void *ctx;                                         /* of the test */
};

/* A table over it; the fake must outlive it. */
kvlazy_store_ops fake_ops(struct fake_place *fake);
void fake_clear(struct fake_place *fake); /* wants nothing open */
void fake_put(struct fake_place *fake, const uint8_t *name, const uint8_t *data, uint64_t bytes);
void fake_lose(struct fake_place *fake, uint32_t n); /* the n-th blob, modulo how many there are */
const struct fake_blob *fake_find(const struct fake_place *fake, const uint8_t *name);

#endif
