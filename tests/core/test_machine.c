/* SPDX-License-Identifier: MIT */
/*
 * What the machine has left, through caches that refuse to grow beyond it. What a host says of itself is set by hand
 * here: either a number that stays, or the memory of a made-up machine, of which every page that a cache commits takes
 * a part, and other programs what they like.
 */
#include "support.h"
#include "unit.h"

#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
enum { PAGE = 4096, ROW = 64 << 10, CACHES = 24 };

/* ------------------------------------------------------------------------------------------- the host */

static struct machine {
    struct fake_mem *fake;
    uint64_t left_bytes;  /* what it says, if total_bytes is 0 */
    uint64_t total_bytes; /* or what it has for our caches and other programs */
    uint64_t other_bytes; /* that other programs have */
    int n_read;
} machine;
static kvlazy_mem table;

static uint64_t say_headroom(void *ctx, const char *root)
{
    uint64_t used = machine.other_bytes + machine.fake->committed_bytes;

    (void)ctx, (void)root;
    machine.n_read++;
    if (!machine.total_bytes)
        return machine.left_bytes;
    return machine.total_bytes > used ? machine.total_bytes - used : 0;
}

/* The fake refuses what the machine does not have: where the kernel would kill, it answers ENOMEM. */
static void others_have(uint64_t mib)
{
    machine.other_bytes = mib * MIB;
    machine.fake->budget_bytes = machine.total_bytes - mib * MIB;
}

static void use_machine(struct rig *r, uint64_t total_mib)
{
    memset(&machine, 0, sizeof machine);
    machine.fake = &r->fake;
    machine.total_bytes = total_mib * MIB;
    if (total_mib)
        others_have(0);
    table = r->fake.table;
    table.headroom = say_headroom;
    r->params.mem = &table;
    r->params.host_root = "/";
}

/* ------------------------------------------------------------------------------------------- a number that stays */

/* A cell is two pages. */
static void left_pages(uint64_t pages)
{
    machine.left_bytes = pages * PAGE;
}

static void open_limited(struct rig *r, uint64_t pages)
{
    static const size_t rows[1][2] = {{PAGE, PAGE}};

    rig_rows(r, 1, rows);
    use_machine(r, 0);
    left_pages(pages);
    rig_open(r);
    assert_int_equal(machine.n_read, 0); /* creating costs nothing */
}

static void growth_beyond_the_limit_is_refused(void **state)
{
    struct rig *r = *state;
    char *dump;

    open_limited(r, 100);
    ok(turn(r, 0, 0, 20));
    assert_int_equal(machine.n_read, 1);
    dump = rig_dump(r);
    ok(kvlazy_init_batch(r->cache));
    expect(put(r, 0, 20, 31), KVLAZY_EBUDGET); /* 51 cells would be 102 pages */
    ok(kvlazy_end_batch(r->cache));
    unchanged(r, dump);
    assert_int_equal(kvlazy_refused(r->cache), 0);
    assert_int_equal(machine.n_read, 1); /* what was seen last counts for a while */
    assert_int_equal(stats(r).n_refused_budget, 1);
    ok(turn(r, 0, 20, 30)); /* exactly */
    sound(r);
}

static void room_tells_it(void **state)
{
    struct rig *r = *state;

    open_limited(r, 100);
    assert_int_equal(kvlazy_room(r->cache, 0), 50);
    ok(turn(r, 0, 0, 20));
    assert_int_equal(kvlazy_room(r->cache, 0), 30);
    assert_int_equal(kvlazy_room(r->cache, 1), 30);
    left_pages(0); /* 40 pages are ours already, and nothing more is there */
    r->fake.now += 100;
    assert_int_equal(kvlazy_room(r->cache, 0), 0);
    expect(turn(r, 0, 20, 1), KVLAZY_EBUDGET);
    left_pages(1 << 20);
    r->fake.now += 100;
    assert_int_equal(kvlazy_room(r->cache, 0), 492);
    sound(r);
}

