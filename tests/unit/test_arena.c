/* SPDX-License-Identifier: MIT */
/* arena over the fake host: what is asked for, what is remembered, and what happens when the host says no. */
#include "unit.h"

#include <stdlib.h>
#include <time.h>

#include "memory/arena.h"
#include "fake_mem.h"

typedef struct rig {
    struct fake_mem fake;
    kvlazy_arena arena;
} rig;

/* Pages of the host's own, and such as it grants over its own of 4 KiB. */
static const struct pages {
    size_t bytes;
    bool granted, advised;
} page_kinds[] = {
    {4096, false, false}, {16384, false, false}, {65536, false, false},
    {16384, true, false}, {65536, true, true},   {2 << 20, true, false},
};

/* The page that the host of a rig grants. */
static kvl_page page_of(const rig *r)
{
    return kvl_page_choose(&r->fake.table, r->fake.page);
}

static void open_kind(rig *r, const struct pages *pages, uint64_t n_page)
{
    size_t page_bytes = pages->bytes;

    fake_init(&r->fake);
    r->fake.page = page_bytes;
    if (pages->granted)
        fake_grant(&r->fake, page_bytes, pages->advised);
    assert_int_equal(kvl_arena_init(&r->arena, &r->fake.table, n_page * page_bytes, page_of(r), 0, NULL, 0), KVLAZY_OK);
    fake_forget(&r->fake);
}

static void open_rig(rig *r, size_t page_bytes, uint64_t n_page)
{
    open_kind(r, &(struct pages){page_bytes, false, false}, n_page);
}

static void close_rig(rig *r)
{
    if (r->arena.n_page)
        assert_int_equal(r->arena.n_touched, kvl_bits_count(r->arena.touched, 0, r->arena.n_page));
    kvl_arena_fini(&r->arena);
    assert_int_equal(fake_mappings(&r->fake), 0);
    fake_assert_kept(&r->fake);
    fake_done(&r->fake);
}

static int want(rig *r, uint64_t begin, uint64_t end)
{
    kvl_arena_gather(&r->arena);
    assert_int_equal(kvl_arena_want(&r->arena, (kvl_span){begin, end}), KVLAZY_OK);
    return kvl_arena_commit(&r->arena, true);
}

static void offer(rig *r, uint64_t begin, uint64_t end)
{
    kvl_arena_gather(&r->arena);
    kvl_arena_offer(&r->arena, (kvl_span){begin, end}, 0);
    kvl_arena_give(&r->arena);
}

static void commit_rounds_out_and_release_in(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_OF(page_kinds); i++) {
        uint64_t page = page_kinds[i].bytes;
        rig r;

        open_kind(&r, &page_kinds[i], 20);
        assert_int_equal(want(&r, 3 * page - 1, 5 * page + 1), KVLAZY_OK); /* pages 2 to 5 */
        assert_int_equal(r.arena.n_touched, 4);
        assert_int_equal(want(&r, 2 * page, 6 * page), KVLAZY_OK); /* nothing new: nobody is asked */
        assert_int_equal(r.fake.n_call[FAKE_COMMIT], 1);

        offer(&r, 3 * page - 1, 5 * page + 1); /* pages 3 and 4 */
        assert_int_equal(r.arena.n_touched, 2);
        assert_int_equal(r.arena.n_released, 2);
        offer(&r, 3 * page - 1, 5 * page + 1); /* the second time nothing is asked and nothing counted */
        assert_int_equal(r.fake.n_call[FAKE_DECOMMIT], 1);
        assert_int_equal(r.arena.n_released, 2);
        offer(&r, 2 * page + 1, 3 * page - 1); /* inside one page */
        assert_int_equal(r.arena.n_released, 2);
        close_rig(&r);
    }
}

static void two_rows_of_a_page_want_it_once(void **state)
{
    rig r;

    (void)state;
    open_rig(&r, 4096, 20);
    kvl_arena_gather(&r.arena);
    assert_int_equal(kvl_arena_want(&r.arena, (kvl_span){0, 100}), KVLAZY_OK);
    assert_int_equal(kvl_arena_want(&r.arena, (kvl_span){200, 300}), KVLAZY_OK);
    assert_int_equal(kvl_arena_want(&r.arena, (kvl_span){4000, 4200}), KVLAZY_OK);
    assert_int_equal(r.arena.n_gathered, 2);
    assert_int_equal(r.arena.n_range, 1); /* neighbours are joined */
    assert_int_equal(kvl_arena_commit(&r.arena, true), KVLAZY_OK);
    assert_int_equal(r.arena.n_touched, 2);
    close_rig(&r);
}

