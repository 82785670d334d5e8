/* SPDX-License-Identifier: MIT */
/*
 * The bed of layout_support.h. Nothing here knows how the library computes a place: bytes are found by the formula of
 * kvlazy_tensor, pages by dividing.
 */
#include "owners.h"
#include "layout_support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvlazy/arena.h>

enum { AHEAD = 32, ROW_MAX = 1 << 16 };

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

static uint32_t lanes(const kvlazy_tensor *t)
{
    return t->n_channel ? t->n_channel : 1;
}

static size_t element(const kvlazy_tensor *t)
{
    return t->row_bytes / lanes(t);
}

static unsigned char *place(const kvlazy_tensor *t, uint32_t stream, uint32_t lane, uint32_t cell)
{
    return (unsigned char *)t->data + stream * t->stream_stride + lane * t->channel_stride + cell * t->cell_stride;
}

size_t bed_tensor_bytes(const kvlazy_tensor *t, uint32_t kv_size, uint32_t n_stream)
{
    return (n_stream - 1) * t->stream_stride + (lanes(t) - 1) * t->channel_stride + (kv_size - 1) * t->cell_stride +
           element(t);
}

/* ---- areas ---- */

static struct bed_area *area_of(struct bed *bed, const unsigned char *at)
{
    for (int i = 0; i < BED_ARENAS + 1; i++)
        if (bed->area[i].bytes && at >= bed->area[i].base && at < bed->area[i].base + bed->area[i].bytes)
            return &bed->area[i];
    fail_msg("%p lies in no area", (const void *)at);
    return NULL;
}

