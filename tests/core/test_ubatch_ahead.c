/* SPDX-License-Identifier: MIT */
/*
 * KVLAZY_UBATCH_AHEAD: while an engine computes a ubatch, its own pages, if they are many, and those of the one after
 * it are made present by the watcher of the cache, in pieces, within the budget, and never against a hook that waits. A
 * watcher of the test comes when it is told; at the end a reaper's thread does.
 */
#include "api/watch.h"
#include "core/lock.h"
#include "layout_support.h"

#include <inttypes.h>
#include <sched.h>
#include <time.h>

#include <kvlazy/reaper.h>

enum { IDLE = 500, PAGE = 4096, N_UBATCH = 4, MIB = 1 << 20 };

static int n_woken;

static void on_wake(void *ctx, uint64_t in_ms)
{
    (void)ctx;
    n_woken += in_ms == 0;
}

static void on_lose(void *ctx, const kvlazy_cache *member, kvlazy_cache *heir)
{
    (void)ctx, (void)member, (void)heir;
}

static void nothing(void *ctx)
{
    (void)ctx;
}

static const kvl_watcher watcher = {.wake = on_wake, .lose = on_lose, .settle = nothing, .lost = nothing};

static int bed_setup(void **state)
{
    struct bed *bed = bed_new(PAGE);

    bed->params.kv_size = 1024;
    bed->params.flags = KVLAZY_UBATCH_AHEAD;
    bed_layer(bed, PAGE, 0, 0); /* a page a cell: what came is counted by dividing */
    n_woken = 0;
    *state = bed;
    return 0;
}

/* Opens the bed and watches it; what create and adding brought is over. */
static void open_watched(struct bed *bed)
{
    uint64_t next_ms;

    bed_open(bed);
    ok(kvl_watch(bed->cache, &watcher));
    ok(kvl_poll(bed->cache, true, &next_ms));
    n_woken = 0;
}

static uint64_t touched_cells(struct bed *bed)
{
    return bed_stats(bed).touched_bytes / PAGE;
}

/* A batch of N_UBATCH ubatches of one sequence, each applied when the test says. */
struct batch {
    kvlazy_pos pos[BED_POS];
    kvlazy_seq_id seq[BED_POS];
    kvlazy_ubatch ubatch[N_UBATCH];
};

static int prepare(struct bed *bed, struct batch *b, kvlazy_seq_id seq, uint32_t n_token)
{
    kvlazy_pos from = kvlazy_seq_pos_max(bed->cache, seq) + 1;

    for (uint32_t i = 0; i < N_UBATCH * n_token; i++) {
        b->pos[i] = from + (kvlazy_pos)i;
        b->seq[i] = seq;
    }
    for (uint32_t u = 0; u < N_UBATCH; u++)
        b->ubatch[u] = (kvlazy_ubatch){.n_token = n_token, .pos = b->pos + u * n_token, .seq = b->seq + u * n_token};
    return kvlazy_prepare(bed->cache, b->ubatch, N_UBATCH, bed->slot);
}

/* The rows of the ubatch are written too. */
static void apply(struct bed *bed, const struct batch *b, uint32_t u)
{
    ok(kvlazy_apply_ubatch(bed->cache, &bed->slot[u], &b->ubatch[u]));
    for (uint32_t i = 0; i < b->ubatch[u].n_token; i++) {
        uint32_t stamp = ++bed->last_stamp;

        bed->token[b->ubatch[u].seq[i]][b->ubatch[u].pos[i]] = stamp;
        bed_write(bed, bed->slot[u].stream[i], bed->slot[u].cell[i], stamp);
    }
    if (u + 1 < N_UBATCH) /* what the watcher may touch */
        for (uint32_t i = 0; i < b->ubatch[u + 1].n_token; i++)
            bed_may_touch(bed, bed->slot[u + 1].stream[i], bed->slot[u + 1].cell[i]);
}

/* The watcher comes, again and again as long as there is more to do at once. Returns how often. */
static int come(struct bed *bed)
{
    uint64_t next_ms = 0;
    int n = 0;

    for (; next_ms == 0; n++)
        expect(kvl_poll(bed->cache, true, &next_ms), KVLAZY_EBUSY);
    return n;
}

static uint64_t commits(const struct bed *bed)
{
    return bed->fake.n_call[FAKE_COMMIT];
}

/* ---- what it does ---- */

