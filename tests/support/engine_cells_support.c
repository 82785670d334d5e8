/* SPDX-License-Identifier: MIT */
/* The desk of engine_cells_support.h: its callbacks, its cache, and the comparison of bytes with its table. */
#include "engine_cells_support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t desk_used_end(void *ctx, uint32_t stream)
{
    struct desk *d = ctx;
    uint32_t end = CELLS;

    while (end && !d->used[stream][end - 1])
        end--;
    return d->end[stream] = end;
}

static bool is_used(void *ctx, uint32_t stream, uint32_t cell)
{
    struct desk *d = ctx;

    if (cell >= d->end[stream])
        snprintf(d->broken, sizeof d->broken, "is_used(%" PRIu32 ") past used_end", cell);
    return d->used[stream][cell] != 0;
}

void desk_move(void *ctx, uint32_t stream, uint32_t from, uint32_t to, uint32_t n)
{
    struct desk *d = ctx;

    d->n_move++;
    if (to + n > from)
        snprintf(d->broken, sizeof d->broken, "move of %" PRIu32 " from %" PRIu32 " to %" PRIu32, n, from, to);
    for (uint32_t i = 0; i < n; i++) {
        if (!d->used[stream][from + i] || d->used[stream][to + i] ||
            !bed_holds(d->bed, stream, to + i, d->used[stream][from + i]))
            snprintf(d->broken, sizeof d->broken, "move to %" PRIu32 ": the bytes are not there yet", to + i);
        d->used[stream][to + i] = d->bed->content[stream * d->bed->kv_size + to + i] = d->used[stream][from + i];
        d->used[stream][from + i] = 0;
        bed_may_touch(d->bed, stream, to + i);
    }
}

int desk_vacate(void *ctx, uint32_t stream, uint32_t from)
{
    struct desk *d = ctx;

    d->n_vacate++;
    d->vacated_stream = stream;
    d->vacated_from = from;
    if (d->in_vacate)
        d->in_vacate(d);
    for (uint32_t i = from; (!d->veto || d->partial) && i < CELLS; i++)
        d->used[stream][i] = 0;
    return d->veto;
}

/* ---- the rig ---- */

int desk_setup(void **state)
{
    struct desk *d = calloc(1, sizeof *d);

    assert_non_null(d);
    d->bed = bed_new(4096);
    d->ops = (kvlazy_cell_ops){sizeof d->ops, d, desk_used_end, is_used, desk_move, desk_vacate, NULL};
    d->bed->params.cell_ops = &d->ops;
    d->bed->params.kv_size = CELLS;
    d->bed->params.kv_size_initial = 100;
    d->bed->params.n_stream = d->bed->params.n_seq_max = STREAMS;
    d->bed->params.n_pad = 16;
    bed_layer(d->bed, 512, 36, 0);
    bed_layer(d->bed, 1088, 66, 33);
    *state = d;
    return 0;
}

void desk_look(struct desk *d, bool released, const char *file, int line)
{
    struct bed *bed = d->bed;
    const char *reason = NULL;

    if (d->broken[0] || kvlazy_check(bed->cache, &reason)) {
        print_error("%s%s\n", d->broken, reason ? reason : "");
        _fail(file, line);
    }
    for (uint32_t s = 0; s < bed->n_stream; s++)
        for (uint32_t i = 0; i < bed->kv_size; i++) {
            uint32_t *content = &bed->content[s * bed->kv_size + i];
            bool right = d->used[s][i] ? bed_holds(bed, s, i, d->used[s][i])
                         : released    ? bed_is_zero(bed, s, i)
                                       : bed_is_stale(bed, s, i, *content);

            *content = released && !d->used[s][i] ? 0 : *content;
            if (right)
                continue;
            print_error("stream %" PRIu32 " %s cell %" PRIu32 "\n", s, d->used[s][i] ? "used" : "empty", i);
            _fail(file, line);
        }
    fake_assert_kept(&bed->fake);
}

int desk_teardown(void **state)
{
    struct desk *d = *state;

    if (d->bed->cache)
        sound(d);
    bed_free(d->bed);
    free(d);
    return 0;
}

uint32_t n_used(const struct desk *d, uint32_t s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < CELLS; i++)
        n += d->used[s][i] != 0;
    return n;
}

uint64_t touched(struct desk *d)
{
    return bed_stats(d->bed).touched_bytes;
}

int write_cells(struct desk *d, uint32_t s, uint32_t from, uint32_t to)
{
    ok(kvlazy_init_batch(d->bed->cache));
    int status = kvlazy_touch(d->bed->cache, s, to);

    for (uint32_t i = from; !status && i < to; i++) {
        d->used[s][i] = ++d->bed->last_stamp;
        bed_write(d->bed, s, i, d->used[s][i]);
    }
    ok(kvlazy_end_batch(d->bed->cache));
    return status;
}

void empty_cells(struct desk *d, uint32_t s, uint32_t from, uint32_t to)
{
    memset(&d->used[s][from], 0, (to - from) * sizeof d->used[s][0]);
}

void poll_at(struct desk *d, uint64_t now)
{
    d->bed->fake.now = now;
    ok(kvlazy_poll(d->bed->cache, NULL));
}
