/* SPDX-License-Identifier: MIT */
/*
 * The cache over hosts that are special: one that refuses a writable reservation, one with huge pages, with several
 * memory nodes, with locked memory; and the traps that need no kernel. Each test says what a naive library does.
 */
#include "support.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t page_sizes[] = {4096, 16384, 65536};

enum { KV_SIZE = 4096 };

/* Two streams of 4096 cells, 7.4 MiB, on a host that lets so much of it be writable. */
static struct rig *frontier_rig(size_t page_bytes, uint64_t charge_limit_bytes)
{
    struct rig *r = rig_new();

    fake_complete(&r->fake);
    r->fake.page = page_bytes;
    r->fake.charge_limit_bytes = charge_limit_bytes;
    r->params.kv_size = KV_SIZE;
    r->params.n_stream = r->params.n_seq_max = 2;
    return r;
}

static kvlazy_plan_info plan_of(struct rig *r)
{
    kvlazy_plan_info plan = {.struct_size = sizeof plan};

    ok(kvlazy_plan(&r->params, &plan));
    return plan;
}

/* ---- T13: the reservation is refused ---- */

/* Naive: create fails, or reserves without access, and attention crashes on padding. */
static void a_refused_reservation_is_read_only(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof page_sizes / sizeof *page_sizes; i++) {
        struct rig *r = frontier_rig(page_sizes[i], 2 << 20);

        assert_int_equal(plan_of(r).writable_cells, 0);
        rig_open(r);
        assert_int_equal(r->fake.charged_bytes, 0);
        for (uint32_t s = 0; s < 2; s++)
            assert_true(cells_zero(r, s, 0, KV_SIZE));
        ok(turn(r, 0, 0, 300)); /* writes its rows: a page that is still read-only ends the test */
        ok(turn(r, 1, 0, 10));
        sound(r);
        assert_int_equal(r->fake.charged_bytes, stats(r).touched_bytes); /* dense, so that nothing lies between */
        assert_true(cells_zero(r, 0, 300, KV_SIZE));
        ok(kvlazy_seq_rm(r->cache, 0, 20, -1));
        ok(kvlazy_trim(r->cache, 0));
        sound(r);
        assert_true(cells_zero(r, 0, 20, KV_SIZE));
        assert_int_equal(stats(r).touched_bytes, cover(r));
        assert_int_equal(r->fake.charged_bytes, cover(r));
        ok(kvlazy_clear(r->cache, true));
        assert_int_equal(r->fake.charged_bytes, 0);
        rig_free(r);
    }
}

static void a_granted_reservation_is_writable(void **state)
{
    struct rig *r = frontier_rig(4096, 0);

    (void)state;
    assert_int_equal(plan_of(r).writable_cells, KV_SIZE);
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    assert_int_equal(r->fake.n_call[FAKE_SET_WRITABLE], 0);
    assert_int_equal(fake_mappings(&r->fake), 1); /* the plan held nothing */
    rig_free(r);
}

/* Naive: rows below the limit become writable one tensor after the other, and a refusal in the middle leaves cells
 * that are half there. */
static void growth_past_the_limit(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof page_sizes / sizeof *page_sizes; i++) {
        struct rig *r = frontier_rig(page_sizes[i], 2 << 20);
        uint64_t charged_bytes;
        kvlazy_pos end = 0;
        char *before;

        rig_open(r);
        for (;; end += 100) {
            charged_bytes = r->fake.charged_bytes;
            before = rig_dump(r);
            if (turn(r, 0, end, 100))
                break;
            free(before);
        }
        assert_in_range(end, 1000, KV_SIZE - 1);
        unchanged(r, before);
        assert_int_equal(r->fake.charged_bytes, charged_bytes);
        assert_int_equal(stats(r).n_refusal, 1);
        sound(r);
        expect(turn(r, 0, end, 100), KVLAZY_ENOMEM); /* again, and it is no worse */
        ok(kvlazy_seq_rm(r->cache, 0, end / 2, -1));
        ok(kvlazy_trim(r->cache, 0));
        ok(turn(r, 1, 0, (uint32_t)end / 3));
        ok(turn(r, 0, end / 2, 50));
        sound(r);
        rig_free(r);
    }
}

