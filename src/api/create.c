/* SPDX-License-Identifier: MIT */
/* create: the public calls that create and destroy a cache, and tell where its tensors lie. */
#include "api/door.h"
#include "core/arenas.h"
#include "core/lock.h"
#include "core/paging.h"

#include <inttypes.h>
#include <stdio.h>

/* ------------------------------------------------------------------------------------------- parts */

static int init_streams(kvlazy_cache *c)
{
    const kvlazy_params *p = &c->params;
    uint32_t n_seq = p->n_stream == 1 ? p->n_seq_max : 1; /* sequences of one stream */

    for (uint32_t s = 0; s < p->n_stream; s++) {
        int status = kvl_cells_init(&c->stream[s].cells, p->kv_size, s, n_seq, p->n_pos_per_token > 1);

        if (status)
            return status;
        c->stream[s].cells.mirror = kvl_has_engine_cells(c);
        c->stream[s].cap_said = kvl_policy_cap(p->kv_size, p->kv_size_initial, p->n_pad, 0);
    }
    return KVLAZY_OK;
}

static uint32_t reserve_flags(const kvlazy_params *p)
{
    return p->flags & KVLAZY_DONTFORK ? KVLAZY_RESERVE_DONTFORK : 0;
}

/* A frontier splits a mapping in two, and a process may have so many: a part of them for one cache. */
static uint64_t most_frontiers(const kvlazy_mem *mem)
{
    enum { PART = 8 };

    return kvl_max(kvl_host_max_mappings(mem) / PART / 2, 1);
}

static int init_own(kvlazy_cache *c)
{
    const kvl_geometry *g = &c->rows.geometry;
    uint32_t n_block;

    if (!g->own_bytes)
        return KVLAZY_OK;
    kvl_span *block = kvl_geometry_blocks(g, most_frontiers(c->params.mem), &n_block);
    if (!block)
        return KVLAZY_ENOMEM;
    int status = kvl_arena_init(&c->rows.own, c->params.mem, g->own_bytes, c->rows.page, reserve_flags(&c->params),
                                block, n_block);
    free(block);
    g->arena[g->n_arena - 1] = &c->rows.own;
    return status;
}

static int init_parts(kvlazy_cache *c)
{
    const kvlazy_params *p = &c->params;

    c->stream = calloc(p->n_stream, sizeof *c->stream);
    c->rows.stream = calloc(p->n_stream, sizeof *c->rows.stream);
    c->seq = calloc(p->n_seq_max, sizeof *c->seq);
    c->active.seq = calloc(p->n_seq_max, sizeof *c->active.seq);
    c->plan.oldest = calloc(kvl_has_window(c) ? p->n_seq_max : 1, sizeof *c->plan.oldest);
    if (!c->stream || !c->rows.stream || !c->seq || !c->active.seq || !c->plan.oldest ||
        kvl_plan_init(&c->plan, p->n_seq_max, p->n_stream) || kvl_eviction_init(&c->evict, p->n_seq_max))
        return KVLAZY_ENOMEM;
    int status = init_streams(c);
    if (!status)
        status = init_own(c);
    return status;
}

static void free_parts(kvlazy_cache *c)
{
    kvl_arena_fini(&c->rows.own);
    for (uint32_t s = 0; c->stream && s < c->params.n_stream; s++)
        kvl_cells_fini(&c->stream[s].cells);
    kvl_plan_fini(&c->plan);
    free(c->rows.stream);
    free(c->mask.key);
    free(c->limits.host_root);
    free(c->stream);
    free(c->seq);
    free(c->active.seq);
    kvl_eviction_fini(&c->evict);
    kvl_geometry_fini(&c->rows.geometry);
}

/* ------------------------------------------------------------------------------------------- create, destroy */

/* "layer 3 V, kv_size 512, 2 streams: cell_stride = 511: why (docs/tensors.md)" */
static void say_complaint(kvl_log *log, const kvlazy_params *p, const kvl_complaint *said)
{
    char value[64] = "", other[32] = "";

    if (said->field)
        snprintf(value, sizeof value, said->is_address ? "%s = 0x%" PRIx64 ": " : "%s = %" PRIu64 ": ", said->field,
                 said->value);
    if (said->names_other)
        snprintf(other, sizeof other, " layer %u %s", said->other_layer_id, said->other_is_v ? "V" : "K");
    kvl_log_note(log, KVLAZY_LOG_ERROR, "layer %u %s, kv_size %u, %u streams: %s%s%s (docs/tensors.md)", said->layer_id,
                 said->is_v ? "V" : "K", p->kv_size, p->n_stream, value, said->why, other);
}

