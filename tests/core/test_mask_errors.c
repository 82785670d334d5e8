/* SPDX-License-Identifier: MIT */
/*
 * What kvlazy_mask refuses, and that after an error not a byte is written; its scratch, which is asked for once.
 *
 * Linked with --wrap for reallocarray.
 */
#include "mask_oracle.h"
#include "unit.h"

#include <stdlib.h>

/* ---- errors ---- */

/* A slot of 3 tokens behind 5, applied; the mask that suits it, 256 columns. */
struct scene {
    struct rig *r;
    kvlazy_ubatch u;
    struct sheet s;
};

static struct scene scene(struct rig *r)
{
    static const kvlazy_pos pos[] = {5, 6, 7};
    static const kvlazy_seq_id seq[] = {0, 0, 0};
    struct scene c = {.r = r, .u = UBATCH(3, pos, seq)};

    rig_open(r);
    ok(put(r, 0, 0, 5));
    ok(put_tokens(r, &c.u, 1));
    c.s = sheet(KVLAZY_MASK_F32, true, false, 3, 256, 0, 0, 0);
    return c;
}

static void refused(struct scene *c, const kvlazy_slot *slot, const kvlazy_ubatch *u, const kvlazy_mask_info *m)
{
    char *before = rig_dump(c->r);

    expect(kvlazy_mask(c->r->cache, slot, u, m), KVLAZY_EINVAL);
    untouched(c->s.bytes, c->s.n_data + 2 * GUARD_BYTES);
    unchanged(c->r, before);
}

static void done(struct scene *c)
{
    ok(kvlazy_mask(c->r->cache, &c->r->slot[0], &c->u, &c->s.info)); /* it was the one thing that was wrong */
    sheet_is_right(c->r, &c->s, &c->r->slot[0], &c->u);
    free(c->s.bytes);
}

static void refuses_nothing_at_all(void **state)
{
    struct scene c = scene(*state);
    const kvlazy_slot *slot = &c.r->slot[0];

    expect(kvlazy_mask(NULL, slot, &c.u, &c.s.info), KVLAZY_EINVAL);
    refused(&c, NULL, &c.u, &c.s.info);
    refused(&c, slot, NULL, &c.s.info);
    refused(&c, slot, &c.u, NULL);
    done(&c);
}

static void refuses_a_bad_mask(void **state)
{
    struct scene c = scene(*state);
    kvlazy_mask_info m;

#define WITH(field, bad)                      \
    do {                                      \
        m = c.s.info;                         \
        m.field = (bad);                      \
        refused(&c, &c.r->slot[0], &c.u, &m); \
    } while (0)
    WITH(struct_size, 0);
    WITH(data, NULL);
    WITH(data_bytes, 0);
    WITH(data_bytes, c.s.n_data - 1);
    WITH(n_kv, 255);
    WITH(n_kv, 1);
    WITH(n_kv, 257); /* more columns than the data have */
    WITH(n_kv, UINT32_MAX);
    WITH(row_stride, 255); /* shorter than a row */
    WITH(row_stride, 1);
    WITH(row_stride, 257); /* longer than the data have */
    WITH(row_stride, SIZE_MAX);
    WITH(row_stride, SIZE_MAX / 2 + 1); /* two of these are 0 */
    WITH(row_stride, SIZE_MAX / 8 + 2);
    WITH(type, 2);
    WITH(type, -1);
#undef WITH
    done(&c);
}

static void refuses_another_slot(void **state)
{
    struct scene c = scene(*state);
    kvlazy_slot slot = c.r->slot[0];

    slot.n_token = 2;
    refused(&c, &slot, &c.u, &c.s.info);
    slot = c.r->slot[0];
    slot.cell++;
    refused(&c, &slot, &c.u, &c.s.info);
    slot = c.r->slot[0];
    slot.stream = NULL;
    refused(&c, &slot, &c.u, &c.s.info);
    done(&c);
}

static void refuses_another_ubatch(void **state)
{
    struct scene c = scene(*state);
    const kvlazy_slot *slot = &c.r->slot[0];
    const kvlazy_seq_id *none[] = {NULL, NULL, NULL};
    kvlazy_ubatch two = UBATCH(2, POS(5, 6), SEQ(0, 0)), moved = UBATCH(3, POS(5, 6, 8), SEQ(0, 0, 0)),
                  other = UBATCH(3, POS(5, 6, 7), SEQ(0, 1, 0)), no_pos = c.u, no_seq = c.u, no_id = c.u;

    no_pos.pos = NULL;
    no_seq.seq = NULL;
    no_id.seq = NULL;
    no_id.seq_id = none;
    refused(&c, slot, &two, &c.s.info);
    refused(&c, slot, &moved, &c.s.info);
    refused(&c, slot, &other, &c.s.info);
    refused(&c, slot, &no_pos, &c.s.info);
    refused(&c, slot, &no_seq, &c.s.info);
    refused(&c, slot, &no_id, &c.s.info);
    done(&c);
}

