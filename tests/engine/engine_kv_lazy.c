/* SPDX-License-Identifier: MIT */
/*
 * engine_kv_lazy: the reference engine's cache on kvlazy, and the example of how an engine embeds it. engine_kv_open.c
 * names the layers and takes the addresses of their rows once; each hook here is one call; place() shows how a kernel
 * finds a sequence's tokens wherever they lie. The engine calls all of it from one thread. It never looks at
 * memory, pages or time: that is what the library is for.
 */
#include "engine_kv.h"

#include <stdlib.h>

static kvlazy_cache *cache_of(const engine_kv *kv)
{
    return kv->cache;
}

static int lazy_init_batch(engine_kv *kv)
{
    return kvlazy_init_batch(cache_of(kv));
}

static int lazy_prepare(engine_kv *kv, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots)
{
    return kvlazy_prepare(cache_of(kv), ubatch, n_ubatch, slots);
}

static int lazy_prepare_restore(engine_kv *kv, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots)
{
    return kvlazy_prepare_restore(cache_of(kv), ubatch, n_ubatch, slots);
}

static int lazy_apply_ubatch(engine_kv *kv, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch)
{
    return kvlazy_apply_ubatch(cache_of(kv), slot, ubatch);
}

static int lazy_undo_ubatch(engine_kv *kv, const kvlazy_slot *slot)
{
    return kvlazy_undo_ubatch(cache_of(kv), slot);
}

static uint32_t lazy_n_kv(engine_kv *kv, const kvlazy_slot *slot)
{
    return kvlazy_n_kv(cache_of(kv), slot);
}

static int lazy_end_batch(engine_kv *kv)
{
    return kvlazy_end_batch(cache_of(kv));
}

static kvlazy_seq_id lazy_refused(engine_kv *kv)
{
    return kvlazy_refused(cache_of(kv));
}

static int lazy_poll(engine_kv *kv, uint64_t *next_ms)
{
    return kvlazy_poll(cache_of(kv), next_ms);
}

static int lazy_seq_rm(engine_kv *kv, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    return kvlazy_seq_rm(cache_of(kv), seq, p0, p1);
}

static int lazy_seq_cp(engine_kv *kv, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    return kvlazy_seq_cp(cache_of(kv), src, dst, p0, p1);
}

static kvlazy_pos lazy_seq_pos_max(engine_kv *kv, kvlazy_seq_id seq)
{
    return kvlazy_seq_pos_max(cache_of(kv), seq);
}

/* A removal cannot fail here; a shift may want memory, and then the sequence must not be left with a gap. */
static int lazy_discard(engine_kv *kv, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    int status = kvlazy_seq_rm(cache_of(kv), seq, p0, p1);

    if (status == KVLAZY_OK) {
        status = kvlazy_seq_add(cache_of(kv), seq, p1, -1, p0 - p1);
        if (status != KVLAZY_OK) {
            kvlazy_seq_rm(cache_of(kv), seq, p0, -1);
        }
    }
    return status;
}

static const kvlazy_pos *lazy_shift(engine_kv *kv, kvlazy_seq_id seq, uint32_t *n_cell)
{
    kvlazy_cells_view view = {.struct_size = sizeof view};

    if (kvlazy_cells(cache_of(kv), engine_kv_stream(kv, seq), &view) != KVLAZY_OK) {
        return NULL;
    }
    *n_cell = view.n_cell;
    return view.shift;
}

static int lazy_shift_done(engine_kv *kv)
{
    return kvlazy_shift_done(cache_of(kv));
}

enum { MAX_OWNERS = 64 }; /* an engine has no more sequences */

static bool owns(engine_kv *kv, uint32_t stream, uint32_t cell, kvlazy_seq_id seq)
{
    kvlazy_seq_id owner[MAX_OWNERS];
    uint32_t n;

    if (kvlazy_cell_owners(cache_of(kv), stream, cell, owner, MAX_OWNERS, &n) != KVLAZY_OK) {
        return false;
    }
    for (uint32_t i = 0; i < n && i < MAX_OWNERS; i++) {
        if (owner[i] == seq) {
            return true;
        }
    }
    return false;
}

/* One walk over the cells of the stream. The library owes the order of cells to nobody: a conversation that
 * grew while others came and went lies in pieces, so attention goes by position, not by cell. */
static int lazy_place(engine_kv *kv, kvlazy_seq_id seq, uint32_t *cell, uint32_t n_pos)
{
    const uint32_t stream = engine_kv_stream(kv, seq);
    kvlazy_cells_view view = {.struct_size = sizeof view};
    uint32_t found = 0;
    int status = kvlazy_cells(cache_of(kv), stream, &view);

    if (status != KVLAZY_OK) {
        return status;
    }
    for (uint32_t p = 0; p < n_pos; p++) {
        cell[p] = UINT32_MAX;
    }
    for (uint32_t i = 0; i < view.n_cell; i++) {
        if (view.pos[i] < 0 || !owns(kv, stream, i, seq)) {
            continue;
        }
        if ((uint32_t)view.pos[i] >= n_pos || cell[view.pos[i]] != UINT32_MAX) {
            return KVLAZY_ESTATE;
        }
        cell[view.pos[i]] = i;
        found++;
    }
    return found == n_pos ? KVLAZY_OK : KVLAZY_ESTATE;
}

static void lazy_destroy(engine_kv *kv)
{
    if (kv != NULL) {
        engine_kv_close(kv);
        free(kv);
    }
}

static const engine_kv_ops lazy_ops = {
    .init_batch = lazy_init_batch,
    .prepare = lazy_prepare,
    .prepare_restore = lazy_prepare_restore,
    .apply_ubatch = lazy_apply_ubatch,
    .undo_ubatch = lazy_undo_ubatch,
    .n_kv = lazy_n_kv,
    .end_batch = lazy_end_batch,
    .refused = lazy_refused,
    .poll = lazy_poll,
    .seq_rm = lazy_seq_rm,
    .seq_cp = lazy_seq_cp,
    .seq_pos_max = lazy_seq_pos_max,
    .discard = lazy_discard,
    .shift = lazy_shift,
    .shift_done = lazy_shift_done,
    .place = lazy_place,
    .destroy = lazy_destroy,
};

int engine_kv_lazy_create(const engine_kv_config *config, engine_kv **kv)
{
    engine_kv *lazy = calloc(1, sizeof *lazy);
    int status;

    if (lazy == NULL) {
        return KVLAZY_ENOMEM;
    }
    lazy->ops = &lazy_ops;
    status = engine_kv_open(lazy, config, NULL);
    if (status != KVLAZY_OK) {
        lazy_destroy(lazy);
        return status;
    }
    *kv = lazy;
    return KVLAZY_OK;
}
