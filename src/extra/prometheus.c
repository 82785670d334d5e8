/* SPDX-License-Identifier: MIT */
/*
 * prometheus: the figures of a cache as text for Prometheus, version 0.0.4. Formats what kvlazy_stats returns; of the
 * cache itself it reads only the name.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "api/door.h"
#include "base/histogram.h"

/* Writes as much as fits, and counts everything, so that a caller learns how large its buffer must be. */
typedef struct out {
    char *text;
    size_t bytes, needed;
    char label[3 * sizeof((kvl_log *)NULL)->name];
} out;

__attribute__((format(printf, 2, 3))) static void put(out *o, const char *format, ...)
{
    size_t left = o->needed < o->bytes ? o->bytes - o->needed : 0;
    va_list args;

    va_start(args, format);
    int n = vsnprintf(left ? o->text + o->needed : NULL, left, format, args);
    va_end(args);
    o->needed += n > 0 ? (size_t)n : 0;
}

/* In a label backslash, quote and line end are escaped. */
static void set_label(out *o, const char *name)
{
    size_t n = 0;

    for (; *name && n + 3 < sizeof o->label; name++) {
        if (*name == '\\' || *name == '"' || *name == '\n')
            o->label[n++] = '\\';
        o->label[n++] = *name == '\n' ? 'n' : *name;
    }
    o->label[n] = 0;
}

static void head(out *o, const char *name, const char *type, const char *help)
{
    put(o, "# HELP kvlazy_%s %s\n# TYPE kvlazy_%s %s\n", name, help, name, type);
}

static void figure(out *o, const char *name, const char *type, const char *help, uint64_t value)
{
    head(o, name, type, help);
    put(o, "kvlazy_%s{cache=\"%s\"} %" PRIu64 "\n", name, o->label, value);
}

static void refusals(out *o, const kvlazy_stats_info *s)
{
    const struct {
        const char *reason;
        uint64_t n;
    } rows[] = {{"position", s->n_refused_pos},
                {"slot", s->n_refused_slot},
                {"budget", s->n_refused_budget},
                {"memory", s->n_refused_memory}};

    head(o, "refusals_total", "counter", "Batches refused, by reason.");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        put(o, "kvlazy_refusals_total{cache=\"%s\",reason=\"%s\"} %" PRIu64 "\n", o->label, rows[i].reason, rows[i].n);
}

/* Writes the digits by hand, since printf writes a comma instead of the point in many locales. */
static void put_seconds(out *o, uint64_t n, int digits)
{
    uint64_t second = 1;

    for (int i = 0; i < digits; i++)
        second *= 10;
    put(o, "%" PRIu64 ".%0*" PRIu64, n / second, digits, n % second);
}

static void histogram(out *o, const char *name, const char *help, const kvlazy_histogram *h)
{
    uint64_t n = 0;

    head(o, name, "histogram", help);
    for (uint32_t i = 0; i + 1 < KVLAZY_BUCKETS; i++) {
        n += h->bucket[i];
        put(o, "kvlazy_%s_bucket{cache=\"%s\",le=\"", name, o->label);
        put_seconds(o, kvl_bucket_ns(i) / 1000, 6);
        put(o, "\"} %" PRIu64 "\n", n);
    }
    put(o, "kvlazy_%s_bucket{cache=\"%s\",le=\"+Inf\"} %" PRIu64 "\n", name, o->label, h->n);
    put(o, "kvlazy_%s_sum{cache=\"%s\"} ", name, o->label);
    put_seconds(o, h->total_ns, 9);
    put(o, "\nkvlazy_%s_count{cache=\"%s\"} %" PRIu64 "\n", name, o->label, h->n);
}

static void put_all(out *o, const kvlazy_stats_info *s)
{
    figure(o, "reserved_bytes", "gauge", "Address space of the tensors.", s->reserved_bytes);
    figure(o, "touched_bytes", "gauge", "Pages committed or handed out for writing.", s->touched_bytes);
    figure(o, "bookkeeping_bytes", "gauge", "Memory of the library itself.", s->bookkeeping_bytes);
    figure(o, "page_bytes", "gauge", "Size of a page.", s->page_bytes);
    figure(o, "commits_ahead", "gauge", "1: pages are made present before they are written.", s->commits_ahead);
    figure(o, "cap_cells", "gauge", "Soft caps of all streams.", s->cap_cells);
    figure(o, "live_cells", "gauge", "Cells that hold a token.", s->live_cells);
    figure(o, "released_bytes_total", "counter", "Bytes given back to the host.", s->released_bytes);
    figure(o, "grows_total", "counter", "Times a soft cap rose.", s->n_grow);
    figure(o, "shrinks_total", "counter", "Times a shrink gave back or moved something.", s->n_shrink);
    figure(o, "evictions_total", "counter", "Sequences cut or dropped by eviction.", s->n_evict);
    figure(o, "evicted_cells_total", "counter", "Cells emptied by eviction.", s->evicted_cells);
    figure(o, "moved_cells_total", "counter", "Live cells moved down into holes.", s->moved_cells);
    figure(o, "host_refusals_total", "counter", "Ranges the host would not take back.", s->n_os_refusal);
    refusals(o, s);
    histogram(o, "commit_seconds", "Making pages present.", &s->commit);
    histogram(o, "release_seconds", "Giving pages back, a piece each.", &s->release);
    histogram(o, "evict_seconds", "Deciding what goes.", &s->evict);
    histogram(o, "compact_seconds", "Moving cells, a piece each.", &s->compact);
}

int kvlazy_stats_text(const kvlazy_cache *c, char *text, size_t bytes, size_t *needed)
{
    kvlazy_stats_info stats = {.struct_size = sizeof stats};
    out o = {.text = text, .bytes = text ? bytes : 0};

    if ((!text && !needed) || !kvl_is_cache(c))
        return KVLAZY_EINVAL;
    set_label(&o, c->log.name); /* constant for the life of the cache, which a sink may end in the next call */
    int status = kvlazy_stats(c, &stats);
    if (status)
        return status;
    put_all(&o, &stats);
    if (needed)
        *needed = o.needed + 1;
    return KVLAZY_OK;
}
