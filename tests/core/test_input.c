/* SPDX-License-Identifier: MIT */
/*
 * What callers may get wrong: bad geometry, features that are not built, struct sizes of other versions,
 * NULL everywhere, malformed batches and options. Each is one code, and nothing is held or changed.
 */
#include "support.h"

#include <stdlib.h>
#include <string.h>

static kvlazy_cache *const untouched = (kvlazy_cache *)(uintptr_t)0x5A5A5A50;

/* create and plan answer alike, hold nothing and write nothing. */
static void refused(struct rig *r, int status, const char *what)
{
    kvlazy_cache *cache = untouched;
    kvlazy_plan_info plan, was;
    int lines = r->n_log, got;

    memset(&plan, 0x11, sizeof plan);
    plan.struct_size = sizeof plan;
    was = plan;
    got = kvlazy_create(&r->params, &cache);
    if (got != status)
        print_error("%s\n", what);
    expect(got, status);
    assert_true(cache == untouched);
    if (status == KVLAZY_EINVAL && r->n_log == lines && r->params.struct_size == sizeof r->params)
        fail_msg("%s: no log line", what);
    got = kvlazy_plan(&r->params, &plan);
    if (got != status)
        print_error("%s, kvlazy_plan\n", what);
    expect(got, status);
    assert_memory_equal(&plan, &was, sizeof plan);
    assert_int_equal(fake_mappings(&r->fake), 0);
}

