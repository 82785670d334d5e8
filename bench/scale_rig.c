/* SPDX-License-Identifier: MIT */
/*
 * The rig of the scale figures: see scale.h. It reports nothing but the growth between two sizes.
 */
#include "scale.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int scale_error(const char *call, int status)
{
    return bench_error("%s: %s", call, kvlazy_status_name(status));
}

uint64_t scale_spent_ns(void)
{
    struct timespec spent = {0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return (uint64_t)spent.tv_sec * 1000000000u + (uint64_t)spent.tv_nsec;
}

uint64_t scale_heap_bytes(void)
{
    struct mallinfo2 heap = mallinfo2();
    return (uint64_t)heap.uordblks + heap.hblkhd;
}

/* ------------------------------------------------------------------------------------------------------
 * One cache
 */
static uint64_t manual_now_ms(void *ctx)
{
    return ((const struct scale_rig *)ctx)->now_ms;
}

void scale_init(struct scale_rig *rig, uint32_t kv_size, uint32_t n_stream, uint32_t n_seq)
{
    *rig = (struct scale_rig){.now_ms = 1000, .layer = {.id = 0, .k_row_bytes = 64, .v_row_bytes = 64}};
    rig->mem = *kvlazy_mem_host();
    rig->mem.ctx = rig;
    rig->mem.now_ms = manual_now_ms;
    kvlazy_params_init(&rig->params);
    rig->params.page_bytes = bench_page_bytes();
    rig->params.kv_size = kv_size;
    rig->params.n_stream = n_stream;
    rig->params.n_seq_max = n_seq;
    rig->params.slot_shrink_idle_ms = SCALE_IDLE_MS;
    rig->params.layers = &rig->layer;
    rig->params.n_layer = 1;
    rig->params.mem = &rig->mem;
    rig->params.host_root = "";
}

int scale_create(struct scale_rig *rig)
{
    rig->pos = calloc(rig->params.kv_size, sizeof(*rig->pos));
    rig->seq = calloc(rig->params.kv_size, sizeof(*rig->seq));
    if (rig->pos == NULL || rig->seq == NULL) {
        scale_close(rig);
        return bench_error("out of memory");
    }
    int status = kvlazy_create(&rig->params, &rig->cache);
    if (status != KVLAZY_OK) {
        scale_close(rig);
        return scale_error("kvlazy_create", status);
    }
    return 0;
}

void scale_close(struct scale_rig *rig)
{
    kvlazy_destroy(rig->cache);
    free(rig->pos);
    free(rig->seq);
    rig->cache = NULL;
    rig->pos = NULL;
    rig->seq = NULL;
}

int scale_batch(struct scale_rig *rig, uint32_t n)
{
    kvlazy_ubatch ubatch = {.n_token = n, .pos = rig->pos, .seq = rig->seq};
    kvlazy_slot slot;
    int status = kvlazy_init_batch(rig->cache);
    if (status == KVLAZY_OK) {
        status = kvlazy_prepare(rig->cache, &ubatch, 1, &slot);
    }
    if (status == KVLAZY_OK) {
        status = kvlazy_apply_ubatch(rig->cache, &slot, &ubatch);
    }
    kvlazy_end_batch(rig->cache);
    return status == KVLAZY_OK ? 0 : scale_error("a batch", status);
}

int scale_put(struct scale_rig *rig, kvlazy_seq_id seq, kvlazy_pos from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        rig->pos[i] = from + (kvlazy_pos)i;
        rig->seq[i] = seq;
    }
    return scale_batch(rig, n);
}

int scale_fork(struct scale_rig *rig, uint32_t n_seq, uint32_t shared, uint32_t tail)
{
    int status = shared > 0 ? scale_put(rig, 0, 0, shared) : 0;
    for (uint32_t s = 0; status == 0 && s < n_seq; s++) {
        if (s > 0 && shared > 0) {
            int copied = kvlazy_seq_cp(rig->cache, 0, (kvlazy_seq_id)s, 0, (kvlazy_pos)shared);
            status = copied == KVLAZY_OK ? 0 : scale_error("kvlazy_seq_cp", copied);
        }
        status = status == 0 && tail > 0 ? scale_put(rig, (kvlazy_seq_id)s, (kvlazy_pos)shared, tail) : status;
    }
    return status;
}

void scale_rest(struct scale_rig *rig)
{
    rig->now_ms += 2 * SCALE_IDLE_MS;
}

int scale_poll(struct scale_rig *rig)
{
    uint64_t next_ms = 0;
    while (next_ms == 0) {
        int status = kvlazy_poll(rig->cache, &next_ms);
        if (status != KVLAZY_OK) {
            return scale_error("kvlazy_poll", status);
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * Two sizes
 */
int scale_growth(const struct bench_config *config, const struct scale_growth *growth)
{
    struct bench_series ns[2] = {{.n = 0}, {.n = 0}};
    uint32_t size[2] = {growth->small, growth->large};
    for (int round = 0; round < SCALE_ROUNDS; round++) {
        for (int k = 0; k < 2; k++) {
            uint64_t spent_ns = 0;
            if (growth->work(size[k], &spent_ns) != 0) {
                return -1;
            }
            bench_series_add(&ns[k], (double)spent_ns);
        }
    }
    struct figure figure = {
        growth->key,   bench_series_at(&ns[1], 0.5) / bench_series_at(&ns[0], 0.5), 2, growth->what, "", "",
        growth->wanted};
    char small[32], large[32];
    report_time(small, sizeof(small), &ns[0]);
    report_time(large, sizeof(large), &ns[1]);
    snprintf(figure.ours, sizeof(figure.ours), "%u: %s", size[1], large);
    snprintf(figure.other, sizeof(figure.other), "%u: %s", size[0], small);
    report_figure(config, &figure);
    return 0;
}
