/* SPDX-License-Identifier: MIT */
/*
 * The attention mask of a slot, element by element against the rule it is made from: the token's first
 * sequence, its own stream, causal or not, reading order, the three windows, the ALiBi distance as float and as
 * half. Examples first, then seeded operations on caches of several shapes.
 */
#include "mask_oracle.h"
#include "unit.h"

#include <inttypes.h>
#include <stdlib.h>

enum { N_BATCH = 24 };

static void put_and_mask(struct rig *r, const kvlazy_ubatch *u)
{
    ok(put_tokens(r, u, 1));
    all_masks(r, &r->slot[0], u);
}

/* ---- examples ---- */

static void of_several_sequences(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(7, POS(5, 3, 6, 4, 0, 7, 1), SEQ(0, 1, 0, 1, 2, 0, 2));

    rig_open(r);
    ok(put(r, 0, 0, 5));
    ok(put(r, 1, 0, 3));
    put_and_mask(r, &u);
    sound(r);
}

static void of_shared_cells_and_holes(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(4, POS(21, 21, 22, 20), SEQ(0, 3, 0, 1));

    rig_open(r);
    ok(put(r, 0, 0, 20));
    ok(kvlazy_seq_cp(r->cache, 0, 1, -1, -1));
    ok(put_owned(r, 2, SEQ(3, 0), 20, 1));
    ok(kvlazy_seq_rm(r->cache, 0, 3, 6));
    ok(kvlazy_seq_rm(r->cache, -1, 9, 12));
    put_and_mask(r, &u);
    sound(r);
}

static void of_the_first_owner(void **state)
{
    struct rig *r = *state;
    const kvlazy_seq_id both[] = {2, 1};
    const kvlazy_seq_id *ids[] = {both, both, both};
    kvlazy_ubatch u = {.n_token = 3, .pos = POS(4, 5, 6), .n_seq_id = (const int32_t[]){2, 2, 2}, .seq_id = ids};

    rig_open(r);
    ok(put(r, 1, 0, 4));
    ok(put(r, 2, 3, 1));
    put_and_mask(r, &u);
}

static void of_one_slot_of_many(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u[3] = {UBATCH(2, POS(3, 4), SEQ(0, 0)), UBATCH(3, POS(5, 6, 7), SEQ(0, 0, 0)),
                          UBATCH(1, POS(0), SEQ(1))};

    rig_open(r);
    ok(put(r, 0, 0, 3));
    ok(put_tokens(r, u, 3));
    for (int i = 0; i < 3; i++)
        all_masks(r, &r->slot[i], &u[i]);
}

static void of_several_streams(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(6, POS(300, 2, 0, 3, 301, 1), SEQ(0, 1, 3, 1, 0, 3));

    r->params.n_stream = 4;
    r->params.n_seq_max = 4;
    rig_open(r);
    ok(put(r, 0, 0, 300));
    ok(put(r, 1, 0, 2));
    ok(put(r, 2, 0, 40));
    put_and_mask(r, &u);
    sound(r);
}

/* Text, an image whose tokens share a position, text again; and a batch that ends inside an image. */
static void with_planes(void **state)
{
    struct rig *r = *state;
    /* position, y, x, rest; the stride is longer than the tokens */
    const kvlazy_pos first[4][8] = {{0, 1, 2, 2, 2, 2, 5, 6}, {0, 1, 2, 2, 3, 3, 5, 6}, {0, 1, 2, 3, 2, 3, 5, 6}, {0}};
    const kvlazy_pos second[4][8] = {{7, 7, 7, 7, 7, 9}, {7, 7, 8, 8, 8, 9}, {7, 8, 6, 7, 8, 9}, {0}};
    kvlazy_ubatch u = {.n_token = 8, .pos = first[0], .seq = SEQ(0, 0, 0, 0, 0, 0, 0, 0)};
    kvlazy_ubatch w = {.n_token = 6, .pos = second[0], .pos_stride = 8, .seq = SEQ(0, 0, 0, 0, 0, 0)};

    r->params.n_pos_per_token = 4;
    rig_open(r);
    put_and_mask(r, &u);
    put_and_mask(r, &w);
    sound(r);
}

