/* SPDX-License-Identifier: MIT */
/* smaller: see smaller.h. */
#include "memory/smaller.h"

bool kvl_arena_make_smaller(kvlazy_arena *a)
{
    uint64_t page_bytes = kvl_page_bytes(&a->mem, false), n_page = kvl_div_up(a->bytes, kvl_max(page_bytes, 1));

    if (a->n_cache || a->n_touched || !page_bytes)
        return false;
    uint64_t *touched = calloc(kvl_bits_words(n_page) + 1, sizeof *touched);
    if (!touched || (a->map && !kvl_host_keeps_small(&a->mem, a->map, a->map_bytes))) {
        free(touched);
        return false;
    }
    free(a->touched);
    a->touched = touched;
    a->n_page = n_page;
    a->page_shift = (uint32_t)__builtin_ctzll(page_bytes);
    a->reserve_flags &= ~(uint32_t)(KVLAZY_RESERVE_HUGE_PAGES | KVLAZY_RESERVE_ANY_PAGES);
    return true;
}
