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

static void make_ordinary(struct world *w)
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

/* Of sequences that hold nothing, as a rule. */
static void empty_some(struct world *w, uint32_t seqs)
{
    for (uint32_t q = 0; q < w->m.n_seq; q++)
        if (seqs >> q & 1 && (pick(w, 12) || must_begin_at_0(w, q)))
            remove_whole(w, q);
}

/* Saved tokens come back: any positions in any order, with gaps and duplicates. */
static void make_restore(struct world *w)
{
    uint32_t a = pick(w, w->m.n_seq), b = pick(w, w->m.n_seq), most = 1 + pick(w, 60), n_pos = 1 + pick(w, 150);
    kvlazy_pos base = pick(w, 2) ? 0 : (kvlazy_pos)pick(w, 100);

    empty_some(w, 1u << a | 1u << b);
    w->restores = true;
    w->n_token = 0;
    w->n_ubatch = 1 + (int)pick(w, 3);
    for (int u = 0; u < w->n_ubatch; u++) {
        int first = w->n_token;

        for (int n = 1 + (int)pick(w, most); n; n--) {
            uint32_t owners = 1u << (pick(w, 2) ? a : b);

            add_token(w, u, base + (kvlazy_pos)pick(w, n_pos),
                      w->m.n_stream == 1 && !pick(w, 3) ? 1u << a | 1u << b : owners);
        }
        end_ubatch(w, u, first);
    }
    same_batch(w);
}

void make_batch(struct world *w)
{
    w->restores = false;
    if (!pick(w, 7) && !left_out(w, "restore"))
        make_restore(w);
    else
        make_ordinary(w);
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
                 (status == KVLAZY_EBUDGET && (dear || open_choice)) || may_lack(w, status));
    if (may_lack(w, status))
        return;
    HOLDS(w, refused >= 0 && refused < (kvlazy_seq_id)w->m.n_seq);
    HOLDS(w, status != KVLAZY_EPOS || bad >> refused & 1);
    HOLDS(w, status != KVLAZY_ENOSLOT || open_choice || full >> model_stream(&w->m, (uint32_t)refused) & 1);
}

/* A shift that waits matters to the streams of the batch alone. */
static bool waits_for_rotation(const struct world *w)
{
    uint32_t streams = 0;

    for (int i = 0; i < w->n_token; i++)
        for (uint32_t q = 0; q < w->m.n_seq; q++)
            if (w->token[i].owners >> q & 1)
                streams |= 1u << model_stream(&w->m, q);
    return model_waits(&w->m, streams);
}

static void has_prepared(struct world *w)
{
    struct world *first = w->first;

    compare_slots(w);
    first->n_opened += !w->m.open;
    for (struct world *x = first; x; x = x->next)
        x->m.open = true;
    memcpy(w->former, w->planned, sizeof w->former);
    memcpy(w->planned, w->r->slot, sizeof w->planned);
    model_plan_make(&w->m, &w->plan, w->token, w->n_token, w->restores);
    w->plan.batch = first->n_opened;
}

static void has_refused(struct world *w, int status, char *before)
{
    refused_unchanged(w, before);
    w->plan.stale = true;
    for (struct world *x = w->first; x; x = x->next)
        x->m.open = false;
    sights.status[-status & 15]++;
}

/* prepare, against what the model expects; true when the batch is on. */
static bool prepare(struct world *w)
{
    static uint32_t choice[MODEL_TOKENS];
    uint32_t bad = model_bad_positions(&w->m, w->token, w->n_token, w->restores), full = 0;
    bool waits = waits_for_rotation(w), dear = false, open_choice = false;
    char *before = rig_dump(w->r);
    int n = 0, status = CALL(w, (w->restores ? kvlazy_prepare_restore : kvlazy_prepare)(
                                    w->r->cache, w->ubatch, (uint32_t)w->n_ubatch, w->r->slot));

    for (int u = 0; u < w->n_ubatch && !status; u++)
        for (uint32_t k = 0; k < w->r->slot[u].n_token && n < w->n_token; k++)
            choice[n++] = w->r->slot[u].cell[k];
    if (!bad)
        full = model_place(&w->m, w->token, w->n_token, w->restores, status ? NULL : choice, &open_choice);
    if (!bad && !full)
        dear = is_dear(w);
    if (status == KVLAZY_OK) {
        free(before);
        HOLDS(w, !waits);
        HOLDS(w, !bad);
        HOLDS(w, !full);
        HOLDS(w, !dear);
        sights.status[0]++;
        sights.restored += w->restores;
        has_prepared(w);
        return true;
    }
    has_refused(w, status, before);
    HOLDS(w, status != KVLAZY_ESHIFT || waits);
    if (status == KVLAZY_ESHIFT)
        return false;
    HOLDS(w, !waits || (bad && status == KVLAZY_EPOS) || may_lack(w, status));
    compare_refusal(w, status, bad, full, dear, open_choice);
    return false;
}

