/* SPDX-License-Identifier: MIT */
/*
 * format: the bytes of a state, version 1, as structs and as checks of them. docs/state-format.md draws them. Pure: the
 * writer fills these in, the reader believes none of them before it was checked here: a state may
 * come from anywhere.
 *
 *     head | NOTE | for each linked cache: SHAP SEQS POSN PLAN OWNR | for each linked cache: ROWS, one a tensor |
 *
 * After the head a state is sections: a frame, as many bytes as it says, and the checksum of both. How long a section
 * is follows from those before it, so a frame tells nothing that has to be trusted.
 */
#ifndef KVL_STATE_FORMAT_H
#define KVL_STATE_FORMAT_H

#include "core/cache.h"

/* "kvlstate", as a number of the writer's byte order: a reader of the other order finds it turned round. */
#define KVL_STATE_MAGIC UINT64_C(0x65746174736c766b)

enum {
    KVL_STATE_VERSION = 1,
    KVL_STATE_SEQUENCE = 0, /* kind: one sequence, */
    KVL_STATE_CACHE = 1,    /* … or every sequence of a cache */
    KVL_STATE_MOVED = 1u << 0,
    KVL_STATE_EVICTED = 1u << 1,
};

typedef struct kvl_state_head {
    uint64_t magic;
    uint32_t version, head_bytes;
    uint32_t kind, n_cache;
    uint64_t note_bytes, total_bytes;
    uint64_t checksum; /* of what stands before it */
} kvl_state_head;

/* Names of sections: four letters. */
#define KVL_STATE_NAME(a, b, c, d) ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)
enum {
    KVL_STATE_NOTE = KVL_STATE_NAME('N', 'O', 'T', 'E'),
    KVL_STATE_SHAPE = KVL_STATE_NAME('S', 'H', 'A', 'P'),
    KVL_STATE_SEQS = KVL_STATE_NAME('S', 'E', 'Q', 'S'),
    KVL_STATE_POSITIONS = KVL_STATE_NAME('P', 'O', 'S', 'N'),
    KVL_STATE_PLANES = KVL_STATE_NAME('P', 'L', 'A', 'N'),
    KVL_STATE_OWNERS = KVL_STATE_NAME('O', 'W', 'N', 'R'),
    KVL_STATE_ROWS = KVL_STATE_NAME('R', 'O', 'W', 'S'),
};

typedef struct kvl_state_frame {
    uint32_t name;
    uint32_t number; /* of the section in the state, from 0 */
    uint64_t bytes;  /* that follow, without the checksum behind them */
} kvl_state_frame;

/* SHAP: what rows are like, and how much of everything there is; n_tensor kvl_state_tensor follow. */
typedef struct kvl_state_shape {
    uint32_t n_plane; /* position planes that are kept: 1, or 3 */
    uint32_t swa_type, n_swa;
    uint32_t n_tensor, n_seq, n_token;
    uint64_t n_owner; /* of all tokens together */
    uint32_t tag_bytes, zero;
    uint8_t tag[KVL_TAG_BYTES]; /* zeros behind tag_bytes */
} kvl_state_shape;

/* By layer, K before V. */
typedef struct kvl_state_tensor {
    uint32_t layer_id, is_v;
    uint64_t row_bytes;
} kvl_state_tensor;

/* SEQS: one sequence, whose id is 0; or, of a cache, those that have tokens or marks, by id. */
typedef struct kvl_state_seq {
    int32_t seq;
    kvlazy_pos lost_end; /* recycling took positions below this */
    uint32_t marks;      /* KVL_STATE_MOVED, KVL_STATE_EVICTED */
    uint32_t n_token;
} kvl_state_seq;

/* POSN: n_token positions, ascending in each sequence. PLAN: with planes n_token of y, then n_token of x. OWNR: of a
 * cache, for each token how many own it, then their ids. ROWS: n_token rows of one tensor, row-major. */

_Static_assert(sizeof(kvl_state_head) == 48 && sizeof(kvl_state_frame) == 16 && sizeof(kvl_state_shape) == 104 &&
                   sizeof(kvl_state_tensor) == 16 && sizeof(kvl_state_seq) == 16,
               "the structs have no padding");

/* What is wrong with a state: the field, what stands there and what should. */
typedef struct kvl_state_fault {
    const char *what; /* NULL: nothing */
    uint64_t theirs, ours;
} kvl_state_fault;

/* What a state of this cache says of it; n_seq, n_token and n_owner are still 0. */
kvl_state_shape kvl_state_shape_of(const kvlazy_cache *cache);

/* The tensor behind this one in the order of the format, NULL: the first. Returns NULL behind the last. */
const kvl_tensor *kvl_state_next_tensor(const kvl_geometry *geometry, const kvl_tensor *tensor);
kvl_state_tensor kvl_state_tensor_of(const kvl_tensor *tensor);

/* Bytes of the contents of each section, and of a state. */
uint64_t kvl_state_shape_bytes(const kvl_state_shape *shape);
uint64_t kvl_state_planes_bytes(const kvl_state_shape *shape);
uint64_t kvl_state_owners_bytes(const kvl_state_shape *shape, uint32_t kind);
uint64_t kvl_state_section_bytes(uint64_t bytes); /* frame and checksum with it */
/* A cache's own part, its rows with it. The shape agrees with the cache. */
uint64_t kvl_state_cache_bytes(const kvlazy_cache *cache, const kvl_state_shape *shape, uint32_t kind);

/* Checks, in the order in which a reader meets things. */
kvl_state_fault kvl_state_check_head(const kvl_state_head *head, uint32_t kind, uint32_t n_cache);
kvl_state_fault kvl_state_check_frame(const kvl_state_frame *frame, uint32_t name, uint32_t number, uint64_t bytes);
kvl_state_fault kvl_state_check_shape(const kvlazy_cache *cache, const kvl_state_shape *shape, uint32_t kind);
kvl_state_fault kvl_state_check_tensor(const kvl_state_tensor *tensor, const kvl_tensor *here);
kvl_state_fault kvl_state_check_seq(const kvlazy_cache *cache, const kvl_state_seq *seq, uint32_t kind,
                                    kvlazy_seq_id least);

/* What was met of one sequence while its tokens are looked at. */
typedef struct kvl_state_seen {
    bool known;
    kvlazy_pos last;
    uint32_t n_token;
} kvl_state_seen;

/* The tokens of a state that was read: positions in order, owners known and of one stream, everything counted.
 * `seen`: [n_seq_max], all zero; owner: NULL for one sequence. */
kvl_state_fault kvl_state_check_tokens(kvlazy_cache *cache, const kvl_state_shape *shape, const kvl_state_seq *seq,
                                       const kvlazy_pos *pos, const uint32_t *owner, kvl_state_seen *seen);

/* Some rows of a tensor that go in one piece: whole ones, or part of one that is longer than a piece. */
typedef struct kvl_state_piece {
    uint32_t begin, n;
    kvl_span part; /* of each row */
} kvl_state_piece;

/* The piece behind this one, all zero: the first. Returns false behind the last. */
bool kvl_state_next_piece(kvl_state_piece *piece, uint32_t n_token, uint64_t row_bytes);

static inline uint64_t kvl_state_row_bytes(const kvl_tensor *tensor)
{
    return tensor->cell_bytes * tensor->n_lane;
}

#endif
