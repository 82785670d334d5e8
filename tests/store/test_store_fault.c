/* SPDX-License-Identifier: MIT */
/*
 * The n-th allocation of a save, a load and a forget fails, for every n, with cells of the library, cells of the engine
 * and linked caches: ENOMEM with nothing changed, or a call that ends early, with all that is live whole and the rest
 * as it was. Repeated, it does all of it.
 *
 * Linked with --wrap for malloc, calloc, realloc, reallocarray, recallocarray and strdup.
 */
#include "fail_alloc.h"
#include "fake_place.h"
#include "prefix_support.h"

#include <errno.h>
#include <string.h>

#include <kvlazy/engine_cells.h>

enum { BLOCK = 16, N_TOKEN = 300, N_CELL = 2048, FIRST_CELL = 1500 };

static int32_t token[N_TOKEN];
static uint32_t cell[N_TOKEN];
static kvlazy_prompt prompt = {.struct_size = sizeof prompt, .token = token, .n_token = N_TOKEN};

static struct fake_place fake;
static kvlazy_store_ops bare; /* of the place, whose own memory is never refused */
static kvlazy_store *store;

/* ---- the place ---- */

#define UNARMED(call)       \
    bool was = alloc_armed; \
    alloc_armed = false;    \
    int error = (call);     \
    alloc_armed = was;      \
    return error

static int has(void *ctx, const uint8_t (*name)[32], uint32_t n, bool *yes)
{
    UNARMED(bare.has(ctx, name, n, yes));
}

static int open_blob(void *ctx, const uint8_t *name, uint64_t put_bytes, void **blob)
{
    UNARMED(bare.open(ctx, name, put_bytes, blob));
}

static int close_blob(void *blob, bool commit)
{
    UNARMED(bare.close(blob, commit));
}

static int setup(void **state)
{
    (void)state;
    fake = (struct fake_place){0};
    bare = fake_ops(&fake);
    kvlazy_store_ops ops = bare;
    ops.has = has;
    ops.open = open_blob;
    ops.close = close_blob;
    store = prefix_store(&ops, BLOCK);
    for (uint32_t i = 0; i < N_TOKEN; i++) {
        token[i] = (int32_t)(9 * i);
        cell[i] = FIRST_CELL + (i ^ 1); /* not in order, and past those that the first arrays hold */
    }
    prompt.cell = NULL;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_true(prefix_info(store).held_bytes < 8192); /* no call is inside */
    ok(kvlazy_store_destroy(store));
    fake_clear(&fake);
    return 0;
}

#define FAULT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

static void arm(int n)
{
    alloc_fail_in = n;
    alloc_failed = false;
}

static void clear_place(void)
{
    while (fake.blob)
        fake_lose(&fake, 0);
}

/* ---- cells of the library ---- */

static void sweep_save(struct box *box)
{
    for (int n = 1;; n++) {
        struct picture *before = box_look(box);
        uint32_t n_saved = 99;
        int status;

        arm(n);
        UNDER_FIRE(status, kvlazy_store_save(store, box->cache, 0, &prompt, 10000, &n_saved));
        same(box, before);
        if (!status)
            assert_int_equal(n_saved, N_TOKEN - N_TOKEN % BLOCK);
        else
            assert_true(status == KVLAZY_ENOMEM && alloc_failed && n_saved == 0 && !fake.blob);
        if (!alloc_failed)
            return;
        clear_place();
    }
}

/* Returns how many loads ended early. */
static int sweep_load(struct box *box, struct box *linked, kvlazy_seq_id seq)
{
    int n_early = 0;

    for (int n = 1;; n++) {
        uint64_t n_refused = prefix_info(store).n_refused_room;
        uint32_t n_live = 99;
        int status;

        ok(kvlazy_init_batch(box->cache));
        struct picture *before = box_look(box);
        arm(n);
        UNDER_FIRE(status, kvlazy_store_load(store, box->cache, seq, &prompt, 0, 10000, &n_live));
        n_refused = prefix_info(store).n_refused_room - n_refused;
        assert_true(status ? status == KVLAZY_ENOMEM && alloc_failed && n_live == 0 : true);
        if (status || !n_live)
            same(box, before);
        else
            box_forget(before);
        ok(kvlazy_end_batch(box->cache));
        prefix_holds(box, seq, &prompt, n_live);
        box_sound(box);
        if (linked)
            prefix_holds(linked, seq, &prompt, n_live);
        bool is_early = !status && n_live < N_TOKEN - N_TOKEN % BLOCK;
        assert_int_equal(n_refused, is_early);
        n_early += is_early;
        if (!alloc_failed) {
            assert_false(is_early || status);
            return n_early;
        }
        ok(kvlazy_clear(box->cache, true));
    }
}

