/* SPDX-License-Identifier: MIT */
/* stats: figures for operators. Reads what the floors below keep; nothing depends on it. */
#include "cache.h"

int kvlazy_stats(const kvlazy_cache *cache, kvlazy_stats_info *info)
{
    kvlazy_cache *c = (kvlazy_cache *)(uintptr_t)cache; /* only its clock moves */

    if (!info || !kvl_struct_fits(info, sizeof *info) || kvl_enter(c))
        return KVLAZY_EINVAL;
    uint64_t now_ms = kvl_now(c);
    kvlazy_stats_info stats = {
        .reserved_bytes = c->geometry.reserved_bytes,
        .touched_bytes = kvl_pages_bytes(&c->arena, c->arena.n_touched),
        .released_bytes = kvl_pages_bytes(&c->arena, c->arena.n_released),
        .n_grow = c->n_grow,
        .n_shrink = c->n_shrink,
        .n_evict = c->n_evict,
        .evicted_cells = c->evicted_cells,
        .n_refusal = c->n_refusal,
        .n_os_refusal = c->arena.n_refused,
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
    *bytes = kvl_arena_resident(&c->arena);
    return kvl_leave(c, KVLAZY_OK);
}
