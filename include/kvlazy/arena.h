/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/arena.h: memory that the engine lays out itself.
 *
 * THE IDEA. An arena is a range of address space that costs nothing until it is written. That is all that a buffer type
 * of an engine's allocator needs: reserve, carve tensors out of it, clear by discarding. A cache learns where its
 * tensors lie by kvlazy_layer.k, .v and .arena, and treats them as its own: it commits what a batch writes, and gives
 * back what no cell needs. An engine that lets the library lay out its tensors does without this header.
 *
 * LIFE CYCLE. One K tensor with rows of 1024 bytes, kv_size cells:
 *
 *     kvlazy_arena_create(NULL, n_bytes, &arena, &base);
 *     memset(&k, 0, sizeof k);                            // a kvlazy_tensor
 *     k.data = base;
 *     k.row_bytes = 1024;
 *     k.cell_stride = 1024;
 *     k.stream_stride = 1024 * kv_size;
 *     memset(layers, 0, sizeof layers);                   // of kvlazy_layer
 *     layers[0].k_row_bytes = 1024;
 *     layers[0].k = &k;
 *     layers[0].arena = arena;
 *     ... kvlazy_create, batches, kvlazy_destroy ...
 *     kvlazy_arena_destroy(arena);                        // after every cache that uses it
 *
 * RULES.
 *  - Tensors lie inside their arena and do not run into one another. Between rows, channels and streams there may be
 *    padding.
 *  - Bytes that no layer names are never touched by a cache. A page with such bytes, padding too, never goes back.
 *  - One cache uses an arena, or several linked ones.
 *  - Part of a cache may be laid out by the library and part of it here. Arenas and cache have pages of one size: the
 *    largest up to 64 KiB that the host grants. The first kvlazy_create or kvlazy_plan that names an arena, while no
 *    cache uses it, changes it to the host's own pages where its rows are too small or page_bytes says so.
 *  - A tensor that does not begin on a page shares one with its neighbour, and that page goes back when both are free.
 *  - KVLAZY_DONTFORK and KVLAZY_HUGE_PAGES are about what the library lays out. With tensors in an arena they are
 *    ENOTSUP.
 *  - A rule that is broken is EINVAL from kvlazy_create, and the log line names the layer, K or V, and the value that is
 *    wrong. Cells of one tensor between those of another, as where K and V of a cell are neighbours, are ENOTSUP.
 *
 * DEVICES. A tensor with data NULL lies on a device. Cells, soft cap and eviction work; its bytes are never touched or
 * counted; no cell of that cache ever moves; copies across streams are ENOTSUP.
 *
 * docs/tensors.md has a picture of each layout, and recipes for those that engines have: K and V as neighbours or in two
 * arenas, lanes of heads, scales, rings, blocks.
 */
#ifndef KVLAZY_ARENA_H
#define KVLAZY_ARENA_H

#include "kvlazy.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Reserves that many bytes of address space (0 is legal), page-aligned and reading zero. mem is copied; NULL: this
 * host. *base is NULL for 0 bytes.
 * Fails: *arena and *base are untouched.
 *  - EINVAL: a NULL pointer, a table that is none, or more bytes than an address holds.
 *  - ENOMEM: the host refuses.
 */
KVLAZY_API int kvlazy_arena_create(const kvlazy_mem *mem, size_t bytes, kvlazy_arena **arena, void **base);

/**
 * Clears a range: its bytes read zero afterwards, whatever the kernel answers, and its whole pages are given back.
 * Tokens of a cache that lie there are lost: drop them first. Takes the lock of the caches that use the arena.
 * Fails: EINVAL for a range that is not inside; nothing changed.
 */
KVLAZY_API int kvlazy_arena_discard(kvlazy_arena *arena, size_t offset, size_t bytes);

/**
 * Gives everything back. NULL is allowed.
 * Fails: EBUSY while a cache uses the arena; EINVAL for what is no arena. The arena stays as it is.
 */
KVLAZY_API int kvlazy_arena_destroy(kvlazy_arena *arena);

/** Returns the size of the pages of a new arena, which is the alignment that tensors should have: then none shares a
 * page with another. NULL: this host. 0: `mem` is no table. */
KVLAZY_API size_t kvlazy_page_bytes(const kvlazy_mem *mem);

#ifdef __cplusplus
}
#endif

#endif
