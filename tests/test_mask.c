/* SPDX-License-Identifier: MIT */
/*
 * The attention mask of a slot, element by element against the rule it is made from: the token's first
 * sequence, its own stream, causal or not, reading order, the three windows, the ALiBi distance as float and as
 * half. Columns past n_kv and bytes outside the data are never touched, and after an error nothing is.
 *
 * Linked with --wrap for reallocarray.
 */
#include "owners.h"
#include "support.h"
#include "unit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_BYTES = 64, FILL = 0x5a, N_BATCH = 24 };

/* ---- the rule ---- */

static bool outside_window(const kvlazy_params *p, int64_t a, int64_t b)
{
    int64_t n = p->n_swa;

    switch (p->swa_type) {
    case KVLAZY_SWA_STANDARD:
        return b - a >= n;
    case KVLAZY_SWA_CHUNKED:
        return a < b / n * n;
    case KVLAZY_SWA_SYMMETRIC:
        return (b > a ? b - a : a - b) > n / 2;
    }
    return false;
}

static size_t stride_of(const kvlazy_ubatch *u)
{
    return u->pos_stride ? u->pos_stride : u->n_token;
}

static bool is_seen(struct rig *r, uint32_t stream, const kvlazy_cells_view *v, const kvlazy_ubatch *u, uint32_t i,
                    uint32_t cell, bool causal)
{
    kvlazy_seq_id seq = u->seq ? u->seq[i] : u->seq_id[i][0];

    if (cell >= v->n_cell || v->pos[cell] < 0 || !is_owner(r->cache, stream, cell, (uint32_t)seq))
        return false;
    kvlazy_pos a = v->pos[cell], b = u->pos[i];
    if (causal && a > b)
        return false;
    if (causal && a == b && r->params.n_pos_per_token > 1) {
        kvlazy_pos y = u->pos[stride_of(u) + i], x = u->pos[2 * stride_of(u) + i];

        if (v->ext_y[cell] > y || (v->ext_y[cell] == y && v->ext_x[cell] > x))
            return false;
    }
    return !outside_window(&r->params, a, b);
}

/* The half nearest to -distance, by whole numbers: a multiple of 2^k with 11 bits, ties to even. */
static double nearest_half(int64_t distance)
{
    int64_t unit = 1;

    if (distance > 65504)
        distance = 65504;
    while (distance / unit >= 2048)
        unit *= 2;
    int64_t q = distance / unit, rest = distance % unit;
    q += 2 * rest > unit || (2 * rest == unit && q % 2);
    return -(double)(q * unit);
}

static double half_value(uint16_t h)
{
    int exponent = h >> 10 & 31, mantissa = h & 1023;
    double value = exponent ? 1024 + mantissa : mantissa;

    assert_true(exponent < 31);
    for (int e = exponent ? exponent : 1; e < 25; e++)
        value /= 2;
    for (int e = 25; e < exponent; e++)
        value *= 2;
    return h >> 15 ? -value : value;
}

static bool element_is(const unsigned char *at, int type, bool seen, int64_t distance)
{
    if (type == KVLAZY_MASK_F32) {
        float f;

        memcpy(&f, at, sizeof f);
        return seen ? f == (float)-distance && (distance || !__builtin_signbit(f)) : f == -__builtin_inff();
    }
    uint16_t h;
    memcpy(&h, at, sizeof h);
    return seen ? half_value(h) == nearest_half(distance) && (distance || !h) : h == 0xfc00;
}

/* ---- a mask with guards around it ---- */

struct sheet {
    unsigned char *bytes; /* guard, data, guard; to free */
    size_t n_data;
    kvlazy_mask_info info;
};

