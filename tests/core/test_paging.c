/* SPDX-License-Identifier: MIT */
/*
 * Which pages a cache gets on a host that grants some sizes and not others, what is said where it is not the size that
 * was asked for, and what follows: tensors and arenas begin on such pages, and these come and go as a whole.
 */
#include "support.h"
#include "unit.h"

#include <kvlazy/arena.h>

#include <stdio.h>
#include <string.h>

enum { HOST = 4096, KIB = 1024 };

static kvlazy_plan_info plan_of(struct rig *r)
{
    kvlazy_plan_info plan = {.struct_size = sizeof plan};

    ok(kvlazy_plan(&r->params, &plan));
    return plan;
}

/* A host of 4 KiB that grants one size without advice and one with it. */
static void grants(struct rig *r, size_t any_page, size_t advised_page)
{
    fake_grant(&r->fake, any_page ? any_page : HOST, false);
    r->fake.advised_page = advised_page;
}

static int setting(void *ctx, size_t page_bytes, char *text, size_t text_bytes)
{
    (void)ctx;
    snprintf(text, text_bytes, "set pages-%zuk", page_bytes / KIB);
    return 1;
}

static const size_t rows_2048[1][2] = {{2048, 2048}};

static void the_best_that_is_granted(void **state)
{
    static const struct {
        size_t any, advised;  /* KiB that the host grants */
        uint64_t asked, want; /* KiB */
    } rows[] = {
        {0, 0, 0, 4},      {0, 64, 0, 64},        {64, 0, 0, 64},       {64, 64, 0, 64},    {32, 64, 0, 64},
        {16, 2048, 0, 16}, {0, 2048, 0, 4},       {2048, 0, 0, 4},      {2048, 2048, 0, 4}, {0, 128, 0, 4},
        {0, 64, 4, 4},     {0, 64, 1, 4},         {0, 64, 64, 64},      {0, 64, 128, 64},   {16, 64, 32, 16},
        {0, 0, 64, 4},     {0, 2048, 2048, 2048}, {64, 2048, 1024, 64}, {0, 128, 128, 128},
    };
    struct rig *r = *state;

    rig_rows(r, 1, rows_2048);
    for (size_t i = 0; i < N_OF(rows); i++) {
        grants(r, rows[i].any * KIB, rows[i].advised * KIB);
        r->params.page_bytes = rows[i].asked * KIB;
        assert_int_equal(plan_of(r).page_bytes, rows[i].want * KIB);
    }
}

/* Naive: advice where the host grants the same without. It then compacts memory inside the fault. */
static void no_advice_where_the_host_grants_as_much(void **state)
{
    static const struct {
        size_t any, advised;
        uint32_t flags;
    } rows[] = {{64, 64, KVLAZY_RESERVE_ANY_PAGES},
                {32, 64, KVLAZY_RESERVE_HUGE_PAGES},
                {0, 0, 0},
                {64, 0, KVLAZY_RESERVE_ANY_PAGES}};
    struct rig *r = *state;

    rig_rows(r, 1, rows_2048);
    for (size_t i = 0; i < N_OF(rows); i++) {
        const uint32_t sizes = KVLAZY_RESERVE_ANY_PAGES | KVLAZY_RESERVE_HUGE_PAGES;

        grants(r, rows[i].any * KIB, rows[i].advised * KIB);
        ok(kvlazy_create(&r->params, &r->cache));
        uint32_t flags = 0;
        for (int m = 0; m < FAKE_MAPS; m++)
            flags |= r->fake.map[m].flags;
        assert_int_equal(flags & sizes, rows[i].flags);
        kvlazy_destroy(r->cache);
        r->cache = NULL;
    }
}