static void the_next_ubatch_and_no_more(void **state)
{
    static struct batch b;
    struct bed *bed = *state;

    open_watched(bed);
    ok(prepare(bed, &b, 0, 40));
    come(bed);
    assert_int_equal(touched_cells(bed), 0); /* nothing is computed yet */
    for (uint32_t u = 0; u < N_UBATCH; u++) {
        uint64_t calls = commits(bed);

        apply(bed, &b, u);
        assert_int_equal(commits(bed) - calls, u == 0); /* the others find their pages */
        assert_int_equal(n_woken, u + 1 < N_UBATCH ? (int)u + 1 : N_UBATCH - 1);
        come(bed);
        assert_int_equal(touched_cells(bed), 40 * (u + 1 < N_UBATCH ? u + 2 : N_UBATCH));
        bed_sound(bed);
    }
    ok(kvlazy_end_batch(bed->cache));
    bed_sound(bed);
}

/* Rows of any layout, where pages are shared by neighbours, and where the library prefers faults. */
static void in_every_layout(void **state)
{
    static struct batch b;
    struct bed *bed = *state;

    bed_layer(bed, 512, 66, 33);
    bed_layer(bed, 5000, 34, 0);
    bed->params.n_stream = bed->params.n_seq_max = 2;
    open_watched(bed);
    ok(bed_turn(bed, 1, 13));
    ok(prepare(bed, &b, 0, 30));
    for (uint32_t u = 0; u < N_UBATCH; u++) {
        apply(bed, &b, u);
        come(bed);
        bed_sound(bed);
    }
    uint64_t calls = commits(bed);
    ok(kvlazy_end_batch(bed->cache));
    assert_int_equal(commits(bed), calls);
    bed_rm(bed, 0, -1, -1);
    bed_settle(bed);
    bed_sound_released(bed);
}

/* However long the ubatch and its rows, the lock is held for a MiB at a time. */
static void in_pieces(void **state)
{
    static struct batch b;
    struct bed *bed = *state;
    uint64_t next_ms = 0;

    bed->params.n_layer = 0;
    bed_layer(bed, 64 << 10, 64 << 10, 0);
    open_watched(bed);
    ok(prepare(bed, &b, 0, 200));
    ok(kvlazy_apply_ubatch(bed->cache, &bed->slot[0], &b.ubatch[0]));
    for (int n = 0; next_ms == 0; n++) {
        uint64_t touched = bed_stats(bed).touched_bytes, present = bed->fake.committed_bytes;

        expect(kvl_poll(bed->cache, true, &next_ms), KVLAZY_EBUSY);
        assert_true(bed_stats(bed).touched_bytes - touched <= 2 * MIB);
        assert_true(bed->fake.committed_bytes - present <= 2 * MIB);
        assert_true(n < 100);
    }
    assert_int_equal(bed_stats(bed).touched_bytes, 2 * 25 * MIB);
    assert_int_equal(bed->fake.committed_bytes, 2 * 25 * MIB);
    ok(kvlazy_end_batch(bed->cache));
    bed_clear(bed, true);
}

/* Rows of 5 MiB in two layers a ubatch of 40 tokens. */
static void large_rows(struct bed *bed)
{
    bed->params.n_layer = 0;
    bed->leaves_pages = !(bed->params.flags & KVLAZY_COMMIT_AHEAD);
    bed_layer(bed, 32 << 10, 32 << 10, 0);
    bed_layer(bed, 32 << 10, 32 << 10, 0);
}

static void many_pages(struct bed *bed)
{
    large_rows(bed);
    open_watched(bed);
}

/* They count as touched from the start, and are there once the watcher came. What was written meanwhile stays. */
static void many_pages_of_the_ubatch_itself(void **state)
{
    static struct batch b;
    struct bed *bed = *state;
    uint64_t next_ms;

    many_pages(bed);
    ok(prepare(bed, &b, 0, 40));
    for (uint32_t u = 0; u < N_UBATCH; u++) {
        uint64_t calls = commits(bed);

        apply(bed, &b, u);
        assert_int_equal(commits(bed), calls);
        assert_int_equal(n_woken, u + 1);
        assert_int_equal(bed_stats(bed).touched_bytes, (u + 1) * 5 * MIB);
        expect(kvl_poll(bed->cache, true, &next_ms), KVLAZY_EBUSY); /* a piece, and the next ubatch comes */
        assert_int_equal(next_ms, 0);
        assert_int_equal(bed->fake.committed_bytes, (u + 1) * MIB); /* no more of those before: they are written */
        bed_sound(bed);
    }
    come(bed);
    assert_int_equal(bed->fake.committed_bytes, (3 + 5) * MIB);
    ok(kvlazy_end_batch(bed->cache));
    bed_sound(bed);
}