/* columns and extra: n_kv and how much longer a row is; 0 both: as the library resolves it. */
static struct sheet sheet(int type, bool causal, bool alibi, uint32_t n_row, uint32_t n_kv, uint32_t columns,
                          uint32_t extra, size_t misfit)
{
    struct sheet s = {.info = {.struct_size = sizeof s.info, .type = type, .causal = causal, .alibi = alibi}};
    size_t element = type == KVLAZY_MASK_F32 ? 4 : 2;
    uint32_t n = columns ? columns : n_kv;

    s.n_data = ((size_t)(n_row - 1) * (n + extra) + n) * element;
    s.bytes = malloc(s.n_data + 2 * GUARD_BYTES + misfit);
    assert_non_null(s.bytes);
    memset(s.bytes, FILL, s.n_data + 2 * GUARD_BYTES + misfit);
    s.info.data = s.bytes + GUARD_BYTES + misfit;
    s.info.data_bytes = s.n_data;
    s.info.n_kv = columns;
    s.info.row_stride = extra ? n + extra : 0;
    return s;
}

static void untouched(const unsigned char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (from[i] != FILL)
            fail_msg("byte %zu of %zu that should be left alone is %02x", i, bytes, from[i]);
}

static void sheet_is_right(struct rig *r, const struct sheet *s, const kvlazy_slot *slot, const kvlazy_ubatch *u)
{
    size_t element = s->info.type == KVLAZY_MASK_F32 ? 4 : 2;
    uint32_t n_kv = s->info.n_kv ? s->info.n_kv : kvlazy_n_kv(r->cache, slot);
    size_t stride = s->info.row_stride ? s->info.row_stride : n_kv;
    const unsigned char *data = s->info.data;

    for (uint32_t i = 0; i < u->n_token; i++) {
        kvlazy_cells_view v = {.struct_size = sizeof v};

        ok(kvlazy_cells(r->cache, slot->stream[i], &v));
        for (uint32_t cell = 0; cell < n_kv; cell++) {
            bool seen = is_seen(r, slot->stream[i], &v, u, i, cell, s->info.causal);
            int64_t d = seen && s->info.alibi ? llabs((int64_t)v.pos[cell] - u->pos[i]) : 0;

            if (!element_is(data + (i * stride + cell) * element, s->info.type, seen, d))
                fail_msg("type %d causal %d alibi %d: token %" PRIu32 " at %d, cell %" PRIu32 " at %d should be %s, "
                         "distance %" PRId64,
                         s->info.type, s->info.causal, s->info.alibi, i, u->pos[i], cell,
                         cell < v.n_cell ? v.pos[cell] : -1, seen ? "seen" : "hidden", d);
        }
        if (i + 1 < u->n_token)
            untouched(data + (i * stride + n_kv) * element, (stride - n_kv) * element);
    }
    untouched(s->bytes, (size_t)(data - s->bytes));
    untouched(data + s->n_data, GUARD_BYTES);
}

static void one_mask(struct rig *r, const kvlazy_slot *slot, const kvlazy_ubatch *u, int type, bool causal, bool alibi,
                     uint32_t columns, uint32_t extra, size_t misfit)
{
    struct sheet s = sheet(type, causal, alibi, u->n_token, kvlazy_n_kv(r->cache, slot), columns, extra, misfit);

    ok(kvlazy_mask(r->cache, slot, u, &s.info));
    sheet_is_right(r, &s, slot, u);
    free(s.bytes);
}

/* Every kind of mask of one slot. */
static void all_masks(struct rig *r, const kvlazy_slot *slot, const kvlazy_ubatch *u)
{
    uint32_t n_kv = kvlazy_n_kv(r->cache, slot);

    for (int kind = 0; kind < 8; kind++) {
        int type = kind & 1 ? KVLAZY_MASK_F16 : KVLAZY_MASK_F32;
        bool causal = kind & 2, alibi = kind & 4;

        one_mask(r, slot, u, type, causal, alibi, 0, 0, 0);
        one_mask(r, slot, u, type, causal, alibi, n_kv, 7, 1);
        one_mask(r, slot, u, type, causal, alibi, n_kv + 1, 0, 0);
        one_mask(r, slot, u, type, causal, alibi, n_kv + 333, 13, 3);
    }
}

