/* SPDX-License-Identifier: MIT */
/*
 * rows: rows of cells that an engine keeps itself, for a format of its own. No head, no section, no checksum: tensor by
 * tensor, by layer, K before V, row-major.
 */
#ifndef KVL_STATE_ROWS_H
#define KVL_STATE_ROWS_H

#include "state/io.h"

/* Valid cells, with the lock held, before and after. KVLAZY_EIO, _ENOMEM, _ENOTSUP. */
int kvl_state_rows_write(kvlazy_cache *cache, uint32_t stream, const uint32_t *cell, uint32_t n,
                         const kvl_state_ends *ends);

/* Makes the cells' pages touched, and opens a batch where none is. After an error their rows read zero. KVLAZY_EBUDGET
 * too. */
int kvl_state_rows_read(kvlazy_cache *cache, uint32_t stream, const uint32_t *cell, uint32_t n,
                        const kvl_state_ends *ends);

#endif