/* A table from before there was set_writable, and one that has none. */
/* Where pages that are writable and others meet: each such place is another mapping. */
static uint64_t n_mapping(const struct fake_mem *fake)
{
    uint64_t n = 0;

    for (int i = 0; i < FAKE_MAPS; i++)
        for (size_t p = 0; fake->map[i].addr && p < fake->map[i].bytes / fake->page; p++)
            n += !p || ((fake->map[i].state[p] ^ fake->map[i].state[p - 1]) & FAKE_WRITABLE);
    return n;
}

/* Naive: a frontier a tensor and stream, until the process has no mapping left and its own malloc fails. */
static void frontiers_leave_mappings_for_others(void **state)
{
    static const uint64_t limits[] = {16, 100, 256, 1000, 4000, 0};
    enum { STREAMS = 48 };

    (void)state;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        struct rig *r = frontier_rig(4096, 0);
        uint64_t random = i + 1, most = 0;

        r->fake.charge_limit_bytes = UINT64_C(1) << 25; /* less than the reservation */
        r->fake.max_mappings = limits[i];
        r->params.kv_size = 4096;
        r->params.n_stream = r->params.n_seq_max = STREAMS;
        rig_open(r);
        assert_true(r->fake.map[0].flags & KVLAZY_RESERVE_READ_ONLY);
        for (int k = 0; k < 300; k++) {
            kvlazy_seq_id s = (kvlazy_seq_id)(next_random(&random) % STREAMS);
            int status = turn(r, s, kvlazy_seq_pos_max(r->cache, s) + 1, 1 + (uint32_t)(next_random(&random) % 40));

            if (status)
                expect(status, KVLAZY_ENOMEM); /* one frontier for all charges what lies between */
            if (next_random(&random) % 4 == 0)
                ok(kvlazy_seq_rm(r->cache, s, (kvlazy_pos)(next_random(&random) % 30), -1));
            if (next_random(&random) % 8 == 0)
                ok(kvlazy_trim(r->cache, 0));
            uint64_t n = n_mapping(&r->fake);
            most = n > most ? n : most;
        }
        sound(r);
        assert_in_range(most, limits[i] == 16 ? 1 : 2,
                        limits[i] ? limits[i] / 8 + 3 : 2 * STREAMS * (uint64_t)r->n_tensor + 1);
        ok(kvlazy_clear(r->cache, true));
        assert_int_equal(r->fake.charged_bytes, 0);
        assert_int_equal(n_mapping(&r->fake), 1);
        rig_free(r);
    }
}

static void a_table_without_a_frontier(void **state)
{
    (void)state;
    for (int old = 0; old < 2; old++) {
        struct rig *r = frontier_rig(4096, 2 << 20);

        if (old)
            r->fake.table.struct_size = offsetof(kvlazy_mem, set_writable);
        else
            r->fake.table.set_writable = NULL;
        expect(kvlazy_create(&r->params, &r->cache), KVLAZY_ENOMEM);
        assert_null(r->cache);
        assert_int_equal(fake_mappings(&r->fake), 0);
        rig_free(r);
    }
}

static int why_refused(void *ctx, size_t bytes, char *text, size_t text_bytes)
{
    (void)ctx;
    return bytes > 1 << 20 && snprintf(text, text_bytes, "RLIMIT_MADE_UP is 2.0M") > 0;
}

static void the_log_names_the_limit(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        struct rig *r = frontier_rig(4096, 2 << 20);

        r->fake.table.set_writable = NULL;
        r->fake.table.why_refused = known ? why_refused : NULL;
        expect(kvlazy_create(&r->params, &r->cache), KVLAZY_ENOMEM);
        assert_non_null(strstr(r->log, "to reserve"));
        assert_int_equal(strstr(r->log, ": RLIMIT_MADE_UP is 2.0M\n") != NULL, known);
        rig_free(r);
    }
}

/* ---- the n-th set_writable is refused ---- */

enum what { TURN, REMOVE, TRIM, CLEAR, STOP };

struct step {
    enum what what;
    int seq, from, n;
};