static void put_and_mask(struct rig *r, const kvlazy_ubatch *u)
{
    ok(put_tokens(r, u, 1));
    all_masks(r, &r->slot[0], u);
}

/* ---- examples ---- */

static void of_several_sequences(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(7, POS(5, 3, 6, 4, 0, 7, 1), SEQ(0, 1, 0, 1, 2, 0, 2));

    rig_open(r);
    ok(put(r, 0, 0, 5));
    ok(put(r, 1, 0, 3));
    put_and_mask(r, &u);
    sound(r);
}

static void of_shared_cells_and_holes(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(4, POS(21, 21, 22, 20), SEQ(0, 3, 0, 1));

    rig_open(r);
    ok(put(r, 0, 0, 20));
    ok(kvlazy_seq_cp(r->cache, 0, 1, -1, -1));
    ok(put_owned(r, 2, SEQ(3, 0), 20, 1));
    ok(kvlazy_seq_rm(r->cache, 0, 3, 6));
    ok(kvlazy_seq_rm(r->cache, -1, 9, 12));
    put_and_mask(r, &u);
    sound(r);
}

static void of_the_first_owner(void **state)
{
    struct rig *r = *state;
    const kvlazy_seq_id both[] = {2, 1};
    const kvlazy_seq_id *ids[] = {both, both, both};
    kvlazy_ubatch u = {.n_token = 3, .pos = POS(4, 5, 6), .n_seq_id = (const int32_t[]){2, 2, 2}, .seq_id = ids};

    rig_open(r);
    ok(put(r, 1, 0, 4));
    ok(put(r, 2, 3, 1));
    put_and_mask(r, &u);
}

static void of_one_slot_of_many(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[3] = {UBATCH(2, POS(3, 4), SEQ(0, 0)), UBATCH(3, POS(5, 6, 7), SEQ(0, 0, 0)),
                          UBATCH(1, POS(0), SEQ(1))};

    rig_open(r);
    ok(put(r, 0, 0, 3));
    ok(put_tokens(r, u, 3));
    for (int i = 0; i < 3; i++)
        all_masks(r, &r->slot[i], &u[i]);
}

static void of_several_streams(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(6, POS(300, 2, 0, 3, 301, 1), SEQ(0, 1, 3, 1, 0, 3));

    r->params.n_stream = 4;
    r->params.n_seq_max = 4;
    rig_open(r);
    ok(put(r, 0, 0, 300));
    ok(put(r, 1, 0, 2));
    ok(put(r, 2, 0, 40));
    put_and_mask(r, &u);
    sound(r);
}

/* Text, an image whose tokens share a position, text again; and a batch that ends inside an image. */
static void with_planes(void **state)
{
    struct rig *r = *state;
    /* position, y, x, rest; the stride is longer than the tokens */
    const kvlazy_pos first[4][8] = {{0, 1, 2, 2, 2, 2, 5, 6}, {0, 1, 2, 2, 3, 3, 5, 6}, {0, 1, 2, 3, 2, 3, 5, 6}, {0}};
    const kvlazy_pos second[4][8] = {{7, 7, 7, 7, 7, 9}, {7, 7, 8, 8, 8, 9}, {7, 8, 6, 7, 8, 9}, {0}};
    kvlazy_ubatch u = {.n_token = 8, .pos = first[0], .seq = SEQ(0, 0, 0, 0, 0, 0, 0, 0)};
    kvlazy_ubatch w = {.n_token = 6, .pos = second[0], .pos_stride = 8, .seq = SEQ(0, 0, 0, 0, 0, 0)};

    r->params.n_pos_per_token = 4;
    rig_open(r);
    put_and_mask(r, &u);
    put_and_mask(r, &w);
    sound(r);
}