/* What is present of the rows of the first ubatch in one of the four tensors of many_pages. */
static uint64_t present_in(struct bed *bed, uint32_t t)
{
    kvlazy_tensor tensor;

    ok((t & 1 ? kvlazy_v : kvlazy_k)(bed->cache, bed->layers[t / 2].id, &tensor));
    const char *row = (const char *)tensor.data + bed->slot[0].cell[0] * tensor.cell_stride;
    return fake_committed(&bed->fake, row, 40 * tensor.row_bytes);
}

/* The tensors come in the order in which an engine computes their layers. */
static void the_first_layers_first(void **state)
{
    static struct batch b;
    struct bed *bed = *state;
    uint64_t next_ms = 0;
    uint32_t n_full = 0;

    many_pages(bed);
    ok(prepare(bed, &b, 0, 40));
    apply(bed, &b, 0);
    while (n_full < 4) {
        for (uint32_t t = n_full + 1; t < 4; t++)
            assert_int_equal(present_in(bed, t), 0);
        assert_int_equal(next_ms, 0);
        expect(kvl_poll(bed->cache, true, &next_ms), KVLAZY_EBUSY);
        while (n_full < 4 && present_in(bed, n_full) == 40 * (32 << 10))
            n_full++;
    }
    ok(kvlazy_end_batch(bed->cache));
    bed_sound(bed);
}

/* Of linked caches too: what the engine computes now comes before what any of them needs next. */
static void of_linked_caches_what_is_computed_first(void **state)
{
    static struct batch b;
    struct bed *bed[2] = {*state, NULL};
    kvlazy_slot slot[N_UBATCH];
    uint64_t next_ms = 0;

    many_pages(bed[0]);
    assert_int_equal(bed_setup((void **)&bed[1]), 0);
    bed[1]->params.with = bed[0]->cache;
    bed[1]->params.n_layer = 0;
    bed_layer(bed[1], 64 << 10, 64 << 10, 0);
    bed_open(bed[1]);
    ok(prepare(bed[0], &b, 0, 40));
    ok(kvlazy_prepare(bed[1]->cache, b.ubatch, N_UBATCH, slot));
    ok(kvlazy_apply_ubatch(bed[0]->cache, &bed[0]->slot[0], &b.ubatch[0]));
    ok(kvlazy_apply_ubatch(bed[1]->cache, &slot[0], &b.ubatch[0]));
    while (next_ms == 0) {
        expect(kvl_poll(bed[0]->cache, true, &next_ms), KVLAZY_EBUSY);
        assert_true(bed[0]->fake.committed_bytes <= 5 * MIB || bed[1]->fake.committed_bytes >= 5 * MIB);
    }
    assert_int_equal(bed[0]->fake.committed_bytes, 2 * 5 * MIB);
    assert_int_equal(bed[1]->fake.committed_bytes, 2 * 5 * MIB);
    ok(kvlazy_end_batch(bed[0]->cache));
    bed_clear(bed[0], true);
    bed_teardown((void **)&bed[1]);
}

/* The engine may want all pages of a ubatch to be there before it computes. */
static void not_if_apply_is_to_do_it(void **state)
{
    static struct batch b;
    struct bed *bed = *state;

    bed->params.flags |= KVLAZY_COMMIT_AHEAD;
    many_pages(bed);
    ok(prepare(bed, &b, 0, 40));
    for (uint32_t u = 0; u < N_UBATCH; u++) {
        apply(bed, &b, u);
        assert_true(bed->fake.committed_bytes >= (u + 1) * 5 * MIB);
        if (u & 1)
            come(bed);
        bed_sound(bed);
    }
    ok(kvlazy_end_batch(bed->cache));
}

/* A ubatch that was undone is one that comes next. Its pages are touched, and come when they are written. */
static void an_undone_ubatch(void **state)
{
    static struct batch b;
    struct bed *bed = *state;

    many_pages(bed);
    ok(prepare(bed, &b, 0, 40));
    ok(kvlazy_apply_ubatch(bed->cache, &bed->slot[0], &b.ubatch[0]));
    ok(kvlazy_undo_ubatch(bed->cache, &bed->slot[0]));
    come(bed);
    assert_int_equal(bed->fake.committed_bytes, 5 * MIB);
    for (uint32_t u = 0; u < N_UBATCH; u++)
        apply(bed, &b, u);
    come(bed);
    assert_int_equal(bed->fake.committed_bytes, 2 * 5 * MIB);
    ok(kvlazy_end_batch(bed->cache));
    bed_sound(bed);
}

