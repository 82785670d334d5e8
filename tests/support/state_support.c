/* SPDX-License-Identifier: MIT */
/* Boxes and tapes, see state_support.h. */
#include "state_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state/checksum.h"
#include "state/format.h"

/* ---- boxes ---- */

static void on_log(void *ctx, int level, const char *text)
{
    struct box *box = ctx;

    (void)level;
    snprintf(box->log, sizeof box->log, "%s", text);
}

static int on_evict(void *ctx, kvlazy_seq_id seq, kvlazy_pos pos)
{
    struct box *box = ctx;

    (void)pos;
    if (box->in_evict)
        box->in_evict(box, seq);
    return 0;
}

struct box *box_new(void)
{
    static const size_t rows[2][2] = {{24, 12}, {16, 8}};
    struct box *box = calloc(1, sizeof *box);

    assert_non_null(box);
    fake_init(&box->fake);
    box->fake.now = 1000;
    kvlazy_params_init(&box->params);
    box->params.kv_size = 64;
    box->params.n_seq_max = 4;
    box->params.n_pad = 1;
    box->params.slot_shrink_idle_ms = 500;
    box->params.mem = &box->fake.table;
    box->params.log = on_log;
    box->params.log_ctx = box;
    box->params.on_evict = on_evict;
    box->params.evict_ctx = box;
    for (uint32_t i = 0; i < 2; i++)
        box->layer[i] = (kvlazy_layer){.id = 5 - 3 * i, .k_row_bytes = rows[i][0], .v_row_bytes = rows[i][1]};
    box->params.layers = box->layer;
    box->params.n_layer = 2;
    return box;
}

struct box *box_open(struct box *box)
{
    ok(kvlazy_create(&box->params, &box->cache));
    return box;
}

void box_free(struct box *box)
{
    kvlazy_destroy(box->cache);
    assert_int_equal(fake_mappings(&box->fake), 0);
    fake_assert_kept(&box->fake);
    fake_done(&box->fake);
    free(box);
}

struct box *box_transpose(struct box *box, uint32_t element_bytes)
{
    for (uint32_t i = 0; i < box->params.n_layer; i++)
        box->layer[i].v_channels = element_bytes ? (uint32_t)box->layer[i].v_row_bytes / element_bytes : 0;
    return box;
}

struct box *box_small(void)
{
    struct box *box = box_new();

    box->params.kv_size = 16;
    box->params.n_layer = 1;
    box->layer[0] = (kvlazy_layer){.id = 1, .k_row_bytes = 6, .v_row_bytes = 4, .v_channels = 2};
    box->params.model_tag = "small";
    box->params.model_tag_bytes = 5;
    return box_open(box);
}

struct box *box_streams(void)
{
    struct box *box = box_new();

    box->params.n_stream = 4;
    return box;
}

struct box *box_window(uint32_t kv_size, uint32_t n_swa)
{
    struct box *box = box_new();

    box->params.kv_size = kv_size;
    box->params.swa_type = KVLAZY_SWA_STANDARD;
    box->params.n_swa = n_swa;
    return box;
}

/* ---- rows ---- */

static unsigned char *at(const kvlazy_tensor *t, uint32_t stream, uint32_t lane, uint32_t cell)
{
    return (unsigned char *)t->data + stream * t->stream_stride + lane * t->channel_stride + cell * t->cell_stride;
}

/* Moves a row lane by lane; a row-major one has one lane. */
static void each_lane(const kvlazy_tensor *t, uint32_t stream, uint32_t cell, unsigned char *row, bool out)
{
    uint32_t n_lane = t->n_channel ? t->n_channel : 1;
    size_t bytes = t->row_bytes / n_lane;

    for (uint32_t lane = 0; lane < n_lane; lane++) {
        unsigned char *in_cache = at(t, stream, lane, cell), *in_row = row + lane * bytes;

        memcpy(out ? in_row : in_cache, out ? in_cache : in_row, bytes);
    }
}

void box_row(struct box *box, const kvlazy_tensor *t, uint32_t stream, uint32_t cell, unsigned char *row)
{
    (void)box;
    each_lane(t, stream, cell, row, true);
}

/* Room for the longest row. */
static unsigned char *row_room(struct box *box)
{
    size_t bytes = 1;

    for (uint32_t i = 0; i < box->params.n_layer; i++) {
        bytes = box->layer[i].k_row_bytes > bytes ? box->layer[i].k_row_bytes : bytes;
        bytes = box->layer[i].v_row_bytes > bytes ? box->layer[i].v_row_bytes : bytes;
    }
    unsigned char *row = malloc(bytes);
    assert_non_null(row);
    return row;
}

