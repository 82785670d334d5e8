/* SPDX-License-Identifier: MIT */
/*
 * cache: the private header of floor 3. The whole of a cache in one struct, and what the nouns of the floor offer
 * one another, file by file. They decide the order in which things happen; where, who, how much and the host are the
 * floors below.
 */
#ifndef KVL_CACHE_H
#define KVL_CACHE_H

#include <pthread.h>
#include <stdatomic.h>

#include "arena.h"
#include "base.h"
#include "cells.h"
#include "geometry.h"
#include "histogram.h"
#include "log.h"
#include "params.h"
#include "policy.h"
#include "pool.h"

/* Cells that emptied longer ago are all of one age. */
#define KVL_AGE_MAX_MS (UINT32_MAX - (UINT32_C(1) << 22))

/* A release runs in pieces of this many bytes of cells, so that a hook never waits longer than for one. */
#define KVL_PIECE_BYTES (UINT64_C(64) << 20)

typedef struct kvl_stream {
    kvl_cells cells;
    uint64_t active_ms;              /* the last end_batch that followed an apply here */
    bool awake;                      /* was active, and has not been looked at since it came to rest */
    uint32_t read_end;               /* largest n_kv handed out: reading may have made those pages resident */
    uint32_t n_single;               /* batches in a row that brought one token here */
    uint32_t n_applied;              /* tokens of the open batch so far */
    uint32_t ready_begin, ready_end; /* every page under these cells is touched: what the bitmaps say, remembered */
    uint32_t cap_said;               /* the soft cap the log last spoke of; it steers nothing */
    bool pack;                       /* its cells are to be moved down, unless a hook comes between */
    uint64_t pack_until_ms;          /* decay leaves it alone until then */

    /* with cells that the engine keeps */
    bool pending;     /* touched, and no end_batch has stamped it yet */
    bool vacated;     /* it lost cells so, and all its free pages are to go */
    uint64_t veto_ms; /* the engine would not vacate: until then */
    uint32_t ensured; /* the soft cap holds so many cells, until the stream idles */

    /* scratch of one call */
    uint32_t next_free; /* prepare: where its search for free cells stands */
    kvl_cells trial;    /* prepare, with a window: cells as earlier ubatches would leave them */
    bool tried;         /* prepare: trial is in use */
    uint32_t last_run;  /* run gathering: index + 1 of this stream's newest run */
    uint32_t keep_end;  /* cells [n_cell, keep_end) are kept too, past cells.keep */
    uint32_t min_age;   /* release: fallow cells younger than this stay */
    bool give_read;     /* release: pages that were only read go too */
} kvl_stream;

typedef struct kvl_seq {
    uint64_t stamp_ms;   /* last activity; 0 with no tokens ever */
    uint64_t veto_ms;    /* on_evict said keep: until then */
    bool pending;        /* tokens applied that no end_batch has stamped yet */
    kvlazy_pos lost_end; /* recycling took positions below this; 0: none */
    bool torn;           /* a linked window emptied it, and this cache is still to follow */
    bool evicted;        /* eviction took tokens, and the engine has not gone on or let go of the rest since */

    /* scratch of one call */
    uint64_t mark;                 /* prepare: token last seen in, so that an owner named twice counts once */
    uint32_t mark_ubatch;          /* prepare: ubatch last seen in, + 1 */
    uint32_t n_new;                /* prepare: tokens so far */
    kvlazy_pos last, low, high;    /* prepare: newest, smallest and largest position so far */
    bool unordered;                /* prepare: positions so far did not rise by 0 or 1 */
    uint32_t recycle_at;           /* prepare, with a window: index entries before were looked at */
    kvlazy_pos cut;                /* eviction: positions from here on go; INT32_MAX: none */
    kvlazy_pos low_cut;            /* eviction: positions below go, which no next token sees; 0: none */
    kvlazy_pos agreed, agreed_low; /* eviction: what of both on_evict agreed to */
} kvl_seq;

typedef struct kvl_rank {
    uint64_t stamp_ms;
    kvlazy_seq_id seq;
} kvl_rank;

/* What prepare found: for every token of the batch a cell, and what apply must find unchanged. */
typedef struct kvl_plan_ubatch {
    uint32_t token_begin, token_end;
    bool applied;
} kvl_plan_ubatch;

