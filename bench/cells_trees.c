/* SPDX-License-Identifier: MIT */
/* The baseline of cells_trees.h. */
#include "cells_trees.h"

#include <stdlib.h>
#include <string.h>

#include <bsd/sys/tree.h>

/* What RB_GENERATE_STATIC wants and <bsd/sys/cdefs.h> leaves out on Linux. */
#ifndef __unused
#define __unused __attribute__((__unused__))
#endif

enum { MAX_SEQ = 64 };

/* allocs.c counts each malloc with an atomic addition. The baseline must not pay for that. */
void *__real_malloc(size_t bytes);

struct cell_node {
    RB_ENTRY(cell_node) link;
    uint32_t cell;
};

struct pos_node {
    RB_ENTRY(pos_node) link;
    int32_t pos;
    uint32_t n_cell;
};

static int compare_cells(const struct cell_node *a, const struct cell_node *b)
{
    return (a->cell > b->cell) - (a->cell < b->cell);
}

static int compare_positions(const struct pos_node *a, const struct pos_node *b)
{
    return (a->pos > b->pos) - (a->pos < b->pos);
}

RB_HEAD(cell_set, cell_node);
RB_HEAD(pos_map, pos_node);
RB_GENERATE_STATIC(cell_set, cell_node, link, compare_cells)
RB_GENERATE_STATIC(pos_map, pos_node, link, compare_positions)

struct cell {
    int32_t pos, shift;
    uint64_t owner;
};

struct trees {
    uint32_t n_cell, n_used, head;
    int32_t *pos, *shift; /* pos -1: empty */
    uint64_t *owner;
    bool has_shift;
    struct cell_set used;
    struct pos_map seq[MAX_SEQ];
};

struct trees *trees_open(uint32_t n_cell)
{
    struct trees *trees = calloc(1, sizeof(*trees));
    if (trees == NULL) {
        return NULL;
    }
    trees->n_cell = n_cell;
    trees->pos = calloc(n_cell, sizeof(*trees->pos));
    trees->shift = calloc(n_cell, sizeof(*trees->shift));
    trees->owner = calloc(n_cell, sizeof(*trees->owner));
    if (trees->pos == NULL || trees->shift == NULL || trees->owner == NULL) {
        trees_close(trees);
        return NULL;
    }
    RB_INIT(&trees->used);
    for (int s = 0; s < MAX_SEQ; s++) {
        RB_INIT(&trees->seq[s]);
    }
    trees_clear(trees);
    return trees;
}

void trees_close(struct trees *trees)
{
    if (trees == NULL) {
        return;
    }
    if (trees->pos != NULL && trees->shift != NULL && trees->owner != NULL) {
        trees_clear(trees);
    }
    free(trees->pos);
    free(trees->shift);
    free(trees->owner);
    free(trees);
}

/* ------------------------------------------------------------------------------------------------------
 * The sets and maps
 */
static void *need(void *memory)
{
    if (memory == NULL) {
        abort(); /* a bench that has no memory has no figures */
    }
    return memory;
}

static void used_insert(struct trees *trees, uint32_t cell)
{
    struct cell_node *node = need(__real_malloc(sizeof(*node)));
    node->cell = cell;
    RB_INSERT(cell_set, &trees->used, node);
    trees->n_used++;
}

static void used_erase(struct trees *trees, uint32_t cell)
{
    struct cell_node key = {.cell = cell}, *node = RB_FIND(cell_set, &trees->used, &key);
    RB_REMOVE(cell_set, &trees->used, node);
    free(node);
    trees->n_used--;
}

static void pos_inc(struct trees *trees, int32_t seq, int32_t pos)
{
    struct pos_node key = {.pos = pos}, *node = RB_FIND(pos_map, &trees->seq[seq], &key);
    if (node == NULL) {
        node = need(__real_malloc(sizeof(*node)));
        node->pos = pos;
        node->n_cell = 0;
        RB_INSERT(pos_map, &trees->seq[seq], node);
    }
    node->n_cell++;
}

static void pos_dec(struct trees *trees, int32_t seq, int32_t pos)
{
    struct pos_node key = {.pos = pos}, *node = RB_FIND(pos_map, &trees->seq[seq], &key);
    if (--node->n_cell == 0) {
        RB_REMOVE(pos_map, &trees->seq[seq], node);
        free(node);
    }
}

/* Every owner's map gains or loses the position of a cell. */
static void owners_inc(struct trees *trees, uint32_t cell)
{
    for (uint64_t left = trees->owner[cell]; left != 0; left &= left - 1) {
        pos_inc(trees, __builtin_ctzll(left), trees->pos[cell]);
    }
}

static void owners_dec(struct trees *trees, uint32_t cell)
{
    for (uint64_t left = trees->owner[cell]; left != 0; left &= left - 1) {
        pos_dec(trees, __builtin_ctzll(left), trees->pos[cell]);
    }
}

static void cell_empty(struct trees *trees, uint32_t cell)
{
    trees->pos[cell] = -1;
    trees->shift[cell] = 0;
    trees->owner[cell] = 0;
    used_erase(trees, cell);
}

/* ------------------------------------------------------------------------------------------------------
 * Batches
 */
static int find_slot(struct trees *trees, uint32_t n, uint32_t *cell)
{
    uint32_t at = trees->head, n_found = 0;
    if (at > trees->n_used + 2 * n) { /* enough was freed below: from the start */
        at = 0;
    }
    for (uint32_t tested = 0; n_found < n && tested < trees->n_cell; tested++, at++) {
        if (at >= trees->n_cell) {
            at = 0;
        }
        if (trees->pos[at] < 0) {
            cell[n_found++] = at;
        }
    }
    return n_found == n ? 0 : -1;
}

