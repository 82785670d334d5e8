/* SPDX-License-Identifier: MIT */
/* See differential.h: idle times and limits. One cache of a world is called, and all are served. */
#include "differential.h"

#include <stdlib.h>

/* After a poll or end_batch no page is left that held no token for one and a half idle times. */
void has_decayed(struct world *w)
{
    static uint32_t stream[MODEL_STREAMS * MODEL_CELLS], cell[MODEL_STREAMS * MODEL_CELLS];
    uint32_t n = 0;

    for (uint32_t s = 0; s < w->m.n_stream; s++)
        for (uint32_t c = 0; c < w->m.kv_size; c++)
            if (w->m.pos[s][c] < 0 && w->m.now - w->m.dead_since[s][c] < w->m.idle_ms * 3 / 2) {
                stream[n] = s;
                cell[n++] = c;
            }
    HOLDS(w, !w->m.idle_ms || stats(w->r).touched_bytes <= cover_with(w->r, n, stream, cell));
}

void has_shrunk(struct world *called, bool force)
{
    static struct model after[MODEL_LINKED];
    struct model_shrunk all[MODEL_LINKED];
    const char *wrong;
    int n = 0;

    for (struct world *x = called->first; x; x = x->next) {
        tell_model(x);
        after[n] = x->m;
        read_cells(x, &after[n]);
        all[n] = (struct model_shrunk){&x->m, &after[n], x->target, 0};
        HOLDS(x, x == called || x->r->n_evict == x->n_asked); /* the one that was called asks */
        n++;
    }
    wrong = model_judge(all, n, force);
    if (wrong)
        broken(called, wrong, __LINE__);
    for (struct world *x = called->first; x; x = x->next)
        x->n_asked = x->r->n_evict;
}

void may_keep_initial(struct world *w)
{
    for (struct world *x = w->first; x; x = x->next)
        x->target = x->m.idle_ms ? x->m.initial : x->m.kv_size;
}

static void may_keep(struct world *w, uint32_t cells)
{
    for (struct world *x = w->first; x; x = x->next)
        x->target = cells ? cells : x->m.kv_size;
}

static void op_poll_now(struct world *w, struct world *called)
{
    uint64_t next;
    char *before[MODEL_LINKED];
    int n = 0;

    ok(poll_next(called->r, &next));
    may_keep_initial(w);
    has_shrunk(called, false);
    HOLDS(w, next);
    for (struct world *x = w->first; x; x = x->next) {
        has_decayed(x);
        HOLDS(x, next != UINT64_MAX || !x->m.idle_ms || stats(x->r).touched_bytes == cover(x->r));
    }
    if (pick(w, 8))
        return;
    for (struct world *x = w->first; x; x = x->next)
        before[n++] = rig_dump(x->r);
    pass_time(w, next == UINT64_MAX ? 5000 : next - 1);
    ok(kvlazy_poll(any(w)->r->cache, NULL)); /* before its time; if there is no time, at any */
    n = 0;
    for (struct world *x = w->first; x; x = x->next)
        unchanged(x->r, before[n++]);
}

void op_poll(struct world *w)
{
    struct world *called = any(w);
    uint64_t next;

    if (!w->m.open) {
        op_poll_now(w, called);
        return;
    }
    expect(poll_next(called->r, &next), KVLAZY_EBUSY);
    HOLDS(w, next == (w->m.idle_ms ? w->m.idle_ms : UINT64_MAX));
}

void op_trim(struct world *w)
{
    uint32_t cells = pick(w, 2) ? 0 : 1 + pick(w, w->m.kv_size);
    struct world *called = any(w);
    int status = kvlazy_trim(called->r->cache, cells);

    expect(status, w->m.open ? KVLAZY_EBUSY : KVLAZY_OK);
    if (status)
        return;
    may_keep(w, cells);
    has_shrunk(called, true);
    for (struct world *x = w->first; x; x = x->next)
        HOLDS(x, stats(x->r).touched_bytes == cover(x->r));
}

void op_clear(struct world *w)
{
    bool data = pick(w, 2);

    ok(kvlazy_clear(any(w)->r->cache, data));
    for (struct world *x = w->first; x; x = x->next) {
        model_clear(&x->m);
        HOLDS(x, !data || stats(x->r).touched_bytes == 0);
    }
}

/* A lower budget takes from all of them, other limits from none. Nobody says whose idle time counts, so all get one. */
static void set_limits(struct world *called, uint32_t initial, uint32_t idle_ms, uint64_t budget)
{
    uint64_t need = cover(called->r);
    char *before = rig_dump(called->r);
    int status = kvlazy_set_limits(called->r->cache, initial, idle_ms, budget);

    if (called->m.open || status) {
        expect(status, called->m.open ? KVLAZY_EBUSY : KVLAZY_OK); /* in these shapes a lower budget can be kept */
        unchanged(called->r, before);
        return;
    }
    free(before);
    if (initial != UINT32_MAX)
        called->m.initial = !initial || initial > called->m.kv_size ? called->m.kv_size : initial;
    if (idle_ms != UINT32_MAX)
        called->m.idle_ms = idle_ms;
    if (budget != UINT64_MAX)
        called->budget = budget;
    may_keep(called, called->budget && need > called->budget ? UINT32_MAX : 0);
    has_shrunk(called, true);
}

void op_limits(struct world *w)
{
    static const uint32_t idles[] = {0, 200, 500, 500, 500, 1000};
    struct world *called = any(w);
    uint32_t initial = pick(w, 2) ? UINT32_MAX : pick(w, called->m.kv_size + 50);
    uint32_t idle_ms = pick(w, 3) ? UINT32_MAX : idles[pick(w, 6)];
    uint64_t budget = UINT64_MAX;

    if (called->shape->budget_pages && pick(w, 2))
        budget = pick(w, 8) ? called->r->fake.page * (10 + pick(w, called->shape->budget_pages + 10)) : 0;
    set_limits(called, initial, idle_ms, budget);
    for (struct world *x = w->first; x; x = x->next)
        if (x != called)
            set_limits(x, UINT32_MAX, idle_ms, UINT64_MAX);
}