typedef struct kvl_plan_owner {
    kvlazy_seq_id seq;
    kvlazy_pos expect; /* pos_max before this ubatch; ANY: not the sequence's first token of the ubatch */
} kvl_plan_owner;

#define KVL_EXPECT_ANY INT32_MIN

/* Whose masked token a planned cell still holds; seq -1: nobody's, it is empty. */
typedef struct kvl_victim {
    kvlazy_seq_id seq;
    kvlazy_pos pos;
} kvl_victim;

typedef struct kvl_plan {
    uint32_t n_ubatch, n_token, n_owner;
    uint32_t cap_ubatch, cap_token, cap_owner;
    kvl_plan_ubatch *ubatch;
    uint32_t *stream, *cell, *owner_end; /* [n_token] */
    kvlazy_pos *pos;                     /* [n_token] */
    kvl_plan_owner *owner;               /* [n_owner]: those of token i end at owner_end[i] */
    kvl_victim *victim;                  /* [n_token]; NULL without a window */
    kvl_run *run;                        /* [cap_token], scratch */
} kvl_plan;

/* Somebody who sleeps until the time that its last poll said. With the lock of the group held, so that nobody is told
 * of who is not there any more, and so no call back into the cache: */
typedef struct kvl_watcher {
    void *ctx;
    void (*wake)(void *ctx, uint64_t in_ms); /* that time is stale: come then, from now */
    /* A member goes, and is reached by way of another from here on; heir NULL: there is none, or nobody watches any
     * more. No poll begins between this and `lost`. */
    void (*lose)(void *ctx, const kvlazy_cache *member, kvlazy_cache *heir);
    /* With no lock held, after lose: returns when no poll runs, or this is the thread that runs it; and it is gone. */
    void (*settle)(void *ctx);
    void (*lost)(void *ctx);
} kvl_watcher;

/* Caches that see the same batches (params.with) share a lock, a clock and the batch: what one does to a sequence
 * all do in one critical section, and there is no order of locks to keep. A cache alone is a group of one. */
typedef struct kvl_group {
    pthread_mutex_t lock;
    atomic_uint n_waiting; /* hooks that wait for the lock: a long release stops for them */
    kvlazy_cache *first;   /* oldest first, through cache.next */
    bool open;             /* a batch is open */
    uint32_t asking;       /* so many calls wait for others, on_evict or a pool, with the lock released */
    uint64_t n_entered;    /* times the lock was taken: whether anybody was here in between */
    uint32_t n_outside;    /* so many calls are in the embedder's code, lock released: no member is destroyed */
    pthread_t outside;     /* the last that went there */
    pthread_cond_t came_back;
    uint64_t n_opened;          /* batches opened so far */
    uint64_t now_ms;            /* newest time seen */
    uint32_t n_torn;            /* sequences of all members that are torn */
    const kvl_watcher *watcher; /* NULL: nobody */
    uint64_t told_ms;           /* when it was told to come again; KVL_NEVER: not at all */
    uint64_t stale_ms;          /* something comes due then, since */
    bool turned_away;           /* it came and had to go, since a batch was open or a question asked */
    uint64_t pace_ms;           /* not before is it woken again for that alone */
} kvl_group;

/* Figures before a shrink, for the line that tells what it did. */
typedef struct kvl_before {
    uint64_t n_released, evicted_cells, moved_cells;
} kvl_before;

struct kvlazy_cache {
    uint64_t magic; /* first, so that a foreign handle is told by a look */
    kvl_group *group;
    kvlazy_cache *next; /* in the group */
    bool leaves;        /* it is about to be destroyed */

    kvlazy_params params; /* resolved; layers, name and log members are not used from here */
    kvl_log log;
    kvl_geometry geometry; /* and all the arenas */
    kvlazy_arena own;      /* what the library laid out */
    kvlazy_mem mem;
    kvlazy_cell_ops cell_ops; /* used_end NULL: the cells are ours */
    bool commits_ahead;       /* apply makes pages present before they are written */
    char *host_root;          /* where the machine's limits are read; NULL: they are not */
    uint64_t headroom_pages;  /* touched pages that they allowed when they were last read */
    uint64_t look_pages;      /* with more than these it is time to read them again */
    uint64_t look_ms;         /* when that was; 0: never */
    kvl_share share;          /* of a pool */
    uint64_t pool_wants;      /* the bytes of a refusal that others may help with; 0: none */
    kvl_stream *stream;       /* [n_stream] */
    kvl_seq *seq;             /* [n_seq_max] */
    kvlazy_seq_id *active;    /* [n_seq_max] the pending ones */
    uint32_t n_active;
    kvlazy_seq_id *order; /* [n_seq_max] scratch: the sequences of a batch */
    kvl_rank *rank;       /* [n_seq_max] scratch: the sequences that may lose tokens, longest idle first */
    kvl_plan plan;
    kvlazy_pos *mask_key; /* [n_mask_key] scratch of one call of mask: a row, or a position a cell */
    uint32_t n_mask_key;

