/* SPDX-License-Identifier: MIT */
/*
 * What the naive model remembers of a prepare: for each token its cell and what that cell held, and where each sequence
 * must end for an apply to be right. Whether a slot belongs to the plan the caller finds out; what happened to the
 * cells and sequences since, the plan does.
 */
#ifndef MODEL_PLAN_H
#define MODEL_PLAN_H

#include "model.h"

struct model_plan {
    uint64_t batch; /* the number of the batch it was made in, by the caller */
    bool stale;     /* by the caller: its slots name nothing any more */
    bool restores;  /* saved tokens come back */
    int n_token, n_ubatch;
    bool applied[MODEL_UBATCHES];
    struct model_token token[MODEL_TOKENS];
    struct model_over {
        int32_t pos; /* -1: the cell is to be empty */
        uint32_t own, n_freed;
    } over[MODEL_TOKENS];           /* the masked token that is to be overwritten */
    uint32_t n_freed[MODEL_TOKENS]; /* model.n_freed of the cell when the token came into it */
    int32_t expect[MODEL_UBATCHES]
                  [MODEL_SEQS]; /* the end of a sequence before this ubatch; MODEL_ANY: it is not in it */
};

enum { MODEL_ANY = -2 };

/* Of a batch that model_place placed. */
void model_plan_make(const struct model *m, struct model_plan *p, const struct model_token *t, int n, bool restores);

/* What an apply of ubatch u may answer when tokens t[n] are offered for it, a bit each: 1 << -status of OK, EINVAL,
 * EPOS. Limits are the caller's business. */
uint32_t model_plan_answers(const struct model *m, const struct model_plan *p, int u, const struct model_token *t,
                            int n);
void model_plan_apply(struct model *m, struct model_plan *p, int u);
/* Empties the cells that apply filled, whatever they hold now, but for those that were freed since. */
void model_plan_undo(struct model *m, struct model_plan *p, int u);

#endif