static void name_tensor(struct bed *bed, const kvlazy_tensor *t)
{
    struct bed_area *area = area_of(bed, t->data);

    for (uint32_t s = 0; s < bed->n_stream; s++)
        for (uint32_t lane = 0; lane < lanes(t); lane++)
            for (uint32_t cell = 0; cell < bed->kv_size; cell++) {
                size_t at = (size_t)(place(t, s, lane, cell) - area->base);

                for (size_t i = at; i < at + element(t); i++) {
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

/* ---- rows ---- */

/* Never zero, and never the pattern for long. */
static void fill_row(uint32_t stamp, int tensor, unsigned char *out, size_t bytes)
{
    uint32_t x = stamp * 2654435761u ^ (uint32_t)(tensor + 1) * 0x9E3779B9u;
    unsigned char four[4];

    x ^= x >> 15;
    for (int i = 0; i < 4; i++)
        four[i] = (unsigned char)(x >> (i * 8)) | 1;
    for (size_t i = 0; i < bytes; i++)
        out[i] = four[i % 4] ^ (unsigned char)(i / 4 * 2);
}

void bed_write(struct bed *bed, uint32_t stream, uint32_t cell, uint32_t stamp)
{
    unsigned char row[ROW_MAX];

    for (int i = 0; i < bed->n_tensor; i++) {
        const kvlazy_tensor *t = &bed->tensor[i];

        fill_row(stamp, i, row, t->row_bytes);
        for (uint32_t lane = 0; lane < lanes(t); lane++)
            memcpy(place(t, stream, lane, cell), row + lane * element(t), element(t));
    }
    bed->content[(size_t)stream * bed->kv_size + cell] = stamp;
}

bool bed_holds(struct bed *bed, uint32_t stream, uint32_t cell, uint32_t stamp)
{
    unsigned char row[ROW_MAX];

    for (int i = 0; i < bed->n_tensor; i++) {
        const kvlazy_tensor *t = &bed->tensor[i];

        fill_row(stamp, i, row, t->row_bytes);
        for (uint32_t lane = 0; lane < lanes(t); lane++)
            if (memcmp(place(t, stream, lane, cell), row + lane * element(t), element(t)))
                return false;
    }
    return true;
}

static bool all_zero(const unsigned char *at, size_t n)
{
    return at[0] == 0 && !memcmp(at, at + 1, n - 1);
}

bool bed_is_zero(struct bed *bed, uint32_t stream, uint32_t cell)
{
    for (int i = 0; i < bed->n_tensor; i++)
        for (uint32_t lane = 0; lane < lanes(&bed->tensor[i]); lane++)
            if (!all_zero(place(&bed->tensor[i], stream, lane, cell), element(&bed->tensor[i])))
                return false;
    return true;
}

/* Every byte of a dead cell is zero or what it last had. */
bool bed_is_stale(struct bed *bed, uint32_t stream, uint32_t cell, uint32_t stamp)
{
    unsigned char row[ROW_MAX];

    for (int i = 0; i < bed->n_tensor; i++) {
        const kvlazy_tensor *t = &bed->tensor[i];

        fill_row(stamp, i, row, t->row_bytes);
        for (uint32_t lane = 0; lane < lanes(t); lane++)
            for (size_t k = 0; k < element(t); k++) {
                unsigned char got = place(t, stream, lane, cell)[k];

                if (got && (!stamp || got != row[lane * element(t) + k]))
                    return false;
            }
    }
    return true;
}

/* ---- pages ---- */

typedef void (*with_page)(struct bed_area *area, size_t page, uint64_t *count);

static void each_page(struct bed *bed, uint32_t stream, uint32_t cell, with_page visit, uint64_t *count)
{
    for (int i = 0; i < bed->n_tensor; i++) {
        const kvlazy_tensor *t = &bed->tensor[i];
        struct bed_area *area = area_of(bed, t->data);

        for (uint32_t lane = 0; lane < lanes(t); lane++) {
            size_t at = (size_t)(place(t, stream, lane, cell) - area->base);

            for (size_t p = at / bed->fake.page; p <= (at + element(t) - 1) / bed->fake.page; p++)
                visit(area, p, count);
        }
    }
}

enum { MAY = 1, SEEN = 2 };

static void set_may(struct bed_area *area, size_t page, uint64_t *count)
{
    (void)count;
    area->may[page] |= MAY;
}

static void count_once(struct bed_area *area, size_t page, uint64_t *count)
{
    *count += !(area->may[page] & SEEN);
    area->may[page] |= SEEN;
}

static size_t pages_of(const struct bed *bed, const struct bed_area *area)
{
    return (area->bytes + bed->fake.page - 1) / bed->fake.page;
}

static void forget_seen(struct bed *bed)
{
    for (int i = 0; i < BED_ARENAS + 1; i++)
        for (size_t p = 0; bed->area[i].may && p < pages_of(bed, &bed->area[i]); p++)
            bed->area[i].may[p] &= MAY;
}

void bed_may_touch(struct bed *bed, uint32_t stream, uint32_t cell)
{
    each_page(bed, stream, cell, set_may, NULL);
}

uint64_t bed_cover(struct bed *bed, uint32_t stream, uint32_t lo, uint32_t hi)
{
    uint64_t n = 0;

    forget_seen(bed);
    for (uint32_t cell = lo; cell < hi; cell++)
        each_page(bed, stream, cell, count_once, &n);
    return n * bed->fake.page;
}

static kvlazy_cells_view view_of(struct bed *bed, uint32_t stream)
{
    kvlazy_cells_view view = {.struct_size = sizeof view};

    ok(kvlazy_cells(bed->cache, stream, &view));
    assert_true(view.n_cell <= bed->kv_size);
    return view;
}

uint64_t bed_live_cover(struct bed *bed)
{
    uint64_t n = 0;

    forget_seen(bed);
    for (uint32_t s = 0; s < bed->n_stream; s++) {
        kvlazy_cells_view view = view_of(bed, s);

        for (uint32_t cell = 0; cell < view.n_cell; cell++)
            if (view.pos[cell] >= 0)
                each_page(bed, s, cell, count_once, &n);
    }
    return n * bed->fake.page;
}

static bool names_all(const struct bed *bed, const struct bed_area *area, size_t page)
{
    size_t begin = page * bed->fake.page, end = begin + bed->fake.page;

    for (size_t i = begin; area->named && i < end && i < area->bytes; i++)
        if (!area->named[i])
            return false;
    return true;
}

/* Only live rows and pages that are not a tensor's alone may still be touched. SEEN: the cover of what lives. */
static void release_pages(struct bed *bed)
{
    bed_live_cover(bed);
    for (int i = 0; i < BED_ARENAS + 1; i++)
        for (size_t p = 0; bed->area[i].may && p < pages_of(bed, &bed->area[i]); p++)
            if (!(bed->area[i].may[p] & SEEN) && names_all(bed, &bed->area[i], p))
                bed->area[i].may[p] = 0;
}

static uint64_t may_bytes(struct bed *bed)
{
    uint64_t n = 0;

    for (int i = 0; i < BED_ARENAS + 1; i++)
        for (size_t p = 0; bed->area[i].may && p < pages_of(bed, &bed->area[i]); p++)
            n += bed->area[i].may[p] & MAY;
    return n * bed->fake.page;
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

static void drop(struct bed *bed, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    for (kvlazy_pos p = p0 < 0 ? 0 : p0; p < (p1 < 0 || p1 > BED_POS ? BED_POS : p1); p++)
        bed->token[seq][p] = 0;
}

void bed_rm(struct bed *bed, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    ok(kvlazy_seq_rm(bed->cache, seq, p0, p1));
    drop(bed, seq, p0, p1);
}

int bed_cp(struct bed *bed, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1)
{
    int status = kvlazy_seq_cp(bed->cache, src, dst, p0, p1);

    for (kvlazy_pos p = p0 < 0 ? 0 : p0; !status && p < (p1 < 0 ? BED_POS : p1); p++)
        bed->token[dst][p] = bed->token[src][p];
    for (uint32_t cell = 0; !status && bed->n_stream > 1 && cell < bed->kv_size; cell++) {
        kvlazy_cells_view view = view_of(bed, (uint32_t)dst);

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

/* ---- what must hold ---- */

kvlazy_stats_info bed_stats(struct bed *bed)
{
    kvlazy_stats_info info = {.struct_size = sizeof info};

    ok(kvlazy_stats(bed->cache, &info));
    return info;
}

uint64_t bed_host_calls(const struct bed *bed)
{
    return bed->fake.n_call[FAKE_COMMIT] + bed->fake.n_call[FAKE_DECOMMIT];
}

static void wrong(const char *file, int line)
{
    _fail(file, line);
}

static void check_live(struct bed *bed, uint32_t s, uint32_t cell, const kvlazy_cells_view *view, uint32_t *n_token,
                       const char *file, int line)
{
    uint64_t owners = owner_bits(bed->cache, s, cell);
    uint32_t stamp = 0, n_owner = 0;

    for (uint32_t id = 0; id < bed->n_seq; id++) {
        if (!(owners >> id & 1))
            continue;
        uint32_t want = bed->token[id][view->pos[cell]];

        if (!want || (stamp && want != stamp)) {
            print_error("stream %" PRIu32 " cell %" PRIu32 " is position %d of %" PRIu32 ", which is %s\n", s, cell,
                        view->pos[cell], id, want ? "another token" : "gone");
            wrong(file, line);
        }
        stamp = want;
        n_owner++;
        n_token[id]++;
    }
    if (!n_owner || !bed_holds(bed, s, cell, stamp)) {
        print_error("stream %" PRIu32 " cell %" PRIu32 ": bytes of live token %" PRIu32 " changed\n", s, cell, stamp);
        wrong(file, line);
    }
    bed->content[(size_t)s * bed->kv_size + cell] = stamp;
    bed_may_touch(bed, s, cell);
}

static void check_dead(struct bed *bed, uint32_t s, uint32_t cell, bool released, const char *file, int line)
{
    uint32_t *content = &bed->content[(size_t)s * bed->kv_size + cell];

    if (bed_is_zero(bed, s, cell)) {
        *content = 0;
        return;
    }
    if (!released && bed_is_stale(bed, s, cell, *content))
        return;
    print_error("stream %" PRIu32 " dead cell %" PRIu32 ": %s\n", s, cell,
                released ? "not zero after a release" : "neither zero nor what was written there");
    wrong(file, line);
}

/* Eviction takes tails: what is left of each sequence is its lowest positions, all of them. */
static void check_tokens(struct bed *bed, const uint32_t *n_token, const char *file, int line)
{
    for (uint32_t id = 0; id < bed->n_seq; id++) {
        kvlazy_pos max = kvlazy_seq_pos_max(bed->cache, (kvlazy_seq_id)id);
        uint32_t n = 0, gone = 0;

        for (kvlazy_pos p = 0; p < BED_POS; p++) {
            n += p <= max && bed->token[id][p];
            gone += p > max && bed->token[id][p];
        }
        if (n != n_token[id] || (gone && bed->params.kv_size_initial == 0 && !bed->n_evict)) {
            print_error("sequence %" PRIu32 ": %" PRIu32 " of %" PRIu32 " tokens, and %" PRIu32 " cut\n", id,
                        n_token[id], n, gone);
            wrong(file, line);
        }
        drop(bed, (kvlazy_seq_id)id, max + 1, -1);
    }
}

static void check_cells(struct bed *bed, bool released, const char *file, int line)
{
    uint32_t n_token[BED_SEQS] = {0};

    for (uint32_t s = 0; s < bed->n_stream; s++) {
        kvlazy_cells_view view = view_of(bed, s);

        for (uint32_t cell = 0; cell < bed->kv_size; cell++)
            if (cell < view.n_cell && view.pos[cell] >= 0)
                check_live(bed, s, cell, &view, n_token, file, line);
            else
                check_dead(bed, s, cell, released, file, line);
    }
    check_tokens(bed, n_token, file, line);
}

static void check_addresses(struct bed *bed, const char *file, int line)
{
    int n = 0;

    for (uint32_t i = 0; i < bed->params.n_layer; i++)
        for (int is_v = 0; is_v < 2; is_v++) {
            kvlazy_tensor t;

            if (!(is_v ? bed->layers[i].v_row_bytes : bed->layers[i].k_row_bytes))
                continue;
            ok(is_v ? kvlazy_v(bed->cache, bed->layers[i].id, &t) : kvlazy_k(bed->cache, bed->layers[i].id, &t));
            if (t.data && memcmp(&t, &bed->tensor[n++], sizeof t))
                wrong(file, line);
        }
}

static void check_figures(struct bed *bed, bool released, const char *file, int line)
{
    kvlazy_stats_info s = bed_stats(bed);
    uint64_t live = bed_live_cover(bed);
    uint64_t most = bed->params.budget_bytes ? bed->params.budget_bytes : UINT64_MAX;

    /* What the host will not take back may stay, and pages that are not ours alone, but no more comes. */
    if ((s.n_os_refusal || bed->n_area) && bed->touched_bytes > most)
        most = bed->touched_bytes;
    bed->touched_bytes = s.touched_bytes;

    if (released && s.n_os_refusal == bed->n_os_refusal)
        release_pages(bed);
    bed->n_os_refusal = s.n_os_refusal;
    if (s.touched_bytes < live || s.touched_bytes > may_bytes(bed) || s.touched_bytes > s.reserved_bytes ||
        s.touched_bytes > most) {
        print_error("touched_bytes %" PRIu64 ": live pages %" PRIu64 ", written ones %" PRIu64 ", reserved %" PRIu64
                    ", budget %" PRIu64 "\n",
                    s.touched_bytes, live, may_bytes(bed), s.reserved_bytes, bed->params.budget_bytes);
        wrong(file, line);
    }
    bed->failed |= bed->fake.failed;
    if (bed->params.flags & KVLAZY_NO_COMMIT_AHEAD)
        return;
    uint64_t committed = bed->fake.committed_bytes;
    if (bed->failed && bed->n_area ? s.touched_bytes > committed : s.touched_bytes != committed) {
        print_error("touched_bytes %" PRIu64 ", the host says %" PRIu64 "\n", s.touched_bytes, committed);
        wrong(file, line);
    }
}

void bed_sound_(struct bed *bed, bool released, const char *file, int line)
{
    const char *reason = NULL;

    if (kvlazy_check(bed->cache, &reason) || reason) {
        print_error("kvlazy_check: %s\n", reason ? reason : "no reason");
        wrong(file, line);
    }
    check_cells(bed, released, file, line);
    check_figures(bed, released, file, line);
    check_addresses(bed, file, line);
    fake_assert_kept(&bed->fake);
}

/* ---- text ---- */

static size_t print_owners(char *out, size_t room, uint64_t owners)
{
    size_t n = 0;

    for (uint32_t i = 0; i < 64; i++)
        if (owners >> i & 1)
            n += (size_t)snprintf(out + n, room - n, "%s%" PRIu32, n ? "+" : "", i);
    return n;
}

static bool goes_on(struct bed *bed, uint32_t stream, const kvlazy_cells_view *view, uint32_t b)
{
    return view->pos[b] == view->pos[b - 1] + 1 && view->pos[b - 1] >= 0 && same_owners(bed->cache, stream, b, b - 1);
}

const char *bed_cells(struct bed *bed, uint32_t stream)
{
    static char text[4][1 << 13];
    static int turn;
    kvlazy_cells_view view = view_of(bed, stream);
    char *out = text[turn++ % 4];
    size_t n = 0, room = sizeof text[0];

    out[0] = 0;
    for (uint32_t a = 0, b; a < view.n_cell && n + 100 < room; a = b) {
        for (b = a + 1; b < view.n_cell && goes_on(bed, stream, &view, b);)
            b++;
        if (view.pos[a] < 0)
            continue;
        n += (size_t)snprintf(out + n, room - n, "%s%" PRIu32, n ? " " : "", a);
        if (b - a > 1)
            n += (size_t)snprintf(out + n, room - n, "..%" PRIu32 "=%d..%d/", b - 1, view.pos[a], view.pos[b - 1]);
        else
            n += (size_t)snprintf(out + n, room - n, "=%d/", view.pos[a]);
        n += print_owners(out + n, room - n, owner_bits(bed->cache, stream, a));
    }
    return out;
}
