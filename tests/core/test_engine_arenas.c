/* SPDX-License-Identifier: MIT */
/*
 * Arenas that an engine makes: from creation to destruction, what is discarded, a cache in an arena, linked caches in
 * one, and what the next cache finds there.
 */
#include "layout_support.h"

#include <stdlib.h>
#include <string.h>

#include <kvlazy/arena.h>

enum { PAGE = 4096 };

static int bed_setup(void **state)
{
    *state = bed_new(PAGE);
    return 0;
}

/* ---- arenas ---- */

static void arguments_of_arenas(void **state)
{
    struct bed *bed = *state;
    kvlazy_arena *a = (kvlazy_arena *)bed, *nothing = NULL;
    void *base = bed;
    char foreign[512] = {0};
    kvlazy_mem odd = bed->fake.table;

    expect(kvlazy_arena_create(&bed->fake.table, PAGE, NULL, &base), KVLAZY_EINVAL);
    expect(kvlazy_arena_create(&bed->fake.table, PAGE, &a, NULL), KVLAZY_EINVAL);
    expect(kvlazy_arena_create(&bed->fake.table, SIZE_MAX, &a, &base), KVLAZY_EINVAL);
    odd.commit = NULL;
    expect(kvlazy_arena_create(&odd, PAGE, &a, &base), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_page_bytes(&odd), 0);
    assert_int_equal(kvlazy_page_bytes(&bed->fake.table), PAGE);
    assert_true(kvlazy_page_bytes(NULL) >= 4096);
    bed->fake.page = 5000;
    expect(kvlazy_arena_create(&bed->fake.table, PAGE, &a, &base), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_page_bytes(&bed->fake.table), 0);
    bed->fake.page = PAGE;
    assert_true((void *)a == (void *)bed && base == bed); /* untouched */
    ok(kvlazy_arena_destroy(NULL));
    expect(kvlazy_arena_destroy((kvlazy_arena *)foreign), KVLAZY_EINVAL);
    expect(kvlazy_arena_discard((kvlazy_arena *)foreign, 0, 0), KVLAZY_EINVAL);
    expect(kvlazy_arena_discard(nothing, 0, 0), KVLAZY_EINVAL);

    ok(kvlazy_arena_create(&bed->fake.table, 0, &a, &base));
    assert_null(base);
    ok(kvlazy_arena_discard(a, 0, 0));
    expect(kvlazy_arena_discard(a, 0, 1), KVLAZY_EINVAL);
    ok(kvlazy_arena_destroy(a));
    ok(kvlazy_arena_create(NULL, 1, &a, &base)); /* this host */
    ok(kvlazy_arena_destroy(a));
}

static void an_arena_costs_nothing_and_reads_zero(void **state)
{
    struct bed *bed = *state;
    kvlazy_arena *a;
    void *base;

    for (int dirty = 0; dirty < 2; dirty++) {
        bed->fake.dirty_reserve = dirty;
        ok(kvlazy_arena_create(&bed->fake.table, 5 * PAGE + 100, &a, &base));
        assert_int_equal((uintptr_t)base % PAGE, 0);
        for (size_t i = 0; i < 5 * PAGE + 100; i++)
            assert_int_equal(((char *)base)[i], 0);
        assert_int_equal(bed->fake.committed_bytes, 0);
        expect(kvlazy_arena_discard(a, 5 * PAGE, 101), KVLAZY_EINVAL);
        expect(kvlazy_arena_discard(a, SIZE_MAX, 2), KVLAZY_EINVAL);
        expect(kvlazy_arena_discard(a, 2, SIZE_MAX), KVLAZY_EINVAL);
        expect(kvlazy_arena_discard(a, 5 * PAGE + 101, 0), KVLAZY_EINVAL);
        ok(kvlazy_arena_discard(a, 5 * PAGE + 100, 0));
        ok(kvlazy_arena_destroy(a));
        assert_int_equal(fake_mappings(&bed->fake), 0);
    }
}

enum { DISCARDED = 12 * PAGE + 77 };