/* With planes positions may leave gaps, so distances of every size can be had. */
static void with_distances_of_every_size(void **state)
{
    struct rig *r = *state;
    static const kvlazy_pos far[] = {
        0,     1,     2,     3,     1023,  1024,   2047,    2048,     2049,          2050,  2051,
        4094,  4098,  4102,  4103,  8191,  8196,   8204,    32767,    32784,         65503, 65504,
        65505, 65519, 65520, 65535, 65536, 131072, 1000000, 16777217, INT32_MAX - 1,
    };
    kvlazy_pos pos[3 * N_OF(far)] = {0};
    kvlazy_seq_id seq[N_OF(far)] = {0};
    uint32_t n = (uint32_t)N_OF(far);
    kvlazy_ubatch u = {.n_token = n, .pos = pos, .seq = seq};

    for (uint32_t i = 0; i < n; i++)
        pos[i] = far[i];
    r->params.n_pos_per_token = 3;
    rig_open(r);
    put_and_mask(r, &u);
    for (int64_t d = 0; d < 140000; d++) /* the rule itself: never infinite, never over half a unit away */
        assert_true(-nearest_half(d) <= 65504 && (d > 65504 || llabs((int64_t)-nearest_half(d) - d) <= 16));
}

static void through_windows(void **state)
{
    static const uint32_t size[] = {1, 2, 3, 4, 7, 16, 100, INT32_MAX};

    (void)state;
    for (int type = KVLAZY_SWA_STANDARD; type <= KVLAZY_SWA_SYMMETRIC; type++)
        for (size_t k = 0; k < N_OF(size); k++) {
            struct rig *r = rig_new();
            kvlazy_ubatch u = UBATCH(6, POS(37, 38, 39, 40, 8, 9), SEQ(0, 0, 0, 0, 1, 1));

            r->params.swa_type = type;
            r->params.n_swa = size[k];
            rig_open(r);
            ok(put(r, 0, 0, 37));
            ok(put(r, 1, 0, 8));
            put_and_mask(r, &u);
            sound(r);
            rig_free(r);
        }
}

/* The examples of semantics: what a query at 10 or 12 sees through a window of 4. */
static void window_examples(void **state)
{
    static const struct {
        int type;
        kvlazy_pos query, first, last; /* of positions 0..14 that are seen, without causal */
    } example[] = {{KVLAZY_SWA_STANDARD, 10, 7, 14},
                   {KVLAZY_SWA_CHUNKED, 10, 8, 14},
                   {KVLAZY_SWA_CHUNKED, 12, 12, 14},
                   {KVLAZY_SWA_SYMMETRIC, 10, 8, 12}};

    (void)state;
    for (size_t k = 0; k < N_OF(example); k++) {
        struct rig *r = rig_new();
        kvlazy_pos pos[15];
        kvlazy_seq_id seq[15] = {0};
        float row[15][64];
        kvlazy_mask_info m = {.struct_size = sizeof m, .data = row, .data_bytes = sizeof row};
        kvlazy_ubatch u = {.n_token = 15, .pos = pos, .seq = seq};

        for (int i = 0; i < 15; i++)
            pos[i] = i;
        r->params.n_pad = 64;
        r->params.swa_type = example[k].type;
        r->params.n_swa = 4;
        rig_open(r);
        ok(put_tokens(r, &u, 1));
        ok(kvlazy_mask(r->cache, &r->slot[0], &u, &m));
        for (int p = 0; p < 15; p++)
            assert_true((row[example[k].query][p] == 0) == (p >= example[k].first && p <= example[k].last));
        rig_free(r);
    }
}

/* After a shift, and after the engine took cells of the slot away. */
static void of_what_is_left(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(3, POS(20, 21, 22), SEQ(0, 0, 0));

    rig_open(r);
    ok(put(r, 0, 0, 20));
    ok(kvlazy_seq_add(r->cache, 0, 4, -1, 3));
    ok(kvlazy_seq_add(r->cache, 0, 0, -1, -3));
    ok(kvlazy_shift_done(r->cache));
    put_and_mask(r, &u);
    ok(kvlazy_seq_rm(r->cache, 0, 7, 22));
    all_masks(r, &r->slot[0], &u);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    all_masks(r, &r->slot[0], &u);
}

