/* SPDX-License-Identifier: MIT */
/* See differential.h: shapes, comparing, and every operation but the batch. */
#include "differential.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seq_support.h"

/* name, n_stream, n_seq, kv_size, n_pad, initial, keep_tokens, shrink, flags, budget_pages, page, window, n_swa, planes
 */
const struct shape shapes[] = {
    {"unified", 1, 3, 300, 256, 100, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0},
    {"unified, never evicted", 1, 5, 200, 32, 0, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0},
    {"streams", 4, 4, 150, 64, 40, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0},
    {"streams, large pages", 3, 3, 257, 1, 90, 0, MODEL_TAILS, 0, 0, 16384, 0, 0, 0},
    {"unified, budget", 1, 4, 300, 256, 120, 0, MODEL_TAILS, 0, 60, 4096, 0, 0, 0},
    {"streams, budget", 4, 4, 150, 16, 0, 0, MODEL_TAILS, 0, 70, 4096, 0, 0, 0},
    {"keep", 1, 4, 250, 256, 60, 0, MODEL_KEEP, 0, 0, 4096, 0, 0, 0},
    {"whole", 1, 4, 250, 256, 80, 0, MODEL_WHOLE, 0, 0, 4096, 0, 0, 0},
    {"whole streams, kept head", 2, 2, 200, 128, 20, 15, MODEL_WHOLE, 0, 0, 4096, 0, 0, 0},
    {"kept head", 1, 6, 280, 256, 30, 20, MODEL_TAILS, 0, 0, 4096, 0, 0, 0},
    {"shrink at init", 1, 4, 300, 256, 70, 0, MODEL_TAILS, KVLAZY_SHRINK_AT_INIT, 0, 4096, 0, 0, 0},
    {"shrink at init, streams, budget", 4, 4, 130, 256, 30, 0, MODEL_TAILS, KVLAZY_SHRINK_AT_INIT, 60, 4096, 0, 0, 0},
    {"standard window", 1, 4, 100, 16, 0, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 20, 0},
    {"standard window, narrow, evicted", 1, 5, 60, 1, 25, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 4, 0},
    {"standard window of one", 1, 3, 40, 8, 0, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 1, 0},
    {"standard windows, streams", 4, 4, 50, 64, 30, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 12, 0},
    {"chunked window", 1, 4, 100, 16, 0, 0, MODEL_TAILS, 0, 0, 4096, MODEL_CHUNKED, 16, 0},
    {"chunked window, evicted", 1, 3, 80, 32, 20, 0, MODEL_TAILS, 0, 0, 4096, MODEL_CHUNKED, 7, 0},
    {"chunked windows, streams", 4, 4, 40, 32, 16, 0, MODEL_TAILS, 0, 0, 16384, MODEL_CHUNKED, 10, 0},
    {"symmetric window", 1, 4, 100, 4, 60, 0, MODEL_TAILS, 0, 0, 4096, MODEL_SYMMETRIC, 21, 0},
    {"symmetric windows, streams, budget", 3, 3, 120, 128, 30, 0, MODEL_TAILS, KVLAZY_SHRINK_AT_INIT, 70, 4096,
     MODEL_SYMMETRIC, 8, 0},
    {"three planes", 1, 4, 200, 64, 70, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 3},
    {"four planes, streams", 4, 4, 120, 16, 40, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 4},
    {"planes in a window", 1, 3, 90, 8, 40, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 12, 3},
    {"eight owners", 1, 8, 200, 256, 90, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0},
};
const int n_shape = sizeof shapes / sizeof *shapes;
struct sights sights;

uint32_t pick(struct world *w, uint32_t n)
{
    if (w->bytes) {
        uint32_t of_byte = 0;

        for (uint32_t span = 1; span < n && w->n_byte; span <<= 8, w->n_byte--)
            of_byte = of_byte << 8 | *w->bytes++;
        return of_byte % n;
    }
    w->random ^= w->random << 13;
    w->random ^= w->random >> 17;
    w->random ^= w->random << 5;
    return w->random % n;
}

void broken(struct world *w, const char *fact, int line)
{
    print_error("%s, seed %" PRIu32 ", operation %d, %s: %s\n", w->shape->name, w->seed, w->op, w->what, fact);
    _fail(__FILE__, line);
}

/* ---- comparing ---- */

