/* SPDX-License-Identifier: MIT */
/*
 * save: blocks of a sequence go to the place. Rows are copied a piece at a time with the lock held, and written with
 * no lock held; what the sequence is now is compared with what it was after every piece.
 */
#include "state/format.h"
#include "store/limit.h"
#include "store/shelf.h"

#include <bsd/stdlib.h>
#include <errno.h>
#include <inttypes.h>

enum { TOUCH_AGAIN_MS = 5000, WRITE_BYTES = 1 << 20 };

/* Where the tokens of a block lie in a cache, from `begin` on. */
static void find_places(const kvl_visit *v, kvlazy_cache *c, uint32_t begin, uint32_t n, kvl_place *place)
{
    bool engine = kvl_has_engine_cells(c);
    uint32_t stream = engine ? v->prompt.stream : kvl_stream_number(c, kvl_stream_of(c, v->seq));

    for (uint32_t i = 0; i < n; i++)
        place[i] = (kvl_place){stream, engine ? v->prompt.cell[begin + i]
                                              : kvl_index_at(kvl_index_of(c, v->seq), begin + i).cell};
}

/* One piece of the rows of a tensor, with the lock held. Returns false where the sequence changed. */
static bool copy_piece(kvl_visit *v, const kvl_blob_part *p, uint32_t begin, const kvl_state_piece *piece,
                       uint64_t generation)
{
    kvl_place place[256];
    uint64_t row = piece->begin * p->row_bytes + piece->part.begin;

    if (kvl_visit_generation(v) != generation)
        return false;
    find_places(v, p->cache, begin + piece->begin, piece->n, place);
    if (piece->part.end - piece->part.begin < p->row_bytes)
        kvl_rows_get_part(&p->cache->rows, p->tensor, place[0], piece->part, v->blob + p->offset + row);
    else
        kvl_rows_get(&p->cache->rows, p->tensor, place, piece->n, v->blob + p->offset + row);
    return true;
}

static bool copy_block(kvl_visit *v, uint32_t block, uint64_t generation)
{
    uint32_t n = v->store->block_tokens;
    bool same = true;

    for (uint32_t i = 0; same && i < v->shape.n_part; i++) {
        const kvl_blob_part *p = &v->shape.part[i];
        kvl_state_piece piece = {0};

        while (same && kvl_state_next_piece(&piece, n, p->row_bytes)) {
            kvl_visit_in(v);
            same = copy_piece(v, p, block * n, &piece, generation);
            kvl_visit_out(v);
        }
    }
    const kvl_blob_part *end = v->shape.part + v->shape.n_part;
    uint64_t at = v->shape.n_part ? end[-1].offset + n * end[-1].row_bytes : v->shape.header_bytes;
    memset(v->blob + at, 0, (size_t)(v->shape.bytes - at));
    return same;
}

/* 0, or what the place said. *n_sent: bytes that it took; a disk may have written them though the blob is none. */
static int write_blob(kvl_visit *v, const uint8_t *name, uint64_t *n_sent)
{
    const kvlazy_store_ops *ops = &v->store->ops;
    void *blob = NULL;
    int error = kvl_visit_left_ms(v) ? ops->open(ops->ctx, name, v->shape.bytes, &blob) : ETIMEDOUT;

    *n_sent = 0;
    if (error)
        return error;
    while (!error && *n_sent < v->shape.bytes) {
        uint32_t left_ms = kvl_visit_left_ms(v);
        uint64_t n = kvl_min(v->shape.bytes - *n_sent, WRITE_BYTES);

        error = left_ms ? ops->write(blob, v->blob + *n_sent, (size_t)n, left_ms) : ETIMEDOUT;
        *n_sent += error ? 0 : n;
    }
    int closed = ops->close(blob, !error);
    return error ? error : closed;
}

/* A block that cannot be whole in time is not begun: it would be written in vain, again with every call. How long one
 * takes is known from the last; where that was bad luck it is forgotten little by little. */
static bool has_time(kvl_visit *v)
{
    uint32_t takes_ms = atomic_load(&v->store->block_ms);

    if (kvl_visit_left_ms(v) > takes_ms)
        return true;
    atomic_store(&v->store->block_ms, takes_ms - (takes_ms + 7) / 8);
    kvl_visit_count(v, ETIMEDOUT);
    return false;
}

