/* SPDX-License-Identifier: MIT */
/*
 * Random geometries under random operations: pages of three sizes, rows that divide nothing, both layouts, tensors of
 * the library and of the engine side by side, with bytes between cells, channels, streams and tensors that nobody
 * names. After every operation every byte is held against the promises. The seed is printed; KVLAZY_TEST_SEED replays
 * one, KVLAZY_TEST_GEOMETRIES sets how many there are, KVLAZY_TEST_FIRST the number of the first.
 */
#include "layout_support.h"

#include <inttypes.h>
#include <stdlib.h>

enum { GEOMETRIES = KVLAZY_CHECKS >= 2 ? 300 : 600, STEPS = 24, GEOMETRY_BYTES = 256 << 10 };

static uint64_t seed, at_geometry;
static kvlazy_stats_info sights; /* of all geometries together */

static uint32_t below(uint32_t n)
{
    return (uint32_t)(next_random(&seed) % n);
}

static bool one_in(uint32_t n)
{
    return below(n) == 0;
}

/* ---- a geometry ---- */

static uint32_t some_channels(size_t *row_bytes)
{
    static const uint32_t element[] = {1, 2, 2, 2, 4, 3, 34};
    uint32_t n = 1 + below(40), bytes = element[below(N_OF(element))];

    *row_bytes = (size_t)n * bytes;
    return n;
}

static size_t some_row(void)
{
    static const size_t row[] = {34, 36, 272, 1088, 1, 2, 64, 512, 4096, 5000, 100, 260, 1000, 17000};

    return row[below(N_OF(row))];
}

static void random_layers(struct bed *bed)
{
    uint32_t n = 1 + below(BED_LAYERS);

    for (uint32_t i = 0; i < n; i++) {
        kvlazy_layer *l = bed_layer(bed, one_in(6) ? 0 : some_row(), 0, 0);

        if (one_in(3))
            l->v_channels = some_channels(&l->v_row_bytes);
        else if (!one_in(4))
            l->v_row_bytes = some_row();
    }
}

static size_t cell_bytes(const struct bed *bed)
{
    size_t n = 1;

    for (uint32_t i = 0; i < bed->params.n_layer; i++)
        n += bed->layers[i].k_row_bytes + bed->layers[i].v_row_bytes;
    return n;
}

static size_t some_padding(struct bed *bed)
{
    static const size_t padding[] = {1, 7, 64, 640};

    return one_in(8) ? bed->fake.page : padding[below(N_OF(padding))];
}

/* Strides of the engine's own, from inside out. */
static kvlazy_tensor random_strides(struct bed *bed, size_t row_bytes, uint32_t n_channel)
{
    uint32_t kv_size = bed->params.kv_size, n_stream = bed->params.n_stream, n_lane = n_channel ? n_channel : 1;
    kvlazy_tensor t = {.row_bytes = row_bytes, .n_channel = n_channel};
    bool streams_inside = n_channel && one_in(2);

    t.cell_stride = row_bytes / n_lane + (one_in(5) ? some_padding(bed) : 0);
    size_t lane = (kv_size - 1) * t.cell_stride + row_bytes / n_lane + (one_in(3) ? some_padding(bed) : 0);
    size_t inner = (streams_inside ? n_stream : n_lane) * lane + (one_in(3) ? some_padding(bed) : 0);
    t.channel_stride = !n_channel ? 0 : streams_inside ? inner : lane;
    t.stream_stride = streams_inside ? lane : inner;
    return t;
}

