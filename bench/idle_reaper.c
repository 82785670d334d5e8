/* SPDX-License-Identifier: MIT */
/*
 * The library's thread that polls, kvlazy_reaper, behind the table of idle.h.
 */
#include "idle.h"

#include <kvlazy/reaper.h>

static void *reaper_start(kvlazy_cache *cache)
{
    kvlazy_reaper *reaper;
    int status = kvlazy_reaper_create(NULL, &reaper);
    if (status != KVLAZY_OK) {
        idle_error("kvlazy_reaper_create", status);
        return NULL;
    }
    status = kvlazy_reaper_add(reaper, cache);
    if (status != KVLAZY_OK) {
        idle_error("kvlazy_reaper_add", status);
        kvlazy_reaper_destroy(reaper);
        return NULL;
    }
    return reaper;
}

static void reaper_stop(void *side, kvlazy_cache *cache)
{
    kvlazy_reaper_remove(side, cache);
    kvlazy_reaper_destroy(side);
}

const struct idle_side idle_reaper = {"kvlazy_reaper", reaper_start, reaper_stop};