/* [begin, end) reads zero, all around is as it was. */
static void discard_and_look(kvlazy_arena *a, unsigned char *base, size_t begin, size_t end)
{
    for (size_t i = 0; i < DISCARDED; i++)
        base[i] = (unsigned char)(i * 7) | 1;
    ok(kvlazy_arena_discard(a, begin, end - begin));
    for (size_t i = 0; i < DISCARDED; i++)
        if (base[i] != (i >= begin && i < end ? 0 : ((unsigned char)(i * 7) | 1)))
            fail_msg("[%zu, %zu): byte %zu is %02x", begin, end, i, base[i]);
}

static void discarded_bytes_read_zero_whatever_the_host_says(void **state)
{
    static const size_t range[][2] = {{0, 1},
                                      {5, 4000},
                                      {0, PAGE},
                                      {1, PAGE + 1},
                                      {PAGE - 1, 2 * PAGE + 1},
                                      {0, DISCARDED},
                                      {12 * PAGE, DISCARDED},
                                      {100, 11 * PAGE + 5},
                                      {3 * PAGE, 9 * PAGE}};
    struct bed *bed = *state;
    kvlazy_arena *a;
    void *base;

    for (int host = 0; host < 4; host++) {
        bed->fake.lazy_decommit = host == 1;
        ok(kvlazy_arena_create(&bed->fake.table, DISCARDED, &a, &base));
        bed->fake.refuse_decommit = host == 2;
        bed->fake.refuse_lo = host == 3 ? (unsigned char *)base + 5 * PAGE : NULL; /* a locked page amid */
        bed->fake.refuse_hi = host == 3 ? (unsigned char *)base + 6 * PAGE : NULL;
        for (size_t i = 0; i < N_OF(range); i++) {
            uint64_t given = bed->fake.n_call[FAKE_DECOMMIT];

            discard_and_look(a, base, range[i][0], range[i][1]);
            if (range[i][1] - range[i][0] < PAGE && range[i][1] < DISCARDED)
                assert_int_equal(bed->fake.n_call[FAKE_DECOMMIT], given);
        }
        ok(kvlazy_arena_destroy(a));
        bed->fake.refuse_lo = bed->fake.refuse_hi = NULL;
        bed->fake.refuse_decommit = bed->fake.lazy_decommit = false;
    }
}

static void every_call_may_fail_while_an_arena_is_made(void **state)
{
    struct bed *bed = *state;

    for (int n = 1;; n++) {
        kvlazy_arena *a = NULL;
        void *base = NULL;

        fake_fail(&bed->fake, FAKE_RESERVE, n);
        int status = kvlazy_arena_create(&bed->fake.table, 9 * PAGE, &a, &base);
        if (!bed->fake.failed) {
            ok(status);
            ok(kvlazy_arena_destroy(a));
            return;
        }
        assert_int_equal(status, KVLAZY_ENOMEM);
        assert_true(!a && !base);
        assert_int_equal(fake_mappings(&bed->fake), 0);
    }
}

/* ---- a cache in an arena ---- */

/* K and V of one layer, one after the other in one arena, with some bytes around. */
static struct bed_area *engine_layer(struct bed *bed, size_t k_row, size_t v_row, uint32_t v_channels, size_t gap)
{
    uint32_t kv_size = bed->params.kv_size, n_stream = bed->params.n_stream ? bed->params.n_stream : 1;
    kvlazy_layer *l = bed_layer(bed, k_row, v_row, v_channels);
    kvlazy_tensor *t = &bed->theirs[2 * (bed->params.n_layer - 1)];

    t[0] = bed_packed(k_row, 0, kv_size, n_stream);
    t[1] = bed_packed(v_row, v_channels, kv_size, n_stream);
    size_t v_at = gap + n_stream * t[0].stream_stride + gap;
    struct bed_area *area = bed_arena(bed, v_at + n_stream * t[1].stream_stride + gap);
    t[0].data = area->base + gap;
    t[1].data = area->base + v_at;
    l->k = &t[0];
    l->v = &t[1];
    l->arena = area->arena;
    return area;
}

