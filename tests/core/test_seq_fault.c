/* SPDX-License-Identifier: MIT */
/*
 * Sequence calls and window placement meet the n-th failing allocation and the n-th failing call to the host,
 * for every n. A call that fails says ENOMEM (EBUDGET where the host kept the free pages that would have made
 * room), has changed nothing, and does its work when it is repeated.
 */
#include "fail_alloc.h"
#include "seq_support.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is attacked ---- */

struct act {
    const char *name;
    void (*set_up)(struct rig *r); /* opens it */
    int (*call)(struct rig *r);    /* under fire; rows are written outside of it */
};

static void open_streams(struct rig *r)
{
    r->params.n_stream = 3;
    r->params.n_seq_max = 3;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(kvlazy_seq_rm(r->cache, 0, 10, 20));
    ok(kvlazy_seq_add(r->cache, 0, 250, -1, 7));
}

static void open_streams_with_dst(struct rig *r)
{
    open_streams(r);
    ok(kvlazy_shift_done(r->cache));
    ok(turn(r, 1, 5, 70));
    ok(kvlazy_seq_rm(r->cache, 1, 30, 33));
    ok(kvlazy_seq_div(r->cache, 0, 100, 105, 2));
}

static void open_streams_with_budget(struct rig *r)
{
    open_streams_with_dst(r);
    ok(kvlazy_shift_done(r->cache));
    ok(turn(r, 2, 0, 290));
    ok(kvlazy_set_limits(r->cache, UINT32_MAX, UINT32_MAX, stats(r).touched_bytes + 4 * r->fake.page));
    ok(kvlazy_seq_rm(r->cache, 2, -1, -1));
}

static int copy_across(struct rig *r)
{
    int status;

    UNDER_FIRE(status, kvlazy_seq_cp(r->cache, 0, 1, -1, -1));
    return status;
}

static int copy_some_across(struct rig *r)
{
    int status;

    UNDER_FIRE(status, kvlazy_seq_cp(r->cache, 0, 1, 3, 103));
    return status;
}

static void open_unified(struct rig *r)
{
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(cp(r, 0, 1, 0, 128)); /* its index is full by now, to the entry */
    ok(turn(r, 2, 0, 64));
}

static int copy_inside(struct rig *r)
{
    int status;

    UNDER_FIRE(status, kvlazy_seq_cp(r->cache, 0, 2, 3, 290));
    return status;
}

static int copy_to_a_new_one(struct rig *r)
{
    int status;

    UNDER_FIRE(status, kvlazy_seq_cp(r->cache, 0, 3, 100, 101));
    return status;
}

static int add_all(struct rig *r)
{
    int status;

    UNDER_FIRE(status, kvlazy_seq_add(r->cache, 0, -1, -1, -30));
    return status;
}

static int add_shared_and_mixed(struct rig *r)
{
    int status;

    UNDER_FIRE(status, kvlazy_seq_add(r->cache, 1, 50, 100, -45));
    return status;
}

static int add_of_a_full_index(struct rig *r)
{
    int status;

    UNDER_FIRE(status, kvlazy_seq_add(r->cache, 2, 3, -1, 1000));
    return status;
}

static int divide(struct rig *r)
{
    int status;

    UNDER_FIRE(status, kvlazy_seq_div(r->cache, 0, 20, -1, 3));
    return status;
}

static void full_window(struct rig *r)
{
    open_window(r, 300, KVLAZY_SWA_STANDARD, 20);
    ok(put(r, 0, 0, 200));
    ok(put(r, 1, 0, 90));
    ok(cp(r, 0, 2, 3, 9));
}

static int place_over_a_window(struct rig *r)
{
    static kvlazy_pos pos[3][100];
    static kvlazy_seq_id seq[3][100];
    kvlazy_ubatch u[3];
    int status;

    for (int b = 0; b < 3; b++) {
        for (int i = 0; i < 100; i++) {
            pos[b][i] = (b == 2 ? 300 : 200) + i;
            seq[b][i] = b == 1 ? 3 : 0;
        }
        u[b] = UBATCH(100, pos[b], seq[b]);
    }
    UNDER_FIRE(status, kvlazy_prepare(r->cache, u, 3, r->slot));
    if (status)
        return status;
    for (int b = 0; b < 3; b++) {
        char *before = rig_dump(r);

        UNDER_FIRE(status, kvlazy_apply_ubatch(r->cache, &r->slot[b], &u[b]));
        if (status) { /* the host has refused: nothing happened, and it may be applied once more */
            expect(status, KVLAZY_ENOMEM);
            unchanged(r, before);
            before = NULL;
            ok(kvlazy_apply_ubatch(r->cache, &r->slot[b], &u[b]));
        }
        free(before);
        write_rows(r, &r->slot[b]);
    }
    return KVLAZY_OK;
}

