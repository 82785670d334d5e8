/* SPDX-License-Identifier: MIT */
/*
 * group: caches that see the same batches (params.with). They share a lock, a clock and the batch: what one does to a
 * sequence all do in one critical section, and there is no order of locks to keep. A cache alone is a group of one.
 */
#ifndef KVL_GROUP_H
#define KVL_GROUP_H

#include <pthread.h>
#include <stdatomic.h>

#include "core/loss.h"
#include "memory/table.h"

/* A watcher sleeps until the time that its last poll said. The cache tells it with the lock of the group held, so that
 * it is told of no cache that is gone; it must not call back into the cache. */
typedef struct kvl_watcher {
    void *ctx;
    /* That time is stale: come `in_ms` from now. */
    void (*wake)(void *ctx, uint64_t in_ms);
    /* A member is about to be destroyed, and the group is reached through `heir` from here on; heir NULL: there is
     * none left, or the watcher was removed. No poll begins between this and `lost`. */
    void (*lose)(void *ctx, const kvlazy_cache *member, kvlazy_cache *heir);
    /* With no lock held, after lose: `settle` returns when no poll runs, or this is the thread that runs it; `lost`
     * says that the member is gone. */
    void (*settle)(void *ctx);
    void (*lost)(void *ctx);
} kvl_watcher;

/* A thread whose calls are in the embedder's code: a callback, with the lock released. */
typedef struct kvl_caller {
    pthread_t thread;
    uint32_t n_call; /* 0: the entry is free */
    bool waits;      /* its callback destroys a member, and waits for the others */
} kvl_caller;

enum { KVL_CALLERS = 8 }; /* threads told apart; a member that goes waits for any more */

/* A call whose callbacks run with the lock released, and must not call the cache: the thread they run on. */
typedef struct kvl_callback {
    pthread_t thread;
    struct kvl_callback *next;
} kvl_callback;

struct kvl_group {
    pthread_mutex_t lock;
    atomic_uint n_waiting;        /* calls that wait for the lock: long work stops for them */
    atomic_bool locked_by_parent; /* in a child of fork: the lock was waited for once, and never came free */
    kvlazy_cache *first;          /* oldest first, through cache.next */
    bool open;                    /* a batch is open */
    uint32_t asking;              /* calls that are out for an answer: of on_evict, a pool, a state's or a store's callback */
    uint64_t n_entered;           /* times the lock was taken: whether another call came in between */
    uint32_t n_out; /* calls that are in the embedder's code: another thread destroys no member meanwhile */
    kvl_caller caller[KVL_CALLERS]; /* whose they are */
    pthread_cond_t came_back;
    kvlazy_cache *ghosts;       /* destroyed, but calls that will come back from the embedder's code know them */
    uint64_t process;           /* that the group belongs to; a fork leaves other threads behind */
    kvl_callback *callback;     /* calls that are inside a callback of a state or a store */
    uint64_t n_opened;          /* batches opened so far */
    uint64_t n_changed;         /* times that tokens of any sequence changed other than by a batch */
    kvl_losses losses;          /* what an eviction in the making takes */
    uint64_t now_ms;            /* newest time seen */
    kvl_account account;        /* what members took and were promised, where their host keeps no sums */
    uint32_t n_torn;            /* sequences of all members that are torn */
    const kvl_watcher *watcher; /* NULL: none */
    uint64_t told_ms;           /* when the watcher was told to come again; KVL_NEVER: not at all */
    uint64_t stale_ms;          /* something comes due then, since */
    bool turned_away;           /* the watcher came and had to go: a batch was open, or a question was asked */
    uint64_t pace_ms;           /* not before this time is it woken again for that alone */
};

/* A new cache joins the group of another, or founds one. KVLAZY_EINVAL, KVLAZY_ENOMEM. */
int kvl_group_join(kvlazy_cache *with, kvlazy_cache *cache);

/* Before a member is destroyed, with the lock held: a watcher reaches the group through a member that stays. Returns
 * the watcher that has to be told when this member is gone. */
const kvl_watcher *kvl_group_begin_leaving(kvlazy_cache *cache);

/* After that, without the lock: the cache is no member any more, but a ghost that the caller holds. */
void kvl_group_leave(kvlazy_cache *cache);

/* When all of it but the struct itself is freed: that goes with the last call that knows it, and with the last member
 * and the last such call the group. */
void kvl_group_bury(kvlazy_cache *ghost);

#endif
