/* SPDX-License-Identifier: MIT */
/*
 * apply: the cells of a slot take the tokens of its ubatch, and the pages of their rows are made ready first. Undo
 * takes one ubatch back. On touched pages neither asks the host for anything but the time.
 */
#ifndef KVL_APPLY_H
#define KVL_APPLY_H

#include "core/cache.h"

int kvl_apply(kvlazy_cache *cache, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch);
int kvl_undo(kvlazy_cache *cache, const kvlazy_slot *slot);

/* Cells that attention reads for these tokens; and the note that it does. */
uint32_t kvl_slot_n_kv(const kvlazy_cache *cache, const kvl_plan_ubatch *planned);
void kvl_note_read(kvlazy_cache *cache, const kvl_plan_ubatch *planned, uint32_t n_kv);

#endif
