/* SPDX-License-Identifier: MIT */
/*
 * chain: the names of a prompt's blocks. Each is the SHA-256 of the name before it and of what is in the block, and the
 * first one hangs on everything else that rows depend on; so a name stands for all tokens up to the end of its block.
 * Also says whether a prompt is one at all. Knows no place and no lock.
 */
#ifndef KVL_STORE_CHAIN_H
#define KVL_STORE_CHAIN_H

#include "core/cache.h"
#include "store/ops.h"

#include <kvlazy/store.h>

enum { KVL_STORE_VERSION = 1 };

typedef struct kvl_chain {
    uint32_t block_tokens, n_block;
    uint8_t (*name)[KVL_NAME_BYTES]; /* [n_block + 1]; name[0] stands for no token, name[i + 1] for block i */
} kvl_chain;

/* Reads a prompt of any version. Returns false where its members do not fit together, for a cache of this kind. */
bool kvl_prompt_read(const kvlazy_cache *cache, const kvlazy_prompt *theirs, kvlazy_prompt *prompt);

/* The whole blocks of the first n_token tokens, whose names are still to be made. Linked caches are one, oldest first.
 * KVLAZY_ENOMEM: nothing is held. */
int kvl_chain_init(kvl_chain *chain, const kvlazy_cache *cache, const kvlazy_prompt *prompt, uint32_t n_token,
                   uint32_t block_tokens);
void kvl_chain_fini(kvl_chain *chain);

/* Names the blocks: 8 bytes of SHA-256 a token, milliseconds for a long prompt. Looks at no cache, so no lock is held.
 */
void kvl_chain_name_blocks(kvl_chain *chain, const kvlazy_prompt *prompt);

/* What stands in a block beside its tokens: a digest of the spans that reach into it. */
void kvl_chain_spans(const kvlazy_prompt *prompt, uint32_t begin, uint32_t n, uint8_t digest[KVL_NAME_BYTES]);

#endif
