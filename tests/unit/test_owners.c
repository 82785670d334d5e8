/* SPDX-License-Identifier: MIT */
/*
 * owners: cells whose owners are many. Hundreds of sequences that share prefixes, fork, are cut, shifted and die,
 * beside arrays without any cleverness; the same where now and then the allocator refuses; and what it costs in bytes.
 */
#include "unit.h"

#include <stdio.h>

#include <bsd/stdlib.h>

#include "fail_alloc.h"
#include "tokens/cells.h"

enum { SEQS = 512, CELLS = 1500, POSITIONS = 400 };

typedef struct model {
    kvl_cells cells;
    kvlazy_pos pos[CELLS]; /* -1: empty */
    uint64_t emptied[CELLS];
    bool own[CELLS][SEQS];
    uint64_t seed, stamp;
    int n_seq; /* that take part */
} model;

static uint32_t pick(model *m, uint32_t n)
{
    return (uint32_t)(next_random(&m->seed) % n);
}

static void sound(const kvl_cells *c)
{
    kvl_fault fault = kvl_cells_check(c);

    if (fault.what)
        fail_msg("%s: %llu, counted %llu", fault.what, (unsigned long long)fault.kept,
                 (unsigned long long)fault.counted);
}

/* ------------------------------------------------------------------------------------------- without cleverness */

static void naive_drop(model *m, uint32_t cell, int seq)
{
    bool any = false;

    m->own[cell][seq] = false;
    for (int s = 0; s < m->n_seq; s++)
        any |= m->own[cell][s];
    if (any)
        return;
    m->pos[cell] = -1;
    m->emptied[cell] = m->stamp;
}

static void naive_rm(model *m, int seq, kvlazy_pos p0, kvlazy_pos p1)
{
    for (uint32_t i = 0; i < CELLS; i++)
        if (m->own[i][seq] && m->pos[i] >= p0 && m->pos[i] < p1)
            naive_drop(m, i, seq);
}

static void naive_move(model *m, int seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion)
{
    for (uint32_t i = 0; i < CELLS; i++) {
        if (!m->own[i][seq] || m->pos[i] < p0 || m->pos[i] >= p1)
            continue;
        int64_t to = m->pos[i] + motion.delta;
        if (to >= 0)
            m->pos[i] = (kvlazy_pos)(to / motion.divisor);
        for (int s = 0; to < 0 && s < m->n_seq; s++)
            if (m->own[i][s])
                naive_drop(m, i, s);
    }
}

static void compare(model *m)
{
    const kvl_cells *c = &m->cells;
    uint32_t n_of[SEQS] = {0};

    for (uint32_t i = 0; i < CELLS; i++) {
        assert_int_equal(kvl_cells_is_used(c, i), m->pos[i] >= 0);
        if (i < c->n_cell)
            assert_int_equal(c->pos[i], m->pos[i]);
        if (m->emptied[i] && m->pos[i] < 0)
            assert_int_equal(c->emptied[i], m->emptied[i]);
        for (int s = 0; m->pos[i] >= 0 && s < m->n_seq; s++) {
            assert_int_equal(kvl_cells_owns(c, i, s), m->own[i][s]);
            n_of[s] += m->own[i][s];
        }
    }
    for (int s = 0; s < m->n_seq; s++)
        assert_int_equal(kvl_cells_index(c, s)->n, n_of[s]);
    sound(c);
}

/* ------------------------------------------------------------------------------------------- operations */

