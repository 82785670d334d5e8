/* SPDX-License-Identifier: MIT */
/*
 * cache: creates, links and destroys caches, hands out what can be looked at, and holds what every call does first
 * and last.
 */
#include "cache.h"

#define MAGIC UINT64_C(0x6b766c617a790001) /* "kvlazy", layout 1 */

/* Stamps of cells are 32 bits of milliseconds, 49 days. Every 12 days, or when the clock leaps, what is older
 * than 37 is made 37 days old, so that no age ever wraps. */
#define AGING_MS (UINT64_C(1) << 30)
#define AGE_MAX_MS (UINT32_MAX - (uint32_t)AGING_MS)

/* ------------------------------------------------------------------------------------------- entry and exit */

bool kvl_is_cache(const kvlazy_cache *c)
{
    return c && c->magic == MAGIC;
}

/* The lock and the scratch are the library's own, and a cache is never an object declared const. */
static kvlazy_cache *mutable(const kvlazy_cache *c)
{
    return (kvlazy_cache *)(uintptr_t)c;
}

int kvl_enter_seq(kvlazy_cache *c)
{
    if (!kvl_is_cache(c))
        return KVLAZY_EINVAL;
    if (KVL_LIKELY(pthread_mutex_trylock(&c->group->lock) == 0))
        return KVLAZY_OK;
    atomic_fetch_add(&c->group->n_waiting, 1);
    pthread_mutex_lock(&c->group->lock);
    atomic_fetch_sub(&c->group->n_waiting, 1);
    return KVLAZY_OK;
}

int kvl_leave_seq(kvlazy_cache *c, int status)
{
    kvl_window_follow(c);
    return kvl_leave(c, status);
}

int kvl_enter(const kvlazy_cache *cache)
{
    int status = kvl_enter_seq(mutable(cache));

    if (!status)
        kvl_window_follow(mutable(cache));
    return status;
}

void kvl_follow_group(kvlazy_cache *c)
{
    for (kvlazy_cache *m = c->group->n_torn ? c->group->first : NULL; m; m = m->next)
        kvl_window_follow(m);
}

int kvl_enter_group(kvlazy_cache *c)
{
    int status = kvl_enter_seq(c);

    if (!status)
        kvl_follow_group(c);
    return status;
}

int kvl_leave(const kvlazy_cache *cache, int status)
{
    enum { TOLD = 3 }; /* caches of a group that a call may have notes of; more are told later */
    kvlazy_cache *c = mutable(cache);
    kvl_log lines[TOLD];
    uint32_t n = 0;

    kvl_check_or_die(c);
    for (kvlazy_cache *m = c->group->first; m && n < TOLD; m = m->next)
        if (KVL_UNLIKELY(m->log.n_line))
            kvl_log_take(&m->log, &lines[n++]);
    pthread_mutex_unlock(&c->group->lock);
    for (uint32_t i = 0; i < n; i++)
        kvl_log_tell(&lines[i]);
    return status;
}

static void age_cells(kvlazy_cache *c, uint64_t from_ms, uint64_t to_ms)
{
    if (KVL_LIKELY(to_ms - c->aged_ms < AGING_MS))
        return;
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        kvl_cells_age_all(&c->stream[s].cells, kvl_stamp(c, from_ms), to_ms - from_ms, AGE_MAX_MS);
    c->aged_ms = to_ms;
}

uint64_t kvl_now(kvlazy_cache *c)
{
    uint64_t now_ms = kvl_max(c->group->now_ms, c->arena.mem.now_ms(c->arena.mem.ctx));

    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        age_cells(m, c->group->now_ms, now_ms);
    return c->group->now_ms = now_ms;
}

uint32_t kvl_stamp(const kvlazy_cache *c, uint64_t now_ms)
{
    return (uint32_t)(now_ms - c->epoch_ms);
}

void kvl_note_fallow(kvlazy_cache *c, uint64_t now_ms)
{
    if (c->params.slot_shrink_idle_ms)
        c->fallow_due_ms = kvl_min(c->fallow_due_ms, now_ms + c->params.slot_shrink_idle_ms);
}

/* ------------------------------------------------------------------------------------------- parts */

