/* SPDX-License-Identifier: MIT */
/*
 * See differential.h: the questions of on_evict. Each sequence is asked about once in a call, what was asked is what
 * happens, a keep holds for an idle time, and a yes until its sequence changes.
 */
#include "differential.h"

#include <stdlib.h>

/* Random vetoes, from here on for one call. */
void begin_asking(struct world *called)
{
    for (struct world *x = called->first; x; x = x->next)
        x->r->n_evict = 0;
    called->r->veto = pick(called, 5) ? 0 : pick(called, 1u << called->m.n_seq);
}

static bool is_veto(const struct world *called, int i)
{
    return called->r->veto >> called->r->evict[i].seq & 1;
}

/* Question i is about more of a sequence that was asked about in the first of two rounds. */
static bool asks_for_more(const struct world *called, int i)
{
    const struct rig_evict *asked = called->r->evict;

    for (int k = 0; k < i; k++)
        if (asked[k].seq == asked[i].seq && asked[k].pos <= asked[i].pos)
            return false;
    return called->twice;
}

/* One cache asks, and about each sequence once. */
void heed_answers(struct world *called)
{
    uint32_t seen = 0;

    for (struct world *x = called->first; x; x = x->next)
        HOLDS(x, x == called || !x->r->n_evict);
    for (int i = 0; i < called->r->n_evict; i++) {
        uint32_t q = (uint32_t)called->r->evict[i].seq;

        HOLDS(called, !(seen >> q & 1) || asks_for_more(called, i));
        seen |= 1u << q;
        called->first->n_asked++;
        sights.asked++;
        sights.vetoed += is_veto(called, i);
        for (struct world *x = called->first; x; x = x->next)
            x->m.agreed[q] = !is_veto(called, i);
        for (struct world *x = called->first; x && is_veto(called, i); x = x->next)
            x->m.veto[q] = x->m.now + (x->m.idle_ms ? x->m.idle_ms : 1);
    }
}

/* Sequences that lose what they agreed to and no more: in a poll those that agreed before; with a keep among the
 * answers those that had agreed by then, for each is asked once; and for want of memory shared cells stay. */
uint32_t curbed(const struct world *called, bool force)
{
    const struct fire *fire = &called->first->fire;
    uint32_t curbed = 0, asked = 0;
    bool vetoed = false;

    for (uint32_t q = 0; q < called->m.n_seq && !force; q++)
        curbed |= (uint32_t)called->m.agreed[q] << q;
    for (int i = 0; i < called->r->n_evict; i++) {
        vetoed = vetoed || is_veto(called, i);
        asked |= 1u << called->r->evict[i].seq;
    }
    return fire->hit && fire->kind == FIRE_ALLOC ? UINT32_MAX : curbed | (vetoed ? asked : 0);
}

static bool is_asked_later(const struct world *called, int i)
{
    for (int k = i + 1; k < called->r->n_evict; k++)
        if (called->r->evict[k].seq == called->r->evict[i].seq)
            return true;
    return false;
}

/* What was agreed to is what is there now; with a keep among the answers all that is sure is that -1 was true. */
void keep_word(struct world *called)
{
    bool vetoed = false;

    for (int i = 0; i < called->r->n_evict; i++)
        vetoed = vetoed || is_veto(called, i);
    for (int i = 0; i < called->r->n_evict; i++) {
        const struct rig_evict *asked = &called->r->evict[i];
        int32_t max = furthest(called->first, (uint32_t)asked->seq);

        if (is_veto(called, i) || is_asked_later(called, i))
            continue;
        HOLDS(called, asked->pos >= 0 || max < 0);  /* told that all goes, and tokens stayed */
        HOLDS(called, vetoed || asked->pos == max); /* what was asked is what happened */
        HOLDS(called, asked->pos <= max);
    }
}

/* ---- a batch that is opened while it is asked ---- */

static struct {
    kvlazy_cache *cache;
    int in; /* questions from now */
} disturber;

static void open_batch_inside(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    (void)r;
    (void)seq;
    (void)pos;
    if (--disturber.in == 0)
        ok(kvlazy_init_batch(disturber.cache));
}

/* The same questions, of sequences that nothing happened to, are not put again. */
static void has_held(struct world *called, const struct rig_evict *yes, int n_yes)
{
    for (int i = 0; i < called->r->n_evict; i++)
        for (int k = 0; k < n_yes; k++)
            HOLDS(called, called->r->evict[i].seq != yes[k].seq || called->r->evict[i].pos != yes[k].pos);
}

static int poll_disturbed(struct world *w, struct world *called)
{
    int status;

    disturber.in = 1 + (int)pick(w, 3);
    disturber.cache = any(w)->r->cache;
    begin_asking(called);
    called->r->in_evict = open_batch_inside;
    status = kvlazy_poll(called->r->cache, NULL);
    called->r->in_evict = NULL;
    for (struct world *x = w->first; x; x = x->next)
        model_end(&x->m);
    return status;
}

/* What was said yes to; the batch that was opened inside is ended. */
static int give_up(struct world *w, struct world *called, struct rig_evict yes[MODEL_SEQS])
{
    int n_yes = 0;

    HOLDS(called, disturber.in <= 0);
    heed_answers(called);
    for (int i = 0; i < called->r->n_evict; i++)
        if (!is_veto(called, i))
            yes[n_yes++] = called->r->evict[i];
    for (struct world *x = w->first; x; x = x->next)
        x->m.open = true;
    w->first->n_opened++;
    end_batch(w);
    return n_yes;
}

/* Nothing goes when a batch is opened while on_evict is asked. */
void op_poll_disturbed(struct world *w, struct world *called)
{
    struct rig_evict yes[MODEL_SEQS];
    char *before = rig_dump(called->r);
    int status = poll_disturbed(w, called), n_yes;

    if (status == KVLAZY_OK) { /* too few were asked about */
        free(before);
        may_keep_initial(w);
        has_shrunk(called, false, PACKS_RESTED);
        return;
    }
    expect(status, KVLAZY_EBUSY);
    unchanged(called->r, before);
    sights.disturbed++;
    n_yes = give_up(w, called, yes);
    op_poll_now(w, called);
    has_held(called, yes, n_yes);
}
