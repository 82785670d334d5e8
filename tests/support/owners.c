/* SPDX-License-Identifier: MIT */
/* owners: see owners.h. */
#include "owners.h"

#include <stdlib.h>
#include <string.h>

enum { SEQS = 65536 };

/* All owners of a cell, in storage of the thread. */
static const kvlazy_seq_id *owners_of(const kvlazy_cache *cache, uint32_t stream, uint32_t cell, uint32_t *n)
{
    static _Thread_local kvlazy_seq_id seq[SEQS];

    if (kvlazy_cell_owners(cache, stream, cell, seq, SEQS, n))
        abort();
    return seq;
}

uint32_t owner_words(const kvlazy_cache *cache, uint32_t stream, uint32_t cell, uint64_t *word, uint32_t n_word)
{
    uint32_t n;
    const kvlazy_seq_id *seq = owners_of(cache, stream, cell, &n);

    memset(word, 0, n_word * sizeof *word);
    for (uint32_t i = 0; i < n; i++)
        if ((uint32_t)seq[i] / 64 < n_word)
            word[(uint32_t)seq[i] / 64] |= UINT64_C(1) << seq[i] % 64;
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
    uint32_t n;
    const kvlazy_seq_id *owner = owners_of(cache, stream, cell, &n);

    for (uint32_t i = 0; i < n; i++)
        if ((uint32_t)owner[i] == seq)
            return true;
    return false;
}

bool same_owners(const kvlazy_cache *cache, uint32_t stream, uint32_t a, uint32_t b)
{
    uint64_t of_a[SEQS / 64], of_b[SEQS / 64];
    uint32_t n = owner_words(cache, stream, a, of_a, SEQS / 64);

    return n == owner_words(cache, stream, b, of_b, SEQS / 64) && !memcmp(of_a, of_b, sizeof of_a);
}