static void by_a_call_where_apply_leaves_it_to_faults(void **state)
{
    static struct batch b;
    struct bed *bed = *state;

    bed->params.flags |= KVLAZY_NO_COMMIT_AHEAD;
    open_watched(bed);
    uint64_t calls = commits(bed);
    ok(prepare(bed, &b, 0, 40));
    apply(bed, &b, 0);
    assert_int_equal(commits(bed), calls);
    come(bed);
    assert_int_equal(commits(bed), calls + 1);
    assert_int_equal(bed->fake.committed_bytes, 40 * PAGE);
    apply(bed, &b, 1);
    ok(kvlazy_end_batch(bed->cache));
    bed_sound(bed);
}

/* ---- when it does not ---- */

static void never_against_a_hook_that_waits(void **state)
{
    static struct batch b;
    struct bed *bed = *state;
    uint64_t next_ms = 0;

    open_watched(bed);
    ok(prepare(bed, &b, 0, 40));
    apply(bed, &b, 0);
    atomic_fetch_add(&bed->cache->group->n_waiting, 1);
    expect(kvl_poll(bed->cache, true, &next_ms), KVLAZY_EBUSY);
    assert_int_equal(next_ms, 1);
    assert_int_equal(touched_cells(bed), 40);
    atomic_fetch_sub(&bed->cache->group->n_waiting, 1);
    come(bed);
    assert_int_equal(touched_cells(bed), 80);
    ok(kvlazy_end_batch(bed->cache));
}

static uint32_t several_nodes(void *ctx)
{
    (void)ctx;
    return KVLAZY_HOST_NUMA;
}

/* Without the flag, without a watcher, by another thread's poll, and where a page belongs to the thread that writes. */
static void not_where_it_was_not_asked_for(void **state)
{
    static struct batch b;

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct bed *bed;
        uint64_t next_ms;

        bed_setup((void **)&bed);
        bed->params.flags = i == 0 ? 0 : i == 3 ? KVLAZY_UBATCH_AHEAD | KVLAZY_NO_COMMIT_AHEAD : KVLAZY_UBATCH_AHEAD;
        if (i == 3)
            bed->fake.table.traits = several_nodes;
        if (i == 1)
            bed_open(bed);
        else
            open_watched(bed);
        ok(prepare(bed, &b, 0, 40));
        apply(bed, &b, 0);
        expect(kvl_poll(bed->cache, i == 0 || i == 3, &next_ms), KVLAZY_EBUSY);
        assert_int_equal(touched_cells(bed), 40);
        assert_int_equal(n_woken, i == 2);
        ok(kvlazy_end_batch(bed->cache));
        bed_teardown((void **)&bed);
    }
}

/* Between two ubatches the batch may end, or another plan or a clear may come. */
static void not_after_the_batch(void **state)
{
    static struct batch b;
    struct bed *bed = *state;

    open_watched(bed);
    for (int i = 0; i < 3; i++) {
        ok(prepare(bed, &b, 0, 40));
        apply(bed, &b, 0);
        uint64_t cells = touched_cells(bed);
        if (i == 0)
            ok(kvlazy_end_batch(bed->cache));
        if (i == 1)
            ok(prepare(bed, &b, 1, 10));
        if (i == 2) {
            bed_clear(bed, false);
            ok(kvlazy_init_batch(bed->cache));
        }
        uint64_t next_ms;
        kvl_poll(bed->cache, true, &next_ms);
        assert_true(next_ms > 0);
        assert_int_equal(touched_cells(bed), cells);
        ok(kvlazy_end_batch(bed->cache));
        bed_sound(bed);
    }
}

/* ---- limits and refusals ---- */

/* A planned batch fits. What came ahead of it takes nothing that the batch was not promised. */
static void within_the_budget(void **state)
{
    static struct batch b;
    struct bed *bed = *state;

    bed->params.budget_bytes = N_UBATCH * 40 * PAGE;
    open_watched(bed);
    ok(prepare(bed, &b, 0, 40));
    for (uint32_t u = 0; u < N_UBATCH; u++) {
        apply(bed, &b, u);
        come(bed);
        bed_sound(bed);
    }
    ok(kvlazy_end_batch(bed->cache));
    expect(bed_turn(bed, 1, 1), KVLAZY_EBUDGET);
    bed_sound(bed);
}

