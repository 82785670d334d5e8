/* SPDX-License-Identifier: MIT */
/* checksum: see checksum.h. */
#include "state/checksum.h"

/* The library may have a way for each kind of processor, which this then chooses. */
#ifdef KVLAZY_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

static XXH3_state_t *state_of(kvl_checksum *c)
{
    return (XXH3_state_t *)(void *)c;
}

kvl_checksum *kvl_checksum_new(void)
{
    return (kvl_checksum *)(void *)XXH3_createState();
}

void kvl_checksum_free(kvl_checksum *c)
{
    XXH3_freeState(state_of(c));
}

void kvl_checksum_begin(kvl_checksum *c)
{
    XXH3_64bits_reset(state_of(c));
}

void kvl_checksum_add(kvl_checksum *c, const void *data, size_t bytes)
{
    XXH3_64bits_update(state_of(c), data, bytes);
}

uint64_t kvl_checksum_end(const kvl_checksum *c)
{
    return XXH3_64bits_digest((const XXH3_state_t *)(const void *)c);
}

uint64_t kvl_checksum_of(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}
