/* SPDX-License-Identifier: MIT */
/*
 * The rig of the tensor figures: a cache whose V may be transposed and whose rows may be of any size, driven by hand.
 * Called by tensors_*.c only; it measures nothing but the parts of a batch.
 */
#include "tensors.h"

#include "micro.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Rows of 1024 values: 2 bytes each; blocks of 32 values in 34 bytes, and in 18 bytes; and V with a channel a value. */
const struct tensors_layout tensors_layouts[TENSORS_LAYOUTS] = {
    [TENSORS_F16] = {"f16", "f16", 2048, 0},
    [TENSORS_Q8_0] = {"q8_0", "q8_0", 1024 / 32 * 34, 0},
    [TENSORS_Q4_0] = {"q4_0", "q4_0", 1024 / 32 * 18, 0},
    [TENSORS_F16_TRANSPOSED] = {"f16_transposed", "f16, V^T", 2048, 1024},
};

static int create(struct tensors_rig *rig, const struct tensors_layout *layout, uint32_t flags, uint64_t page_bytes,
                  uint32_t n_writer)
{
    kvlazy_layer *layers = calloc(rig->geometry.n_layer, sizeof(*layers));
    kvlazy_params params;
    if (layers == NULL) {
        return bench_error("out of memory");
    }
    for (uint32_t i = 0; i < rig->geometry.n_layer; i++) {
        layers[i] = (kvlazy_layer){.id = i,
                                   .k_row_bytes = layout->row_bytes,
                                   .v_row_bytes = layout->row_bytes,
                                   .v_channels = layout->v_channels};
    }
    kvlazy_params_init(&params);
    params.kv_size = rig->geometry.kv_size;
    params.kv_size_initial = rig->geometry.kv_initial;
    params.slot_shrink_idle_ms = rig->geometry.idle_ms;
    params.n_stream = params.n_seq_max = rig->geometry.n_slot;
    params.flags = flags;
    params.page_bytes = page_bytes;
    params.n_writer = n_writer;
    params.layers = layers;
    params.n_layer = rig->geometry.n_layer;
    int status = kvlazy_create(&params, &rig->cache);
    free(layers);
    return status == KVLAZY_OK ? 0 : rig_error("kvlazy_create", status);
}

int tensors_open(struct tensors_rig *rig, const struct tensors_layout *layout, uint32_t flags)
{
    return tensors_open_pages(rig, layout, flags, bench_page_bytes(), 0);
}

int tensors_open_pages(struct tensors_rig *rig, const struct tensors_layout *layout, uint32_t flags,
                       uint64_t page_bytes, uint32_t n_writer)
{
    *rig = (struct tensors_rig){0};
    bench_config_default(&rig->geometry);
    rig->n_tensor = bench_tensors(&rig->geometry);
    rig->tensor = calloc(rig->n_tensor, sizeof(*rig->tensor));
    if (rig->tensor == NULL) {
        return bench_error("out of memory");
    }
    if (create(rig, layout, flags, page_bytes, n_writer) != 0) {
        tensors_close(rig);
        return -1;
    }
    for (uint32_t t = 0; t < rig->n_tensor; t++) {
        int status =
            t % 2 == 0 ? kvlazy_k(rig->cache, t / 2, &rig->tensor[t]) : kvlazy_v(rig->cache, t / 2, &rig->tensor[t]);
        if (status != KVLAZY_OK) {
            tensors_close(rig);
            return rig_error("kvlazy_k", status);
        }
    }
    return 0;
}

void tensors_close(struct tensors_rig *rig)
{
    kvlazy_destroy(rig->cache);
    free(rig->tensor);
    rig->cache = NULL;
    rig->tensor = NULL;
}

/* ------------------------------------------------------------------------------------------------------
 * Rows
 */

/* Channels of a tensor and the bytes of a cell in each; a row-major one is one channel of whole rows. */
static uint32_t channels(const kvlazy_tensor *tensor, size_t *bytes)
{
    uint32_t n = tensor->n_channel == 0 ? 1 : tensor->n_channel;
    *bytes = tensor->row_bytes / n;
    return n;
}

static void write_tensor(const struct tensors_rig *rig, uint32_t t, uint32_t i, uint32_t n)
{
    const kvlazy_tensor *tensor = &rig->tensor[t];
    size_t bytes;
    uint32_t n_channel = channels(tensor, &bytes);
    for (uint32_t j = 0; j < n_channel; j++) {
        unsigned char *channel = (unsigned char *)tensor->data + j * tensor->channel_stride;
        for (uint32_t k = i; k < i + n; k++) {
            memset(channel + rig->stream[k] * tensor->stream_stride + rig->cell[k] * tensor->cell_stride,
                   (int)(1 + (k * 31u + t * 7u) % 255u), bytes);
        }
    }
}

struct tensors_writers {
    pthread_t thread;
    pthread_barrier_t turn;
    const struct tensors_rig *rig; /* NULL: no more to do */
    uint32_t i, n;
};

