/* SPDX-License-Identifier: MIT */
/*
 * The naive model of model.h: what a shrink may take, and what it takes exactly where nothing is shared and no
 * two sequences are idle for equally long; and how what stays moves together.
 */
#include "model.h"

#include <string.h>

/* It may lose tokens: it was not used for long enough, and on_evict did not say keep. */
static bool idle(const struct model *m, uint32_t seq, bool force)
{
    if (m->veto[seq] > m->now)
        return false;
    return force || (m->idle_ms && m->now >= m->stamp[seq] && m->now - m->stamp[seq] >= m->idle_ms);
}

/* Gaps in positions with planes tell nothing, and a window's tail alone is of no use. */
static bool goes_whole(const struct model *m)
{
    return m->shrink == MODEL_WHOLE || m->n_plane > 1 || m->window || m->whole;
}

/* The lowest position of a sequence, here or in a linked cache. */
static int32_t lowest(const struct model *m, uint32_t q)
{
    int32_t min = model_min(m, q), other = m->elsewhere[q].min;

    return min < 0 || (other >= 0 && other < min) ? other : min;
}

/* ---- what goes exactly ---- */

/* Of linked caches all lose the same tail. */
static void lose_from(struct model *all, int n, uint32_t q, int32_t pos)
{
    for (int i = 0; i < n; i++)
        model_take(&all[i], q, pos, INT32_MAX);
}

/* Where the lowest position ends, if the next token does not see it; 0: it does. The last one never goes alone. */
static int32_t masked_end(const struct model *m, uint32_t q)
{
    int32_t min = model_min(m, q), max = model_max(m, q);

    return m->window && min >= 0 && min < max && model_masked(m, min, max + 1) ? min + 1 : 0;
}

static void lose_masked(struct model *m, uint32_t q, int32_t end)
{
    int32_t next;

    while ((next = masked_end(m, q)) > 0 && next <= end)
        model_take(m, q, 0, next);
}

/* One sequence loses, until the stream of cache k fits its target. */
static void lose(struct model *all, int n, int k, uint32_t q, uint32_t stream, uint32_t target)
{
    struct model *m = &all[k];
    int32_t keep = (int32_t)m->keep_tokens, end;

    if (!goes_whole(m)) {
        while (model_live(m, stream) > target && model_max(m, q) >= keep)
            lose_from(all, n, q, model_max(m, q));
        return;
    }
    if (lowest(m, q) < keep)
        return;
    while (model_live(m, stream) > target && (end = masked_end(m, q)) > 0)
        for (int i = 0; i < n; i++)
            lose_masked(&all[i], q, end);
    if (model_live(m, stream) > target)
        lose_from(all, n, q, 0);
}

/* Exactly what goes, where no cell is shared and no two sequences are idle for equally long. */
static void shrink_exactly(struct model *all, int n, int k, uint32_t stream, uint32_t target, bool force)
{
    struct model *m = &all[k];
    bool done[MODEL_SEQS] = {false};

    while (model_live(m, stream) > target && m->shrink != MODEL_KEEP) {
        uint32_t best = m->n_seq;

        for (uint32_t q = 0; q < m->n_seq; q++)
            if (!done[q] && model_stream(m, q) == stream && model_max(m, q) >= (int32_t)m->keep_tokens &&
                idle(m, q, force) && (best == m->n_seq || m->stamp[q] < m->stamp[best]))
                best = q;
        if (best == m->n_seq)
            return;
        done[best] = true;
        lose(all, n, k, best, stream, target);
    }
}

static bool is_clear_cut(const struct model *m, uint32_t stream)
{
    for (uint32_t c = 0; c < m->kv_size; c++)
        if (m->own[stream][c] & (m->own[stream][c] - 1))
            return false;
    for (uint32_t a = 0; a < m->n_seq; a++)
        for (uint32_t b = 0; b < a; b++)
            if (m->stamp[a] == m->stamp[b] && model_stream(m, a) == stream && model_stream(m, b) == stream &&
                model_max(m, a) >= 0 && model_max(m, b) >= 0)
                return false;
    return true;
}