static const struct step script[] = {
    {TURN, 0, 0, 90},   {TURN, 1, 0, 200},    {REMOVE, 0, 30, -1}, {TRIM, 0, 0, 0}, {TURN, 0, 30, 300},
    {TURN, 1, 200, 40}, {REMOVE, 1, 100, -1}, {TURN, 0, 330, 1},   {TRIM, 0, 0, 0}, {CLEAR, 0, 0, 0},
    {TURN, 1, 0, 70},   {TURN, 0, 0, 64},     {STOP, 0, 0, 0},
};

static int do_step(struct rig *r, const struct step *s)
{
    switch (s->what) {
    case TURN:
        return turn(r, s->seq, s->from, (uint32_t)s->n);
    case REMOVE:
        return kvlazy_seq_rm(r->cache, s->seq, s->from, s->n);
    case TRIM:
        return kvlazy_trim(r->cache, 0);
    case CLEAR:
        return kvlazy_clear(r->cache, true);
    case STOP:
        break;
    }
    return KVLAZY_OK;
}

/* Growing answers ENOMEM and changed nothing; giving back never fails. Either works when it is repeated. */
static void step_under_fire(struct rig *r, const struct step *s)
{
    bool was = r->fake.failed;
    uint64_t charged_bytes = r->fake.charged_bytes;
    char *before = rig_dump(r);
    int status = do_step(r, s);

    sound(r);
    if (status == KVLAZY_OK) {
        free(before);
        return;
    }
    assert_true(!was && r->fake.failed && s->what == TURN);
    expect(status, KVLAZY_ENOMEM);
    unchanged(r, before);
    assert_true(r->fake.charged_bytes <= charged_bytes); /* a frontier that stayed up may have come down */
    ok(do_step(r, s));
    sound(r);
}

static bool run(enum fake_kind kind, bool half, int n, char *end, size_t end_bytes)
{
    struct rig *r = frontier_rig(4096, 2 << 20);
    bool hit;

    r->fake.half_commit = half;
    fake_fail(&r->fake, kind, n);
    int status = kvlazy_create(&r->params, &r->cache);
    if (status) {
        expect(status, KVLAZY_ENOMEM);
        assert_int_equal(fake_mappings(&r->fake), 0);
        ok(kvlazy_create(&r->params, &r->cache));
    }
    rig_adopt(r);
    for (const struct step *s = script; s->what != STOP; s++)
        step_under_fire(r, s);
    hit = r->fake.failed;
    fake_fail(&r->fake, kind, 0);
    settle(r);
    ok(kvlazy_trim(r->cache, 0));
    sound(r);
    assert_int_equal(stats(r).touched_bytes, cover(r));
    assert_int_equal(r->fake.committed_bytes, cover(r));
    assert_int_equal(r->fake.charged_bytes, cover(r));
    snprintf(end, end_bytes, "%s\n%s", cells_text(r, 0), cells_text(r, 1));
    rig_free(r);
    return hit;
}

static void every_refusal_on_the_way(void **state)
{
    static const struct {
        enum fake_kind kind;
        bool half;
    } attack[] = {{FAKE_SET_WRITABLE, false},
                  {FAKE_COMMIT, false},
                  {FAKE_COMMIT, true},
                  {FAKE_DECOMMIT, false},
                  {FAKE_RESERVE, false}};
    static char want[1 << 12], got[1 << 12];

    (void)state;
    assert_false(run(FAKE_ANY, false, 0, want, sizeof want));
    for (size_t i = 0; i < sizeof attack / sizeof *attack; i++) {
        int n = 1;

        for (; run(attack[i].kind, attack[i].half, n, got, sizeof got); n++)
            assert_string_equal(got, want);
        assert_true(n > 3);
    }
}

/* A host whose release does not zero, and that has a frontier on top: nothing goes, and all of it reads zero. */
static void a_frontier_that_cannot_zero(void **state)
{
    struct rig *r = frontier_rig(4096, 2 << 20);

    (void)state;
    r->fake.lazy_decommit = true;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(kvlazy_seq_rm(r->cache, 0, 20, -1));
    ok(kvlazy_trim(r->cache, 0));
    sound(r);
    assert_true(cells_zero(r, 0, 20, KV_SIZE));
    assert_int_equal(stats(r).released_bytes, 0);
    rig_free(r);
}