/* All or none: when one of them refused, what another prepared is closed too. */
bool prepare_all(struct world *w)
{
    struct world *all[MODEL_LINKED];
    int n = shuffled(w, all);

    for (int i = 0; i < n; i++)
        if (!prepare(all[i])) {
            for (int k = 0; k < i; k++) {
                char *before = rig_dump(all[k]->r);

                expect(kvlazy_apply_ubatch(all[k]->r->cache, &all[k]->planned[0], &all[k]->ubatch[0]), KVLAZY_EINVAL);
                unchanged(all[k]->r, before);
                sights.refused_by_other++;
            }
            return false;
        }
    return true;
}

/* One of them opens it for all. */
void open_batch(struct world *w)
{
    struct world *called = any(w);
    bool shrinks = called->shape->flags & KVLAZY_SHRINK_AT_INIT;

    begin_asking(called);
    ok(CALL(w, kvlazy_init_batch(called->r->cache)));
    for (struct world *x = w->first; x; x = x->next)
        model_end(&x->m);
    if (shrinks) {
        may_keep_initial(w);
        has_shrunk(called, false, PACKS_RESTED);
    }
    w->first->n_opened++;
    for (struct world *x = w->first; x; x = x->next)
        x->m.open = true;
}

/* A batch is open, or a failed prepare closed it after an apply. */
static bool is_due(const struct world *w)
{
    bool due = w->m.open;

    for (const struct world *x = w->first; x; x = x->next)
        for (uint32_t q = 0; q < x->m.n_seq; q++)
            due = due || x->m.in_batch[q];
    return due;
}

/* Without one nothing happens. */
void end_batch(struct world *w)
{
    bool due = is_due(w);

    ok(CALL(w, kvlazy_end_batch(any(w)->r->cache)));
    for (struct world *x = w->first; x; x = x->next)
        model_end(&x->m);
    for (struct world *x = w->first; x && due; x = x->next)
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
        if (model_waits(&x->m, UINT32_MAX))
            return true;
    return false;
}

/* Some apply some of it, and take it back from behind; the last one may be applied once more. */
static void compute(struct world *w)
{
    int n_apply = pick(w, 10) ? w->n_ubatch : (int)pick(w, (uint32_t)w->n_ubatch + 1), u;

    for (u = 0; u < n_apply; u++)
        if (apply_all(w, u))
            return;
    for (u = w->n_ubatch; u > 0 && !pick(w, 6); u--)
        undo_all(w, u - 1);
    if (n_apply && u == n_apply - 1 && pick(w, 2))
        sights.replayed += !apply_all(w, u);
}

void clear_the_way(struct world *w)
{
    for (uint32_t q = 0; q < w->m.n_seq; q++)
        if (furthest(w, q) > POS_ENOUGH || (is_stuck(w, q) && (must_begin_at_0(w, q) || pick(w, 4))))
            remove_whole(w, q);
}

void op_batch(struct world *w)
{
    if (waits(w) && pick(w, w->m.n_stream > 1 ? 2 : 4))
        op_shift_done(w);
    clear_the_way(w);
    if (w->m.open || pick(w, 3))
        open_batch(w);
    make_batch(w);
    if (!prepare_all(w))
        return;
    compute(w);
    if (pick(w, 8))
        end_batch(w);
}

void begin_at(struct world *w, uint32_t q, kvlazy_pos pos, int n)
{
    w->restores = false;
    w->n_token = 0;
    for (int i = 0; i < n; i++)
        add_token(w, 0, pos + i, 1u << q);
    end_ubatch(w, 0, 0);
    w->n_ubatch = 1;
    same_batch(w);
}

/* One sequence goes on, token by token. */
void op_decode(struct world *w)
{
    uint32_t q = pick(w, w->m.n_seq);

    for (int n = 3 + (int)pick(w, 40); n && !waits(w) && !is_stuck(w, q) && furthest(w, q) < POS_ENOUGH; n--) {
        open_batch(w);
        begin_at(w, q, furthest(w, q) + 1, 1);
        if (!prepare_all(w))
            return;
        sights.decoded += !apply_all(w, 0);
        end_batch(w);
        pass_time(w, pick(w, 9));
    }
}