static void a_refused_commit_leaves_nothing(void **state)
{
    rig r;

    (void)state;
    open_rig(&r, 4096, 20);
    assert_int_equal(want(&r, 0, 4096), KVLAZY_OK);
    r.fake.half_commit = true;
    fake_fail(&r.fake, FAKE_COMMIT, 1);
    assert_int_equal(want(&r, 0, 10 * 4096), KVLAZY_ENOMEM);
    assert_int_equal(r.arena.n_touched, 1);
    assert_int_equal(fake_committed(&r.fake, r.arena.base, 20 * 4096), 4096); /* half of it was done, and undone */
    assert_int_equal(want(&r, 0, 10 * 4096), KVLAZY_OK);
    close_rig(&r);
}

static void without_ahead_nobody_is_asked(void **state)
{
    rig r;

    (void)state;
    open_rig(&r, 4096, 20);
    kvl_arena_gather(&r.arena);
    assert_int_equal(kvl_arena_want(&r.arena, (kvl_span){0, 3 * 4096}), KVLAZY_OK);
    assert_int_equal(kvl_arena_commit(&r.arena, false), KVLAZY_OK);
    assert_int_equal(r.arena.n_touched, 3);
    assert_int_equal(r.fake.n_call[FAKE_COMMIT], 0);
    close_rig(&r);
}

/* The ranges behind a refused one are given back all the same, and it is told once. */
static void a_refusal_stops_nothing(void **state)
{
    rig r;

    (void)state;
    open_rig(&r, 4096, 20);
    for (uint64_t p = 0; p < 10; p += 2)
        assert_int_equal(want(&r, p * 4096, (p + 1) * 4096), KVLAZY_OK);
    memset(r.arena.base + 4 * 4096, 0x77, 4096);
    r.fake.refuse_lo = (unsigned char *)r.arena.base + 4 * 4096;
    r.fake.refuse_hi = r.fake.refuse_lo + 4096;
    offer(&r, 0, 20 * 4096);
    assert_int_equal(r.arena.n_touched, 1);
    assert_int_equal(r.arena.n_released, 4);
    assert_int_equal(r.arena.n_refused, 1);
    assert_int_equal(r.arena.base[4 * 4096], 0x77);
    kvl_arena_zero(&r.arena, (kvl_span){4 * 4096 + 1, 5 * 4096});
    assert_int_equal(r.arena.base[4 * 4096], 0x77);
    assert_int_equal(r.arena.base[4 * 4096 + 1], 0);
    r.fake.refuse_lo = r.fake.refuse_hi = NULL;
    offer(&r, 0, 20 * 4096);
    assert_int_equal(r.arena.n_released, 5);
    close_rig(&r);
}

static void what_was_only_read_is_offered_but_not_counted(void **state)
{
    rig r;

    (void)state;
    open_rig(&r, 4096, 20);
    assert_int_equal(want(&r, 0, 2 * 4096), KVLAZY_OK);
    kvl_arena_gather(&r.arena);
    kvl_arena_offer(&r.arena, (kvl_span){0, 20 * 4096}, 5 * 4096 - 1);
    assert_int_equal(r.arena.n_gathered, 5);
    kvl_arena_give(&r.arena);
    assert_int_equal(r.arena.n_released, 2);
    close_rig(&r);
}

/* Hundreds of holes: more ranges than there is room for at first, in both directions. */
static void many_ranges(void **state)
{
    enum { N = 3000 };
    rig r;

    (void)state;
    open_rig(&r, 4096, 2 * N);
    kvl_arena_gather(&r.arena);
    for (uint64_t i = 0; i < N; i++)
        assert_int_equal(kvl_arena_want(&r.arena, (kvl_span){2 * i * 4096, (2 * i + 1) * 4096}), KVLAZY_OK);
    assert_int_equal(kvl_arena_commit(&r.arena, true), KVLAZY_OK);
    assert_int_equal(r.arena.n_touched, N);
    offer(&r, 0, 2 * N * 4096);
    assert_int_equal(r.arena.n_touched, 0);
    assert_int_equal(r.arena.n_released, N);
    close_rig(&r);
}

