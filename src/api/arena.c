/* SPDX-License-Identifier: MIT */
/* arena: the public calls about address space that an engine carves up itself. */
#include "memory/arena.h"
#include "api/door.h"

#include <kvlazy/arena.h>

/* An arena is reserved before the rows are known that will lie in it. */
static kvl_page usual_page(const kvlazy_mem *mem)
{
    return kvl_page_choose(mem, kvl_policy_page_most(0, 0, 0));
}

size_t kvlazy_page_bytes(const kvlazy_mem *mem)
{
    kvlazy_mem whole;

    return kvl_table_read(mem, &whole) ? (size_t)usual_page(&whole).bytes : 0;
}

int kvlazy_arena_create(const kvlazy_mem *mem, size_t bytes, kvlazy_arena **arena, void **base)
{
    kvlazy_mem whole;

    if (!arena || !base || !kvl_table_read(mem, &whole) || bytes > PTRDIFF_MAX)
        return KVLAZY_EINVAL;
    kvlazy_arena *a = calloc(1, sizeof *a);
    if (!a)
        return KVLAZY_ENOMEM;
    /* What an engine writes is its own affair, so there is no frontier that could follow it. */
    int status = kvl_arena_init(a, &whole, bytes, usual_page(&whole), 0, NULL, 0);
    if (status) {
        free(a);
        return status;
    }
    a->magic = KVL_ARENA_MAGIC;
    *arena = a;
    *base = a->base;
    return KVLAZY_OK;
}

int kvlazy_arena_destroy(kvlazy_arena *a)
{
    if (!a)
        return KVLAZY_OK;
    if (!kvl_is_arena(a))
        return KVLAZY_EINVAL;
    if (a->n_cache)
        return KVLAZY_EBUSY;
    kvl_arena_fini(a);
    free(a);
    return KVLAZY_OK;
}

static int discard_shared(kvlazy_arena *a, kvl_span bytes)
{
    kvlazy_cache *c = a->group->first;
    int entered = kvl_enter(c, KVL_DOOR_LOOK);

    if (entered)
        return entered;
    uint64_t n_released = a->n_released;
    kvl_arena_discard(a, bytes);
    c->rows.n_released += a->n_released - n_released;
    for (kvlazy_cache *m = c->group->first; m; m = m->next)
        kvl_rows_forget_ready(&m->rows);
    kvl_leave(c, KVLAZY_OK); /* a line of its log may end the cache: the bytes are gone all the same */
    return KVLAZY_OK;
}

int kvlazy_arena_discard(kvlazy_arena *a, size_t offset, size_t bytes)
{
    uint64_t end;

    if (!kvl_is_arena(a) || kvl_add_overflows(offset, bytes, &end) || end > a->bytes)
        return KVLAZY_EINVAL;
    if (!bytes)
        return KVLAZY_OK;
    if (a->group)
        return discard_shared(a, (kvl_span){offset, end});
    kvl_arena_discard(a, (kvl_span){offset, end});
    return KVLAZY_OK;
}
