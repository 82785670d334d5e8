/* SPDX-License-Identifier: MIT */
/*
 * The n-th call to the host fails, or the n-th allocation, for every n, over scripts that grow, shrink, trim,
 * clear and change limits. A call that fails says ENOMEM, changes nothing and succeeds when it is repeated; a
 * call that gives memory back never fails. At its end every script has come to the same cells and pages.
 *
 * Linked with --wrap for malloc, calloc, realloc, reallocarray, recallocarray and strdup.
 */
#include "fail_alloc.h"
#include "support.h"

#include <stdlib.h>
#include <string.h>

/* ---- scripts ---- */

enum op { INIT, PREPARE, APPLY, END, REMOVE, POLL, TRIM, CLEAR, BUDGET, WAIT, UNDO, STOP };

/* One library call. a, b, c: PREPARE n_ubatch, tokens each, first sequence (the next ubatch is the next
 * sequence's); APPLY, UNDO slot; REMOVE sequence, from, to; TRIM cells; CLEAR data; BUDGET cells whose cover it
 * is, 0 none; WAIT ms. */
struct step {
    enum op op;
    int a, b, c;
};

#define DO(op)        \
    {                 \
        (op), 0, 0, 0 \
    }
#define PLAN(n_ubatch, n_token, seq)          \
    {                                         \
        PREPARE, (n_ubatch), (n_token), (seq) \
    }
#define PUT(slot)           \
    {                       \
        APPLY, (slot), 0, 0 \
    }
#define DROP(seq, from, to)         \
    {                               \
        REMOVE, (seq), (from), (to) \
    }
#define WITH(op, n)     \
    {                   \
        (op), (n), 0, 0 \
    }

static const struct step grow[] = {
    DO(INIT),        PLAN(2, 90, 0),  PUT(0),          PUT(1), DO(END), WITH(WAIT, 10), PLAN(4, 40, 0),
    PUT(0),          PUT(1),          WITH(UNDO, 1),   PUT(1), PUT(2),  PUT(3),         DO(END),
    DROP(0, 10, 20), DROP(2, -1, -1), PLAN(1, 100, 2), PUT(0), DO(END), DO(STOP),
};
static const struct step idle[] = {
    PLAN(1, 200, 0), PUT(0),   DO(END),         WITH(WAIT, 5), PLAN(1, 100, 1), PUT(0),   DO(END), DROP(0, 30, 50),
    WITH(WAIT, 100), DO(POLL), WITH(WAIT, 400), DO(POLL),      PLAN(1, 50, 1),  PUT(0),   DO(END), WITH(WAIT, 800),
    DO(INIT),        DO(END),  DO(POLL),        DO(TRIM),      WITH(TRIM, 40),  DO(STOP),
};
static const struct step limits[] = {
    PLAN(1, 150, 0), PUT(0),        DO(END),          WITH(WAIT, 5),     PLAN(1, 120, 1),
    PUT(0),          DO(END),       DROP(0, 100, -1), WITH(BUDGET, 250), WITH(BUDGET, 130),
    DROP(1, 40, -1), PLAN(1, 5, 1), PUT(0),           DO(END),           DROP(1, 20, -1),
    PLAN(1, 30, 3),  PUT(0),        DO(END),          DO(BUDGET),        PLAN(1, 200, 2),
    PUT(0),          DO(END),       DO(STOP),
};
static const struct step clears[] = {
    PLAN(3, 60, 0), PUT(0),         PUT(1), DO(CLEAR), PLAN(1, 60, 1), PUT(0),   DO(END),
    WITH(CLEAR, 1), PLAN(2, 30, 0), PUT(0), PUT(1),    DO(END),        DO(STOP),
};

static bool may_fail(enum op op)
{
    return op == PREPARE || op == APPLY;
}

static kvlazy_pos pos_store[4][256];
static kvlazy_seq_id seq_store[4][256];
static kvlazy_ubatch plan[4];

static void make_plan(struct rig *r, const struct step *s)
{
    for (int i = 0; i < s->a; i++) {
        kvlazy_pos next = kvlazy_seq_pos_max(r->cache, s->c + i) + 1;

        for (int k = 0; k < s->b; k++) {
            pos_store[i][k] = next + k;
            seq_store[i][k] = s->c + i;
        }
        plan[i] = UBATCH((uint32_t)s->b, pos_store[i], seq_store[i]);
    }
}

