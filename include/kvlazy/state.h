/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/state.h: a conversation written out and read back.
 *
 * THE IDEA. A state is one sequence, or every sequence of a cache, as bytes: positions, owners, what later decisions
 * depend on, and the rows of K and V. It goes through two functions of the caller's, or to a file. It is read into
 * another cell arrangement, stream, process or machine, and the engine goes on with the same bits. docs/state-format.md
 * has the bytes.
 *
 * LIFE CYCLE. A slot is saved when its request ends, and loaded when its conversation comes back:
 *
 *     params.model_tag = digest; params.model_tag_bytes = 32;         // at create: weights, adapters, types, RoPE
 *     ...
 *     kvlazy_state_save(cache, seq, "slot.state", tokens, n * sizeof *tokens, 0);
 *     ...
 *     room = sizeof tokens;
 *     status = kvlazy_state_load(cache, seq, "slot.state", tokens, &room);    // opens a batch
 *     ... go on at kvlazy_seq_pos_max(cache, seq) + 1, and in the end ...
 *     kvlazy_end_batch(cache);
 *
 * WHAT FITS WHERE. A state is read by a cache with the same model_tag, rows, layers, position planes and window, on a
 * machine of the same byte order. kv_size, streams, where tensors lie and whether V is transposed may differ: rows are
 * row-major in a state, and turned on the way. Linked caches (kvlazy.h, part 5) are written and read as one, by a call
 * on any of them.
 *
 * TRUST. A state is read as if an enemy wrote it: it cannot make the library read or write outside of the cache, use
 * memory that it did not fill itself, or leave anything behind. Checksums find damage, not malice, and nothing can be
 * said of the numbers in its rows.
 *
 * CALLBACKS. The caller's functions run on the calling thread with no lock held. Calls on the cache from inside them
 * return KVLAZY_EBUSY (or -1, or 0, where there is no status), and kvlazy_destroy does nothing. Meanwhile kvlazy_poll,
 * _trim and _set_limits of other threads are EBUSY as in an open batch; kvlazy_stats is not.
 *
 * The calls need memory for the tokens' bookkeeping and a piece of 256 KiB, and hold the lock for a piece at a time.
 */
#ifndef KVLAZY_STATE_H
#define KVLAZY_STATE_H

#include "kvlazy.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Takes all of these bytes. Returns 0; anything else ends the call with EIO. */
typedef int (*kvlazy_write)(void *ctx, const void *data, size_t bytes);
/** Fills in all of these bytes. Returns 0; anything else ends the call with EIO. */
typedef int (*kvlazy_read)(void *ctx, void *data, size_t bytes);

/**
 * Tells how many bytes kvlazy_state_write would write now. seq -1: of the whole cache.
 * Fails: as kvlazy_state_write; *bytes is untouched.
 * Cost: O(tokens), as that of kvlazy_state_write without its rows.
 */
KVLAZY_API int kvlazy_state_bytes(kvlazy_cache *cache, kvlazy_seq_id seq, uint64_t *bytes);

/**
 * Writes a sequence, or with seq -1 the whole cache.
 *  - It is allowed outside of a batch, inside one, and inside on_evict.
 *  - What is written is what an end_batch has settled: tokens of the open batch are left out. A sequence without tokens
 *    is written too, and empties where it is read.
 *  - What is written is of one moment, or the call fails. Nothing changes, and it is no activity.
 * Fails:
 *  - EINVAL: an id is out of range, or `write` is NULL.
 *  - EIO: `write` failed.
 *  - ESHIFT: K rows wait to be rotated.
 *  - EPOS: the sequence lost tokens or was changed meanwhile, by another thread; or the open batch moved its positions
 *    or recycled what its settled tokens see, and has to end first.
 *  - ENOMEM: memory for the library's own lists was refused.
 *  - EBUSY: inside a callback of a state or a store.
 *  - ENOTSUP: a tensor lies on a device, or the engine keeps the cells; a child of fork that cannot have the lock.
 */
KVLAZY_API int kvlazy_state_write(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_write write, void *ctx);

