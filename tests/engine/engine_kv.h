/* SPDX-License-Identifier: MIT */
/*
 * engine_kv: what the reference engine asks of a K/V cache. The engine calls it through a table of functions;
 * behind it are kvlazy (engine_kv_lazy.c), cells of the engine's own over kvlazy's memory (engine_kv_memory.c) and a
 * calloc'ed twin that never shrinks (engine_kv_plain.c), so that the same model can run on all and every bit be
 * compared. It speaks kvlazy's types and status codes, which makes the lazy side a thin one, and it never computes:
 * rows are written and read by the model, at addresses that are handed out once and stay.
 */
#ifndef KVLAZY_TESTS_ENGINE_KV_H
#define KVLAZY_TESTS_ENGINE_KV_H

#include <kvlazy/engine_cells.h>
#include <kvlazy/kvlazy.h>

#include <string.h>

enum { ENGINE_MAX_LAYER = 16 };

typedef struct engine_kv_config {
    uint32_t n_layer;
    size_t k_row_bytes, v_row_bytes; /* of one cell in one layer */
    uint32_t v_channels;             /* 0: V row-major; n: transposed */
    uint32_t kv_size;                /* cells per stream */
    uint32_t n_seq;
    uint32_t n_stream;        /* 1 or n_seq */
    uint32_t n_pad;           /* 0: 256 */
    uint32_t n_batch;         /* most tokens of one prepare */
    uint32_t kv_size_initial; /* from here on the plain back end does not look */
    bool appends;     /* cells of the engine's own: new tokens go behind the last ones, whatever is free below */
    bool own_tensors; /* carved out of one arena by the engine; else laid out by the library */
    uint32_t slot_shrink_idle_ms;
    uint64_t budget_bytes;
    const kvlazy_mem *mem; /* NULL: this host */
    const char *model_tag; /* as in kvlazy_params, for a prefix store; NULL: none */
} engine_kv_config;

typedef struct engine_kv engine_kv;

/* Each answers as the call of the same name in kvlazy.h. */
typedef struct engine_kv_ops {
    int (*init_batch)(engine_kv *kv);
    int (*prepare)(engine_kv *kv, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots);
    int (*prepare_restore)(engine_kv *kv, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots);
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

    /* Where the engine keeps the cells, for rows that a prefix store brings. cell[i]: of token i, where it is (i <
     * n_have), or where it is to go; room is made for n. Then those from n_have on are there. NULL: the library keeps
     * the cells. */
    int (*seat)(engine_kv *kv, kvlazy_seq_id seq, uint32_t *cell, uint32_t n_have, uint32_t n);
    void (*seated)(engine_kv *kv, kvlazy_seq_id seq, const uint32_t *cell, uint32_t n_have, uint32_t n);
    void (*destroy)(engine_kv *kv);
} engine_kv_ops;

/* The head of every back end. */
struct engine_kv {
    const engine_kv_ops *ops;
    uint32_t n_stream, kv_size;
    kvlazy_cache *cache; /* NULL: plain */
    kvlazy_arena *arena; /* NULL: the library laid out the tensors */
    kvlazy_tensor k[ENGINE_MAX_LAYER], v[ENGINE_MAX_LAYER];
};

/** A lane is where the cells of a stream follow one another: one when row-major, a channel when transposed. */
static inline uint32_t engine_kv_n_lane(const kvlazy_tensor *t)
{
    return t->n_channel != 0 ? t->n_channel : 1;
}

/** Where one cell lies in one of its lanes. */
static inline void *engine_kv_at(const kvlazy_tensor *t, uint32_t stream, uint32_t lane, uint32_t cell)
{
    return (char *)t->data + stream * t->stream_stride + lane * t->channel_stride + cell * t->cell_stride;
}

/** The row_bytes of one cell, wherever they lie. */
static inline void engine_kv_get_cell(const kvlazy_tensor *t, uint32_t stream, uint32_t cell, void *row)
{
    const size_t n_bytes = t->row_bytes / engine_kv_n_lane(t);

    for (uint32_t lane = 0; lane < engine_kv_n_lane(t); lane++) {
        memcpy((char *)row + lane * n_bytes, engine_kv_at(t, stream, lane, cell), n_bytes);
    }
}

static inline void engine_kv_put_cell(const kvlazy_tensor *t, uint32_t stream, uint32_t cell, const void *row)
{
    const size_t n_bytes = t->row_bytes / engine_kv_n_lane(t);

    for (uint32_t lane = 0; lane < engine_kv_n_lane(t); lane++) {
        memcpy(engine_kv_at(t, stream, lane, cell), (const char *)row + lane * n_bytes, n_bytes);
    }
}

static inline uint32_t engine_kv_stream(const engine_kv *kv, kvlazy_seq_id seq)
{
    return kv->n_stream == 1 ? 0 : (uint32_t)seq;
}

/** Fails: as kvlazy_create; *kv is untouched then. */
int engine_kv_lazy_create(const engine_kv_config *config, engine_kv **kv);
int engine_kv_memory_create(const engine_kv_config *config, engine_kv **kv);
int engine_kv_plain_create(const engine_kv_config *config, engine_kv **kv);

/**
 * What the two back ends on kvlazy share (engine_kv_open.c): a cache, and where its tensors lie. cell_ops NULL: the
 * library keeps the cells. engine_kv_close gives back what was opened, all of it or the part that could be.
 */
int engine_kv_open(engine_kv *kv, const engine_kv_config *config, const kvlazy_cell_ops *cell_ops);
void engine_kv_close(engine_kv *kv);

#endif
