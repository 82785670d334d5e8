/* SPDX-License-Identifier: MIT */
/* fresh: see fresh.h. */
#include "memory/fresh.h"

uint64_t kvl_fresh_cells(const kvl_geometry *g)
{
    uint64_t most = 0;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++)
        most = kvl_max(most, kvl_div_up(g->page_bytes, t->cell_stride));
    return most;
}

/* No byte of the engine's lies between its rows, or beside them on their pages. */
static bool fills_pages(const kvl_geometry *g, const kvl_tensor *t)
{
    return t->data_end - t->offset == t->cell_bytes * g->kv_size * t->n_lane * g->n_stream &&
           t->offset % g->page_bytes == 0 && t->end % g->page_bytes == 0;
}

static bool may_go(const kvl_geometry *g, uint32_t arena)
{
    if (!g->arena[arena]->gives_zeros)
        return false;
    for (const kvl_tensor *t = g->tensor; g->arena[arena]->magic && t < g->tensor + g->n_host; t++)
        if (t->arena == arena && !fills_pages(g, t))
            return false;
    return true;
}

void kvl_fresh_gathered(const kvl_geometry *g, uint32_t arena)
{
    if (g->arena[arena]->n_range && may_go(g, arena))
        kvl_arena_give_gathered(g->arena[arena]);
}
