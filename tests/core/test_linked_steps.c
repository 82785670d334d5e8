/* SPDX-License-Identifier: MIT */
/*
 * Linked caches over many random steps of an engine: twins keep identical cells, all end at the same positions, and a
 * window holds what the next token sees of what the full cache holds.
 */
#include "linked_support.h"

static uint32_t next_random(uint32_t *seed, uint32_t n)
{
    *seed = *seed * 1664525 + 1013904223;
    return (*seed >> 8) % n;
}

static bool shares(struct rig *r, kvlazy_seq_id seq)
{
    uint32_t stream = r->n_stream == 1 ? 0 : (uint32_t)seq;
    kvlazy_cells_view view = look(r, stream);

    for (uint32_t c = 0; c < view.n_cell; c++)
        if (is_owner(r->cache, stream, c, (uint32_t)seq) && owner_bits(r->cache, stream, c) != UINT64_C(1) << seq)
            return true;
    return false;
}

/* What moves down is at least a window long, so that no token sees what stays in front and may be lost; and it is
 * nobody else's, since a window may have lost it for one owner and not for another. */
static void shift_all(struct group *g, kvlazy_seq_id seq, kvlazy_pos at)
{
    for (int i = 0; i < g->n; i++) {
        const kvlazy_params *p = &g->r[i]->params;

        if (p->swa_type == KVLAZY_SWA_CHUNKED || max_of(g, 0, seq) - (at + 5) < (kvlazy_pos)p->n_swa)
            return;
    }
    if (shares(g->r[0], seq))
        return;
    rm_all(g, seq, at, at + 5);
    for (int i = 0; i < g->n; i++) {
        ok(kvlazy_seq_add(g->r[i]->cache, seq, at + 5, -1, -5));
        ok(kvlazy_shift_done(g->r[i]->cache));
    }
}

/* What an engine may do, done to all. Answers what a put answered. */
static int random_step(struct group *g, uint32_t *seed)
{
    kvlazy_seq_id seq = (kvlazy_seq_id)next_random(seed, g->r[0]->n_seq);
    kvlazy_seq_id other = (kvlazy_seq_id)next_random(seed, g->r[0]->n_seq);
    kvlazy_pos max = max_of(g, 0, seq), at = max >= 0 ? (kvlazy_pos)next_random(seed, (uint32_t)max + 1) : 0;
    struct rig *any = g->r[next_random(seed, (uint32_t)g->n)];
    int status;

    later(g, next_random(seed, 60));
    switch (next_random(seed, 26)) {
    case 0:
        rm_all(g, seq, at, -1);
        break;
    case 1:
        rm_all(g, seq, -1, -1);
        break;
    case 2:
        rm_all(g, -1, at, -1);
        break;
    case 3:
        at = next_random(seed, 2) ? -1 : at;
        status = KVLAZY_OK;
        for (int i = 0; !status && i < g->n; i++) /* the full one is told first */
            status = cp(g->r[i], seq, other, -1, at);
        if (status) { /* one has no room */
            assert_int_equal(status, KVLAZY_ENOSLOT);
            rm_all(g, other, -1, -1);
        }
        break;
    case 12: /* with chunks, what is cut later may end at a hole */
        if (g->r[g->n - 1]->params.swa_type != KVLAZY_SWA_CHUNKED)
            rm_all(g, seq, at, at + 1 + (kvlazy_pos)next_random(seed, 9));
        break;
    case 13:
        shift_all(g, seq, at);
        break;
    case 4:
        ok(kvlazy_trim(any->cache, next_random(seed, 2) ? 0 : 20 + next_random(seed, 100)));
        break;
    case 5:
        if (next_random(seed, 16) == 0)
            ok(kvlazy_clear(any->cache, next_random(seed, 2)));
        break;
    case 6:
        for (int i = 0; i < g->n; i++)
            ok(kvlazy_seq_keep(g->r[i]->cache, seq));
        break;
    case 7:
        ok(kvlazy_init_batch(any->cache));
        if (!put_all(g, seq, max + 1, 1 + next_random(seed, 30)))
            for (int i = 0; i < g->n; i++)
                ok(kvlazy_undo_ubatch(g->r[i]->cache, &g->slot[i]));
        ok(kvlazy_end_batch(any->cache));
        break;
    case 8:
    case 9:
    case 10:
    case 11:
        ok(kvlazy_poll(any->cache, NULL));
        break;
    default:
        return turn_all(g, seq, max + 1, 1 + next_random(seed, 20));
    }
    return KVLAZY_OK;
}

/* The first position that the next token at `next` sees. */
static kvlazy_pos seen_from(const kvlazy_params *p, kvlazy_pos next)
{
    kvlazy_pos n = (kvlazy_pos)p->n_swa;
    kvlazy_pos begin = p->swa_type == KVLAZY_SWA_CHUNKED ? next / n * n : next - n + 1;

    return p->swa_type == KVLAZY_SWA_NONE || begin < 0 ? 0 : begin;
}