#define REFUSED(r, status, change)                            \
    do {                                                      \
        kvlazy_params keep_params = (r)->params;              \
        kvlazy_layer keep_layers[RIG_LAYERS];                 \
                                                              \
        memcpy(keep_layers, (r)->layers, sizeof keep_layers); \
        change;                                               \
        refused((r), (status), #change);                      \
        (r)->params = keep_params;                            \
        memcpy((r)->layers, keep_layers, sizeof keep_layers); \
    } while (0)

static void bad_geometry(void **state)
{
    struct rig *r = *state;
    kvlazy_params *p = &r->params;

    REFUSED(r, KVLAZY_EINVAL, p->kv_size = 0);
    REFUSED(r, KVLAZY_EINVAL, p->layers = NULL);
    REFUSED(r, KVLAZY_EINVAL, p->n_stream = 3); /* neither 1 nor n_seq_max */
    REFUSED(r, KVLAZY_EINVAL, p->n_seq_max = 65537);
    REFUSED(r, KVLAZY_EINVAL, p->n_pad = 100);
    REFUSED(r, KVLAZY_EINVAL, p->shrink = 3);
    REFUSED(r, KVLAZY_EINVAL, p->shrink = -1);
    REFUSED(r, KVLAZY_EINVAL, p->flags = 1u << 31);
    REFUSED(r, KVLAZY_EINVAL, r->layers[1].id = r->layers[0].id);
    REFUSED(r, KVLAZY_EINVAL, p->struct_size = 0);
    REFUSED(r, KVLAZY_EINVAL, p->swa_type = 4);
}

static void overflowing_geometry(void **state)
{
    struct rig *r = *state;
    kvlazy_params *p = &r->params;

    REFUSED(r, KVLAZY_EINVAL, r->layers[0].k_row_bytes = SIZE_MAX);
    REFUSED(r, KVLAZY_EINVAL, r->layers[2].v_row_bytes = SIZE_MAX / 2);
    REFUSED(r, KVLAZY_EINVAL, r->layers[0].k_row_bytes = SIZE_MAX / 512 + 1);
    REFUSED(r, KVLAZY_EINVAL, r->layers[0].k_row_bytes = SIZE_MAX / 512); /* fits itself, not with the rest */
    REFUSED(r, KVLAZY_EINVAL, (p->kv_size = UINT32_MAX, r->layers[0].k_row_bytes = (size_t)1 << 33));
    REFUSED(r, KVLAZY_EINVAL,
            (p->n_stream = p->n_seq_max = 65536, p->kv_size = UINT32_MAX, r->layers[0].v_row_bytes = 1 << 17));
}

static void a_reservation_the_host_refuses(void **state)
{
    struct rig *r = *state;
    kvlazy_cache *cache = untouched;

    fake_fail(&r->fake, FAKE_RESERVE, 1);
    expect(kvlazy_create(&r->params, &cache), KVLAZY_ENOMEM);
    assert_true(cache == untouched);
    assert_int_equal(fake_mappings(&r->fake), 0);
    rig_open(r);
}

static void tensors_that_make_no_sense(void **state)
{
    struct rig *r = *state;
    size_t row = r->layers[0].k_row_bytes;
    kvlazy_tensor longer = {.row_bytes = row + 1}, nowhere = {.data = r, .row_bytes = row};
    char foreign[256] = {0};

    REFUSED(r, KVLAZY_EINVAL, r->layers[0].v_channels = 131); /* does not divide the row */
    REFUSED(r, KVLAZY_EINVAL, r->layers[0].k = &longer);
    REFUSED(r, KVLAZY_EINVAL, r->layers[0].k = &nowhere); /* in no arena */
    REFUSED(r, KVLAZY_EINVAL, (r->layers[0].k = &nowhere, r->layers[0].arena = (kvlazy_arena *)(void *)foreign));
    REFUSED(r, KVLAZY_ENOTSUP, (r->layers[0].k = &nowhere, r->params.flags = KVLAZY_HUGE_PAGES));
    rig_open(r);
}

static void windows_that_make_no_sense(void **state)
{
    struct rig *r = *state;
    kvlazy_params *p = &r->params;

    REFUSED(r, KVLAZY_EINVAL, p->n_swa = 4); /* of which kind? */
    REFUSED(r, KVLAZY_EINVAL, p->swa_type = KVLAZY_SWA_STANDARD);
    REFUSED(r, KVLAZY_EINVAL, (p->n_swa = UINT32_MAX, p->swa_type = KVLAZY_SWA_CHUNKED));
    REFUSED(r, KVLAZY_EINVAL, (p->n_swa = 4, p->swa_type = -1));
    REFUSED(r, KVLAZY_EINVAL, (p->n_swa = 4, p->swa_type = KVLAZY_SWA_SYMMETRIC + 1));
    rig_open(r);
}

static void zero_means_default(void **state)
{
    struct rig *r = *state;
    kvlazy_plan_info plan = {.struct_size = sizeof plan};

    r->params.kv_size_initial = r->params.n_stream = r->params.n_seq_max = r->params.n_pad = 0;
    r->params.n_pos_per_token = 0;
    ok(kvlazy_plan(&r->params, &plan));
    assert_int_equal(plan.kv_size, 512);
    assert_int_equal(plan.kv_size_initial, 512);
    assert_int_equal(plan.n_stream, 1);
    assert_int_equal(plan.n_seq_max, 1);
    assert_int_equal(plan.n_pad, 256);
    assert_int_equal(plan.cell_bytes, 512 + 36 + 34 + 100 + 260);
    assert_int_equal(plan.page_bytes, 4096);
    assert_int_equal(plan.writable_cells, 512);
    assert_int_equal(plan.initial_bytes, plan.reserved_bytes);
    r->params.kv_size_initial = 100000;
    ok(kvlazy_plan(&r->params, &plan));
    assert_int_equal(plan.kv_size_initial, 512);
    r->params.kv_size_initial = 100;
    r->params.n_stream = r->params.n_seq_max = 2;
    ok(kvlazy_plan(&r->params, &plan));
    assert_int_equal(plan.kv_size_initial, 100);
    assert_int_equal(fake_mappings(&r->fake), 0);
    rig_open(r);
    ok(put(r, 0, 0, 100));
    ok(put(r, 1, 0, 100));
    assert_int_equal(plan.initial_bytes, cover(r));
    assert_int_equal(plan.reserved_bytes, stats(r).reserved_bytes);
}

static void defaults(void **state)
{
    kvlazy_params p;

    (void)state;
    memset(&p, 0x77, sizeof p);
    kvlazy_params_init(&p);
    assert_int_equal(p.struct_size, sizeof p);
    assert_int_equal(p.kv_size_initial, 0);
    assert_int_equal(p.slot_shrink_idle_ms, 30000);
    assert_int_equal(p.n_stream, 1);
    assert_int_equal(p.n_pad, 256);
    assert_int_equal(p.n_swa, 0);
    assert_int_equal(p.swa_type, KVLAZY_SWA_NONE);
    assert_int_equal(p.n_pos_per_token, 1);
    assert_int_equal(p.keep_tokens, 0);
    assert_int_equal(p.shrink, KVLAZY_SHRINK_TAILS);
    assert_int_equal(p.flags, 0);
    assert_int_equal(p.budget_bytes, 0);
    assert_null(p.with);
    assert_null(p.mem);
    assert_null(p.on_evict);
    assert_null(p.log);
    kvlazy_params_init(NULL);
}

/* ---- struct sizes of other versions ---- */

static int never_asked(void *ctx, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)ctx;
    (void)seq;
    (void)pos;
    abort();
}