static int run_step(struct rig *r, const struct step *s)
{
    int status = KVLAZY_OK;
    uint64_t budget;

    switch (s->op) {
    case INIT:
        UNDER_FIRE(status, kvlazy_init_batch(r->cache));
        break;
    case PREPARE:
        make_plan(r, s);
        UNDER_FIRE(status, kvlazy_prepare(r->cache, plan, (uint32_t)s->a, r->slot));
        break;
    case APPLY:
        UNDER_FIRE(status, kvlazy_apply_ubatch(r->cache, &r->slot[s->a], &plan[s->a]));
        if (!status)
            write_rows(r, &r->slot[s->a]);
        break;
    case UNDO:
        UNDER_FIRE(status, kvlazy_undo_ubatch(r->cache, &r->slot[s->a]));
        break;
    case END:
        UNDER_FIRE(status, kvlazy_end_batch(r->cache));
        break;
    case REMOVE:
        UNDER_FIRE(status, kvlazy_seq_rm(r->cache, s->a, s->b, s->c));
        break;
    case POLL:
        UNDER_FIRE(status, kvlazy_poll(r->cache, NULL));
        break;
    case TRIM:
        UNDER_FIRE(status, kvlazy_trim(r->cache, (uint32_t)s->a));
        break;
    case CLEAR:
        UNDER_FIRE(status, kvlazy_clear(r->cache, s->a != 0));
        break;
    case BUDGET:
        budget = s->a ? cover_cells(r, 0, 0, (uint32_t)s->a) : 0;
        UNDER_FIRE(status, kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, budget));
        break;
    case WAIT:
        r->fake.now += (uint64_t)s->a;
        break;
    case STOP:
        break;
    }
    return status;
}

/* ---- the sweep ---- */

struct attack {
    bool alloc;          /* else: the host */
    enum fake_kind kind; /* of the call that fails */
    bool half;           /* a failing commit has done part of its work */
};

static const struct attack attacks[] = {
    {true, FAKE_ANY, false},    {false, FAKE_ANY, false},      {false, FAKE_COMMIT, false},
    {false, FAKE_COMMIT, true}, {false, FAKE_DECOMMIT, false}, {false, FAKE_RESERVE, false},
};

static bool fired(const struct rig *r, const struct attack *a)
{
    return a->alloc ? alloc_failed : r->fake.failed;
}

static void aim(struct rig *r, const struct attack *a, int n)
{
    alloc_failed = false;
    alloc_fail_in = a->alloc ? n : 0;
    r->fake.half_commit = a->half;
    fake_fail(&r->fake, a->kind, a->alloc ? 0 : n);
}

static void created(struct rig *r, const struct attack *a)
{
    int status;

    UNDER_FIRE(status, kvlazy_create(&r->params, &r->cache));
    if (status) {
        expect(status, KVLAZY_ENOMEM);
        assert_true(fired(r, a));
        assert_null(r->cache);
        assert_int_equal(fake_mappings(&r->fake), 0);
        assert_int_equal(r->fake.committed_bytes, 0);
        UNDER_FIRE(status, kvlazy_create(&r->params, &r->cache));
    }
    ok(status);
    rig_adopt(r);
}

/* A step that a failure met. */
static void met(struct rig *r, const struct step *s, int status, char *before, bool decommit)
{
    sound(r);
    assert_int_equal(r->fake.committed_bytes, stats(r).touched_bytes); /* what half a commit did went back */
    if (status == KVLAZY_OK) {
        free(before);
        return;
    }
    assert_true(may_fail(s->op));
    if (decommit) { /* free pages that the host would not take to keep a ceiling: some may have gone */
        assert_true(status == KVLAZY_ENOMEM || status == KVLAZY_EBUDGET);
        free(before);
    } else {
        expect(status, KVLAZY_ENOMEM);
        unchanged(r, before);
    }
    ok(run_step(r, s));
    sound(r);
}

