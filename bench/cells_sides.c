/* SPDX-License-Identifier: MIT */
/* The two sides of cells.h, behind one interface: kvlazy through its public calls, and the trees. */
#include "cells.h"
#include "cells_trees.h"

#include <stdlib.h>

struct cells_side {
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

static int open_lazy(struct cells_side *side, uint32_t kv_size)
{
    kvlazy_layer layer = {.k_row_bytes = 16, .v_row_bytes = 16};
    kvlazy_params params;
    kvlazy_params_init(&params);
    params.kv_size = kv_size;
    params.n_seq_max = CELLS_SEQ;
    params.layers = &layer;
    params.n_layer = 1;
    return answer("kvlazy_create", kvlazy_create(&params, &side->cache));
}

struct cells_side *cells_side_open(enum cells_kind kind, uint32_t kv_size)
{
    struct cells_side *side = calloc(1, sizeof(*side));
    if (side == NULL) {
        bench_error("out of memory");
        return NULL;
    }
    side->dry_run = true;
    if (kind == CELLS_TREES) {
        side->trees = trees_open(kv_size);
        if (side->trees == NULL) {
            bench_error("out of memory");
        }
    } else {
        open_lazy(side, kv_size);
    }
    if (side->trees == NULL && side->cache == NULL) {
        free(side);
        return NULL;
    }
    return side;
}

void cells_side_close(struct cells_side *side)
{
    if (side != NULL) {
        kvlazy_destroy(side->cache);
        trees_close(side->trees);
        free(side);
    }
}

kvlazy_cache *cells_side_cache(struct cells_side *side)
{
    return side->cache;
}

void cells_side_dry_run(struct cells_side *side, bool dry_run)
{
    side->dry_run = dry_run;
}

int cells_put(struct cells_side *side, kvlazy_seq_id seq, uint32_t n_seq, kvlazy_pos pos, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        side->pos[i] = pos + (kvlazy_pos)(i / n_seq);
        side->seq[i] = seq + (kvlazy_seq_id)(i % n_seq);
    }
    if (side->trees != NULL) {
        if (trees_prepare(side->trees, n, side->pos, side->seq, side->cell, side->dry_run) != 0) {
            return bench_error("the baseline has no room");
        }
        trees_apply(side->trees, n, side->pos, side->seq, side->cell);
        return 0;
    }
    kvlazy_slot slot;
    kvlazy_ubatch ubatch = {.n_token = n, .pos = side->pos, .seq = side->seq};
    int status = kvlazy_prepare(side->cache, &ubatch, 1, &slot);
    if (status != KVLAZY_OK) {
        return answer("kvlazy_prepare", status);
    }
    return answer("kvlazy_apply_ubatch", kvlazy_apply_ubatch(side->cache, &slot, &ubatch));
}

int cells_rm(struct cells_side *side, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    if (side->trees != NULL) {
        trees_seq_rm(side->trees, seq, p0, p1);
        return 0;
    }
    return answer("kvlazy_seq_rm", kvlazy_seq_rm(side->cache, seq, p0, p1));
}

int cells_add(struct cells_side *side, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvlazy_pos delta)
{
    if (side->trees != NULL) {
        trees_seq_add(side->trees, seq, p0, p1, delta);
        return 0;
    }
    return answer("kvlazy_seq_add", kvlazy_seq_add(side->cache, seq, p0, p1, delta));
}

int cells_shift_done(struct cells_side *side)
{
    if (side->trees != NULL) {
        trees_shift_done(side->trees);
        return 0;
    }
    return answer("kvlazy_shift_done", kvlazy_shift_done(side->cache));
}

int cells_clear(struct cells_side *side)
{
    if (side->trees != NULL) {
        trees_clear(side->trees);
        return 0;
    }
    return answer("kvlazy_clear", kvlazy_clear(side->cache, false));
}

int cells_fill(struct cells_side *side, kvlazy_seq_id seq, uint32_t n_seq, kvlazy_pos pos, uint32_t n)
{
    for (uint32_t done = 0; done < n; done += CELLS_BATCH) {
        uint32_t here = n - done < CELLS_BATCH ? n - done : CELLS_BATCH;
        if (cells_put(side, seq, n_seq, pos + (kvlazy_pos)(done / n_seq), here) != 0) {
            return -1;
        }
    }
    return 0;
}

uint64_t cells_live(struct cells_side *side)
{
    kvlazy_stats_info info = {.struct_size = sizeof(info)};
    if (side->trees != NULL) {
        return trees_used(side->trees);
    }
    return kvlazy_stats(side->cache, &info) == KVLAZY_OK ? info.live_cells : UINT64_MAX;
}

uint64_t cells_touched_bytes(struct cells_side *side)
{
    kvlazy_stats_info info = {.struct_size = sizeof(info)};
    return kvlazy_stats(side->cache, &info) == KVLAZY_OK ? info.touched_bytes : 0;
}

kvlazy_pos cells_pos_max(struct cells_side *side, kvlazy_seq_id seq)
{
    return side->trees != NULL ? trees_pos_max(side->trees, seq) : kvlazy_seq_pos_max(side->cache, seq);
}