static void params_of_other_versions(void **state)
{
    struct rig *r = *state;
    struct {
        kvlazy_params params;
        unsigned char more[40];
    } big;
    kvlazy_cache *cache = untouched;

    memset(&big, 0, sizeof big);
    big.params = r->params;
    big.params.struct_size = sizeof big;
    ok(kvlazy_create(&big.params, &cache));
    kvlazy_destroy(cache);
    big.more[39] = 1;
    cache = untouched;
    expect(kvlazy_create(&big.params, &cache), KVLAZY_EINVAL);
    assert_true(cache == untouched);
    /* A smaller one: what lies behind is not read. */
    r->params.struct_size = offsetof(kvlazy_params, on_evict);
    r->params.on_evict = never_asked;
    rig_open(r);
    ok(turn(r, 0, 0, 300));
    ok(kvlazy_trim(r->cache, 10));
    sound(r);
    assert_int_equal(stats(r).live_cells, 10);
}

static void tables_of_other_versions(void **state)
{
    struct rig *r = *state;
    kvlazy_mem mem = r->fake.table;
    kvlazy_cache *cache = untouched;
    struct {
        kvlazy_mem mem;
        void *more[2];
    } big = {.mem = r->fake.table};

    r->params.mem = &mem;
    mem.struct_size = 0;
    expect(kvlazy_create(&r->params, &cache), KVLAZY_EINVAL);
    mem = r->fake.table;
    mem.commit = NULL;
    expect(kvlazy_create(&r->params, &cache), KVLAZY_EINVAL);
    big.mem.struct_size = sizeof big;
    big.more[1] = &big;
    r->params.mem = &big.mem;
    expect(kvlazy_create(&r->params, &cache), KVLAZY_EINVAL);
    assert_true(cache == untouched);
    big.more[1] = NULL;
    rig_open(r);
    memset(&big, 0, sizeof big); /* it was copied */
    ok(turn(r, 0, 0, 3));
}

/* Small: no byte past struct_size is written. Large: extra bytes are zero afterwards, whatever they were. */
static void figures_of_other_versions(void **state)
{
    struct rig *r = *state;
    struct {
        kvlazy_stats_info info;
        unsigned char more[24];
    } s;
    struct {
        kvlazy_cells_view view;
        unsigned char more[24];
    } v;
    struct {
        kvlazy_plan_info info;
        unsigned char more[24];
    } p;

    static const unsigned char zeros[24];

    rig_open(r);
    ok(turn(r, 0, 0, 5));
    memset(&s, 0xEE, sizeof s);
    s.info.struct_size = offsetof(kvlazy_stats_info, cap_cells);
    ok(kvlazy_stats(r->cache, &s.info));
    assert_int_equal(s.info.touched_bytes, cover(r));
    assert_int_equal(s.info.struct_size, offsetof(kvlazy_stats_info, cap_cells));
    assert_true(s.info.cap_cells == 0xEEEEEEEEEEEEEEEEu);
    s.info.struct_size = sizeof s;
    ok(kvlazy_stats(r->cache, &s.info));
    assert_int_equal(s.info.live_cells, 5);
    assert_memory_equal(s.more, zeros, sizeof s.more);
    s.info.struct_size = 0;
    expect(kvlazy_stats(r->cache, &s.info), KVLAZY_EINVAL);

    memset(&v, 0xEE, sizeof v);
    v.view.struct_size = sizeof v;
    ok(kvlazy_cells(r->cache, 0, &v.view));
    assert_int_equal(v.view.pos[4], 4);
    assert_memory_equal(v.more, zeros, sizeof v.more);
    memset(&v, 0xEE, sizeof v);
    v.view.struct_size = offsetof(kvlazy_cells_view, shift);
    ok(kvlazy_cells(r->cache, 0, &v.view));
    assert_int_equal(v.view.pos[4], 4);
    assert_int_equal(*(unsigned char *)&v.view.shift, 0xEE);
    v.view.struct_size = 0;
    expect(kvlazy_cells(r->cache, 0, &v.view), KVLAZY_EINVAL);

    memset(&p, 0xEE, sizeof p);
    p.info.struct_size = sizeof p;
    ok(kvlazy_plan(&r->params, &p.info));
    assert_int_equal(p.info.kv_size, 512);
    assert_memory_equal(p.more, zeros, sizeof p.more);
    memset(&p, 0xEE, sizeof p);
    p.info.struct_size = offsetof(kvlazy_plan_info, page_bytes);
    ok(kvlazy_plan(&r->params, &p.info));
    assert_true(p.info.page_bytes == 0xEEEEEEEEEEEEEEEEu);
}

