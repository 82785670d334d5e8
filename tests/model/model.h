/* SPDX-License-Identifier: MIT */
/*
 * A naive model of a cache: plain arrays, linear scans, no cleverness. It says what every operation must
 * answer and which cells hold what afterwards. Where the rules leave a choice (two sequences idle for equally
 * long, shared cells) it only judges what the library chose. It shares no code with the library.
 */
#ifndef MODEL_H
#define MODEL_H

#include <stdbool.h>
#include <stdint.h>

enum {
    MODEL_STREAMS = 4,
    MODEL_SEQS = 8,
    MODEL_CELLS = 320,
    MODEL_POS = 4096,
    MODEL_TOKENS = 512,
    MODEL_UBATCHES = 4,
    MODEL_LINKED = 2,
    MODEL_AHEAD = 32 /* cells made ready behind a token of a sequence that is decoded one by one */
};

enum { MODEL_TAILS, MODEL_WHOLE, MODEL_KEEP };
enum { MODEL_NO_WINDOW, MODEL_STANDARD, MODEL_CHUNKED, MODEL_SYMMETRIC };

struct model_token {
    int ubatch;
    int32_t pos, y, x;
    uint32_t owners;       /* a bit a sequence */
    uint32_t stream, cell; /* chosen by model_place */
};

struct model {
    uint32_t n_stream, n_seq, kv_size, n_pad, initial, keep_tokens;
    uint64_t idle_ms;
    int shrink;
    int window;
    int32_t n_swa;
    uint32_t n_plane;

    uint64_t now;
    int32_t pos[MODEL_STREAMS][MODEL_CELLS]; /* -1: empty */
    int32_t shift[MODEL_STREAMS][MODEL_CELLS], y[MODEL_STREAMS][MODEL_CELLS], x[MODEL_STREAMS][MODEL_CELLS];
    uint32_t own[MODEL_STREAMS][MODEL_CELLS];
    uint64_t dead_since[MODEL_STREAMS][MODEL_CELLS]; /* of an empty cell */
    uint32_t n_freed[MODEL_STREAMS][MODEL_CELLS];    /* how often the cell was emptied */

    uint64_t active[MODEL_STREAMS];                             /* when a sequence of the stream was used last */
    bool awake[MODEL_STREAMS];                                  /* and it was not seen to rest since */
    uint32_t n_applied[MODEL_STREAMS], n_single[MODEL_STREAMS]; /* tokens of the open batch; batches of one before it */

    uint64_t stamp[MODEL_SEQS];
    bool in_batch[MODEL_SEQS]; /* it holds tokens that an apply of the open batch brought, or a copy of some */
    int32_t fresh[MODEL_SEQS]; /* … from this position on; -1: positions moved since, so that any may be one */
    bool evicted[MODEL_SEQS];  /* the mark of a sequence that was cut: while it is empty it begins at 0 */
    bool again[MODEL_SEQS];    /* … or not: of this one nothing says whether it is marked */
    uint64_t veto[MODEL_SEQS]; /* on_evict said keep: until then */
    bool agreed[MODEL_SEQS];   /* on_evict said yes, and the sequence has not changed since */
    bool open;

    bool lost[MODEL_SEQS][MODEL_POS]; /* positions that recycling took, or eviction from below */
    bool unclear[MODEL_SEQS];         /* … and then they were copied or moved in part: `emptied` decides */
    bool emptied[MODEL_SEQS];         /* set by the caller: the library holds nothing of this one */

    /* Of linked caches. The caller sets what the other holds of each sequence (-1: nothing) and that only whole
     * sequences go from one of them, and empties in the other what is torn here. */
    struct model_span {
        int32_t min, max;
    } elsewhere[MODEL_SEQS];
    bool whole;
    uint32_t torn, perhaps_torn; /* a bit a sequence, until the caller clears it */

    uint64_t n_evict, evicted_cells, n_moved;
    uint64_t n_recycled, n_unfillable; /* cells taken from a sequence; sequences that lost part of a window */
};

void model_init(struct model *m);

/* First cell of a sequence's highest and lowest position; -1: empty. */
int32_t model_max(const struct model *m, uint32_t seq);
int32_t model_min(const struct model *m, uint32_t seq);
uint32_t model_live(const struct model *m, uint32_t stream);
uint32_t model_used_end(const struct model *m, uint32_t stream);
uint32_t model_stream(const struct model *m, uint32_t seq);

/* Sequences (a bit each) whose positions in this batch do not go on. restores: saved tokens come back, so that each
 * sequence is to be empty, and may have any positions. */
