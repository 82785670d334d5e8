/* SPDX-License-Identifier: MIT */
/*
 * engine_session: one conversation script run by two reference engines side by side, one on calloc and one on
 * kvlazy in one of its ways, with a clock that is moved by hand. After every step all logits that both hold are
 * compared, bit by bit. The tests run it and look at the figures; the bench prints the largest difference. It prints
 * nothing and never sleeps.
 */
#ifndef KVLAZY_TESTS_ENGINE_SESSION_H
#define KVLAZY_TESTS_ENGINE_SESSION_H

#include "engine.h"

enum { ENGINE_SESSION_SLOTS = 4 };

enum {
    ENGINE_PROMPT,  /* the slots hold text [a, a + n_a) and then text [b, b + n_b); from: see below */
    ENGINE_DECODE,  /* n rounds of one token for every slot, ms apart, idle between them */
    ENGINE_DROP,    /* the slots are forgotten */
    ENGINE_IDLE,    /* ms pass; poll is called when it asked to be */
    ENGINE_SHIFT,   /* the first `a` tokens of the slots stay, the next n go, the rest moves down */
    ENGINE_TRIM,    /* kvlazy_trim to n cells; 0: no token goes */
    ENGINE_RESTORE, /* what the caches hold of the slots leaves them and comes back; n: with its rows after its batches
                     */
    ENGINE_BREAK,   /* the model fails n times in a row, ubatch `a` from here */
};

/* What a step must have done on kvlazy. */
enum {
    ENGINE_GREW = 1u << 0,       /* touched bytes rose */
    ENGINE_EVICTED = 1u << 1,    /* tokens went: positions, cells, touched bytes and the count say so */
    ENGINE_RECOMPUTED = 1u << 2, /* tokens that an eviction took were computed again, or a store brought some */
    ENGINE_REUSED = 1u << 3,     /* part of a prompt was there */
    ENGINE_REFUSED = 1u << 4,    /* a batch was refused because its sequence had been cut */
    ENGINE_UNDONE = 1u << 5,     /* a ubatch was taken back */
    ENGINE_FAILED = 1u << 6,     /* ENGINE_ECOMPUTE on both sides; the step is then repeated and must pass */
    ENGINE_RELEASED = 1u << 7,   /* memory went back */
    ENGINE_EMPTY = 1u << 8,      /* nothing is live, and nothing touched but pages that others share */
    ENGINE_MOVED = 1u << 9,      /* cells moved down into holes */

    /* Said of another expectation: tokens go while their stream is busy, and come again. So not where idle time is
     * that of the only stream, as it is when the engine keeps the cells. */
    ENGINE_IF_BUSY = 1u << 10,
    /* Sequences lie side by side: what goes with one stream for all need not go with one for each. */
    ENGINE_IF_UNIFIED = 1u << 11,
};

enum {
    ENGINE_KV_LAZY,         /* kvlazy's cells and tensors */
    ENGINE_KV_ARENA,        /* tensors carved out of an arena */
    ENGINE_KV_MEMORY,       /* the engine's own cells over kvlazy's tensors */
    ENGINE_KV_MEMORY_ARENA, /* both the engine's own */
};

/* Habits of engines that take memory. */
enum {
    ENGINE_APPENDS = 1u << 0,   /* cells of the engine's own are searched behind the last ones, not lowest first */
    ENGINE_TURNS_ALL = 1u << 1, /* a context shift turns every row of a stream */
};

typedef struct engine_session_config {
    const char *name;
    model_layout layout;
    int kv;                      /* ENGINE_KV_LAZY, … */
    uint32_t n_stream;           /* 1 or ENGINE_SESSION_SLOTS */
    const engine_prefix *prefix; /* a store beside kvlazy, which must outlive the session; NULL: none */
    uint32_t habits;             /* ENGINE_APPENDS, … */
} engine_session_config;

typedef struct engine_step {
    int what;
    uint32_t slots; /* bit i: slot i */
    uint32_t a, n_a, b, n_b, n;
    uint32_t ms;
    uint32_t expect;
    uint32_t from; /* of a prompt: 1 + the slot that it may share its beginning with; 0: none */
} engine_step;

typedef struct engine_session_report {
    char failure[160];    /* "" or the first thing that was not as it should be */
    double max_dlogit;    /* largest difference of two logits; infinite if one was no number */
    uint64_t n_compared;  /* vectors of logits, each time they were compared; those of loaded tokens are not known */
    uint64_t n_differing; /* of these, by a bit or more */
    uint64_t n_check;     /* times kvlazy_check found all well */
    uint64_t peak_touched_bytes;
    engine_counts plain, lazy;
    kvlazy_stats_info stats;
} engine_session_report;

typedef struct engine_session engine_session;

/** Fails: as kvlazy_create. */
int engine_session_open(const engine_session_config *config, engine_session **session);
void engine_session_close(engine_session *session);

/** One step and the comparison. Not OK: report.failure says what; the session is good for nothing more. */
int engine_session_step(engine_session *session, const engine_step *step);

/** The whole script of engine_script.c. */
int engine_session_run(engine_session *session);

void engine_session_get_report(const engine_session *session, engine_session_report *report);
kvlazy_cache *engine_session_cache(const engine_session *session);

/* engine_layouts.c */

/** A back end on kvlazy, ENGINE_KV_LAZY and so on. Fails: as kvlazy_create. */
int engine_session_create_kv(int what, const engine_kv_config *config, engine_kv **kv);

/** The layouts and ways in which the script is run: [n]. */
const engine_session_config *engine_session_configs(uint32_t *n);

/** Opens, runs and closes a session; max: the largest difference of two logits. */
int engine_session_max_dlogit(bool f16, uint32_t n_stream, double *max);

/** The same over every one of engine_session_configs. */
int engine_layouts_max_dlogit(double *max);

/* engine_compact.c */

/**
 * A sequence goes, and its neighbour behind it moves down at the next idle: its rows are the same at their new cells,
 * or else the answer is ESTATE, and it talks on. max: the largest difference to an engine that never saw the other.
 */
int engine_compact(const engine_session_config *config, double *max);

/** The same over every unified one of engine_session_configs. */
int engine_compact_max_dlogit(double *max);

/* engine_script.c */
extern const char engine_text[];
extern const uint32_t engine_text_length;
extern const engine_step engine_script[];
extern const uint32_t engine_script_length;

#endif
