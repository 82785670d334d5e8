/* SPDX-License-Identifier: MIT */
/*
 * mask: which cells each token of an applied slot sees, as the numbers an attention kernel adds. Called by
 * engines that keep no mask of their own; reads the cells, changes none, and nothing depends on it.
 *
 * All that a token sees of its sequence is a range of positions, which is a range of the entries of the sequence's
 * index. The row of a sequence's first token is made in the cache's scratch, run by run of neighbouring cells; for
 * the next token the few cells are changed there in which the two rows differ. Every row is copied out of it:
 *
 *     cell            0    1    2    3    4    5    6 …
 *     position        0         1    2         3              of the tokens of one sequence
 *     row at pos 1    0 -inf    0 -inf -inf -inf -inf         all hidden, then entries 0 and 1 shown
 *     row at pos 2    0 -inf    0    0 -inf -inf -inf         entry 2 shown too
 *
 * The longest run of shown cells is not copied but written as zeros, so that nothing is read for it. With ALiBi
 * every row differs from the one before in all its cells: the scratch then keeps the position of each cell, and a
 * row is computed from these.
 */
#include "api/door.h"
#include "core/apply.h"

#include <kvlazy/mask.h>

#include <bsd/stdlib.h>

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

/* Numbers of which every one is 0 or -infinity. */
typedef struct row {
    void *at;
    int type;
    uint32_t solid_begin, solid_end; /* cells that are all shown; of several runs the longest, as far as is known */
} row;