/* Tensor i of a box; false: there is none. */
static bool tensor_of(struct box *box, uint32_t i, kvlazy_tensor *t)
{
    if (i >= 2 * box->params.n_layer)
        return false;
    const kvlazy_layer *layer = &box->layer[i / 2];
    if (!(i % 2 ? layer->v_row_bytes : layer->k_row_bytes)) {
        t->data = NULL;
        return true;
    }
    ok((i % 2 ? kvlazy_v : kvlazy_k)(box->cache, layer->id, t));
    return true;
}

static void write_rows(struct box *box, const kvlazy_slot *slot)
{
    unsigned char *row = row_room(box);
    kvlazy_tensor t;

    for (uint32_t i = 0; i < slot->n_token; i++, box->stamp++)
        for (uint32_t k = 0; tensor_of(box, k, &t); k++) {
            uint64_t random = box->stamp * UINT64_C(8) + k + 1;

            for (size_t b = 0; t.data && b < t.row_bytes; b++)
                row[b] = (unsigned char)next_random(&random) | 1;
            if (t.data)
                each_lane(&t, slot->stream[i], slot->cell[i], row, false);
        }
    free(row);
}

static int put_tokens(struct box *box, const kvlazy_ubatch *ubatch)
{
    kvlazy_slot slot;
    int status = kvlazy_prepare(box->cache, ubatch, 1, &slot);

    if (!status)
        status = kvlazy_apply_ubatch(box->cache, &slot, ubatch);
    if (!status)
        write_rows(box, &slot);
    return status;
}

int box_put(struct box *box, kvlazy_seq_id seq, kvlazy_pos first, uint32_t n)
{
    static kvlazy_pos pos[3 * BOX_MOST];
    static kvlazy_seq_id owner[BOX_MOST];

    assert_true(n <= BOX_MOST);
    for (uint32_t i = 0; i < n; i++) {
        pos[i] = first + (kvlazy_pos)i;
        pos[n + i] = 100 + (kvlazy_pos)i; /* planes, where there are */
        pos[2 * n + i] = 200 + (kvlazy_pos)(i % 3);
        owner[i] = seq;
    }
    return put_tokens(box, &(kvlazy_ubatch){.n_token = n, .pos = pos, .seq = owner});
}

void box_turn(struct box *box, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    ok(kvlazy_init_batch(box->cache));
    ok(box_put(box, seq, pos, n));
    ok(kvlazy_end_batch(box->cache));
}

void box_turn_planes(struct box *box, kvlazy_seq_id seq, kvlazy_pos first, uint32_t n)
{
    kvlazy_pos pos[3 * 64];
    kvlazy_seq_id owner[64];

    assert_true(n <= 64);
    for (uint32_t i = 0; i < n; i++) {
        pos[i] = first;
        pos[n + i] = first + (kvlazy_pos)(i / 4);
        pos[2 * n + i] = first + (kvlazy_pos)(i % 4);
        owner[i] = seq;
    }
    ok(kvlazy_init_batch(box->cache));
    ok(put_tokens(box, &(kvlazy_ubatch){.n_token = n, .pos = pos, .seq = owner}));
    ok(kvlazy_end_batch(box->cache));
}

void box_riddle(struct box *box, kvlazy_seq_id other, uint32_t run)
{
    kvlazy_seq_id gone = other == 0 ? 1 : 0;
    kvlazy_pos n = 0;

    for (uint32_t cell = 0; cell + 2 * run <= box->params.kv_size / 2; cell += 2 * run, n += (kvlazy_pos)run) {
        box_turn(box, gone, n, run);
        box_turn(box, other, n, run);
    }
    ok(kvlazy_seq_rm(box->cache, gone, -1, -1));
}

/* ---- what an engine sees ---- */

static kvlazy_cells_view view_of(struct box *box, uint32_t stream)
{
    kvlazy_cells_view view = {.struct_size = sizeof view};

    ok(kvlazy_cells(box->cache, stream, &view));
    return view;
}

static bool owns(const struct box *box, uint32_t stream, uint32_t cell, kvlazy_seq_id seq)
{
    const kvl_cells *cells = &box->cache->stream[stream].cells;

    return kvl_cells_is_used(cells, cell) && kvl_cells_owns(cells, cell, seq);
}

