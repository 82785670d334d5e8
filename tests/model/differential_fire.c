/* SPDX-License-Identifier: MIT */
/*
 * See differential.h: an allocator and a host that refuse at random. What a call may answer then, and that after it
 * everything works and no page is left behind.
 */
#include "differential.h"

#include <stdlib.h>
#include <string.h>

#include "fail_alloc.h"

void kindle(struct world *w)
{
    w->fire.kind = pick(w, 10) ? FIRE_NONE : 1 + (int)pick(w, 3);
    if (left_out(w, "fire"))
        w->fire.kind = FIRE_NONE;
    w->fire.hit = false;
}

void put_out(struct world *w)
{
    alloc_armed = false;
    w->fire.kind = FIRE_NONE;
    w->fire.hit = false;
}

void fire_begin(struct world *w)
{
    static const enum fake_kind kinds[] = {FAKE_ANY, FAKE_ANY, FAKE_COMMIT, FAKE_DECOMMIT};
    int kind = w->first->fire.kind, in;

    w->first->fire.hit = false;
    if (kind == FIRE_NONE)
        return;
    in = pick(w, 2) ? 1 + (int)pick(w, 3) : 0;
    alloc_failed = false;
    alloc_fail_in = kind == FIRE_ALLOC ? in : 0;
    for (struct world *x = w->first; x; x = x->next) {
        x->r->fake.half_commit = kind == FIRE_COMMIT && pick(w, 2);
        fake_fail(&x->r->fake, kinds[kind], kind == FIRE_ALLOC ? 0 : in);
    }
    alloc_armed = true;
}

int fire_end(struct world *w, int status)
{
    struct fire *fire = &w->first->fire;

    if (fire->kind == FIRE_NONE)
        return status;
    alloc_armed = false;
    fire->hit = alloc_failed;
    for (struct world *x = w->first; x; x = x->next) {
        fire->hit = fire->hit || x->r->fake.failed;
        fake_fail(&x->r->fake, FAKE_ANY, 0);
        if (fire->kind == FIRE_COMMIT) /* what half of it did went back, and was never given */
            x->off_bytes = x->r->fake.decommitted_bytes - stats(x->r).released_bytes;
    }
    fire->sore = fire->sore || (fire->hit && fire->kind != FIRE_ALLOC);
    sights.hits[fire->kind] += fire->hit;
    return status;
}

/* Nothing but a refusal makes it ENOMEM. Where a page was not taken back a ceiling may be in the way. */
bool may_lack(const struct world *w, int status)
{
    const struct fire *fire = &w->first->fire;

    return (status == KVLAZY_ENOMEM && fire->hit) ||
           (status == KVLAZY_EBUDGET && w->budget && (fire->sore || (fire->hit && fire->kind != FIRE_ALLOC)));
}

/* What holds no token may have gone, to make room, before the host refused. */
void refused_unchanged(struct world *w, char *before)
{
    const struct fire *fire = &w->first->fire;
    char *now, *pages = strstr(before, "reserved ");

    if (!fire->hit || fire->kind == FIRE_ALLOC) {
        unchanged(w->r, before);
        return;
    }
    now = rig_dump(w->r);
    HOLDS(w, !strncmp(now, before, (size_t)(pages - before)));
    free(now);
    free(before);
}

/* What is left goes when it is due, and then it is as if nothing had refused. Packed, so that it does not matter what
 * could not be moved meanwhile. */
void make_good(struct world *w)
{
    struct world *called = any(w);

    put_out(w);
    end_batch(w);
    pass_time(w, (w->m.idle_ms ? w->m.idle_ms : 1000) * 2);
    if (w->m.idle_ms) {
        begin_asking(called);
        ok(kvlazy_poll(called->r->cache, NULL));
        may_keep_initial(w);
        has_shrunk(called, false, PACKS_NONE);
        for (struct world *x = w->first; x; x = x->next)
            adopt_places(x);
    }
    begin_asking(called);
    ok(kvlazy_trim(called->r->cache, 0));
    may_keep(w, 0);
    has_shrunk(called, true, PACKS_NONE);
    for (struct world *x = w->first; x; x = x->next) {
        adopt_places(x);
        model_rest(&x->m);
        HOLDS(x, stats(x->r).touched_bytes == cover(x->r));
    }
    w->fire.sore = false;
}
