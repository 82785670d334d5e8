/* SPDX-License-Identifier: MIT */
/*
 * A world is some rigs in one pool over one fake host, which compares every commit with the ceiling of the pool. A row
 * has the size of a page, so that cells count pages, unless a test says otherwise. It uses the public headers alone.
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

/* What the functions of the fake host look at. Only one world lives at a time. */
struct watched_host {
    kvlazy_mem fake;
    kvlazy_pool *pool;         /* every call of the host reads its figures */
    uint64_t budget;           /* no more than this may be committed; world_new sets it */
    uint64_t n_over;           /* calls that found more committed */
    void (*in_decommit)(void); /* runs once, inside the next release */
};
extern struct watched_host host;

struct world *world_new(uint64_t budget_pages);
void world_free(struct world *w);

/* new_rig makes a rig that is not open yet, add opens it too. */
struct rig *new_rig(struct world *w, uint64_t min_pages, uint32_t weight);
struct rig *add(struct world *w, uint64_t min_pages, uint32_t weight);
void close_cache(struct rig *r);

/* Fails the test unless every cache is sound and the pool's taken bytes are the touched ones. No batch may be open. */
void settled(struct world *w);

kvlazy_pool_info pool_stats(struct world *w);
uint64_t taken_pages(struct world *w);
uint64_t touched_pages(struct rig *r);

kvlazy_pos end_of(struct rig *r, kvlazy_seq_id seq);
int more(struct rig *r, kvlazy_seq_id seq, uint32_t n); /* a sequence goes on by n tokens */
void idle(struct world *w);                             /* the idle time passes */

#endif
