/* SPDX-License-Identifier: MIT */
/*
 * Between the library and the system calls of a directory of blobs: the n-th one fails, some are not to be had, time
 * passes as a test says. For executables linked with --wrap for fail_os_wrap of tests/CMakeLists.txt.
 */
#ifndef FAIL_OS_H
#define FAIL_OS_H

#include <stdbool.h>
#include <stdint.h>

struct fail_os {
    int fail_in; /* n > 0: the n-th call while armed fails, once, */
    int error;   /* with this */
    bool armed, failed;
    const char *call; /* the one that failed */

    bool no_tmpfile, no_direct, no_empty_path, no_proc, no_rename, no_fallocate, no_aio; /* what a file system lacks */
    bool odd_blocks;      /* uncached reads and writes are refused: the blocks of this disk are larger */
    long fs_type;         /* 0: as it is */
    uint64_t total_bytes; /* of the file system; 0: as it is */
    uint64_t free_bytes;
    int64_t passed_ms;   /* the clocks stand still but for this */
    uint32_t ms_a_piece; /* that a read or a write takes */
    bool hangs;          /* no request that was handed to the kernel comes back, until this is false again */
    int bad_answer;      /* the next of them comes back with this: a number of bytes, or a negative errno value */
    int n_sync;          /* calls of sync_file_range */
    int n_submit;        /* requests that were handed to the kernel */
    int n_lane;          /* contexts for requests that were made and not yet given back */

    const char *hook_at; /* runs once: before a call of this name, or behind one that gave a file its name ("linked") */
    void (*hook)(void *ctx);
    void *hook_ctx;
};
extern struct fail_os fail_os;

#endif
