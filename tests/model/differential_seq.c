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

static int remove_in(struct world *w, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    char *before = w->first->fire.kind ? rig_dump(w->r) : NULL;
    int status = CALL(w, kvlazy_seq_rm(w->r->cache, seq, p0, p1));

    tell_model(w);
    if (status == KVLAZY_ENOMEM && may_lack(w, status)) { /* what stays on both sides of a range needs room */
        unchanged(w->r, before);
        return status;
    }
    free(before);
    expect(status, model_remove(&w->m, seq, p0, p1) ? KVLAZY_OK : KVLAZY_ENOTSUP);
    carry_torn(w);
    return KVLAZY_OK;
}

void remove_range(struct world *w, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    struct world *all[MODEL_LINKED];

    int n = shuffled(w, all), n_refused = 0;

    for (int i = 0; i < n; i++)
        n_refused += remove_in(all[i], seq, p0, p1) != KVLAZY_OK;
    w->first->parted = w->first->parted || (n_refused && n_refused < n);
}

void op_remove(struct world *w)
{
    kvlazy_seq_id seq = (kvlazy_seq_id)pick(w, w->m.n_seq + 1) - (pick(w, 10) != 0 ? 0 : 1);
    kvlazy_pos p0, p1;

    seq = seq >= (kvlazy_seq_id)w->m.n_seq ? 0 : seq;
    choose_range(w, seq < 0 ? 0 : (uint32_t)seq, &p0, &p1);
    remove_range(w, seq, p0, p1);
}

void remove_whole(struct world *w, uint32_t seq)
{
    remove_range(w, (kvlazy_seq_id)seq, -1, -1);
}

void op_keep(struct world *w)
{
    uint32_t seq = pick(w, w->m.n_seq);

    for (struct world *x = w->first; x; x = x->next) {
        ok(CALL(w, kvlazy_seq_keep(x->r->cache, (kvlazy_seq_id)seq)));
        model_keep(&x->m, seq);
    }
}