static void write_part(const struct tensors_rig *rig, uint32_t first, uint32_t step, uint32_t i, uint32_t n)
{
    for (uint32_t t = first; t < rig->n_tensor; t += step) {
        write_tensor(rig, t, i, n);
    }
}

static void *second_writer(void *ctx)
{
    struct tensors_writers *writers = ctx;
    for (;;) {
        pthread_barrier_wait(&writers->turn);
        if (writers->rig == NULL) {
            return NULL;
        }
        write_part(writers->rig, 1, 2, writers->i, writers->n);
        pthread_barrier_wait(&writers->turn);
    }
}

struct tensors_writers *tensors_writers_start(void)
{
    struct tensors_writers *writers = calloc(1, sizeof(*writers));
    if (writers == NULL) {
        bench_error("out of memory");
        return NULL;
    }
    pthread_barrier_init(&writers->turn, NULL, 2);
    int error = pthread_create(&writers->thread, NULL, second_writer, writers);
    if (error != 0) {
        bench_error("pthread_create: %s", strerror(error));
        pthread_barrier_destroy(&writers->turn);
        free(writers);
        return NULL;
    }
    return writers;
}

void tensors_writers_stop(struct tensors_writers *writers)
{
    if (writers == NULL) {
        return;
    }
    writers->rig = NULL;
    pthread_barrier_wait(&writers->turn);
    pthread_join(writers->thread, NULL);
    pthread_barrier_destroy(&writers->turn);
    free(writers);
}

void tensors_write(const struct tensors_rig *rig, uint32_t i, uint32_t n)
{
    struct tensors_writers *writers = rig->writers;
    if (writers == NULL) {
        write_part(rig, 0, 1, i, n);
        return;
    }
    writers->rig = rig;
    writers->i = i;
    writers->n = n;
    pthread_barrier_wait(&writers->turn);
    write_part(rig, 0, 2, i, n);
    pthread_barrier_wait(&writers->turn);
}

/* ------------------------------------------------------------------------------------------------------
 * Batches
 */

/* Notes where the tokens of a slot lie. Returns the index of the first of them. */
static uint32_t remember(struct tensors_rig *rig, const kvlazy_slot *slot)
{
    uint32_t first = rig->n_held;
    memcpy(rig->stream + first, slot->stream, slot->n_token * sizeof(*slot->stream));
    memcpy(rig->cell + first, slot->cell, slot->n_token * sizeof(*slot->cell));
    rig->n_held += slot->n_token;
    return first;
}

static int apply(struct tensors_rig *rig, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch,
                 struct tensors_time *time)
{
    uint64_t start_ns = bench_now_ns();
    int status = kvlazy_apply_ubatch(rig->cache, slot, ubatch);
    if (status != KVLAZY_OK) {
        return rig_error("kvlazy_apply_ubatch", status);
    }
    uint64_t applied_ns = bench_now_ns();
    tensors_write(rig, remember(rig, slot), slot->n_token);
    time->apply_ns += applied_ns - start_ns;
    time->write_ns += bench_now_ns() - applied_ns;
    return 0;
}

static int prepare(struct tensors_rig *rig, uint32_t n, kvlazy_ubatch *ubatch, kvlazy_slot *slot, uint32_t *n_ubatch)
{
    *n_ubatch = 0;
    if (n > TENSORS_BATCH - rig->n_held) {
        return bench_error("%u tokens and %u more do not fit the rig", rig->n_held, n);
    }
    for (uint32_t i = 0; i < n; i++) {
        rig->pos[i] = (kvlazy_pos)(rig->n_held + i);
        rig->seq[i] = 0;
    }
    for (uint32_t i = 0; i < n; i += TENSORS_UBATCH) {
        ubatch[(*n_ubatch)++] = (kvlazy_ubatch){
            .n_token = n - i < TENSORS_UBATCH ? n - i : TENSORS_UBATCH, .pos = rig->pos + i, .seq = rig->seq + i};
    }
    int status = kvlazy_init_batch(rig->cache);
    status = status == KVLAZY_OK ? kvlazy_prepare(rig->cache, ubatch, *n_ubatch, slot) : status;
    return status == KVLAZY_OK ? 0 : rig_error("kvlazy_prepare", status);
}

int tensors_put(struct tensors_rig *rig, uint32_t n, struct tensors_time *time)
{
    enum { UBATCHES = TENSORS_BATCH / TENSORS_UBATCH };
    kvlazy_ubatch ubatch[UBATCHES];
    kvlazy_slot slot[UBATCHES];
    struct tensors_time spent = {0};
    uint32_t n_ubatch;
    uint64_t start_ns = bench_now_ns();
    int status = prepare(rig, n, ubatch, slot, &n_ubatch);
    for (uint32_t i = 0; status == 0 && i < n_ubatch; i++) {
        status = apply(rig, &slot[i], &ubatch[i], &spent);
    }
    kvlazy_end_batch(rig->cache);
    spent.whole_ns = bench_now_ns() - start_ns;
    if (time != NULL) {
        *time = spent;
    }
    return status;
}