/* ---- T3: huge pages ---- */

/* Naive: gives back in small pages. The fake holds every range against the size of a huge one. */
static void huge_pages_go_whole(void **state)
{
    (void)state;
    for (int frontier = 0; frontier < 2; frontier++) {
        struct rig *r = frontier_rig(4096, frontier ? 6 << 20 : 0);
        const uint64_t huge = r->fake.huge_page = 65536;

        r->params.flags = KVLAZY_HUGE_PAGES;
        assert_int_equal(plan_of(r).page_bytes, huge);
        rig_open(r);
        for (int t = 0; t < r->n_tensor; t++)
            assert_int_equal((uintptr_t)r->tensor[t].data % huge, 0);
        ok(turn(r, 0, 0, 2000));
        uint64_t touched = stats(r).touched_bytes;
        assert_int_equal(touched % huge, 0);
        ok(kvlazy_seq_rm(r->cache, 0, 1999, -1)); /* no whole huge page is free */
        ok(kvlazy_trim(r->cache, 0));
        assert_int_equal(stats(r).released_bytes, 0);
        assert_int_equal(stats(r).touched_bytes, touched);
        ok(kvlazy_seq_rm(r->cache, 0, 100, -1));
        ok(kvlazy_trim(r->cache, 0));
        assert_true(cells_zero(r, 0, 100, KV_SIZE));
        assert_int_equal(stats(r).touched_bytes, 5 * huge); /* 100 cells: a huge page a tensor */
        assert_int_equal(stats(r).released_bytes, touched - 5 * huge);
        assert_int_equal(r->fake.committed_bytes, 5 * huge);
        sound(r);
        rig_free(r);
    }
}

/* ---- NUMA, locked memory ---- */

/* Naive: the thread that runs the hooks makes the pages present, so all of them lie on its node; and where new memory
 * is locked, pages that wait for their tokens are locked too. */
static void who_touches_first_owns_the_page(void **state)
{
    static const uint32_t traits[] = {0, KVLAZY_HOST_NUMA, KVLAZY_HOST_LOCKED, KVLAZY_HOST_NUMA | KVLAZY_HOST_LOCKED};

    (void)state;
    for (size_t i = 0; i < sizeof traits / sizeof *traits; i++) {
        struct rig *r = frontier_rig(4096, 0);

        r->fake.host_traits = traits[i];
        rig_open(r);
        for (kvlazy_pos p = 0; p < 100; p++)
            ok(turn(r, 0, p, 1));
        assert_int_equal(r->fake.n_call[FAKE_COMMIT] != 0, traits[i] == 0);
        assert_true(stats(r).touched_bytes >= cover(r));
        assert_true(traits[i] == 0 || stats(r).touched_bytes == cover(r)); /* no cell ahead, either */
        sound(r);
        rig_free(r);
    }
}

/* ---- T2: transposed V ---- */

enum { CHANNELS = 16, ELEMENT_BYTES = 4, FIRST = 3000, KEPT = 1000 };

static void write_channels(const kvlazy_tensor *v, uint32_t n_cell)
{
    for (uint32_t j = 0; j < CHANNELS; j++)
        for (uint32_t i = 0; i < n_cell; i++) {
            uint32_t value = j << 20 | (i + 1);

            memcpy((char *)v->data + j * v->channel_stride + i * v->cell_stride, &value, sizeof value);
        }
}

/* Cells below `kept` hold what was written, those from there on zero. */
static void channels_hold(const kvlazy_tensor *v, uint32_t kept)
{
    for (uint32_t j = 0; j < CHANNELS; j++)
        for (uint32_t i = 0; i < KV_SIZE; i++) {
            uint32_t value;

            memcpy(&value, (char *)v->data + j * v->channel_stride + i * v->cell_stride, sizeof value);
            assert_int_equal(value, i < kept ? j << 20 | (i + 1) : 0);
        }
}

