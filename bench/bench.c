/* SPDX-License-Identifier: MIT */
/*
 * The small tools of bench.h: clock, medians, the last error, resident pages, and rows whose bytes say which
 * position they belong to. Called by everything in the bench; keeps no state but the text of the last error.
 */
#include "bench.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

uint64_t bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void bench_series_add(struct bench_series *series, double value)
{
    if (series->n < sizeof(series->value) / sizeof(series->value[0])) {
        series->value[series->n++] = value;
    }
}

static int compare_values(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double bench_series_at(struct bench_series *series, double part)
{
    if (series->n == 0) {
        return 0;
    }
    qsort(series->value, series->n, sizeof(series->value[0]), compare_values);
    double place = part * (series->n - 1);
    uint32_t below = (uint32_t)place, above = below + 1 < series->n ? below + 1 : below;
    return series->value[below] + (place - below) * (series->value[above] - series->value[below]);
}

static char last_error[512];

int bench_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(last_error, sizeof(last_error), format, args);
    va_end(args);
    return -1;
}

const char *bench_why(void)
{
    return last_error;
}

size_t bench_page_bytes(void)
{
    static size_t page_bytes;
    if (page_bytes == 0) {
        page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    }
    return page_bytes;
}

uint64_t bench_available_bytes(void)
{
    uint64_t kib = UINT64_MAX / 1024;
    FILE *file = fopen("/proc/meminfo", "r");
    if (file == NULL) {
        return UINT64_MAX;
    }
    char line[256];
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1) {
            break;
        }
    }
    fclose(file);
    return kib * 1024;
}

int bench_resident(const void *addr, size_t n_bytes, uint64_t *bytes)
{
    static unsigned char in_core[1u << 16];
    size_t page_bytes = bench_page_bytes(), n_page = (n_bytes + page_bytes - 1) / page_bytes;
    for (size_t first = 0; first < n_page; first += sizeof(in_core)) {
        size_t n = n_page - first < sizeof(in_core) ? n_page - first : sizeof(in_core);
        if (mincore((char *)(uintptr_t)addr + first * page_bytes, n * page_bytes, in_core) != 0) {
            return bench_error("mincore: %s", strerror(errno));
        }
        uint64_t n_here = 0;
        for (size_t i = 0; i < n; i++) {
            n_here += in_core[i] & 1u;
        }
        *bytes += n_here * page_bytes;
    }
    return 0;
}

/* Never 0, so that a row which was given back can be told from one that was written. */
static unsigned char row_byte(uint32_t stream, uint32_t tensor, uint32_t pos)
{
    return (unsigned char)(1 + (pos * 31u + tensor * 7u + stream * 101u) % 255u);
}

void bench_rows_write(const struct bench_rows *rows, uint32_t n_tensor, uint32_t stream, const uint32_t *cell,
                      uint32_t pos, uint32_t n)
{
    for (uint32_t t = 0; t < n_tensor; t++) {
        unsigned char *base = rows[t].data + stream * rows[t].stream_stride;
        for (uint32_t i = 0; i < n; i++) {
            memset(base + cell[i] * rows[t].row_bytes, row_byte(stream, t, pos + i), rows[t].row_bytes);
        }
    }
}

/* The row of a token is the same in every stream, since it may have been computed in another one. */
void bench_rows_write_tokens(const struct bench_rows *rows, uint32_t tensor, uint32_t tensor_end, uint32_t stream,
                             const uint32_t *cell, const int32_t *token, uint32_t n)
{
    for (uint32_t t = tensor; t < tensor_end; t++) {
        unsigned char *base = rows[t].data + stream * rows[t].stream_stride;
        for (uint32_t i = 0; i < n; i++) {
            memset(base + cell[i] * rows[t].row_bytes, row_byte(0, t, (uint32_t)token[i]), rows[t].row_bytes);
        }
    }
}

bool bench_rows_hold(const struct bench_rows *rows, uint32_t n_tensor, uint32_t stream, uint32_t cell, int32_t token)
{
    for (uint32_t t = 0; t < n_tensor; t++) {
        const unsigned char *row = rows[t].data + stream * rows[t].stream_stride + cell * rows[t].row_bytes;
        unsigned char byte = row_byte(0, t, (uint32_t)token);
        if (row[0] != byte || row[rows[t].row_bytes - 1] != byte) {
            return false;
        }
    }
    return true;
}

bool bench_bytes_are(const unsigned char *data, size_t n_byte, unsigned char byte)
{
    return data[0] == byte && memcmp(data, data + 1, n_byte - 1) == 0;
}

uint32_t bench_rows_wrong(const struct bench_rows *rows, uint32_t n_tensor, uint32_t stream, uint32_t cell,
                          int32_t token)
{
    uint32_t n_wrong = 0;
    for (uint32_t t = 0; t < n_tensor; t++) {
        const unsigned char *row = rows[t].data + stream * rows[t].stream_stride + cell * rows[t].row_bytes;
        n_wrong += !bench_bytes_are(row, rows[t].row_bytes, row_byte(0, t, (uint32_t)token));
    }
    return n_wrong;
}
