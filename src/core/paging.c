/* SPDX-License-Identifier: MIT */
/* paging: see paging.h. */
#include "core/paging.h"
#include "base/policy.h"
#include "memory/arena.h"
#include "memory/smaller.h"

#include <inttypes.h>

/* The bytes that lie together of one cell: a row, or a channel of it. 0: none in host memory. */
static uint64_t piece_bytes(const kvlazy_tensor *theirs, uint64_t row_bytes, uint32_t n_channel)
{
    return theirs && !theirs->data ? 0 : row_bytes / kvl_max(theirs ? theirs->n_channel : n_channel, 1);
}

/* The smallest row of a cache, or piece of one. */
static uint64_t smallest_row(const kvlazy_params *p)
{
    uint64_t least = 0;

    for (const kvlazy_layer *l = p->layers; l < p->layers + p->n_layer; l++) {
        uint64_t k = piece_bytes(l->k, l->k_row_bytes, 0), v = piece_bytes(l->v, l->v_row_bytes, l->v_channels);

        least = k && (!least || k < least) ? k : least;
        least = v && (!least || v < least) ? v : least;
    }
    return least;
}

/* The arena of the engine's that a layer lies in. NULL: none. */
static kvlazy_arena *arena_of(const kvlazy_layer *l)
{
    bool placed = (l->k && l->k->data) || (l->v && l->v->data);

    return placed && kvl_is_arena(l->arena) ? l->arena : NULL;
}

/* The arenas of the engine's that layers lie in have pages of one size: that of the first, which is returned, or
 * smaller ones where those are too large for the rows. 0: there is no arena. */
static uint64_t arena_page_bytes(const kvlazy_params *p, uint64_t most_bytes)
{
    uint64_t bytes = 0;

    for (const kvlazy_layer *l = p->layers; l < p->layers + p->n_layer; l++) {
        kvlazy_arena *a = arena_of(l);

        if (a && kvl_pages_bytes(a, 1) > most_bytes)
            kvl_arena_make_smaller(a); /* where that is not possible it stays as it is, and a line says so */
        bytes = a && !bytes ? kvl_pages_bytes(a, 1) : bytes;
    }
    return bytes;
}

static void say_other(const kvlazy_params *p, kvl_page page, uint64_t wanted_bytes, bool in_arena, kvl_log *log)
{
    char text[KVL_GRANT_BYTES];

    if (in_arena)
        kvl_log_note(log, KVLAZY_LOG_WARN,
                     "pages of %" PRIu64 " are wanted, but the arena of a layer has pages of %" PRIu64, wanted_bytes,
                     page.bytes);
    else
        kvl_log_note(log, KVLAZY_LOG_WARN, "page_bytes %" PRIu64 " is not granted, %" PRIu64 " is%s", wanted_bytes,
                     page.bytes, kvl_host_why_not_granted(p->mem, wanted_bytes, text));
}

int kvl_paging_choose(const kvlazy_params *p, kvl_page *page, kvl_log *log)
{
    bool huge = p->flags & KVLAZY_HUGE_PAGES;
    uint64_t most = kvl_policy_page_most(p->page_bytes, smallest_row(p), p->kv_size_initial);
    uint64_t of_arena = huge ? 0 : arena_page_bytes(p, most);

    *page = huge ? kvl_page_huge(p->mem) : kvl_page_choose(p->mem, of_arena ? of_arena : most);
    if (!page->bytes) {
        kvl_log_note(log, KVLAZY_LOG_ERROR, "mem page_bytes: must be a power of two");
        return KVLAZY_EINVAL;
    }
    bool too_large = of_arena > kvl_max(most, kvl_page_bytes(p->mem, false));
    if (!huge && (p->page_bytes > page->bytes || too_large))
        say_other(p, *page, most, of_arena > 0, log);
    return KVLAZY_OK;
}

/* A call for pages of the host's own is the usual way: only what is known of the writing threads can speak against it.
 */
static bool is_open(const kvlazy_params *p, kvl_page page)
{
    return !(p->flags & KVLAZY_COMMIT_AHEAD) && p->n_layer && (page.flags || p->n_writer);
}

bool kvl_paging_commits_ahead(const kvlazy_params *p, kvl_page page, kvl_pacer *pacer)
{
    kvl_pace pace;

    if ((p->flags & KVLAZY_NO_COMMIT_AHEAD) || !kvl_host_commits(p->mem))
        return false;
    if (!is_open(p, page) || !kvl_pace_try(p->mem, page, &pace))
        return true;
    uint64_t shared_ns = kvl_policy_fault_ns(pace.write_ns, pace.fault_ns, p->n_writer);
    pacer->fault_ns = shared_ns / pace.n_page;
    return pace.commit_ns <= shared_ns;
}
