/* SPDX-License-Identifier: MIT */
/* The cache, the conversation and the directory of store.h. Measures nothing. */
#include "store.h"

#include "batches.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bsd/stdlib.h>

enum { NO_HURRY_MS = 600000, CALLS_MAX = 20 };

int store_error(const char *call, int status)
{
    return bench_error("%s: %s", call, kvlazy_status_name(status));
}

uint64_t store_bytes(const struct bench_config *config)
{
    uint64_t wanted = config->store_bytes != 0 ? config->store_bytes : UINT64_C(1) << 30;
    uint64_t here = bench_available_bytes() / 8;
    return wanted < here ? wanted : here;
}

/* ------------------------------------------------------------------------------------------------------
 * Files
 */
static int (*each_file)(const char *path, void *ctx); /* nftw passes nothing on */
static void *each_ctx;

static int visit(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)ftw;
    return kind == FTW_F && S_ISREG(stat->st_mode) ? each_file(path, each_ctx) : 0;
}

int store_files(const char *dir, int (*each)(const char *path, void *ctx), void *ctx)
{
    each_file = each;
    each_ctx = ctx;
    return nftw(dir, visit, 32, FTW_PHYS) == 0 ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *ftw)
{
    (void)stat, (void)kind, (void)ftw;
    return remove(path);
}

void store_remove(const char *dir)
{
    nftw(dir, remove_one, 32, FTW_PHYS | FTW_DEPTH);
}

void store_dir_name(char *dir, size_t room, const struct bench_config *config, const char *what)
{
    snprintf(dir, room, "%s/bench-%ld.%s", config->data_dir, (long)getpid(), what);
}

/* ------------------------------------------------------------------------------------------------------
 * The cache
 */
static int create_cache(struct store_rig *rig, uint64_t n_byte, bool transposed)
{
    kvlazy_layer layers[STORE_LAYERS];
    kvlazy_params params;
    for (uint32_t i = 0; i < STORE_LAYERS; i++) {
        layers[i] = (kvlazy_layer){.id = i,
                                   .k_row_bytes = STORE_ROW_BYTES,
                                   .v_row_bytes = STORE_ROW_BYTES,
                                   .v_channels = transposed ? STORE_ROW_BYTES / 2 : 0};
    }
    uint64_t token_bytes = UINT64_C(2) * STORE_LAYERS * STORE_ROW_BYTES;
    rig->n_cell = (uint32_t)(n_byte / token_bytes / STORE_BLOCK * STORE_BLOCK);
    rig->n_byte = rig->n_cell * token_bytes;
    kvlazy_params_init(&params);
    params.page_bytes = bench_page_bytes();
    params.kv_size = rig->n_cell + BENCH_BATCH;
    params.n_seq_max = 2;
    params.layers = layers;
    params.n_layer = STORE_LAYERS;
    params.model_tag = "bench";
    params.model_tag_bytes = 5;
    int status = kvlazy_create(&params, &rig->cache);
    for (uint32_t i = 0; status == KVLAZY_OK && i < STORE_LAYERS; i++) {
        status = kvlazy_k(rig->cache, i, &rig->tensor[2 * i]);
        status = status == KVLAZY_OK ? kvlazy_v(rig->cache, i, &rig->tensor[2 * i + 1]) : status;
    }
    return status == KVLAZY_OK ? 0 : store_error("kvlazy_create", status);
}

static unsigned char row_byte(uint32_t number, uint32_t of)
{
    return (unsigned char)((number * 7 + of) | 1);
}

/* Every row is another one. The first conversation comes first, so its position i is in cell i.
 * Cells follow one another here, so a lane is written in one go. */
static void write_rows(void *ctx, const kvlazy_slot *slot)
{
    const struct store_rig *rig = ctx;
    for (uint32_t t = 0; t < 2 * STORE_LAYERS; t++) {
        const kvlazy_tensor *tensor = &rig->tensor[t];
        uint32_t n_lane = tensor->n_channel != 0 ? tensor->n_channel : 1;
        size_t bytes = tensor->row_bytes / n_lane;
        for (uint32_t lane = 0; lane < n_lane; lane++) {
            char *at = (char *)tensor->data + lane * tensor->channel_stride;
            for (uint32_t i = 0; i < slot->n_token; i++) {
                memset(at + slot->cell[i] * tensor->cell_stride, row_byte(slot->cell[i], lane + t), bytes);
            }
        }
    }
}

static int fill(struct store_rig *rig, kvlazy_seq_id seq, uint32_t from, uint32_t n)
{
    int status = bench_fill(rig->cache, seq, (kvlazy_pos)from, n, write_rows, rig);
    return status == KVLAZY_OK ? 0 : store_error("a batch", status);
}

/* ------------------------------------------------------------------------------------------------------
 * The store
 */
static int create_store(struct store_rig *rig, const kvlazy_store_ops *ops)
{
    kvlazy_store_params params = {.struct_size = sizeof(params), .ops = ops, .block_tokens = STORE_BLOCK};
    int status = kvlazy_store_create(&params, &rig->store);
    if (status != KVLAZY_OK) {
        ops->destroy(ops->ctx);
    }
    return status == KVLAZY_OK ? 0 : store_error("kvlazy_store_create", status);
}

