/* SPDX-License-Identifier: MIT */
/* The tables of cells.h: one interface over kvlazy, through its public calls, and the trees of cells_trees.h. */
#include "cells.h"
#include "cells_trees.h"

#include <stdlib.h>

struct cells_table {
    kvlazy_cache *cache; /* kvlazy; NULL: trees */
    struct trees *trees;
    bool dry_run;
    kvlazy_pos pos[CELLS_BATCH];
    kvlazy_seq_id seq[CELLS_BATCH];
    uint32_t cell[CELLS_BATCH];
};

static int answer(const char *call, int status)
{
    return status == KVLAZY_OK ? 0 : bench_error("%s: %s", call, kvlazy_status_name(status));
}

static int open_lazy(struct cells_table *table, uint32_t kv_size)
{
    kvlazy_layer layer = {.k_row_bytes = 16, .v_row_bytes = 16};
    kvlazy_params params;
    kvlazy_params_init(&params);
    params.page_bytes = bench_page_bytes();
    params.kv_size = kv_size;
    params.n_seq_max = CELLS_SEQ;
    params.layers = &layer;
    params.n_layer = 1;
    return answer("kvlazy_create", kvlazy_create(&params, &table->cache));
}

struct cells_table *cells_table_open(enum cells_kind kind, uint32_t kv_size)
{
    struct cells_table *table = calloc(1, sizeof(*table));
    if (table == NULL) {
        bench_error("out of memory");
        return NULL;
    }
    table->dry_run = true;
    if (kind == CELLS_TREES) {
        table->trees = trees_open(kv_size);
        if (table->trees == NULL) {
            bench_error("out of memory");
        }
    } else {
        open_lazy(table, kv_size);
    }
    if (table->trees == NULL && table->cache == NULL) {
        free(table);
        return NULL;
    }
    return table;
}

void cells_table_close(struct cells_table *table)
{
    if (table != NULL) {
        kvlazy_destroy(table->cache);
        trees_close(table->trees);
        free(table);
    }
}

kvlazy_cache *cells_table_cache(struct cells_table *table)
{
    return table->cache;
}

void cells_table_dry_run(struct cells_table *table, bool dry_run)
{
    table->dry_run = dry_run;
}

int cells_put(struct cells_table *table, kvlazy_seq_id seq, uint32_t n_seq, kvlazy_pos pos, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        table->pos[i] = pos + (kvlazy_pos)(i / n_seq);
        table->seq[i] = seq + (kvlazy_seq_id)(i % n_seq);
    }
    if (table->trees != NULL) {
        if (trees_prepare(table->trees, n, table->pos, table->seq, table->cell, table->dry_run) != 0) {
            return bench_error("the baseline has no room");
        }
        trees_apply(table->trees, n, table->pos, table->seq, table->cell);
        return 0;
    }
    kvlazy_slot slot;
    kvlazy_ubatch ubatch = {.n_token = n, .pos = table->pos, .seq = table->seq};
    int status = kvlazy_prepare(table->cache, &ubatch, 1, &slot);
    if (status != KVLAZY_OK) {
        return answer("kvlazy_prepare", status);
    }
    return answer("kvlazy_apply_ubatch", kvlazy_apply_ubatch(table->cache, &slot, &ubatch));
}

int cells_rm(struct cells_table *table, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    if (table->trees != NULL) {
        trees_seq_rm(table->trees, seq, p0, p1);
        return 0;
    }
    return answer("kvlazy_seq_rm", kvlazy_seq_rm(table->cache, seq, p0, p1));
}

int cells_add(struct cells_table *table, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvlazy_pos delta)
{
    if (table->trees != NULL) {
        trees_seq_add(table->trees, seq, p0, p1, delta);
        return 0;
    }
    return answer("kvlazy_seq_add", kvlazy_seq_add(table->cache, seq, p0, p1, delta));
}

int cells_shift_done(struct cells_table *table)
{
    if (table->trees != NULL) {
        trees_shift_done(table->trees);
        return 0;
    }
    return answer("kvlazy_shift_done", kvlazy_shift_done(table->cache));
}

int cells_clear(struct cells_table *table)
{
    if (table->trees != NULL) {
        trees_clear(table->trees);
        return 0;
    }
    return answer("kvlazy_clear", kvlazy_clear(table->cache, false));
}

int cells_fill(struct cells_table *table, kvlazy_seq_id seq, uint32_t n_seq, kvlazy_pos pos, uint32_t n)
{
    for (uint32_t done = 0; done < n; done += CELLS_BATCH) {
        uint32_t here = n - done < CELLS_BATCH ? n - done : CELLS_BATCH;
        if (cells_put(table, seq, n_seq, pos + (kvlazy_pos)(done / n_seq), here) != 0) {
            return -1;
        }
    }
    return 0;
}

uint64_t cells_live(struct cells_table *table)
{
    kvlazy_stats_info info = {.struct_size = sizeof(info)};
    if (table->trees != NULL) {
        return trees_used(table->trees);
    }
    return kvlazy_stats(table->cache, &info) == KVLAZY_OK ? info.live_cells : UINT64_MAX;
}

uint64_t cells_touched_bytes(struct cells_table *table)
{
    kvlazy_stats_info info = {.struct_size = sizeof(info)};
    return kvlazy_stats(table->cache, &info) == KVLAZY_OK ? info.touched_bytes : 0;
}

kvlazy_pos cells_pos_max(struct cells_table *table, kvlazy_seq_id seq)
{
    return table->trees != NULL ? trees_pos_max(table->trees, seq) : kvlazy_seq_pos_max(table->cache, seq);
}