static void a_page_wastes_no_more_than_idle_cells(void **state)
{
    static const size_t small[1][2] = {{34, 2048}};
    struct rig *r = *state;

    r->params.kv_size = 8192;
    grants(r, 16 * KIB, 64 * KIB);
    rig_rows(r, 1, rows_2048);
    r->params.kv_size_initial = 32;
    assert_int_equal(plan_of(r).page_bytes, 64 * KIB);
    r->params.kv_size_initial = 31;
    assert_int_equal(plan_of(r).page_bytes, 16 * KIB);
    r->params.kv_size_initial = 7;
    assert_int_equal(plan_of(r).page_bytes, HOST);
    r->params.page_bytes = 64 * KIB; /* named, it is taken */
    assert_int_equal(plan_of(r).page_bytes, 64 * KIB);
    r->params.page_bytes = 0;

    rig_rows(r, 1, small); /* the smallest row decides */
    r->params.kv_size_initial = 512;
    assert_int_equal(plan_of(r).page_bytes, 16 * KIB);
    r->params.kv_size_initial = 2048;
    assert_int_equal(plan_of(r).page_bytes, 64 * KIB);
    rig_rows(r, 1, rows_2048); /* an element of a channel is a row of 2 bytes */
    r->layers[0].v_channels = 1024;
    assert_int_equal(plan_of(r).page_bytes, HOST);
}

static void plan_says_what_pages_waste(void **state)
{
    struct rig *r = *state;

    rig_rows(r, 1, rows_2048);
    r->params.kv_size = 1024;
    r->params.kv_size_initial = 33;
    grants(r, 0, 0);
    assert_int_equal(plan_of(r).initial_bytes, 2 * 68 * KIB);
    assert_int_equal(plan_of(r).waste_bytes, 0);
    grants(r, 0, 64 * KIB);
    assert_int_equal(plan_of(r).initial_bytes, 2 * 128 * KIB);
    assert_int_equal(plan_of(r).waste_bytes, 2 * 60 * KIB);
}

static void a_size_that_is_not_granted_is_told(void **state)
{
    struct rig *r = *state;

    rig_rows(r, 1, rows_2048);
    grants(r, 0, 0);
    r->fake.table.why_not_granted = setting;
    r->params.page_bytes = 64 * KIB;
    rig_open(r);
    assert_non_null(strstr(r->log, "1:kv: page_bytes 65536 is not granted, 4096 is: set pages-64k\n"));
    assert_non_null(strstr(r->log, ", pages of 4 KiB\n"));
}

static void what_is_granted_is_not_told(void **state)
{
    struct rig *r = *state;

    rig_rows(r, 1, rows_2048);
    grants(r, 0, 64 * KIB);
    r->fake.table.why_not_granted = setting;
    r->params.page_bytes = 64 * KIB;
    rig_open(r);
    assert_null(strstr(r->log, "1:"));
    assert_non_null(strstr(r->log, ", pages of 64 KiB\n"));
    assert_int_equal(stats(r).page_bytes, 64 * KIB);
}

static void a_page_is_a_power_of_two(void **state)
{
    struct rig *r = *state;
    kvlazy_plan_info plan = {.struct_size = sizeof plan};

    r->params.page_bytes = 48 * KIB;
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_EINVAL);
    expect(kvlazy_plan(&r->params, &plan), KVLAZY_EINVAL);
    assert_non_null(strstr(r->log, "page_bytes = 49152: must be a power of two"));
}

static void huge_pages_are_of_the_size_that_they_always_had(void **state)
{
    struct rig *r = *state;

    fake_complete(&r->fake);
    grants(r, 64 * KIB, 64 * KIB);
    r->params.flags = KVLAZY_HUGE_PAGES;
    r->params.page_bytes = 64 * KIB;
    assert_int_equal(plan_of(r).page_bytes, 2048 * KIB);
    assert_null(strstr(r->log, "1:"));
}

/* Naive: 4 KiB of a page of 64 go back. The host then has no more than before. */
static void a_page_comes_and_goes_whole(void **state)
{
    struct rig *r = *state;

    rig_rows(r, 1, rows_2048);
    r->params.kv_size = 1024;
    grants(r, 0, 64 * KIB);
    rig_open(r);
    r->fake.page = 64 * KIB; /* the fake holds every range against it */
    ok(turn(r, 0, 0, 1));
    assert_int_equal(stats(r).touched_bytes, 2 * 64 * KIB);
    for (int t = 0; t < 2; t++) {
        assert_int_equal((uintptr_t)r->tensor[t].data % (64 * KIB), 0);
        assert_int_equal(fake_committed(&r->fake, r->tensor[t].data, 1024 * 2048), 64 * KIB);
        assert_int_equal(r->tensor[t].stream_stride, 1024 * 2048); /* packed as ever */
    }
    ok(turn(r, 0, 1, 99));
    assert_int_equal(stats(r).touched_bytes, 2 * 4 * 64 * KIB);
    ok(kvlazy_seq_rm(r->cache, 0, 33, -1)); /* one row of the second page stays */
    ok(kvlazy_trim(r->cache, 0));
    assert_int_equal(stats(r).touched_bytes, 2 * 2 * 64 * KIB);
    assert_int_equal(stats(r).released_bytes, 2 * 2 * 64 * KIB);
    assert_true(cells_zero(r, 0, 33, 100));
    sound(r);
}