/* ---- handles ---- */

static void every_call_on(kvlazy_cache *c)
{
    kvlazy_tensor t;
    kvlazy_ubatch u = UBATCH(1, POS(0), SEQ(0));
    kvlazy_slot slot = {0};
    kvlazy_cells_view view = {.struct_size = sizeof view};
    kvlazy_stats_info info = {.struct_size = sizeof info};
    uint64_t next = 5, bytes = 5;
    const char *reason = NULL;

    expect(kvlazy_k(c, 1, &t), KVLAZY_EINVAL);
    expect(kvlazy_v(c, 1, &t), KVLAZY_EINVAL);
    expect(kvlazy_init_batch(c), KVLAZY_EINVAL);
    expect(kvlazy_prepare(c, &u, 1, &slot), KVLAZY_EINVAL);
    expect(kvlazy_apply_ubatch(c, &slot, &u), KVLAZY_EINVAL);
    expect(kvlazy_undo_ubatch(c, &slot), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_n_kv(c, &slot), 0);
    expect(kvlazy_end_batch(c), KVLAZY_EINVAL);
    expect(kvlazy_seq_rm(c, 0, 0, -1), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_seq_pos_min(c, 0), -1);
    assert_int_equal(kvlazy_seq_pos_max(c, 0), -1);
    expect(kvlazy_clear(c, true), KVLAZY_EINVAL);
    assert_int_equal(kvlazy_refused(c), -1);
    assert_int_equal(kvlazy_room(c, 0), 0);
    expect(kvlazy_cells(c, 0, &view), KVLAZY_EINVAL);
    expect(kvlazy_poll(c, &next), KVLAZY_EINVAL);
    assert_true(next != 5); /* always written */
    expect(kvlazy_poll(c, NULL), KVLAZY_EINVAL);
    expect(kvlazy_trim(c, 0), KVLAZY_EINVAL);
    expect(kvlazy_set_limits(c, 1, 1, 1), KVLAZY_EINVAL);
    expect(kvlazy_stats(c, &info), KVLAZY_EINVAL);
    expect(kvlazy_resident(c, &bytes), KVLAZY_EINVAL);
    assert_int_equal(bytes, 5);
    expect(kvlazy_check(c, &reason), KVLAZY_EINVAL);
    expect(kvlazy_check(c, NULL), KVLAZY_EINVAL);
}

static void handles_that_are_none(void **state)
{
    void *zero = calloc(1, 1 << 16), *text = malloc(1 << 16);

    (void)state;
    assert_true(zero && text);
    memset(text, 'x', 1 << 16);
    every_call_on(NULL);
    every_call_on(zero);
    every_call_on(text);
    kvlazy_destroy(NULL);
    free(zero);
    free(text);
}

static void out_parameters_that_are_null(void **state)
{
    struct rig *r = *state;
    kvlazy_cache *cache = untouched;

    rig_open(r);
    expect(kvlazy_create(NULL, &cache), KVLAZY_EINVAL);
    assert_true(cache == untouched);
    expect(kvlazy_create(&r->params, NULL), KVLAZY_EINVAL);
    expect(kvlazy_plan(NULL, NULL), KVLAZY_EINVAL);
    expect(kvlazy_plan(&r->params, NULL), KVLAZY_EINVAL);
    expect(kvlazy_stats(r->cache, NULL), KVLAZY_EINVAL);
    expect(kvlazy_resident(r->cache, NULL), KVLAZY_EINVAL);
    expect(kvlazy_cells(r->cache, 0, NULL), KVLAZY_EINVAL);
    ok(kvlazy_check(r->cache, NULL));
    ok(kvlazy_poll(r->cache, NULL));
}

