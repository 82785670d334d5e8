/* SPDX-License-Identifier: MIT */
/*
 * The naive model of model.h: what is done to sequences. Removal, and the windows that it leaves torn, keeping,
 * copies, and positions that move.
 */
#include "model.h"

#include <string.h>

static bool is_empty(int32_t p0, int32_t p1)
{
    return p1 >= 0 && p1 <= (p0 < 0 ? 0 : p0);
}

static bool inside(int32_t pos, int32_t p0, int32_t p1)
{
    return pos >= 0 && (p0 < 0 || pos >= p0) && (p1 < 0 || pos < p1);
}

static bool holds(const struct model *m, uint32_t seq, uint32_t cell)
{
    return m->own[model_stream(m, seq)][cell] >> seq & 1;
}

static uint32_t count(const struct model *m, uint32_t seq, int32_t p0, int32_t p1)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < m->kv_size; c++)
        n += holds(m, seq, c) && inside(m->pos[model_stream(m, seq)][c], p0, p1);
    return n;
}

static bool has_lost(const struct model *m, uint32_t seq)
{
    for (int32_t p = 0; p < MODEL_POS; p++)
        if (m->lost[seq][p])
            return true;
    return false;
}

/* ---- removal ---- */

void model_take(struct model *m, uint32_t seq, int32_t p0, int32_t p1)
{
    uint32_t s = model_stream(m, seq);

    for (uint32_t c = 0; c < m->kv_size; c++) {
        if (!holds(m, seq, c) || !inside(m->pos[s][c], p0, p1))
            continue;
        m->own[s][c] &= ~(1u << seq);
        if (!m->own[s][c])
            model_empty(m, s, c);
    }
}

bool model_misses(const struct model *m, uint32_t seq, int32_t next)
{
    bool misses = false;

    for (int32_t p = 0; p < MODEL_POS && m->window && next > 0; p++)
        misses = misses || (m->lost[seq][p] && (p >= next || !model_masked(m, p, next)));
    return misses;
}

void model_tear(struct model *m, uint32_t seq, bool sure)
{
    model_take(m, seq, -1, -1);
    memset(m->lost[seq], 0, sizeof m->lost[seq]);
    m->unclear[seq] = false;
    m->evicted[seq] = true; /* the engine did not ask for this */
    m->again[seq] = !sure;
    m->n_unfillable++;
}

void model_refill(struct model *m, uint32_t seq, int32_t p0, int32_t p1)
{
    int32_t max = model_max(m, seq), left = m->elsewhere[seq].max;
    int32_t end = max < 0 && (left < p0 || left >= p1) ? left : max;

    if (m->unclear[seq] && max < 0) { /* whether it must begin at 0, nothing says */
        m->evicted[seq] = m->again[seq] = true;
        m->perhaps_torn |= 1u << seq;
        return;
    }
    if (!(m->unclear[seq] ? m->emptied[seq] : model_misses(m, seq, end < 0 ? p0 : end + 1)))
        return;
    model_tear(m, seq, true);
    m->torn |= 1u << seq;
}

static bool tears(const struct model *m, uint32_t seq, int32_t p0, int32_t p1)
{
    uint32_t n = count(m, seq, p0, p1);

    return n && n < count(m, seq, -1, -1);
}

bool model_remove(struct model *m, int32_t seq, int32_t p0, int32_t p1)
{
    uint32_t lo = seq < 0 ? 0 : (uint32_t)seq, hi = seq < 0 ? m->n_seq : lo + 1;

    for (uint32_t s = lo; s < hi; s++)
        if (m->shrink == MODEL_WHOLE && tears(m, s, p0, p1))
            return false;
    for (uint32_t s = lo; s < hi && !is_empty(p0, p1); s++) {
        model_take(m, s, p0, p1);
        if (p0 <= 0 && p1 < 0) {
            m->evicted[s] = m->unclear[s] = false;
            memset(m->lost[s], 0, sizeof m->lost[s]);
        }
        model_refill(m, s, p0 < 0 ? 0 : p0, p1 < 0 ? INT32_MAX : p1);
    }
    return true;
}

void model_keep(struct model *m, uint32_t seq)
{
    for (uint32_t q = 0; q < m->n_seq; q++) {
        if (q == seq || model_stream(m, q) != model_stream(m, seq))
            continue;
        model_take(m, q, -1, -1);
        memset(m->lost[q], 0, sizeof m->lost[q]);
        m->evicted[q] = m->unclear[q] = false;
    }
}