static void read_cells(struct world *w, struct model *into)
{
    memset(into->pos, 0xFF, sizeof into->pos);
    memset(into->own, 0, sizeof into->own);
    memset(into->shift, 0, sizeof into->shift);
    memset(into->y, 0, sizeof into->y);
    memset(into->x, 0, sizeof into->x);
    for (uint32_t s = 0; s < w->m.n_stream; s++) {
        kvlazy_cells_view v = look(w->r, s);

        HOLDS(w, v.owner_words == 1 && v.n_cell <= w->m.kv_size);
        HOLDS(w, !v.n_cell || (w->m.n_plane > 1) == (v.ext_y != NULL));
        for (uint32_t c = 0; c < v.n_cell; c++) {
            into->pos[s][c] = v.pos[c];
            into->own[s][c] = (uint32_t)v.owner[c];
            into->shift[s][c] = v.shift ? v.shift[c] : 0;
            into->y[s][c] = v.ext_y ? v.ext_y[c] : 0;
            into->x[s][c] = v.ext_x ? v.ext_x[c] : 0;
        }
    }
}

static void compare_cells(struct world *w)
{
    static struct model seen;

    read_cells(w, &seen);
    HOLDS(w, !memcmp(seen.pos, w->m.pos, sizeof seen.pos));
    HOLDS(w, !memcmp(seen.own, w->m.own, sizeof seen.own));
    HOLDS(w, !memcmp(seen.shift, w->m.shift, sizeof seen.shift));
    HOLDS(w, !memcmp(seen.y, w->m.y, sizeof seen.y));
    HOLDS(w, !memcmp(seen.x, w->m.x, sizeof seen.x));
    for (uint32_t s = 0; s < w->m.n_stream; s++) {
        bool waits = false;

        for (uint32_t c = 0; c < w->m.kv_size; c++)
            waits = waits || w->m.shift[s][c];
        HOLDS(w, waits == (look(w->r, s).shift != NULL));
    }
    for (uint32_t q = 0; q < w->m.n_seq; q++) {
        uint32_t s = model_stream(&w->m, q);

        HOLDS(w, kvlazy_seq_pos_max(w->r->cache, (kvlazy_seq_id)q) == model_max(&w->m, q));
        HOLDS(w, kvlazy_seq_pos_min(w->r->cache, (kvlazy_seq_id)q) == model_min(&w->m, q));
        if (!w->budget)
            HOLDS(w, kvlazy_room(w->r->cache, (kvlazy_seq_id)q) ==
                         w->m.kv_size - model_live(&w->m, s) + model_recyclable(&w->m, s));
    }
}

static void compare(struct world *w)
{
    const char *reason = NULL;
    kvlazy_stats_info info = stats(w->r);
    uint64_t live = 0, low_cap = 0;
    int status = kvlazy_check(w->r->cache, &reason);

    if (status)
        broken(w, reason ? reason : "kvlazy_check", __LINE__);
    compare_cells(w);
    for (uint32_t s = 0; s < w->m.n_stream; s++) {
        uint32_t cap = 1, end = model_used_end(&w->m, s);

        while (cap < end)
            cap *= 2;
        cap = cap < w->m.initial ? w->m.initial : cap;
        low_cap += cap > w->m.kv_size ? w->m.kv_size : cap;
        live += model_live(&w->m, s);
    }
    HOLDS(w, info.live_cells == live);
    HOLDS(w, info.cap_cells >= low_cap);
    HOLDS(w, info.touched_bytes == w->r->fake.committed_bytes);
    HOLDS(w, info.released_bytes == w->r->fake.decommitted_bytes);
    HOLDS(w, info.touched_bytes >= cover(w->r));
    HOLDS(w, !w->budget || info.touched_bytes <= w->budget);
    HOLDS(w, info.n_evict == w->m.n_evict);
    HOLDS(w, info.evicted_cells == w->m.evicted_cells);
    HOLDS(w, (uint64_t)w->r->n_evict >= w->m.n_evict);
    fake_assert_kept(&w->r->fake);
    if (w->op % 16 == 0)
        sound(w->r);
}

