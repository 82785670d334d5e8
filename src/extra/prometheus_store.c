/* SPDX-License-Identifier: MIT */
/*
 * prometheus_store: the figures of a prefix store as text for Prometheus, version 0.0.4. Formats what
 * kvlazy_store_stats returns, and reads nothing else.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/base.h"

#include <kvlazy/store.h>

typedef struct row {
    const char *name, *type, *help, *labels;
    uint64_t value;
} row;

/* A name has one head, in front of its first row. Returns how many bytes the row takes. */
static size_t put_row(const row *r, bool has_head, char *text, size_t left)
{
    int head = has_head ? snprintf(text, left, "# HELP kvlazy_store_%s %s\n# TYPE kvlazy_store_%s %s\n", r->name,
                                   r->help, r->name, r->type)
                        : 0;
    size_t n = head > 0 ? (size_t)head : 0;
    bool fits = text && n < left;
    int line = snprintf(fits ? text + n : NULL, fits ? left - n : 0, "kvlazy_store_%s%s %" PRIu64 "\n", r->name,
                        r->labels, r->value);

    return n + (line > 0 ? (size_t)line : 0);
}

int kvlazy_store_prometheus(kvlazy_store *store, char *text, size_t bytes, size_t *needed)
{
    kvlazy_store_info s = {.struct_size = sizeof s};
    size_t n = 0;

    if (!text && !needed)
        return KVLAZY_EINVAL;
    int status = kvlazy_store_stats(store, &s);
    if (status)
        return status;
    const char *what = "Blocks looked for, saved or refused, by what became of them.";
    const row rows[] = {
        {"blocks_total", "counter", what, "{outcome=\"hit\"}", s.n_hit},
        {"blocks_total", "counter", what, "{outcome=\"miss\"}", s.n_miss},
        {"blocks_total", "counter", what, "{outcome=\"written\"}", s.n_written},
        {"blocks_total", "counter", what, "{outcome=\"there\"}", s.n_there},
        {"blocks_total", "counter", what, "{outcome=\"corrupt\"}", s.n_corrupt},
        {"blocks_total", "counter", what, "{outcome=\"timeout\"}", s.n_timeout},
        {"blocks_total", "counter", what, "{outcome=\"failed\"}", s.n_failed},
        {"blocks_total", "counter", what, "{outcome=\"no_room\"}", s.n_refused_room},
        {"blocks_total", "counter", what, "{outcome=\"no_allowance\"}", s.n_refused_allowance},
        {"read_bytes_total", "counter", "Bytes read from the place.", "", s.read_bytes},
        {"written_bytes_total", "counter", "Bytes written to the place.", "", s.written_bytes},
        {"held_bytes", "gauge", "Memory of the store itself.", "", s.held_bytes},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        bool fits = text && n < bytes;

        n += put_row(&rows[i], !i || strcmp(rows[i].name, rows[i - 1].name) != 0, fits ? text + n : NULL,
                     fits ? bytes - n : 0);
    }
    if (needed)
        *needed = n + 1;
    return KVLAZY_OK;
}
