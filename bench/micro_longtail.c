/* SPDX-License-Identifier: MIT */
/*
 * One long prompt followed by steady short requests: 6000 tokens once, dropped, then a 300-token request every
 * ten seconds for ever, so that the stream never rests. How long after the drop is no more resident than the
 * short requests need? On a virtual clock, looked at after everything that can change memory.
 */
#include "micro.h"

#include <stdio.h>

enum {
    LONG_TOKENS = 6000,
    SHORT_TOKENS = 300,
    EVERY_S = 10,
    GIVE_UP_S = 300,
};

struct longtail {
    struct bench_config geometry;
    struct policy_state *state;
    uint64_t now_us, poll_at_us, dropped_us;
    uint64_t want_bytes, first_bytes; /* resident wanted; and when the long prompt was dropped */
};

static const int32_t token[8192]; /* which they are matters to nothing here */

static int prefill(struct longtail *tail, uint32_t n)
{
    for (uint32_t pos = 0; pos < n; pos += tail->geometry.ubatch_tokens) {
        uint32_t left = n - pos, here = left < tail->geometry.ubatch_tokens ? left : tail->geometry.ubatch_tokens;
        if (policy_kvlazy.step(tail->state, 0, token, pos, here) != 0) {
            return -1;
        }
        tail->now_us += UINT64_C(1000000) * here / tail->geometry.prefill_per_s;
    }
    return 0;
}

/* Polls until nothing is left to do now, and remembers when to come back. */
static int poll_now(struct longtail *tail)
{
    uint64_t next_ms = 0;
    while (next_ms == 0) {
        if (policy_kvlazy.poll(tail->state, &next_ms) != 0) {
            return -1;
        }
    }
    tail->poll_at_us = next_ms == UINT64_MAX ? UINT64_MAX : (tail->now_us / 1000 + next_ms) * 1000;
    return 0;
}

/* Returns 1 when the tail has come back, 0 when it has not, -1 when the look failed. */
static int is_back(struct longtail *tail)
{
    uint64_t bytes;
    if (policy_kvlazy.resident(tail->state, &bytes) != 0) {
        return -1;
    }
    return bytes <= tail->want_bytes;
}

/* Runs until the tail is back; now_us is then. */
static int longtail_run(struct longtail *tail)
{
    uint32_t kept;
    if (policy_kvlazy.begin(tail->state, 0, token, LONG_TOKENS, 0, &kept) != 0 || prefill(tail, LONG_TOKENS) != 0 ||
        policy_kvlazy.resident(tail->state, &tail->first_bytes) != 0) {
        return -1;
    }
    tail->dropped_us = (tail->now_us / 1000000 / EVERY_S + 1) * EVERY_S * UINT64_C(1000000);
    for (uint64_t at_us = tail->dropped_us; at_us < tail->dropped_us + GIVE_UP_S * UINT64_C(1000000);
         at_us += EVERY_S * UINT64_C(1000000)) {
        if (poll_now(tail) != 0) {
            return -1;
        }
        while (tail->poll_at_us <= at_us) {
            tail->now_us = tail->poll_at_us;
            if (poll_now(tail) != 0) {
                return -1;
            }
            int back = is_back(tail);
            if (back != 0) {
                return back < 0 ? -1 : 0;
            }
        }
        tail->now_us = at_us;
        if (policy_kvlazy.begin(tail->state, 0, token, SHORT_TOKENS, 0, &kept) != 0 ||
            prefill(tail, SHORT_TOKENS) != 0) {
            return -1;
        }
        int back = is_back(tail);
        if (back != 0) {
            return back < 0 ? -1 : 0;
        }
    }
    return bench_error("the tail of the long prompt was not back after %d s", GIVE_UP_S);
}

int micro_longtail(const struct bench_config *config)
{
    struct longtail tail = {.now_us = 0};
    uint32_t n_cell = SHORT_TOKENS;
    bench_config_default(&tail.geometry);
    tail.geometry.n_slot = 1;
    tail.want_bytes = model_cover_bytes(&tail.geometry, &n_cell);
    if (policy_kvlazy.create(&tail.state, &tail.geometry, &tail.now_us) != 0) {
        return -1;
    }
    int status = longtail_run(&tail);
    policy_kvlazy.destroy(tail.state);
    if (status != 0) {
        return status;
    }
    struct figure figure = {.key = "long_tail_return_ms",
                            .value = (double)(tail.now_us - tail.dropped_us) / 1000,
                            .what = "6000 tokens, then short ones: tail back, ms",
                            .wanted = "<= 45000"};
    char from[20], to[20];
    report_bytes(from, sizeof(from), tail.first_bytes);
    report_bytes(to, sizeof(to), tail.want_bytes);
    snprintf(figure.ours, sizeof(figure.ours), "%s -> %s", from, to);
    snprintf(figure.other, sizeof(figure.other), "1.5 x idle = %u ms", tail.geometry.idle_ms * 3 / 2);
    report_figure(config, &figure);
    return 0;
}
