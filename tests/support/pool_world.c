/* SPDX-License-Identifier: MIT */
/* The places of pool_world.h, and the host that is watched under each. */
#define _DEFAULT_SOURCE
#include "pool_world.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

struct world all;

void wrong(const char *what, int status)
{
    if (atomic_fetch_add(&all.n_wrong, 1) < 10)
        print_error("wrong: %s (%s)\n", what, kvlazy_status_name(status));
}

/* ---- the host, watched ---- */

static void *watched_reserve(void *ctx, size_t bytes, uint32_t flags)
{
    struct place *p = ctx;
    void *addr = kvlazy_mem_host()->reserve(ctx, bytes, flags);

    for (int i = 0; addr && i < N_MAP; i++)
        if (!p->map[i].addr) {
            p->map[i] = (struct map){addr, bytes, calloc(bytes / all.page + 1, 1)};
            return addr;
        }
    return addr;
}

static struct map *map_of(struct place *p, const void *addr)
{
    for (int i = 0; i < N_MAP; i++)
        if (p->map[i].addr && (const char *)addr >= p->map[i].addr &&
            (const char *)addr < p->map[i].addr + p->map[i].bytes)
            return &p->map[i];
    wrong("an address of no reservation", 0);
    return NULL;
}

/* Marks pages, and returns the bytes that changed. */
static uint64_t mark(struct place *p, const kvlazy_range *range, size_t n_range, bool in)
{
    uint64_t n = 0;

    for (size_t i = 0; i < n_range; i++) {
        struct map *map = map_of(p, range[i].addr);
        size_t first = map ? (size_t)((char *)range[i].addr - map->addr) / all.page : 0;

        for (size_t k = 0; map && k < range[i].bytes / all.page; k++) {
            n += map->state[first + k] != in;
            map->state[first + k] = in;
        }
    }
    return n * all.page;
}

/* No thread holds the lock of the pool over a call of the host: else this would wait for ever. */
static void look_at_the_pool(void)
{
    kvlazy_pool_info info = {.struct_size = sizeof info};

    if (kvlazy_pool_stats(all.pool, &info) || info.taken_bytes > info.budget_bytes)
        atomic_fetch_add(&all.n_over, 1);
}

static int watched_commit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    uint64_t more = mark(ctx, range, n_range, true), n_ceiling = atomic_load(&all.n_ceiling);
    uint64_t now = atomic_fetch_add(&all.committed, more) + more, most = atomic_load(&all.most);

    if (now > atomic_load(&all.ceiling) && n_ceiling == atomic_load(&all.n_ceiling))
        atomic_fetch_add(&all.n_over, 1);
    look_at_the_pool();
    while (now > most && !atomic_compare_exchange_weak(&all.most, &most, now))
        ;
    return kvlazy_mem_host()->commit(ctx, range, n_range);
}

static size_t watched_decommit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    size_t n = kvlazy_mem_host()->decommit(ctx, range, n_range);

    look_at_the_pool();

    atomic_fetch_sub(&all.committed, mark(ctx, range, n, false));
    return n;
}

static int watched_unreserve(void *ctx, void *addr, size_t bytes)
{
    struct map *map = map_of(ctx, addr);
    int error = kvlazy_mem_host()->unreserve(ctx, addr, bytes);

    if (map) {
        atomic_fetch_sub(&all.committed, mark(ctx, &(kvlazy_range){addr, bytes}, 1, false));
        free(map->state);
        *map = (struct map){0};
    }
    return error;
}

static uint64_t clock_by_hand(void *ctx)
{
    (void)ctx;
    return atomic_load(&all.now);
}

void make_table(struct place *p)
{
    p->table = *kvlazy_mem_host();
    p->table.ctx = p;
    p->table.reserve = watched_reserve;
    p->table.unreserve = watched_unreserve;
    p->table.commit = watched_commit;
    p->table.decommit = watched_decommit;
    p->table.now_ms = clock_by_hand;
    p->table.set_writable = NULL;
    p->table.headroom = NULL;
    p->table.granted = NULL; /* one size for all caches */
}

/* ---- caches ---- */

/* Asked on whatever thread lacks memory: it looks around, and keeps now and then. */
static int on_evict(void *ctx, kvlazy_seq_id seq, kvlazy_pos pos)
{
    struct place *p = ctx;
    kvlazy_cache *cache = atomic_load(&p->cache);
    kvlazy_stats_info info = {.struct_size = sizeof info};

    if (seq < 0 || seq >= N_SEQ || pos < -1)
        wrong("on_evict is asked nonsense", seq);
    if (cache && kvlazy_stats(cache, &info))
        wrong("stats inside on_evict", 0);
    if (pos % 3 == 0)
        sched_yield(); /* a hook may get in between */
    return pos % 8 == 1;
}

static uint32_t used_end(void *ctx, uint32_t stream)
{
    return ((struct place *)ctx)->table_end[stream];
}

void watch(struct place *p, kvlazy_cache *cache)
{
    int status = p->kind == ENGINE_CELLS ? KVLAZY_OK : kvlazy_reaper_add(all.reaper, cache);

    if (status && (status != KVLAZY_EINVAL || p->kind != LINKED))
        wrong("reaper_add", status);
}

void open_place(struct place *p)
{
    kvlazy_layer layer = {.id = 0, .k_row_bytes = ROW_BYTES};
    kvlazy_cell_ops ops = {.struct_size = sizeof ops, .ctx = p, .used_end = used_end};
    kvlazy_params params;
    kvlazy_cache *cache = NULL;
    uint64_t i = (uint64_t)(p - all.place);

    kvlazy_params_init(&params);
    params.kv_size = KV_SIZE;
    params.kv_size_initial = i % 3 ? 0 : 100;
    params.n_seq_max = N_SEQ;
    params.n_stream = p->kind == STREAMS || p->kind == ENGINE_CELLS ? N_SEQ : 1;
    params.slot_shrink_idle_ms = IDLE_MS;
    params.layers = &layer;
    params.n_layer = 1;
    params.mem = &p->table;
    params.pool = all.pool;
    params.pool_min_bytes = i % 4 * 2 * all.page;
    params.pool_weight = 1 + (uint32_t)(i % 3);
    params.host_root = "";
    params.cell_ops = p->kind == ENGINE_CELLS ? &ops : NULL;
    params.with = p->with ? atomic_load(&p->with->cache) : NULL;
    params.on_evict = i % 2 || p->kind == LINKED ? on_evict : NULL;
    params.evict_ctx = p;
    memset(p->table_end, 0, sizeof p->table_end);
    p->serial++;
    int status = kvlazy_create(&params, &cache);
    if (status == KVLAZY_EBUDGET)
        return; /* its minimum is not there now */
    if (status || kvlazy_k(cache, 0, &p->k))
        wrong("create", status);
    atomic_store(&p->cache, cache);
    watch(p, cache);
}

void close_place(struct place *p)
{
    pthread_rwlock_wrlock(&p->gone);
    kvlazy_cache *cache = atomic_exchange(&p->cache, NULL);
    kvlazy_destroy(cache);
    pthread_rwlock_unlock(&p->gone);
}