/* s0 holds 1 … 63 in an index of 64 entries, and s1 0. */
static void open_nearly_full(struct rig *r)
{
    rig_open(r);
    ok(put(r, 1, 0, 1));
    ok(put(r, 0, 1, 63));
}

/* The copy takes the entry that prepare reserved, so that apply has to ask for more. */
static int apply_after_a_copy(struct rig *r)
{
    kvlazy_ubatch u = UBATCH(1, POS(64), SEQ(0));
    char *before;
    int status;

    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    ok(kvlazy_seq_cp(r->cache, 1, 0, 0, 1));
    before = rig_dump(r);
    UNDER_FIRE(status, kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
    if (status) {
        expect(status, KVLAZY_ENOMEM);
        unchanged(r, before);
        before = NULL;
        ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
    }
    free(before);
    write_rows(r, &r->slot[0]);
    return KVLAZY_OK;
}

static const struct act acts[] = {
    {"copy across, into an empty stream", open_streams, copy_across},
    {"copy across, over what dst holds", open_streams_with_dst, copy_across},
    {"copy across, a range", open_streams_with_dst, copy_some_across},
    {"copy across, under a ceiling", open_streams_with_budget, copy_across},
    {"copy inside", open_unified, copy_inside},
    {"copy inside, to a new one", open_unified, copy_to_a_new_one},
    {"add to all", open_unified, add_all},
    {"add to shared cells, between others", open_unified, add_shared_and_mixed},
    {"add, with no room in the index", open_unified, add_of_a_full_index},
    {"divide", open_unified, divide},
    {"place over a window", full_window, place_over_a_window},
    {"apply, where a copy took the room", open_nearly_full, apply_after_a_copy},
};

/* ---- the attacks ---- */

struct attack {
    bool alloc;
    enum fake_kind kind;
    bool half;
};

static const struct attack attacks[] = {
    {true, FAKE_ANY, false},    {false, FAKE_ANY, false},      {false, FAKE_COMMIT, false},
    {false, FAKE_COMMIT, true}, {false, FAKE_DECOMMIT, false}, {false, FAKE_RESERVE, false},
};

static void aim(struct rig *r, const struct attack *a, int n)
{
    alloc_failed = false;
    alloc_fail_in = a->alloc ? n : 0;
    r->fake.half_commit = a->half;
    fake_fail(&r->fake, a->kind, a->alloc ? 0 : n);
}

/* Rows of a copy are not known to the rig: their bytes are held against their source's here. */
static void learn_rows(struct rig *r)
{
    for (uint32_t s = 1; s < r->n_stream; s++) {
        kvlazy_cells_view v = look(r, s);

        for (uint32_t c = 0; c < v.n_cell; c++) {
            const kvlazy_tensor *t = &r->tensor[0];
            uint32_t from;

            if (v.pos[c] < 0)
                continue;
            for (from = 0; from < r->kv_size; from++)
                if (!memcmp((char *)t->data + from * t->cell_stride,
                            (char *)t->data + s * t->stream_stride + c * t->cell_stride, t->row_bytes) &&
                    r->stamp[from])
                    break;
            if (from == r->kv_size)
                continue; /* written there by a batch */
            r->stamp[(size_t)s * r->kv_size + c] = r->stamp[from];
            r->reach = c >= r->reach ? c + 1 : r->reach;
        }
    }
}

/* Runs an act with its n-th failure; false when it did not come to that. */
static bool run(const struct act *act, const struct attack *a, int n, uint32_t pages, char *end)
{
    struct rig *r = rig_new();
    uint64_t decommits;
    bool fired;
    char *before;
    int status;

    rig_pages(r, pages);
    act->set_up(r);
    before = rig_dump(r);
    decommits = r->fake.n_call[FAKE_DECOMMIT];
    aim(r, a, n);
    status = act->call(r);
    fired = a->alloc ? alloc_failed : r->fake.failed;
    aim(r, a, 0);
    if (status) {
        assert_true(fired);
        if (r->fake.n_call[FAKE_DECOMMIT] > decommits && a->kind != FAKE_COMMIT && !a->alloc) {
            assert_true(status == KVLAZY_ENOMEM || status == KVLAZY_EBUDGET);
            free(before);
        } else {
            expect(status, KVLAZY_ENOMEM);
            if (r->fake.n_call[FAKE_DECOMMIT] > decommits)
                free(before); /* free pages went to make room, and then the host refused what needs it */
            else
                unchanged(r, before);
        }
        sound(r);
        ok(act->call(r));
    } else {
        free(before);
    }
    learn_rows(r);
    sound(r);
    end[0] = 0;
    for (uint32_t s = 0; s < r->n_stream; s++) {
        strcat(end, cells_text(r, s));
        strcat(end, "\n");
        strcat(end, shifts_text(r, s));
        strcat(end, "\n");
    }
    rig_free(r);
    return fired;
}

static void every_failure(void **state)
{
    static char want[1 << 17], got[1 << 17];

    (void)state;
    for (size_t i = 0; i < sizeof acts / sizeof *acts; i++) {
        int n_fired = 0;

        for (size_t k = 0; k < sizeof attacks / sizeof *attacks; k++) {
            uint32_t pages = (i + k) % 2 ? 1 + (uint32_t)(i % (RIG_PAGES - 1)) : 0;

            assert_false(run(&acts[i], &attacks[0], 0, pages, want));
            for (int n = 1, more = 1; more; n++) {
                more = run(&acts[i], &attacks[k], n, pages, got);
                n_fired += more;
                if (strcmp(got, want))
                    print_error("%s, attack %zu, n %d\n", acts[i].name, k, n);
                assert_string_equal(got, want);
                assert_true(n < 1000);
            }
        }
        print_message("%s: %d failures\n", acts[i].name, n_fired);
    }
}

/* What takes away needs no memory, and so cannot fail. */
static void taking_away_cannot_fail(void **state)
{
    (void)state;
    for (int how = 0; how < 5; how++) {
        struct rig *r = rig_new();
        int status = KVLAZY_OK;

        open_unified(r);
        alloc_failed = false;
        alloc_fail_in = 1;
        fake_fail(&r->fake, FAKE_ANY, 1);
        switch (how) {
        case 0:
            UNDER_FIRE(status, kvlazy_seq_keep(r->cache, 1));
            break;
        case 1:
            UNDER_FIRE(status, kvlazy_seq_rm(r->cache, 0, 5, 9));
            break;
        case 2:
            UNDER_FIRE(status, kvlazy_shift_done(r->cache));
            break;
        case 3:
            UNDER_FIRE(status, kvlazy_seq_cp(r->cache, 1, 1, -1, -1));
            break;
        case 4:
            UNDER_FIRE(status, kvlazy_seq_rm(r->cache, -1, -1, -1));
            break;
        }
        ok(status);
        assert_false(alloc_failed);
        assert_false(r->fake.failed);
        alloc_fail_in = 0;
        fake_fail(&r->fake, FAKE_ANY, 0);
        sound(r);
        rig_free(r);
    }
}

/* A window that slides, and a shift of the same size again and again: no allocation, no call to the host. */
static void a_steady_window_allocates_nothing(void **state)
{
    struct rig *r = *state;
    kvlazy_pos next = 300;
    int status;

    open_window(r, 300, KVLAZY_SWA_STANDARD, 20);
    ok(turn(r, 0, 0, 300));
    for (int i = 0; i < 700; i++, next++) {
        kvlazy_ubatch u = UBATCH(1, &next, SEQ(0));

        alloc_failed = false;
        alloc_fail_in = i > 350 ? 1 : 0; /* it may find its sizes first */
        fake_forget(&r->fake);
        UNDER_FIRE(status, kvlazy_prepare(r->cache, &u, 1, r->slot));
        ok(status);
        UNDER_FIRE(status, kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
        ok(status);
        UNDER_FIRE(status, kvlazy_end_batch(r->cache));
        ok(status);
        assert_false(alloc_failed);
        assert_int_equal(r->fake.n_call[FAKE_COMMIT] + r->fake.n_call[FAKE_DECOMMIT], 0);
        write_rows(r, &r->slot[0]);
    }
    alloc_fail_in = 0;
    seq_is(r, 0, 700, 999);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failure),
        cmocka_unit_test(taking_away_cannot_fail),
        RIG_TEST(a_steady_window_allocates_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