    uint64_t epoch_ms;      /* stamps of cells count from here */
    uint64_t aged_ms;       /* when the ages of fallow cells were last looked at */
    uint64_t fallow_due_ms; /* no fallow cell comes due before */
    uint64_t sync_due_ms;   /* no look at the engine's cells at the end of a batch before */
    uint64_t retry_ms;      /* when to ask the host again for what it refused; KVL_NEVER: nothing */
    kvlazy_seq_id refused;
    kvl_before before; /* scratch of one shrink */
    bool due;          /* scratch of one shrink: it has pages to give back */

    uint64_t n_grow, n_shrink, n_evict, evicted_cells;
    uint64_t n_refused_pos, n_refused_slot, n_refused_budget, n_refused_memory; /* batches */
    uint64_t moved_cells;
    uint64_t n_released; /* pages given back, running total */
    uint64_t n_refused;  /* ranges the host would not take back, running total */
    kvlazy_histogram commit_time, release_time, evict_time, compact_time;
    uint64_t plan_ns; /* scratch of one shrink: deciding what goes took so long */
    char reason[160]; /* of the last check */
};

/* ------------------------------------------------------------------------------------------- group.c */

/* Every public call begins and ends with these. enter: KVLAZY_EINVAL for what is no cache. leave tells the
 * log lines noted meanwhile, after the lock is gone, and hands `status` through. */
int kvl_lock(kvlazy_cache *cache);
int kvl_enter(const kvlazy_cache *cache);
int kvl_try_enter(kvlazy_cache *cache); /* KVLAZY_EBUSY: another thread is inside */
int kvl_leave(const kvlazy_cache *cache, int status);

/* Around what the embedder is asked in the middle of a call, with the lock released: the idle side stays away. */
void kvl_begin_asking(kvlazy_cache *cache);
void kvl_end_asking(kvlazy_cache *cache);

/* What a linked window emptied is emptied here at the latest by a call that looks (enter), and in every member by one
 * that serves all (enter_group). A call about one sequence comes before that, so that the same call on every member
 * does the same; it ends with kvl_leave_seq. */
int kvl_enter_group(kvlazy_cache *cache);
void kvl_follow_group(kvlazy_cache *cache);
int kvl_enter_seq(kvlazy_cache *cache); /* KVLAZY_ENOTSUP too: the engine keeps the sequences */
int kvl_leave_seq(kvlazy_cache *cache, int status);

/* The clock, read once a public call. Never steps back. */
uint64_t kvl_now(kvlazy_cache *cache);

/* A time as cells note it, in 32 bits. */
uint32_t kvl_stamp(const kvlazy_cache *cache, uint64_t now_ms);

/* How long a page without tokens may rest: idle_ms, as far as ages reach; 0: for ever. */
static inline uint32_t kvl_page_idle_ms(const kvlazy_cache *cache)
{
    return (uint32_t)kvl_min(cache->params.slot_shrink_idle_ms, KVL_AGE_MAX_MS);
}

/* The least idle time of all the group; 0: it never idles. */
uint32_t kvl_group_idle_ms(const kvlazy_cache *cache);

/* Some cell emptied at `now`: decay has something to look at once it has been idle. */
void kvl_note_fallow(kvlazy_cache *cache, uint64_t now_ms);

/* A poll at this time can matter: who watches and sleeps until later is woken when the call ends. */
static inline void kvl_note_due(kvlazy_cache *cache, uint64_t due_ms)
{
    if (due_ms < cache->group->stale_ms)
        cache->group->stale_ms = due_ms;
}

/* Who sleeps until the group is due, and comes at once first. KVLAZY_EINVAL: no cache, or somebody does already. No
 * longer: calls lose, or answers false when it is not this one that watches; settle and lost are the caller's. */
