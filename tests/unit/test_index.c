/* SPDX-License-Identifier: MIT */
/* index: runs that grow, split, join and slide, beside a sorted array of tokens; and the room they take. */
#include "unit.h"

#include "tokens/index.h"

enum { TOKENS = 600 };

typedef struct pair {
    kvl_index index;
    kvl_entry entry[TOKENS];
    uint32_t n;
    uint64_t seed;
} pair;

static uint32_t pick(pair *p, uint32_t n)
{
    return (uint32_t)(next_random(&p->seed) % n);
}

static void same(const pair *p)
{
    const kvl_index *x = &p->index;

    assert_null(kvl_index_check(x));
    assert_int_equal(x->n, p->n);
    assert_int_equal(kvl_index_min(x), p->n ? p->entry[0].pos : -1);
    assert_int_equal(kvl_index_max(x), p->n ? p->entry[p->n - 1].pos : -1);
    for (uint32_t i = 0; i < p->n; i++) {
        kvl_entry e = kvl_index_at(x, i);
        kvl_stretch run = kvl_index_run(x, i, p->n), back = kvl_index_run_back(x, 0, i + 1);

        assert_int_equal(e.pos, p->entry[i].pos);
        assert_int_equal(e.cell, p->entry[i].cell);
        assert_true(p->entry[i + run.n - 1].cell == e.cell + run.n - 1);
        assert_true(back.cell + back.n - 1 == e.cell && p->entry[i + 1 - back.n].pos == back.pos);
        assert_true(kvl_index_below(x, e.pos) <= i && kvl_index_below(x, e.pos + 1) > i);
    }
}

static void insert(pair *p, kvlazy_pos pos, uint32_t cell)
{
    uint32_t i = 0;

    assert_int_equal(kvl_index_reserve(&p->index, 2), KVLAZY_OK);
    assert_true(kvl_index_insert(&p->index, pos, cell));
    while (i < p->n && p->entry[i].pos <= pos)
        i++;
    memmove(p->entry + i + 1, p->entry + i, (p->n++ - i) * sizeof *p->entry);
    p->entry[i] = (kvl_entry){pos, cell};
}

static void cut(pair *p, uint32_t begin, uint32_t end)
{
    assert_int_equal(kvl_index_reserve(&p->index, 1), KVLAZY_OK);
    assert_true(kvl_index_cut(&p->index, begin, end));
    memmove(p->entry + begin, p->entry + end, (p->n - end) * sizeof *p->entry);
    p->n -= end - begin;
}

static void rename_run(pair *p, uint32_t i, uint32_t to)
{
    kvl_stretch run = kvl_index_run(&p->index, i, p->n);

    assert_int_equal(kvl_index_reserve(&p->index, 2), KVLAZY_OK);
    assert_true(kvl_index_rename_run(&p->index, run, to));
    for (uint32_t k = 0; k < run.n; k++)
        p->entry[i + k].cell = to + k;
}

static void beside_an_array(void **state)
{
    static pair p;
    uint32_t cell = 0;

    (void)state;
    p = (pair){.seed = 1};
    for (int step = 0; step < 4000; step++) {
        uint32_t what = pick(&p, 12), i = p.n ? pick(&p, p.n) : 0, n = p.n ? 1 + pick(&p, p.n - i) : 0;

        if (what < 7 && p.n + 20 < TOKENS) { /* a run somewhere: at the end, in front or between */
            kvlazy_pos pos = pick(&p, 2) ? kvl_index_max(&p.index) + 1 : (kvlazy_pos)pick(&p, 900);

            cell = pick(&p, 3) ? cell : cell + pick(&p, 5);
            for (uint32_t k = pick(&p, 20); k; k--)
                insert(&p, pos++, cell++);
        } else if (p.n && what < 9) {
            cut(&p, what == 7 ? i : 0, what == 7 ? i + (n + 7) / 8 : 1 + i / 8);
        } else if (p.n && what == 9) {
            cut(&p, i, p.n);
        } else if (p.n && what == 10) {
            rename_run(&p, i, cell += 50);
            cell += TOKENS;
        } else {
            kvl_index_shrink(&p.index);
        }
        same(&p);
    }
    free(p.index.piece);
}

/* Positions that come in another order than rising are as few runs, and stay so. */
static void rotated_tokens_are_two_runs(void **state)
{
    kvl_index x = {0};

    (void)state;
    for (uint32_t i = 0; i < 3000; i++) {
        assert_int_equal(kvl_index_reserve(&x, 2), KVLAZY_OK);
        assert_true(kvl_index_insert(&x, (kvlazy_pos)((i + 1000) % 3000), i));
    }
    assert_int_equal(x.n, 3000);
    assert_int_equal(kvl_index_n_run(&x), 2);
    assert_true(x.cap <= 8);
    assert_null(kvl_index_check(&x));
    free(x.piece);
}

/* Without room nothing is written, and nothing changes. */
static void without_room_nothing_changes(void **state)
{
    kvl_index x = {0};
    uint32_t n = 0;

    (void)state;
    assert_false(kvl_index_insert(&x, 0, 0));
    assert_int_equal(kvl_index_reserve(&x, 1), KVLAZY_OK);
    while (kvl_index_insert(&x, (kvlazy_pos)(10 * n), 10 * n))
        n++;
    assert_int_equal(x.n, n);
    assert_int_equal(kvl_index_n_run(&x), x.cap);
    assert_true(kvl_index_insert(&x, (kvlazy_pos)(10 * n) - 9, 10 * n - 9)); /* it goes on with the last run */
    assert_true(kvl_index_insert(&x, (kvlazy_pos)(10 * n) - 8, 10 * n - 8));
    assert_false(kvl_index_cut(&x, n, n + 1)); /* out of the middle: a run more */
    assert_int_equal(x.n, n + 2);
    assert_null(kvl_index_check(&x));
    free(x.piece);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beside_an_array),
        cmocka_unit_test(rotated_tokens_are_two_runs),
        cmocka_unit_test(without_room_nothing_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
