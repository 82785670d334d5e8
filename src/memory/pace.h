/* SPDX-License-Identifier: MIT */
/*
 * pace: what a page costs on this host, made present by one call before it is written, or by the fault of the thread
 * that writes it. Which is cheaper differs between kernels, sizes of pages and virtual machines, so a few pages are
 * tried out when a cache is created, and the calls that the cache makes are held against that. What the times say is
 * the policy's to decide.
 */
#ifndef KVL_PACE_H
#define KVL_PACE_H

#include "memory/page.h"

/* Nanoseconds of some pages, the same number in each way. */
typedef struct kvl_pace {
    uint64_t n_page;
    uint64_t commit_ns; /* making them present, by one thread */
    uint64_t write_ns;  /* writing them then */
    uint64_t fault_ns;  /* writing them without that */
} kvl_pace;

/* Tries pages out, in a reservation of their own that is gone afterwards. Returns false where nothing can be timed. */
bool kvl_pace_try(const kvlazy_mem *mem, kvl_page page, kvl_pace *pace);

/* What a page may cost in a call, and what it did in the last ones. All zero: it may cost anything. */
typedef struct kvl_pacer {
    uint64_t fault_ns; /* by the faults of all writing threads; 0: not known */
    uint64_t least_ns; /* in the cheapest of the last calls */
    uint32_t n_call;
} kvl_pacer;

/* Notes a call, if it is neither so short nor so long that it would say nothing. Returns whether calls still pay: false
 * when some in a row all cost more than faults would. */
bool kvl_pacer_note(kvl_pacer *pacer, uint64_t n_page, uint64_t ns);

#endif