/* Naive: 32 cells ahead, and so a page more in every tensor, which a short answer never reaches. */
static void decode_takes_a_page_when_it_gets_there(void **state)
{
    struct rig *r = *state;

    rig_rows(r, 1, rows_2048);
    r->params.kv_size = 1024;
    grants(r, 0, 64 * KIB);
    rig_open(r);
    r->fake.page = 64 * KIB;
    for (kvlazy_pos at = 0; at < 100; at++) {
        fake_forget(&r->fake);
        ok(turn(r, 0, at, 1));
        assert_int_equal(r->fake.n_call[FAKE_COMMIT], at % 32 == 0);
        assert_int_equal(stats(r).touched_bytes, 2 * 64 * KIB * ((uint64_t)at / 32 + 1));
    }
    sound(r);
}

/* ---- ahead, or by faults ---- */

/* A clock that goes by what the host is asked. A trial looks at it once before, and then around three things: a write
 * that faults, a call, and a write that does not. */
static struct slow {
    struct fake_mem *fake;
    uint64_t now_ns, commit_ns, fault_ns, n_look;
} slow;

static uint64_t slow_now_ns(void *ctx)
{
    (void)ctx;
    slow.now_ns += slow.n_look++ % 6 == 2 ? slow.fault_ns : 0;
    return slow.now_ns;
}

static int slow_commit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    slow.now_ns += slow.commit_ns;
    return slow.fake->table.commit(ctx, range, n_range);
}

static void the_cheaper_way_is_taken(void **state)
{
    static const struct {
        uint64_t commit_ns, fault_ns;
        uint32_t n_writer;
        size_t page;
        uint32_t flags;
        uint64_t ahead;
    } rows[] = {
        {100, 150, 0, 64 * KIB, 0, 1},
        {200, 150, 0, 64 * KIB, 0, 0},
        {100, 150, 2, 64 * KIB, 0, 0},
        {100, 150, 2, HOST, 0, 0},
        {100, 150, 1, HOST, 0, 1},
        {200, 150, 0, HOST, 0, 1}, /* as ever */
        {200, 150, 0, 64 * KIB, KVLAZY_COMMIT_AHEAD, 1},
        {100, 150, 1, 64 * KIB, KVLAZY_NO_COMMIT_AHEAD, 0},
    };
    struct rig *r = *state;
    kvlazy_mem table;

    rig_rows(r, 1, rows_2048);
    for (size_t i = 0; i < N_OF(rows); i++) {
        grants(r, rows[i].page, 0);
        table = r->fake.table;
        table.now_ns = slow_now_ns;
        table.commit = slow_commit;
        slow = (struct slow){&r->fake, 1, rows[i].commit_ns, rows[i].fault_ns, 0};
        r->params.mem = &table;
        r->params.n_writer = rows[i].n_writer;
        r->params.flags = rows[i].flags;
        ok(kvlazy_create(&r->params, &r->cache));
        assert_int_equal(stats(r).commits_ahead, rows[i].ahead);
        assert_int_equal(stats(r).touched_bytes, 0);
        assert_int_equal(r->fake.committed_bytes, 0); /* what was tried out is gone */
        kvlazy_destroy(r->cache);
        r->cache = NULL;
    }
    r->params.flags = KVLAZY_COMMIT_AHEAD | KVLAZY_NO_COMMIT_AHEAD;
    expect(kvlazy_create(&r->params, &r->cache), KVLAZY_EINVAL);
}