static void place_tokens(struct rig *r, uint32_t n)
{
    kvlazy_pos *pos = calloc(n, sizeof *pos);
    kvlazy_seq_id *seq = calloc(n, sizeof *seq);
    kvlazy_ubatch u = UBATCH(n, pos, seq);

    assert_true(pos && seq);
    for (uint32_t i = 0; i < n; i++)
        pos[i] = (kvlazy_pos)i;
    ok(kvlazy_prepare(r->cache, &u, 1, r->slot));
    ok(kvlazy_apply_ubatch(r->cache, &r->slot[0], &u));
    free(pos);
    free(seq);
}

/* Naive: takes "cells from 1000 on" for one range of bytes, from cell 1000 of the first channel to the end. */
static void transposed_channels_go_one_by_one(void **state)
{
    static const kvlazy_layer layer = {.v_row_bytes = CHANNELS * ELEMENT_BYTES, .v_channels = CHANNELS};
    const uint64_t page = 4096, channel_pages = KV_SIZE * ELEMENT_BYTES / page;
    struct rig *r = *state;
    kvlazy_cache *cache;
    kvlazy_tensor v;

    r->params.kv_size = KV_SIZE;
    r->params.layers = &layer;
    r->params.n_layer = 1;
    ok(kvlazy_create(&r->params, &r->cache));
    ok(kvlazy_v(r->cache, 0, &v));
    place_tokens(r, FIRST);
    write_channels(&v, FIRST);
    ok(kvlazy_end_batch(r->cache));
    assert_int_equal(stats(r).touched_bytes, CHANNELS * 3 * page); /* 3000 of 4096 cells: 3 of 4 pages */
    ok(kvlazy_seq_rm(r->cache, 0, KEPT, -1));
    ok(kvlazy_trim(r->cache, 0));
    channels_hold(&v, KEPT);
    assert_int_equal(stats(r).touched_bytes, CHANNELS * page);
    assert_int_equal(stats(r).released_bytes, CHANNELS * 2 * page);
    ok(kvlazy_seq_rm(r->cache, 0, 10, -1)); /* inside a page of every channel: nothing can go, and it says so */
    ok(kvlazy_trim(r->cache, 0));
    channels_hold(&v, 10);
    assert_int_equal(stats(r).released_bytes, CHANNELS * 2 * page);
    assert_int_equal(channel_pages, 4);
    cache = r->cache;
    r->cache = NULL; /* the teardown knows rows only */
    kvlazy_destroy(cache);
}

/* ---- T15: counters ---- */

/* Naive: counts what it asks for. Pages that were never touched, or that went before, are no release; and a page is
 * what the host says, not 4096 bytes. */
static void only_touched_pages_are_released(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof page_sizes / sizeof *page_sizes; i++) {
        struct rig *r = frontier_rig(page_sizes[i], 0);

        rig_open(r);
        ok(kvlazy_trim(r->cache, 0));
        ok(kvlazy_clear(r->cache, true));
        assert_int_equal(stats(r).released_bytes, 0);
        assert_int_equal(r->fake.n_call[FAKE_DECOMMIT], 1); /* the probe's */
        ok(turn(r, 0, 0, 1000));
        uint64_t touched = stats(r).touched_bytes;
        assert_int_equal(touched, r->fake.committed_bytes);
        ok(kvlazy_seq_rm(r->cache, 0, 100, -1));
        for (int again = 0; again < 3; again++) {
            ok(kvlazy_trim(r->cache, 0));
            assert_int_equal(stats(r).released_bytes, touched - cover(r));
            assert_int_equal(r->fake.decommitted_bytes, touched - cover(r));
        }
        assert_int_equal(stats(r).touched_bytes, r->fake.committed_bytes);
        sound(r);
        rig_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_reservation_is_read_only),
        cmocka_unit_test(a_granted_reservation_is_writable),
        cmocka_unit_test(growth_past_the_limit),
        cmocka_unit_test(frontiers_leave_mappings_for_others),
        cmocka_unit_test(a_table_without_a_frontier),
        cmocka_unit_test(the_log_names_the_limit),
        cmocka_unit_test(every_refusal_on_the_way),
        cmocka_unit_test(a_frontier_that_cannot_zero),
        cmocka_unit_test(huge_pages_go_whole),
        cmocka_unit_test(who_touches_first_owns_the_page),
        RIG_TEST(transposed_channels_go_one_by_one),
        cmocka_unit_test(only_touched_pages_are_released),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
