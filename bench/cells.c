/* SPDX-License-Identifier: MIT */
/*
 * The operations of `bench/run cells`. Each is timed on both tables in turn, neither always the first, and taken
 * back outside the timed part, so that every round begins alike. The first round is not counted: arrays grow
 * in it. Ratios are of medians.
 */
#include "cells.h"

#include <malloc.h>
#include <stdio.h>

enum {
    HELD = 32768,   /* cells in use before most operations */
    SPARE = 4096,   /* free cells behind them */
    DECODES = 256,  /* single tokens of one round */
    FIRST_POS = 64, /* so that positions can go down and up */
    ROUNDS = 101,
    FEW = 1024, /* cells in use where the cost must not grow with them */
    MANY = 1 << 20,
};

/** One operation. `per`: how many of what is reported there are in one timed part. */
struct work {
    const char *key, *what, *wanted;
    uint32_t kv_size, rounds, per;
    int (*fill)(struct cells_table *table);             /* once */
    int (*timed)(struct cells_table *table, int round); /* what is measured */
    int (*restore)(struct cells_table *table, int round);
    bool lenient; /* the baseline only finds cells and tries nothing out */
};

static int time_work(const struct work *work, struct cells_table *table, int round, struct bench_series *ns)
{
    uint64_t start_ns = bench_now_ns();
    int status = work->timed(table, round);
    uint64_t spent_ns = bench_now_ns() - start_ns;
    if (round > 0) {
        bench_series_add(ns, (double)spent_ns / work->per);
    }
    return status != 0 ? status : work->restore(table, round);
}

/* Both tables must have done the same work, or their times cannot be compared. */
static int agree(const struct work *work, struct cells_table *const *table)
{
    if (cells_live(table[0]) != cells_live(table[1]) || cells_pos_max(table[0], 0) != cells_pos_max(table[1], 0)) {
        return bench_error("%s: the two tables hold different tokens", work->what);
    }
    return 0;
}

static int run_work(const struct work *work, struct cells_table *const *table, struct bench_series *ns)
{
    for (int k = 0; k < CELLS_KINDS; k++) {
        cells_table_dry_run(table[k], !work->lenient);
        if (work->fill(table[k]) != 0) {
            return -1;
        }
    }
    for (int round = 0; round <= (int)work->rounds; round++) {
        for (int k = 0; k < CELLS_KINDS; k++) {
            int now = (round + k) % CELLS_KINDS;
            if (time_work(work, table[now], round, &ns[now]) != 0) {
                return -1;
            }
        }
        if (agree(work, table) != 0) {
            return -1;
        }
    }
    return 0;
}