/* Carves the engine's tensors out of some arenas, in the order of `kv`: bit 0 says K or V, the rest the layer. */
static void carve(struct bed *bed, const uint32_t *kv, uint32_t n_kv)
{
    uint32_t n_arena = 1 + below(BED_ARENAS - 1);
    size_t at[BED_ARENAS] = {0}, offset[BED_TENSORS];
    uint32_t where[BED_LAYERS], owner[BED_TENSORS];

    for (uint32_t i = 0; i < BED_LAYERS; i++)
        where[i] = below(n_arena);
    for (uint32_t i = 0; i < n_kv; i++) {
        size_t *end = &at[owner[i] = where[kv[i] / 2]];

        *end += one_in(3) ? 0 : one_in(2) ? below(900) : (bed->fake.page - *end % bed->fake.page) % bed->fake.page;
        offset[i] = *end;
        *end += bed_tensor_bytes(&bed->theirs[kv[i]], bed->params.kv_size, bed->params.n_stream);
    }
    for (uint32_t a = 0; a < n_arena; a++)
        bed_arena(bed, at[a] + 1 + below(500));
    for (uint32_t i = 0; i < n_kv; i++) {
        bed->theirs[kv[i]].data = bed->area[owner[i]].base + offset[i];
        bed->layers[kv[i] / 2].arena = bed->area[owner[i]].arena;
    }
}

static void place_tensors(struct bed *bed)
{
    uint32_t kv[BED_TENSORS], n = 0, share = 1 + below(4);

    for (uint32_t i = 0; share < 4 && i < 2 * bed->params.n_layer; i++) {
        kvlazy_layer *l = &bed->layers[i / 2];
        size_t bytes = i % 2 ? l->v_row_bytes : l->k_row_bytes;

        if (!bytes || below(4) < share)
            continue;
        bed->theirs[i] = random_strides(bed, bytes, i % 2 ? l->v_channels : 0);
        *(i % 2 ? &l->v : &l->k) = &bed->theirs[i];
        if (!one_in(25)) /* else on a device */
            kv[n++] = i;
    }
    for (uint32_t i = 0; i < n; i++) { /* in any order */
        uint32_t k = below(n), other = kv[k];

        kv[k] = kv[i];
        kv[i] = other;
    }
    if (n)
        carve(bed, kv, n);
}

static struct bed *random_bed(void)
{
    static const size_t page[] = {4096, 4096, 4096, 16384, 65536};
    struct bed *bed = bed_new(page[below(N_OF(page))]);
    kvlazy_params *p = &bed->params;

    if (bed->fake.page > 4096 && one_in(2)) { /* that the host grants over its own */
        fake_grant(&bed->fake, bed->fake.page, one_in(2));
        p->page_bytes = bed->fake.page;
    }
    random_layers(bed);
    p->n_stream = one_in(2) ? 1 : 2 + below(BED_SEQS - 1);
    p->n_seq_max = p->n_stream > 1 ? p->n_stream : 1 + below(BED_SEQS);
    size_t most = GEOMETRY_BYTES * (bed->fake.page / 4096 > 4 ? 2 : 1) / cell_bytes(bed) / p->n_stream;
    p->kv_size = 1 + below((uint32_t)(most < 2 ? 2 : most > 700 ? 700 : most));
    p->kv_size_initial = one_in(2) ? 0 : 1 + below(p->kv_size);
    p->n_pad = 1u << below(9);
    p->shrink = one_in(5) ? KVLAZY_SHRINK_WHOLE : KVLAZY_SHRINK_TAILS;
    p->flags = one_in(4) ? KVLAZY_NO_COMMIT_AHEAD : 0;
    p->slot_shrink_idle_ms = one_in(8) ? 0 : 500;
    bed->fake.dirty_reserve = one_in(6);
    place_tensors(bed);
    bed_open(bed);
    return bed;
}

/* ---- operations ---- */

static kvlazy_seq_id some_seq(const struct bed *bed)
{
    return (kvlazy_seq_id)below(bed->n_seq);
}

static void write_some(struct bed *bed)
{
    uint32_t n = 1 + below(1 + bed->kv_size * 2 / 3), n_ubatch = 1 + below(n < BED_UBATCHES ? n : BED_UBATCHES);
    kvlazy_seq_id seq = some_seq(bed);

    if (kvlazy_seq_pos_max(bed->cache, seq) > BED_POS / 2)
        bed_rm(bed, seq, -1, -1);
    ok(kvlazy_init_batch(bed->cache));
    int status = bed_put(bed, seq, n, n_ubatch);
    assert_true(status == KVLAZY_OK || status == KVLAZY_ENOSLOT || status == KVLAZY_EBUDGET ||
                (status == KVLAZY_ENOMEM && bed->fake.failed));
    if (!status && one_in(6)) {
        uint32_t u = below(n_ubatch);

        for (uint32_t i = u; i < n_ubatch; i++)
            ok(kvlazy_undo_ubatch(bed->cache, &bed->slot[i]));
        kvlazy_pos max = kvlazy_seq_pos_max(bed->cache, seq);
        for (kvlazy_pos p = max + 1; p < BED_POS; p++)
            bed->token[seq][p] = 0;
    }
    ok(kvlazy_end_batch(bed->cache));
}

