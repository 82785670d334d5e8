/* SPDX-License-Identifier: MIT */
/*
 * The rig of support.h. Bytes of a row are a function of a stamp, the tensor and the place in the row, never
 * zero and never the fill of dirty memory, so that a lost, moved or resurrected row shows.
 */
#define _DEFAULT_SOURCE
#include "owners.h"
#include "support.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW_MAX = 4096, N_TEXT = 4 };

static void on_log(void *ctx, int level, const char *text)
{
    struct rig *rig = ctx;
    int n = snprintf(rig->log + rig->log_bytes, sizeof rig->log - rig->log_bytes, "%d:%s\n", level, text);

    rig->n_log++;
    if (n > 0 && (size_t)n < sizeof rig->log - rig->log_bytes)
        rig->log_bytes += (size_t)n;
    rig->log[rig->log_bytes] = 0;
}

static int on_evict(void *ctx, kvlazy_seq_id seq, kvlazy_pos pos)
{
    struct rig *rig = ctx;

    if (rig->n_evict < RIG_EVICTS)
        rig->evict[rig->n_evict] = (struct rig_evict){seq, pos};
    rig->n_evict++;
    if (rig->in_evict) {
        rig_follow(rig);
        rig->in_evict(rig, seq, pos); /* it may change cells, in the middle of a shrink */
        rig_look(rig);
    }
    return seq < 64 && (rig->veto >> seq & 1);
}

struct rig *rig_new(void)
{
    static const size_t rows[3][2] = {{512, 36}, {34, 0}, {100, 260}};
    struct rig *rig = calloc(1, sizeof *rig);

    assert_non_null(rig);
    fake_init(&rig->fake);
    rig->fake.now = 1000;
    kvlazy_params_init(&rig->params);
    rig->params.kv_size = 512;
    rig->params.n_seq_max = 4;
    rig->params.slot_shrink_idle_ms = 500;
    rig->params.mem = &rig->fake.table;
    rig->params.log = on_log;
    rig->params.log_ctx = rig;
    rig->params.on_evict = on_evict;
    rig->params.evict_ctx = rig;
    rig_rows(rig, 3, rows);
    return rig;
}

void rig_pages(struct rig *rig, uint32_t number)
{
    static const size_t page[RIG_PAGES] = {4096, 16 << 10, 64 << 10, 2 << 20};

    if (number)
        fake_grant(&rig->fake, page[number], number == 2);
    rig->params.page_bytes = number ? page[number] : 0;
}

void rig_rows(struct rig *rig, int n_layer, const size_t (*k_v)[2])
{
    memset(rig->layers, 0, sizeof rig->layers);
    for (int i = 0; i < n_layer; i++) {
        rig->layers[i].id = (uint32_t)(3 * i + 1); /* not every model layer owns K/V */
        rig->layers[i].k_row_bytes = k_v[i][0];
        rig->layers[i].v_row_bytes = k_v[i][1];
    }
    rig->params.layers = rig->layers;
    rig->params.n_layer = (uint32_t)n_layer;
}

void rig_open(struct rig *rig)
{
    ok(kvlazy_create(&rig->params, &rig->cache));
    rig_adopt(rig);
}

void rig_adopt(struct rig *rig)
{
    const kvlazy_params *p = &rig->params;

    rig->kv_size = p->kv_size;
    rig->n_stream = p->n_stream ? p->n_stream : 1;
    rig->n_seq = p->n_seq_max ? p->n_seq_max : rig->n_stream;
    rig->n_tensor = 0;
    for (uint32_t i = 0; i < p->n_layer; i++) {
        if (p->layers[i].k_row_bytes)
            ok(kvlazy_k(rig->cache, p->layers[i].id, &rig->tensor[rig->n_tensor++]));
        if (p->layers[i].v_row_bytes)
            ok(kvlazy_v(rig->cache, p->layers[i].id, &rig->tensor[rig->n_tensor++]));
    }
    if (p->mem != &rig->fake.table) /* a host of its own says what a page is */
        rig->fake.page = (size_t)stats(rig).page_bytes;
    rig_follows(rig);
}