static int compare(const struct bench_config *config, const struct work *work)
{
    struct bench_series ns[CELLS_KINDS] = {{.n = 0}};
    struct cells_table *table[CELLS_KINDS];
    for (int k = 0; k < CELLS_KINDS; k++) {
        table[k] = cells_table_open((enum cells_kind)k, work->kv_size);
    }
    int status = table[0] != NULL && table[1] != NULL ? run_work(work, table, ns) : -1;
    for (int k = 0; k < CELLS_KINDS; k++) {
        cells_table_close(table[k]);
    }
    if (status != 0) {
        return status;
    }
    struct figure figure = {.key = work->key,
                            .value = bench_series_at(&ns[CELLS_TREES], 0.5) / bench_series_at(&ns[CELLS_LAZY], 0.5),
                            .digits = 2,
                            .what = work->what,
                            .wanted = work->wanted};
    char text[48];
    report_time(figure.ours, sizeof(figure.ours), &ns[CELLS_LAZY]);
    report_time(text, sizeof(text), &ns[CELLS_TREES]);
    snprintf(figure.other, sizeof(figure.other), "trees %s", text);
    report_figure(config, &figure);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * The operations
 */
static int fill_held(struct cells_table *table)
{
    return cells_fill(table, 0, 1, FIRST_POS, HELD);
}

static int decode(struct cells_table *table, kvlazy_pos pos)
{
    for (kvlazy_pos i = 0; i < DECODES; i++) {
        if (cells_put(table, 0, 1, pos + i, 1) != 0) {
            return -1;
        }
    }
    return 0;
}

static int place1(struct cells_table *table, int round)
{
    (void)round;
    return decode(table, FIRST_POS + HELD);
}

static int place512(struct cells_table *table, int round)
{
    (void)round;
    return cells_put(table, 0, 1, FIRST_POS + HELD, CELLS_BATCH);
}

static int remove_placed(struct cells_table *table, int round)
{
    (void)round;
    return cells_rm(table, 0, FIRST_POS + HELD, -1);
}

/* Two sequences get a token each in turn, and then one of them is removed. */
static int fill_alternating(struct cells_table *table)
{
    return cells_fill(table, 0, 2, FIRST_POS, 4 * HELD) != 0 ? -1 : cells_rm(table, 1, -1, -1);
}

static int place_fragmented(struct cells_table *table, int round)
{
    (void)round;
    return cells_put(table, 2, 1, 0, CELLS_BATCH);
}

static int remove_fragmented(struct cells_table *table, int round)
{
    (void)round;
    return cells_rm(table, 2, -1, -1);
}

enum { REMOVED = 12288, REMOVED_FEW = 512 };

static int rm_tail(struct cells_table *table, int round)
{
    (void)round;
    return cells_rm(table, 0, FIRST_POS + HELD - REMOVED, -1);
}

static int refill_tail(struct cells_table *table, int round)
{
    (void)round;
    return cells_fill(table, 0, 1, FIRST_POS + HELD - REMOVED, REMOVED);
}

static int rm_few(struct cells_table *table, int round)
{
    (void)round;
    return cells_rm(table, 0, FIRST_POS + HELD - REMOVED_FEW, -1);
}

static int refill_few(struct cells_table *table, int round)
{
    (void)round;
    return cells_fill(table, 0, 1, FIRST_POS + HELD - REMOVED_FEW, REMOVED_FEW);
}

/* Positions go down and up again, so that the rounds can go on for ever. */
static int shift(struct cells_table *table, int round)
{
    return cells_add(table, 0, -1, -1, round % 2 == 0 ? -32 : 32);
}

static int rotate(struct cells_table *table, int round)
{
    (void)round;
    return cells_shift_done(table);
}

static int clear(struct cells_table *table, int round)
{
    (void)round;
    return cells_clear(table);
}

static int refill(struct cells_table *table, int round)
{
    (void)round;
    return fill_held(table);
}

static const struct work works[] = {
    {"cells_place1_ratio", "prepare + apply of 1 token at 32k", ">= 5", HELD + SPARE, ROUNDS, DECODES, fill_held,
     place1, remove_placed, false},
    {NULL, "  beside a baseline without its dry run", NULL, HELD + SPARE, ROUNDS, DECODES, fill_held, place1,
     remove_placed, true},
    {"cells_place512_ratio", "prepare + apply of 512 tokens at 32k", ">= 5", HELD + SPARE, ROUNDS, 1, fill_held,
     place512, remove_placed, false},
    {NULL, "  beside a baseline without its dry run", NULL, HELD + SPARE, ROUNDS, 1, fill_held, place512, remove_placed,
     true},
    {"cells_fragmented_ratio", "512 cells out of an alternating 128k", ">= 8", 4 * HELD, ROUNDS, 1, fill_alternating,
     place_fragmented, remove_fragmented, false},
    {NULL, "  beside a baseline without its dry run", NULL, 4 * HELD, ROUNDS, 1, fill_alternating, place_fragmented,
     remove_fragmented, true},
    {"cells_rm_ratio", "seq_rm of the last 12k of 32k", ">= 10", HELD + SPARE, ROUNDS, 1, fill_held, rm_tail,
     refill_tail, false},
    {"cells_rm_few_ratio", "seq_rm of the last 512 of 32k", NULL, HELD + SPARE, ROUNDS, 1, fill_held, rm_few,
     refill_few, false},
    {"cells_shift_ratio", "seq_add over 32k", ">= 30", HELD + SPARE, ROUNDS, 1, fill_held, shift, rotate, false},
    {"cells_clear_ratio", "clear, 32k", ">= 10", HELD, ROUNDS, 1, fill_held, clear, refill, false},
};

/* ------------------------------------------------------------------------------------------------------
 * kvlazy alone: the same placement into cells that are laid out one way and the other
 */
struct layout {
    const char *name;
    uint32_t kv_size;
    int (*fill)(struct cells_table *table); /* once */
    kvlazy_seq_id seq;                      /* what is placed and taken back goes to its end */
    kvlazy_pos pos;
};

/** Reports the time for `work` over that for `base`. */
struct alone {
    const char *key, *what, *wanted;
    uint32_t n; /* tokens of one batch; 1: DECODES batches */
    struct layout base, work;
};

static int fill_few(struct cells_table *table)
{
    return cells_fill(table, 0, 1, 0, FEW);
}

static int fill_many(struct cells_table *table)
{
    return cells_fill(table, 0, 1, 0, MANY);
}

/* As many cells in use as fill_alternating leaves, in one piece. */
static int fill_half(struct cells_table *table)
{
    return cells_fill(table, 0, 1, FIRST_POS, 2 * HELD);
}

static int time_layout(const struct alone *alone, const struct layout *layout, struct cells_table *table,
                       struct bench_series *ns)
{
    uint32_t n_batch = alone->n == 1 ? DECODES : 1;
    int status = 0;
    uint64_t start_ns = bench_now_ns();
    for (uint32_t i = 0; status == 0 && i < n_batch; i++) {
        status = cells_put(table, layout->seq, 1, layout->pos + (kvlazy_pos)i, alone->n);
    }
    bench_series_add(ns, (double)(bench_now_ns() - start_ns) / n_batch);
    return status != 0 ? status : cells_rm(table, layout->seq, layout->pos, -1);
}

static int measure_alone(const struct alone *alone, struct bench_series *ns)
{
    const struct layout *layout[2] = {&alone->base, &alone->work};
    struct bench_series unmeasured = {.n = 0};
    struct cells_table *table[2] = {NULL, NULL};
    int status = 0;
    for (int k = 0; status == 0 && k < 2; k++) {
        table[k] = cells_table_open(CELLS_LAZY, layout[k]->kv_size);
        status = table[k] == NULL ? -1 : layout[k]->fill(table[k]);
    }
    for (int round = 0; status == 0 && round <= ROUNDS; round++) {
        for (int k = 0; status == 0 && k < 2; k++) {
            int now = (round + k) % 2;
            status = time_layout(alone, layout[now], table[now], round == 0 ? &unmeasured : &ns[now]);
        }
    }
    cells_table_close(table[0]);
    cells_table_close(table[1]);
    return status;
}

static int report_alone(const struct bench_config *config, const struct alone *alone)
{
    struct bench_series ns[2] = {{.n = 0}};
    if (measure_alone(alone, ns) != 0) {
        return -1;
    }
    struct figure figure = {.key = alone->key,
                            .value = bench_series_at(&ns[1], 0.5) / bench_series_at(&ns[0], 0.5),
                            .digits = 2,
                            .what = alone->what,
                            .wanted = alone->wanted};
    char text[48];
    report_time(figure.ours, sizeof(figure.ours), &ns[1]);
    report_time(text, sizeof(text), &ns[0]);
    snprintf(figure.other, sizeof(figure.other), "%s %s", alone->base.name, text);
    report_figure(config, &figure);
    return 0;
}

static const struct alone alones[] = {
    {"cells_fragmented_vs_contiguous",
     "512 cells alternating / in one piece, 128k",
     "<= 1.3",
     CELLS_BATCH,
     {"in one piece", 4 * HELD, fill_half, 2, 0},
     {"alternating", 4 * HELD, fill_alternating, 2, 0}},
    {"cells_place1_flatness",
     "1 token at 1M cells / at 1k",
     "<= 1.5",
     1,
     {"at 1k", FEW + SPARE, fill_few, 0, FEW},
     {"at 1M", MANY + SPARE, fill_many, 0, MANY}},
    {"cells_place512_flatness",
     "512 tokens at 1M cells / at 1k",
     "<= 1.5",
     CELLS_BATCH,
     {"at 1k", FEW + SPARE, fill_few, 0, FEW},
     {"at 1M", MANY + SPARE, fill_many, 0, MANY}},
};

int cells_operations(const struct bench_config *config)
{
    for (size_t i = 0; i < sizeof(works) / sizeof(works[0]); i++) {
        if (compare(config, &works[i]) != 0) {
            return -1;
        }
    }
    for (size_t i = 0; i < sizeof(alones) / sizeof(alones[0]); i++) {
        if (report_alone(config, &alones[i]) != 0) {
            return -1;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * Bytes: what the heap grows by, everything a cache keeps counted
 */
static uint64_t heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* What the process holds in RAM; 0 where that cannot be told. */
static uint64_t resident_bytes(void)
{
    unsigned long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file != NULL) {
        if (fscanf(file, "%lu %lu", &total, &resident) != 2) {
            resident = 0;
        }
        fclose(file);
    }
    return resident * bench_page_bytes();
}

int cells_bytes(const struct bench_config *config)
{
    uint64_t before = heap_bytes();
    struct cells_table *table = cells_table_open(CELLS_LAZY, 1 << 20);
    if (table == NULL) {
        return -1;
    }
    uint64_t empty = heap_bytes(), resident = resident_bytes();
    int status = cells_fill(table, 0, 1, 0, HELD);
    uint64_t full = heap_bytes();
    status = status == 0 ? cells_fill(table, 0, 1, HELD, CELLS_BATCH) : status;
    uint64_t doubled = heap_bytes(), in_ram = resident_bytes() - resident - cells_touched_bytes(table);
    cells_table_close(table);
    if (status != 0) {
        return status;
    }
    struct figure figure = {.key = "cells_bytes_per_cell",
                            .value = (double)(full - empty) / HELD,
                            .digits = 1,
                            .what = "metadata a cell, 32k of 1M reserved, 64 seqs",
                            .wanted = "<= 32"};
    char text[9]; /* room for three digits makes whole KiB of it */
    report_bytes(text, sizeof(text), full - empty);
    snprintf(figure.ours, sizeof(figure.ours), "%s", text);
    report_bytes(text, sizeof(text), empty - before);
    snprintf(figure.other, sizeof(figure.other), "%s without any cell", text);
    report_figure(config, &figure);
    struct figure worst = {.value = (double)(doubled - empty) / (HELD + CELLS_BATCH),
                           .digits = 1,
                           .what = "  the same, just after the arrays doubled"};
    report_bytes(text, sizeof(text), doubled - empty);
    snprintf(worst.ours, sizeof(worst.ours), "%s", text);
    snprintf(worst.other, sizeof(worst.other), "%.1f a cell in RAM", (double)in_ram / (HELD + CELLS_BATCH));
    report_figure(config, &worst);
    return 0;
}