/* Runs a script with the n-th failure; false when it did not come to that. Leaves the cells' text in `end`. */
static bool run(const struct step *script, const struct attack *a, int n, bool streams, uint32_t pages, char *end,
                size_t room)
{
    static const size_t rows[2][2] = {{512, 36}, {34, 0}};
    struct rig *r = rig_new();
    bool hit;

    rig_rows(r, 2, rows);
    rig_pages(r, pages);
    r->params.kv_size_initial = 100;
    r->params.n_stream = streams ? 4 : 1;
    aim(r, a, n);
    created(r, a);
    for (const struct step *s = script; s->op != STOP; s++) {
        bool was = fired(r, a);
        char *before = was ? NULL : rig_dump(r);
        uint64_t calls = r->fake.n_call[FAKE_DECOMMIT];
        int status = run_step(r, s);

        if (!was && fired(r, a)) {
            met(r, s, status, before, r->fake.n_call[FAKE_DECOMMIT] > calls);
            continue;
        }
        if (status)
            print_error("step %d\n", (int)(s - script));
        ok(status);
        free(before);
        if (was)
            sound(r);
    }
    hit = fired(r, a);
    aim(r, a, 0);
    settle(r);
    ok(kvlazy_trim(r->cache, 0));
    sound(r);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    assert_int_equal(r->fake.committed_bytes, cover(r));
    end[0] = 0;
    for (uint32_t i = 0; i < r->n_stream; i++) {
        strncat(end, cells_text(r, i), room - strlen(end) - 3);
        strcat(end, "\n");
    }
    rig_free(r);
    return hit;
}

static void sweep(const struct step *script)
{
    static char want[1 << 15], got[1 << 15];

    for (int streams = 0; streams < 2; streams++) {
        for (size_t i = 0; i < sizeof attacks / sizeof *attacks; i++) {
            bool larger =
                (i + (size_t)streams) % 2 && !(streams && script == limits); /* its ceilings are of few pages */
            uint32_t pages = larger ? 1 + (uint32_t)i % (RIG_PAGES - 1) : 0;
            int n = 1;

            assert_false(run(script, &attacks[0], 0, streams, pages, want, sizeof want));
            while (run(script, &attacks[i], n, streams, pages, got, sizeof got)) {
                assert_string_equal(got, want);
                n++;
                assert_true(n < 2000);
            }
            assert_string_equal(got, want);
        }
    }
}

static void growing(void **state)
{
    (void)state;
    sweep(grow);
}

static void idling(void **state)
{
    (void)state;
    sweep(idle);
}

static void limiting(void **state)
{
    (void)state;
    sweep(limits);
}

static void clearing(void **state)
{
    (void)state;
    sweep(clears);
}

/* What only looks allocates nothing, so it cannot fail. */
static void looking(void **state)
{
    struct rig *r = *state;
    kvlazy_stats_info info = {.struct_size = sizeof info};
    kvlazy_cells_view view = {.struct_size = sizeof view};
    uint64_t bytes;
    int status;

    rig_open(r);
    ok(turn(r, 0, 0, 100));
    for (int n = 1; n < 4; n++) {
        alloc_fail_in = n;
        UNDER_FIRE(status, kvlazy_stats(r->cache, &info));
        ok(status);
        UNDER_FIRE(status, kvlazy_cells(r->cache, 0, &view));
        ok(status);
        UNDER_FIRE(status, kvlazy_resident(r->cache, &bytes));
        ok(status);
    }
    alloc_fail_in = 0;
}

/* Steady decode: no call to the host for pages that are there, no allocation. */
static void steady_decode_asks_for_nothing(void **state)
{
    struct rig *r = *state;
    int status;

    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(kvlazy_seq_rm(r->cache, 0, 200, -1));
    for (kvlazy_pos p = 200; p < 300; p++) {
        kvlazy_ubatch u = UBATCH(1, POS(p), SEQ(0));

        alloc_failed = false;
        alloc_fail_in = 1;
        r->fake.now += 1;
        fake_forget(&r->fake);
        UNDER_FIRE(status, kvlazy_init_batch(r->cache));
        ok(status);
        UNDER_FIRE(status, kvlazy_prepare(r->cache, &u, 1, r->slot));
        ok(status);
        UNDER_FIRE(status, kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
        ok(status);
        UNDER_FIRE(status, kvlazy_end_batch(r->cache));
        ok(status);
        assert_false(alloc_failed);
        assert_int_equal(r->fake.n_call[FAKE_COMMIT] + r->fake.n_call[FAKE_DECOMMIT], 0);
        assert_int_equal(r->fake.n_call[FAKE_RESERVE] + r->fake.n_call[FAKE_RESIDENT], 0);
        assert_true(r->fake.n_call[FAKE_NOW] <= 4); /* once a call at the most */
        write_rows(r, &r->slot[0]);
    }
    alloc_fail_in = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(growing),  cmocka_unit_test(idling), cmocka_unit_test(limiting),
        cmocka_unit_test(clearing), RIG_TEST(looking),        RIG_TEST(steady_decode_asks_for_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
