/* SPDX-License-Identifier: MIT */
/* look: the public calls that only tell: figures, cells, room, and the self-check. */
#include "api/door.h"
#include "core/budget.h"
#include "core/cap.h"
#include "core/check.h"
#include "core/clock.h"

/* ------------------------------------------------------------------------------------------- figures */

int kvlazy_stats(const kvlazy_cache *cache, kvlazy_stats_info *info)
{
    kvlazy_cache *c = kvl_mutable(cache); /* only its clock moves */

    int status = info && kvl_struct_fits(info, sizeof *info) ? kvl_enter(c, KVL_DOOR_LOOK) : KVLAZY_EINVAL;

    if (status)
        return status;
    uint64_t now_ms = kvl_now(c);

    kvl_engine_cells_sync(c, now_ms);
    kvlazy_stats_info stats = {
        .reserved_bytes = c->rows.geometry.reserved_bytes,
        .touched_bytes = kvl_rows_touched_bytes(&c->rows),
        .released_bytes = c->rows.n_released * kvl_rows_page_bytes(&c->rows),
        .n_grow = c->counts.n_grow,
        .n_shrink = c->counts.n_shrink,
        .n_evict = c->counts.n_evict,
        .evicted_cells = c->counts.evicted_cells,
        .n_refusal = c->counts.n_refused_pos + c->counts.n_refused_slot + c->counts.n_refused_budget +
                     c->counts.n_refused_memory,
        .n_refused_pos = c->counts.n_refused_pos,
        .n_refused_slot = c->counts.n_refused_slot,
        .n_refused_budget = c->counts.n_refused_budget,
        .n_refused_memory = c->counts.n_refused_memory,
        .moved_cells = c->counts.moved_cells,
        .commit = c->rows.commit_time,
        .release = c->rows.release_time,
        .evict = c->counts.evict_time,
        .compact = c->counts.compact_time,
        .n_os_refusal = c->rows.n_refused,
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
    int status = bytes ? kvl_enter(c, KVL_DOOR_LOOK) : KVLAZY_EINVAL;

    if (status)
        return status;
    *bytes = kvl_rows_resident_bytes(&c->rows);
    return kvl_leave(c, KVLAZY_OK);
}

/* ------------------------------------------------------------------------------------------- cells */

int kvlazy_cells(const kvlazy_cache *c, uint32_t stream, kvlazy_cells_view *view)
{
    if (!view || !kvl_struct_fits(view, sizeof *view))
        return KVLAZY_EINVAL;
    int status = kvl_enter(c, KVL_DOOR_CELLS);
    if (status)
        return status;
    if (stream >= c->params.n_stream)
        return kvl_leave(c, KVLAZY_EINVAL);
    const kvl_cells *cells = &c->stream[stream].cells;
    kvlazy_cells_view v = {
        .n_cell = cells->n_cell,
        .owner_words = cells->owner_words,
        .pos = cells->pos,
        .shift = cells->n_shifted ? cells->shift : NULL,
        .ext_y = cells->ext_y,
        .ext_x = cells->ext_x,
        .owner = cells->owner,
    };
    kvl_struct_copy(view, view->struct_size, &v, sizeof v);
    return kvl_leave(c, KVLAZY_OK);
}

uint32_t kvlazy_cap(const kvlazy_cache *cache, uint32_t stream)
{
    kvlazy_cache *c = kvl_mutable(cache); /* only its clock moves */

    if (kvl_enter(c, KVL_DOOR_LOOK))
        return 0;
    uint32_t cap = stream < c->params.n_stream ? kvl_soft_cap(c, &c->stream[stream], kvl_now(c)) : 0;

    kvl_leave(c, KVLAZY_OK);
    return cap;
}

uint32_t kvlazy_room(const kvlazy_cache *cache, kvlazy_seq_id seq)
{
    kvlazy_cache *c = kvl_mutable(cache); /* its scratch is used */

    if (kvl_enter(c, KVL_DOOR_LOOK))
        return 0;
    uint32_t n = kvl_is_seq(c, seq) && !kvl_has_engine_cells(c) ? kvl_room(c, seq) : 0;

    kvl_leave(c, KVLAZY_OK);
    return n;
}

int kvlazy_check(const kvlazy_cache *cache, const char **reason)
{
    kvlazy_cache *c = kvl_mutable(cache); /* the text is kept in it */

    int status = kvl_enter(c, KVL_DOOR_LOOK);

    if (status)
        return status;
    const char *text = kvl_check(c, false);

    if (reason)
        *reason = text;
    return kvl_leave(c, text ? KVLAZY_ESTATE : KVLAZY_OK);
}
