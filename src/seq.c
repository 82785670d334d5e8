/* SPDX-License-Identifier: MIT */
/* seq: what an engine does to its sequences. Removes tokens and tells where a sequence begins and ends; the pages follow later. */
#include "cache.h"

/* A range as the caller says it, as positions [*p0, *p1). Answers false when it is empty. */
static bool normalise(kvlazy_pos *p0, kvlazy_pos *p1)
{
    *p0 = *p0 < 0 ? 0 : *p0;
    *p1 = *p1 < 0 ? INT32_MAX : *p1; /* open: no position is that large */
    return *p0 < *p1;
}

/* The range takes some of a sequence and leaves some. */
static bool is_partial(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    const kvl_index *index = kvl_index_of(c, seq);
    uint32_t taken = kvl_index_below(index, p1) - kvl_index_below(index, p0);

    return taken && taken < index->n;
}

/* Only a removal of the whole says that the engine starts anew: after a bounded one it may still believe in
 * tokens that eviction took. */
static bool remove_range(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, uint64_t now_ms)
{
    if (p0 == 0 && p1 == INT32_MAX)
        c->seq[seq].evicted = false;
    return kvl_cells_rm(&kvl_stream_of(c, seq)->cells, seq, p0, p1, kvl_stamp(c, now_ms)) > 0;
}

int kvlazy_seq_rm(kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    if (kvl_enter(c))
        return KVLAZY_EINVAL;
    if (seq != -1 && !kvl_is_seq(c, seq))
        return kvl_leave(c, KVLAZY_EINVAL);
    if (!normalise(&p0, &p1))
        return kvl_leave(c, KVLAZY_OK);
    kvlazy_seq_id first = seq < 0 ? 0 : seq, end = seq < 0 ? (kvlazy_seq_id)c->params.n_seq_max : seq + 1;

    for (kvlazy_seq_id i = first; c->params.shrink == KVLAZY_SHRINK_WHOLE && i < end; i++)
        if (is_partial(c, i, p0, p1))
            return kvl_leave(c, KVLAZY_ENOTSUP);
    uint64_t now_ms = kvl_now(c);
    bool removed = false;
    for (kvlazy_seq_id i = first; i < end; i++)
        removed |= remove_range(c, i, p0, p1, now_ms);
    if (removed)
        kvl_note_fallow(c, now_ms);
    return kvl_leave(c, KVLAZY_OK);
}

static kvlazy_pos pos_of(const kvlazy_cache *c, kvlazy_seq_id seq, kvlazy_pos (*which)(const kvl_index *))
{
    if (kvl_enter(c))
        return -1;
    kvlazy_pos pos = kvl_is_seq(c, seq) ? which(kvl_index_of((kvlazy_cache *)(uintptr_t)c, seq)) : -1;

    kvl_leave(c, KVLAZY_OK);
    return pos;
}

kvlazy_pos kvlazy_seq_pos_min(const kvlazy_cache *c, kvlazy_seq_id seq)
{
    return pos_of(c, seq, kvl_index_min);
}

kvlazy_pos kvlazy_seq_pos_max(const kvlazy_cache *c, kvlazy_seq_id seq)
{
    return pos_of(c, seq, kvl_index_max);
}
