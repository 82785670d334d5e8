/* SPDX-License-Identifier: MIT */
/*
 * An engine that keeps the cells itself, and two of its habits: it appends above a hole, and it writes rows that it
 * never touched (a rotation of every row, a restore outside a batch). What is resident of the first, beside the pages
 * of the rows in use, and what share of the second comes back when the stream comes to rest. The clock is moved by
 * hand.
 */
#include "tensors.h"

#include "micro.h"

#include <kvlazy/engine_cells.h>

#include <stdlib.h>
#include <string.h>

enum { CELLS = 2048, HOLE_BEGIN = 64, HOLE_END = 1024, APPENDED = 64, UNTOUCHED_BYTES = 64 << 20 };

struct outside {
    struct tensors_rig rig;
    kvlazy_mem mem;
    uint64_t now_ms;
};

static uint64_t manual_now_ms(void *ctx)
{
    return ((const struct outside *)ctx)->now_ms;
}

static int create(struct outside *o, const kvlazy_layer *layers)
{
    const kvlazy_cell_ops told = {.struct_size = sizeof(told)};
    kvlazy_params params;
    o->mem = *kvlazy_mem_host();
    o->mem.ctx = o;
    o->mem.now_ms = manual_now_ms;
    kvlazy_params_init(&params);
    params.kv_size = CELLS;
    params.slot_shrink_idle_ms = o->rig.geometry.idle_ms;
    params.cell_ops = &told;
    params.layers = layers;
    params.n_layer = o->rig.geometry.n_layer;
    params.mem = &o->mem;
    int status = kvlazy_create(&params, &o->rig.cache);
    for (uint32_t t = 0; status == KVLAZY_OK && t < o->rig.n_tensor; t++) {
        status = (t % 2 == 0 ? kvlazy_k : kvlazy_v)(o->rig.cache, t / 2, &o->rig.tensor[t]);
    }
    return status == KVLAZY_OK ? 0 : rig_error("kvlazy_create", status);
}

static int open_rig(struct outside *o)
{
    *o = (struct outside){.now_ms = 1000};
    bench_config_default(&o->rig.geometry);
    o->rig.geometry.kv_size = CELLS;
    o->rig.geometry.n_slot = 1;
    o->rig.n_tensor = bench_tensors(&o->rig.geometry);
    o->rig.tensor = calloc(o->rig.n_tensor, sizeof(*o->rig.tensor));
    kvlazy_layer *layers = calloc(o->rig.geometry.n_layer, sizeof(*layers));
    int status = o->rig.tensor == NULL || layers == NULL ? bench_error("out of memory") : 0;
    for (uint32_t i = 0; status == 0 && i < o->rig.geometry.n_layer; i++) {
        layers[i] =
            (kvlazy_layer){.id = i, .k_row_bytes = o->rig.geometry.row_bytes, .v_row_bytes = o->rig.geometry.row_bytes};
    }
    status = status == 0 ? create(o, layers) : status;
    free(layers);
    return status;
}

/* The cells [begin, end) are touched and written in one batch, and held. */
static int fill(struct outside *o, uint32_t begin, uint32_t end)
{
    uint32_t first = o->rig.n_held;
    for (uint32_t cell = begin; cell < end; cell++) {
        o->rig.stream[o->rig.n_held] = 0;
        o->rig.cell[o->rig.n_held++] = cell;
    }
    int status = kvlazy_init_batch(o->rig.cache);
    status = status == KVLAZY_OK ? kvlazy_touch_cells(o->rig.cache, 0, o->rig.cell + first, end - begin) : status;
    if (status != KVLAZY_OK) {
        return rig_error("kvlazy_touch_cells", status);
    }
    tensors_write(&o->rig, first, end - begin);
    return tensors_end(&o->rig);
}

static int rest(struct outside *o)
{
    uint64_t next_ms = 0;
    o->now_ms += o->rig.geometry.idle_ms;
    while (next_ms == 0) {
        int status = kvlazy_poll(o->rig.cache, &next_ms);
        if (status != KVLAZY_OK) {
            return rig_error("kvlazy_poll", status);
        }
    }
    return 0;
}

/* Token by token up to the last cell, behind which none is made ready ahead. */
static int append_above_hole(struct outside *o, double *over_cover)
{
    uint64_t resident_bytes, cover_bytes;
    if (fill(o, 0, CELLS - APPENDED) != 0) {
        return -1;
    }
    int status = kvlazy_free_range(o->rig.cache, 0, HOLE_BEGIN, HOLE_END);
    if (status != KVLAZY_OK) {
        return rig_error("kvlazy_free_range", status);
    }
    memmove(o->rig.cell + HOLE_BEGIN, o->rig.cell + HOLE_END, (o->rig.n_held - HOLE_END) * sizeof(*o->rig.cell));
    o->rig.n_held -= HOLE_END - HOLE_BEGIN;
    if (rest(o) != 0) {
        return -1;
    }
    for (uint32_t cell = CELLS - APPENDED; cell < CELLS; cell++) {
        if (fill(o, cell, cell + 1) != 0) {
            return -1;
        }
    }
    if (tensors_resident(&o->rig, &resident_bytes) != 0 || tensors_cover(&o->rig, &cover_bytes) != 0) {
        return -1;
    }
    *over_cover = (double)resident_bytes / (double)cover_bytes;
    return 0;
}

/* The last rows of every tensor, written without a word: the stream holds a few tokens and comes to rest then. */
static int write_untouched(struct outside *o, double *share)
{
    const size_t row_bytes = o->rig.geometry.row_bytes, part_bytes = UNTOUCHED_BYTES / o->rig.n_tensor;
    uint64_t before_bytes, after_bytes, cover_bytes;
    if (fill(o, 0, HOLE_BEGIN) != 0) {
        return -1;
    }
    for (uint32_t t = 0; t < o->rig.n_tensor; t++) {
        memset((char *)o->rig.tensor[t].data + CELLS * row_bytes - part_bytes, 1, part_bytes);
    }
    if (tensors_resident(&o->rig, &before_bytes) != 0 || rest(o) != 0 || tensors_resident(&o->rig, &after_bytes) != 0 ||
        tensors_cover(&o->rig, &cover_bytes) != 0) {
        return -1;
    }
    *share = ((double)before_bytes - (double)after_bytes) / ((double)before_bytes - (double)cover_bytes);
    return 0;
}

static int measure(int (*habit)(struct outside *o, double *value), double *value)
{
    struct outside o;
    int status = open_rig(&o);
    status = status == 0 ? habit(&o, value) : status;
    tensors_close(&o.rig);
    return status;
}

int tensors_outside(const struct bench_config *config)
{
    double over_cover, share;
    if (measure(append_above_hole, &over_cover) != 0 || measure(write_untouched, &share) != 0) {
        return -1;
    }
    struct figure append = {"append_above_hole_over_cover",
                            over_cover,
                            4,
                            "own cells, appended above a hole: resident / cover",
                            "",
                            "",
                            "1"};
    struct figure untouched = {
        "untouched_returned_share", share, 4, "64 MiB written untouched, at rest: share returned", "", "", ">= 0.99"};
    report_figure(config, &append);
    report_figure(config, &untouched);
    return 0;
}