static bool holds(struct rig *r, kvlazy_seq_id seq, kvlazy_pos pos)
{
    uint32_t stream = r->n_stream == 1 ? 0 : (uint32_t)seq;
    kvlazy_cells_view view = look(r, stream);

    for (uint32_t c = 0; c < view.n_cell; c++)
        if (view.pos[c] == pos && is_owner(r->cache, stream, c, (uint32_t)seq))
            return true;
    return false;
}

/* Of what the first, a full one, holds, each holds all that the next token sees there. */
static void windows_filled(struct group *g)
{
    for (kvlazy_seq_id s = 0; s < (kvlazy_seq_id)g->r[0]->n_seq; s++)
        for (int i = 1; i < g->n; i++) {
            kvlazy_pos max = max_of(g, 0, s), begin = seen_from(&g->r[i]->params, max + 1);

            if (max_of(g, i, s) != max && begin != max + 1)
                fail_msg("sequence %d ends at %d and at %d", s, max, max_of(g, i, s));
            if (g->r[i]->params.swa_type == KVLAZY_SWA_NONE)
                continue;
            for (kvlazy_pos p = begin; p <= max; p++)
                if (holds(g->r[0], s, p) && !holds(g->r[i], s, p))
                    fail_msg("sequence %d ends at %d and its window has no %d", s, max, p);
        }
}

static void run_steps(struct group *g, uint32_t seed, int n_step, bool twins)
{
    uint32_t n_put = 0;

    for (int i = 0; i < n_step; i++) {
        n_put += random_step(g, &seed) == KVLAZY_OK;
        if (twins)
            agree(g);
        else
            windows_filled(g);
        for (int k = 1; twins && k < g->n; k++)
            for (uint32_t s = 0; s < g->r[0]->n_stream; s++)
                assert_string_equal(cells_text(g->r[k], s), cells_text(g->r[0], s));
        if (i % 32 == 0)
            all_sound(g);
    }
    all_sound(g);
    assert_true(n_put > (uint32_t)n_step / 4);
    assert_int_not_equal(stats(g->r[0]).n_evict, 0);
}

static void a_cache_and_its_index(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 2; i++) {
        g->r[i]->params.kv_size = 256;
        g->r[i]->params.kv_size_initial = 80;
    }
    open_linked(g, 2);
    run_steps(g, 1, 2500, true);
}

static void a_cache_and_its_index_by_streams(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 2; i++) {
        g->r[i]->params.n_stream = 4;
        g->r[i]->params.kv_size = 128;
    }
    g->r[1]->params.kv_size_initial = 30; /* the index decides for both */
    g->r[0]->veto = g->r[1]->veto = 4;
    open_linked(g, 2);
    run_steps(g, 2, 1000, true);
}

static void a_window_and_its_index(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 2; i++) {
        set_window(g->r[i], 128, 16);
        g->r[i]->params.kv_size_initial = 60;
    }
    open_linked(g, 2);
    run_steps(g, 3, 2000, true);
}

static void a_full_one_and_a_window(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 6; seed++) {
        void *one;
        struct group *g;

        group_setup(&one);
        g = one;
        g->r[0]->params.kv_size_initial = 150;
        set_window(g->r[1], 100, 8);
        g->r[1]->params.swa_type = seed % 2 ? KVLAZY_SWA_CHUNKED : KVLAZY_SWA_STANDARD;
        g->r[1]->params.kv_size_initial = 50;
        open_linked(g, 2);
        run_steps(g, seed, 700, false);
        group_teardown(&one);
    }
}

static void three_of_a_kind_each(void **state)
{
    struct group *g = *state;

    g->r[0]->params.kv_size_initial = 150;
    g->r[1]->params.kv_size = 200;
    set_window(g->r[2], 100, 8);
    g->r[2]->params.kv_size_initial = 50;
    open_linked(g, 3);
    run_steps(g, 8005, 2000, false);
}

static void dense_ones_by_streams(void **state)
{
    struct group *g = *state;

    for (int i = 0; i < 3; i++) {
        g->r[i]->params.n_stream = 4;
        g->r[i]->params.kv_size = 100 + 50 * (uint32_t)i;
        g->r[i]->params.kv_size_initial = 60 - 10 * (uint32_t)i;
        g->r[i]->params.keep_tokens = i == 1 ? 12 : 0;
    }
    open_linked(g, 3);
    run_steps(g, 6, 800, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        GROUP_TEST(a_cache_and_its_index),  GROUP_TEST(a_cache_and_its_index_by_streams),
        GROUP_TEST(a_window_and_its_index), cmocka_unit_test(a_full_one_and_a_window),
        GROUP_TEST(three_of_a_kind_each),   GROUP_TEST(dense_ones_by_streams),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
