/* SPDX-License-Identifier: MIT */
/*
 * See differential.h: what a shrink moves. The model makes the moves where nothing is in the way; under a budget the
 * cells that are moved to need pages while those that are moved from still have theirs, so a piece of the moves is
 * made or not, in all linked caches together.
 */
#include "differential.h"

#include <string.h>

enum { PIECE_RUNS = 64 };

/* The next moves of one cache: so many runs of cells that stay neighbours. */
static int next_piece(const struct model *m, uint32_t s, struct model_step step[MODEL_CELLS])
{
    int n = model_packing(m, s, step), n_run = 0, i = 0;

    for (; i < n; i++) {
        bool goes_on = i && step[i].from == step[i - 1].from + 1 && step[i].to == step[i - 1].to + 1;

        if (!goes_on && ++n_run > PIECE_RUNS)
            break;
    }
    return i;
}

/* Pages under live cells, and cells that are moved to. */
static uint64_t need_of(struct world *w, uint32_t s, const struct model_step *step, int n_step)
{
    static uint32_t stream[MODEL_STREAMS * MODEL_CELLS + MODEL_CELLS], cell[MODEL_STREAMS * MODEL_CELLS + MODEL_CELLS];
    uint32_t n = 0;

    for (uint32_t t = 0; t < w->m.n_stream; t++)
        for (uint32_t c = 0; c < w->m.kv_size; c++)
            if (w->m.pos[t][c] >= 0) {
                stream[n] = t;
                cell[n++] = c;
            }
    for (int i = 0; i < n_step; i++) {
        stream[n] = s;
        cell[n++] = step[i].to;
    }
    return cover_of(w->r, n, stream, cell);
}

/* One stream, in all of them. Answers whether all of it is dense then. */
static bool pack_stream(struct world *w, uint32_t s)
{
    static struct model_step step[MODEL_LINKED][MODEL_CELLS];
    bool more = true;

    while (more) {
        int n[MODEL_LINKED], k = 0;

        more = false;
        for (struct world *x = w->first; x; x = x->next, k++) {
            n[k] = next_piece(&x->m, s, step[k]);
            if (n[k] && x->budget && need_of(x, s, step[k], n[k]) > x->budget) {
                sights.held_back++;
                return false;
            }
            more = more || n[k];
        }
        k = 0;
        for (struct world *x = w->first; x; x = x->next, k++)
            for (int i = 0; i < n[k]; i++)
                model_step(&x->m, s, step[k][i]);
    }
    return true;
}

bool pack(struct world *w, uint32_t streams)
{
    uint64_t had = w->first->m.n_moved;
    bool all = true;

    for (uint32_t s = 0; s < w->m.n_stream; s++)
        if (streams >> s & 1)
            all = pack_stream(w, s) && all;
    sights.packed += w->first->m.n_moved - had;
    return all;
}

bool is_dense(const struct model *m, uint32_t s)
{
    return model_used_end(m, s) == model_live(m, s);
}

uint64_t packed_cover(struct world *w)
{
    static uint32_t stream[MODEL_STREAMS * MODEL_CELLS], cell[MODEL_STREAMS * MODEL_CELLS];
    uint32_t n = 0;

    for (uint32_t s = 0; s < w->m.n_stream; s++)
        for (uint32_t c = 0; c < model_live(&w->m, s); c++) {
            stream[n] = s;
            cell[n++] = c;
        }
    return cover_of(w->r, n, stream, cell);
}
