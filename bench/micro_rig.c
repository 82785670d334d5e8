/* SPDX-License-Identifier: MIT */
/*
 * The rig of the micro figures: a cache of a given geometry, driven by hand. Called by micro_*.c only; it
 * measures nothing itself.
 */
#include "micro.h"

#include <stdlib.h>

int rig_error(const char *call, int status)
{
    return bench_error("%s: %s", call, kvlazy_status_name(status));
}

static uint64_t rig_now_ms(void *ctx)
{
    return *(const uint64_t *)ctx;
}

int rig_open(struct rig *rig, const struct bench_config *geometry, bool manual_clock)
{
    kvlazy_mem mem = *kvlazy_mem_host();
    rig->geometry = *geometry;
    rig->cache = NULL;
    rig->now_ms = 1000;
    mem.ctx = &rig->now_ms;
    mem.now_ms = rig_now_ms;
    rig->rows = calloc(bench_tensors(geometry), sizeof(*rig->rows));
    if (rig->rows == NULL) {
        return bench_error("out of memory");
    }
    if (bench_kvlazy_create(&rig->cache, geometry, manual_clock ? &mem : NULL) != 0 ||
        bench_kvlazy_rows(rig->cache, geometry, rig->rows) != 0) {
        rig_close(rig);
        return -1;
    }
    return 0;
}

void rig_close(struct rig *rig)
{
    kvlazy_destroy(rig->cache);
    free(rig->rows);
    rig->cache = NULL;
    rig->rows = NULL;
}

static int rig_batch(struct rig *rig, uint32_t seq, uint32_t pos, uint32_t n)
{
    kvlazy_slot slot;
    kvlazy_ubatch ubatch = {.n_token = n, .pos = rig->pos, .seq = rig->seq};
    for (uint32_t i = 0; i < n; i++) {
        rig->pos[i] = (kvlazy_pos)(pos + i);
        rig->seq[i] = (kvlazy_seq_id)seq;
    }
    int status = kvlazy_init_batch(rig->cache);
    if (status != KVLAZY_OK) {
        return rig_error("kvlazy_init_batch", status);
    }
    status = kvlazy_prepare(rig->cache, &ubatch, 1, &slot);
    if (status != KVLAZY_OK) {
        return rig_error("kvlazy_prepare", status);
    }
    status = kvlazy_apply_ubatch(rig->cache, &slot, &ubatch);
    if (status == KVLAZY_OK) {
        bench_rows_write(rig->rows, bench_tensors(&rig->geometry), slot.stream[0], slot.cell, pos, n);
    }
    kvlazy_end_batch(rig->cache);
    return status == KVLAZY_OK ? 0 : rig_error("kvlazy_apply_ubatch", status);
}

int rig_put(struct rig *rig, uint32_t seq, uint32_t pos, uint32_t n)
{
    for (uint32_t done = 0; done < n; done += RIG_UBATCH) {
        uint32_t here = n - done < RIG_UBATCH ? n - done : RIG_UBATCH;
        if (rig_batch(rig, seq, pos + done, here) != 0) {
            return -1;
        }
    }
    return 0;
}

int rig_decode(struct rig *rig, uint32_t seq, uint32_t pos)
{
    kvlazy_pos token_pos = (kvlazy_pos)pos;
    kvlazy_seq_id token_seq = (kvlazy_seq_id)seq;
    kvlazy_ubatch ubatch = {.n_token = 1, .pos = &token_pos, .seq = &token_seq};
    kvlazy_slot slot;
    int status = kvlazy_init_batch(rig->cache);
    if (status == KVLAZY_OK) {
        status = kvlazy_prepare(rig->cache, &ubatch, 1, &slot);
    }
    if (status == KVLAZY_OK) {
        status = kvlazy_apply_ubatch(rig->cache, &slot, &ubatch);
    }
    int ended = kvlazy_end_batch(rig->cache);
    return status != KVLAZY_OK ? status : ended;
}

int rig_idle_at(struct rig *rig, uint32_t n)
{
    for (uint32_t s = 0; s < rig->geometry.n_slot; s++) {
        uint32_t held = (uint32_t)(kvlazy_seq_pos_max(rig->cache, (kvlazy_seq_id)s) + 1);
        if (rig_put(rig, s, held, n - held) != 0) {
            return -1;
        }
    }
    rig->now_ms += rig->geometry.idle_ms;
    return 0;
}

int rig_poll_out(struct rig *rig)
{
    uint64_t next_ms = 0;
    while (next_ms == 0) {
        int status = kvlazy_poll(rig->cache, &next_ms);
        if (status != KVLAZY_OK) {
            return rig_error("kvlazy_poll", status);
        }
    }
    return 0;
}

int rig_resident(const struct rig *rig, uint64_t *bytes)
{
    *bytes = 0;
    for (uint32_t t = 0; t < bench_tensors(&rig->geometry); t++) {
        size_t n_bytes = rig->rows[t].stream_stride * rig->geometry.n_slot;
        if (bench_resident(rig->rows[t].data, n_bytes, bytes) != 0) {
            return -1;
        }
    }
    return 0;
}