static void dirty_hosts_read_zero(void **state)
{
    static const bool dirty[][2] = {{true, false}, {false, true}, {true, true}};

    (void)state;
    for (size_t i = 0; i < N_OF(dirty); i++) {
        static const unsigned char zeros[8 * 4096];
        rig r;

        fake_init(&r.fake);
        r.fake.dirty_reserve = dirty[i][0];
        r.fake.lazy_decommit = dirty[i][1];
        assert_int_equal(kvl_arena_init(&r.arena, &r.fake.table, sizeof zeros, page_of(&r), 0, NULL, 0), KVLAZY_OK);
        assert_memory_equal(r.arena.base, zeros, sizeof zeros);
        assert_int_equal(want(&r, 0, 4 * 4096), KVLAZY_OK);
        memset(r.arena.base, 0x55, 4 * 4096);
        offer(&r, 0, 4 * 4096);
        kvl_arena_zero(&r.arena, (kvl_span){0, 4 * 4096});
        assert_memory_equal(r.arena.base, zeros, sizeof zeros);
        assert_int_equal(r.arena.n_released, dirty[i][1] ? 0 : 4); /* given back is what reads zero */
        close_rig(&r);
    }
}

static void a_refused_reservation_holds_nothing(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++) { /* the probe's page, then the reservation */
        rig r;

        fake_init(&r.fake);
        fake_fail(&r.fake, FAKE_RESERVE, n);
        assert_int_equal(kvl_arena_init(&r.arena, &r.fake.table, 4096, page_of(&r), 0, NULL, 0), KVLAZY_ENOMEM);
        assert_null(r.arena.base);
        close_rig(&r);
    }
}

/* One page of many is locked. Naive: the range is given up as a whole, and the rest stays for ever. */
static void a_refused_range_goes_in_parts(void **state)
{
    rig r;

    (void)state;
    open_rig(&r, 4096, 1000);
    assert_int_equal(want(&r, 0, 1000 * 4096), KVLAZY_OK);
    memset(r.arena.base, 0x77, 1000 * 4096);
    r.fake.refuse_lo = (unsigned char *)r.arena.base + 600 * 4096;
    r.fake.refuse_hi = r.fake.refuse_lo + 4096;
    offer(&r, 4096, 999 * 4096);
    assert_int_equal(r.arena.n_touched, 3);
    assert_int_equal(r.arena.n_released, 997);
    assert_int_equal(r.arena.n_refused, 1);
    assert_true(r.fake.n_call[FAKE_DECOMMIT] < 64); /* halves, not pages one by one */
    assert_int_equal(r.arena.base[600 * 4096], 0x77);
    close_rig(&r);
}

/* ---- a frontier ---- */

enum { BLOCK_PAGES = 20, BLOCKS = 3 };

/* Three blocks of 20 pages on a host that lets 30 be writable. */
static void open_blocks(rig *r, const struct pages *pages, uint32_t flags)
{
    size_t page_bytes = pages->bytes;
    uint64_t unit = flags & KVLAZY_RESERVE_HUGE_PAGES ? 4 * page_bytes : page_bytes;
    kvl_span block[BLOCKS];

    fake_init(&r->fake);
    fake_complete(&r->fake);
    r->fake.page = page_bytes;
    r->fake.huge_page = 4 * page_bytes;
    if (pages->granted)
        fake_grant(&r->fake, page_bytes, pages->advised);
    kvl_page page = flags & KVLAZY_RESERVE_HUGE_PAGES ? kvl_page_huge(&r->fake.table) : page_of(r);
    r->fake.charge_limit_bytes = 30 * unit;
    for (uint64_t i = 0; i < BLOCKS; i++)
        block[i] = (kvl_span){i * BLOCK_PAGES * unit, (i + 1) * BLOCK_PAGES * unit};
    assert_int_equal(kvl_arena_init(&r->arena, &r->fake.table, BLOCKS * BLOCK_PAGES * unit, page, flags, block, BLOCKS),
                     KVLAZY_OK);
    assert_int_equal(r->arena.n_block, BLOCKS);
    assert_int_equal(kvl_pages_bytes(&r->arena, 1), unit);
    assert_int_equal((uintptr_t)r->arena.base % unit, 0);
    assert_int_equal(r->fake.charged_bytes, 0);
    fake_forget(&r->fake);
}

static uint64_t charged_pages(const rig *r)
{
    return r->fake.charged_bytes / kvl_pages_bytes(&r->arena, 1);
}