/* Block `block`, which the place lacks. Returns whether it has it now. */
static bool save_block(kvl_visit *v, uint32_t block, uint64_t generation)
{
    uint64_t from_ms = kvl_store_now_ms(), n_sent;

    if (!has_time(v) || !copy_block(v, block, generation))
        return false;
    if (!kvl_store_allows(v->store, v->shape.bytes)) {
        kvl_store_add(v->store, KVL_N_NO_ALLOWANCE, 1);
        return false;
    }
    kvl_blob_put_header(&v->shape, &v->chain, &v->prompt, block, v->blob, v->blob);
    if (kvl_store_now_ms() - v->touched_ms >= TOUCH_AGAIN_MS)
        kvl_visit_touch(v, block);
    int error = kvl_visit_count(v, write_blob(v, v->chain.name[block + 1], &n_sent));
    if (!error || error == ETIMEDOUT)
        atomic_store(&v->store->block_ms, (uint32_t)kvl_min(kvl_store_now_ms() - from_ms, UINT32_MAX));
    if (error) {
        kvl_store_take_back(v->store, v->shape.bytes - n_sent);
        return false;
    }
    kvl_store_add(v->store, KVL_N_WRITTEN, 1);
    kvl_store_add(v->store, KVL_WRITTEN_BYTES, v->shape.bytes);
    return true;
}

/* With no lock held. Returns how many blocks from the first on the place has; *n_new of them are new. */
static uint32_t save_blocks(kvl_visit *v, bool *there, uint64_t generation, uint32_t *n_new)
{
    const kvlazy_store_ops *ops = &v->store->ops;
    uint32_t n = v->chain.n_block, block = 0, last = 0;

    int error = kvl_visit_left_ms(v)
                    ? ops->has(ops->ctx, (const uint8_t(*)[KVL_NAME_BYTES])(v->chain.name + 1), n, there)
                    : ETIMEDOUT;

    if (kvl_visit_count(v, error))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        last = there[i] ? i + 1 : last;
        kvl_store_add(v->store, KVL_N_THERE, there[i]);
    }
    kvl_visit_touch(v, last);
    for (; block < n; block++) {
        if (!there[block] && !save_block(v, block, generation))
            break;
        *n_new += !there[block];
    }
    return block;
}

/* What may be saved of the sequence: its settled tokens, those of the prompt, in whole blocks. */
static uint32_t n_to_save(const kvl_visit *v)
{
    uint32_t n = v->prompt.n_token;
    bool all;

    if (n < v->store->min_tokens)
        return 0;
    if (v->cache->params.n_pos_per_token > 1 && v->prompt.n_span)
        n = v->prompt.span[0].begin;
    return kvl_has_engine_cells(v->cache) ? n : (uint32_t)kvl_min(n, kvl_visit_plain(v, true, &all));
}

int kvl_store_save(kvl_visit *v, uint32_t *n_saved)
{
    uint32_t n = n_to_save(v), n_new = 0;
    uint64_t generation = kvl_visit_generation(v);

    *n_saved = 0;
    if (n < v->store->block_tokens)
        return KVLAZY_OK;
    int status = kvl_visit_begin(v, n);
    if (status)
        return status;
    bool *there = calloc(v->chain.n_block + (size_t)1, sizeof *there);
    if (!there)
        return KVLAZY_ENOMEM;
    for (uint32_t i = 0; kvl_has_engine_cells(v->cache) && i < n; i++) /* reading makes them resident */
        kvl_rows_note_read(&v->cache->rows, v->prompt.stream, v->prompt.cell[i] + 1);
    kvl_visit_out(v);
    *n_saved = save_blocks(v, there, generation, &n_new) * v->store->block_tokens;
    kvl_visit_in(v);
    if (n_new)
        kvl_log_note(&v->log, KVLAZY_LOG_INFO, "saved %" PRIu32 " blocks; %" PRIu32 " of %" PRIu32 " tokens are there",
                     n_new, *n_saved, v->prompt.n_token);
    free(there);
    return KVLAZY_OK;
}
