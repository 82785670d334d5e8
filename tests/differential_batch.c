/* SPDX-License-Identifier: MIT */
/* See differential.h: the batches of a world, right ones and wrong ones. */
#include "differential.h"

#include <stdlib.h>
#include <string.h>

enum { POS_ENOUGH = MODEL_POS - 800 }; /* sequences are not led on from here */

static void add_token(struct world *w, int ubatch, kvlazy_pos pos, uint32_t owners)
{
    int i = w->n_token++;

    w->token[i] = (struct model_token){.ubatch = ubatch, .pos = pos, .owners = owners};
    w->pos[0][i] = pos;
    if (w->m.n_plane > 1) {
        w->pos[1][i] = w->token[i].y = (int32_t)pick(w, 7) - 1;
        w->pos[2][i] = w->token[i].x = (int32_t)pick(w, 7);
    }
    w->n_owner[i] = 0;
    for (int q = 0; q < MODEL_SEQS; q++)
        if (owners >> q & 1)
            w->owner[i][w->n_owner[i]++] = q;
    w->owners[i] = w->owner[i];
}

/* Usually by one; a position may repeat, and with planes be left out. */
static kvlazy_pos step_on(struct world *w)
{
    if (!pick(w, 30))
        return 0;
    return w->m.n_plane > 1 && !pick(w, 12) ? 1 + (kvlazy_pos)pick(w, 9) : 1;
}

/* Of some no more is known than that they may begin at 0. */
static bool must_begin_at_0(const struct world *w, uint32_t q)
{
    return model_max(&w->m, q) < 0 && ((w->m.evicted[q] && w->m.again[q]) || w->m.unclear[q]);
}

static bool may_go_wrong(const struct world *w, uint32_t owners)
{
    for (uint32_t q = 0; q < w->m.n_seq; q++)
        if (owners >> q & 1 && must_begin_at_0(w, q))
            return false;
    return true;
}

static void choose_starts(struct world *w, kvlazy_pos next[MODEL_SEQS])
{
    for (uint32_t q = 0; q < w->m.n_seq; q++) {
        next[q] = model_max(&w->m, q) + 1;
        if (!next[q] && !pick(w, 5) && !must_begin_at_0(w, q))
            next[q] = (kvlazy_pos)pick(w, 50);
    }
}

static void make_ubatch(struct world *w, int u, kvlazy_pos next[MODEL_SEQS], uint32_t a, uint32_t b, int n, bool wrong)
{
    int first = w->n_token;

    while (w->n_token < first + n) {
        uint32_t q = pick(w, 3) ? a : b, owners = 1u << q;

        if (w->m.n_stream == 1 && a != b && next[a] == next[b] && pick(w, 4))
            owners = 1u << a | 1u << b;
        if (wrong && !pick(w, 8) && may_go_wrong(w, owners))
            next[q] += pick(w, 2) ? 2 : -1;
        if (next[q] < 0)
            next[q] = 0;
        add_token(w, u, next[q], owners);
        for (uint32_t o = 0, by = (uint32_t)step_on(w); o < w->m.n_seq; o++)
            next[o] += (owners >> o & 1) ? (kvlazy_pos)by : 0;
    }
    w->ubatch[u] = (kvlazy_ubatch){.n_token = (uint32_t)n,
                                   .pos = w->pos[0] + first,
                                   .n_seq_id = w->n_owner + first,
                                   .seq_id = w->owners + first,
                                   .pos_stride = MODEL_TOKENS};
}

/* A restore: any order, if the sequence is empty. */
static void turn_round(struct world *w, uint32_t a, uint32_t b)
{
    if (w->m.evicted[a] || w->m.evicted[b])
        return;
    for (int i = 0, k = w->n_token - 1; i < k; i++, k--) {
        struct model_token *x = &w->token[i], *y = &w->token[k];
        kvlazy_pos p = x->pos;

        if (x->owners != y->owners)
            continue;
        w->pos[0][i] = x->pos = y->pos;
        w->pos[0][k] = y->pos = p;
    }
}

static void make_batch(struct world *w)
{
    kvlazy_pos next[MODEL_SEQS];
    uint32_t a = pick(w, w->m.n_seq), b = pick(w, w->m.n_seq);
    uint32_t most = pick(w, 12) ? 24 : 120;
    bool wrong = !pick(w, 10);

    choose_starts(w, next);
    w->n_token = 0;
    w->n_ubatch = 1 + (int)pick(w, 3);
    for (int u = 0; u < w->n_ubatch; u++)
        make_ubatch(w, u, next, a, b, 1 + (int)pick(w, most), wrong);
    if (!pick(w, 8))
        turn_round(w, a, b);
}

/* ---- prepare ---- */

static void compare_slots(struct world *w)
{
    int at = 0;

    for (int u = 0; u < w->n_ubatch; u++) {
        HOLDS(w, w->r->slot[u].n_token == w->ubatch[u].n_token);
        for (uint32_t k = 0; k < w->ubatch[u].n_token; k++, at++)
            HOLDS(w, w->r->slot[u].stream[k] == w->token[at].stream && w->r->slot[u].cell[k] == w->token[at].cell);
        HOLDS(w, kvlazy_n_kv(w->r->cache, &w->r->slot[u]) == model_n_kv(&w->m, w->token, w->n_token, u));
    }
    HOLDS(w, kvlazy_refused(w->r->cache) == -1);
}

