/* SPDX-License-Identifier: MIT */
/*
 * batch: when a batch is open, and which sequences and streams it used. From its opening to its end nothing is dropped
 * or moved, in all the group; its end stamps the idle clocks of what it used.
 */
#ifndef KVL_BATCH_H
#define KVL_BATCH_H

#include "core/cache.h"

void kvl_batch_open(kvl_group *group);

/* Ends a batch without stamping. Its slots can be read until the next prepare, and not applied. */
void kvl_batch_close(kvl_group *group);

/* Stamps what was applied since, in all the group. */
void kvl_batch_stamp(kvl_group *group, uint64_t now_ms);

/* A batch is open, or one that a failed prepare closed is still to be stamped: it ends here. */
bool kvl_batch_is_due(const kvl_group *group);

/* A sequence got a token at this position, which is settled when the batch ends. */
void kvl_batch_note(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos pos);

#endif
