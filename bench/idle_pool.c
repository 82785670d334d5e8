/* SPDX-License-Identifier: MIT */
/*
 * Budgets across caches under threads: four threads, each with a cache of its own in one pool of half of what they
 * could touch together, do whatever an engine does, at random, for some seconds, while the main thread samples. What
 * all took is one number of the pool. The sum of what the caches touched is one only if no cache changed while they
 * were asked, so those samples are taken twice and count where both agree. Then what two greedy caches get of a pool,
 * by weight and minimum.
 */
#include "idle.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <kvlazy/pool.h>

enum {
    THREADS = 4,
    SEQUENCES = 8,
    SECONDS = 5,
    POOL_MIB = 128,
};

struct worker {
    struct idle_rig rig;
    pthread_t thread;
    uint64_t seed, n_op, n_refused;
    atomic_bool *stop;
    char why[160]; /* "": all is well */
};

struct samples {
    uint64_t n, n_sum, n_over, most_bytes;
};

static void geometry_of(struct bench_config *geometry)
{
    bench_config_default(geometry);
    geometry->n_layer = 4;
    geometry->n_slot = 1;
    geometry->kv_size = 4096;
    geometry->kv_initial = 256;
    geometry->idle_ms = 20;
}

/* ------------------------------------------------------------------------------------------------------
 * Workers
 */

/* The tokens go on where the sequence ends once a batch is open: until then others may take from its end. */
static int put_some(struct worker *worker, kvlazy_seq_id seq, uint32_t n)
{
    struct idle_rig *rig = &worker->rig;
    int status = kvlazy_init_batch(rig->cache);
    kvlazy_pos from = kvlazy_seq_pos_max(rig->cache, seq) + 1;
    for (uint32_t i = 0; i < n; i++) {
        rig->pos[i] = from + (kvlazy_pos)i;
        rig->seq[i] = seq;
    }
    kvlazy_slot slot;
    kvlazy_ubatch ubatch = {.n_token = n, .pos = rig->pos, .seq = rig->seq};
    status = status == KVLAZY_OK ? kvlazy_prepare(rig->cache, &ubatch, 1, &slot) : status;
    status = status == KVLAZY_OK ? kvlazy_apply_ubatch(rig->cache, &slot, &ubatch) : status;
    kvlazy_end_batch(rig->cache);
    return status;
}

static int work(struct worker *worker)
{
    kvlazy_cache *cache = worker->rig.cache;
    kvlazy_seq_id seq = (kvlazy_seq_id)idle_random(&worker->seed, SEQUENCES);
    switch (idle_random(&worker->seed, 16)) {
    case 0:
        return kvlazy_seq_rm(cache, seq, -1, -1);
    case 1:
        return kvlazy_seq_rm(cache, seq, (kvlazy_pos)idle_random(&worker->seed, 512), -1);
    case 2:
        return kvlazy_seq_cp(cache, (seq + 1) % SEQUENCES, seq, -1, -1);
    case 3:
        return kvlazy_poll(cache, &(uint64_t){0});
    case 4:
        return idle_random(&worker->seed, 64) == 0 ? kvlazy_trim(cache, 0) : KVLAZY_OK;
    case 5:
    case 6:
    case 7:
        return put_some(worker, seq, 1 + idle_random(&worker->seed, IDLE_UBATCH));
    case 8:
        idle_nap_us(idle_random(&worker->seed, 1000)); /* without a pause no cache would ever idle */
        return KVLAZY_OK;
    default:
        return put_some(worker, seq, 1);
    }
}

static void *worker_run(void *ctx)
{
    struct worker *worker = ctx;
    while (!atomic_load(worker->stop)) {
        int status = work(worker);
        worker->n_op++;
        if (status == KVLAZY_EBUDGET || status == KVLAZY_ENOSLOT) {
            worker->n_refused++;
            status = kvlazy_seq_rm(worker->rig.cache, (kvlazy_seq_id)idle_random(&worker->seed, SEQUENCES), -1, -1);
        } else if (status == KVLAZY_EPOS) { /* eviction took all of a sequence: it begins anew */
            for (kvlazy_seq_id s = 0; s < SEQUENCES; s++) {
                if (kvlazy_seq_pos_max(worker->rig.cache, s) < 0) {
                    kvlazy_seq_rm(worker->rig.cache, s, -1, -1);
                }
            }
            status = KVLAZY_OK;
        }
        if (status != KVLAZY_OK && status != KVLAZY_EBUSY) {
            snprintf(worker->why, sizeof(worker->why), "a worker: %s", kvlazy_status_name(status));
            break;
        }
    }
    return NULL;
}

