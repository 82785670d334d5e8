/* SPDX-License-Identifier: MIT */
/* clock: see clock.h. */
#include "core/clock.h"

/* Stamps of cells are 32 bits of milliseconds, 49.7 days. Every 70 minutes, or when the clock leaps, what is older than
 * all but the last 70 minutes of that is made so old, so that no age ever wraps. */
#define AGING_MS (UINT32_MAX - KVL_AGE_MAX_MS)

static void age_cells(kvlazy_cache *c, uint64_t from_ms, uint64_t to_ms)
{
    if (KVL_LIKELY(to_ms - c->decay.aged_ms < AGING_MS))
        return;
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        kvl_cells_age_all(&c->stream[s].cells, kvl_stamp(c, from_ms), to_ms - from_ms, KVL_AGE_MAX_MS);
    c->decay.aged_ms = to_ms;
}

uint64_t kvl_now(kvlazy_cache *c)
{
    uint64_t now_ms = kvl_max(c->group->now_ms, c->mem.now_ms(c->mem.ctx));

    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        age_cells(m, c->group->now_ms, now_ms);
    return c->group->now_ms = now_ms;
}

uint32_t kvl_stamp(const kvlazy_cache *c, uint64_t now_ms)
{
    return (uint32_t)(now_ms - c->decay.epoch_ms);
}

uint32_t kvl_group_idle_ms(const kvlazy_cache *c)
{
    uint32_t least = 0;

    for (const kvlazy_cache *m = c->group->first; m; m = m->next)
        if (m->params.slot_shrink_idle_ms && (!least || m->params.slot_shrink_idle_ms < least))
            least = m->params.slot_shrink_idle_ms;
    return least;
}

void kvl_note_fallow(kvlazy_cache *c, uint64_t now_ms)
{
    if (!c->params.slot_shrink_idle_ms)
        return;
    c->decay.fallow_due_ms = kvl_min(c->decay.fallow_due_ms, now_ms + kvl_page_idle_ms(c));
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
