/* SPDX-License-Identifier: MIT */
/* Groups of rigs, see linked_support.h. */
#include "linked_support.h"

#include <stdlib.h>

enum { TOKENS = 1024 };

void later(struct group *g, uint64_t ms)
{
    g->now += ms;
    for (int i = 0; i < MEMBERS; i++)
        if (g->r[i])
            g->r[i]->fake.now = g->now;
}

/* Three rigs, not open yet. Rows differ, so that no page of one tells of another. */
int group_setup(void **state)
{
    static const size_t rows[MEMBERS][1][2] = {{{512, 260}}, {{100, 36}}, {{64, 0}}};
    static const char *const names[MEMBERS] = {"one", "two", "three"};
    struct group *g = calloc(1, sizeof *g);

    assert_non_null(g);
    g->now = 1000;
    for (int i = 0; i < MEMBERS; i++) {
        g->r[i] = rig_new();
        g->r[i]->params.name = names[i];
        rig_rows(g->r[i], 1, rows[i]);
    }
    *state = g;
    return 0;
}

void groups_sound(struct group *g, const char *file, int line)
{
    for (int i = 0; i < g->n; i++)
        rig_sound(g->r[i], file, line);
}

int group_teardown(void **state)
{
    struct group *g = *state;

    all_sound(g);
    for (int i = 0; i < MEMBERS; i++)
        if (g->r[i])
            rig_free(g->r[i]);
    free(g);
    return 0;
}

/* Opens those of the first n that are not open, each linked to the one before it. */
void open_linked(struct group *g, int n)
{
    for (; g->n < n; g->n++) {
        g->r[g->n]->params.with = g->n ? g->r[g->n - 1]->cache : NULL;
        rig_open(g->r[g->n]);
    }
}

void set_window(struct rig *r, uint32_t kv_size, uint32_t n_swa)
{
    r->params.kv_size = kv_size;
    r->params.swa_type = KVLAZY_SWA_STANDARD;
    r->params.n_swa = n_swa;
}

/* A full cache of 1024 cells of which 256 may stay, and a window of 8 in 64 cells. */
void open_full_and_window(struct group *g)
{
    g->r[0]->params.kv_size = 1024;
    g->r[0]->params.kv_size_initial = 256;
    set_window(g->r[1], 64, 8);
    open_linked(g, 2);
}

/* ---- the engine's side ---- */

/* n tokens of one sequence. Static storage. */
const kvlazy_ubatch *tokens(kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    static kvlazy_pos p[TOKENS];
    static kvlazy_seq_id s[TOKENS];
    static kvlazy_ubatch u;

    assert_true(n <= TOKENS);
    for (uint32_t i = 0; i < n; i++) {
        p[i] = pos + (kvlazy_pos)i;
        s[i] = seq;
    }
    u = UBATCH(n, p, s);
    return &u;
}

/* All prepare or none applies. */
int plan_all(struct group *g, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    int status = KVLAZY_OK;

    for (int i = 0; !status && i < g->n; i++)
        status = kvlazy_prepare(g->r[i]->cache, tokens(seq, pos, n), 1, &g->slot[i]);
    return status;
}

int put_all(struct group *g, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    int status = plan_all(g, seq, pos, n);

    for (int i = 0; !status && i < g->n; i++) {
        ok(kvlazy_apply_ubatch(g->r[i]->cache, &g->slot[i], tokens(seq, pos, n)));
        write_rows(g->r[i], &g->slot[i]);
    }
    return status;
}

/* One begins the batch, another ends it. */
int turn_all(struct group *g, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n)
{
    int status;

    ok(kvlazy_init_batch(g->r[g->at++ % g->n]->cache));
    status = put_all(g, seq, pos, n);
    ok(kvlazy_end_batch(g->r[g->at % g->n]->cache));
    return status;
}

void rm_all(struct group *g, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1)
{
    for (int i = 0; i < g->n; i++)
        ok(kvlazy_seq_rm(g->r[i]->cache, seq, p0, p1));
}

kvlazy_pos max_of(struct group *g, int i, kvlazy_seq_id seq)
{
    return kvlazy_seq_pos_max(g->r[i]->cache, seq);
}

/* Every sequence ends at the same position in all of them. */
void agree(struct group *g)
{
    for (kvlazy_seq_id s = 0; s < (kvlazy_seq_id)g->r[0]->n_seq; s++)
        for (int i = 1; i < g->n; i++)
            assert_int_equal(max_of(g, i, s), max_of(g, 0, s));
}

void all_end_at(struct group *g, kvlazy_seq_id seq, kvlazy_pos max)
{
    for (int i = 0; i < g->n; i++)
        assert_int_equal(max_of(g, i, seq), max);
}

int n_asked(struct group *g)
{
    int n = 0;

    for (int i = 0; i < MEMBERS; i++)
        n += g->r[i] ? g->r[i]->n_evict : 0;
    return n;
}