/* ---- copies ---- */

/* What was lost goes along with the copy, where that can be told. */
static void copy_losses(struct model *m, uint32_t src, uint32_t dst, int32_t p0, int32_t p1)
{
    bool all_of_dst = count(m, dst, p0, p1) == count(m, dst, -1, -1);

    if (!all_of_dst || m->unclear[src] || (m->unclear[dst] && model_max(m, dst) < 0)) {
        m->unclear[dst] = m->unclear[dst] || m->unclear[src] || has_lost(m, src) || has_lost(m, dst);
        return;
    }
    memset(m->lost[dst], 0, sizeof m->lost[dst]);
    m->unclear[dst] = false;
    for (int32_t p = 0; p < MODEL_POS; p++)
        m->lost[dst][p] = m->lost[src][p] && inside(p, p0, p1);
}

/* Nothing came: dst lost what it held in the range, and no mark changes. A linked cache may have copied what this one
 * lost, and then it may be careful. */
static void copied_nothing(struct model *m, uint32_t src, uint32_t dst, int32_t p0, int32_t p1, uint32_t n_removed)
{
    if (m->elsewhere[src].max < 0) {
        if (n_removed || m->elsewhere[dst].max >= 0)
            model_refill(m, dst, p0 < 0 ? 0 : p0, p1 < 0 ? INT32_MAX : p1);
        return;
    }
    if (model_max(m, dst) < 0) {
        m->again[dst] = true; /* whether that was a removal of the whole, nothing says */
        m->unclear[dst] = m->unclear[dst] || has_lost(m, dst);
    }
    m->unclear[dst] = m->unclear[dst] || has_lost(m, src);
    model_refill(m, dst, p1 < 0 ? 0 : p1, INT32_MAX);
}

static void copied(struct model *m, uint32_t src, uint32_t dst, int32_t p0, int32_t p1)
{
    if (m->evicted[src]) /* cut, and perhaps the engine does not know: no more is said */
        m->again[dst] = true;
    m->evicted[dst] = m->evicted[src];
    model_use(m, dst);
    copy_losses(m, src, dst, p0, p1);
    model_refill(m, dst, p1 < 0 ? 0 : p1, INT32_MAX);
}

/* src's cell with the lowest position after (pos, cell), in the range; kv_size: none. */
static uint32_t next_of(const struct model *m, uint32_t src, int32_t p0, int32_t p1, int32_t pos, int64_t cell)
{
    uint32_t s = model_stream(m, src), best = m->kv_size;

    for (uint32_t c = 0; c < m->kv_size; c++) {
        int32_t p = m->pos[s][c];

        if (holds(m, src, c) && inside(p, p0, p1) && (p > pos || (p == pos && c > cell)) &&
            (best == m->kv_size || p < m->pos[s][best]))
            best = c;
    }
    return best;
}

static int copy_across(struct model *m, uint32_t src, uint32_t dst, int32_t p0, int32_t p1, uint32_t *to,
                       uint32_t *n_to)
{
    uint32_t n = count(m, src, p0, p1), free = 0, from = m->kv_size;

    for (uint32_t c = 0; c < m->kv_size; c++)
        free += m->pos[dst][c] < 0 || inside(m->pos[dst][c], p0, p1);
    if (n > free)
        return MODEL_FULL;
    model_take(m, dst, p0, p1);
    for (uint32_t c = 0; *n_to < n; c++) {
        if (m->pos[dst][c] >= 0)
            continue;
        from = next_of(m, src, p0, p1, *n_to ? m->pos[src][from] : -1, *n_to ? (int64_t)from : -1);
        to[(*n_to)++] = c;
        m->pos[dst][c] = m->pos[src][from];
        m->shift[dst][c] = m->shift[src][from];
        m->y[dst][c] = m->y[src][from];
        m->x[dst][c] = m->x[src][from];
        m->own[dst][c] = 1u << dst;
    }
    return MODEL_OK;
}

int model_copy(struct model *m, uint32_t src, uint32_t dst, int32_t p0, int32_t p1, uint32_t *to, uint32_t *n_to)
{
    uint32_t s = model_stream(m, src), n_copied = count(m, src, p0, p1), n_removed = count(m, dst, p0, p1);

    *n_to = 0;
    if (src == dst || is_empty(p0, p1))
        return MODEL_OK;
    if (m->shrink == MODEL_WHOLE && (tears(m, src, p0, p1) || tears(m, dst, p0, p1)))
        return MODEL_NOT_SUPPORTED;
    if (s != model_stream(m, dst)) {
        int status = copy_across(m, src, dst, p0, p1, to, n_to);

        if (status)
            return status;
    } else {
        model_take(m, dst, p0, p1);
        for (uint32_t c = 0; c < m->kv_size; c++)
            if (holds(m, src, c) && inside(m->pos[s][c], p0, p1))
                m->own[s][c] |= 1u << dst;
    }
    if (n_copied)
        copied(m, src, dst, p0, p1);
    else
        copied_nothing(m, src, dst, p0, p1, n_removed);
    return MODEL_OK;
}

