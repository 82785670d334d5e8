/* SPDX-License-Identifier: MIT */
/*
 * What must hold on the bed of layout_support.h: the bytes of live and dead cells, the tokens of each sequence, figures
 * and addresses; and its cells as text.
 */
#include "layout_support.h"
#include "owners.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- what must hold ---- */

kvlazy_cells_view bed_view(struct bed *bed, uint32_t stream)
{
    kvlazy_cells_view view = {.struct_size = sizeof view};

    ok(kvlazy_cells(bed->cache, stream, &view));
    assert_true(view.n_cell <= bed->kv_size);
    return view;
}

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
        bed_drop(bed, (kvlazy_seq_id)id, max + 1, -1);
    }
}

static void check_cells(struct bed *bed, bool released, const char *file, int line)
{
    uint32_t n_token[BED_SEQS] = {0};

    for (uint32_t s = 0; s < bed->n_stream; s++) {
        kvlazy_cells_view view = bed_view(bed, s);

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
        bed_release_pages(bed);
    bed->n_os_refusal = s.n_os_refusal;
    if (s.touched_bytes < live || s.touched_bytes > bed_may_bytes(bed) || s.touched_bytes > s.reserved_bytes ||
        s.touched_bytes > most) {
        print_error("touched_bytes %" PRIu64 ": live pages %" PRIu64 ", written ones %" PRIu64 ", reserved %" PRIu64
                    ", budget %" PRIu64 "\n",
                    s.touched_bytes, live, bed_may_bytes(bed), s.reserved_bytes, bed->params.budget_bytes);
        wrong(file, line);
    }
    bed->failed |= bed->fake.failed;
    if (bed->params.flags & KVLAZY_NO_COMMIT_AHEAD)
        return;
    uint64_t committed = bed->fake.committed_bytes;
    bool more_may_be = bed->failed && bed->n_area;
    if ((s.touched_bytes > committed && !bed->leaves_pages) || (s.touched_bytes < committed && !more_may_be)) {
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
    kvlazy_cells_view view = bed_view(bed, stream);
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
