/* SPDX-License-Identifier: MIT */
/* The caches of reaper_support.h, and the clocks under them. */
#include "reaper_support.h"
#include "core/lock.h"

#include <time.h>

uint64_t real_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void nap(long ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

void set_now(struct rig *r, uint64_t now)
{
    pthread_mutex_lock(&r->fake.lock);
    r->fake.now = now;
    pthread_mutex_unlock(&r->fake.lock);
}

uint64_t n_looked(struct rig *r)
{
    pthread_mutex_lock(&r->fake.lock);
    uint64_t n = r->fake.n_call[FAKE_NOW];
    pthread_mutex_unlock(&r->fake.lock);
    return n;
}

void quiet(struct rig *r)
{
    r->params.log = NULL;
    r->params.on_evict = NULL;
}

/* The memory is the fake's, the time is real. */
static kvlazy_mem timed;

static uint64_t host_clock(void *ctx)
{
    (void)ctx;
    return kvlazy_mem_host()->now_ms(NULL);
}

struct rig *open_timed(struct rig *r, uint32_t initial, uint32_t idle_ms)
{
    quiet(r);
    timed = r->fake.table;
    timed.now_ms = host_clock;
    r->params.mem = &timed;
    r->params.kv_size_initial = initial;
    r->params.slot_shrink_idle_ms = idle_ms;
    r->beside = true; /* the reaper moves cells meanwhile */
    rig_open(r);
    return r;
}

struct rig *open_fake(struct rig *r, uint32_t initial, uint32_t idle_ms)
{
    quiet(r);
    r->params.kv_size_initial = initial;
    r->params.slot_shrink_idle_ms = idle_ms;
    r->beside = true; /* the reaper moves cells meanwhile */
    rig_open(r);
    return r;
}

kvlazy_reaper *new_reaper(void)
{
    kvlazy_reaper *reaper = NULL;

    ok(kvlazy_reaper_create("", &reaper));
    return reaper;
}

uint64_t touched(struct rig *r)
{
    return stats(r).touched_bytes;
}

bool is_watched(struct rig *r)
{
    kvl_lock(r->cache);
    bool is = r->cache->group->watcher != NULL;
    kvl_unlock(r->cache);
    return is;
}