/* After a poll or end_batch no page is left that held no token for one and a half idle times. */
void has_decayed(struct world *w)
{
    static uint32_t stream[MODEL_STREAMS * MODEL_CELLS], cell[MODEL_STREAMS * MODEL_CELLS];
    uint32_t n = 0;

    for (uint32_t s = 0; s < w->m.n_stream; s++)
        for (uint32_t c = 0; c < w->m.kv_size; c++)
            if (w->m.pos[s][c] < 0 && w->m.now - w->m.dead_since[s][c] < w->m.idle_ms * 3 / 2) {
                stream[n] = s;
                cell[n++] = c;
            }
    HOLDS(w, !w->m.idle_ms || stats(w->r).touched_bytes <= cover_with(w->r, n, stream, cell));
}

void has_shrunk(struct world *w, uint32_t target, bool force)
{
    static struct model after;
    const char *wrong;

    after = w->m;
    read_cells(w, &after);
    wrong = model_judge(&w->m, &after, target, force);
    if (wrong)
        broken(w, wrong, __LINE__);
}

void say_emptied(struct world *w)
{
    for (uint32_t q = 0; q < w->m.n_seq; q++)
        w->m.emptied[q] = kvlazy_seq_pos_max(w->r->cache, (kvlazy_seq_id)q) < 0;
}

/* ---- sequences ---- */

static void choose_range(struct world *w, uint32_t seq, kvlazy_pos *p0, kvlazy_pos *p1)
{
    *p0 = pick(w, 3) ? (kvlazy_pos)pick(w, (uint32_t)model_max(&w->m, seq) + 3) : -1;
    *p1 = pick(w, 2) ? *p0 + (kvlazy_pos)pick(w, 30) - 2 : -1;
}

static void op_remove(struct world *w)
{
    kvlazy_seq_id seq = (kvlazy_seq_id)pick(w, w->m.n_seq + 1) - (pick(w, 10) != 0 ? 0 : 1);
    kvlazy_pos p0, p1;
    int status;

    seq = seq >= (kvlazy_seq_id)w->m.n_seq ? 0 : seq;
    choose_range(w, seq < 0 ? 0 : (uint32_t)seq, &p0, &p1);
    status = kvlazy_seq_rm(w->r->cache, seq, p0, p1);
    say_emptied(w);
    expect(status, model_remove(&w->m, seq, p0, p1) ? KVLAZY_OK : KVLAZY_ENOTSUP);
}

static void op_keep(struct world *w)
{
    uint32_t seq = pick(w, w->m.n_seq);

    ok(kvlazy_seq_keep(w->r->cache, (kvlazy_seq_id)seq));
    model_keep(&w->m, seq);
}

/* Tokens at one position may come to their cells in any order: the model takes the library's over, if it is one. */
static void take_order(struct world *w, uint32_t s, const uint32_t *to, uint32_t n)
{
    static struct model seen;
    bool used[MODEL_CELLS] = {false};

    read_cells(w, &seen);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t c = to[i], k;

        for (k = 0; k < n; k++)
            if (!used[k] && w->m.pos[s][to[k]] == seen.pos[s][c] && w->m.shift[s][to[k]] == seen.shift[s][c] &&
                w->m.y[s][to[k]] == seen.y[s][c] && w->m.x[s][to[k]] == seen.x[s][c])
                break;
        if (k == n)
            return; /* it is none, and comparing will say so */
        used[k] = true;
    }
    for (uint32_t i = 0; i < n; i++) {
        w->m.shift[s][to[i]] = seen.shift[s][to[i]];
        w->m.y[s][to[i]] = seen.y[s][to[i]];
        w->m.x[s][to[i]] = seen.x[s][to[i]];
    }
}

/* With what dst loses counted too: up to a ceiling that holds all of it a copy must not be refused. */
static bool is_right_refusal(struct world *w, uint32_t dst, const uint32_t *to, uint32_t n)
{
    static uint32_t stream[MODEL_CELLS];

    for (uint32_t i = 0; i < n; i++)
        stream[i] = dst;
    return cover_with(w->r, n, stream, to) > w->budget;
}

