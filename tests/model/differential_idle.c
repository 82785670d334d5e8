/* SPDX-License-Identifier: MIT */
/* See differential.h: idle times and limits. One cache of a world is called, and all are served. */
#include "differential.h"

#include <stdlib.h>
#include <string.h>

/* What was applied before a failed prepare counts as used now. */
static void settle_batch(struct world *w)
{
    for (struct world *x = w->first; x; x = x->next)
        model_end(&x->m);
}

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
    HOLDS(w, !w->m.idle_ms || w->first->fire.sore || stats(w->r).touched_bytes <= cover_with(w->r, n, stream, cell));
}

/* Streams of which some sequence lost tokens, though others may still hold all of them. */
static uint32_t streams_that_lost(const struct model *m, const struct model *left)
{
    uint32_t streams = 0;

    for (uint32_t s = 0; s < m->n_stream; s++)
        if (memcmp(m->own[s], left->own[s], sizeof m->own[s]))
            streams |= 1u << s;
    return streams;
}

/* Of a poll: what came to rest or lost tokens, if there is anything to move. One that moves is followed by all. */
static uint32_t streams_to_pack(struct world *w, const uint32_t *lost)
{
    uint32_t streams = 0;
    int i = 0;

    for (struct world *x = w->first; x; x = x->next, i++) {
        uint32_t due = model_rest(&x->m) | lost[i];

        for (uint32_t s = 0; s < x->m.n_stream; s++)
            if (due >> s & 1 && !is_dense(&x->m, s))
                streams |= 1u << s;
    }
    return streams;
}

/* Where the library moved what. That no token came from nowhere the rig saw. */
void adopt_places(struct world *w)
{
    static struct model after;

    after = w->m;
    read_cells(w, &after);
    after.n_moved = stats(w->r).moved_cells;
    w->plan.stale = w->plan.stale || after.n_moved != w->m.n_moved;
    w->m = after;
    for (uint32_t s = 0; s < w->m.n_stream; s++)
        for (uint32_t c = 0; c < w->m.kv_size; c++)
            if (w->m.pos[s][c] < 0)
                w->m.dead_since[s][c] = 0;
}

/* What could not be moved since something refused, nothing says. Slots of a cache that moved are stale. */
static void has_packed(struct world *called, uint32_t streams)
{
    struct fire *fire = &called->first->fire;
    uint64_t had[MODEL_LINKED];
    int i = 0;

    if (fire->hit || fire->sore) {
        fire->sore = true;
        for (struct world *x = called->first; x; x = x->next)
            adopt_places(x);
        return;
    }
    for (struct world *x = called->first; x; x = x->next)
        had[i++] = x->m.n_moved;
    pack(called, streams);
    i = 0;
    for (struct world *x = called->first; x; x = x->next, i++)
        x->plan.stale = x->plan.stale || x->m.n_moved != had[i];
}

/* Sequences that on_evict agreed about before this call; a call that was made for a result asks anew. */
static uint32_t agreed_before(const struct world *called, bool force)
{
    uint32_t agreed = 0;

    for (uint32_t q = 0; q < called->m.n_seq && !force; q++)
        agreed |= (uint32_t)called->m.agreed[q] << q;
    return agreed;
}

void has_shrunk(struct world *called, bool force, enum packs packs)
{
    static struct model after, left[MODEL_LINKED];
    struct model_shrunk all[MODEL_LINKED];
    uint32_t lost[MODEL_LINKED], held = curbed(called, force), agreed = agreed_before(called, force);
    const char *wrong;
    int n = 0;

    heed_answers(called);
    for (struct world *x = called->first; x; x = x->next) {
        tell_model(x);
        after = x->m;
        read_cells(x, &after);
        model_left(&x->m, &after, &left[n]);
        lost[n] = streams_that_lost(&x->m, &left[n]);
        all[n] = (struct model_shrunk){&x->m, &left[n], x->target, held, agreed, 0};
        n++;
    }
    wrong = model_judge(all, n, force);
    if (wrong)
        broken(called, wrong, __LINE__);
    keep_word(called);
    if (packs != PACKS_NONE)
        has_packed(called, packs == PACKS_ALL ? UINT32_MAX : streams_to_pack(called, lost));
}