/* ---- seeded ---- */

struct shape {
    const char *name;
    uint32_t n_stream, n_seq, n_plane, n_pad, n_swa;
    int swa_type;
};

static const struct shape shapes[] = {
    {"plain", 1, 4, 1, 1, 0, KVLAZY_SWA_NONE},
    {"many sequences", 1, 200, 1, 32, 0, KVLAZY_SWA_NONE},
    {"streams", 4, 4, 1, 16, 0, KVLAZY_SWA_NONE},
    {"planes", 1, 4, 3, 64, 0, KVLAZY_SWA_NONE},
    {"standard", 1, 4, 1, 256, 11, KVLAZY_SWA_STANDARD},
    {"chunked", 1, 4, 1, 8, 12, KVLAZY_SWA_CHUNKED},
    {"symmetric", 1, 4, 1, 8, 9, KVLAZY_SWA_SYMMETRIC},
    {"streams, planes, window", 3, 3, 4, 16, 20, KVLAZY_SWA_STANDARD},
};

struct tokens {
    kvlazy_pos pos[4 * N_BATCH];
    kvlazy_seq_id seq[N_BATCH];
    kvlazy_ubatch ubatch;
};

/* Some tokens of some sequences, mixed, that go on where these end. */
static void draw(struct rig *r, struct tokens *t, uint64_t *seed)
{
    uint32_t n = 1 + (uint32_t)(next_random(seed) % N_BATCH), n_seq = 1 + (uint32_t)(next_random(seed) % 3);
    bool planes = r->params.n_pos_per_token > 1;
    kvlazy_seq_id first = (kvlazy_seq_id)(next_random(seed) % r->n_seq);

    t->ubatch = (kvlazy_ubatch){.n_token = n, .pos = t->pos, .pos_stride = N_BATCH, .seq = t->seq};
    for (uint32_t i = 0; i < n; i++) {
        kvlazy_seq_id seq = (kvlazy_seq_id)((first + next_random(seed) % n_seq) % r->n_seq);
        kvlazy_pos last = kvlazy_seq_pos_max(r->cache, seq);

        for (uint32_t k = 0; k < i; k++)
            last = t->seq[k] == seq ? t->pos[k] : last;
        t->seq[i] = seq;
        t->pos[i] = last + (planes && last >= 0 ? (kvlazy_pos)(next_random(seed) % 3) : 1);
        for (int plane = 1; plane < 4; plane++)
            t->pos[plane * N_BATCH + i] = (kvlazy_pos)(next_random(seed) % 4);
    }
}

static void disturb(struct rig *r, uint64_t *seed)
{
    kvlazy_seq_id seq = (kvlazy_seq_id)(next_random(seed) % r->n_seq);
    kvlazy_seq_id other = (kvlazy_seq_id)(next_random(seed) % r->n_seq);
    kvlazy_pos last = kvlazy_seq_pos_max(r->cache, seq);
    kvlazy_pos from = last > 0 ? (kvlazy_pos)(next_random(seed) % (uint32_t)last) : 0;

    switch (next_random(seed) % 6) {
    case 0:
        ok(kvlazy_seq_rm(r->cache, seq, from, from + 9));
        break;
    case 1:
        ok(kvlazy_seq_rm(r->cache, seq, -1, -1));
        break;
    case 2:
        if (r->n_stream == 1) /* the rig knows nothing of copied rows */
            ok(kvlazy_seq_cp(r->cache, seq, other, from, -1));
        break;
    case 3:
        if (r->params.n_pos_per_token == 1)
            ok(kvlazy_seq_add(r->cache, seq, from, -1, (kvlazy_pos)(next_random(seed) % 9) - 4));
        ok(kvlazy_shift_done(r->cache));
        break;
    }
}

