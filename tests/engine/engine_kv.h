/* SPDX-License-Identifier: MIT */
/*
 * engine_kv: what the reference engine asks of a K/V cache. The engine calls it through a table of functions;
 * behind it are kvlazy (engine_kv_lazy.c) and a calloc'ed twin that never shrinks (engine_kv_plain.c), so that
 * the same model can run on both and every bit be compared. It speaks kvlazy's types and status codes, which
 * makes the lazy side a thin one, and it never computes: rows are written and read by the model, at addresses
 * that are handed out once and stay.
 */
#ifndef KVLAZY_TESTS_ENGINE_KV_H
#define KVLAZY_TESTS_ENGINE_KV_H

#include <kvlazy/kvlazy.h>

enum { ENGINE_MAX_LAYER = 16 };

typedef struct engine_kv_config {
    uint32_t n_layer;
    size_t row_bytes; /* of one cell's K, and of its V, in one layer */
    uint32_t kv_size; /* cells per stream */
    uint32_t n_seq;
    uint32_t n_stream;        /* 1 or n_seq */
    uint32_t n_pad;           /* 0: 256 */
    uint32_t n_batch;         /* most tokens of one prepare */
    uint32_t kv_size_initial; /* from here on the plain back end does not look */
    uint32_t slot_shrink_idle_ms;
    uint64_t budget_bytes;
    const kvlazy_mem *mem; /* NULL: this host */
} engine_kv_config;

typedef struct engine_kv engine_kv;

/* Each answers as the call of the same name in kvlazy.h. */
typedef struct engine_kv_ops {
    int (*init_batch)(engine_kv *kv);
    int (*prepare)(engine_kv *kv, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots);
    int (*apply_ubatch)(engine_kv *kv, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch);
    int (*undo_ubatch)(engine_kv *kv, const kvlazy_slot *slot);
    uint32_t (*n_kv)(engine_kv *kv, const kvlazy_slot *slot);
    int (*end_batch)(engine_kv *kv);
    kvlazy_seq_id (*refused)(engine_kv *kv);
    int (*poll)(engine_kv *kv, uint64_t *next_ms);
    int (*seq_rm)(engine_kv *kv, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);
    int (*seq_cp)(engine_kv *kv, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1);
    kvlazy_pos (*seq_pos_max)(engine_kv *kv, kvlazy_seq_id seq);

    /* The tokens in [p0, p1) go and those behind move down to p0. The K of these is to be turned then, in the same
     * batch. Fails: ENOMEM, and the sequence ends at p0. */
    int (*discard)(engine_kv *kv, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);
    /* [n_cell] by how many positions the K of each cell of the sequence's stream is to be turned; NULL: of none. */
    const kvlazy_pos *(*shift)(engine_kv *kv, kvlazy_seq_id seq, uint32_t *n_cell);
    int (*shift_done)(engine_kv *kv);

    /* The sequence's cells in position order: cell[p] holds position p, 0 ≤ p < n_pos. ESTATE unless exactly
     * these positions are there, each once. */
    int (*place)(engine_kv *kv, kvlazy_seq_id seq, uint32_t *cell, uint32_t n_pos);
    void (*destroy)(engine_kv *kv);
} engine_kv_ops;

/* The head of both back ends. */
struct engine_kv {
    const engine_kv_ops *ops;
    uint32_t n_stream;
    kvlazy_tensor k[ENGINE_MAX_LAYER], v[ENGINE_MAX_LAYER];
};

/** Where one row lies. */
static inline void *engine_kv_row(const kvlazy_tensor *tensor, uint32_t stream, uint32_t cell)
{
    return (char *)tensor->data + stream * tensor->stream_stride + cell * tensor->cell_stride;
}

static inline uint32_t engine_kv_stream(const engine_kv *kv, kvlazy_seq_id seq)
{
    return kv->n_stream == 1 ? 0 : (uint32_t)seq;
}

/** Fails: as kvlazy_create; *kv is untouched then. */
int engine_kv_lazy_create(const engine_kv_config *config, engine_kv **kv);
int engine_kv_plain_create(const engine_kv_config *config, engine_kv **kv);

/** The kvlazy cache inside a lazy back end, for figures and checks. */
kvlazy_cache *engine_kv_lazy_cache(const engine_kv *kv);

#endif
