/* SPDX-License-Identifier: MIT */
/* See differential.h: the rules between linked caches, and what the driver needs to keep to them. */
#include "differential.h"

#include <string.h>

struct world *any(struct world *w)
{
    return w->next && pick(w, 2) ? w->next : w;
}

int shuffled(struct world *w, struct world **all)
{
    bool turned = w->next && pick(w, 2);
    int n = w->next ? 2 : 1;

    all[turned] = w;
    all[n - 1 - turned] = w->next ? w->next : w;
    return n;
}

static struct world *other(struct world *w)
{
    return w == w->first ? w->next : w->first;
}

/* What one keeps from eviction stays in all. */
void link_models(struct world *w)
{
    struct model *a = &w->m, *b = &w->next->m;

    a->keep_tokens = b->keep_tokens = a->keep_tokens > b->keep_tokens ? a->keep_tokens : b->keep_tokens;
    a->whole = b->whole = a->window || b->window || a->n_plane > 1 || b->n_plane > 1;
}

void tell_model(struct world *w)
{
    struct world *o = other(w);

    for (uint32_t q = 0; q < w->m.n_seq; q++) {
        w->m.emptied[q] = kvlazy_seq_pos_max(w->r->cache, (kvlazy_seq_id)q) < 0;
        if (!o)
            continue;
        w->m.elsewhere[q] = (struct model_span){model_min(&o->m, q), model_max(&o->m, q)};
        if (w->m.stamp[q] < o->m.stamp[q]) /* they share a clock */
            w->m.stamp[q] = o->m.stamp[q];
        o->m.stamp[q] = w->m.stamp[q];
    }
}

void carry_torn(struct world *w)
{
    struct world *o = other(w);

    for (uint32_t q = 0; o && q < w->m.n_seq; q++) {
        bool sure = w->m.torn >> q & 1, perhaps = w->m.perhaps_torn >> q & 1;

        if (sure || (perhaps && model_max(&o->m, q) >= 0 && kvlazy_seq_pos_max(o->r->cache, (kvlazy_seq_id)q) < 0))
            model_tear(&o->m, q, sure);
        else if (perhaps && model_max(&o->m, q) < 0)
            o->m.evicted[q] = o->m.again[q] = true;
    }
    w->m.torn = w->m.perhaps_torn = 0;
}

int32_t furthest(const struct world *w, uint32_t q)
{
    int32_t max = -1;

    for (struct world *x = w->first; x; x = x->next)
        max = model_max(&x->m, q) > max ? model_max(&x->m, q) : max;
    return max;
}

bool ends_differ(const struct world *w, uint32_t q)
{
    for (struct world *x = w->first; x; x = x->next)
        if (model_max(&x->m, q) != furthest(w, q))
            return true;
    return false;
}

/* A window may hold nothing where a chunk ends, and then start anywhere; else no batch goes on in all. */
bool is_stuck(const struct world *w, uint32_t q)
{
    for (struct world *x = w->first; x; x = x->next)
        if (model_max(&x->m, q) >= 0 && model_max(&x->m, q) != furthest(w, q))
            return true;
    return furthest(w, q) >= 0 && must_begin_at_0(w, q);
}

void same_batch(struct world *w)
{
    struct world *o = w->next;

    if (!o)
        return;
    memcpy(o->token, w->token, sizeof w->token);
    memcpy(o->ubatch, w->ubatch, sizeof w->ubatch);
    o->n_token = w->n_token;
    o->n_ubatch = w->n_ubatch;
    o->restores = w->restores;
}

/* Of one geometry they hold the same tokens in the same cells, whoever of them was called. */
void compare_linked(struct world *w)
{
    const struct shape *a = w->shape, *b = w->next->shape;

    if (a->kv_size != b->kv_size || a->window != b->window || a->n_swa != b->n_swa)
        return;
    HOLDS(w, !memcmp(w->m.pos, w->next->m.pos, sizeof w->m.pos));
    HOLDS(w, !memcmp(w->m.own, w->next->m.own, sizeof w->m.own));
    HOLDS(w, !memcmp(w->m.shift, w->next->m.shift, sizeof w->m.shift));
}
