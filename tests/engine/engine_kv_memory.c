/* SPDX-License-Identifier: MIT */
/*
 * engine_kv_memory: the reference engine's cache with a table of cells of its own (engine_cells.c), and kvlazy for the
 * memory alone; the example of how an engine that has such a table embeds it. Slots are looked for below the soft cap,
 * rows are asked for before they are written, and the library asks four questions back. The engine calls all of it from
 * one thread. It never looks at pages or time; which tokens go when an idle stream holds too many is its own choice.
 */
#include "engine_cells.h"
#include "engine_kv.h"

#include <stdlib.h>
#include <string.h>

#include <kvlazy/engine_cells.h>

typedef struct memory_kv {
    engine_kv base;
    engine_cells cells;
    uint32_t *next;          /* [n_seq]: where sequences go on while a batch is planned */
    uint32_t *n_new, *end;   /* [n_stream]: tokens of the plan; one past the highest of its cells */
    uint32_t *cap;           /* [n_stream]: below which they are looked for */
    uint32_t *stream, *cell; /* [n_batch]: the plan that slots point into */
    uint64_t *used_at;       /* [n_seq]: when last, counted in ubatches */
    uint64_t n_ubatch;
    uint32_t n_batch, n_pad;
    bool appends;
    uint32_t *head; /* [n_stream]: with appends, where the next search begins */
    kvlazy_seq_id refused;
} memory_kv;

static memory_kv *memory_of(engine_kv *kv)
{
    return (memory_kv *)kv;
}

/* ---- what the library asks ---- */

static uint32_t cells_used_end(void *ctx, uint32_t stream)
{
    const memory_kv *m = ctx;

    return m->cells.used_end[stream];
}

static bool cells_is_used(void *ctx, uint32_t stream, uint32_t cell)
{
    const memory_kv *m = ctx;

    return engine_cells_is_used(&m->cells, stream, cell);
}

static void cells_move(void *ctx, uint32_t stream, uint32_t from, uint32_t to, uint32_t n)
{
    memory_kv *m = ctx;

    engine_cells_move(&m->cells, stream, from, to, n);
}

/* The sequence of a stream that was not used for longest; -1: it holds none. */
static kvlazy_seq_id longest_idle(const memory_kv *m, uint32_t stream)
{
    kvlazy_seq_id idle = -1;

    for (kvlazy_seq_id seq = 0; seq < (kvlazy_seq_id)m->cells.n_seq; seq++) {
        if (engine_cells_stream(&m->cells, seq) == stream && m->cells.n_pos[seq] > 0 &&
            (idle < 0 || m->used_at[seq] < m->used_at[idle])) {
            idle = seq;
        }
    }
    return idle;
}

/* Tails go until no more than `from` cells are in use: what is left lies below then, or is moved there. A cell that
 * sequences share goes with its last owner, so that a cut may free less than it takes. */
static int cells_vacate(void *ctx, uint32_t stream, uint32_t from)
{
    memory_kv *m = ctx;

    while (m->cells.n_used[stream] > from) {
        const kvlazy_seq_id seq = longest_idle(m, stream);
        const uint32_t n_pos = m->cells.n_pos[seq], excess = m->cells.n_used[stream] - from;

        engine_cells_cut(&m->cells, seq, n_pos > excess ? n_pos - excess : 0);
    }
    return 0;
}

/* ---- batches ---- */

static int memory_init_batch(engine_kv *kv)
{
    return kvlazy_init_batch(kv->cache);
}

/* Whether the tokens go on where their sequences end, and how many there are for each stream. */
static int count_tokens(memory_kv *m, const kvlazy_ubatch *ubatch, uint32_t n_ubatch)
{
    uint32_t n_token = 0;

    memcpy(m->next, m->cells.n_pos, m->cells.n_seq * sizeof *m->next);
    memset(m->n_new, 0, m->cells.n_stream * sizeof *m->n_new);
    for (uint32_t u = 0; u < n_ubatch; u++) {
        for (uint32_t i = 0; i < ubatch[u].n_token; i++) {
            const kvlazy_seq_id seq = ubatch[u].seq[i];

            if (seq < 0 || (uint32_t)seq >= m->cells.n_seq || ++n_token > m->n_batch) {
                return KVLAZY_EINVAL;
            }
            if ((uint32_t)ubatch[u].pos[i] != m->next[seq]++) {
                m->refused = seq;
                return KVLAZY_EPOS;
            }
            m->n_new[engine_cells_stream(&m->cells, seq)]++;
        }
    }
    return KVLAZY_OK;
}

