/* SPDX-License-Identifier: MIT */
/* store: the public calls about a prefix store: what is wrong with arguments, and the lock. */
#include "api/door.h"
#include "api/reclaim.h"
#include "store/limit.h"
#include "store/ops.h"
#include "store/shelf.h"

static const uint16_t params_end[] = {
    KVL_END(kvlazy_store_params, ops),
    KVL_END(kvlazy_store_params, block_tokens),
    KVL_END(kvlazy_store_params, min_tokens),
    KVL_END(kvlazy_store_params, write_bytes_per_hour),
    KVL_END(kvlazy_store_params, log),
    KVL_END(kvlazy_store_params, log_ctx),
    0,
};

_Static_assert(KVL_IS_LAST(kvlazy_store_params, log_ctx), "a member is not among the ends");

static const uint16_t info_end[] = {
    KVL_END(kvlazy_store_info, n_hit),
    KVL_END(kvlazy_store_info, n_miss),
    KVL_END(kvlazy_store_info, n_written),
    KVL_END(kvlazy_store_info, n_there),
    KVL_END(kvlazy_store_info, n_corrupt),
    KVL_END(kvlazy_store_info, n_timeout),
    KVL_END(kvlazy_store_info, n_failed),
    KVL_END(kvlazy_store_info, n_refused_room),
    KVL_END(kvlazy_store_info, n_refused_allowance),
    KVL_END(kvlazy_store_info, read_bytes),
    KVL_END(kvlazy_store_info, written_bytes),
    KVL_END(kvlazy_store_info, held_bytes),
    0,
};

_Static_assert(KVL_IS_LAST(kvlazy_store_info, held_bytes), "a member is not among the ends");

/* ------------------------------------------------------------------------------------------- create, destroy */

static bool read_params(const kvlazy_store_params *theirs, kvlazy_store_params *p)
{
    *p = (kvlazy_store_params){.struct_size = sizeof *p};
    if (!theirs || !kvl_input_fits(theirs, sizeof *theirs, params_end))
        return false;
    kvl_struct_copy(p, sizeof *p, theirs, kvl_struct_size(theirs));
    p->block_tokens = p->block_tokens ? p->block_tokens : 64;
    p->min_tokens = p->min_tokens ? p->min_tokens : 256;
    return p->block_tokens >= 16 && p->block_tokens <= 256 && kvl_ops_can_be_read(p->ops) && p->ops->has &&
           p->ops->open && p->ops->read && p->ops->write && p->ops->close && p->ops->touch && p->ops->drop &&
           p->ops->destroy;
}

int kvlazy_store_create(const kvlazy_store_params *theirs, kvlazy_store **store)
{
    kvlazy_store_params p;

    if (!store || !read_params(theirs, &p))
        return KVLAZY_EINVAL;
    kvlazy_store *s = calloc(1, sizeof *s);
    if (!s || pthread_mutex_init(&s->lock, NULL)) {
        free(s);
        return KVLAZY_ENOMEM;
    }
    kvl_struct_copy(&s->ops, sizeof s->ops, p.ops, kvl_struct_size(p.ops));
    s->block_tokens = p.block_tokens;
    s->min_tokens = p.min_tokens;
    s->allowance_bytes = p.write_bytes_per_hour;
    s->sink = p.log;
    s->sink_ctx = p.log_ctx;
    kvl_store_own(s);
    s->magic = KVL_STORE_MAGIC;
    *store = s;
    return KVLAZY_OK;
}

