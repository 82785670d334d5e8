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

bool must_begin_at_0(const struct world *w, uint32_t q)
{
    for (struct world *x = w->first; x; x = x->next)
        if (model_max(&x->m, q) < 0 && ((x->m.evicted[q] && x->m.again[q]) || x->m.unclear[q]))
            return true;
    return false;
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
        next[q] = furthest(w, q) + 1;
        if (!next[q] && !pick(w, 5) && !must_begin_at_0(w, q))
            next[q] = (kvlazy_pos)pick(w, 50);
    }
}

/* Its tokens are those from `first` on. */
static void end_ubatch(struct world *w, int u, int first)
{
    w->ubatch[u] = (kvlazy_ubatch){.n_token = (uint32_t)(w->n_token - first),
                                   .pos = w->pos[0] + first,
                                   .n_seq_id = w->n_owner + first,
                                   .seq_id = w->owners + first,
                                   .pos_stride = MODEL_TOKENS};
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
    end_ubatch(w, u, first);
}

/* A restore: any order, if the sequence is empty. */
static void turn_round(struct world *w, uint32_t a, uint32_t b)
{
    for (struct world *x = w->first; x; x = x->next)
        if (x->m.evicted[a] || x->m.evicted[b])
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
    same_batch(w);
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

/* Only what waits in a stream of the batch refuses it. */
static bool batch_waits(const struct world *w)
{
    for (uint32_t q = 0; q < w->m.n_seq; q++)
        for (int i = 0; i < w->n_token; i++)
            if (w->token[i].owners >> q & 1 && model_waits_in(&w->m, model_stream(&w->m, q)))
                return true;
    return false;
}

/* prepare, against what the model expects; true when the batch is on. */
static bool prepare(struct world *w)
{
    static uint32_t choice[MODEL_TOKENS];
    uint32_t bad = model_bad_positions(&w->m, w->token, w->n_token), full = 0;
    bool waits = batch_waits(w), dear = false, open_choice = false;
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
        for (struct world *x = w->first; x; x = x->next)
            x->m.open = true;
        return true;
    }
    unchanged(w->r, before);
    for (struct world *x = w->first; x; x = x->next)
        x->m.open = false;
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
    tell_model(w);
    if (applied)
        model_undo(&w->m, w->token, w->n_token, u);
    carry_torn(w);
}

/* The last one, if its sequences end in every cache where they did before it. */
static void apply_again(struct world *w, int u)
{
    for (struct world *x = w->first; x; x = x->next)
        for (int i = 0; i < x->n_token; i++)
            for (uint32_t q = 0; q < x->m.n_seq; q++)
                if (x->token[i].ubatch == u && x->token[i].owners >> q & 1 && model_max(&x->m, q) != x->was[q])
                    return;
    for (struct world *x = w->first; x; x = x->next)
        apply(x, u);
    sights.replayed++;
}

static void compute(struct world *w)
{
    struct world *all[MODEL_LINKED];
    int n = shuffled(w, all), n_apply = pick(w, 10) ? w->n_ubatch : (int)pick(w, (uint32_t)w->n_ubatch + 1), u;

    for (u = 0; u < n_apply; u++)
        for (int i = 0; i < n; i++) {
            for (uint32_t q = 0; q < w->m.n_seq; q++)
                all[i]->was[q] = model_max(&all[i]->m, q);
            apply(all[i], u);
        }
    for (u = w->n_ubatch; u > 0 && !pick(w, 6); u--)
        for (int i = 0; i < n; i++)
            undo(all[i], u - 1, u <= n_apply);
    if (n_apply && u == n_apply - 1 && pick(w, 2))
        apply_again(w, u);
}

/* All or none: when one of them refused, what another prepared is closed too. */
static bool prepare_all(struct world *w)
{
    struct world *all[MODEL_LINKED];
    int n = shuffled(w, all);

    for (int i = 0; i < n; i++)
        if (!prepare(all[i])) {
            for (int k = 0; k < i; k++) {
                char *before = rig_dump(all[k]->r);

                expect(kvlazy_apply_ubatch(all[k]->r->cache, &all[k]->r->slot[0], &all[k]->ubatch[0]), KVLAZY_EINVAL);
                unchanged(all[k]->r, before);
                sights.refused_by_other++;
            }
            return false;
        }
    return true;
}

/* One of them opens it for all. */
static void open_batch(struct world *w)
{
    struct world *called = any(w);

    ok(kvlazy_init_batch(called->r->cache));
    for (struct world *x = w->first; x; x = x->next)
        model_end(&x->m);
    if (called->shape->flags & KVLAZY_SHRINK_AT_INIT) {
        may_keep_initial(w);
        has_shrunk(called, false, PACKS_RESTED);
    }
    for (struct world *x = w->first; x; x = x->next)
        x->m.open = true;
}

static void end_batch(struct world *w)
{
    ok(kvlazy_end_batch(any(w)->r->cache));
    for (struct world *x = w->first; x; x = x->next)
        model_end(&x->m);
    for (struct world *x = w->first; x; x = x->next)
        has_decayed(x);
}

void empty_batch(struct world *w)
{
    open_batch(w);
    end_batch(w);
}

static bool waits(const struct world *w)
{
    for (struct world *x = w->first; x; x = x->next)
        if (model_waits(&x->m))
            return true;
    return false;
}

void op_batch(struct world *w)
{
    if (waits(w) && pick(w, 4))
        op_shift_done(w);
    for (uint32_t q = 0; q < w->m.n_seq; q++)
        if (furthest(w, q) > POS_ENOUGH || (is_stuck(w, q) && (must_begin_at_0(w, q) || pick(w, 4))))
            remove_whole(w, q);
    if (w->m.open || pick(w, 3))
        open_batch(w);
    make_batch(w);
    if (!prepare_all(w))
        return;
    compute(w);
    if (pick(w, 8))
        end_batch(w);
}

/* One sequence goes on, token by token. */
void op_decode(struct world *w)
{
    uint32_t q = pick(w, w->m.n_seq);

    for (int n = 3 + (int)pick(w, 40); n && !waits(w) && !is_stuck(w, q) && furthest(w, q) < POS_ENOUGH; n--) {
        open_batch(w);
        w->n_token = 0;
        add_token(w, 0, furthest(w, q) + 1, 1u << q);
        end_ubatch(w, 0, 0);
        w->n_ubatch = 1;
        same_batch(w);
        if (!prepare_all(w))
            return;
        for (struct world *x = w->first; x; x = x->next)
            apply(x, 0);
        end_batch(w);
        sights.decoded++;
        pass_time(w, pick(w, 9));
    }
}
