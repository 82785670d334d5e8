/* SPDX-License-Identifier: MIT */
/*
 * What tests of sequences need beside the rig: a copy of rows that the rig follows, pending shifts and position planes
 * as text, batches with planes. It uses the public headers alone.
 */
#ifndef SEQ_SUPPORT_H
#define SEQ_SUPPORT_H

#include "owners.h"
#include "support.h"

/* kvlazy_seq_cp. The rig notes the bytes that rows of another stream were given, so that sound() knows them. */
int cp(struct rig *rig, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1);
/* The same, with a call of the test's own around kvlazy_seq_cp. */
int cp_by(struct rig *rig, kvlazy_seq_id src, kvlazy_seq_id dst, kvlazy_pos p0, kvlazy_pos p1,
          int (*copy)(kvlazy_cache *, kvlazy_seq_id, kvlazy_seq_id, kvlazy_pos, kvlazy_pos));

/* "3=-2 7=5": the cells with a shift. "none" where the view has no shifts at all. Static storage. */
const char *shifts_text(struct rig *rig, uint32_t stream);
#define shifts_are(rig, stream, text) assert_string_equal(shifts_text(rig, stream), text)

/* "3=1,2": y and x of the live cells in which one of them is not 0. "none" where the view has no planes. */
const char *planes_text(struct rig *rig, uint32_t stream);
#define planes_are(rig, stream, text) assert_string_equal(planes_text(rig, stream), text)

/* A cache of n streams, opened; and one with a window, in the shape that params has. */
void streams_of(struct rig *rig, uint32_t n);
void open_window(struct rig *rig, uint32_t kv_size, int type, uint32_t n_swa);
struct rig *window_rig(uint32_t kv_size, int type, uint32_t n_swa); /* new, and so opened */

/* Least and largest position of a sequence. */
#define seq_is(rig, seq, min, max)                                        \
    do {                                                                  \
        assert_int_equal(kvlazy_seq_pos_min((rig)->cache, (seq)), (min)); \
        assert_int_equal(kvlazy_seq_pos_max((rig)->cache, (seq)), (max)); \
    } while (0)

/* Tokens of one sequence with position planes: pos[plane · stride + i]. The rows are written. */
int put_planes(struct rig *rig, kvlazy_seq_id seq, uint32_t n, uint32_t stride, const kvlazy_pos *pos);

kvlazy_cells_view look(struct rig *rig, uint32_t stream);

#endif
