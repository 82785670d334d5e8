/* SPDX-License-Identifier: MIT */
/* pace: see pace.h. */
#include "memory/pace.h"

enum {
    TRIES = 3,               /* the fastest counts: the others were disturbed */
    TRIED_BYTES = 256 << 10, /* at least one page, and at most so many bytes */
    CALLS = 8,               /* that have to agree, */
    CALL_PAGES = 8,          /* of so many pages or more: of fewer the call itself is the cost; */
    CALL_NS = 1000000,       /* and that should be done in this time: others run in the middle of longer ones */
};

static uint64_t write_all(const kvlazy_mem *mem, const kvlazy_range *range)
{
    uint64_t from_ns = kvl_host_now_ns(mem);

    memset(range->addr, 0x5a, range->bytes);
    return kvl_host_now_ns(mem) - from_ns;
}

/* Returns false where the host refuses something. */
static bool try_once(const kvlazy_mem *mem, const kvlazy_range *range, kvl_pace *best)
{
    uint64_t fault_ns = write_all(mem, range), from_ns, commit_ns;

    if (mem->decommit(mem->ctx, range, 1) != 1)
        return false;
    from_ns = kvl_host_now_ns(mem);
    if (mem->commit(mem->ctx, range, 1) != 0)
        return false;
    commit_ns = kvl_host_now_ns(mem) - from_ns;
    best->commit_ns = kvl_min(best->commit_ns, commit_ns);
    best->write_ns = kvl_min(best->write_ns, write_all(mem, range));
    best->fault_ns = kvl_min(best->fault_ns, fault_ns);
    return mem->decommit(mem->ctx, range, 1) == 1;
}

bool kvl_pace_try(const kvlazy_mem *mem, kvl_page page, kvl_pace *pace)
{
    size_t bytes = (size_t)kvl_max(page.bytes, TRIED_BYTES), map_bytes = bytes + (size_t)page.bytes;
    char *map = kvl_host_now_ns(mem) ? mem->reserve(mem->ctx, map_bytes, page.flags) : NULL;
    bool tried = map != NULL;

    if (!map)
        return false;
    kvlazy_range range = {map + (kvl_round_up((uintptr_t)map, page.bytes) - (uintptr_t)map), bytes};
    *pace = (kvl_pace){bytes / page.bytes, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    for (int i = 0; tried && i < TRIES; i++)
        tried = try_once(mem, &range, pace);
    return mem->unreserve(mem->ctx, map, map_bytes) == 0 && tried;
}

bool kvl_pacer_note(kvl_pacer *p, uint64_t n_page, uint64_t ns)
{
    if (!p->fault_ns || n_page < CALL_PAGES || n_page > CALL_NS / p->fault_ns)
        return true;
    p->least_ns = p->n_call ? kvl_min(p->least_ns, ns / n_page) : ns / n_page;
    if (++p->n_call < CALLS)
        return true;
    p->n_call = 0;
    return p->least_ns <= p->fault_ns;
}