int kvl_watch(kvlazy_cache *cache, const kvl_watcher *watcher);
bool kvl_unwatch(kvlazy_cache *cache, const kvl_watcher *watcher);

/* A new cache joins the group of another, or founds one. KVLAZY_EINVAL, KVLAZY_ENOMEM. */
int kvl_join_group(kvlazy_cache *with, kvlazy_cache *cache);

/* Before one is destroyed, with the lock held: who watches the group does so by way of a member that stays. Answers who
 * has to be told when this one is gone. Then, without: it is no member any more, and the last takes the group along. */
const kvl_watcher *kvl_begin_leaving(kvlazy_cache *cache);
void kvl_leave_group(kvlazy_cache *cache);

/* ------------------------------------------------------------------------------------------- cache.c */

bool kvl_is_cache(const kvlazy_cache *cache);

static inline kvl_stream *kvl_stream_of(kvlazy_cache *cache, kvlazy_seq_id seq)
{
    return &cache->stream[cache->params.n_stream == 1 ? 0 : seq];
}

static inline kvl_index *kvl_index_of(kvlazy_cache *cache, kvlazy_seq_id seq)
{
    return kvl_cells_index(&kvl_stream_of(cache, seq)->cells, seq);
}

static inline bool kvl_is_seq(const kvlazy_cache *cache, kvlazy_seq_id seq)
{
    return seq >= 0 && (uint32_t)seq < cache->params.n_seq_max;
}

/* The engine keeps the cells: no sequence, position or slot is known here. */
static inline bool kvl_is_outside(const kvlazy_cache *cache)
{
    return cache->cell_ops.used_end != NULL;
}

uint32_t kvl_soft_cap(const kvlazy_cache *cache, const kvl_stream *stream, uint64_t now_ms);

/* The cap of a stream as the log tells it: one line when it changed. */
void kvl_say_cap(kvlazy_cache *cache, kvl_stream *stream, uint32_t cap);

/* ------------------------------------------------------------------------------------------- seq.c */

/* A range as the caller says it becomes positions [*p0, *p1). Answers false when it is empty. */
bool kvl_normalise_range(kvlazy_pos *p0, kvlazy_pos *p1);

/* A stream, or a sequence and its stream, was used: its idle clock starts anew. */
void kvl_note_use(kvlazy_cache *cache, kvl_stream *stream, uint64_t now_ms);
void kvl_note_activity(kvlazy_cache *cache, kvlazy_seq_id seq, uint64_t now_ms);

/* Some K waits to be rotated. */
bool kvl_waits_for_rotation(const kvlazy_cache *cache);

/* ------------------------------------------------------------------------------------------- place.c */

/* The owners of a planned token are plan.owner[owner_begin … owner_end[token]). */
static inline uint32_t kvl_plan_owner_begin(const kvl_plan *plan, uint32_t token)
{
    return token ? plan->owner_end[token - 1] : 0;
}

static inline kvlazy_seq_id kvl_plan_first_owner(const kvl_plan *plan, uint32_t token)
{
    return plan->owner[kvl_plan_owner_begin(plan, token)].seq;
}

/* The cells of some planned tokens as runs in plan.run, ascending. */
uint32_t kvl_plan_runs(kvlazy_cache *cache, uint32_t token_begin, uint32_t token_end);

/* ------------------------------------------------------------------------------------------- pages.c */

/* A new batch of ranges, in every arena. */
void kvl_gather(kvlazy_cache *cache);

/* Gathers the pages under these runs, by stream and cell, that are not touched. KVLAZY_ENOMEM: no room to note them. */
int kvl_want_runs(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);
uint64_t kvl_gathered_pages(const kvlazy_cache *cache);

/* Makes what was gathered for these runs touched, all or nothing: KVLAZY_ENOMEM. They are ready then, which costs
 * O(n_run) to know. */
int kvl_touch_gathered(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);
bool kvl_is_ready(const kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);
void kvl_forget_ready(kvlazy_cache *cache);

/* Gives back what was gathered. */
void kvl_give(kvlazy_cache *cache);

/* Touched pages of all tensors; and what of them is in RAM, as the host says. */
uint64_t kvl_touched_pages(const kvlazy_cache *cache);
uint64_t kvl_resident_bytes(const kvlazy_cache *cache);
bool kvl_rows_touched(const kvlazy_cache *cache, uint32_t stream, uint32_t begin, uint32_t end);

