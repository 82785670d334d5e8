/* SPDX-License-Identifier: MIT */
/*
 * Sixteen threads, each with caches of its own, in one pool that is too small for all of them, over the real host; an
 * idle side that polls every cache; and a sampler. Between rounds all threads stand still and the figures must agree to
 * the byte. Made for the thread sanitizer as well. KVLAZY_TEST_SECONDS says how long.
 */
#define _DEFAULT_SOURCE
#include "pool_world.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <kvlazy/arena.h>

#include "unit.h"

/* ---- the idle side: the reaper, and a thread that polls all without asking when ---- */

static void *idle_side(void *arg)
{
    (void)arg;
    while (!atomic_load(&all.stop)) {
        for (struct place *p = all.place; p < all.place + N_SLOT && !atomic_load(&all.round_over); p++) {
            pthread_rwlock_rdlock(&p->gone);
            kvlazy_cache *cache = atomic_load(&p->cache);
            int status = cache && p->kind != ENGINE_CELLS ? kvlazy_poll(cache, NULL) : KVLAZY_OK;
            pthread_rwlock_unlock(&p->gone);
            if (status && status != KVLAZY_EBUSY)
                wrong("poll", status);
            sched_yield();
        }
        if (atomic_load(&all.round_over)) {
            pthread_barrier_wait(&all.barrier);
            pthread_barrier_wait(&all.barrier);
        }
    }
    return NULL;
}

/* ---- what a thread does with its caches ---- */

static unsigned char byte_of(const struct place *p, kvlazy_pos pos)
{
    return (unsigned char)(p->serial * 31 + (uint64_t)pos * 7 + 1) | 1;
}

static unsigned char *row(const struct place *p, uint32_t stream, uint32_t cell)
{
    return (unsigned char *)p->k.data + stream * p->k.stream_stride + cell * p->k.cell_stride;
}

/* Every live row is as it was written; a batch is open. */
static void verify(struct place *p, kvlazy_cache *cache)
{
    for (uint32_t s = 0; s < (p->kind == STREAMS ? N_SEQ : 1); s++) {
        kvlazy_cells_view view = {.struct_size = sizeof view};

        if (kvlazy_cells(cache, s, &view))
            wrong("cells", 0);
        for (uint32_t c = 0; c < view.n_cell; c++) {
            const unsigned char *at = row(p, s, c);

            if (view.pos[c] >= 0 && (at[0] != byte_of(p, view.pos[c]) || at[ROW_BYTES - 1] != byte_of(p, view.pos[c])))
                wrong("bytes of a live row", 0);
        }
    }
}

static bool is_refusal(int status)
{
    return status == KVLAZY_EBUDGET || status == KVLAZY_ENOSLOT;
}

static void batch(struct worker *w, struct place *p, kvlazy_cache *cache, kvlazy_seq_id id, bool apply)
{
    kvlazy_pos pos[MAX_TOKENS];
    kvlazy_seq_id seq[MAX_TOKENS];
    kvlazy_ubatch u = {.n_token = 1 + (uint32_t)(next_random(&w->rng) % MAX_TOKENS), .pos = pos, .seq = seq};
    kvlazy_slot slot;

    kvlazy_init_batch(cache);
    kvlazy_pos max = kvlazy_seq_pos_max(cache, id);
    if (max < 0 && kvlazy_seq_rm(cache, id, -1, -1)) /* eviction may have emptied it */
        wrong("seq_rm", 0);
    for (uint32_t i = 0; i < u.n_token; i++) {
        pos[i] = max + 1 + (kvlazy_pos)i;
        seq[i] = id;
    }
    int status = kvlazy_prepare(cache, &u, 1, &slot);
    w->n_batch++;
    w->n_refused += is_refusal(status);
    if (status && !is_refusal(status))
        wrong("prepare", status);
    if (!status && apply) {
        status = kvlazy_apply_ubatch(cache, &slot, &u);
        if (status)
            wrong("apply", status);
        for (uint32_t i = 0; !status && i < u.n_token; i++)
            memset(row(p, slot.stream[i], slot.cell[i]), byte_of(p, pos[i]), ROW_BYTES);
        if (next_random(&w->rng) % 4 == 0)
            verify(p, cache);
    }
    kvlazy_end_batch(cache);
}

