/* SPDX-License-Identifier: MIT */
/*
 * layer: where the rows of K and V lie, read off two tensors of ggml. An engine calls it before kvlazy_create. Reads
 * the description of a tensor, never its bytes.
 *
 * A tensor is read by its strides, since views of one tensor name its dimensions in several orders. Without those of
 * one element, and innermost first, they must be these and no others:
 *
 *     row-major      a row, in one dimension or more   cells                               streams
 *     transposed     cells                             channels, in one dimension or more   streams
 */
#include "base/base.h"

#include <kvlazy/ggml.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <ggml-backend-impl.h>

/* A tensor, and the dimensions of it that are not yet known to be something: n of them, innermost first. */
typedef struct reading {
    const char *name; /* "K" or "V" */
    const struct ggml_tensor *tensor;
    uint32_t kv_size, n_stream;
    size_t element_bytes; /* of a quantised type: of a block */
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
    uint32_t n;
    char *why;
} reading;

__attribute__((format(printf, 3, 4))) static int refuse(const reading *r, int status, const char *format, ...)
{
    va_list list;
    int n = snprintf(r->why, KVLAZY_GGML_WHY, "%s ", r->name);

    va_start(list, format);
    vsnprintf(r->why + n, KVLAZY_GGML_WHY - (size_t)n, format, list);
    va_end(list);
    return status;
}

static void sort_dimensions(reading *r)
{
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        uint32_t i = r->n;

        if (r->tensor->ne[d] == 1)
            continue;
        for (; i > 0 && r->nb[i - 1] > r->tensor->nb[d]; i--) {
            r->ne[i] = r->ne[i - 1];
            r->nb[i] = r->nb[i - 1];
        }
        r->ne[i] = r->tensor->ne[d];
        r->nb[i] = r->tensor->nb[d];
        r->n++;
    }
}

/* Takes the outermost dimension, of n elements; none where n is 1. Its stride is 0 then. */
static int take_outermost(reading *r, uint32_t n, const char *what, size_t *stride)
{
    const int64_t n_there = r->n > 0 ? r->ne[r->n - 1] : 1;

    *stride = 0;
    if (n == 1)
        return KVLAZY_OK;
    if (n_there != n)
        return refuse(r, KVLAZY_EINVAL, "has %lld %s, not %u", (long long)n_there, what, (unsigned)n);
    *stride = r->nb[--r->n];
    return KVLAZY_OK;
}

/* What is left, from dimension `first` on, is one run that goes on at `bytes`; writes where it ends. */
static int take_run(const reading *r, uint32_t first, const char *what, size_t *bytes)
{
    for (uint32_t i = first; i < r->n; i++) {
        if (r->nb[i] != *bytes)
            return refuse(r, KVLAZY_ENOTSUP, "has parts of %s that lie %zu bytes apart, not %zu", what, r->nb[i],
                          *bytes);
        *bytes *= (size_t)r->ne[i];
    }
    return KVLAZY_OK;
}

/* A stride that was not taken, of one element, becomes that of elements that lie side by side. */
static int settle(const reading *r, size_t *stride, size_t bytes, const char *what)
{
    if (*stride == 0)
        *stride = bytes;
    return *stride < bytes ? refuse(r, KVLAZY_ENOTSUP, "has %s that overlap", what) : KVLAZY_OK;
}

static int read_row_major(reading *r, kvlazy_tensor *t)
{
    const int64_t n_block = ggml_blck_size(r->tensor->type);
    int status = take_outermost(r, r->kv_size, "cells", &t->cell_stride);

    t->row_bytes = r->element_bytes;
    if (status == KVLAZY_OK && r->n > 0 && (r->nb[0] != r->element_bytes || r->ne[0] % n_block != 0))
        return refuse(r, KVLAZY_ENOTSUP, "has no row whose values are neighbours (transposed?)");
    if (status == KVLAZY_OK && r->n > 0)
        t->row_bytes = ggml_row_size(r->tensor->type, r->ne[0]);
    if (status == KVLAZY_OK)
        status = take_run(r, 1, "a row", &t->row_bytes);
    if (status == KVLAZY_OK)
        status = settle(r, &t->cell_stride, t->row_bytes, "cells");
    return status != KVLAZY_OK ? status : settle(r, &t->stream_stride, t->cell_stride * r->kv_size, "streams");
}

/* The cells are innermost, as in the views that attention reads. */
static bool begins_with_cells(const reading *r)
{
    return r->kv_size == 1 || (r->n > 0 && r->ne[0] == r->kv_size && r->nb[0] == r->element_bytes);
}

/* A tensor of the shape [row, cells] that is used as [cells, row]: all that it says is how many bytes there are. */
static int read_renamed(reading *r, size_t *bytes)
{
    size_t row_stride;
    int status = take_outermost(r, r->kv_size, "cells", &row_stride);

    *bytes = r->element_bytes;
    if (status == KVLAZY_OK)
        status = take_run(r, 0, "a row", bytes);
    if (status == KVLAZY_OK && row_stride != *bytes)
        return refuse(r, KVLAZY_ENOTSUP, "is transposed, and has bytes between what its shape calls rows");
    return status;
}

