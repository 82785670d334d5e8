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
#include "log.h"
#include "params.h"
#include "policy.h"

/* A release runs in pieces of this many bytes of cells, so that a hook never waits longer than for one. */
#define KVL_PIECE_BYTES (UINT64_C(64) << 20)

typedef struct kvl_stream {
    kvl_cells cells;
    uint64_t active_ms; /* the last end_batch that followed an apply here */
    bool awake;         /* was active, and has not been looked at since it came to rest */
    uint32_t read_end;  /* largest n_kv handed out: reading may have made those pages resident */
    uint32_t cap_said;  /* the soft cap the log last spoke of; it steers nothing */

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

/* Caches that see the same batches (params.with) share a lock, a clock and the batch: what one does to a sequence
 * all do in one critical section, and there is no order of locks to keep. A cache alone is a group of one. */
typedef struct kvl_group {
    pthread_mutex_t lock;
    atomic_uint n_waiting; /* hooks that wait for the lock: a long release stops for them */
    kvlazy_cache *first;   /* oldest first, through cache.next */
    bool open;             /* a batch is open */
    bool asking;           /* a shrink waits for an answer of on_evict, with the lock released */
    uint64_t n_opened;     /* batches opened so far */
    uint64_t now_ms;       /* newest time seen */
    uint32_t n_torn;       /* sequences of all members that are torn */
} kvl_group;

/* Figures before a shrink, for the line that tells what it did. */
typedef struct kvl_before {
    uint64_t n_released, evicted_cells;
} kvl_before;

struct kvlazy_cache {
    uint64_t magic; /* first, so that a foreign handle is told by a look */
    kvl_group *group;
    kvlazy_cache *next; /* in the group */

    kvlazy_params params; /* resolved; layers, name and log members are not used from here */
    kvl_log log;
    kvl_geometry geometry;
    kvlazy_arena arena;
    kvl_stream *stream;    /* [n_stream] */
    kvl_seq *seq;          /* [n_seq_max] */
    kvlazy_seq_id *active; /* [n_seq_max] the pending ones */
    uint32_t n_active;
    kvlazy_seq_id *order; /* [n_seq_max] scratch: the sequences of a batch */
    kvl_rank *rank;       /* [n_seq_max] scratch: the sequences that may lose tokens, longest idle first */
    kvl_plan plan;
    kvlazy_pos *mask_key; /* [n_mask_key] scratch of mask; INT32_MAX all of it between two calls */
    uint32_t n_mask_key;

    uint64_t epoch_ms;      /* stamps of cells count from here */
    uint64_t aged_ms;       /* when the ages of fallow cells were last looked at */
    uint64_t fallow_due_ms; /* no fallow cell comes due before */
    uint64_t retry_ms;      /* when to ask the host again for what it refused; KVL_NEVER: nothing */
    kvlazy_seq_id refused;
    kvl_before before; /* scratch of one shrink */
    bool due;          /* scratch of one shrink: it has pages to give back */

    uint64_t n_grow, n_shrink, n_evict, evicted_cells, n_refusal;
    char reason[160]; /* of the last check */
};

/* ------------------------------------------------------------------------------------------- cache.c */

/* Every public call begins and ends with these. enter: KVLAZY_EINVAL for what is no cache. leave tells the
 * log lines noted meanwhile, after the lock is gone, and hands `status` through. */
int kvl_enter(const kvlazy_cache *cache);
int kvl_leave(const kvlazy_cache *cache, int status);
bool kvl_is_cache(const kvlazy_cache *cache);

/* What a linked window emptied is emptied here at the latest by a call that looks (enter), and in every member by one
 * that serves all (enter_group). A call about one sequence comes before that, so that the same call on every member
 * does the same; it ends with kvl_leave_seq. */
int kvl_enter_group(kvlazy_cache *cache);
void kvl_follow_group(kvlazy_cache *cache);
int kvl_enter_seq(kvlazy_cache *cache);
int kvl_leave_seq(kvlazy_cache *cache, int status);

/* The clock, read once a public call. Never steps back. */
uint64_t kvl_now(kvlazy_cache *cache);

/* A time as cells note it, in 32 bits. */
uint32_t kvl_stamp(const kvlazy_cache *cache, uint64_t now_ms);

/* Some cell emptied at `now`: decay has something to look at once it has been idle. */
void kvl_note_fallow(kvlazy_cache *cache, uint64_t now_ms);

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

uint32_t kvl_soft_cap(const kvlazy_cache *cache, const kvl_stream *stream, uint64_t now_ms);

/* The cap of a stream as the log tells it: one line when it changed. */
void kvl_say_cap(kvlazy_cache *cache, kvl_stream *stream, uint32_t cap);

/* ------------------------------------------------------------------------------------------- seq.c */

/* A range as the caller says it becomes positions [*p0, *p1). Answers false when it is empty. */
bool kvl_normalise_range(kvlazy_pos *p0, kvlazy_pos *p1);

/* A sequence was used: its idle clock starts anew. */
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

/* Gathers the pages under plan.run that are not touched. KVLAZY_ENOMEM. */
int kvl_want_runs(kvlazy_cache *cache, uint32_t n_run);

/* ------------------------------------------------------------------------------------------- budget.c */

/* So many touched pages are allowed. */
bool kvl_within_budget(const kvlazy_cache *cache, uint64_t n_page);

/* n_more pages are too many on top of the touched ones: free pages outside cells.keep and keep_end go back, if what is
 * kept then fits. KVLAZY_EBUDGET: it does not, or the host would not take them. */
int kvl_make_room(kvlazy_cache *cache, uint64_t n_more);

/* The pages of the whole plan fit, once free ones were given back where they must. KVLAZY_EBUDGET: refused says whose
 * token does not. KVLAZY_ENOMEM. */
int kvl_fit_budget(kvlazy_cache *cache);

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

/* How far to go: idle sequences of streams over kv_size_initial; any sequence, down to max_cells a stream;
 * any sequence, until the pages of live cells fit max_bytes. */
typedef struct kvl_goal {
    enum { KVL_GOAL_IDLE, KVL_GOAL_CELLS, KVL_GOAL_BYTES } kind;
    uint64_t now_ms;
    uint32_t max_cells;
    uint64_t max_bytes;
} kvl_goal;

/* Plans what goes in all the group, seq.cut and seq.low_cut, and asks on_evict, with the lock released meanwhile.
 * KVLAZY_OK: all agreed. KVLAZY_EBUSY: a batch was opened. KVLAZY_EBUDGET: max_bytes is out of reach. */
int kvl_evict_agree(kvlazy_cache *cache, const kvl_goal *goal);

/* Carries the plan out; the cells are stamped as emptied at `stamp`. A stream that lost some will release all
 * its free pages: its give_read is set, its min_age is 0. Answers whether any did. */
bool kvl_evict_apply(kvlazy_cache *cache, uint32_t stamp);

/* Until this sequence may lose tokens by idling, in ms; KVL_NEVER: it may not. */
uint64_t kvl_evictable_in(kvlazy_cache *cache, kvlazy_seq_id seq, uint64_t now_ms);

/* ------------------------------------------------------------------------------------------- shrink.c */

/* What a poll does, and init_batch with SHRINK_AT_INIT; no batch is open. KVLAZY_EBUSY: a batch was opened
 * while on_evict was asked. *more: it stopped for a hook and is not done. */
int kvl_shrink_idle(kvlazy_cache *cache, uint64_t now_ms, bool *more);

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
