/* SPDX-License-Identifier: MIT */
/*
 * dir: a directory as a place for blobs. A dir is the open place, a dir_blob one file of it that is being read or
 * written, a dir_space what the files take and which of them go first. All paths begin at one descriptor.
 *
 *     ROOT/3/f/3f09…        a blob, 64 digits
 *     ROOT/.tmp-8f2c…       a blob that is being written, where the file system has no O_TMPFILE
 */
#ifndef KVL_STORE_DIR_H
#define KVL_STORE_DIR_H

#include "store/lane.h"
#include "store/ops.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>

enum {
    KVL_HEX_BYTES = 2 * KVL_NAME_BYTES + 1, /* with the zero at its end */
    KVL_FAN_OUT = 16,                       /* directories below the root, and again below each of them */
    KVL_SPARE_LANES = 4,                    /* kept for the next blobs */
    KVL_STUCK_LANES = 8,                    /* that a disk which hangs may hold back */
    KVL_LOOK_MS = 10000,                    /* between two looks at all files; what was used since is never evicted */
};
#define KVL_TEMP_PREFIX ".tmp-"

/* One file, as the last look saw it. */
typedef struct kvl_dir_file {
    uint8_t name[KVL_NAME_BYTES];
    int64_t used_ns; /* modification time */
    uint64_t bytes;
} kvl_dir_file;

typedef struct kvl_dir_space {
    uint64_t max_bytes;
    uint64_t held_bytes;       /* of all files: the last look, and what this process did since */
    uint64_t in_flight_bytes;  /* promised to blobs that are being written */
    uint64_t unreserved_bytes; /* of those, what still counts as free space of the file system */
    kvl_dir_file *file;        /* [n_file], least recently used first; those before next_file are gone or were used */
    size_t n_file, next_file;
    uint64_t looked_at_ms, look_took_ms;
} kvl_dir_space;

typedef struct kvl_dir {
    int root;                  /* descriptor */
    pid_t pid;                 /* of the process that opened it: a forked child may not use it */
    uid_t uid;                 /* that its files belong to */
    atomic_bool use_names;     /* a file without a name cannot be given one here */
    atomic_bool look_due;      /* a file was dropped: what it took is not held any more */
    pthread_mutex_t lane_lock; /* over the two that follow, for a moment at a time: readers wait for no look */
    kvl_lane *spare;           /* of blobs that were closed; of some the disk still has pieces */
    uint32_t n_spare;
    pthread_mutex_t lock; /* over what follows, for as long as a look takes: only puts take it */
    kvl_dir_space space;
} kvl_dir;

typedef struct kvl_dir_blob {
    kvl_dir *dir;
    int fd;
    bool is_put;
    bool is_direct; /* around the page cache; false: through it, and out of it at once */
    uint8_t name[KVL_NAME_BYTES];
    char temp[24];    /* while it is written; "": it has no name yet */
    bool is_reserved; /* of a put: the disk has given the room for all of it */
    int error;        /* the first, of a put: it cannot be committed any more */
    uint64_t bytes;   /* of the whole */
    kvl_lane *lane;
    uint32_t first, n_piece; /* of the lane: of a blob that is read, its pieces in order; of one that is written, first
                                is being filled */
    uint64_t end;            /* in the file, behind the last piece that was asked for or sent */
    size_t fill_bytes;       /* in the piece that is being filled */
    bool in_order;           /* it is read from the beginning to the end */
} kvl_dir_blob;

/* ---- names, directories and clocks: dir_name_linux.c ---- */

void kvl_dir_hex(char hex[KVL_HEX_BYTES], const uint8_t *name);

/* The directory that a blob lies in, as a descriptor. 0 or errno; ENOENT: there is none, and `make` is false. */
int kvl_dir_leaf(const kvl_dir *dir, const char *hex, bool make, int *leaf);

/* One directory below another, the same way. */
int kvl_dir_below(int parent, char digit, bool make, int *below);

/* Is this what a blob of ours looks like? */
bool kvl_dir_is_blob(const kvl_dir *dir, const struct stat *st);

bool kvl_dir_in_child(const kvl_dir *dir);

int64_t kvl_dir_stamp_now_ns(void); /* the clock of modification times */
int64_t kvl_dir_stamp_ns(const struct stat *st);
struct timespec kvl_dir_timespec(int64_t stamp_ns);

/* ---- what is held: dir_space_linux.c. The caller holds the lock. ---- */

/* Looks at all files; old temporary ones go. 0 or errno, and then what the look before saw still holds. */
int kvl_dir_look(kvl_dir *dir);

/* Makes room for a blob and promises it. 0, ENOSPC, or what failed. */
int kvl_dir_promise(kvl_dir *dir, uint64_t bytes);

/* The disk has given the room for it, which is free space no longer. */
void kvl_dir_note_reserved(kvl_dir *dir, uint64_t bytes);

/* The promise is kept, or not. */
void kvl_dir_settle(kvl_dir *dir, uint64_t bytes, bool is_reserved, bool kept);

/* ---- one blob: dir_blob_linux.c ---- */

int kvl_dir_open(void *ctx, const uint8_t *name, uint64_t put_bytes, void **blob);
int kvl_dir_size(void *blob, uint64_t *bytes);
int kvl_dir_close(void *blob, bool commit);

/* ---- its bytes: dir_io_linux.c ---- */

/* False: the file system knows no other way than through the page cache. */
bool kvl_dir_set_direct(int fd, bool direct);

/* What is left of the last piece goes out, and the file gets its length. 0 or errno; EINVAL: it is not whole. */
int kvl_dir_put_end(kvl_dir_blob *blob);

/* The disk begins to read a blob that was just opened. What is read is not waited for; a disk whose queue is full may
 * take a moment to take a request. */
void kvl_dir_read_ahead(kvl_dir_blob *blob);

int kvl_dir_read(void *blob, uint64_t at, void *data, size_t bytes, uint32_t max_ms);
int kvl_dir_write(void *blob, const void *data, size_t bytes, uint32_t max_ms);

#endif