static void op_copy(struct world *w)
{
    static struct model after;
    static uint32_t to[MODEL_CELLS];
    uint32_t src = pick(w, w->m.n_seq), dst = pick(w, w->m.n_seq), n_to;
    kvlazy_pos p0 = -1, p1 = -1;
    char *before = rig_dump(w->r);
    int status, want;

    if (pick(w, 2))
        choose_range(w, src, &p0, &p1);
    status = cp(w->r, (kvlazy_seq_id)src, (kvlazy_seq_id)dst, p0, p1);
    say_emptied(w);
    after = w->m;
    want = model_copy(&after, src, dst, p0, p1, to, &n_to);
    if (status) {
        HOLDS(w, status == KVLAZY_ENOSLOT ? want == MODEL_FULL : want == MODEL_OK);
        HOLDS(w, status == KVLAZY_ENOSLOT ||
                     (status == KVLAZY_EBUDGET && w->budget && is_right_refusal(w, dst, to, n_to)));
        unchanged(w->r, before);
        sights.copies_refused++;
        return;
    }
    free(before);
    HOLDS(w, want == MODEL_OK);
    w->m = after;
    sights.copied_rows += n_to;
    sights.shared += !n_to && src != dst;
    if (n_to && model_max(&w->m, dst) >= 0)
        take_order(w, dst, to, n_to);
}

static void op_move(struct world *w)
{
    uint32_t seq = pick(w, w->m.n_seq);
    int32_t max = model_max(&w->m, seq);
    int64_t delta = (int64_t)pick(w, 60) - 30;
    int divisor = pick(w, 4) ? 1 : 1 + (int)pick(w, 4), status, want;
    kvlazy_pos p0 = -1, p1 = -1;
    char *before = rig_dump(w->r);

    if (pick(w, 3))
        choose_range(w, seq, &p0, &p1);
    if (!pick(w, 12))
        delta = INT32_MAX - (int64_t)pick(w, 3);
    else if (!pick(w, 4))
        delta = -(int64_t)pick(w, (uint32_t)max + 10);
    if (divisor > 1) {
        delta = 0;
        status = kvlazy_seq_div(w->r->cache, (kvlazy_seq_id)seq, p0, p1, divisor);
    } else if (delta > 100 && model_min(&w->m, seq) + delta <= INT32_MAX - 1) {
        free(before); /* it would fit, but not into the model's small world */
        return;
    } else {
        status = kvlazy_seq_add(w->r->cache, (kvlazy_seq_id)seq, p0, p1, (kvlazy_pos)delta);
    }
    say_emptied(w);
    want = model_move(&w->m, seq, p0, p1, delta, divisor);
    HOLDS(w, status == (want == MODEL_OK ? KVLAZY_OK : want == MODEL_RANGE ? KVLAZY_EINVAL : KVLAZY_ENOTSUP));
    if (status)
        unchanged(w->r, before);
    else
        free(before);
    sights.moved += !status;
}

static void op_shift_done(struct world *w)
{
    ok(kvlazy_shift_done(w->r->cache));
    model_shift_done(&w->m);
}

/* ---- idle and limits ---- */

static void op_poll(struct world *w)
{
    uint64_t next;
    char *before;

    if (w->m.open) {
        expect(poll_next(w->r, &next), KVLAZY_EBUSY);
        HOLDS(w, next == (w->m.idle_ms ? w->m.idle_ms : UINT64_MAX));
        return;
    }
    ok(poll_next(w->r, &next));
    has_shrunk(w, w->m.idle_ms ? w->m.initial : w->m.kv_size, false);
    HOLDS(w, next);
    has_decayed(w);
    HOLDS(w, next != UINT64_MAX || !w->m.idle_ms || stats(w->r).touched_bytes == cover(w->r));
    if (pick(w, 8))
        return;
    before = rig_dump(w->r); /* a poll before its time changes nothing; if there is no time, none ever does */
    w->m.now += next == UINT64_MAX ? 5000 : next - 1;
    w->r->fake.now = w->m.now;
    ok(kvlazy_poll(w->r->cache, NULL));
    unchanged(w->r, before);
}

static void op_trim(struct world *w)
{
    uint32_t cells = pick(w, 2) ? 0 : 1 + pick(w, w->m.kv_size);
    int status = kvlazy_trim(w->r->cache, cells);

    expect(status, w->m.open ? KVLAZY_EBUSY : KVLAZY_OK);
    if (status)
        return;
    has_shrunk(w, cells ? cells : w->m.kv_size, true);
    HOLDS(w, stats(w->r).touched_bytes == cover(w->r));
}

static void op_clear(struct world *w)
{
    bool data = pick(w, 2);

    ok(kvlazy_clear(w->r->cache, data));
    model_clear(&w->m);
    HOLDS(w, !data || stats(w->r).touched_bytes == 0);
}