static int make_prompt(struct store_rig *rig)
{
    rig->token = reallocarray(NULL, rig->n_cell + (size_t)1, sizeof(*rig->token));
    if (rig->token == NULL) {
        return bench_error("out of memory");
    }
    for (uint32_t i = 0; i <= rig->n_cell; i++) {
        rig->token[i] = (int32_t)i;
    }
    rig->prompt = (kvlazy_prompt){.struct_size = sizeof(rig->prompt), .token = rig->token, .n_token = rig->n_cell + 1};
    return 0;
}

int store_open_upon(struct store_rig *rig, const kvlazy_store_ops *ops, uint64_t n_byte, bool transposed)
{
    *rig = (struct store_rig){.cache = NULL};
    int status = create_store(rig, ops);
    status = status == 0 ? create_cache(rig, n_byte, transposed) : status;
    status = status == 0 ? make_prompt(rig) : status;
    status = status == 0 ? fill(rig, 0, 0, rig->n_cell) : status;
    return status == 0 ? fill(rig, 1, 0, 10) : status;
}

int store_open(struct store_rig *rig, const struct bench_config *config, uint64_t n_byte, bool transposed)
{
    char dir[sizeof(rig->dir)], why[256] = "";
    kvlazy_store_ops ops = {.struct_size = sizeof(ops)};
    *rig = (struct store_rig){.cache = NULL};
    store_dir_name(dir, sizeof(dir), config, "store");
    if (kvlazy_store_dir(dir, UINT64_C(64) << 30, &ops) != KVLAZY_OK) {
        kvlazy_store_dir_why(dir, why, sizeof(why));
        return bench_error("kvlazy_store_dir: %s", why);
    }
    int status = store_open_upon(rig, &ops, n_byte, transposed);
    memcpy(rig->dir, dir, sizeof(dir));
    return status;
}

void store_close(struct store_rig *rig)
{
    kvlazy_store_destroy(rig->store);
    kvlazy_destroy(rig->cache);
    free(rig->token);
    if (rig->dir[0] != '\0') {
        store_remove(rig->dir);
    }
}

int store_compute(struct store_rig *rig, uint32_t n_have)
{
    return fill(rig, 0, n_have, rig->n_cell - n_have);
}

int store_save(struct store_rig *rig)
{
    uint32_t n_saved = 0;
    int status = KVLAZY_OK;
    for (int i = 0; status == KVLAZY_OK && n_saved < rig->n_cell && i < CALLS_MAX; i++) {
        status = kvlazy_store_save(rig->store, rig->cache, 0, &rig->prompt, NO_HURRY_MS, &n_saved);
    }
    if (status == KVLAZY_OK && n_saved < rig->n_cell) {
        return bench_error("only %u of %u tokens were saved", n_saved, rig->n_cell);
    }
    return status == KVLAZY_OK ? 0 : store_error("kvlazy_store_save", status);
}

int store_load(struct store_rig *rig)
{
    uint32_t n_live = 0;
    int status = kvlazy_init_batch(rig->cache);
    for (int i = 0; status == KVLAZY_OK && n_live < rig->n_cell && i < CALLS_MAX; i++) {
        status = kvlazy_store_load(rig->store, rig->cache, 0, &rig->prompt, n_live, NO_HURRY_MS, &n_live);
    }
    kvlazy_end_batch(rig->cache);
    if (status == KVLAZY_OK && n_live < rig->n_cell) {
        return bench_error("only %u of %u tokens were loaded", n_live, rig->n_cell);
    }
    return status == KVLAZY_OK ? 0 : store_error("kvlazy_store_load", status);
}

static void count_cell(const struct store_rig *rig, uint32_t cell, uint32_t pos, uint64_t *n_wrong)
{
    for (uint32_t t = 0; t < 2 * STORE_LAYERS; t++) {
        const kvlazy_tensor *tensor = &rig->tensor[t];
        uint32_t n_lane = tensor->n_channel != 0 ? tensor->n_channel : 1;
        bool right = true;
        for (uint32_t lane = 0; lane < n_lane; lane++) {
            const unsigned char *at = (const unsigned char *)tensor->data + lane * tensor->channel_stride;
            right = right && bench_bytes_are(at + cell * tensor->cell_stride, tensor->row_bytes / n_lane,
                                             row_byte(pos, lane + t));
        }
        *n_wrong += !right;
    }
}

int store_count_rows(const struct store_rig *rig, uint64_t *n_row, uint64_t *n_wrong)
{
    kvlazy_cells_view view = {.struct_size = sizeof(view)};
    int status = kvlazy_cells(rig->cache, 0, &view);
    if (status != KVLAZY_OK) {
        return store_error("kvlazy_cells", status);
    }
    for (uint32_t cell = 0; cell < view.n_cell; cell++) {
        kvlazy_seq_id seq = -1;
        uint32_t n_owner = 0;
        if (kvlazy_cell_owners(rig->cache, 0, cell, &seq, 1, &n_owner) == KVLAZY_OK && n_owner == 1 && seq == 0) {
            count_cell(rig, cell, (uint32_t)view.pos[cell], n_wrong);
            *n_row += UINT64_C(2) * STORE_LAYERS;
        }
    }
    return 0;
}
