/* SPDX-License-Identifier: MIT */
/*
 * untouched: pages under rows that were written without being touched, by a rotation of every row, or a restore outside
 * a batch. No bitmap knows of them, so the host is asked, in pieces, where a stream comes to rest and on request; what
 * is in RAM, not touched, and holds no live cell goes back. Called by the idle side, never by a hook.
 */
#ifndef KVL_UNTOUCHED_H
#define KVL_UNTOUCHED_H

#include "base/base.h"

typedef struct kvl_untouched {
    bool searches;   /* in the streams that say so */
    bool under_way;  /* a piece of the search is done */
    uint32_t tensor; /* where the search stands: a tensor, one of its lanes, and a page of its arena */
    uint64_t lane, page;
} kvl_untouched;

/* A stream, or every one, is to be searched, by another search where one is under way. On a host whose pages do not
 * read zero when they were given back there is no search: zeroing them by hand would make them resident. */
void kvl_untouched_begin(kvlazy_cache *cache, uint32_t stream);
void kvl_untouched_begin_all(kvlazy_cache *cache);

/* Searches one piece: of so many pages that asking takes a millisecond, and of so many bytes that giving them back
 * takes no longer than a piece of a release. Returns whether more is left. */
bool kvl_untouched_piece(kvlazy_cache *cache);

#endif
