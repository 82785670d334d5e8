/* SPDX-License-Identifier: MIT */
/*
 * check: recomputes every number a cache keeps and names the first that is wrong. Tests call it through
 * kvlazy_check, builds with KVLAZY_CHECKS=2 after every call that changed something.
 */
#include "cache.h"

#include <inttypes.h>
#include <stdio.h>

static kvl_fault check_arena(const kvlazy_arena *a)
{
    uint64_t n = a->touched ? kvl_bits_count(a->touched, 0, a->n_page) : 0;

    return a->n_touched != n ? (kvl_fault){"touched pages, bitmap", a->n_touched, n} : (kvl_fault){0};
}

/* Rows of live cells are about to be read, or were written: their pages are touched. */
static kvl_fault check_live_touched(const kvlazy_cache *c, uint32_t s)
{
    const kvl_cells *cells = &c->stream[s].cells;
    uint32_t end = cells->used_end, stop;

    for (uint32_t i = 0; (i = (uint32_t)kvl_bits_next(cells->used, i, end, true)) < end; i = stop) {
        stop = (uint32_t)kvl_bits_next(cells->used, i, end, false);
        for (uint32_t t = 0; t < c->geometry.n_tensor; t++)
            if (!kvl_arena_has(&c->arena, kvl_tensor_span(&c->geometry.tensor[t], s, i, stop)))
                return (kvl_fault){"a live cell's page is not touched; run of cells from, to", i, stop};
    }
    return (kvl_fault){0};
}

/* A touched page has a cell that will come due, or one that lives: else nothing would ever give it back. */
static kvl_fault check_all_due(kvlazy_cache *c)
{
    if (c->arena.n_refused)
        return (kvl_fault){0}; /* what the host refused waits for its own time */
    kvl_keep_live(c);
    for (uint32_t s = 0; s < c->params.n_stream; s++) {
        kvl_cells *cells = &c->stream[s].cells;

        for (size_t w = 0; w < kvl_bits_words(cells->n_cell); w++)
            cells->keep[w] |= cells->fallow[w];
    }
    uint64_t n = kvl_kept_pages(c, true);
    return n != c->arena.n_touched ? (kvl_fault){"touched pages, under live or fallow cells", c->arena.n_touched, n}
                                   : (kvl_fault){0};
}

static kvl_fault check_seqs(const kvlazy_cache *c)
{
    uint32_t n_pending = 0;

    for (uint32_t i = 0; i < c->params.n_seq_max; i++)
        n_pending += c->seq[i].pending;
    if (n_pending != c->n_active)
        return (kvl_fault){"sequences to stamp", c->n_active, n_pending};
    return (kvl_fault){0};
}

static kvl_fault check(kvlazy_cache *c)
{
    kvl_fault fault = check_arena(&c->arena);

    for (uint32_t s = 0; !fault.what && s < c->params.n_stream; s++)
        fault = kvl_cells_check(&c->stream[s].cells);
    for (uint32_t s = 0; !fault.what && s < c->params.n_stream; s++)
        fault = check_live_touched(c, s);
    if (!fault.what)
        fault = check_all_due(c);
    return fault.what ? fault : check_seqs(c);
}

static const char *describe(kvlazy_cache *c, const kvl_fault *fault)
{
    if (!fault->what)
        return NULL;
    snprintf(c->reason, sizeof c->reason, "%s: %" PRIu64 ", counted %" PRIu64, fault->what, fault->kept,
             fault->counted);
    return c->reason;
}

int kvlazy_check(const kvlazy_cache *cache, const char **reason)
{
    kvlazy_cache *c = (kvlazy_cache *)(uintptr_t)cache; /* the text is kept in it */

    if (kvl_enter(c))
        return KVLAZY_EINVAL;
    kvl_fault fault = check(c);
    const char *text = describe(c, &fault);

    if (reason)
        *reason = text;
    return kvl_leave(c, text ? KVLAZY_ESTATE : KVLAZY_OK);
}

#if KVLAZY_CHECKS >= 2
void kvl_check_or_die(kvlazy_cache *c)
{
    kvl_fault fault = check(c);

    describe(c, &fault);
    KVL_ASSERT(!fault.what);
}
#endif