static int read_channels(reading *r, kvlazy_tensor *t)
{
    const uint32_t first = r->kv_size > 1;
    size_t end = r->n > first ? r->nb[first] : r->element_bytes * r->kv_size;

    t->channel_stride = end;
    int status = take_run(r, first, "its channels", &end);
    t->row_bytes = end / t->channel_stride * r->element_bytes;
    return status != KVLAZY_OK ? status : settle(r, &t->channel_stride, r->element_bytes * r->kv_size, "channels");
}

static int read_transposed(reading *r, kvlazy_tensor *t)
{
    int status;

    if (ggml_blck_size(r->tensor->type) != 1)
        return refuse(r, KVLAZY_ENOTSUP, "is transposed, and of the type %s, whose values come in blocks",
                      ggml_type_name(r->tensor->type));
    t->cell_stride = r->element_bytes;
    if (begins_with_cells(r)) {
        status = read_channels(r, t);
    } else {
        status = read_renamed(r, &t->row_bytes);
        t->channel_stride = r->element_bytes * r->kv_size;
    }
    t->n_channel = (uint32_t)(t->row_bytes / r->element_bytes);
    return status != KVLAZY_OK ? status : settle(r, &t->stream_stride, t->channel_stride * t->n_channel, "streams");
}

/* Where the tensor lies: in *arena, or on a device, where *arena is NULL. */
static int find_arena(const reading *r, kvlazy_arena **arena)
{
    const struct ggml_tensor *root = r->tensor->view_src ? r->tensor->view_src : r->tensor;

    if (!root->buffer)
        return refuse(r, KVLAZY_EINVAL, "has no buffer yet");
    *arena = kvlazy_ggml_arena(root->buffer);
    if (*arena ? !r->tensor->data : ggml_backend_buffer_get_type(root->buffer) == kvlazy_ggml_buffer_type())
        return refuse(r, KVLAZY_EINVAL, "has a buffer without memory");
    if (!*arena && ggml_backend_buffer_is_host(root->buffer))
        return refuse(r, KVLAZY_ENOTSUP, "lies in a buffer of the type %s, which gives nothing back",
                      ggml_backend_buffer_name(root->buffer));
    return KVLAZY_OK;
}

static int read_tensor(reading *r, bool transposed, kvlazy_tensor *t, kvlazy_arena **arena)
{
    int status = find_arena(r, arena);

    t->data = *arena ? r->tensor->data : NULL;
    r->element_bytes = ggml_type_size(r->tensor->type);
    sort_dimensions(r);
    if (status == KVLAZY_OK)
        status = take_outermost(r, r->n_stream, "streams", &t->stream_stride);
    if (status != KVLAZY_OK)
        return status;
    return transposed ? read_transposed(r, t) : read_row_major(r, t);
}

static int read_layer(reading *k, reading *v, bool v_trans, kvlazy_ggml_rows *rows)
{
    kvlazy_arena *k_arena = NULL, *v_arena = NULL;
    int status = k->tensor ? read_tensor(k, false, &rows->k, &k_arena) : KVLAZY_OK;

    if (status == KVLAZY_OK && v->tensor)
        status = read_tensor(v, v_trans, &rows->v, &v_arena);
    if (status == KVLAZY_OK && k_arena && v_arena && k_arena != v_arena)
        status = refuse(v, KVLAZY_ENOTSUP, "lies in another buffer than K");
    if (status != KVLAZY_OK)
        return status;
    rows->layer.k_row_bytes = rows->k.row_bytes;
    rows->layer.v_row_bytes = rows->v.row_bytes;
    rows->layer.v_channels = rows->v.n_channel;
    rows->layer.k = k->tensor ? &rows->k : NULL;
    rows->layer.v = v->tensor ? &rows->v : NULL;
    rows->layer.arena = k_arena ? k_arena : v_arena;
    return KVLAZY_OK;
}

int kvlazy_ggml_layer(const struct ggml_tensor *k, const struct ggml_tensor *v, bool v_trans, uint32_t kv_size,
                      uint32_t n_stream, kvlazy_ggml_rows *rows)
{
    if (!rows || rows->struct_size < sizeof *rows || rows->struct_size > KVL_STRUCT_MAX_BYTES)
        return KVLAZY_EINVAL;
    memset((char *)rows + sizeof(size_t), 0, rows->struct_size - sizeof(size_t));

    reading k_reading = {.name = "K", .tensor = k, .kv_size = kv_size, .n_stream = n_stream, .why = rows->why};
    reading v_reading = {.name = "V", .tensor = v, .kv_size = kv_size, .n_stream = n_stream, .why = rows->why};
    if (kv_size == 0 || n_stream == 0)
        return refuse(&k_reading, KVLAZY_EINVAL, "and V cannot have %u cells in %u streams", (unsigned)kv_size,
                      (unsigned)n_stream);
    int status = read_layer(&k_reading, &v_reading, v_trans, rows);
    if (status != KVLAZY_OK) {
        memset(&rows->layer, 0, sizeof rows->layer);
        memset(&rows->k, 0, sizeof rows->k);
        memset(&rows->v, 0, sizeof rows->v);
    }
    return status;
}
