/* SPDX-License-Identifier: MIT */
/*
 * io: how bytes of a state get to the caller and from there. Calls the caller's function with the lock released, counts
 * what passes and keeps a checksum of it. A call begins with the lock held and ends so; in between it is out, but for
 * the pieces of work that look at the cache.
 */
#ifndef KVL_STATE_IO_H
#define KVL_STATE_IO_H

#include "core/lock.h"
#include "state/checksum.h"
#include "state/format.h"

/* Takes or fills all of these bytes. Returns KVLAZY_OK, KVLAZY_EIO, or KVLAZY_ESTATE: a state ends too early. */
typedef int (*kvl_state_pass)(void *ctx, void *data, size_t bytes);

/* The bytes of a note, and what the caller's function is. */
typedef struct kvl_state_ends {
    kvl_state_pass pass;
    void *ctx;
    int (*expect)(void *ctx, uint64_t bytes); /* told how many will be written, before the first. NULL: need not know */
    int (*at_end)(void *ctx); /* KVLAZY_OK: nothing follows. KVLAZY_ESTATE: bytes do. NULL: the caller knows */
    void *note;
    size_t note_bytes;                    /* to write; or room to read into */
    size_t *note_is;                      /* how many were read */
    bool (*reclaim)(kvlazy_cache *cache); /* a pool is short: others are asked, with the lock held */
} kvl_state_ends;

typedef struct kvl_state_io {
    kvlazy_cache *cache;
    const kvl_state_ends *ends;
    kvl_callback caller;
    kvl_checksum *sum;
    unsigned char *buffer; /* KVL_ROWS_PIECE_BYTES, and a number more */
    uint32_t name, number; /* of the section at hand */
    uint64_t n_passed;     /* bytes so far */
    kvl_state_fault fault; /* the first */
} kvl_state_io;

/* KVLAZY_ENOMEM: nothing is held. kvl_state_io_fini is due after both. */
int kvl_state_io_init(kvl_state_io *io, kvlazy_cache *cache, const kvl_state_ends *ends);
void kvl_state_io_fini(kvl_state_io *io);

/* Out of the cache, and in again. */
static inline void kvl_state_out(kvl_state_io *io)
{
    kvl_begin_callback(io->cache, &io->caller);
}

static inline void kvl_state_in(kvl_state_io *io)
{
    kvl_end_callback(io->cache, &io->caller);
}

/* Notes what is wrong; the first counts. Returns KVLAZY_ESTATE, or KVLAZY_OK where nothing is. */
int kvl_state_refuse(kvl_state_io *io, kvl_state_fault fault);

/* What is wrong goes to the log, with the lock held. Hands `status` through. */
int kvl_state_say(kvl_state_io *io, const char *call, int status);

/* Passes bytes on, outside of the cache: as they are, or as part of a section. */
int kvl_state_pass_raw(kvl_state_io *io, void *data, size_t bytes);
int kvl_state_pass_bytes(kvl_state_io *io, void *data, size_t bytes);

/* A section begins, and ends. The first two write a frame and a checksum, the others read and check them. */
int kvl_state_put_frame(kvl_state_io *io, uint32_t name, uint64_t bytes);
int kvl_state_put_checksum(kvl_state_io *io);
int kvl_state_get_frame(kvl_state_io *io, uint32_t name, uint64_t bytes);
int kvl_state_get_checksum(kvl_state_io *io);

#endif