/* ---- what holds of any shrink ---- */

/* Positions of one sequence that went and that stayed. */
struct change {
    int32_t lost_min, lost_max, kept_min, kept_max; /* -1: none */
};

static void widen(int32_t pos, int32_t *min, int32_t *max)
{
    *min = *min < 0 || pos < *min ? pos : *min;
    *max = pos > *max ? pos : *max;
}

/* NULL: it has no cell that it had not. */
static const char *compare_seq(const struct model *m, const struct model *after, uint32_t q, struct change *change)
{
    uint32_t s = model_stream(m, q);

    *change = (struct change){-1, -1, -1, -1};
    for (uint32_t c = 0; c < m->kv_size; c++) {
        bool had = m->own[s][c] >> q & 1, has = after->own[s][c] >> q & 1;

        if (has && (!had || after->pos[s][c] != m->pos[s][c]))
            return "a sequence has a cell that it had not";
        if (has)
            widen(m->pos[s][c], &change->kept_min, &change->kept_max);
        else if (had)
            widen(m->pos[s][c], &change->lost_min, &change->lost_max);
    }
    return NULL;
}

/* What holds of every shrink of one sequence: it kept all below some position and nothing above; with a window
 * nothing, or all from some position on that sees all that the next token does. */
static const char *cut_of(const struct model *m, const struct model *after, uint32_t q, bool force, uint64_t *n_cut)
{
    struct change change;
    const char *wrong = compare_seq(m, after, q, &change);

    if (wrong || change.lost_max < 0)
        return wrong;
    *n_cut += 1;
    if (!idle(m, q, force))
        return "a sequence that is not idle lost tokens";
    if ((goes_whole(m) ? lowest(m, q) : change.lost_min) < (int32_t)m->keep_tokens)
        return "a position below keep_tokens went";
    if (m->shrink == MODEL_KEEP)
        return "the mode does not allow this loss";
    if (change.kept_max < 0)
        return NULL;
    if (m->window) {
        if (change.lost_max >= change.kept_min)
            return "a sequence with a window lost a position above one that it kept";
        return model_masked(m, change.lost_max, change.kept_max + 1) ? NULL : "a part of a window went";
    }
    if (goes_whole(m))
        return "a part of a whole sequence went";
    return change.kept_max > change.lost_min ? "a sequence lost a position below one that it kept" : NULL;
}

/* hold[q]: the highest position of a sequence that cannot go, since it is busy, settled or shares that cell with one
 * whose cell there cannot go; -1: all can. Its tail ends above there. */
static void find_held(const struct model *m, uint32_t stream, bool force, uint32_t curbed, int32_t hold[MODEL_SEQS])
{
    bool more = true;

    for (uint32_t q = 0; q < m->n_seq; q++)
        hold[q] = idle(m, q, force) && m->shrink != MODEL_KEEP && !(curbed >> q & 1) ? -1 : INT32_MAX;
    while (more) {
        more = false;
        for (uint32_t c = 0; c < m->kv_size; c++)
            for (uint32_t a = 0; a < m->n_seq; a++)
                for (uint32_t b = 0; b < m->n_seq; b++)
                    if (m->own[stream][c] >> a & m->own[stream][c] >> b & 1 && hold[a] < m->pos[stream][c] &&
                        (hold[b] >= m->pos[stream][c] || (goes_whole(m) && hold[b] >= 0))) {
                        hold[a] = m->pos[stream][c];
                        more = true;
                    }
    }
}

static bool could_go(const struct model *m, uint32_t stream, uint32_t cell, const int32_t hold[MODEL_SEQS])
{
    bool can = m->pos[stream][cell] >= (int32_t)m->keep_tokens;

    for (uint32_t q = 0; q < m->n_seq; q++)
        if (m->own[stream][cell] >> q & 1)
            can = can && (goes_whole(m) ? hold[q] < 0 && lowest(m, q) >= (int32_t)m->keep_tokens
                                        : hold[q] < m->pos[stream][cell]);
    return can;
}