/**
 * Reads a state into a sequence, whatever sequence it was; with seq -1 that of a whole cache into an empty one.
 *  - It is all or nothing. Rows go into empty cells, the lowest first, and become live together when all has arrived
 *    and every checksum agrees. What the sequence held goes only then, so there has to be room for both; remove it
 *    before, where there is not.
 *  - It needs an open batch, or opens one that stays open. The slots of earlier prepares are stale, after an error too.
 *  - It counts as activity. Pages are made present under every limit, as for a batch.
 *  - In a cache with a window no token of another sequence is recycled for it. Where cells are short, the sequence
 *    comes without what its next token does not see, as if recycling had taken it.
 * Fails: every sequence is as it was, what was written reads zero again, and a batch that the call opened is closed.
 *  - EINVAL: an id is out of range, `read` is NULL, or with seq -1 the cache is not empty.
 *  - EIO: `read` failed.
 *  - ESTATE: it is no state, a damaged one, or one of another model, geometry, kind or version. The log line names the
 *    first field that is wrong.
 *  - ESHIFT: K rows wait to be rotated.
 *  - ENOSLOT, EBUDGET, ENOMEM: as kvlazy_prepare and kvlazy_apply_ubatch.
 *  - EBUSY, ENOTSUP: as kvlazy_state_write.
 *  - EPOS: a cache was linked meanwhile.
 */
KVLAZY_API int kvlazy_state_read(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_read read, void *ctx);

/** Flags of kvlazy_state_save. */
enum {
    KVLAZY_STATE_SYNC = 1u << 0, /* the file and its name are on the disk when the call returns */
};

/**
 * Writes a state to a file, with a note of the caller's: which tokens these are, for instance. The file is written
 * beside its place, as PATH.XXXXXX of mode 0600, and renamed when it is complete: there is the old one or the new one.
 * A process that ends before leaves the file beside, which nothing removes. After a power loss that holds with
 * KVLAZY_STATE_SYNC alone; without, a file of the right length may read zeros, which is ESTATE, and the old one is gone.
 * A symbolic link in the file's place is replaced. note may be NULL where note_bytes is 0. The file can also be read
 * with kvlazy_state_read, which skips the note.
 * Fails: as kvlazy_state_write, EIO for what the file system refuses (the log line tells), and EINVAL for a NULL path
 * or an unknown flag. What is in the file's place is as it was, unless only its folder could not be synced (EIO).
 */
KVLAZY_API int kvlazy_state_save(kvlazy_cache *cache, kvlazy_seq_id seq, const char *path, const void *note,
                                 size_t note_bytes, uint32_t flags);

/**
 * Reads a state from a file, and its note. *note_bytes is the room for the note, and afterwards how long it is. A NULL
 * note_bytes: the note is skipped.
 * Fails: as kvlazy_state_read; EIO for a file that cannot be read, ESTATE for one that ends early or goes on behind its
 * end. EINVAL for a note that has no room, and *note_bytes is then what it takes. The room may have been written to.
 */
KVLAZY_API int kvlazy_state_load(kvlazy_cache *cache, kvlazy_seq_id seq, const char *path, void *note,
                                 size_t *note_bytes);

/**
 * Writes the rows of cells that the engine keeps (engine_cells.h), for an engine with a format of its own: n rows of
 * each tensor, by layer id, K before V, row-major and in the order of `cell`; nothing else.
 * Fails: as kvlazy_state_write; EINVAL for a stream or a cell out of range; ENOTSUP where the library keeps the cells.
 */
KVLAZY_API int kvlazy_state_rows_write(kvlazy_cache *cache, uint32_t stream, const uint32_t *cell, uint32_t n,
                                       kvlazy_write write, void *ctx);

/**
 * Reads such rows into cells that hold no token yet, or only in the engine's table. It needs an open batch, or opens
 * one that stays open, and counts as kvlazy_touch_cells of these cells.
 * Fails: as kvlazy_state_rows_write, and EBUDGET. The rows of these cells read zero if any was written, cells that were
 * not in use before are free again, and a batch that the call opened is closed.
 */
KVLAZY_API int kvlazy_state_rows_read(kvlazy_cache *cache, uint32_t stream, const uint32_t *cell, uint32_t n,
                                      kvlazy_read read, void *ctx);

#ifdef __cplusplus
}
#endif

#endif
