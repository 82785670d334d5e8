/* SPDX-License-Identifier: MIT */
/*
 * stream: what a cache knows of one stream beside its cells: when it was used, what is to be given back and moved, and
 * how it decodes. Fields only; the nouns that use them say what they mean to each.
 */
#ifndef KVL_STREAM_H
#define KVL_STREAM_H

#include "tokens/cells.h"

typedef struct kvl_stream {
    kvl_cells cells;
    uint64_t active_ms; /* the last end_batch that followed an apply here */
    bool awake;         /* was active, and has not been looked at since it came to rest */
    uint32_t n_single;  /* batches in a row that brought one token here */
    uint32_t n_applied; /* tokens of the open batch so far */
    uint32_t cap_said;  /* the soft cap that the log last told */

    bool compacts;             /* its cells are to be moved down, unless a hook comes between */
    uint64_t compact_until_ms; /* decay leaves it alone until then */
    bool drains;               /* it lost tokens: all its free pages are to go, those that were only read too */
    bool rested;               /* it came to rest: of its pages those go too that were only read */
    bool rests;                /* it came to rest: its arrays are to go as far as nothing uses them */
    bool searched;             /* pages that were written without being touched are searched in it, */
    bool searched_next;        /* … or by the search after the one that is under way */

    /* with cells that the engine keeps */
    bool pending;     /* touched, and no end_batch has stamped it yet */
    uint64_t veto_ms; /* the engine would not vacate: until then */
    uint32_t ensured; /* the soft cap holds so many cells, until the stream idles */

    uint32_t keep_end; /* cells [n_cell, keep_end) are kept too, past cells.keep */

    /* scratch of release */
    uint32_t first_dead_end;  /* the first dead run of the stream ends here; 0: its first cell is kept */
    uint32_t last_dead_begin; /* the last begins here; kv_size: its last cell is kept */

    /* scratch of prepare */
    uint32_t next_free; /* where its search for free cells stands */
    kvl_cells trial;    /* with a window: cells as earlier ubatches would leave them */
    bool tried;         /* trial is in use */
    bool has_oldest;    /* with a window: plan.oldest has the sequences of the stream, n_oldest of them */
    uint32_t n_oldest;
} kvl_stream;

#endif
