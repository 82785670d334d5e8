/* SPDX-License-Identifier: MIT */
/*
 * range: arenas that an engine carves up itself. Creates, discards and destroys them, and knows which caches use one.
 * A cache's tensors in it are geometry's to find and the other nouns' to serve.
 */
#include "cache.h"

#include <kvlazy/arena.h>

#define MAGIC UINT64_C(0x6b766c6172650001)

static bool is_arena(const kvlazy_arena *a)
{
    return a && a->magic == MAGIC;
}

size_t kvlazy_page_bytes(const kvlazy_mem *mem)
{
    kvlazy_mem whole;

    return kvl_mem_read(mem, &whole) ? (size_t)kvl_page_bytes(&whole, false) : 0;
}

int kvlazy_arena_create(const kvlazy_mem *mem, size_t bytes, kvlazy_arena **arena, void **base)
{
    kvlazy_mem whole;

    if (!arena || !base || !kvl_mem_read(mem, &whole) || bytes > PTRDIFF_MAX)
        return KVLAZY_EINVAL;
    kvlazy_arena *a = calloc(1, sizeof *a);
    if (!a)
        return KVLAZY_ENOMEM;
    /* What an engine writes is its own affair, so there is no frontier that could follow it. */
    int status = kvl_arena_init(a, &whole, bytes, 0, NULL, 0);
    if (status) {
        free(a);
        return status;
    }
    a->magic = MAGIC;
    *arena = a;
    *base = a->base;
    return KVLAZY_OK;
}

int kvlazy_arena_destroy(kvlazy_arena *a)
{
    if (!a)
        return KVLAZY_OK;
    if (!is_arena(a))
        return KVLAZY_EINVAL;
    if (a->n_cache)
        return KVLAZY_EBUSY;
    kvl_arena_fini(a);
    free(a);
    return KVLAZY_OK;
}

static void discard_shared(kvlazy_arena *a, kvl_span bytes)
{
    kvlazy_cache *c = a->group->first;

    kvl_lock(c);
    uint64_t n_released = a->n_released;
    kvl_arena_discard(a, bytes);
    c->n_released += a->n_released - n_released;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        kvl_forget_ready(m);
    kvl_leave(c, KVLAZY_OK);
}

int kvlazy_arena_discard(kvlazy_arena *a, size_t offset, size_t bytes)
{
    uint64_t end;

    if (!is_arena(a) || kvl_add_overflows(offset, bytes, &end) || end > a->bytes)
        return KVLAZY_EINVAL;
    if (!bytes)
        return KVLAZY_OK;
    if (a->group)
        discard_shared(a, (kvl_span){offset, end});
    else
        kvl_arena_discard(a, (kvl_span){offset, end});
    return KVLAZY_OK;
}

kvl_extent kvl_extent_of_arena(const kvlazy_arena *a)
{
    return is_arena(a) ? (kvl_extent){a->base, a->bytes} : (kvl_extent){0};
}

/* ------------------------------------------------------------------------------------------- caches */

static const char *why_not(const kvlazy_arena *a, const kvl_geometry *g, const kvl_group *group)
{
    if (kvl_pages_bytes(a, 1) != g->page_bytes)
        return "has pages of another size than the cache";
    if (a->n_cache && a->group != group)
        return "is used by a cache that is not linked to this one";
    return NULL;
}

/* Some tensor of both lies in the same bytes. */
static bool run_into(const kvl_geometry *g, const kvl_geometry *h)
{
    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++)
        for (const kvl_tensor *u = h->tensor; u < h->tensor + h->n_host; u++)
            if (g->arena[t->arena] && g->arena[t->arena] == h->arena[u->arena] && t->offset < u->end &&
                u->offset < t->end)
                return true;
    return false;
}

int kvl_may_use_arenas(const kvl_geometry *g, const kvlazy_cache *with, kvl_log *log)
{
    for (const kvlazy_cache *m = with ? with->group->first : NULL; m; m = m->next)
        if (run_into(g, &m->geometry)) {
            kvl_log_note(log, KVLAZY_LOG_ERROR, "layers: a tensor that runs into one of a linked cache");
            return KVLAZY_EINVAL;
        }
    for (uint32_t i = 0; i < g->n_arena; i++) {
        const char *why = g->arena[i] ? why_not(g->arena[i], g, with ? with->group : NULL) : NULL;

        if (!why)
            continue;
        kvl_log_note(log, KVLAZY_LOG_ERROR, "layer arena at %p: %s", (void *)g->arena[i]->base, why);
        return KVLAZY_EINVAL;
    }
    return KVLAZY_OK;
}

void kvl_use_arenas(kvlazy_cache *c)
{
    for (uint32_t i = 0; i < c->geometry.n_arena; i++) {
        c->geometry.arena[i]->group = c->group;
        c->geometry.arena[i]->n_cache++;
    }
}

static bool has_tensor_on(const kvlazy_cache *c, const kvlazy_arena *a, uint64_t page)
{
    const kvl_geometry *g = &c->geometry;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++)
        if (g->arena[t->arena] == a && page >= kvl_page_floor(a, t->offset) && page < kvl_page_ceil(a, t->end))
            return true;
    return false;
}

/* What could not go back is the engine's again, unless it lies under another cache too. */
static void untouch(kvlazy_cache *c, const kvl_tensor *t)
{
    kvlazy_arena *a = c->geometry.arena[t->arena];
    uint64_t page = kvl_page_floor(a, t->offset), end = kvl_page_ceil(a, t->end);

    for (; (page = kvl_bits_next(a->touched, page, end, true)) < end; page++) {
        bool shared = false;

        for (const kvlazy_cache *m = c->group->first; m && !shared; m = m->next)
            shared = m != c && has_tensor_on(m, a, page);
        if (!shared)
            a->n_touched -= kvl_bits_fill(a->touched, page, page + 1, false);
    }
}

/* An arena outlives its caches: they leave nothing touched in it. */
static void give_all_back(kvlazy_cache *c)
{
    const kvl_geometry *g = &c->geometry;
    uint64_t now_ms = c->group->now_ms;

    if (!kvl_in_arena(c))
        return;
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        kvl_cells_clear(&c->stream[s].cells, kvl_stamp(c, now_ms));
    while (kvl_release_free_piece(c, now_ms))
        ;
    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++)
        untouch(c, t);
}

void kvl_leave_arenas(kvlazy_cache *c)
{
    give_all_back(c);
    for (uint32_t i = 0; i < c->geometry.n_arena; i++) {
        kvlazy_arena *a = c->geometry.arena[i];

        a->group = --a->n_cache ? a->group : NULL;
    }
}