static void sweep_forget(struct box *box)
{
    for (int n = 1;; n++) {
        int status;

        arm(n);
        UNDER_FIRE(status, kvlazy_store_forget(store, box->cache, &prompt));
        if (!alloc_failed) {
            ok(status);
            assert_null(fake.blob);
            return;
        }
        assert_true(status == KVLAZY_ENOMEM && fake.blob);
    }
}

static void test_cells_of_the_library(void **state)
{
    struct box *from = box_open(prefix_box(N_CELL)), *to = prefix_box(N_CELL);

    (void)state;
    prefix_turn(from, 0, &prompt, 0, N_TOKEN);
    to->params.budget_bytes = 1 << 24;
    box_open(box_transpose(to, 2));
    sweep_save(from);
    assert_true(sweep_load(to, NULL, 1) > 3);
    sweep_forget(from);
    box_free(from);
    box_free(to);
}

static void test_linked_caches(void **state)
{
    struct box *a = box_open(prefix_box(N_CELL)), *b = prefix_box(N_CELL);

    (void)state;
    b->params.with = a->cache;
    box_open(b);
    ok(kvlazy_init_batch(a->cache));
    ok(prefix_compute(a, 0, &prompt, 0, N_TOKEN));
    ok(prefix_compute(b, 0, &prompt, 0, N_TOKEN));
    ok(kvlazy_end_batch(a->cache));
    sweep_save(a);
    ok(kvlazy_clear(a->cache, true));
    assert_true(sweep_load(a, b, 1) > 3);
    box_free(b);
    box_free(a);
}

/* ---- cells of the engine ---- */

static void sweep_engine_cells(struct box *box)
{
    const kvl_cells *cells = &box->cache->stream[0].cells;

    for (int n = 1;; n++) {
        uint32_t n_live = 99;
        int status;

        ok(kvlazy_init_batch(box->cache));
        arm(n);
        UNDER_FIRE(status, kvlazy_store_load(store, box->cache, 0, &prompt, 0, 10000, &n_live));
        ok(kvlazy_end_batch(box->cache));
        assert_true(!status || (status == KVLAZY_ENOMEM && alloc_failed && n_live == 0));
        assert_int_equal(cells->n_used, n_live);
        for (uint32_t i = 0; i < N_TOKEN; i++) {
            assert_int_equal(kvl_cells_is_used(cells, cell[i]), i < n_live);
            assert_true(i < n_live ? prefix_is(box, &prompt, i) : prefix_is_zero(box, 0, cell[i]));
        }
        box_sound(box);
        if (!alloc_failed) {
            assert_int_equal(n_live, N_TOKEN - N_TOKEN % BLOCK);
            return;
        }
        ok(kvlazy_clear(box->cache, true));
    }
}

static void test_cells_of_the_engine(void **state)
{
    static const kvlazy_cell_ops tells = {.struct_size = sizeof tells}; /* it says what it frees */
    struct box *box = prefix_box(N_CELL);

    (void)state;
    box->params.cell_ops = &tells;
    box->params.n_stream = box->params.n_seq_max = 1;
    box_open(box);
    prompt.cell = cell;
    ok(kvlazy_init_batch(box->cache));
    ok(kvlazy_touch(box->cache, 0, FIRST_CELL + N_TOKEN));
    for (uint32_t i = 0; i < N_TOKEN; i++)
        prefix_write(box, &prompt, i);
    ok(kvlazy_end_batch(box->cache));
    uint32_t n_saved = 0;
    ok(kvlazy_store_save(store, box->cache, 0, &prompt, 10000, &n_saved));
    assert_int_equal(n_saved, N_TOKEN - N_TOKEN % BLOCK);
    ok(kvlazy_clear(box->cache, true));
    sweep_engine_cells(box);
    box_free(box);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAULT_TEST(test_cells_of_the_library),
        FAULT_TEST(test_linked_caches),
        FAULT_TEST(test_cells_of_the_engine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