static void when_others_gave_back_it_fits(void **state)
{
    struct rig *r = *state;

    open_limited(r, 100);
    ok(turn(r, 0, 0, 20));
    expect(turn(r, 0, 20, 60), KVLAZY_EBUDGET);
    left_pages(300); /* another program has shrunk */
    r->fake.now += 99;
    expect(turn(r, 0, 20, 60), KVLAZY_EBUDGET);
    assert_int_equal(machine.n_read, 1);
    r->fake.now += 1;
    ok(turn(r, 0, 20, 60));
    assert_int_equal(machine.n_read, 2);
    sound(r);
}

static void free_pages_go_first(void **state)
{
    struct rig *r = *state;
    uint64_t released;

    open_limited(r, 100);
    ok(turn(r, 0, 0, 20));
    ok(turn(r, 1, 0, 20));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1)); /* 40 free pages, in cells 0 to 19 */
    released = stats(r).released_bytes;
    expect(turn(r, 1, 20, 31), KVLAZY_EBUDGET);
    assert_int_equal(stats(r).released_bytes, released); /* not for nothing */
    ok(turn(r, 1, 20, 30));
    sound(r);
    assert_int_equal(stats(r).touched_bytes, 100 * PAGE);
}

/* 32 cells are made ready at a time, every 320 ms: each is a look, since the last one is too old. */
static void steady_decode_reads_nothing(void **state)
{
    struct rig *r = *state;

    open_limited(r, 1 << 20);
    for (int i = 0; i < 400; i++) {
        r->fake.now += 10;
        ok(turn(r, 0, i, 1));
    }
    assert_in_range(machine.n_read, 1, 3 + 400 / 32);
    machine.n_read = 0;
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    left_pages(0); /* pages that are there are not asked about */
    r->fake.now += 100;
    for (int i = 0; i < 400; i++)
        ok(turn(r, 0, i, 1));
    assert_int_equal(machine.n_read, 0);
}

static void it_is_read_ten_times_a_second_at_most(void **state)
{
    struct rig *r = *state;
    int n_refused = 0;

    open_limited(r, 8);
    for (int i = 0; i < 500; i++) {
        r->fake.now += 1;
        n_refused += turn(r, 0, kvlazy_seq_pos_max(r->cache, 0) + 1, 40) == KVLAZY_EBUDGET;
    }
    assert_int_equal(n_refused, 500);
    assert_in_range(machine.n_read, 4, 5);
    sound(r);
}

static void an_empty_root_reads_nothing(void **state)
{
    struct rig *r = *state;

    r->params.host_root = "";
    open_limited(r, 8);
    rig_forgets(r);
    kvlazy_destroy(r->cache);
    r->params.host_root = "";
    rig_open(r);
    ok(turn(r, 0, 0, 400));
    assert_int_equal(kvlazy_room(r->cache, 0), 112);
    assert_int_equal(machine.n_read, 0);
}

static void what_went_back_must_be_asked_for_again(void **state)
{
    struct rig *r = *state;

    open_limited(r, 1000);
    ok(turn(r, 0, 0, 200));
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    ok(kvlazy_trim(r->cache, 0));
    assert_int_equal(stats(r).touched_bytes, 0);
    left_pages(20); /* another program has them */
    r->fake.now += 100;
    expect(turn(r, 0, 0, 200), KVLAZY_EBUDGET);
    ok(turn(r, 0, 0, 10));
    sound(r);
}

/* ------------------------------------------------------------------------------------------- a machine */

/* Caches of one made-up machine, rows of 64 KiB: a token is 16 pages. */
struct fleet {
    struct rig *r; /* its host is that of all */
    kvlazy_cache *cache[CACHES];
    kvlazy_slot slot[CACHES][4];
    int n;
};

static kvlazy_layer layer = {.k_row_bytes = ROW};

static kvlazy_cache *add(struct fleet *f, kvlazy_cache *with, uint32_t n_stream, uint32_t flags)
{
    kvlazy_params p = f->r->params;

    p.layers = &layer;
    p.n_layer = 1;
    p.kv_size = 8192;
    p.n_stream = n_stream;
    p.flags = flags;
    p.with = with;
    ok(kvlazy_create(&p, &f->cache[f->n]));
    return f->cache[f->n++];
}

