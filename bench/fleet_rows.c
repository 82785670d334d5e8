/* SPDX-License-Identifier: MIT */
/* How many rows of kept and loaded tokens the other figures of a fleet compared, and how many were wrong. */
#include "fleet.h"

#include <stdio.h>

static uint64_t n_seen, n_bad;

void fleet_note_rows(uint64_t n_row, uint64_t n_wrong)
{
    n_seen += n_row;
    n_bad += n_wrong;
}

int fleet_rows(const struct bench_config *config)
{
    struct figure figure = {"fleet_wrong_rows", (double)n_bad, 0, "rows of all of it that were wrong", "", "", "0"};
    if (n_seen == 0) {
        bench_error("no row was compared");
        return 1;
    }
    snprintf(figure.ours, sizeof(figure.ours), "%.1f million compared", (double)n_seen / 1e6);
    report_figure(config, &figure);
    return 0;
}
