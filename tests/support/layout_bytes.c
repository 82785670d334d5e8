/* SPDX-License-Identifier: MIT */
/*
 * The bytes and pages of the bed of layout_support.h: rows that are written and compared, the cover of cells, and which
 * pages may be touched. Bytes are found by the formula of kvlazy_tensor, pages by dividing.
 */
#include "layout_support.h"

#include <string.h>

enum { ROW_MAX = 1 << 16 };

/* ---- places ---- */

uint32_t bed_channels(const kvlazy_tensor *t)
{
    return t->n_channel ? t->n_channel : 1;
}

size_t bed_element_bytes(const kvlazy_tensor *t)
{
    return t->row_bytes / bed_channels(t);
}

unsigned char *bed_place(const kvlazy_tensor *t, uint32_t stream, uint32_t channel, uint32_t cell)
{
    return (unsigned char *)t->data + stream * t->stream_stride + channel * t->channel_stride + cell * t->cell_stride;
}

size_t bed_tensor_bytes(const kvlazy_tensor *t, uint32_t kv_size, uint32_t n_stream)
{
    return (n_stream - 1) * t->stream_stride + (bed_channels(t) - 1) * t->channel_stride +
           (kv_size - 1) * t->cell_stride + bed_element_bytes(t);
}

struct bed_area *bed_area_of(struct bed *bed, const unsigned char *at)
{
    for (int i = 0; i < BED_ARENAS + 1; i++)
        if (bed->area[i].bytes && at >= bed->area[i].base && at < bed->area[i].base + bed->area[i].bytes)
            return &bed->area[i];
    fail_msg("%p lies in no area", (const void *)at);
    return NULL;
}

/* ---- rows ---- */

/* Never zero, and never the pattern for long. */
static void fill_row(uint32_t stamp, int tensor, unsigned char *out, size_t bytes)
{
    uint32_t x = stamp * 2654435761u ^ (uint32_t)(tensor + 1) * 0x9E3779B9u;
    unsigned char four[4];

    x ^= x >> 15;
    for (int i = 0; i < 4; i++)
        four[i] = (unsigned char)(x >> (i * 8)) | 1;
    for (size_t i = 0; i < bytes; i++)
        out[i] = four[i % 4] ^ (unsigned char)(i / 4 * 2);
}

void bed_write(struct bed *bed, uint32_t stream, uint32_t cell, uint32_t stamp)
{
    unsigned char row[ROW_MAX];

    for (int i = 0; i < bed->n_tensor; i++) {
        const kvlazy_tensor *t = &bed->tensor[i];

        fill_row(stamp, i, row, t->row_bytes);
        for (uint32_t channel = 0; channel < bed_channels(t); channel++)
            memcpy(bed_place(t, stream, channel, cell), row + channel * bed_element_bytes(t), bed_element_bytes(t));
    }
    bed->content[(size_t)stream * bed->kv_size + cell] = stamp;
}

bool bed_holds(struct bed *bed, uint32_t stream, uint32_t cell, uint32_t stamp)
{
    unsigned char row[ROW_MAX];

    for (int i = 0; i < bed->n_tensor; i++) {
        const kvlazy_tensor *t = &bed->tensor[i];

        fill_row(stamp, i, row, t->row_bytes);
        for (uint32_t channel = 0; channel < bed_channels(t); channel++)
            if (memcmp(bed_place(t, stream, channel, cell), row + channel * bed_element_bytes(t), bed_element_bytes(t)))
                return false;
    }
    return true;
}

static bool all_zero(const unsigned char *at, size_t n)
{
    return at[0] == 0 && !memcmp(at, at + 1, n - 1);
}

bool bed_is_zero(struct bed *bed, uint32_t stream, uint32_t cell)
{
    for (int i = 0; i < bed->n_tensor; i++)
        for (uint32_t channel = 0; channel < bed_channels(&bed->tensor[i]); channel++)
            if (!all_zero(bed_place(&bed->tensor[i], stream, channel, cell), bed_element_bytes(&bed->tensor[i])))
                return false;
    return true;
}

