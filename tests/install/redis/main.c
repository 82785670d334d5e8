/* SPDX-License-Identifier: MIT */
/* A stranger's program: asks a Redis server that is not there, which is a miss, and prints the version. */
#include <kvlazy/kvlazy.h>
#include <kvlazy/redis.h>

#include <stdio.h>

int main(void)
{
    kvlazy_redis_params params;
    kvlazy_store_ops ops = {.struct_size = sizeof ops};
    static const uint8_t name[1][32];
    bool yes = true;

    kvlazy_redis_params_init(&params);
    params.socket = "/no/such/socket";
    int status = kvlazy_store_redis(&params, &ops);
    if (status == KVLAZY_OK && ops.has(ops.ctx, name, 1, &yes) == 0)
        status = KVLAZY_EIO;
    if (status == KVLAZY_OK)
        ops.destroy(ops.ctx);
    printf("kvlazy %s: %s\n", kvlazy_version_string(), kvlazy_status_message(status));
    return status != KVLAZY_OK;
}
