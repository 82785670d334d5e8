/* SPDX-License-Identifier: MIT */
/*
 * wait: a sleep that ends after some time, when another thread wakes the sleeper, or when the host says that it is
 * short of memory; and the thread that sleeps. One thread sleeps, any thread may wake it. Knows no cache.
 */
#ifndef KVL_WAIT_H
#define KVL_WAIT_H

#include <pthread.h>

#include "base/base.h"

enum { KVL_WOKEN = 1u << 0, KVL_PRESSURE = 1u << 1 };

typedef struct kvl_wait {
    int wake_fd;      /* readable: wake up */
    int ring_fd;      /* what is written to make it so */
    int pressure_fd;  /* becomes readable under memory pressure; -1: the host tells of none */
    uint64_t deaf_ms; /* pressure was told, and is not looked for before this time */
} kvl_wait;

/* root: the directory under which the files that tell of pressure lie. "": they are not looked for. It is no error when
 * there are none. Returns KVLAZY_ENOMEM when there is no descriptor left. */
int kvl_wait_open(kvl_wait *wait, const char *root);
void kvl_wait_close(kvl_wait *wait);

/* Sleeps until kvl_wait_now_ms() is `until_ms`, or ends earlier for any reason, so the caller looks at the time again.
 * Returns what happened: KVL_WOKEN, KVL_PRESSURE (at most once a second). */
unsigned kvl_wait_sleep(kvl_wait *wait, uint64_t until_ms);

/* Ends the sleep, from any thread. A call before the sleep begins ends it as well. */
void kvl_wait_wake(kvl_wait *wait);

/* Returns the clock of the sleep: milliseconds that do not step back. */
uint64_t kvl_wait_now_ms(void);

/* Starts a thread that no signal is delivered to. Returns KVLAZY_ENOMEM when the system has none left. */
int kvl_wait_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