static void decode_some(struct bed *bed)
{
    uint32_t n = 1 + below(50);
    kvlazy_seq_id seq = some_seq(bed);

    for (uint32_t i = 0; i < n && kvlazy_seq_pos_max(bed->cache, seq) < BED_POS / 2; i++) {
        bed->fake.now += below(4);
        if (bed_turn(bed, seq, 1))
            return;
    }
}

static void remove_some(struct bed *bed)
{
    kvlazy_seq_id seq = some_seq(bed);
    kvlazy_pos max = kvlazy_seq_pos_max(bed->cache, seq);
    bool whole = bed->params.shrink == KVLAZY_SHRINK_WHOLE || max < 1 || one_in(3);
    kvlazy_pos p0 = whole ? -1 : (kvlazy_pos)below((uint32_t)max + 1);
    kvlazy_pos p1 = whole || one_in(2) ? -1 : p0 + (kvlazy_pos)below((uint32_t)max + 1);

    if (p1 >= 0 && p1 <= p0)
        return;
    bed_rm(bed, seq, p0, p1);
}

static void copy_some(struct bed *bed)
{
    kvlazy_seq_id src = some_seq(bed), dst = some_seq(bed);
    kvlazy_pos p1 = one_in(2) ? -1 : (kvlazy_pos)below((uint32_t)kvlazy_seq_pos_max(bed->cache, src) + 2);

    if (src == dst || p1 == 0)
        return;
    if (kvlazy_seq_pos_min(bed->cache, dst) >= 0)
        bed_rm(bed, dst, -1, -1);
    int status = bed_cp(bed, src, dst, -1, p1);
    assert_true(status == KVLAZY_OK || status == KVLAZY_ENOSLOT || status == KVLAZY_EBUDGET ||
                status == KVLAZY_ENOTSUP || (status == KVLAZY_ENOMEM && bed->fake.failed));
}

static void look_by_and_by(struct bed *bed)
{
    bed->fake.now += below(900);
    ok(kvlazy_poll(bed->cache, NULL));
}

static void set_budget(struct bed *bed)
{
    uint64_t touched = bed_stats(bed).touched_bytes, budget = one_in(3) ? 0 : touched / (1 + below(3));
    int status = kvlazy_set_limits(bed->cache, UINT32_MAX, UINT32_MAX, budget);

    bed->n_evict += status == KVLAZY_OK; /* it may take what idling may not */
    if (status == KVLAZY_OK)
        bed->params.budget_bytes = budget;
    else
        assert_int_equal(status, KVLAZY_EBUDGET);
}

static void trouble(struct bed *bed)
{
    bed->fake.refuse_decommit = one_in(3);
    if (one_in(3))
        fake_fail(&bed->fake, FAKE_COMMIT, 1 + (int)below(4));
}

/* A host that refuses is asked again for ever. */
static void settle(struct bed *bed)
{
    for (int i = 0; bed->fake.refuse_decommit && i < 3; i++) {
        bed->fake.now += bed->params.slot_shrink_idle_ms;
        ok(kvlazy_poll(bed->cache, NULL));
    }
    if (!bed->fake.refuse_decommit)
        bed_settle(bed);
}

