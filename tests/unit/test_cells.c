/* SPDX-License-Identifier: MIT */
/* cells: the table of the semantics, and a long run of random operations beside arrays without any cleverness. */
#include "unit.h"

#include <stdio.h>

#include "tokens/cells.h"

static void sound(const kvl_cells *c)
{
    kvl_fault fault = kvl_cells_check(c);

    if (fault.what)
        fail_msg("%s: %llu, counted %llu", fault.what, (unsigned long long)fault.kept,
                 (unsigned long long)fault.counted);
}

static void put(kvl_cells *c, uint32_t cell, kvlazy_pos pos, kvlazy_seq_id seq)
{
    assert_int_equal(kvl_cells_reserve(c, cell + 1), KVLAZY_OK);
    assert_int_equal(kvl_cells_reserve_seq(c, seq, 2), KVLAZY_OK);
    kvl_cells_put(c, cell, pos);
    kvl_cells_own(c, cell, seq);
}

static void own(kvl_cells *c, uint32_t cell, kvlazy_seq_id seq)
{
    assert_int_equal(kvl_cells_reserve_seq(c, seq, 2), KVLAZY_OK);
    assert_int_equal(kvl_cells_reserve_sets(c, 1), KVLAZY_OK);
    kvl_cells_own(c, cell, seq);
}

static void ends(const kvl_cells *c, kvlazy_seq_id seq, kvlazy_pos min, kvlazy_pos max)
{
    assert_int_equal(kvl_index_min(kvl_cells_index(c, seq)), min);
    assert_int_equal(kvl_index_max(kvl_cells_index(c, seq)), max);
}

static void owners_come_and_go(void **state)
{
    kvl_cells c;

    (void)state;
    assert_int_equal(kvl_cells_init(&c, 512, 0, 4, false), KVLAZY_OK);
    for (uint32_t i = 0; i < 4; i++)
        put(&c, 2 + i, (kvlazy_pos)i, 0);
    assert_int_equal(c.n_used, 4);
    assert_int_equal(kvl_bits_next(c.used, 0, c.n_cell, true), 2);
    assert_int_equal(c.used_end, 6);
    ends(&c, 0, 0, 3);

    own(&c, 3, 1);
    assert_int_equal(kvl_cells_rm(&c, 0, 1, 2, 5), 1);
    ends(&c, 1, 1, 1);
    ends(&c, 0, 0, 3);
    assert_int_equal(c.n_used, 4);
    assert_int_equal(kvl_cells_rm(&c, 1, 1, 2, 6), 1);
    assert_int_equal(c.n_used, 3);
    assert_int_equal(c.pos[3], -1);
    assert_int_equal(c.emptied[3], 6);
    assert_int_equal(c.n_fallow, 1);
    sound(&c);
    kvl_cells_fini(&c);
}

static void positions_may_repeat(void **state)
{
    kvl_cells c;

    (void)state;
    assert_int_equal(kvl_cells_init(&c, 512, 0, 2, false), KVLAZY_OK);
    put(&c, 7, 4, 1);
    put(&c, 3, 4, 1);
    kvl_cells_empty(&c, 7, 1);
    ends(&c, 1, 4, 4);
    kvl_cells_empty(&c, 3, 1);
    ends(&c, 1, -1, -1);
    assert_int_equal(c.used_end, 0);
    sound(&c);
    kvl_cells_fini(&c);
}

static void lowest_free_first(void **state)
{
    static const uint32_t free_cells[] = {3, 4, 5, 6, 9};
    kvl_cells c;
    uint32_t at = 0;

    (void)state;
    assert_int_equal(kvl_cells_init(&c, 10, 0, 1, false), KVLAZY_OK);
    for (uint32_t i = 0; i < 10; i++)
        put(&c, i, (kvlazy_pos)i, 0);
    assert_int_equal(kvl_cells_next_free(&c, 0), 10);
    for (size_t i = 0; i < N_OF(free_cells); i++)
        kvl_cells_empty(&c, free_cells[i], 0);
    for (size_t i = 0; i < N_OF(free_cells); i++) {
        at = kvl_cells_next_free(&c, at);
        assert_int_equal(at++, free_cells[i]);
    }
    assert_int_equal(kvl_cells_next_free(&c, at), 10);
    sound(&c);
    kvl_cells_fini(&c);
}

/* A sequence in a stream of its own keeps its number as its bit. */
static void streams_know_their_own(void **state)
{
    kvl_cells c;

    (void)state;
    assert_int_equal(kvl_cells_init(&c, 64, 77, 1, false), KVLAZY_OK);
    put(&c, 0, 0, 77);
    assert_int_equal(kvl_cells_next_owner(&c, 0, 0), 77);
    assert_int_equal(kvl_cells_next_owner(&c, 0, 78), -1);
    kvl_cells_clear(&c, 3);
    assert_int_equal(c.n_used, 0);
    assert_int_equal(c.n_fallow, 1);
    sound(&c);
    kvl_cells_fini(&c);
}

