/* SPDX-License-Identifier: MIT */
/*
 * What the tests of pools stand on: some rigs in one pool over one host, whose every commit is held against the
 * ceiling. Rows are of one page, so that bytes are cells, unless a test says otherwise. It uses the public headers
 * alone.
 */
#ifndef POOL_SUPPORT_H
#define POOL_SUPPORT_H

#include "support.h"

#include <kvlazy/pool.h>

enum { PAGE = 4096, IDLE = 500, MAX_CACHES = 6 };

/* Some caches over one host. The first rig's fake is the host of all. */
struct world {
    kvlazy_pool *pool;
    struct rig *rig[MAX_CACHES];
    struct fake_mem *fake;
    int n;
};

/* What the host's own functions look at; one world lives at a time. */
struct watched_host {
    kvlazy_mem fake;
    kvlazy_pool *pool;         /* is looked at inside every call */
    uint64_t budget;           /* no more than this may be committed; world_new sets it */
    uint64_t n_over;           /* times it was */
    void (*in_decommit)(void); /* runs once, inside the next release */
};
extern struct watched_host host;

struct world *world_new(uint64_t budget_pages);
void world_free(struct world *w);

/* A rig of the world, not open yet; and one that is. */
struct rig *new_rig(struct world *w, uint64_t min_pages, uint32_t weight);
struct rig *add(struct world *w, uint64_t min_pages, uint32_t weight);
void close_cache(struct rig *r);

/* Every cache is sound in itself, and taken is what is touched; no batch is open. */
void settled(struct world *w);

kvlazy_pool_info pool_stats(struct world *w);
uint64_t taken_pages(struct world *w);
uint64_t touched_pages(struct rig *r);

kvlazy_pos end_of(struct rig *r, kvlazy_seq_id seq);
int more(struct rig *r, kvlazy_seq_id seq, uint32_t n); /* a sequence goes on by n tokens */
void idle(struct world *w);                             /* the idle time passes */

#endif
