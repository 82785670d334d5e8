/* SPDX-License-Identifier: MIT */
/* page: see page.h. */
#include "memory/page.h"

kvl_page kvl_page_choose(const kvlazy_mem *mem, uint64_t most_bytes)
{
    static const uint32_t ways[] = {KVLAZY_RESERVE_ANY_PAGES, KVLAZY_RESERVE_HUGE_PAGES};
    kvl_page best = {kvl_page_bytes(mem, false), 0};

    for (size_t i = 0; best.bytes && most_bytes > best.bytes && i < sizeof ways / sizeof *ways; i++) {
        kvl_page page = {kvl_host_granted(mem, ways[i]), ways[i]};

        if (page.bytes > best.bytes && page.bytes <= most_bytes)
            best = page;
    }
    return best;
}

kvl_page kvl_page_huge(const kvlazy_mem *mem)
{
    return (kvl_page){kvl_page_bytes(mem, true), KVLAZY_RESERVE_HUGE_PAGES};
}