static int fleet_setup(void **state)
{
    struct fleet *f = calloc(1, sizeof *f);

    assert_non_null(f);
    f->r = rig_new();
    use_machine(f->r, 512);
    *state = f;
    return 0;
}

/* Whatever was done, nothing is promised in the end, and what counts as taken is what is there. */
static int fleet_teardown(void **state)
{
    struct fleet *f = *state;

    for (int i = 0; i < f->n; i++) {
        assert_int_equal(kvlazy_check(f->cache[i], NULL), KVLAZY_OK);
        kvlazy_end_batch(f->cache[i]);
    }
    assert_int_equal(f->r->fake.sum[KVLAZY_COUNT_PROMISED], 0);
    assert_int_equal(f->r->fake.sum[KVLAZY_COUNT_TAKEN], f->r->fake.committed_bytes);
    for (int i = f->n - 1; i >= 0; i--)
        kvlazy_destroy(f->cache[i]);
    assert_int_equal(f->r->fake.sum[KVLAZY_COUNT_TAKEN], 0);
    assert_int_equal(fake_mappings(&f->r->fake), 0);
    fake_assert_kept(&f->r->fake);
    rig_free(f->r);
    free(f);
    return 0;
}

#define FLEET_TEST(f) cmocka_unit_test_setup_teardown(f, fleet_setup, fleet_teardown)

static const kvlazy_ubatch *some(kvlazy_seq_id seq, kvlazy_pos from, uint32_t n)
{
    static kvlazy_pos pos[16384];
    static kvlazy_seq_id seqs[16384];
    static kvlazy_ubatch u;

    for (uint32_t i = 0; i < n; i++) {
        pos[i] = from + (kvlazy_pos)i;
        seqs[i] = seq;
    }
    u = UBATCH(n, pos, seqs);
    return &u;
}

static int plan(struct fleet *f, int i, uint32_t mib)
{
    return kvlazy_prepare(f->cache[i], some(0, kvlazy_seq_pos_max(f->cache[i], 0) + 1, mib * 16), 1, f->slot[i]);
}

static int apply(struct fleet *f, int i, uint32_t mib)
{
    return kvlazy_apply_ubatch(f->cache[i], f->slot[i], some(0, kvlazy_seq_pos_max(f->cache[i], 0) + 1, mib * 16));
}

static int take(struct fleet *f, int i, uint32_t mib)
{
    ok(kvlazy_init_batch(f->cache[i]));
    int status = plan(f, i, mib);
    status = status ? status : apply(f, i, mib);
    ok(kvlazy_end_batch(f->cache[i]));
    return status;
}

/* Naive: below a sixteenth of what it saw a second ago it does not look. */
static void an_old_look_does_not_count(void **state)
{
    struct fleet *f = *state;

    add(f, NULL, 1, 0);
    ok(take(f, 0, 1));
    others_have(486);
    f->r->fake.now += 100;
    expect(take(f, 0, 29), KVLAZY_EBUDGET);
    ok(take(f, 0, 25));
}

/* The same within the time that a look counts: many pages are worth another one. */
static void many_pages_are_worth_a_look(void **state)
{
    struct fleet *f = *state;

    add(f, NULL, 1, 0);
    ok(take(f, 0, 1));
    others_have(486);
    expect(take(f, 0, 29), KVLAZY_EBUDGET);
    others_have(400);
    for (int i = 0; i < 4; i++)
        ok(take(f, 0, 1));
    others_have(500);
    ok(take(f, 0, 1));
    for (int i = 0; i < 4; i++)
        ok(take(f, 0, 1));
    expect(take(f, 0, 3), KVLAZY_EBUDGET);
}