/* Most cells at one position: they go together. */
static uint32_t most_together(const struct model *m, uint32_t s)
{
    uint32_t most = 0;

    for (uint32_t c = 0; c < m->kv_size; c++) {
        uint32_t n = 0;

        for (uint32_t k = 0; k < m->kv_size; k++)
            n += m->pos[s][k] >= 0 && m->pos[s][k] == m->pos[s][c];
        most = n > most ? n : most;
    }
    return most;
}

/* A sequence of the stream lost what on_evict had agreed to earlier, however little is needed now. */
static bool loses_agreed(const struct model_shrunk *one, uint32_t s)
{
    for (uint32_t q = 0; q < one->m->n_seq; q++)
        if (one->agreed >> q & 1 && model_stream(one->m, q) == s && model_max(one->m, q) != model_max(one->after, q))
            return true;
    return false;
}

/* Of linked caches one that is over its target is reason enough. */
static const char *judge_count(const struct model_shrunk *all, int n, uint32_t s, bool force)
{
    bool over = false, lost = false, needed = false;
    int32_t hold[MODEL_SEQS];

    for (int i = 0; i < n; i++) {
        uint32_t had = model_live(all[i].m, s), has = model_live(all[i].after, s), target = all[i].target;

        lost = lost || has != had;
        if (had <= target)
            continue;
        over = true;
        needed =
            needed || goes_whole(all[i].m) || loses_agreed(&all[i], s) || has + most_together(all[i].m, s) > target;
        find_held(all[i].after, s, force, all[i].curbed, hold);
        for (uint32_t c = 0; c < all[i].m->kv_size && has > target; c++)
            if (all[i].after->pos[s][c] >= 0 && could_go(all[i].after, s, c, hold))
                return "a stream is over its target, and more could go";
    }
    if (lost && !over)
        return "a stream that fits its target lost tokens";
    return over && !needed ? "more went than had to" : NULL;
}

static const char *judge_exactly(const struct model_shrunk *all, int n, uint32_t s, bool force)
{
    static struct model exact[MODEL_LINKED];

    for (int i = 0; i < n; i++) {
        if (!is_clear_cut(all[i].m, s) || all[i].curbed)
            return NULL;
        exact[i] = *all[i].m;
    }
    for (int i = 0; i < n; i++)
        shrink_exactly(exact, n, i, s, all[i].target, force);
    for (int i = 0; i < n; i++)
        if (memcmp(exact[i].pos[s], all[i].after->pos[s], sizeof exact[i].pos[s]) ||
            memcmp(exact[i].own[s], all[i].after->own[s], sizeof exact[i].own[s]))
            return "other cells went than the longest idle ones";
    return NULL;
}

/* What one lost of its tail is gone from all: up to the same position, or whole. */
static const char *judge_linked(const struct model_shrunk *all, int n, uint32_t q)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++) {
            struct change change;

            compare_seq(all[i].m, all[i].after, q, &change);
            if (model_max(all[i].m, q) != model_max(all[i].after, q) &&
                model_max(all[k].after, q) >= (goes_whole(all[i].m) ? 0 : change.lost_min))
                return "one lost a tail that a linked one has";
            if (model_max(all[i].m, q) == model_max(all[k].m, q) &&
                model_max(all[i].after, q) != model_max(all[k].after, q))
                return "linked ones agreed on the end of a sequence, and do not any more";
        }
    return NULL;
}

/* What went of windows from below is lost to them, as if recycled. */
static void note_losses(struct model *m, const struct model *after, uint32_t q)
{
    uint32_t s = model_stream(m, q);

    for (uint32_t c = 0; c < m->kv_size && m->window; c++)
        if (m->own[s][c] >> q & 1 && !(after->own[s][c] >> q & 1))
            m->lost[q][m->pos[s][c]] = true;
}

