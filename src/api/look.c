/* SPDX-License-Identifier: MIT */
/* look: the public calls that only tell: figures, cells, room, and the self-check. */
#include "api/door.h"
#include "core/bookkeeping.h"
#include "core/budget.h"
#include "core/cap.h"
#include "core/check.h"
#include "core/clock.h"

static const uint16_t stats_end[] = {
    KVL_END(kvlazy_stats_info, reserved_bytes),
    KVL_END(kvlazy_stats_info, touched_bytes),
    KVL_END(kvlazy_stats_info, released_bytes),
    KVL_END(kvlazy_stats_info, cap_cells),
    KVL_END(kvlazy_stats_info, live_cells),
    KVL_END(kvlazy_stats_info, n_grow),
    KVL_END(kvlazy_stats_info, n_shrink),
    KVL_END(kvlazy_stats_info, n_evict),
    KVL_END(kvlazy_stats_info, evicted_cells),
    KVL_END(kvlazy_stats_info, n_refusal),
    KVL_END(kvlazy_stats_info, n_os_refusal),
    KVL_END(kvlazy_stats_info, moved_cells),
    KVL_END(kvlazy_stats_info, n_refused_pos),
    KVL_END(kvlazy_stats_info, n_refused_slot),
    KVL_END(kvlazy_stats_info, n_refused_budget),
    KVL_END(kvlazy_stats_info, n_refused_memory),
    KVL_END(kvlazy_stats_info, commit),
    KVL_END(kvlazy_stats_info, release),
    KVL_END(kvlazy_stats_info, evict),
    KVL_END(kvlazy_stats_info, compact),
    KVL_END(kvlazy_stats_info, bookkeeping_bytes),
    KVL_END(kvlazy_stats_info, page_bytes),
    KVL_END(kvlazy_stats_info, commits_ahead),
    0,
};

static const uint16_t cells_end[] = {
    KVL_END(kvlazy_cells_view, n_cell), KVL_END(kvlazy_cells_view, pos),   KVL_END(kvlazy_cells_view, shift),
    KVL_END(kvlazy_cells_view, ext_y),  KVL_END(kvlazy_cells_view, ext_x), 0,
};

_Static_assert(KVL_IS_LAST(kvlazy_stats_info, commits_ahead), "a member is not among the ends");
_Static_assert(KVL_IS_LAST(kvlazy_cells_view, ext_x), "a member is not among the ends");

/* ------------------------------------------------------------------------------------------- figures */

int kvlazy_stats(const kvlazy_cache *cache, kvlazy_stats_info *info)
{
    kvlazy_cache *c = kvl_mutable(cache); /* only its clock moves */

    if (!info || !kvl_output_fits(info, sizeof *info, stats_end))
        return KVLAZY_EINVAL;
    int entered = kvl_enter(c, KVL_DOOR_LOOK);
    if (entered)
        return entered;
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
        .bookkeeping_bytes = kvl_bookkeeping_bytes(c),
        .page_bytes = kvl_rows_page_bytes(&c->rows),
        .commits_ahead = c->rows.commits_ahead,
    };
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        stats.cap_cells += kvl_soft_cap(&c->params, &c->stream[s], now_ms);
        stats.live_cells += c->stream[s].cells.n_used;
    }
    kvl_struct_fill(info, &stats, sizeof stats);
    return kvl_leave_look(c, KVLAZY_OK);
}

int kvlazy_resident(const kvlazy_cache *c, uint64_t *bytes)
{
    if (!bytes)
        return KVLAZY_EINVAL;
    int entered = kvl_enter(c, KVL_DOOR_LOOK);
    if (entered)
        return entered;
    *bytes = kvl_rows_resident_bytes(&c->rows);
    return kvl_leave_look(c, KVLAZY_OK);
}

/* ------------------------------------------------------------------------------------------- cells */

int kvlazy_cells(const kvlazy_cache *c, uint32_t stream, kvlazy_cells_view *view)
{
    if (!view || !kvl_output_fits(view, sizeof *view, cells_end))
        return KVLAZY_EINVAL;
    int status = kvl_enter(c, KVL_DOOR_CELLS);
    if (status)
        return status;
    if (stream >= c->params.n_stream)
        return kvl_leave_look(c, KVLAZY_EINVAL);
    const kvl_cells *cells = &c->stream[stream].cells;
    kvlazy_cells_view v = {
        .n_cell = cells->n_cell,
        .pos = cells->pos,
        .shift = cells->n_shifted ? cells->shift : NULL,
        .ext_y = cells->ext_y,
        .ext_x = cells->ext_x,
    };
    kvl_struct_fill(view, &v, sizeof v);
    return kvl_leave_look(c, KVLAZY_OK);
}

int kvlazy_cell_owners(const kvlazy_cache *c, uint32_t stream, uint32_t cell, kvlazy_seq_id *seq, uint32_t n_max,
                       uint32_t *n)
{
    if (!n || (n_max && !seq))
        return KVLAZY_EINVAL;
    int status = kvl_enter(c, KVL_DOOR_CELLS);
    if (status)
        return status;
    if (stream >= c->params.n_stream || cell >= c->params.kv_size)
        return kvl_leave_look(c, KVLAZY_EINVAL);
    const kvl_cells *cells = &c->stream[stream].cells;
    kvlazy_seq_id owner = -1;

    *n = 0;
    while (cell < cells->n_cell && (owner = kvl_cells_next_owner(cells, cell, owner + 1)) >= 0) {
        if (*n < n_max)
            seq[*n] = owner;
        ++*n;
    }
    return kvl_leave_look(c, KVLAZY_OK);
}

uint32_t kvlazy_cap(const kvlazy_cache *cache, uint32_t stream)
{
    kvlazy_cache *c = kvl_mutable(cache); /* only its clock moves */

    if (kvl_enter(c, KVL_DOOR_LOOK))
        return 0;
    uint32_t cap = stream < c->params.n_stream ? kvl_soft_cap(&c->params, &c->stream[stream], kvl_now(c)) : 0;

    kvl_leave_look(c, KVLAZY_OK);
    return cap;
}

uint32_t kvlazy_room(const kvlazy_cache *cache, kvlazy_seq_id seq)
{
    kvlazy_cache *c = kvl_mutable(cache); /* its scratch is used */

    if (kvl_enter(c, KVL_DOOR_LOOK))
        return 0;
    uint32_t n = kvl_is_seq(c, seq) && !kvl_has_engine_cells(c) ? kvl_room(c, seq) : 0;

    kvl_leave_look(c, KVLAZY_OK);
    return n;
}

int kvlazy_check(const kvlazy_cache *cache, const char **reason)
{
    kvlazy_cache *c = kvl_mutable(cache); /* the text is kept in it */

    int entered = kvl_enter(c, KVL_DOOR_LOOK);
    if (entered)
        return entered;
    const char *text = kvl_check(c, false);

    if (reason)
        *reason = text;
    return kvl_leave_look(c, text ? KVLAZY_ESTATE : KVLAZY_OK);
}