static void a_frontier_follows_what_is_touched(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2 * N_OF(page_kinds); i++) {
        const struct pages *pages = &page_kinds[i / 2];
        bool huge = i % 2 && !pages->granted;

        rig r;

        open_blocks(&r, pages, huge ? KVLAZY_RESERVE_HUGE_PAGES : KVLAZY_RESERVE_DONTFORK);
        uint64_t page = kvl_pages_bytes(&r.arena, 1);
        assert_int_equal(want(&r, 0, 2 * page + 1), KVLAZY_OK);
        assert_int_equal(charged_pages(&r), 3);
        assert_int_equal(want(&r, 24 * page, 25 * page), KVLAZY_OK); /* the second block, from its beginning on */
        assert_int_equal(charged_pages(&r), 3 + 5);
        assert_int_equal(want(&r, 18 * page, 22 * page), KVLAZY_OK); /* across two blocks */
        assert_int_equal(charged_pages(&r), 20 + 5);
        memset(r.arena.base + 18 * page, 0x77, 4 * page);
        offer(&r, 24 * page, 25 * page);
        assert_int_equal(charged_pages(&r), 20 + 2);
        offer(&r, 3 * page, 18 * page); /* a hole in the middle has the frontier above it */
        assert_int_equal(charged_pages(&r), 20 + 2);
        assert_int_equal(r.fake.n_call[FAKE_SET_WRITABLE], 3 + 1);
        offer(&r, 0, BLOCKS * BLOCK_PAGES * page);
        assert_int_equal(charged_pages(&r), 0);
        assert_int_equal(r.arena.base[18 * page], 0);
        close_rig(&r);
    }
}

/* Naive: what was raised before the refusal stays charged, or is booked as touched. */
static void a_refused_raise_leaves_nothing(void **state)
{
    (void)state;
    for (int n = 1; n <= 2; n++) {
        rig r;

        open_blocks(&r, &page_kinds[0], 0);
        assert_int_equal(want(&r, 0, 4096), KVLAZY_OK);
        fake_fail(&r.fake, FAKE_SET_WRITABLE, n);
        assert_int_equal(want(&r, 10 * 4096, 25 * 4096), KVLAZY_ENOMEM);
        assert_int_equal(r.arena.n_touched, 1);
        assert_int_equal(charged_pages(&r), 1);
        assert_int_equal(r.fake.n_call[FAKE_COMMIT], 1);
        assert_int_equal(want(&r, 10 * 4096, 25 * 4096), KVLAZY_OK);
        assert_int_equal(want(&r, 40 * 4096, 60 * 4096), KVLAZY_ENOMEM); /* the limit itself */
        assert_int_equal(charged_pages(&r), 25);
        offer(&r, 0, 25 * 4096);
        assert_int_equal(want(&r, 40 * 4096, 60 * 4096), KVLAZY_OK);
        close_rig(&r);
    }
}

/* A host that will not lower a frontier is asked again the next time. */
static void a_refused_lowering_is_made_up_for(void **state)
{
    rig r;

    (void)state;
    open_blocks(&r, &page_kinds[0], 0);
    assert_int_equal(want(&r, 0, 10 * 4096), KVLAZY_OK);
    fake_fail(&r.fake, FAKE_SET_WRITABLE, 1);
    offer(&r, 2 * 4096, 10 * 4096);
    assert_int_equal(r.arena.n_touched, 2);
    assert_int_equal(r.arena.n_released, 8);
    assert_int_equal(charged_pages(&r), 10);
    assert_int_equal(want(&r, 2 * 4096, 4 * 4096), KVLAZY_OK); /* below it nobody is asked */
    assert_int_equal(r.fake.n_call[FAKE_SET_WRITABLE], 2);
    offer(&r, 3 * 4096, 10 * 4096);
    assert_int_equal(charged_pages(&r), 3);
    close_rig(&r);
}

/* CPU time of a release in the last of many parts, every second of which has a page that stays. */
static double release_seconds(uint64_t n_block)
{
    enum { PAGES = 64, ROUNDS = 2000 };
    kvl_span *block = calloc(n_block, sizeof *block);
    uint64_t last = (n_block - 1) * PAGES * 4096;
    rig r;

    assert_non_null(block);
    for (uint64_t i = 0; i < n_block; i++)
        block[i] = (kvl_span){i * PAGES * 4096, (i + 1) * PAGES * 4096};
    fake_init(&r.fake);
    fake_complete(&r.fake);
    r.fake.charge_limit_bytes = n_block * PAGES * 4096 - 1;
    assert_int_equal(
        kvl_arena_init(&r.arena, &r.fake.table, n_block * PAGES * 4096, page_of(&r), 0, block, (uint32_t)n_block), 0);
    for (uint64_t i = 0; i + 1 < n_block; i += 2)
        assert_int_equal(want(&r, block[i].begin, block[i].begin + 1), KVLAZY_OK);
    clock_t from = clock();
    for (int i = 0; i < ROUNDS; i++) {
        assert_int_equal(want(&r, last, last + 1), KVLAZY_OK);
        offer(&r, last, last + 4096);
    }
    clock_t took = clock() - from;
    close_rig(&r);
    free(block);
    return (double)took / CLOCKS_PER_SEC;
}