int kvlazy_store_destroy(kvlazy_store *s)
{
    if (!s)
        return KVLAZY_OK;
    if (!kvl_is_store(s))
        return KVLAZY_EINVAL;
    if (atomic_load(&s->n_visit) && !kvl_store_is_forked(s))
        return KVLAZY_EBUSY;
    s->magic = 0;
    s->ops.destroy(s->ops.ctx);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- visits */

static int check(kvl_visit *v, const kvlazy_prompt *prompt)
{
    bool engine = kvl_has_engine_cells(v->cache);

    if (!kvl_prompt_read(v->cache, prompt, &v->prompt) || (!engine && !kvl_is_seq(v->cache, v->seq)))
        return KVLAZY_EINVAL;
    return kvl_visit_check(v->cache);
}

/* KVLAZY_OK: the lock is held, and leave is due. A call that waits for the lock is inside already. */
static int enter(kvl_visit *v, const kvlazy_prompt *prompt)
{
    if (!kvl_is_store(v->store))
        return KVLAZY_EINVAL;
    atomic_fetch_add(&v->store->n_visit, 1);
    v->begin_ms = kvl_store_now_ms();
    int status = kvl_enter(v->cache, KVL_DOOR_GROUP);
    if (!status) {
        status = check(v, prompt);
        if (!status)
            return KVLAZY_OK;
        status = kvl_leave(v->cache, status);
    }
    atomic_fetch_sub(&v->store->n_visit, 1);
    return status;
}

static int leave(kvl_visit *v, int status)
{
    kvl_visit_end(v);
    status = kvl_leave(v->cache, status);
    kvl_log_tell(&v->log);
    atomic_fetch_sub(&v->store->n_visit, 1);
    return status;
}

int kvlazy_store_save(kvlazy_store *store, kvlazy_cache *cache, kvlazy_seq_id seq, const kvlazy_prompt *prompt,
                      uint32_t max_ms, uint32_t *n_saved)
{
    kvl_visit v = {.store = store, .cache = cache, .seq = seq, .max_ms = max_ms};
    uint32_t n = 0;
    int status = enter(&v, prompt);

    if (!status)
        status = leave(&v, kvl_store_is_forked(store) ? KVLAZY_OK : kvl_store_save(&v, &n));
    if (n_saved)
        *n_saved = n;
    return status;
}

int kvlazy_store_load(kvlazy_store *store, kvlazy_cache *cache, kvlazy_seq_id seq, const kvlazy_prompt *prompt,
                      uint32_t n_have, uint32_t max_ms, uint32_t *n_live)
{
    kvl_visit v = {.store = store, .cache = cache, .seq = seq, .max_ms = max_ms, .reclaim = kvl_reclaim_for_held};
    uint32_t n = n_have;

    if (!n_live)
        return KVLAZY_EINVAL;
    int status = enter(&v, prompt);
    if (!status)
        status = leave(&v, kvl_store_is_forked(store) ? KVLAZY_OK : kvl_store_load(&v, n_have, &n));
    *n_live = n;
    return status;
}

int kvlazy_store_forget(kvlazy_store *store, kvlazy_cache *cache, const kvlazy_prompt *prompt)
{
    kvl_visit v = {.store = store, .cache = cache};
    int status = enter(&v, prompt);

    return status ? status : leave(&v, kvl_store_is_forked(store) ? KVLAZY_OK : kvl_store_forget(&v));
}

int kvlazy_store_stats(kvlazy_store *s, kvlazy_store_info *info)
{
    if (!kvl_is_store(s) || !info || !kvl_output_fits(info, sizeof *info, info_end))
        return KVLAZY_EINVAL;
    kvlazy_store_info is = {
        .n_hit = s->count[KVL_N_HIT],
        .n_miss = s->count[KVL_N_MISS],
        .n_written = s->count[KVL_N_WRITTEN],
        .n_there = s->count[KVL_N_THERE],
        .n_corrupt = s->count[KVL_N_CORRUPT],
        .n_timeout = s->count[KVL_N_TIMEOUT],
        .n_failed = s->count[KVL_N_FAILED],
        .n_refused_room = s->count[KVL_N_NO_ROOM],
        .n_refused_allowance = s->count[KVL_N_NO_ALLOWANCE],
        .read_bytes = s->count[KVL_READ_BYTES],
        .written_bytes = s->count[KVL_WRITTEN_BYTES],
        .held_bytes = sizeof *s + s->count[KVL_HELD_BYTES],
    };
    kvl_struct_fill(info, &is, sizeof is);
    return KVLAZY_OK;
}