/* What was tried out is one range of a few pages. Naive: what the calls cost that follow is not looked at. */
static void calls_that_cost_more_are_given_up(void **state)
{
    struct rig *r = *state;
    kvlazy_mem table;

    rig_rows(r, 1, rows_2048);
    r->params.kv_size = 8192;
    for (int kind = 0; kind < 4; kind++) {
        bool open = kind != 2;

        grants(r, 64 * KIB, 0);
        table = r->fake.table;
        table.now_ns = slow_now_ns;
        table.commit = slow_commit;
        slow = (struct slow){&r->fake, 1, 100, 0, 0};
        slow.fault_ns = kind == 3 ? 400000 : 4000; /* 4 pages are tried out: 1000 each by faults */
        r->params.mem = &table;
        r->params.flags = open ? 0 : KVLAZY_COMMIT_AHEAD;
        rig_open(r);
        assert_int_equal(stats(r).commits_ahead, 1);
        slow.fault_ns = 0;
        for (kvlazy_pos at = 0; at < 12 * 256; at += 256) { /* 16 pages a call */
            slow.commit_ns = kind == 1 && at == 5 * 256 ? 100 : kind == 3 ? 16 * 100001 : 16 * 1001;
            ok(turn(r, 0, at, 256));
            assert_int_equal(stats(r).commits_ahead, kind != 0 || at < 7 * 256); /* eight calls that agree */
        }
        sound(r);
        rig_forgets(r);
        kvlazy_destroy(r->cache);
        r->cache = NULL;
        r->fake.page = HOST;
    }
}

/* Naive: create fails where trying fails. */
static void a_host_that_refuses_the_trial(void **state)
{
    struct rig *r = *state;
    kvlazy_mem table;

    rig_rows(r, 1, rows_2048);
    for (int n = 1; n < 12; n++)
        for (int kind = 0; kind < 3; kind++) {
            static const enum fake_kind kinds[] = {FAKE_RESERVE, FAKE_COMMIT, FAKE_DECOMMIT};

            grants(r, 64 * KIB, 0);
            table = r->fake.table;
            table.now_ns = slow_now_ns;
            slow = (struct slow){&r->fake, 1, 1, 2, 0};
            r->params.mem = &table;
            fake_fail(&r->fake, kinds[kind], n);
            int status = kvlazy_create(&r->params, &r->cache);
            assert_true(status == KVLAZY_OK || (status == KVLAZY_ENOMEM && kind == 0));
            fake_fail(&r->fake, FAKE_ANY, 0);
            kvlazy_destroy(r->cache);
            r->cache = NULL;
            assert_int_equal(fake_mappings(&r->fake), 0);
        }
}

/* ---- what was read before it was written ---- */

/* What the host was asked in one turn of a token that reads so many cells: the bytes given back before the commit. */
static size_t given_before_commit(struct rig *r, kvlazy_pos at, uint32_t n_kv)
{
    size_t bytes = 0;

    fake_forget(&r->fake);
    ok(kvlazy_init_batch(r->cache));
    ok(put(r, 0, at, 1));
    assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), n_kv);
    ok(kvlazy_end_batch(r->cache));
    for (size_t i = 0; i < r->fake.n_log && r->fake.log[i].kind != FAKE_COMMIT; i++)
        bytes += r->fake.log[i].kind == FAKE_DECOMMIT ? r->fake.log[i].bytes : 0;
    assert_int_equal(r->fake.n_call[FAKE_COMMIT], 1);
    return bytes;
}

/* Naive: the block holds pages of zeros, which attention read, and no larger page comes there ever. */
static void what_was_read_goes_before_it_is_written(void **state)
{
    struct rig *r = *state;

    rig_rows(r, 1, rows_2048);
    r->params.kv_size = 1024;
    grants(r, 64 * KIB, 0);
    rig_open(r);
    r->fake.page = 64 * KIB;
    assert_int_equal(given_before_commit(r, 0, 256), 0); /* nothing was read yet */
    for (kvlazy_pos at = 1; at < 32; at++)
        ok(turn(r, 0, at, 1));
    uint64_t released_bytes = stats(r).released_bytes;
    assert_int_equal(given_before_commit(r, 32, 256), 2 * 64 * KIB);
    assert_int_equal(stats(r).released_bytes, released_bytes); /* nothing that counts */
    assert_int_equal(stats(r).n_os_refusal, 0);
    for (kvlazy_pos at = 33; at < 64; at++)
        ok(turn(r, 0, at, 1));
    r->fake.refuse_decommit = true; /* then it is slower, and no more */
    assert_true(given_before_commit(r, 64, 256) > 0);
    r->fake.refuse_decommit = false;
    assert_int_equal(stats(r).n_os_refusal, 0);
    sound(r);
    ok(turn(r, 0, 65, 255)); /* past all that was read: the host is not bothered */
    for (kvlazy_pos at = 320; at < 352; at++)
        ok(turn(r, 0, at, 1));
    fake_forget(&r->fake);
    ok(turn(r, 0, 352, 1));
    assert_int_equal(r->fake.n_call[FAKE_DECOMMIT], 0);
    sound(r);
}

