/* SPDX-License-Identifier: MIT */
/* due: see due.h. */
#include "core/due.h"
#include "core/turn.h"

static uint64_t next_eviction_in(kvlazy_cache *c, uint64_t now_ms)
{
    uint64_t next = KVL_NEVER;

    for (kvlazy_seq_id id = 0; id < (kvlazy_seq_id)c->params.n_seq_max; id++) {
        if (!kvl_policy_excess(kvl_stream_of(c, id)->cells.n_used, c->params.kv_size_initial))
            continue;
        uint64_t in_ms = kvl_evictable_in(c, id, now_ms);
        if (in_ms) /* 0: it could go at the last look, and did not, since other sequences hold what it shares */
            next = kvl_min(next, in_ms);
    }
    return kvl_min(next, kvl_engine_cells_vacatable_in(c, now_ms));
}

/* How long until a look at this cache can matter, right after one. */
static uint64_t next_look_in(kvlazy_cache *c, uint64_t now_ms)
{
    uint64_t at_ms = kvl_min(c->decay.fallow_due_ms, c->decay.retry_ms);
    uint64_t next = at_ms == KVL_NEVER ? KVL_NEVER : at_ms - kvl_min(at_ms, now_ms);

    if (c->untouched.searches) /* a piece of a search is left */
        return 0;
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        if (c->stream[s].compacts) /* compaction stopped for a hook */
            next = 0;
        else if (c->stream[s].awake)
            next = kvl_min(next, kvl_policy_until_idle(now_ms, c->stream[s].active_ms, c->params.slot_shrink_idle_ms));
    return kvl_min(next, next_eviction_in(c, now_ms));
}

uint64_t kvl_due_in(kvl_group *group, uint64_t now_ms)
{
    uint64_t next = KVL_NEVER;

    for (kvlazy_cache *m = group->first; m; m = m->next)
        next = kvl_min(next, next_look_in(m, now_ms));
    return next;
}
