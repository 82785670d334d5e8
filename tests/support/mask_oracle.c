/* SPDX-License-Identifier: MIT */
/* The oracle of mask_oracle.h: every element is decided alone, from the public view of the cells. */
#include "mask_oracle.h"
#include "owners.h"

#include "unit.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { FILL = 0x5a };

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

/* The owners of every cell of one stream, asked for once. */
struct owner_table {
    uint32_t n_word; /* a cell */
    uint64_t *word;
};

static struct owner_table owners_of_stream(struct rig *r, uint32_t stream, uint32_t n_cell)
{
    struct owner_table t = {.n_word = (r->n_seq + 63) / 64};

    t.word = calloc((size_t)n_cell * t.n_word + 1, sizeof *t.word);
    assert_non_null(t.word);
    for (uint32_t cell = 0; cell < n_cell; cell++)
        owner_words(r->cache, stream, cell, t.word + (size_t)cell * t.n_word, t.n_word);
    return t;
}

static bool owns(const struct owner_table *t, uint32_t cell, kvlazy_seq_id seq)
{
    return t->word[(size_t)cell * t->n_word + (uint32_t)seq / 64] >> seq % 64 & 1;
}

static bool is_seen(struct rig *r, const struct owner_table *t, const kvlazy_cells_view *v, const kvlazy_ubatch *u,
                    uint32_t i, uint32_t cell, bool causal)
{
    kvlazy_seq_id seq = u->seq ? u->seq[i] : u->seq_id[i][0];

    if (cell >= v->n_cell || v->pos[cell] < 0 || !owns(t, cell, seq))
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

double nearest_half(int64_t distance)
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

struct sheet sheet(int type, bool causal, bool alibi, uint32_t n_row, uint32_t n_kv, uint32_t columns, uint32_t extra,
                   size_t misfit)
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

void untouched(const unsigned char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (from[i] != FILL)
            fail_msg("byte %zu of %zu that should be left alone is %02x", i, bytes, from[i]);
}

void sheet_is_right(struct rig *r, const struct sheet *s, const kvlazy_slot *slot, const kvlazy_ubatch *u)
{
    size_t element = s->info.type == KVLAZY_MASK_F32 ? 4 : 2;
    uint32_t n_kv = s->info.n_kv ? s->info.n_kv : kvlazy_n_kv(r->cache, slot);
    size_t stride = s->info.row_stride ? s->info.row_stride : n_kv;
    const unsigned char *data = s->info.data;
    struct owner_table owners = {0};

    for (uint32_t i = 0; i < u->n_token; i++) {
        kvlazy_cells_view v = {.struct_size = sizeof v};

        ok(kvlazy_cells(r->cache, slot->stream[i], &v));
        if (!i || slot->stream[i] != slot->stream[i - 1]) {
            free(owners.word);
            owners = owners_of_stream(r, slot->stream[i], v.n_cell);
        }
        for (uint32_t cell = 0; cell < n_kv; cell++) {
            bool seen = is_seen(r, &owners, &v, u, i, cell, s->info.causal);
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
    free(owners.word);
    untouched(s->bytes, (size_t)(data - s->bytes));
    untouched(data + s->n_data, GUARD_BYTES);
}

void one_mask(struct rig *r, const kvlazy_slot *slot, const kvlazy_ubatch *u, int type, bool causal, bool alibi,
              uint32_t columns, uint32_t extra, size_t misfit)
{
    struct sheet s = sheet(type, causal, alibi, u->n_token, kvlazy_n_kv(r->cache, slot), columns, extra, misfit);

    ok(kvlazy_mask(r->cache, slot, u, &s.info));
    sheet_is_right(r, &s, slot, u);
    free(s.bytes);
}

void all_masks(struct rig *r, const kvlazy_slot *slot, const kvlazy_ubatch *u)
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