/* Pages of a ubatch that never came are free ones: another batch takes them, and time gives them back. */
static void what_is_not_used_goes_back(void **state)
{
    static struct batch b;
    struct bed *bed = *state;

    bed->params.budget_bytes = N_UBATCH * 40 * PAGE;
    bed->params.n_stream = bed->params.n_seq_max = 2;
    open_watched(bed);
    for (int i = 0; i < 2; i++) {
        ok(prepare(bed, &b, 0, 40));
        apply(bed, &b, 0);
        come(bed);
        assert_int_equal(touched_cells(bed), 80);
        ok(kvlazy_end_batch(bed->cache));
        if (i == 0)
            ok(bed_turn(bed, 1, 3 * 40));
        bed_rm(bed, 1, -1, -1);
        bed_settle(bed);
        bed_sound_released(bed);
        assert_int_equal(touched_cells(bed), 40);
        bed_rm(bed, 0, -1, -1);
        bed_settle(bed);
    }
}

static void a_host_that_refuses_costs_the_ubatch_nothing(void **state)
{
    static struct batch b;
    struct bed *bed = *state;

    open_watched(bed);
    for (int half = 0; half < 2; half++) {
        bed->fake.half_commit = half;
        ok(prepare(bed, &b, 0, 40));
        apply(bed, &b, 0);
        fake_fail(&bed->fake, FAKE_COMMIT, 1);
        come(bed);
        assert_true(bed->fake.failed);
        bed_sound(bed);
        apply(bed, &b, 1); /* the host is well again */
        come(bed);
        apply(bed, &b, 2);
        bed_sound(bed);
        ok(kvlazy_end_batch(bed->cache));
        bed_sound(bed);
    }
}

/* Pages that apply left to the watcher come when they are written, if it cannot bring them. */
static void a_host_that_refuses_what_was_left(void **state)
{
    static struct batch b;
    struct bed *bed = *state;

    many_pages(bed);
    for (int half = 0; half < 2; half++) {
        bed->fake.half_commit = half;
        ok(prepare(bed, &b, 0, 40));
        apply(bed, &b, 0);
        fake_fail(&bed->fake, FAKE_COMMIT, 1);
        assert_int_equal(come(bed), 1);
        assert_true(bed->fake.failed);
        bed_sound(bed);
        apply(bed, &b, 1);
        come(bed);
        ok(kvlazy_end_batch(bed->cache));
        bed_sound(bed);
    }
}

/* ---- anything between two ubatches ---- */

static uint32_t one_of(uint32_t n)
{
    static uint64_t random = 1;

    random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random >> 33) % n;
}

static void come_a_little(struct bed *bed)
{
    uint64_t next_ms;

    for (uint32_t n = one_of(4); n; n--)
        expect(kvl_poll(bed->cache, true, &next_ms), KVLAZY_EBUSY);
}

/* Other sequences may lose tokens or be copied; the batch's own stay as they are. */
static void call_between(struct bed *bed, kvlazy_seq_id seq)
{
    kvlazy_seq_id other = (seq + 1 + (kvlazy_seq_id)one_of(3)) % 4, third = (seq + 1) % 4;
    kvlazy_pos max = kvlazy_seq_pos_max(bed->cache, other);

    if (max >= 0 && one_of(2))
        bed_rm(bed, other, (kvlazy_pos)one_of((uint32_t)max + 1), -1);
    else if (max >= 0 && other != third && kvlazy_seq_pos_max(bed->cache, third) < 0)
        bed_cp(bed, other, third, -1, -1);
}

static void one_batch(struct bed *bed)
{
    static struct batch b;
    kvlazy_seq_id seq = (kvlazy_seq_id)one_of(4);

    ok(kvlazy_init_batch(bed->cache));
    int status = prepare(bed, &b, seq, 1 + one_of(40));
    for (uint32_t u = 0; !status && u < N_UBATCH && one_of(12); u++) {
        apply(bed, &b, u);
        come_a_little(bed);
        if (one_of(3) == 0)
            call_between(bed, seq);
        come_a_little(bed);
        if (one_of(4) == 0)
            bed_sound(bed);
    }
    ok(kvlazy_end_batch(bed->cache));
    assert_true(!status || status == KVLAZY_ENOSLOT || status == KVLAZY_EBUDGET);
    if (status)
        bed_rm(bed, seq, -1, -1);
}

