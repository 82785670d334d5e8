/* SPDX-License-Identifier: MIT */
/* report: the log line that tells what a shrink did, by idling or on request. */
#ifndef KVL_REPORT_H
#define KVL_REPORT_H

#include "base/base.h"

/* Figures before a shrink. */
typedef struct kvl_report {
    uint64_t n_released, evicted_cells, moved_cells;
} kvl_report;

/* Notes the figures before a shrink; and tells what changed since. */
void kvl_report_begin(kvlazy_cache *cache);
void kvl_report_end(kvlazy_cache *cache, uint64_t now_ms, bool idle);

#endif