/* ------------------------------------------------------------------------------------------------------
 * The sampler
 */
struct look {
    uint64_t touched_bytes, released_bytes, n_commit;
};

static void look_at(const struct worker *worker, struct look *look)
{
    kvlazy_stats_info info = {.struct_size = sizeof(info)};
    kvlazy_stats(worker->rig.cache, &info);
    *look = (struct look){info.touched_bytes, info.released_bytes, info.commit.n};
}

static void sample(kvlazy_pool *pool, const struct worker *worker, struct samples *samples)
{
    kvlazy_pool_info info = {.struct_size = sizeof(info)};
    struct look first[THREADS], second[THREADS];
    uint64_t sum_bytes = 0;
    kvlazy_pool_stats(pool, &info);
    for (int i = 0; i < THREADS; i++) {
        look_at(&worker[i], &first[i]);
        sum_bytes += first[i].touched_bytes;
    }
    for (int i = 0; i < THREADS; i++) {
        look_at(&worker[i], &second[i]);
    }
    bool still = memcmp(first, second, sizeof(first)) == 0;
    samples->n++;
    samples->n_sum += still;
    samples->n_over += info.taken_bytes > info.budget_bytes || (still && sum_bytes > info.budget_bytes);
    samples->most_bytes = info.taken_bytes > samples->most_bytes ? info.taken_bytes : samples->most_bytes;
}

/* ------------------------------------------------------------------------------------------------------
 * All together
 */
static int worker_open(struct worker *worker, int i, kvlazy_pool *pool, atomic_bool *stop)
{
    struct bench_config geometry;
    geometry_of(&geometry);
    *worker = (struct worker){.seed = (uint64_t)i + 1, .stop = stop};
    idle_init(&worker->rig, &geometry, SEQUENCES, false);
    worker->rig.params.pool = pool;
    worker->rig.params.pool_min_bytes = (uint64_t)i << 22;
    worker->rig.params.pool_weight = (uint32_t)i + 1;
    return idle_create(&worker->rig);
}

static int workers_run(struct worker *worker, kvlazy_pool *pool, atomic_bool *stop, struct samples *samples)
{
    int n = 0, error = 0;
    while (n < THREADS && (error = pthread_create(&worker[n].thread, NULL, worker_run, &worker[n])) == 0) {
        n++;
    }
    uint64_t end_ns = bench_now_ns() + SECONDS * UINT64_C(1000000000);
    while (n == THREADS && bench_now_ns() < end_ns) {
        sample(pool, worker, samples);
        idle_nap_us(50);
    }
    atomic_store(stop, true);
    for (int i = 0; i < n; i++) {
        pthread_join(worker[i].thread, NULL);
    }
    return n == THREADS ? 0 : bench_error("pthread_create: %s", strerror(error));
}

static int overruns_report(const struct bench_config *config, const struct worker *worker, kvlazy_pool *pool,
                           const struct samples *samples)
{
    kvlazy_pool_info info = {.struct_size = sizeof(info)};
    uint64_t n_op = 0, n_refused = 0;
    for (int i = 0; i < THREADS; i++) {
        if (worker[i].why[0] != '\0') {
            return bench_error("pool_budget_overruns: %s", worker[i].why);
        }
        n_op += worker[i].n_op;
        n_refused += worker[i].n_refused;
    }
    kvlazy_pool_stats(pool, &info);
    struct figure figure = {.key = "pool_budget_overruns",
                            .value = (double)samples->n_over,
                            .what = "pool of 4 threads: samples over the budget",
                            .wanted = "0"};
    snprintf(figure.ours, sizeof(figure.ours), "of %zu, sums of %zu", (size_t)samples->n, (size_t)samples->n_sum);
    snprintf(figure.other, sizeof(figure.other), "%.3g operations, most %.1f of %d MiB", (double)n_op,
             (double)samples->most_bytes / (1 << 20), POOL_MIB);
    report_figure(config, &figure);
    struct figure asked = {NULL, (double)info.n_reclaim, 0, "  times others were asked", "", "", NULL};
    snprintf(asked.ours, sizeof(asked.ours), "%zu refused", (size_t)n_refused);
    snprintf(asked.other, sizeof(asked.other), "%.0f MiB came from others", (double)info.reclaimed_bytes / (1 << 20));
    report_figure(config, &asked);
    return 0;
}