static void op_limits(struct world *w)
{
    static const uint32_t idles[] = {0, 200, 500, 500, 500, 1000};
    uint32_t initial = pick(w, 2) ? UINT32_MAX : pick(w, w->m.kv_size + 50);
    uint32_t idle_ms = pick(w, 3) ? UINT32_MAX : idles[pick(w, 6)];
    uint64_t budget = UINT64_MAX, need = cover(w->r);
    char *before = rig_dump(w->r);
    int status;

    if (w->shape->budget_pages && pick(w, 2))
        budget = pick(w, 8) ? w->r->fake.page * (10 + pick(w, w->shape->budget_pages + 10)) : 0;
    status = kvlazy_set_limits(w->r->cache, initial, idle_ms, budget);
    if (w->m.open || status) {
        expect(status, w->m.open ? KVLAZY_EBUSY : KVLAZY_OK); /* in these shapes a lower budget can be kept */
        unchanged(w->r, before);
        return;
    }
    free(before);
    if (initial != UINT32_MAX)
        w->m.initial = !initial || initial > w->m.kv_size ? w->m.kv_size : initial;
    if (idle_ms != UINT32_MAX)
        w->m.idle_ms = idle_ms;
    if (budget != UINT64_MAX)
        w->budget = budget;
    has_shrunk(w, w->budget && need > w->budget ? UINT32_MAX : w->m.kv_size, true);
}

/* ---- the world ---- */

void world_step(struct world *w)
{
    static const struct {
        const char *name;
        uint32_t weight;
        void (*run)(struct world *);
    } ops[] = {{"batch", 45, op_batch},     {"seq_rm", 12, op_remove}, {"seq_cp", 12, op_copy},
               {"move", 8, op_move},        {"seq_keep", 1, op_keep},  {"shift_done", 2, op_shift_done},
               {"poll", 18, op_poll},       {"trim", 5, op_trim},      {"clear", 1, op_clear},
               {"set_limits", 3, op_limits}};
    uint32_t total = 0, chosen;
    size_t i = 0;

    w->op++;
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        total += ops[k].weight;
    for (chosen = pick(w, total); chosen >= ops[i].weight; i++)
        chosen -= ops[i].weight;
    snprintf(w->what, sizeof w->what, "%s at %" PRIu64, ops[i].name, w->m.now);
    ops[i].run(w);
    compare(w);
    w->m.now += pick(w, 4) ? pick(w, 60) : pick(w, 700);
    w->r->fake.now = w->m.now;
}

void world_open(struct world *w, const struct shape *shape, uint32_t seed, const unsigned char *bytes, size_t n_byte)
{
    memset(w, 0, sizeof *w);
    w->shape = shape;
    w->seed = seed;
    w->random = (seed * 747796405u + (uint32_t)(shape - shapes + 1) * 2654435761u) | 1;
    w->bytes = bytes;
    w->n_byte = n_byte;
    w->r = rig_new();
    w->r->fake.page = shape->page;
    w->r->params.n_stream = shape->n_stream;
    w->r->params.n_seq_max = shape->n_seq;
    w->r->params.kv_size = shape->kv_size;
    w->r->params.n_pad = shape->n_pad;
    w->r->params.kv_size_initial = shape->initial;
    w->r->params.keep_tokens = shape->keep_tokens;
    w->r->params.shrink = shape->shrink;
    w->r->params.flags = shape->flags;
    w->r->params.swa_type = shape->window;
    w->r->params.n_swa = shape->n_swa;
    w->r->params.n_pos_per_token = shape->n_plane;
    w->r->params.budget_bytes = w->budget = shape->budget_pages * shape->page;
    rig_open(w->r);
    model_init(&w->m);
    w->m.n_stream = shape->n_stream;
    w->m.n_seq = shape->n_seq;
    w->m.kv_size = shape->kv_size;
    w->m.n_pad = shape->n_pad;
    w->m.initial = shape->initial ? shape->initial : shape->kv_size;
    w->m.keep_tokens = shape->keep_tokens;
    w->m.shrink = shape->shrink;
    w->m.window = shape->window;
    w->m.n_swa = (int32_t)shape->n_swa;
    w->m.n_plane = shape->n_plane ? shape->n_plane : 1;
    w->m.idle_ms = 500;
    w->m.now = w->r->fake.now;
}

void world_close(struct world *w)
{
    sound(w->r);
    sights.evicted += w->m.n_evict;
    sights.recycled += w->m.n_recycled;
    sights.unfillable += w->m.n_unfillable;
    rig_free(w->r);
}
