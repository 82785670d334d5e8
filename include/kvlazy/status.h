/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/status.h: the status codes, their names and their texts. kvlazy.h includes this header.
 *
 * One list makes the enum, the names and the texts. The numbers are part of the ABI and never change. What a code
 * means in one call, and what that call leaves behind, stands at the call; in general:
 *
 *     EINVAL    an argument is wrong: the engine has a defect.
 *     ENOSLOT   no cell is free. Drop a sequence, or try a smaller batch.
 *     EBUDGET   the bytes would pass a limit: budget_bytes, the pool, or what the machine has left. Free pages were
 *               counted as room already. Drop a sequence, or try a smaller batch.
 *     ENOMEM    the operating system refused memory. Nothing changed; the call may be repeated later.
 *     EPOS      the batch does not go on where its sequence ends, mostly because an eviction took tokens. Ask
 *               kvlazy_seq_pos_max() and compute from there.
 *     ESHIFT    positions moved, and the K rows wait to be rotated (kvlazy_seq_add).
 *     EBUSY     a batch is open, or another thread is inside. Try again later.
 *     ESTATE    a state is damaged, or of another model, geometry or version (state.h). Or kvlazy_check() found a wrong
 *               figure: the library has a defect.
 *     EIO       the caller's reader or writer of a state failed, or the file system did.
 *     ENOTSUP   a cache of this kind never can.
 */
#ifndef KVLAZY_STATUS_H
#define KVLAZY_STATUS_H

#include "version.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVLAZY_STATUS_LIST(X)                                           \
    X(OK, 0, "success")                                                 \
    X(EINVAL, -1, "bad argument")                                       \
    X(ENOSLOT, -2, "no free cell: the hard maximum is reached")         \
    X(EBUDGET, -3, "a byte limit would be passed")                      \
    X(ENOMEM, -4, "the operating system refused memory")                \
    X(EPOS, -5, "the batch does not continue its sequence")             \
    X(ESHIFT, -6, "K rows wait to be rotated")                          \
    X(EBUSY, -7, "a batch is open, or the cache is being shrunk")       \
    X(ESTATE, -8, "malformed or foreign state, or a broken promise")    \
    X(EIO, -9, "the caller's reader or writer failed")                  \
    X(ENOTSUP, -10, "this cache cannot do that")

enum {
#define KVLAZY_STATUS_ENUM(name, value, text) KVLAZY_##name = (value),
    KVLAZY_STATUS_LIST(KVLAZY_STATUS_ENUM)
#undef KVLAZY_STATUS_ENUM
};

/** Returns "KVLAZY_EPOS" for KVLAZY_EPOS, and "KVLAZY_?" for a number that is no status. Never NULL. */
KVLAZY_API const char *kvlazy_status_name(int status);

/** Returns one line of text for a status. Never NULL. */
KVLAZY_API const char *kvlazy_status_message(int status);

#ifdef __cplusplus
}
#endif

#endif
