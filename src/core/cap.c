/* SPDX-License-Identifier: MIT */
/* cap: see cap.h. */
#include "core/cap.h"
#include "core/clock.h"

uint32_t kvl_soft_cap(const kvlazy_params *params, const kvl_stream *stream, uint64_t now_ms)
{
    const kvlazy_params *p = params;
    uint64_t window = p->slot_shrink_idle_ms ? p->slot_shrink_idle_ms : KVL_NEVER; /* 0: nothing ever decays */
    uint32_t end = kvl_cells_recent_end(&stream->cells, now_ms, window);

    end = end > stream->ensured ? end : stream->ensured;
    return kvl_policy_cap(p->kv_size, p->kv_size_initial, p->n_pad, end);
}

void kvl_say_cap(kvlazy_cache *c, kvl_stream *stream, uint32_t cap)
{
    if (cap > stream->cap_said) {
        c->counts.n_grow++;
        kvl_log_note(&c->log, KVLAZY_LOG_INFO, "grow: stream %u cap %u -> %u cells", (unsigned)(stream - c->stream),
                     stream->cap_said, cap);
    }
    stream->cap_said = cap;
}

void kvl_follow_cap(kvlazy_cache *c, kvl_stream *stream)
{
    const kvlazy_params *p = &c->params;

    if (KVL_UNLIKELY(stream->cells.used_end > stream->cap_said))
        kvl_say_cap(c, stream, kvl_policy_cap(p->kv_size, p->kv_size_initial, p->n_pad, stream->cells.used_end));
}