static void seeded(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_OF(shapes); k++) {
        struct rig *r = rig_new();
        uint64_t seed = 7 + k;
        uint32_t n_mask = 0;
        struct tokens t;

        r->params.n_stream = shapes[k].n_stream;
        r->params.n_seq_max = shapes[k].n_seq;
        r->params.n_pos_per_token = shapes[k].n_plane;
        r->params.n_pad = shapes[k].n_pad;
        r->params.n_swa = shapes[k].n_swa;
        r->params.swa_type = shapes[k].swa_type;
        rig_open(r);
        for (int round = 0; round < 600; round++) {
            ok(kvlazy_init_batch(r->cache));
            draw(r, &t, &seed);
            if (put_tokens(r, &t.ubatch, 1) == KVLAZY_OK) {
                uint64_t kind = next_random(&seed);

                one_mask(r, &r->slot[0], &t.ubatch, kind & 1 ? KVLAZY_MASK_F16 : KVLAZY_MASK_F32, kind & 2, kind & 4,
                         kind & 8 ? kvlazy_n_kv(r->cache, &r->slot[0]) + (kind >> 8) % 70 : 0, (kind >> 16) % 5,
                         (kind >> 24) % 4);
                n_mask++;
            } else {
                ok(kvlazy_seq_rm(r->cache, (kvlazy_seq_id)(next_random(&seed) % r->n_seq), -1, -1));
            }
            ok(kvlazy_end_batch(r->cache));
            disturb(r, &seed);
        }
        sound(r);
        rig_free(r);
        if (n_mask < 200)
            fail_msg("%s: only %" PRIu32 " masks", shapes[k].name, n_mask);
    }
}

/* ---- errors ---- */

/* A slot of 3 tokens behind 5, applied; the mask that suits it, 256 columns. */
struct scene {
    struct rig *r;
    kvlazy_ubatch u;
    struct sheet s;
};

static struct scene scene(struct rig *r)
{
    static const kvlazy_pos pos[] = {5, 6, 7};
    static const kvlazy_seq_id seq[] = {0, 0, 0};
    struct scene c = {.r = r, .u = UBATCH(3, pos, seq)};

    rig_open(r);
    ok(put(r, 0, 0, 5));
    ok(put_tokens(r, &c.u, 1));
    c.s = sheet(KVLAZY_MASK_F32, true, false, 3, 256, 0, 0, 0);
    return c;
}

static void refused(struct scene *c, const kvlazy_slot *slot, const kvlazy_ubatch *u, const kvlazy_mask_info *m)
{
    char *before = rig_dump(c->r);

    expect(kvlazy_mask(c->r->cache, slot, u, m), KVLAZY_EINVAL);
    untouched(c->s.bytes, c->s.n_data + 2 * GUARD_BYTES);
    unchanged(c->r, before);
}

static void done(struct scene *c)
{
    ok(kvlazy_mask(c->r->cache, &c->r->slot[0], &c->u, &c->s.info)); /* it was the one thing that was wrong */
    sheet_is_right(c->r, &c->s, &c->r->slot[0], &c->u);
    free(c->s.bytes);
}

static void refuses_nothing_at_all(void **state)
{
    struct scene c = scene(*state);
    const kvlazy_slot *slot = &c.r->slot[0];

    expect(kvlazy_mask(NULL, slot, &c.u, &c.s.info), KVLAZY_EINVAL);
    refused(&c, NULL, &c.u, &c.s.info);
    refused(&c, slot, NULL, &c.s.info);
    refused(&c, slot, &c.u, NULL);
    done(&c);
}

