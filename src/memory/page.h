/* SPDX-License-Identifier: MIT */
/*
 * page: which pages a reservation is made of. A host hands out pages of its own size, and perhaps larger ones, each
 * under an advice that the reservation is made with. The largest that suits is chosen here, for a cache when it is
 * created and for an arena of an engine's. Everything that counts pages counts the chosen ones: each is committed,
 * touched and given back as a whole.
 */
#ifndef KVL_PAGE_H
#define KVL_PAGE_H

#include "memory/table.h"

typedef struct kvl_page {
    uint64_t bytes; /* 0: the host's own page has no size that could be used */
    uint32_t flags; /* KVLAZY_RESERVE_* that such pages need */
} kvl_page;

/* Returns the largest page that the host grants and that has at most so many bytes, or else the host's own, to which
 * the kernel then keeps. Where two ways grant the same, it is the one without advice: with advice the kernel compacts
 * memory inside the fault. */
kvl_page kvl_page_choose(const kvlazy_mem *mem, uint64_t most_bytes);

/* Returns the huge page of the host. */
kvl_page kvl_page_huge(const kvlazy_mem *mem);

#endif