/* Where much is left, a 64th of it is taken before another look; where little is, 4 MiB. */
static void a_look_goes_as_far_as_there_is_room(void **state)
{
    static const uint32_t left_mib[] = {64, 256, 512, 2048}, most_mib[] = {4, 4, 8, 32};
    struct fleet *f = *state;

    add(f, NULL, 1, 0);
    for (int i = 0; i < 4; i++) {
        machine.total_bytes = left_mib[i] * MIB + f->r->fake.committed_bytes;
        others_have(0);
        f->r->fake.now += 100; /* the next take looks */
        machine.n_read = 0;
        uint32_t n = 0;
        for (; n < 64 && machine.n_read < 2; n++)
            ok(take(f, 0, 1));
        assert_int_equal(n, most_mib[i] + 1);
    }
}

/* Naive: each of two linked caches fits alone, and together they do not. */
static void linked_caches_count_together(void **state)
{
    struct fleet *f = *state;

    add(f, add(f, NULL, 1, 0), 1, 0);
    others_have(464); /* 48 are left */
    ok(kvlazy_init_batch(f->cache[0]));
    ok(plan(f, 0, 28));
    expect(plan(f, 1, 28), KVLAZY_EBUDGET);
    ok(kvlazy_end_batch(f->cache[0]));
    ok(plan(f, 0, 28));
    ok(plan(f, 1, 20));
    others_have(470);
    f->r->fake.now += 1000; /* what was promised is not asked about again */
    f->r->fake.budget_bytes = 48 * MIB;
    ok(apply(f, 0, 28));
    ok(apply(f, 1, 20));
    ok(kvlazy_end_batch(f->cache[0]));
    expect(take(f, 0, 1), KVLAZY_EBUDGET);
}

/* Naive: free pages of the cache itself go before a refusal, and those of the linked one stay. */
static void linked_caches_give_free_pages(void **state)
{
    struct fleet *f = *state;

    add(f, add(f, NULL, 1, 0), 1, 0);
    others_have(412);
    ok(take(f, 0, 60));
    ok(kvlazy_seq_rm(f->cache[0], 0, 16 * 20, -1));
    expect(take(f, 1, 81), KVLAZY_EBUDGET);
    assert_int_equal(f->r->fake.committed_bytes, 60 * MIB);
    ok(take(f, 1, 70));
    assert_int_equal(f->r->fake.committed_bytes, 90 * MIB);
}

/* A host that keeps no sums: what is linked counts together all the same. */
static void linked_caches_of_a_host_without_sums(void **state)
{
    struct fleet *f = *state;

    table.count = NULL;
    add(f, add(f, NULL, 1, 0), 1, 0);
    others_have(464);
    ok(kvlazy_init_batch(f->cache[0]));
    ok(plan(f, 0, 28));
    expect(plan(f, 1, 28), KVLAZY_EBUDGET);
    ok(kvlazy_end_batch(f->cache[0]));
    ok(take(f, 0, 48));
    expect(take(f, 1, 1), KVLAZY_EBUDGET);
    ok(kvlazy_clear(f->cache[0], true));
    ok(take(f, 1, 48));
    ok(kvlazy_clear(f->cache[1], true));
}

/* Naive: every cache is below a sixteenth of what it saw, and together they take all and more. */
static void caches_of_a_process_count_together(void **state)
{
    struct fleet *f = *state;
    int n_ok = 0, n_refused = 0;

    for (int i = 0; i < CACHES; i++) {
        add(f, NULL, 1, 0);
        ok(take(f, i, 1));
    }
    for (int i = 0; i < CACHES; i++) {
        int status = take(f, i, 30);

        n_ok += status == KVLAZY_OK;
        n_refused += status == KVLAZY_EBUDGET;
    }
    assert_int_equal(n_ok, (512 - CACHES) / 30);
    assert_int_equal(n_ok + n_refused, CACHES);
}

/* The same with plans alone: nothing is there yet that a look could see. */
static void plans_of_a_process_count_together(void **state)
{
    struct fleet *f = *state;
    int n_ok = 0;

    for (int i = 0; i < CACHES; i++) {
        add(f, NULL, 1, 0);
        f->r->fake.now += 50;
        n_ok += plan(f, i, 30) == KVLAZY_OK;
    }
    assert_int_equal(n_ok, 512 / 30);
    for (int i = 0; i < n_ok; i++)
        ok(apply(f, i, 30));
}

