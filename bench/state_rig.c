/* SPDX-License-Identifier: MIT */
/* The cache, the tape and the fresh memory of state.h. Measures nothing. */
#include "state.h"

#include "batches.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

int state_error(const char *call, int status)
{
    return bench_error("%s: %s", call, kvlazy_status_name(status));
}

uint64_t state_bytes(const struct bench_config *config)
{
    uint64_t wanted = config->state_bytes != 0 ? config->state_bytes : UINT64_C(1) << 30;
    uint64_t here = bench_available_bytes() / 8; /* a cache, a tape and a copy, twice over */
    return wanted < here ? wanted : here;
}

/* ------------------------------------------------------------------------------------------------------
 * The cache
 */
static uint64_t now_of(void *ctx)
{
    const struct state_rig *rig = ctx;
    return rig->now_ms;
}

/* The other functions of the host's table know no ctx. */
static int create(struct state_rig *rig, uint64_t n_byte, bool transposed)
{
    kvlazy_layer layers[STATE_LAYERS];
    kvlazy_params params;
    for (uint32_t i = 0; i < STATE_LAYERS; i++) {
        layers[i] = (kvlazy_layer){.id = i,
                                   .k_row_bytes = transposed ? 0 : STATE_ROW_BYTES,
                                   .v_row_bytes = STATE_ROW_BYTES,
                                   .v_channels = transposed ? STATE_ROW_BYTES / 2 : 0};
    }
    rig->mem = *kvlazy_mem_host();
    rig->mem.ctx = rig;
    rig->mem.now_ms = now_of;
    rig->n_tensor = transposed ? STATE_LAYERS : 2 * STATE_LAYERS;
    rig->n_cell = (uint32_t)(n_byte / ((uint64_t)rig->n_tensor * STATE_ROW_BYTES));
    rig->n_byte = (uint64_t)rig->n_cell * rig->n_tensor * STATE_ROW_BYTES;
    kvlazy_params_init(&params);
    params.page_bytes = bench_page_bytes();
    params.kv_size = 2 * rig->n_cell + BENCH_BATCH;
    params.n_seq_max = 4;
    params.layers = layers;
    params.n_layer = STATE_LAYERS;
    params.mem = &rig->mem;
    params.on_evict = rig->on_evict;
    params.evict_ctx = rig->evict_ctx;
    params.kv_size_initial = rig->on_evict != NULL ? rig->n_cell / 2 : 0;
    int status = kvlazy_create(&params, &rig->cache);
    return status == KVLAZY_OK ? 0 : state_error("kvlazy_create", status);
}

int state_open(struct state_rig *rig, uint64_t n_byte, bool transposed)
{
    rig->now_ms = 1;
    if (create(rig, n_byte, transposed) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < rig->n_tensor; i++) {
        int status = transposed   ? kvlazy_v(rig->cache, i, &rig->tensor[i])
                     : i % 2 == 0 ? kvlazy_k(rig->cache, i / 2, &rig->tensor[i])
                                  : kvlazy_v(rig->cache, i / 2, &rig->tensor[i]);
        if (status != KVLAZY_OK) {
            return state_error("kvlazy_v", status);
        }
    }
    return 0;
}

void state_close(struct state_rig *rig)
{
    kvlazy_destroy(rig->cache);
}

/* Cells follow one another, so a lane is written in one go. */
static void write_rows(void *ctx, const kvlazy_slot *slot)
{
    const struct state_rig *rig = ctx;
    for (uint32_t t = 0; t < rig->n_tensor; t++) {
        const kvlazy_tensor *tensor = &rig->tensor[t];
        uint32_t n_lane = tensor->n_channel != 0 ? tensor->n_channel : 1;
        size_t bytes = tensor->row_bytes / n_lane;
        for (uint32_t lane = 0; lane < n_lane; lane++) {
            for (uint32_t i = 0; i < slot->n_token; i++) {
                memset((char *)tensor->data + lane * tensor->channel_stride + slot->cell[i] * tensor->cell_stride,
                       (int)(slot->cell[i] + lane + t) | 1, bytes);
            }
        }
    }
}

int state_fill(struct state_rig *rig, kvlazy_seq_id seq, uint32_t n)
{
    int status = bench_fill(rig->cache, seq, kvlazy_seq_pos_max(rig->cache, seq) + 1, n, write_rows, rig);
    return status == KVLAZY_OK ? 0 : state_error("a batch", status);
}

/* ------------------------------------------------------------------------------------------------------
 * Memory
 */
unsigned char *state_fresh(size_t n_byte)
{
    void *map = mmap(NULL, n_byte, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) {
        bench_error("mmap: %s", strerror(errno));
        return NULL;
    }
    madvise(map, n_byte, MADV_NOHUGEPAGE); /* the same pages as the cache's */
    return map;
}

void state_unmap(unsigned char *map, size_t n_byte)
{
    munmap(map, n_byte);
}

int state_tape_write(void *ctx, const void *data, size_t bytes)
{
    struct state_tape *tape = ctx;
    if (bytes > tape->room - tape->n) {
        return -1;
    }
    memcpy(tape->byte + tape->n, data, bytes);
    tape->n += bytes;
    return 0;
}

int state_tape_read(void *ctx, void *data, size_t bytes)
{
    struct state_tape *tape = ctx;
    if (bytes > tape->room - tape->n) {
        return -1;
    }
    memcpy(data, tape->byte + tape->n, bytes);
    tape->n += bytes;
    return 0;
}
