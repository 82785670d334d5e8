/* SPDX-License-Identifier: MIT */
/*
 * A desk: a small engine that keeps the cells itself, with a table of its own over one cache of the bed of
 * layout_support.h. Its callbacks check what the library may ask and move, and a look compares every byte with the
 * table. Called by test_engine_cells*.c.
 */
#ifndef ENGINE_CELLS_SUPPORT_H
#define ENGINE_CELLS_SUPPORT_H

#include "layout_support.h"

#include <kvlazy/engine_cells.h>

enum { STREAMS = 3, CELLS = 600, IDLE = 500 };

/* The engine: which bytes each cell holds, 0: none. */
struct desk {
    struct bed *bed;
    kvlazy_cell_ops ops;
    uint32_t used[BED_SEQS][CELLS];
    uint32_t end[BED_SEQS]; /* what used_end last said */
    int n_vacate, n_move;
    uint32_t vacated_stream, vacated_from;
    bool veto, partial; /* vacate says no; or empties and says no all the same */
    void (*in_vacate)(struct desk *desk);
    char broken[100]; /* what a callback saw, which may not fail a test itself */
};

/* The callbacks of the desk's table; a test may leave some of them out. */
uint32_t desk_used_end(void *ctx, uint32_t stream);
void desk_move(void *ctx, uint32_t stream, uint32_t from, uint32_t to, uint32_t n);
int desk_vacate(void *ctx, uint32_t stream, uint32_t from);

/* A desk of three streams without an open cache; teardown fails the test unless the cache is sound. */
int desk_setup(void **state);
int desk_teardown(void **state);
#define DESK_TEST(f) cmocka_unit_test_setup_teardown(f, desk_setup, desk_teardown)

/* Used cells hold their bytes; the others zero or what they had, and zero when they were just given back. */
void desk_look(struct desk *desk, bool released, const char *file, int line);
#define sound(desk) desk_look(desk, false, __FILE__, __LINE__)
#define sound_released(desk) desk_look(desk, true, __FILE__, __LINE__)

uint32_t n_used(const struct desk *desk, uint32_t stream);
uint64_t touched(struct desk *desk);

/* The engine writes cells [from, to) of a stream in a batch of its own. */
int write_cells(struct desk *desk, uint32_t stream, uint32_t from, uint32_t to);
void empty_cells(struct desk *desk, uint32_t stream, uint32_t from, uint32_t to);
void poll_at(struct desk *desk, uint64_t now);

#endif
