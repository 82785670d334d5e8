/* SPDX-License-Identifier: MIT */
/*
 * geometry: where the bytes of cells lie. Maps (tensor, stream, cells) to spans of bytes in an arena. Pure arithmetic:
 * knows nothing of tokens, touched pages or the operating system.
 *
 * The library's own tensors lie in one reservation, one after the other, each starting on a page:
 *
 *     | layer 0 K ........ pad| layer 0 V ........ pad| layer 1 K ........ pad| ...
 *     ^ page                  ^ page                  ^ page
 *
 * ROW-MAJOR. A row is the bytes of one cell. The library packs rows, stream after stream, so that an engine may view a
 * tensor as one array of n_stream · kv_size rows. Rows need not divide a page and streams need not start on one:
 *
 *     page      |          0          |          1          |          2          |
 *     stream    | 0                              | 1                              |pad
 *     cell      | 0   | 1   | 2   | 3   | 4   |  | 0   | 1   | ...
 *                                   ^ two pages    ^ shares a page with stream 0
 *
 * TRANSPOSED. A cell has one element in every channel; a channel holds one element of all cells. One token touches as
 * many pages as there are channels, and a page holds many cells of one channel, so that few pages go back early:
 *
 *     page      |          0          |          1          |          2          |
 *     channel   | 0                        | 1                        | 2
 *     cell      |0|1|2|3| ..................|0|1|2|3| .................|0|1|2|3| ...
 *
 * Both are lanes. In a lane the cells of one stream follow one another at a fixed stride: a row-major stream is one
 * lane, a transposed one has a lane a channel. All other code walks lanes and need not know the layout.
 *
 * PADDED. An engine's own tensor may leave bytes between cells, lanes and streams, and may have streams inside channels
 * or channels inside streams. The bytes between belong to the engine, so they are never written or given back. With
 * bytes between cells every cell is a span of its own:
 *
 *     lane      | cell 0 |....| cell 1 |....| cell 2 |....|
 */
#ifndef KVL_GEOMETRY_H
#define KVL_GEOMETRY_H

#include "base/base.h"

/* Consecutive bytes of an arena, [begin, end). */
typedef struct kvl_span {
    uint64_t begin, end;
} kvl_span;

typedef struct kvl_tensor {
    uint32_t arena; /* number of the arena it lies in; the library's own is the last */
    uint32_t layer_id;
    bool is_v;
    bool on_device;        /* its bytes are not in host memory; the members below are 0 */
    bool streams_in_lanes; /* lane j of all streams comes before lane j + 1 of any; else stream by stream */
    uint32_t n_lane;       /* lanes of each stream */
    uint32_t n_channel;    /* 0: row-major */
    uint64_t offset;       /* of stream 0, lane 0, cell 0 */
    uint64_t data_end;     /* where the last cell ends */
    uint64_t end;          /* the same, or the end of that page where the rest of the page holds nothing */
    uint64_t cell_stride, lane_stride, stream_stride;
    uint64_t cell_bytes; /* of one cell in one lane */
} kvl_tensor;

/* Which tensor is the K or the V of a layer. */
typedef struct kvl_named {
    uint64_t name; /* of layer 7: K 14, V 15 */
    uint32_t number;
} kvl_named;

typedef struct kvl_geometry {
    uint32_t kv_size, n_stream;
    uint32_t n_arena; /* the library's own included, where there is one */
    uint64_t page_bytes;
    uint64_t own_bytes;      /* of the library's own reservation, whole pages */
    uint64_t reserved_bytes; /* pages of all tensors, each page once */
    uint64_t cell_bytes;     /* of one cell in all tensors, those on devices too */
    uint32_t n_host;         /* tensors in host memory; those on devices come behind them */
    uint32_t n_tensor;
    kvl_tensor *tensor;   /* [0, n_host): by arena, then by offset */
    kvl_named *by_name;   /* [n_tensor], sorted */
    kvlazy_arena **arena; /* [n_arena] those of the layers, by address; NULL: the library's own */
} kvl_geometry;

/* What is wrong with the layers, for the log: of which tensor, which value of it, and why. */
typedef struct kvl_complaint {
    uint32_t layer_id;
    bool is_v;
    const char *field; /* of kvlazy_layer or kvlazy_tensor; NULL: no single one is wrong */
    uint64_t value;
    bool is_address; /* the value is one */
    const char *why;
    bool names_other; /* why ends with a word before another tensor: */
    uint32_t other_layer_id;
    bool other_is_v;
} kvl_complaint;

/* Tells where an arena begins and how many bytes it has. */
typedef void (*kvl_bounds_of)(const kvlazy_arena *arena, const char **base, uint64_t *bytes);

/* Lays out the tensors that the engine did not lay out, and reads where it put the others. Returns KVLAZY_EINVAL
 * or KVLAZY_ENOTSUP with a complaint, or KVLAZY_ENOMEM; nothing is held then. */
int kvl_geometry_init(kvl_geometry *geometry, const kvlazy_layer *layer, uint32_t n_layer, uint32_t kv_size,
                      uint32_t n_stream, uint64_t page_bytes, kvl_bounds_of bounds_of, kvl_complaint *complaint);
void kvl_geometry_fini(kvl_geometry *geometry);

/* Returns NULL when there is no such tensor. Cost: O(log n_tensor). */
const kvl_tensor *kvl_geometry_find(const kvl_geometry *geometry, uint32_t layer_id, bool is_v);

/* Parts of the library's own reservation that are written from their beginning on, ascending: a stream of a tensor
 * each, or, where that would be more than n_most, some neighbouring streams of a tensor, or some tensors. Returns NULL
 * where there is no memory to note them. */
kvl_span *kvl_geometry_blocks(const kvl_geometry *geometry, uint64_t n_most, uint32_t *n_block);

/* Returns the bytes of the pages that the first n cells of every stream lie on, each page once, with pages of that
 * size. */
uint64_t kvl_geometry_cover_bytes(const kvl_geometry *geometry, uint32_t n_cell, uint64_t page_bytes);

/* Returns how many cells behind one have their rows on the same pages as it, in every tensor. */
uint32_t kvl_geometry_cells_beside(const kvl_geometry *geometry, uint32_t stream, uint32_t cell);

/* One lane: the cells of one stream at a fixed stride. */
typedef struct kvl_lane {
    uint32_t stream;
    uint64_t base; /* where cell 0 begins */
} kvl_lane;

/* Returns lane i of the n_stream · n_lane lanes of a tensor, in the order of bytes. */
static inline kvl_lane kvl_tensor_lane(const kvl_tensor *tensor, uint32_t n_stream, uint64_t i)
{
    uint32_t stream = (uint32_t)(tensor->streams_in_lanes ? i % n_stream : i / tensor->n_lane);
    uint64_t lane = tensor->streams_in_lanes ? i / n_stream : i % tensor->n_lane;

    return (kvl_lane){stream, tensor->offset + stream * tensor->stream_stride + lane * tensor->lane_stride};
}

/* Returns how many neighbouring cells make one span: any number, or one where bytes lie between them. */
static inline uint32_t kvl_tensor_span_cells(const kvl_tensor *tensor)
{
    return tensor->cell_stride == tensor->cell_bytes ? UINT32_MAX : 1;
}

/* Returns the bytes of the cells [begin, end) in a lane: one cell at least, kvl_tensor_span_cells at most. */
static inline kvl_span kvl_lane_span(const kvl_tensor *tensor, uint64_t base, uint32_t begin, uint32_t end)
{
    return (kvl_span){base + begin * tensor->cell_stride, base + (end - 1) * tensor->cell_stride + tensor->cell_bytes};
}

#endif