/* The sequences below 64 that own a cell. */
static uint64_t owners_of(const struct box *box, uint32_t stream, uint32_t cell)
{
    const kvl_cells *cells = &box->cache->stream[stream].cells;
    uint64_t owners = 0;

    for (kvlazy_seq_id o = -1; (o = kvl_cells_next_owner(cells, cell, o + 1)) >= 0 && o < 64;)
        owners |= UINT64_C(1) << o;
    return owners;
}

static uint64_t sum_of_cell(struct box *box, const kvlazy_cells_view *view, uint32_t stream, uint32_t cell,
                            unsigned char *row)
{
    int32_t head[3] = {view->pos[cell], view->ext_y ? view->ext_y[cell] : 0, view->ext_x ? view->ext_x[cell] : 0};
    uint64_t sum = kvl_checksum_of(head, sizeof head);
    kvlazy_tensor t;

    for (uint32_t k = 0; tensor_of(box, k, &t); k++) {
        if (!t.data)
            continue;
        each_lane(&t, stream, cell, row, true);
        sum = sum * 31 + kvl_checksum_of(row, t.row_bytes);
    }
    return kvl_checksum_of(&sum, sizeof sum); /* sums of cells are added, in whatever order they lie */
}

uint64_t box_sum(struct box *box, kvlazy_seq_id seq)
{
    uint32_t stream = box->params.n_stream > 1 ? (uint32_t)seq : 0;
    kvlazy_cells_view view = view_of(box, stream);
    unsigned char *row = row_room(box);
    uint64_t sum = 0;

    for (uint32_t cell = 0; cell < view.n_cell; cell++)
        if (owns(box, stream, cell, seq))
            sum += sum_of_cell(box, &view, stream, cell, row);
    free(row);
    return sum;
}

/* ---- to the bit ---- */

struct picture {
    unsigned char *bytes;
    size_t n_byte;
    kvl_seq *seq;
    uint64_t *sum; /* [n_seq] live bytes */
    char *cells;
    uint64_t touched_bytes;
    bool open;
};

/* Cells past those that are in the arrays are empty, and need no words. */
static char *describe(struct box *box)
{
    size_t room = 1 << 16, n = 0;
    char *text = malloc(room);

    assert_non_null(text);
    text[0] = 0;
    for (uint32_t s = 0; s < box->cache->params.n_stream; s++) {
        kvlazy_cells_view view = view_of(box, s);

        for (uint32_t cell = 0; cell < view.n_cell && n + 100 < room; cell++)
            if (view.pos[cell] >= 0)
                n += (size_t)snprintf(text + n, room - n, "%u.%u=%d/%llx/%d,%d ", s, cell, (int)view.pos[cell],
                                      (unsigned long long)owners_of(box, s, cell),
                                      view.ext_y ? (int)view.ext_y[cell] : 0, view.ext_x ? (int)view.ext_x[cell] : 0);
    }
    return text;
}

static const kvlazy_arena *arena_of(struct box *box)
{
    return &box->cache->rows.own;
}

struct picture *box_look(struct box *box)
{
    struct picture *p = calloc(1, sizeof *p);
    kvlazy_stats_info info = {.struct_size = sizeof info};

    assert_non_null(p);
    ok(kvlazy_stats(box->cache, &info));
    p->touched_bytes = info.touched_bytes;
    p->n_byte = (size_t)arena_of(box)->bytes;
    p->bytes = malloc(p->n_byte + 1);
    p->seq = malloc(box->cache->params.n_seq_max * sizeof *p->seq);
    p->sum = malloc(box->cache->params.n_seq_max * sizeof *p->sum);
    assert_true(p->bytes && p->seq && p->sum);
    for (uint32_t i = 0; i < box->cache->params.n_seq_max; i++)
        p->sum[i] = box_sum(box, (kvlazy_seq_id)i);
    memcpy(p->bytes, arena_of(box)->base, p->n_byte);
    memcpy(p->seq, box->cache->seq, box->cache->params.n_seq_max * sizeof *p->seq);
    p->cells = describe(box);
    p->open = box->cache->group->open;
    return p;
}

