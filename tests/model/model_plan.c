/* SPDX-License-Identifier: MIT */
/* See model_plan.h. */
#include "model_plan.h"

#include <string.h>

#include <kvlazy/status.h>

enum { FINE = 1 << -KVLAZY_OK, NOT_VALID = 1 << -KVLAZY_EINVAL, NOT_NEXT = 1 << -KVLAZY_EPOS };

/* ---- making ---- */

static void note_ends(const struct model *m, struct model_plan *p, int u)
{
    for (uint32_t q = 0; q < MODEL_SEQS; q++)
        p->expect[u][q] = MODEL_ANY;
    for (int i = 0; i < p->n_token; i++)
        for (uint32_t q = 0; q < m->n_seq; q++)
            if (p->token[i].ubatch == u && p->token[i].owners >> q & 1)
                p->expect[u][q] = model_max(m, q);
}

static void note_cells(const struct model *m, struct model_plan *p, int u)
{
    for (int i = 0; i < p->n_token; i++) {
        uint32_t s = p->token[i].stream, c = p->token[i].cell;

        if (p->token[i].ubatch == u)
            p->over[i] = (struct model_over){m->pos[s][c], m->own[s][c], m->n_freed[s][c]};
    }
}

void model_plan_make(const struct model *m, struct model_plan *p, const struct model_token *t, int n, bool restores)
{
    static struct model trial;

    trial = *m;
    memcpy(p->token, t, (size_t)n * sizeof *t);
    memset(p->applied, 0, sizeof p->applied);
    p->n_token = n;
    p->n_ubatch = t[n - 1].ubatch + 1;
    p->stale = false;
    p->restores = restores;
    for (int u = 0; u < p->n_ubatch; u++) {
        note_ends(&trial, p, u);
        note_cells(&trial, p, u);
        model_apply(&trial, p->token, n, u);
    }
}

/* ---- what an apply may answer ---- */

static bool same_tokens(const struct model_plan *p, int u, const struct model_token *t, int n)
{
    int i = 0, k = 0;

    for (; i < p->n_token; i++) {
        if (p->token[i].ubatch != u)
            continue;
        if (k == n || t[k].pos != p->token[i].pos || t[k].owners != p->token[i].owners)
            return false;
        k++;
    }
    return k == n;
}

/* A cell that is empty as planned, or holds the masked token as planned. One that was freed and holds one just like it
 * may be refused or not. */
static uint32_t cell_answers(const struct model *m, const struct model_plan *p, int i)
{
    uint32_t s = p->token[i].stream, c = p->token[i].cell;
    const struct model_over *over = &p->over[i];

    if (over->pos < 0)
        return m->pos[s][c] < 0 ? FINE : NOT_VALID;
    if (m->pos[s][c] != over->pos || m->own[s][c] != over->own || !model_may_take(m, s, c))
        return NOT_VALID;
    return m->n_freed[s][c] == over->n_freed ? FINE : FINE | NOT_VALID;
}

/* A sequence that is empty, and was cut or half copied since prepare, may not begin above 0 any more. */
static bool begins_anew(const struct model *m, const struct model_plan *p, int u, bool sure)
{
    for (uint32_t q = 0; q < m->n_seq && !p->restores; q++) {
        int32_t low = INT32_MAX;

        if (p->expect[u][q] != -1 || model_max(m, q) >= 0 || !m->evicted[q] || (sure && m->again[q]))
            continue;
        for (int i = 0; i < p->n_token; i++)
            if (p->token[i].owners >> q & 1 && p->token[i].pos < low)
                low = p->token[i].pos;
        if (low)
            return true;
    }
    return false;
}

static bool ends_moved(const struct model *m, const struct model_plan *p, int u)
{
    for (uint32_t q = 0; q < m->n_seq; q++)
        if (p->expect[u][q] != MODEL_ANY && p->expect[u][q] != model_max(m, q))
            return true;
    return false;
}

uint32_t model_plan_answers(const struct model *m, const struct model_plan *p, int u, const struct model_token *t,
                            int n)
{
    bool moved = ends_moved(m, p, u) || begins_anew(m, p, u, true);
    uint32_t answers = 0, must = 0;

    if (p->applied[u] || !same_tokens(p, u, t, n))
        return NOT_VALID;
    for (int i = 0; i < p->n_token; i++) {
        uint32_t of_cell = p->token[i].ubatch == u ? cell_answers(m, p, i) : FINE;

        answers |= of_cell & NOT_VALID;
        must |= of_cell & FINE ? 0 : NOT_VALID;
    }
    answers |= moved || begins_anew(m, p, u, false) ? NOT_NEXT : 0;
    return moved || must ? answers : answers | FINE;
}

/* ---- apply and undo ---- */

void model_plan_apply(struct model *m, struct model_plan *p, int u)
{
    model_apply(m, p->token, p->n_token, u);
    p->applied[u] = true;
    for (int i = 0; i < p->n_token; i++)
        if (p->token[i].ubatch == u)
            p->n_freed[i] = m->n_freed[p->token[i].stream][p->token[i].cell];
}

void model_plan_undo(struct model *m, struct model_plan *p, int u)
{
    struct {
        int32_t pos;
        uint32_t own;
    } gone[MODEL_TOKENS];
    int n = 0;

    if (!p->applied[u])
        return;
    p->applied[u] = false;
    for (int i = 0; i < p->n_token; i++) {
        uint32_t s = p->token[i].stream, c = p->token[i].cell;

        if (p->token[i].ubatch != u)
            continue;
        p->over[i] = (struct model_over){-1, 0, 0};
        if (m->pos[s][c] < 0 || m->n_freed[s][c] != p->n_freed[i])
            continue;
        gone[n].pos = m->pos[s][c];
        gone[n++].own = m->own[s][c];
        model_empty(m, s, c);
    }
    for (int i = 0; i < n; i++)
        for (uint32_t q = 0; q < m->n_seq; q++)
            if (gone[i].own >> q & 1)
                model_refill(m, q, gone[i].pos, INT32_MAX);
}
