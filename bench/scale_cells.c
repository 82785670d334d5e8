/* SPDX-License-Identifier: MIT */
/*
 * What sequences cost by themselves: a decode step beside full windows, restores in rotated order, shifts of shared
 * cells; and the bytes that the library keeps for a cell, an owner and a stream.
 */
#include "scale.h"

#include <stdio.h>

enum { STEPS = 64 };

static struct scale_rig rig; /* of the figure at hand */

/* ------------------------------------------------------------------------------------------------------
 * Windows
 */

/* One token for every sequence of a full cache, a few times over: what a prepare takes at the median. */
static int decode_steps(uint32_t n_seq, uint32_t n_swa, uint64_t *ns)
{
    struct bench_series each = {.n = 0};
    uint32_t held = 2 * (n_swa ? n_swa : 16);
    scale_init(&rig, n_seq * held + (n_swa ? 0 : STEPS * n_seq), 1, n_seq);
    rig.params.swa_type = n_swa ? KVLAZY_SWA_STANDARD : KVLAZY_SWA_NONE;
    rig.params.n_swa = n_swa;
    if (scale_create(&rig) != 0) {
        return -1;
    }
    int status = scale_fork(&rig, n_seq, 0, held);
    for (uint32_t step = 0; status == 0 && step < STEPS; step++) {
        kvlazy_slot slot;
        for (uint32_t s = 0; s < n_seq; s++) {
            rig.pos[s] = (kvlazy_pos)(held + step);
            rig.seq[s] = (kvlazy_seq_id)s;
        }
        kvlazy_ubatch ubatch = {.n_token = n_seq, .pos = rig.pos, .seq = rig.seq};
        kvlazy_init_batch(rig.cache);
        uint64_t start_ns = scale_spent_ns();
        int answer = kvlazy_prepare(rig.cache, &ubatch, 1, &slot);
        bench_series_add(&each, (double)(scale_spent_ns() - start_ns));
        answer = answer == KVLAZY_OK ? kvlazy_apply_ubatch(rig.cache, &slot, &ubatch) : answer;
        kvlazy_end_batch(rig.cache);
        status = answer == KVLAZY_OK ? 0 : scale_error("a decode step", answer);
    }
    *ns = (uint64_t)bench_series_at(&each, 0.5);
    scale_close(&rig);
    return status;
}

static int window_prepare(uint32_t n_seq, uint64_t *ns)
{
    return decode_steps(n_seq, 16, ns);
}

