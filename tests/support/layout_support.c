/* SPDX-License-Identifier: MIT */
/*
 * The bed of layout_support.h: how it is made and ends, its areas, and the engine's side: batches, copies and removals,
 * with the bytes that each token got. Nothing here knows how the library computes a place.
 */
#include "layout_support.h"

#include <stdlib.h>
#include <string.h>

#include <kvlazy/arena.h>

enum { AHEAD = 32 };

/* ---- making and ending ---- */

static int on_evict(void *ctx, kvlazy_seq_id seq, kvlazy_pos pos)
{
    struct bed *bed = ctx;

    (void)pos;
    bed->n_evict++;
    return bed->veto >> seq & 1;
}

struct bed *bed_new(size_t page)
{
    struct bed *bed = calloc(1, sizeof *bed);

    assert_non_null(bed);
    fake_init(&bed->fake);
    bed->fake.page = page;
    bed->fake.now = 1000;
    kvlazy_params_init(&bed->params);
    bed->params.kv_size = 512;
    bed->params.n_seq_max = 4;
    bed->params.slot_shrink_idle_ms = 500;
    bed->params.mem = &bed->fake.table;
    bed->params.on_evict = on_evict;
    bed->params.evict_ctx = bed;
    bed->params.layers = bed->layers;
    return bed;
}

void bed_free(struct bed *bed)
{
    kvlazy_destroy(bed->cache);
    for (int i = 0; i < bed->n_area; i++) {
        ok(kvlazy_arena_destroy(bed->area[i].arena));
        free(bed->area[i].named);
        free(bed->area[i].may);
    }
    assert_int_equal(fake_mappings(&bed->fake), 0);
    fake_assert_kept(&bed->fake);
    fake_done(&bed->fake);
    free(bed->area[BED_ARENAS].may);
    free(bed->content);
    for (int i = 0; i < BED_SEQS; i++)
        free(bed->token[i]);
    free(bed);
}

kvlazy_layer *bed_layer(struct bed *bed, size_t k_row_bytes, size_t v_row_bytes, uint32_t v_channels)
{
    uint32_t i = bed->params.n_layer++;

    assert_true(i < BED_LAYERS);
    bed->layers[i] = (kvlazy_layer){
        .id = 3 * i + 1, .k_row_bytes = k_row_bytes, .v_row_bytes = v_row_bytes, .v_channels = v_channels};
    return &bed->layers[i];
}

struct bed_area *bed_arena(struct bed *bed, size_t bytes)
{
    struct bed_area *area = &bed->area[bed->n_area++];
    void *base;

    assert_true(bed->n_area <= BED_ARENAS);
    ok(kvlazy_arena_create(&bed->fake.table, bytes, &area->arena, &base));
    area->base = base;
    area->bytes = bytes;
    return area;
}

kvlazy_tensor bed_packed(size_t row_bytes, uint32_t n_channel, uint32_t kv_size, uint32_t n_stream)
{
    kvlazy_tensor t = {.row_bytes = row_bytes, .n_channel = n_channel};

    (void)n_stream;
    t.cell_stride = n_channel ? row_bytes / n_channel : row_bytes;
    t.channel_stride = n_channel ? kv_size * t.cell_stride : 0;
    t.stream_stride = kv_size * row_bytes;
    return t;
}

/* ---- areas ---- */

static void name_tensor(struct bed *bed, const kvlazy_tensor *t)
{
    struct bed_area *area = bed_area_of(bed, t->data);

    for (uint32_t s = 0; s < bed->n_stream; s++)
        for (uint32_t channel = 0; channel < bed_channels(t); channel++)
            for (uint32_t cell = 0; cell < bed->kv_size; cell++) {
                size_t at = (size_t)(bed_place(t, s, channel, cell) - area->base);

                for (size_t i = at; i < at + bed_element_bytes(t); i++) {
                    assert_false(area->named[i]);
                    area->named[i] = 1;
                }
            }
}

static void fill_pattern(struct bed *bed)
{
    for (int i = 0; i < bed->n_area; i++) {
        struct bed_area *area = &bed->area[i];

        area->named = calloc(area->bytes + 1, 1);
        area->may = calloc(area->bytes / bed->fake.page + 1, 1);
        assert_true(area->named && area->may);
    }
    for (uint32_t i = 0; i < bed->params.n_layer; i++) {
        const kvlazy_layer *l = &bed->layers[i];

        if (l->k && l->k->data && l->k_row_bytes)
            name_tensor(bed, l->k);
        if (l->v && l->v->data && l->v_row_bytes)
            name_tensor(bed, l->v);
    }
    for (int i = 0; i < bed->n_area; i++)
        for (size_t at = 0; at < bed->area[i].bytes; at++)
            if (!bed->area[i].named[at])
                bed->area[i].base[at] = BED_PATTERN;
}

