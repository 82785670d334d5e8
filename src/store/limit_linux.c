/* SPDX-License-Identifier: MIT */
/* limit_linux: see limit.h. Part of libkvlazy and of libkvlazy_redis, each of which has its own. */
#include "store/limit.h"

#include <time.h>

uint64_t kvl_store_now_ms(void)
{
    struct timespec t = {0};

    clock_gettime(CLOCK_MONOTONIC, &t); /* cannot fail: the clock exists since 2.6.32 */
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

kvl_limit kvl_limit_of(uint64_t max_ms)
{
    uint64_t now_ms = kvl_store_now_ms();

    return (kvl_limit){now_ms, now_ms, max_ms};
}

void kvl_limit_moved(kvl_limit *limit)
{
    limit->moved_ms = kvl_store_now_ms();
}

uint64_t kvl_limit_left_ms(const kvl_limit *limit)
{
    uint64_t now_ms = kvl_store_now_ms();
    uint64_t passed_ms = now_ms - limit->begin_ms, still_ms = now_ms - limit->moved_ms;

    if (passed_ms >= limit->max_ms || still_ms >= KVL_STALL_MS)
        return 0;
    return kvl_min(limit->max_ms - passed_ms, KVL_STALL_MS - still_ms);
}

bool kvl_limit_is_stalled(const kvl_limit *limit)
{
    return kvl_store_now_ms() - limit->moved_ms >= KVL_STALL_MS;
}
