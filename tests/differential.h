/* SPDX-License-Identifier: MIT */
/*
 * The library and the naive model of model.h side by side in one world: a step chooses an operation, does it
 * to both and holds all that can be seen of one against the other. What a step chooses comes from a seed, or
 * from bytes that a fuzzer made. A difference fails the running test and says where it came from.
 */
#ifndef DIFFERENTIAL_H
#define DIFFERENTIAL_H

#include "model.h"
#include "support.h"

struct shape {
    const char *name;
    uint32_t n_stream, n_seq, kv_size, n_pad, initial, keep_tokens;
    int shrink;
    uint32_t flags, budget_pages;
    size_t page;
    int window;
    uint32_t n_swa, n_plane; /* n_plane 0: 1 */
};

extern const struct shape shapes[];
extern const int n_shape;

struct world {
    const struct shape *shape;
    struct rig *r;
    struct model m;
    uint32_t random, seed;
    const unsigned char *bytes; /* of a fuzzer; NULL: random decides */
    size_t n_byte;
    int op;
    char what[160];
    uint64_t budget;

    struct model_token token[MODEL_TOKENS];
    int n_token, n_ubatch;
    kvlazy_pos pos[4][MODEL_TOKENS];
    int32_t n_owner[MODEL_TOKENS];
    kvlazy_seq_id owner[MODEL_TOKENS][MODEL_SEQS];
    const kvlazy_seq_id *owners[MODEL_TOKENS];
    kvlazy_ubatch ubatch[MODEL_UBATCHES];
};

/* What all worlds came across. */
struct sights {
    uint64_t status[16]; /* of prepare */
    uint64_t evicted, recycled, unfillable, copied_rows, copies_refused, moved, shared, replayed;
};
extern struct sights sights;

void world_open(struct world *w, const struct shape *shape, uint32_t seed, const unsigned char *bytes, size_t n_byte);
void world_step(struct world *w);
void world_close(struct world *w);

/* What the files of the driver do for one another. */
uint32_t pick(struct world *w, uint32_t n); /* one of n */
void op_batch(struct world *w);
void has_decayed(struct world *w);
void has_shrunk(struct world *w, uint32_t target, bool force);
void say_emptied(struct world *w); /* tells the model which sequences the library holds nothing of */

#define HOLDS(w, fact)                    \
    do {                                  \
        if (!(fact))                      \
            broken((w), #fact, __LINE__); \
    } while (0)
void broken(struct world *w, const char *fact, int line);

#endif
