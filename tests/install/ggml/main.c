/* SPDX-License-Identifier: MIT */
/* A stranger's program: K of a layer in a buffer of kvlazy's type, a cache over it, and the version. */
#include <kvlazy/ggml.h>

#include <stdio.h>

#include "double.h"

int main(void)
{
    kvlazy_ggml_rows rows = {.struct_size = sizeof rows};
    struct ggml_tensor k;
    kvlazy_params params;
    kvlazy_cache *cache = NULL;
    ggml_backend_buffer_t buffer = double_alloc(kvlazy_ggml_buffer_type(), 1 << 20);

    if (!buffer)
        return 1;
    double_tensor(&k, GGML_TYPE_F16, 1024, 256, 1, 1);
    double_place(&k, buffer, 0);
    int status = kvlazy_ggml_layer(&k, NULL, false, 256, 1, &rows);
    kvlazy_params_init(&params);
    params.kv_size = 256;
    params.layers = &rows.layer;
    params.n_layer = 1;
    if (status == KVLAZY_OK)
        status = kvlazy_create(&params, &cache);
    kvlazy_destroy(cache);
    double_free(buffer);
    printf("kvlazy %s: %s\n", kvlazy_version_string(), kvlazy_status_message(status));
    return status != KVLAZY_OK;
}
