/* SPDX-License-Identifier: MIT */
/* index: see index.h. */
#include "tokens/index.h"

#include <bsd/stdlib.h>

enum { FIRST_ENTRIES = 64 };

int kvl_index_reserve(kvl_index *x, uint32_t n_more)
{
    uint64_t wanted = (uint64_t)x->n + n_more;

    if (KVL_LIKELY(x->head + wanted <= x->cap))
        return KVLAZY_OK;
    /* A window that slid leaves room in front; taking it back when it is half of all costs O(1) a token. */
    if (wanted <= x->cap / 2) {
        memmove(x->entry, x->entry + x->head, x->n * sizeof *x->entry);
        x->head = 0;
        return KVLAZY_OK;
    }
    uint64_t cap = kvl_max(kvl_max(x->head + wanted, 2 * (uint64_t)x->cap), FIRST_ENTRIES);
    if (cap > UINT32_MAX)
        return KVLAZY_ENOMEM;
    kvl_entry *entry = reallocarray(x->entry, (size_t)cap, sizeof *entry);
    if (!entry)
        return KVLAZY_ENOMEM;
    x->entry = entry;
    x->cap = (uint32_t)cap;
    return KVLAZY_OK;
}

uint32_t kvl_index_below(const kvl_index *x, kvlazy_pos p)
{
    uint32_t low = 0, high = x->n;

    if (!x->n || p > kvl_index_max(x))
        return x->n; /* where most tokens go */
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (kvl_index_at(x, middle)->pos < p)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void kvl_index_insert(kvl_index *x, kvlazy_pos pos, uint32_t cell)
{
    uint32_t i = kvl_index_below(x, pos + 1);

    if (x->head + x->n == x->cap) { /* the room is in front: an entry was taken out there and comes back */
        KVL_ASSERT(x->head);
        memmove(x->entry + x->head - 1, x->entry + x->head, x->n * sizeof *x->entry);
        x->head--;
    }
    kvl_entry *at = x->entry + x->head + i;
    memmove(at + 1, at, (x->n - i) * sizeof *at);
    *at = (kvl_entry){pos, cell};
    x->n++;
}

void kvl_index_cut(kvl_index *x, uint32_t begin, uint32_t end)
{
    kvl_entry *first = x->entry + x->head;

    if (begin == 0)
        x->head += end;
    else
        memmove(first + begin, first + end, (x->n - end) * sizeof *first);
    x->n -= end - begin;
    if (!x->n)
        x->head = 0;
}

static uint32_t find(const kvl_index *x, kvlazy_pos pos, uint32_t cell)
{
    uint32_t i = kvl_index_below(x, pos);

    while (kvl_index_at(x, i)->cell != cell) {
        i++;
        KVL_ASSERT(i < x->n);
    }
    return i;
}

void kvl_index_remove(kvl_index *x, kvlazy_pos pos, uint32_t cell)
{
    uint32_t i = find(x, pos, cell);

    kvl_index_cut(x, i, i + 1);
}

void kvl_index_rename(kvl_index *x, kvlazy_pos pos, uint32_t from, uint32_t to)
{
    x->entry[x->head + find(x, pos, from)].cell = to;
}

kvl_entry *kvl_index_add(kvl_index *x, const kvl_entry *entry, uint32_t n)
{
    uint32_t i = n ? kvl_index_below(x, entry->pos) : x->n;
    kvl_entry *at = x->entry + x->head + i;

    if (!n)
        return at;
    KVL_ASSERT(kvl_index_below(x, entry[n - 1].pos + 1) == i && x->head + x->n + n <= x->cap);
    memmove(at + n, at, (x->n - i) * sizeof *at);
    memcpy(at, entry, n * sizeof *at);
    x->n += n;
    return at;
}

void kvl_index_merge(kvl_index *x, uint32_t begin, uint32_t end)
{
    kvl_entry *e = x->entry + x->head, *block = e + x->n; /* the room behind is scratch */
    uint32_t n_block = end - begin, rest = x->n - n_block;

    if (!n_block || ((!begin || e[begin - 1].pos <= e[begin].pos) && (end == x->n || e[end - 1].pos <= e[end].pos)))
        return;
    memcpy(block, e + begin, n_block * sizeof *e);
    memmove(e + begin, e + end, (x->n - end) * sizeof *e);
    for (uint32_t i = x->n; n_block;) {
        i--;
        if (rest && e[rest - 1].pos > block[n_block - 1].pos)
            e[i] = e[--rest];
        else
            e[i] = block[--n_block];
    }
}