/* Zeroes what lies on touched pages; copies a run of rows to the cells from `to` on, which it does not overlap. */
void kvl_zero_rows(kvlazy_cache *cache, uint32_t stream, uint32_t begin, uint32_t end);
void kvl_copy_rows(kvlazy_cache *cache, kvl_run from, uint32_t to_stream, uint32_t to);

static inline uint64_t kvl_page_size(const kvlazy_cache *cache)
{
    return cache->geometry.page_bytes;
}

/* Some tensor lies in an arena of the engine, where pages may hold bytes that no layer names; those come first. */
static inline bool kvl_in_arena(const kvlazy_cache *cache)
{
    return cache->geometry.n_arena && cache->geometry.arena[0] != &cache->own;
}

/* Some tensor lies on a device, where its bytes cannot be moved. */
static inline bool kvl_on_device(const kvlazy_cache *cache)
{
    return cache->geometry.n_host < cache->geometry.n_tensor;
}

/* ------------------------------------------------------------------------------------------- range.c */

kvl_extent kvl_extent_of_arena(const kvlazy_arena *arena);

/* Whether a cache linked to `with` may use the arenas of its layers, KVLAZY_EINVAL; it begins to; and it is gone. */
int kvl_may_use_arenas(const kvl_geometry *geometry, const kvlazy_cache *with, kvl_log *log);
void kvl_use_arenas(kvlazy_cache *cache);
void kvl_leave_arenas(kvlazy_cache *cache);

/* ------------------------------------------------------------------------------------------- budget.c */

/* So many touched pages are allowed: by budget_bytes, by the machine, by the pool, from which they are then taken. */
bool kvl_may_touch(kvlazy_cache *cache, uint64_t n_page);

/* n_more pages are too many on top of the touched ones: free pages outside cells.keep and keep_end go back, if what is
 * kept then fits. KVLAZY_EBUDGET: it does not, or the host would not take them. */
int kvl_make_room(kvlazy_cache *cache, uint64_t n_more);

/* The same for runs that were gathered, on top of live cells; they are gathered anew where room had to be made. */
int kvl_fit_runs(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);

/* A pool has back what was taken of it and not touched. */
void kvl_settle_share(kvlazy_cache *cache);

/* The pages of the whole plan fit, once free ones were given back where they must. KVLAZY_EBUDGET: refused says whose
 * token does not. KVLAZY_ENOMEM. */
int kvl_fit_budget(kvlazy_cache *cache);

/* ------------------------------------------------------------------------------------------- reclaim.c */

/* After a refusal: others of the pool are asked, with the lock released. Answers whether another try is worth it. */
bool kvl_reclaim(kvlazy_cache *cache);

/* ------------------------------------------------------------------------------------------- window.c */

static inline bool kvl_has_window(const kvlazy_cache *cache)
{
    return cache->params.swa_type != KVLAZY_SWA_NONE;
}

/* Places a batch that does not fit the empty cells: masked ones are taken. KVLAZY_ENOSLOT, KVLAZY_ENOMEM. */
int kvl_window_place(kvlazy_cache *cache, uint32_t n_ubatch);

/* The planned victim is still there, and masked. */
bool kvl_window_may_take(kvlazy_cache *cache, const kvl_cells *cells, uint32_t cell, const kvl_victim *victim);

/* Before a ubatch is recorded: its victims are taken, and with them what their sequences hold at or below. */
void kvl_window_take(kvlazy_cache *cache, const kvl_plan_ubatch *ubatch);

/* After a ubatch was undone: victims stay gone, and a sequence whose next token would miss some is emptied. */
void kvl_window_give_up(kvlazy_cache *cache, const kvl_plan_ubatch *ubatch, uint64_t now_ms);

/* Positions of a sequence below this are masked for its next token; 0 without a window. */
kvlazy_pos kvl_window_begin_of(kvlazy_cache *cache, kvlazy_seq_id seq);

/* Cells of a stream that could be taken now. */
uint32_t kvl_window_recyclable(kvlazy_cache *cache, const kvl_stream *stream);

/* A sequence without tokens may go on at `pos`: nothing that recycling took from it would be missed. */
bool kvl_window_may_start(const kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos pos);

/* After a removal of [p0, p1): empties a sequence whose next token would miss what recycling took; linked caches follow
 * when they were told of the removal, or at the next call that is not about one sequence. */
