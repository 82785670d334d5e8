/* SPDX-License-Identifier: MIT */
/*
 * reader: a state becomes tokens of a cache, all of it or nothing. What comes is believed only where format has checked
 * it. Rows go into held cells, which become live when the last checksum agreed; until then the cache is as it was.
 */
#ifndef KVL_STATE_READER_H
#define KVL_STATE_READER_H

#include "state/io.h"

/* seq -1: the whole cache, which is empty. With the lock held, before and after. Opens a batch where none is, and
 * closes that one again on an error. KVLAZY_ESTATE, _EIO, _ENOSLOT, _EBUDGET, _ENOMEM, _ESHIFT, _ENOTSUP, _EINVAL. */
int kvl_state_read(kvlazy_cache *cache, kvlazy_seq_id seq, const kvl_state_ends *ends);

#endif
