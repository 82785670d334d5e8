/* SPDX-License-Identifier: MIT */
/*
 * A promise to engines that index rows by position: in a stream of one sequence that starts at 0 and is only cut at its
 * end, cell = position, whatever idles, is evicted, trimmed or cleared between.
 */
#include "support.h"

static void is_straight(struct rig *r, uint32_t stream)
{
    kvlazy_cells_view view = {.struct_size = sizeof view};

    ok(kvlazy_cells(r->cache, stream, &view));
    for (uint32_t i = 0; i < view.n_cell; i++)
        assert_true(view.pos[i] < 0 || view.pos[i] == (kvlazy_pos)i);
}

/* Batches of any size, cuts, idle times, trims and clears, drawn from a seed. */
static void cell_is_position(void **state)
{
    struct rig *r = *state;
    uint64_t seed = 1;

    r->params.n_stream = r->params.n_seq_max = 3;
    r->n_seq = 3;
    open_with(r, 512, 40);
    for (int i = 0; i < 2000; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint32_t dice = (uint32_t)(seed >> 33), n = 1 + dice / 16 % 90;
        kvlazy_seq_id seq = (kvlazy_seq_id)(dice / 4 % 3);
        kvlazy_pos next = kvlazy_seq_pos_max(r->cache, seq) + 1;

        if (dice % 16 < 9)
            expect(turn(r, seq, next, n), (uint32_t)next + n > 512 ? KVLAZY_ENOSLOT : KVLAZY_OK);
        else if (dice % 16 < 12)
            ok(kvlazy_seq_rm(r->cache, seq, next - (kvlazy_pos)n, -1));
        else if (dice % 16 < 14)
            r->fake.now += n * 10;
        else if (dice % 16 == 14)
            ok(kvlazy_trim(r->cache, n % 2 ? 0 : 60));
        else if (n < 10)
            ok(kvlazy_clear(r->cache, n % 2));
        ok(kvlazy_poll(r->cache, NULL));
        for (uint32_t s = 0; s < 3; s++)
            is_straight(r, s);
    }
    assert_true(stats(r).n_evict > 10);
    assert_int_equal(stats(r).moved_cells, 0);
    sound(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(cell_is_position),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
