/* SPDX-License-Identifier: MIT */
/*
 * The library beside the naive model of model.c, driven by the same random operations over several shapes.
 * Codes, slots, cells, positions, n_kv, bytes, evictions and figures are compared as they go. The seed is
 * printed; KVLAZY_TEST_SEED replays one, KVLAZY_TEST_OPS sets how many operations a shape gets.
 */
#include "model.h"
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shape {
    const char *name;
    uint32_t n_stream, n_seq, kv_size, n_pad, initial, keep_tokens;
    int shrink;
    uint32_t flags, budget_pages;
    size_t page;
    bool refuses; /* the host does not always take pages back */
};

static const struct shape shapes[] = {
    {"unified", 1, 3, 300, 256, 100, 0, MODEL_TAILS, 0, 0, 4096, false},
    {"unified, never evicted", 1, 5, 200, 32, 0, 0, MODEL_TAILS, 0, 0, 4096, false},
    {"streams", 4, 4, 150, 64, 40, 0, MODEL_TAILS, 0, 0, 4096, false},
    {"streams, large pages", 3, 3, 257, 1, 90, 0, MODEL_TAILS, 0, 0, 16384, false},
    {"unified, budget", 1, 4, 300, 256, 120, 0, MODEL_TAILS, 0, 60, 4096, false},
    {"streams, budget", 4, 4, 150, 16, 0, 0, MODEL_TAILS, 0, 70, 4096, false},
    {"keep", 1, 4, 250, 256, 60, 0, MODEL_KEEP, 0, 0, 4096, false},
    {"whole", 1, 4, 250, 256, 80, 0, MODEL_WHOLE, 0, 0, 4096, false},
    {"whole streams, kept head", 2, 2, 200, 128, 20, 15, MODEL_WHOLE, 0, 0, 4096, false},
    {"kept head", 1, 6, 280, 256, 30, 20, MODEL_TAILS, 0, 0, 4096, false},
    {"shrink at init", 1, 4, 300, 256, 70, 0, MODEL_TAILS, KVLAZY_SHRINK_AT_INIT, 0, 4096, false},
    {"shrink at init, streams, budget", 4, 4, 130, 256, 30, 0, MODEL_TAILS, KVLAZY_SHRINK_AT_INIT, 60, 4096, false},
    {"a host that refuses", 2, 2, 250, 256, 60, 0, MODEL_TAILS, 0, 0, 4096, true},
    {"a host that refuses, large pages", 1, 4, 400, 64, 60, 0, MODEL_TAILS, 0, 0, 65536, true},
};

static uint64_t n_status[16], n_evicted; /* over all shapes: what this test came across */

struct world {
    const struct shape *shape;
    struct rig *r;
    struct model m;
    uint32_t random, seed;
    int op;
    char what[160];
    uint64_t budget;

    struct model_token token[MODEL_TOKENS];
    int n_token, n_ubatch;
    kvlazy_pos pos[MODEL_TOKENS];
    int32_t n_owner[MODEL_TOKENS];
    kvlazy_seq_id owner[MODEL_TOKENS][MODEL_SEQS];
    const kvlazy_seq_id *owners[MODEL_TOKENS];
    kvlazy_ubatch ubatch[MODEL_UBATCHES];
};

static uint32_t pick(struct world *w, uint32_t n)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 17;
    w->random ^= w->random << 5;
    return w->random % n;
}