/* A sequence goes on: tokens in the lowest free cells, of one owner or of two. */
static void go_on(model *m, int seq)
{
    kvl_cells *c = &m->cells;
    kvlazy_pos pos = kvl_index_max(kvl_cells_index(c, seq)) + 1;
    int other = pick(m, 8) ? -1 : (int)pick(m, (uint32_t)m->n_seq);

    other = other == seq || (other >= 0 && kvl_index_max(kvl_cells_index(c, other)) >= pos) ? -1 : other;
    for (uint32_t n = 1 + pick(m, 30); n && pos < POSITIONS; n--, pos++) {
        uint32_t cell = kvl_cells_next_free(c, pick(m, 4) ? 0 : pick(m, CELLS));

        if (cell >= CELLS)
            return;
        if (kvl_cells_reserve(c, cell + 1) || kvl_cells_reserve_seq(c, seq, 1) ||
            (other >= 0 && (kvl_cells_reserve_seq(c, other, 1) || kvl_cells_reserve_sets(c, 1))))
            return;
        kvl_cells_put(c, cell, pos);
        kvl_cells_own(c, cell, seq);
        if (other >= 0)
            kvl_cells_own(c, cell, other);
        m->pos[cell] = pos;
        m->own[cell][seq] = true;
        if (other >= 0)
            m->own[cell][other] = true;
    }
}

static void fork_from(model *m, int src, int dst, kvlazy_pos p0, kvlazy_pos p1)
{
    if (src == dst || kvl_cells_reserve_share(&m->cells, src, dst, p0, p1))
        return;
    kvl_cells_rm(&m->cells, dst, p0, p1, m->stamp);
    naive_rm(m, dst, p0, p1);
    kvl_cells_share(&m->cells, src, dst, p0, p1);
    for (uint32_t i = 0; i < CELLS; i++)
        if (m->own[i][src] && m->pos[i] >= p0 && m->pos[i] < p1)
            m->own[i][dst] = true;
}

static void take(model *m, int seq, kvlazy_pos p0, kvlazy_pos p1)
{
    if (kvl_cells_reserve_seq(&m->cells, seq, 1))
        return;
    kvl_cells_rm(&m->cells, seq, p0, p1, m->stamp);
    naive_rm(m, seq, p0, p1);
}

static void shift(model *m, int seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion)
{
    if (kvl_cells_reserve_reposition(&m->cells, seq, p0, p1, motion))
        return;
    kvl_cells_reposition(&m->cells, motion, m->stamp);
    naive_move(m, seq, p0, p1, motion);
}

/* What lies high goes into a hole below. */
static void pack(model *m)
{
    kvl_cells *c = &m->cells;
    uint32_t to = kvl_cells_next_free(c, 0);
    uint32_t from = to < c->n_cell ? (uint32_t)kvl_bits_next(c->used, to, c->used_end, true) : c->used_end;

    if (from >= c->used_end)
        return;
    uint32_t n = (uint32_t)kvl_min(kvl_bits_next(c->used, from, c->used_end, false) - from, from - to);
    if (kvl_cells_reserve_move(c, from, n, kvl_cells_parts(c, from, n)))
        return;
    kvl_cells_move(c, from, to, n, m->stamp);
    for (uint32_t i = 0; i < n; i++) {
        m->pos[to + i] = m->pos[from + i];
        memcpy(m->own[to + i], m->own[from + i], sizeof m->own[0]);
        memset(m->own[from + i], 0, sizeof m->own[0]);
        m->pos[from + i] = -1;
        m->emptied[from + i] = m->stamp;
    }
}

static void empty_one(model *m, uint32_t cell)
{
    if (m->pos[cell] < 0)
        return;
    for (int s = 0; s < m->n_seq; s++)
        if (m->own[cell][s] && kvl_cells_reserve_seq(&m->cells, s, 1))
            return;
    kvl_cells_empty(&m->cells, cell, m->stamp);
    for (int s = 0; s < m->n_seq; s++)
        naive_drop(m, cell, s);
}

static void keep_only(model *m, int seq)
{
    kvl_cells_keep_only(&m->cells, seq, m->stamp);
    for (uint32_t i = 0; i < CELLS; i++)
        for (int s = 0; m->pos[i] >= 0 && s < m->n_seq; s++)
            if (s != seq && (m->own[i][s] || !m->own[i][seq]))
                naive_drop(m, i, s);
}

static void clear(model *m)
{
    kvl_cells_clear(&m->cells, m->stamp);
    for (uint32_t i = 0; i < CELLS; i++)
        for (int s = 0; m->pos[i] >= 0 && s < m->n_seq; s++)
            naive_drop(m, i, s);
}

