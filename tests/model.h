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

enum { MODEL_STREAMS = 4, MODEL_SEQS = 8, MODEL_CELLS = 1024, MODEL_TOKENS = 512, MODEL_UBATCHES = 4 };

enum { MODEL_TAILS, MODEL_WHOLE, MODEL_KEEP };

struct model_token {
    int ubatch;
    int32_t pos;
    uint32_t owners;       /* a bit a sequence */
    uint32_t stream, cell; /* chosen by model_place */
};

struct model {
    uint32_t n_stream, n_seq, kv_size, n_pad, initial, keep_tokens;
    uint64_t idle_ms;
    int shrink;

    uint64_t now;
    int32_t pos[MODEL_STREAMS][MODEL_CELLS]; /* -1: empty */
    uint32_t own[MODEL_STREAMS][MODEL_CELLS];
    uint64_t dead_since[MODEL_STREAMS][MODEL_CELLS]; /* of an empty cell */

    uint64_t stamp[MODEL_SEQS];
    bool in_batch[MODEL_SEQS]; /* an apply of the open batch touched it */
    bool evicted[MODEL_SEQS];  /* cut or emptied by eviction, and not removed whole since */
    bool again[MODEL_SEQS];    /* … and held tokens after that */
    bool open;

    uint64_t n_evict, evicted_cells;
};

void model_init(struct model *m);

/* First cell of a sequence's highest and lowest position; -1: empty. */
int32_t model_max(const struct model *m, uint32_t seq);
int32_t model_min(const struct model *m, uint32_t seq);
uint32_t model_live(const struct model *m, uint32_t stream);
uint32_t model_used_end(const struct model *m, uint32_t stream);
uint32_t model_stream(const struct model *m, uint32_t seq);

/* Sequences (a bit each) whose positions in this batch do not go on. */
uint32_t model_bad_positions(const struct model *m, const struct model_token *t, int n);
/* Chooses cells, lowest first; streams (a bit each) in which they run out. */
uint32_t model_place(const struct model *m, struct model_token *t, int n);
/* Cells attention reads for one ubatch of a placed batch. */
uint32_t model_n_kv(const struct model *m, const struct model_token *t, int n, int ubatch);

void model_apply(struct model *m, const struct model_token *t, int n, int ubatch);
void model_undo(struct model *m, const struct model_token *t, int n, int ubatch);
void model_end(struct model *m);                                         /* of an open batch */
bool model_remove(struct model *m, int32_t seq, int32_t p0, int32_t p1); /* false: it would tear a whole one */
void model_clear(struct model *m);

/* May the cells be as they are in `after`, where `m` is before a shrink of every stream to target cells (force:
 * whatever the clock says)? NULL: they may, and counts and evicted marks of m are brought up to date; else what
 * is wrong. target UINT32_MAX: any loss of tails is in order (a lowered budget). */
const char *model_judge(struct model *m, const struct model *after, uint32_t target, bool force);

#endif
