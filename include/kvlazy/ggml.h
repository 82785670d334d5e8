/* SPDX-License-Identifier: MIT */
/*
 * kvlazy/ggml.h: arenas as a buffer type of ggml, and layers read off ggml's tensors. In a library of its own,
 * libkvlazy_ggml, which is built against the sources of a ggml (CMake: KVLAZY_GGML_DIR); libkvlazy needs none.
 *
 * THE IDEA. An engine over ggml lets it allocate the tensors of its K/V cache, and writes and reads them by graphs.
 * With this buffer type they lie in an arena of address space, which costs nothing until it is written, and a cache
 * learns from the tensors themselves where its rows are. Nothing else of the engine has to know.
 *
 * LIFE CYCLE. Of an engine with its K and V tensors in a ggml_context:
 *
 *     buffer = ggml_backend_alloc_ctx_tensors_from_buft(ctx, kvlazy_ggml_buffer_type());
 *     for (i = 0; i < n_layer; i++) {
 *         rows[i].struct_size = sizeof rows[i];
 *         if (kvlazy_ggml_layer(k_cache[i], v_cache[i], v_trans, kv_size, n_stream, &rows[i]) != KVLAZY_OK)
 *             ... rows[i].why says which tensor, and what of it ...
 *         layers[i] = rows[i].layer;
 *         layers[i].id = i;
 *     }
 *     ... kvlazy_create, batches, kvlazy_destroy ...
 *     ggml_backend_buffer_free(buffer);                   // after every cache in it
 *
 * docs/llama-cpp.md puts it into llama.cpp.
 *
 * WHICH GGML. The sources say: what a buffer type is made of is declared in ggml-backend-impl.h, which ggml does not
 * install and changes from time to time. Build against the one that the engine links.
 */
#ifndef KVLAZY_GGML_H
#define KVLAZY_GGML_H

#include "arena.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_tensor;
struct ggml_backend_buffer;
struct ggml_backend_buffer_type;

/**
 * Returns the buffer type, always the same one; never NULL. It is memory of the host, so that the CPU backend computes
 * in it.
 *  - A buffer is an arena of this host (kvlazy_arena_create). Each tensor begins on a page.
 *  - Clearing a buffer or a part of a tensor to 0 gives pages back (kvlazy_arena_discard). Any other value is written.
 *    Drop a cache's tokens first.
 *  - A buffer that is freed while a cache still uses it keeps its address space until the process ends.
 */
KVLAZY_API struct ggml_backend_buffer_type *kvlazy_ggml_buffer_type(void);

/** Returns the arena of a buffer; NULL for a buffer of another type. The buffer owns it. */
KVLAZY_API kvlazy_arena *kvlazy_ggml_arena(const struct ggml_backend_buffer *buffer);

enum { KVLAZY_GGML_WHY = 160 };

/** A layer as kvlazy_create() takes it, with the tensors that `layer` points to: so it stays where it is until then. */
typedef struct kvlazy_ggml_rows {
    size_t struct_size; /* sizeof(kvlazy_ggml_rows) */
    kvlazy_layer layer; /* of id 0: the engine's number is for the engine to put there */
    kvlazy_tensor k, v;
    char why[KVLAZY_GGML_WHY]; /* after a refusal: which tensor, and what of it; else empty */
} kvlazy_ggml_rows;

/**
 * Reads off two tensors of a layer where its rows lie. Either may be NULL: K or V alone.
 *  - The shape is taken as it lies in memory: the innermost dimensions are a row, then come kv_size cells, then
 *    n_stream streams. So views, permuted ones too, serve as well as the tensors they show; rows may be quantised.
 *  - v_trans: V is transposed. Innermost are the cells, then a row's channels, then the streams. A tensor of the
 *    shape [row, cells, streams] that is used as a transposed one, as llama.cpp does, is described as that.
 *  - A tensor whose buffer is no memory of the host is described as one on a device (arena.h): its cells work, and its
 *    bytes are not looked at.
 *
 * Fails: *rows has `why` alone.
 *  - EINVAL: rows is NULL or its struct_size is none; kv_size or n_stream is 0; a tensor has no such dimension or no
 *    buffer yet.
 *  - ENOTSUP: what kvlazy cannot describe: memory of the host of another buffer type; K and V in two buffers; a
 *    transposed V of a quantised type; parts of a row that are apart; cells, channels or streams that overlap.
 */
KVLAZY_API int kvlazy_ggml_layer(const struct ggml_tensor *k, const struct ggml_tensor *v, bool v_trans,
                                 uint32_t kv_size, uint32_t n_stream, kvlazy_ggml_rows *rows);

#ifdef __cplusplus
}
#endif

#endif