static void a_stream_out_of_range(void **state)
{
    struct rig *r = *state;
    kvlazy_cells_view view, was;

    rig_open(r);
    memset(&view, 0x31, sizeof view);
    view.struct_size = sizeof view;
    was = view;
    expect(kvlazy_cells(r->cache, 1, &view), KVLAZY_EINVAL);
    expect(kvlazy_cells(r->cache, UINT32_MAX, &view), KVLAZY_EINVAL);
    assert_memory_equal(&view, &was, sizeof view);
}

static void malformed_batches(void **state)
{
    struct rig *r = *state;
    int32_t none[2] = {1, 0}, negative[2] = {-1, 1}, two[2] = {2, 2};
    const kvlazy_seq_id *ids[2] = {SEQ(0, 1), SEQ(0, 9)}, *hole[2] = {SEQ(0, 1), NULL};
    kvlazy_ubatch bad[] = {
        {.n_token = 2, .seq = SEQ(0, 0)},
        {.n_token = 2, .pos = POS(0, 1)},
        {.n_token = 2, .pos = POS(0, 1), .n_seq_id = two},
        {.n_token = 2, .pos = POS(0, 1), .n_seq_id = none, .seq_id = ids},
        {.n_token = 2, .pos = POS(0, 1), .n_seq_id = negative, .seq_id = ids},
        {.n_token = 2, .pos = POS(0, 1), .n_seq_id = two, .seq_id = ids},
        {.n_token = 2, .pos = POS(0, 1), .n_seq_id = two, .seq_id = hole},
        {.n_token = 2, .pos = POS(0, 1), .seq = SEQ(0, 4)},
        {.n_token = 2, .pos = POS(0, 1), .seq = SEQ(-1, 0)},
        {.n_token = 2, .pos = POS(-1, 0), .seq = SEQ(0, 0)},
        {.n_token = 2, .pos = POS(INT32_MAX - 1, INT32_MAX), .seq = SEQ(0, 0)},
    };
    char *before;

    rig_open(r);
    ok(turn(r, 1, 0, 3));
    before = rig_dump(r);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int status = kvlazy_prepare(r->cache, &bad[i], 1, r->slot);

        if (status != KVLAZY_EINVAL)
            print_error("row %zu\n", i);
        expect(status, KVLAZY_EINVAL);
        assert_int_equal(kvlazy_refused(r->cache), -1);
    }
    expect(kvlazy_prepare(r->cache, NULL, 1, r->slot), KVLAZY_EINVAL);
    expect(kvlazy_prepare(r->cache, &bad[0], 1, NULL), KVLAZY_EINVAL);
    unchanged(r, before);
    assert_int_equal(stats(r).n_refusal, 0);
}

static void two_owners_in_two_streams(void **state)
{
    struct rig *r = *state;
    char *before;

    r->params.n_stream = r->params.n_seq_max = 2;
    rig_open(r);
    before = rig_dump(r);
    expect(put_owned(r, 2, SEQ(0, 1), 0, 1), KVLAZY_EINVAL);
    unchanged(r, before);
    ok(put_owned(r, 1, SEQ(1), 0, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(bad_geometry),
        RIG_TEST(overflowing_geometry),
        RIG_TEST(a_reservation_the_host_refuses),
        RIG_TEST(tensors_that_make_no_sense),
        RIG_TEST(windows_that_make_no_sense),
        RIG_TEST(zero_means_default),
        cmocka_unit_test(defaults),
        RIG_TEST(params_of_other_versions),
        RIG_TEST(tables_of_other_versions),
        RIG_TEST(figures_of_other_versions),
        cmocka_unit_test(handles_that_are_none),
        RIG_TEST(out_parameters_that_are_null),
        RIG_TEST(a_stream_out_of_range),
        RIG_TEST(malformed_batches),
        RIG_TEST(two_owners_in_two_streams),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
