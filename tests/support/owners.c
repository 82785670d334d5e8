/* SPDX-License-Identifier: MIT */
/* owners: see owners.h. */
#include "owners.h"

#include <string.h>

#include "core/cache.h"

enum { SEQS = 65536 };

static const kvl_cells *cells_of(const kvlazy_cache *cache, uint32_t stream)
{
    return &cache->stream[stream].cells;
}

uint32_t owner_words(const kvlazy_cache *cache, uint32_t stream, uint32_t cell, uint64_t *word, uint32_t n_word)
{
    const kvl_cells *cells = cells_of(cache, stream);
    uint32_t n = 0;

    memset(word, 0, n_word * sizeof *word);
    kvlazy_seq_id only = kvl_cells_only_owner(cells, cell);
    if (only >= 0 && (uint32_t)only / 64 < n_word)
        word[(uint32_t)only / 64] = UINT64_C(1) << only % 64;
    if (only >= 0)
        return 1;
    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, cell, o + 1)) >= 0; n++)
        if ((uint32_t)o / 64 < n_word)
            word[(uint32_t)o / 64] |= UINT64_C(1) << o % 64;
    return n;
}

uint64_t owner_bits(const kvlazy_cache *cache, uint32_t stream, uint32_t cell)
{
    uint64_t word;

    owner_words(cache, stream, cell, &word, 1);
    return word;
}

bool is_owner(const kvlazy_cache *cache, uint32_t stream, uint32_t cell, uint32_t seq)
{
    return kvl_cells_owns(cells_of(cache, stream), cell, (kvlazy_seq_id)seq);
}

bool same_owners(const kvlazy_cache *cache, uint32_t stream, uint32_t a, uint32_t b)
{
    uint64_t of_a[SEQS / 64], of_b[SEQS / 64];
    uint32_t n = owner_words(cache, stream, a, of_a, SEQS / 64);

    return n == owner_words(cache, stream, b, of_b, SEQS / 64) && !memcmp(of_a, of_b, sizeof of_a);
}
