/* SPDX-License-Identifier: MIT */
/* table: see table.h. */
#include "memory/table.h"

enum { HUGE_PAGE_BYTES = 2 << 20 }; /* where the host does not say */

static const uint16_t mem_end[] = {
    KVL_END(kvlazy_mem, ctx),
    KVL_END(kvlazy_mem, page_bytes),
    KVL_END(kvlazy_mem, reserve),
    KVL_END(kvlazy_mem, unreserve),
    KVL_END(kvlazy_mem, commit),
    KVL_END(kvlazy_mem, decommit),
    KVL_END(kvlazy_mem, resident),
    KVL_END(kvlazy_mem, now_ms),
    KVL_END(kvlazy_mem, set_writable),
    KVL_END(kvlazy_mem, huge_page_bytes),
    KVL_END(kvlazy_mem, traits),
    KVL_END(kvlazy_mem, why_refused),
    KVL_END(kvlazy_mem, headroom),
    KVL_END(kvlazy_mem, now_ns),
    KVL_END(kvlazy_mem, process_id),
    KVL_END(kvlazy_mem, count),
    KVL_END(kvlazy_mem, max_mappings),
    KVL_END(kvlazy_mem, granted),
    KVL_END(kvlazy_mem, why_not_granted),
    KVL_END(kvlazy_mem, keep_small),
    0,
};

_Static_assert(KVL_IS_LAST(kvlazy_mem, keep_small), "a member is not among the ends");

bool kvl_table_read(const kvlazy_mem *theirs, kvlazy_mem *mem)
{
    theirs = theirs ? theirs : kvlazy_mem_host();
    if (!kvl_input_fits(theirs, sizeof *mem, mem_end) || kvl_struct_size(theirs) < offsetof(kvlazy_mem, set_writable))
        return false;
    *mem = (kvlazy_mem){.struct_size = sizeof *mem};
    kvl_struct_copy(mem, sizeof *mem, theirs, kvl_struct_size(theirs));
    return mem->page_bytes && mem->reserve && mem->unreserve && mem->commit && mem->decommit && mem->resident &&
           mem->now_ms;
}

uint64_t kvl_page_bytes(const kvlazy_mem *mem, bool huge)
{
    size_t page_bytes = mem->page_bytes(mem->ctx), huge_bytes = HUGE_PAGE_BYTES;

    if (!huge)
        return kvl_is_pow2(page_bytes) ? page_bytes : 0;
    if (mem->huge_page_bytes)
        huge_bytes = mem->huge_page_bytes(mem->ctx);
    return kvl_is_pow2(page_bytes) && kvl_is_pow2(huge_bytes) ? kvl_max(page_bytes, huge_bytes) : 0;
}

uint64_t kvl_host_granted(const kvlazy_mem *mem, uint32_t flags)
{
    uint64_t page_bytes = kvl_page_bytes(mem, false), granted = mem->granted ? mem->granted(mem->ctx, flags) : 0;

    return kvl_is_pow2(granted) ? kvl_max(granted, page_bytes) : page_bytes;
}

bool kvl_host_keeps_small(const kvlazy_mem *mem, void *addr, uint64_t bytes)
{
    return mem->keep_small && mem->keep_small(mem->ctx, addr, (size_t)bytes) == 0;
}

const char *kvl_host_why_not_granted(const kvlazy_mem *mem, uint64_t page_bytes, char text[KVL_GRANT_BYTES])
{
    if (!mem->why_not_granted || !mem->why_not_granted(mem->ctx, (size_t)page_bytes, text + 2, KVL_GRANT_BYTES - 2))
        return "";
    memcpy(text, ": ", 2);
    return text;
}

uint32_t kvl_host_traits(const kvlazy_mem *mem)
{
    return mem->traits ? mem->traits(mem->ctx) : 0;
}

bool kvl_host_commits(const kvlazy_mem *mem)
{
    return !(kvl_host_traits(mem) & (KVLAZY_HOST_NUMA | KVLAZY_HOST_LOCKED | KVLAZY_HOST_FAULTS));
}

uint64_t kvl_host_headroom(const kvlazy_mem *mem, const char *root)
{
    return mem->headroom ? mem->headroom(mem->ctx, root) : UINT64_MAX;
}

uint64_t kvl_host_count(const kvlazy_mem *mem, kvl_account *account, int what, uint64_t change)
{
    return mem->count ? mem->count(mem->ctx, what, change) : (account->sum[what] += change);
}

uint64_t kvl_host_max_mappings(const kvlazy_mem *mem)
{
    uint64_t n = mem->max_mappings ? mem->max_mappings(mem->ctx) : 0;

    return n ? n : UINT64_MAX;
}

uint64_t kvl_host_now_ns(const kvlazy_mem *mem)
{
    return mem->now_ns ? mem->now_ns(mem->ctx) : 0;
}

uint64_t kvl_host_process(const kvlazy_mem *mem)
{
    return mem->process_id ? mem->process_id(mem->ctx) : 0;
}

const char *kvl_host_why(const kvlazy_mem *mem, uint64_t bytes, char text[KVL_WHY_BYTES])
{
    if (!bytes || !mem->why_refused || !mem->why_refused(mem->ctx, (size_t)bytes, text + 2, KVL_WHY_BYTES - 2))
        return "";
    memcpy(text, ": ", 2);
    return text;
}