static void refuses_a_slot_that_is_not_applied(void **state)
{
    struct scene c = scene(*state);
    const kvlazy_slot *slot = &c.r->slot[0];

    ok(kvlazy_undo_ubatch(c.r->cache, slot));
    refused(&c, slot, &c.u, &c.s.info);
    ok(kvlazy_prepare(c.r->cache, &c.u, 1, c.r->slot));
    refused(&c, slot, &c.u, &c.s.info);
    ok(kvlazy_apply_ubatch(c.r->cache, slot, &c.u));
    write_rows(c.r, slot);
    ok(kvlazy_mask(c.r->cache, slot, &c.u, &c.s.info));
    sheet_is_right(c.r, &c.s, slot, &c.u);
    kvlazy_slot stale = *slot;
    kvlazy_ubatch next = UBATCH(1, POS(8), SEQ(0));
    ok(put_tokens(c.r, &next, 1));
    expect(kvlazy_mask(c.r->cache, &stale, &c.u, &c.s.info), KVLAZY_EINVAL);
    free(c.s.bytes);
}

static void refuses_other_planes(void **state)
{
    struct rig *r = *state;
    kvlazy_pos pos[3][2] = {{0, 0}, {1, 1}, {4, 5}};
    kvlazy_ubatch u = {.n_token = 2, .pos = pos[0], .seq = SEQ(0, 0)};
    struct scene c = {.r = r, .s = sheet(KVLAZY_MASK_F16, true, false, 2, 256, 0, 0, 0)};

    r->params.n_pos_per_token = 3;
    rig_open(r);
    ok(put_tokens(r, &u, 1));
    pos[1][0] = 2;
    refused(&c, &r->slot[0], &u, &c.s.info);
    pos[1][0] = 1;
    pos[2][1] = 6;
    refused(&c, &r->slot[0], &u, &c.s.info);
    pos[2][1] = 5;
    ok(kvlazy_mask(r->cache, &r->slot[0], &u, &c.s.info));
    sheet_is_right(r, &c.s, &r->slot[0], &u);
    free(c.s.bytes);
}

/* A caller of an older version, whose mask ends after n_kv. */
static void takes_a_smaller_struct(void **state)
{
    struct scene c = scene(*state);

    c.s.info.struct_size = offsetof(kvlazy_mask_info, type);
    c.s.info.type = KVLAZY_MASK_F16; /* not there: f32 */
    ok(kvlazy_mask(c.r->cache, &c.r->slot[0], &c.u, &c.s.info));
    c.s.info.type = KVLAZY_MASK_F32;
    c.s.info.causal = false;
    sheet_is_right(c.r, &c.s, &c.r->slot[0], &c.u);
    free(c.s.bytes);
}

/* ---- memory ---- */

static bool lose;
static int n_asked;

void *__real_reallocarray(void *, size_t, size_t);
void *__wrap_reallocarray(void *, size_t, size_t);

void *__wrap_reallocarray(void *p, size_t n, size_t bytes)
{
    n_asked++;
    return lose ? NULL : __real_reallocarray(p, n, bytes);
}

static void asks_for_memory_once(void **state)
{
    struct scene c = scene(*state);
    struct sheet wide = sheet(KVLAZY_MASK_F16, false, true, 3, 256, 1000, 0, 0);
    const kvlazy_slot *slot = &c.r->slot[0];

    lose = true;
    expect(kvlazy_mask(c.r->cache, slot, &c.u, &c.s.info), KVLAZY_ENOMEM);
    lose = false;
    untouched(c.s.bytes, c.s.n_data + 2 * GUARD_BYTES);
    ok(kvlazy_mask(c.r->cache, slot, &c.u, &c.s.info));
    n_asked = 0;
    for (int i = 0; i < 20; i++)
        ok(kvlazy_mask(c.r->cache, slot, &c.u, &c.s.info));
    assert_int_equal(n_asked, 0);
    lose = true;
    expect(kvlazy_mask(c.r->cache, slot, &c.u, &wide.info), KVLAZY_ENOMEM);
    lose = false;
    untouched(wide.bytes, wide.n_data + 2 * GUARD_BYTES);
    ok(kvlazy_mask(c.r->cache, slot, &c.u, &wide.info));
    sheet_is_right(c.r, &wide, slot, &c.u);
    sheet_is_right(c.r, &c.s, slot, &c.u);
    free(wide.bytes);
    free(c.s.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(refuses_nothing_at_all),
        RIG_TEST(refuses_a_bad_mask),
        RIG_TEST(refuses_another_slot),
        RIG_TEST(refuses_another_ubatch),
        RIG_TEST(refuses_a_slot_that_is_not_applied),
        RIG_TEST(refuses_other_planes),
        RIG_TEST(takes_a_smaller_struct),
        RIG_TEST(asks_for_memory_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