#define HOLDS(w, fact)                                                                                                 \
    do {                                                                                                               \
        if (!(fact))                                                                                                   \
            broken((w), #fact, __LINE__);                                                                              \
    } while (0)

static void broken(struct world *w, const char *fact, int line)
{
    print_error("%s, seed %" PRIu32 ", operation %d, %s: %s\n", w->shape->name, w->seed, w->op, w->what, fact);
    _fail(__FILE__, line);
}

/* ---- comparing ---- */

static void read_cells(struct world *w, struct model *into)
{
    memset(into->pos, 0xFF, sizeof into->pos);
    memset(into->own, 0, sizeof into->own);
    for (uint32_t s = 0; s < w->m.n_stream; s++) {
        kvlazy_cells_view v = {.struct_size = sizeof v};

        ok(kvlazy_cells(w->r->cache, s, &v));
        HOLDS(w, v.owner_words == 1 && v.n_cell <= w->m.kv_size);
        for (uint32_t c = 0; c < v.n_cell; c++) {
            into->pos[s][c] = v.pos[c];
            into->own[s][c] = (uint32_t)v.owner[c];
        }
    }
}

static void compare(struct world *w)
{
    static struct model seen;
    const char *reason = NULL;
    kvlazy_stats_info info = stats(w->r);
    uint64_t live = 0, low_cap = 0;
    int status = kvlazy_check(w->r->cache, &reason);

    if (status)
        broken(w, reason ? reason : "kvlazy_check", __LINE__);
    read_cells(w, &seen);
    HOLDS(w, !memcmp(seen.pos, w->m.pos, sizeof seen.pos));
    HOLDS(w, !memcmp(seen.own, w->m.own, sizeof seen.own));
    for (uint32_t q = 0; q < w->m.n_seq; q++) {
        HOLDS(w, kvlazy_seq_pos_max(w->r->cache, (kvlazy_seq_id)q) == model_max(&w->m, q));
        HOLDS(w, kvlazy_seq_pos_min(w->r->cache, (kvlazy_seq_id)q) == model_min(&w->m, q));
    }
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
static void has_decayed(struct world *w)
{
    uint32_t stream[MODEL_STREAMS * MODEL_CELLS], cell[MODEL_STREAMS * MODEL_CELLS], n = 0;

    for (uint32_t s = 0; s < w->m.n_stream; s++)
        for (uint32_t c = 0; c < w->m.kv_size; c++)
            if (w->m.pos[s][c] < 0 && w->m.now - w->m.dead_since[s][c] < w->m.idle_ms * 3 / 2) {
                stream[n] = s;
                cell[n++] = c;
            }
    HOLDS(w, w->shape->refuses || !w->m.idle_ms || stats(w->r).touched_bytes <= cover_with(w->r, n, stream, cell));
}

static void has_shrunk(struct world *w, uint32_t target, bool force)
{
    static struct model after;
    const char *wrong;

    after = w->m;
    read_cells(w, &after);
    wrong = model_judge(&w->m, &after, target, force);
    if (wrong)
        broken(w, wrong, __LINE__);
}

/* ---- batches ---- */

static void add_token(struct world *w, int ubatch, kvlazy_pos pos, uint32_t owners)
{
    int i = w->n_token++;

    w->token[i] = (struct model_token){.ubatch = ubatch, .pos = pos, .owners = owners};
    w->pos[i] = pos;
    w->n_owner[i] = 0;
    for (int q = 0; q < MODEL_SEQS; q++)
        if (owners >> q & 1)
            w->owner[i][w->n_owner[i]++] = q;
    w->owners[i] = w->owner[i];
}

static void make_batch(struct world *w)
{
    kvlazy_pos next[MODEL_SEQS];
    uint32_t a = pick(w, w->m.n_seq), b = pick(w, w->m.n_seq);
    uint32_t most = pick(w, 12) ? 24 : 120;
    bool wrong = !pick(w, 10);

    for (uint32_t q = 0; q < w->m.n_seq; q++) {
        next[q] = model_max(&w->m, q) + 1;
        if (!next[q] && !pick(w, 5) && !(w->m.evicted[q] && w->m.again[q]))
            next[q] = (kvlazy_pos)pick(w, 50);
    }
    w->n_token = 0;
    w->n_ubatch = 1 + (int)pick(w, 3);
    for (int u = 0; u < w->n_ubatch; u++) {
        int first = w->n_token, n = 1 + (int)pick(w, most);

        while (w->n_token < first + n) {
            uint32_t q = pick(w, 3) ? a : b, owners = 1u << q;

            if (w->m.n_stream == 1 && a != b && next[a] == next[b] && pick(w, 4))
                owners = 1u << a | 1u << b;
            if (wrong && !pick(w, 8) && !(w->m.evicted[q] && model_max(&w->m, q) < 0))
                next[q] += pick(w, 2) ? 2 : -1;
            if (next[q] < 0)
                next[q] = 0;
            add_token(w, u, next[q], owners);
            for (uint32_t o = 0; o < w->m.n_seq; o++)
                next[o] += (owners >> o & 1) && pick(w, 30) ? 1 : 0;
        }
        w->ubatch[u] = (kvlazy_ubatch){
            .n_token = (uint32_t)n, .pos = w->pos + first, .n_seq_id = w->n_owner + first, .seq_id = w->owners + first};
    }
    if (!pick(w, 8)) /* a restore: any order, if the sequence is empty */
        for (int i = 0, k = w->n_token - 1; i < k; i++, k--) {
            struct model_token *x = &w->token[i], *y = &w->token[k];
            kvlazy_pos p = x->pos;

            if (x->owners != y->owners || w->m.evicted[a] || w->m.evicted[b])
                continue;
            w->pos[i] = x->pos = y->pos;
            w->pos[k] = y->pos = p;
        }
}

/* prepare, against what the model expects; true when the batch is on. */
static bool prepare(struct world *w)
{
    static uint32_t stream[MODEL_TOKENS], cell[MODEL_TOKENS];
    uint32_t bad = model_bad_positions(&w->m, w->token, w->n_token);
    uint32_t full = model_place(&w->m, w->token, w->n_token);
    bool dear = false;
    char *before = rig_dump(w->r);
    int status, at = 0;

    for (int i = 0; i < w->n_token; i++) {
        stream[i] = w->token[i].stream;
        cell[i] = w->token[i].cell;
    }
    if (w->budget && !full)
        dear = cover_with(w->r, (uint32_t)w->n_token, stream, cell) > w->budget;
    status = kvlazy_prepare(w->r->cache, w->ubatch, (uint32_t)w->n_ubatch, w->r->slot);
    n_status[-status & 15]++;
    if (status == KVLAZY_OK) {
        HOLDS(w, !bad && !full && !dear);
        free(before);
        for (int u = 0; u < w->n_ubatch; u++) {
            HOLDS(w, w->r->slot[u].n_token == w->ubatch[u].n_token);
            for (uint32_t k = 0; k < w->ubatch[u].n_token; k++, at++)
                HOLDS(w, w->r->slot[u].stream[k] == stream[at] && w->r->slot[u].cell[k] == cell[at]);
            HOLDS(w, kvlazy_n_kv(w->r->cache, &w->r->slot[u]) == model_n_kv(&w->m, w->token, w->n_token, u));
        }
        HOLDS(w, kvlazy_refused(w->r->cache) == -1);
        w->m.open = true;
        return true;
    }
    HOLDS(w,
          (status == KVLAZY_EPOS && bad) || (status == KVLAZY_ENOSLOT && full) || (status == KVLAZY_EBUDGET && dear));
    HOLDS(w, kvlazy_refused(w->r->cache) >= 0 && kvlazy_refused(w->r->cache) < (kvlazy_seq_id)w->m.n_seq);
    HOLDS(w, status != KVLAZY_EPOS || bad >> kvlazy_refused(w->r->cache) & 1);
    HOLDS(w, status != KVLAZY_ENOSLOT || full >> model_stream(&w->m, (uint32_t)kvlazy_refused(w->r->cache)) & 1);
    unchanged(w->r, before);
    w->m.open = false;
    return false;
}

static void op_batch(struct world *w)
{
    int n_apply;

    if (w->m.open || pick(w, 3)) {
        ok(kvlazy_init_batch(w->r->cache));
        model_end(&w->m);
        if (w->shape->flags & KVLAZY_SHRINK_AT_INIT)
            has_shrunk(w, w->m.initial, false);
        w->m.open = true;
    }
    make_batch(w);
    if (!prepare(w))
        return;
    n_apply = pick(w, 10) ? w->n_ubatch : (int)pick(w, (uint32_t)w->n_ubatch + 1);
    for (int u = 0; u < n_apply; u++) {
        ok(kvlazy_apply_ubatch(w->r->cache, &w->r->slot[u], &w->ubatch[u]));
        write_rows(w->r, &w->r->slot[u]);
        model_apply(&w->m, w->token, w->n_token, u);
        HOLDS(w, kvlazy_n_kv(w->r->cache, &w->r->slot[u]) == model_n_kv(&w->m, w->token, w->n_token, u));
    }
    for (int u = w->n_ubatch; !pick(w, 6) && u-- > 0;) {
        ok(kvlazy_undo_ubatch(w->r->cache, &w->r->slot[u]));
        if (u < n_apply)
            model_undo(&w->m, w->token, w->n_token, u);
    }
    if (!pick(w, 8))
        return;
    ok(kvlazy_end_batch(w->r->cache));
    model_end(&w->m);
    has_decayed(w);
}

/* ---- the other operations ---- */

static void op_remove(struct world *w)
{
    kvlazy_seq_id seq = (kvlazy_seq_id)pick(w, w->m.n_seq + 1) - (pick(w, 10) != 0 ? 0 : 1);
    kvlazy_pos p0, p1;

    seq = seq >= (kvlazy_seq_id)w->m.n_seq ? 0 : seq;
    p0 = pick(w, 3) ? (kvlazy_pos)pick(w, (uint32_t)(model_max(&w->m, seq < 0 ? 0 : (uint32_t)seq) + 3)) : -1;
    p1 = pick(w, 2) ? p0 + (kvlazy_pos)pick(w, 30) - 2 : -1;
    expect(kvlazy_seq_rm(w->r->cache, seq, p0, p1), model_remove(&w->m, seq, p0, p1) ? KVLAZY_OK : KVLAZY_ENOTSUP);
}

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
    HOLDS(w, w->shape->refuses || next != UINT64_MAX || !w->m.idle_ms || stats(w->r).touched_bytes == cover(w->r));
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
    HOLDS(w, w->shape->refuses || stats(w->r).touched_bytes == cover(w->r));
}

static void op_clear(struct world *w)
{
    bool data = pick(w, 2);

    ok(kvlazy_clear(w->r->cache, data));
    model_clear(&w->m);
    HOLDS(w, !data || w->shape->refuses || stats(w->r).touched_bytes == 0);
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

static void step(struct world *w)
{
    static const struct {
        const char *name;
        uint32_t weight;
        void (*run)(struct world *);
    } ops[] = {{"batch", 45, op_batch}, {"seq_rm", 20, op_remove}, {"poll", 20, op_poll},
               {"trim", 6, op_trim},    {"clear", 1, op_clear},    {"set_limits", 3, op_limits}};
    uint32_t total = 0, chosen;
    size_t i = 0;

    for (size_t k = 0; k < sizeof ops / sizeof *ops; k++)
        total += ops[k].weight;
    for (chosen = pick(w, total); chosen >= ops[i].weight; i++)
        chosen -= ops[i].weight;
    snprintf(w->what, sizeof w->what, "%s at %" PRIu64, ops[i].name, w->m.now);
    w->r->fake.refuse_decommit = w->shape->refuses && !pick(w, 3);
    ops[i].run(w);
    compare(w);
    w->m.now += pick(w, 4) ? pick(w, 60) : pick(w, 700);
    w->r->fake.now = w->m.now;
}

static uint32_t number(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);

    return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

static void run_shape(void **state)
{
    const struct shape *shape = *state;
    static struct world w;
    uint32_t n_op = number("KVLAZY_TEST_OPS", 2000);

    memset(&w, 0, sizeof w);
    w.shape = shape;
    w.seed = number("KVLAZY_TEST_SEED", 1);
    w.random = (w.seed * 747796405u + (uint32_t)(shape - shapes + 1) * 2654435761u) | 1;
    print_message("%s: KVLAZY_TEST_SEED=%" PRIu32 "\n", shape->name, w.seed);
    w.r = rig_new();
    w.r->fake.page = shape->page;
    w.r->params.n_stream = shape->n_stream;
    w.r->params.n_seq_max = shape->n_seq;
    w.r->params.kv_size = shape->kv_size;
    w.r->params.n_pad = shape->n_pad;
    w.r->params.kv_size_initial = shape->initial;
    w.r->params.keep_tokens = shape->keep_tokens;
    w.r->params.shrink = shape->shrink;
    w.r->params.flags = shape->flags;
    w.r->params.budget_bytes = w.budget = shape->budget_pages * shape->page;
    rig_open(w.r);
    model_init(&w.m);
    w.m.n_stream = shape->n_stream;
    w.m.n_seq = shape->n_seq;
    w.m.kv_size = shape->kv_size;
    w.m.n_pad = shape->n_pad;
    w.m.initial = shape->initial ? shape->initial : shape->kv_size;
    w.m.keep_tokens = shape->keep_tokens;
    w.m.shrink = shape->shrink;
    w.m.idle_ms = 500;
    w.m.now = w.r->fake.now;
    for (w.op = 1; w.op <= (int)n_op; w.op++)
        step(&w);
    w.r->fake.refuse_decommit = false;
    ok(kvlazy_end_batch(w.r->cache));
    ok(kvlazy_set_limits(w.r->cache, UINT32_MAX, 500, UINT64_MAX));
    settle(w.r); /* in the end all that is free goes, whatever the host said before */
    assert_int_equal(stats(w.r).touched_bytes, cover(w.r));
    sound(w.r);
    n_evicted += w.m.n_evict;
    rig_free(w.r);
}

/* A run that met none of a kind has compared nothing of it. */
static void it_came_across_everything(void **state)
{
    (void)state;
    print_message("prepare: %" PRIu64 " OK, %" PRIu64 " EPOS, %" PRIu64 " ENOSLOT, %" PRIu64 " EBUDGET; %" PRIu64
                  " evictions\n",
                  n_status[0], n_status[-KVLAZY_EPOS], n_status[-KVLAZY_ENOSLOT], n_status[-KVLAZY_EBUDGET], n_evicted);
    assert_true(n_status[0] && n_status[-KVLAZY_EPOS] && n_status[-KVLAZY_ENOSLOT] && n_status[-KVLAZY_EBUDGET]);
    assert_true(n_evicted);
}

int main(void)
{
    enum { N = sizeof shapes / sizeof *shapes };
    struct CMUnitTest tests[N + 1] = {[N] = cmocka_unit_test(it_came_across_everything)};

    for (int i = 0; i < N; i++)
        tests[i] = (struct CMUnitTest){shapes[i].name, run_shape, NULL, NULL, (void *)(uintptr_t)&shapes[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