/* With planes positions may leave gaps, so distances of every size can be had. */
static void with_distances_of_every_size(void **state)
{
    struct rig *r = *state;
    static const kvlazy_pos far[] = {
        0,     1,     2,     3,     1023,  1024,   2047,    2048,     2049,          2050,  2051,
        4094,  4098,  4102,  4103,  8191,  8196,   8204,    32767,    32784,         65503, 65504,
        65505, 65519, 65520, 65535, 65536, 131072, 1000000, 16777217, INT32_MAX - 1,
    };
    kvlazy_pos pos[3 * N_OF(far)] = {0};
    kvlazy_seq_id seq[N_OF(far)] = {0};
    uint32_t n = (uint32_t)N_OF(far);
    kvlazy_ubatch u = {.n_token = n, .pos = pos, .seq = seq};

    for (uint32_t i = 0; i < n; i++)
        pos[i] = far[i];
    r->params.n_pos_per_token = 3;
    rig_open(r);
    put_and_mask(r, &u);
    for (int64_t d = 0; d < 140000; d++) /* the rule itself: never infinite, never over half a unit away */
        assert_true(-nearest_half(d) <= 65504 && (d > 65504 || llabs((int64_t)-nearest_half(d) - d) <= 16));
}

static void through_windows(void **state)
{
    static const uint32_t size[] = {1, 2, 3, 4, 7, 16, 100, INT32_MAX};

    (void)state;
    for (int type = KVLAZY_SWA_STANDARD; type <= KVLAZY_SWA_SYMMETRIC; type++)
        for (size_t k = 0; k < N_OF(size); k++) {
            struct rig *r = rig_new();
            kvlazy_ubatch u = UBATCH(6, POS(37, 38, 39, 40, 8, 9), SEQ(0, 0, 0, 0, 1, 1));

            r->params.swa_type = type;
            r->params.n_swa = size[k];
            rig_open(r);
            ok(put(r, 0, 0, 37));
            ok(put(r, 1, 0, 8));
            put_and_mask(r, &u);
            sound(r);
            rig_free(r);
        }
}

/* Every other cell is another sequence's, then come cells in one piece with a hole: rows that follow one another lose
 * and gain single cells, runs and both at once. Sizes of windows around those of the pieces. */
static void of_scattered_cells(void **state)
{
    static const uint32_t size[] = {1, 29, 58, 64, 116, 200, 232};
    kvlazy_pos pos[232];
    kvlazy_seq_id seq[232];
    kvlazy_ubatch in_turn = {.n_token = (uint32_t)N_OF(pos), .pos = pos, .seq = seq};

    (void)state;
    for (size_t i = 0; i < N_OF(pos); i++) {
        pos[i] = (kvlazy_pos)i / 2;
        seq[i] = (kvlazy_seq_id)i % 2;
    }
    for (int type = KVLAZY_SWA_NONE; type <= KVLAZY_SWA_SYMMETRIC; type++)
        for (size_t k = 0; k < (type == KVLAZY_SWA_NONE ? 1 : N_OF(size)); k++) {
            struct rig *r = rig_new();
            kvlazy_ubatch u =
                UBATCH(9, POS(230, 231, 232, 116, 117, 233, 118, 119, 120), SEQ(0, 0, 0, 1, 1, 0, 1, 1, 1));

            r->params.swa_type = type;
            r->params.n_swa = type == KVLAZY_SWA_NONE ? 0 : size[k];
            rig_open(r);
            ok(put_tokens(r, &in_turn, 1));
            ok(put(r, 0, 116, 114));
            ok(kvlazy_seq_rm(r->cache, 0, 170, 173));
            put_and_mask(r, &u);
            sound(r);
            rig_free(r);
        }
}

/* With planes positions may leave gaps, so that a window leaves many cells at once: scattered ones and the begin of a
 * long run. Most of the row stays shown. */
static void of_windows_that_jump(void **state)
{
    enum { N_IN_TURN = 40, N = 260 };

    (void)state;
    for (int type = KVLAZY_SWA_STANDARD; type <= KVLAZY_SWA_SYMMETRIC; type++) {
        struct rig *r = rig_new();
        kvlazy_pos pos[3 * N] = {0};
        kvlazy_seq_id seq[N] = {0};
        kvlazy_ubatch u = {.n_token = N, .pos = pos, .seq = seq};

        for (int i = 0; i < N; i++) {
            seq[i] = i < N_IN_TURN ? i % 2 : 0;
            pos[i] = i < N_IN_TURN ? i / 2 : i - N_IN_TURN / 2;
            pos[i] += i < N - 6 ? 0 : 30 * (i - N + 7);
        }
        r->params.n_pos_per_token = 3;
        r->params.n_pad = 1;
        r->params.swa_type = type;
        r->params.n_swa = type == KVLAZY_SWA_SYMMETRIC ? 480 : 240;
        rig_open(r);
        put_and_mask(r, &u);
        rig_free(r);
    }
}

/* An empty sequence takes positions in any order, as after a restore: views go back and forth, and a row shows less
 * than the one before it. */
