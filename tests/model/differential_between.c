/* SPDX-License-Identifier: MIT */
/*
 * See differential.h: what an engine may do between prepare and apply. Each slot is then applied as it comes, in order
 * or not, once or twice, with its own ubatch or another one, before or after its batch ended, and taken back.
 */
#include "differential.h"

static void prepare_again(struct world *w)
{
    clear_the_way(w);
    make_batch(w);
    if (!prepare_all(w))
        end_batch(w); /* on every way out */
}

/* One of an earlier prepare, if it names nothing, or the caches are not linked. */
static void undo_former(struct world *w, uint32_t u)
{
    struct world *x = any(w);

    if (x->former[u].cell && (!w->next || slot_number(x, &x->former[u]) < 0))
        undo_slot(x, &x->former[u]);
}

static void undo_any(struct world *w)
{
    uint32_t u = pick(w, MODEL_UBATCHES - 1);

    if (!pick(w, 6)) {
        undo_former(w, u);
        return;
    }
    for (struct world *x = w; x; x = x->next)
        if ((int)u >= x->plan.n_ubatch || (w->next && x->plan.stale)) /* linked ones take the same back, or nothing */
            return;
    sights.undone_late += w->plan.applied[u];
    undo_all(w, (int)u);
}

/* A slot with another ubatch, or one of an earlier prepare: only a right one is applied in all. */
static void apply_wrong(struct world *w)
{
    uint32_t u = pick(w, MODEL_UBATCHES - 1), v = pick(w, (uint32_t)w->n_ubatch);
    struct world *x = any(w);
    const kvlazy_slot *slot = pick(w, 2) ? &x->former[u] : &x->planned[u];

    if (!slot->cell || (w->next && slot_number(x, slot) >= 0))
        return;
    apply_slot(x, slot, (int)v);
}

static void turn_over(struct world *w)
{
    if (pick(w, 3))
        end_batch(w);
    if (pick(w, 4))
        open_batch(w);
}

static void interfere(struct world *w)
{
    static const struct {
        uint32_t weight;
        void (*run)(struct world *);
    } ops[] = {{10, op_remove},  {14, op_copy},      {10, op_move}, {1, op_keep}, {12, undo_any},    {5, turn_over},
               {5, apply_wrong}, {3, prepare_again}, {2, op_poll},  {1, op_trim}, {3, op_shift_done}};
    uint32_t total = 0, chosen;
    size_t i = 0;

    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        total += ops[k].weight;
    for (chosen = pick(w, total); chosen >= ops[i].weight; i++)
        chosen -= ops[i].weight;
    ops[i].run(w);
}

/* In order as a rule. A cache of which the plan was replaced by one of fewer ubatches has no such slot. */
static void apply_next(struct world *w, int *next)
{
    int u = pick(w, 8) ? *next : (int)pick(w, MODEL_UBATCHES - 1);

    for (struct world *x = w->first; x; x = x->next)
        if (x->plan.n_ubatch <= u || w->n_ubatch <= u)
            return;
    if (!apply_all(w, u) && u == *next)
        ++*next;
}

void op_between(struct world *w)
{
    int next = 0;

    clear_the_way(w);
    if (w->m.open || pick(w, 3))
        open_batch(w);
    make_batch(w);
    if (!prepare_all(w)) {
        end_batch(w);
        return;
    }
    for (int n = 2 + (int)pick(w, 7); n; n--) {
        if (pick(w, 2))
            interfere(w);
        else
            apply_next(w, &next);
    }
    if (pick(w, 8))
        end_batch(w);
}