void open_with(struct rig *r, uint32_t kv_size, uint32_t initial)
{
    r->params.kv_size = kv_size;
    r->params.kv_size_initial = initial;
    rig_open(r);
}

void rig_free(struct rig *rig)
{
    int left;

    rig_forgets(rig);
    kvlazy_destroy(rig->cache);
    left = fake_mappings(&rig->fake);
    if (!rig->fake.broken[0] && left)
        snprintf(rig->fake.broken, sizeof rig->fake.broken, "%d mappings are left", left);
    fake_assert_kept(&rig->fake);
    fake_done(&rig->fake);
    free(rig);
}

int rig_setup(void **state)
{
    *state = rig_new();
    return 0;
}

int rig_teardown(void **state)
{
    struct rig *rig = *state;

    if (rig->cache)
        sound(rig);
    rig_free(rig);
    return 0;
}

void expect_status(int got, int want, const char *call, const char *file, int line)
{
    if (got == want)
        return;
    print_error("%s answers %s, not %s\n", call, kvlazy_status_name(got), kvlazy_status_name(want));
    _fail(file, line);
}

/* ---- the engine's side ---- */

/* Bytes of a row that was given a stamp; all zero for stamp 0. */
static void fill_row(uint32_t stamp, int tensor, unsigned char *out, size_t bytes)
{
    uint32_t x = (stamp * 2654435761u) ^ ((uint32_t)(tensor + 1) * 0x9E3779B9u);

    x ^= x >> 15;
    for (size_t i = 0; i < bytes; i++)
        out[i] = stamp ? (unsigned char)((x >> (i % 4 * 8)) + i * 28) | 1 : 0;
}

static unsigned char *row(struct rig *rig, int tensor, uint32_t stream, uint32_t cell)
{
    const kvlazy_tensor *t = &rig->tensor[tensor];

    return (unsigned char *)t->data + stream * t->stream_stride + cell * t->cell_stride;
}

static uint32_t *stamp_of(struct rig *rig, uint32_t stream, uint32_t cell)
{
    return &rig->stamp[(size_t)stream * rig->kv_size + cell];
}

void write_rows(struct rig *rig, const kvlazy_slot *slot)
{
    for (uint32_t i = 0; i < slot->n_token; i++) {
        assert_true(slot->stream[i] < rig->n_stream && slot->cell[i] < rig->kv_size);
        *stamp_of(rig, slot->stream[i], slot->cell[i]) = ++rig->last_stamp;
        for (int t = 0; t < rig->n_tensor; t++)
            fill_row(rig->last_stamp, t, row(rig, t, slot->stream[i], slot->cell[i]), rig->tensor[t].row_bytes);
        if (slot->cell[i] >= rig->reach)
            rig->reach = slot->cell[i] + 1;
    }
}

int put_tokens(struct rig *rig, const kvlazy_ubatch *ubatch, uint32_t n_ubatch)
{
    int status = kvlazy_prepare(rig->cache, ubatch, n_ubatch, rig->slot);

    for (uint32_t i = 0; !status && i < n_ubatch; i++) {
        status = kvlazy_apply_ubatch(rig->cache, &rig->slot[i], &ubatch[i]);
        if (!status)
            write_rows(rig, &rig->slot[i]);
    }
    return status;
}

