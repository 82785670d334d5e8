/* SPDX-License-Identifier: MIT */
/*
 * A bed: one cache over one fake operating system, with tensors wherever a test puts them: laid out by the library,
 * in arenas of the test with padding around, or on a device. It writes the rows of every token with bytes of their
 * own and remembers them by sequence and position, so that tokens may move and bed_sound() still holds every byte of
 * the cache, dead or alive, against the promises. Everything is computed cell by cell and channel by channel from the
 * public description of a tensor.
 */
#ifndef LAYOUT_SUPPORT_H
#define LAYOUT_SUPPORT_H

#include "unit.h"

#include <stdbool.h>

#include <kvlazy/kvlazy.h>

#include "expect.h"
#include "fake_mem.h"

enum {
    BED_LAYERS = 6,
    BED_TENSORS = 2 * BED_LAYERS,
    BED_ARENAS = 4,
    BED_SEQS = 8,
    BED_POS = 1 << 13,
    BED_UBATCHES = 4,
    BED_PATTERN = 0xE7
};

/* A range of addresses that holds tensors: an arena of the test, or what the library laid out. */
struct bed_area {
    kvlazy_arena *arena; /* NULL: the library's */
    unsigned char *base;
    size_t bytes;
    unsigned char *named; /* [bytes]: some tensor names the byte; NULL: all bytes are the library's */
    unsigned char *may;   /* [pages]: may be touched, since something under it was written */
};

struct bed {
    struct fake_mem fake;
    kvlazy_params params;
    kvlazy_layer layers[BED_LAYERS];
    kvlazy_tensor theirs[BED_TENSORS]; /* k and v of each layer, where the layer points to them */
    struct bed_area area[BED_ARENAS + 1];
    int n_area;
    kvlazy_cache *cache;

    uint32_t n_stream, kv_size, n_seq;
    int n_tensor;
    kvlazy_tensor tensor[BED_TENSORS]; /* those with bytes here */
    kvlazy_slot slot[BED_UBATCHES];    /* of the last prepare */

    uint32_t last_stamp;
    uint32_t *content;         /* [n_stream][kv_size] which bytes a cell's rows last had; 0: never any, or zero again */
    uint32_t *token[BED_SEQS]; /* [BED_POS] the bytes of a token; 0: there is none */
    uint64_t veto;             /* sequences that on_evict keeps */
    int n_evict;
    bool failed;       /* a commit failed: pages of the test's arenas may be committed nevertheless */
    bool leaves_pages; /* apply leaves them to a watcher (KVLAZY_UBATCH_AHEAD): fewer may be present than are touched */
    uint64_t n_os_refusal, touched_bytes; /* when they were last looked at */
};

/* A bed of one stream for 4 sequences, 512 cells, idle 500 ms, the clock at 1000, and no layer yet. */
struct bed *bed_new(size_t page);
void bed_free(struct bed *bed); /* fails the test if a mapping is left */

/* Adds a layer; the library lays it out unless k or v say otherwise. */
kvlazy_layer *bed_layer(struct bed *bed, size_t k_row_bytes, size_t v_row_bytes, uint32_t v_channels);
struct bed_area *bed_arena(struct bed *bed, size_t bytes);

/* Returns a tensor of the test's own, packed. The test sets its data, and larger strides for bytes between. */
kvlazy_tensor bed_packed(size_t row_bytes, uint32_t n_channel, uint32_t kv_size, uint32_t n_stream);
/* Returns the bytes from data to the end of its last cell. */
size_t bed_tensor_bytes(const kvlazy_tensor *tensor, uint32_t kv_size, uint32_t n_stream);

/* Where a cell's element of one channel lies; a tensor that is not transposed has one channel of whole rows. */
uint32_t bed_channels(const kvlazy_tensor *tensor);
size_t bed_element_bytes(const kvlazy_tensor *tensor);
unsigned char *bed_place(const kvlazy_tensor *tensor, uint32_t stream, uint32_t channel, uint32_t cell);
struct bed_area *bed_area_of(struct bed *bed, const unsigned char *at); /* fails the test if there is none */

/* Fill the bytes that no tensor names with a pattern, and create the cache. bed_open fails the test on an error. */
int bed_create(struct bed *bed);
void bed_open(struct bed *bed);

/* Fails the test unless the cache is sound and the bytes that no tensor names were left alone. */
int bed_teardown(void **state);
/* A test in a file that defines bed_setup. */
#define BED_TEST(f) cmocka_unit_test_setup_teardown(f, bed_setup, bed_teardown)

/* The engine's side: n tokens of a sequence from where it ends, in one batch that is left open, or closed. */
int bed_put(struct bed *bed, kvlazy_seq_id seq, uint32_t n, uint32_t n_ubatch);
int bed_turn(struct bed *bed, kvlazy_seq_id seq, uint32_t n);
void bed_rm(struct bed *bed, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);
int bed_cp(struct bed *bed, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1);
void bed_keep(struct bed *bed, kvlazy_seq_id seq);
void bed_clear(struct bed *bed, bool data);
/* Tokens that a call is known to have dropped: positions [p0, p1), and all of a sequence. */
void bed_drop(struct bed *bed, kvlazy_seq_id seq, kvlazy_pos p0, kvlazy_pos p1);
void bed_forget(struct bed *bed, kvlazy_seq_id seq);
uint64_t bed_settle(struct bed *bed); /* polls until there is nothing more to do; the time it took */

/* The rows of one cell: writes the bytes of a stamp, and compares. */
void bed_write(struct bed *bed, uint32_t stream, uint32_t cell, uint32_t stamp);
bool bed_holds(struct bed *bed, uint32_t stream, uint32_t cell, uint32_t stamp);
bool bed_is_stale(struct bed *bed, uint32_t stream, uint32_t cell, uint32_t stamp); /* zero or these bytes */
bool bed_is_zero(struct bed *bed, uint32_t stream, uint32_t cell);

/* Which pages may be touched: those of written cells, until a release leaves only those of live ones. */
void bed_may_touch(struct bed *bed, uint32_t stream, uint32_t cell);
uint64_t bed_may_bytes(struct bed *bed);
void bed_release_pages(struct bed *bed);

/* Checks everything: kvlazy_check, the bytes of live cells and of others, figures, addresses, the fake. `released`:
 * every free page was just given back, so that all bytes of empty cells are zero and only pages of live cells are
 * touched. Where the cache may evict, tails of sequences may be gone. */
void bed_sound_(struct bed *bed, bool released, const char *file, int line);
#define bed_sound(bed) bed_sound_(bed, false, __FILE__, __LINE__)
#define bed_sound_released(bed) bed_sound_(bed, true, __FILE__, __LINE__)
void bed_pattern_kept(struct bed *bed);

kvlazy_stats_info bed_stats(struct bed *bed);
kvlazy_cells_view bed_view(struct bed *bed, uint32_t stream);
uint64_t bed_cover(struct bed *bed, uint32_t stream, uint32_t lo, uint32_t hi); /* bytes of the pages of [lo, hi) */
uint64_t bed_live_cover(struct bed *bed);
uint64_t bed_host_calls(const struct bed *bed); /* commit and decommit */

/* Returns the cells as runs "a..b=p..q/o". Static storage. */
const char *bed_cells(struct bed *bed, uint32_t stream);
#define cells_are(bed, stream, text) assert_string_equal(bed_cells(bed, stream), text)

#endif