static int init_streams(kvlazy_cache *c)
{
    const kvlazy_params *p = &c->params;
    uint32_t n_seq = p->n_stream == 1 ? p->n_seq_max : 1; /* sequences of one stream */

    for (uint32_t s = 0; s < p->n_stream; s++) {
        int status = kvl_cells_init(&c->stream[s].cells, p->kv_size, p->n_seq_max, s, n_seq, p->n_pos_per_token > 1);

        if (status)
            return status;
        c->stream[s].cap_said = kvl_policy_cap(p->kv_size, p->kv_size_initial, p->n_pad, 0);
    }
    return KVLAZY_OK;
}

static int init_parts(kvlazy_cache *c, const kvlazy_mem *mem)
{
    const kvlazy_params *p = &c->params;
    uint32_t flags = p->flags & KVLAZY_DONTFORK ? KVLAZY_RESERVE_DONTFORK : 0;

    c->stream = calloc(p->n_stream, sizeof *c->stream);
    c->seq = calloc(p->n_seq_max, sizeof *c->seq);
    c->active = calloc(p->n_seq_max, sizeof *c->active);
    c->order = calloc(p->n_seq_max, sizeof *c->order);
    c->rank = calloc(p->n_seq_max, sizeof *c->rank);
    if (!c->stream || !c->seq || !c->active || !c->order || !c->rank)
        return KVLAZY_ENOMEM;
    int status = init_streams(c);
    if (!status)
        status = kvl_arena_init(&c->arena, mem, c->geometry.reserved_bytes, flags);
    return status;
}

static void free_parts(kvlazy_cache *c)
{
    kvl_plan *plan = &c->plan;

    kvl_arena_fini(&c->arena);
    for (uint32_t s = 0; c->stream && s < c->params.n_stream; s++)
        kvl_cells_fini(&c->stream[s].cells);
    free(plan->ubatch);
    free(plan->stream);
    free(plan->cell);
    free(plan->owner_end);
    free(plan->pos);
    free(plan->owner);
    free(plan->victim);
    free(plan->run);
    free(c->mask_key);
    free(c->stream);
    free(c->seq);
    free(c->active);
    free(c->order);
    free(c->rank);
    kvl_geometry_fini(&c->geometry);
    free(c);
}

/* ------------------------------------------------------------------------------------------- groups */

static kvl_group *new_group(void)
{
    kvl_group *group = calloc(1, sizeof *group);

    if (group && pthread_mutex_init(&group->lock, NULL) != 0) {
        free(group);
        group = NULL;
    }
    return group;
}

/* The newest member is the last. The lock is held, or nobody else knows the group yet. */
static void join(kvl_group *group, kvlazy_cache *c)
{
    kvlazy_cache **end = &group->first;

    while (*end)
        end = &(*end)->next;
    *end = c;
    c->group = group;
    c->epoch_ms = c->aged_ms = group->now_ms;
}

static int join_or_found(kvlazy_cache *with, kvlazy_cache *c)
{
    if (with) {
        if (kvl_enter(with))
            return KVLAZY_EINVAL;
        kvl_now(with);
        join(with->group, c);
        return kvl_leave(with, KVLAZY_OK);
    }
    kvl_group *group = new_group();
    if (!group)
        return KVLAZY_ENOMEM;
    group->now_ms = c->arena.mem.now_ms(c->arena.mem.ctx);
    join(group, c);
    return KVLAZY_OK;
}

static void leave_group(kvlazy_cache *c)
{
    kvl_group *group = c->group;
    kvlazy_cache **at = &group->first;

    kvl_enter(c);
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    bool last = !group->first;
    pthread_mutex_unlock(&group->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&group->lock);
    free(group);
}

/* ------------------------------------------------------------------------------------------- create, destroy */

/* Sizes of what the parameters ask for, or why not. */
static int lay_out(const kvlazy_params *p, kvl_geometry *geometry, kvl_log *log)
{
    uint64_t page_bytes = kvl_page_bytes(p->mem);

    if (!page_bytes) {
        kvl_log_note(log, KVLAZY_LOG_ERROR, "mem page_bytes: must be a power of two");
        return KVLAZY_EINVAL;
    }
    int status = kvl_geometry_init(geometry, p->layers, p->n_layer, p->kv_size, p->n_stream, page_bytes);
    if (status == KVLAZY_EINVAL)
        kvl_log_note(log, KVLAZY_LOG_ERROR,
                     "kv_size = %u cells, %u streams, %u layers: more bytes than an address holds", p->kv_size,
                     p->n_stream, p->n_layer);
    return status;
}

