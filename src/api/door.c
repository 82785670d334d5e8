/* SPDX-License-Identifier: MIT */
/* door: see door.h. */
#include "api/door.h"
#include "core/check.h"
#include "core/lock.h"
#include "core/window.h"

int kvl_enter(const kvlazy_cache *cache, kvl_door door)
{
    kvlazy_cache *c = kvl_mutable(cache);

    if (!kvl_is_cache(c))
        return KVLAZY_EINVAL;
    int status = kvl_lock(c);
    if (status)
        return status;
    if (KVL_UNLIKELY(kvl_is_in_callback(c))) {
        kvl_unlock(c);
        return KVLAZY_EBUSY;
    }
    c->n_call++;
    if (door == KVL_DOOR_GROUP)
        kvl_window_follow_group(c->group);
    else if (door != KVL_DOOR_SEQ)
        kvl_window_follow(c);
    bool engine = kvl_has_engine_cells(c);
    if (door == KVL_DOOR_ENGINE ? !engine : (door == KVL_DOOR_CELLS || door == KVL_DOOR_SEQ) && engine)
        return kvl_leave(c, KVLAZY_ENOTSUP);
    return KVLAZY_OK;
}

int kvl_try_enter(kvlazy_cache *c)
{
    if (!kvl_try_lock(c))
        return KVLAZY_EBUSY;
    if (KVL_UNLIKELY(kvl_is_in_callback(c))) {
        kvl_unlock(c);
        return KVLAZY_EBUSY;
    }
    c->n_call++;
    kvl_window_follow_group(c->group);
    return KVLAZY_OK;
}

static int leave(kvlazy_cache *c, int status, bool checked)
{
    c->n_call--;
    if (KVL_UNLIKELY(!kvl_is_cache(c))) { /* a callback destroyed it */
        kvl_unlock(c);
        return KVLAZY_EINVAL;
    }
    kvl_window_follow(c);
#if KVLAZY_CHECKS >= 2
    KVL_ASSERT(!checked || !kvl_check(c, true));
#else
    (void)checked;
#endif
    kvl_unlock(c);
    return status;
}

int kvl_leave(kvlazy_cache *c, int status)
{
    return leave(c, status, true);
}

int kvl_leave_look(const kvlazy_cache *cache, int status)
{
    return leave(kvl_mutable(cache), status, false);
}