void kvl_window_refill(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, uint64_t now_ms);

/* Empties what linked windows emptied. */
void kvl_window_follow(kvlazy_cache *cache);

/* What recycling took follows a copy, and a motion of positions. */
void kvl_window_copied(kvlazy_cache *cache, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1);
void kvl_window_moved(kvlazy_cache *cache, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1, kvl_motion motion);

/* ------------------------------------------------------------------------------------------- hooks.c */

/* From here nothing is dropped or moved, in all the group. */
void kvl_open_batch(kvlazy_cache *cache);

/* Stamps the sequences that applied since, in all the group; batches are closed. */
void kvl_settle_activity(kvlazy_cache *cache, uint64_t now_ms);

/* The soft cap of a stream rose, perhaps: the log tells. */
void kvl_follow_cap(kvlazy_cache *cache, kvl_stream *stream);

/* A batch, or what stands for one, was refused. */
void kvl_count_refusal(kvlazy_cache *cache, int status);

/* In steady decode runs of a token each, in place: they reach some cells further. Answers whether any does; then their
 * pages are made touched, or not, where there is no room for so many. */
bool kvl_reach_ahead(kvlazy_cache *cache, kvl_run *run, uint32_t n_run);
bool kvl_touch_ahead(kvlazy_cache *cache, const kvl_run *run, uint32_t n_run);

/* Ends a batch without stamping. Its slots can be read until the next prepare, and not applied. */
void kvl_close_batch(kvlazy_cache *cache);

/* The ubatch of the plan that a slot stands for; NULL: stale or foreign. */
kvl_plan_ubatch *kvl_find_slot(kvlazy_cache *cache, const kvlazy_slot *slot);

/* A ubatch has the tokens that were planned: so many, at these positions, with these owners. */
bool kvl_is_planned(const kvl_plan *plan, const kvl_plan_ubatch *planned, const kvlazy_ubatch *ubatch);

/* The planned cell holds the planned token, for one of its owners at least. */
bool kvl_still_holds(const kvl_cells *cells, const kvl_plan *plan, uint32_t token);

/* Cells attention reads for these tokens; and the note that it does. */
uint32_t kvl_slot_n_kv(const kvlazy_cache *cache, const kvl_plan_ubatch *planned);
void kvl_note_read(kvlazy_cache *cache, const kvl_plan_ubatch *planned, uint32_t n_kv);

/* ------------------------------------------------------------------------------------------- release.c */

/* keep := live cells, in every stream. */
void kvl_keep_live(kvlazy_cache *cache);

/* Pages under cells.keep and keep_end of every stream, each once; all of them or those that are touched. */
uint64_t kvl_kept_pages(kvlazy_cache *cache, bool touched_only);

/* What would be touched with those pages, once every other one that can go is gone. */
uint64_t kvl_needed_pages(kvlazy_cache *cache);

/* Gives back every touched page outside the cover of what is kept, and where give_read says so those that were
 * only read. Settles nothing: a page that is kept for a plan alone must come due when the plan comes to nothing. */
void kvl_release_outside_keep(kvlazy_cache *cache);

/* Gives back what fallow cells of min_age leave free, at most one piece. Answers whether more is due. */
bool kvl_release_piece(kvlazy_cache *cache, uint64_t now_ms);

/* The same, of every page without a live cell, whatever its age, and those that were only read. */
bool kvl_release_free_piece(kvlazy_cache *cache, uint64_t now_ms);

/* Every fallow cell counts as emptied long ago: the next end_batch or poll deals with it. */
void kvl_make_due(kvlazy_cache *cache, uint64_t now_ms);

/* At the end of a batch: what decayed, at most one piece. */
void kvl_decay(kvlazy_cache *cache, uint64_t now_ms);

/* When the first fallow cell comes due; KVL_NEVER: there is none, or nothing decays. Cost: O(fallow). */
uint64_t kvl_next_due_ms(kvlazy_cache *cache, uint64_t now_ms);

/* Around a shrink: notes the figures before it, and tells what it did, by idling or on request. */
void kvl_look_before(kvlazy_cache *cache);
void kvl_say_shrink(kvlazy_cache *cache, uint64_t now_ms, bool idle);

/* ------------------------------------------------------------------------------------------- evict.c */

