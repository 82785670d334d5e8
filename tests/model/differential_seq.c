/* SPDX-License-Identifier: MIT */
/* See differential.h: what an engine does to its sequences, one after the other in every cache of a world. */
#include "differential.h"

#include <stdlib.h>

#include "seq_support.h"

static void choose_range(struct world *w, uint32_t seq, kvlazy_pos *p0, kvlazy_pos *p1)
{
    *p0 = pick(w, 3) ? (kvlazy_pos)pick(w, (uint32_t)model_max(&w->m, seq) + 3) : -1;
    *p1 = pick(w, 2) ? *p0 + (kvlazy_pos)pick(w, 30) - 2 : -1;
}

static void remove_in(struct world *w, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    int status = kvlazy_seq_rm(w->r->cache, seq, p0, p1);

    tell_model(w);
    expect(status, model_remove(&w->m, seq, p0, p1) ? KVLAZY_OK : KVLAZY_ENOTSUP);
    carry_torn(w);
}

void remove_whole(struct world *w, uint32_t seq)
{
    struct world *all[MODEL_LINKED];

    for (int i = 0, n = shuffled(w, all); i < n; i++)
        remove_in(all[i], (kvlazy_seq_id)seq, -1, -1);
}

void op_remove(struct world *w)
{
    struct world *all[MODEL_LINKED];
    kvlazy_seq_id seq = (kvlazy_seq_id)pick(w, w->m.n_seq + 1) - (pick(w, 10) != 0 ? 0 : 1);
    kvlazy_pos p0, p1;

    seq = seq >= (kvlazy_seq_id)w->m.n_seq ? 0 : seq;
    choose_range(w, seq < 0 ? 0 : (uint32_t)seq, &p0, &p1);
    for (int i = 0, n = shuffled(w, all); i < n; i++)
        remove_in(all[i], seq, p0, p1);
}

void op_keep(struct world *w)
{
    uint32_t seq = pick(w, w->m.n_seq);

    for (struct world *x = w->first; x; x = x->next) {
        ok(kvlazy_seq_keep(x->r->cache, (kvlazy_seq_id)seq));
        model_keep(&x->m, seq);
    }
}

/* Tokens at one position may come to their cells in any order: the model takes the library's over, if it is one. */
static void take_order(struct world *w, uint32_t s, const uint32_t *to, uint32_t n)
{
    static struct model seen;
    bool used[MODEL_CELLS] = {false};

    read_cells(w, &seen);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = to[i], k;

        for (k = 0; k < n; k++)
            if (!used[k] && w->m.pos[s][to[k]] == seen.pos[s][c] && w->m.shift[s][to[k]] == seen.shift[s][c] &&
                w->m.y[s][to[k]] == seen.y[s][c] && w->m.x[s][to[k]] == seen.x[s][c])
                break;
        if (k == n)
            return; /* it is none, and comparing will say so */
        used[k] = true;
    }
    for (uint32_t i = 0; i < n; i++) {
        w->m.shift[s][to[i]] = seen.shift[s][to[i]];
        w->m.y[s][to[i]] = seen.y[s][to[i]];
        w->m.x[s][to[i]] = seen.x[s][to[i]];
    }
}

/* With what dst loses counted too: up to a ceiling that holds all of it a copy must not be refused. */
static bool is_right_refusal(struct world *w, uint32_t dst, const uint32_t *to, uint32_t n)
{
    static uint32_t stream[MODEL_CELLS];

    for (uint32_t i = 0; i < n; i++)
        stream[i] = dst;
    return cover_with(w->r, n, stream, to) > w->budget;
}