static void of_tokens_in_any_order(void **state)
{
    enum { N = 151 };

    (void)state;
    for (int type = KVLAZY_SWA_NONE; type <= KVLAZY_SWA_SYMMETRIC; type++)
        for (uint32_t n_plane = 1; n_plane <= 3; n_plane += 2)
            for (uint32_t step = 1; step < N; step += 37) { /* N is prime */
                struct rig *r = rig_new();
                kvlazy_pos pos[3 * N] = {0};
                kvlazy_seq_id seq[N] = {0};
                kvlazy_ubatch u = {.n_token = N, .pos = pos, .seq = seq};

                for (uint32_t i = 0; i < N; i++)
                    pos[i] = (kvlazy_pos)(5 + (N - 1 - i) * step % N);
                r->params.n_pos_per_token = n_plane;
                r->params.swa_type = type;
                r->params.n_swa = type == KVLAZY_SWA_NONE ? 0 : 31;
                rig_open(r);
                put_and_mask(r, &u);
                rig_free(r);
            }
}

/* The examples of semantics: what a query at 10 or 12 sees through a window of 4. */
static void window_examples(void **state)
{
    static const struct {
        int type;
        kvlazy_pos query, first, last; /* of positions 0..14 that are seen, without causal */
    } example[] = {{KVLAZY_SWA_STANDARD, 10, 7, 14},
                   {KVLAZY_SWA_CHUNKED, 10, 8, 14},
                   {KVLAZY_SWA_CHUNKED, 12, 12, 14},
                   {KVLAZY_SWA_SYMMETRIC, 10, 8, 12}};

    (void)state;
    for (size_t k = 0; k < N_OF(example); k++) {
        struct rig *r = rig_new();
        kvlazy_pos pos[15];
        kvlazy_seq_id seq[15] = {0};
        float row[15][64];
        kvlazy_mask_info m = {.struct_size = sizeof m, .data = row, .data_bytes = sizeof row};
        kvlazy_ubatch u = {.n_token = 15, .pos = pos, .seq = seq};

        for (int i = 0; i < 15; i++)
            pos[i] = i;
        r->params.n_pad = 64;
        r->params.swa_type = example[k].type;
        r->params.n_swa = 4;
        rig_open(r);
        ok(put_tokens(r, &u, 1));
        ok(kvlazy_mask(r->cache, &r->slot[0], &u, &m));
        for (int p = 0; p < 15; p++)
            assert_true((row[example[k].query][p] == 0) == (p >= example[k].first && p <= example[k].last));
        rig_free(r);
    }
}

/* After a shift, and after the engine took cells of the slot away. */
static void of_what_is_left(void **state)
{
    struct rig *r = *state;
    kvlazy_ubatch u = UBATCH(3, POS(20, 21, 22), SEQ(0, 0, 0));

    rig_open(r);
    ok(put(r, 0, 0, 20));
    ok(kvlazy_seq_add(r->cache, 0, 4, -1, 3));
    ok(kvlazy_seq_add(r->cache, 0, 0, -1, -3));
    ok(kvlazy_shift_done(r->cache));
    put_and_mask(r, &u);
    ok(kvlazy_seq_rm(r->cache, 0, 7, 22));
    all_masks(r, &r->slot[0], &u);
    ok(kvlazy_seq_rm(r->cache, 0, -1, -1));
    all_masks(r, &r->slot[0], &u);
}

/* ---- seeded ---- */

struct shape {
    const char *name;
    uint32_t n_stream, n_seq, n_plane, n_pad, n_swa;
    int swa_type;
};

static const struct shape shapes[] = {
    {"plain", 1, 4, 1, 1, 0, KVLAZY_SWA_NONE},
    {"many sequences", 1, 200, 1, 32, 0, KVLAZY_SWA_NONE},
    {"streams", 4, 4, 1, 16, 0, KVLAZY_SWA_NONE},
    {"planes", 1, 4, 3, 64, 0, KVLAZY_SWA_NONE},
    {"standard", 1, 4, 1, 256, 11, KVLAZY_SWA_STANDARD},
    {"chunked", 1, 4, 1, 8, 12, KVLAZY_SWA_CHUNKED},
    {"symmetric", 1, 4, 1, 8, 9, KVLAZY_SWA_SYMMETRIC},
    {"streams, planes, window", 3, 3, 4, 16, 20, KVLAZY_SWA_STANDARD},
};

struct tokens {
    kvlazy_pos pos[4 * N_BATCH];
    kvlazy_seq_id seq[N_BATCH];
    kvlazy_ubatch ubatch;
};