static void refuses_a_bad_mask(void **state)
{
    struct scene c = scene(*state);
    kvlazy_mask_info m;

#define WITH(field, bad)                      \
    do {                                      \
        m = c.s.info;                         \
        m.field = (bad);                      \
        refused(&c, &c.r->slot[0], &c.u, &m); \
    } while (0)
    WITH(struct_size, 0);
    WITH(data, NULL);
    WITH(data_bytes, 0);
    WITH(data_bytes, c.s.n_data - 1);
    WITH(n_kv, 255);
    WITH(n_kv, 1);
    WITH(n_kv, 257); /* more columns than the data have */
    WITH(n_kv, UINT32_MAX);
    WITH(row_stride, 255); /* shorter than a row */
    WITH(row_stride, 1);
    WITH(row_stride, 257); /* longer than the data have */
    WITH(row_stride, SIZE_MAX);
    WITH(row_stride, SIZE_MAX / 2 + 1); /* two of these are 0 */
    WITH(row_stride, SIZE_MAX / 8 + 2);
    WITH(type, 2);
    WITH(type, -1);
#undef WITH
    done(&c);
}

static void refuses_another_slot(void **state)
{
    struct scene c = scene(*state);
    kvlazy_slot slot = c.r->slot[0];

    slot.n_token = 2;
    refused(&c, &slot, &c.u, &c.s.info);
    slot = c.r->slot[0];
    slot.cell++;
    refused(&c, &slot, &c.u, &c.s.info);
    slot = c.r->slot[0];
    slot.stream = NULL;
    refused(&c, &slot, &c.u, &c.s.info);
    done(&c);
}

static void refuses_another_ubatch(void **state)
{
    struct scene c = scene(*state);
    const kvlazy_slot *slot = &c.r->slot[0];
    const kvlazy_seq_id *none[] = {NULL, NULL, NULL};
    kvlazy_ubatch two = UBATCH(2, POS(5, 6), SEQ(0, 0)), moved = UBATCH(3, POS(5, 6, 8), SEQ(0, 0, 0)),
                  other = UBATCH(3, POS(5, 6, 7), SEQ(0, 1, 0)), no_pos = c.u, no_seq = c.u, no_id = c.u;

    no_pos.pos = NULL;
    no_seq.seq = NULL;
    no_id.seq = NULL;
    no_id.seq_id = none;
    refused(&c, slot, &two, &c.s.info);
    refused(&c, slot, &moved, &c.s.info);
    refused(&c, slot, &other, &c.s.info);
    refused(&c, slot, &no_pos, &c.s.info);
    refused(&c, slot, &no_seq, &c.s.info);
    refused(&c, slot, &no_id, &c.s.info);
    done(&c);
}

static void refuses_a_slot_that_is_not_applied(void **state)
{
    struct scene c = scene(*state);
    const kvlazy_slot *slot = &c.r->slot[0];

    ok(kvlazy_undo_ubatch(c.r->cache, slot));
    refused(&c, slot, &c.u, &c.s.info);
    ok(kvlazy_prepare(c.r->cache, &c.u, 1, c.r->slot));
    refused(&c, slot, &c.u, &c.s.info);
    ok(kvlazy_apply_ubatch(c.r->cache, slot, &c.u));
    write_rows(c.r, slot);
    ok(kvlazy_mask(c.r->cache, slot, &c.u, &c.s.info));
    sheet_is_right(c.r, &c.s, slot, &c.u);
    kvlazy_slot stale = *slot;
    kvlazy_ubatch next = UBATCH(1, POS(8), SEQ(0));
    ok(put_tokens(c.r, &next, 1));
    expect(kvlazy_mask(c.r->cache, &stale, &c.u, &c.s.info), KVLAZY_EINVAL);
    free(c.s.bytes);
}

