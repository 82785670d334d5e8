/* SPDX-License-Identifier: MIT */
/* See differential.h: shapes, comparing, and the steps of a world. */
#include "differential.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "seq_support.h"

/* name, n_stream, n_seq, kv_size, n_pad, initial, keep_tokens, shrink, flags, budget_pages, page, window, n_swa,
 * planes, with: a linked cache */
static const struct shape links[] = {
    {"index", 1, 4, 256, 32, 80, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, NULL},
    {"index of streams", 4, 4, 110, 32, 30, 0, MODEL_TAILS, 0, 0, 16384, 0, 0, 0, NULL},
    {"index of windows", 1, 4, 100, 16, 60, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 14, 0, NULL},
    {"standard window", 1, 4, 100, 16, 50, 0, MODEL_TAILS, KVLAZY_SHRINK_AT_INIT, 0, 4096, MODEL_STANDARD, 9, 0, NULL},
    {"chunked window", 1, 4, 90, 8, 0, 0, MODEL_TAILS, 0, 0, 4096, MODEL_CHUNKED, 8, 0, NULL},
    {"standard windows", 4, 4, 40, 8, 30, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 12, 0, NULL},
    {"larger one", 1, 4, 300, 64, 150, 10, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, NULL},
    {"smaller ones, budget", 4, 4, 90, 16, 30, 0, MODEL_TAILS, 0, 40, 4096, 0, 0, 0, NULL},
};
const struct shape shapes[] = {
    {"unified", 1, 3, 300, 256, 100, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, NULL},
    {"unified, never evicted", 1, 5, 200, 32, 0, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, NULL},
    {"streams", 4, 4, 150, 64, 40, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, NULL},
    {"streams, large pages", 3, 3, 257, 1, 90, 0, MODEL_TAILS, 0, 0, 16384, 0, 0, 0, NULL},
    {"unified, budget", 1, 4, 300, 256, 120, 0, MODEL_TAILS, 0, 60, 4096, 0, 0, 0, NULL},
    {"streams, budget", 4, 4, 150, 16, 0, 0, MODEL_TAILS, 0, 70, 4096, 0, 0, 0, NULL},
    {"keep", 1, 4, 250, 256, 60, 0, MODEL_KEEP, 0, 0, 4096, 0, 0, 0, NULL},
    {"whole", 1, 4, 250, 256, 80, 0, MODEL_WHOLE, 0, 0, 4096, 0, 0, 0, NULL},
    {"whole streams, kept head", 2, 2, 200, 128, 20, 15, MODEL_WHOLE, 0, 0, 4096, 0, 0, 0, NULL},
    {"kept head", 1, 6, 280, 256, 30, 20, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, NULL},
    {"shrink at init", 1, 4, 300, 256, 70, 0, MODEL_TAILS, KVLAZY_SHRINK_AT_INIT, 0, 4096, 0, 0, 0, NULL},
    {"shrink at init, streams, budget", 4, 4, 130, 256, 30, 0, MODEL_TAILS, KVLAZY_SHRINK_AT_INIT, 60, 4096, 0, 0, 0,
     NULL},
    {"standard window", 1, 4, 100, 16, 0, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 20, 0, NULL},
    {"standard window, narrow, evicted", 1, 5, 60, 1, 25, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 4, 0, NULL},
    {"standard window of one", 1, 3, 40, 8, 0, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 1, 0, NULL},
    {"standard windows, streams", 4, 4, 50, 64, 30, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 12, 0, NULL},
    {"chunked window", 1, 4, 100, 16, 0, 0, MODEL_TAILS, 0, 0, 4096, MODEL_CHUNKED, 16, 0, NULL},
    {"chunked window, evicted", 1, 3, 80, 32, 20, 0, MODEL_TAILS, 0, 0, 4096, MODEL_CHUNKED, 7, 0, NULL},
    {"chunked windows, streams", 4, 4, 40, 32, 16, 0, MODEL_TAILS, 0, 0, 16384, MODEL_CHUNKED, 10, 0, NULL},
    {"symmetric window", 1, 4, 100, 4, 60, 0, MODEL_TAILS, 0, 0, 4096, MODEL_SYMMETRIC, 21, 0, NULL},
    {"symmetric windows, streams, budget", 3, 3, 120, 128, 30, 0, MODEL_TAILS, KVLAZY_SHRINK_AT_INIT, 70, 4096,
     MODEL_SYMMETRIC, 8, 0, NULL},
    {"three planes", 1, 4, 200, 64, 70, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 3, NULL},
    {"four planes, streams", 4, 4, 120, 16, 40, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 4, NULL},
    {"planes in a window", 1, 3, 90, 8, 40, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 12, 3, NULL},
    {"eight owners", 1, 8, 200, 256, 90, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, NULL},
    {"twins", 1, 4, 256, 32, 80, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, &links[0]},
    {"twins, streams", 4, 4, 110, 32, 30, 0, MODEL_TAILS, 0, 0, 16384, 0, 0, 0, &links[1]},
    {"twin windows", 1, 4, 100, 16, 60, 0, MODEL_TAILS, 0, 0, 4096, MODEL_STANDARD, 14, 0, &links[2]},
    {"full and standard window", 1, 4, 300, 32, 120, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, &links[3]},
    {"full and chunked window", 1, 4, 250, 32, 90, 0, MODEL_TAILS, KVLAZY_SHRINK_AT_INIT, 0, 4096, 0, 0, 0, &links[4]},
    {"full and standard windows, streams", 4, 4, 150, 16, 50, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, &links[5]},
    {"two sizes", 1, 4, 220, 32, 70, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, &links[6]},
    {"two sizes, streams, budget", 4, 4, 140, 32, 60, 0, MODEL_TAILS, 0, 0, 4096, 0, 0, 0, &links[7]},
};
const int n_shape = sizeof shapes / sizeof *shapes;
struct sights sights;