/* Some tokens of some sequences, mixed, that go on where these end. */
static void draw(struct rig *r, struct tokens *t, uint64_t *seed)
{
    uint32_t n = 1 + (uint32_t)(next_random(seed) % N_BATCH), n_seq = 1 + (uint32_t)(next_random(seed) % 3);
    bool planes = r->params.n_pos_per_token > 1;
    kvlazy_seq_id first = (kvlazy_seq_id)(next_random(seed) % r->n_seq);

    t->ubatch = (kvlazy_ubatch){.n_token = n, .pos = t->pos, .pos_stride = N_BATCH, .seq = t->seq};
    for (uint32_t i = 0; i < n; i++) {
        kvlazy_seq_id seq = (kvlazy_seq_id)((first + next_random(seed) % n_seq) % r->n_seq);
        kvlazy_pos last = kvlazy_seq_pos_max(r->cache, seq);

        for (uint32_t k = 0; k < i; k++)
            last = t->seq[k] == seq ? t->pos[k] : last;
        t->seq[i] = seq;
        t->pos[i] = last + (planes && last >= 0 ? (kvlazy_pos)(next_random(seed) % 3) : 1);
        for (int plane = 1; plane < 4; plane++)
            t->pos[plane * N_BATCH + i] = (kvlazy_pos)(next_random(seed) % 4);
    }
}

static void disturb(struct rig *r, uint64_t *seed)
{
    kvlazy_seq_id seq = (kvlazy_seq_id)(next_random(seed) % r->n_seq);
    kvlazy_seq_id other = (kvlazy_seq_id)(next_random(seed) % r->n_seq);
    kvlazy_pos last = kvlazy_seq_pos_max(r->cache, seq);
    kvlazy_pos from = last > 0 ? (kvlazy_pos)(next_random(seed) % (uint32_t)last) : 0;

    switch (next_random(seed) % 6) {
    case 0:
        ok(kvlazy_seq_rm(r->cache, seq, from, from + 9));
        break;
    case 1:
        ok(kvlazy_seq_rm(r->cache, seq, -1, -1));
        break;
    case 2:
        if (r->n_stream == 1) /* the rig knows nothing of copied rows */
            ok(kvlazy_seq_cp(r->cache, seq, other, from, -1));
        break;
    case 3:
        if (r->params.n_pos_per_token == 1)
            ok(kvlazy_seq_add(r->cache, seq, from, -1, (kvlazy_pos)(next_random(seed) % 9) - 4));
        ok(kvlazy_shift_done(r->cache));
        break;
    }
}

static void seeded(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_OF(shapes); k++) {
        struct rig *r = rig_new();
        uint64_t seed = 7 + k;
        uint32_t n_mask = 0;
        struct tokens t;

        r->params.n_stream = shapes[k].n_stream;
        r->params.n_seq_max = shapes[k].n_seq;
        r->params.n_pos_per_token = shapes[k].n_plane;
        r->params.n_pad = shapes[k].n_pad;
        r->params.n_swa = shapes[k].n_swa;
        r->params.swa_type = shapes[k].swa_type;
        rig_open(r);
        for (int round = 0; round < 600; round++) {
            ok(kvlazy_init_batch(r->cache));
            draw(r, &t, &seed);
            if (put_tokens(r, &t.ubatch, 1) == KVLAZY_OK) {
                uint64_t kind = next_random(&seed);

                one_mask(r, &r->slot[0], &t.ubatch, kind & 1 ? KVLAZY_MASK_F16 : KVLAZY_MASK_F32, kind & 2, kind & 4,
                         kind & 8 ? kvlazy_n_kv(r->cache, &r->slot[0]) + (kind >> 8) % 70 : 0, (kind >> 16) % 5,
                         (kind >> 24) % 4);
                n_mask++;
            } else {
                ok(kvlazy_seq_rm(r->cache, (kvlazy_seq_id)(next_random(&seed) % r->n_seq), -1, -1));
            }
            ok(kvlazy_end_batch(r->cache));
            disturb(r, &seed);
        }
        sound(r);
        rig_free(r);
        if (n_mask < 200)
            fail_msg("%s: only %" PRIu32 " masks", shapes[k].name, n_mask);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(of_several_sequences),
        RIG_TEST(of_shared_cells_and_holes),
        RIG_TEST(of_the_first_owner),
        RIG_TEST(of_one_slot_of_many),
        RIG_TEST(of_several_streams),
        RIG_TEST(with_planes),
        RIG_TEST(with_distances_of_every_size),
        cmocka_unit_test(through_windows),
        cmocka_unit_test(of_scattered_cells),
        cmocka_unit_test(of_windows_that_jump),
        cmocka_unit_test(of_tokens_in_any_order),
        cmocka_unit_test(window_examples),
        RIG_TEST(of_what_is_left),
        cmocka_unit_test(seeded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
