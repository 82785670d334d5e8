/* SPDX-License-Identifier: MIT */
/* group: see group.h. */
#include "core/group.h"
#include "core/arenas.h"
#include "core/clock.h"
#include "core/lock.h"

static kvl_group *new_group(void)
{
    kvl_group *group = calloc(1, sizeof *group);

    if (group)
        group->told_ms = group->stale_ms = KVL_NEVER;
    if (group && pthread_mutex_init(&group->lock, NULL) != 0) {
        free(group);
        return NULL;
    }
    if (group && pthread_cond_init(&group->came_back, NULL) != 0) {
        pthread_mutex_destroy(&group->lock);
        free(group);
        return NULL;
    }
    return group;
}

/* The newest member is the last. The lock is held, or no other thread knows the group yet. */
static void join(kvl_group *group, kvlazy_cache *c)
{
    kvlazy_cache **end = &group->first;

    while (*end)
        end = &(*end)->next;
    *end = c;
    c->group = group;
    c->rows.account = &group->account;
    c->decay.epoch_ms = c->decay.aged_ms = group->now_ms;
    kvl_arenas_use(c); /* from here on other threads may look at it */
}

int kvl_group_join(kvlazy_cache *with, kvlazy_cache *c)
{
    if (with) {
        kvl_lock(with);
        kvl_now(with);
        join(with->group, c);
        kvl_unlock(with);
        return KVLAZY_OK;
    }
    kvl_group *group = new_group();
    if (!group)
        return KVLAZY_ENOMEM;
    group->now_ms = c->mem.now_ms(c->mem.ctx);
    join(group, c);
    return KVLAZY_OK;
}

const kvl_watcher *kvl_group_begin_leaving(kvlazy_cache *c)
{
    kvl_group *group = c->group;
    const kvl_watcher *watcher = group->watcher;
    kvlazy_cache *heir = group->first;

    c->leaves = true; /* it is not asked any more */
    kvl_wait_for_calls(group);
    while (heir && heir->leaves)
        heir = heir->next;
    if (watcher)
        watcher->lose(watcher->ctx, c, heir);
    if (!heir)
        group->watcher = NULL;
    return watcher;
}

void kvl_group_leave(kvlazy_cache *c)
{
    kvl_group *group = c->group;
    kvlazy_cache **at = &group->first;

    kvl_lock(c);
    kvl_wait_for_calls(group); /* a line of its log may be on the way */
    kvl_arenas_leave(c);
    kvl_rows_count_out(&c->rows);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    bool last = !group->first;
    pthread_mutex_unlock(&group->lock);
    if (!last)
        return;
    pthread_cond_destroy(&group->came_back);
    pthread_mutex_destroy(&group->lock);
    free(group);
}