/* What is kept of a sequence between two calls; the rest is scratch. */
static bool same_seq(const kvl_seq *a, const kvl_seq *b)
{
    return a->stamp_ms == b->stamp_ms && a->veto_ms == b->veto_ms && a->generation == b->generation &&
           a->moved == b->moved && a->pending == b->pending && a->fresh == b->fresh && a->lost_end == b->lost_end &&
           a->torn == b->torn && a->evicted == b->evicted && a->n_new == b->n_new;
}

void box_forget(struct picture *p)
{
    free(p->bytes);
    free(p->seq);
    free(p->sum);
    free(p->cells);
    free(p);
}

void box_same(struct box *box, struct picture *before, const char *file, int line)
{
    struct picture *now = box_look(box);
    const char *what = NULL;

    for (size_t i = 0; i < now->n_byte; i++)
        if (now->bytes[i] && now->bytes[i] != before->bytes[i])
            what = "a byte";
    for (uint32_t i = 0; i < box->cache->params.n_seq_max; i++)
        if (!same_seq(&now->seq[i], &before->seq[i]) || now->sum[i] != before->sum[i])
            what = "a sequence";
    if (strcmp(now->cells, before->cells))
        what = "the cells";
    if (now->touched_bytes != before->touched_bytes)
        what = "the touched bytes";
    if (now->open != before->open)
        what = "whether a batch is open";
    if (what)
        print_error("%s changed\nbefore: %s\nnow: %s\n%zu, %zu bytes touched; log: %s\n", what, before->cells,
                    now->cells, (size_t)before->touched_bytes, (size_t)now->touched_bytes, box->log);
    box_forget(now);
    box_forget(before);
    if (what)
        _fail(file, line);
    box_sound(box);
}

void box_sound(struct box *box)
{
    const char *reason = NULL;

    if (kvlazy_check(box->cache, &reason) != KVLAZY_OK)
        fail_msg("kvlazy_check: %s", reason ? reason : "no reason");
    fake_assert_kept(&box->fake);
}

/* ---- tapes ---- */

static bool counts_down(struct tape *t, size_t bytes)
{
    t->n_call++;
    t->largest = bytes > t->largest ? bytes : t->largest;
    if (t->inside)
        t->inside(t->ctx);
    return t->fail_in > 0 && --t->fail_in == 0;
}

int tape_write(void *ctx, const void *data, size_t bytes)
{
    struct tape *t = ctx;

    if (counts_down(t, bytes))
        return 1;
    if (t->n + bytes > t->room) {
        t->room = 2 * (t->n + bytes);
        t->byte = realloc(t->byte, t->room);
        assert_non_null(t->byte);
    }
    memcpy(t->byte + t->n, data, bytes);
    t->n += bytes;
    return 0;
}

int tape_read(void *ctx, void *data, size_t bytes)
{
    struct tape *t = ctx;

    if (counts_down(t, bytes) || bytes > t->n - t->at)
        return -7;
    memcpy(data, t->byte + t->at, bytes);
    t->at += bytes;
    return 0;
}

void tape_free(struct tape *t)
{
    free(t->byte);
    *t = (struct tape){0};
}

struct tape tape_of(struct box *box, kvlazy_seq_id seq)
{
    struct tape t = {0};
    uint64_t bytes = 0;

    ok(kvlazy_state_bytes(box->cache, seq, &bytes));
    ok(kvlazy_state_write(box->cache, seq, tape_write, &t));
    assert_int_equal(t.n, bytes);
    return t;
}

int tape_into(struct tape *t, struct box *box, kvlazy_seq_id seq)
{
    t->at = 0;
    t->n_call = 0;
    return kvlazy_state_read(box->cache, seq, tape_read, t);
}

void tape_mend(unsigned char *byte, size_t n)
{
    kvl_state_head head;
    size_t i = sizeof head;

    if (n < sizeof head)
        return;
    memcpy(&head, byte, sizeof head);
    head.checksum = kvl_checksum_of(&head, offsetof(kvl_state_head, checksum));
    memcpy(byte, &head, sizeof head);
    while (n - i > sizeof(kvl_state_frame)) {
        kvl_state_frame frame;

        memcpy(&frame, byte + i, sizeof frame);
        if (frame.bytes > n - i - sizeof frame || n - i - sizeof frame - frame.bytes < sizeof(uint64_t))
            return;
        uint64_t sum = kvl_checksum_of(byte + i, sizeof frame + (size_t)frame.bytes);
        memcpy(byte + i + sizeof frame + frame.bytes, &sum, sizeof sum);
        i += sizeof frame + (size_t)frame.bytes + sizeof sum;
    }
}