static void a_cache_holds_its_arena(void **state)
{
    struct bed *bed = *state;

    bed->params.n_stream = bed->params.n_seq_max = 2;
    struct bed_area *area = engine_layer(bed, 512, 66, 33, 100);
    bed_open(bed);
    assert_int_equal(bed_stats(bed).touched_bytes, 0);
    expect(kvlazy_arena_destroy(area->arena), KVLAZY_EBUSY);
    ok(bed_turn(bed, 0, 300));
    bed_sound(bed);
    bed_rm(bed, 0, -1, -1);
    ok(kvlazy_trim(bed->cache, 0));
    bed_sound_released(bed);
    /* Pages that the gaps share stay, all others are back. */
    assert_true(bed_stats(bed).touched_bytes <= 4 * PAGE);
    kvlazy_destroy(bed->cache);
    bed->cache = NULL;
}

/* A cache that is gone leaves nothing touched to the next one in the same arena. */
static void the_next_cache_begins_with_nothing(void **state)
{
    struct bed *bed = *state;

    engine_layer(bed, 512, 66, 33, 0);
    bed_open(bed);
    ok(bed_turn(bed, 0, 300));
    bed_forget(bed, 0);
    kvlazy_destroy(bed->cache);
    assert_int_equal(bed->fake.committed_bytes, 0);
    ok(kvlazy_create(&bed->params, &bed->cache));
    assert_int_equal(bed_stats(bed).touched_bytes, 0);
    bed_sound_released(bed);
}

static void discarding_under_a_cache(void **state)
{
    struct bed *bed = *state;

    struct bed_area *area = engine_layer(bed, 512, 0, 0, 0);
    bed_open(bed);
    ok(bed_turn(bed, 0, 300));
    bed_rm(bed, 0, -1, -1);
    ok(kvlazy_arena_discard(area->arena, 0, area->bytes));
    bed_sound_released(bed);
    assert_int_equal(bed_stats(bed).touched_bytes, 0);
    ok(bed_turn(bed, 0, 300));
    bed_sound(bed);
    assert_int_equal(bed_stats(bed).touched_bytes, bed_cover(bed, 0, 0, 300));
}

static void pages_of_another_size(void **state)
{
    struct bed *bed = *state;
    struct fake_mem other;
    kvlazy_cache *c = NULL;

    struct bed_area *area = engine_layer(bed, 512, 0, 0, 0);
    fake_init(&other);
    other.page = 16384;
    bed->params.mem = &other.table;
    expect(kvlazy_create(&bed->params, &c), KVLAZY_EINVAL);
    assert_int_equal(fake_mappings(&other), 0);
    bed->params.mem = &bed->fake.table;
    ok(kvlazy_arena_discard(area->arena, 0, 1));
    fake_done(&other);
}

/* ---- two caches in one arena ---- */

