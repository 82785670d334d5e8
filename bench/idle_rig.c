/* SPDX-License-Identifier: MIT */
/*
 * The rig of the idle figures: a cache with its own copy of the host's memory table, so that the clock can be moved by
 * hand and every return of memory is seen when it happens. Called by idle_*.c only; it reports nothing.
 */
#include "idle.h"

#include <stdlib.h>
#include <time.h>

int idle_error(const char *call, int status)
{
    return bench_error("%s: %s", call, kvlazy_status_name(status));
}

void idle_nap_us(uint32_t us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000L}, NULL);
}

uint32_t idle_random(uint64_t *state, uint32_t n)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((*state >> 33) % n);
}

/* ------------------------------------------------------------------------------------------------------
 * The memory table
 */
static uint64_t manual_now_ms(void *ctx)
{
    return ((const struct idle_rig *)ctx)->now_ms;
}

/* So that the library times its pieces, on any host. */
static uint64_t now_ns(void *ctx)
{
    (void)ctx;
    return bench_now_ns();
}

static _Thread_local uint64_t piece_from_ns; /* 0: this thread's pieces are not timed */

void idle_time_pieces(bool on)
{
    piece_from_ns = on ? bench_now_ns() : 0;
}

static size_t watched_decommit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    struct idle_watch *watch = &((struct idle_rig *)ctx)->watch;
    size_t n = kvlazy_mem_host()->decommit(ctx, range, n_range);
    uint64_t gone_ns = bench_now_ns(), n_byte = 0;
    for (size_t i = 0; i < n; i++) {
        n_byte += range[i].bytes;
    }
    atomic_store(&watch->last_ns, gone_ns);
    atomic_fetch_add(&watch->n_byte, n_byte);
    if (piece_from_ns != 0) {
        bench_series_add(&watch->piece_ns, (double)(gone_ns - piece_from_ns));
        piece_from_ns = gone_ns;
    }
    return n;
}

/* ------------------------------------------------------------------------------------------------------
 * Create and close
 */
void idle_init(struct idle_rig *rig, const struct bench_config *geometry, uint32_t n_seq, bool manual_clock)
{
    *rig = (struct idle_rig){.geometry = *geometry, .n_seq = n_seq, .now_ms = 1000};
    rig->mem = *kvlazy_mem_host();
    rig->mem.ctx = rig;
    rig->mem.decommit = watched_decommit;
    rig->mem.now_ns = now_ns;
    if (manual_clock) {
        rig->mem.now_ms = manual_now_ms;
    }
    for (uint32_t i = 0; i < geometry->n_layer; i++) {
        rig->layer[i] = (kvlazy_layer){.id = i, .k_row_bytes = geometry->row_bytes, .v_row_bytes = geometry->row_bytes};
    }
    kvlazy_params_init(&rig->params);
    rig->params.page_bytes = bench_page_bytes();
    rig->params.kv_size = geometry->kv_size;
    rig->params.kv_size_initial = geometry->kv_initial;
    rig->params.slot_shrink_idle_ms = geometry->idle_ms;
    rig->params.n_stream = geometry->n_slot;
    rig->params.n_seq_max = n_seq;
    rig->params.layers = rig->layer;
    rig->params.n_layer = geometry->n_layer;
    rig->params.mem = &rig->mem;
}

int idle_create(struct idle_rig *rig)
{
    rig->rows = calloc(bench_tensors(&rig->geometry), sizeof(*rig->rows));
    if (rig->rows == NULL) {
        return bench_error("out of memory");
    }
    int status = kvlazy_create(&rig->params, &rig->cache);
    if (status != KVLAZY_OK) {
        idle_close(rig);
        return idle_error("kvlazy_create", status);
    }
    for (uint32_t t = 0; t < bench_tensors(&rig->geometry); t++) {
        kvlazy_tensor tensor;
        status = t % 2 == 0 ? kvlazy_k(rig->cache, t / 2, &tensor) : kvlazy_v(rig->cache, t / 2, &tensor);
        if (status != KVLAZY_OK) {
            idle_close(rig);
            return idle_error("kvlazy_k", status);
        }
        rig->rows[t] = (struct bench_rows){tensor.data, tensor.stream_stride, tensor.row_bytes};
    }
    return 0;
}

void idle_close(struct idle_rig *rig)
{
    kvlazy_destroy(rig->cache);
    free(rig->rows);
    rig->cache = NULL;
    rig->rows = NULL;
}

/* ------------------------------------------------------------------------------------------------------
 * Batches
 */
int idle_batch(struct idle_rig *rig, uint32_t n, bool rows)
{
    kvlazy_slot slot;
    kvlazy_ubatch ubatch = {.n_token = n, .pos = rig->pos, .seq = rig->seq};
    int status = kvlazy_init_batch(rig->cache);
    if (status == KVLAZY_OK) {
        status = kvlazy_prepare(rig->cache, &ubatch, 1, &slot);
    }
    if (status == KVLAZY_OK) {
        status = kvlazy_apply_ubatch(rig->cache, &slot, &ubatch);
    }
    for (uint32_t i = 0; rows && status == KVLAZY_OK && i < n; i++) {
        bench_rows_write(rig->rows, bench_tensors(&rig->geometry), slot.stream[i], &slot.cell[i], (uint32_t)rig->pos[i],
                         1);
    }
    int ended = kvlazy_end_batch(rig->cache);
    return status != KVLAZY_OK ? status : ended;
}

int idle_put(struct idle_rig *rig, kvlazy_seq_id seq, uint32_t n, uint32_t step, bool rows)
{
    int status = KVLAZY_OK;
    for (uint32_t done = 0, here; status == KVLAZY_OK && done < n; done += here) {
        kvlazy_pos from = kvlazy_seq_pos_max(rig->cache, seq) + 1;
        here = n - done < step ? n - done : step;
        for (uint32_t i = 0; i < here; i++) {
            rig->pos[i] = from + (kvlazy_pos)i;
            rig->seq[i] = seq;
        }
        status = idle_batch(rig, here, rows);
    }
    return status;
}

int idle_poll_out(struct idle_rig *rig)
{
    uint64_t next_ms = 0;
    for (int i = 0; next_ms != UINT64_MAX; i++) {
        int status = kvlazy_poll(rig->cache, &next_ms);
        if (status != KVLAZY_OK) {
            return idle_error("kvlazy_poll", status);
        }
        if (i == 100000) {
            return bench_error("poll never said that nothing is due");
        }
        rig->now_ms += next_ms == UINT64_MAX ? 0 : next_ms;
    }
    return 0;
}

uint64_t idle_touched(const struct idle_rig *rig)
{
    kvlazy_stats_info info = {.struct_size = sizeof(info)};
    return kvlazy_stats(rig->cache, &info) == KVLAZY_OK ? info.touched_bytes : 0;
}