/* What was emptied is settled, and its room goes. */
static void shrink(model *m)
{
    kvl_cells *c = &m->cells;

    for (uint32_t i = pick(m, CELLS); (i = kvl_cells_next_fallow(c, i)) < c->n_cell; i++)
        kvl_cells_settle(c, i);
    kvl_cells_shrink_room(c);
    for (uint32_t i = c->n_cell; i < CELLS; i++)
        m->emptied[i] = 0;
}

/* A copy is the same, and independent. */
static void try_on_copy(model *m)
{
    kvl_cells copy, was = m->cells;

    if (kvl_cells_copy(&copy, &m->cells))
        return;
    m->cells = copy;
    compare(m);
    kvl_cells_clear(&m->cells, m->stamp);
    sound(&m->cells);
    kvl_cells_fini(&m->cells);
    m->cells = was;
    sound(&m->cells);
}

static void step(model *m)
{
    int a = (int)pick(m, (uint32_t)m->n_seq), b = (int)pick(m, (uint32_t)m->n_seq);
    kvlazy_pos p0 = pick(m, 2) ? 0 : (kvlazy_pos)pick(m, POSITIONS);
    kvlazy_pos p1 = pick(m, 2) ? INT32_MAX : p0 + 1 + (kvlazy_pos)pick(m, 60);
    uint32_t what = pick(m, 400);

    m->stamp++;
    if (what < 120)
        go_on(m, a);
    else if (what < 260)
        fork_from(m, pick(m, 3) ? a : a % 4, b, p0, p1);
    else if (what < 330)
        take(m, a, p0, p1);
    else if (what < 350)
        shift(m, a, p0, p1, (kvl_motion){(int64_t)pick(m, 40) - 25, 1});
    else if (what < 353)
        shift(m, a, p0, p1, (kvl_motion){0, 1 + (int)pick(m, 3)});
    else if (what < 375)
        pack(m);
    else if (what < 396)
        empty_one(m, pick(m, CELLS));
    else if (what == 396 && !pick(m, 8))
        try_on_copy(m);
    else if (what == 397)
        keep_only(m, a);
    else if (what == 398)
        shrink(m);
    else if (!pick(m, 8))
        clear(m);
}

/* Positions that move up and up would leave what the arrays hold for. */
static bool is_near(const model *m)
{
    for (int s = 0; s < m->n_seq; s++)
        if (kvl_index_max(kvl_cells_index(&m->cells, s)) > 4 * POSITIONS)
            return false;
    return true;
}

static void run(int n_seq, int n_step, int refuse_in)
{
    static model m;
    const char *given = getenv("KVLAZY_TEST_SEED");

    memset(&m, 0, sizeof m);
    memset(m.pos, 0xff, sizeof m.pos);
    m.n_seq = n_seq;
    m.seed = given ? strtoull(given, NULL, 0) : (uint64_t)n_seq;
    assert_int_equal(kvl_cells_init(&m.cells, CELLS, 0, (uint32_t)n_seq, false), KVLAZY_OK);
    for (int i = 0; i < n_step; i++) {
        alloc_failed = false;
        alloc_fail_in = refuse_in ? 1 + (int)pick(&m, (uint32_t)refuse_in) : 0;
        alloc_stays_failed = true;
        alloc_armed = refuse_in > 0;
        step(&m);
        alloc_armed = false;
        if (!is_near(&m))
            clear(&m);
        if (i % 100 == 0 || n_step < 3000)
            compare(&m);
        else if (n_seq < 16)
            sound(&m.cells);
    }
    compare(&m);
    kvl_cells_fini(&m.cells);
}

static void few_that_share(void **state)
{
    (void)state;
    run(5, 20000, 0);
}

static void hundreds_that_share(void **state)
{
    (void)state;
    run(SEQS, 6000, 0);
}

static void where_memory_fails(void **state)
{
    (void)state;
    run(6, 20000, 4);
    run(SEQS, 3000, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_that_share),
        cmocka_unit_test(hundreds_that_share),
        cmocka_unit_test(where_memory_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
