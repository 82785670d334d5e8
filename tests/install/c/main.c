/* SPDX-License-Identifier: MIT */
/* A stranger's program: puts one token through the hooks, uses each optional header, and prints the version. */
#include <kvlazy/kvlazy.h>

#include <kvlazy/arena.h>
#include <kvlazy/engine_cells.h>
#include <kvlazy/mask.h>
#include <kvlazy/pool.h>
#include <kvlazy/reaper.h>

#include <stdio.h>
#include <string.h>

static int one_token(kvlazy_cache *cache)
{
    kvlazy_pos pos = 0;
    kvlazy_seq_id seq = 0;
    kvlazy_ubatch ubatch = {.n_token = 1, .pos = &pos, .seq = &seq};
    kvlazy_slot slot;
    kvlazy_tensor k;
    int status = kvlazy_init_batch(cache);

    if (status == KVLAZY_OK)
        status = kvlazy_prepare(cache, &ubatch, 1, &slot);
    if (status == KVLAZY_OK)
        status = kvlazy_apply_ubatch(cache, &slot, &ubatch);
    if (status == KVLAZY_OK)
        status = kvlazy_k(cache, 0, &k);
    if (status == KVLAZY_OK)
        memset((char *)k.data + slot.stream[0] * k.stream_stride + slot.cell[0] * k.cell_stride, 1, k.row_bytes);
    kvlazy_end_batch(cache);
    if (status == KVLAZY_OK)
        status = kvlazy_check(cache, NULL);
    return status;
}

static int each_part(kvlazy_cache *cache)
{
    kvlazy_arena *arena = NULL;
    kvlazy_pool *pool = NULL;
    void *base;
    int status = kvlazy_arena_create(NULL, kvlazy_page_bytes(NULL), &arena, &base);

    if (status == KVLAZY_OK)
        status = kvlazy_arena_destroy(arena);
    if (status == KVLAZY_OK)
        status = kvlazy_pool_create(1 << 20, &pool);
    if (status == KVLAZY_OK)
        status = kvlazy_pool_destroy(pool);
    kvlazy_reaper_destroy(NULL);
    if (status == KVLAZY_OK && kvlazy_touch(cache, 0, 1) != KVLAZY_ENOTSUP) /* it keeps its cells itself */
        status = KVLAZY_ESTATE;
    if (status == KVLAZY_OK && kvlazy_mask(cache, NULL, NULL, NULL) != KVLAZY_EINVAL)
        status = KVLAZY_ESTATE;
    return status;
}

int main(void)
{
    kvlazy_layer layer = {.k_row_bytes = 64, .v_row_bytes = 64};
    kvlazy_params params;
    kvlazy_cache *cache = NULL;

    kvlazy_params_init(&params);
    params.kv_size = 64;
    params.layers = &layer;
    params.n_layer = 1;

    int status = kvlazy_create(&params, &cache);
    if (status == KVLAZY_OK)
        status = one_token(cache);
    if (status == KVLAZY_OK)
        status = each_part(cache);
    int has_token = kvlazy_seq_pos_max(cache, 0) == 0;
    kvlazy_destroy(cache);

    printf("kvlazy %s: %s\n", kvlazy_version_string(), kvlazy_status_message(status));
    return status == KVLAZY_OK && has_token && kvlazy_version() == KVLAZY_VERSION ? 0 : 1;
}
