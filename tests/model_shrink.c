/* SPDX-License-Identifier: MIT */
/*
 * The naive model of model.h: what a shrink may take, and what it takes exactly where nothing is shared and no
 * two sequences are idle for equally long.
 */
#include "model.h"

#include <string.h>

static bool idle(const struct model *m, uint32_t seq, bool force)
{
    return force || (m->idle_ms && m->now >= m->stamp[seq] && m->now - m->stamp[seq] >= m->idle_ms);
}

/* Gaps in positions with planes tell nothing, and a window's tail alone is of no use. */
static bool goes_whole(const struct model *m)
{
    return m->shrink == MODEL_WHOLE || m->n_plane > 1 || m->window;
}

/* Of one sequence, until the stream fits its target. */
static void lose(struct model *m, uint32_t q, uint32_t stream, uint32_t target)
{
    int32_t keep = (int32_t)m->keep_tokens;

    if (!goes_whole(m)) {
        while (model_live(m, stream) > target && model_max(m, q) >= keep)
            model_take(m, q, model_max(m, q), INT32_MAX);
        return;
    }
    if (model_min(m, q) < keep)
        return;
    while (model_live(m, stream) > target && model_min(m, q) >= 0 &&
           model_masked(m, model_min(m, q), model_max(m, q) + 1))
        model_take(m, q, 0, model_min(m, q) + 1);
    if (model_live(m, stream) > target)
        model_take(m, q, 0, INT32_MAX);
}

/* Exactly what goes, where no cell is shared and no two sequences are idle for equally long. */
static void shrink_exactly(struct model *m, uint32_t stream, uint32_t target, bool force)
{
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
        lose(m, best, stream, target);
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
    if (change.lost_min < (int32_t)m->keep_tokens)
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

/* hold[q]: the highest position of a sequence that cannot go, since it is busy or shares that cell with one
 * whose cell there cannot go; -1: all can. Its tail ends above there. */
static void find_held(const struct model *m, uint32_t stream, bool force, int32_t hold[MODEL_SEQS])
{
    bool more = true;

    for (uint32_t q = 0; q < m->n_seq; q++)
        hold[q] = idle(m, q, force) && m->shrink != MODEL_KEEP ? -1 : INT32_MAX;
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
            can = can && (goes_whole(m) ? hold[q] < 0 && model_min(m, q) >= (int32_t)m->keep_tokens
                                        : hold[q] < m->pos[stream][cell]);
    return can;
}

static const char *judge_count(const struct model *m, const struct model *after, uint32_t s, uint32_t target,
                               bool force)
{
    uint32_t had = model_live(m, s), has = model_live(after, s), most = 0;
    int32_t hold[MODEL_SEQS];

    if (had <= target)
        return had == has ? NULL : "a stream that fits its target lost tokens";
    find_held(after, s, force, hold);
    for (uint32_t c = 0; c < m->kv_size && has > target; c++)
        if (after->pos[s][c] >= 0 && could_go(after, s, c, hold))
            return "a stream is over its target, and more could go";
    for (uint32_t c = 0; c < m->kv_size; c++) { /* cells at one position go together */
        uint32_t n = 0;

        for (uint32_t k = 0; k < m->kv_size; k++)
            n += m->pos[s][k] >= 0 && m->pos[s][k] == m->pos[s][c];
        most = n > most ? n : most;
    }
    if (!goes_whole(m) && has + most <= target)
        return "more went than had to";
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

const char *model_judge(struct model *m, const struct model *after, uint32_t target, bool force)
{
    static struct model exact;
    const char *wrong = NULL;
    uint64_t n_cut = 0;

    for (uint32_t q = 0; q < m->n_seq && !wrong; q++)
        wrong = cut_of(m, after, q, force, &n_cut);
    for (uint32_t s = 0; s < m->n_stream && !wrong && target != UINT32_MAX; s++) {
        wrong = judge_count(m, after, s, target, force);
        if (wrong || !is_clear_cut(m, s))
            continue;
        exact = *m;
        shrink_exactly(&exact, s, target, force);
        if (memcmp(exact.pos[s], after->pos[s], sizeof exact.pos[s]) ||
            memcmp(exact.own[s], after->own[s], sizeof exact.own[s]))
            wrong = "other cells went than the longest idle ones";
    }
    for (uint32_t s = 0; s < m->n_stream && !wrong; s++)
        m->evicted_cells += model_live(m, s) - model_live(after, s);
    m->n_evict += n_cut;
    for (uint32_t q = 0; q < m->n_seq && !wrong; q++)
        note_losses(m, after, q);
    for (uint32_t q = 0; q < m->n_seq && !wrong; q++)
        if (model_max(m, q) != model_max(after, q)) {
            m->evicted[q] = true;
            m->again[q] = model_max(after, q) >= 0;
            if (!m->again[q]) /* nothing is left that could miss it */
                memset(m->lost[q], 0, sizeof m->lost[q]);
        }
    for (uint32_t s = 0; s < m->n_stream && !wrong; s++)
        for (uint32_t c = 0; c < m->kv_size; c++) {
            if (after->pos[s][c] < 0)
                model_empty(m, s, c);
            m->own[s][c] = after->own[s][c];
        }
    return wrong;
}
