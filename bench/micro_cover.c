/* SPDX-License-Identifier: MIT */
/*
 * What a prefill costs: resident bytes after n tokens in every stream next to the page cover of n cells, for
 * shallow and deep prompts, with room for 8k and for a million cells a stream. The figure is the worst.
 */
#include "micro.h"

#include <stdio.h>

static int cover_of(const struct bench_config *geometry, uint32_t n, uint64_t *resident_bytes, uint64_t *cover_bytes)
{
    static struct rig rig;
    uint32_t n_cell[2] = {n, n};
    if (rig_open(&rig, geometry, true) != 0) {
        return -1;
    }
    int status = 0;
    for (uint32_t s = 0; status == 0 && s < geometry->n_slot; s++) {
        status = rig_put(&rig, s, 0, n);
    }
    if (status == 0) {
        status = rig_resident(&rig, resident_bytes);
    }
    *cover_bytes = model_cover_bytes(geometry, n_cell);
    rig_close(&rig);
    return status;
}

int micro_cover(const struct bench_config *config)
{
    static const uint32_t depth[] = {1, 32, 600, 2000}, kv_size[] = {8192, 1u << 20};
    struct figure worst = {.key = "resident_over_cover",
                           .digits = 4,
                           .what = "prefill of 1, 32, 600, 2000: resident / cover",
                           .wanted = "one page a tensor"};
    uint64_t most_over_bytes = 0;
    struct bench_config geometry;
    bench_config_default(&geometry);
    for (size_t k = 0; k < sizeof(kv_size) / sizeof(kv_size[0]); k++) {
        geometry.kv_size = kv_size[k];
        for (size_t d = 0; d < sizeof(depth) / sizeof(depth[0]); d++) {
            uint64_t resident_bytes, cover_bytes;
            if (cover_of(&geometry, depth[d], &resident_bytes, &cover_bytes) != 0) {
                return -1;
            }
            if (resident_bytes < cover_bytes) {
                return bench_error("%u tokens resident in less than their pages", depth[d]);
            }
            uint64_t over_bytes = resident_bytes - cover_bytes;
            most_over_bytes = over_bytes > most_over_bytes ? over_bytes : most_over_bytes;
            double ratio = (double)resident_bytes / (double)cover_bytes;
            if (ratio > worst.value) {
                worst.value = ratio;
                snprintf(worst.ours, sizeof(worst.ours), "worst: %u tokens of %u", depth[d], kv_size[k]);
            }
        }
    }
    snprintf(worst.other, sizeof(worst.other), "page cover; at most %.2f pages a tensor over",
             (double)most_over_bytes / (double)bench_page_bytes() / bench_tensors(&geometry) / geometry.n_slot);
    report_figure(config, &worst);
    return 0;
}
