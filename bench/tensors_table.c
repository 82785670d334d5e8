/* SPDX-License-Identifier: MIT */
/*
 * The table of layouts: what 1, 256 and 2048 tokens of one sequence keep resident, next to the pages that their rows
 * lie on, and what is left when 2048 are cut to 256. Asked of the kernel before any row is read, since reading can make
 * pages resident.
 */
#include "tensors.h"

#include <stdio.h>

static void report_row(const struct bench_config *config, const char *key, const char *what, uint64_t resident_bytes,
                       uint64_t cover_bytes)
{
    struct figure figure = {key, (double)resident_bytes / (double)cover_bytes, 4, what, "", "", "1"};
    snprintf(figure.ours, sizeof(figure.ours), "%.2f MiB resident", (double)resident_bytes / (1 << 20));
    snprintf(figure.other, sizeof(figure.other), "cover %.2f MiB", (double)cover_bytes / (1 << 20));
    report_figure(config, &figure);
}

/* n tokens, of which `kept` stay. */
static int table_row(const struct bench_config *config, const struct tensors_layout *layout, uint32_t n, uint32_t kept)
{
    static struct tensors_rig rig;
    uint64_t resident_bytes = 0, cover_bytes = 0;
    if (tensors_open(&rig, layout, 0) != 0) {
        return -1;
    }
    int status = tensors_put(&rig, n, NULL);
    status = status == 0 && kept < n ? tensors_cut(&rig, kept) : status;
    status = status == 0 ? tensors_resident(&rig, &resident_bytes) : status;
    status = status == 0 ? tensors_cover(&rig, &cover_bytes) : status;
    tensors_close(&rig);
    if (status != 0) {
        return status;
    }
    char key[64], what[64];
    if (kept < n) {
        snprintf(what, sizeof(what), "%s, %u cut to %u: resident / cover", layout->what, n, kept);
    } else {
        snprintf(what, sizeof(what), "%s, %u token%s: resident / cover", layout->what, n, n == 1 ? "" : "s");
    }
    snprintf(key, sizeof(key), "tensors_%s_%u_over_cover", layout->key, n);
    report_row(config, kept < n ? NULL : key, what, resident_bytes, cover_bytes);
    return 0;
}

int tensors_table(const struct bench_config *config)
{
    static const uint32_t n_token[] = {1, 256, 2048, 2048}, kept[] = {1, 256, 2048, 256};
    for (size_t k = 0; k < TENSORS_LAYOUTS; k++) {
        for (size_t i = 0; i < sizeof(n_token) / sizeof(n_token[0]); i++) {
            if (table_row(config, &tensors_layouts[k], n_token[i], kept[i]) != 0) {
                return -1;
            }
        }
    }
    return 0;
}
