/* SPDX-License-Identifier: MIT */
/*
 * file: a file that appears whole or not at all, and one that is read from its beginning to its end. Written beside its
 * place under a name of its own, then renamed. Says what failed as a text; knows nothing of what it carries.
 */
#ifndef KVL_FILE_H
#define KVL_FILE_H

#include "base/base.h"

/* A file is written in multiples of a step, from multiples of it on: the page cache then takes pages that are as large,
 * and none in two parts. With steps of 4 KiB a file took a fifth longer. */
enum { KVL_FILE_WHY_BYTES = 96, KVL_FILE_STEP_BYTES = 64 << 10 };

typedef struct kvl_file {
    int fd;                       /* -1: not open */
    char *path;                   /* its place; NULL: read only */
    char *beside;                 /* where it is written */
    bool ended;                   /* reading met the end of the file */
    char *kept;                   /* [KVL_FILE_STEP_BYTES] what does not fill a step of the file yet */
    size_t n_kept;                /* bytes of it */
    char why[KVL_FILE_WHY_BYTES]; /* of the last KVLAZY_EIO */
} kvl_file;

/* A new file beside `path`, mode 0600. KVLAZY_EIO, KVLAZY_ENOMEM: there is none. */
int kvl_file_begin(kvl_file *file, const char *path);

/* How long it will be: see kvl_reserve_room. KVLAZY_EIO: there is no such room. */
int kvl_file_expect(kvl_file *file, uint64_t bytes);
int kvl_file_write(kvl_file *file, const void *data, size_t bytes);

/* The file takes its place, or is gone; closed in both cases. sync: it and its name are on the disk before that is
 * said. KVLAZY_EIO: what was in its place is there as before, unless only the folder could not be synced. */
int kvl_file_commit(kvl_file *file, bool sync);
void kvl_file_drop(kvl_file *file);

/* KVLAZY_EIO. A read that meets the end of the file returns KVLAZY_EIO too, and sets `ended`. */
int kvl_file_open(kvl_file *file, const char *path);
int kvl_file_read(kvl_file *file, void *data, size_t bytes);
void kvl_file_close(kvl_file *file);

/* Room for the whole of a new file, any that is open for writing: a full disk says so early, and to write in place is
 * cheaper than to make a file longer. Returns 0, or the errno of a disk that has no such room. A file system that
 * cannot tell is done without. */
int kvl_reserve_room(int fd, uint64_t bytes);

#endif