/* What the parameters ask for comes to: the pages, and where tensors lie. */
typedef struct layout {
    kvl_page page;
    kvl_geometry geometry;
} layout;

static int lay_out(const kvlazy_params *p, layout *l, kvl_log *log)
{
    kvl_complaint complaint;
    int status = kvl_paging_choose(p, &l->page, log);

    if (status)
        return status;
    status = kvl_geometry_init(&l->geometry, p->layers, p->n_layer, p->kv_size, p->n_stream, l->page.bytes,
                               kvl_arena_bounds, &complaint);
    if (status == KVLAZY_ENOMEM)
        kvl_log_note(log, KVLAZY_LOG_ERROR, "layers: no memory to note %u of them", p->n_layer);
    else if (status)
        say_complaint(log, p, &complaint);
    return status;
}

/* "" says that the machine's limits are not read. */
static int copy_root(kvlazy_cache *c)
{
    const char *root = c->params.host_root;

    c->params.host_root = NULL;
    if (root && !*root)
        return KVLAZY_OK;
    size_t bytes = strlen(root ? root : "/") + 1;
    c->limits.host_root = malloc(bytes);
    if (c->limits.host_root)
        memcpy(c->limits.host_root, root ? root : "/", bytes);
    return c->limits.host_root ? KVLAZY_OK : KVLAZY_ENOMEM;
}

static int create(const kvlazy_params *p, layout *l, kvl_log *log, kvlazy_cache **cache)
{
    kvlazy_cache *c = calloc(1, sizeof *c);

    if (!c) {
        kvl_geometry_fini(&l->geometry);
        return KVLAZY_ENOMEM;
    }
    c->params = *p;
    c->rows.geometry = l->geometry;
    c->rows.page = l->page;
    c->mem = *p->mem;
    c->rows.mem = &c->mem;
    c->engine.keeps = p->cell_ops != NULL;
    if (p->cell_ops)
        kvl_struct_copy(&c->engine.ops, sizeof c->engine.ops, p->cell_ops, kvl_struct_size(p->cell_ops));
    c->params.cell_ops = NULL;
    c->rows.commits_ahead = kvl_paging_commits_ahead(p, l->page, &c->rows.pacer);
    if ((p->flags & KVLAZY_UBATCH_AHEAD) && !kvl_host_commits(p->mem))
        c->params.flags &= ~(uint32_t)KVLAZY_UBATCH_AHEAD;
    c->log = *log;
    c->decay.fallow_due_ms = c->decay.retry_ms = KVL_NEVER;
    c->plan.refused_seq = -1;
    int status = init_parts(c);
    c->params.mem = &c->mem; /* the copy */
    c->params.layers = NULL;
    c->params.name = NULL;
    if (p->model_tag_bytes)
        memcpy(c->tag, p->model_tag, p->model_tag_bytes);
    c->params.model_tag = NULL;
    if (!status)
        status = copy_root(c);
    if (!status && p->pool)
        status = kvl_share_join(&c->limits.share, p->pool, p->pool_min_bytes, p->pool_weight);
    if (!status && p->with && kvl_is_bound_to_thread(p->with) != kvl_is_bound_to_thread(c)) {
        kvl_log_note(log, KVLAZY_LOG_ERROR,
                     "with: the functions of cell_ops must be bound to a thread in both or neither");
        status = KVLAZY_EINVAL; /* one thread polls for both */
    }
    if (!status)
        status = kvl_group_join(p->with, c);
    if (status) {
        kvl_share_leave(&c->limits.share, 0);
        kvl_share_give_back(&c->limits.share);
        free_parts(c);
        free(c);
        return status;
    }
    c->magic = KVL_CACHE_MAGIC;
    *cache = c;
    return KVLAZY_OK;
}

/* KVLAZY_EBUSY inside a callback that must not call the cache. */
static int ask_callback(kvlazy_cache *with)
{
    int status = kvl_lock(with);

    if (status)
        return status;
    bool is_inside = kvl_is_in_callback(with);
    kvl_unlock(with);
    return is_inside ? KVLAZY_EBUSY : KVLAZY_OK;
}

