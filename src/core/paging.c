/* SPDX-License-Identifier: MIT */
/* paging: see paging.h. */
#include "core/paging.h"
#include "base/policy.h"
#include "memory/arena.h"
#include "memory/pace.h"

#include <inttypes.h>

/* Of the rows that the library lays out. Where V is transposed a row lies in pieces, one a channel. */
static uint64_t smallest_row(const kvlazy_params *p)
{
    uint64_t least = 0;

    for (const kvlazy_layer *l = p->layers; l < p->layers + p->n_layer; l++) {
        uint64_t k = l->k ? 0 : l->k_row_bytes, v = l->v ? 0 : l->v_row_bytes / kvl_max(l->v_channels, 1);

        least = k && (!least || k < least) ? k : least;
        least = v && (!least || v < least) ? v : least;
    }
    return least;
}

/* The arena of the engine's that some tensor lies in. If they are several, their pages are of one size. */
static const kvlazy_arena *engine_arena(const kvlazy_params *p)
{
    for (const kvlazy_layer *l = p->layers; l < p->layers + p->n_layer; l++)
        if (kvl_is_arena(l->arena) && ((l->k && l->k->data) || (l->v && l->v->data)))
            return l->arena;
    return NULL;
}

static void say_other(const kvlazy_params *p, kvl_page page, bool in_arena, kvl_log *log)
{
    char text[KVL_GRANT_BYTES];

    if (in_arena)
        kvl_log_note(log, KVLAZY_LOG_WARN,
                     "page_bytes %" PRIu64 " is not taken: the arena of a layer has pages of %" PRIu64, p->page_bytes,
                     page.bytes);
    else
        kvl_log_note(log, KVLAZY_LOG_WARN, "page_bytes %" PRIu64 " is not granted, %" PRIu64 " is%s", p->page_bytes,
                     page.bytes, kvl_host_why_not_granted(p->mem, p->page_bytes, text));
}

int kvl_paging_choose(const kvlazy_params *p, kvl_page *page, kvl_log *log)
{
    const kvlazy_arena *a = engine_arena(p);
    bool huge = p->flags & KVLAZY_HUGE_PAGES;
    uint64_t most_bytes =
        a ? kvl_pages_bytes(a, 1) : kvl_policy_page_most(p->page_bytes, smallest_row(p), p->kv_size_initial);

    *page = huge ? kvl_page_huge(p->mem) : kvl_page_choose(p->mem, most_bytes);
    if (!page->bytes) {
        kvl_log_note(log, KVLAZY_LOG_ERROR, "mem page_bytes: must be a power of two");
        return KVLAZY_EINVAL;
    }
    if (!huge && (p->page_bytes > page->bytes || (a && p->page_bytes && p->page_bytes < page->bytes)))
        say_other(p, *page, a != NULL, log);
    return KVLAZY_OK;
}

/* A call for pages of the host's own is the usual way: only what is known of the writing threads can speak against it.
 */
static bool is_open(const kvlazy_params *p, kvl_page page)
{
    return !(p->flags & KVLAZY_COMMIT_AHEAD) && p->n_layer && (page.flags || p->n_writer);
}

bool kvl_paging_commits_ahead(const kvlazy_params *p, kvl_page page)
{
    uint32_t never = KVLAZY_HOST_NUMA | KVLAZY_HOST_LOCKED | KVLAZY_HOST_FAULTS;
    kvl_pace pace;

    if ((p->flags & KVLAZY_NO_COMMIT_AHEAD) || (kvl_host_traits(p->mem) & never))
        return false;
    if (!is_open(p, page) || !kvl_pace_try(p->mem, page, &pace))
        return true;
    return kvl_policy_ahead_pays(pace.commit_ns, pace.write_ns, pace.fault_ns, p->n_writer);
}
