/* SPDX-License-Identifier: MIT */
/*
 * mask: which cells each token of an applied slot sees, as the numbers an attention kernel adds. Called by
 * engines that keep no mask of their own; reads the cells, changes none, and nothing depends on it.
 *
 * All that a token sees of its sequence is a range of positions, so a row is one comparison a cell, without a
 * branch, over the positions of one sequence in the order of cells:
 *
 *     cell            0    1    2    3    4    5    6 …
 *     owned by s      x         x    x
 *     key             0  MAX    1    2  MAX  MAX  MAX        the cache's scratch, all MAX between two runs
 *     row at pos 1    0 -inf    0 -inf -inf -inf -inf
 *
 * Tokens of one sequence that follow one another share the keys; these are written from the index of the
 * sequence, and taken back from there, so that a row for one token costs no second look at all cells.
 */
#include "api/door.h"
#include "core/apply.h"

#include <bsd/stdlib.h>

#include <kvlazy/mask.h>

/* What the caller's array holds. It need not be aligned, and may be declared as anything. */
typedef float __attribute__((may_alias, aligned(1))) f32;
typedef uint16_t __attribute__((may_alias, aligned(1))) f16;

#define HIDDEN_KEY INT32_MAX /* no position is that large */
#define HIDDEN_F32 (-__builtin_inff())
#define HIDDEN_F16 0xfc00u

/* Positions that a token sees: [begin, end], with end < HIDDEN_KEY. */
typedef struct view {
    kvlazy_pos pos, begin, end;
} view;

/* ------------------------------------------------------------------------------------------- rows */

static void fill_f32(f32 *restrict out, const kvlazy_pos *restrict key, uint32_t n, view v)
{
    uint32_t begin = (uint32_t)v.begin, span = (uint32_t)v.end - begin;

    for (uint32_t i = 0; i < n; i++)
        out[i] = (uint32_t)key[i] - begin > span ? HIDDEN_F32 : 0.0f;
}

static void fill_f16(f16 *restrict out, const kvlazy_pos *restrict key, uint32_t n, view v)
{
    uint32_t begin = (uint32_t)v.begin, span = (uint32_t)v.end - begin;

    if (!begin) /* half the work: worth a loop where a mask has half the bytes */
        for (uint32_t i = 0; i < n; i++)
            out[i] = key[i] > v.end ? HIDDEN_F16 : 0;
    else
        for (uint32_t i = 0; i < n; i++)
            out[i] = (uint32_t)key[i] - begin > span ? HIDDEN_F16 : 0;
}

/* With ALiBi a row is put together from bits: a choice between two floats would be a branch to the compiler, which
 * may not compute what is not chosen. Of cells that are hidden the distance is anything. */
static inline uint32_t choose(bool hidden, uint32_t yes, uint32_t no)
{
    uint32_t mask = -(uint32_t)hidden;

    return (yes & mask) | (no & ~mask);
}

static inline int32_t distance(kvlazy_pos a, kvlazy_pos b)
{
    return a < b ? b - a : a - b;
}

static inline uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void fill_f32_alibi(f32 *restrict out, const kvlazy_pos *restrict key, uint32_t n, view v)
{
    uint32_t begin = (uint32_t)v.begin, span = (uint32_t)v.end - begin;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t bias = float_bits((float)-distance(key[i], v.pos));
        uint32_t bits = choose((uint32_t)key[i] - begin > span, float_bits(HIDDEN_F32), bias);

        memcpy(&out[i], &bits, sizeof bits);
    }
}

/* Minus a distance as a half, to the nearest, ties to even; exact up to 2048. The largest finite half stands for
 * all that is farther, so that what is seen never looks hidden.
 *
 *     float  s eeeeeeee mmmmmmmmmm mmmmmmmmmmmmm     exponent bias 127
 *     half   s    eeeee mmmmmmmmmm                   exponent bias 15: 2^-112 makes them the same
 */
static inline uint32_t minus_half_bits(int32_t far)
{
    int32_t near = far < 65504 ? far : 65504;
    uint32_t bits = float_bits((float)near * 0x1p-112f), sign = near ? 0x8000u : 0;

    return (bits + 0xfff + (bits >> 13 & 1)) >> 13 | sign;
}