uint32_t model_bad_positions(const struct model *m, const struct model_token *t, int n, bool restores);
/* Chooses cells, lowest first, then masked ones, but not for a restore; streams (a bit each) in which they run out. Of
 * masked cells at one position any may be the one: a choice[n] of cells is followed where it is right, else the lowest
 * is taken. *open_choice: two sequences had one, so that from there on more than one answer is right. */
uint32_t model_place(const struct model *m, struct model_token *t, int n, bool restores, const uint32_t *choice,
                     bool *open_choice);
/* Cells attention reads for one ubatch of a placed batch. */
uint32_t model_n_kv(const struct model *m, const struct model_token *t, int n, int ubatch);

void model_apply(struct model *m, const struct model_token *t, int n, int ubatch);
void model_use(struct model *m, uint32_t seq);                           /* it and its stream are not idle */
void model_note_fresh(struct model *m, uint32_t seq, int32_t pos);       /* the open batch brought a token of it */
void model_end(struct model *m);                                         /* of an open batch */
bool model_remove(struct model *m, int32_t seq, int32_t p0, int32_t p1); /* false: it would tear a whole one */
void model_clear(struct model *m);

/* Would a token at b of the sequence not see one at a? */
bool model_masked(const struct model *m, int32_t a, int32_t b);
/* A cell that could be recycled now, and how many of a stream could. */
bool model_may_take(const struct model *m, uint32_t stream, uint32_t cell);
uint32_t model_recyclable(const struct model *m, uint32_t stream);

void model_keep(struct model *m, uint32_t seq);

/* MODEL_PERHAPS: with whole sequences this may be refused with NOT_SUPPORTED, or done as the model did it. */
enum { MODEL_OK, MODEL_RANGE, MODEL_FULL, MODEL_NOT_SUPPORTED, MODEL_PERHAPS };
/* A copy; the cells that get rows of another stream's are left in `to` (their number is answered). */
int model_copy(struct model *m, uint32_t src, uint32_t dst, int32_t p0, int32_t p1, uint32_t *to, uint32_t *n_to);
void model_copy_failed(struct model *m, uint32_t dst);                             /* for want of room */
uint32_t model_count(const struct model *m, uint32_t seq, int32_t p0, int32_t p1); /* its cells in a range */
/* Positions become (pos + delta) / divisor. */
int model_move(struct model *m, uint32_t seq, int32_t p0, int32_t p1, int64_t delta, int32_t divisor);
bool model_waits(const struct model *m, uint32_t streams); /* one of them (a bit each), for K to be rotated */
void model_shift_done(struct model *m);

/* Streams (a bit each) that are seen to rest for the first time since they were used. */
uint32_t model_rest(struct model *m);

/* How a stream becomes dense: with n live cells, those at n and above go into the free cells below, both in order. */
struct model_step {
    uint32_t from, to;
};
int model_packing(const struct model *m, uint32_t stream, struct model_step step[MODEL_CELLS]);
void model_step(struct model *m, uint32_t stream, struct model_step step);

/* What m still has of its tokens in `after`, where they were in m. Of a sequence's position all stay or none. */
void model_left(const struct model *m, const struct model *after, struct model *left);

/* A shrink of every stream to target cells, UINT32_MAX: any loss of tails is in order (a lowered budget). */
struct model_shrunk {
    struct model *m;           /* before */
    const struct model *after; /* what the library holds now, and nothing moved */
    uint32_t target;
    uint32_t curbed; /* a bit a sequence: what it loses was settled before it was known that it could lose more */
    uint32_t agreed; /* a bit a sequence: on_evict said yes before the call, and it loses all of that or nothing */
    uint64_t n_cut;  /* sequences that lost tokens */
};

/* May the cells of n linked caches, or of one, be as they are (force: whatever the clock says)? NULL: they may, and
 * counts and evicted marks are brought up to date; else what is wrong. */
const char *model_judge(struct model_shrunk *all, int n, bool force);

/* A window of a sequence cannot be filled, in this cache or (perhaps, if not sure) in a linked one: it is emptied. */
void model_tear(struct model *m, uint32_t seq, bool sure);

/* What the files of the model do for one another. */
void model_empty(struct model *m, uint32_t stream, uint32_t cell);
void model_take(struct model *m, uint32_t seq, int32_t p0, int32_t p1);
/* A token at `next` would not see all of its window. */
bool model_misses(const struct model *m, uint32_t seq, int32_t next);
/* Empties a sequence whose next token would, after a removal of [p0, p1): it goes on behind what is left here, or in a
 * linked cache (what it holds in the range says nothing, it may be still to be removed), else at p0. */
void model_refill(struct model *m, uint32_t seq, int32_t p0, int32_t p1);

#endif
