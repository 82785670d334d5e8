/* SPDX-License-Identifier: MIT */
/* cap: the soft cap of a stream, derived from its cells for operators and log lines. It steers nothing. */
#ifndef KVL_CAP_H
#define KVL_CAP_H

#include "core/cache.h"

uint32_t kvl_soft_cap(const kvlazy_params *params, const kvl_stream *stream, uint64_t now_ms);

/* The log tells a cap that changed: one line. */
void kvl_say_cap(kvlazy_cache *cache, kvl_stream *stream, uint32_t cap);

/* Cells were filled: the log tells the cap if it rose. */
void kvl_follow_cap(kvlazy_cache *cache, kvl_stream *stream);

#endif
