/* SPDX-License-Identifier: MIT */
/* geometry: see geometry.h. */
#include "memory/geometry.h"

#include <bsd/stdlib.h>

/* Signed pointer arithmetic reaches 2^63 bytes. Half of that is more than any machine has. */
#define RESERVATION_MAX_BYTES (UINT64_C(1) << 62)

#define TOO_LARGE "with it the tensor has more bytes than an address holds"

/* A value of a tensor that cannot be. */
static int refuse(kvl_complaint *complaint, const kvl_tensor *t, const char *field, uint64_t value, const char *why)
{
    *complaint = (kvl_complaint){.layer_id = t->layer_id, .is_v = t->is_v, .field = field, .value = value, .why = why};
    return KVLAZY_EINVAL;
}

static uint64_t page_up(const kvl_geometry *g, uint64_t byte)
{
    return kvl_round_up(byte, g->page_bytes);
}

/* ------------------------------------------------------------------------------------------- strides */

/* n parts of *bytes each, a stride apart: *bytes becomes what all of them take. Returns false when they overlap,
 * or take more than a reservation may have. */
static bool repeat(uint64_t n, uint64_t stride, uint64_t *bytes)
{
    uint64_t before;

    if (n == 1)
        return true;
    return stride >= *bytes && !kvl_mul_overflows(n - 1, stride, &before) &&
           !kvl_add_overflows(before, *bytes, bytes) && *bytes <= RESERVATION_MAX_BYTES;
}

/* The same for parts of a tensor, whose stride has a name. */
static int repeat_parts(const kvl_tensor *t, uint64_t n, const char *field, uint64_t stride, uint64_t *bytes,
                        kvl_complaint *complaint)
{
    uint64_t of_one = *bytes;

    if (repeat(n, stride, bytes))
        return KVLAZY_OK;
    return refuse(complaint, t, field, stride,
                  stride < of_one ? "less than what lies within a stride, so that parts overlap" : TOO_LARGE);
}

/* Finds where the tensor ends. Its cells, lanes and streams do not overlap then. */
static int find_end(const kvl_geometry *g, kvl_tensor *t, kvl_complaint *complaint)
{
    uint64_t bytes = t->cell_bytes;
    int status = repeat_parts(t, g->kv_size, "cell_stride", t->cell_stride, &bytes, complaint);

    t->streams_in_lanes = t->n_lane > 1 && g->n_stream > 1 && t->stream_stride < t->lane_stride;
    if (!status && !t->streams_in_lanes)
        status = repeat_parts(t, t->n_lane, "channel_stride", t->lane_stride, &bytes, complaint);
    if (!status)
        status = repeat_parts(t, g->n_stream, "stream_stride", t->stream_stride, &bytes, complaint);
    if (!status && t->streams_in_lanes)
        status = repeat_parts(t, t->n_lane, "channel_stride", t->lane_stride, &bytes, complaint);
    if (!status && (kvl_add_overflows(t->offset, bytes, &t->data_end) || t->data_end > RESERVATION_MAX_BYTES))
        status = refuse(complaint, t, "row_bytes", t->cell_bytes * t->n_lane, TOO_LARGE);
    t->end = t->data_end;
    return status;
}

/* ------------------------------------------------------------------------------------------- one tensor */

/* The library lays out a tensor: packed, behind those that the reservation holds already. */
static int lay_out(kvl_geometry *g, kvl_tensor *t, kvl_complaint *complaint)
{
    t->offset = g->own_bytes;
    t->cell_stride = t->cell_bytes;
    if (kvl_mul_overflows(g->kv_size, t->cell_stride, &t->lane_stride) ||
        kvl_mul_overflows(t->n_lane, t->lane_stride, &t->stream_stride) || find_end(g, t, complaint))
        return refuse(complaint, t, t->is_v ? "v_row_bytes" : "k_row_bytes", t->cell_bytes * t->n_lane, TOO_LARGE);
    t->end = page_up(g, t->end);
    g->own_bytes = t->end;
    return KVLAZY_OK;
}

static int by_address(const void *a, const void *b)
{
    uintptr_t p = (uintptr_t) * (kvlazy_arena *const *)a, q = (uintptr_t) * (kvlazy_arena *const *)b;

    return (p > q) - (p < q);
}

static bool is_placed(const kvlazy_tensor *theirs, uint64_t row_bytes)
{
    return theirs && theirs->data && row_bytes;
}

