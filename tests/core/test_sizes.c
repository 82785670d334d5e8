/* SPDX-License-Identifier: MIT */
/*
 * Every struct that begins with its size, in every size: 0 to what is known and beyond, with nothing behind it but a
 * page that can be neither read nor written. What ends inside a member is EINVAL; the first members are enough; of an
 * output the rest is zeroed, and an input may not say anything there.
 */
#include "seq_support.h"

#include <kvlazy/arena.h>
#include <kvlazy/engine_cells.h>
#include <kvlazy/mask.h>
#include <kvlazy/pool.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, MORE = 64 };

struct member {
    size_t begin, end;
};
#define MEMBER(type, name)                                                     \
    {                                                                          \
        offsetof(type, name), offsetof(type, name) + sizeof(((type *)0)->name) \
    }

/* One kind of struct. */
struct kind {
    const char *name;
    size_t bytes; /* known */
    const struct member *member;
    size_t n_member, n_least; /* with fewer members it is of no use */
    bool output;
    void (*fill)(struct rig *r, void *whole); /* an input, as it should be */
    int (*call)(struct rig *r, void *at);
};

/* A struct of so many bytes that ends where nothing may be touched. */
static unsigned char *guarded(unsigned char **page, size_t bytes)
{
    *page = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(*page != MAP_FAILED);
    assert_int_equal(mprotect(*page + 2 * PAGE, PAGE, PROT_NONE), 0);
    return *page + 2 * PAGE - bytes;
}

/* ---- the kinds ---- */

static const struct member params_members[] = {
    MEMBER(kvlazy_params, struct_size),
    MEMBER(kvlazy_params, kv_size),
    MEMBER(kvlazy_params, kv_size_initial),
    MEMBER(kvlazy_params, slot_shrink_idle_ms),
    MEMBER(kvlazy_params, n_stream),
    MEMBER(kvlazy_params, n_seq_max),
    MEMBER(kvlazy_params, n_pad),
    MEMBER(kvlazy_params, n_swa),
    MEMBER(kvlazy_params, swa_type),
    MEMBER(kvlazy_params, n_pos_per_token),
    MEMBER(kvlazy_params, keep_tokens),
    MEMBER(kvlazy_params, shrink),
    MEMBER(kvlazy_params, flags),
    MEMBER(kvlazy_params, budget_bytes),
    MEMBER(kvlazy_params, layers),
    MEMBER(kvlazy_params, n_layer),
    MEMBER(kvlazy_params, with),
    MEMBER(kvlazy_params, mem),
    MEMBER(kvlazy_params, name),
    MEMBER(kvlazy_params, log),
    MEMBER(kvlazy_params, log_ctx),
    MEMBER(kvlazy_params, on_evict),
    MEMBER(kvlazy_params, evict_ctx),
    MEMBER(kvlazy_params, cell_ops),
    MEMBER(kvlazy_params, pool),
    MEMBER(kvlazy_params, pool_min_bytes),
    MEMBER(kvlazy_params, pool_weight),
    MEMBER(kvlazy_params, host_root),
    MEMBER(kvlazy_params, model_tag),
    MEMBER(kvlazy_params, model_tag_bytes),
    MEMBER(kvlazy_params, page_bytes),
    MEMBER(kvlazy_params, n_writer),
    MEMBER(kvlazy_params, warm_bytes),
};

static void fill_params(struct rig *r, void *whole)
{
    kvlazy_params p = r->params;

    p.log = NULL; /* a struct that ends before log_ctx has a sink without one */
    memcpy(whole, &p, sizeof p);
}

static int create(struct rig *r, void *at)
{
    kvlazy_cache *c = NULL;
    int status = kvlazy_create(at, &c);

    (void)r;
    if (!status)
        kvlazy_destroy(c);
    return status;
}

static int plan_of(struct rig *r, void *at)
{
    kvlazy_plan_info info = {.struct_size = sizeof info};

    (void)r;
    return kvlazy_plan(at, &info);
}

