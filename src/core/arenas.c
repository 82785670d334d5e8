/* SPDX-License-Identifier: MIT */
/* arenas: see arenas.h. */
#include "core/arenas.h"
#include "core/clock.h"
#include "core/release.h"

static const char *why_not(const kvlazy_arena *a, const kvl_geometry *g, const kvl_group *group)
{
    if (kvl_pages_bytes(a, 1) != g->page_bytes)
        return "has pages of another size than the cache";
    if (a->n_cache && a->group != group)
        return "is used by a cache that is not linked to this one";
    return NULL;
}

/* Below another in the order of arenas, or ending before it begins. */
static bool lies_below(const kvl_geometry *g, const kvl_tensor *t, const kvl_geometry *h, const kvl_tensor *u)
{
    uintptr_t a = (uintptr_t)g->arena[t->arena], b = (uintptr_t)h->arena[u->arena];

    return a != b ? a < b : t->end <= u->offset;
}

/* Those tensors that lie in arenas of the engine come first. */
static uint32_t n_in_arenas(const kvl_geometry *g)
{
    uint32_t n = g->n_host;

    while (n && g->own_bytes && g->tensor[n - 1].arena + 1 == g->n_arena)
        n--;
    return n;
}

/* Finds tensors of both that lie in the same bytes. Both are in the order of arenas and bytes. NULL: there are none. */
static const kvl_tensor *run_into(const kvl_geometry *g, const kvl_geometry *h, const kvl_tensor **other)
{
    uint32_t n = n_in_arenas(g), m = n_in_arenas(h);

    for (uint32_t i = 0, j = 0; i < n && j < m;) {
        *other = &h->tensor[j];
        if (lies_below(g, &g->tensor[i], h, *other))
            i++;
        else if (lies_below(h, *other, g, &g->tensor[i]))
            j++;
        else
            return &g->tensor[i];
    }
    return NULL;
}

static const char *letter(const kvl_tensor *t)
{
    return t->is_v ? "V" : "K";
}

static const kvl_tensor *first_in(const kvl_geometry *g, uint32_t arena)
{
    const kvl_tensor *t = g->tensor;

    while (t->arena != arena)
        t++;
    return t;
}

int kvl_arenas_check(const kvl_geometry *g, const kvlazy_cache *with, kvl_log *log)
{
    const kvl_tensor *t, *other;

    for (const kvlazy_cache *m = with ? with->group->first : NULL; m; m = m->next)
        if ((t = run_into(g, &m->rows.geometry, &other)) != NULL) {
            kvl_log_note(log, KVLAZY_LOG_ERROR,
                         "layer %u %s: it runs into layer %u %s of a linked cache (docs/tensors.md)", t->layer_id,
                         letter(t), other->layer_id, letter(other));
            return KVLAZY_EINVAL;
        }
    for (uint32_t i = 0; i < g->n_arena; i++) {
        const char *why = g->arena[i] ? why_not(g->arena[i], g, with ? with->group : NULL) : NULL;

        if (!why)
            continue;
        t = first_in(g, i);
        kvl_log_note(log, KVLAZY_LOG_ERROR, "layer %u %s: arena = %p: it %s (docs/tensors.md)", t->layer_id, letter(t),
                     (void *)g->arena[i], why);
        return KVLAZY_EINVAL;
    }
    return KVLAZY_OK;
}

void kvl_arenas_use(kvlazy_cache *c)
{
    for (uint32_t i = 0; i < c->rows.geometry.n_arena; i++) {
        c->rows.geometry.arena[i]->group = c->group;
        c->rows.geometry.arena[i]->n_cache++;
    }
}

static bool has_tensor_on(const kvl_rows *rows, const kvlazy_arena *a, uint64_t page)
{
    const kvl_geometry *g = &rows->geometry;

    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++)
        if (g->arena[t->arena] == a && page >= kvl_page_floor(a, t->offset) && page < kvl_page_ceil(a, t->end))
            return true;
    return false;
}

/* What could not go back is the engine's again, unless it lies under another cache too. */
static void untouch(kvlazy_cache *c, const kvl_tensor *t)
{
    kvlazy_arena *a = c->rows.geometry.arena[t->arena];
    uint64_t page = kvl_page_floor(a, t->offset), end = kvl_page_ceil(a, t->end);

    for (; (page = kvl_bits_next(a->touched, page, end, true)) < end; page++) {
        bool shared = false;

        for (const kvlazy_cache *m = c->group->first; m && !shared; m = m->next)
            shared = m != c && has_tensor_on(&m->rows, a, page);
        if (!shared)
            a->n_touched -= kvl_bits_fill(a->touched, page, page + 1, false);
    }
}

/* An arena outlives its caches: they leave nothing touched in it. */
static void give_all_back(kvlazy_cache *c)
{
    const kvl_geometry *g = &c->rows.geometry;
    uint64_t now_ms = c->group->now_ms;

    if (!kvl_rows_in_arena(&c->rows))
        return;
    for (uint32_t s = 0; s < c->params.n_stream; s++)
        kvl_cells_clear(&c->stream[s].cells, now_ms);
    while (kvl_release_free_piece(c, now_ms))
        ;
    for (const kvl_tensor *t = g->tensor; t < g->tensor + g->n_host; t++)
        untouch(c, t);
}

void kvl_arenas_leave(kvlazy_cache *c)
{
    give_all_back(c);
    for (uint32_t i = 0; i < c->rows.geometry.n_arena; i++) {
        kvlazy_arena *a = c->rows.geometry.arena[i];

        a->group = --a->n_cache ? a->group : NULL;
    }
}