/* Where the search of a stream begins and ends: the lowest cells, which are below the cap; or behind the last tokens,
 * unless so many do not fit there. */
static void begin_search(memory_kv *m, uint32_t s)
{
    uint32_t n_free = 0;

    m->end[s] = 0;
    m->cap[s] = m->appends ? m->cells.kv_size : kvlazy_cap(m->base.cache, s);
    for (uint32_t cell = m->head[s]; m->appends && cell < m->cap[s]; cell++) {
        n_free += !engine_cells_is_used(&m->cells, s, cell);
    }
    if (m->appends && n_free >= m->n_new[s]) {
        m->end[s] = m->head[s];
    }
}

/* A cell for every token. Returns how many tokens there are. */
static uint32_t find_cells(memory_kv *m, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots)
{
    uint32_t at = 0;

    for (uint32_t s = 0; s < m->cells.n_stream; s++) {
        begin_search(m, s);
    }
    for (uint32_t u = 0; u < n_ubatch; u++) {
        slots[u] = (kvlazy_slot){ubatch[u].n_token, m->stream + at, m->cell + at};
        for (uint32_t i = 0; i < ubatch[u].n_token; i++, at++) {
            const uint32_t s = engine_cells_stream(&m->cells, ubatch[u].seq[i]);

            m->stream[at] = s;
            m->cell[at] = engine_cells_next_free(&m->cells, s, m->end[s], m->cap[s]);
            m->end[s] = m->cell[at] + 1;
        }
    }
    return at;
}

/* The rows of the cells that were found may be written then. */
static int touch_cells(memory_kv *m, uint32_t n_token)
{
    uint32_t n;
    int status = KVLAZY_OK;

    for (uint32_t at = 0; status == KVLAZY_OK && at < n_token; at += n) {
        for (n = 1; at + n < n_token && m->stream[at + n] == m->stream[at];) {
            n++;
        }
        status = kvlazy_touch_cells(m->base.cache, m->stream[at], m->cell + at, n);
    }
    return status;
}

static int memory_prepare(engine_kv *kv, const kvlazy_ubatch *ubatch, uint32_t n_ubatch, kvlazy_slot *slots)
{
    memory_kv *m = memory_of(kv);
    int status = count_tokens(m, ubatch, n_ubatch);

    for (uint32_t s = 0; status == KVLAZY_OK && s < kv->n_stream; s++) {
        if (m->n_new[s] > 0) {
            status = kvlazy_ensure(kv->cache, s, m->cells.n_used[s] + m->n_new[s]);
        }
    }
    if (status != KVLAZY_OK) {
        return status;
    }
    return touch_cells(m, find_cells(m, ubatch, n_ubatch, slots));
}

static int memory_apply_ubatch(engine_kv *kv, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch)
{
    memory_kv *m = memory_of(kv);

    m->n_ubatch++;
    for (uint32_t i = 0; i < slot->n_token; i++) {
        if ((uint32_t)ubatch->pos[i] != m->cells.n_pos[ubatch->seq[i]]) {
            return KVLAZY_EPOS;
        }
        engine_cells_put(&m->cells, slot->stream[i], slot->cell[i], ubatch->seq[i]);
        m->head[slot->stream[i]] = slot->cell[i] + 1;
        m->used_at[ubatch->seq[i]] = m->n_ubatch;
    }
    return KVLAZY_OK;
}

/* The tokens of a slot are the last ones of their sequences. */
static int memory_undo_ubatch(engine_kv *kv, const kvlazy_slot *slot)
{
    memory_kv *m = memory_of(kv);

    for (uint32_t i = slot->n_token; i-- > 0;) {
        const size_t at = (size_t)slot->stream[i] * kv->kv_size + slot->cell[i];

        for (kvlazy_seq_id seq = 0; seq < (kvlazy_seq_id)m->cells.n_seq; seq++) {
            if (m->cells.owner[at] >> seq & 1) {
                engine_cells_cut(&m->cells, seq, (uint32_t)m->cells.pos[at]);
            }
        }
    }
    return KVLAZY_OK;
}

static uint32_t memory_n_kv(engine_kv *kv, const kvlazy_slot *slot)
{
    const memory_kv *m = memory_of(kv);
    uint32_t end = 1;

    for (uint32_t i = 0; i < slot->n_token; i++) {
        const uint32_t used_end = m->cells.used_end[slot->stream[i]];

        end = slot->cell[i] >= end ? slot->cell[i] + 1 : end;
        end = used_end > end ? used_end : end;
    }
    end = (end + m->n_pad - 1) / m->n_pad * m->n_pad;
    return end < kv->kv_size ? end : kv->kv_size;
}