static void fill_f16_alibi(f16 *restrict out, const kvlazy_pos *restrict key, uint32_t n, view v)
{
    uint32_t begin = (uint32_t)v.begin, span = (uint32_t)v.end - begin;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t bias = minus_half_bits(distance(key[i], v.pos));

        out[i] = (uint16_t)choose((uint32_t)key[i] - begin > span, HIDDEN_F16, bias);
    }
}

/* ------------------------------------------------------------------------------------------- one call */

typedef struct job {
    kvlazy_cache *cache;
    const kvl_plan_ubatch *planned;
    const kvlazy_ubatch *ubatch;
    kvlazy_mask_info mask; /* resolved: no 0 stands for anything else */
} job;

static size_t element_bytes(int type)
{
    return type == KVLAZY_MASK_F32 ? sizeof(float) : sizeof(uint16_t);
}

static void *element_at(const job *j, uint32_t token, uint32_t cell)
{
    return (char *)j->mask.data + (token * j->mask.row_stride + cell) * element_bytes(j->mask.type);
}

static const kvl_cells *cells_of(const job *j, uint32_t token)
{
    return &j->cache->stream[j->cache->plan.stream[j->planned->token_begin + token]].cells;
}

static kvlazy_seq_id seq_of(const job *j, uint32_t token)
{
    return kvl_plan_first_owner(&j->cache->plan, j->planned->token_begin + token);
}

/* Plane y or x of a token's position. */
static kvlazy_pos plane_of(const job *j, uint32_t token, uint32_t plane)
{
    size_t stride = j->ubatch->pos_stride ? j->ubatch->pos_stride : j->ubatch->n_token;

    return j->ubatch->pos[plane * stride + token];
}

static view view_of(const job *j, uint32_t token)
{
    const kvlazy_params *p = &j->cache->params;
    int64_t pos = j->ubatch->pos[token], end = j->mask.causal ? pos : HIDDEN_KEY - 1;

    if (p->swa_type == KVLAZY_SWA_SYMMETRIC && end > pos + p->n_swa / 2)
        end = pos + p->n_swa / 2;
    return (view){
        .pos = (kvlazy_pos)pos,
        .begin = (kvlazy_pos)kvl_policy_window_begin(p->swa_type, p->n_swa, pos),
        .end = (kvlazy_pos)end,
    };
}

/* ------------------------------------------------------------------------------------------- filling */

static void fill_row(const job *j, uint32_t token, view v)
{
    const kvlazy_mask_info *m = &j->mask;
    const kvlazy_pos *key = j->cache->mask.key;
    void *out = element_at(j, token, 0);

    if (m->type == KVLAZY_MASK_F32)
        (m->alibi ? fill_f32_alibi : fill_f32)(out, key, m->n_kv, v);
    else
        (m->alibi ? fill_f16_alibi : fill_f16)(out, key, m->n_kv, v);
}

static void hide(const job *j, uint32_t token, uint32_t cell)
{
    if (j->mask.type == KVLAZY_MASK_F32)
        *(f32 *)element_at(j, token, cell) = HIDDEN_F32;
    else
        *(f16 *)element_at(j, token, cell) = HIDDEN_F16;
}

/* With position planes, tokens of one image share a position and are read line by line. */
static void hide_unread(const job *j, uint32_t token, const kvl_index *index)
{
    const kvl_cells *cells = cells_of(j, token);
    kvlazy_pos pos = j->ubatch->pos[token], y = plane_of(j, token, 1), x = plane_of(j, token, 2);

    for (uint32_t i = kvl_index_below(index, pos); i < index->n && kvl_index_at(index, i)->pos == pos; i++) {
        uint32_t cell = kvl_index_at(index, i)->cell;

        if (cells->ext_y[cell] > y || (cells->ext_y[cell] == y && cells->ext_x[cell] > x))
            hide(j, token, cell);
    }
}

/* Rows of tokens that have their first sequence in common. */
static void fill_run(const job *j, uint32_t begin, uint32_t end)
{
    const kvl_index *index = kvl_cells_index(cells_of(j, begin), seq_of(j, begin));
    kvlazy_pos *key = j->cache->mask.key, low = INT32_MAX, high = 0;

    for (uint32_t i = begin; i < end; i++) {
        view v = view_of(j, i);

        low = v.begin < low ? v.begin : low;
        high = v.end > high ? v.end : high;
    }
    uint32_t first = kvl_index_below(index, low), last = kvl_index_below(index, high + 1);
    for (uint32_t i = first; i < last; i++)
        key[kvl_index_at(index, i)->cell] = kvl_index_at(index, i)->pos;
    for (uint32_t i = begin; i < end; i++) {
        fill_row(j, i, view_of(j, i));
        if (j->mask.causal && j->cache->params.n_pos_per_token > 1)
            hide_unread(j, i, index);
    }
    for (uint32_t i = first; i < last; i++)
        key[kvl_index_at(index, i)->cell] = HIDDEN_KEY;
}

