/* SPDX-License-Identifier: MIT */
/*
 * clock: the time of a group of caches, read once a public call, and the notes that hang on it: when a sequence was
 * used, when a cell emptied, when a poll can matter next. Decides nothing.
 */
#ifndef KVL_CLOCK_H
#define KVL_CLOCK_H

#include "core/cache.h"

/* Reads the clock. It never steps back. */
uint64_t kvl_now(kvlazy_cache *cache);

/* The same without taking note of it, for waits: the lock need not be held. */
uint64_t kvl_clock_ms(const kvlazy_cache *cache);

/* The least idle time of all the group; 0: it never idles. */
uint32_t kvl_group_idle_ms(const kvl_group *group);

/* A poll at this time can matter: a watcher that sleeps until later is woken when the call ends. */
static inline void kvl_note_due(kvlazy_cache *cache, uint64_t due_ms)
{
    if (due_ms < cache->group->stale_ms)
        cache->group->stale_ms = due_ms;
}

/* Some cell emptied at `now_ms`: it comes due when the idle time has passed. */
void kvl_note_fallow(kvlazy_cache *cache, uint64_t now_ms);

/* A stream, or a sequence and its stream, was used: its idle clock starts anew. */
void kvl_note_use(kvlazy_cache *cache, kvl_stream *stream, uint64_t now_ms);
void kvl_note_activity(kvlazy_cache *cache, kvlazy_seq_id seq, uint64_t now_ms);

#endif
