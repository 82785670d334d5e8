/* SPDX-License-Identifier: MIT */
/*
 * A group of up to three rigs with linked caches, each over a fake host of its own, with clocks that are moved
 * together, and short words for what an engine does to all of them. It uses the public headers alone.
 */
#ifndef LINKED_SUPPORT_H
#define LINKED_SUPPORT_H

#include "seq_support.h"

enum { MEMBERS = 3 };

struct group {
    struct rig *r[MEMBERS];
    int n;                     /* rigs that are open */
    int at;                    /* the rig that begins or ends the next batch */
    uint64_t now;              /* the time of every clock */
    kvlazy_slot slot[MEMBERS]; /* of the last plan_all() */
};

/* Three rigs of one layer, not open yet. Their rows differ in size, so that their pages do not correspond. The teardown
 * fails the test unless the caches are sound. */
int group_setup(void **state);
int group_teardown(void **state);
#define GROUP_TEST(f) cmocka_unit_test_setup_teardown(f, group_setup, group_teardown)

/* Opens those of the first n that are not open, each linked to the one before it. */
void open_linked(struct group *g, int n);

void set_window(struct rig *r, uint32_t kv_size, uint32_t n_swa); /* STANDARD; before it is opened */

/* A full cache of 1024 cells of which 256 may stay, and a window of 8 in 64 cells. */
void open_full_and_window(struct group *g);

void later(struct group *g, uint64_t ms);

void groups_sound(struct group *g, const char *file, int line);
#define all_sound(g) groups_sound((g), __FILE__, __LINE__)

/* n tokens of one sequence. Static storage. */
const kvlazy_ubatch *tokens(kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n);

/* Tokens for all caches: none is applied unless all prepare. put_all leaves the batch open; in turn_all one cache
 * begins the batch and another ends it. They return the first status that is not OK. */
int plan_all(struct group *g, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n);
int put_all(struct group *g, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n);
int turn_all(struct group *g, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n);
void rm_all(struct group *g, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);

kvlazy_pos max_of(struct group *g, int i, kvlazy_seq_id seq);
void all_end_at(struct group *g, kvlazy_seq_id seq, kvlazy_pos max);
void agree(struct group *g); /* every sequence ends at the same position in all of them */
int n_asked(struct group *g);

#endif