static void an_arena_serves_linked_caches_alone(void **state)
{
    struct bed *bed = *state;
    kvlazy_cache *c = NULL;

    bed->params.kv_size = 100;
    struct bed_area *area = bed_arena(bed, 2 * 100 * 300);
    kvlazy_layer *l = bed_layer(bed, 300, 0, 0);
    bed->theirs[0] = bed_packed(300, 0, 100, 1);
    bed->theirs[0].data = area->base;
    l->k = &bed->theirs[0];
    l->arena = area->arena;
    bed_open(bed);

    kvlazy_params p = bed->params;
    kvlazy_tensor k = bed->theirs[0];
    kvlazy_layer other = {.id = 1, .k_row_bytes = 300, .k = &k, .arena = area->arena};
    k.data = area->base + 100 * 300; /* in the middle of a page of the first */
    p.layers = &other;
    expect(kvlazy_create(&p, &c), KVLAZY_EINVAL);
    p.with = bed->cache;
    ok(kvlazy_create(&p, &c));
    memset(k.data, 0, 100 * 300); /* the pattern was there: no tensor had named it */
    memset(area->named + 100 * 300, 1, 100 * 300);

    kvlazy_stats_info s = {.struct_size = sizeof s};
    ok(bed_turn(bed, 0, 100));
    ok(kvlazy_stats(c, &s));
    assert_int_equal(bed_stats(bed).touched_bytes, 8 * PAGE);
    assert_int_equal(s.touched_bytes, PAGE); /* the page they share */
    assert_int_equal(s.reserved_bytes, 8 * PAGE);
    kvlazy_ubatch u = {.n_token = 2, .pos = (kvlazy_pos[]){0, 1}, .seq = (kvlazy_seq_id[]){1, 1}};
    kvlazy_slot slot;
    ok(kvlazy_prepare(c, &u, 1, &slot));
    ok(kvlazy_apply_ubatch(c, &slot, &u));
    memset(k.data, 0x55, 600);
    ok(kvlazy_end_batch(c));
    bed_rm(bed, 0, -1, -1);
    ok(kvlazy_trim(bed->cache, 0));
    for (size_t i = 0; i < 600; i++)
        assert_int_equal(((char *)k.data)[i], 0x55);
    ok(kvlazy_stats(c, &s));
    assert_int_equal(s.touched_bytes, PAGE);
    assert_int_equal(bed_stats(bed).touched_bytes, PAGE);
    assert_true(bed_is_zero(bed, 0, 99));
    ok(bed_turn(bed, 0, 100));
    ok(kvlazy_seq_rm(c, 1, -1, -1));
    ok(kvlazy_trim(c, 0));
    assert_int_equal(((char *)k.data)[0], 0);
    bed_sound(bed);
    ok(kvlazy_check(c, NULL));
    uint64_t resident;
    ok(kvlazy_resident(c, &resident));
    assert_int_equal(resident, PAGE);
    kvlazy_destroy(c);
    bed_sound(bed);
    expect(kvlazy_arena_destroy(area->arena), KVLAZY_EBUSY);
}

/* What a linked cache left touched when it was destroyed is no figure of the other. */
static void a_destroyed_neighbour_leaves_no_figures(void **state)
{
    struct bed *bed = *state;
    kvlazy_cache *c = NULL;

    bed->params.kv_size = 128;
    struct bed_area *area = bed_arena(bed, 2 * 128 * 512);
    kvlazy_layer *l = bed_layer(bed, 512, 0, 0);
    bed->theirs[0] = bed_packed(512, 0, 128, 1);
    bed->theirs[0].data = area->base;
    l->k = &bed->theirs[0];
    l->arena = area->arena;
    bed_open(bed);
    kvlazy_params p = bed->params;
    kvlazy_tensor k = bed->theirs[0];
    kvlazy_layer other = {.id = 1, .k_row_bytes = 512, .k = &k, .arena = area->arena};
    k.data = area->base + 128 * 512;
    p.layers = &other;
    p.with = bed->cache;
    ok(kvlazy_create(&p, &c));
    memset(k.data, 0, 128 * 512);
    memset(area->named + 128 * 512, 1, 128 * 512);
    kvlazy_ubatch u = {.n_token = 2, .pos = (kvlazy_pos[]){0, 1}, .seq = (kvlazy_seq_id[]){1, 1}};
    kvlazy_slot slot;
    ok(kvlazy_prepare(c, &u, 1, &slot));
    ok(kvlazy_apply_ubatch(c, &slot, &u));
    ok(kvlazy_end_batch(c));
    assert_int_equal(bed_stats(bed).touched_bytes, 0);
    kvlazy_destroy(c);
    assert_int_equal(bed_stats(bed).touched_bytes, 0);
    ok(kvlazy_trim(bed->cache, 0));
    assert_int_equal(bed_stats(bed).touched_bytes, 0);
    bed_sound(bed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BED_TEST(arguments_of_arenas),
        BED_TEST(an_arena_costs_nothing_and_reads_zero),
        BED_TEST(discarded_bytes_read_zero_whatever_the_host_says),
        BED_TEST(every_call_may_fail_while_an_arena_is_made),
        BED_TEST(a_cache_holds_its_arena),
        BED_TEST(the_next_cache_begins_with_nothing),
        BED_TEST(discarding_under_a_cache),
        BED_TEST(pages_of_another_size),
        BED_TEST(an_arena_serves_linked_caches_alone),
        BED_TEST(a_destroyed_neighbour_leaves_no_figures),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