/* What was promised comes back on every way a plan can end. */
static void promises_are_taken_back(void **state)
{
    struct fleet *f = *state;
    uint64_t *promised = &f->r->fake.sum[KVLAZY_COUNT_PROMISED];

    add(f, NULL, 1, 0);
    add(f, NULL, 1, 0);
    ok(plan(f, 0, 300));
    ok(plan(f, 0, 200)); /* replaced */
    assert_int_equal(*promised, 200 * MIB);
    expect(plan(f, 0, 513), KVLAZY_ENOSLOT); /* refused */
    assert_int_equal(*promised, 0);
    ok(plan(f, 0, 200));
    ok(kvlazy_init_batch(f->cache[0])); /* another batch */
    assert_int_equal(*promised, 0);
    ok(plan(f, 0, 200));
    ok(kvlazy_end_batch(f->cache[0])); /* not applied */
    assert_int_equal(*promised, 0);
    ok(plan(f, 0, 200));
    ok(apply(f, 0, 200));
    assert_int_equal(*promised, 0); /* it is there now, and a look sees it */
    expect(take(f, 1, 313), KVLAZY_EBUDGET);
    ok(take(f, 1, 312));
    ok(kvlazy_undo_ubatch(f->cache[0], f->slot[0]));
    ok(kvlazy_end_batch(f->cache[0]));
    assert_int_equal(*promised, 0);
    kvlazy_destroy(f->cache[1]);
    f->n = 1;
    ok(kvlazy_clear(f->cache[0], true));
    add(f, NULL, 1, 0);
    ok(plan(f, 1, 250));
    kvlazy_destroy(f->cache[1]); /* with a batch open */
    f->n = 1;
    assert_int_equal(*promised, 0);
    ok(take(f, 0, 256));
}

/* Where pages come when they are written, the engine writes them after apply: until the batch ends no look sees them.
 */
static void what_faults_later_counts_until_the_batch_ends(void **state)
{
    static const uint32_t traits[2] = {0, KVLAZY_HOST_FAULTS};
    static const uint32_t flags[2] = {KVLAZY_NO_COMMIT_AHEAD, 0};
    struct fleet *f = *state;
    uint64_t *sum = f->r->fake.sum;

    fake_complete(&f->r->fake);
    table.traits = f->r->fake.table.traits;
    for (int i = 0; i < 2; i++) {
        f->r->fake.host_traits = traits[i];
        kvlazy_cache *c = add(f, NULL, 1, flags[i]);

        ok(kvlazy_init_batch(c));
        ok(plan(f, i, 100));
        ok(apply(f, i, 50 * 2));
        assert_int_equal(f->r->fake.committed_bytes, 0);
        assert_int_equal(sum[KVLAZY_COUNT_PROMISED], 100 * MIB);
        ok(plan(f, i, 20)); /* on top of what was applied */
        assert_int_equal(sum[KVLAZY_COUNT_PROMISED], 120 * MIB);
        ok(kvlazy_end_batch(c));
        assert_int_equal(sum[KVLAZY_COUNT_PROMISED], 0);
        assert_int_equal(sum[KVLAZY_COUNT_TAKEN], 100 * MIB);
        ok(kvlazy_clear(c, true));
        assert_int_equal(sum[KVLAZY_COUNT_TAKEN], 0);
    }
}