/* All rows up to cell n_kv, as attention does. */
static void read_rows(const struct tensors_rig *rig, uint32_t n_kv)
{
    for (uint32_t t = 0; t < rig->n_tensor; t++) {
        const volatile char *row = rig->tensor[t].data;
        for (uint32_t i = 0; i < n_kv; i++) {
            for (size_t at = 0; at < rig->tensor[t].row_bytes; at += 64) {
                (void)row[i * rig->tensor[t].cell_stride + at];
            }
        }
    }
}

int tensors_put_and_read(struct tensors_rig *rig, uint32_t n)
{
    kvlazy_ubatch ubatch[TENSORS_BATCH / TENSORS_UBATCH];
    kvlazy_slot slot[TENSORS_BATCH / TENSORS_UBATCH];
    struct tensors_time spent = {0};
    uint32_t n_ubatch;
    int status = prepare(rig, n, ubatch, slot, &n_ubatch);
    for (uint32_t i = 0; status == 0 && i < n_ubatch; i++) {
        status = apply(rig, &slot[i], &ubatch[i], &spent);
        if (status == 0) {
            read_rows(rig, kvlazy_n_kv(rig->cache, &slot[i]));
        }
    }
    kvlazy_end_batch(rig->cache);
    return status;
}

int tensors_begin_one(struct tensors_rig *rig)
{
    kvlazy_ubatch ubatch;
    kvlazy_slot slot;
    uint32_t n_ubatch;
    if (prepare(rig, 1, &ubatch, &slot, &n_ubatch) != 0) {
        return -1;
    }
    int status = kvlazy_apply_ubatch(rig->cache, &slot, &ubatch);
    if (status != KVLAZY_OK) {
        return rig_error("kvlazy_apply_ubatch", status);
    }
    remember(rig, &slot);
    return 0;
}

int tensors_end(struct tensors_rig *rig)
{
    int status = kvlazy_end_batch(rig->cache);
    return status == KVLAZY_OK ? 0 : rig_error("kvlazy_end_batch", status);
}

int tensors_drop(struct tensors_rig *rig, bool pages)
{
    int status = kvlazy_seq_rm(rig->cache, 0, -1, -1);
    if (status == KVLAZY_OK && pages) {
        status = kvlazy_trim(rig->cache, 0);
    }
    rig->n_held = 0;
    return status == KVLAZY_OK ? 0 : rig_error("kvlazy_trim", status);
}

int tensors_cut(struct tensors_rig *rig, uint32_t n)
{
    int status = kvlazy_seq_rm(rig->cache, 0, (kvlazy_pos)n, -1);
    status = status == KVLAZY_OK ? kvlazy_trim(rig->cache, 0) : status;
    rig->n_held = n;
    return status == KVLAZY_OK ? 0 : rig_error("kvlazy_trim", status);
}

/* ------------------------------------------------------------------------------------------------------
 * Pages
 */

/* Bytes from the first cell of a tensor to the last. */
static size_t tensor_bytes(const struct tensors_rig *rig, const kvlazy_tensor *tensor)
{
    size_t bytes;
    uint32_t n_channel = channels(tensor, &bytes);
    return (rig->geometry.n_slot - 1) * tensor->stream_stride + (n_channel - 1) * tensor->channel_stride +
           (rig->geometry.kv_size - 1) * tensor->cell_stride + bytes;
}

int tensors_resident(const struct tensors_rig *rig, uint64_t *bytes)
{
    *bytes = 0;
    for (uint32_t t = 0; t < rig->n_tensor; t++) {
        if (bench_resident(rig->tensor[t].data, tensor_bytes(rig, &rig->tensor[t]), bytes) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Marks the pages of the held tokens in one tensor, which begins on a page of its own; returns how many. */
static uint64_t mark_pages(const struct tensors_rig *rig, const kvlazy_tensor *tensor, bool *marked)
{
    size_t bytes, page_bytes = bench_page_bytes();
    uint32_t n_channel = channels(tensor, &bytes);
    uint64_t n = 0;
    for (uint32_t j = 0; j < n_channel; j++) {
        for (uint32_t i = 0; i < rig->n_held; i++) {
            size_t begin = rig->stream[i] * tensor->stream_stride + j * tensor->channel_stride +
                           rig->cell[i] * tensor->cell_stride;
            for (size_t page = begin / page_bytes; page <= (begin + bytes - 1) / page_bytes; page++) {
                n += !marked[page];
                marked[page] = true;
            }
        }
    }
    return n;
}

int tensors_cover(const struct tensors_rig *rig, uint64_t *bytes)
{
    *bytes = 0;
    for (uint32_t t = 0; t < rig->n_tensor; t++) {
        bool *marked = calloc(tensor_bytes(rig, &rig->tensor[t]) / bench_page_bytes() + 1, sizeof(*marked));
        if (marked == NULL) {
            return bench_error("out of memory");
        }
        *bytes += mark_pages(rig, &rig->tensor[t], marked) * bench_page_bytes();
        free(marked);
    }
    return 0;
}
