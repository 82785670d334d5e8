/* SPDX-License-Identifier: MIT */
/*
 * geometry: where the bytes are. Maps (tensor, stream, cells) to byte offsets in one reservation. Pure
 * arithmetic: knows nothing of tokens, pages that are touched, or the operating system.
 *
 * One reservation holds every tensor, one after the other, each starting on a page:
 *
 *     | layer 0 K ........ pad| layer 0 V ........ pad| layer 1 K ........ pad| ...
 *     ^ page                  ^ page                  ^ page
 *
 * and a tensor is packed, row-major, stream after stream, so that an engine may view it as one run of
 * n_stream · kv_size rows. Rows need not divide a page and streams need not start on one:
 *
 *     page      |          0          |          1          |          2          |
 *     stream    | 0                              | 1                              |pad
 *     cell      | 0   | 1   | 2   | 3   | 4   |  | 0   | 1   | ...
 *                                   ^ two pages    ^ shares a page with stream 0
 */
#ifndef KVL_GEOMETRY_H
#define KVL_GEOMETRY_H

#include "base.h"

/* Bytes of the reservation, [begin, end). */
typedef struct kvl_span {
    uint64_t begin, end;
} kvl_span;

typedef struct kvl_tensor {
    uint64_t offset;        /* of stream 0, cell 0 */
    uint64_t end;           /* of its last page: the padding up to there is nobody else's */
    uint64_t cell_stride;   /* = row_bytes: packed */
    uint64_t stream_stride; /* = kv_size · cell_stride */
    uint32_t layer_id;
    bool is_v;
} kvl_tensor;

typedef struct kvl_geometry {
    uint32_t kv_size, n_stream;
    uint64_t page_bytes;
    uint64_t reserved_bytes; /* whole pages, all tensors */
    uint64_t cell_bytes;     /* one cell's rows in all tensors */
    uint32_t n_tensor;
    kvl_tensor *tensor; /* ascending offsets */
} kvl_geometry;

/* Lays the tensors of the layers out. KVLAZY_EINVAL when the sizes pass what an address can hold,
 * KVLAZY_ENOMEM; nothing is held then. */
int kvl_geometry_init(kvl_geometry *geometry, const kvlazy_layer *layer, uint32_t n_layer, uint32_t kv_size,
                      uint32_t n_stream, uint64_t page_bytes);
void kvl_geometry_fini(kvl_geometry *geometry);

/* NULL: no such tensor. */
const kvl_tensor *kvl_geometry_find(const kvl_geometry *geometry, uint32_t layer_id, bool is_v);

/* Bytes of the pages that the first n cells of every stream lie on, each page once. */
uint64_t kvl_geometry_cover_bytes(const kvl_geometry *geometry, uint32_t n_cell);

/* The rows of the cells [begin, end) of a stream. */
static inline kvl_span kvl_tensor_span(const kvl_tensor *tensor, uint32_t stream, uint32_t begin, uint32_t end)
{
    uint64_t base = tensor->offset + stream * tensor->stream_stride;

    return (kvl_span){base + begin * tensor->cell_stride, base + end * tensor->cell_stride};
}

#endif