/* ---- moves ---- */

/* What was lost moves with a sequence all of which moves; else it is unclear what it means. */
static void move_losses(struct model *m, uint32_t seq, const bool *moves, bool whole, int64_t delta, int32_t divisor)
{
    for (uint32_t q = 0; q < m->n_seq; q++) {
        bool some = false, all = true, to[MODEL_POS] = {false};

        if (model_stream(m, q) != model_stream(m, seq))
            continue;
        for (uint32_t c = 0; c < m->kv_size; c++)
            if (holds(m, q, c)) {
                some = some || moves[c];
                all = all && moves[c];
            }
        if (!some || !has_lost(m, q))
            continue;
        if (!all || !whole || divisor > 1)
            m->unclear[q] = true;
        for (int32_t p = 0; p < MODEL_POS && all; p++)
            if (m->lost[q][p] && p + delta >= 0 && (p + delta) / divisor < MODEL_POS)
                to[(p + delta) / divisor] = true;
        if (all)
            memcpy(m->lost[q], to, sizeof to);
    }
}

/* Some sequence would lose what falls below 0, and keep the rest. */
static bool drops_part(const struct model *m, uint32_t s, const bool *moves, int64_t delta)
{
    for (uint32_t q = 0; q < m->n_seq; q++) {
        uint32_t n = 0, n_gone = 0;

        for (uint32_t c = 0; c < m->kv_size && model_stream(m, q) == s; c++) {
            n += holds(m, q, c);
            n_gone += holds(m, q, c) && moves[c] && m->pos[s][c] + delta < 0;
        }
        if (n_gone && n_gone < n)
            return true;
    }
    return false;
}

int model_move(struct model *m, uint32_t seq, int32_t p0, int32_t p1, int64_t delta, int32_t divisor)
{
    uint32_t s = model_stream(m, seq), others = 0;
    bool moves[MODEL_CELLS] = {false}, any = false;

    if (m->n_plane > 1)
        return MODEL_NOT_SUPPORTED;
    for (uint32_t c = 0; c < m->kv_size; c++) {
        moves[c] = holds(m, seq, c) && inside(m->pos[s][c], p0, p1);
        any = any || (moves[c] && (m->pos[s][c] + delta) / divisor != m->pos[s][c]);
        others |= moves[c] ? m->own[s][c] : 0;
        if (moves[c] && m->pos[s][c] + delta > INT32_MAX - 1)
            return MODEL_RANGE;
    }
    if (!any)
        return MODEL_OK;
    if (m->shrink == MODEL_WHOLE && drops_part(m, s, moves, delta))
        return MODEL_NOT_SUPPORTED;
    move_losses(m, seq, moves, p0 <= 0 && p1 < 0, delta, divisor);
    for (uint32_t c = 0; c < m->kv_size; c++) {
        int64_t to = m->pos[s][c] + delta;

        if (!moves[c])
            continue;
        if (to < 0) {
            model_empty(m, s, c);
            continue;
        }
        m->shift[s][c] += (int32_t)(to / divisor) - m->pos[s][c];
        m->pos[s][c] = (int32_t)(to / divisor);
    }
    model_use(m, seq);
    model_refill(m, seq, 0, 0); /* a shift can bring what was lost into the window, of each owner */
    for (uint32_t q = 0; q < m->n_seq; q++)
        if (q != seq && others >> q & 1 && model_max(m, q) >= 0)
            model_refill(m, q, 0, 0);
    return MODEL_OK;
}

bool model_waits_in(const struct model *m, uint32_t stream)
{
    for (uint32_t c = 0; c < m->kv_size; c++)
        if (m->shift[stream][c])
            return true;
    return false;
}

bool model_waits(const struct model *m)
{
    for (uint32_t s = 0; s < m->n_stream; s++)
        if (model_waits_in(m, s))
            return true;
    return false;
}

void model_shift_done(struct model *m)
{
    memset(m->shift, 0, sizeof m->shift);
}