/* Naive: every release looks at all frontiers, and for its own at all that lies below. */
static void a_release_looks_at_its_own_parts(void **state)
{
    double few = 1e9, many = 1e9;

    (void)state;
    for (int i = 0; i < 3; i++) {
        double seconds = release_seconds(16);

        few = seconds < few ? seconds : few;
        seconds = release_seconds(16384);
        many = seconds < many ? seconds : many;
    }
    print_message("%.1f times the time of 16 parts for 16384\n", many / few);
    assert_true(many <= 3 * few);
}

/* Without parts to follow, or without set_writable, what is refused is refused. */
static void no_frontier_without_blocks(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        const kvl_span block = {0, 100 * 4096};
        rig r;

        fake_init(&r.fake);
        if (i)
            fake_complete(&r.fake);
        r.fake.charge_limit_bytes = 10 * 4096;
        assert_int_equal(kvl_arena_init(&r.arena, &r.fake.table, 100 * 4096, page_of(&r), 0, &block, i ? 0 : 1),
                         KVLAZY_ENOMEM);
        close_rig(&r);
    }
}

/* ---- huge pages ---- */

/* Naive: releases in small pages, which splits huge ones whose memory then is not free. */
static void huge_pages_go_whole(void **state)
{
    rig r;

    (void)state;
    fake_init(&r.fake);
    fake_complete(&r.fake);
    assert_int_equal(
        kvl_arena_init(&r.arena, &r.fake.table, (UINT64_C(5) << 21) + 4096, kvl_page_huge(&r.fake.table), 0, NULL, 0),
        KVLAZY_OK);
    assert_int_equal((uintptr_t)r.arena.base % (2 << 20), 0);
    assert_int_equal(r.arena.n_page, 6);
    assert_int_equal(want(&r, 0, (UINT64_C(5) << 21) + 4096), KVLAZY_OK);
    offer(&r, 4096, (UINT64_C(4) << 21) - 4096); /* the fake holds every range against 2 MiB */
    assert_int_equal(r.arena.n_released, 2);
    offer(&r, 4096, (2 << 21) - 4096); /* what is in one and part of the next: nothing more */
    assert_int_equal(r.arena.n_released, 2);
    close_rig(&r);
}

/* The size of a huge page is the host's to say; a host that does not has them of 2 MiB. */
static void huge_page_sizes(void **state)
{
    struct fake_mem fake;

    (void)state;
    fake_init(&fake);
    assert_int_equal(kvl_page_bytes(&fake.table, true), 2 << 20);
    fake_complete(&fake);
    fake.huge_page = 32 << 20;
    assert_int_equal(kvl_page_bytes(&fake.table, true), 32 << 20);
    assert_int_equal(kvl_page_bytes(&fake.table, false), 4096);
    fake.huge_page = 3 << 20;
    assert_int_equal(kvl_page_bytes(&fake.table, true), 0);
    fake_done(&fake);
}

static void nothing_is_legal(void **state)
{
    rig r;

    (void)state;
    open_rig(&r, 4096, 0);
    assert_int_equal(kvl_arena_resident(&r.arena, 0, r.arena.n_page), 0);
    close_rig(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commit_rounds_out_and_release_in),
        cmocka_unit_test(two_rows_of_a_page_want_it_once),
        cmocka_unit_test(a_refused_commit_leaves_nothing),
        cmocka_unit_test(without_ahead_nobody_is_asked),
        cmocka_unit_test(a_refusal_stops_nothing),
        cmocka_unit_test(what_was_only_read_is_offered_but_not_counted),
        cmocka_unit_test(many_ranges),
        cmocka_unit_test(dirty_hosts_read_zero),
        cmocka_unit_test(a_refused_reservation_holds_nothing),
        cmocka_unit_test(a_refused_range_goes_in_parts),
        cmocka_unit_test(a_frontier_follows_what_is_touched),
        cmocka_unit_test(a_refused_raise_leaves_nothing),
        cmocka_unit_test(a_refused_lowering_is_made_up_for),
        cmocka_unit_test(a_release_looks_at_its_own_parts),
        cmocka_unit_test(no_frontier_without_blocks),
        cmocka_unit_test(huge_pages_go_whole),
        cmocka_unit_test(huge_page_sizes),
        cmocka_unit_test(nothing_is_legal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
