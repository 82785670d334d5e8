/* SPDX-License-Identifier: MIT */
/*
 * The naive model of model.h. Every answer is found by looking at every cell.
 */
#include "model.h"

#include <stddef.h>
#include <string.h>

void model_init(struct model *m)
{
    memset(m->pos, 0xFF, sizeof m->pos);
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

/* ---- placing ---- */

static bool goes_on(const struct model *m, const struct model_token *t, int n, uint32_t seq)
{
    int32_t max = model_max(m, seq), lo = INT32_MAX, hi = -1, last = max;
    bool in_order = true;

    for (int i = 0; i < n; i++) {
        if (!(t[i].owners >> seq & 1))
            continue;
        if (last >= 0 || m->evicted[seq])
            in_order = in_order && (t[i].pos == last + 1 || (t[i].pos == last && last != max));
        last = t[i].pos;
        lo = t[i].pos < lo ? t[i].pos : lo;
        hi = t[i].pos > hi ? t[i].pos : hi;
    }
    if (max >= 0 || m->evicted[seq])
        return in_order;
    for (int32_t p = lo; p <= hi; p++) {
        bool there = false;

        for (int i = 0; i < n; i++)
            there = there || (t[i].owners >> seq & 1 && t[i].pos == p);
        if (!there)
            return false;
    }
    return true;
}

uint32_t model_bad_positions(const struct model *m, const struct model_token *t, int n)
{
    uint32_t bad = 0;

    for (uint32_t s = 0; s < m->n_seq; s++)
        if (!goes_on(m, t, n, s))
            bad |= 1u << s;
    return bad;
}

static uint32_t first_owner(uint32_t owners)
{
    uint32_t s = 0;

    while (!(owners >> s & 1))
        s++;
    return s;
}

uint32_t model_place(const struct model *m, struct model_token *t, int n)
{
    uint32_t full = 0;

    for (int i = 0; i < n; i++) {
        uint32_t s = model_stream(m, first_owner(t[i].owners)), c;

        for (c = 0; c < m->kv_size; c++) {
            bool taken = m->pos[s][c] >= 0;

            for (int k = 0; k < i; k++)
                taken = taken || (t[k].stream == s && t[k].cell == c);
            if (!taken)
                break;
        }
        if (c == m->kv_size)
            full |= 1u << s;
        t[i].stream = s;
        t[i].cell = c;
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

void model_apply(struct model *m, const struct model_token *t, int n, int ubatch)
{
    for (int i = 0; i < n; i++) {
        if (t[i].ubatch != ubatch)
            continue;
        m->pos[t[i].stream][t[i].cell] = t[i].pos;
        m->own[t[i].stream][t[i].cell] = t[i].owners;
        for (uint32_t s = 0; s < m->n_seq; s++)
            if (t[i].owners >> s & 1)
                m->in_batch[s] = m->again[s] = true;
    }
}

static void empty(struct model *m, uint32_t stream, uint32_t cell)
{
    if (m->pos[stream][cell] < 0)
        return;
    m->pos[stream][cell] = -1;
    m->own[stream][cell] = 0;
    m->dead_since[stream][cell] = m->now;
}

void model_undo(struct model *m, const struct model_token *t, int n, int ubatch)
{
    for (int i = 0; i < n; i++)
        if (t[i].ubatch == ubatch)
            empty(m, t[i].stream, t[i].cell);
}

void model_end(struct model *m)
{
    for (uint32_t s = 0; s < m->n_seq; s++) {
        if (m->open && m->in_batch[s])
            m->stamp[s] = m->now;
        m->in_batch[s] = false;
    }
    m->open = false;
}

/* ---- removal ---- */

static bool inside(int32_t pos, int32_t p0, int32_t p1)
{
    return pos >= 0 && (p0 < 0 || pos >= p0) && (p1 < 0 || pos < p1);
}

static void remove_one(struct model *m, uint32_t seq, int32_t p0, int32_t p1)
{
    uint32_t s = model_stream(m, seq);

    for (uint32_t c = 0; c < m->kv_size; c++) {
        if (!(m->own[s][c] >> seq & 1) || !inside(m->pos[s][c], p0, p1))
            continue;
        m->own[s][c] &= ~(1u << seq);
        if (!m->own[s][c])
            empty(m, s, c);
    }
    if (p0 <= 0 && p1 < 0)
        m->evicted[seq] = false;
}

static bool tears(const struct model *m, uint32_t seq, int32_t p0, int32_t p1)
{
    uint32_t s = model_stream(m, seq), in = 0, out = 0;

    for (uint32_t c = 0; c < m->kv_size; c++)
        if (m->own[s][c] >> seq & 1)
            *(inside(m->pos[s][c], p0, p1) ? &in : &out) += 1;
    return in && out;
}

bool model_remove(struct model *m, int32_t seq, int32_t p0, int32_t p1)
{
    uint32_t lo = seq < 0 ? 0 : (uint32_t)seq, hi = seq < 0 ? m->n_seq : lo + 1;

    for (uint32_t s = lo; s < hi; s++)
        if (m->shrink == MODEL_WHOLE && tears(m, s, p0, p1))
            return false;
    for (uint32_t s = lo; s < hi; s++)
        remove_one(m, s, p0, p1);
    return true;
}

void model_clear(struct model *m)
{
    for (uint32_t s = 0; s < m->n_stream; s++)
        for (uint32_t c = 0; c < m->kv_size; c++)
            empty(m, s, c);
    for (uint32_t s = 0; s < m->n_seq; s++)
        m->evicted[s] = m->in_batch[s] = false;
    m->open = false;
}

/* ---- shrinking ---- */

static bool idle(const struct model *m, uint32_t seq, bool force)
{
    return force || (m->idle_ms && m->now >= m->stamp[seq] && m->now - m->stamp[seq] >= m->idle_ms);
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
        if (m->shrink == MODEL_WHOLE && model_min(m, best) < (int32_t)m->keep_tokens)
            continue;
        do
            remove_one(m, best, m->shrink == MODEL_WHOLE ? 0 : model_max(m, best), INT32_MAX);
        while (model_live(m, stream) > target && model_max(m, best) >= (int32_t)m->keep_tokens);
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

/* What holds of every shrink of one sequence: it kept all below some position and nothing above. */
static const char *cut_of(const struct model *m, const struct model *after, uint32_t q, bool force, uint64_t *n_cut)
{
    uint32_t s = model_stream(m, q);
    int32_t lost = INT32_MAX, kept = -1;

    for (uint32_t c = 0; c < m->kv_size; c++) {
        bool had = m->own[s][c] >> q & 1, has = after->own[s][c] >> q & 1;

        if (has && (!had || after->pos[s][c] != m->pos[s][c]))
            return "a sequence has a cell that it had not";
        if (had && !has && m->pos[s][c] < lost)
            lost = m->pos[s][c];
        if (has && m->pos[s][c] > kept)
            kept = m->pos[s][c];
    }
    if (lost == INT32_MAX)
        return NULL;
    *n_cut += 1;
    if (kept >= lost)
        return "a sequence lost a position below one that it kept";
    if (!idle(m, q, force))
        return "a sequence that is not idle lost tokens";
    if (lost < (int32_t)m->keep_tokens)
        return "a position below keep_tokens went";
    if (m->shrink == MODEL_KEEP || (m->shrink == MODEL_WHOLE && kept >= 0))
        return "the mode does not allow this loss";
    return NULL;
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
                        (hold[b] >= m->pos[stream][c] || (m->shrink == MODEL_WHOLE && hold[b] >= 0))) {
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
            can = can && (m->shrink == MODEL_WHOLE ? hold[q] < 0 && model_min(m, q) >= (int32_t)m->keep_tokens
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
    if (m->shrink == MODEL_TAILS && has + most <= target)
        return "more went than had to";
    return NULL;
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
        if (model_max(m, q) != model_max(after, q)) {
            m->evicted[q] = true;
            m->again[q] = model_max(after, q) >= 0;
        }
    for (uint32_t s = 0; s < m->n_stream && !wrong; s++)
        for (uint32_t c = 0; c < m->kv_size; c++) {
            if (after->pos[s][c] < 0)
                empty(m, s, c);
            m->own[s][c] = after->own[s][c];
        }
    return wrong;
}
