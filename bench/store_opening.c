/* SPDX-License-Identifier: MIT */
/*
 * How long a store takes to open upon a directory of 10,000 small blobs. They are put through the directory itself, so
 * they lie as the store would have laid them.
 */
#include "store.h"

#include "idle.h"

#include <stdio.h>
#include <string.h>

enum { BLOBS = 10000, BLOB_BYTES = 4096, ROUNDS = 5, NO_HURRY_MS = 10000 };

static int put_one(const kvlazy_store_ops *ops, uint64_t *seed)
{
    static const unsigned char byte[BLOB_BYTES];
    uint8_t name[32];
    void *blob = NULL;
    for (size_t i = 0; i < sizeof(name); i++) {
        name[i] = (uint8_t)idle_random(seed, 256);
    }
    int error = ops->open(ops->ctx, name, BLOB_BYTES, &blob);
    if (error == 0) {
        error = ops->write(blob, byte, BLOB_BYTES, NO_HURRY_MS);
        int closed = ops->close(blob, error == 0);
        error = error == 0 ? closed : error;
    }
    return error == 0 ? 0 : bench_error("a blob: %s", strerror(error));
}

static int put_all(const char *dir)
{
    kvlazy_store_ops ops = {.struct_size = sizeof(ops)};
    uint64_t seed = 1;
    int status = kvlazy_store_dir(dir, UINT64_C(64) << 30, &ops);
    if (status != KVLAZY_OK) {
        return store_error("kvlazy_store_dir", status);
    }
    for (int i = 0; status == 0 && i < BLOBS; i++) {
        status = put_one(&ops, &seed);
    }
    ops.destroy(ops.ctx);
    return status;
}

static int open_once(const char *dir, struct bench_series *ns)
{
    kvlazy_store_ops ops = {.struct_size = sizeof(ops)};
    kvlazy_store_params params = {.struct_size = sizeof(params), .ops = &ops};
    kvlazy_store *store = NULL;
    uint64_t start_ns = bench_now_ns();
    int status = kvlazy_store_dir(dir, UINT64_C(64) << 30, &ops);
    status = status == KVLAZY_OK ? kvlazy_store_create(&params, &store) : status;
    bench_series_add(ns, (double)(bench_now_ns() - start_ns));
    kvlazy_store_destroy(store);
    return status == KVLAZY_OK ? 0 : store_error("a directory of many blobs", status);
}

int store_opening(const struct bench_config *config)
{
    char dir[4096];
    struct bench_series ns = {.n = 0};
    store_dir_name(dir, sizeof(dir), config, "blobs");
    int status = put_all(dir);
    for (int i = 0; status == 0 && i < ROUNDS; i++) {
        status = open_once(dir, &ns);
    }
    store_remove(dir);
    if (status == 0) {
        struct figure figure = {
            "store_open_ms", bench_series_at(&ns, 0.5) / 1e6, 2, "a directory of 10,000 small blobs opens: ms", "", "",
            "<= 1000"};
        report_time(figure.ours, sizeof(figure.ours), &ns);
        report_figure(config, &figure);
    }
    return status;
}
