/* SPDX-License-Identifier: MIT */
/*
 * The naive model of model.h: looking, placing and the batch. Every answer is found by looking at every cell.
 */
#include "model.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

void model_init(struct model *m)
{
    memset(m->pos, 0xFF, sizeof m->pos);
    memset(m->elsewhere, 0xFF, sizeof m->elsewhere);
}

uint32_t model_stream(const struct model *m, uint32_t seq)
{
    return m->n_stream == 1 ? 0 : seq;
}

int32_t model_max(const struct model *m, uint32_t seq)
{
    uint32_t s = model_stream(m, seq);
    int32_t max = -1;

    for (uint32_t c = 0; c < m->kv_size; c++)
        if (m->own[s][c] >> seq & 1 && m->pos[s][c] > max)
            max = m->pos[s][c];
    return max;
}

int32_t model_min(const struct model *m, uint32_t seq)
{
    uint32_t s = model_stream(m, seq);
    int32_t min = -1;

    for (uint32_t c = 0; c < m->kv_size; c++)
        if (m->own[s][c] >> seq & 1 && (min < 0 || m->pos[s][c] < min))
            min = m->pos[s][c];
    return min;
}

uint32_t model_live(const struct model *m, uint32_t stream)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < m->kv_size; c++)
        n += m->pos[stream][c] >= 0;
    return n;
}

uint32_t model_used_end(const struct model *m, uint32_t stream)
{
    uint32_t end = 0;

    for (uint32_t c = 0; c < m->kv_size; c++)
        if (m->pos[stream][c] >= 0)
            end = c + 1;
    return end;
}

/* ---- positions ---- */

static bool owns(const struct model_token *t, uint32_t seq)
{
    return t->owners >> seq & 1;
}

/* An empty sequence takes positions in any order that leaves no gap; with planes in any. */
static bool begins(const struct model *m, const struct model_token *t, int n, uint32_t seq, int32_t lo, int32_t hi)
{
    for (int32_t p = lo; p <= hi && m->n_plane == 1; p++) {
        bool there = false;

        for (int i = 0; i < n; i++)
            there = there || (owns(&t[i], seq) && t[i].pos == p);
        if (!there)
            return false;
    }
    return true;
}

static bool goes_on(const struct model *m, const struct model_token *t, int n, uint32_t seq)
{
    int32_t max = model_max(m, seq), lo = INT32_MAX, hi = -1, last = max;

    for (int i = 0; i < n; i++) {
        if (!owns(&t[i], seq))
            continue;
        if (max >= 0 && m->n_plane > 1 && t[i].pos < last)
            return false;
        if (max >= 0 && m->n_plane == 1 && t[i].pos != last + 1 && (t[i].pos != last || last == max))
            return false;
        last = t[i].pos;
        lo = t[i].pos < lo ? t[i].pos : lo;
        hi = t[i].pos > hi ? t[i].pos : hi;
    }
    if (max >= 0 || hi < 0)
        return true;
    return begins(m, t, n, seq, lo, hi) && (lo == 0 || !m->evicted[seq]) && !model_misses(m, seq, lo);
}

static bool comes_back(const struct model *m, const struct model_token *t, int n, uint32_t seq)
{
    int32_t lo = INT32_MAX;

    for (int i = 0; i < n; i++)
        if (owns(&t[i], seq) && t[i].pos < lo)
            lo = t[i].pos;
    return lo == INT32_MAX || (model_max(m, seq) < 0 && !model_misses(m, seq, lo));
}

uint32_t model_bad_positions(const struct model *m, const struct model_token *t, int n, bool restores)
{
    uint32_t bad = 0;

    for (uint32_t s = 0; s < m->n_seq; s++)
        if (!(restores ? comes_back : goes_on)(m, t, n, s))
            bad |= 1u << s;
    return bad;
}

/* ---- windows ---- */

bool model_masked(const struct model *m, int32_t a, int32_t b)
{
    switch (m->window) {
    case MODEL_STANDARD:
        return b - a >= m->n_swa;
    case MODEL_CHUNKED:
        return a < b / m->n_swa * m->n_swa;
    case MODEL_SYMMETRIC:
        return abs(b - a) > m->n_swa / 2;
    default:
        return false;
    }
}

static uint32_t first_owner(uint32_t owners)
{
    uint32_t s = 0;

    while (!(owners >> s & 1))
        s++;
    return s;
}

bool model_may_take(const struct model *m, uint32_t stream, uint32_t cell)
{
    uint32_t own = m->own[stream][cell];

    return own && !(own & (own - 1)) && model_masked(m, m->pos[stream][cell], model_max(m, first_owner(own)) + 1);
}