void bed_pattern_kept(struct bed *bed)
{
    for (int i = 0; i < bed->n_area; i++)
        for (size_t at = 0; at < bed->area[i].bytes; at++)
            if (bed->area[i].named && !bed->area[i].named[at] && bed->area[i].base[at] != BED_PATTERN)
                fail_msg("byte %zu of arena %d, which no tensor names, is %02x", at, i, bed->area[i].base[at]);
}

/* What the library laid out is one area behind those of the test. */
static void find_own_area(struct bed *bed)
{
    struct bed_area *own = &bed->area[BED_ARENAS];
    unsigned char *lo = NULL, *hi = NULL;

    for (int t = 0; t < bed->n_tensor; t++) {
        unsigned char *at = bed->tensor[t].data;
        bool theirs = false;

        for (int i = 0; i < bed->n_area; i++)
            theirs |= at >= bed->area[i].base && at < bed->area[i].base + bed->area[i].bytes;
        if (theirs)
            continue;
        unsigned char *end = at + bed_tensor_bytes(&bed->tensor[t], bed->kv_size, bed->n_stream);
        lo = !lo || at < lo ? at : lo;
        hi = end > hi ? end : hi;
    }
    if (!lo)
        return;
    assert_int_equal((uintptr_t)lo % bed->fake.page, 0);
    own->base = lo;
    own->bytes = ((size_t)(hi - lo) + bed->fake.page - 1) / bed->fake.page * bed->fake.page;
    own->may = calloc(own->bytes / bed->fake.page + 1, 1);
    assert_non_null(own->may);
}

static void learn_tensor(struct bed *bed, int (*get)(const kvlazy_cache *, uint32_t, kvlazy_tensor *), uint32_t id)
{
    kvlazy_tensor t;

    ok(get(bed->cache, id, &t));
    if (t.data)
        bed->tensor[bed->n_tensor++] = t;
}

static void free_own_area(struct bed *bed)
{
    free(bed->area[BED_ARENAS].may);
    memset(&bed->area[BED_ARENAS], 0, sizeof bed->area[0]);
}

int bed_create(struct bed *bed)
{
    const kvlazy_params *p = &bed->params;

    bed->kv_size = p->kv_size;
    bed->n_stream = p->n_stream ? p->n_stream : 1;
    bed->n_seq = p->n_seq_max ? p->n_seq_max : bed->n_stream;
    assert_true(bed->n_seq <= BED_SEQS);
    fill_pattern(bed);
    return kvlazy_create(p, &bed->cache);
}

void bed_open(struct bed *bed)
{
    ok(bed_create(bed));
    for (uint32_t i = 0; i < bed->params.n_layer; i++) {
        if (bed->layers[i].k_row_bytes)
            learn_tensor(bed, kvlazy_k, bed->layers[i].id);
        if (bed->layers[i].v_row_bytes)
            learn_tensor(bed, kvlazy_v, bed->layers[i].id);
    }
    free_own_area(bed);
    find_own_area(bed);
    bed->content = calloc((size_t)bed->n_stream * bed->kv_size, sizeof *bed->content);
    assert_non_null(bed->content);
    for (uint32_t i = 0; i < bed->n_seq; i++)
        assert_non_null(bed->token[i] = calloc(BED_POS, sizeof *bed->token[i]));
}

int bed_teardown(void **state)
{
    struct bed *bed = *state;

    if (bed->cache)
        bed_sound(bed);
    bed_pattern_kept(bed);
    bed_free(bed);
    return 0;
}

/* ---- the engine's side ---- */

static void write_slot(struct bed *bed, const kvlazy_slot *slot, const kvlazy_ubatch *ubatch, bool decodes)
{
    for (uint32_t i = 0; i < slot->n_token; i++) {
        assert_true(slot->stream[i] < bed->n_stream && slot->cell[i] < bed->kv_size);
        bed_write(bed, slot->stream[i], slot->cell[i], ++bed->last_stamp);
        bed->token[ubatch->seq[i]][ubatch->pos[i]] = bed->last_stamp;
        bed_may_touch(bed, slot->stream[i], slot->cell[i]);
        for (uint32_t k = 1; decodes && k <= AHEAD && slot->cell[i] + k < bed->kv_size; k++)
            bed_may_touch(bed, slot->stream[i], slot->cell[i] + k);
    }
}

