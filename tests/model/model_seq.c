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

uint32_t model_count(const struct model *m, uint32_t seq, int32_t p0, int32_t p1)
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
        m->agreed[seq] = false;
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
    uint32_t n = model_count(m, seq, p0, p1);

    return n && n < model_count(m, seq, -1, -1);
}

bool model_remove(struct model *m, int32_t seq, int32_t p0, int32_t p1)
{
    uint32_t lo = seq < 0 ? 0 : (uint32_t)seq, hi = seq < 0 ? m->n_seq : lo + 1;

    for (uint32_t s = lo; s < hi; s++)
        if (m->shrink == MODEL_WHOLE && tears(m, s, p0, p1))
            return false;
    for (uint32_t s = lo; s < hi && !is_empty(p0, p1); s++) {
        bool had = model_max(m, s) >= 0 || m->elsewhere[s].max >= 0;

        model_take(m, s, p0, p1);
        if (p0 <= 0 && p1 < 0) {
            m->evicted[s] = m->again[s] = m->unclear[s] = false;
            memset(m->lost[s], 0, sizeof m->lost[s]);
        }
        if (had) /* where nothing is nothing goes, and no mark changes */
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
        m->evicted[q] = m->again[q] = m->unclear[q] = false;
    }
}

/* ---- copies ---- */

/* What was lost goes along with the copy, where that can be told. */
static void copy_losses(struct model *m, uint32_t src, uint32_t dst, int32_t p0, int32_t p1)
{
    bool all_of_dst = model_count(m, dst, p0, p1) == model_count(m, dst, -1, -1);

    if (!all_of_dst || m->unclear[src] || (m->unclear[dst] && model_max(m, dst) < 0)) {
        m->unclear[dst] = m->unclear[dst] || m->unclear[src] || has_lost(m, src) || has_lost(m, dst);
        return;
    }
    memset(m->lost[dst], 0, sizeof m->lost[dst]);
    m->unclear[dst] = false;
    for (int32_t p = 0; p < MODEL_POS; p++)
        m->lost[dst][p] = m->lost[src][p] && inside(p, p0, p1);
}

/* n_gone: so many tokens of dst were in the range and went. */
static void copied(struct model *m, uint32_t src, uint32_t dst, int32_t p0, int32_t p1, uint32_t n_gone)
{
    if (model_count(m, src, p0, p1)) {
        int32_t fresh = m->fresh[src];

        if (m->in_batch[src] && (p1 < 0 || fresh < p1))
            model_note_fresh(m, dst, fresh >= 0 && fresh < p0 ? p0 : fresh);
        m->evicted[dst] = m->evicted[src]; /* what the engine knows of one it now knows of the other */
        m->again[dst] = m->again[src];
        model_use(m, dst);
        copy_losses(m, src, dst, p0, p1);
        model_refill(m, dst, p1 < 0 ? 0 : p1, INT32_MAX);
        return;
    }
    if (m->elsewhere[src].max >= 0) { /* a linked cache may have copied what this one lost: it may be careful */
        m->unclear[dst] = m->unclear[dst] || has_lost(m, src) || (model_max(m, dst) < 0 && has_lost(m, dst));
        m->again[dst] = m->again[dst] || m->evicted[src] != m->evicted[dst];
        model_refill(m, dst, p1 < 0 ? 0 : p1, INT32_MAX);
    } else if (n_gone) { /* nothing came, and no mark or stamp changes: where it goes on now, nothing says */
        m->unclear[dst] = m->unclear[dst] || (model_max(m, dst) < 0 && has_lost(m, dst));
        model_refill(m, dst, p0 < 0 ? 0 : p0, p1 < 0 ? INT32_MAX : p1);
    }
}

