/* SPDX-License-Identifier: MIT */
/*
 * copy: seq_cp. Inside a stream a copy is one more owner; across streams the rows of live cells are copied, never
 * padding. Like apply it finds the room, asks the host, and only then records: a refusal changes nothing.
 */
#ifndef KVL_COPY_H
#define KVL_COPY_H

#include "core/cache.h"

/* Valid ids. KVLAZY_ENOSLOT, KVLAZY_EBUDGET, KVLAZY_ENOMEM, KVLAZY_ENOTSUP. */
int kvl_copy(kvlazy_cache *cache, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1);

#endif
