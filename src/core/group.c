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
    group->n_changed++; /* a plan knows nothing of it */
    kvl_arenas_use(c);  /* from here on other threads may look at it */
}

int kvl_group_join(kvlazy_cache *with, kvlazy_cache *c)
{
    if (with) {
        int status = kvl_lock(with);

        if (status)
            return status;
        kvl_now(with);
        join(with->group, c);
        kvl_unlock(with);
        return KVLAZY_OK;
    }
    kvl_group *group = new_group();
    if (!group)
        return KVLAZY_ENOMEM;
    if (kvl_losses_init(&group->losses, c->params.n_seq_max)) {
        kvl_free_group(group);
        return KVLAZY_ENOMEM;
    }
    group->now_ms = c->mem.now_ms(c->mem.ctx);
    group->process = kvl_host_process(&c->mem);
    join(group, c);
    return KVLAZY_OK;
}

const kvl_watcher *kvl_group_begin_leaving(kvlazy_cache *c)
{
    kvl_group *group = c->group;

    kvl_adopt(c);
    c->leaves = true;      /* it is not asked any more */
    kvl_wait_for_calls(c); /* and meanwhile the watcher and other members may go */
    const kvl_watcher *watcher = group->watcher;
    kvlazy_cache *heir = group->first;
    while (heir && heir->leaves)
        heir = heir->next;
    if (watcher)
        watcher->lose(watcher->ctx, c, heir);
    if (!heir)
        group->watcher = NULL;
    return watcher;
}

/* No other thread can have come between the calls of a destroy that stay inside, so the lock is to be had. */
void kvl_group_leave(kvlazy_cache *c)
{
    kvl_group *group = c->group;
    kvlazy_cache **at = &group->first;

    pthread_mutex_lock(&group->lock);
    kvl_wait_for_calls(c); /* a line of its log may be on the way */
    kvl_arenas_leave(c);
    kvl_rows_count_out(&c->rows);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    group->n_changed++;
    c->next = group->ghosts;
    group->ghosts = c;
    kvl_let_go(group);
}

static uint64_t no_time(void *ctx)
{
    (void)ctx;
    return 0; /* the group's clock does not step back */
}

/* Calls that come back find a cache without streams, sequences and bytes: every loop over them ends at once. */
void kvl_group_bury(kvlazy_cache *c)
{
    kvl_group *group = c->group;

    pthread_mutex_lock(&group->lock);
    *c = (kvlazy_cache){
        .group = group,
        .next = c->next,
        .leaves = true,
        .n_call = c->n_call - 1,
        .mem = {.struct_size = sizeof c->mem, .now_ms = no_time},
        .decay = {.fallow_due_ms = KVL_NEVER, .retry_ms = KVL_NEVER},
    };
    kvl_let_go(group);
}