static size_t element_bytes(int type)
{
    return type == KVLAZY_MASK_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* Writes n cells from `cell` on: shown ones are 0. */
static void put(const row *r, uint32_t cell, uint32_t n, bool shown)
{
    if (r->type == KVLAZY_MASK_F32) {
        f32 *out = (f32 *)r->at + cell, value = shown ? 0.0f : HIDDEN_F32;

        for (uint32_t i = 0; i < n; i++)
            out[i] = value;
    } else {
        f16 *out = (f16 *)r->at + cell, value = shown ? 0 : HIDDEN_F16;

        for (uint32_t i = 0; i < n; i++)
            out[i] = value;
    }
}

static void show(row *r, uint32_t cell, uint32_t n)
{
    put(r, cell, n, true);
    if (cell == r->solid_end) {
        r->solid_end += n;
    } else if (n > r->solid_end - r->solid_begin) {
        r->solid_begin = cell;
        r->solid_end = cell + n;
    }
}

/* Of what a hole leaves of the solid cells the longer side stays. */
static void cut_solid(row *r, uint32_t begin, uint32_t end)
{
    if (end <= r->solid_begin || begin >= r->solid_end)
        return;
    uint32_t before = begin > r->solid_begin ? begin - r->solid_begin : 0;
    uint32_t behind = end < r->solid_end ? r->solid_end - end : 0;
    if (before < behind)
        r->solid_begin = end;
    else
        r->solid_end = r->solid_begin + before;
}

static void hide(row *r, uint32_t cell, uint32_t n)
{
    put(r, cell, n, false);
    cut_solid(r, cell, cell + n);
}

static void put_one(row *r, uint32_t cell, bool shown)
{
    if (r->type == KVLAZY_MASK_F32)
        ((f32 *)r->at)[cell] = shown ? 0.0f : HIDDEN_F32;
    else
        ((f16 *)r->at)[cell] = shown ? 0 : HIDDEN_F16;
    if (!shown)
        cut_solid(r, cell, cell + 1);
}

/* Shows or hides the cells of the tokens [begin, end), run by run. */
static void put_tokens(row *r, const kvl_index *index, uint32_t begin, uint32_t end, bool shown)
{
    kvl_index_walk walk = kvl_index_walk_from(index, begin, end);
    kvl_stretch run;

    while (kvl_index_next(index, &walk, &run)) {
        if (run.n == 1)
            put_one(r, run.cell, shown);
        else if (shown)
            show(r, run.cell, run.n);
        else
            hide(r, run.cell, run.n);
    }
}

/* ------------------------------------------------------------------------------------------- distances */

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

/* Entries of a sequence's index, [first, last). */
typedef struct span {
    uint32_t first, last;
} span;

static span span_of(const kvl_index *index, view v)
{
    return (span){kvl_index_below(index, v.begin), kvl_index_below(index, v.end + 1)};
}

/* Makes of a row that shows the entries `from` one that shows `to`; what is in both is not touched. */
static void turn(row *r, const kvl_index *index, span from, span to)
{
    put_tokens(r, index, from.first, kvl_min(from.last, to.first), false);
    put_tokens(r, index, kvl_max(from.first, to.last), from.last, false);
    put_tokens(r, index, to.first, kvl_min(to.last, from.first), true);
    put_tokens(r, index, kvl_max(to.first, from.last), to.last, true);
}

/* With position planes, tokens of one image share a position and are read line by line. */
static void hide_unread(const job *j, uint32_t token, const kvl_index *index)
{
    row r = {.at = element_at(j, token, 0), .type = j->mask.type};
    const kvl_cells *cells = cells_of(j, token);
    kvlazy_pos pos = j->ubatch->pos[token];

    if (!j->mask.causal || j->cache->params.n_pos_per_token == 1)
        return;
    kvlazy_pos y = plane_of(j, token, 1), x = plane_of(j, token, 2);
    for (uint32_t i = kvl_index_below(index, pos); i < index->n && kvl_index_at(index, i).pos == pos; i++) {
        uint32_t cell = kvl_index_at(index, i).cell;

        if (cells->ext_y[cell] > y || (cells->ext_y[cell] == y && cells->ext_x[cell] > x))
            put(&r, cell, 1, false);
    }
}

/* The row of a token, out of the scratch. Two calls more pay where the solid cells are many. */
static void copy_row(const job *j, uint32_t token, const row *r)
{
    size_t element = element_bytes(r->type), bytes = j->mask.n_kv * element;
    size_t begin = r->solid_begin * element, end = r->solid_end * element;
    char *out = element_at(j, token, 0);
    const char *from = r->at;

    if (end - begin < bytes / 2) {
        memcpy(out, from, bytes);
    } else {
        memcpy(out, from, begin);
        memset(out + begin, 0, end - begin);
        memcpy(out + end, from + end, bytes - end);
    }
}

/* Rows of tokens that have their first sequence in common. The scratch `r` hides every cell, before and after. */
static void fill_run(const job *j, uint32_t begin, uint32_t end, row *r)
{
    const kvl_index *index = kvl_cells_index(cells_of(j, begin), seq_of(j, begin));
    span seen = {0, 0};

    for (uint32_t i = begin; i < end; i++) {
        span next = span_of(index, view_of(j, i));

        turn(r, index, seen, next);
        seen = next;
        copy_row(j, i, r);
        hide_unread(j, i, index);
    }
    if (end < j->ubatch->n_token) /* or else nothing reads the scratch any more */
        turn(r, index, seen, (span){0, 0});
}

static void fill_row_alibi(const job *j, uint32_t token, const kvlazy_pos *key)
{
    void *out = element_at(j, token, 0);
    view v = view_of(j, token);

    if (j->mask.type == KVLAZY_MASK_F32)
        fill_f32_alibi(out, key, j->mask.n_kv, v);
    else
        fill_f16_alibi(out, key, j->mask.n_kv, v);
}

/* The same with ALiBi. Every key is HIDDEN_KEY, before and after. */
static void fill_run_alibi(const job *j, uint32_t begin, uint32_t end, kvlazy_pos *key)
{
    const kvl_index *index = kvl_cells_index(cells_of(j, begin), seq_of(j, begin));
    span any = {index->n, 0};

    for (uint32_t i = begin; i < end; i++) {
        span seen = span_of(index, view_of(j, i));

        any = (span){kvl_min(any.first, seen.first), kvl_max(any.last, seen.last)};
    }
    kvl_index_walk walk = kvl_index_walk_from(index, any.first, any.last);
    kvl_stretch run;
    while (kvl_index_next(index, &walk, &run))
        for (uint32_t k = 0; k < run.n; k++)
            key[run.cell + k] = run.pos + (kvlazy_pos)k;
    for (uint32_t i = begin; i < end; i++) {
        fill_row_alibi(j, i, key);
        hide_unread(j, i, index);
    }
    walk = kvl_index_walk_from(index, any.first, any.last);
    while (kvl_index_next(index, &walk, &run))
        for (uint32_t k = 0; k < run.n; k++)
            key[run.cell + k] = HIDDEN_KEY;
}

static void fill(const job *j)
{
    row r = {.at = j->cache->mask.key, .type = j->mask.type};
    kvlazy_pos *key = j->cache->mask.key;
    uint32_t n = j->ubatch->n_token;

    if (j->mask.alibi)
        for (uint32_t i = 0; i < j->mask.n_kv; i++)
            key[i] = HIDDEN_KEY;
    else
        put(&r, 0, j->mask.n_kv, false);
    for (uint32_t begin = 0, end; begin < n; begin = end) {
        for (end = begin + 1; end < n && seq_of(j, end) == seq_of(j, begin);)
            end++;
        KVL_ASSERT(cells_of(j, begin)->used_end <= j->mask.n_kv);
        if (j->mask.alibi)
            fill_run_alibi(j, begin, end, key);
        else
            fill_run(j, begin, end, &r);
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

/* The scratch grows with n_kv, and has room for a row of either type and for keys. */
static int reserve_scratch(kvl_mask_scratch *mask, uint32_t n_kv)
{
    if (KVL_LIKELY(n_kv <= mask->n_key))
        return KVLAZY_OK;
    kvlazy_pos *key = reallocarray(mask->key, n_kv, sizeof *key);
    if (!key)
        return KVLAZY_ENOMEM;
    mask->key = key;
    mask->n_key = n_kv;
    return KVLAZY_OK;
}

static const uint16_t mask_end[] = {
    KVL_END(kvlazy_mask_info, data),       KVL_END(kvlazy_mask_info, data_bytes),
    KVL_END(kvlazy_mask_info, row_stride), KVL_END(kvlazy_mask_info, n_kv),
    KVL_END(kvlazy_mask_info, type),       KVL_END(kvlazy_mask_info, causal),
    KVL_END(kvlazy_mask_info, alibi),      0,
};

_Static_assert(KVL_IS_LAST(kvlazy_mask_info, alibi), "a member is not among the ends");

int kvlazy_mask(const kvlazy_cache *cache, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch,
                const kvlazy_mask_info *mask)
{
    job j = {.cache = (kvlazy_cache *)(uintptr_t)cache /* its scratch is used */, .ubatch = ubatch};

    if (!ubatch || !mask || !kvl_input_fits(mask, sizeof *mask, mask_end))
        return KVLAZY_EINVAL;
    int entered = kvl_enter(cache, KVL_DOOR_LOOK);
    if (entered)
        return entered;
    if (kvl_has_engine_cells(cache))
        return kvl_leave_look(cache, KVLAZY_ENOTSUP);
    kvl_struct_copy(&j.mask, sizeof j.mask, mask, kvl_struct_size(mask));
    int status = check(&j, slot);
    if (!status)
        status = reserve_scratch(&j.cache->mask, j.mask.n_kv);
    if (status)
        return kvl_leave_look(cache, status);
    kvl_note_read(j.cache, j.planned, j.mask.n_kv);
    fill(&j);
    return kvl_leave_look(cache, KVLAZY_OK);
}