static void random_worlds(void **state)
{
    (void)state;
    for (uint32_t world = 0; world < 12; world++) {
        struct bed *bed = bed_new(world & 1 ? PAGE : 4 * PAGE);

        bed->params.flags = KVLAZY_UBATCH_AHEAD | (world % 5 == 4 ? KVLAZY_NO_COMMIT_AHEAD : 0u);
        bed->params.kv_size_initial = world & 2 ? 60 : 0;
        bed->params.n_stream = world & 4 ? bed->params.n_seq_max : 1;
        bed->params.budget_bytes = world % 3 ? 0 : world % 4 == 3 ? 20 * MIB : 200 * 4 * PAGE;
        bed_layer(bed, 1000, 600, world & 8 ? 300 : 0);
        bed_layer(bed, 24, 0, 0);
        if (world % 4 == 3) {
            bed->leaves_pages = true;
            bed_layer(bed, 40000, 60000, 0);
        }
        open_watched(bed);
        for (int i = 0; i < 120; i++) {
            one_batch(bed);
            if (one_of(6) == 0)
                bed_settle(bed);
            bed_sound(bed);
        }
        bed_clear(bed, true);
        bed_sound_released(bed);
        bed_teardown((void **)&bed);
    }
}

/* ---- a reaper's thread ---- */

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void by_a_reaper(void **state)
{
    static struct batch b;
    struct bed *bed = *state;
    kvlazy_reaper *reaper;

    bed_open(bed);
    ok(kvlazy_reaper_create("", &reaper));
    ok(kvlazy_reaper_add(reaper, bed->cache));
    for (int i = 0; i < 6; i++) {
        ok(prepare(bed, &b, 0, 40));
        for (uint32_t u = 0; u < N_UBATCH; u++) {
            apply(bed, &b, u); /* and writes, while the thread touches pages */
            for (int k = 0; i < 3 && u + 1 < N_UBATCH && touched_cells(bed) != 40 * (u + 2) && k < 20000; k++)
                nap();
            if (i < 3)
                assert_int_equal(touched_cells(bed), 40 * (u + 1 < N_UBATCH ? u + 2 : N_UBATCH));
        }
        ok(kvlazy_end_batch(bed->cache));
        bed_clear(bed, true);
    }
    kvlazy_reaper_destroy(reaper);
}

/* Rows are written while the thread makes their pages present. */
static void by_a_reaper_beside_the_writing(void **state)
{
    static struct batch b;
    struct bed *bed = *state;
    kvlazy_reaper *reaper;

    large_rows(bed);
    bed_open(bed);
    ok(kvlazy_reaper_create("", &reaper));
    ok(kvlazy_reaper_add(reaper, bed->cache));
    for (int i = 0; i < 4; i++) {
        ok(prepare(bed, &b, 0, 40));
        for (uint32_t u = 0; u < N_UBATCH; u++) {
            apply(bed, &b, u);
            for (int k = 0; i & 1 && k < 3; k++)
                nap();
        }
        ok(kvlazy_end_batch(bed->cache));
        bed_sound(bed);
        bed_clear(bed, true);
    }
    kvlazy_reaper_destroy(reaper);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        BED_TEST(the_next_ubatch_and_no_more),
        BED_TEST(in_every_layout),
        BED_TEST(in_pieces),
        BED_TEST(many_pages_of_the_ubatch_itself),
        BED_TEST(the_first_layers_first),
        BED_TEST(of_linked_caches_what_is_computed_first),
        BED_TEST(not_if_apply_is_to_do_it),
        BED_TEST(an_undone_ubatch),
        BED_TEST(by_a_call_where_apply_leaves_it_to_faults),
        BED_TEST(never_against_a_hook_that_waits),
        cmocka_unit_test(not_where_it_was_not_asked_for),
        BED_TEST(not_after_the_batch),
        BED_TEST(within_the_budget),
        BED_TEST(what_is_not_used_goes_back),
        BED_TEST(a_host_that_refuses_costs_the_ubatch_nothing),
        BED_TEST(a_host_that_refuses_what_was_left),
        cmocka_unit_test(random_worlds),
        BED_TEST(by_a_reaper),
        BED_TEST(by_a_reaper_beside_the_writing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