void may_keep_initial(struct world *w)
{
    for (struct world *x = w->first; x; x = x->next)
        x->target = x->m.idle_ms ? x->m.initial : x->m.kv_size;
}

void may_keep(struct world *w, uint32_t cells)
{
    for (struct world *x = w->first; x; x = x->next)
        x->target = cells ? cells : x->m.kv_size;
}

void op_poll_now(struct world *w, struct world *called)
{
    uint64_t next;
    char *before[MODEL_LINKED];
    uint32_t held;
    int n = 0;

    begin_asking(called);
    ok(CALL(w, poll_next(called->r, &next)));
    held = curbed(called, false);
    settle_batch(w);
    may_keep_initial(w);
    has_shrunk(called, false, PACKS_RESTED);
    if (w->first->fire.sore)
        return;
    if (!next) { /* what agreed lost that, and has more to lose */
        HOLDS(w, held);
        op_poll_now(w, called);
        return;
    }
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

    if (!w->m.open && !w->first->fire.kind && !left_out(w, "disturb") && !pick(w, 5)) {
        op_poll_disturbed(w, called);
        return;
    }
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
    int status;

    begin_asking(called);
    status = CALL(w, kvlazy_trim(called->r->cache, cells));
    expect(status, w->m.open ? KVLAZY_EBUSY : KVLAZY_OK);
    if (status)
        return;
    settle_batch(w);
    may_keep(w, cells);
    has_shrunk(called, true, PACKS_ALL);
    for (struct world *x = w->first; x; x = x->next)
        HOLDS(x, w->first->fire.sore || stats(x->r).touched_bytes == cover(x->r));
}

void op_clear(struct world *w)
{
    bool data = pick(w, 2);

    ok(CALL(w, kvlazy_clear(any(w)->r->cache, data)));
    for (struct world *x = w->first; x; x = x->next) {
        model_clear(&x->m);
        HOLDS(x, !data || w->first->fire.sore || stats(x->r).touched_bytes == 0);
    }
}

/* Where a ceiling kept cells from being moved, tokens go until what stays fits where it is, and then it is moved once
 * more: what the first round left, nothing says. The rig saw that what moved was a token with its bytes. */
static void take_places(struct world *w)
{
    static struct model after;
    kvlazy_stats_info info = stats(w->r);
    bool same;

    after = w->m;
    read_cells(w, &after);
    same = !memcmp(after.pos, w->m.pos, sizeof after.pos) && !memcmp(after.own, w->m.own, sizeof after.own);
    sights.packed_twice += !same;
    w->plan.stale = w->plan.stale || info.moved_cells != w->m.n_moved;
    w->m = after;
    w->m.n_moved = info.moved_cells;
    HOLDS(w, info.n_evict >= w->m.n_evict && info.n_evict <= w->m.n_evict + w->m.n_seq); /* cut in both rounds */
    w->m.n_evict = info.n_evict;
    for (uint32_t s = 0; s < w->m.n_stream; s++)
        for (uint32_t c = 0; c < w->m.kv_size; c++)
            if (w->m.pos[s][c] < 0)
                w->m.dead_since[s][c] = 0;
}