/* How far to go: idle sequences of streams over kv_size_initial; the same, whatever the clock says; any sequence, down
 * to max_cells a stream; any sequence, until the pages of live cells fit max_bytes. */
typedef struct kvl_goal {
    enum { KVL_GOAL_IDLE, KVL_GOAL_INITIAL, KVL_GOAL_CELLS, KVL_GOAL_BYTES } kind;
    uint64_t now_ms;
    uint32_t max_cells;
    uint64_t max_bytes;
    bool packs;       /* KVL_GOAL_BYTES: what stays will be moved together */
    bool idle_only;   /* … and only idle sequences may lose anything, */
    bool best_effort; /* … as much as that takes, or all they may */
} kvl_goal;

/* Plans what goes in all the group, seq.cut and seq.low_cut, and asks on_evict, with the lock released meanwhile.
 * KVLAZY_OK: all agreed. KVLAZY_EBUSY: a batch was opened. KVLAZY_EBUDGET: max_bytes is out of reach. */
int kvl_evict_agree(kvlazy_cache *cache, const kvl_goal *goal);

/* Carries the plan out; the cells are stamped as emptied at `stamp`. A stream that lost some will release all
 * its free pages: its give_read is set, its min_age is 0. Answers whether any did. */
bool kvl_evict_apply(kvlazy_cache *cache, uint32_t stamp);

/* Until this sequence may lose tokens by idling, in ms; KVL_NEVER: it may not. */
uint64_t kvl_evictable_in(kvlazy_cache *cache, kvlazy_seq_id seq, uint64_t now_ms);

/* ------------------------------------------------------------------------------------------- compact.c */

/* Whether cells can be moved at all, in all the group. */
bool kvl_can_pack(const kvlazy_cache *cache);

/* A stream is to be packed by the next kvl_pack, if it is not dense. */
void kvl_pack_later(kvlazy_cache *cache, uint32_t stream);

/* Moves live cells down into holes in all the group: of the streams that are to be packed, or of one. polite: stops
 * between pieces when a hook waits, and answers false. What has no room to move stays where it is. */
bool kvl_pack(kvlazy_cache *cache, uint64_t now_ms, bool polite);
bool kvl_pack_stream(kvlazy_cache *cache, uint32_t stream, uint64_t now_ms, bool polite);

/* ------------------------------------------------------------------------------------------- outside.c */

/* Brings the mirror of the engine's cells up to date; nothing to do where the cells are ours. */
void kvl_outside_sync(kvlazy_cache *cache, uint64_t now_ms);

/* What kvl_evict_agree is to our own cells: asks the engine to vacate, with the lock released, and the same codes. */
int kvl_outside_vacate(kvlazy_cache *cache, const kvl_goal *goal);

/* Until the engine may be asked to vacate by idling, in ms; KVL_NEVER: it is not. */
uint64_t kvl_vacatable_in(const kvlazy_cache *cache, uint64_t now_ms);

/* ------------------------------------------------------------------------------------------- shrink.c */

/* kvlazy_poll; by who watches: what it answers is when that one comes again. */
int kvl_poll(kvlazy_cache *cache, bool watches, uint64_t *next_ms);

/* What a poll does, and init_batch with SHRINK_AT_INIT; no batch is open. KVLAZY_EBUSY: a batch was opened
 * while on_evict was asked. *more: it stopped for a hook and is not done. */
int kvl_shrink_idle(kvlazy_cache *cache, uint64_t now_ms, bool *more);

/* For somebody else: free pages go until no more than max_bytes are touched; and then idle tokens. The lock is ours, no
 * batch is open. */
void kvl_release_until(kvlazy_cache *cache, uint64_t max_bytes, uint64_t now_ms);
void kvl_shrink_bytes(kvlazy_cache *cache, uint64_t max_bytes, uint64_t now_ms);

/* Memory is short: a group that rests gives back what it can without losing more than an idle time would take. What is
 * left when a hook comes is due at once. KVLAZY_EBUSY: it does not rest. */
int kvl_shrink_early(kvlazy_cache *cache);

/* ------------------------------------------------------------------------------------------- check.c */

/* With KVLAZY_CHECKS = 2 the whole of a cache is checked after each call that changed it. */
#if KVLAZY_CHECKS >= 2
void kvl_check_or_die(kvlazy_cache *cache);
#else
static inline void kvl_check_or_die(kvlazy_cache *cache)
{
    (void)cache;
}
#endif

#endif
