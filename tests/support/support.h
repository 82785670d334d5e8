/* SPDX-License-Identifier: MIT */
/*
 * A rig is one cache over one fake operating system, with short words for what an engine does (put, turn) and for what
 * a test asks (cells_are, sound, cover). Most tests use it. The rig writes every row with bytes of that row's own and
 * remembers them, so that sound() can compare every byte of the cache with the promises. When the library moves a
 * token, the rig follows (follow.h). It uses the public headers alone.
 */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>

#include <cmocka.h>

#include <kvlazy/kvlazy.h>

#include "expect.h"
#include "fake_mem.h"
#include "follow.h"

enum { RIG_LAYERS = 4, RIG_TENSORS = 2 * RIG_LAYERS, RIG_EVICTS = 256, RIG_SLOTS = 64 };

struct rig_evict {
    kvlazy_seq_id seq;
    kvlazy_pos pos;
};

struct rig {
    struct fake_mem fake;
    kvlazy_params params; /* change between rig_new (or the setup) and rig_open */
    kvlazy_layer layers[RIG_LAYERS];
    kvlazy_cache *cache;

    uint32_t n_stream, kv_size, n_seq; /* resolved by rig_open */
    int n_tensor;
    kvlazy_tensor tensor[RIG_TENSORS];
    kvlazy_slot slot[RIG_SLOTS]; /* of the last prepare */

    uint32_t *stamp; /* [n_stream · kv_size]: the bytes that a cell's rows were last given; 0: none */
    uint32_t last_stamp;
    uint32_t reach; /* no cell at or above it was ever written */

    bool beside;      /* other threads shrink while this one runs the hooks */
    struct rig *next; /* from here on for follow.h */
    int family;       /* the same for linked caches */
    struct rig_seen seen;

    struct rig_evict evict[RIG_EVICTS]; /* what on_evict was asked */
    int n_evict;
    uint64_t veto;                                                /* sequences for which on_evict says "keep" */
    void (*in_evict)(struct rig *rig, kvlazy_seq_id, kvlazy_pos); /* runs inside on_evict */

    char log[1 << 14]; /* every line, each after its level and a colon */
    size_t log_bytes;
    int n_log;
};

/* A rig with one stream for 4 sequences, 512 cells, initial 0, idle 500 ms, three layers with rows of awkward sizes,
 * the clock at 1000 and on_evict counted. rig_open creates the cache and must succeed; rig_adopt is its second half,
 * for a test that created the cache itself. */
struct rig *rig_new(void);
void rig_open(struct rig *rig);
void rig_adopt(struct rig *rig);
void open_with(struct rig *rig, uint32_t kv_size, uint32_t initial); /* rig_open with these two */
void rig_free(struct rig *rig);
void rig_rows(struct rig *rig, int n_layer, const size_t (*k_v)[2]);

/* The pages of a rig's host, by number: 0 its own of 4 KiB; larger ones that it grants over these: 1 of 16 KiB, 2 of
 * 64 KiB where they are advised, 3 of 2 MiB. Call before rig_open. */
enum { RIG_PAGES = 4 };
void rig_pages(struct rig *rig, uint32_t number);

/* The same for cmocka. The teardown asks for a sound cache and that no mapping is left. */
int rig_setup(void **state);
int rig_teardown(void **state);
#define RIG_TEST(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)

/* One ubatch of n tokens, written out where it is used. */
#define POS(...) ((const kvlazy_pos[]){__VA_ARGS__})
#define SEQ(...) ((const kvlazy_seq_id[]){__VA_ARGS__})
#define UBATCH(n, positions, sequences) ((kvlazy_ubatch){.n_token = (n), .pos = (positions), .seq = (sequences)})

/* The engine's side. put is prepare, apply and rows written, and leaves the batch open; turn is put between
 * init_batch and end_batch. All return the first status that is not OK. */
int put(struct rig *rig, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n);
int put_list(struct rig *rig, kvlazy_seq_id seq, uint32_t n, const kvlazy_pos *pos);
int put_owned(struct rig *rig, int n_owner, const kvlazy_seq_id *owner, kvlazy_pos pos, uint32_t n);
int put_tokens(struct rig *rig, const kvlazy_ubatch *ubatch, uint32_t n_ubatch);
int turn(struct rig *rig, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n);
void turn_at(struct rig *rig, uint64_t now, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n); /* must be OK */
int dry(struct rig *rig, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n); /* prepare alone, then end_batch */
void write_rows(struct rig *rig, const kvlazy_slot *slot);

/* Returns whether the rows of a cell, in all tensors, have the bytes of a stamp. If the cell is not live, its bytes may
 * be zero too. */
bool rig_row_fits(struct rig *rig, uint32_t stream, uint32_t cell, uint32_t stamp, bool live);

/* Fails the test unless kvlazy_check finds the cache sound, its bytes keep the promises, and the fake was used by its
 * contract. */
void rig_sound(struct rig *rig, const char *file, int line);
#define sound(rig) rig_sound(rig, __FILE__, __LINE__)

/* "[a..b]=p..q/o" runs, "0..4=0..4/0 5=3/0+1"; positions rise by one along a run. Static storage. */
const char *cells_text(struct rig *rig, uint32_t stream);
#define cells_are(rig, stream, text) assert_string_equal(cells_text(rig, stream), text)

/* Returns as text what an error must leave alone: cells, positions, and all figures but the counts of refusals. The
 * caller frees it, or rig_same does. */
char *rig_dump(struct rig *rig);
void rig_same(struct rig *rig, char *dump, const char *file, int line); /* compares and frees */
#define unchanged(rig, dump) rig_same(rig, dump, __FILE__, __LINE__)

/* Fails the test unless the i-th question of on_evict was about this sequence and position. */
void asked(struct rig *rig, int i, kvlazy_seq_id seq, kvlazy_pos pos);

kvlazy_stats_info stats(struct rig *rig);
uint32_t live_of(struct rig *rig, kvlazy_seq_id seq); /* tokens of a sequence that has no holes */
bool is_packed(struct rig *rig);                      /* in every stream live cells lie below all others */
bool cells_zero(struct rig *rig, uint32_t stream, uint32_t lo, uint32_t hi); /* every byte of [lo, hi) */
uint64_t cover(struct rig *rig);                                             /* bytes of the page cover of live cells */
uint64_t cover_with(struct rig *rig, uint32_t n, const uint32_t *stream, const uint32_t *cell); /* and of these */
uint64_t cover_of(struct rig *rig, uint32_t n, const uint32_t *stream, const uint32_t *cell);   /* of these alone */
uint64_t cover_cells(struct rig *rig, uint32_t stream, uint32_t lo, uint32_t hi);               /* of [lo, hi) alone */

int poll_next(struct rig *rig, uint64_t *next); /* kvlazy_poll with next preset to rubbish that must go */

/* Polls, and moves the clock by the next_ms of each poll, until a poll asks for no other. Returns the time that took.
 */
uint64_t settle(struct rig *rig);

#endif