static int create(const kvlazy_params *p, kvl_geometry *geometry, kvl_log *log, kvlazy_cache **cache)
{
    kvlazy_cache *c = calloc(1, sizeof *c);

    if (!c) {
        kvl_geometry_fini(geometry);
        return KVLAZY_ENOMEM;
    }
    c->params = *p;
    c->geometry = *geometry;
    c->log = *log;
    c->fallow_due_ms = c->retry_ms = KVL_NEVER;
    c->refused = -1;
    int status = init_parts(c, p->mem);
    c->params.mem = &c->arena.mem; /* the copy */
    c->params.layers = NULL;
    c->params.name = NULL;
    if (!status)
        status = join_or_found(p->with, c);
    if (status) {
        free_parts(c);
        return status;
    }
    c->magic = MAGIC;
    *cache = c;
    return KVLAZY_OK;
}

/* Linked caches see the same sequences. */
static int check_with(const kvlazy_params *p, kvl_log *log)
{
    if (!p->with ||
        (kvl_is_cache(p->with) && p->with->params.n_seq_max == p->n_seq_max && p->with->params.n_stream == p->n_stream))
        return KVLAZY_OK;
    kvl_log_note(log, KVLAZY_LOG_ERROR, "with: must be a cache of %u streams and %u sequences too", p->n_stream,
                 p->n_seq_max);
    return KVLAZY_EINVAL;
}

static void say_created(const kvlazy_cache *c, kvl_log *log)
{
    char reserved[KVL_HUMAN_BYTES], cell[KVL_HUMAN_BYTES];

    kvl_log_note(log, KVLAZY_LOG_INFO, "reserved (not committed) %s: %u streams of %u cells, %s a cell, initial %u",
                 kvl_human(reserved, c->geometry.reserved_bytes), c->params.n_stream, c->params.kv_size,
                 kvl_human(cell, c->geometry.cell_bytes), c->params.kv_size_initial);
}

int kvlazy_create(const kvlazy_params *asked, kvlazy_cache **cache)
{
    kvlazy_params params;
    kvl_geometry geometry;
    kvl_log log;

    if (!cache)
        return KVLAZY_EINVAL;
    int status = kvl_params_resolve(asked, &params, &log);
    if (!status)
        status = check_with(&params, &log);
    if (!status)
        status = lay_out(&params, &geometry, &log);
    if (!status) {
        uint64_t reserved_bytes = geometry.reserved_bytes;
        char text[KVL_HUMAN_BYTES];

        status = create(&params, &geometry, &log, cache);
        if (!status)
            say_created(*cache, &log);
        else
            kvl_log_note(&log, KVLAZY_LOG_ERROR, "%s to reserve: %s", kvl_human(text, reserved_bytes),
                         kvlazy_status_message(status));
    }
    kvl_log_tell(&log);
    return status;
}

void kvlazy_destroy(kvlazy_cache *c)
{
    if (!kvl_is_cache(c))
        return;
    leave_group(c);
    c->magic = 0;
    free_parts(c);
}

int kvlazy_plan(const kvlazy_params *asked, kvlazy_plan_info *info)
{
    kvlazy_params p;
    kvl_geometry geometry;
    kvl_log log;

    if (!info || !kvl_struct_fits(info, sizeof *info))
        return KVLAZY_EINVAL;
    int status = kvl_params_resolve(asked, &p, &log);
    if (!status)
        status = lay_out(&p, &geometry, &log);
    kvl_log_tell(&log);
    if (status)
        return status;
    kvlazy_plan_info plan = {
        .reserved_bytes = geometry.reserved_bytes,
        .cell_bytes = geometry.cell_bytes,
        .initial_bytes = kvl_geometry_cover_bytes(&geometry, p.kv_size_initial),
        .page_bytes = geometry.page_bytes,
        .kv_size = p.kv_size,
        .kv_size_initial = p.kv_size_initial,
        .n_stream = p.n_stream,
        .n_seq_max = p.n_seq_max,
        .n_pad = p.n_pad,
        .writable_cells = p.kv_size,
    };
    kvl_geometry_fini(&geometry);
    kvl_struct_copy(info, info->struct_size, &plan, sizeof plan);
    return KVLAZY_OK;
}

