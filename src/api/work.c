/* SPDX-License-Identifier: MIT */
/* work: see work.h. */
#include "api/work.h"
#include "core/lock.h"

/* Lets a hook go first. While a plan is made, the idle side stays away; later a call of the idle side may come between.
 */
static void give_way(kvlazy_cache *c, kvl_shrink *s)
{
    if (s->phase == KVL_SHRINK_PLANS) {
        kvl_begin_asking(c);
        kvl_end_asking(c->group);
    } else {
        kvl_begin_telling(c);
        kvl_end_telling(c->group);
    }
    if (kvl_is_cache(c))
        kvl_shrink_resume(c, s);
}

static void ask(kvlazy_cache *c, kvl_shrink *s)
{
    const kvlazy_cache *asker = kvl_evict_asker(c);
    int (*on_evict)(void *, kvlazy_seq_id, kvlazy_pos) = asker->params.on_evict;
    void *ctx = asker->params.evict_ctx;

    kvl_begin_asking(c);
    int answer = on_evict(ctx, s->evict.seq, s->evict.new_pos_max);
    kvl_end_asking(c->group);
    if (kvl_is_cache(c))
        kvl_shrink_answer(c, s, answer != 0);
}

static void vacate(kvlazy_cache *c, kvl_shrink *s)
{
    const kvl_vacating *v = &s->vacating;
    kvlazy_cell_ops ops = v->cache->engine.ops;

    kvl_begin_asking(c);
    int answer = ops.vacate(ops.ctx, v->stream, v->from);
    kvl_end_asking(c->group);
    if (kvl_is_cache(c) && kvl_is_cache(v->cache))
        kvl_shrink_answer(c, s, answer != 0);
    else
        kvl_shrink_stop(c, s, KVLAZY_EBUSY);
}

int kvl_work(kvlazy_cache *c, kvl_shrink_why why, uint64_t limit, uint64_t now_ms, bool *more)
{
    kvl_shrink_next next;
    kvl_shrink s;

    kvl_shrink_begin(c, &s, why, limit, now_ms);
    while (kvl_is_cache(c) && (next = kvl_shrink_step(c, &s)) != KVL_SHRINK_DONE) {
        if (next == KVL_SHRINK_ASK)
            ask(c, &s);
        else if (next == KVL_SHRINK_VACATE)
            vacate(c, &s);
        else if (next == KVL_SHRINK_GIVE_WAY)
            give_way(c, &s);
    }
    if (!kvl_is_cache(c)) /* a callback destroyed it */
        kvl_shrink_stop(c, &s, KVLAZY_EINVAL);
    if (more)
        *more = s.more;
    return s.status;
}
