/* SPDX-License-Identifier: MIT */
/* Worlds of caches in one pool: see pool_support.h. */
#define _DEFAULT_SOURCE
#include "pool_support.h"

#include <stdlib.h>
#include <string.h>

#include <kvlazy/pool.h>

/* ---- the host ---- */

struct watched_host host;

/* Nobody holds the lock of the pool over a call of the host: else this would wait for ever. */
static void look_at_the_pool(void)
{
    kvlazy_pool_info info = {.struct_size = sizeof info};

    if (host.pool)
        kvlazy_pool_stats(host.pool, &info);
}

static int watched_unreserve(void *ctx, void *addr, size_t bytes)
{
    look_at_the_pool();
    return host.fake.unreserve(ctx, addr, bytes);
}

static uint64_t watched_now(void *ctx)
{
    look_at_the_pool();
    return host.fake.now_ms(ctx);
}

static int watched_commit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    look_at_the_pool();
    int status = host.fake.commit(ctx, range, n_range);

    host.n_over += host.budget && ((struct fake_mem *)ctx)->committed_bytes > host.budget;
    return status;
}

static size_t watched_decommit(void *ctx, const kvlazy_range *range, size_t n_range)
{
    void (*run)(void) = host.in_decommit;

    look_at_the_pool();
    host.in_decommit = NULL;
    if (run)
        run();
    return host.fake.decommit(ctx, range, n_range);
}

/* ---- a world ---- */

kvlazy_pool_info pool_stats(struct world *w)
{
    kvlazy_pool_info info = {.struct_size = sizeof info};

    ok(kvlazy_pool_stats(w->pool, &info));
    return info;
}

uint64_t taken_pages(struct world *w)
{
    return pool_stats(w).taken_bytes / PAGE;
}

uint64_t touched_pages(struct rig *r)
{
    return stats(r).touched_bytes / PAGE;
}

struct world *world_new(uint64_t budget_pages)
{
    struct world *w = calloc(1, sizeof *w);

    assert_non_null(w);
    ok(kvlazy_pool_create(budget_pages * PAGE, &w->pool));
    memset(&host, 0, sizeof host);
    host.budget = budget_pages * PAGE;
    host.pool = w->pool;
    return w;
}

struct rig *new_rig(struct world *w, uint64_t min_pages, uint32_t weight)
{
    static const size_t rows[1][2] = {{PAGE, 0}};
    struct rig *r = rig_new();

    if (!w->n) {
        w->fake = &r->fake;
        host.fake = r->fake.table;
        r->fake.table.commit = watched_commit;
        r->fake.table.decommit = watched_decommit;
        r->fake.table.unreserve = watched_unreserve;
        r->fake.table.now_ms = watched_now;
    }
    assert_true(w->n < MAX_CACHES);
    w->rig[w->n++] = r;
    rig_rows(r, 1, rows);
    r->params.kv_size = 256;
    r->params.slot_shrink_idle_ms = IDLE;
    r->params.mem = &w->fake->table;
    r->params.pool = w->pool;
    r->params.pool_min_bytes = min_pages * PAGE;
    r->params.pool_weight = weight;
    return r;
}

struct rig *add(struct world *w, uint64_t min_pages, uint32_t weight)
{
    struct rig *r = new_rig(w, min_pages, weight);

    rig_open(r);
    return r;
}

void settled(struct world *w)
{
    uint64_t sum = 0;

    for (int i = 0; i < w->n; i++) {
        const char *reason = NULL;

        if (!w->rig[i]->cache)
            continue;
        sum += stats(w->rig[i]).touched_bytes;
        if (kvlazy_check(w->rig[i]->cache, &reason))
            fail_msg("cache %d: %s", i, reason);
    }
    assert_int_equal(pool_stats(w).taken_bytes, sum);
    assert_true(sum <= pool_stats(w).budget_bytes);
    assert_int_equal(host.n_over, 0);
    assert_int_equal(w->fake->committed_bytes, sum);
}

void close_cache(struct rig *r)
{
    rig_forgets(r);
    kvlazy_destroy(r->cache);
    r->cache = NULL;
}

void world_free(struct world *w)
{
    settled(w);
    for (int i = w->n - 1; i >= 0; i--)
        close_cache(w->rig[i]);
    if (w->n)
        assert_int_equal(pool_stats(w).taken_bytes + pool_stats(w).min_bytes + pool_stats(w).n_cache, 0);
    host.pool = NULL;
    ok(kvlazy_pool_destroy(w->pool));
    for (int i = w->n - 1; i >= 0; i--)
        rig_free(w->rig[i]);
    free(w);
}

kvlazy_pos end_of(struct rig *r, kvlazy_seq_id seq)
{
    return kvlazy_seq_pos_max(r->cache, seq) + 1;
}

int more(struct rig *r, kvlazy_seq_id seq, uint32_t n)
{
    return turn(r, seq, end_of(r, seq), n);
}

void idle(struct world *w)
{
    w->fake->now += IDLE;
}
