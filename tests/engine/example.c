/* SPDX-License-Identifier: MIT */
/* The smallest complete engine: a cache, one batch of four tokens, an idle moment. README shows this file. */
#include <kvlazy/kvlazy.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int status)
{
    if (status != KVLAZY_OK) {
        fprintf(stderr, "%s: %s\n", kvlazy_status_name(status), kvlazy_status_message(status));
        exit(1);
    }
}

int main(void)
{
    kvlazy_layer layer = {.id = 0, .k_row_bytes = 2048, .v_row_bytes = 2048};
    kvlazy_params params;
    kvlazy_cache *cache;
    kvlazy_tensor k, v;

    kvlazy_params_init(&params);
    params.kv_size = 131072;       /* the longest context: reserved, not touched */
    params.kv_size_initial = 4096; /* what idle conversations may keep */
    params.layers = &layer;
    params.n_layer = 1;
    check(kvlazy_create(&params, &cache));
    check(kvlazy_k(cache, 0, &k)); /* these addresses never change */
    check(kvlazy_v(cache, 0, &v));

    /* Four tokens of conversation 0, in one batch of one ubatch. */
    const kvlazy_pos pos[] = {0, 1, 2, 3};
    const kvlazy_seq_id seq[] = {0, 0, 0, 0};
    const kvlazy_ubatch ubatch = {.n_token = 4, .pos = pos, .seq = seq};
    kvlazy_slot slot;

    check(kvlazy_init_batch(cache));
    check(kvlazy_prepare(cache, &ubatch, 1, &slot));
    check(kvlazy_apply_ubatch(cache, &slot, &ubatch));
    for (uint32_t i = 0; i < slot.n_token; i++) { /* where a model writes K and V */
        memset((char *)k.data + slot.cell[i] * k.cell_stride, 1, k.row_bytes);
        memset((char *)v.data + slot.cell[i] * v.cell_stride, 2, v.row_bytes);
    }
    printf("attention reads cells 0 to %u\n", (unsigned)kvlazy_n_kv(cache, &slot) - 1);
    check(kvlazy_end_batch(cache));

    /* Nothing to do: memory of idle conversations goes back here, and again after next_ms. */
    uint64_t next_ms;
    kvlazy_stats_info info = {.struct_size = sizeof info};

    check(kvlazy_poll(cache, &next_ms));
    check(kvlazy_stats(cache, &info));
    printf("%llu KiB reserved, %llu KiB touched\n", (unsigned long long)info.reserved_bytes / 1024,
           (unsigned long long)info.touched_bytes / 1024);
    kvlazy_destroy(cache);
    return 0;
}