static void what_emptied_lately_counts(void **state)
{
    kvl_cells c;

    (void)state;
    assert_int_equal(kvl_cells_init(&c, 512, 0, 1, false), KVLAZY_OK);
    for (uint32_t i = 0; i < 100; i++)
        put(&c, i, (kvlazy_pos)i, 0);
    kvl_cells_rm(&c, 0, 80, 100, 1000);
    kvl_cells_rm(&c, 0, 40, 80, 2000);
    assert_int_equal(kvl_cells_recent_end(&c, 2000, 1001), 100);
    assert_int_equal(kvl_cells_recent_end(&c, 2000, 1000), 80);
    assert_int_equal(kvl_cells_recent_end(&c, 2500, 500), 40);
    assert_int_equal(kvl_cells_recent_end(&c, 2000 + (UINT64_C(1) << 32), 500), 40); /* seven weeks later */
    assert_int_equal(kvl_cells_recent_end(&c, 2000 + (UINT64_C(1) << 32), (UINT64_C(1) << 32) + 1), 80);
    for (uint32_t i = 40; i < 80; i++)
        kvl_cells_settle(&c, i);
    assert_int_equal(c.n_fallow, 20);
    sound(&c);
    kvl_cells_fini(&c);
}

/* ------------------------------------------------------------------------------------------- beside arrays */

enum { SEQS = 3, CELLS = 700 };

typedef struct naive {
    kvlazy_pos pos[CELLS]; /* -1: empty */
    bool own[CELLS][SEQS];
} naive;

static void naive_drop(naive *n, uint32_t cell, int seq)
{
    bool any = false;

    n->own[cell][seq] = false;
    for (int s = 0; s < SEQS; s++)
        any |= n->own[cell][s];
    if (!any)
        n->pos[cell] = -1;
}

static void compare(const kvl_cells *c, const naive *n)
{
    uint32_t used = 0, end = 0;

    for (uint32_t cell = 0; cell < CELLS; cell++) {
        assert_int_equal(kvl_cells_is_used(c, cell), n->pos[cell] >= 0);
        used += n->pos[cell] >= 0;
        end = n->pos[cell] >= 0 ? cell + 1 : end;
        for (int s = 0; n->pos[cell] >= 0 && s < SEQS; s++)
            assert_int_equal(kvl_cells_owns(c, cell, s), n->own[cell][s]);
    }
    assert_int_equal(c->n_used, used);
    assert_int_equal(c->used_end, end);
    for (int s = 0; s < SEQS; s++) {
        kvlazy_pos min = -1, max = -1;

        for (uint32_t cell = 0; cell < CELLS; cell++)
            if (n->pos[cell] >= 0 && n->own[cell][s]) {
                min = min < 0 || n->pos[cell] < min ? n->pos[cell] : min;
                max = n->pos[cell] > max ? n->pos[cell] : max;
            }
        ends(c, s, min, max);
    }
    sound(c);
}

static void step(kvl_cells *c, naive *n, uint64_t *seed)
{
    uint32_t cell = (uint32_t)(next_random(seed) % CELLS);
    int seq = (int)(next_random(seed) % SEQS);
    kvlazy_pos pos = (kvlazy_pos)(next_random(seed) % 300), p1 = pos + (kvlazy_pos)(next_random(seed) % 60);

    switch (next_random(seed) % 8) {
    case 0: /* a range of one sequence */
        kvl_cells_rm(c, seq, pos, p1, 1);
        for (uint32_t i = 0; i < CELLS; i++)
            if (n->pos[i] >= pos && n->pos[i] < p1 && n->own[i][seq])
                naive_drop(n, i, seq);
        break;
    case 1: /* one cell, all owners */
        if (n->pos[cell] >= 0) {
            kvl_cells_empty(c, cell, 1);
            for (int s = 0; s < SEQS; s++)
                naive_drop(n, cell, s);
        }
        break;
    case 2: /* one more owner */
        if (n->pos[cell] >= 0 && !n->own[cell][seq]) {
            own(c, cell, seq);
            n->own[cell][seq] = true;
        }
        break;
    default: /* a token in the lowest free cell */
        cell = kvl_cells_next_free(c, 0);
        if (cell < CELLS) {
            for (uint32_t i = 0; i < cell; i++)
                assert_true(n->pos[i] >= 0);
            put(c, cell, pos, seq);
            n->pos[cell] = pos;
            n->own[cell][seq] = true;
        }
    }
}

static void random_operations_agree(void **state)
{
    const char *given = getenv("KVLAZY_TEST_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : 1;
    static naive n;
    kvl_cells c;

    (void)state;
    printf("KVLAZY_TEST_SEED=%llu\n", (unsigned long long)seed);
    memset(&n, 0, sizeof n);
    memset(n.pos, 0xff, sizeof n.pos);
    assert_int_equal(kvl_cells_init(&c, CELLS, 0, SEQS, false), KVLAZY_OK);
    for (int i = 0; i < 20000; i++) {
        step(&c, &n, &seed);
        if (i % 50 == 0)
            compare(&c, &n);
    }
    compare(&c, &n);
    kvl_cells_fini(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owners_come_and_go),         cmocka_unit_test(positions_may_repeat),
        cmocka_unit_test(lowest_free_first),          cmocka_unit_test(streams_know_their_own),
        cmocka_unit_test(what_emptied_lately_counts), cmocka_unit_test(random_operations_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
