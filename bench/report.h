/* SPDX-License-Identifier: MIT */
/*
 * What the bench says: a table for people or key=value lines for scripts, both from the same figures, and the
 * files the plot is drawn from. Only report.c writes to stdout.
 */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "bench.h"
#include "replay.h"

/** One measured number. Texts may be empty. */
struct figure {
    const char *key; /* NULL: not for scripts */
    double value;
    int digits;         /* behind the point; -1: as many as it takes */
    const char *what;   /* what was measured */
    char ours[48];      /* what kvlazy did */
    char other[64];     /* what it is compared with */
    const char *wanted; /* the promise; NULL: none */
};

void report_begin(const struct bench_config *config);
void report_figure(const struct bench_config *config, const struct figure *figure);
void report_comparison(const struct bench_config *config, const struct trace *trace, struct comparison *comparison);
/** Writes memory.dat and memory.vars into data_dir, for memory.gp. 0 or -1. */
int report_plot(const struct bench_config *config, const struct trace *trace, const struct comparison *comparison);

/** "12.3 us (11.8 .. 14.0)": median and range of a series of nanoseconds; of 20 values and more, the quartiles. */
void report_time(char *text, size_t room, struct bench_series *ns);
/** "56 MiB". */
void report_bytes(char *text, size_t room, uint64_t bytes);

#endif
