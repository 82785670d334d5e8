/* SPDX-License-Identifier: MIT */
/*
 * writer: a sequence, or a whole cache, written out as bytes of one moment: what is settled by an end_batch when the
 * call begins. Rows are copied a piece at a time under the lock; where a sequence changed meanwhile the call ends.
 * Changes nothing.
 */
#ifndef KVL_STATE_WRITER_H
#define KVL_STATE_WRITER_H

#include "state/io.h"

/* seq -1: the whole cache. With the lock held, before and after. KVLAZY_ESHIFT, _EPOS, _EIO, _ENOMEM, _ENOTSUP. */
int kvl_state_write(kvlazy_cache *cache, kvlazy_seq_id seq, const kvl_state_ends *ends);

/* How many bytes that would be now. */
int kvl_state_measure(kvlazy_cache *cache, kvlazy_seq_id seq, uint64_t *bytes);

#endif