static const struct member mem_members[] = {
    MEMBER(kvlazy_mem, struct_size),     MEMBER(kvlazy_mem, ctx),
    MEMBER(kvlazy_mem, page_bytes),      MEMBER(kvlazy_mem, reserve),
    MEMBER(kvlazy_mem, unreserve),       MEMBER(kvlazy_mem, commit),
    MEMBER(kvlazy_mem, decommit),        MEMBER(kvlazy_mem, resident),
    MEMBER(kvlazy_mem, now_ms),          MEMBER(kvlazy_mem, set_writable),
    MEMBER(kvlazy_mem, huge_page_bytes), MEMBER(kvlazy_mem, traits),
    MEMBER(kvlazy_mem, why_refused),     MEMBER(kvlazy_mem, headroom),
    MEMBER(kvlazy_mem, now_ns),          MEMBER(kvlazy_mem, process_id),
    MEMBER(kvlazy_mem, count),           MEMBER(kvlazy_mem, max_mappings),
    MEMBER(kvlazy_mem, granted),         MEMBER(kvlazy_mem, why_not_granted),
    MEMBER(kvlazy_mem, keep_small),
};

static void fill_mem(struct rig *r, void *whole)
{
    memcpy(whole, r->params.mem, sizeof(kvlazy_mem));
}

static int create_over(struct rig *r, void *at)
{
    kvlazy_params p = r->params;

    p.mem = at;
    return create(r, &p);
}

static int arena_over(struct rig *r, void *at)
{
    kvlazy_arena *arena;
    void *base;
    int status = kvlazy_arena_create(at, 4096, &arena, &base);

    (void)r;
    if (!status)
        ok(kvlazy_arena_destroy(arena));
    return status;
}

static const struct member ops_members[] = {
    MEMBER(kvlazy_cell_ops, struct_size), MEMBER(kvlazy_cell_ops, ctx),  MEMBER(kvlazy_cell_ops, used_end),
    MEMBER(kvlazy_cell_ops, is_used),     MEMBER(kvlazy_cell_ops, move), MEMBER(kvlazy_cell_ops, vacate),
};

static uint32_t nothing_used(void *ctx, uint32_t stream)
{
    (void)ctx;
    (void)stream;
    return 0;
}

static void fill_ops(struct rig *r, void *whole)
{
    (void)r;
    memcpy(whole, &(kvlazy_cell_ops){.used_end = nothing_used}, sizeof(kvlazy_cell_ops));
}

static int create_with_ops(struct rig *r, void *at)
{
    kvlazy_params p = r->params;
    kvlazy_cache *c = NULL;

    p.cell_ops = at;
    int status = kvlazy_create(&p, &c);
    if (status)
        return status;
    ok(kvlazy_init_batch(c));
    ok(kvlazy_touch(c, 0, 3));
    ok(kvlazy_end_batch(c));
    ok(kvlazy_trim(c, 1));
    kvlazy_destroy(c);
    return status;
}

static const struct member mask_members[] = {
    MEMBER(kvlazy_mask_info, struct_size), MEMBER(kvlazy_mask_info, data),  MEMBER(kvlazy_mask_info, data_bytes),
    MEMBER(kvlazy_mask_info, row_stride),  MEMBER(kvlazy_mask_info, n_kv),  MEMBER(kvlazy_mask_info, type),
    MEMBER(kvlazy_mask_info, causal),      MEMBER(kvlazy_mask_info, alibi),
};

static void fill_mask(struct rig *r, void *whole)
{
    static float row[512];

    (void)r;
    memcpy(whole, &(kvlazy_mask_info){.data = row, .data_bytes = sizeof row}, sizeof(kvlazy_mask_info));
}

static int mask_of(struct rig *r, void *at)
{
    kvlazy_ubatch u = UBATCH(1, POS(0), SEQ(0));

    return kvlazy_mask(r->cache, &r->slot[0], &u, at);
}

