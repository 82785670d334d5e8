/* SPDX-License-Identifier: MIT */
/*
 * Random operations on cells that the engine keeps itself, in six shapes, beside the engine's table: every byte of
 * every cell is looked at after each of them.
 */
#include "engine_cells_support.h"

#include <inttypes.h>
#include <stdlib.h>

static uint64_t seed;

static uint32_t below(uint32_t n)
{
    return (uint32_t)(next_random(&seed) % n);
}

/* Fills n of the lowest free cells, as an engine that asks for the cap. */
static void fill_lowest(struct desk *d, uint32_t s, uint32_t n)
{
    uint32_t end = 0, left = n < CELLS - n_used(d, s) ? n : CELLS - n_used(d, s);

    ok(kvlazy_init_batch(d->bed->cache));
    ok(kvlazy_ensure(d->bed->cache, s, n_used(d, s) + left));
    assert_true(kvlazy_cap(d->bed->cache, s) >= n_used(d, s) + left);
    for (uint32_t n_free = 0; n_free < left; end++)
        n_free += !d->used[s][end];
    int status = kvlazy_touch(d->bed->cache, s, end);
    assert_true(status == KVLAZY_OK || status == KVLAZY_EBUDGET || (status == KVLAZY_ENOMEM && d->bed->fake.failed));
    for (uint32_t i = 0; !status && i < end; i++)
        if (!d->used[s][i]) {
            d->used[s][i] = ++d->bed->last_stamp;
            bed_write(d->bed, s, i, d->used[s][i]);
        }
    ok(kvlazy_end_batch(d->bed->cache));
}

/* As an engine copies a sequence: rows, and what its table says of them. */
static void copy_some(struct desk *d, uint32_t src, uint32_t from, uint32_t n)
{
    uint32_t dst = (src + 1) % STREAMS;

    ok(kvlazy_init_batch(d->bed->cache));
    int status = kvlazy_copy_cells(d->bed->cache, src, dst, from, n);
    assert_true(status == KVLAZY_OK || status == KVLAZY_EBUDGET || (status == KVLAZY_ENOMEM && d->bed->fake.failed));
    for (uint32_t i = from; !status && i < from + n; i++) {
        d->used[dst][i] = d->used[src][i];
        d->bed->content[dst * CELLS + i] = d->bed->content[src * CELLS + i];
    }
    ok(kvlazy_end_batch(d->bed->cache));
}

static void walk(struct desk *d)
{
    uint32_t s = below(STREAMS), from = below(CELLS), to = from + below(CELLS - from);

    switch (below(13)) {
    case 12:
        copy_some(d, s, from, to - from);
        break;
    case 0:
    case 1:
        fill_lowest(d, s, 1 + below(200));
        break;
    case 2:
        for (uint32_t i = below(40); i > 0; i--)
            fill_lowest(d, s, 1);
        break;
    case 3:
        empty_cells(d, s, from, CELLS);
        break;
    case 4:
    case 5:
        empty_cells(d, s, from, to);
        break;
    case 6:
    case 7:
        d->veto = below(3) == 0;
        d->bed->fake.now += below(IDLE);
        ok(kvlazy_poll(d->bed->cache, NULL));
        break;
    case 8:
        ok(kvlazy_trim(d->bed->cache, below(2) ? 0 : 1 + below(CELLS)));
        break;
    case 9:
        d->bed->fake.refuse_decommit = below(4) == 0;
        fake_fail(&d->bed->fake, FAKE_COMMIT, (int)below(4));
        break;
    case 10:
        kvlazy_set_limits(d->bed->cache, UINT32_MAX, UINT32_MAX, below(2) ? 0 : touched(d) + below(3) * 65536 - 65536);
        break;
    default:
        if (below(4) == 0)
            empty_cells(d, s, 0, CELLS);
        ok(kvlazy_clear(d->bed->cache, below(2)));
    }
}

static void walk_on(struct desk *d)
{
    bed_open(d->bed);
    for (int i = 0; i < 70; i++) {
        walk(d);
        sound(d);
    }
    d->bed->fake.refuse_decommit = false;
    fake_fail(&d->bed->fake, FAKE_ANY, 0);
    ok(kvlazy_trim(d->bed->cache, 0));
    sound_released(d);
    uint64_t most = 0;
    for (uint32_t s = 0; s < STREAMS; s++)
        most += bed_cover(d->bed, s, 0, desk_used_end(d, s));
    assert_true(touched(d) <= most);
}

static void random_walks(void **state)
{
    const char *text = getenv("KVLAZY_TEST_SEED");

    (void)state;
    seed = text ? strtoull(text, NULL, 10) : 1;
    print_message("KVLAZY_TEST_SEED=%" PRIu64 "\n", seed);
    for (int shape = 0; shape < 6; shape++) {
        void *fresh;
        struct desk *d;

        desk_setup(&fresh);
        d = fresh;
        d->bed->params.kv_size_initial = shape % 2 ? 100 : 0;
        d->bed->params.slot_shrink_idle_ms = shape == 2 ? 0 : IDLE;
        d->bed->params.flags = shape == 3 ? KVLAZY_NO_COMMIT_AHEAD | KVLAZY_SHRINK_AT_INIT : 0;
        d->ops.move = shape == 4 ? NULL : desk_move;
        d->ops.vacate = shape == 5 ? NULL : desk_vacate;
        walk_on(d);
        desk_teardown(&fresh);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_walks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