static void touch_more(struct worker *w, struct place *p, kvlazy_cache *cache)
{
    uint32_t s = (uint32_t)(next_random(&w->rng) % N_SEQ), end = (uint32_t)(next_random(&w->rng) % (KV_SIZE / 2));

    if (next_random(&w->rng) % 3 == 0)
        p->table_end[s] = 0; /* the engine dropped it */
    kvlazy_init_batch(cache);
    int status = kvlazy_touch(cache, s, end);
    w->n_batch++;
    w->n_refused += status == KVLAZY_EBUDGET;
    if (status && status != KVLAZY_EBUDGET)
        wrong("touch", status);
    if (!status && end > p->table_end[s])
        p->table_end[s] = end;
    for (uint32_t c = 0; !status && c < end; c += 8)
        row(p, s, c)[0] = 1;
    kvlazy_end_batch(cache);
    kvlazy_poll(cache, NULL);
}

static void look(struct place *p, kvlazy_cache *cache)
{
    char text[64];
    size_t needed = 0;
    uint64_t bytes;
    const char *reason = NULL;

    if (kvlazy_stats_text(cache, text, sizeof text, &needed) || needed <= sizeof text)
        wrong("stats_text", 0);
    if (kvlazy_resident(cache, &bytes))
        wrong("resident", 0);
    if (kvlazy_check(cache, &reason))
        wrong(reason, KVLAZY_ESTATE);
    if (p->kind != ENGINE_CELLS && kvlazy_room(cache, 0) > KV_SIZE)
        wrong("room", 0);
}

static void change_limits(struct worker *w, kvlazy_cache *cache)
{
    uint64_t budget = next_random(&w->rng) % 2 ? 0 : (10 + next_random(&w->rng) % 40) * all.page;
    int status = kvlazy_set_limits(cache, UINT32_MAX, UINT32_MAX, budget);

    if (status && status != KVLAZY_EBUSY && status != KVLAZY_EBUDGET)
        wrong("set_limits", status);
}

static void trim(struct worker *w, kvlazy_cache *cache)
{
    int status = kvlazy_trim(cache, (uint32_t)(next_random(&w->rng) % 3) * 60);

    if (status && status != KVLAZY_EBUSY)
        wrong("trim", status);
}

static void copy(struct worker *w, kvlazy_cache *cache, kvlazy_seq_id id)
{
    int status = kvlazy_seq_cp(cache, id, (kvlazy_seq_id)(next_random(&w->rng) % N_SEQ), -1, -1);

    if (status && !is_refusal(status))
        wrong("seq_cp", status);
}

static void drop(struct worker *w, kvlazy_cache *cache, kvlazy_seq_id id)
{
    kvlazy_pos from = next_random(&w->rng) % 2 ? 0 : kvlazy_seq_pos_max(cache, id) / 2;

    if (kvlazy_seq_rm(cache, id, from, -1))
        wrong("seq_rm", 0);
}

static void one_op(struct worker *w, struct place *p)
{
    kvlazy_cache *cache = atomic_load(&p->cache);
    kvlazy_seq_id id = (kvlazy_seq_id)(next_random(&w->rng) % N_SEQ);
    uint64_t dice = next_random(&w->rng) % 256;

    if (!cache || dice < 1) {
        close_place(p);
        open_place(p);
        w->n_created += atomic_load(&p->cache) != NULL;
    } else if (dice < 6) {
        look(p, cache);
    } else if (p->kind == ENGINE_CELLS) {
        touch_more(w, p, cache);
    } else if (dice < 16) {
        trim(w, cache);
    } else if (dice < 24) {
        change_limits(w, cache);
    } else if (dice < 48) {
        copy(w, cache, id);
    } else if (dice < 104) {
        drop(w, cache, id);
    } else {
        batch(w, p, cache, id, dice % 8 != 0);
    }
    w->n_op++;
}

static void *work(void *arg)
{
    struct worker *w = arg;

    while (!atomic_load(&all.stop)) {
        one_op(w, &w->own[next_random(&w->rng) % N_OWN]);
        if (next_random(&w->rng) % 16 == 0)
            atomic_fetch_add(&all.now, 1);
        if (atomic_load(&all.round_over)) {
            pthread_barrier_wait(&all.barrier);
            pthread_barrier_wait(&all.barrier);
        }
    }
    return NULL;
}

