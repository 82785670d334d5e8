/* SPDX-License-Identifier: MIT */
/* batch: see batch.h. */
#include "core/batch.h"
#include "core/clock.h"
#include "core/limits.h"

void kvl_batch_open(kvl_group *group)
{
    if (group->open)
        return;
    group->open = true;
    group->n_opened++;
}

void kvl_batch_close(kvl_group *group)
{
    group->open = false;
    for (kvlazy_cache *m = group->first; m; m = m->next)
        kvl_limits_settle(m); /* plans that were not followed need nothing any more */
}

/* A batch brought one token or more to a stream. Counts whether the stream decodes steadily. */
static void count_batch(kvl_stream *stream)
{
    if (stream->n_applied)
        stream->n_single = stream->n_applied == 1 ? stream->n_single + 1 : 0;
    stream->n_applied = 0;
}

/* A sequence that went on where it ended is marked as evicted no more: the engine knows what eviction left of it. */
static void stamp_active(kvlazy_cache *c, uint64_t now_ms)
{
    for (uint32_t i = 0; i < c->active.n; i++) {
        kvl_seq *s = &c->seq[c->active.seq[i]];

        s->pending = false;
        if (kvl_index_of(c, c->active.seq[i])->n)
            s->evicted = false;
        kvl_note_activity(c, c->active.seq[i], now_ms);
        count_batch(kvl_stream_of(c, c->active.seq[i]));
    }
    c->active.n = 0;
    for (uint32_t i = 0; kvl_has_engine_cells(c) && i < c->params.n_stream; i++) {
        kvl_stream *stream = &c->stream[i];

        if (!stream->pending)
            continue;
        stream->pending = false;
        kvl_note_use(c, stream, now_ms);
        count_batch(stream);
    }
}

void kvl_batch_stamp(kvl_group *group, uint64_t now_ms)
{
    for (kvlazy_cache *m = group->first; m; m = m->next)
        stamp_active(m, now_ms);
}

bool kvl_batch_is_due(const kvl_group *group)
{
    if (group->open)
        return true;
    for (const kvlazy_cache *m = group->first; m; m = m->next)
        if (m->active.n) /* of a batch that a failed prepare closed */
            return true;
    return false;
}

void kvl_batch_note(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos pos)
{
    kvl_seq *s = &c->seq[seq];

    if (KVL_UNLIKELY(kvl_index_of(c, seq)->n == 1))
        s->moved = false; /* it begins anew */
    if (s->pending) {
        s->fresh = pos < s->fresh ? pos : s->fresh;
        return;
    }
    s->pending = true;
    s->fresh = pos;
    c->active.seq[c->active.n++] = seq;
}
