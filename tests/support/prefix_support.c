/* SPDX-License-Identifier: MIT */
/* See prefix_support.h. */
#include "prefix_support.h"

#include <string.h>

enum { ROW_MOST = 64 };

struct box *prefix_box(uint32_t kv_size)
{
    struct box *box = box_new();

    box->params.kv_size = kv_size;
    box->params.model_tag = "tag";
    box->params.model_tag_bytes = 3;
    return box;
}

kvlazy_store *prefix_store(const kvlazy_store_ops *ops, uint32_t block_tokens)
{
    kvlazy_store_params params = {
        .struct_size = sizeof params, .ops = ops, .block_tokens = block_tokens, .min_tokens = 1};
    kvlazy_store *store = NULL;

    ok(kvlazy_store_create(&params, &store));
    return store;
}

kvlazy_store_info prefix_info(kvlazy_store *store)
{
    kvlazy_store_info info = {.struct_size = sizeof info};

    ok(kvlazy_store_stats(store, &info));
    return info;
}

/* ---- what rows should be ---- */

static uint64_t mix(uint64_t sum, uint64_t value)
{
    uint64_t random = sum ^ (value + 1) * UINT64_C(0x9e3779b97f4a7c15);

    return next_random(&random);
}

static uint64_t mix_bytes(uint64_t sum, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        sum = mix(sum, ((const unsigned char *)data)[i]);
    return mix(sum, bytes);
}

/* sum[i]: of the tokens 0 … i, and of all else that their rows depend on. */
static void sums_of(const kvlazy_prompt *p, uint32_t n, uint64_t *sum)
{
    uint64_t so_far = mix_bytes(1, p->scope, p->scope_bytes);

    for (uint32_t i = 0, s = 0; i < n; i++) {
        so_far = mix(so_far, (uint32_t)p->token[i]);
        while (s < p->n_span && p->span[s].begin + p->span[s].n <= i)
            s++;
        if (s < p->n_span && p->span[s].begin <= i)
            so_far = mix_bytes(so_far, p->span[s].id, p->span[s].id_bytes);
        sum[i] = so_far;
    }
}

/* ---- where they lie ---- */

static bool tensor_of(struct box *box, uint32_t k, kvlazy_tensor *t)
{
    if (k >= 2 * box->params.n_layer)
        return false;
    ok((k % 2 ? kvlazy_v : kvlazy_k)(box->cache, box->layer[k / 2].id, t));
    assert_true(t->row_bytes <= ROW_MOST);
    return true;
}

static void row_of(struct box *box, uint32_t k, uint64_t sum, unsigned char *row)
{
    uint64_t random = mix(sum, 2 * box->layer[k / 2].id + k % 2);

    for (size_t b = 0; b < ROW_MOST; b++)
        row[b] = (unsigned char)next_random(&random) | 1;
}

static void write_cell(struct box *box, uint32_t stream, uint32_t cell, uint64_t sum)
{
    unsigned char row[ROW_MOST];
    kvlazy_tensor t;

    for (uint32_t k = 0; tensor_of(box, k, &t); k++) {
        uint32_t n_lane = t.n_channel ? t.n_channel : 1;
        size_t bytes = t.row_bytes / n_lane;

        row_of(box, k, sum, row);
        for (uint32_t lane = 0; lane < n_lane; lane++)
            memcpy((unsigned char *)t.data + stream * t.stream_stride + lane * t.channel_stride + cell * t.cell_stride,
                   row + lane * bytes, bytes);
    }
}

static bool cell_is(struct box *box, uint32_t stream, uint32_t cell, uint64_t sum)
{
    unsigned char want[ROW_MOST], row[ROW_MOST];
    kvlazy_tensor t;

    for (uint32_t k = 0; tensor_of(box, k, &t); k++) {
        row_of(box, k, sum, want);
        box_row(box, &t, stream, cell, row);
        if (memcmp(row, want, t.row_bytes) != 0)
            return false;
    }
    return true;
}

/* ---- the engine ---- */

int prefix_compute(struct box *box, kvlazy_seq_id seq, const kvlazy_prompt *p, uint32_t begin, uint32_t end)
{
    kvlazy_pos pos[3 * PREFIX_MOST];
    kvlazy_seq_id owner[PREFIX_MOST];
    uint64_t sum[PREFIX_MOST];
    uint32_t n = end - begin;
    kvlazy_slot slot;

    assert_true(end <= PREFIX_MOST);
    sums_of(p, end, sum);
    for (uint32_t i = 0; i < n; i++) {
        pos[i] = pos[n + i] = pos[2 * n + i] = (kvlazy_pos)(begin + i);
        owner[i] = seq;
    }
    kvlazy_ubatch ubatch = {.n_token = n, .pos = pos, .seq = owner};
    int status = kvlazy_prepare(box->cache, &ubatch, 1, &slot);
    if (status)
        return status;
    ok(kvlazy_apply_ubatch(box->cache, &slot, &ubatch));
    for (uint32_t i = 0; i < n; i++)
        write_cell(box, slot.stream[i], slot.cell[i], sum[begin + i]);
    return KVLAZY_OK;
}

void prefix_turn(struct box *box, kvlazy_seq_id seq, const kvlazy_prompt *p, uint32_t begin, uint32_t end)
{
    ok(kvlazy_init_batch(box->cache));
    ok(prefix_compute(box, seq, p, begin, end));
    ok(kvlazy_end_batch(box->cache));
}

void prefix_holds(struct box *box, kvlazy_seq_id seq, const kvlazy_prompt *p, uint32_t n)
{
    const kvl_index *index = kvl_index_of(box->cache, seq);
    uint32_t stream = kvl_stream_number(box->cache, kvl_stream_of(box->cache, seq));
    uint64_t sum[PREFIX_MOST];

    assert_int_equal(index->n, n);
    sums_of(p, n, sum);
    for (uint32_t i = 0; i < n; i++) {
        kvl_entry at = kvl_index_at(index, i);

        assert_int_equal(at.pos, i);
        if (!cell_is(box, stream, at.cell, sum[i]))
            fail_msg("sequence %d: the rows of token %u are not its own", (int)seq, (unsigned)i);
    }
}

void prefix_write(struct box *box, const kvlazy_prompt *p, uint32_t i)
{
    uint64_t sum[PREFIX_MOST];

    sums_of(p, i + 1, sum);
    write_cell(box, p->stream, p->cell[i], sum[i]);
}

bool prefix_is(struct box *box, const kvlazy_prompt *p, uint32_t i)
{
    uint64_t sum[PREFIX_MOST];

    sums_of(p, i + 1, sum);
    return cell_is(box, p->stream, p->cell[i], sum[i]);
}

bool prefix_is_zero(struct box *box, uint32_t stream, uint32_t cell)
{
    static const unsigned char zero[ROW_MOST];
    unsigned char row[ROW_MOST];
    kvlazy_tensor t;

    for (uint32_t k = 0; tensor_of(box, k, &t); k++) {
        box_row(box, &t, stream, cell, row);
        if (memcmp(row, zero, t.row_bytes) != 0)
            return false;
    }
    return true;
}