static int memory_end_batch(engine_kv *kv)
{
    return kvlazy_end_batch(kv->cache);
}

static kvlazy_seq_id memory_refused(engine_kv *kv)
{
    return memory_of(kv)->refused;
}

static int memory_poll(engine_kv *kv, uint64_t *next_ms)
{
    return kvlazy_poll(kv->cache, next_ms);
}

/* ---- sequences ---- */

/* Only tails go: the engine asks for nothing else. */
static int memory_seq_rm(engine_kv *kv, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    memory_kv *m = memory_of(kv);

    if (seq < 0 || (uint32_t)seq >= m->cells.n_seq) {
        return KVLAZY_EINVAL;
    }
    if (p1 >= 0) {
        return KVLAZY_ENOTSUP;
    }
    engine_cells_cut(&m->cells, seq, p0 < 0 ? 0 : (uint32_t)p0);
    return KVLAZY_OK;
}

/* Rows keep their cells across streams, and those of a run are copied at once. */
static int copy_rows(memory_kv *m, uint32_t src, uint32_t dst, const uint32_t *cell, uint32_t n)
{
    uint32_t n_run;
    int status = KVLAZY_OK;

    for (uint32_t at = 0; status == KVLAZY_OK && at < n; at += n_run) {
        n_run = 1;
        while (at + n_run < n && cell[at + n_run] == cell[at] + n_run) {
            n_run++;
        }
        status = kvlazy_copy_cells(m->base.cache, src, dst, cell[at], n_run);
    }
    return status;
}

/* A prefix to a sequence that is empty: the engine asks for nothing else. */
static int memory_seq_cp(engine_kv *kv, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    memory_kv *m = memory_of(kv);
    const uint32_t from = engine_cells_stream(&m->cells, src), to = engine_cells_stream(&m->cells, dst);
    const uint32_t n_src = m->cells.n_pos[src], n = (uint32_t)p1 < n_src ? (uint32_t)p1 : n_src;
    uint32_t *cell;
    int status = KVLAZY_OK;

    if (p0 != 0 || p1 < 0 || m->cells.n_pos[dst] != 0) {
        return KVLAZY_ENOTSUP;
    }
    cell = calloc((size_t)n_src + 1, sizeof *cell);
    if (cell == NULL) {
        return KVLAZY_ENOMEM;
    }
    if (!engine_cells_place(&m->cells, src, cell, n_src)) {
        status = KVLAZY_ESTATE;
    }
    if (status == KVLAZY_OK && from != to) {
        status = copy_rows(m, from, to, cell, n);
    }
    for (uint32_t p = 0; status == KVLAZY_OK && p < n; p++) {
        engine_cells_put(&m->cells, to, cell[p], dst);
    }
    m->used_at[dst] = ++m->n_ubatch;
    free(cell);
    return status;
}

static kvlazy_pos memory_seq_pos_max(engine_kv *kv, kvlazy_seq_id seq)
{
    return (kvlazy_pos)memory_of(kv)->cells.n_pos[seq] - 1;
}

static int memory_discard(engine_kv *kv, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    engine_cells_discard(&memory_of(kv)->cells, seq, p0, p1);
    return KVLAZY_OK;
}

static const kvlazy_pos *memory_shift(engine_kv *kv, kvlazy_seq_id seq, uint32_t *n_cell)
{
    const engine_cells *cells = &memory_of(kv)->cells;
    const uint32_t stream = engine_cells_stream(cells, seq);

    *n_cell = cells->used_end[stream];
    return cells->is_shifted ? cells->shift + (size_t)stream * cells->kv_size : NULL;
}

static int memory_shift_done(engine_kv *kv)
{
    engine_cells_shift_done(&memory_of(kv)->cells);
    return KVLAZY_OK;
}

static int memory_place(engine_kv *kv, kvlazy_seq_id seq, uint32_t *cell, uint32_t n_pos)
{
    return engine_cells_place(&memory_of(kv)->cells, seq, cell, n_pos) ? KVLAZY_OK : KVLAZY_ESTATE;
}

/* ---- rows that a store brings ---- */