/* ---- the sampler ---- */

static uint64_t real_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static kvlazy_pool_info pool_stats(void)
{
    kvlazy_pool_info info = {.struct_size = sizeof info};

    if (kvlazy_pool_stats(all.pool, &info))
        wrong("pool_stats", 0);
    return info;
}

static void sample(void)
{
    kvlazy_pool_info info = pool_stats();

    atomic_fetch_add(&all.n_sample, 1);
    if (info.taken_bytes > info.budget_bytes || atomic_load(&all.committed) > atomic_load(&all.ceiling))
        atomic_fetch_add(&all.n_over, 1);
    if (info.min_bytes > info.budget_bytes)
        wrong("minima above the pool", 0);
}

/* While some cache gets more, another has it no longer: one after the other they are no sum, but each must make sense.
 */
static void sample_caches(void)
{
    for (struct place *p = all.place; p < all.place + N_SLOT; p++) {
        kvlazy_stats_info info = {.struct_size = sizeof info};

        pthread_rwlock_rdlock(&p->gone);
        kvlazy_cache *cache = p->kind == ENGINE_CELLS ? NULL : atomic_load(&p->cache);
        if (cache && (kvlazy_stats(cache, &info) || info.touched_bytes > atomic_load(&all.ceiling) ||
                      info.touched_bytes > info.reserved_bytes))
            wrong("stats", 0);
        pthread_rwlock_unlock(&p->gone);
        sample();
    }
}

/* All threads stand still, and no batch is open. */
static void settled(void)
{
    uint64_t sum = 0;

    for (struct place *p = all.place; p < all.place + N_SLOT; p++) {
        kvlazy_stats_info info = {.struct_size = sizeof info};
        kvlazy_cache *cache = atomic_load(&p->cache);

        if (cache && (kvlazy_stats(cache, &info) || kvlazy_check(cache, NULL)))
            wrong("a cache at rest", 0);
        sum += info.touched_bytes;
    }
    if (sum != pool_stats().taken_bytes || sum != atomic_load(&all.committed)) {
        print_error("touched %llu, taken %llu, committed %llu\n", (unsigned long long)sum,
                    (unsigned long long)pool_stats().taken_bytes, (unsigned long long)atomic_load(&all.committed));
        wrong("sums at rest", 0);
    }
    if (sum > pool_stats().budget_bytes)
        atomic_fetch_add(&all.n_over, 1);
}

/* The old ceiling holds until the new one does. */
static void change_budget(uint64_t pages)
{
    uint64_t old = atomic_load(&all.ceiling), bytes = pages * all.page;

    atomic_fetch_add(&all.n_ceiling, 1);
    atomic_store(&all.ceiling, bytes > old ? bytes : old);
    atomic_fetch_add(&all.n_ceiling, 1);
    int status = kvlazy_pool_set_budget(all.pool, bytes);
    if (status && status != KVLAZY_EBUDGET)
        wrong("pool_set_budget", status);
    atomic_fetch_add(&all.n_ceiling, 1); /* a comparison with either now does not know which */
    atomic_store(&all.ceiling, pool_stats().budget_bytes);
    atomic_fetch_add(&all.n_ceiling, 1);
}

static void new_reaper(void)
{
    assert_int_equal(kvlazy_reaper_create("", &all.reaper), KVLAZY_OK);
}

static void one_round(uint64_t *rng)
{
    uint64_t end = real_ms() + ROUND_MS;

    while (real_ms() < end) {
        sample_caches();
        if (next_random(rng) % 8 == 0)
            change_budget(400 + next_random(rng) % 200);
        sched_yield();
    }
    atomic_store(&all.round_over, true);
    pthread_barrier_wait(&all.barrier);
    kvlazy_reaper_destroy(all.reaper);
    settled();
    new_reaper();
    for (struct place *p = all.place; p < all.place + N_SLOT; p++)
        if (atomic_load(&p->cache))
            watch(p, atomic_load(&p->cache));
    atomic_store(&all.round_over, false);
    pthread_barrier_wait(&all.barrier);
}

