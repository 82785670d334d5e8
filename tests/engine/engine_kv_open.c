/* SPDX-License-Identifier: MIT */
/*
 * engine_kv_open: a kvlazy cache for a back end of the reference engine, and where its tensors lie: laid out by the
 * library, or carved out of an arena by the engine, as one does whose allocator hands out tensors from one buffer. The
 * two back ends on kvlazy call it when they begin and end. It knows no cells.
 */
#include "engine_kv.h"

#include <kvlazy/arena.h>
#include <kvlazy/engine_cells.h>

enum { ALIGN_BYTES = 32 }; /* of tensors in an engine's buffer, far less than a page */

static size_t align_up(size_t n_bytes)
{
    return (n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

/* ---- tensors of the engine's own ---- */

/* One tensor behind those that end at *end. base NULL: only counts the bytes. */
static void carve(kvlazy_tensor *t, char *base, size_t *end, const engine_kv_config *config, size_t row_bytes,
                  uint32_t n_channel)
{
    memset(t, 0, sizeof *t);
    t->data = base != NULL ? base + *end : NULL;
    t->row_bytes = row_bytes;
    t->n_channel = n_channel;
    if (n_channel != 0) {
        t->cell_stride = row_bytes / n_channel;
        t->channel_stride = align_up(t->cell_stride * config->kv_size);
        t->stream_stride = t->channel_stride * n_channel;
    } else {
        t->cell_stride = row_bytes;
        t->stream_stride = align_up(row_bytes * config->kv_size);
    }
    *end += t->stream_stride * config->n_stream;
}

/* K and V of all layers, one behind the other; the first bytes are the engine's. */
static size_t carve_all(engine_kv *kv, char *base, const engine_kv_config *config)
{
    size_t end = ALIGN_BYTES;

    for (uint32_t i = 0; i < config->n_layer; i++) {
        carve(&kv->k[i], base, &end, config, config->k_row_bytes, 0);
        carve(&kv->v[i], base, &end, config, config->v_row_bytes, config->v_channels);
    }
    return end;
}

static int make_tensors(engine_kv *kv, const engine_kv_config *config)
{
    void *base;
    int status = kvlazy_arena_create(config->mem, carve_all(kv, NULL, config), &kv->arena, &base);

    if (status == KVLAZY_OK) {
        carve_all(kv, base, config);
    }
    return status;
}

/* ---- the cache ---- */

static int create_cache(engine_kv *kv, const engine_kv_config *config, const kvlazy_cell_ops *cell_ops)
{
    kvlazy_layer layers[ENGINE_MAX_LAYER] = {{0}};
    kvlazy_params params;

    for (uint32_t i = 0; i < config->n_layer; i++) {
        layers[i] = (kvlazy_layer){.id = i,
                                   .k_row_bytes = config->k_row_bytes,
                                   .v_row_bytes = config->v_row_bytes,
                                   .v_channels = config->v_channels};
        if (kv->arena != NULL) {
            layers[i].k = &kv->k[i];
            layers[i].v = &kv->v[i];
            layers[i].arena = kv->arena;
        }
    }
    kvlazy_params_init(&params);
    params.kv_size = config->kv_size;
    params.kv_size_initial = config->kv_size_initial;
    params.slot_shrink_idle_ms = config->slot_shrink_idle_ms;
    params.n_stream = config->n_stream;
    params.n_seq_max = config->n_seq;
    params.n_pad = config->n_pad;
    params.budget_bytes = config->budget_bytes;
    params.layers = layers;
    params.n_layer = config->n_layer;
    params.mem = config->mem;
    params.cell_ops = cell_ops;
    params.name = "engine";
    params.model_tag = config->model_tag;
    params.model_tag_bytes = config->model_tag != NULL ? strlen(config->model_tag) : 0;
    return kvlazy_create(&params, &kv->cache);
}

int engine_kv_open(engine_kv *kv, const engine_kv_config *config, const kvlazy_cell_ops *cell_ops)
{
    int status = config->n_layer <= ENGINE_MAX_LAYER ? KVLAZY_OK : KVLAZY_EINVAL;

    kv->n_stream = config->n_stream;
    kv->kv_size = config->kv_size;
    if (status == KVLAZY_OK && config->own_tensors) {
        status = make_tensors(kv, config);
    }
    if (status == KVLAZY_OK) {
        status = create_cache(kv, config, cell_ops);
    }
    for (uint32_t i = 0; status == KVLAZY_OK && i < config->n_layer; i++) {
        status = kvlazy_k(kv->cache, i, &kv->k[i]);
        if (status == KVLAZY_OK) {
            status = kvlazy_v(kv->cache, i, &kv->v[i]);
        }
    }
    return status;
}

void engine_kv_close(engine_kv *kv)
{
    kvlazy_destroy(kv->cache);
    kvlazy_arena_destroy(kv->arena); /* the cache first */
}