static bool is_dear(struct world *w)
{
    static uint32_t stream[MODEL_TOKENS], cell[MODEL_TOKENS];

    for (int i = 0; i < w->n_token; i++) {
        stream[i] = w->token[i].stream;
        cell[i] = w->token[i].cell;
    }
    return w->budget && cover_with(w->r, (uint32_t)w->n_token, stream, cell) > w->budget;
}

static void compare_refusal(struct world *w, int status, uint32_t bad, uint32_t full, bool dear, bool open_choice)
{
    kvlazy_seq_id refused = kvlazy_refused(w->r->cache);

    HOLDS(w, (status == KVLAZY_EPOS && bad) || (status == KVLAZY_ENOSLOT && (full || open_choice)) ||
                 (status == KVLAZY_EBUDGET && (dear || open_choice)));
    HOLDS(w, refused >= 0 && refused < (kvlazy_seq_id)w->m.n_seq);
    HOLDS(w, status != KVLAZY_EPOS || bad >> refused & 1);
    HOLDS(w, status != KVLAZY_ENOSLOT || open_choice || full >> model_stream(&w->m, (uint32_t)refused) & 1);
}

/* prepare, against what the model expects; true when the batch is on. */
static bool prepare(struct world *w)
{
    static uint32_t choice[MODEL_TOKENS];
    uint32_t bad = model_bad_positions(&w->m, w->token, w->n_token), full = 0;
    bool waits = model_waits(&w->m), dear = false, open_choice = false;
    char *before = rig_dump(w->r);
    int status = kvlazy_prepare(w->r->cache, w->ubatch, (uint32_t)w->n_ubatch, w->r->slot), n = 0;

    sights.status[-status & 15]++;
    for (int u = 0; u < w->n_ubatch && !status; u++)
        for (uint32_t k = 0; k < w->r->slot[u].n_token && n < w->n_token; k++)
            choice[n++] = w->r->slot[u].cell[k];
    if (!bad)
        full = model_place(&w->m, w->token, w->n_token, status ? NULL : choice, &open_choice);
    if (!bad && !full)
        dear = is_dear(w);
    if (status == KVLAZY_OK) {
        free(before);
        HOLDS(w, !waits);
        HOLDS(w, !bad);
        HOLDS(w, !full);
        HOLDS(w, !dear);
        compare_slots(w);
        w->m.open = true;
        return true;
    }
    unchanged(w->r, before);
    w->m.open = false;
    HOLDS(w, waits == (status == KVLAZY_ESHIFT));
    if (waits)
        HOLDS(w, kvlazy_refused(w->r->cache) == -1);
    else
        compare_refusal(w, status, bad, full, dear, open_choice);
    return false;
}

/* ---- apply, undo, and apply once more ---- */

static void apply(struct world *w, int u)
{
    ok(kvlazy_apply_ubatch(w->r->cache, &w->r->slot[u], &w->ubatch[u]));
    write_rows(w->r, &w->r->slot[u]);
    model_apply(&w->m, w->token, w->n_token, u);
    HOLDS(w, kvlazy_n_kv(w->r->cache, &w->r->slot[u]) == model_n_kv(&w->m, w->token, w->n_token, u));
}

static void undo(struct world *w, int u, bool applied)
{
    ok(kvlazy_undo_ubatch(w->r->cache, &w->r->slot[u]));
    say_emptied(w);
    if (applied)
        model_undo(&w->m, w->token, w->n_token, u);
}

/* The last one, whose sequences end where they did before it. */
static void apply_again(struct world *w, int u, const int32_t was[MODEL_SEQS])
{
    for (int i = 0; i < w->n_token; i++)
        for (uint32_t q = 0; q < w->m.n_seq; q++)
            if (w->token[i].ubatch == u && w->token[i].owners >> q & 1 && model_max(&w->m, q) != was[q])
                return;
    apply(w, u);
    sights.replayed++;
}

void op_batch(struct world *w)
{
    int32_t was[MODEL_SEQS];
    int n_apply, u;

    if (model_waits(&w->m) && pick(w, 4)) {
        ok(kvlazy_shift_done(w->r->cache));
        model_shift_done(&w->m);
    }
    for (uint32_t q = 0; q < w->m.n_seq; q++)
        if (model_max(&w->m, q) > POS_ENOUGH) {
            ok(kvlazy_seq_rm(w->r->cache, (kvlazy_seq_id)q, -1, -1));
            model_remove(&w->m, (int32_t)q, -1, -1);
        }
    if (w->m.open || pick(w, 3)) {
        ok(kvlazy_init_batch(w->r->cache));
        model_end(&w->m);
        if (w->shape->flags & KVLAZY_SHRINK_AT_INIT)
            has_shrunk(w, w->m.initial, false);
        w->m.open = true;
    }
    make_batch(w);
    if (!prepare(w))
        return;
    n_apply = pick(w, 10) ? w->n_ubatch : (int)pick(w, (uint32_t)w->n_ubatch + 1);
    for (u = 0; u < n_apply; u++) {
        for (uint32_t q = 0; q < w->m.n_seq; q++)
            was[q] = model_max(&w->m, q);
        apply(w, u);
    }
    for (u = w->n_ubatch; u > 0 && !pick(w, 6); u--)
        undo(w, u - 1, u <= n_apply);
    if (n_apply && u == n_apply - 1 && pick(w, 2))
        apply_again(w, u, was);
    if (!pick(w, 8))
        return;
    ok(kvlazy_end_batch(w->r->cache));
    model_end(&w->m);
    has_decayed(w);
}