uint32_t model_recyclable(const struct model *m, uint32_t stream)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < m->kv_size && m->window; c++)
        n += model_may_take(m, stream, c);
    return n;
}

/* ---- placing ---- */

/* Another token of the same ubatch got it. */
static bool is_given(const struct model_token *t, int i, uint32_t stream, uint32_t cell)
{
    for (int k = 0; k < i; k++)
        if (t[k].ubatch == t[i].ubatch && t[k].stream == stream && t[k].cell == cell)
            return true;
    return false;
}

static uint32_t choose(const struct model *m, const struct model_token *t, int i, uint32_t s, uint32_t choice,
                       bool *open_choice)
{
    uint32_t oldest = m->kv_size;

    for (uint32_t c = 0; c < m->kv_size; c++)
        if (m->pos[s][c] < 0 && !is_given(t, i, s, c))
            return c;
    for (uint32_t c = 0; c < m->kv_size && m->window; c++)
        if ((oldest == m->kv_size || m->pos[s][c] < m->pos[s][oldest]) && model_may_take(m, s, c) &&
            !is_given(t, i, s, c))
            oldest = c;
    for (uint32_t c = 0; oldest < m->kv_size && c < m->kv_size; c++)
        if (m->pos[s][c] == m->pos[s][oldest] && m->own[s][c] != m->own[s][oldest] && model_may_take(m, s, c))
            *open_choice = true;
    if (oldest < m->kv_size && choice < m->kv_size && m->pos[s][choice] == m->pos[s][oldest] &&
        model_may_take(m, s, choice) && !is_given(t, i, s, choice))
        return choice;
    return oldest;
}

uint32_t model_place(const struct model *m, struct model_token *t, int n, bool restores, const uint32_t *choice,
                     bool *open_choice)
{
    static struct model trial;
    uint32_t full = 0;

    *open_choice = false;
    trial = *m;
    if (restores)
        trial.window = MODEL_NO_WINDOW; /* it takes empty cells alone */
    for (int i = 0; i < n; i++) {
        if (i && t[i].ubatch != t[i - 1].ubatch)
            model_apply(&trial, t, i, t[i - 1].ubatch);
        t[i].stream = model_stream(m, first_owner(t[i].owners));
        t[i].cell = choose(&trial, t, i, t[i].stream, choice ? choice[i] : m->kv_size, open_choice);
        if (t[i].cell == m->kv_size)
            full |= 1u << t[i].stream;
    }
    return full;
}

uint32_t model_n_kv(const struct model *m, const struct model_token *t, int n, int ubatch)
{
    uint32_t most = 0;

    for (int i = 0; i < n; i++) {
        uint32_t end, up;

        if (t[i].ubatch != ubatch)
            continue;
        end = model_used_end(m, t[i].stream);
        for (int k = 0; k < n; k++)
            if (t[k].ubatch == ubatch && t[k].stream == t[i].stream && t[k].cell >= end)
                end = t[k].cell + 1;
        up = (end + m->n_pad - 1) / m->n_pad * m->n_pad;
        up = up < m->n_pad ? m->n_pad : up;
        up = up > m->kv_size ? m->kv_size : up;
        most = up > most ? up : most;
    }
    return most;
}

/* ---- the batch ---- */

void model_empty(struct model *m, uint32_t s, uint32_t c)
{
    if (m->pos[s][c] < 0)
        return;
    m->pos[s][c] = -1;
    m->own[s][c] = 0;
    m->shift[s][c] = m->y[s][c] = m->x[s][c] = 0;
    m->dead_since[s][c] = m->now;
    m->n_freed[s][c]++;
}

/* What recycling leaves of the old owners: nothing at or below the highest position it takes. */
static void recycle(struct model *m, const struct model_token *t, int n, int ubatch)
{
    int32_t highest[MODEL_SEQS];

    memset(highest, 0xFF, sizeof highest);
    for (int i = 0; i < n; i++) {
        uint32_t own, q;

        if (t[i].ubatch != ubatch || t[i].cell == m->kv_size || m->pos[t[i].stream][t[i].cell] < 0)
            continue;
        own = m->own[t[i].stream][t[i].cell];
        q = first_owner(own);
        if (m->pos[t[i].stream][t[i].cell] > highest[q])
            highest[q] = m->pos[t[i].stream][t[i].cell];
        m->n_recycled++;
    }
    for (uint32_t q = 0; q < m->n_seq; q++) {
        uint32_t s = model_stream(m, q);

        for (uint32_t c = 0; c < m->kv_size && highest[q] >= 0; c++)
            if (m->own[s][c] >> q & 1 && m->pos[s][c] <= highest[q])
                m->lost[q][m->pos[s][c]] = true;
        if (highest[q] >= 0)
            model_take(m, q, 0, highest[q] + 1);
    }
}

