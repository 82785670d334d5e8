/* SPDX-License-Identifier: MIT */
/* report: see report.h. */
#include "core/report.h"
#include "core/cap.h"

#include <inttypes.h>
#include <stdio.h>

void kvl_report_begin(kvlazy_cache *c)
{
    c->report = (kvl_report){c->rows.n_released, c->counts.evicted_cells, c->counts.moved_cells};
}

/* Says why the soft caps are above kv_size_initial, where that is because of n_pad alone. */
static void say_padding(const kvlazy_params *p, uint64_t cap_cells, char text[80])
{
    uint32_t cap = kvl_policy_cap(p->kv_size, p->kv_size_initial, p->n_pad, 0);

    text[0] = 0;
    if (cap > p->kv_size_initial && cap_cells == (uint64_t)cap * p->n_stream)
        snprintf(text, 80, " (kv_size_initial %" PRIu32 " in steps of n_pad %" PRIu32 ")", p->kv_size_initial,
                 p->n_pad);
}

void kvl_report_end(kvlazy_cache *c, uint64_t now_ms, bool idle)
{
    uint64_t n_page = c->rows.n_released - c->report.n_released,
             n_cell = c->counts.evicted_cells - c->report.evicted_cells;
    uint64_t n_moved = c->counts.moved_cells - c->report.moved_cells, from = 0, to = 0;
    char given[KVL_HUMAN_BYTES], left[KVL_HUMAN_BYTES], padding[80];

    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        uint32_t cap = kvl_soft_cap(&c->params, &c->stream[s], now_ms);

        from += c->stream[s].cap_said;
        to += cap;
        kvl_say_cap(c, &c->stream[s], cap);
    }
    if (!n_page && !n_cell && !n_moved)
        return;
    c->counts.n_shrink++;
    char why[40] = "on request";
    if (idle)
        snprintf(why, sizeof why, "after %" PRIu32 " ms idle", c->params.slot_shrink_idle_ms);
    say_padding(&c->params, to, padding);
    kvl_log_note(&c->log, KVLAZY_LOG_INFO,
                 "shrink: cap %" PRIu64 " -> %" PRIu64 " cells%s %s, %" PRIu64 " evicted, %" PRIu64
                 " moved, %s returned, %s touched",
                 from, to, padding, why, n_cell, n_moved, kvl_human(given, n_page * kvl_rows_page_bytes(&c->rows)),
                 kvl_human(left, kvl_rows_touched(&c->rows) * kvl_rows_page_bytes(&c->rows)));
}