/* Every byte of a dead cell is zero or what it last had. */
bool bed_is_stale(struct bed *bed, uint32_t stream, uint32_t cell, uint32_t stamp)
{
    unsigned char row[ROW_MAX];

    for (int i = 0; i < bed->n_tensor; i++) {
        const kvlazy_tensor *t = &bed->tensor[i];

        fill_row(stamp, i, row, t->row_bytes);
        for (uint32_t channel = 0; channel < bed_channels(t); channel++)
            for (size_t k = 0; k < bed_element_bytes(t); k++) {
                unsigned char got = bed_place(t, stream, channel, cell)[k];

                if (got && (!stamp || got != row[channel * bed_element_bytes(t) + k]))
                    return false;
            }
    }
    return true;
}

/* ---- pages ---- */

typedef void (*with_page)(struct bed_area *area, size_t page, uint64_t *count);

static void each_page(struct bed *bed, uint32_t stream, uint32_t cell, with_page visit, uint64_t *count)
{
    for (int i = 0; i < bed->n_tensor; i++) {
        const kvlazy_tensor *t = &bed->tensor[i];
        struct bed_area *area = bed_area_of(bed, t->data);

        for (uint32_t channel = 0; channel < bed_channels(t); channel++) {
            size_t at = (size_t)(bed_place(t, stream, channel, cell) - area->base);

            for (size_t p = at / bed->fake.page; p <= (at + bed_element_bytes(t) - 1) / bed->fake.page; p++)
                visit(area, p, count);
        }
    }
}

enum { MAY = 1, SEEN = 2 };

static void set_may(struct bed_area *area, size_t page, uint64_t *count)
{
    (void)count;
    area->may[page] |= MAY;
}

static void count_once(struct bed_area *area, size_t page, uint64_t *count)
{
    *count += !(area->may[page] & SEEN);
    area->may[page] |= SEEN;
}

static size_t pages_of(const struct bed *bed, const struct bed_area *area)
{
    return (area->bytes + bed->fake.page - 1) / bed->fake.page;
}

static void forget_seen(struct bed *bed)
{
    for (int i = 0; i < BED_ARENAS + 1; i++)
        for (size_t p = 0; bed->area[i].may && p < pages_of(bed, &bed->area[i]); p++)
            bed->area[i].may[p] &= MAY;
}

void bed_may_touch(struct bed *bed, uint32_t stream, uint32_t cell)
{
    each_page(bed, stream, cell, set_may, NULL);
}

uint64_t bed_cover(struct bed *bed, uint32_t stream, uint32_t lo, uint32_t hi)
{
    uint64_t n = 0;

    forget_seen(bed);
    for (uint32_t cell = lo; cell < hi; cell++)
        each_page(bed, stream, cell, count_once, &n);
    return n * bed->fake.page;
}

uint64_t bed_live_cover(struct bed *bed)
{
    uint64_t n = 0;

    forget_seen(bed);
    for (uint32_t s = 0; s < bed->n_stream; s++) {
        kvlazy_cells_view view = bed_view(bed, s);

        for (uint32_t cell = 0; cell < view.n_cell; cell++)
            if (view.pos[cell] >= 0)
                each_page(bed, s, cell, count_once, &n);
    }
    return n * bed->fake.page;
}

static bool names_all(const struct bed *bed, const struct bed_area *area, size_t page)
{
    size_t begin = page * bed->fake.page, end = begin + bed->fake.page;

    for (size_t i = begin; area->named && i < end && i < area->bytes; i++)
        if (!area->named[i])
            return false;
    return true;
}

/* Only live rows and pages that are not a tensor's alone may still be touched. SEEN: the cover of what lives. */
void bed_release_pages(struct bed *bed)
{
    bed_live_cover(bed);
    for (int i = 0; i < BED_ARENAS + 1; i++)
        for (size_t p = 0; bed->area[i].may && p < pages_of(bed, &bed->area[i]); p++)
            if (!(bed->area[i].may[p] & SEEN) && names_all(bed, &bed->area[i], p))
                bed->area[i].may[p] = 0;
}

uint64_t bed_may_bytes(struct bed *bed)
{
    uint64_t n = 0;

    for (int i = 0; i < BED_ARENAS + 1; i++)
        for (size_t p = 0; bed->area[i].may && p < pages_of(bed, &bed->area[i]); p++)
            n += bed->area[i].may[p] & MAY;
    return n * bed->fake.page;
}
