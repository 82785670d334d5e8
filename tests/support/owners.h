/* SPDX-License-Identifier: MIT */
/* owners: the owners of a cell as bits, for tests that compare and print them. It reads the cells themselves, since tests
 * look at every cell after every call, and kvlazy_cell_owners takes the lock. Tests of that call are in test_semantics. */
#ifndef OWNERS_H
#define OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include <kvlazy/kvlazy.h>

/* Bit i is sequence i: words of 64, cleared first. Returns how many owners there are. */
uint32_t owner_words(const kvlazy_cache *cache, uint32_t stream, uint32_t cell, uint64_t *word, uint32_t n_word);

/* The same for sequences below 64. */
uint64_t owner_bits(const kvlazy_cache *cache, uint32_t stream, uint32_t cell);

bool is_owner(const kvlazy_cache *cache, uint32_t stream, uint32_t cell, uint32_t seq);
bool same_owners(const kvlazy_cache *cache, uint32_t stream, uint32_t a, uint32_t b);

#endif
