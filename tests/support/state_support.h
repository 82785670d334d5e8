/* SPDX-License-Identifier: MIT */
/*
 * What the tests of states stand on: a box, that is one cache over a fake operating system with rows in any layout, a
 * tape that a state is written to and read from, and pictures of a cache that are compared: as an engine sees it,
 * sequence by sequence, and to the bit. Cells are found through public headers; what a cache knows of a sequence beside
 * its tokens is looked up inside.
 */
#ifndef STATE_SUPPORT_H
#define STATE_SUPPORT_H

#include "unit.h"

#include <kvlazy/state.h>

#include "core/cache.h"
#include "expect.h"
#include "fake_mem.h"

enum { BOX_LAYERS = 3, BOX_MOST = 4096 };

struct box {
    struct fake_mem fake;
    kvlazy_params params; /* change between box_new and box_open */
    kvlazy_layer layer[BOX_LAYERS];
    kvlazy_cache *cache;
    uint32_t stamp;   /* of the row last written */
    bool in_callback; /* on_evict runs this: */
    void (*in_evict)(struct box *box, kvlazy_seq_id seq);
    char log[4096]; /* the last line */
};

/* 64 cells, 4 sequences in one stream, two layers of 24 and 16 bytes of K and 12 and 8 of V, idle after 500 ms. */
struct box *box_new(void);
struct box *box_open(struct box *box);
void box_free(struct box *box);
/* V lies transposed, in elements of so many bytes; 0: row-major. */
struct box *box_transpose(struct box *box, uint32_t element_bytes);
struct box *box_small(void);                              /* of one layer and few bytes, open */
struct box *box_streams(void);                            /* a stream for each of 4 sequences; not open */
struct box *box_window(uint32_t kv_size, uint32_t n_swa); /* not open */

/* n tokens at pos, pos + 1, …, in one batch whose rows are written. `put` leaves the batch open. */
int box_put(struct box *box, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n);
void box_turn(struct box *box, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n);
void box_turn_planes(struct box *box, kvlazy_seq_id seq, kvlazy_pos pos, uint32_t n); /* all at one position */
/* Holes: so many cells of every second run of `run` are taken by sequence `other`, the rest is free. */
void box_riddle(struct box *box, kvlazy_seq_id other, uint32_t run);

/* Bytes of a row, wherever they lie. */
void box_row(struct box *box, const kvlazy_tensor *t, uint32_t stream, uint32_t cell, unsigned char *row);

/* A number for all that an engine sees of a sequence, wherever it lies: positions, planes, the bytes of all rows. */
uint64_t box_sum(struct box *box, kvlazy_seq_id seq);

/* The cache to the bit. After an error dead bytes may read zero instead. */
struct picture;
struct picture *box_look(struct box *box);
void box_same(struct box *box, struct picture *before, const char *file, int line); /* frees it */
void box_forget(struct picture *picture);
#define same(box, picture) box_same(box, picture, __FILE__, __LINE__)
void box_sound(struct box *box);

/* ---- tapes ---- */

struct tape {
    unsigned char *byte;
    size_t n, room, at;
    int fail_in; /* n > 0: the n-th call fails */
    int n_call;
    size_t largest;         /* bytes of one call */
    void (*inside)(void *); /* runs in every call */
    void *ctx;
};

int tape_write(void *tape, const void *data, size_t bytes);
int tape_read(void *tape, void *data, size_t bytes); /* fails at the end */
void tape_free(struct tape *tape);
struct tape tape_of(struct box *box, kvlazy_seq_id seq);              /* must be written */
int tape_into(struct tape *tape, struct box *box, kvlazy_seq_id seq); /* reads it from its beginning */

/* After a change in the section at `at`: its checksum, and that of the head, are right again. */
void tape_mend(unsigned char *byte, size_t n);

#endif