static int copy_in(struct world *w, uint32_t src, uint32_t dst, kvlazy_pos p0, kvlazy_pos p1)
{
    static struct model after;
    static uint32_t to[MODEL_CELLS];
    uint32_t n_to;
    char *before = rig_dump(w->r);
    int status = cp(w->r, (kvlazy_seq_id)src, (kvlazy_seq_id)dst, p0, p1), want;

    tell_model(w);
    after = w->m;
    want = model_copy(&after, src, dst, p0, p1, to, &n_to);
    if (status) {
        HOLDS(w, (status == KVLAZY_ENOTSUP) == (want == MODEL_NOT_SUPPORTED));
        HOLDS(w, (status == KVLAZY_ENOSLOT) == (want == MODEL_FULL));
        HOLDS(w, status != KVLAZY_EBUDGET || (w->budget && is_right_refusal(w, dst, to, n_to)));
        unchanged(w->r, before);
        if (status != KVLAZY_ENOTSUP && model_max(&w->m, dst) < 0) { /* the engine may think that it was copied */
            w->m.evicted[dst] = true;
            w->m.again[dst] = false;
        }
        sights.copies_refused++;
        return status;
    }
    free(before);
    HOLDS(w, want == MODEL_OK);
    w->m = after;
    sights.copied_rows += n_to;
    sights.shared += !n_to && src != dst;
    if (n_to && model_max(&w->m, dst) >= 0)
        take_order(w, dst, to, n_to);
    carry_torn(w);
    return status;
}

void op_copy(struct world *w)
{
    struct world *all[MODEL_LINKED];
    uint32_t src = pick(w, w->m.n_seq), dst = pick(w, w->m.n_seq);
    kvlazy_pos p0 = -1, p1 = -1;
    int status = KVLAZY_OK, n, i;

    if (pick(w, 2))
        choose_range(w, src, &p0, &p1);
    n = shuffled(w, all);
    for (i = 0; i < n && !status; i++)
        status = copy_in(all[i], src, dst, p0, p1);
    if ((status && i > 1) || ends_differ(w, dst)) /* one has no room, or was emptied: the engine gives it up in all */
        remove_whole(w, dst);
}

static int move_in(struct world *w, uint32_t seq, kvlazy_pos p0, kvlazy_pos p1, int64_t delta, int divisor)
{
    char *before = rig_dump(w->r);
    int status, want;

    status = divisor > 1 ? kvlazy_seq_div(w->r->cache, (kvlazy_seq_id)seq, p0, p1, divisor)
                         : kvlazy_seq_add(w->r->cache, (kvlazy_seq_id)seq, p0, p1, (kvlazy_pos)delta);
    tell_model(w);
    want = model_move(&w->m, seq, p0, p1, delta, divisor);
    HOLDS(w, status == (want == MODEL_OK ? KVLAZY_OK : want == MODEL_RANGE ? KVLAZY_EINVAL : KVLAZY_ENOTSUP));
    if (status)
        unchanged(w->r, before);
    else
        free(before);
    sights.moved += !status;
    carry_torn(w);
    return status;
}

/* A window that the first call tears is emptied in all, so that the second call finds nothing to move: not even for
 * those who share the cells. Such sequences are left alone. */
static bool is_shared(const struct world *w, uint32_t seq)
{
    uint32_t s = model_stream(&w->m, seq);

    for (uint32_t c = 0; c < w->m.kv_size; c++)
        if (w->m.own[s][c] >> seq & 1 && w->m.own[s][c] != 1u << seq)
            return true;
    return false;
}

void op_move(struct world *w)
{
    struct world *all[MODEL_LINKED];
    uint32_t seq = pick(w, w->m.n_seq);
    int32_t max = model_max(&w->m, seq);
    int64_t delta = (int64_t)pick(w, 60) - 30;
    int divisor = pick(w, 4) ? 1 : 1 + (int)pick(w, 4), status = KVLAZY_OK, n, i;
    kvlazy_pos p0 = -1, p1 = -1;

    if (pick(w, 3))
        choose_range(w, seq, &p0, &p1);
    if (!pick(w, 12))
        delta = INT32_MAX - (int64_t)pick(w, 3);
    else if (!pick(w, 4))
        delta = -(int64_t)pick(w, (uint32_t)max + 10);
    if (divisor > 1)
        delta = 0;
    for (struct world *x = w->first; x; x = x->next)
        if (w->next && x->m.window && is_shared(x, seq))
            return;
    for (struct world *x = w->first; x; x = x->next)
        if (delta > 100 && model_min(&x->m, seq) + delta <= INT32_MAX - 1)
            return; /* it would fit, but not into the model's small world */
    n = shuffled(w, all);
    for (i = 0; i < n && !status; i++)
        status = move_in(all[i], seq, p0, p1, delta, divisor);
    if (status && i > 1)
        remove_whole(w, seq);
}

void op_shift_done(struct world *w)
{
    for (struct world *x = w->first; x; x = x->next) {
        ok(kvlazy_shift_done(x->r->cache));
        model_shift_done(&x->m);
    }
}