int bed_put(struct bed *bed, kvlazy_seq_id seq, uint32_t n, uint32_t n_ubatch)
{
    kvlazy_pos *pos = calloc(n + 1, sizeof *pos), from = kvlazy_seq_pos_max(bed->cache, seq) + 1;
    kvlazy_seq_id *id = calloc(n + 1, sizeof *id);
    kvlazy_ubatch ubatch[BED_UBATCHES] = {0};

    assert_true(pos && id && n_ubatch <= BED_UBATCHES && n >= n_ubatch && from + n < BED_POS);
    for (uint32_t i = 0; i < n; i++) {
        pos[i] = from + (kvlazy_pos)i;
        id[i] = seq;
    }
    for (uint32_t u = 0, at = 0; u < n_ubatch; at += ubatch[u++].n_token)
        ubatch[u] =
            (kvlazy_ubatch){.n_token = u + 1 < n_ubatch ? n / n_ubatch : n - at, .pos = pos + at, .seq = id + at};
    int status = kvlazy_prepare(bed->cache, ubatch, n_ubatch, bed->slot);
    for (uint32_t u = 0; !status && u < n_ubatch; u++) {
        status = kvlazy_apply_ubatch(bed->cache, &bed->slot[u], &ubatch[u]);
        if (!status) {
            write_slot(bed, &bed->slot[u], &ubatch[u], n == 1);
            assert_true(kvlazy_n_kv(bed->cache, &bed->slot[u]) > 0); /* and so much is read */
        }
    }
    free(pos);
    free(id);
    return status;
}

int bed_turn(struct bed *bed, kvlazy_seq_id seq, uint32_t n)
{
    ok(kvlazy_init_batch(bed->cache));
    int status = bed_put(bed, seq, n, 1);
    ok(kvlazy_end_batch(bed->cache));
    return status;
}

void bed_drop(struct bed *bed, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    for (kvlazy_pos p = p0 < 0 ? 0 : p0; p < (p1 < 0 || p1 > BED_POS ? BED_POS : p1); p++)
        bed->token[seq][p] = 0;
}

void bed_rm(struct bed *bed, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    ok(kvlazy_seq_rm(bed->cache, seq, p0, p1));
    bed_drop(bed, seq, p0, p1);
}

int bed_cp(struct bed *bed, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    int status = kvlazy_seq_cp(bed->cache, src, dst, p0, p1);

    for (kvlazy_pos p = p0 < 0 ? 0 : p0; !status && p < (p1 < 0 ? BED_POS : p1); p++)
        bed->token[dst][p] = bed->token[src][p];
    for (uint32_t cell = 0; !status && bed->n_stream > 1 && cell < bed->kv_size; cell++) {
        kvlazy_cells_view view = bed_view(bed, (uint32_t)dst);

        if (cell < view.n_cell && view.pos[cell] >= 0)
            bed_may_touch(bed, (uint32_t)dst, cell);
    }
    return status;
}

void bed_keep(struct bed *bed, kvlazy_seq_id seq)
{
    ok(kvlazy_seq_keep(bed->cache, seq));
    for (uint32_t i = 0; bed->n_stream == 1 && i < bed->n_seq; i++)
        if (i != (uint32_t)seq)
            bed_forget(bed, (kvlazy_seq_id)i);
}

void bed_clear(struct bed *bed, bool data)
{
    ok(kvlazy_clear(bed->cache, data));
    for (uint32_t i = 0; i < bed->n_seq; i++)
        bed_forget(bed, (kvlazy_seq_id)i);
}

void bed_forget(struct bed *bed, kvlazy_seq_id seq)
{
    memset(bed->token[seq], 0, BED_POS * sizeof *bed->token[seq]);
}

uint64_t bed_settle(struct bed *bed)
{
    uint64_t start = bed->fake.now, next;

    for (int i = 0;; i++) {
        next = 77;
        ok(kvlazy_poll(bed->cache, &next));
        if (next == UINT64_MAX)
            return bed->fake.now - start;
        assert_true(i < 100);
        bed->fake.now += next;
    }
}
