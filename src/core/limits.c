/* SPDX-License-Identifier: MIT */
/* limits: see limits.h. */
#include "core/limits.h"
#include "core/clock.h"

/* An older look at the machine does not count, nor does one since which much was taken, since fresh pages cost far more
 * than a look: more than LOOK_BYTES, and more than one part in LOOK_PART of what it saw. Others would have to take all
 * other parts within LOOK_MS. */
enum { LOOK_MS = 100, LOOK_BYTES = 4 << 20, LOOK_PART = 64 };

static bool within_budget(const kvlazy_cache *c, uint64_t n_page)
{
    return !c->params.budget_bytes || n_page * kvl_rows_page_bytes(&c->rows) <= c->params.budget_bytes;
}

/* ------------------------------------------------------------------------------------------- the machine */

static bool watches_machine(const kvlazy_cache *c)
{
    return c->mem.headroom && c->limits.host_root;
}

/* The sums are read before the machine: what other caches take in between then counts twice, and not never. */
static void look(kvlazy_cache *c, uint64_t now_ms)
{
    c->limits.look_taken = kvl_rows_counted(&c->rows, KVLAZY_COUNT_TAKEN);
    c->limits.look_promised = kvl_rows_counted(&c->rows, KVLAZY_COUNT_PROMISED);
    c->limits.look_bytes = kvl_host_headroom(&c->mem, c->limits.host_root);
    c->limits.look_ms = kvl_max(now_ms, 1);
}

/* What all caches took since the look. Negative: they gave back more, but others may have it by now. */
static int64_t taken_since(const kvl_limits *limits, const kvl_rows *rows)
{
    return (int64_t)(kvl_rows_counted(rows, KVLAZY_COUNT_TAKEN) - limits->look_taken);
}

/* Bytes that all caches took since the look, or are promised. */
static uint64_t bytes_used(const kvl_limits *limits, const kvl_rows *rows)
{
    int64_t since = taken_since(limits, rows);

    return kvl_rows_counted(rows, KVLAZY_COUNT_PROMISED) + (since > 0 ? (uint64_t)since : 0);
}

static uint64_t bytes_left(const kvl_limits *limits, const kvl_rows *rows)
{
    return limits->look_bytes - kvl_min(limits->look_bytes, bytes_used(limits, rows));
}

/* The look says little any more: with these bytes, too much was taken or promised since. */
static bool is_far_from_look(const kvl_limits *limits, const kvl_rows *rows, uint64_t bytes)
{
    int64_t most = (int64_t)kvl_max(LOOK_BYTES, limits->look_bytes / LOOK_PART);
    int64_t more =
        (int64_t)(kvl_rows_counted(rows, KVLAZY_COUNT_PROMISED) - limits->look_promised) + taken_since(limits, rows);

    return bytes > (uint64_t)most || more + (int64_t)bytes > most;
}

/* What was seen last counts while it is young: a refusal stands until then, unless some cache gave pages back since;
 * bytes that are to be taken in earnest make for another look where they are many. */
static bool machine_has(kvlazy_cache *c, uint64_t bytes, bool takes)
{
    if (!bytes || !watches_machine(c))
        return true;
    uint64_t now_ms = kvl_now(c);
    bool is_old = !c->limits.look_ms || now_ms - c->limits.look_ms >= LOOK_MS;

    if (is_old || (bytes <= bytes_left(&c->limits, &c->rows) ? takes && is_far_from_look(&c->limits, &c->rows, bytes)
                                                             : taken_since(&c->limits, &c->rows) < 0))
        look(c, now_ms);
    return bytes <= bytes_left(&c->limits, &c->rows);
}

/* Two caches that ask at the same time are both promised before either looks whether that was too much. */
static bool machine_promises(kvlazy_cache *c, uint64_t n_page)
{
    if (!machine_has(c, n_page * kvl_rows_page_bytes(&c->rows), true))
        return false;
    kvl_rows_promise(&c->rows, n_page);
    if (!watches_machine(c) || bytes_used(&c->limits, &c->rows) <= c->limits.look_bytes)
        return true;
    kvl_rows_promise(&c->rows, -n_page);
    return false;
}

