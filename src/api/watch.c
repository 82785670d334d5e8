/* SPDX-License-Identifier: MIT */
/* watch: see watch.h. What a poll does is idle's. */
#include "api/watch.h"
#include "api/door.h"
#include "core/lock.h"

int kvl_watch(kvlazy_cache *c, const kvl_watcher *watcher)
{
    int entered = kvl_enter(c, KVL_DOOR_LOOK);
    if (entered)
        return entered;
    kvl_group *group = c->group;
    kvl_adopt(c);
    if (group->watcher)
        return kvl_leave(c, KVLAZY_EINVAL);
    group->watcher = watcher;
    group->told_ms = 0; /* it comes at once, and is told then */
    group->turned_away = false;
    return kvl_leave(c, KVLAZY_OK);
}

bool kvl_unwatch(kvlazy_cache *c, const kvl_watcher *watcher)
{
    if (kvl_lock(c)) /* not by a door: a callback of state may stop a reaper */
        return false;
    bool watches = c->group->watcher == watcher;

    if (watches) {
        c->group->watcher = NULL;
        watcher->lose(watcher->ctx, c, NULL);
    }
    kvl_unlock(c);
    return watches;
}
