/* SPDX-License-Identifier: MIT */
/*
 * wait: a sleep that ends after some time, when somebody wakes the sleeper, or when the host is short of memory and
 * says so; and the thread that sleeps. One thread sleeps, any may wake. Knows no cache.
 */
#ifndef KVL_WAIT_H
#define KVL_WAIT_H

#include <pthread.h>

#include "base/base.h"

enum { KVL_WOKEN = 1u << 0, KVL_PRESSURE = 1u << 1 };

typedef struct kvl_wait {
    int wake_fd;      /* readable: wake up */
    int ring_fd;      /* what is written to make it so */
    int pressure_fd;  /* -1: nobody tells */
    uint64_t deaf_ms; /* pressure was told: not again until then */
} kvl_wait;

/* root: where the files that tell of pressure begin; "": they are not looked for, and it is no error that there are
 * none. KVLAZY_ENOMEM: no descriptor. */
int kvl_wait_open(kvl_wait *wait, const char *root);
void kvl_wait_close(kvl_wait *wait);

/* Sleeps until kvl_wait_now_ms() is `until_ms` at most, or less: the caller looks again. What happened: KVL_WOKEN,
 * KVL_PRESSURE (at most once a second). */
unsigned kvl_wait_sleep(kvl_wait *wait, uint64_t until_ms);

/* From any thread. One before the sleep begins ends it too. */
void kvl_wait_wake(kvl_wait *wait);

/* The clock of the sleep: milliseconds that do not step back. */
uint64_t kvl_wait_now_ms(void);

/* A thread that no signal is delivered to. KVLAZY_ENOMEM. */
int kvl_wait_start(pthread_t *thread, void *(*run)(void *arg), void *arg);

#endif
