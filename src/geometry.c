/* SPDX-License-Identifier: MIT */
/* geometry: see geometry.h. */
#include "geometry.h"

/* Addresses are signed to pointer arithmetic, and some headroom costs nothing. */
#define RESERVATION_MAX_BYTES (UINT64_C(1) << 62)

static bool place(kvl_geometry *g, uint64_t row_bytes, uint32_t layer_id, bool is_v)
{
    kvl_tensor *t = &g->tensor[g->n_tensor];
    uint64_t bytes, end;

    if (!row_bytes)
        return true;
    t->offset = g->reserved_bytes;
    t->cell_stride = row_bytes;
    t->layer_id = layer_id;
    t->is_v = is_v;
    if (kvl_mul_overflows(g->kv_size, row_bytes, &t->stream_stride) ||
        kvl_mul_overflows(t->stream_stride, g->n_stream, &bytes) || kvl_add_overflows(t->offset, bytes, &end) ||
        end > RESERVATION_MAX_BYTES)
        return false;
    t->end = kvl_round_up(end, g->page_bytes);
    g->reserved_bytes = t->end;
    g->cell_bytes += row_bytes;
    g->n_tensor++;
    return true;
}

int kvl_geometry_init(kvl_geometry *g, const kvlazy_layer *layer, uint32_t n_layer, uint32_t kv_size, uint32_t n_stream,
                      uint64_t page_bytes)
{
    *g = (kvl_geometry){.kv_size = kv_size, .n_stream = n_stream, .page_bytes = page_bytes};
    if (!n_layer)
        return KVLAZY_OK;
    g->tensor = calloc(n_layer, 2 * sizeof *g->tensor);
    if (!g->tensor)
        return KVLAZY_ENOMEM;
    for (uint32_t i = 0; i < n_layer; i++) {
        if (place(g, layer[i].k_row_bytes, layer[i].id, false) && place(g, layer[i].v_row_bytes, layer[i].id, true))
            continue;
        kvl_geometry_fini(g);
        return KVLAZY_EINVAL;
    }
    return KVLAZY_OK;
}

void kvl_geometry_fini(kvl_geometry *g)
{
    free(g->tensor);
    *g = (kvl_geometry){0};
}

const kvl_tensor *kvl_geometry_find(const kvl_geometry *g, uint32_t layer_id, bool is_v)
{
    for (uint32_t i = 0; i < g->n_tensor; i++)
        if (g->tensor[i].layer_id == layer_id && g->tensor[i].is_v == is_v)
            return &g->tensor[i];
    return NULL;
}

uint64_t kvl_geometry_cover_bytes(const kvl_geometry *g, uint32_t n_cell)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; n_cell && i < g->n_tensor; i++) {
        uint64_t done = 0; /* a page that two streams share counts once */

        for (uint32_t s = 0; s < g->n_stream; s++) {
            kvl_span rows = kvl_tensor_span(&g->tensor[i], s, 0, n_cell);
            uint64_t begin = kvl_max(done, kvl_round_down(rows.begin, g->page_bytes));
            uint64_t end = kvl_round_up(rows.end, g->page_bytes);

            if (end > begin)
                bytes += end - begin;
            done = kvl_max(done, end);
        }
    }
    return bytes;
}