static void pages_of_the_hosts_own_do_not(void **state)
{
    struct rig *r = *state;

    rig_rows(r, 1, rows_2048);
    r->params.kv_size = 1024;
    rig_open(r);
    assert_int_equal(given_before_commit(r, 0, 256), 0);
    ok(turn(r, 0, 1, 1));
    assert_int_equal(given_before_commit(r, 2, 256), 0);
    sound(r);
}

/* ---- arenas of the engine's ---- */

static void an_arena_has_the_same_pages(void **state)
{
    struct rig *r = *state;
    kvlazy_arena *arena;
    void *base;

    grants(r, 0, 64 * KIB);
    assert_int_equal(kvlazy_page_bytes(&r->fake.table), 64 * KIB);
    ok(kvlazy_arena_create(&r->fake.table, 100 * KIB, &arena, &base));
    assert_int_equal((uintptr_t)base % (64 * KIB), 0);
    ok(kvlazy_arena_destroy(arena));
    grants(r, 0, 2048 * KIB); /* larger than is worth it */
    assert_int_equal(kvlazy_page_bytes(&r->fake.table), HOST);
    grants(r, 16 * KIB, 0);
    assert_int_equal(kvlazy_page_bytes(&r->fake.table), 16 * KIB);
    r->fake.table.granted = NULL; /* how an embedder says that it wants none of it */
    assert_int_equal(kvlazy_page_bytes(&r->fake.table), HOST);
}

/* One tensor of a rig in an arena, the other laid out by the library. */
static kvlazy_arena *put_into_arena(struct rig *r, kvlazy_tensor *k)
{
    kvlazy_arena *arena;

    *k = (kvlazy_tensor){.cell_stride = 2048, .stream_stride = 2048 * 512, .row_bytes = 2048};
    rig_rows(r, 1, rows_2048);
    ok(kvlazy_arena_create(&r->fake.table, 2048 * 512, &arena, &k->data));
    r->layers[0].k = k;
    r->layers[0].arena = arena;
    return arena;
}

static void close_arena(struct rig *r, kvlazy_arena *arena)
{
    sound(r);
    rig_forgets(r);
    kvlazy_destroy(r->cache);
    r->cache = NULL;
    assert_int_equal(r->fake.committed_bytes, 0);
    ok(kvlazy_arena_destroy(arena));
}

static void a_cache_has_the_pages_of_its_arena(void **state)
{
    struct rig *r = *state;
    kvlazy_tensor k;

    grants(r, 0, 64 * KIB);
    kvlazy_arena *arena = put_into_arena(r, &k);
    assert_int_equal(plan_of(r).page_bytes, 64 * KIB);
    rig_open(r);
    assert_null(strstr(r->log, "1:"));
    r->fake.page = 64 * KIB;
    assert_int_equal((uintptr_t)r->tensor[1].data % (64 * KIB), 0);
    ok(turn(r, 0, 0, 40));
    assert_int_equal(stats(r).touched_bytes, 2 * 2 * 64 * KIB);
    close_arena(r, arena);
}

/* Naive: an arena keeps the pages it was made with. One token of transposed V then takes 64 KiB a channel. */
static void an_arena_gets_smaller_pages_for_smaller_rows(void **state)
{
    struct rig *r = *state;
    kvlazy_tensor k;

    for (int refused = 0; refused < 2; refused++) {
        grants(r, 0, 64 * KIB);
        r->fake.refuse_small = refused;
        kvlazy_arena *arena = put_into_arena(r, &k);
        r->params.kv_size_initial = 16; /* 32 KiB of a row */
        r->log_bytes = 0;
        rig_open(r);
        assert_int_equal(stats(r).page_bytes, refused ? 64 * KIB : HOST);
        r->log[r->log_bytes] = 0;
        assert_int_equal(
            strstr(r->log, "1:kv: pages of 32768 are wanted, but the arena of a layer has pages of 65536") != NULL,
            refused);
        r->fake.page = stats(r).page_bytes;
        ok(turn(r, 0, 0, 5));
        assert_int_equal(stats(r).touched_bytes, refused ? 2 * 64 * KIB : 2 * 12 * KIB);
        ok(turn(r, 0, 5, 200));
        ok(kvlazy_seq_rm(r->cache, 0, 3, -1));
        ok(kvlazy_trim(r->cache, 0));
        assert_int_equal(stats(r).touched_bytes, cover(r));
        close_arena(r, arena);
    }
}