/* n tokens at pos, pos + 1 … or at list[], owned by each of owner[]. */
static int place(struct rig *rig, int n_owner, const kvlazy_seq_id *owner, kvlazy_pos pos, const kvlazy_pos *list,
                 uint32_t n, bool apply)
{
    kvlazy_pos *p = calloc(n + 1, sizeof *p);
    kvlazy_seq_id *seq = calloc(n + 1, sizeof *seq);
    int32_t *count = calloc(n + 1, sizeof *count);
    const kvlazy_seq_id **ids = calloc(n + 1, sizeof *ids);
    kvlazy_ubatch ubatch = {.n_token = n, .pos = p};
    int status;

    assert_true(p && seq && count && ids);
    for (uint32_t i = 0; i < n; i++) {
        p[i] = list ? list[i] : pos + (kvlazy_pos)i;
        seq[i] = owner[0];
        count[i] = n_owner;
        ids[i] = owner;
    }
    if (n_owner == 1)
        ubatch.seq = seq;
    ubatch.n_seq_id = count;
    ubatch.seq_id = ids;
    status = apply ? put_tokens(rig, &ubatch, 1) : kvlazy_prepare(rig->cache, &ubatch, 1, rig->slot);
    free(p);
    free(seq);
    free(count);
    free(ids);
    return status;
}

int put(struct rig *rig, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    return place(rig, 1, &seq, pos, NULL, n, true);
}

int put_list(struct rig *rig, kvlazy_seq_id seq, uint32_t n, const kvlazy_pos *pos)
{
    return place(rig, 1, &seq, 0, pos, n, true);
}

int put_owned(struct rig *rig, int n_owner, const kvlazy_seq_id *owner, kvlazy_pos pos, uint32_t n)
{
    return place(rig, n_owner, owner, pos, NULL, n, true);
}

int turn(struct rig *rig, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    int status;

    ok(kvlazy_init_batch(rig->cache));
    status = put(rig, seq, pos, n);
    ok(kvlazy_end_batch(rig->cache));
    return status;
}

/* At a time of its own, so that no two sequences are idle for equally long. */
void turn_at(struct rig *rig, uint64_t now, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    rig->fake.now = now;
    ok(turn(rig, seq, pos, n));
}

int dry(struct rig *rig, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    int status = place(rig, 1, &seq, pos, NULL, n, false);

    ok(kvlazy_end_batch(rig->cache));
    return status;
}

/* ---- what a test asks ---- */

static kvlazy_cells_view view_of(struct rig *rig, uint32_t stream)
{
    kvlazy_cells_view view = {.struct_size = sizeof view};

    if (rig->params.cell_ops)
        return view; /* the engine's cells are for the test to look at */
    ok(kvlazy_cells(rig->cache, stream, &view));
    assert_true(view.n_cell <= rig->kv_size);
    return view;
}

static bool owned(struct rig *rig, uint32_t stream, uint32_t cell)
{
    uint32_t n = 0;

    ok(kvlazy_cell_owners(rig->cache, stream, cell, NULL, 0, &n));
    return n > 0;
}

/* A live cell holds its bytes; a dead byte is zero or what was last written there. The first that is neither; -1. */
static int64_t first_wrong(struct rig *rig, int tensor, uint32_t stream, uint32_t cell, uint32_t stamp, bool live,
                           unsigned char *want)
{
    const unsigned char *got = row(rig, tensor, stream, cell);
    size_t bytes = rig->tensor[tensor].row_bytes;

    assert_true(bytes <= ROW_MAX);
    fill_row(stamp, tensor, want, bytes);
    if (!memcmp(got, want, bytes))
        return -1;
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != want[i] && (live || got[i]))
            return (int64_t)i;
    return -1;
}

bool rig_row_fits(struct rig *rig, uint32_t stream, uint32_t cell, uint32_t stamp, bool live)
{
    unsigned char want[ROW_MAX];

    for (int t = 0; t < rig->n_tensor; t++)
        if (first_wrong(rig, t, stream, cell, stamp, live, want) >= 0)
            return false;
    return true;
}

static void check_row(struct rig *rig, int tensor, uint32_t stream, uint32_t cell, bool live, const char *file,
                      int line)
{
    unsigned char want[ROW_MAX];
    int64_t i = first_wrong(rig, tensor, stream, cell, *stamp_of(rig, stream, cell), live, want);

    if (i < 0)
        return;
    print_error("tensor %d, stream %" PRIu32 ", %s cell %" PRIu32 ": byte %d is %02x, not %02x\n", tensor, stream,
                live ? "live" : "dead", cell, (int)i, row(rig, tensor, stream, cell)[i], want[i]);
    _fail(file, line);
}