/* Counts, marks and cells are brought up to date. */
static void accept(struct model *m, const struct model *after, uint64_t n_cut)
{
    for (uint32_t s = 0; s < m->n_stream; s++)
        m->evicted_cells += model_live(m, s) - model_live(after, s);
    m->n_evict += n_cut;
    for (uint32_t q = 0; q < m->n_seq; q++)
        note_losses(m, after, q);
    for (uint32_t q = 0; q < m->n_seq; q++)
        if (model_max(m, q) != model_max(after, q)) {
            m->evicted[q] = true;
            m->again[q] = m->agreed[q] = false;
            if (model_max(after, q) < 0) /* nothing is left that could miss it */
                memset(m->lost[q], 0, sizeof m->lost[q]);
        }
    for (uint32_t s = 0; s < m->n_stream; s++)
        for (uint32_t c = 0; c < m->kv_size; c++) {
            if (after->pos[s][c] < 0 && m->pos[s][c] >= 0) {
                model_empty(m, s, c);
                m->dead_since[s][c] = 0; /* its pages go at once */
            }
            m->own[s][c] = after->own[s][c];
        }
}

const char *model_judge(struct model_shrunk *all, int n, bool force)
{
    const char *wrong = NULL;

    for (uint32_t q = 0; q < all[0].m->n_seq && !wrong; q++) {
        for (int i = 0; i < n && !wrong; i++)
            wrong = cut_of(all[i].m, all[i].after, q, force, &all[i].n_cut);
        if (!wrong)
            wrong = judge_linked(all, n, q);
    }
    for (uint32_t s = 0; s < all[0].m->n_stream && !wrong && all[0].target != UINT32_MAX; s++) {
        wrong = judge_count(all, n, s, force);
        if (!wrong)
            wrong = judge_exactly(all, n, s, force);
    }
    for (int i = 0; i < n && !wrong; i++)
        accept(all[i].m, all[i].after, all[i].n_cut);
    return wrong;
}

/* ---- what moves ---- */

uint32_t model_rest(struct model *m)
{
    uint32_t streams = 0;

    for (uint32_t s = 0; s < m->n_stream; s++)
        if (m->awake[s] && m->idle_ms && m->now >= m->active[s] && m->now - m->active[s] >= m->idle_ms) {
            streams |= 1u << s;
            m->awake[s] = false;
        }
    return streams;
}

int model_packing(const struct model *m, uint32_t s, struct model_step step[MODEL_CELLS])
{
    uint32_t n_live = model_live(m, s), to = 0;
    int n = 0;

    for (uint32_t from = n_live; from < m->kv_size; from++) {
        if (m->pos[s][from] < 0)
            continue;
        while (m->pos[s][to] >= 0)
            to++;
        step[n++] = (struct model_step){from, to++};
    }
    return n;
}

void model_step(struct model *m, uint32_t s, struct model_step step)
{
    m->pos[s][step.to] = m->pos[s][step.from];
    m->own[s][step.to] = m->own[s][step.from];
    m->shift[s][step.to] = m->shift[s][step.from];
    m->y[s][step.to] = m->y[s][step.from];
    m->x[s][step.to] = m->x[s][step.from];
    model_empty(m, s, step.from);
    m->dead_since[s][step.from] = 0; /* its pages go at once */
    m->n_moved++;
}

static uint32_t owners_left(const struct model *m, const struct model *after, uint32_t s, uint32_t c)
{
    uint32_t own = 0;

    for (uint32_t k = 0; k < m->kv_size; k++)
        if (after->pos[s][k] == m->pos[s][c])
            own |= m->own[s][c] & after->own[s][k];
    return own;
}

void model_left(const struct model *m, const struct model *after, struct model *left)
{
    *left = *m;
    for (uint32_t s = 0; s < m->n_stream; s++)
        for (uint32_t c = 0; c < m->kv_size; c++) {
            if (m->pos[s][c] < 0 || (m->pos[s][c] == after->pos[s][c] && m->own[s][c] == after->own[s][c]))
                continue;
            left->own[s][c] = owners_left(m, after, s, c);
            if (!left->own[s][c])
                model_empty(left, s, c);
        }
}