static void a_named_size_goes_for_arenas_too(void **state)
{
    struct rig *r = *state;
    kvlazy_tensor k;

    grants(r, 64 * KIB, 0);
    kvlazy_arena *arena = put_into_arena(r, &k);
    r->params.page_bytes = HOST;
    rig_open(r);
    assert_null(strstr(r->log, "1:"));
    assert_int_equal(stats(r).page_bytes, HOST);
    r->fake.page = HOST;
    ok(turn(r, 0, 0, 3));
    assert_int_equal(stats(r).touched_bytes, 2 * 2 * HOST);
    close_arena(r, arena);
}

/* Bytes of the engine's between rows stay, and so does a page that has some: it is not given back before it is written.
 * In a tensor without any it is. */
static void bytes_of_the_engine_stay(void **state)
{
    for (int padded = 0; padded < 2; padded++) {
        struct rig *r = rig_new();
        kvlazy_tensor k = {.row_bytes = 2048};
        kvlazy_arena *arena;

        k.cell_stride = padded ? 2112 : 2048;
        k.stream_stride = 512 * k.cell_stride;
        rig_rows(r, 1, rows_2048);
        r->layers[0].v_row_bytes = 0;
        grants(r, 64 * KIB, 0);
        ok(kvlazy_arena_create(&r->fake.table, k.stream_stride, &arena, &k.data));
        r->layers[0].k = &k;
        r->layers[0].arena = arena;
        rig_open(r);
        r->fake.page = 64 * KIB;
        for (uint32_t i = 0; padded && i < 512; i++)
            memset((char *)k.data + i * k.cell_stride + 2048, 0x33, 64);
        ok(kvlazy_init_batch(r->cache));
        ok(put(r, 0, 0, 20));
        assert_int_equal(kvlazy_n_kv(r->cache, &r->slot[0]), 256);
        ok(kvlazy_end_batch(r->cache));
        fake_forget(&r->fake);
        ok(turn(r, 0, 20, 200));
        assert_int_equal(r->fake.n_call[FAKE_DECOMMIT], !padded);
        for (uint32_t i = 0; padded && i < 512; i++)
            assert_int_equal(((unsigned char *)k.data)[i * k.cell_stride + 2048], 0x33);
        sound(r);
        rig_forgets(r);
        kvlazy_destroy(r->cache);
        r->cache = NULL;
        ok(kvlazy_arena_destroy(arena));
        rig_free(r);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(the_best_that_is_granted),
        RIG_TEST(no_advice_where_the_host_grants_as_much),
        RIG_TEST(a_page_wastes_no_more_than_idle_cells),
        RIG_TEST(plan_says_what_pages_waste),
        RIG_TEST(a_size_that_is_not_granted_is_told),
        RIG_TEST(what_is_granted_is_not_told),
        RIG_TEST(a_page_is_a_power_of_two),
        RIG_TEST(huge_pages_are_of_the_size_that_they_always_had),
        RIG_TEST(a_page_comes_and_goes_whole),
        RIG_TEST(decode_takes_a_page_when_it_gets_there),
        RIG_TEST(what_was_read_goes_before_it_is_written),
        RIG_TEST(pages_of_the_hosts_own_do_not),
        RIG_TEST(the_cheaper_way_is_taken),
        RIG_TEST(calls_that_cost_more_are_given_up),
        RIG_TEST(a_host_that_refuses_the_trial),
        RIG_TEST(an_arena_has_the_same_pages),
        RIG_TEST(a_cache_has_the_pages_of_its_arena),
        RIG_TEST(an_arena_gets_smaller_pages_for_smaller_rows),
        RIG_TEST(a_named_size_goes_for_arenas_too),
        cmocka_unit_test(bytes_of_the_engine_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
