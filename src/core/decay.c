/* SPDX-License-Identifier: MIT */
/* decay: see decay.h. */
#include "core/decay.h"
#include "core/clock.h"
#include "core/release.h"
#include "core/report.h"

void kvl_decay_make_due(kvlazy_cache *c, uint64_t now_ms)
{
    uint64_t long_ago = now_ms - c->params.slot_shrink_idle_ms;

    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_cells *cells = &c->stream[s].cells;

        for (uint32_t i = 0; (i = kvl_cells_next_fallow(cells, i)) < cells->n_cell; i++)
            cells->emptied[i] = long_ago;
    }
    c->decay.fallow_due_ms = now_ms;
    kvl_note_due(c, now_ms);
}

uint64_t kvl_decay_next_ms(kvlazy_cache *c, uint64_t now_ms)
{
    uint32_t idle_ms = c->params.slot_shrink_idle_ms;
    uint64_t due_ms = KVL_NEVER;

    for (uint32_t s = 0; idle_ms && s < c->params.n_stream; s++) {
        const kvl_cells *cells = &c->stream[s].cells;
        uint32_t n_warm = kvl_warm_cells(c);

        for (uint32_t i = 0; (i = kvl_cells_next_fallow(cells, i)) < cells->n_cell; i++) {
            if (n_warm) {
                n_warm--;
                continue;
            }
            due_ms = kvl_min(due_ms, now_ms + kvl_policy_until_idle(kvl_cells_age(cells, i, now_ms), 0, idle_ms));
        }
    }
    return due_ms;
}

/* A batch may end thousands of times a second. Between two looks lies an eighth of the idle time, unless the
 * first left something due: pages go at the latest at 1 1/8 of it. */
void kvl_decay_piece(kvlazy_cache *c, uint64_t now_ms)
{
    uint32_t idle_ms = c->params.slot_shrink_idle_ms; /* 0: nothing comes due, but for what a trim left */

    if (KVL_LIKELY(now_ms < c->decay.fallow_due_ms && now_ms < c->decay.retry_ms))
        return;
    kvl_report_begin(c);
    bool more = kvl_release_piece(c, idle_ms, now_ms);
    c->decay.fallow_due_ms = more ? now_ms : kvl_max(kvl_decay_next_ms(c, now_ms), now_ms + idle_ms / 8);
    kvl_note_due(c, c->decay.fallow_due_ms);
    kvl_report_end(c, now_ms, true);
}