/* Answers whether every free page was given back. */
static bool step(struct bed *bed)
{
    uint32_t kind = below(16);

    if (getenv("KVLAZY_TEST_FIRST"))
        print_message("  step %" PRIu32 "\n", kind);
    switch (kind) {
    case 0:
    case 1:
    case 2:
    case 3:
        write_some(bed);
        return false;
    case 4:
        decode_some(bed);
        return false;
    case 5:
    case 6:
    case 7:
        remove_some(bed);
        return false;
    case 8:
        copy_some(bed);
        return false;
    case 9:
    case 10:
        look_by_and_by(bed);
        return false;
    case 11:
        settle(bed);
        return bed->params.slot_shrink_idle_ms > 0;
    case 12:
        ok(kvlazy_trim(bed->cache, one_in(2) ? 0 : 1 + below(bed->kv_size)));
        return true;
    case 13:
        set_budget(bed);
        return false;
    case 14:
        trouble(bed);
        return false;
    default:
        if (one_in(2))
            bed_keep(bed, some_seq(bed));
        else if (one_in(2))
            bed_clear(bed, one_in(2));
        return false;
    }
}

static void describe(const struct bed *bed)
{
    print_message("page %zu, %" PRIu32 " cells, %" PRIu32 " streams, initial %" PRIu32 ", idle %" PRIu32
                  ", flags %" PRIu32 "\n",
                  bed->fake.page, bed->kv_size, bed->n_stream, bed->params.kv_size_initial,
                  bed->params.slot_shrink_idle_ms, bed->params.flags);
    for (int i = 0; i < BED_ARENAS + 1; i++)
        if (bed->area[i].bytes)
            print_message("area %d: %p, %zu bytes\n", i, (void *)bed->area[i].base, bed->area[i].bytes);
    for (int i = 0; i < bed->n_tensor; i++) {
        const kvlazy_tensor *t = &bed->tensor[i];

        print_message("  %p: rows of %zu in %" PRIu32 " channels, strides %zu %zu %zu\n", t->data, t->row_bytes,
                      t->n_channel, t->cell_stride, t->channel_stride, t->stream_stride);
    }
}

static void see(struct bed *bed)
{
    kvlazy_stats_info s = bed_stats(bed);

    sights.released_bytes += s.released_bytes;
    sights.evicted_cells += s.evicted_cells;
    sights.moved_cells += s.moved_cells;
    sights.n_refusal += s.n_refusal;
    sights.n_os_refusal += s.n_os_refusal;
}

static void run_geometry(uint64_t number)
{
    seed = number;
    struct bed *bed = random_bed();

    if (getenv("KVLAZY_TEST_FIRST"))
        describe(bed);
    bed_sound(bed);
    for (int i = 0; i < STEPS; i++) {
        bool released = step(bed);

        if (released)
            bed_sound_released(bed);
        else
            bed_sound(bed);
        if (getenv("KVLAZY_TEST_FIRST"))
            bed_pattern_kept(bed);
    }
    bed_pattern_kept(bed);
    bed->fake.refuse_decommit = false;
    ok(kvlazy_trim(bed->cache, 0));
    bed_sound_released(bed);
    bed_clear(bed, true);
    bed_sound_released(bed);
    bed_pattern_kept(bed);
    see(bed);
    bed_free(bed);
}

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : otherwise;
}

static void every_byte_holds_in_any_geometry(void **state)
{
    uint64_t base = number_of("KVLAZY_TEST_SEED", 1), n = number_of("KVLAZY_TEST_GEOMETRIES", GEOMETRIES);

    (void)state;
    print_message("KVLAZY_TEST_SEED=%" PRIu64 "\n", base);
    for (uint64_t i = number_of("KVLAZY_TEST_FIRST", 0); n-- > 0; i++) {
        at_geometry = i;
        run_geometry(base * 1000003 + i);
    }
    print_message("%" PRIu64 " bytes released, %" PRIu64 " cells evicted, %" PRIu64 " moved; refused: %" PRIu64
                  " batches, %" PRIu64 " ranges\n",
                  sights.released_bytes, sights.evicted_cells, sights.moved_cells, sights.n_refusal,
                  sights.n_os_refusal);
    if (!getenv("KVLAZY_TEST_FIRST"))
        assert_true(sights.released_bytes && sights.evicted_cells && sights.moved_cells && sights.n_refusal &&
                    sights.n_os_refusal);
}

/* An assertion of the library ends the process: it says where, too. */
static int say_where(void **state)
{
    (void)state;
    print_message("the last geometry was KVLAZY_TEST_FIRST=%" PRIu64 "\n", at_geometry);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(every_byte_holds_in_any_geometry, say_where)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