void rig_sound(struct rig *rig, const char *file, int line)
{
    const char *reason = NULL;
    uint32_t top = rig->reach + 256 < rig->kv_size ? rig->reach + 256 : rig->kv_size;
    int status = kvlazy_check(rig->cache, &reason);

    if (status) {
        print_error("kvlazy_check: %s (%s)\n", kvlazy_status_name(status), reason ? reason : "no reason");
        _fail(file, line);
    }
    assert_null(reason);
    for (uint32_t s = 0; s < rig->n_stream; s++) {
        kvlazy_cells_view view = view_of(rig, s);

        for (uint32_t c = 0; c < (top > view.n_cell ? top : view.n_cell); c++) {
            bool live = c < view.n_cell && view.pos[c] >= 0;

            if (c < view.n_cell && live != (!rig->params.cell_ops && owned(rig, s, c))) {
                print_error("stream %" PRIu32 " cell %" PRIu32 ": pos %d and %s owner\n", s, c, (int)view.pos[c],
                            live ? "no" : "an");
                _fail(file, line);
            }
            for (int t = 0; t < rig->n_tensor; t++)
                check_row(rig, t, s, c, live, file, line);
        }
    }
    fake_assert_kept(&rig->fake);
}

static size_t put_owners(char *out, size_t room, struct rig *rig, uint32_t stream, uint32_t cell)
{
    static kvlazy_seq_id seq[65536];
    uint32_t n_owner;
    size_t n = 0;

    ok(kvlazy_cell_owners(rig->cache, stream, cell, seq, 65536, &n_owner));
    for (uint32_t i = 0; i < n_owner; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%" PRId32, n ? "+" : "", seq[i]);
    return n;
}

/* Is cell b the next one of the run that ends in cell b - 1? */
static bool goes_on(struct rig *rig, uint32_t stream, const kvlazy_cells_view *view, uint32_t b)
{
    return view->pos[b] == view->pos[b - 1] + 1 && view->pos[b - 1] >= 0 && same_owners(rig->cache, stream, b, b - 1);
}

static void print_cells(struct rig *rig, uint32_t stream, char *out, size_t room)
{
    kvlazy_cells_view view = view_of(rig, stream);
    size_t n = 0;

    out[0] = 0;
    for (uint32_t a = 0, b; a < view.n_cell && n + 600 < room; a = b) {
        for (b = a + 1; b < view.n_cell && goes_on(rig, stream, &view, b);)
            b++;
        if (view.pos[a] < 0)
            continue;
        n += (size_t)snprintf(out + n, room - n, "%s%" PRIu32, n ? " " : "", a);
        if (b - a > 1)
            n += (size_t)snprintf(out + n, room - n, "..%" PRIu32 "=%d..%d/", b - 1, (int)view.pos[a],
                                  (int)view.pos[b - 1]);
        else
            n += (size_t)snprintf(out + n, room - n, "=%d/", (int)view.pos[a]);
        n += put_owners(out + n, room - n, rig, stream, a);
    }
}

const char *cells_text(struct rig *rig, uint32_t stream)
{
    static char text[N_TEXT][1 << 15];
    static int turn_of;
    char *out = text[turn_of++ % N_TEXT];

    print_cells(rig, stream, out, sizeof text[0]);
    return out;
}

void asked(struct rig *rig, int i, kvlazy_seq_id seq, kvlazy_pos pos)
{
    assert_true(i < rig->n_evict);
    assert_int_equal(rig->evict[i].seq, seq);
    assert_int_equal(rig->evict[i].pos, pos);
}

kvlazy_stats_info stats(struct rig *rig)
{
    kvlazy_stats_info info = {.struct_size = sizeof info};

    ok(kvlazy_stats(rig->cache, &info));
    return info;
}

char *rig_dump(struct rig *rig)
{
    const size_t room = 1 << 18;
    char *out = malloc(room);
    size_t n = 0;
    kvlazy_stats_info s = stats(rig);

    assert_non_null(out);
    for (uint32_t i = 0; i < rig->n_stream; i++) {
        n += (size_t)snprintf(out + n, room - n, "stream %" PRIu32 ": ", i);
        print_cells(rig, i, out + n, room - n - 4096);
        n += strlen(out + n);
        n += (size_t)snprintf(out + n, room - n, "\n");
    }
    for (uint32_t i = 0; i < rig->n_seq && i < 64; i++)
        n += (size_t)snprintf(out + n, room - n, "s%" PRIu32 " (%d,%d)\n", i,
                              (int)kvlazy_seq_pos_min(rig->cache, (kvlazy_seq_id)i),
                              (int)kvlazy_seq_pos_max(rig->cache, (kvlazy_seq_id)i));
    snprintf(out + n, room - n,
             "reserved %" PRIu64 " touched %" PRIu64 " released %" PRIu64 " cap %" PRIu64 " live %" PRIu64
             " grow %" PRIu64 " shrink %" PRIu64 " evict %" PRIu64 " evicted %" PRIu64 " moved %" PRIu64,
             s.reserved_bytes, s.touched_bytes, s.released_bytes, s.cap_cells, s.live_cells, s.n_grow, s.n_shrink,
             s.n_evict, s.evicted_cells, s.moved_cells);
    return out;
}

void rig_same(struct rig *rig, char *dump, const char *file, int line)
{
    char *now = rig_dump(rig);
    int differ = strcmp(now, dump);

    if (differ)
        print_error("before:\n%s\nafter:\n%s\n", dump, now);
    free(now);
    free(dump);
    if (differ)
        _fail(file, line);
}

uint32_t live_of(struct rig *r, kvlazy_seq_id seq)
{
    kvlazy_pos max = kvlazy_seq_pos_max(r->cache, seq);

    return max < 0 ? 0 : (uint32_t)(max - kvlazy_seq_pos_min(r->cache, seq) + 1); /* where it has no holes */
}

bool is_packed(struct rig *rig)
{
    for (uint32_t s = 0; s < rig->n_stream; s++) {
        kvlazy_cells_view view = view_of(rig, s);
        uint32_t end = view.n_cell, n = 0;

        while (n < view.n_cell && view.pos[n] >= 0)
            n++;
        while (end > n && view.pos[end - 1] < 0)
            end--;
        if (n != end)
            return false;
    }
    return true;
}

bool cells_zero(struct rig *rig, uint32_t stream, uint32_t lo, uint32_t hi)
{
    for (int t = 0; t < rig->n_tensor; t++) {
        const unsigned char *at = row(rig, t, stream, lo);

        for (size_t i = 0; i < (hi - lo) * rig->tensor[t].row_bytes; i++)
            if (at[i]) {
                print_message("tensor %d: byte %zu of cell %zu is %02x\n", t, i % rig->tensor[t].row_bytes,
                              lo + i / rig->tensor[t].row_bytes, at[i]);
                return false;
            }
    }
    return true;
}

/* ---- time ---- */

int poll_next(struct rig *rig, uint64_t *next)
{
    const uint64_t rubbish = 0xDEADDEADDEADDEADu;
    int status;

    *next = rubbish;
    status = kvlazy_poll(rig->cache, next);
    assert_true(*next != rubbish);
    return status;
}

uint64_t settle(struct rig *rig)
{
    uint64_t start = rig->fake.now, next;

    for (int i = 0;; i++) {
        ok(poll_next(rig, &next));
        if (next == UINT64_MAX)
            return rig->fake.now - start;
        assert_true(i < 64);
        rig->fake.now += next;
    }
}
