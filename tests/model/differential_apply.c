/* SPDX-License-Identifier: MIT */
/*
 * See differential.h: apply and undo of any slot at any time, a stale one too, against what the model's plan says of
 * it. A slot is known by what it points at: one of an earlier prepare may name the same place as one of this.
 */
#include "differential.h"

#include <stdlib.h>

int slot_number(const struct world *w, const kvlazy_slot *slot)
{
    for (int u = 0; u < w->plan.n_ubatch && !w->plan.stale; u++)
        if (slot->cell == w->planned[u].cell && slot->stream == w->planned[u].stream &&
            slot->n_token == w->planned[u].n_token)
            return u;
    return -1;
}

static uint32_t expected_n_kv(const struct world *w, int u)
{
    return u < 0 ? 0 : model_n_kv(&w->m, w->plan.token, w->plan.n_token, u);
}

/* ---- apply ---- */

/* Tokens of ubatch v as they were last made, first[n]. */
static const struct model_token *offered(const struct world *w, int v, int *n)
{
    int first = 0, i = 0;

    for (; i < w->n_token && w->token[i].ubatch <= v; i++)
        first += w->token[i].ubatch < v;
    *n = i - first;
    return &w->token[first];
}

/* With all free pages given back, the rows of the ubatch would pass the ceiling: a copy took the room. */
static bool is_dear(struct world *w, int u)
{
    static uint32_t stream[MODEL_TOKENS], cell[MODEL_TOKENS];
    uint32_t n = 0;

    for (int i = 0; w->budget && i < w->plan.n_token; i++)
        if (w->plan.token[i].ubatch == u) {
            stream[n] = w->plan.token[i].stream;
            cell[n++] = w->plan.token[i].cell;
        }
    return w->budget && cover_with(w->r, n, stream, cell) > w->budget;
}

static uint32_t answers(struct world *w, int u, int v)
{
    const struct model_token *t;
    uint32_t right;
    int n;

    if (u < 0 || !w->m.open || w->plan.batch != w->first->n_opened)
        return 1u << -KVLAZY_EINVAL;
    t = offered(w, v, &n);
    right = model_plan_answers(&w->m, &w->plan, u, t, n);
    if (right & 1u && is_dear(w, u))
        right = (right & ~1u) | 1u << -KVLAZY_EBUDGET;
    return right;
}

int apply_slot(struct world *w, const kvlazy_slot *slot, int v)
{
    int u = slot_number(w, slot), status;
    uint32_t right = answers(w, u, v);
    bool sure = right == 1u && !w->first->fire.kind;
    char *before = sure ? NULL : rig_dump(w->r);

    HOLDS(w, kvlazy_n_kv(w->r->cache, slot) == expected_n_kv(w, u));
    status = CALL(w, kvlazy_apply_ubatch(w->r->cache, slot, &w->ubatch[v]));
    sights.applied[-status & 15]++;
    if (!(right >> -status & 1) && !may_lack(w, status)) {
        print_error("apply answers %s; right (a bit each) is %x\n", kvlazy_status_name(status), (unsigned)right);
        broken(w, "an apply is answered as the model says", __LINE__);
    }
    if (status) {
        if (before)
            refused_unchanged(w, before);
        return status;
    }
    free(before);
    write_rows(w->r, slot);
    model_plan_apply(&w->m, &w->plan, u);
    HOLDS(w, kvlazy_n_kv(w->r->cache, slot) == expected_n_kv(w, u));
    return status;
}

int apply_all(struct world *w, int u)
{
    struct world *all[MODEL_LINKED];
    int n = shuffled(w, all), status[MODEL_LINKED], n_ok = 0;

    for (int i = 0; i < n; i++) {
        status[i] = apply_slot(all[i], &all[i]->planned[u], u);
        n_ok += !status[i];
    }
    if (n_ok == n)
        return KVLAZY_OK;
    for (int i = 0; i < n; i++)
        if (!status[i])
            undo_slot(all[i], &all[i]->planned[u]);
    w->first->parted = w->first->parted || n_ok;
    return n_ok ? KVLAZY_EPOS : status[0];
}

/* ---- undo ---- */

void undo_slot(struct world *w, const kvlazy_slot *slot)
{
    int u = slot_number(w, slot);

    expect(CALL(w, kvlazy_undo_ubatch(w->r->cache, slot)), u < 0 ? KVLAZY_EINVAL : KVLAZY_OK);
    tell_model(w);
    if (u >= 0)
        model_plan_undo(&w->m, &w->plan, u);
    carry_torn(w);
}

void undo_all(struct world *w, int u)
{
    struct world *all[MODEL_LINKED];

    for (int i = 0, n = shuffled(w, all); i < n; i++)
        undo_slot(all[i], &all[i]->planned[u]);
}