static void fill(const job *j)
{
    uint32_t n = j->ubatch->n_token;

    for (uint32_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && seq_of(j, end) == seq_of(j, begin);)
            end++;
        fill_run(j, begin, end);
    }
}

/* ------------------------------------------------------------------------------------------- checking */

/* The planes y and x are those that apply recorded, as far as that can be told: the engine may have removed the
 * token since. */
static bool same_planes(const job *j)
{
    for (uint32_t i = 0; j->cache->params.n_pos_per_token > 1 && i < j->ubatch->n_token; i++) {
        const kvl_cells *cells = cells_of(j, i);
        uint32_t token = j->planned->token_begin + i, cell = j->cache->plan.cell[token];

        if (kvl_plan_still_holds(cells, &j->cache->plan, token) &&
            (cells->ext_y[cell] != plane_of(j, i, 1) || cells->ext_x[cell] != plane_of(j, i, 2)))
            return false;
    }
    return true;
}

/* Rows as the mask says, resolved, lie inside its data; the last may end with its columns. */
static bool rows_fit(kvlazy_mask_info *m, uint32_t n_token, uint32_t n_kv)
{
    uint64_t bytes;

    m->n_kv = m->n_kv ? m->n_kv : n_kv;
    m->row_stride = m->row_stride ? m->row_stride : m->n_kv;
    return m->n_kv >= n_kv && m->row_stride >= m->n_kv && !kvl_mul_overflows(m->row_stride, n_token - 1, &bytes) &&
           !kvl_add_overflows(bytes, m->n_kv, &bytes) && !kvl_mul_overflows(bytes, element_bytes(m->type), &bytes) &&
           bytes <= m->data_bytes;
}

static int check(job *j, const kvlazy_slot *slot)
{
    j->planned = kvl_plan_find(&j->cache->plan, slot);
    if (!j->planned || !j->planned->applied || !kvl_plan_matches(&j->cache->plan, j->planned, j->ubatch) ||
        !same_planes(j))
        return KVLAZY_EINVAL;
    if (!j->mask.data || (j->mask.type != KVLAZY_MASK_F32 && j->mask.type != KVLAZY_MASK_F16) ||
        !rows_fit(&j->mask, j->ubatch->n_token, kvl_slot_n_kv(j->cache, j->planned)))
        return KVLAZY_EINVAL;
    return KVLAZY_OK;
}

/* The scratch grows with n_kv; what is new hides every cell, as the rest does. */
static int reserve_keys(kvlazy_cache *c, uint32_t n_kv)
{
    if (KVL_LIKELY(n_kv <= c->mask.n_key))
        return KVLAZY_OK;
    kvlazy_pos *key = reallocarray(c->mask.key, n_kv, sizeof *key);
    if (!key)
        return KVLAZY_ENOMEM;
    for (uint32_t i = c->mask.n_key; i < n_kv; i++)
        key[i] = HIDDEN_KEY;
    c->mask.key = key;
    c->mask.n_key = n_kv;
    return KVLAZY_OK;
}

int kvlazy_mask(const kvlazy_cache *cache, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch,
                const kvlazy_mask_info *mask)
{
    job j = {.cache = (kvlazy_cache *)(uintptr_t)cache /* its scratch is used */, .ubatch = ubatch};

    if (!ubatch || !mask || !kvl_struct_fits(mask, sizeof *mask))
        return KVLAZY_EINVAL;
    int status = kvl_enter(cache, KVL_DOOR_LOOK);
    if (status)
        return status;
    if (kvl_has_engine_cells(cache))
        return kvl_leave(cache, KVLAZY_ENOTSUP);
    kvl_struct_copy(&j.mask, sizeof j.mask, mask, mask->struct_size);
    status = check(&j, slot);
    if (!status)
        status = reserve_keys(j.cache, j.mask.n_kv);
    if (status)
        return kvl_leave(cache, status);
    kvl_note_read(j.cache, j.planned, j.mask.n_kv);
    fill(&j);
    return kvl_leave(cache, KVLAZY_OK);
}
