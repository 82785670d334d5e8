/* SPDX-License-Identifier: MIT */
/* clock: see clock.h. */
#include "core/clock.h"

uint64_t kvl_now(kvlazy_cache *c)
{
    return c->group->now_ms = kvl_max(c->group->now_ms, kvl_clock_ms(c));
}

uint64_t kvl_clock_ms(const kvlazy_cache *c)
{
    return c->mem.now_ms(c->mem.ctx);
}

uint32_t kvl_group_idle_ms(const kvl_group *group)
{
    uint32_t least = 0;

    for (const kvlazy_cache *m = group->first; m; m = m->next)
        if (m->params.slot_shrink_idle_ms && (!least || m->params.slot_shrink_idle_ms < least))
            least = m->params.slot_shrink_idle_ms;
    return least;
}

void kvl_note_fallow(kvlazy_cache *c, uint64_t now_ms)
{
    if (!c->params.slot_shrink_idle_ms)
        return;
    c->decay.fallow_due_ms = kvl_min(c->decay.fallow_due_ms, now_ms + c->params.slot_shrink_idle_ms);
    kvl_note_due(c, c->decay.fallow_due_ms);
}

void kvl_note_use(kvlazy_cache *c, kvl_stream *stream, uint64_t now_ms)
{
    stream->active_ms = now_ms;
    stream->awake = true;
    if (c->params.slot_shrink_idle_ms)
        kvl_note_due(c, now_ms + c->params.slot_shrink_idle_ms);
}

void kvl_note_activity(kvlazy_cache *c, kvlazy_seq_id seq, uint64_t now_ms)
{
    c->seq[seq].stamp_ms = now_ms;
    kvl_note_use(c, kvl_stream_of(c, seq), now_ms);
}
