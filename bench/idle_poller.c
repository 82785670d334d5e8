/* SPDX-License-Identifier: MIT */
/*
 * A thread of our own that polls one cache: sleeps as long as the last poll said, and comes again. It is started when
 * the last batch has ended, so nothing has to wake it. Beside it stands the library's own thread, idle_reaper.c.
 */
#include "idle.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct poller {
    kvlazy_cache *cache;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t stopped;
    bool stop;
};

static void add_ms(struct timespec *time, uint64_t ms)
{
    ms += (uint64_t)time->tv_nsec / 1000000;
    time->tv_nsec %= 1000000;
    time->tv_sec += (time_t)(ms / 1000);
    time->tv_nsec += (long)(ms % 1000) * 1000000;
}

static void *poller_run(void *ctx)
{
    enum { LONGEST_MS = 60000 };
    struct poller *poller = ctx;
    pthread_mutex_lock(&poller->lock);
    while (!poller->stop) {
        uint64_t next_ms;
        struct timespec until;
        pthread_mutex_unlock(&poller->lock);
        kvlazy_poll(poller->cache, &next_ms); /* what it did is seen behind the memory table */
        clock_gettime(CLOCK_MONOTONIC, &until);
        add_ms(&until, next_ms < LONGEST_MS ? next_ms : LONGEST_MS);
        pthread_mutex_lock(&poller->lock);
        while (next_ms != 0 && !poller->stop && pthread_cond_timedwait(&poller->stopped, &poller->lock, &until) == 0) {
        }
    }
    pthread_mutex_unlock(&poller->lock);
    return NULL;
}

static void *poller_start(kvlazy_cache *cache)
{
    struct poller *poller = calloc(1, sizeof(*poller));
    pthread_condattr_t attributes;
    if (poller == NULL) {
        bench_error("out of memory");
        return NULL;
    }
    poller->cache = cache;
    pthread_mutex_init(&poller->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&poller->stopped, &attributes);
    pthread_condattr_destroy(&attributes);
    int error = pthread_create(&poller->thread, NULL, poller_run, poller);
    if (error != 0) {
        bench_error("pthread_create: %s", strerror(error));
        free(poller);
        return NULL;
    }
    return poller;
}

static void poller_stop(void *side, kvlazy_cache *cache)
{
    struct poller *poller = side;
    (void)cache;
    pthread_mutex_lock(&poller->lock);
    poller->stop = true;
    pthread_cond_signal(&poller->stopped);
    pthread_mutex_unlock(&poller->lock);
    pthread_join(poller->thread, NULL);
    pthread_cond_destroy(&poller->stopped);
    pthread_mutex_destroy(&poller->lock);
    free(poller);
}

const struct idle_side idle_poller = {"a polling thread", poller_start, poller_stop};