/* Linked caches see the same sequences. */
static int check_with(const kvlazy_params *p, kvl_log *log)
{
    int status = kvl_is_cache(p->with) ? ask_callback(p->with) : KVLAZY_OK;

    if (status)
        return status;
    if (!p->with || (kvl_is_cache(p->with) && p->with->params.n_seq_max == p->n_seq_max &&
                     p->with->params.n_stream == p->n_stream && kvl_has_engine_cells(p->with) == (p->cell_ops != NULL)))
        return KVLAZY_OK;
    kvl_log_note(log, KVLAZY_LOG_ERROR, "with: must be a cache of %u streams and %u sequences too, %s cell_ops",
                 p->n_stream, p->n_seq_max, p->cell_ops ? "with" : "without");
    return KVLAZY_EINVAL;
}

static int check_pool(const kvlazy_params *p, kvl_log *log)
{
    if (!p->pool || kvl_is_pool(p->pool))
        return KVLAZY_OK;
    kvl_log_note(log, KVLAZY_LOG_ERROR, "pool = %p: is no pool", (const void *)p->pool);
    return KVLAZY_EINVAL;
}

static void say_created(const kvlazy_cache *c, kvl_log *log)
{
    char reserved[KVL_HUMAN_BYTES], cell[KVL_HUMAN_BYTES];

    kvl_log_note(log, KVLAZY_LOG_INFO,
                 "reserved (not committed) %s: %u streams of %u cells, %s a cell, initial %u, pages of %u KiB",
                 kvl_human(reserved, c->rows.geometry.reserved_bytes), c->params.n_stream, c->params.kv_size,
                 kvl_human(cell, c->rows.geometry.cell_bytes), c->params.kv_size_initial,
                 (unsigned)(c->rows.page.bytes >> 10));
}

static int read_table(kvlazy_params *p, kvlazy_mem *mem, kvl_log *log)
{
    if (!kvl_table_read(p->mem, mem))
        return kvl_params_refuse(log, KVLAZY_EINVAL, "mem struct_size", kvl_struct_size(p->mem),
                                 "not a table of this version, or a function that every host has is NULL");
    p->mem = mem;
    return KVLAZY_OK;
}

/* Refuses what can be wrong with the parameters themselves, whichever caches use their arenas now. KVLAZY_OK: a layout
 * is held. */
static int read_params(const kvlazy_params *asked, kvlazy_params *p, kvlazy_mem *mem, layout *l, kvl_log *log)
{
    int status = kvl_params_resolve(asked, p, log);

    if (!status)
        status = read_table(p, mem, log);
    if (!status)
        status = check_with(p, log);
    if (!status)
        status = check_pool(p, log);
    return status ? status : lay_out(p, l, log);
}

int kvlazy_create(const kvlazy_params *asked, kvlazy_cache **cache)
{
    kvlazy_params params;
    kvlazy_mem mem;
    layout l;
    kvl_log log;

    if (!cache)
        return KVLAZY_EINVAL;
    int status = read_params(asked, &params, &mem, &l, &log);
    if (!status) {
        status = kvl_arenas_check(&l.geometry, params.with, &log);
        if (status)
            kvl_geometry_fini(&l.geometry);
    }
    if (!status) {
        uint64_t reserved_bytes = l.geometry.reserved_bytes, own_bytes = l.geometry.own_bytes;
        char text[KVL_HUMAN_BYTES], why[KVL_WHY_BYTES];

        status = create(&params, &l, &log, cache);
        if (!status)
            say_created(*cache, &log);
        else
            kvl_log_note(&log, KVLAZY_LOG_ERROR, "%s to reserve: %s%s", kvl_human(text, reserved_bytes),
                         kvlazy_status_message(status), kvl_host_why(params.mem, own_bytes, why));
    }
    kvl_log_tell(&log);
    return status;
}

/* Asked to shrink by a call of this thread, whose callback this is. With the lock held: another thread may ask too. */
static uint32_t n_own_pins(const kvlazy_cache *c)
{
    return c->is_asked && pthread_equal(c->asker, pthread_self());
}

/* It may be called from a callback of any call, also one of this cache: those calls find a ghost when they come back.
 * So the struct is held until the end, and no lock is needed to look at it. */
