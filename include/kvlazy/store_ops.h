/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/store_ops.h: a place for blobs, the seam below the prefix store.
 *
 * The store names blobs and knows what is in them; a place keeps them. A place is one table of functions. The
 * library brings a directory (kvlazy_store_dir); an embedder may write another, and tests put a scripted one behind
 * the store.
 *
 * The contract, for all of them:
 *  - They return 0 or an errno value, they print nothing, and they may be called from any number of threads at once;
 *    one blob is used by one thread at a time.
 *  - A place may lose any blob at any time and refuse any call: to the store every error is a miss. What a place may
 *    never do is show a blob under a name before all of its bytes are there, or mix two blobs. What a crash or a disk
 *    did to the bytes, the store's checksums find.
 *  - What is gone is ENOENT, for open and for read: a miss. What is there and not whole or not right is ENODATA:
 *    damaged, and the store drops it.
 *  - A name is 32 bytes, a digest: one name stands for the same bytes for ever. A blob that is there is never written
 *    again in place.
 *  - A call ends in bounded time: after 200 ms in which nothing moved, and where max_ms is passed, after so much in
 *    all: ETIMEDOUT. max_ms 0 leaves no time to wait for anything. Time between two calls on a blob counts for neither.
 *  - A blob may be closed without one read, late, and while a disk or a server is still at it; has, touch and drop of
 *    its name may come while it is open.
 *  - A place that has a limit gives up what was used least recently, but nothing that was put or touched within the
 *    last ten seconds: a chain of blobs that is larger than the place is refused at its end (ENOSPC) and not eaten
 *    from its beginning. So touch what is there of a chain before putting what is missing.
 *  - Not for a forked child: there every call returns ECHILD and does nothing, close and destroy give back memory and
 *    descriptors and leave the rest to the parent.
 *  - A place is trusted like the model's weights: write access to it decides what a model attends to.
 */
#ifndef KVLAZY_STORE_OPS_H
#define KVLAZY_STORE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kvlazy_store_ops {
    size_t struct_size; /* sizeof(kvlazy_store_ops) */
    void *ctx;

    /* Which of n names are there. A yes is a good guess: open may find the blob gone. An error leaves `yes` undefined.
     */
    int (*has)(void *ctx, const uint8_t (*name)[32], uint32_t n, bool *yes);

    /* A blob of so many bytes to write, or with put_bytes 0 one to read. ENOENT: none of this name. ENOSPC: it does not
     * fit. *blob is untouched after an error. The store opens a blob to read a while before it reads it, one at a time,
     * so that a place may read ahead from here on. */
    int (*open)(void *ctx, const uint8_t *name, uint64_t put_bytes, void **blob);

    /* `bytes` of a blob opened to read, from byte `at` on, of any size and alignment. ENODATA: the blob ends before.
     * ENOENT: it went after it was opened. Cheapest in order and in large pieces. */
    int (*read)(void *blob, uint64_t at, void *data, size_t bytes, uint32_t max_ms);

    /* The next `bytes` of a blob opened to write, of any size and alignment. After an error the blob cannot be
     * committed any more. EINVAL: more than put_bytes in all. */
    int (*write)(void *blob, const void *data, size_t bytes, uint32_t max_ms);

    /* Ends a blob in any case. commit: what was written is visible from here on; if the name is there already either of
     * them stays, and this is a success. Otherwise nothing is left of it. EINVAL: less than put_bytes was written. */
    int (*close)(void *blob, bool commit);

    /* These were used now; the last one counts as used last. Of a chain the store passes the leaf first, so that leaves
     * go before what they hang on. A name that is not there is no error. */
    int (*touch)(void *ctx, const uint8_t (*name)[32], uint32_t n);

    /* Takes a blob away. Readers that have it open may go on. A name that is not there is no error. */
    int (*drop)(void *ctx, const uint8_t *name);

    /* The end of the place in this process; all blobs are closed. What is stored stays. */
    void (*destroy)(void *ctx);

    /* ---- What a place may lack: NULL. ---- */

    /* Bytes of a blob opened to read. The store reads no blob of a wrong size, and drops it. NULL: cannot tell, and
     * then kvlazy_store_tiers copies nothing from here. */
    int (*size)(void *blob, uint64_t *bytes);
} kvlazy_store_ops;

