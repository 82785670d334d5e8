/* SPDX-License-Identifier: MIT */
/* sets: see sets.h. */
#include "tokens/sets.h"

#include <bsd/stdlib.h>

enum { FIRST_SETS = 4 };

void kvl_sets_init(kvl_sets *t, uint32_t n_seq)
{
    *t = (kvl_sets){.n_word = (uint32_t)kvl_bits_words(n_seq), .spare = KVL_NO_SET};
}

void kvl_sets_fini(kvl_sets *t)
{
    for (uint32_t i = 0; i < t->n; i++)
        free(t->set[i]);
    free(t->set);
    *t = (kvl_sets){.spare = KVL_NO_SET};
}

static size_t set_bytes(const kvl_sets *t)
{
    return sizeof(kvl_set) + t->n_word * sizeof(uint64_t);
}

/* A number that no set has. */
static uint32_t free_number(kvl_sets *t)
{
    for (uint32_t i = t->n_used + t->n_spare < t->n ? 0 : t->n; i < t->n; i++)
        if (!t->set[i])
            return i;
    if (t->n < t->cap)
        return t->n++;
    uint32_t cap = t->cap ? 2 * t->cap : FIRST_SETS;
    kvl_set **set = reallocarray(t->set, cap, sizeof *set);
    if (!set)
        return KVL_NO_SET;
    t->set = set;
    t->cap = cap;
    return t->n++;
}

static bool add_spare(kvl_sets *t)
{
    kvl_set *set = calloc(1, set_bytes(t));
    uint32_t number = set ? free_number(t) : KVL_NO_SET;

    if (number == KVL_NO_SET) {
        free(set);
        return false;
    }
    set->next = t->spare;
    t->set[number] = set;
    t->spare = number;
    t->n_spare++;
    return true;
}

int kvl_sets_reserve(kvl_sets *t, uint32_t n)
{
    while (t->n_spare < n)
        if (!add_spare(t))
            return KVLAZY_ENOMEM;
    return KVLAZY_OK;
}

uint32_t kvl_sets_take(kvl_sets *t, uint32_t like)
{
    if (!t->n_spare && !add_spare(t))
        return KVL_NO_SET;
    uint32_t number = t->spare;
    kvl_set *set = t->set[number];

    t->spare = set->next;
    t->n_spare--;
    t->n_used++;
    memset(set, 0, set_bytes(t));
    if (like != KVL_NO_SET) {
        memcpy(set->bit, t->set[like]->bit, t->n_word * sizeof *set->bit);
        set->n_owner = t->set[like]->n_owner;
    }
    return number;
}

void kvl_sets_leave(kvl_sets *t, uint32_t number, uint32_t n)
{
    kvl_set *set = t->set[number];

    KVL_ASSERT(set->n_cell >= n);
    set->n_cell -= n;
    if (set->n_cell)
        return;
    set->next = t->spare;
    t->spare = number;
    t->n_spare++;
    t->n_used--;
}

void kvl_sets_shrink(kvl_sets *t)
{
    while (t->n_spare) {
        uint32_t number = t->spare;

        t->spare = t->set[number]->next;
        free(t->set[number]);
        t->set[number] = NULL;
        t->n_spare--;
    }
    while (t->n && !t->set[t->n - 1])
        t->n--;
    if (!t->n) {
        free(t->set);
        t->set = NULL;
        t->cap = 0;
    }
}

int kvl_sets_copy(kvl_sets *to, const kvl_sets *from)
{
    *to = (kvl_sets){.n_word = from->n_word, .spare = KVL_NO_SET, .mark = from->mark};
    if (!from->n_used)
        return KVLAZY_OK;
    to->set = calloc(from->n, sizeof *to->set);
    if (!to->set)
        return KVLAZY_ENOMEM;
    to->n = to->cap = from->n;
    to->n_used = from->n_used;
    for (uint32_t i = 0; i < from->n; i++) {
        if (!from->set[i] || !from->set[i]->n_cell)
            continue;
        to->set[i] = malloc(set_bytes(from));
        if (!to->set[i])
            return KVLAZY_ENOMEM;
        memcpy(to->set[i], from->set[i], set_bytes(from));
    }
    return KVLAZY_OK;
}

uint64_t kvl_sets_bytes(const kvl_sets *t)
{
    return t->cap * (uint64_t)sizeof *t->set + (t->n_used + (uint64_t)t->n_spare) * set_bytes(t);
}