static const struct member stats_members[] = {
    MEMBER(kvlazy_stats_info, struct_size),      MEMBER(kvlazy_stats_info, reserved_bytes),
    MEMBER(kvlazy_stats_info, touched_bytes),    MEMBER(kvlazy_stats_info, released_bytes),
    MEMBER(kvlazy_stats_info, cap_cells),        MEMBER(kvlazy_stats_info, live_cells),
    MEMBER(kvlazy_stats_info, n_grow),           MEMBER(kvlazy_stats_info, n_shrink),
    MEMBER(kvlazy_stats_info, n_evict),          MEMBER(kvlazy_stats_info, evicted_cells),
    MEMBER(kvlazy_stats_info, n_refusal),        MEMBER(kvlazy_stats_info, n_os_refusal),
    MEMBER(kvlazy_stats_info, moved_cells),      MEMBER(kvlazy_stats_info, n_refused_pos),
    MEMBER(kvlazy_stats_info, n_refused_slot),   MEMBER(kvlazy_stats_info, n_refused_budget),
    MEMBER(kvlazy_stats_info, n_refused_memory), MEMBER(kvlazy_stats_info, commit),
    MEMBER(kvlazy_stats_info, release),          MEMBER(kvlazy_stats_info, evict),
    MEMBER(kvlazy_stats_info, compact),
    MEMBER(kvlazy_stats_info, bookkeeping_bytes),
    MEMBER(kvlazy_stats_info, page_bytes),
    MEMBER(kvlazy_stats_info, commits_ahead),
};

static int stats_into(struct rig *r, void *at)
{
    return kvlazy_stats(r->cache, at);
}

static const struct member view_members[] = {
    MEMBER(kvlazy_cells_view, struct_size), MEMBER(kvlazy_cells_view, n_cell),
    MEMBER(kvlazy_cells_view, pos),         MEMBER(kvlazy_cells_view, shift),  MEMBER(kvlazy_cells_view, ext_y),
    MEMBER(kvlazy_cells_view, ext_x),   };

static int cells_into(struct rig *r, void *at)
{
    return kvlazy_cells(r->cache, 0, at);
}

static const struct member plan_members[] = {
    MEMBER(kvlazy_plan_info, struct_size),     MEMBER(kvlazy_plan_info, reserved_bytes),
    MEMBER(kvlazy_plan_info, cell_bytes),      MEMBER(kvlazy_plan_info, initial_bytes),
    MEMBER(kvlazy_plan_info, page_bytes),      MEMBER(kvlazy_plan_info, kv_size),
    MEMBER(kvlazy_plan_info, kv_size_initial), MEMBER(kvlazy_plan_info, n_stream),
    MEMBER(kvlazy_plan_info, n_seq_max),       MEMBER(kvlazy_plan_info, n_pad),
    MEMBER(kvlazy_plan_info, writable_cells),  MEMBER(kvlazy_plan_info, waste_bytes),
};

static int plan_into(struct rig *r, void *at)
{
    return kvlazy_plan(&r->params, at);
}

static const struct member pool_members[] = {
    MEMBER(kvlazy_pool_info, struct_size), MEMBER(kvlazy_pool_info, budget_bytes),
    MEMBER(kvlazy_pool_info, taken_bytes), MEMBER(kvlazy_pool_info, min_bytes),
    MEMBER(kvlazy_pool_info, n_reclaim),   MEMBER(kvlazy_pool_info, reclaimed_bytes),
    MEMBER(kvlazy_pool_info, n_cache),
};

static int pool_into(struct rig *r, void *at)
{
    kvlazy_pool *pool;

    (void)r;
    ok(kvlazy_pool_create(1 << 20, &pool));
    int status = kvlazy_pool_stats(pool, at);
    ok(kvlazy_pool_destroy(pool));
    return status;
}

#define KIND(text, type, list, least, is_output, f, c)                                  \
    {                                                                                   \
        text, sizeof(type), list, sizeof(list) / sizeof *(list), least, is_output, f, c \
    }

static const struct kind kinds[] = {
    KIND("params, created", kvlazy_params, params_members, 2, false, fill_params, create),
    KIND("params, planned", kvlazy_params, params_members, 2, false, fill_params, plan_of),
    KIND("table of a cache", kvlazy_mem, mem_members, 9, false, fill_mem, create_over),
    KIND("table of an arena", kvlazy_mem, mem_members, 9, false, fill_mem, arena_over),
    KIND("cell_ops", kvlazy_cell_ops, ops_members, 3, false, fill_ops, create_with_ops),
    KIND("mask", kvlazy_mask_info, mask_members, 3, false, fill_mask, mask_of),
    KIND("stats", kvlazy_stats_info, stats_members, 2, true, NULL, stats_into),
    KIND("cells", kvlazy_cells_view, view_members, 2, true, NULL, cells_into),
    KIND("plan", kvlazy_plan_info, plan_members, 2, true, NULL, plan_into),
    KIND("pool_stats", kvlazy_pool_info, pool_members, 2, true, NULL, pool_into),
};