static void refuses_other_planes(void **state)
{
    struct rig *r = *state;
    kvlazy_pos pos[3][2] = {{0, 0}, {1, 1}, {4, 5}};
    kvlazy_ubatch u = {.n_token = 2, .pos = pos[0], .seq = SEQ(0, 0)};
    struct scene c = {.r = r, .s = sheet(KVLAZY_MASK_F16, true, false, 2, 256, 0, 0, 0)};

    r->params.n_pos_per_token = 3;
    rig_open(r);
    ok(put_tokens(r, &u, 1));
    pos[1][0] = 2;
    refused(&c, &r->slot[0], &u, &c.s.info);
    pos[1][0] = 1;
    pos[2][1] = 6;
    refused(&c, &r->slot[0], &u, &c.s.info);
    pos[2][1] = 5;
    ok(kvlazy_mask(r->cache, &r->slot[0], &u, &c.s.info));
    sheet_is_right(r, &c.s, &r->slot[0], &u);
    free(c.s.bytes);
}

/* A caller of an older version, whose mask ends after n_kv. */
static void takes_a_smaller_struct(void **state)
{
    struct scene c = scene(*state);

    c.s.info.struct_size = offsetof(kvlazy_mask_info, type);
    c.s.info.type = KVLAZY_MASK_F16; /* not there: f32 */
    ok(kvlazy_mask(c.r->cache, &c.r->slot[0], &c.u, &c.s.info));
    c.s.info.type = KVLAZY_MASK_F32;
    c.s.info.causal = false;
    sheet_is_right(c.r, &c.s, &c.r->slot[0], &c.u);
    free(c.s.bytes);
}

/* ---- memory ---- */

static bool lose;
static int n_asked;

void *__real_reallocarray(void *, size_t, size_t);
void *__wrap_reallocarray(void *, size_t, size_t);

void *__wrap_reallocarray(void *p, size_t n, size_t bytes)
{
    n_asked++;
    return lose ? NULL : __real_reallocarray(p, n, bytes);
}

static void asks_for_memory_once(void **state)
{
    struct scene c = scene(*state);
    struct sheet wide = sheet(KVLAZY_MASK_F16, false, true, 3, 256, 1000, 0, 0);
    const kvlazy_slot *slot = &c.r->slot[0];

    lose = true;
    expect(kvlazy_mask(c.r->cache, slot, &c.u, &c.s.info), KVLAZY_ENOMEM);
    lose = false;
    untouched(c.s.bytes, c.s.n_data + 2 * GUARD_BYTES);
    ok(kvlazy_mask(c.r->cache, slot, &c.u, &c.s.info));
    n_asked = 0;
    for (int i = 0; i < 20; i++)
        ok(kvlazy_mask(c.r->cache, slot, &c.u, &c.s.info));
    assert_int_equal(n_asked, 0);
    lose = true;
    expect(kvlazy_mask(c.r->cache, slot, &c.u, &wide.info), KVLAZY_ENOMEM);
    lose = false;
    untouched(wide.bytes, wide.n_data + 2 * GUARD_BYTES);
    ok(kvlazy_mask(c.r->cache, slot, &c.u, &wide.info));
    sheet_is_right(c.r, &wide, slot, &c.u);
    sheet_is_right(c.r, &c.s, slot, &c.u);
    free(wide.bytes);
    free(c.s.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(of_several_sequences),
        RIG_TEST(of_shared_cells_and_holes),
        RIG_TEST(of_the_first_owner),
        RIG_TEST(of_one_slot_of_many),
        RIG_TEST(of_several_streams),
        RIG_TEST(with_planes),
        RIG_TEST(with_distances_of_every_size),
        cmocka_unit_test(through_windows),
        cmocka_unit_test(window_examples),
        RIG_TEST(of_what_is_left),
        cmocka_unit_test(seeded),
        RIG_TEST(refuses_nothing_at_all),
        RIG_TEST(refuses_a_bad_mask),
        RIG_TEST(refuses_another_slot),
        RIG_TEST(refuses_another_ubatch),
        RIG_TEST(refuses_a_slot_that_is_not_applied),
        RIG_TEST(refuses_other_planes),
        RIG_TEST(takes_a_smaller_struct),
        RIG_TEST(asks_for_memory_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