void trees_apply(struct trees *trees, uint32_t n, const int32_t *pos, const int32_t *seq, const uint32_t *cell)
{
    for (uint32_t i = 0; i < n; i++) {
        trees->pos[cell[i]] = pos[i];
        used_insert(trees, cell[i]);
        trees->owner[cell[i]] |= UINT64_C(1) << seq[i];
        pos_inc(trees, seq[i], pos[i]);
    }
    trees->head = cell[n - 1] + 1;
}

/* The cells become what they were before they were tried out. */
static void restore(struct trees *trees, uint32_t n, const uint32_t *cell, const struct cell *saved)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = cell[i];
        bool is_used = trees->pos[at] >= 0, was_used = saved[i].pos >= 0;
        if (is_used) {
            owners_dec(trees, at);
        }
        if (is_used && !was_used) {
            used_erase(trees, at);
        }
        trees->pos[at] = saved[i].pos;
        trees->shift[at] = saved[i].shift;
        trees->owner[at] = saved[i].owner;
        if (!is_used && was_used) {
            used_insert(trees, at);
        }
        if (was_used) {
            owners_inc(trees, at);
        }
    }
}

int trees_prepare(struct trees *trees, uint32_t n, const int32_t *pos, const int32_t *seq, uint32_t *cell, bool dry_run)
{
    if (find_slot(trees, n, cell) != 0) {
        return -1;
    }
    if (!dry_run) {
        return 0;
    }
    uint32_t head = trees->head;
    struct cell *saved = need(__real_malloc(n * sizeof(*saved)));
    for (uint32_t i = 0; i < n; i++) {
        saved[i] = (struct cell){trees->pos[cell[i]], trees->shift[cell[i]], trees->owner[cell[i]]};
    }
    trees_apply(trees, n, pos, seq, cell);
    restore(trees, n, cell, saved);
    trees->head = head;
    free(saved);
    return 0;
}

/* ------------------------------------------------------------------------------------------------------
 * Sequences
 */
static bool is_in(const struct trees *trees, uint32_t cell, int32_t seq, int32_t p0, int32_t p1)
{
    return trees->pos[cell] >= p0 && trees->pos[cell] < p1 && trees->owner[cell] >> seq & 1;
}

void trees_seq_rm(struct trees *trees, int32_t seq, int32_t p0, int32_t p1)
{
    uint32_t freed = trees->n_cell;
    p0 = p0 < 0 ? 0 : p0;
    p1 = p1 < 0 ? INT32_MAX : p1;
    for (uint32_t i = 0; i < trees->n_cell; i++) {
        if (!is_in(trees, i, seq, p0, p1)) {
            continue;
        }
        pos_dec(trees, seq, trees->pos[i]);
        trees->owner[i] &= ~(UINT64_C(1) << seq);
        if (trees->owner[i] == 0) {
            cell_empty(trees, i);
            freed = freed == trees->n_cell ? i : freed;
        }
    }
    trees->head = freed < trees->head ? freed : trees->head;
}

void trees_seq_add(struct trees *trees, int32_t seq, int32_t p0, int32_t p1, int32_t delta)
{
    p0 = p0 < 0 ? 0 : p0;
    p1 = p1 < 0 ? INT32_MAX : p1;
    for (uint32_t i = 0; i < trees->n_cell; i++) {
        if (!is_in(trees, i, seq, p0, p1)) {
            continue;
        }
        owners_dec(trees, i);
        trees->pos[i] += delta;
        trees->shift[i] += delta;
        trees->has_shift = true;
        if (trees->pos[i] < 0) {
            cell_empty(trees, i);
        } else {
            owners_inc(trees, i);
        }
    }
    trees->head = 0;
}

void trees_shift_done(struct trees *trees)
{
    trees->has_shift = false;
    memset(trees->shift, 0, trees->n_cell * sizeof(*trees->shift));
}

/* A set that is freed as a whole is not balanced on the way. */
static void free_cells(struct cell_node *node)
{
    if (node != NULL) {
        free_cells(RB_LEFT(node, link));
        free_cells(RB_RIGHT(node, link));
        free(node);
    }
}

static void free_positions(struct pos_node *node)
{
    if (node != NULL) {
        free_positions(RB_LEFT(node, link));
        free_positions(RB_RIGHT(node, link));
        free(node);
    }
}

void trees_clear(struct trees *trees)
{
    for (uint32_t i = 0; i < trees->n_cell; i++) {
        trees->pos[i] = -1;
        trees->shift[i] = 0;
        trees->owner[i] = 0;
    }
    free_cells(RB_ROOT(&trees->used));
    RB_INIT(&trees->used);
    for (int s = 0; s < MAX_SEQ; s++) {
        free_positions(RB_ROOT(&trees->seq[s]));
        RB_INIT(&trees->seq[s]);
    }
    trees->n_used = trees->head = 0;
    trees->has_shift = false;
}

int32_t trees_pos_max(struct trees *trees, int32_t seq)
{
    struct pos_node *last = RB_MAX(pos_map, &trees->seq[seq]);
    return last == NULL ? -1 : last->pos;
}

uint32_t trees_used(const struct trees *trees)
{
    return trees->n_used;
}