/* Free cells below the cap, as those of a batch. Which rows may be written in them is the library's to see to. */
static int memory_seat(engine_kv *kv, kvlazy_seq_id seq, uint32_t *cell, uint32_t n_have, uint32_t n)
{
    memory_kv *m = memory_of(kv);
    const uint32_t stream = engine_cells_stream(&m->cells, seq);
    uint32_t cap, end = 0;
    int status = engine_cells_place(&m->cells, seq, cell, n_have) ? KVLAZY_OK : KVLAZY_ESTATE;

    if (status == KVLAZY_OK) {
        status = kvlazy_ensure(kv->cache, stream, m->cells.n_used[stream] + n - n_have);
    }
    cap = kvlazy_cap(kv->cache, stream);
    for (uint32_t i = n_have; status == KVLAZY_OK && i < n; i++) {
        cell[i] = engine_cells_next_free(&m->cells, stream, end, cap);
        end = cell[i] + 1;
    }
    return status;
}

static void memory_seated(engine_kv *kv, kvlazy_seq_id seq, const uint32_t *cell, uint32_t n_have, uint32_t n)
{
    memory_kv *m = memory_of(kv);

    for (uint32_t i = n_have; i < n; i++) {
        engine_cells_put(&m->cells, engine_cells_stream(&m->cells, seq), cell[i], seq);
    }
    m->used_at[seq] = ++m->n_ubatch;
}

/* ---- life ---- */

static void memory_destroy(engine_kv *kv)
{
    memory_kv *m = memory_of(kv);

    if (m != NULL) {
        engine_kv_close(kv);
        engine_cells_free(&m->cells);
        free(m->next);
        free(m->n_new);
        free(m->end);
        free(m->cap);
        free(m->stream);
        free(m->cell);
        free(m->used_at);
        free(m->head);
        free(m);
    }
}

static const engine_kv_ops memory_ops = {
    .init_batch = memory_init_batch,
    .prepare = memory_prepare,
    .prepare_restore = memory_prepare,
    .apply_ubatch = memory_apply_ubatch,
    .undo_ubatch = memory_undo_ubatch,
    .n_kv = memory_n_kv,
    .end_batch = memory_end_batch,
    .refused = memory_refused,
    .poll = memory_poll,
    .seq_rm = memory_seq_rm,
    .seq_cp = memory_seq_cp,
    .seq_pos_max = memory_seq_pos_max,
    .discard = memory_discard,
    .shift = memory_shift,
    .shift_done = memory_shift_done,
    .place = memory_place,
    .seat = memory_seat,
    .seated = memory_seated,
    .destroy = memory_destroy,
};

static int make_room(memory_kv *m, const engine_kv_config *config)
{
    m->n_batch = config->n_batch;
    m->n_pad = config->n_pad != 0 ? config->n_pad : 256;
    m->refused = -1;
    m->next = calloc(config->n_seq, sizeof *m->next);
    m->n_new = calloc(config->n_stream, sizeof *m->n_new);
    m->end = calloc(config->n_stream, sizeof *m->end);
    m->cap = calloc(config->n_stream, sizeof *m->cap);
    m->stream = calloc(config->n_batch, sizeof *m->stream);
    m->cell = calloc(config->n_batch, sizeof *m->cell);
    m->used_at = calloc(config->n_seq, sizeof *m->used_at);
    m->head = calloc(config->n_stream, sizeof *m->head);
    m->appends = config->appends;
    if (!m->next || !m->n_new || !m->end || !m->cap || !m->stream || !m->cell || !m->used_at || !m->head) {
        return KVLAZY_ENOMEM;
    }
    return engine_cells_init(&m->cells, config->n_stream, config->kv_size, config->n_seq);
}

static int open_cache(memory_kv *m, const engine_kv_config *config)
{
    kvlazy_cell_ops ops;

    memset(&ops, 0, sizeof ops);
    ops.struct_size = sizeof ops;
    ops.ctx = m;
    ops.used_end = cells_used_end;
    ops.is_used = cells_is_used;
    ops.move = cells_move;
    ops.vacate = cells_vacate;
    return engine_kv_open(&m->base, config, &ops);
}

int engine_kv_memory_create(const engine_kv_config *config, engine_kv **kv)
{
    memory_kv *m = calloc(1, sizeof *m);
    int status;

    if (m == NULL) {
        return KVLAZY_ENOMEM;
    }
    m->base.ops = &memory_ops;
    status = make_room(m, config);
    if (status == KVLAZY_OK) {
        status = open_cache(m, config);
    }
    if (status != KVLAZY_OK) {
        memory_destroy(&m->base);
        return status;
    }
    *kv = &m->base;
    return KVLAZY_OK;
}
