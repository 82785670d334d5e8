/* SPDX-License-Identifier: MIT */
/*
 * What many layers cost to create and find, and what a release costs on a host that refuses a writable reservation,
 * where every tensor and stream has a frontier: beside the same release on a host that does not.
 */
#include "scale.h"

#include <stdio.h>
#include <stdlib.h>

enum { FRONTIER_LAYERS = 28, FRONTIER_STREAMS = 64, FRONTIER_CELLS = 131072, RELEASES = 15 };

static int layers(uint32_t n_layer, uint64_t *ns)
{
    static struct scale_rig rig;
    kvlazy_layer *layer = calloc(n_layer, sizeof(*layer));
    if (layer == NULL) {
        return bench_error("out of memory");
    }
    scale_init(&rig, 64, 1, 1);
    for (uint32_t i = 0; i < n_layer; i++) {
        layer[i] = (kvlazy_layer){.id = (i * 7919u) % n_layer, .k_row_bytes = 64};
    }
    rig.params.layers = layer;
    rig.params.n_layer = n_layer;
    uint64_t start_ns = scale_spent_ns();
    int status = scale_create(&rig);
    for (uint32_t i = 0; status == 0 && i < n_layer; i++) {
        kvlazy_tensor tensor;
        int answer = kvlazy_k(rig.cache, i, &tensor);
        status = answer == KVLAZY_OK ? 0 : scale_error("kvlazy_k", answer);
    }
    *ns = scale_spent_ns() - start_ns;
    scale_close(&rig);
    free(layer);
    return status;
}

/* ------------------------------------------------------------------------------------------------------
 * Frontiers
 */

/* This host, but for a writable reservation larger than a probe. */
static void *reserve_frugally(void *ctx, size_t bytes, uint32_t flags)
{
    return bytes > 1 << 20 && !(flags & KVLAZY_RESERVE_READ_ONLY) ? NULL
                                                                  : kvlazy_mem_host()->reserve(ctx, bytes, flags);
}

/* Ten tokens of the last stream are dropped and given back, again and again. */
static int releases(bool frugal, struct bench_series *ns)
{
    static struct scale_rig rig;
    static kvlazy_layer layer[FRONTIER_LAYERS];
    scale_init(&rig, FRONTIER_CELLS, FRONTIER_STREAMS, FRONTIER_STREAMS);
    for (uint32_t i = 0; i < FRONTIER_LAYERS; i++) {
        layer[i] = (kvlazy_layer){.id = i, .k_row_bytes = 1024, .v_row_bytes = 1024};
    }
    rig.params.layers = layer;
    rig.params.n_layer = FRONTIER_LAYERS;
    if (frugal) {
        rig.mem.reserve = reserve_frugally;
    }
    if (scale_create(&rig) != 0) {
        return -1;
    }
    int status = 0;
    for (uint32_t s = 0; status == 0 && s < FRONTIER_STREAMS; s++) {
        status = scale_put(&rig, (kvlazy_seq_id)s, 0, 10);
    }
    for (int i = 0; status == 0 && i < RELEASES; i++) {
        kvlazy_seq_rm(rig.cache, FRONTIER_STREAMS - 1, -1, -1);
        scale_rest(&rig);
        uint64_t start_ns = scale_spent_ns();
        status = scale_poll(&rig);
        bench_series_add(ns, (double)(scale_spent_ns() - start_ns));
        status = status == 0 ? scale_put(&rig, FRONTIER_STREAMS - 1, 0, 10) : status;
    }
    scale_close(&rig);
    return status;
}

int scale_host(const struct bench_config *config)
{
    static const struct scale_growth growth = {
        "scale_layers", "layers: create, then kvlazy_k of each", "<= 6", 16384, 65536, layers};
    struct bench_series frugal = {.n = 0}, free_host = {.n = 0};
    if (scale_growth(config, &growth) != 0) {
        return -1;
    }
    if (releases(true, &frugal) != 0 || releases(false, &free_host) != 0) {
        return -1;
    }
    struct figure figure = {"scale_frontier_release_over_free",
                            bench_series_at(&frugal, 0.5) / bench_series_at(&free_host, 0.5),
                            2,
                            "a release of 10 tokens, reservation refused over granted",
                            "",
                            "",
                            "<= 3"};
    report_time(figure.ours, sizeof(figure.ours), &frugal);
    report_time(figure.other, sizeof(figure.other), &free_host);
    report_figure(config, &figure);
    return 0;
}