/* Naive: a copy between prepare and apply takes what the plan was promised. */
static void a_copy_takes_nothing_of_a_plan(void **state)
{
    static const uint64_t budgets[2] = {0, 64 * MIB};
    struct fleet *f = *state;

    for (int i = 0; i < 2; i++) {
        f->r->params.n_seq_max = 2;
        f->r->params.budget_bytes = budgets[i];
        kvlazy_cache *c = add(f, NULL, 2, 0);

        others_have(i ? 0 : 512 - 64);
        f->r->fake.now += 100;
        ok(take(f, i, 20));
        ok(kvlazy_init_batch(c));
        ok(plan(f, i, 44));
        expect(kvlazy_seq_cp(c, 0, 1, 0, 16), KVLAZY_EBUDGET);
        ok(apply(f, i, 44));
        ok(kvlazy_end_batch(c));
        ok(kvlazy_seq_rm(c, 0, 16 * 40, -1));
        ok(kvlazy_init_batch(c)); /* and what the plan reckons with as touched stays */
        ok(plan(f, i, 24));
        expect(kvlazy_seq_cp(c, 0, 1, 0, 16), KVLAZY_EBUDGET);
        ok(apply(f, i, 24));
        ok(kvlazy_end_batch(c));
        ok(kvlazy_seq_rm(c, 0, 16 * 40, -1));
        ok(plan(f, i, 20));
        ok(kvlazy_seq_cp(c, 0, 1, 0, 16 * 4)); /* for this there is room, without the cells of the plan */
        ok(apply(f, i, 20));
        ok(kvlazy_end_batch(c));
        assert_int_equal(kvlazy_check(c, NULL), KVLAZY_OK);
        ok(kvlazy_clear(c, true));
    }
}

/* Whatever several caches and other programs do, none is refused by the host itself, where a real one kills. */
static void at_random(void **state)
{
    struct fleet *f = *state;
    uint64_t random = 5;
    int n_refused = 0;

    for (int i = 0; i < 4; i++)
        add(f, i & 1 ? f->cache[i - 1] : NULL, 1, 0);
    for (int i = 0; i < 4000; i++) {
        int at = (int)(next_random(&random) % 4);
        uint32_t mib = 1 + (uint32_t)(next_random(&random) % 60);

        f->r->fake.now += next_random(&random) % 40;
        if (next_random(&random) % 8 == 0)
            ok(kvlazy_seq_rm(f->cache[at], 0, (kvlazy_pos)(next_random(&random) % 4096), -1));
        if (next_random(&random) % 16 == 0)
            ok(kvlazy_trim(f->cache[at], 0) == KVLAZY_EBUSY ? 0 : KVLAZY_OK);
        if (next_random(&random) % 4 == 0)
            ok(kvlazy_end_batch(f->cache[at]));
        int status = plan(f, at, mib);
        if (status == KVLAZY_ENOSLOT)
            ok(kvlazy_seq_rm(f->cache[at], 0, 100, -1));
        else if (status)
            expect(status, KVLAZY_EBUDGET);
        n_refused += status == KVLAZY_EBUDGET;
        if (!status && next_random(&random) % 3)
            ok(apply(f, at, mib));
        assert_in_range(f->r->fake.committed_bytes, 0, 512 * MIB);
    }
    assert_in_range(n_refused, 100, 3900);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(growth_beyond_the_limit_is_refused),
        RIG_TEST(room_tells_it),
        RIG_TEST(when_others_gave_back_it_fits),
        RIG_TEST(free_pages_go_first),
        RIG_TEST(steady_decode_reads_nothing),
        RIG_TEST(it_is_read_ten_times_a_second_at_most),
        RIG_TEST(an_empty_root_reads_nothing),
        RIG_TEST(what_went_back_must_be_asked_for_again),
        FLEET_TEST(an_old_look_does_not_count),
        FLEET_TEST(many_pages_are_worth_a_look),
        FLEET_TEST(a_look_goes_as_far_as_there_is_room),
        FLEET_TEST(linked_caches_count_together),
        FLEET_TEST(linked_caches_give_free_pages),
        FLEET_TEST(linked_caches_of_a_host_without_sums),
        FLEET_TEST(caches_of_a_process_count_together),
        FLEET_TEST(plans_of_a_process_count_together),
        FLEET_TEST(promises_are_taken_back),
        FLEET_TEST(what_faults_later_counts_until_the_batch_ends),
        FLEET_TEST(a_copy_takes_nothing_of_a_plan),
        FLEET_TEST(at_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