void kvlazy_destroy(kvlazy_cache *c)
{
    if (kvl_enter(c, KVL_DOOR_LOOK)) /* it is no cache, or this is a callback that needs it still */
        return;
    if (c->leaves) { /* a line that destroy itself told came back here */
        kvl_leave(c, KVLAZY_OK);
        return;
    }
    const kvl_watcher *watcher = kvl_group_begin_leaving(c);
    uint32_t n_pin = n_own_pins(c);
    kvl_unlock(c);
    if (watcher)
        watcher->settle(watcher->ctx);
    kvl_share_leave(&c->limits.share, n_pin);
    kvl_group_leave(c);
    if (watcher)
        watcher->lost(watcher->ctx);
    kvl_share share = c->limits.share;
    c->magic = 0;
    free_parts(c);
    kvl_share_give_back(&share); /* not before the pages are gone */
    kvl_group_bury(c);
}

static const uint16_t plan_end[] = {
    KVL_END(kvlazy_plan_info, reserved_bytes), KVL_END(kvlazy_plan_info, cell_bytes),
    KVL_END(kvlazy_plan_info, initial_bytes),  KVL_END(kvlazy_plan_info, page_bytes),
    KVL_END(kvlazy_plan_info, kv_size),        KVL_END(kvlazy_plan_info, kv_size_initial),
    KVL_END(kvlazy_plan_info, n_stream),       KVL_END(kvlazy_plan_info, n_seq_max),
    KVL_END(kvlazy_plan_info, n_pad),          KVL_END(kvlazy_plan_info, writable_cells),
    KVL_END(kvlazy_plan_info, waste_bytes),    0,
};

_Static_assert(KVL_IS_LAST(kvlazy_plan_info, waste_bytes), "a member is not among the ends");

int kvlazy_plan(const kvlazy_params *asked, kvlazy_plan_info *info)
{
    kvlazy_params p;
    kvlazy_mem mem;
    layout l;
    kvl_log log;

    if (!info || !kvl_output_fits(info, sizeof *info, plan_end))
        return KVLAZY_EINVAL;
    int status = read_params(asked, &p, &mem, &l, &log);
    kvl_log_tell(&log);
    if (status)
        return status;
    uint64_t initial_bytes = kvl_geometry_cover_bytes(&l.geometry, p.kv_size_initial, l.page.bytes);
    kvlazy_plan_info plan = {
        .reserved_bytes = l.geometry.reserved_bytes,
        .cell_bytes = l.geometry.cell_bytes,
        .initial_bytes = initial_bytes,
        .page_bytes = l.page.bytes,
        .waste_bytes =
            initial_bytes - kvl_geometry_cover_bytes(&l.geometry, p.kv_size_initial, kvl_page_bytes(p.mem, false)),
        .kv_size = p.kv_size,
        .kv_size_initial = p.kv_size_initial,
        .n_stream = p.n_stream,
        .n_seq_max = p.n_seq_max,
        .n_pad = p.n_pad,
        .writable_cells = kvl_host_grants(p.mem, l.geometry.own_bytes, l.page, reserve_flags(&p)) ? p.kv_size : 0,
    };
    kvl_geometry_fini(&l.geometry);
    kvl_struct_fill(info, &plan, sizeof plan);
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- look */

/* Constant for the life of the cache, so no lock. */
static int tensor_of(const kvlazy_cache *c, uint32_t layer_id, bool is_v, kvlazy_tensor *out)
{
    if (!kvl_is_cache(c) || !out)
        return KVLAZY_EINVAL;
    const kvl_tensor *t = kvl_geometry_find(&c->rows.geometry, layer_id, is_v);
    if (!t)
        return kvl_geometry_find(&c->rows.geometry, layer_id, !is_v) ? KVLAZY_ENOTSUP : KVLAZY_EINVAL;
    memset(out, 0, sizeof *out); /* all of it, so that two answers compare equal byte by byte */
    out->data = t->on_device ? NULL : c->rows.geometry.arena[t->arena]->base + t->offset;
    out->cell_stride = (size_t)t->cell_stride;
    out->channel_stride = t->n_channel ? (size_t)t->lane_stride : 0;
    out->stream_stride = (size_t)t->stream_stride;
    out->row_bytes = (size_t)(t->cell_bytes * t->n_lane);
    out->n_channel = t->n_channel;
    return KVLAZY_OK;
}

int kvlazy_k(const kvlazy_cache *c, uint32_t layer_id, kvlazy_tensor *tensor)
{
    return tensor_of(c, layer_id, false, tensor);
}

int kvlazy_v(const kvlazy_cache *c, uint32_t layer_id, kvlazy_tensor *tensor)
{
    return tensor_of(c, layer_id, true, tensor);
}