void op_copy(struct world *w)
{
    uint32_t src = pick(w, w->m.n_seq), dst = pick(w, w->m.n_seq);
    kvlazy_pos p0 = -1, p1 = -1;

    if (pick(w, 2))
        choose_range(w, src, &p0, &p1);
    copy_range(w, src, dst, p0, p1);
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

/* With what dst loses counted too, and what a plan may still want: up to a ceiling that holds all of it a copy must not
 * be refused. */
static bool is_right_refusal(struct world *w, uint32_t dst, const uint32_t *to, uint32_t n)
{
    static uint32_t stream[MODEL_CELLS + MODEL_TOKENS], cell[MODEL_CELLS + MODEL_TOKENS];
    uint32_t k = 0;

    for (; k < n; k++) {
        stream[k] = dst;
        cell[k] = to[k];
    }
    for (int i = 0; i < w->plan.n_token && w->m.open && !w->plan.stale; i++) {
        stream[k] = w->plan.token[i].stream;
        cell[k++] = w->plan.token[i].cell;
    }
    return cover_with(w->r, k, stream, cell) > w->budget;
}

static int status_of(int want)
{
    static const int status[] = {KVLAZY_OK, KVLAZY_EINVAL, KVLAZY_ENOSLOT, KVLAZY_ENOTSUP, KVLAZY_OK};

    return status[want];
}

static struct world *copying;

static int copy_under_fire(kvlazy_cache *cache, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    return CALL(copying, kvlazy_seq_cp(cache, src, dst, p0, p1));
}

/* n tokens were to come. */
static void has_not_copied(struct world *w, int status, uint32_t dst, uint32_t n, char *before)
{
    refused_unchanged(w, before);
    sights.copies_refused += status != KVLAZY_ENOTSUP;
    sights.not_for_whole += status == KVLAZY_ENOTSUP;
    if (status != KVLAZY_ENOTSUP && n)
        model_copy_failed(&w->m, dst);
}

static int copy_in(struct world *w, uint32_t src, uint32_t dst, kvlazy_pos p0, kvlazy_pos p1)
{
    static struct model after;
    static uint32_t to[MODEL_CELLS];
    uint32_t n_to;
    char *before = rig_dump(w->r);
    int status, want;

    copying = w;
    status = cp_by(w->r, (kvlazy_seq_id)src, (kvlazy_seq_id)dst, p0, p1, copy_under_fire);
    tell_model(w);
    after = w->m;
    want = model_copy(&after, src, dst, p0, p1, to, &n_to);
    if (status) {
        HOLDS(w,
              (status == KVLAZY_ENOTSUP && want == MODEL_PERHAPS) || status == status_of(want) ||
                  (status == KVLAZY_EBUDGET && want == MODEL_OK && w->budget && is_right_refusal(w, dst, to, n_to)) ||
                  ((want == MODEL_OK || want == MODEL_FULL) && may_lack(w, status)));
        has_not_copied(w, status, dst, model_count(&w->m, src, p0, p1), before);
        return status;
    }
    free(before);
    HOLDS(w, status_of(want) == KVLAZY_OK);
    w->m = after;
    sights.copied_rows += n_to;
    sights.shared += !n_to && src != dst;
    if (n_to && model_max(&w->m, dst) >= 0)
        take_order(w, dst, to, n_to);
    carry_torn(w);
    return status;
}

void copy_range(struct world *w, uint32_t src, uint32_t dst, kvlazy_pos p0, kvlazy_pos p1)
{
    struct world *all[MODEL_LINKED];
    int status = KVLAZY_OK, n = shuffled(w, all), i;

    for (i = 0; i < n && !status; i++)
        status = copy_in(all[i], src, dst, p0, p1);
    w->first->parted = w->first->parted || (w->first->fire.kind && status && i > 1);
    if ((status && i > 1) || ends_differ(w, dst)) /* one has no room, or was emptied: the engine gives it up in all */
        remove_whole(w, dst);
}

static int move_in(struct world *w, uint32_t seq, kvlazy_pos p0, kvlazy_pos p1, int64_t delta, int divisor)
{
    static struct model after;
    char *before = rig_dump(w->r);
    int status, want;

    status = CALL(w, divisor > 1 ? kvlazy_seq_div(w->r->cache, (kvlazy_seq_id)seq, p0, p1, divisor)
                                 : kvlazy_seq_add(w->r->cache, (kvlazy_seq_id)seq, p0, p1, (kvlazy_pos)delta));
    tell_model(w);
    after = w->m;
    want = model_move(&after, seq, p0, p1, delta, divisor);
    HOLDS(w, status == status_of(want) || (status == KVLAZY_ENOTSUP && want == MODEL_PERHAPS) ||
                 (status_of(want) == KVLAZY_OK && may_lack(w, status)));
    if (status)
        unchanged(w->r, before);
    else
        free(before);
    if (!status)
        w->m = after;
    sights.moved += !status;
    sights.not_for_whole += status == KVLAZY_ENOTSUP && w->m.n_plane == 1;
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

void move_range(struct world *w, uint32_t seq, kvlazy_pos p0, kvlazy_pos p1, int64_t delta, int divisor)
{
    struct world *all[MODEL_LINKED];
    int status = KVLAZY_OK, n = shuffled(w, all), i;

    for (i = 0; i < n && !status; i++)
        status = move_in(all[i], seq, p0, p1, delta, divisor);
    w->first->parted = w->first->parted || (w->first->fire.kind && status && i > 1);
    if (status && i > 1)
        remove_whole(w, seq);
}

void op_move(struct world *w)
{
    uint32_t seq = pick(w, w->m.n_seq);
    int32_t max = model_max(&w->m, seq);
    int64_t delta = (int64_t)pick(w, 60) - 30;
    int divisor = pick(w, 4) ? 1 : 1 + (int)pick(w, 4);
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
    move_range(w, seq, p0, p1, delta, divisor);
}

void op_shift_done(struct world *w)
{
    for (struct world *x = w->first; x; x = x->next) {
        ok(CALL(w, kvlazy_shift_done(x->r->cache)));
        model_shift_done(&x->m);
    }
}
