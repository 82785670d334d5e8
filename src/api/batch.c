/* SPDX-License-Identifier: MIT */
/* batch: the public calls of the hooks. An engine makes them in this order for every batch. */
#include "core/batch.h"
#include "api/door.h"
#include "api/reclaim.h"
#include "api/work.h"
#include "core/apply.h"
#include "core/clock.h"
#include "core/decay.h"
#include "core/prepare.h"
#include "core/shrink.h"

int kvlazy_init_batch(kvlazy_cache *c)
{
    int entered = kvl_enter(c, KVL_DOOR_GROUP);
    if (entered)
        return entered;
    bool shrinks = (c->params.flags & KVLAZY_SHRINK_AT_INIT) && !c->group->asking;

    if (kvl_batch_is_due(c->group) || shrinks) {
        uint64_t now_ms = kvl_now(c);

        kvl_batch_close(c->group);
        kvl_batch_stamp(c->group, now_ms);
        if (shrinks && c->params.slot_shrink_idle_ms)
            kvl_work(c, KVL_SHRINK_IDLE, 0, now_ms, NULL); /* what is left for later, later finds */
    }
    if (kvl_is_cache(c)) /* on_evict may have destroyed it */
        kvl_batch_open(c->group);
    return kvl_leave(c, KVLAZY_OK);
}

static int prepare(kvlazy_cache *c, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots, bool restores)
{
    int status = kvl_enter(c, KVL_DOOR_GROUP);

    if (status)
        return status;
    if (kvl_has_engine_cells(c))
        return kvl_leave(c, KVLAZY_ENOTSUP);
    status = kvl_prepare(c, ubatch, n_ubatch, slots, restores);
    if (status == KVLAZY_EBUDGET && kvl_reclaim(c))
        status = kvl_prepare(c, ubatch, n_ubatch, slots, restores);
    if (status)
        kvl_prepare_refused(c, status, n_ubatch);
    return kvl_leave(c, status);
}

int kvlazy_prepare(kvlazy_cache *c, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots)
{
    return prepare(c, ubatch, n_ubatch, slots, false);
}

int kvlazy_prepare_restore(kvlazy_cache *c, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots)
{
    return prepare(c, ubatch, n_ubatch, slots, true);
}

int kvlazy_apply_ubatch(kvlazy_cache *c, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch)
{
    int status = kvl_enter(c, KVL_DOOR_CELLS);

    return status ? status : kvl_leave(c, kvl_apply(c, slot, ubatch));
}

int kvlazy_undo_ubatch(kvlazy_cache *c, const kvlazy_slot *slot)
{
    int status = kvl_enter(c, KVL_DOOR_CELLS);

    return status ? status : kvl_leave(c, kvl_undo(c, slot));
}

uint32_t kvlazy_n_kv(const kvlazy_cache *cache, const kvlazy_slot *slot)
{
    kvlazy_cache *c = kvl_mutable(cache); /* it notes what will be read */

    if (kvl_enter(c, KVL_DOOR_LOOK))
        return 0;
    const kvl_plan_ubatch *b = kvl_plan_find(&c->plan, slot);
    uint32_t n_kv = b ? kvl_slot_n_kv(c, b) : 0;

    if (b)
        kvl_note_read(c, b, n_kv);
    kvl_leave(c, KVLAZY_OK);
    return n_kv;
}

int kvlazy_end_batch(kvlazy_cache *c)
{
    int entered = kvl_enter(c, KVL_DOOR_GROUP);
    if (entered)
        return entered;
    if (kvl_batch_is_due(c->group)) {
        uint64_t now_ms = kvl_now(c);

        kvl_batch_close(c->group);
        kvl_batch_stamp(c->group, now_ms);
        for (kvlazy_cache *m = c->group->first; m; m = m->next) {
            if (KVL_UNLIKELY(now_ms >= m->engine.sync_due_ms))
                kvl_engine_cells_sync(m, now_ms);
            kvl_decay_piece(m, now_ms);
        }
    }
    return kvl_leave(c, KVLAZY_OK);
}

kvlazy_seq_id kvlazy_refused(const kvlazy_cache *c)
{
    if (kvl_enter(c, KVL_DOOR_LOOK))
        return -1;
    kvlazy_seq_id seq = c->plan.refused_seq;

    kvl_leave_look(c, KVLAZY_OK);
    return seq;
}