/**
 * A directory as a place for blobs, for any number of processes at once. Set ops->struct_size first.
 *
 * The directory is made (mode 0700) if only its last component is missing. It must belong to the user of the process,
 * with mode 0700, and not be a symbolic link. It holds one file of mode 0600 a blob, at a/b/abcd…, named in full by
 * 64 hexadecimal digits; a file that is a link, has a second link, or is not a regular file is no blob. Other files are
 * left alone. Blobs do not go through the page cache where the file system can do without (O_DIRECT), and leave
 * it at once where it cannot.
 *
 * max_bytes is what all blobs together may take, whichever process wrote them; what processes write at the same moment
 * may pass it until the next look, at most ten seconds later (later where a look takes longer than a tenth of a second:
 * one per cent of the time is for looking). Free space of the file system is kept above the smaller of 1 GiB and a
 * twentieth of it. The least recently used blobs go first, by the modification times of their files; a time in the
 * future counts as now. Temporary files of a crash (only where the file system has no O_TMPFILE) go after an hour.
 * Nothing is synced: after a power loss blobs may be missing or torn, which the store notices.
 *
 * Only for a local file system. On one of a network a call hangs as long as its server does, whatever max_ms says,
 * since nothing interrupts it; times are those of another clock; and a name may be visible before its bytes. NFS,
 * SMB, Ceph and AFS are refused. On a local one the time is looked at between pieces of 256 KiB: a disk that hangs
 * holds up one of them.
 *
 * Memory: 2 MiB for each blob that is open at once; 8 MiB are kept for the next ones. While a disk hangs, 16 MiB are
 * left to it; then no blob can be opened (EAGAIN) until it gives some back.
 * A look holds up the opening and closing of blobs that are written, and nothing else.
 *
 * Fails: EINVAL (ops, an empty path, max_bytes 0, or not such a directory as above), ENOTSUP (a file system of a
 * network), EIO (the system refused something), ENOMEM; *ops is untouched then. kvlazy_store_dir_why has words for it.
 * Cost: a look at every blob, 2 to 10 ms a thousand; more where the directory is not in memory.
 */
KVLAZY_API int kvlazy_store_dir(const char *path, uint64_t max_bytes, kvlazy_store_ops *ops);

/**
 * Would kvlazy_store_dir take this path? Returns OK, or the error that it would return, with the reason in words for a
 * log: "/var/cache/kv belongs to user 1000, this process is user 33". Makes the directory as kvlazy_store_dir does, but
 * puts nothing into it. text: at most text_bytes are written, "" for OK.
 */
KVLAZY_API int kvlazy_store_dir_why(const char *path, char *text, size_t text_bytes);

/**
 * Two places as one: a near one that is quick, as a directory, and a far one that many share, as a server. Set
 * ops->struct_size first. Reads the near one first; what only the far one has is written into the near one while it is
 * read, from the first byte on that arrived. Writes both, touches both, and is content with one. A failure of one is no
 * failure of the other, but for drop: what only one dropped would be found again. A call waits for the far one no
 * longer than it waits by itself and what is left of max_ms.
 * Owns both from here on: its destroy destroys them.
 * Fails: EINVAL (a table that lacks a function), ENOMEM; *ops is untouched then, and both are still the caller's.
 */
KVLAZY_API int kvlazy_store_tiers(const kvlazy_store_ops *near, const kvlazy_store_ops *far, kvlazy_store_ops *ops);

#ifdef __cplusplus
}
#endif

#endif
