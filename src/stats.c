/* SPDX-License-Identifier: MIT */
/* stats: figures for operators. Reads what the floors below keep; nothing depends on it. */
#include "cache.h"

int kvlazy_stats(const kvlazy_cache *cache, kvlazy_stats_info *info)
{
    kvlazy_cache *c = (kvlazy_cache *)(uintptr_t)cache; /* only its clock moves */

    if (!info || !kvl_struct_fits(info, sizeof *info) || kvl_enter(c))
        return KVLAZY_EINVAL;
    uint64_t now_ms = kvl_now(c);

    kvl_outside_sync(c, now_ms);
    kvlazy_stats_info stats = {
        .reserved_bytes = c->geometry.reserved_bytes,
        .touched_bytes = kvl_touched_pages(c) * kvl_page_size(c),
        .released_bytes = c->n_released * kvl_page_size(c),
        .n_grow = c->n_grow,
        .n_shrink = c->n_shrink,
        .n_evict = c->n_evict,
        .evicted_cells = c->evicted_cells,
        .n_refusal = c->n_refused_pos + c->n_refused_slot + c->n_refused_budget + c->n_refused_memory,
        .n_refused_pos = c->n_refused_pos,
        .n_refused_slot = c->n_refused_slot,
        .n_refused_budget = c->n_refused_budget,
        .n_refused_memory = c->n_refused_memory,
        .moved_cells = c->moved_cells,
        .commit = c->commit_time,
        .release = c->release_time,
        .evict = c->evict_time,
        .compact = c->compact_time,
        .n_os_refusal = c->n_refused,
    };
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        stats.cap_cells += kvl_soft_cap(c, &c->stream[s], now_ms);
        stats.live_cells += c->stream[s].cells.n_used;
    }
    kvl_struct_copy(info, info->struct_size, &stats, sizeof stats);
    return kvl_leave(c, KVLAZY_OK);
}

int kvlazy_resident(const kvlazy_cache *c, uint64_t *bytes)
{
    if (!bytes || kvl_enter(c))
        return KVLAZY_EINVAL;
    *bytes = kvl_resident_bytes(c);
    return kvl_leave(c, KVLAZY_OK);
}