/* Every arena that a layer lies in, once, by address. */
static void collect_arenas(kvl_geometry *g, const kvlazy_layer *layer, uint32_t n_layer)
{
    uint32_t n = 0;

    for (const kvlazy_layer *l = layer; l < layer + n_layer; l++)
        if (l->arena && (is_placed(l->k, l->k_row_bytes) || is_placed(l->v, l->v_row_bytes)))
            g->arena[n++] = l->arena;
    qsort(g->arena, n, sizeof(kvlazy_arena *), by_address);
    for (uint32_t i = 0; i < n; i++)
        if (!g->n_arena || g->arena[g->n_arena - 1] != g->arena[i])
            g->arena[g->n_arena++] = g->arena[i];
}

static uint32_t find_arena(const kvl_geometry *g, kvlazy_arena *arena)
{
    kvlazy_arena **found = bsearch(&arena, g->arena, g->n_arena, sizeof(kvlazy_arena *), by_address);

    return (uint32_t)(found - g->arena);
}

static int refuse_place(kvl_complaint *complaint, const kvl_tensor *t, const void *data, const char *why)
{
    refuse(complaint, t, "data", (uintptr_t)data, why);
    complaint->is_address = true;
    return KVLAZY_EINVAL;
}

/* The engine laid out a tensor: takes over where its bytes are. */
static int adopt(kvl_geometry *g, kvl_tensor *t, const kvlazy_tensor *theirs, kvlazy_arena *arena,
                 kvl_bounds_of bounds_of, kvl_complaint *complaint)
{
    const char *base;
    uint64_t bytes;

    if (!theirs->data) {
        t->on_device = true;
        return KVLAZY_OK;
    }
    if (!arena)
        return refuse_place(complaint, t, theirs->data, "the layer names no arena that it lies in");
    bounds_of(arena, &base, &bytes);
    if (!base && !bytes)
        return refuse(complaint, t, "arena", 0, "of no byte, or what is no arena");
    t->offset = (uint64_t)((uintptr_t)theirs->data - (uintptr_t)base);
    t->cell_stride = theirs->cell_stride;
    t->lane_stride = theirs->channel_stride;
    t->stream_stride = theirs->stream_stride;
    if (t->offset >= bytes) /* below the base it wraps */
        return refuse_place(complaint, t, theirs->data,
                            "outside of the layer's arena; K and V in two arenas are two layers");
    int status = find_end(g, t, complaint);
    if (status)
        return status;
    if (t->end > bytes)
        return refuse_place(complaint, t, theirs->data, "so that the tensor ends behind its arena");
    if (t->end == bytes) /* the rest of the arena's last page holds nothing */
        t->end = page_up(g, t->end);
    t->arena = find_arena(g, arena);
    return KVLAZY_OK;
}

/* What the engine says twice is the same, and channels divide a row. */
static int check_shape(const kvl_tensor *t, const kvlazy_tensor *theirs, uint64_t row_bytes, kvl_complaint *complaint)
{
    if (theirs && theirs->row_bytes != row_bytes)
        return refuse(complaint, t, "row_bytes", theirs->row_bytes, "not the layer's k_row_bytes or v_row_bytes");
    if (theirs && theirs->n_channel != t->n_channel)
        return refuse(complaint, t, "n_channel", theirs->n_channel, "not the layer's v_channels");
    if (!row_bytes && t->n_channel)
        return refuse(complaint, t, t->is_v ? "v_channels" : "n_channel", t->n_channel,
                      "channels of rows without bytes");
    if (t->n_channel && row_bytes % t->n_channel)
        return refuse(complaint, t, t->is_v ? "v_channels" : "n_channel", t->n_channel,
                      "does not divide the row's bytes");
    return KVLAZY_OK;
}

