/* SPDX-License-Identifier: MIT */
/* The smallest complete engine: a cache, one batch of four tokens, an idle moment. README shows the heart of it. */
#include <kvlazy/kvlazy.h>

#include <stdio.h>
#include <string.h>

#define MUST(call)                                                              \
    do {                                                                        \
        int status = (call);                                                    \
        if (status)                                                             \
            return fprintf(stderr, #call ": %s\n", kvlazy_status_name(status)); \
    } while (0)

int main(void)
{
    const kvlazy_pos pos[] = {0, 1, 2, 3};
    const kvlazy_seq_id seq[] = {0, 0, 0, 0};
    kvlazy_params params;
    kvlazy_layer layer;
    kvlazy_ubatch ubatch;
    kvlazy_cache *cache;
    kvlazy_tensor k, v;
    kvlazy_slot slot;
    uint64_t next_ms;

    memset(&layer, 0, sizeof layer); /* layer 0 of the model, with rows of 2 KiB */
    layer.k_row_bytes = layer.v_row_bytes = 2048;
    kvlazy_params_init(&params);
    params.kv_size = 131072;       /* the longest context: reserved, not touched */
    params.kv_size_initial = 4096; /* what idle conversations may keep */
    params.layers = &layer;
    params.n_layer = 1;
    MUST(kvlazy_create(&params, &cache));
    MUST(kvlazy_k(cache, 0, &k)); /* these addresses never change */
    MUST(kvlazy_v(cache, 0, &v));

    memset(&ubatch, 0, sizeof ubatch);
    ubatch.n_token = 4;
    ubatch.pos = pos;
    ubatch.seq = seq;
    MUST(kvlazy_init_batch(cache));
    MUST(kvlazy_prepare(cache, &ubatch, 1, &slot));
    MUST(kvlazy_apply_ubatch(cache, &slot, &ubatch));
    for (uint32_t i = 0; i < slot.n_token; i++) { /* where a model writes K and V */
        memset((char *)k.data + slot.cell[i] * k.cell_stride, 1, k.row_bytes);
        memset((char *)v.data + slot.cell[i] * v.cell_stride, 2, v.row_bytes);
    }
    printf("attention reads cells 0 to %u\n", (unsigned)kvlazy_n_kv(cache, &slot) - 1);
    MUST(kvlazy_end_batch(cache));

    MUST(kvlazy_poll(cache, &next_ms)); /* nothing to do: memory goes back here, and again after next_ms */
    printf("poll again in %llu ms\n", (unsigned long long)next_ms);
    kvlazy_destroy(cache);
    return 0;
}