/* ------------------------------------------------------------------------------------------- look */

/* Constant for the life of the cache, so no lock. */
static int tensor_of(const kvlazy_cache *c, uint32_t layer_id, bool is_v, kvlazy_tensor *out)
{
    if (!kvl_is_cache(c) || !out)
        return KVLAZY_EINVAL;
    const kvl_tensor *t = kvl_geometry_find(&c->geometry, layer_id, is_v);
    if (!t)
        return kvl_geometry_find(&c->geometry, layer_id, !is_v) ? KVLAZY_ENOTSUP : KVLAZY_EINVAL;
    *out = (kvlazy_tensor){
        .data = c->arena.base + t->offset,
        .cell_stride = (size_t)t->cell_stride,
        .stream_stride = (size_t)t->stream_stride,
        .row_bytes = (size_t)t->cell_stride,
    };
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

int kvlazy_cells(const kvlazy_cache *c, uint32_t stream, kvlazy_cells_view *view)
{
    if (!view || !kvl_struct_fits(view, sizeof *view))
        return KVLAZY_EINVAL;
    if (kvl_enter(c))
        return KVLAZY_EINVAL;
    if (stream >= c->params.n_stream)
        return kvl_leave(c, KVLAZY_EINVAL);
    const kvl_cells *cells = &c->stream[stream].cells;
    kvlazy_cells_view v = {
        .n_cell = cells->n_cell,
        .owner_words = cells->owner_words,
        .pos = cells->pos,
        .shift = cells->n_shifted ? cells->shift : NULL,
        .ext_y = cells->ext_y,
        .ext_x = cells->ext_x,
        .owner = cells->owner,
    };
    kvl_struct_copy(view, view->struct_size, &v, sizeof v);
    return kvl_leave(c, KVLAZY_OK);
}

/* ------------------------------------------------------------------------------------------- soft cap, clear */

uint32_t kvl_soft_cap(const kvlazy_cache *c, const kvl_stream *stream, uint64_t now_ms)
{
    const kvlazy_params *p = &c->params;
    uint32_t window = p->slot_shrink_idle_ms ? p->slot_shrink_idle_ms : UINT32_MAX; /* 0: nothing ever decays */
    uint32_t end = kvl_cells_recent_end(&stream->cells, kvl_stamp(c, now_ms), window);

    return kvl_policy_cap(p->kv_size, p->kv_size_initial, p->n_pad, end);
}

void kvl_say_cap(kvlazy_cache *c, kvl_stream *stream, uint32_t cap)
{
    if (cap > stream->cap_said) {
        c->n_grow++;
        kvl_log_note(&c->log, KVLAZY_LOG_INFO, "grow: stream %u cap %u -> %u cells", (unsigned)(stream - c->stream),
                     stream->cap_said, cap);
    }
    stream->cap_said = cap;
}

static void clear_one(kvlazy_cache *c, bool data, uint64_t now_ms)
{
    kvl_look_before(c);
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        kvl_cells_clear(&c->stream[s].cells, kvl_stamp(c, now_ms));
    for (uint32_t i = 0; i < c->params.n_seq_max; i++) {
        c->seq[i].evicted = false;
        c->seq[i].veto_ms = 0;
        c->seq[i].lost_end = 0;
    }
    kvl_note_fallow(c, now_ms);
    while (data && kvl_release_free_piece(c, now_ms))
        ;
    if (data)
        kvl_say_shrink(c, now_ms, false);
}

int kvlazy_clear(kvlazy_cache *c, bool data)
{
    if (kvl_enter_group(c))
        return KVLAZY_EINVAL;
    uint64_t now_ms = kvl_now(c);

    kvl_close_batch(c);
    kvl_settle_activity(c, now_ms);
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        clear_one(m, data, now_ms);
    return kvl_leave(c, KVLAZY_OK);
}