static int place(kvl_geometry *g, const kvlazy_layer *layer, bool is_v, kvl_bounds_of bounds_of,
                 kvl_complaint *complaint)
{
    const kvlazy_tensor *theirs = is_v ? layer->v : layer->k;
    uint64_t row_bytes = is_v ? layer->v_row_bytes : layer->k_row_bytes;
    kvl_tensor *t = &g->tensor[g->n_tensor];

    *t = (kvl_tensor){.layer_id = layer->id, .is_v = is_v};
    t->n_channel = is_v ? layer->v_channels : theirs ? theirs->n_channel : 0;
    int status = check_shape(t, theirs, row_bytes, complaint);
    if (status || !row_bytes)
        return status;
    t->n_lane = t->n_channel ? t->n_channel : 1;
    t->cell_bytes = row_bytes / t->n_lane;
    if (kvl_add_overflows(g->cell_bytes, row_bytes, &g->cell_bytes))
        return refuse(complaint, t, "row_bytes", row_bytes, TOO_LARGE);
    g->n_tensor++;
    g->n_host += !theirs || theirs->data;
    if (theirs)
        return adopt(g, t, theirs, layer->arena, bounds_of, complaint);
    t->arena = UINT32_MAX; /* it becomes the last arena, once the number of arenas is known */
    return lay_out(g, t, complaint);
}

/* ------------------------------------------------------------------------------------------- all of them */

static int by_place(const void *a, const void *b)
{
    const kvl_tensor *t = a, *u = b;

    if (t->on_device != u->on_device)
        return t->on_device - u->on_device;
    if (t->arena != u->arena)
        return t->arena < u->arena ? -1 : 1;
    return (t->offset > u->offset) - (t->offset < u->offset);
}

/* The cells of one tensor lie between those of another, as where the K and V of a cell are neighbours. */
static bool interleave(const kvl_tensor *t, const kvl_tensor *u)
{
    return t->cell_stride == u->cell_stride && t->offset + t->cell_bytes <= u->offset &&
           u->offset + u->cell_bytes <= t->offset + t->cell_stride;
}

/* Two tensors that do not lie one behind the other. */
static int refuse_both(kvl_complaint *complaint, const kvl_tensor *before, const kvl_tensor *t)
{
    bool between = interleave(before, t);

    *complaint = (kvl_complaint){.layer_id = t->layer_id,
                                 .is_v = t->is_v,
                                 .names_other = true,
                                 .other_layer_id = before->layer_id,
                                 .other_is_v = before->is_v};
    complaint->why = between ? "a row of it and its neighbour are to be one K-only row: it has cells between those of"
                             : "it runs into";
    return between ? KVLAZY_ENOTSUP : KVLAZY_EINVAL;
}

/* Sorts the tensors by arena and byte, the library's own arena last, and checks that none overlaps another. */
static int put_in_order(kvl_geometry *g, kvl_complaint *complaint)
{
    uint64_t done = 0;

    if (g->n_tensor)
        qsort(g->tensor, g->n_tensor, sizeof *g->tensor, by_place);
    for (uint32_t i = 0; i < g->n_host; i++) {
        kvl_tensor *t = &g->tensor[i], *before = i && g->tensor[i - 1].arena == t->arena ? t - 1 : NULL;

        if (before && before->end > t->offset)
            return refuse_both(complaint, before, t);
        done = kvl_max(before ? done : 0, kvl_round_down(t->offset, g->page_bytes));
        g->reserved_bytes += page_up(g, t->end) - done;
        done = page_up(g, t->end);
    }
    for (uint32_t i = 0; i < g->n_host; i++)
        if (g->tensor[i].arena == UINT32_MAX)
            g->tensor[i].arena = g->n_arena;
    if (g->own_bytes)
        g->arena[g->n_arena++] = NULL;
    return KVLAZY_OK;
}

static uint64_t name_of(uint32_t layer_id, bool is_v)
{
    return 2 * (uint64_t)layer_id + is_v;
}

static int by_name(const void *a, const void *b)
{
    const kvl_named *s = a, *t = b;

    return (s->name > t->name) - (s->name < t->name);
}

/* The tensors are where they stay. */
static void note_names(kvl_geometry *g)
{
    for (uint32_t i = 0; i < g->n_tensor; i++)
        g->by_name[i] = (kvl_named){name_of(g->tensor[i].layer_id, g->tensor[i].is_v), i};
    if (g->n_tensor)
        qsort(g->by_name, g->n_tensor, sizeof *g->by_name, by_name);
}