/* ---- every size ---- */

/* Where a member ends, or all of the padding behind it. */
static bool is_whole_members(const struct kind *k, size_t bytes)
{
    bool ends = bytes % sizeof bytes == 0 || bytes > k->bytes;
    size_t n = 0;

    for (size_t i = 0; i < k->n_member; i++) {
        if (bytes > k->member[i].begin && bytes < k->member[i].end)
            return false;
        n += bytes >= k->member[i].end;
        ends |= bytes == k->member[i].end;
    }
    return ends && n >= k->n_least;
}

static void try_size(struct rig *r, const struct kind *k, size_t bytes)
{
    unsigned char whole[PAGE] = {0}, *page, *at = guarded(&page, bytes < sizeof bytes ? sizeof bytes : bytes);

    if (k->fill)
        k->fill(r, whole);
    else
        memset(whole, 0xEE, sizeof whole);
    memcpy(whole, &bytes, sizeof bytes);
    memcpy(at, whole, bytes < sizeof bytes ? sizeof bytes : bytes);
    int status = k->call(r, at);
    if (status != (is_whole_members(k, bytes) ? KVLAZY_OK : KVLAZY_EINVAL))
        fail_msg("%s of %zu bytes: %s", k->name, bytes, kvlazy_status_name(status));
    for (size_t i = k->bytes; k->output && i < bytes; i++)
        assert_int_equal(at[i], 0);
    if (k->output && status)
        assert_memory_equal(at + sizeof bytes, whole + sizeof bytes, bytes > sizeof bytes ? bytes - sizeof bytes : 0);
    assert_int_equal(munmap(page, 3 * PAGE), 0);
}

static void every_size(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 1));
    for (const struct kind *k = kinds; k < kinds + sizeof kinds / sizeof *kinds; k++)
        for (size_t bytes = 0; bytes <= k->bytes + MORE; bytes++)
            try_size(r, k, bytes);
}

/* What an input says in a part that is not known. */
static void an_input_that_says_more(void **state)
{
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 1));
    for (const struct kind *k = kinds; k < kinds + sizeof kinds / sizeof *kinds; k++) {
        unsigned char whole[PAGE] = {0};
        size_t bytes = k->bytes + 16;

        if (k->output)
            continue;
        k->fill(r, whole);
        memcpy(whole, &bytes, sizeof bytes);
        whole[bytes - 1] = 1;
        expect(k->call(r, whole), KVLAZY_EINVAL);
        whole[bytes - 1] = 0;
        ok(k->call(r, whole));
    }
}

/* A struct that nothing initialised has no size that could be one. */
static void sizes_out_of_reason(void **state)
{
    static const size_t sizes[] = {4097, 1 << 20, SIZE_MAX / 2, SIZE_MAX - 3, SIZE_MAX};
    struct rig *r = *state;

    rig_open(r);
    ok(put(r, 0, 0, 1));
    for (const struct kind *k = kinds; k < kinds + sizeof kinds / sizeof *kinds; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char whole[PAGE] = {0};

            if (k->fill)
                k->fill(r, whole);
            memcpy(whole, &sizes[i], sizeof sizes[i]);
            expect(k->call(r, whole), KVLAZY_EINVAL);
        }
}

/* Options from text go into a struct of a newer version too, and leave what is not known. */
static void options_of_a_newer_version(void **state)
{
    struct {
        kvlazy_params params;
        uint64_t more[2];
    } p = {0};

    (void)state;
    kvlazy_params_init(&p.params);
    p.params.struct_size = sizeof p;
    ok(kvlazy_params_set(&p.params, "kv-size", "4k"));
    assert_int_equal(p.params.kv_size, 4096);
    p.more[1] = 1;
    expect(kvlazy_params_set(&p.params, "kv-size", "8k"), KVLAZY_EINVAL);
    p.params.struct_size = offsetof(kvlazy_params, mem);
    expect(kvlazy_params_set(&p.params, "kv-size", "8k"), KVLAZY_EINVAL);
    assert_int_equal(p.params.kv_size, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(every_size),
        RIG_TEST(an_input_that_says_more),
        RIG_TEST(sizes_out_of_reason),
        cmocka_unit_test(options_of_a_newer_version),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