uint32_t pick(struct world *w, uint32_t n)
{
    w = w->first;
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

bool left_out(const struct world *w, const char *name)
{
    return w->first->without && strstr(w->first->without, name);
}

void broken(struct world *w, const char *fact, int line)
{
    print_error("%s, seed %" PRIu32 ", operation %d, %s: %s%s\n", w->first->shape->name, w->first->seed, w->first->op,
                w->first->what, w == w->first ? "" : "linked: ", fact);
    _fail(__FILE__, line);
}

/* ---- comparing ---- */

void read_cells(struct world *w, struct model *into)
{
    memset(into->pos, 0xFF, sizeof into->pos);
    memset(into->own, 0, sizeof into->own);
    memset(into->shift, 0, sizeof into->shift);
    memset(into->y, 0, sizeof into->y);
    memset(into->x, 0, sizeof into->x);
    for (uint32_t s = 0; s < w->m.n_stream; s++) {
        kvlazy_cells_view v = look(w->r, s);

        HOLDS(w, v.n_cell <= w->m.kv_size);
        HOLDS(w, !v.n_cell || (w->m.n_plane > 1) == (v.ext_y != NULL));
        for (uint32_t c = 0; c < v.n_cell; c++) {
            into->pos[s][c] = v.pos[c];
            into->own[s][c] = (uint32_t)owner_bits(w->r->cache, s, c);
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

static void compare_one(struct world *w)
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
    HOLDS(w, info.released_bytes + w->off_bytes == w->r->fake.decommitted_bytes);
    HOLDS(w, info.touched_bytes >= cover(w->r));
    HOLDS(w, !w->budget || info.touched_bytes <= w->budget);
    HOLDS(w, info.n_evict == w->m.n_evict);
    HOLDS(w, info.evicted_cells == w->m.evicted_cells);
    HOLDS(w, info.moved_cells == w->m.n_moved);
    fake_assert_kept(&w->r->fake);
    if (w->first->op % 16 == 0)
        sound(w->r);
}

static void compare(struct world *w)
{
    for (struct world *x = w->first; x; x = x->next) {
        compare_one(x);
        HOLDS(x, w->first->n_asked >= x->m.n_evict);
    }
    if (w->next && !w->first->parted)
        compare_linked(w);
}

/* ---- the world ---- */

/* What is left of a refusal, and of one that met one of two linked caches. */
static void mend(struct world *w)
{
    if (!w->fire.sore && !w->parted)
        return;
    if (w->fire.sore)
        make_good(w);
    if (w->parted)
        op_clear(w);
    w->parted = false;
    compare(w);
}

void world_step(struct world *w)
{
    static const char *const fires[] = {"", ", the allocator refuses", ", the host refuses to commit",
                                        ", the host refuses to take back"};
    static const struct {
        const char *name;
        uint32_t weight;
        void (*run)(struct world *);
    } ops[] = {{"batch", 45, op_batch},          {"decode", 2, op_decode},     {"seq_rm", 12, op_remove},
               {"seq_cp", 12, op_copy},          {"move", 8, op_move},         {"seq_keep", 1, op_keep},
               {"shift_done", 2, op_shift_done}, {"poll", 18, op_poll},        {"trim", 5, op_trim},
               {"clear", 1, op_clear},           {"set_limits", 3, op_limits}, {"squeeze", 2, op_squeeze},
               {"between", 20, op_between},      {"doubt", 8, op_doubt}};
    uint32_t total = 0, chosen;
    size_t i = 0;

    w->op++;
    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        total += ops[k].weight;
    for (chosen = pick(w, total); chosen >= ops[i].weight; i++)
        chosen -= ops[i].weight;
    if (left_out(w, ops[i].name))
        return;
    sights.n_step++;
    kindle(w);
    snprintf(w->what, sizeof w->what, "%s%s at %" PRIu64, ops[i].name, fires[w->fire.kind], w->m.now);
    ops[i].run(w);
    put_out(w);
    compare(w);
    mend(w);
    pass_time(w, pick(w, 4) ? pick(w, 60) : pick(w, 700));
}

void pass_time(struct world *w, uint64_t ms)
{
    for (struct world *x = w->first; x; x = x->next) {
        x->m.now += ms;
        x->r->fake.now = x->m.now;
    }
}

/* Pages of every size in turn, over shapes and seeds. A budget is of so few bytes that only the smaller ones fit it. */
static void choose_pages(const struct world *w, const struct shape *shape)
{
    uint32_t number = (w->first->seed + (uint32_t)(w->first->shape - shapes)) % (2 * RIG_PAGES - 1);

    w->r->fake.page = shape->page;
    if (number < RIG_PAGES && (number < 2 || !shape->budget_pages))
        rig_pages(w->r, number);
}

/* A cache of a world, linked to the one before it. */
static void open_cache(struct world *w, const struct shape *shape, kvlazy_cache *with)
{
    static const size_t linked_rows[2][2] = {{64, 0}, {34, 260}};

    w->shape = shape;
    w->r = rig_new();
    choose_pages(w, shape);
    if (with)
        rig_rows(w->r, 2, linked_rows);
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
    w->r->params.with = with;
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

void world_open(struct world *w, const struct shape *shape, uint32_t seed, const unsigned char *bytes, size_t n_byte)
{
    memset(w, 0, sizeof *w);
    w->first = w;
    w->seed = seed;
    w->random = (seed * 747796405u + (uint32_t)(shape - shapes + 1) * 2654435761u) | 1;
    w->bytes = bytes;
    w->n_byte = n_byte;
    put_out(w);
    open_cache(w, shape, NULL);
    if (!shape->with)
        return;
    w->next = calloc(1, sizeof *w->next);
    assert_non_null(w->next);
    w->next->first = w;
    open_cache(w->next, shape->with, w->r->cache);
    link_models(w);
}

void world_close(struct world *w)
{
    for (struct world *x = w->first; x; x = x->next) {
        sound(x->r);
        sights.evicted += x->m.n_evict;
        sights.recycled += x->m.n_recycled;
        sights.unfillable += x->m.n_unfillable;
        rig_free(x->r);
    }
    free(w->next);
    w->next = NULL;
    w->r = NULL;
}
