/* SPDX-License-Identifier: MIT */
/*
 * See differential.h: the mark of a sequence that was cut. It shows only where the sequence is empty and a batch begins
 * above 0, so that this goes there: it idles, does what leaves a mark alone or takes it along, empties a sequence
 * without saying so whole, and begins.
 */
#include "differential.h"

/* One that was cut or that a copy failed onto, if there is one. */
static uint32_t doubtful(struct world *w)
{
    uint32_t q = pick(w, w->m.n_seq);

    for (uint32_t n = 0; n < w->m.n_seq && !w->m.evicted[q]; n++)
        q = (q + 1) % w->m.n_seq;
    return q;
}

/* Positions that neither of them has. */
static void copy_nothing(struct world *w, uint32_t src, uint32_t dst)
{
    int32_t a = furthest(w, src), b = furthest(w, dst), end = a > b ? a : b;

    copy_range(w, src, dst, end + 1, pick(w, 2) ? -1 : end + 20);
}

/* What dst has and src has not goes, and nothing comes. */
static void copy_over(struct world *w, uint32_t src, uint32_t dst)
{
    copy_range(w, src, dst, furthest(w, src) + 1, -1);
}

static void touch(struct world *w, uint32_t q)
{
    uint32_t other = pick(w, w->m.n_seq);

    switch (pick(w, 6)) {
    case 0:
        copy_over(w, other, q);
        break;
    case 1:
        move_range(w, q, furthest(w, q) + 1, -1, 3, 1);
        break;
    case 2:
        copy_range(w, other, q, -1, -1);
        break;
    default:
        copy_nothing(w, other, q);
    }
}

static void begin(struct world *w, uint32_t q)
{
    int32_t pos = must_begin_at_0(w, q) || !pick(w, 4) ? 0 : 1 + (int32_t)pick(w, 60);

    open_batch(w);
    op_shift_done(w);
    begin_at(w, q, furthest(w, q) < 0 ? pos : furthest(w, q) + 1, 1 + (int)pick(w, 12));
    if (prepare_all(w))
        apply_all(w, 0);
    end_batch(w);
}

void op_doubt(struct world *w)
{
    uint32_t q;

    if (w->m.open)
        end_batch(w);
    pass_time(w, w->m.idle_ms + pick(w, 50));
    op_poll(w);
    q = doubtful(w);
    for (int n = (int)pick(w, 4); n; n--)
        touch(w, q);
    if (furthest(w, q) > MODEL_POS - 800)
        remove_whole(w, q);
    if (pick(w, 4))
        remove_range(w, (kvlazy_seq_id)q, pick(w, 2) ? 0 : -1, furthest(w, q) + 1);
    begin(w, q);
}