static int pool_overruns(const struct bench_config *config)
{
    static struct worker worker[THREADS];
    struct samples samples = {0};
    kvlazy_pool *pool = NULL;
    atomic_bool stop = false;
    int n = 0, status = kvlazy_pool_create((uint64_t)POOL_MIB << 20, &pool);
    status = status == KVLAZY_OK ? 0 : idle_error("kvlazy_pool_create", status);
    while (status == 0 && n < THREADS) {
        status = worker_open(&worker[n], n, pool, &stop);
        n += status == 0;
    }
    status = status == 0 ? workers_run(worker, pool, &stop, &samples) : status;
    status = status == 0 ? overruns_report(config, worker, pool, &samples) : status;
    while (n > 0) {
        idle_close(&worker[--n].rig);
    }
    kvlazy_pool_destroy(pool);
    return status;
}

/* ------------------------------------------------------------------------------------------------------
 * Shares
 */

/* A cache takes what it can get, and then idles. */
static int share_open(struct idle_rig *rig, const struct bench_config *geometry, kvlazy_pool *pool, uint32_t min_mib,
                      uint32_t weight)
{
    idle_init(rig, geometry, 1, false);
    rig->params.pool = pool;
    rig->params.pool_min_bytes = (uint64_t)min_mib << 20;
    rig->params.pool_weight = weight;
    if (idle_create(rig) != 0) {
        return -1;
    }
    int status = KVLAZY_OK;
    while (status == KVLAZY_OK) {
        status = idle_put(rig, 0, 64, 64, false);
    }
    idle_nap_us(2000 * geometry->idle_ms);
    if (status == KVLAZY_EBUDGET) {
        return 0;
    }
    idle_close(rig);
    return idle_error("filling a cache", status);
}

static void share_report(const struct bench_config *config, const struct idle_rig *rig, uint32_t min_mib,
                         uint32_t weight)
{
    char what[80];
    snprintf(what, sizeof(what), "  min %u MiB, weight %u: what it keeps, MiB", min_mib, weight);
    struct figure figure = {NULL, (double)idle_touched(&rig[0]) / (1 << 20), 1, what, "", "", NULL};
    snprintf(figure.ours, sizeof(figure.ours), "the other gets %.1f", (double)idle_touched(&rig[1]) / (1 << 20));
    snprintf(figure.other, sizeof(figure.other), "of %d MiB; the other: min 0, weight 1", POOL_MIB);
    report_figure(config, &figure);
}

/* Two caches that each want more than the pool has, one after the other. */
static int shares(const struct bench_config *config, uint32_t min_mib, uint32_t weight)
{
    static struct idle_rig rig[2];
    struct bench_config geometry;
    kvlazy_pool *pool = NULL;
    geometry_of(&geometry);
    geometry.kv_size = 2 * POOL_MIB * 64; /* 16 KiB a cell: twice the pool */
    geometry.kv_initial = 0;
    int status = kvlazy_pool_create((uint64_t)POOL_MIB << 20, &pool);
    if (status != KVLAZY_OK) {
        return idle_error("kvlazy_pool_create", status);
    }
    status = share_open(&rig[0], &geometry, pool, min_mib, weight);
    if (status == 0) {
        status = share_open(&rig[1], &geometry, pool, 0, 1);
        if (status == 0) {
            share_report(config, rig, min_mib, weight);
            idle_close(&rig[1]);
        }
        idle_close(&rig[0]);
    }
    kvlazy_pool_destroy(pool);
    return status;
}

int idle_pool(const struct bench_config *config)
{
    static const uint32_t min_mib[] = {0, 32, 0}, weight[] = {1, 1, 3};
    int status = pool_overruns(config);
    for (size_t i = 0; status == 0 && i < sizeof(weight) / sizeof(weight[0]); i++) {
        status = shares(config, min_mib[i], weight[i]);
    }
    return status;
}