/* A lower budget takes from all of them what does not fit when all is moved together, other limits from none. */
static void has_lowered(struct world *called, uint64_t budget, uint64_t touched)
{
    static struct model trial[MODEL_LINKED];
    bool acts = budget && budget != UINT64_MAX && touched > budget, fits;
    int i = 0;

    if (!acts) {
        may_keep(called, 0);
        has_shrunk(called, true, PACKS_NONE);
        return;
    }
    for (struct world *x = called->first; x; x = x->next)
        trial[i++] = x->m;
    fits = pack(called, UINT32_MAX);
    i = 0;
    for (struct world *x = called->first; x; x = x->next)
        x->m = trial[i++];
    may_keep(called, fits && packed_cover(called) <= budget ? 0 : UINT32_MAX);
    called->twice = !fits;
    has_shrunk(called, true, PACKS_ALL);
    called->twice = false;
    for (struct world *x = called->first; x; x = x->next) {
        if (!fits)
            take_places(x);
        HOLDS(x, stats(x->r).touched_bytes == cover(x->r));
    }
}

/* Of tokens that on_evict wants to keep, here or in a linked cache, the pages may be more than a lower budget. */
static bool is_kept(const struct model *m)
{
    for (uint32_t q = 0; q < m->n_seq; q++)
        if (m->veto[q] > m->now && model_max(m, q) >= 0)
            return true;
    return false;
}

/* Nobody says whose idle time counts, so all get one. */
static void set_limits(struct world *called, uint32_t initial, uint32_t idle_ms, uint64_t budget)
{
    uint64_t touched = stats(called->r).touched_bytes;
    char *before = rig_dump(called->r);
    int status;

    begin_asking(called);
    status = CALL(called, kvlazy_set_limits(called->r->cache, initial, idle_ms, budget));
    if (!called->m.open)
        settle_batch(called->first);
    if (called->m.open || status) {
        heed_answers(called);
        if (called->m.open || !is_kept(&called->m)) /* in these shapes a lower budget can be kept */
            expect(status, called->m.open ? KVLAZY_EBUSY : KVLAZY_OK);
        else
            expect(status, KVLAZY_EBUDGET);
        unchanged(called->r, before);
        return;
    }
    free(before);
    has_lowered(called, budget, touched); /* a keep that was answered holds for an idle time as it was */
    if (initial != UINT32_MAX)
        called->m.initial = !initial || initial > called->m.kv_size ? called->m.kv_size : initial;
    if (idle_ms != UINT32_MAX)
        called->m.idle_ms = idle_ms;
    if (budget != UINT64_MAX)
        called->budget = budget;
}

void op_limits(struct world *w)
{
    static const uint32_t idles[] = {0, 200, 500, 500, 500, 1000};
    struct world *called = any(w);
    uint32_t initial = pick(w, 2) ? UINT32_MAX : pick(w, called->m.kv_size + 50);
    uint32_t idle_ms = pick(w, 3) ? UINT32_MAX : idles[pick(w, 6)];
    uint64_t budget = UINT64_MAX;

    if (called->shape->budget_pages)
        put_out(w); /* whether a budget can be kept on a host that refuses, nothing says */
    if (called->shape->budget_pages && pick(w, 2))
        budget = pick(w, 8) ? called->shape->page * (10 + pick(w, called->shape->budget_pages + 10)) : 0;
    set_limits(called, initial, idle_ms, budget);
    for (struct world *x = w->first; x; x = x->next)
        if (x != called)
            set_limits(x, UINT32_MAX, idle_ms, UINT64_MAX);
}

/* Holes, of which the pages are gone, and no room for any page more: what stays cannot move there. */
void op_squeeze(struct world *w)
{
    struct world *called = w->next && !w->shape->budget_pages ? w->next : w;

    if (!called->shape->budget_pages) {
        op_limits(w);
        return;
    }
    put_out(w);
    for (int n = 1 + (int)pick(w, 4); n; n--)
        op_remove(w);
    pass_time(w, w->m.idle_ms * 3 / 2);
    empty_batch(w);
    set_limits(called, UINT32_MAX, UINT32_MAX, cover(called->r));
    if (pick(w, 2))
        op_trim(w);
    else
        set_limits(called, UINT32_MAX, UINT32_MAX, cover(called->r) * (20 + pick(w, 80)) / 100);
}