int kvl_geometry_init(kvl_geometry *g, const kvlazy_layer *layer, uint32_t n_layer, uint32_t kv_size, uint32_t n_stream,
                      uint64_t page_bytes, kvl_bounds_of bounds_of, kvl_complaint *complaint)
{
    int status = KVLAZY_OK;

    *g = (kvl_geometry){.kv_size = kv_size, .n_stream = n_stream, .page_bytes = page_bytes};
    if (!n_layer)
        return KVLAZY_OK;
    g->tensor = calloc(n_layer, 2 * sizeof *g->tensor);
    g->arena = calloc((size_t)n_layer + 1, sizeof(kvlazy_arena *));
    g->by_name = calloc(n_layer, 2 * sizeof *g->by_name);
    if (!g->tensor || !g->arena || !g->by_name)
        status = KVLAZY_ENOMEM;
    else
        collect_arenas(g, layer, n_layer);
    for (uint32_t i = 0; !status && i < n_layer; i++) {
        status = place(g, &layer[i], false, bounds_of, complaint);
        if (!status)
            status = place(g, &layer[i], true, bounds_of, complaint);
    }
    if (!status)
        status = put_in_order(g, complaint);
    if (!status)
        note_names(g);
    if (status)
        kvl_geometry_fini(g);
    return status;
}

void kvl_geometry_fini(kvl_geometry *g)
{
    free(g->tensor);
    free(g->arena);
    free(g->by_name);
    *g = (kvl_geometry){0};
}

const kvl_tensor *kvl_geometry_find(const kvl_geometry *g, uint32_t layer_id, bool is_v)
{
    const kvl_named key = {.name = name_of(layer_id, is_v)};
    const kvl_named *found = g->n_tensor ? bsearch(&key, g->by_name, g->n_tensor, sizeof key, by_name) : NULL;

    return found ? &g->tensor[found->number] : NULL;
}

kvl_span *kvl_geometry_blocks(const kvl_geometry *g, uint64_t n_most, uint32_t *n_block)
{
    uint32_t first = g->n_host;

    while (first && g->tensor[first - 1].arena + 1 == g->n_arena)
        first--;
    uint64_t n = kvl_max(g->n_host - first, 1), n_streams = g->n_stream, n_tensors = kvl_div_up(n, kvl_max(n_most, 1));

    if (n_tensors == 1)
        n_streams = kvl_div_up(g->n_stream, kvl_min(n_most / n, g->n_stream));
    kvl_span *block = reallocarray(NULL, n * kvl_div_up(g->n_stream, n_streams), sizeof *block);
    *n_block = 0;
    for (uint64_t i = first; block && i < g->n_host; i += n_tensors) {
        const kvl_tensor *t = &g->tensor[i], *last = &g->tensor[kvl_min(i + n_tensors, g->n_host) - 1];

        for (uint64_t s = 0; s < g->n_stream; s += n_streams)
            block[(*n_block)++] =
                (kvl_span){t->offset + s * t->stream_stride,
                           n_tensors > 1 ? last->end : t->offset + (s + n_streams) * t->stream_stride};
    }
    return block;
}

uint64_t kvl_geometry_cover_bytes(const kvl_geometry *g, uint32_t n_cell, uint64_t page_bytes)
{
    uint64_t bytes = 0, done = 0; /* done: where the pages end that were counted, since lanes and tensors share some */

    for (uint32_t i = 0; n_cell && i < g->n_host; i++) {
        const kvl_tensor *t = &g->tensor[i];

        done = i && g->tensor[i - 1].arena == t->arena ? done : 0;
        for (uint64_t l = 0; l < (uint64_t)t->n_lane * g->n_stream; l++)
            for (uint32_t cell = 0, end; cell < n_cell; cell = end) {
                end = n_cell - cell > kvl_tensor_span_cells(t) ? cell + kvl_tensor_span_cells(t) : n_cell;
                kvl_span rows = kvl_lane_span(t, kvl_tensor_lane(t, g->n_stream, l).base, cell, end);
                uint64_t begin = kvl_max(done, kvl_round_down(rows.begin, page_bytes));

                done = kvl_max(done, kvl_round_up(rows.end, page_bytes));
                bytes += done > begin ? done - begin : 0;
            }
    }
    return bytes;
}

uint32_t kvl_geometry_cells_beside(const kvl_geometry *g, uint32_t stream, uint32_t cell)
{
    uint64_t least = g->kv_size - 1 - cell;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++) {
        uint64_t end = kvl_lane_span(t, t->offset + stream * t->stream_stride, cell, cell + 1).end;

        least = kvl_min(least, (page_up(g, end) - end) / t->cell_stride);
    }
    return (uint32_t)least;
}
