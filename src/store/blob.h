/* SPDX-License-Identifier: MIT */
/*
 * blob: the bytes of a block in a place: a header, then the rows of its tokens, tensor by tensor, row-major. Pure: a
 * blob lies in memory, whole. What a header has to say is known before a blob is read, but for the checksums of rows,
 * which are computed; so a blob is right where its header is, byte by byte, the one that would be written.
 *
 *     | header, zeros up to whole pages | rows of tensor 0 | rows of tensor 1 | ... | zeros up to whole pages |
 *
 * A header, in numbers of the lowest byte first:
 *
 *      0  magic, u64          8  version, u32     12  header bytes, u32    16  kind, u32    20  tensors, u32
 *     24  name, 32 bytes     56  name of the block before                  88  first position, u32
 *     92  tokens, u32        96  bytes of rows with their padding, u64    104  the tokens, u32 each
 *      …  digest of the spans, 32 bytes; for each tensor: layer, u32 · 2 × cache + is V, u32 · bytes of a row, u64 ·
 *         offset in the blob, u64 · XXH3 of its rows, u64; XXH3 of all that stands before, u64
 */
#ifndef KVL_STORE_BLOB_H
#define KVL_STORE_BLOB_H

#include "store/chain.h"

enum { KVL_BLOB_PAGE_BYTES = 4096, KVL_BLOB_TOKENS = 0 /* kind; others are for what is no block of tokens */ };

/* "kvlblock", lowest byte first. */
#define KVL_BLOB_MAGIC UINT64_C(0x6b636f6c626c766b)

/* The rows of one tensor. */
typedef struct kvl_blob_part {
    kvlazy_cache *cache;
    const kvl_tensor *tensor;
    uint32_t number; /* of the cache among the linked ones */
    uint64_t row_bytes, offset;
} kvl_blob_part;

typedef struct kvl_blob_shape {
    uint32_t n_token, n_part, n_cache;
    kvl_blob_part *part; /* [n_part] by cache, layer, K before V */
    uint64_t header_bytes, payload_bytes, bytes;
} kvl_blob_shape;

/* Of blocks of n_token tokens of all linked caches. KVLAZY_ENOMEM: nothing is held. */
int kvl_blob_shape_init(kvl_blob_shape *shape, kvlazy_cache *cache, uint32_t n_token);
void kvl_blob_shape_fini(kvl_blob_shape *shape);

/* The header of block `block` of a chain, to `header`, for rows that lie where the shape says in `blob`. */
void kvl_blob_put_header(const kvl_blob_shape *shape, const kvl_chain *chain, const kvlazy_prompt *prompt,
                         uint32_t block, const unsigned char *blob, unsigned char *header);

/* A blob is all that it should be. scratch: header_bytes of room. */
bool kvl_blob_is_right(const kvl_blob_shape *shape, const kvl_chain *chain, const kvlazy_prompt *prompt, uint32_t block,
                       const unsigned char *blob, unsigned char *scratch);

#endif
