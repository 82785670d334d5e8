/* SPDX-License-Identifier: MIT */
/*
 * What the tests of the prefix store stand on: an engine whose rows follow from the tokens before and in them, from
 * the spans and the scope, so that a test can tell for every live token whether its rows are those of its prompt,
 * whichever cache, store or slot they came through.
 */
#ifndef PREFIX_SUPPORT_H
#define PREFIX_SUPPORT_H

#include "state_support.h"

#include <kvlazy/store.h>

enum { PREFIX_MOST = 512 }; /* tokens of a prompt */

/* A box with a model_tag and so many cells; not open. */
struct box *prefix_box(uint32_t kv_size);

/* A store of small blocks that saves every whole one. */
kvlazy_store *prefix_store(const kvlazy_store_ops *ops, uint32_t block_tokens);
kvlazy_store_info prefix_info(kvlazy_store *store);

/* The tokens [begin, end) of a prompt are computed, in the open batch: prepared, applied and written. The status of
 * prepare. */
int prefix_compute(struct box *box, kvlazy_seq_id seq, const kvlazy_prompt *prompt, uint32_t begin, uint32_t end);
/* The same in a batch of its own, which must succeed. */
void prefix_turn(struct box *box, kvlazy_seq_id seq, const kvlazy_prompt *prompt, uint32_t begin, uint32_t end);

/* Fails the test unless the sequence has the positions 0 … n − 1 and no others, with the rows of the prompt. */
void prefix_holds(struct box *box, kvlazy_seq_id seq, const kvlazy_prompt *prompt, uint32_t n);

/* One token where the engine keeps the cells: writes its rows, and looks whether they are there. */
void prefix_write(struct box *box, const kvlazy_prompt *prompt, uint32_t i);
bool prefix_is(struct box *box, const kvlazy_prompt *prompt, uint32_t i);
bool prefix_is_zero(struct box *box, uint32_t stream, uint32_t cell);

#endif