int scale_window(const struct bench_config *config)
{
    static const struct scale_growth growth = {
        "scale_window_prepare", "unified full window: prepare of a decode step", "<= 6", 256, 1024, window_prepare};
    struct bench_series with = {.n = 0}, without = {.n = 0};
    if (scale_growth(config, &growth) != 0) {
        return -1;
    }
    for (int round = 0; round < SCALE_ROUNDS; round++) {
        uint64_t ns[2];
        if (decode_steps(256, 16, &ns[0]) != 0 || decode_steps(256, 0, &ns[1]) != 0) {
            return -1;
        }
        bench_series_add(&with, (double)ns[0]);
        bench_series_add(&without, (double)ns[1]);
    }
    struct figure figure = {"scale_window_over_none",
                            bench_series_at(&with, 0.5) / bench_series_at(&without, 0.5),
                            2,
                            "256 sequences: prepare with a full window over none",
                            "",
                            "",
                            "<= 4"};
    report_time(figure.ours, sizeof(figure.ours), &with);
    report_time(figure.other, sizeof(figure.other), &without);
    report_figure(config, &figure);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * Restores and shifts
 */

/* Positions n / 3 … n - 1, then 0 … */
static int rotated(uint32_t n, uint64_t *ns)
{
    scale_init(&rig, n, 1, 1);
    if (scale_create(&rig) != 0) {
        return -1;
    }
    for (uint32_t i = 0; i < n; i++) {
        rig.pos[i] = (kvlazy_pos)((i + n / 3) % n);
        rig.seq[i] = 0;
    }
    uint64_t start_ns = scale_spent_ns();
    int status = scale_batch(&rig, n);
    *ns = scale_spent_ns() - start_ns;
    scale_close(&rig);
    return status;
}

static int shift_shared(uint32_t n, uint64_t *ns)
{
    enum { OWNERS = 4 };
    scale_init(&rig, n, 1, OWNERS);
    if (scale_create(&rig) != 0) {
        return -1;
    }
    int status = scale_fork(&rig, OWNERS, n, 0);
    uint64_t start_ns = scale_spent_ns();
    int answer = kvlazy_seq_add(rig.cache, 1, (kvlazy_pos)(n / 2), -1, 16);
    *ns = scale_spent_ns() - start_ns;
    scale_close(&rig);
    return status == 0 && answer != KVLAZY_OK ? scale_error("kvlazy_seq_add", answer) : status;
}

int scale_sequences(const struct bench_config *config)
{
    static const struct scale_growth growth[] = {
        {"scale_rotated", "restore in rotated order", "<= 5", 131072, 524288, rotated},
        {"scale_shift_shared", "seq_add over cells of four owners", "<= 5", 32768, 131072, shift_shared},
    };
    for (size_t i = 0; i < sizeof(growth) / sizeof(growth[0]); i++) {
        if (scale_growth(config, &growth[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * Bytes
 */
static void report_amount(const struct bench_config *config, const char *key, const char *what, const char *wanted,
                          double value, uint64_t heap_bytes)
{
    struct figure figure = {key, value, 2, what, "", "", wanted};
    report_bytes(figure.ours, sizeof(figure.ours), heap_bytes);
    report_figure(config, &figure);
}

static uint64_t since(uint64_t before_bytes)
{
    uint64_t now_bytes = scale_heap_bytes();
    return now_bytes > before_bytes ? now_bytes - before_bytes : 0;
}

static int cell_bytes(const struct bench_config *config)
{
    enum { SEQUENCES = 2048, TOKENS = 64 };
    scale_init(&rig, SEQUENCES * TOKENS, 1, SEQUENCES);
    if (scale_create(&rig) != 0) {
        return -1;
    }
    uint64_t before_bytes = scale_heap_bytes();
    int status = scale_fork(&rig, SEQUENCES, 0, TOKENS);
    uint64_t bytes = since(before_bytes);
    scale_close(&rig);
    report_amount(config, "scale_cell_bytes", "2048 sequences of 64 tokens: bookkeeping bytes a cell", "<= 40",
                  (double)bytes / ((double)SEQUENCES * TOKENS), bytes);
    return status;
}

static int owner_bytes(const struct bench_config *config)
{
    enum { SEQUENCES = 2048, TOKENS = 8192 };
    scale_init(&rig, TOKENS, 1, SEQUENCES);
    if (scale_create(&rig) != 0) {
        return -1;
    }
    int status = scale_put(&rig, 0, 0, TOKENS);
    uint64_t before_bytes = scale_heap_bytes();
    for (uint32_t s = 1; status == 0 && s < SEQUENCES; s++) {
        int copied = kvlazy_seq_cp(rig.cache, 0, (kvlazy_seq_id)s, 0, -1);
        status = copied == KVLAZY_OK ? 0 : scale_error("kvlazy_seq_cp", copied);
    }
    uint64_t bytes = since(before_bytes);
    scale_close(&rig);
    report_amount(config, "scale_shared_owner_bytes", "8192 tokens of 2048 sequences: bytes a token and further owner",
                  "<= 1", (double)bytes / ((double)(SEQUENCES - 1) * TOKENS), bytes);
    return status;
}

static int stream_bytes(const struct bench_config *config)
{
    enum { STREAMS = 4096 };
    uint64_t before_bytes = scale_heap_bytes();
    scale_init(&rig, 4096, STREAMS, STREAMS);
    if (scale_create(&rig) != 0) {
        return -1;
    }
    int status = 0;
    for (uint32_t s = 0; status == 0 && s < STREAMS; s++) {
        status = scale_put(&rig, (kvlazy_seq_id)s, 0, 1);
    }
    uint64_t bytes = since(before_bytes);
    scale_close(&rig);
    report_amount(config, "scale_stream_bytes", "4096 streams of a token: bookkeeping bytes a stream", "<= 4096",
                  (double)bytes / STREAMS, bytes);
    return status;
}

/* What stays of the bookkeeping once everything is gone. */
static int left_bytes(const struct bench_config *config)
{
    enum { SEQUENCES = 4096, TOKENS = 256 };
    uint64_t before_bytes = scale_heap_bytes();
    scale_init(&rig, SEQUENCES * TOKENS, 1, SEQUENCES);
    if (scale_create(&rig) != 0) {
        return -1;
    }
    uint64_t own_bytes = since(before_bytes); /* the rig's arrays among it */
    int status = scale_fork(&rig, SEQUENCES, 0, TOKENS);
    uint64_t full_bytes = since(before_bytes);
    kvlazy_clear(rig.cache, true);
    kvlazy_trim(rig.cache, 0);
    uint64_t left = since(before_bytes);
    left = left > own_bytes ? left - own_bytes : 0;
    scale_close(&rig);
    struct figure figure = {"scale_left_mib",
                            (double)left / (1 << 20),
                            2,
                            "1M cells of 4096 sequences: left after clear and trim, MiB",
                            "",
                            "",
                            "<= 4"};
    report_bytes(figure.ours, sizeof(figure.ours), left);
    snprintf(figure.other, sizeof(figure.other), "full: %.1f MiB", (double)(full_bytes - own_bytes) / (1 << 20));
    report_figure(config, &figure);
    return status;
}

int scale_bookkeeping(const struct bench_config *config)
{
    return cell_bytes(config) == 0 && owner_bytes(config) == 0 && stream_bytes(config) == 0 && left_bytes(config) == 0
               ? 0
               : -1;
}
