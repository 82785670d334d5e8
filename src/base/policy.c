/* SPDX-License-Identifier: MIT */
/* policy: see policy.h. */
#include "base/policy.h"

/* Above this size a page costs hardly less, and keeps more. */
enum { PAGE_MOST_BYTES = 64 << 10 };

static uint64_t next_pow2(uint64_t n)
{
    return n <= 1 ? n : UINT64_C(1) << (64 - __builtin_clzll(n - 1));
}

uint32_t kvl_policy_cap(uint32_t kv_size, uint32_t kv_size_initial, uint32_t n_pad, uint32_t end)
{
    uint64_t cap = kvl_max(kv_size_initial, next_pow2(end));

    return (uint32_t)kvl_min(kv_size, kvl_round_up(cap, n_pad));
}

uint32_t kvl_policy_n_kv(uint32_t kv_size, uint32_t n_pad, uint32_t used_end)
{
    return (uint32_t)kvl_min(kv_size, kvl_round_up(kvl_max(used_end, 1), n_pad));
}

int64_t kvl_policy_window_begin(int swa_type, uint32_t n_swa, int64_t query)
{
    int64_t n = n_swa, begin = 0;

    switch (swa_type) {
    case KVLAZY_SWA_STANDARD:
        begin = query - n + 1;
        break;
    case KVLAZY_SWA_CHUNKED:
        begin = query / n * n;
        break;
    case KVLAZY_SWA_SYMMETRIC:
        begin = query - n / 2;
        break;
    }
    return begin > 0 ? begin : 0;
}

uint64_t kvl_policy_page_most(uint64_t asked_bytes, uint64_t row_bytes, uint32_t kv_size_initial)
{
    uint64_t most = PAGE_MOST_BYTES, bytes;

    if (asked_bytes)
        return asked_bytes;
    return row_bytes && !kvl_mul_overflows(row_bytes, kv_size_initial, &bytes) ? kvl_min(most, bytes) : most;
}

uint64_t kvl_policy_fault_ns(uint64_t write_ns, uint64_t fault_ns, uint32_t n_writer)
{
    return fault_ns > write_ns ? (fault_ns - write_ns) / kvl_max(n_writer, 1) : 0;
}

uint32_t kvl_policy_excess(uint32_t n_live, uint32_t target)
{
    return n_live > target ? n_live - target : 0;
}

uint64_t kvl_policy_until_idle(uint64_t now_ms, uint64_t since_ms, uint32_t idle_ms)
{
    if (!idle_ms)
        return KVL_NEVER;
    uint64_t age_ms = now_ms > since_ms ? now_ms - since_ms : 0; /* a clock that stepped back makes nothing older */
    return age_ms >= idle_ms ? 0 : idle_ms - age_ms;
}
