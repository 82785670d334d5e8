/* SPDX-License-Identifier: MIT */
/*
 * checksum: XXH3 of a run of bytes that comes in pieces, 64 bits. It finds damage, and no more: a program that
 * writes a state writes its checksums too. The only file that knows xxhash.
 */
#ifndef KVL_STATE_CHECKSUM_H
#define KVL_STATE_CHECKSUM_H

#include "base/base.h"

typedef struct kvl_checksum kvl_checksum;

kvl_checksum *kvl_checksum_new(void); /* NULL: no memory */
void kvl_checksum_free(kvl_checksum *checksum);
void kvl_checksum_begin(kvl_checksum *checksum);
void kvl_checksum_add(kvl_checksum *checksum, const void *data, size_t bytes);
uint64_t kvl_checksum_end(const kvl_checksum *checksum);

/* Of bytes that are all there. */
uint64_t kvl_checksum_of(const void *data, size_t bytes);

#endif
