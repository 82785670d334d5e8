/* SPDX-License-Identifier: MIT */
/*
 * transpose: rows of a tensor to and from a buffer in which each row is one run of bytes. What lies transposed is
 * turned on the way, in tiles, so that neither the channels nor the rows of a tile leave the cache of the processor:
 *
 *     tensor    channel 0 | c0 c1 c2 c3 ...        buffer    c0 | channel 0, 1, 2, ...
 *               channel 1 | c0 c1 c2 c3 ...                  c1 | channel 0, 1, 2, ...
 *
 * Part of rows.h. Called where rows are written out and read back; touches no page and knows no token.
 */
#include "memory/rows.h"

enum { TILE_CELLS = 64, TILE_CHANNELS = 32 };

static uint64_t offset_of(const kvl_tensor *t, kvl_place place)
{
    return place.stream * t->stream_stride + place.cell * t->cell_stride;
}

/* ------------------------------------------------------------------------------------------- row-major */

/* How many rows from the first on lie one behind the other, without bytes between. */
static uint32_t run_length(const kvl_tensor *t, const kvl_place *place, uint32_t n)
{
    uint32_t k = 1;

    while (t->cell_stride == t->cell_bytes && k < n && place[k].stream == place->stream &&
           place[k].cell == place->cell + k)
        k++;
    return k;
}

static void copy_rows(char *base, const kvl_tensor *t, const kvl_place *place, uint32_t n, char *row, bool out)
{
    for (uint32_t i = 0, k; i < n; i += k) {
        char *in_tensor = base + offset_of(t, place[i]), *in_buffer = row + i * t->cell_bytes;

        k = run_length(t, place + i, n - i);
        memcpy(out ? in_buffer : in_tensor, out ? in_tensor : in_buffer, k * (size_t)t->cell_bytes);
    }
}

/* ------------------------------------------------------------------------------------------- transposed */

/* Some cells of some channels. */
typedef struct tile {
    char *lane;           /* where the first channel begins */
    char *row;            /* where it goes in the row of the first cell */
    uint64_t lane_stride; /* from one channel to the next, in the tensor */
    uint64_t row_stride;  /* from one row to the next, in the buffer */
    const uint64_t *cell; /* [n_cell] where each begins in a channel */
    uint32_t n_cell, n_channel;
    bool out;
} tile;

/* An element of constant size is one load and one store. */
static inline void turn_elements(const tile *t, size_t bytes)
{
    for (uint32_t channel = 0; channel < t->n_channel; channel++) {
        char *lane = t->lane + channel * t->lane_stride, *row = t->row + channel * bytes;

        if (t->out)
            for (uint32_t i = 0; i < t->n_cell; i++)
                memcpy(row + i * t->row_stride, lane + t->cell[i], bytes);
        else
            for (uint32_t i = 0; i < t->n_cell; i++)
                memcpy(lane + t->cell[i], row + i * t->row_stride, bytes);
    }
}

static void turn_tile(const tile *t, uint64_t cell_bytes)
{
    switch (cell_bytes) {
    case 1:
        turn_elements(t, 1);
        break;
    case 2:
        turn_elements(t, 2);
        break;
    case 4:
        turn_elements(t, 4);
        break;
    default:
        turn_elements(t, (size_t)cell_bytes);
    }
}

static void turn_rows(char *base, const kvl_tensor *t, const kvl_place *place, uint32_t n, char *row, bool out)
{
    uint64_t cell[TILE_CELLS], row_bytes = t->cell_bytes * t->n_lane;

    for (uint32_t i = 0; i < n; i += TILE_CELLS) {
        uint32_t n_cell = (uint32_t)kvl_min(n - i, TILE_CELLS);

        for (uint32_t k = 0; k < n_cell; k++)
            cell[k] = offset_of(t, place[i + k]);
        for (uint32_t channel = 0; channel < t->n_lane; channel += TILE_CHANNELS)
            turn_tile(&(tile){.lane = base + channel * t->lane_stride,
                              .row = row + i * row_bytes + channel * t->cell_bytes,
                              .lane_stride = t->lane_stride,
                              .row_stride = row_bytes,
                              .cell = cell,
                              .n_cell = n_cell,
                              .n_channel = (uint32_t)kvl_min(t->n_lane - channel, TILE_CHANNELS),
                              .out = out},
                      t->cell_bytes);
    }
}

/* ------------------------------------------------------------------------------------------- either */

static void move_rows(const kvl_rows *r, const kvl_tensor *t, const kvl_place *place, uint32_t n, char *row, bool out)
{
    char *base = r->geometry.arena[t->arena]->base + t->offset;

    (t->n_channel ? turn_rows : copy_rows)(base, t, place, n, row, out);
}

void kvl_rows_get(const kvl_rows *r, const kvl_tensor *t, const kvl_place *place, uint32_t n, void *row)
{
    move_rows(r, t, place, n, row, true);
}

/* Moving in only reads from the buffer. */
void kvl_rows_put(kvl_rows *r, const kvl_tensor *t, const kvl_place *place, uint32_t n, const void *row)
{
    move_rows(r, t, place, n, (char *)(uintptr_t)row, false);
}

/* Element by element; a row-major row is one element. */
static void move_part(const kvl_rows *r, const kvl_tensor *t, kvl_place place, kvl_span part, char *bytes, bool out)
{
    char *base = r->geometry.arena[t->arena]->base + t->offset + offset_of(t, place);

    for (uint64_t at = part.begin, n; at < part.end; at += n, bytes += n) {
        char *in_tensor = base + at / t->cell_bytes * t->lane_stride + at % t->cell_bytes;

        n = kvl_min(part.end - at, t->cell_bytes - at % t->cell_bytes);
        memcpy(out ? bytes : in_tensor, out ? in_tensor : bytes, (size_t)n);
    }
}

void kvl_rows_get_part(const kvl_rows *r, const kvl_tensor *t, kvl_place place, kvl_span part, void *bytes)
{
    move_part(r, t, place, part, bytes, true);
}

void kvl_rows_put_part(kvl_rows *r, const kvl_tensor *t, kvl_place place, kvl_span part, const void *bytes)
{
    move_part(r, t, place, part, (char *)(uintptr_t)bytes, false);
}