/* A restore in falling order comes to positions below those that recycling took of it: then it is unclear what
 * its window lacks. */
static void note_disorder(struct model *m, const struct model_token *t, int n, int ubatch, uint32_t q)
{
    int32_t top = MODEL_POS - 1;

    while (top >= 0 && !m->lost[q][top])
        top--;
    for (int i = 0; i < n; i++)
        m->unclear[q] = m->unclear[q] || (t[i].ubatch == ubatch && owns(&t[i], q) && t[i].pos <= top);
}

static bool is_alone(const struct model_token *t, int n, int i)
{
    for (int k = 0; k < n; k++)
        if (t[k].ubatch == t[i].ubatch && t[k].stream == t[i].stream &&
            (t[k].cell + 1 == t[i].cell || t[k].cell == t[i].cell + 1))
            return false;
    return true;
}

/* Steady decode makes the free cells behind a token ready for the next ones, as if they had just emptied. */
static void note_ahead(struct model *m, const struct model_token *t, int n, int ubatch)
{
    for (int i = 0; i < n && t[n - 1].ubatch == 0; i++) {
        uint32_t s = t[i].stream, end = t[i].cell + 1 + MODEL_AHEAD;

        if (m->n_applied[s] || m->n_single[s] < 2 || !is_alone(t, n, i))
            continue;
        for (uint32_t c = t[i].cell + 1; c < end && c < m->kv_size && m->pos[s][c] < 0; c++)
            m->dead_since[s][c] = m->now;
    }
    for (int i = 0; i < n; i++)
        m->n_applied[t[i].stream] += t[i].ubatch == ubatch;
}

void model_apply(struct model *m, const struct model_token *t, int n, int ubatch)
{
    note_ahead(m, t, n, ubatch);
    recycle(m, t, n, ubatch);
    for (uint32_t q = 0; q < m->n_seq; q++) {
        for (int i = 0; i < n; i++)
            if (t[i].ubatch == ubatch && owns(&t[i], q) && t[i].pos == 0) {
                memset(m->lost[q], 0, sizeof m->lost[q]); /* it begins anew */
                m->unclear[q] = false;
                break;
            }
        if (m->window)
            note_disorder(m, t, n, ubatch, q);
    }
    for (int i = 0; i < n; i++) {
        if (t[i].ubatch != ubatch || t[i].cell == m->kv_size)
            continue;
        m->pos[t[i].stream][t[i].cell] = t[i].pos;
        m->own[t[i].stream][t[i].cell] = t[i].owners;
        m->y[t[i].stream][t[i].cell] = m->n_plane > 1 ? t[i].y : 0;
        m->x[t[i].stream][t[i].cell] = m->n_plane > 1 ? t[i].x : 0;
        for (uint32_t q = 0; q < m->n_seq; q++)
            if (owns(&t[i], q))
                model_note_fresh(m, q, t[i].pos);
    }
}

void model_note_fresh(struct model *m, uint32_t seq, int32_t pos)
{
    m->fresh[seq] = !m->in_batch[seq] || pos < m->fresh[seq] ? pos : m->fresh[seq];
    m->in_batch[seq] = true;
}

void model_use(struct model *m, uint32_t seq)
{
    m->agreed[seq] = false;
    m->stamp[seq] = m->active[model_stream(m, seq)] = m->now;
    m->awake[model_stream(m, seq)] = true;
}

/* A sequence that went on where it ended has seen what eviction left of it. */
static void note_use(struct model *m, uint32_t seq)
{
    model_use(m, seq);
    if (model_max(m, seq) >= 0)
        m->evicted[seq] = m->again[seq] = false;
}

/* A batch that a failed prepare closed is ended by the next look. */
void model_end(struct model *m)
{
    for (uint32_t s = 0; s < m->n_seq; s++) {
        if (m->in_batch[s])
            note_use(m, s);
        m->in_batch[s] = false;
    }
    for (uint32_t s = 0; s < m->n_stream; s++) {
        if (m->n_applied[s])
            m->n_single[s] = m->n_applied[s] == 1 ? m->n_single[s] + 1 : 0;
        m->n_applied[s] = 0;
    }
    m->open = false;
}

void model_clear(struct model *m)
{
    model_end(m);
    for (uint32_t s = 0; s < m->n_stream; s++)
        for (uint32_t c = 0; c < m->kv_size; c++)
            model_empty(m, s, c);
    memset(m->lost, 0, sizeof m->lost);
    for (uint32_t s = 0; s < m->n_seq; s++)
        m->evicted[s] = m->again[s] = m->unclear[s] = false;
    memset(m->veto, 0, sizeof m->veto);
}