/* A copy that did not come about: the engine may believe that it did, so an empty dst is as if it had been cut. */
void model_copy_failed(struct model *m, uint32_t dst)
{
    if (model_max(m, dst) >= 0)
        return;
    m->evicted[dst] = true;
    m->again[dst] = false;
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
    uint32_t n = model_count(m, src, p0, p1), free = 0, from = m->kv_size;

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

/* Whole sequences only: none is copied from, or over, in part. What a copy beside tokens of dst leaves is whole too, or
 * it is not: nothing says. */
static int copy_of_whole(const struct model *m, uint32_t src, uint32_t dst, int32_t p0, int32_t p1)
{
    if (m->shrink != MODEL_WHOLE)
        return MODEL_OK;
    if (tears(m, src, p0, p1) || tears(m, dst, p0, p1))
        return MODEL_NOT_SUPPORTED;
    return model_count(m, src, p0, p1) && model_max(m, dst) >= 0 && !model_count(m, dst, p0, p1) ? MODEL_PERHAPS
                                                                                                 : MODEL_OK;
}

int model_copy(struct model *m, uint32_t src, uint32_t dst, int32_t p0, int32_t p1, uint32_t *to, uint32_t *n_to)
{
    uint32_t s = model_stream(m, src), n_gone = model_count(m, dst, p0, p1);
    int status = copy_of_whole(m, src, dst, p0, p1), room = MODEL_OK;

    *n_to = 0;
    if (src == dst || is_empty(p0, p1))
        return MODEL_OK;
    if (status == MODEL_NOT_SUPPORTED)
        return status;
    if (s != model_stream(m, dst)) {
        room = copy_across(m, src, dst, p0, p1, to, n_to);
    } else {
        model_take(m, dst, p0, p1);
        for (uint32_t c = 0; c < m->kv_size; c++)
            if (holds(m, src, c) && inside(m->pos[s][c], p0, p1))
                m->own[s][c] |= 1u << dst;
    }
    if (room)
        return room;
    copied(m, src, dst, p0, p1, n_gone);
    return status;
}

/* ---- moves ---- */

/* Where positions go; below 0: the cell is emptied. */
struct motion {
    const bool *moves; /* [kv_size] */
    int64_t delta;
    int32_t divisor;
};

static int64_t goes_to(const struct motion *motion, int32_t pos)
{
    int64_t to = pos + motion->delta;

    return to < 0 ? -1 : to / motion->divisor;
}

/* Of a sequence: how many tokens it has, how many of them move, how many would fall below 0, whether its oldest ones
 * move, and the least position that one comes to. */
struct moved {
    uint32_t n, n_moves, n_falls;
    bool oldest;
    int64_t least;
};

static struct moved look_at_motion(const struct model *m, uint32_t q, const struct motion *motion)
{
    struct moved moved = {.least = INT32_MAX};
    uint32_t s = model_stream(m, q);
    int32_t min = model_min(m, q);

    for (uint32_t c = 0; c < m->kv_size; c++) {
        int64_t to;

        moved.n += holds(m, q, c);
        if (!holds(m, q, c) || !motion->moves[c])
            continue;
        to = goes_to(motion, m->pos[s][c]);
        moved.n_moves++;
        moved.n_falls += to < 0;
        moved.oldest = moved.oldest || m->pos[s][c] == min;
        moved.least = to >= 0 && to < moved.least ? to : moved.least;
    }
    return moved;
}

/* What was lost lies below the oldest token. It stays where that stays; it moves with a sequence all of which moves;
 * else it is unclear what it means. */
static void move_losses(struct model *m, uint32_t q, const struct motion *motion, bool whole)
{
    struct moved moved = look_at_motion(m, q, motion);
    bool to[MODEL_POS] = {false}, all = moved.n == moved.n_moves;
    int32_t top = -1;

    for (int32_t p = 0; p < MODEL_POS; p++)
        top = m->lost[q][p] ? p : top;
    if (!moved.n_moves || top < 0 || (!moved.oldest && moved.least > top))
        return;
    if (!all || !whole || motion->divisor > 1)
        m->unclear[q] = true;
    for (int32_t p = 0; p < MODEL_POS && all; p++)
        if (m->lost[q][p] && goes_to(motion, p) >= 0 && goes_to(motion, p) < MODEL_POS)
            to[goes_to(motion, p)] = true;
    if (all)
        memcpy(m->lost[q], to, sizeof to);
}

/* Whole sequences only: none loses some of its tokens, not even one that shares them. One that loses all is removed
 * whole, and whether a shift may do that, nothing says. */
static int move_of_whole(const struct model *m, uint32_t stream, const struct motion *motion)
{
    int status = MODEL_OK;

    for (uint32_t q = 0; q < m->n_seq && m->shrink == MODEL_WHOLE; q++) {
        struct moved moved = {0};

        if (model_stream(m, q) == stream)
            moved = look_at_motion(m, q, motion);
        if (moved.n_falls && moved.n_falls < moved.n)
            return MODEL_NOT_SUPPORTED;
        status = moved.n_falls ? MODEL_PERHAPS : status;
    }
    return status;
}

static void move_cell(struct model *m, uint32_t s, uint32_t c, const struct motion *motion)
{
    int64_t to = goes_to(motion, m->pos[s][c]);

    if (to < 0) {
        model_empty(m, s, c);
        return;
    }
    m->shift[s][c] += (int32_t)to - m->pos[s][c];
    m->pos[s][c] = (int32_t)to;
}

int model_move(struct model *m, uint32_t seq, int32_t p0, int32_t p1, int64_t delta, int32_t divisor)
{
    uint32_t s = model_stream(m, seq), owners = 0;
    bool moves[MODEL_CELLS] = {false}, any = false;
    struct motion motion = {moves, delta, divisor};
    int status;

    if (m->n_plane > 1)
        return MODEL_NOT_SUPPORTED;
    if ((!delta && divisor == 1) || !model_count(m, seq, p0, p1))
        return MODEL_OK;
    for (uint32_t c = 0; c < m->kv_size; c++) {
        moves[c] = holds(m, seq, c) && inside(m->pos[s][c], p0, p1);
        owners |= moves[c] ? m->own[s][c] : 0;
        any = any || (moves[c] && goes_to(&motion, m->pos[s][c]) != m->pos[s][c]);
        if (moves[c] && m->pos[s][c] + delta > INT32_MAX - 1)
            return MODEL_RANGE;
    }
    if (!any) /* 0 / d is 0 */
        return MODEL_OK;
    status = move_of_whole(m, s, &motion);
    if (status == MODEL_NOT_SUPPORTED)
        return status;
    for (uint32_t q = 0; q < m->n_seq; q++)
        if (owners >> q & 1) {
            m->fresh[q] = -1;
            move_losses(m, q, &motion, p0 <= 0 && p1 < 0);
        }
    for (uint32_t c = 0; c < m->kv_size; c++)
        if (moves[c])
            move_cell(m, s, c, &motion);
    model_use(m, seq);
    for (uint32_t q = 0; q < m->n_seq; q++)
        if (owners >> q & 1)
            model_refill(m, q, 0, 0); /* a shift can bring what was lost into the window, of each owner */
    return status;
}

bool model_waits(const struct model *m, uint32_t streams)
{
    for (uint32_t s = 0; s < m->n_stream; s++)
        for (uint32_t c = 0; c < m->kv_size; c++)
            if (streams >> s & 1 && m->shift[s][c])
                return true;
    return false;
}

void model_shift_done(struct model *m)
{
    memset(m->shift, 0, sizeof m->shift);
}
