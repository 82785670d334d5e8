/* SPDX-License-Identifier: MIT */
/*
 * Caches for a reaper's thread: their memory is the fake's, and their clock is either the fake's, moved under its lock,
 * or real. Tests wait for what the thread must do, and fail when it has not happened for long. Called by
 * test_reaper*.c.
 */
#ifndef REAPER_SUPPORT_H
#define REAPER_SUPPORT_H

#include "support.h"

#include <kvlazy/reaper.h>

enum { IDLE_MS = 30, PATIENCE_MS = 20000, NEVER_MS = 3600000 };

uint64_t real_ms(void);
void nap(long ms);

/* Waits for something that another thread makes true. */
#define await(condition)                                    \
    do {                                                    \
        uint64_t await_end = real_ms() + PATIENCE_MS;       \
        while (!(condition)) {                              \
            if (real_ms() > await_end)                      \
                fail_msg("waited in vain: %s", #condition); \
            nap(1);                                         \
        }                                                   \
    } while (0)

/* The fake's clock, and how often it was asked. */
void set_now(struct rig *r, uint64_t now);
uint64_t n_looked(struct rig *r);

/* No callbacks: those of the rig write without a lock, so they are not for two threads. */
void quiet(struct rig *r);

/* Opens a quiet rig beside which a reaper moves cells. With open_timed the time is real. */
struct rig *open_timed(struct rig *r, uint32_t initial, uint32_t idle_ms);
struct rig *open_fake(struct rig *r, uint32_t initial, uint32_t idle_ms);

kvlazy_reaper *new_reaper(void);
uint64_t touched(struct rig *r);
bool is_watched(struct rig *r);

#endif