/* How many pages have to be promised so that n_page are touched or promised. */
static uint64_t unpromised(const kvl_rows *rows, uint64_t n_page)
{
    uint64_t n_had = kvl_rows_touched(rows) + kvl_rows_outstanding(rows);

    return n_page > n_had ? n_page - n_had : 0;
}

static bool machine_allows(kvlazy_cache *c, uint64_t n_page)
{
    return machine_has(c, unpromised(&c->rows, n_page) * kvl_rows_page_bytes(&c->rows), false);
}

/* ------------------------------------------------------------------------------------------- all limits */

static bool pool_allows(const kvl_share *share, uint64_t bytes)
{
    return !share->pool || bytes <= share->taken_bytes || bytes - share->taken_bytes <= kvl_share_room(share);
}

bool kvl_limits_take(kvlazy_cache *c, uint64_t n_page)
{
    uint64_t n_more = unpromised(&c->rows, n_page), bytes = n_page * kvl_rows_page_bytes(&c->rows);

    if (!within_budget(c, n_page) || !machine_promises(c, n_more))
        return false;
    if (kvl_share_resize(&c->limits.share, kvl_max(c->limits.share.taken_bytes, bytes)))
        return true;
    kvl_rows_promise(&c->rows, -n_more);
    return false;
}

bool kvl_limits_any(const kvlazy_cache *c)
{
    return c->params.budget_bytes || c->limits.share.pool || watches_machine(c);
}

bool kvl_limits_allow(kvlazy_cache *c, uint64_t n_page)
{
    return within_budget(c, n_page) && machine_allows(c, n_page) &&
           pool_allows(&c->limits.share, n_page * kvl_rows_page_bytes(&c->rows));
}

void kvl_limits_settle(kvlazy_cache *c)
{
    if (c->rows.n_promised)
        (c->group->open ? kvl_rows_drop_promise : kvl_rows_end_promise)(&c->rows);
    if (c->limits.share.pool)
        kvl_share_resize(&c->limits.share, kvl_rows_touched(&c->rows) * kvl_rows_page_bytes(&c->rows));
}

void kvl_limits_give(kvlazy_cache *c)
{
    uint64_t n_page = kvl_rows_touched(&c->rows) + kvl_rows_outstanding(&c->rows);

    kvl_share_resize(&c->limits.share, kvl_min(c->limits.share.taken_bytes, n_page * kvl_rows_page_bytes(&c->rows)));
}

uint64_t kvl_limits_missing(kvlazy_cache *c, uint64_t pool_wants, uint64_t machine_wants)
{
    uint64_t has = c->limits.share.taken_bytes + (pool_wants ? kvl_share_room(&c->limits.share) : 0);
    uint64_t missing = pool_wants > has ? pool_wants - has : 0;

    return machine_has(c, machine_wants, false) ? missing
                                                : kvl_max(missing, machine_wants - bytes_left(&c->limits, &c->rows));
}

int kvl_limits_check(kvlazy_cache *c, uint64_t n_page)
{
    c->limits.pool_wants = c->limits.machine_wants = 0;
    if (!within_budget(c, n_page))
        return KVLAZY_EBUDGET;
    if (!machine_allows(c, n_page)) {
        c->limits.machine_wants = unpromised(&c->rows, n_page) * kvl_rows_page_bytes(&c->rows);
        return KVLAZY_EBUDGET;
    }
    if (pool_allows(&c->limits.share, n_page * kvl_rows_page_bytes(&c->rows)))
        return KVLAZY_OK;
    c->limits.pool_wants = n_page * kvl_rows_page_bytes(&c->rows); /* others may have some to give */
    return KVLAZY_EBUDGET;
}