/* ---- all of it ---- */

static enum kind kind_of(int thread, int own)
{
    if (thread % 4 == 2)
        return LINKED;
    return thread % 4 == 1 && own ? ENGINE_CELLS : thread % 4 == 3 ? STREAMS : UNIFIED;
}

static void prepare_world(void)
{
    all.page = kvlazy_mem_host()->page_bytes(NULL);
    atomic_store(&all.now, 1000);
    atomic_store(&all.ceiling, 500 * all.page);
    assert_int_equal(kvlazy_pool_create(500 * all.page, &all.pool), KVLAZY_OK);
    new_reaper();
    assert_int_equal(pthread_barrier_init(&all.barrier, NULL, N_THREAD + 2), 0);
    for (int i = 0; i < N_SLOT; i++) {
        struct place *p = &all.place[i];

        pthread_rwlock_init(&p->gone, NULL);
        p->kind = kind_of(i / N_OWN, i % N_OWN);
        p->with = p->kind == LINKED ? &all.place[i ^ 1] : NULL;
        make_table(p);
        open_place(p);
    }
    for (int i = 0; i < N_THREAD; i++)
        all.worker[i] = (struct worker){.own = &all.place[i * N_OWN], .rng = (uint64_t)i + 1};
}

static void end_world(void)
{
    for (int i = 0; i < N_SLOT; i++) {
        close_place(&all.place[i]);
        pthread_rwlock_destroy(&all.place[i].gone);
    }
    assert_int_equal(pool_stats().taken_bytes + pool_stats().min_bytes + pool_stats().n_cache, 0);
    assert_int_equal(atomic_load(&all.committed), 0);
    assert_int_equal(kvlazy_pool_destroy(all.pool), KVLAZY_OK);
    pthread_barrier_destroy(&all.barrier);
}

static uint64_t test_seconds(void)
{
    const char *text = getenv("KVLAZY_TEST_SECONDS");
    long n = text ? strtol(text, NULL, 10) : 0;

    return n > 0 ? (uint64_t)n : 5;
}

static void report(void)
{
    struct worker sum = {0};
    kvlazy_pool_info info = pool_stats();

    for (struct worker *w = all.worker; w < all.worker + N_THREAD; w++) {
        sum.n_op += w->n_op;
        sum.n_batch += w->n_batch;
        sum.n_refused += w->n_refused;
        sum.n_created += w->n_created;
    }
    print_message("operations %llu, batches %llu (refused %llu), caches created anew %llu, reclaims %llu (%llu KiB), "
                  "samples %llu, most committed %llu KiB, overruns %llu\n",
                  (unsigned long long)sum.n_op, (unsigned long long)sum.n_batch, (unsigned long long)sum.n_refused,
                  (unsigned long long)sum.n_created, (unsigned long long)info.n_reclaim,
                  (unsigned long long)info.reclaimed_bytes / 1024, (unsigned long long)atomic_load(&all.n_sample),
                  (unsigned long long)atomic_load(&all.most) / 1024, (unsigned long long)atomic_load(&all.n_over));
    assert_true(sum.n_batch > sum.n_refused && sum.n_refused > 0 && sum.n_created > 0 && info.reclaimed_bytes > 0);
}

static void sixteen_threads_share_a_pool(void **state)
{
    pthread_t thread[N_THREAD], idle;
    uint64_t end, rng = 99;

    (void)state;
    prepare_world();
    for (int i = 0; i < N_THREAD; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, &all.worker[i]), 0);
    assert_int_equal(pthread_create(&idle, NULL, idle_side, NULL), 0);
    for (end = real_ms() + 1000 * test_seconds(); real_ms() < end;)
        one_round(&rng);
    atomic_store(&all.stop, true);
    for (int i = 0; i < N_THREAD; i++)
        pthread_join(thread[i], NULL);
    pthread_join(idle, NULL);
    kvlazy_reaper_destroy(all.reaper);
    settled();
    report();
    end_world();
    assert_int_equal(atomic_load(&all.n_over), 0);
    assert_int_equal(atomic_load(&all.n_wrong), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sixteen_threads_share_a_pool)};

    alarm((unsigned)test_seconds() + 150);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
